"""Fields of options: what each of them is, what was entered, and what is said about it.

The browser sends texts and the units in which they were typed; here they become numbers in the units of the options,
without a rounding of digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin

import traitlets
from pydantic.fields import FieldInfo

from ptynb.exceptions import PtynbError, SettingsError
from ptynb.settings.base_models import told_by_field
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.quantities import UNIT, UNITS, in_unit, number_and_unit

SEPARATORS = re.compile(r"\s*(?:[,;x×]|(?<=\d)\s+(?=[\d.+-]))\s*")
"""What stands between numbers of one field."""


@dataclass(frozen=True)
class OptionField:
    """A field as a form shows it.

    unit: of the value, if it is shown in units of `UNITS`, at first in `shown_in`. pair: whether several numbers may
    be entered. placeholder: what an empty field means. choices: pairs of a key and a text; empty for other fields.
    initial: text, key of a choice, or whether a box is ticked.
    """

    name: str
    title: str
    help: str = ""
    placeholder: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    initial: str | bool = ""
    unit: str = ""
    shown_in: str = ""
    pair: bool = False

    @property
    def plain(self) -> dict[str, Any]:
        """What draws it, as for a field of a setting."""
        kind = "switch" if isinstance(self.initial, bool) else "choice" if self.choices else "text"
        return {
            "name": self.name, "label": self.title, "about": self.help, "placeholder": self.placeholder, "kind": kind,
            "choices": [[*choice] for choice in self.choices], "units": [*UNITS.get(self.unit, ())],
        }  # fmt: skip


def option_of(name: str, field: FieldInfo, shown_in: str = "", placeholder: str = "") -> OptionField:
    """Return the option of a field of a model; the unit is that at the end of its description."""
    text = field.description or ""
    found = UNIT.search(text)
    unit = found[1] if found and found[1] in UNITS else ""
    chosen = get_origin(field.annotation) is Literal
    return OptionField(
        name,
        field.title or name.replace("_", " ").capitalize(),
        text,
        placeholder,
        tuple((one, one) for one in get_args(field.annotation)) if chosen else (),
        field.default if chosen or field.annotation is bool else "",
        unit,
        shown_in,
        any(get_origin(kind) is tuple for kind in get_args(field.annotation)),
    )


class OptionFields(Element):
    """Fields of options. edited: called after each change by the user, and after `fill`.

    values: texts as they were typed, keys of choices, and whether boxes are ticked, by name; units: in which numbers
    are typed. notes: what is said beside a field, and whether that is something needed; problems: what is wrong, told
    below. folded: names of fields behind the title `more`; hidden and disabled: of those that are not shown, and not to
    be changed. line: the equivalent line of Python. lacking: names of fields that have to be entered.
    """

    component = "optionFields"

    fields: traitlets.List[dict[str, Any]] = shown(traitlets.List())
    values: traitlets.Dict[str, str | bool] = shown(traitlets.Dict())
    units: traitlets.Dict[str, str] = shown(traitlets.Dict())
    notes: traitlets.Dict[str, dict[str, Any]] = shown(traitlets.Dict())
    problems: traitlets.Dict[str, str] = shown(traitlets.Dict())
    folded: traitlets.List[str] = shown(traitlets.List())
    hidden: traitlets.List[str] = shown(traitlets.List())
    disabled: traitlets.List[str] = shown(traitlets.List())
    more = shown(traitlets.Unicode(""))
    line = shown(traitlets.Unicode(""))

    def __init__(
        self,
        options: Iterable[OptionField],
        edited: Callable[[], None] = lambda: None,
        folded: Collection[str] = (),
        more: str = "",
    ) -> None:
        self.options = {option.name: option for option in options}
        self.lacking: tuple[str, ...] = ()
        self._edited, self._folded_first = edited, folded
        super().__init__(
            fields=[option.plain for option in self.options.values()],
            units={name: option.shown_in for name, option in self.options.items() if option.unit},
            more=more,
        )
        self.clear()

    @command
    def enter(self, name: str, value: str | bool | None = None, unit: str | None = None) -> None:
        """Enter a text, the key of a choice or a tick, or choose the unit in which a number is typed."""
        if value is not None:
            self.values = {**self.values, name: value}
        if unit is not None:
            self.units = {**self.units, name: unit}
        self._edited()

    def text(self, name: str) -> str:
        """Return what a field contains, as text."""
        return str(self.values[name]).strip()

    def entered(self, name: str) -> Any:
        """Return what a field contains; numbers in the unit of the option if it has one. None: it is empty."""
        option, value = self.options[name], self.values[name]
        if isinstance(value, bool) or option.choices:
            return value
        text = value.strip()
        if not option.pair:
            return self._number(option, text) if text else None
        numbers = [self._number(option, part) for part in SEPARATORS.split(text)]
        return (numbers if len(numbers) > 1 else numbers[0]) if text else None

    def fill(self, values: Mapping[str, Any]) -> None:
        """Enter values of options, as if the user had; None: as at first."""
        self.values = {**self.values, **{name: self.shown_value(name, one) for name, one in values.items()}}
        self._edited()

    def clear(self) -> None:
        """Empty all fields, and say nothing about them."""
        with self.hold_sync():
            self.values = {name: option.initial for name, option in self.options.items()}
            self.notes, self.problems, self.lacking = {}, {}, ()
            self.folded = [name for name in self.options if name in self._folded_first]

    def change(self, name: str, **changes: Any) -> None:
        """Change what a field is, such as its choices."""
        self.options[name] = replace(self.options[name], **changes)
        self.fields = [option.plain for option in self.options.values()]

    def unfold(self, names: Collection[str]) -> None:
        """Show fields that are folded, from now on until `clear`: they do not go while somebody types."""
        self.folded = [name for name in self.folded if name not in names]

    def mark(self, error: PtynbError | None, otherwise: str = "") -> bool:
        """Tell below the fields that an error is about what is wrong; return whether there is one. None: nothing is.

        otherwise: field that shows an error that is about none of them.
        """
        told: dict[str, str] = {}
        if isinstance(error, SettingsError):
            told = told_by_field(error, {name: option.title for name, option in self.options.items()})
        if error is not None and not told:
            known = (last for name in error.fields if (last := name.rpartition(".")[2]) in self.options)
            told = {name: str(error) for name in [next(known, otherwise)] if name}
        self.unfold(told)
        self.problems = told
        return bool(told)

    def focus(self, names: Collection[str]) -> None:
        """Put the cursor into the first of these fields on the page; one that is folded is unfolded if no other is."""
        wanted = [name for name in self.options if name in names and name not in self.hidden]
        for name in sorted(wanted, key=lambda one: one in self.folded)[:1]:
            self.send({"focus": name})

    def shown_value(self, name: str, value: Any) -> str | bool:
        """Return a value as its field would show it, in the unit that is chosen."""
        option = self.options[name]
        if value is None:
            return option.initial
        if isinstance(value, bool | str):
            return value
        size = UNITS[option.unit][self.units[option.name]] if option.unit else None
        values = value if isinstance(value, tuple | list) else (value,)
        return ", ".join(str(one) if size is None else in_unit(one, size) for one in values)

    def _number(self, option: OptionField, text: str) -> Any:
        """Return a number in the unit of the option, or the text if it has none."""
        return number_and_unit(text, UNITS[option.unit], self.units[option.name]) if option.unit else text


@contextmanager
def marking(fields: OptionFields) -> Iterator[None]:
    """Mark the fields that an error of what is done inside is about."""
    try:
        yield
    except PtynbError as error:
        fields.mark(error)
        raise
