"""The live view without a browser: what is sent to one is recorded, what one would send is made up."""

import dataclasses
import html
import re
import threading
import time

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis.position_refinement import moved_positions
from ptynb.data import images
from ptynb.data.arrivals import Arrivals
from ptynb.data.cut_pictures import cut_pictures
from ptynb.data.engine_records import PANES, Change, Epoch, Health, PatternPair, Pictures, Status
from ptynb.data.pattern_r_factors import PatternRFactors
from ptynb.data.standard_error import ErrorMap
from ptynb.settings import Settings
from ptynb.widgets import elements
from ptynb.widgets.element_tree import ElementPage
from ptynb.widgets.elements import below
from ptynb.widgets.live import Live, live
from ptynb.widgets.live.arrival_bar import arrival_bar
from ptynb.widgets.live.live_view import CHANGES, CONVERGENCE, ENGINES, ERRORS, PATTERN, POSITIONS
from ptynb.widgets.live.panes import PROBE_SECONDS, value_text

HOSTILE = "<script>alert(1)</script>"
VALUES = np.linspace(0, 1, 48).reshape(6, 8)


RESULT = pt.Result(
    object=np.exp(1j * np.random.default_rng(1).normal(0, 0.3, (12, 14))),
    probe=np.ones((1, 4, 4)),
    positions=np.zeros((1, 2)),
    origin=(0, 0),
    r_factor=0.1,
)


class Scan:
    """Nine positions, on a grid of ten pixels."""

    pattern_shape = (4, 4)
    corners = positions = np.array([[y, x] for y in (0.0, 10.0, 20.0) for x in (0.0, 10.0, 20.0)])
    pixel_size = (2e-8, 2e-8)

    def __len__(self):
        return len(self.corners)


class Recon:
    """A made-up reconstruction: each look finds it one update further."""

    def __init__(self):
        self._settings = Settings()
        self.assigned, self.calls, self.requests = [], [], []
        self.state, self.update, self.asked = "running", 0, 0
        self.failure, self.broken, self.closed = None, None, False
        self.can_recover, self.recovering, self.notices = False, False, ()
        self.epochs, self.changes, self.engines = (), (), "2 CPU engines, gloo"
        self.batch, self.scan = "16", Scan()
        self.r_factors, self.r_factor_every, self.cost, self.slices, self.states = (), 0, 0.0, 1, 1
        self.told = (Health(0, "host", "CPU", "running", 5, 1234.0, 2**30, 2**34, 0.5, None, 3),)
        self.patterns_asked, self.moving = [], {"object": 0.01, "probe": 0.01}
        self.arrivals = None
        self.moves, self.positions_asked = np.zeros((9, 2)), 0
        self.measured, self.measured_at = 0, []
        self.halves, self.maps = threading.Event(), []

    @property
    def settings(self):
        return self._settings

    @settings.setter
    def settings(self, settings):
        self.assigned.append(settings)
        self._settings = settings

    @property
    def positions(self):
        self.positions_asked += 1
        return self.scan.corners, self.scan.corners + 0.5 + self.moves

    def pattern_r_factors(self, seconds=None):
        """Three patterns more at each question."""
        self.measured = min(self.measured + 3, 9)
        self.measured_at.append(time.monotonic())
        known = np.arange(9) < self.measured
        values = np.where(known, np.arange(9) / 10, np.nan)
        return PatternRFactors(values, np.where(known, self.update, -1), bool(known.all()), self.cost)

    def error_map(self, epochs=None, *, engines=0, progress=None, cancelled=None):
        self.maps.append((epochs, engines))
        progress(3, 8)
        while not self.halves.wait(0.01):
            if cancelled():
                raise RuntimeError("cancelled after 3 of 8 epochs")
        field = np.exp(1j * VALUES).astype(np.complex64)
        error = VALUES.astype(np.float32)
        return ErrorMap(field, error, error, error + 0.125, (0, 0), 4.0, (1e-9, 1e-9))

    @property
    def result(self):
        return RESULT

    def last_status(self):
        if self.state is None:
            return None
        if self.state == "running":
            self.update += 1
        epoch = len(self.epochs)
        return Status(
            rank=0,
            world=2,
            state=self.state,
            epoch=epoch,
            update=self.update,
            updates_per_epoch=99,
            target=40,
            device="cpu",
            backend="gloo",
            threads=1,
            rates=self.moving,
            applied=0,
            arrivals=self.arrivals,
        )

    def pictures(self, request):
        self.asked += 1
        self.requests.append(request)
        if self.broken is not None:
            raise self.broken
        panes = [images.picture(VALUES, pane) for pane in request.panes]
        modes = [images.picture(VALUES, f"probe {n + 1}", f"mode {n + 1}") for n in range(min(2, request.modes))]
        if request.cut is not None and self.slices > 1:
            lines = np.tile(VALUES[0], (self.slices, 1)), np.tile(VALUES[:, 0], (self.slices, 1))
            given = {"at": request.cut, "pixel_size": (1e-9, 1e-9), "distance": 2e-9, "limits": (0.0, 1.0)}
            panes += [cut for pane in request.panes for cut in cut_pictures(pane, *lines, **given)]
        powers = (0.75, 0.25)
        return Pictures(
            len(self.epochs), self.update, (*panes, *modes), powers, (2, 3), self.slices, self.states, self.cost
        )

    def value_at(self, name, y, x, request):
        return VALUES[y, x].item()

    def pattern(self, index):
        self.patterns_asked.append(index)
        if self.broken is not None:
            raise self.broken
        counts = np.full((4, 4), 9.0)
        return PatternPair(index, len(self.epochs), self.update, counts, counts + 1, counts > 0, (0.0, 0.0))

    def health(self):
        return self.told

    def start(self, epochs):
        self._call(f"start {epochs}")

    def pause(self):
        self._call("pause")

    def resume(self):
        self._call("resume")

    def stop(self):
        self._call("stop")

    def recover(self):
        self._call("recover")

    def _call(self, name):
        self.calls.append((name, threading.current_thread()))
        if self.broken is not None:
            raise self.broken


class Sent(list):
    """The traits that a page sends, (element's key, {trait: value}), first all that an element has."""

    page: ElementPage

    def show(self, view):
        self.page = ElementPage(view, lambda message, _: self.extend(message.get("changes", ())))
        self.extend((key, one["values"]) for key, one in self.page.tree()["elements"].items())


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def recon():
    return Recon()


