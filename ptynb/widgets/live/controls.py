"""The controls of the live view: buttons, rates, and what is frozen. Each does what one line of Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets

from ptynb.settings import Settings
from ptynb.settings.schema import ABBREVIATIONS
from ptynb.widgets.actions import Action
from ptynb.widgets.live.protocol import Watched
from ptynb.widgets.live.shared_fields import Field, checkbox, row, whole_number

RATES = {"object": "Object rate", "probe": "Probe rate"}
PARTS = tuple(name for name in Settings.model_fields if hasattr(getattr(Settings(), name), "learning_rate"))
"""What can be optimised, and so frozen."""
MOST_EPOCHS = 1_000_000

Act = Callable[[Action, str], None]
"""Queues what was clicked; with the line of Python that does the same."""


class Controls:
    """Buttons, fields of rates, and boxes to freeze with; `follow` brings them up to date."""

    def __init__(self, recon: Watched, act: Act) -> None:
        self._recon, self._act = recon, act
        self.buttons = {
            "Pause": self._button("Pause", "pause", recon.pause, "Holds all engines before the same update."),
            "Resume": self._button("Resume", "play", recon.resume, "Goes on after a pause."),
            "Stop": self._button("Stop", "stop", recon.stop, "Ends the run; Start goes on from there."),
            "Recover": self._button(
                "Recover", "medkit", recon.recover, "Goes on from the last kept state, on engines left and fresh ones."
            ),
        }
        self.more = whole_number("More epochs", 100, 1, MOST_EPOCHS, "180px", "Epochs that Start adds.")
        self.buttons["Start"] = ipywidgets.Button(
            description="Start",
            icon="forward",
            disabled=True,
            tooltip="Trains that many more epochs.",
            layout=ipywidgets.Layout(width="100px"),
        )
        self.buttons["Start"].on_click(lambda _: self._start(self.more.value))
        self.rates = {part: self._rate_field(part, text) for part, text in RATES.items()}
        self.frozen = {part: self._freeze_box(part) for part in PARTS}
        self._before: dict[str, float] = {}
        self._moved: set[str] = set(RATES)
        self.r_factor = Field(
            whole_number(
                "R-factor every",
                recon.r_factor_every,
                0,
                MOST_EPOCHS,
                "190px",
                "Epochs from one R-factor to the next, each a pass over all patterns; 0: never.",
            ),
            self._measure,
        )
        freeze = [field.widget for field in self.frozen.values()]
        started = [self.more, self.buttons["Start"]]
        held = [self.buttons[name] for name in ("Pause", "Resume", "Stop", "Recover")]
        self.widgets = (
            row(*held, *started, grid_gap="2px 6px"),
            row(*(field.widget for field in self.rates.values()), *freeze, grid_gap="2px 12px"),
        )

    def follow(self, state: str, moving: set[str]) -> None:
        """Shows what makes sense in this state, and what was changed by others. moving: parts optimised now."""
        usable = {
            "Pause": state == "running",
            "Resume": state == "paused",
            "Stop": state in ("running", "paused"),
            "Recover": self._recon.can_recover,
            "Start": state == "ready",
        }
        self.buttons["Recover"].layout.display = None if usable["Recover"] else "none"
        for name, button in self.buttons.items():
            button.disabled = not usable[name]
        ended = state in ("failed", "closed")
        settings = self._recon.settings
        self._moved |= moving
        for part in PARTS:
            rate = getattr(settings, part).learning_rate
            if rate > 0:
                self._before[part] = rate
            self.frozen[part].follow(rate == 0)
            self.frozen[part].widget.disabled = ended
            self.frozen[part].widget.layout.display = None if part in self._moved else "none"
            if part in self.rates:
                self.rates[part].follow(rate)
                self.rates[part].widget.disabled = ended
        self.r_factor.follow(self._recon.r_factor_every)
        self.r_factor.widget.disabled = ended

    # What is clicked and entered

    def _button(self, text: str, icon: str, action: Callable[[], None], tooltip: str) -> ipywidgets.Button:
        button = ipywidgets.Button(
            description=text, icon=icon, disabled=True, tooltip=tooltip, layout=ipywidgets.Layout(width="100px")
        )
        button.on_click(lambda _: self._act(action, f"recon.{text.lower()}()"))
        return button

    def _start(self, epochs: int) -> None:
        self._act(lambda: self._recon.start(epochs), f"recon.start(epochs={epochs})")

    def _measure(self, epochs: int) -> None:
        def change() -> None:
            try:
                self._recon.r_factor_every = epochs
            finally:
                self.r_factor.show(self._recon.r_factor_every)

        self._act(change, f"recon.r_factor_every = {epochs}")

    def _rate_field(self, part: str, text: str) -> Field:
        widget = ipywidgets.FloatText(
            getattr(self._recon.settings, part).learning_rate,
            description=text,
            tooltip="Step size; 0 freezes. Takes effect on all engines before the same update.",
            step=0.001,
            continuous_update=False,
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="180px"),
        )
        return Field(widget, lambda rate: self._change_rate(part, rate))

    def _freeze_box(self, part: str) -> Field:
        words = " ".join(ABBREVIATIONS.get(word, word) for word in part.split("_"))
        frozen = getattr(self._recon.settings, part).learning_rate == 0
        widget = checkbox(
            f"freeze {words}", frozen, f"Freezes the {words}: its learning rate is 0 until it is freed again."
        )
        widget.layout.display = None if part in RATES else "none"
        return Field(widget, lambda value: self._freeze(part, value))

    def _freeze(self, part: str, freeze: bool) -> None:
        default = getattr(Settings(), part).learning_rate or 0.01
        self._change_rate(part, 0.0 if freeze else self._before.get(part, default))

    def _change_rate(self, part: str, rate: float) -> None:
        def change() -> None:
            try:
                self._recon.settings = self._recon.settings.replace(**{part: {"learning_rate": rate}})
            finally:
                self._show_rate(part, getattr(self._recon.settings, part).learning_rate)

        self._act(change, f'recon.settings = recon.settings.replace({part}={{"learning_rate": {rate!r}}})')

    def _show_rate(self, part: str, rate: Any) -> None:
        self.frozen[part].show(rate == 0)
        if part in self.rates:
            self.rates[part].show(rate)
