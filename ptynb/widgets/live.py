"""The live view: what a reconstruction is doing, and the controls that steer it.

Two threads serve it, none of them the kernel's: one looks (it pulls pictures and figures at the pace of the screen),
one acts (it carries out what was clicked, in order). Callbacks of widgets only put an action in a queue, so they work
the same wherever the notebook runs them, and a click never waits for a picture.
"""

from __future__ import annotations

import html
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import ipywidgets

from ptynb.settings import Settings
from ptynb.snapshot import Change, Epoch, PictureRequest, Pictures, Status
from ptynb.widgets.colours import look_up_table
from ptynb.widgets.curve import loss_curve
from ptynb.widgets.parts import below, in_a_row, put
from ptynb.widgets.picture_view import PictureView

RATES = {"object": "Object rate", "probe": "Probe rate"}


class Watched(Protocol):
    """What the view needs of a reconstruction; `ptynb.Reconstruction` has it."""

    settings: Settings

    @property
    def epochs(self) -> tuple[Epoch, ...]: ...  # noqa: D102
    @property
    def changes(self) -> tuple[Change, ...]: ...  # noqa: D102
    @property
    def failure(self) -> Exception | None: ...  # noqa: D102
    @property
    def can_recover(self) -> bool: ...  # noqa: D102
    @property
    def recovering(self) -> bool: ...  # noqa: D102
    @property
    def notices(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def engines(self) -> str: ...  # noqa: D102
    @property
    def batch(self) -> str: ...  # noqa: D102
    @property
    def closed(self) -> bool: ...  # noqa: D102
    def last_status(self) -> Status | None: ...  # noqa: D102
    def pictures(self, request: PictureRequest) -> Pictures | None: ...  # noqa: D102
    def pause(self) -> None: ...  # noqa: D102
    def resume(self) -> None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102
    def recover(self) -> None: ...  # noqa: D102


class Live(ipywidgets.VBox):
    """Object amplitude and phase, probe modes, loss curve, state, and controls of a reconstruction; see `live`."""

    def __init__(self, recon: Watched, rate: float = 5.0, size: int = 512) -> None:
        self._recon, self._pause_seconds = recon, 1.0 / rate
        self._request = PictureRequest(
            size=size, colours={"amplitude": look_up_table("gray"), "phase": look_up_table("viridis")}
        )
        self._actions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._look_now = threading.Event()
        self._drawn = (0, 0)
        self._told_notices: tuple[str, ...] = ()
        self._pictures = PictureView()
        self._curve = ipywidgets.HTML(loss_curve([]), layout=ipywidgets.Layout(width="100%"))
        self._summary = ipywidgets.HTML()
        self._record = ipywidgets.HTML()
        self._message = ipywidgets.HTML()
        self._notices = ipywidgets.HTML()
        self._failure: Exception | None = None
        self._buttons = {
            "Pause": self._button("Pause", "pause", recon.pause),
            "Resume": self._button("Resume", "play", recon.resume),
            "Stop": self._button("Stop", "stop", recon.stop),
            "Recover": self._button("Recover", "medkit", recon.recover),
        }
        self._buttons["Recover"].tooltip = "Goes on from the last kept state, on the engines left and fresh ones."
        self._rates = {part: self._rate_field(part, text) for part, text in RATES.items()}
        self._known_rates = {part: field.value for part, field in self._rates.items()}
        self._entered_rates = dict(self._known_rates)
        controls = ipywidgets.HBox(
            [*self._buttons.values(), *self._rates.values()], layout=ipywidgets.Layout(flex_flow="row wrap")
        )
        wide = ipywidgets.Layout(width="540px", max_width="100%")
        beside = ipywidgets.HBox(
            [ipywidgets.VBox([ipywidgets.HTML("<b>Loss</b>"), self._curve], layout=wide), self._record],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="flex-start"),
        )
        super().__init__([self._summary, controls, self._message, self._notices, self._pictures, beside])
        self.add_class("ptynb-live")
        reference = weakref.ref(self)
        threading.Thread(target=_look, args=(reference,), name="ptynb live view", daemon=True).start()
        threading.Thread(target=_act, args=(reference, self._actions), name="ptynb live actions", daemon=True).start()

    def close(self) -> None:
        """Ends the view and its threads; the reconstruction goes on."""
        self._actions.put(None)
        for widget in below(self):
            widget.close()
        super().close()

    @property
    def closed(self) -> bool:
        """Whether the view was closed."""
        return self.comm is None

    def refresh(self) -> None:
        """Takes over state and record now, and a new picture where the screen is ready for one."""
        recon = self._recon
        status = recon.last_status()
        self._tell_failure(recon.failure)
        if self._told_notices != recon.notices:
            self._told_notices = recon.notices
            put(self._notices, "".join(_box(notice, "#b26a00", "status") for notice in recon.notices))
        if status is None:
            put(self._summary, "starting: engines read the scan")
            return
        epochs, changes = recon.epochs, recon.changes
        about = (recon.engines, f"batch {recon.batch}{_offer(recon.settings, status.world)}")
        state = _state(recon, status)
        put(self._summary, _summary(status, state, epochs, about))
        if self._drawn != (len(epochs), len(changes)):
            self._drawn = (len(epochs), len(changes))
            put(self._curve, loss_curve([epoch.loss for epoch in epochs], [change.epoch + 1 for change in changes]))
            put(self._record, _record(changes))
        self._enable(state)
        shown = (self._pictures.frame.get("epoch"), self._pictures.frame.get("update"))
        if (
            state not in ("failed", "closed", "recovering")
            and shown != (status.epoch, status.update)
            and self._pictures.ready
        ):
            pictures = recon.pictures(self._request)
            if pictures is not None:
                self._pictures.show(pictures)

    def _button(self, text: str, icon: str, action: Callable[[], None]) -> ipywidgets.Button:
        button = ipywidgets.Button(description=text, icon=icon, disabled=True, layout=ipywidgets.Layout(width="100px"))
        button.on_click(lambda _: self._actions.put(action))
        return button

    def _rate_field(self, part: str, text: str) -> ipywidgets.FloatText:
        value = getattr(self._recon.settings, part).rate
        field = ipywidgets.FloatText(
            value,
            description=text,
            tooltip="Step size; 0 freezes. Takes effect on all engines before the same update.",
            step=0.001,
            continuous_update=False,
            layout=ipywidgets.Layout(width="190px"),
        )
        field.observe(lambda change: self._enter_rate(part, change["new"]), "value")
        return field

    def _enter_rate(self, part: str, rate: float) -> None:
        """Takes over what a user typed; what the view itself put into the field is no wish of anybody's."""
        if rate != self._entered_rates[part]:
            self._entered_rates[part] = rate
            self._actions.put(lambda: self._change_rate(part, rate))

    def _show_rate(self, part: str, rate: float) -> None:
        self._known_rates[part] = self._entered_rates[part] = rate  # before the field, whose observer compares
        self._rates[part].value = rate

    def _change_rate(self, part: str, rate: float) -> None:
        settings = self._recon.settings
        try:
            self._recon.settings = settings.replace(**{part: {"rate": rate}})
        finally:
            self._show_rate(part, getattr(self._recon.settings, part).rate)

    def _enable(self, state: str) -> None:
        usable = {"Pause": state == "running", "Resume": state == "paused", "Stop": state in ("running", "paused")}
        usable["Recover"] = self._recon.can_recover
        self._buttons["Recover"].layout.display = None if usable["Recover"] else "none"
        for name, button in self._buttons.items():
            button.disabled = not usable[name]
        for part, field in self._rates.items():
            field.disabled = state in ("failed", "closed")
            current = getattr(self._recon.settings, part).rate
            if current != self._known_rates[part]:  # it was changed by a line of Python
                self._show_rate(part, current)

    def _tell_failure(self, failure: Exception | None) -> None:
        """Once; and that it is over, once it has recovered."""
        if failure is not self._failure:
            self._failure = failure
            if failure is None:
                put(self._message, "")
            else:
                self._complain(str(failure))

    def _complain(self, text: str) -> None:
        put(self._message, _box(text, "#c62828", "alert"))

    def _carry_out(self, action: Callable[[], None]) -> None:
        try:
            put(self._message, "")
            action()
        except Exception as error:  # noqa: BLE001 - shown to the user, who caused it by a click
            self._complain(f"{error}")
        self._look_now.set()


