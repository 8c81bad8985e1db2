"""What the panels of `inspect` share: the scan as it is now, what is known of it, and how it is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from ptynb.analysis import Survey
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import InvalidValueError
from ptynb.widgets.actions import Actions

ROW = {"flex_flow": "row wrap", "align_items": "center", "overflow": "visible"}


class InspectorState:
    """The scan that is looked at; a change keeps the earlier one.

    index: the pattern on the screen; wanted: the one chosen last, which comes there. work: carries out what panels are
    asked. show_pattern: has another pattern shown. replaced: is called after a change
    of the scan. clear: takes an earlier complaint away. tell: is given the lines of Python that do the same as what was
    done.
    """

    def __init__(
        self,
        scan: Scan,
        work: Actions,
        show_pattern: Callable[[int], None],
        replaced: Callable[[], None],
        clear: Callable[[], None],
    ) -> None:
        check_scan(scan)
        self.scan = scan
        self.seen: Survey | None = None
        self.index = self.wanted = 0
        self.work = work
        self.show_pattern = show_pattern
        self.tell: Callable[[str], None] | None = None
        self._replaced = replaced
        self._clear = clear
        self._earlier: list[tuple[Scan, tuple[str, ...]]] = []
        self._lines: tuple[str, ...] = ()

    def asked(self, action: Callable[[], None], instead_of: str | None = None) -> None:
        """Has an action carried out that the user asked for: an earlier complaint goes, one about this one stays."""

        def carry_out() -> None:
            self._clear()
            action()

        self.work.put(carry_out, instead_of)

    def replace(self, scan: Scan, lines: Sequence[str], *, told: Sequence[str] = ()) -> None:
        """Takes another scan in the place of this one, which the lines have made of it.

        told: lines before these, which were told already and are needed when all is done once more.
        """
        first = () if self._earlier else ("original = scan",)
        self._earlier.append((self.scan, self._lines))
        self._take(scan)
        self._lines = (*self._lines, *told, *lines)
        for line in (*first, *lines):
            self.say(line)

    def go_back(self) -> None:
        """Back to the scan before the last change; nothing happens at the first."""
        if self._earlier:
            scan, self._lines = self._earlier.pop()
            self._take(scan)
            for line in ("scan = original", *self._lines):
                self.say(line)

    @property
    def can_go_back(self) -> bool:
        """Whether the scan was changed."""
        return bool(self._earlier)

    def say(self, line: str) -> None:
        """Tells a line of Python."""
        if self.tell is not None:
            self.tell(line)

    def need_survey(self) -> Survey:
        """What is known of the scan. Raises ValueError before anything is."""
        if self.seen is None:
            raise InvalidValueError("Nothing was surveyed yet; wait for the first patterns.")
        return self.seen

    def _take(self, scan: Scan) -> None:
        # The index first: another thread may be about to read this pattern, of the one scan or the other.
        self.index = min(self.index, len(scan) - 1)
        self.wanted = min(self.wanted, len(scan) - 1)
        self.scan, self.seen = scan, None
        self._replaced()


class InspectorPanel(ipywidgets.VBox):
    """Part of the look, in a tab of its own; an abstract class.

    Methods that draw are called in a thread of the look's, never in the kernel's.
    """

    title = ""

    def __init__(self, state: InspectorState, children: Sequence[ipywidgets.Widget]) -> None:
        self.state = state
        super().__init__(list(children), layout=ipywidgets.Layout(overflow="visible"))

    def draw(self) -> None:
        """Shows what is known now; called when the panel comes to be seen, and with each news of the survey."""
        raise NotImplementedError

    def renew(self) -> None:
        """The scan is another one; called before `draw`."""

    def button(self, text: str, action: Callable[[], None], tooltip: str = "", icon: str = "") -> ipywidgets.Button:
        """A button whose action is carried out by the look's thread."""
        button = ipywidgets.Button(
            description=text, icon=icon, tooltip=tooltip or text, layout=ipywidgets.Layout(width="auto")
        )
        button.on_click(lambda _: self.state.asked(action))
        return button


def row(*widgets: ipywidgets.Widget) -> ipywidgets.HBox:
    """Controls in a row that wraps."""
    return ipywidgets.HBox(list(widgets), layout=ipywidgets.Layout(**ROW))


def real(description: str, value: float, low: float, high: float, **given: Any) -> ipywidgets.BoundedFloatText:
    """A field for a number, with its bounds."""
    layout = ipywidgets.Layout(width="180px")
    return ipywidgets.BoundedFloatText(value=value, min=low, max=high, description=description, layout=layout, **given)


def choice(description: str, options: Sequence[str]) -> ipywidgets.Dropdown:
    """A field to choose one of some words."""
    return ipywidgets.Dropdown(options=options, description=description, layout=ipywidgets.Layout(width="220px"))


def number_list(indices: Sequence[int]) -> str:
    """ "3, 7-9": whole numbers in order, runs of three and more shortened."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(set(indices)), None]:
        if run and (index is None or index != run[-1] + 1):
            parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(one) for one in run]
            run = []
        if index is not None:
            run.append(index)
    return ", ".join(parts)


def read_number_list(text: str, count: int) -> list[int]:
    """The patterns, of so many, that a text such as "3, 7-9" names. Raises ValueError for another text."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.replace(";", ",").split(","))):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise InvalidValueError(f"{part!r} names no patterns; expected whole numbers and ranges, such as 3, 7-9.")
        low, high = int(first), int(last or first)
        if low > high:
            raise InvalidValueError(
                f"{part!r} names no patterns, as it ends before it begins; turn it round: {high}-{low}."
            )
        if high >= count:
            raise InvalidValueError(
                f"{part!r} names patterns that are not there; the scan has those from 0 to {count - 1}."
            )
        found.update(range(low, high + 1))
    return sorted(found)