@pytest.fixture
def view(recon, sent):
    shown = live(recon, rate=50.0)
    assert isinstance(shown, Live)
    sent.show(shown)
    yield shown
    shown.close()


def until(condition, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def steady(condition, seconds=0.3):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition()
        time.sleep(0.01)


def browser_sends(element, **state):
    element.receive_values(state)


def click(button):
    button.click()


def values_sent(sent, element, name):
    return [values[name] for key, values in tuple(sent) if key == element.key and name in values]


def frames_sent(sent, view):
    return [frame["number"] for frame in values_sent(sent, view._panes.object, "frame")]


def confirm_frames(view):
    """As a browser that keeps up does."""
    for viewer in (view._panes.object, view._patterns.viewer):
        viewer.observe(lambda change: browser_sends(change["owner"], shown=change["new"]["number"]), "frame")
        browser_sends(viewer, shown=viewer.frame["number"])


def test_frames_go_out_with_object_and_probe(recon, sent, view):
    until(lambda: frames_sent(sent, view) and view._panes.probe.frame["pictures"])
    first, probe = view._panes.object.frame, view._panes.probe.frame
    assert [picture["name"] for picture in first["pictures"]] == ["amplitude", "phase"]
    assert [picture["title"] for picture in probe["pictures"]] == ["mode 1", "mode 2"]
    assert bytes(first["pictures"][0]["image"]).startswith(b"\x89PNG")
    assert first["facts"]["update"] > 0
    assert recon.requests[0] == pt.RenderRequest()


def test_pictures_are_no_finer_than_the_screen_shows(recon, sent, view):
    until(lambda: frames_sent(sent, view))
    longest = max(view._panes.object.frame["pictures"][0]["shape"])
    browser_sends(view._panes.object, coarse=3)
    until(lambda: recon.requests[-1].size == -(-longest // 3))
    browser_sends(view._panes.object, coarse=1)
    until(lambda: recon.requests[-1].size == pt.RenderRequest().size)


def test_state_epoch_loss_and_curve_are_told(recon, view):
    recon.epochs = (Epoch(1, 0.5, 0.1, 1000.0), Epoch(2, 0.125, 0.1, 1234.0))
    recon.changes = (Change(1, 3, f"probe.learning_rate{HOSTILE}", 0.01, HOSTILE),)
    recon.engines = HOSTILE
    until(lambda: "<b>2</b> of 40" in view._summary.value)
    assert ">running</b>" in view._summary.value
    assert "loss <b>0.125</b>" in view._summary.value
    assert "1,105 patterns/s" in view._summary.value  # of both epochs together
    until(lambda: "<polyline" in view._curve.value and "stroke-dasharray" in view._curve.value)
    until(lambda: "Changes" in view._record.value)
    for widget in (view._facts, view._record):
        assert "<script" not in widget.value
        assert html.escape(HOSTILE) in widget.value


def test_the_effective_batch_is_told_with_the_rates_that_go_with_it(recon, view):
    until(lambda: "batch 16" in view._facts.value)
    recon.batch = HOSTILE
    recon.settings = Settings(batch=8, batch_per="engine")
    until(
        lambda: (
            f"batch {html.escape(HOSTILE)}; settings.scale_for_engines(2) scales learning rates chosen for a batch of 8"
            in view._facts.value
        )
    )


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        (None, []),
        ("loading", []),
        ("ready", ["Start"]),
        ("running", ["Pause", "Stop"]),
        ("paused", ["Resume", "Stop"]),
    ],
)
def test_only_buttons_that_make_sense_can_be_clicked(recon, request, state, usable):
    recon.state = state
    view = request.getfixturevalue("view")
    until(lambda: (state or "starting") in view._summary.value)
    until(lambda: [name for name, button in view._controls.buttons.items() if not button.disabled] == usable)
    assert not any(field.widget.disabled for field in view._controls.rates.values())


@pytest.mark.parametrize("ending", ["failed", "closed"])
def test_after_the_end_nothing_can_be_clicked(recon, view, ending):
    until(lambda: not view._controls.buttons["Pause"].disabled)
    if ending == "failed":
        recon.failure = RuntimeError("gone")
    else:
        recon.closed = True
    until(lambda: f">{ending}</b>" in view._summary.value)
    fields = [*view._controls.rates.values(), *view._controls.frozen.values(), view._controls.r_factor]
    controls = [*view._controls.buttons.values(), *(field.widget for field in fields)]
    until(lambda: all(control.disabled for control in controls))
    asked = recon.asked
    steady(lambda: recon.asked == asked, 0.1)


def test_a_click_never_waits_and_clicks_are_carried_out_in_order(recon, view):
    go_on = threading.Event()
    pause = recon.pause
    recon.pause = lambda: (go_on.wait(5), pause())
    view._controls.buttons["Pause"].click()  # was bound when the view was made, so it is the plain one
    until(lambda: len(recon.calls) == 1)
    view._actions.put(recon.pause)
    started = time.monotonic()
    click(view._controls.buttons["Resume"])
    click(view._controls.buttons["Stop"])
    assert time.monotonic() - started < 1
    frames = recon.asked
    confirm_frames(view)
    until(lambda: recon.asked > frames)  # the pictures go on meanwhile
    assert len(recon.calls) == 1
    go_on.set()
    until(lambda: len(recon.calls) == 4)
    assert [name for name, _ in recon.calls] == ["pause", "pause", "resume", "stop"]
    assert threading.current_thread() not in {thread for _, thread in recon.calls}


def test_what_a_click_raises_is_shown_as_text_and_the_next_click_works(recon, view):
    lines = []
    view.tell = lines.append
    recon.broken = RuntimeError(f"Rank 1 {HOSTILE}\nTraceback <b>bold</b>")
    click(view._controls.buttons["Resume"])
    until(lambda: "Rank 1" in view._message.value and "<details>" in view._message.value)
    assert "<script" not in view._message.value
    assert "<b>" not in view._message.value
    assert html.escape(HOSTILE) in view._message.value
    assert "Traceback &lt;b&gt;bold&lt;/b&gt;" in view._message.value
    recon.broken = None
    click(view._controls.buttons["Pause"])
    until(lambda: [name for name, _ in recon.calls] == ["resume", "pause"])
    until(lambda: view._message.value == "")
    until(lambda: lines == ["recon.pause()"])


@pytest.mark.parametrize("part", ["object", "probe"])
def test_a_rate_field_changes_that_rate_alone(recon, view, part):
    browser_sends(view._controls.rates[part].widget, value=0.25)
    until(lambda: recon.assigned)
    assert recon.assigned[0] == Settings().replace(**{part: {"learning_rate": 0.25}})
    steady(lambda: len(recon.assigned) == 1 and view._controls.rates[part].widget.value == 0.25)


def test_the_last_rate_typed_is_the_one_that_counts(recon, view):
    view._actions.put(lambda: time.sleep(0.2))
    for value in (0.5, 0.01):
        browser_sends(view._controls.rates["object"].widget, value=value)
    until(lambda: len(recon.assigned) == 2)
    steady(lambda: recon.settings.object.learning_rate == 0.01 == view._controls.rates["object"].widget.value, 0.2)


def test_a_refused_rate_is_explained_and_the_old_value_comes_back(recon, sent, view):
    field = view._controls.rates["object"].widget
    browser_sends(field, value=-1.0)
    until(lambda: "object.learning_rate is -1.0" in view._message.value)
    steady(lambda: "object.learning_rate is -1.0" in view._message.value)
    assert "greater than or equal to 0" in html.unescape(view._message.value)
    assert recon.settings == Settings()
    assert field.value == 0.1
    assert values_sent(sent, field, "value")[-1] == 0.1


def test_a_rate_changed_by_python_is_shown_and_does_not_bounce_back(recon, sent, view):
    view._complain("still to be read")
    recon.settings = Settings().replace(probe={"learning_rate": 0.5})
    until(lambda: view._controls.rates["probe"].widget.value == 0.5)
    assert values_sent(sent, view._controls.rates["probe"].widget, "value") == [0.1, 0.5]
    steady(lambda: len(recon.assigned) == 1)
    assert "still to be read" in view._message.value


def test_quick_changes_by_python_are_never_undone_by_the_view(recon, view):
    view._actions.put(lambda: time.sleep(0.3))  # busy with what was clicked before
    recon.settings = Settings().replace(probe={"learning_rate": 0.5})
    until(lambda: view._controls.rates["probe"].widget.value == 0.5)
    recon.settings = Settings().replace(probe={"learning_rate": 0.75})
    until(lambda: view._controls.rates["probe"].widget.value == 0.75)
    steady(lambda: recon.settings.probe.learning_rate == 0.75, 0.5)


def test_pictures_wait_for_the_browser_and_the_figures_do_not(recon, sent, view):
    until(lambda: frames_sent(sent, view)[-1:] == [2])
    steady(lambda: frames_sent(sent, view)[-1:] == [2] and recon.asked == 2)
    update = re.search(r"\+ (\d+)/99", view._summary.value)[1]
    until(lambda: f"+ {update}/99" not in view._summary.value)
    confirmed = {"to": view._panes.object.key, "set": {"shown": 1}, "from": "a browser"}
    sent.page.receive(confirmed, [])
    until(lambda: frames_sent(sent, view)[-1:] == [3])
    # Whoever confirms is told nothing back: the page has a message less to handle with each picture.
    assert 1 not in values_sent(sent, view._panes.object, "shown")
    confirm_frames(view)
    until(lambda: len(frames_sent(sent, view)) > 10)


def test_who_reads_that_it_is_paused_can_resume(recon, sent, view):
    until(lambda: "running" in view._summary.value)
    recon.state = "paused"
    until(lambda: "paused" in view._summary.value)
    resume, words = view._controls.buttons["Resume"].key, view._summary.key
    told = [*sent]
    can = next(place for place, (key, values) in enumerate(told) if key == resume and values.get("disabled") is False)
    reads = next(
        place for place, (key, values) in enumerate(told) if key == words and "paused" in values.get("value", "")
    )
    assert can < reads


def test_the_probe_is_drawn_now_and_then_and_is_there_before_the_objects_frame_is_confirmed(
    recon, sent, view, monkeypatch
):
    started, opened = time.monotonic(), len(sent)
    confirm_frames(view)
    until(lambda: len(frames_sent(sent, view)) >= 60, 30)
    whose = {view._panes.probe.key: "probe", view._panes.object.key: "object"}
    frames = [
        (values["frame"]["facts"]["update"], whose[key])
        for key, values in tuple(sent)[opened:]
        if key in whose and "frame" in values
    ]
    most = (time.monotonic() - started) / PROBE_SECONDS + 2
    probes = [update for update, of in frames[:-1] if of == "probe"]
    assert 3 <= len(probes) <= most < 60
    assert all(frames[frames.index((update, "probe")) + 1] == (update, "object") for update in probes)
    assert {request.modes for request in recon.requests} == {0, 4}
    recon.state = "paused"  # what was left out is made up for
    until(
        lambda: view._panes.probe.frame_facts == view._panes.object.frame_facts == {"epoch": 0, "update": recon.update}
    )
    asked = recon.asked
    monkeypatch.setattr("ptynb.widgets.live.panes.PROBE_SECONDS", float("inf"))
    view._panes._modes.value = 1  # another choice is drawn at once
    until(lambda: len(view._panes.probe.frame["pictures"]) == 1)
    assert recon.asked > asked


def test_nothing_new_is_nothing_sent_and_nothing_asked(recon, sent, view):
    confirm_frames(view)
    until(lambda: frames_sent(sent, view))
    recon.state = "paused"
    until(
        lambda: (
            view._panes.object.frame["facts"]["update"] == view._panes.probe.frame["facts"]["update"] == recon.update
        )
    )
    time.sleep(0.1)
    asked, sent_so_far = recon.asked, len(frames_sent(sent, view))
    steady(lambda: recon.asked == asked and len(frames_sent(sent, view)) == sent_so_far, 0.3)
    view._panes._ticks["complex"].value = True  # but another choice is new
    until(lambda: [one["name"] for one in view._panes.object.frame["pictures"]] == list(PANES))


def test_the_same_epoch_of_another_branch_is_looked_at_anew(recon, sent, view):
    confirm_frames(view)
    recon.epochs = (Epoch(1, 0.5, 2.0, 1000.0), Epoch(2, 0.25, 2.0, 1000.0))
    browser_sends(view._panes.positions, value=True)
    browser_sends(view._patterns.number.widget, value=7)
    recon.state = "paused"
    until(lambda: view._panes.object.frame["facts"].get("epoch") == 2 and "loss <b>0.25</b>" in view._summary.value)
    until(lambda: view._panes.object.points and view._patterns.viewer.frame["number"])
    time.sleep(0.6)
    shown, curve, places = view._panes.object.frame["number"], view._curve.value, dict(view._panes.object.points)
    asked = len(recon.patterns_asked)
    steady(lambda: view._panes.object.frame["number"] == shown, 0.2)
    recon.scan.corners = recon.scan.corners + 1.0
    recon.epochs = (recon.epochs[0], Epoch(2, 0.125, 2.0, 1000.0))
    until(lambda: view._panes.object.frame["number"] > shown)
    until(lambda: view._curve.value != curve)
    until(lambda: len(recon.patterns_asked) > asked)
    until(lambda: view._panes.object.points != places)
    shown = view._panes.object.frame["number"]
    recon.changes = (Change(2, 0, "restructured", "a", "b"),)
    until(lambda: view._panes.object.frame["number"] > shown)


def test_a_look_that_costs_much_is_taken_seldom(recon, sent, view):
    recon.cost = 0.05
    confirm_frames(view)
    until(lambda: recon.asked)
    time.sleep(0.1)
    asked = recon.asked
    steady(lambda: recon.asked <= asked + 1, 0.8)
    until(lambda: recon.asked > asked)


def test_a_failure_is_told_with_its_details_as_text(recon, view):
    recon.failure = RuntimeError(f"Engine 1 raised {HOSTILE}\nFile </pre>{HOSTILE}")
    until(lambda: "Engine 1" in view._message.value and ">failed</b>" in view._summary.value)
    first, details = view._message.value.split("<details>")
    assert html.escape(HOSTILE) in first
    assert f"<pre>File &lt;/pre&gt;{html.escape(HOSTILE)}</pre>" in details
    assert "<script" not in view._message.value


def test_a_lost_engine_can_be_recovered_from_with_a_click(recon, view):
    until(lambda: view._panes.object.frame["number"])
    assert view._controls.buttons["Recover"].layout.display == "none"
    recon.failure, recon.can_recover = RuntimeError("The engine of rank 1 has died."), True
    until(lambda: "rank 1 has died" in view._message.value)
    until(lambda: not view._controls.buttons["Recover"].disabled)
    assert view._controls.buttons["Recover"].layout.display is None
    click(view._controls.buttons["Recover"])
    until(lambda: [name for name, _ in recon.calls] == ["recover"])
    recon.failure, recon.can_recover, recon.recovering = None, False, True
    until(lambda: "recovering" in view._summary.value)
    steady(lambda: view._message.value == "")
    confirm_frames(view)
    time.sleep(0.1)
    asked = recon.asked
    steady(lambda: recon.asked == asked)
    recon.recovering = False
    until(lambda: recon.asked > asked)
    assert "running" in view._summary.value


def test_a_failure_is_told_until_it_is_over_whatever_is_clicked(recon, view):
    recon.failure = RuntimeError("The engine of rank 1 has died.")
    until(lambda: "rank 1 has died" in view._message.value)
    recon.broken = RuntimeError("No engine answers.")
    view._actions.put(recon.pause)
    until(lambda: "No engine answers" in view._message.value)
    assert "rank 1 has died" in view._message.value
    recon.broken = None
    view._actions.put(recon.pause)
    until(lambda: "No engine answers" not in view._message.value)
    steady(lambda: "rank 1 has died" in view._message.value, 0.1)
    recon.failure = None
    until(lambda: view._message.value == "")


def test_what_went_wrong_in_passing_is_no_longer_told_once_it_works(recon, view):
    confirm_frames(view)
    view._complain("The rate was refused.")
    recon.broken = TimeoutError("no answer")
    until(lambda: "TimeoutError: no answer" in view._message.value)
    recon.broken = None
    until(lambda: "no answer" not in view._message.value)
    assert "The rate was refused." in view._message.value  # which only the next action takes away


def test_what_went_wrong_without_stopping_anything_is_told_as_text(recon, view):
    recon.notices = (f"The state could not be kept {HOSTILE}.",)
    until(lambda: "could not be kept" in view._notices.value)
    assert HOSTILE not in view._notices.value
    assert html.escape(HOSTILE) in view._notices.value


def test_the_view_keeps_on_when_a_picture_fails(recon, sent, view):
    confirm_frames(view)
    recon.broken = TimeoutError(f"no answer {HOSTILE}")
    until(lambda: "TimeoutError: no answer" in view._message.value)
    assert "<script" not in view._message.value
    count = len(frames_sent(sent, view))
    recon.broken = None
    until(lambda: len(frames_sent(sent, view)) > count + 2)


def test_closing_the_view_ends_its_threads_and_nothing_else(recon, sent):
    before = set(threading.enumerate())
    extra = elements.HTML("a form")
    view = live(recon, extra=[extra])
    mine = {thread.name: thread for thread in set(threading.enumerate()) - before}
    assert set(mine) == {"ptynb live view", "ptynb live requests", "ptynb live actions", "ptynb viewer"}
    assert extra in below(view)
    view.close()
    assert view.closed
    for thread in mine.values():
        thread.join(5)
        assert not thread.is_alive(), thread.name
    assert extra.closed
    assert recon.calls == recon.assigned == []
    view.close()


def test_two_views_of_one_reconstruction_show_the_same(recon, sent, view):
    other = live(recon, rate=50.0)
    browser_sends(view._controls.rates["object"].widget, value=0.125)
    until(lambda: other._controls.rates["object"].widget.value == 0.125)
    other.close()
    steady(lambda: recon.settings.object.learning_rate == 0.125, 0.1)


# What is seen


def boxes(view):
    return view._panes._ticks


def test_what_is_ticked_is_what_is_asked_for(recon, view):
    confirm_frames(view)
    recon.slices = 3
    recon.settings = Settings(slices={"count": 3, "thickness": 1e-9})
    until(lambda: view._panes._slice.max == 3 and view._panes._slice.layout.display is None)
    browser_sends(boxes(view)["amplitude"], value=False)
    browser_sends(boxes(view)["complex"], value=True)
    browser_sends(view._panes._slice, value=2)
    browser_sends(view._panes._flat, value=False)
    browser_sends(view._panes._modes, value=1)
    browser_sends(view._panes._modes_as, index=1)
    wanted = pt.RenderRequest(panes=("phase", "complex"), slice=1, flat=False, modes=1, modes_as="amplitude")
    until(lambda: recon.requests[-1] == wanted)
    until(lambda: [one["name"] for one in view._panes.object.frame["pictures"]] == ["phase", "complex"])
    until(lambda: [one["name"] for one in view._panes.probe.frame["pictures"]] == ["probe 1"])


def test_slices_and_object_modes_are_offered_as_long_as_there_are_several(recon, view):
    confirm_frames(view)
    until(lambda: recon.asked)
    assert view._panes._slice.layout.display == view._panes._object_mode.layout.display == "none"
    recon.slices = recon.states = 3
    recon.settings = Settings(slices={"count": 3, "thickness": 1e-9}, object={"modes": 3})
    until(lambda: view._panes._slice.max == view._panes._object_mode.max == 3)
    browser_sends(view._panes._slice, value=3)
    browser_sends(view._panes._object_mode, value=2)
    until(lambda: (recon.requests[-1].slice, recon.requests[-1].state) == (2, 1))
    recon.slices, recon.states = 2, 1
    recon.settings = Settings(slices={"count": 2, "thickness": 1e-9})
    until(lambda: (recon.requests[-1].slice, recon.requests[-1].state) == (None, 0))
    assert (view._panes._slice.value, view._panes._object_mode.value) == (0, 1)
    until(lambda: view._panes._slice.max == 2)
    browser_sends(view._panes._slice, value=2)  # and it is there to stay
    until(lambda: recon.requests[-1].slice == 1)
    steady(lambda: recon.requests[-1].slice == 1, 0.2)


def test_exact_values_come_from_the_reconstruction(recon, view):
    assert view._panes.object.value_at("amplitude", 2, 3) == f"{VALUES[2, 3]:.4g}"
    assert value_text("phase", -0.5) == "-0.500 rad"
    assert value_text("complex", 2j) == "2 at 1.571 rad"


# Patterns and positions


def clicked(view, name, y, x):
    content = {"kind": "click", "name": name, "y": y, "x": x}
    view._panes.object.receive(content)


def points(view, name, which="points"):
    return np.frombuffer(getattr(view._panes.object, which)[name], "<f4").reshape(-1, 2)


def test_a_click_on_the_object_shows_the_pattern_of_the_nearest_position(recon, view):
    lines = []
    view.tell = lines.append
    confirm_frames(view)
    until(lambda: view._panes.object.frame["number"])
    # The pictures begin at pixel (2, 3) of the object; windows are 4 wide and have moved by half a pixel.
    clicked(view, "phase", 10 + 2.5 - 2 + 3.0, 20 + 2.5 - 3 - 4.0)
    until(lambda: view._patterns.viewer.frame["number"])
    assert recon.patterns_asked[0] == 5
    assert view._patterns.number.widget.value == 5
    assert view._patterns.viewer.layout.display is None
    assert lines == ["recon.pattern(5)"]
    shown = view._patterns.viewer.frame["pictures"]
    assert [one["title"] for one in shown] == ["pattern 5, measured", "pattern 5, modelled"]
    assert shown[0]["limits"] == shown[1]["limits"] == pytest.approx([0, 1.0])  # log10(1 + 9)
    assert "144 counts measured, 160 modelled" in view._patterns._facts.value
    until(lambda: view._panes.object.chosen == {"amplitude": 0, "phase": 0})
    np.testing.assert_allclose(points(view, "phase"), [[10.5, 19.5]])
    asked = len(recon.patterns_asked)
    until(lambda: len(recon.patterns_asked) > asked)  # it goes with the updates


def test_a_pattern_is_chosen_by_its_number(recon, view):
    confirm_frames(view)
    browser_sends(view._patterns.number.widget, value=7)
    until(lambda: recon.patterns_asked[-1:] == [7])
    steady(lambda: set(recon.patterns_asked) == {7}, 0.2)
    browser_sends(view._patterns._log, value=False)
    until(
        lambda: view._patterns.viewer.frame["number"] and view._patterns.viewer.frame["pictures"][0]["unit"] == "counts"
    )
    until(lambda: view._patterns.viewer.frame["pictures"][0]["limits"] == [0.0, 9.0])


def test_positions_are_drawn_with_how_they_moved(recon, view):
    confirm_frames(view)
    browser_sends(view._panes.positions, value=True)
    until(lambda: set(view._panes.object.points) == {"amplitude", "phase"})
    np.testing.assert_allclose(points(view, "amplitude"), recon.scan.corners + 2 - (2, 3))
    assert not view._panes.object.moves  # a common shift is the object's
    assert not view._panes.object.labels
    recon.moves = np.random.default_rng(0).normal(0, 0.1, (9, 2))
    until(lambda: set(view._panes.object.moves) == {"amplitude", "phase"})
    found = moved_positions(recon.scan.corners, recon.scan.corners + recon.moves)
    factor = found.exaggeration()
    np.testing.assert_allclose(points(view, "phase", "moves"), found.arrows(factor) + 2 - (2, 3), atol=1e-5)
    assert view._panes.object.labels == dict.fromkeys(("amplitude", "phase"), f"arrows × {factor:g}")
    browser_sends(view._panes.positions, value=False)
    until(lambda: not view._panes.object.points)
    assert not view._panes.object.labels
    asked = recon.positions_asked
    steady(lambda: recon.positions_asked == asked, 1.3)


def test_the_page_of_positions_tells_lengths_and_the_affine_part_and_draws_arrows_as_chosen(recon, view):
    lines = []
    view.tell = lines.append
    recon.moves = (recon.scan.corners - 10) @ np.array([[0.01, 0.002], [0, 0.01]]).T
    recon.moves[4] += 0.5
    confirm_frames(view)
    browser_sends(view._drawer.buttons, shown=2)
    page = view._panes.arrows
    until(lambda: view._panes.object.moves and "nm" in page._text.value)
    assert lines == ["pt.analysis.position_refinement(recon.result)"]
    found = moved_positions(recon.scan.corners, recon.scan.corners + recon.moves, recon.scan.pixel_size)
    for length in (found.rms, found.largest, found.residual_rms, found.residual_largest):
        assert f"<td>{found.length_text(length)}</td>" in page._text.value
    assert f"Scale {found.affine['scale']:.5f}" in page._text.value
    browser_sends(page._affine, value=True)
    browser_sends(page._factor, index=1 + 4)  # × 20
    ends = found.arrows(20.0, affine=False) + 2 - (2, 3)
    until(lambda: np.allclose(points(view, "phase", "moves"), ends, atol=1e-5))
    assert view._panes.object.labels["phase"] == "arrows × 20"
    asked = recon.positions_asked
    until(lambda: recon.positions_asked > asked)  # it goes with the updates
    browser_sends(view._drawer.buttons, shown=0)
    until(lambda: not view._panes.object.points)
    asked = recon.positions_asked
    steady(lambda: recon.positions_asked == asked, 1.3)


def test_cuts_follow_the_crosshair_in_the_pictures_and_in_the_cuts(recon, view):
    lines = []
    view.tell = lines.append
    confirm_frames(view)
    cuts, panes = view._panes.cuts, view._panes
    until(lambda: recon.asked)
    assert cuts.tick.layout.display == "none"  # of a thin object there are none
    recon.slices = 4
    recon.settings = Settings(slices={"count": 4, "thickness": 2e-9})
    until(lambda: cuts.tick.layout.display is None)
    assert recon.requests[-1].cut is None
    browser_sends(cuts.tick, value=True)
    # The pictures show 6 x 8 pixels from (2, 3) of the object; one slice, whose contrast the cuts share.
    until(lambda: (recon.requests[-1].cut, recon.requests[-1].slice) == ((5, 7), 2))
    until(lambda: [one["name"] for one in cuts.viewer.frame["pictures"]][2:] == ["phase xz", "phase yz"])
    until(lambda: cuts.viewer.crosshair["phase xz"] == [2.5 * 2, 4.5])  # bands of two pixels
    assert panes.object.crosshair["phase"] == [3.5, 4.5]
    assert cuts.viewer.crosshair["phase yz"] == [3.5, 2.5 * 2]
    until(lambda: lines[-1:] == ["pt.analysis.orthogonal_cuts(recon.result, y=5, x=7, quantity='phase')"])
    aimed = panes.object.crosshair
    browser_sends(panes.object, crosshair={**aimed, "amplitude": [1.5, 6.5], "phase": [1.5, 6.5]})
    until(lambda: recon.requests[-1].cut == (3, 9))
    until(lambda: cuts.viewer.crosshair["amplitude xz"] == [5.0, 6.5])
    browser_sends(cuts.viewer, crosshair={**cuts.viewer.crosshair, "phase yz": [2.5, 1.0]})
    until(lambda: (recon.requests[-1].cut, recon.requests[-1].slice) == ((4, 9), 0))
    assert panes._slice.value == 1
    until(lambda: panes.object.crosshair["complex"] == [2.5, 6.5])
    until(lambda: lines[-1:] == ["pt.analysis.orthogonal_cuts(recon.result, y=4, x=9, quantity='phase')"])
    assert len(lines) <= 3
    browser_sends(panes.object, colours={"phase": "twilight"}, limits={"phase": [0.0, 0.5]})
    until(lambda: cuts.viewer.colours == {"phase xz": "twilight", "phase yz": "twilight"})
    assert cuts.viewer.limits == {"phase xz": [0.0, 0.5], "phase yz": [0.0, 0.5]}
    browser_sends(cuts.tick, value=False)
    until(lambda: recon.requests[-1].cut is None)
    assert not cuts.viewer.frame["pictures"]
    assert not panes.object.crosshair
    browser_sends(cuts.tick, value=True)
    until(lambda: recon.requests[-1].cut == (5, 7))
    recon.slices = 1  # such as after a change of structure
    until(lambda: not cuts.tick.value and cuts.tick.layout.display == "none")


def test_r_factors_of_patterns_are_measured_while_their_map_is_shown_and_a_click_shows_a_pattern(recon, view):
    lines = []
    view.tell = lines.append
    page = view._errors_page
    browser_sends(view._drawer.buttons, shown=3)
    until(lambda: page.map.frame["number"] == 1 and "3 of 9 patterns" in page._facts.value)
    assert lines == ["recon.pattern_r_factors()"]
    assert "largest 0.2000 (pattern 2)" in page._facts.value
    browser_sends(page.map, shown=1)
    until(lambda: "9 patterns" in page._facts.value and "of 9" not in page._facts.value)
    [picture] = page.map.frame["pictures"]
    height, width = picture["shape"]
    assert picture["pixel_size"] == pytest.approx((6e-7 / height, 6e-7 / width), rel=0.02)
    assert page.map.value_at("R-factors", int(0.9 * height), int(0.5 * width)).startswith("pattern 7, R-factor 0.7000")
    content = {"kind": "click", "name": "R-factors", "y": 0.9 * height, "x": 0.1 * width}
    page.map.receive(content)
    until(lambda: view._drawer.shown == PATTERN)
    until(lambda: recon.patterns_asked[:1] == [6])
    assert lines == ["recon.pattern_r_factors()", "recon.pattern(6)"]
    asked = len(recon.measured_at)
    steady(lambda: len(recon.measured_at) == asked, 1.0)  # out of sight
    recon.state = "paused"
    browser_sends(view._drawer.buttons, shown=3)
    until(lambda: len(recon.measured_at) > asked)
    time.sleep(0.7)
    asked = len(recon.measured_at)
    steady(lambda: len(recon.measured_at) == asked, 1.0)  # all are of this state


def test_r_factors_take_little_of_the_time_of_updates(recon, view):
    recon.cost = 0.05
    browser_sends(view._drawer.buttons, shown=3)
    viewer = view._errors_page.map
    viewer.observe(lambda change: browser_sends(change["owner"], shown=change["new"]["number"]), "frame")
    until(lambda: len(recon.measured_at) >= 3, 10)
    assert min(np.diff(recon.measured_at)) >= 20 * 0.05


def test_the_error_map_is_made_with_progress_and_can_be_cancelled(recon, view):
    lines = []
    view.tell = lines.append
    page = view._errors_page
    assert not [thread for thread in threading.enumerate() if thread.name == "ptynb error map"]
    assert page.cancel.disabled
    click(page.compute)
    until(lambda: "3 of 8 epochs" in page._progress.value and '<progress value="3" max="8"' in page._progress.value)
    assert page.compute.disabled
    click(view._controls.buttons["Pause"])
    until(lambda: [name for name, _ in recon.calls] == ["pause"])  # other clicks do not wait for it
    click(page.cancel)
    until(lambda: "cancelled after 3 of 8 epochs" in page._progress.value and not page.compute.disabled)
    assert lines == ["recon.pause()"]
    browser_sends(page.epochs, value=4)
    browser_sends(page.engines, value=2)
    recon.halves.set()
    click(page.compute)
    until(lambda: page.errors.frame["number"])
    until(lambda: not page.compute.disabled)
    assert recon.maps == [(None, 0), (4, 2)]
    assert [one["name"] for one in page.errors.frame["pictures"]] == ["phase", "phase error", "amplitude error"]
    assert lines[1:] == ["errors = recon.error_map(epochs=4, engines=2)"]
    assert "Median standard error" in page._progress.value
    recon.halves.clear()
    click(page.compute)
    until(lambda: len(recon.maps) == 3)
    view.close()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "ptynb error map"])


