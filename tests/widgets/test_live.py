"""The live view without a browser: what is sent to one is recorded, what one would send is made up."""

import html
import re
import threading
import time
from types import SimpleNamespace

import comm
import comm.base_comm
import pytest

from ptynb.settings import Settings
from ptynb.snapshot import Change, Epoch, Pictures, Status
from ptynb.widgets import picture_view
from ptynb.widgets.live import Live, live
from ptynb.widgets.picture_view import PATIENCE, PictureView

HOSTILE = "<script>alert(1)</script>"
LIMITS = {"amplitude": (0.0, 1.25), "phase": (-1.0, 1.0)}


class Recon:
    """A made-up reconstruction: each look finds it one update further."""

    def __init__(self):
        self._settings = Settings()
        self.assigned, self.calls = [], []
        self.state, self.update, self.asked = "running", 0, 0
        self.failure, self.broken, self.closed = None, None, False
        self.can_recover, self.recovering, self.notices = False, False, ()
        self.epochs, self.changes, self.engines = (), (), "2 CPU engines, gloo"
        self.batch = "16"

    @property
    def settings(self):
        return self._settings

    @settings.setter
    def settings(self, settings):
        self.assigned.append(settings)
        self._settings = settings

    def last_status(self):
        if self.state is None:
            return None
        self.update += 1
        epoch = len(self.epochs)
        return Status(0, 2, self.state, epoch, self.update, 99, 40, "cpu", "gloo", 1, rates={}, applied=0)

    def pictures(self, request):
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return Pictures(len(self.epochs), self.update, b"amplitude", b"phase", b"probe", LIMITS, (0.75, 0.25))

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


@pytest.fixture
def sent(monkeypatch):
    """Every message to the browser: (widget's id, data, buffers)."""
    messages = []

    class Recorded(comm.base_comm.BaseComm):
        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            if msg_type == "comm_msg":
                messages.append((self.comm_id, data, buffers))

    monkeypatch.setattr(comm, "create_comm", Recorded)
    return messages


@pytest.fixture
def recon():
    return Recon()


@pytest.fixture
def view(recon, sent):
    shown = live(recon, rate=50.0)
    assert isinstance(shown, Live)
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


def browser_sends(widget, **state):
    data = {"method": "update", "state": state, "buffer_paths": []}
    widget.comm.handle_msg({"content": {"data": data}, "buffers": []})


def click(button):
    data = {"method": "custom", "content": {"event": "click"}}
    button.comm.handle_msg({"content": {"data": data}, "buffers": []})


def values_sent(sent, widget, name):
    return [data["state"][name] for where, data, _ in sent if where == widget.model_id and name in data["state"]]


def frames_sent(sent, view):
    return [frame["number"] for frame in values_sent(sent, view._pictures, "frame")]


def confirm_frames(view):
    view._pictures.observe(lambda change: browser_sends(view._pictures, shown=change["new"]["number"]), "frame")


def test_frames_go_out_with_their_bytes_and_notes(recon, sent, view):
    until(lambda: frames_sent(sent, view))
    where = view._pictures.model_id
    data, buffers = next((d, b) for w, d, b in sent if w == where and "frame" in d["state"])
    frame = data["state"]["frame"]
    assert frame["notes"]["amplitude"] == "0.000 to 1.250"
    assert frame["notes"]["probe"].endswith("power 75.0%, 25.0%")
    paths = {path[-1]: bytes(buffer) for path, buffer in zip(data["buffer_paths"], buffers, strict=True)}
    assert paths == {"amplitude": b"amplitude", "phase": b"phase", "probe": b"probe"}


def test_state_epoch_loss_and_curve_are_told(recon, view):
    recon.epochs = (Epoch(1, 0.5, 0.1, 1000.0), Epoch(2, 0.125, 0.1, 1234.0))
    recon.changes = (Change(1, 3, f"probe.rate{HOSTILE}", 0.01, HOSTILE),)
    recon.engines = HOSTILE
    until(lambda: "<b>2</b> of 40" in view._summary.value)
    assert ">running</b>" in view._summary.value
    assert "loss <b>0.125</b>" in view._summary.value
    assert "1,234 patterns/s" in view._summary.value
    until(lambda: "<polyline" in view._curve.value and "stroke-dasharray" in view._curve.value)
    until(lambda: "Changes" in view._record.value)
    for widget in (view._summary, view._record):
        assert "<script" not in widget.value
        assert html.escape(HOSTILE) in widget.value


