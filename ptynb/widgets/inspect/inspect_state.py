"""State that the panels of `inspect` share: the scan, its survey, and its changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ptynb.analysis import Survey
from ptynb.data.arrivals import Acquisition
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import InvalidValueError
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions

ROW = {"flex_flow": "row wrap", "align_items": "center", "overflow": "visible"}


class InspectorState:
    """The scan, its survey and its earlier versions.

    index: the pattern that is shown; chosen: the one chosen last, which will be shown. work: executes actions of
    panels. show_pattern: shows another pattern. replaced: called after a change of the scan. clear: removes an error.
    tell: called with the lines of Python that do the same as clicks.
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
        self.survey: Survey | None = None
        self.index = self.chosen = 0
        self.work = work
        self.show_pattern = show_pattern
        self.tell: Callable[[str], None] | None = None
        self._replaced = replaced
        self._clear = clear
        self._earlier: list[tuple[Scan, tuple[str, ...]]] = []
        self._lines: tuple[str, ...] = ()

    def run(self, action: Callable[[], None], instead_of: str | None = None) -> None:
        """Queue an action of the user, which removes the error of the last one."""

        def carry_out() -> None:
            self._clear()
            action()

        self.work.put(carry_out, instead_of)

    def replace(self, scan: Scan, lines: Sequence[str], *, earlier_lines: Sequence[str] = ()) -> None:
        """Replace the scan by the result of these lines.

        earlier_lines: lines that `lines` depend on and that were already passed to `tell`.
        """
        first = () if self._earlier else ("original = scan",)
        self._earlier.append((self.scan, self._lines))
        self._take(scan)
        self._lines = (*self._lines, *earlier_lines, *lines)
        for line in (*first, *lines):
            self.say(line)

    def undo(self) -> None:
        """Restore the scan before the last change, if there is one."""
        if self._earlier:
            scan, self._lines = self._earlier.pop()
            self._take(scan)
            for line in ("scan = original", *self._lines):
                self.say(line)

    @property
    def acquisition(self) -> Acquisition | None:
        """Where patterns of the scan come to, if it is being measured."""
        found = self.scan.acquisition
        return found if isinstance(found, Acquisition) else None

    @property
    def can_undo(self) -> bool:
        """Whether the scan was changed."""
        return bool(self._earlier)

    def say(self, line: str) -> None:
        """Pass a line of Python to `tell`."""
        if self.tell is not None:
            self.tell(line)

    def need_survey(self) -> Survey:
        """Return the survey. Raises ValueError before it has any pattern."""
        if self.survey is None:
            raise InvalidValueError(
                "The survey has no patterns yet; wait for the first ones.", code="scan.survey-incomplete"
            )
        return self.survey

    def _take(self, scan: Scan) -> None:
        # Indices first: another thread may read this pattern from either scan.
        self.index = min(self.index, len(scan) - 1)
        self.chosen = min(self.chosen, len(scan) - 1)
        self.scan, self.survey = scan, None
        self._replaced()


class InspectorPanel(elements.VBox):
    """A tab of the inspector; an abstract class. Methods that draw are called in a thread of the inspector."""

    title = ""

    def __init__(self, state: InspectorState, children: Sequence[elements.Element]) -> None:
        self.state = state
        super().__init__(list(children), layout=elements.Layout(overflow="visible"))

    def draw(self) -> None:
        """Show the current state; called when the panel becomes visible and after each progress of the survey."""
        raise NotImplementedError

    def renew(self) -> None:
        """Reset the panel for another scan; called before `draw`."""

    def button(self, text: str, action: Callable[[], None], tooltip: str = "", icon: str = "") -> elements.Button:
        """Return a button whose action is executed in a thread of the inspector."""
        button = elements.Button(
            description=text, icon=icon, tooltip=tooltip or text, layout=elements.Layout(width="auto")
        )
        button.on_click(lambda _: self.state.run(action))
        return button


def row(*widgets: elements.Element) -> elements.HBox:
    """Return controls in a row that wraps."""
    return elements.HBox(list(widgets), layout=elements.Layout(**ROW))


def real(description: str, value: float, low: float, high: float, **given: Any) -> elements.BoundedFloatText:
    """Return a field for a real number."""
    layout, style = elements.Layout(width="220px"), {"description_width": "initial"}
    return elements.BoundedFloatText(
        value=value, min=low, max=high, description=description, layout=layout, style=style, **given
    )


def choice(description: str, options: Sequence[str]) -> elements.Dropdown:
    """Return a menu of texts."""
    return elements.Dropdown(options=options, description=description, layout=elements.Layout(width="220px"))


def number_list(indices: Sequence[int]) -> str:
    """Return sorted integers as text, runs of three and more as ranges: "3, 7-9"."""
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
    """Return the indices, below `count`, in a text such as "3, 7-9". Raises ValueError for another text."""
    indices: set[int] = set()
    for part in filter(None, (part.strip() for part in text.replace(";", ",").split(","))):
        first, dash, last = part.partition("-")
        if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
            raise InvalidValueError(
                f"{part!r} is not an index or a range; expected integers and ranges, such as 3, 7-9.",
                code="argument.invalid-value",
            )
        low, high = int(first), int(last or first)
        if low > high:
            raise InvalidValueError(
                f"{part!r} is a range that ends before it begins; enter {high}-{low}.", code="argument.invalid-value"
            )
        if high >= count:
            raise InvalidValueError(
                f"{part!r} is outside the scan; expected patterns from 0 to {count - 1}.", code="argument.invalid-value"
            )
        indices.update(range(low, high + 1))
    return sorted(indices)
