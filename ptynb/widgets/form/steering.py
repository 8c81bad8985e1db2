"""A form and a reconstruction that runs: what it needs of one, following it, and freezing a part for a while."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import ipywidgets

from ptynb.settings import Settings
from ptynb.settings.schema import Setting
from ptynb.widgets.elements import complaint, put


class Steered(Protocol):
    """What a live form needs of a reconstruction; `ptynb.Reconstruction` has it."""

    settings: Settings

    @property
    def closed(self) -> bool: ...  # noqa: D102


@runtime_checkable
class Restructured(Steered, Protocol):
    """One that can also take settings over that need its engines to begin anew from their state."""

    def reconfigure_error(self, settings: Settings) -> str | None: ...  # noqa: D102
    def reconfigure(self, settings: Settings) -> None: ...  # noqa: D102


class Waiting(ipywidgets.HBox):
    """What waits to be applied, since engines have to be held for it: the changes, Apply and Discard."""

    def __init__(self, apply: Callable[[], None], discard: Callable[[], None]) -> None:
        self._about = ipywidgets.HTML()
        self.apply = ipywidgets.Button(
            description="Apply",
            button_style="primary",
            tooltip="Holds all engines, and goes on from their state with these settings",
            layout=ipywidgets.Layout(width="80px"),
        )
        self.discard = ipywidgets.Button(
            description="Discard",
            tooltip="Shows what holds again",
            layout=ipywidgets.Layout(width="80px"),
        )
        self.apply.on_click(lambda _: apply())
        self.discard.on_click(lambda _: discard())
        super().__init__(
            [self.apply, self.discard, self._about], layout=ipywidgets.Layout(display="none", overflow="visible")
        )

    def show(self, changes: Mapping[str, tuple[Any, Any]], problem: str = "") -> None:
        """Shows what waits, and why it can't be applied where it can't; nothing where nothing waits."""
        texts = (f"<b>{name}</b> {html.escape(f'{old} → {new}')}" for name, (old, new) in changes.items())
        about = f'<div role="status">waits for Apply: {", ".join(texts)}</div>'
        put(self._about, about + (complaint(problem) if problem else ""))
        self.apply.disabled = bool(problem)
        self.layout.display = None if changes else "none"


class Freeze(ipywidgets.Button):
    """Holds a part as it is (rate 0), and lets it move again at the rate it had.

    enter: is given the rate. Where it never moved, the setting's default is what it is freed with, if that is not 0.
    """

    def __init__(self, label: str, setting: Setting, enter: Callable[[float], None]) -> None:
        self._label, self._rate, self._free = label, 0.0, float(setting.default or 0.0)
        super().__init__(layout=ipywidgets.Layout(width="76px"))
        self.on_click(lambda _: enter(0.0 if self._rate > 0 else self._free))

    def show(self, rate: Any) -> None:
        """Shows what it would do at this rate."""
        self._rate = float(rate) if isinstance(rate, int | float) else 0.0
        if self._rate > 0:
            self._free = self._rate
        self.description = "Freeze" if self._rate > 0 else "Free"
        does = "0, it stays as it is" if self._rate > 0 else f"{self._free:g} again"
        self.tooltip = f"{self._label}: {does}"
        self.disabled = self._rate == self._free == 0