def test_a_pattern_that_can_not_be_had_is_told_and_the_next_one_is_shown(recon, view):
    confirm_frames(view)
    until(lambda: recon.asked)
    pattern = recon.pattern
    recon.pattern = lambda index: 1 / 0
    browser_sends(view._patterns.number.widget, value=1)
    until(lambda: "ZeroDivisionError" in view._message.value)
    recon.pattern = pattern
    until(lambda: view._patterns.viewer.frame["number"])


# Curves and engines


def test_r_factors_are_drawn_beside_the_loss_over_epochs_or_seconds(recon, view):
    recon.epochs = tuple(Epoch(number, 0.5 / number, 2.0, 1000.0) for number in (1, 2, 3))
    until(lambda: "<polyline" in view._curve.value)
    assert "R-factor" not in view._curve.value
    recon.r_factors = ((1, 0.3), (3, 0.2))
    until(lambda: "R-factor" in view._curve.value)
    assert ">epoch<" in view._curve.value
    browser_sends(view._over, index=1)
    until(lambda: ">time [s]<" in view._curve.value)
    browser_sends(view._controls.r_factor.widget, value=5)
    until(lambda: recon.r_factor_every == 5)


def test_engines_are_told_with_what_is_known_of_them(recon, view):
    recon.told = (
        Health(0, "node1", "GPU 0", "running", 5, 1234.5, 3 * 2**30, 80 * 2**30, 0.97, 61.0, 12),
        Health(1, HOSTILE, "GPU 1", "running", 5, None, None, None, None, None, 0, answered=False),
    )
    browser_sends(view._drawer.buttons, shown=5)
    assert view._drawer.shown == ENGINES
    until(lambda: "node1" in view._health.value)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", view._health.value)
    assert cells[:8] == ["0", "GPU 0 on node1", "1,234", "3.0 of 80 GiB", "97%", "61 °C", "12", "running"]
    assert cells[10:] == ["–", "–", "–", "–", "–", "busy; values are from before"]
    assert "<script" not in view._health.value