def test_the_effective_batch_is_told_with_the_rates_that_go_with_it(recon, view):
    until(lambda: "batch 16<" in view._summary.value)
    recon.batch = HOSTILE
    recon.settings = Settings(batch=8, batch_per="engine")
    until(lambda: f"batch {html.escape(HOSTILE)}; settings.for_engines(2) turns rates for 8" in view._summary.value)


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        (None, []),
        ("loading", []),
        ("ready", []),
        ("running", ["Pause", "Stop"]),
        ("paused", ["Resume", "Stop"]),
    ],
)
def test_only_buttons_that_make_sense_can_be_clicked(recon, request, state, usable):
    recon.state = state
    view = request.getfixturevalue("view")
    until(lambda: (state or "starting") in view._summary.value)
    until(lambda: [name for name, button in view._buttons.items() if not button.disabled] == usable)
    assert not any(field.disabled for field in view._rates.values())


@pytest.mark.parametrize("ending", ["failed", "closed"])
def test_after_the_end_nothing_can_be_clicked(recon, view, ending):
    until(lambda: not view._buttons["Pause"].disabled)
    if ending == "failed":
        recon.failure = RuntimeError("gone")
    else:
        recon.closed = True
    until(lambda: f">{ending}</b>" in view._summary.value)
    until(lambda: all(control.disabled for control in [*view._buttons.values(), *view._rates.values()]))
    asked = recon.asked
    steady(lambda: recon.asked == asked, 0.1)


def test_a_click_never_waits_and_clicks_are_carried_out_in_order(recon, view):
    go_on = threading.Event()
    pause = recon.pause
    recon.pause = lambda: (go_on.wait(5), pause())
    view._buttons["Pause"].click()  # was bound when the view was made, so it is the plain one
    until(lambda: len(recon.calls) == 1)
    view._actions.put(recon.pause)
    started = time.monotonic()
    click(view._buttons["Resume"])
    click(view._buttons["Stop"])
    assert time.monotonic() - started < 1
    frames = recon.asked
    confirm_frames(view)
    browser_sends(view._pictures, shown=view._pictures.frame["number"])
    until(lambda: recon.asked > frames)  # the pictures go on meanwhile
    assert len(recon.calls) == 1
    go_on.set()
    until(lambda: len(recon.calls) == 4)
    assert [name for name, _ in recon.calls] == ["pause", "pause", "resume", "stop"]
    assert threading.current_thread() not in {thread for _, thread in recon.calls}


def test_what_a_click_raises_is_shown_as_text_and_the_next_click_works(recon, view):
    recon.broken = RuntimeError(f"Rank 1 {HOSTILE}\nTraceback <b>bold</b>")
    click(view._buttons["Resume"])
    until(lambda: "Rank 1" in view._message.value and "<details>" in view._message.value)
    assert "<script" not in view._message.value
    assert "<b>" not in view._message.value
    assert html.escape(HOSTILE) in view._message.value
    assert "Traceback &lt;b&gt;bold&lt;/b&gt;" in view._message.value
    recon.broken = None
    click(view._buttons["Pause"])
    until(lambda: [name for name, _ in recon.calls] == ["resume", "pause"])
    until(lambda: view._message.value == "")


@pytest.mark.parametrize("part", ["object", "probe"])
def test_a_rate_field_changes_that_rate_alone(recon, view, part):
    browser_sends(view._rates[part], value=0.25)
    until(lambda: recon.assigned)
    assert recon.assigned[0] == Settings().replace(**{part: {"rate": 0.25}})
    steady(lambda: len(recon.assigned) == 1 and view._rates[part].value == 0.25)


def test_the_last_rate_typed_is_the_one_that_counts(recon, view):
    view._actions.put(lambda: time.sleep(0.2))
    for value in (0.5, 0.01):
        browser_sends(view._rates["object"], value=value)
    until(lambda: len(recon.assigned) == 2)
    steady(lambda: recon.settings.object.rate == 0.01 == view._rates["object"].value, 0.2)


def test_a_refused_rate_is_explained_and_the_old_value_comes_back(recon, sent, view):
    field = view._rates["object"]
    browser_sends(field, value=-1.0)
    until(lambda: "object.rate is -1.0" in view._message.value)
    steady(lambda: "object.rate is -1.0" in view._message.value)
    assert "greater than or equal to 0" in html.unescape(view._message.value)
    assert recon.settings == Settings()
    assert field.value == 0.01
    assert values_sent(sent, field, "value")[-1] == 0.01


def test_a_rate_changed_by_python_is_shown_and_does_not_bounce_back(recon, sent, view):
    view._complain("still to be read")
    recon.settings = Settings().replace(probe={"rate": 0.5})
    until(lambda: view._rates["probe"].value == 0.5)
    assert values_sent(sent, view._rates["probe"], "value") == [0.5]
    steady(lambda: len(recon.assigned) == 1)
    assert "still to be read" in view._message.value


def test_quick_changes_by_python_are_never_undone_by_the_view(recon, view):
    view._actions.put(lambda: time.sleep(0.3))  # busy with what was clicked before
    recon.settings = Settings().replace(probe={"rate": 0.5})
    until(lambda: view._rates["probe"].value == 0.5)
    recon.settings = Settings().replace(probe={"rate": 0.75})
    until(lambda: view._rates["probe"].value == 0.75)
    steady(lambda: recon.settings.probe.rate == 0.75, 0.5)