def live(recon: Any, rate: float = 5.0, size: int = 512) -> Live:
    """A view of a reconstruction while it runs: pictures, loss, state, buttons and the two rates.

    rate: pictures a second at most; the screen's own pace may be lower. size: longest side of the object's pictures
    [screen pixels]. As the last line of a cell it appears below it; several views of one reconstruction are fine.
    """
    return Live(recon, rate, size)


def _look(reference: weakref.ref[Live]) -> None:
    while True:
        view = reference()
        if view is None or view.closed:
            return
        started = time.monotonic()
        ended = view._recon.closed  # before the look: what ends during it is looked at once more
        try:
            view.refresh()
        except Exception as error:  # noqa: BLE001 - a view that fails says so and goes on
            view._complain(f"{type(error).__name__}: {error}")
        if ended:
            return  # that was the last look: nothing changes any more, and the view must not keep its scan alive
        wait, look_now = view._pause_seconds - (time.monotonic() - started), view._look_now
        del view
        if look_now.wait(max(wait, 0.02)):
            look_now.clear()


def _act(reference: weakref.ref[Live], actions: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (action := actions.get()) is not None:
        view = reference()
        if view is None:
            return
        view._carry_out(action)
        del view


def _box(text: str, colour: str, role: str) -> str:
    """A sentence beside a coloured bar, and what follows it as details."""
    first, *more = text.split("\n", 1)
    details = f"<details><summary>details</summary><pre>{html.escape(more[0])}</pre></details>" if more else ""
    style = f"border-left:4px solid {colour};padding:4px 10px;margin:4px 0;line-height:1.4"
    return f'<div role="{role}" style="{style}">{html.escape(first)}{details}</div>'


def _state(recon: Watched, status: Status) -> str:
    if recon.failure is not None:
        return "failed"
    return "closed" if recon.closed else "recovering" if recon.recovering else status.state


def _offer(settings: Settings, engines: int) -> str:
    """Where each engine has a batch of its own, how to get the rates that go with all of them together."""
    each = settings.batch_per == "engine" and engines > 1
    return f"; settings.for_engines({engines}) turns rates for {settings.batch} into rates for it" if each else ""


def _summary(status: Status, state: str, epochs: tuple[Epoch, ...], about: tuple[str, ...]) -> str:
    epoch = f"epoch <b>{status.epoch}</b> of {status.target}" if status.target else f"epoch <b>{status.epoch}</b>"
    if status.update:
        epoch += f" <small>+ {status.update}/{status.updates_per_epoch} updates</small>"
    parts = [epoch]
    if epochs:
        parts += [f"loss <b>{epochs[-1].loss:.5g}</b>", f"{epochs[-1].patterns_per_second:,.0f} patterns/s"]
    if status.kept_epoch is not None:
        parts.append(f"state kept after epoch {status.kept_epoch}")
    parts += [html.escape(text) for text in about]
    return in_a_row(state, parts)


def _record(changes: tuple[Change, ...]) -> str:
    if not changes:
        return ""
    rows = "".join(
        f"<tr><td>{change.epoch + 1}</td><td>{html.escape(change.name)}</td>"
        f"<td>{html.escape(str(change.old))} → <b>{html.escape(str(change.new))}</b></td></tr>"
        for change in changes[-8:]
    )
    return (
        '<table style="margin:8px 16px;line-height:1.5">'
        '<caption style="text-align:left;font-weight:600">Changes</caption>'
        f'<tr><th style="padding-right:12px">in epoch</th><th>setting</th><th>from → to</th></tr>{rows}</table>'
    )
