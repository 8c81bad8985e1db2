"""Parts of a form of a running reconstruction: its interface, changes that wait for Apply, and Freeze."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from ptynb.settings import Settings
from ptynb.settings.schema import structure
from ptynb.widgets import elements
from ptynb.widgets.form.field_search import label_of_name
from ptynb.widgets.form.group_summary import value_words
from ptynb.widgets.shared_widgets import complaint, put


class SupportsSettings(Protocol):
    """The interface of a reconstruction that a live form uses; `ptynb.Reconstruction` has it."""

    settings: Settings

    @property
    def closed(self) -> bool: ...  # noqa: D102


@runtime_checkable
class SupportsReconfigure(SupportsSettings, Protocol):
    """A reconstruction that can also change settings that require a restart of its engines from their state."""

    def reconfigure_error(self, settings: Settings) -> str | None: ...  # noqa: D102
    def reconfigure(self, settings: Settings) -> None: ...  # noqa: D102


class PendingChanges(elements.HBox):
    """Changes for which engines are interrupted, with buttons that apply or discard them."""

    def __init__(self, apply: Callable[[], None], discard: Callable[[], None]) -> None:
        self._about = elements.HTML()
        self.apply = elements.Button(
            description="Apply",
            button_style="primary",
            tooltip="Restarts all engines from their current state with these settings",
            layout=elements.Layout(width="80px"),
        )
        self.discard = elements.Button(
            description="Discard",
            tooltip="Shows the current settings again",
            layout=elements.Layout(width="80px"),
        )
        self.apply.on_click(lambda _: apply())
        self.discard.on_click(lambda _: discard())
        super().__init__(
            [self.apply, self.discard, self._about], layout=elements.Layout(display="none", overflow="visible")
        )

    def show(self, changes: Mapping[str, tuple[Any, Any]], problem: str = "") -> None:
        """Show the changes, and the problem if they cannot be applied; hidden without changes."""
        texts = (_change(name, *values) for name, values in changes.items())
        about = f'<div role="status">Waiting for Apply: {", ".join(texts)}</div>'
        put(self._about, about + (complaint(problem) if problem else ""))
        self.apply.disabled = bool(problem)
        self.layout.display = None if changes else "none"


def _change(name: str, old: Any, new: Any) -> str:
    """Return a change in words (HTML); of a list, that it changes."""
    values = ""
    if structure().has(name):
        setting = structure().setting(name)
        values = f" {value_words(setting, old)} → {value_words(setting, new)}"
    return f"<b>{html.escape(label_of_name(name))}</b>{html.escape(values)}"


class FreezeButton(elements.Button):
    """Button that sets a learning rate to 0 and back to the last one, or to the default if there is none.

    enter: called with the learning rate.
    """

    def __init__(self, label: str, enter: Callable[[float], None]) -> None:
        self._label, self._rate, self._free, self._default = label, 0.0, 0.0, 0.0
        super().__init__(layout=elements.Layout(width="76px"))
        self.on_click(lambda _: enter(0.0 if self._rate > 0 else self._free))

    def show(self, rate: Any, default: float) -> None:
        """Set the current learning rate and its default, and label the button Freeze, or Unfreeze if it is 0."""
        self._rate = float(rate) if isinstance(rate, int | float) else 0.0
        if default != self._default:  # of another optimiser, whose rates are in other units
            self._default = self._free = default
        if self._rate > 0:
            self._free = self._rate
        self.description = "Freeze" if self._rate > 0 else "Unfreeze"
        self.tooltip = f"{self._label}: set to {'0' if self._rate > 0 else f'{self._free:g}'}"
        self.disabled = self._rate == self._free == 0