@pytest.fixture
def clock(monkeypatch):
    """The picture view's clock, which stands still."""
    now = SimpleNamespace(value=1000.0)
    monkeypatch.setattr(picture_view, "time", SimpleNamespace(monotonic=lambda: now.value))
    return now


def test_at_most_one_frame_is_unconfirmed_when_the_next_is_sent(clock):
    pictures = PictureView()
    frame = Recon().pictures(None)
    for number in (1, 2):
        assert pictures.ready
        pictures.show(frame)
        assert pictures.frame["number"] == number
    assert not pictures.ready
    browser_sends(pictures, shown=1)
    assert pictures.ready
    pictures.show(frame)
    assert not pictures.ready
    browser_sends(pictures, shown=3)
    assert pictures.ready
    pictures.close()


def test_after_some_patience_a_frame_is_sent_regardless(clock):
    pictures = PictureView()
    frame = Recon().pictures(None)
    pictures.show(frame)
    pictures.show(frame)
    clock.value += PATIENCE
    assert not pictures.ready
    clock.value += 0.01
    assert pictures.ready
    pictures.show(frame)
    assert not pictures.ready
    pictures.close()


def test_pictures_wait_for_the_browser_and_the_figures_do_not(clock, recon, sent, view):
    until(lambda: frames_sent(sent, view) == [1, 2])
    steady(lambda: frames_sent(sent, view) == [1, 2] and recon.asked == 2)
    update = re.search(r"\+ (\d+)/99", view._summary.value)[1]
    until(lambda: f"+ {update}/99" not in view._summary.value)
    browser_sends(view._pictures, shown=1)
    until(lambda: frames_sent(sent, view) == [1, 2, 3])
    steady(lambda: frames_sent(sent, view) == [1, 2, 3], 0.2)
    clock.value += 2 * PATIENCE
    until(lambda: frames_sent(sent, view) == [1, 2, 3, 4])
    confirm_frames(view)
    browser_sends(view._pictures, shown=4)
    until(lambda: len(frames_sent(sent, view)) > 10)


def test_nothing_new_is_nothing_sent(recon, sent, view):
    confirm_frames(view)
    until(lambda: frames_sent(sent, view))
    status = recon.last_status()
    recon.last_status = lambda: status
    until(lambda: view._pictures.frame.get("update") == status.update or recon.update == status.update)
    time.sleep(0.1)
    asked = recon.asked
    steady(lambda: recon.asked == asked, 0.2)


def test_a_failure_is_told_with_its_details_as_text(recon, view):
    recon.failure = RuntimeError(f"Engine 1 raised {HOSTILE}\nFile </pre>{HOSTILE}")
    until(lambda: "Engine 1" in view._message.value and ">failed</b>" in view._summary.value)
    first, details = view._message.value.split("<details>")
    assert html.escape(HOSTILE) in first
    assert f"<pre>File &lt;/pre&gt;{html.escape(HOSTILE)}</pre>" in details
    assert "<script" not in view._message.value


def test_a_lost_engine_can_be_recovered_from_with_a_click(recon, view):
    until(lambda: view._pictures.frame)
    assert view._buttons["Recover"].layout.display == "none"
    recon.failure, recon.can_recover = RuntimeError("The engine of rank 1 has died."), True
    until(lambda: "rank 1 has died" in view._message.value)
    until(lambda: not view._buttons["Recover"].disabled)
    assert view._buttons["Recover"].layout.display is None
    click(view._buttons["Recover"])
    until(lambda: [name for name, _ in recon.calls] == ["recover"])
    recon.failure, recon.can_recover, recon.recovering = None, False, True
    until(lambda: "recovering" in view._summary.value)
    steady(lambda: view._message.value == "")
    asked = recon.asked
    steady(lambda: recon.asked == asked)
    recon.recovering = False
    until(lambda: recon.asked > asked)
    assert "running" in view._summary.value


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
    view = live(recon)
    mine = {thread.name: thread for thread in set(threading.enumerate()) - before}
    assert set(mine) == {"ptynb live view", "ptynb live actions"}
    view.close()
    assert view.closed
    for thread in mine.values():
        thread.join(5)
        assert not thread.is_alive(), thread.name
    assert recon.calls == recon.assigned == []
    view.close()


def test_two_views_of_one_reconstruction_show_the_same(recon, sent, view):
    other = live(recon, rate=50.0)
    browser_sends(view._rates["object"], value=0.125)
    until(lambda: other._rates["object"].value == 0.125)
    other.close()
    steady(lambda: recon.settings.object.rate == 0.125, 0.1)
