"""The controls of the live view, and their input fields. Each corresponds to one line of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptynb.settings import Settings
from ptynb.settings.schema import ABBREVIATIONS
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.live.protocol import Watched

LEARNING_RATES = {"object": "Object learning rate", "probe": "Probe learning rate"}
PARTS = tuple(name for name in Settings.model_fields if hasattr(getattr(Settings(), name), "learning_rate"))
"""Components with a learning rate, which can be frozen."""
MOST_EPOCHS = 1_000_000


class Field:
    """A widget with a `value`; `entered` is called when the user changes it, not when a program does."""

    def __init__(self, widget: Any, entered: Callable[[Any], None]) -> None:
        self.widget = widget
        self._followed = self._shown = widget.value
        self._entered = entered
        widget.observe(self._changed, "value")

    def show(self, value: Any) -> None:
        """Show a value in place of user input."""
        self._followed = self._shown = value  # first: the widget's observer compares with it
        if self.widget.value != value:
            self.widget.value = value

    def follow(self, value: Any) -> None:
        """Show a value if it differs from the last one, so that an unfinished edit is not overwritten."""
        if value != self._followed:
            self.show(value)

    def _changed(self, change: Any) -> None:
        if change["new"] != self._shown:
            self._shown = change["new"]
            self._entered(change["new"])


def row(*widgets: elements.Element, **layout: Any) -> elements.HBox:
    """Return widgets in a row that wraps."""
    return elements.HBox(
        [*widgets], layout=elements.Layout(flex_flow="row wrap", align_items="center", overflow="visible", **layout)
    )


def checkbox(text: str, value: bool, tooltip: str = "", width: str = "auto") -> elements.Checkbox:
    """Return a checkbox with its label to the right."""
    return elements.Checkbox(
        value, description=text, tooltip=tooltip or text, indent=False, layout=elements.Layout(width=width)
    )


def whole_number(text: str, value: int, least: int, most: int, width: str, tooltip: str) -> elements.BoundedIntText:
    """Return a field for an integer."""
    return elements.BoundedIntText(
        value,
        min=least,
        max=most,
        description=text,
        tooltip=tooltip,
        continuous_update=False,
        style={"description_width": "initial"},
        layout=elements.Layout(width=width),
    )


class Controls:
    """Buttons, learning rates and checkboxes that freeze a component; `follow` updates them.

    buttons, rates, frozen and r_factor: by name. run: the row of buttons; parts: learning rates and checkboxes.
    """

    def __init__(self, recon: Watched, actions: Actions) -> None:
        self._recon, self._actions = recon, actions
        self.buttons = {
            "Pause": self._button(
                "Pause", "pause", recon.pause, "Suspends the run on all engines after the same update."
            ),
            "Resume": self._button("Resume", "play", recon.resume, "Continues a paused run."),
            "Stop": self._button("Stop", "stop", recon.stop, "Ends the run; Start continues it."),
            "Recover": self._button(
                "Recover",
                "briefcase-medical",
                recon.recover,
                "Continues from the latest checkpoint, on the remaining engines and new ones.",
            ),
        }
        self.more = whole_number("More epochs", 100, 1, MOST_EPOCHS, "auto", "Number of epochs that Start runs.")
        self.buttons["Start"] = elements.Button(
            description="Start",
            icon="fast-forward",
            disabled=True,
            tooltip="Runs this number of epochs.",
            layout=elements.Layout(width="auto", flex="0 0 auto"),
        )
        self.buttons["Start"].on_click(lambda _: self._start(self.more.value))
        self.rates = {part: self._rate_field(part, text) for part, text in LEARNING_RATES.items()}
        self.frozen = {part: self._freeze_box(part) for part in PARTS}
        self._before: dict[str, float] = {}
        self._moved: set[str] = set(LEARNING_RATES)
        self.r_factor = Field(
            whole_number(
                "R-factor every [epochs]",
                recon.r_factor_every,
                0,
                MOST_EPOCHS,
                "auto",
                "Interval of the R-factor, which takes a pass over all patterns; 0: never.",
            ),
            self._measure,
        )
        held = elements.HBox([self.buttons[name] for name in ("Pause", "Resume", "Stop", "Recover")])
        self.more.layout.flex = "1 1 0"
        self.more.add_class("ptynb-more-epochs")
        started = elements.HBox([self.more, self.buttons["Start"]])
        self.run = elements.VBox([held, started])
        freeze = row(*(field.widget for field in self.frozen.values()), grid_gap="0 6px")
        self.parts = elements.VBox([*(field.widget for field in self.rates.values()), freeze])

    def follow(self, state: str, moving: set[str]) -> None:
        """Enable the controls for this state and show current values. moving: components that are optimised now."""
        usable = {
            "Pause": state == "running",
            "Resume": state == "paused",
            "Stop": state in ("running", "paused"),
            "Recover": self._recon.can_recover,
            "Start": state == "ready",
        }
        for name, shown in (  # Pause and Resume have one place
            ("Recover", usable["Recover"]),
            ("Resume", usable["Resume"]),
            ("Pause", not usable["Resume"]),
        ):
            self.buttons[name].layout.display = None if shown else "none"
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

    # Clicks and entries

    def _button(self, text: str, icon: str, action: Callable[[], None], tooltip: str) -> elements.Button:
        button = elements.Button(
            description=text,
            icon=icon,
            disabled=True,
            tooltip=tooltip,
            layout=elements.Layout(width="auto", flex="1 1 0", min_width="74px"),
        )
        button.on_click(lambda _: self._actions.put(action, line=f"recon.{text.lower()}()"))
        return button

    def _start(self, epochs: int) -> None:
        self._actions.put(lambda: self._recon.start(epochs), line=f"recon.start(epochs={epochs})")

    def _measure(self, epochs: int) -> None:
        def change() -> None:
            try:
                self._recon.r_factor_every = epochs
            finally:
                self.r_factor.show(self._recon.r_factor_every)

        self._actions.put(change, line=f"recon.r_factor_every = {epochs}")

    def _rate_field(self, part: str, text: str) -> Field:
        widget = elements.FloatText(
            getattr(self._recon.settings, part).learning_rate,
            description=text,
            tooltip=f"{text}; 0 freezes the {part}. Takes effect on all engines at the same update.",
            step=0.001,
            continuous_update=False,
            style={"description_width": "initial"},
            layout=elements.Layout(width="auto"),
        )
        return Field(widget, lambda rate: self._change_rate(part, rate))

    def _freeze_box(self, part: str) -> Field:
        name = " ".join(ABBREVIATIONS.get(word, word) for word in part.split("_"))
        frozen = getattr(self._recon.settings, part).learning_rate == 0
        widget = checkbox(f"Freeze {name}", frozen, f"Sets the learning rate of {name} to 0 until this is cleared.")
        widget.layout.display = None if part in LEARNING_RATES else "none"

        def unfrozen() -> float:
            default: float = getattr(Settings(optimiser=self._recon.settings.optimiser), part).learning_rate
            return self._before.get(part, default or 0.01)

        return Field(widget, lambda freeze: self._change_rate(part, 0.0 if freeze else unfrozen()))

    def _change_rate(self, part: str, rate: float) -> None:
        def change() -> None:
            try:
                self._recon.settings = self._recon.settings.replace(**{part: {"learning_rate": rate}})
            finally:
                now = getattr(self._recon.settings, part).learning_rate
                self.frozen[part].show(now == 0)
                if part in self.rates:
                    self.rates[part].show(now)

        self._actions.put(change, line=f'recon.settings = recon.settings.replace({part}={{"learning_rate": {rate!r}}})')
