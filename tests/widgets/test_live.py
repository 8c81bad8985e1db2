"""The live view without a browser: what a page gets of it, and what it does with what a browser sends."""

import dataclasses
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis.position_refinement import moved_positions
from ptynb.data import images
from ptynb.data.arrivals import Arrivals
from ptynb.data.cut_pictures import cut_pictures
from ptynb.data.engine_records import (
    PANES,
    Change,
    Contrast,
    Epoch,
    Health,
    PatternPair,
    PhaseRamp,
    Pictures,
    Status,
)
from ptynb.data.pattern_r_factors import PatternRFactors
from ptynb.data.standard_error import ErrorMap
from ptynb.settings import Settings
from ptynb.widgets.arrival_facts import arrival_facts
from ptynb.widgets.element_tree import Element, ElementPage
from ptynb.widgets.live import Live, live
from ptynb.widgets.live.live_facts import CHUNK
from ptynb.widgets.live.pictures import PROBE_SECONDS, value_text
from tests.waiting import until

VALUES = np.linspace(0, 1, 48).reshape(6, 8)
ARRIVALS = {
    "planned": 1024, "arrived": 600, "placed": 580, "admitted": 512, "missing": 3, "late": 20, "duplicates": 7,
    "differing": 0, "outside": 0, "refused": 1, "damaged": 0, "stray": 0, "series": "7", "rate": 99.7, "lag": 0.004,
    "silence": 0.1, "ended": None,
}  # fmt: skip
THICK = Settings(slices={"count": 4, "thickness": 2e-9})


FIELD = np.exp(1j * np.random.default_rng(1).normal(0, 0.3, (12, 14)))
RESULT = pt.Result(object=FIELD, probe=np.ones((1, 4, 4)), positions=np.zeros((1, 2)), origin=(0, 0), r_factor=0.1)


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
        self.halves, self.maps, self.result = threading.Event(), [], RESULT
        self.health = lambda: self.told

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

    def last_status(self):
        if self.state is None:
            return None
        if self.state == "running":
            self.update += 1
        epoch = len(self.epochs)
        return Status(
            rank=0, world=2, state=self.state, epoch=epoch, update=self.update, updates_per_epoch=99, target=40,
            device="cpu", backend="gloo", threads=1, rates=self.moving, applied=0, arrivals=self.arrivals,
        )  # fmt: skip

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
        facts = ((0.75, 0.25), (2, 3), self.slices, self.states, self.cost)
        return Pictures(len(self.epochs), self.update, (*panes, *modes), *facts)

    def value_at(self, name, y, x, request):
        return VALUES[y, x].item()

    def pattern(self, index):
        self.patterns_asked.append(index)
        if self.broken is not None:
            raise self.broken
        counts = np.full((4, 4), 9.0)
        return PatternPair(index, len(self.epochs), self.update, counts, counts + 1, counts > 0, (0.0, 0.0))

    def start(self, epochs):
        self._call(f"start {epochs}")

    def __getattr__(self, name):
        if name not in ("pause", "resume", "stop", "recover"):
            raise AttributeError(name)
        return lambda: self._call(name)

    def _call(self, name):
        self.calls.append((name, threading.current_thread()))
        if self.broken is not None:
            raise self.broken


@pytest.fixture
def recon():
    return Recon()


@pytest.fixture
def lines():
    return []


@pytest.fixture
def view(recon, lines):
    shown = live(recon, rate=50.0)
    shown.tell = lines.append
    yield shown
    shown.close()


@pytest.fixture
def sent(view):
    """The changes of traits of the view and its viewers that a page gets, {trait: value}, and the page."""
    changes = []

    def send(message, _):
        changes.extend(values for _, values in message.get("changes", ()))

    return SimpleNamespace(changes=changes, page=ElementPage(view, send))


def steady(condition, seconds=0.3):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition()
        time.sleep(0.01)


def put(element, **values):
    """As a browser sets traits."""
    element.receive_values(values)


def call(element, command, **arguments):
    """As a browser calls a command."""
    element.receive_command(command, arguments)


def names(viewer):
    return [one["name"] for one in viewer.frame["pictures"]]


def confirm_frames(view):
    """As a browser that keeps up does."""
    for viewer in (view.object_pictures, view.pattern_pictures):
        viewer.observe(lambda change: put(change["owner"], shown=change["new"]["number"]), "frame")
        put(viewer, shown=viewer.frame["number"])


def frames(view):
    return view.object_pictures.frame["number"]


def is_up_to_date(view, recon):
    now = {"epoch": len(recon.epochs), "update": recon.update}
    return view.probe_pictures.frame_facts == view.object_pictures.frame_facts == now


def rows(view, table, columns):
    """The rows of a table of the record."""
    pieces = [np.frombuffer(view.record[key]) for key in view.record if key.startswith(table)]
    return np.concatenate([np.empty(0), *pieces]).reshape(-1, columns)