def test_only_what_is_shown_is_asked_of_the_engines(recon, view):
    confirm_frames(view)
    recon.epochs = (Epoch(1, 0.5, 2.0, 1000.0),)
    asked = []
    health = recon.health
    recon.health = lambda: (asked.append("health"), health())[1]
    browser_sends(view._patterns.number.widget, value=7)
    until(lambda: view._drawer.shown == PATTERN)
    until(lambda: recon.patterns_asked == [7, 7])
    assert not asked
    browser_sends(view._drawer.buttons, shown=0)
    time.sleep(0.6)
    seen = len(recon.patterns_asked)
    steady(lambda: len(recon.patterns_asked) == seen and not asked, 0.7)
    assert not recon.measured_at
    assert recon.positions_asked == 1  # for the ring around the chosen one
    browser_sends(view._drawer.buttons, shown=5)
    until(lambda: asked)
    assert view._drawer._titles == [PATTERN, POSITIONS, ERRORS, CONVERGENCE, ENGINES, CHANGES]


def test_a_view_of_a_run_that_rests_looks_seldom_and_after_a_click_at_once(recon, sent):
    recon.state, looks = "ready", []
    last_status = recon.last_status
    recon.last_status = lambda: (looks.append(time.monotonic()), last_status())[1]
    view = live(recon, rate=50.0)
    confirm_frames(view)
    time.sleep(1.5)  # awake for a second after it was made
    looks.clear()
    time.sleep(1.0)
    assert len(looks) <= 10  # two threads: 4 and 2 a second
    until(lambda: not view._controls.buttons["Start"].disabled)
    click(view._controls.buttons["Start"])
    until(lambda: recon.calls)
    recon.state = "running"
    clicked = time.monotonic()
    until(lambda: ">running</b>" in view._summary.value)
    assert time.monotonic() - clicked < 0.2
    view.close()


