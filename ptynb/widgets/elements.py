"""Controls, texts and boxes of views: the elements that pages draw with the look of Jupyter's own widgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import traitlets

from ptynb.widgets.element_tree import Element, Layout

ICONS = ("", *json.loads((Path(__file__).parent / "static" / "icons.json").read_text(encoding="utf-8")))
"""Names of icons, of Lucide."""


class Control(Element):
    """An element that a user sets; description: the label before it. style: width of that, `description_width`."""

    value: Any
    options: Any
    placeholder: Any
    description = traitlets.Unicode("").tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    style = traitlets.Instance(Layout).tag(sync=True)

    def __init__(self, *, style: Layout | Mapping[str, str] | None = None, **traits: Any) -> None:
        super().__init__(style=style if isinstance(style, Layout) else Layout(**style or {}), **traits)

    def focus(self) -> None:
        """Move the focus of the keyboard to the field."""
        self.send({"focus": self.key})


class HTML(Element):
    """A text as HTML."""

    component = "html"
    value = traitlets.Unicode("").tag(sync=True)

    def __init__(self, value: str = "", **traits: Any) -> None:
        super().__init__(value=value, **traits)


class Text(Control):
    """A line of text; continuous_update: set at each key, or else once the user has finished."""

    component = "text"
    value = traitlets.Unicode("").tag(sync=True)
    placeholder = traitlets.Unicode("").tag(sync=True)
    continuous_update = traitlets.Bool(True).tag(sync=True)

    def __init__(self, value: str = "", **traits: Any) -> None:
        super().__init__(value=value, **traits)


class Textarea(Text):
    """Several lines of text; rows: how many are in sight."""

    component = "textarea"
    rows = traitlets.Int(None, allow_none=True).tag(sync=True)


class NumberField(Control):
    """A number between `min` and `max`, to which others are set; None: no limit."""

    component = "number"
    value: Any = None
    min: Any = traitlets.Float(None, allow_none=True).tag(sync=True)
    max: Any = traitlets.Float(None, allow_none=True).tag(sync=True)
    step = traitlets.Float(None, allow_none=True).tag(sync=True)
    continuous_update = traitlets.Bool(False).tag(sync=True)

    def __init__(self, value: float = 0, **traits: Any) -> None:
        super().__init__(**traits)  # the limits first, within which the value is
        self.value = value

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> Any:
        value = proposal["value"]
        if self.min is not None and value < self.min:
            value = self.min
        if self.max is not None and value > self.max:
            value = self.max
        return type(proposal["value"])(value)

    @traitlets.observe("min", "max")
    def _limited(self, _: Any) -> None:
        self.value = self._within({"value": self.value})


class FloatText(NumberField):
    """A number."""

    value = traitlets.CFloat(0.0).tag(sync=True)


class BoundedFloatText(FloatText):
    """A number between limits."""

    min: Any = traitlets.Float(0.0, allow_none=True).tag(sync=True)
    max: Any = traitlets.Float(100.0, allow_none=True).tag(sync=True)


class BoundedIntText(NumberField):
    """An integer between limits."""

    value = traitlets.CInt(0).tag(sync=True)
    min: Any = traitlets.Int(0, allow_none=True).tag(sync=True)
    max: Any = traitlets.Int(100, allow_none=True).tag(sync=True)
    step = traitlets.Int(1, allow_none=True).tag(sync=True)


class Checkbox(Control):
    """A switch; indent: its box stands below the fields of others."""

    component = "checkbox"
    value = traitlets.Bool(False).tag(sync=True)
    indent = traitlets.Bool(True).tag(sync=True)
    description_allow_html = traitlets.Bool(False).tag(sync=True)

    def __init__(self, value: bool = False, **traits: Any) -> None:
        super().__init__(value=value, **traits)


class Button(Control):
    """A button; icon: one of `ICONS`. button_style: "primary", "danger" ... or ""."""

    component = "button"
    icon = traitlets.Enum(ICONS, "").tag(sync=True)
    button_style = traitlets.Unicode("").tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._clicked: list[Callable[[Button], Any]] = []

    def on_click(self, clicked: Callable[[Button], Any]) -> None:
        """Register a function that is called with the button for each click."""
        self._clicked.append(clicked)

    def click(self) -> None:
        """Call what a click calls."""
        for clicked in self._clicked:
            clicked(self)

    def receive(self, content: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        """Handle a click in a browser."""
        if not self.disabled:
            self.click()


class ToggleButton(Control):
    """A button that stays pressed until the next click."""

    component = "toggle"
    value = traitlets.Bool(False).tag(sync=True)
    icon = traitlets.Enum(ICONS, "").tag(sync=True)
    button_style = traitlets.Unicode("").tag(sync=True)

    def __init__(self, value: bool = False, **traits: Any) -> None:
        super().__init__(value=value, **traits)


class Selection(Control):
    """A list of options: values, or pairs of a label and a value."""

    options: Any = traitlets.Any(())
    labels: traitlets.List[str] = traitlets.List(traitlets.Unicode()).tag(sync=True)

    @traitlets.validate("options")
    def _as_tuple(self, proposal: Any) -> tuple[Any, ...]:
        return tuple(proposal["value"])

    @property
    def _pairs(self) -> list[tuple[str, Any]]:
        return [option if isinstance(option, tuple) else (str(option), option) for option in self.options]

    def _index_of(self, value: Any) -> int:
        for index, (_, known) in enumerate(self._pairs):
            if known is value or known == value:
                return index
        raise traitlets.TraitError(f"{value!r} is not among the options {[label for label, _ in self._pairs]}.")


class Dropdown(Selection):
    """A list of which one option is chosen, the first one after a change of the options; None: none."""

    component = "dropdown"
    value = traitlets.Any(None, allow_none=True)
    index = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(self, *, options: Iterable[Any] = (), **traits: Any) -> None:
        chosen = "value" in traits
        value = traits.pop("value", None)
        super().__init__(**traits)
        self.options = tuple(options)
        if chosen:
            self.value = value

    @traitlets.observe("options")
    def _offered(self, _: Any) -> None:
        pairs = self._pairs
        with self.hold_sync():
            self.labels = [label for label, _ in pairs]
            self.value = pairs[0][1] if pairs else None
            self.index = 0 if pairs else None

    @traitlets.validate("value")
    def _known(self, proposal: Any) -> Any:
        value = proposal["value"]
        return None if value is None and not self._has(None) else self._pairs[self._index_of(value)][1]

    @traitlets.validate("index")
    def _in_list(self, proposal: Any) -> int | None:
        index = proposal["value"]
        if index is not None and not 0 <= index < len(self._pairs):
            raise traitlets.TraitError(f"There is no option {index}; there are {len(self._pairs)}.")
        return index

    @traitlets.observe("value")
    def _chosen(self, change: Any) -> None:
        value = change["new"]
        self.index = None if value is None and not self._has(None) else self._index_of(value)

    @traitlets.observe("index")
    def _indexed(self, change: Any) -> None:
        self.value = None if change["new"] is None else self._pairs[change["new"]][1]

    @property
    def label(self) -> str:
        """The label of the chosen option; "" without one."""
        return "" if self.index is None else str(self.labels[self.index])

    def _has(self, value: Any) -> bool:
        return any(known is value for _, known in self._pairs)


class SelectMultiple(Selection):
    """A list of which several options are chosen."""

    component = "multiple"
    value: Any = traitlets.Tuple()
    index: Any = traitlets.Tuple().tag(sync=True)
    rows = traitlets.Int(5).tag(sync=True)

    def __init__(self, *, options: Iterable[Any] = (), **traits: Any) -> None:
        super().__init__(options=tuple(options), **traits)
        self.labels = [label for label, _ in self._pairs]

    @traitlets.observe("value")
    def _chosen(self, change: Any) -> None:
        self.index = tuple(self._index_of(value) for value in change["new"])

    @traitlets.observe("index")
    def _indexed(self, change: Any) -> None:
        self.value = tuple(self._pairs[index][1] for index in change["new"])


class IntProgress(Control):
    """A bar from `min` to `max`."""

    component = "progress"
    value = traitlets.Int(0).tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)


class Box(Element):
    """Elements side by side, or as its style says. Closing it closes them."""

    component: ClassVar[str] = "box"
    children: Any = traitlets.Tuple().tag(sync=True)

    def __init__(self, children: Iterable[Element] = (), **traits: Any) -> None:
        super().__init__(children=tuple(children), **traits)

    def close(self) -> None:
        """Close the box and its children."""
        for child in self.children:
            child.close()
        super().close()


class HBox(Box):
    """Elements side by side."""

    component = "hbox"


class VBox(Box):
    """Elements below each other."""

    component = "vbox"


class Tab(Box):
    """Elements of which that of the selected tab is shown. Pages get it at once, the others when they have drawn it."""

    component = "tab"
    children: Any = traitlets.Tuple()
    titles: Any = traitlets.Tuple().tag(sync=True)
    selected_index = traitlets.Int(0, allow_none=True).tag(sync=True)
    sent: Any = traitlets.Tuple().tag(sync=True)
    """The elements, with None for those that pages do not have yet."""
    _all = False

    def receive(self, content: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        """Send the other elements: a page has drawn that of the selected tab."""
        self._all = True
        self._send_selected()

    @traitlets.observe("children", "selected_index")
    def _send_selected(self, _: Any = None) -> None:
        there = {*self.sent}
        self.sent = tuple(
            child if self._all or child in there or index == self.selected_index else None
            for index, child in enumerate(self.children)
        )


class Accordion(Box):
    """Elements below their titles, of which the one of the selected title is shown."""

    component = "accordion"
    titles: Any = traitlets.Tuple().tag(sync=True)
    selected_index = traitlets.Int(None, allow_none=True).tag(sync=True)


def below(box: Box) -> Iterator[Element]:
    """Return all elements in a box and in its inner boxes."""
    for element in box.children:
        if isinstance(element, Box):
            yield from below(element)
        yield element


__all__ = [
    "HTML", "Accordion", "BoundedFloatText", "BoundedIntText", "Box", "Button", "Checkbox", "Control", "Dropdown",
    "Element", "FloatText", "HBox", "IntProgress", "Layout", "SelectMultiple", "Tab", "Text", "Textarea",
    "ToggleButton", "VBox", "below",
]  # fmt: skip