# Pictures, and their pace


def test_frames_have_object_and_probe_no_finer_than_the_screen_shows(recon, view):
    until(lambda: frames(view) and names(view.probe_pictures))
    assert names(view.object_pictures) == ["amplitude", "phase"]
    assert [one["title"] for one in view.probe_pictures.frame["pictures"]] == ["mode 1", "mode 2"]
    assert view.object_pictures.frame["pictures"][0]["image"].startswith(b"\x89PNG")
    assert view.object_pictures.frame_facts["update"] > 0
    assert recon.requests[0] == pt.RenderRequest()
    put(view.object_pictures, coarse=3)
    until(lambda: recon.requests[-1].size == -(-8 // 3))
    put(view.object_pictures, coarse=1)
    until(lambda: recon.requests[-1].size == pt.RenderRequest().size)


LARGE = np.random.default_rng(0).random((60, 80))


class LargeRecon(Recon):
    """Its pictures have fewer pixels than its object, or are parts of it."""

    fails = False

    def pictures(self, request):
        if self.fails:
            raise pt.ReconstructionError("no engine", code="engine.lost")
        found, corner = super().pictures(request), (2, 3)
        values = LARGE
        if request.region is not None:
            top, bottom, left, right = request.region
            values, corner = LARGE[top - 2 : bottom - 2, left - 3 : right - 3], (top, left)
        panes = [images.picture(values, pane, size=request.size) for pane in request.panes]
        modes = [one for one in found.pictures if one.name not in request.panes]
        contrast = request.contrast or Contrast(amplitude=(0.0, self.update), phase=(0.0, 1.0), ramp=PhaseRamp(0, 0, 0))
        return dataclasses.replace(found, pictures=(*panes, *modes), corner=corner, contrast=contrast)

    def value_at(self, name, y, x, request):
        self.asked_with = request
        return LARGE[y, x].item()


def test_the_region_that_a_page_asks_for_comes_with_each_frame_in_its_contrast():
    recon = LargeRecon()
    recon.state = "ready"
    view = Live(recon, rate=50.0, size=20)
    viewer = view.object_pictures
    confirm_frames(view)
    until(lambda: viewer.frame["number"])
    assert viewer.frame["pictures"][0]["reduction"] == 4
    assert recon.requests[-1].region is None
    put(viewer, region=[10, 26, 30, 90])  # beyond the array's edge
    until(lambda: viewer.region_frame["pictures"])
    assert viewer.frame["number"] == 1  # what is there already is not sent again
    request = recon.requests[-1]
    assert (request.region, request.size, request.modes, request.cut) == ((12, 28, 33, 83), 20, 0, None)
    assert (viewer.region_frame["corner"], viewer.region_frame["pictures"][0]["reduction"]) == ([10, 30], 3)
    recon.fails = True
    put(viewer, region=[10, 26, 30, 46])
    until(lambda: "no engine" in str(view.messages))
    recon.fails = False  # what failed is asked for again
    until(lambda: viewer.region_frame["number"] == 2)
    assert viewer.region_frame["pictures"][0]["reduction"] == 1
    assert [one["name"] for one in viewer.region_frame["pictures"]] == ["amplitude", "phase"]
    first = recon.requests[-1].contrast
    viewer.value_at("amplitude", 4, 5)
    assert recon.asked_with.contrast == first
    # Each further frame has the region in its own contrast.
    recon.update += 1
    view.update_soon()
    until(lambda: viewer.region_frame["number"] == 3)
    assert viewer.frame["number"] == 2
    assert recon.requests[-1].contrast != first
    # Of a large object the whole picture does not follow the zoom.
    asked = [one for one in recon.requests if one.region is None]
    put(viewer, view={"y": 0.5, "x": 0.5, "scale": 4.0})
    put(viewer, coarse=2)
    until(lambda: recon.requests[-1].size == 8)
    assert [one for one in recon.requests if one.region is None] == asked
    put(viewer, region=[0, 60, 0, 80])  # which would have no more pixels
    until(lambda: viewer.region_frame["pictures"] == [])
    put(viewer, region=[])
    steady(lambda: viewer.region_frame["pictures"] == [])
    assert view.messages == []
    view.close()


def test_pictures_wait_for_the_browser_and_the_figures_do_not(recon, sent, view):
    until(lambda: frames(view) == 2)
    steady(lambda: frames(view) == 2 and recon.asked == 2)
    update = view.summary["update"]
    until(lambda: view.summary["update"] > update)
    sent.page.receive({"to": view.object_pictures.key, "set": {"shown": 1}, "from": "a browser"}, [])
    until(lambda: frames(view) == 3)
    # Whoever confirms is told nothing back: the page has a message less to handle with each picture.
    assert not [values for values in sent.changes if "shown" in values]
    confirm_frames(view)
    until(lambda: frames(view) > 10)


def test_the_probe_is_drawn_now_and_then_before_the_objects_frame(recon, view, monkeypatch):
    started, told = time.monotonic(), []
    for viewer in (view.probe_pictures, view.object_pictures):
        viewer.observe(lambda change: told.append((change["owner"], change["new"]["facts"]["update"])), "frame")
    confirm_frames(view)
    until(lambda: frames(view) >= 60, 30)
    most = (time.monotonic() - started) / PROBE_SECONDS + 2
    probes = [place for place, (viewer, _) in enumerate(told[:-1]) if viewer is view.probe_pictures]
    assert 3 <= len(probes) <= most
    assert all(told[place + 1] == (view.object_pictures, told[place][1]) for place in probes)
    recon.state = "paused"  # what was left out is made up for
    until(lambda: is_up_to_date(view, recon))
    monkeypatch.setattr("ptynb.widgets.live.pictures.PROBE_SECONDS", float("inf"))
    put(view, modes=1)  # another choice is drawn at once
    until(lambda: names(view.probe_pictures) == ["probe 1"])


def test_nothing_new_is_nothing_sent_and_nothing_asked(recon, view):
    confirm_frames(view)
    recon.state = "paused"
    until(lambda: is_up_to_date(view, recon))
    time.sleep(0.1)
    asked, sent_so_far = recon.asked, frames(view)
    steady(lambda: recon.asked == asked and frames(view) == sent_so_far)
    put(view, panes=["complex", "amplitude", "phase"])  # but another choice is new
    until(lambda: names(view.object_pictures) == list(PANES))


def test_the_same_epoch_of_another_branch_is_shown_anew(recon, view):
    confirm_frames(view)
    recon.epochs = (Epoch(1, 0.5, 2.0, 1000.0), Epoch(2, 0.25, 2.0, 1000.0))
    put(view, positions=True)
    call(view, "look_at", pattern=7)
    recon.state = "paused"
    until(lambda: view.object_pictures.frame_facts.get("epoch") == 2 and view.summary.get("loss") == "0.25")
    until(lambda: view.object_pictures.points and view.pattern_pictures.frame["number"])
    time.sleep(0.6)
    shown, places = view.object_pictures.frame["number"], dict(view.object_pictures.points)
    asked = len(recon.patterns_asked)
    recon.scan.corners = recon.scan.corners + 1.0
    recon.epochs = (recon.epochs[0], Epoch(2, 0.125, 2.0, 1000.0))
    until(lambda: view.object_pictures.frame["number"] > shown)
    until(lambda: rows(view, "epochs", 6)[:, 1].tolist() == [0.5, 0.125])
    until(lambda: len(recon.patterns_asked) > asked)
    until(lambda: view.object_pictures.points != places)
    shown = view.object_pictures.frame["number"]
    recon.changes = (Change(2, 0, "restructured", "a", "b"),)
    until(lambda: view.object_pictures.frame["number"] > shown)


def test_pictures_that_cost_much_are_taken_seldom(recon, view):
    recon.cost = 0.05
    confirm_frames(view)
    until(lambda: recon.asked)
    time.sleep(0.1)
    asked = recon.asked
    steady(lambda: recon.asked <= asked + 1, 0.8)
    until(lambda: recon.asked > asked)


def test_a_view_of_a_run_that_rests_looks_seldom_and_after_a_click_at_once(recon, view):
    recon.state, looks = "ready", []
    last_status = recon.last_status
    recon.last_status = lambda: (looks.append(time.monotonic()), last_status())[1]
    confirm_frames(view)
    time.sleep(1.5)  # awake for a second after it was made
    looks.clear()
    time.sleep(1.0)
    assert len(looks) <= 10  # two threads: 4 and 2 a second
    call(view, "start", epochs=3)
    until(lambda: recon.calls)
    recon.state = "running"
    clicked = time.monotonic()
    until(lambda: view.summary["state"] == "running")
    assert time.monotonic() - clicked < 0.2


# What is told of the run


def test_state_record_and_changes_are_told(recon, view):
    recon.epochs = (Epoch(1, 0.5, 0.1, 1000.0, None, 0.25), Epoch(2, 0.125, 0.1, 1234.0))
    recon.changes = (Change(1, 3, "probe.learning_rate", 0.01, 0.02),)
    recon.settings = Settings(batch=8, batch_per="engine")
    until(lambda: view.summary.get("epoch") == 2 and view.changes)
    told = {**view.summary, "update": 0}
    assert told == {
        "state": "running", "epoch": 2, "target": 40, "after_scan": 0, "update": 0, "updates": 99, "stopped": "",
        "stage": 0, "stages": 0, "loss": "0.125", "r_factor": "", "r_factor_epoch": 0, "speed": "1,105", "left": "1 s",
    }  # fmt: skip
    assert rows(view, "epochs", 6)[:, :4].tolist()[0] == [1, 0.5, 0.1, 0.25]
    assert np.isnan(rows(view, "epochs", 6)[:, 4:]).all()
    assert view.marks == [2]
    assert view.changes == [["2", "Probe learning rate", "probe.learning_rate", "0.01", "0.02"]]
    hint = "batch 16; settings.scale_for_engines(2) scales learning rates chosen for a batch of 8 to it"
    assert view.facts == ["2 CPU engines, gloo", hint]
    recon.r_factors = ((1, 0.3), (2, 0.03456))
    until(lambda: view.summary["r_factor"] == "0.0346")
    assert rows(view, "r_factors", 2).tolist() == [[1, 0.3], [2, 0.03456]]
    recon.state = "ready"
    until(lambda: view.summary["state"] == "ready")
    assert view.summary["left"] == ""


def test_of_a_long_record_only_what_is_new_is_sent(recon, sent, view):
    epochs = tuple(Epoch(number, 1 / number, 1.0, 1000.0) for number in range(1, 2 * CHUNK + 2))
    recon.epochs = epochs
    until(lambda: len(view.record) == 3)
    sent.changes.clear()
    recon.epochs = (*epochs, Epoch(2 * CHUNK + 2, 0.001, 1.0, 1000.0))
    until(lambda: len(rows(view, "epochs", 6)) == 2 * CHUNK + 2)
    [changed] = [values["record"]["$changed"] for values in tuple(sent.changes) if "record" in values]
    assert [*changed] == ["epochs 2"]


def test_speed_and_time_left_are_told_before_the_first_epoch_is_over(view):
    until(lambda: view.summary.get("speed") == "1,234")  # of the engines' health, as long as it is all there is
    until(lambda: view.summary["left"] == "1 s")  # 40 epochs of 9 patterns


def test_only_what_makes_sense_can_be_clicked(recon, view):
    recon.state, usable = (
        None,
        {"loading": [], "ready": ["start"], "running": ["pause", "stop"], "paused": ["resume", "stop"]},
    )
    assert view.usable[-1:] == ["change"]
    for state, commands in usable.items():
        recon.state = state
        until(lambda state=state: view.summary["state"] == state)
        until(lambda commands=commands: view.usable == [*commands, "change"])
    recon.failure = RuntimeError("gone\nTraceback")
    until(lambda: view.summary["state"] == "failed")
    assert (view.usable, view.messages) == ([], ["gone\nTraceback"])
    recon.failure, recon.closed = None, True
    until(lambda: view.summary["state"] == "closed")
    assert (view.usable, view.messages) == ([], [])
    asked = recon.asked
    steady(lambda: recon.asked == asked, 0.1)


def test_who_reads_that_it_is_paused_can_resume(recon, sent, view):
    until(lambda: view.summary["state"] == "running")
    recon.state = "paused"
    until(lambda: view.summary["state"] == "paused")
    told = [*sent.changes]
    can = next(place for place, values in enumerate(told) if "resume" in values.get("usable", ()))
    reads = next(n for n, values in enumerate(told) if "paused" in str(values.get("summary", "")))
    assert can < reads


def test_the_arrivals_of_a_scan_are_told(recon, view):
    until(lambda: "epoch" in view.summary)
    assert view.arrivals == {}
    recon.arrivals = Arrivals(**ARRIVALS)
    until(lambda: view.arrivals)
    assert [text for text, _ in view.arrivals["remarks"]] == ["3 missing", "20 late", "7 duplicates", "1 refused"]
    told = {key: view.arrivals[key] for key in ("planned", "arrived", "admitted", "rate", "lag", "ended", "silence")}
    assert [*told.values()] == [1024, 600, 512, "99.7", "4 ms", "", ""]
    assert (view.summary["target"], view.summary["after_scan"]) == (0, 40)
    assert arrival_facts(Arrivals(**{**ARRIVALS, "silence": 6.0}))["silence"] == "6 s"
    over = arrival_facts(Arrivals(**{**ARRIVALS, "ended": "aborted at 60%", "silence": 60.0}))
    assert (over["ended"], over["silence"], over["lag"]) == ("aborted at 60%", "", "")


def test_engines_are_told_with_what_is_known_of_them_while_their_page_is_shown(recon, view):
    confirm_frames(view)
    recon.epochs = (Epoch(1, 0.5, 2.0, 1000.0),)
    asked = []
    recon.told = (
        Health(0, "node1", "GPU 0", "running", 5, 1234.5, 3 * 2**30, 80 * 2**30, 0.97, 61.0, 12),
        Health(1, "node2", "GPU 1", "running", 5, None, None, None, None, None, 0, answered=False),
    )
    recon.health = lambda: (asked.append("health"), recon.told)[1]
    call(view, "look_at", pattern=7)
    until(lambda: view.page == "Pattern" and recon.patterns_asked == [7, 7])
    put(view, page=None)
    time.sleep(0.6)
    seen = len(recon.patterns_asked)
    steady(lambda: len(recon.patterns_asked) == seen and not asked, 0.7)
    assert not recon.measured_at
    assert recon.positions_asked == 1  # for the ring around the chosen one
    put(view, page="Engines")
    until(lambda: len(view.health) == 2)
    assert view.health == [
        ["0", "GPU 0 on node1", "1,234", "3.0 of 80 GiB", "97%", "61 °C", "12", "running"],
        ["1", "GPU 1 on node2", "–", "–", "–", "–", "–", "busy; values are from before"],
    ]


# Clicks, and what goes wrong


def test_a_click_never_waits_and_clicks_are_carried_out_in_order(recon, view, lines):
    go_on = threading.Event()
    recon.pause = lambda: (go_on.wait(5), recon._call("pause"))
    started = time.monotonic()
    for command in ("pause", "resume", "stop"):
        call(view, command)
    call(view, "start", epochs=25)
    call(view, "measure_r_factor", every=5)
    assert time.monotonic() - started < 0.1
    frames = recon.asked
    confirm_frames(view)
    until(lambda: recon.asked > frames)  # the pictures go on meanwhile
    assert not recon.calls
    go_on.set()
    until(lambda: len(recon.calls) == 4)
    assert [name for name, _ in recon.calls] == ["pause", "resume", "stop", "start 25"]
    assert threading.current_thread() not in {thread for _, thread in recon.calls}
    until(lambda: view.r_factor_every == recon.r_factor_every == 5)
    assert lines[-2:] == ["recon.start(epochs=25)", "recon.r_factor_every = 5"]


def test_a_lost_engine_can_be_recovered_from_with_a_click(recon, view):
    until(lambda: view.object_pictures.frame["number"])
    call(view, "set_rate", part="object", rate=-1)
    until(lambda: len(view.messages) == 1)  # an error from before the failure goes with it
    recon.failure, recon.can_recover = RuntimeError("The engine of rank 1 has died."), True
    until(lambda: view.messages == ["The engine of rank 1 has died."] and view.usable == ["recover"])
    recon.broken = RuntimeError("No engine answers.")
    call(view, "pause")
    until(lambda: view.messages == ["The engine of rank 1 has died.", "No engine answers."])
    recon.broken = None
    call(view, "recover")
    until(lambda: [name for name, _ in recon.calls] == ["pause", "recover"])
    until(lambda: view.messages == ["The engine of rank 1 has died."])
    recon.failure, recon.can_recover, recon.recovering = None, False, True
    until(lambda: view.summary["state"] == "recovering" and view.messages == [])
    confirm_frames(view)
    time.sleep(0.1)
    asked = recon.asked
    steady(lambda: recon.asked == asked)
    recon.recovering = False
    until(lambda: recon.asked > asked and view.summary["state"] == "running")


def test_pictures_that_fail_are_told_until_they_succeed_and_other_errors_stay(recon, view):
    confirm_frames(view)
    call(view, "set_rate", part="object", rate=-1)
    until(lambda: len(view.messages) == 1)
    recon.broken = TimeoutError("no answer")
    until(lambda: view.messages[1:] == ["TimeoutError: no answer"])
    count = frames(view)
    recon.broken = None
    until(lambda: frames(view) > count + 2 and len(view.messages) == 1)
    assert "object.learning_rate is -1.0" in view.messages[0]  # which only the next action takes away
    recon.notices = ("The state could not be kept.",)
    until(lambda: view.notices == ["The state could not be kept."])


def test_closing_the_view_ends_its_threads_and_nothing_else(recon):
    before = set(threading.enumerate())
    extra, page = Element(), Element()
    view = Live(recon, extra=[extra], pages={"Checkpoints": page})
    mine = {thread.name: thread for thread in set(threading.enumerate()) - before}
    assert set(mine) == {"ptynb live view", "ptynb live requests", "ptynb live actions", "ptynb viewer"}
    shown = []
    view.on_page(lambda: shown.append(view.page))
    put(view, page="Checkpoints")
    assert shown == ["Checkpoints"]
    view.close()
    for thread in mine.values():
        thread.join(5)
        assert not thread.is_alive(), thread.name
    assert (view.closed, extra.closed, page.closed) == (True, True, True)
    assert recon.calls == recon.assigned == []
    view.close()


# Rates


def test_a_rate_changes_that_rate_alone_in_all_views(recon, view):
    other = live(recon, rate=50.0)
    for rate in (0.5, 0.25):
        call(view, "set_rate", part="probe", rate=rate)
    until(lambda: len(recon.assigned) == 2)
    assert recon.assigned == [Settings().replace(probe={"learning_rate": rate}) for rate in (0.5, 0.25)]
    until(lambda: view.parts["probe"]["rate"] == other.parts["probe"]["rate"] == 0.25)
    other.close()
    recon.settings = Settings().replace(probe={"learning_rate": 0.75})  # by Python
    until(lambda: view.parts["probe"]["rate"] == 0.75)
    steady(lambda: len(recon.assigned) == 3, 0.1)


def test_a_refused_rate_is_explained_and_the_browser_is_told_the_old_one_again(recon, sent, view):
    until(lambda: view.parts["object"]["rate"] == 0.1)
    sent.changes.clear()
    call(view, "set_rate", part="object", rate=-1)
    until(
        lambda: "object.learning_rate is -1.0" in str(view.messages) and "greater than or equal" in str(view.messages)
    )
    assert [values for values in sent.changes if "parts" in values]
    assert recon.settings == Settings()
    assert view.parts["object"] == {"label": "object", "rate": 0.1}


def test_frozen_is_a_rate_of_0_and_freed_is_the_rate_before(recon, view, lines):
    recon.settings = Settings(probe={"learning_rate": 0.03})
    until(lambda: view.parts["probe"]["rate"] == 0.03)
    for on, rate in ((True, 0), (False, 0.03)):
        call(view, "freeze", part="probe", on=on)
        until(lambda rate=rate: view.parts["probe"]["rate"] == rate)
    until(lambda: len(lines) == 2)
    assert lines[0] == 'recon.settings = recon.settings.replace(probe={"learning_rate": 0.0})'
    for line in lines:
        exec(line, {"recon": recon})
    assert recon.settings.probe.learning_rate == 0.03


def test_what_is_optimised_can_be_frozen_and_what_is_not_is_not_offered(recon, view):
    assert [*view.parts] == ["object", "probe"]
    recon.moving = {"object": 0.01, "positions": 0.1}
    until(lambda: "positions" in view.parts)
    recon.moving = {"object": 0.01}  # frozen it can still be freed
    steady(lambda: "positions" in view.parts, 0.1)


# What is chosen


def test_what_is_chosen_is_what_is_asked_for(recon, view):
    confirm_frames(view)
    recon.slices = recon.states = 3
    recon.settings = Settings(slices={"count": 3, "thickness": 1e-9}, object={"modes": 3})
    until(lambda: (view.slices, view.object_modes) == (3, 3))
    put(view, panes=["complex", "phase"], slice=2, object_mode=2, flat=False, modes=1, modes_as="amplitude")
    wanted = {"panes": ("phase", "complex"), "slice": 1, "state": 1, "flat": False, "modes": 1, "modes_as": "amplitude"}
    until(lambda: recon.requests[-1] == pt.RenderRequest(**wanted))
    until(lambda: (names(view.object_pictures), names(view.probe_pictures)) == (["phase", "complex"], ["probe 1"]))
    put(view, slice=7)
    assert view.slice == 3
    recon.slices, recon.states = 2, 1
    recon.settings = Settings(slices={"count": 2, "thickness": 1e-9})
    until(lambda: (recon.requests[-1].slice, recon.requests[-1].state) == (None, 0))
    until(lambda: (view.slice, view.object_mode, view.slices, view.object_modes) == (0, 1, 2, 1))


def test_values_and_figures_of_the_object_are_those_of_their_lines(recon, view, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    viewer = view.object_pictures
    until(lambda: viewer.expressions)
    assert viewer.value_at("amplitude", 2, 3) == f"{VALUES[2, 3]:.4g}"
    assert (value_text("phase", -0.5), value_text("complex", 2j)) == ("-0.500 rad", "2 at 1.571 rad")
    for name in ("amplitude", "phase"):
        assert eval(viewer.expressions[name], {"pt": pt, "np": np, "recon": recon}).shape == VALUES.shape
    asked = {"kind": "figure", "name": "phase", "suffix": "svg", "region": [[0, 6], [2, 8]], "minus": None}
    viewer.receive({**asked, "limits": [-0.5, 0.5], "colours": "viridis"}, [])
    until(lambda: lines, 30)
    assert (viewer.problem, (tmp_path / "phase.svg").exists()) == ("", True)
    assert lines == [
        "pt.figure(pt.analysis.flat_phase(recon.result.projection[2:8, 3:11]), region=((0, 6), (2, 8)), "
        "limits=(-0.5, 0.5), colours='viridis', label='phase', ticks=True).savefig('phase.svg')"
    ]
    viewer.colours = {"amplitude": "magma"}
    assert view.probe_pictures.colours["probe 2"] == "magma"
    viewer.linked_colours = False
    assert view.probe_pictures.colours == {}


# Pages


def click_on(viewer, name, y, x):
    viewer.receive({"kind": "click", "name": name, "y": y, "x": x})


def points(view, name, which="points"):
    return np.frombuffer(getattr(view.object_pictures, which)[name], "<f4").reshape(-1, 2)


def test_a_click_on_the_object_shows_the_pattern_of_the_nearest_position(recon, view, lines):
    confirm_frames(view)
    until(lambda: view.object_pictures.frame["number"])
    # The pictures begin at pixel (2, 3) of the object; windows are 4 wide and have moved by half a pixel.
    click_on(view.object_pictures, "phase", 10 + 2.5 - 2 + 3.0, 20 + 2.5 - 3 - 4.0)
    until(lambda: view.pattern_facts)
    assert (recon.patterns_asked[0], view.pattern, view.page, lines) == (5, 5, "Pattern", ["recon.pattern(5)"])
    shown = view.pattern_pictures.frame["pictures"]
    assert [one["title"] for one in shown] == ["pattern 5, measured", "pattern 5, modelled"]
    assert shown[0]["limits"] == shown[1]["limits"] == pytest.approx([0, 1.0])  # log10(1 + 9)
    assert "144 counts measured, 160 modelled" in view.pattern_facts
    until(lambda: view.object_pictures.chosen == {"amplitude": 0, "phase": 0})
    np.testing.assert_allclose(points(view, "phase"), [[10.5, 19.5]])
    asked = len(recon.patterns_asked)
    until(lambda: len(recon.patterns_asked) > asked)  # it goes with the updates
    put(view, logarithmic=False)
    until(lambda: view.pattern_pictures.frame["pictures"][0]["limits"] == [0.0, 9.0])
    call(view, "look_at", pattern=70)
    until(lambda: view.pattern == view.patterns - 1 == 8)
    recon.broken = ZeroDivisionError("no pattern")
    until(lambda: "ZeroDivisionError: no pattern" in view.messages)
    recon.broken = None
    until(lambda: view.messages == [])


def test_positions_are_drawn_with_how_they_moved(recon, view, lines):
    confirm_frames(view)
    put(view, positions=True)
    until(lambda: set(view.object_pictures.points) == {"amplitude", "phase"} and view.object_pictures.frame["number"])
    until(lambda: np.allclose(points(view, "amplitude"), recon.scan.corners + 2 - (2, 3)))
    assert (view.object_pictures.moves, view.object_pictures.labels) == ({}, {})  # a common shift is the object's
    assert view.refinement == {"moved": False}
    recon.moves = (recon.scan.corners - 10) @ np.array([[0.01, 0.002], [0, 0.01]]).T
    recon.moves[4] += 0.5
    found = moved_positions(recon.scan.corners, recon.scan.corners + recon.moves, recon.scan.pixel_size)
    until(lambda: set(view.object_pictures.moves) == {"amplitude", "phase"})
    factor = found.exaggeration()
    np.testing.assert_allclose(points(view, "phase", "moves"), found.arrows(factor) + 2 - (2, 3), atol=1e-5)
    assert view.object_pictures.labels == dict.fromkeys(("amplitude", "phase"), f"arrows × {factor:g}")
    put(view, positions=False)
    until(lambda: not view.object_pictures.points)
    asked = recon.positions_asked
    steady(lambda: recon.positions_asked == asked, 1.3)
    put(view, page="Positions")
    until(lambda: view.object_pictures.moves)
    assert lines == ["pt.analysis.position_refinement(recon.result)"]
    assert view.refinement["moves"] == [found.length_text(found.rms), found.length_text(found.largest)]
    assert view.refinement["residual"] == [
        found.length_text(found.residual_rms),
        found.length_text(found.residual_largest),
    ]
    assert f"Scale {found.affine['scale']:.5f}" in view.refinement["affine"]
    put(view, without_affine=True, arrows=20)
    ends = found.arrows(20.0, affine=False) + 2 - (2, 3)
    until(lambda: np.allclose(points(view, "phase", "moves"), ends, atol=1e-5))
    assert view.object_pictures.labels["phase"] == "arrows × 20"
    put(view, page=None)
    until(lambda: not view.object_pictures.points)


def test_cuts_follow_the_crosshair_in_the_pictures_and_in_the_cuts(recon, view, lines):
    confirm_frames(view)
    cuts, pictures = view.cut_pictures, view.object_pictures
    recon.slices, recon.settings = 4, THICK
    until(lambda: view.slices == 4)
    assert recon.requests[-1].cut is None
    put(view, cuts=True)
    # The pictures show 6 x 8 pixels from (2, 3) of the object; one slice, whose contrast the cuts share.
    until(lambda: (recon.requests[-1].cut, recon.requests[-1].slice) == ((5, 7), 2))
    until(lambda: names(cuts)[2:] == ["phase xz", "phase yz"])
    until(lambda: cuts.crosshair["phase xz"] == [2.5 * 2, 4.5])  # bands of two pixels
    assert (pictures.crosshair["phase"], cuts.crosshair["phase yz"]) == ([3.5, 4.5], [3.5, 2.5 * 2])
    until(lambda: lines[-1:] == ["pt.analysis.orthogonal_cuts(recon.result, y=5, x=7, quantity='phase')"])
    put(pictures, crosshair={**pictures.crosshair, "amplitude": [1.5, 6.5], "phase": [1.5, 6.5]})
    until(lambda: recon.requests[-1].cut == (3, 9))
    until(lambda: cuts.crosshair["amplitude xz"] == [5.0, 6.5])
    put(cuts, crosshair={**cuts.crosshair, "phase yz": [2.5, 1.0]})
    until(lambda: (recon.requests[-1].cut, recon.requests[-1].slice, view.slice) == ((4, 9), 0, 1))
    until(lambda: pictures.crosshair["complex"] == [2.5, 6.5])
    until(lambda: lines[-1:] == ["pt.analysis.orthogonal_cuts(recon.result, y=4, x=9, quantity='phase')"])
    assert len(lines) <= 3
    put(pictures, colours={"phase": "twilight"}, limits={"phase": [0.0, 0.5]})
    until(lambda: cuts.colours == {"phase xz": "twilight", "phase yz": "twilight"})
    assert cuts.limits == {"phase xz": [0.0, 0.5], "phase yz": [0.0, 0.5]}
    put(view, cuts=False)
    until(lambda: recon.requests[-1].cut is None)
    assert (names(cuts), pictures.crosshair) == ([], {})
    put(view, cuts=True)
    until(lambda: recon.requests[-1].cut == (5, 7))
    recon.slices = 1  # such as after a change of structure
    until(lambda: not view.cuts)


def test_r_factors_of_patterns_are_measured_while_their_map_is_shown_and_a_click_shows_a_pattern(recon, view, lines):
    page = view.errors
    put(view, page="Errors")
    until(lambda: page.map.frame["number"] == 1 and "3 of 9 patterns" in page.facts)
    assert "largest 0.2000 (pattern 2)" in page.facts
    put(page.map, shown=1)
    until(lambda: page.facts.startswith("9 patterns"))
    [picture] = page.map.frame["pictures"]
    height, width = picture["shape"]
    assert picture["pixel_size"] == pytest.approx((6e-7 / height, 6e-7 / width), rel=0.02)
    assert page.map.value_at("R-factors", int(0.9 * height), int(0.5 * width)).startswith("pattern 7, R-factor 0.7000")
    click_on(page.map, "R-factors", 0.9 * height, 0.1 * width)
    until(lambda: view.page == "Pattern" and recon.patterns_asked[:1] == [6])
    assert lines == ["recon.pattern_r_factors()", "recon.pattern(6)"]
    asked = len(recon.measured_at)
    steady(lambda: len(recon.measured_at) == asked, 1.0)  # out of sight
    recon.state, recon.cost = "running", 0.05
    page.map.observe(lambda change: put(change["owner"], shown=change["new"]["number"]), "frame")
    put(view, page="Errors")
    put(page.map, shown=page.map.frame["number"])
    until(lambda: len(recon.measured_at) >= asked + 3, 10)
    assert min(np.diff(recon.measured_at[asked:])) >= 20 * 0.05  # they take little of the time of updates
    recon.state = "paused"
    time.sleep(1.7)
    asked = len(recon.measured_at)
    steady(lambda: len(recon.measured_at) == asked, 1.0)  # all are of this state


def test_the_error_map_is_made_with_progress_and_can_be_cancelled(recon, view, lines):
    page = view.errors

    def threads():
        return [thread for thread in threading.enumerate() if thread.name == "ptynb error map"]

    assert not threads()
    call(page, "compute")
    until(lambda: (page.computing, page.done, page.total) == (True, 3, 8))
    call(view, "pause")
    until(lambda: [name for name, _ in recon.calls] == ["pause"])  # other clicks do not wait for it
    call(page, "cancel")
    until(lambda: page.message == "cancelled after 3 of 8 epochs" and not page.computing)
    assert lines == ["recon.pause()"]
    recon.halves.set()
    call(page, "compute", epochs=4, engines=2)
    until(lambda: page.errors.frame["number"] and not page.computing)
    assert recon.maps == [(None, 0), (4, 2)]
    assert names(page.errors) == ["phase", "phase error", "amplitude error"]
    assert lines[1:] == ["errors = recon.error_map(epochs=4, engines=2)"]
    assert (page.said.startswith("Median standard error"), page.message) == (True, "")
    recon.halves.clear()
    call(page, "compute")
    until(lambda: len(recon.maps) == 3)
    view.close()
    until(lambda: not threads())