def test_speed_and_time_left_are_told_before_the_first_epoch_is_over(recon, view):
    until(lambda: "1,234 patterns/s" in view._summary.value)  # of the engines' health, as long as it is all there is
    # 40 epochs of 9 patterns
    until(lambda: re.search(r"<b>1 s</b> left", view._summary.value))


def test_the_state_is_told_in_the_words_and_units_of_the_field(recon, view):
    recon.epochs = tuple(Epoch(number, 0.5 / number, 2.0, 4.5) for number in (1, 2))
    until(lambda: "R-factor –" in view._summary.value)
    recon.r_factors = ((2, 0.03456),)
    until(lambda: "R-factor <b>0.0346</b>" in view._summary.value)
    assert "4 patterns/s" in view._summary.value
    # 38 epochs of 9 patterns, less the updates done, at 4.5 a second
    assert re.search(r"<b>(7\d) s</b> left", view._summary.value)
    recon.state = "ready"
    until(lambda: "ready" in view._summary.value)
    assert "left" not in re.sub("margin[^;]*", "", view._summary.value.partition("patterns/s")[2])


def test_pause_and_resume_share_one_place(recon, view):
    displays = lambda: [view._controls.buttons[name].layout.display for name in ("Pause", "Resume")]  # noqa: E731
    until(lambda: displays() == [None, "none"])
    recon.state = "paused"
    until(lambda: displays() == ["none", None])


def test_the_curve_is_drawn_to_the_size_of_its_place(recon, view):
    recon.epochs = (Epoch(1, 0.5, 2.0, 1000.0), Epoch(2, 0.25, 2.0, 1000.0))
    until(lambda: 'viewBox="0 0 460 240"' in view._curve.value and "<polyline" in view._curve.value)
    browser_sends(view._divider, room=[300, 170])
    until(lambda: 'viewBox="0 0 300 170"' in view._curve.value)


def test_further_pages_are_in_the_drawer_and_closed_with_the_view(recon, sent):
    page = elements.HTML("checkpoints")
    view = Live(recon, pages={"Checkpoints": page})
    assert view._drawer.buttons.titles[-1] == "Checkpoints"
    view.close()
    assert page.closed


# Controls


def test_start_adds_epochs(recon, view):
    lines = []
    view.tell = lines.append
    recon.state = "ready"
    until(lambda: not view._controls.buttons["Start"].disabled)
    browser_sends(view._controls.more, value=25)
    click(view._controls.buttons["Start"])
    until(lambda: [name for name, _ in recon.calls] == ["start 25"])
    until(lambda: lines == ["recon.start(epochs=25)"])


def test_frozen_is_a_rate_of_0_and_freed_is_the_rate_before(recon, view):
    lines = []
    view.tell = lines.append
    recon.settings = Settings(probe={"learning_rate": 0.03})
    until(lambda: view._controls.rates["probe"].widget.value == 0.03)
    box = view._controls.frozen["probe"].widget
    browser_sends(box, value=True)
    until(lambda: recon.settings.probe.learning_rate == 0)
    until(lambda: view._controls.rates["probe"].widget.value == 0)
    browser_sends(box, value=False)
    until(lambda: recon.settings.probe.learning_rate == 0.03)
    until(lambda: view._controls.rates["probe"].widget.value == 0.03)
    until(lambda: len(lines) == 2)
    assert lines == [
        'recon.settings = recon.settings.replace(probe={"learning_rate": 0.0})',
        'recon.settings = recon.settings.replace(probe={"learning_rate": 0.03})',
    ]
    for line in lines:
        exec(line, {"recon": recon})
    assert recon.settings.probe.learning_rate == 0.03


def test_what_is_optimised_can_be_frozen_and_what_is_not_is_not_offered(recon, view):
    until(lambda: view._summary.value)
    frozen = view._controls.frozen
    assert [part for part, field in frozen.items() if field.widget.layout.display is None] == ["object", "probe"]
    recon.moving = {"object": 0.01, "positions": 0.1}
    until(lambda: frozen["positions"].widget.layout.display is None)
    recon.moving = {"object": 0.01}  # frozen it can still be freed
    steady(lambda: frozen["positions"].widget.layout.display is None, 0.1)
    recon.settings = recon.settings.replace(object={"learning_rate": 0.0})
    until(lambda: frozen["object"].widget.value)
    steady(lambda: len(recon.assigned) == 1, 0.2)


def test_the_arrivals_of_a_scan_have_a_bar(view, recon):
    until(lambda: view._summary.value)
    assert (view._arrivals.value, view._arrivals.layout.display) == ("", "none")
    coming = Arrivals(
        planned=1024, arrived=600, placed=580, missing=3, late=20, duplicates=7, differing=0, outside=0, refused=1,
        damaged=0, stray=0, rate=99.7, lag=0.004, silence=0.1, series="7", ended=None, admitted=512,
    )  # fmt: skip
    recon.arrivals = coming
    until(lambda: view._arrivals.value)
    shown = view._arrivals.value
    assert view._arrivals.layout.display is None
    parts = ("<b>600</b> of 1,024", "<b>512</b> used", "3 missing", "20 late", "7 duplicates", "1 refused")
    bar = ('aria-valuenow="600"', 'aria-valuemax="1024"', "width:50.00%", "width:8.59%")
    for part in (*parts, *bar, "rate 99.7/s", "lag 4 ms"):
        assert part in shown, part
    until(lambda: "then 40 after the scan" in view._summary.value)
    assert "of 40" not in view._summary.value
    assert "differing" not in shown
    assert "ended" not in shown
    silent = arrival_bar(dataclasses.replace(coming, silence=6.0))
    assert "no sign of the receiver for 6 s" in silent
    over = arrival_bar(dataclasses.replace(coming, ended="aborted <at 60%>", silence=60.0))
    assert "aborted &lt;at 60%&gt;" in over
    assert "from the first pattern to the last" in over
    assert "no sign" not in over


def test_figures_of_the_object_are_of_the_arrays_that_their_lines_name(recon, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    view = Live(recon)
    until = time.monotonic() + 10
    while view._panes._seen is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    viewer = view._panes.object
    names = {"pt": pt, "np": np, "recon": recon}
    for name in ("amplitude", "phase", "complex"):
        values, line = viewer._figure_of(name)
        np.testing.assert_array_equal(values, eval(line, names))
        assert values.shape == VALUES.shape
    lines = []
    view.tell = lines.append
    asked = {"kind": "figure", "name": "phase", "suffix": "svg", "region": [[0, 6], [2, 8]], "minus": None}
    viewer.receive({**asked, "limits": [-0.5, 0.5], "colours": "viridis"}, [])
    viewer._drawings.settle()
    assert viewer.problem == ""
    assert (tmp_path / "phase.svg").exists()
    assert lines == [
        "pt.figure(pt.analysis.flat_phase(recon.result.projection[2:8, 3:11]), region=((0, 6), (2, 8)), "
        "limits=(-0.5, 0.5), colours='viridis', label='phase', ticks=True).savefig('phase.svg')"
    ]
    viewer.colours = {"amplitude": "magma"}
    assert view._panes.probe.colours["probe 2"] == "magma"
    viewer.linked_colours = False
    assert view._panes.probe.colours == {}
    view.close()
