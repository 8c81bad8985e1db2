"""What the panels of `inspect` share: the scan, its survey, its earlier versions, and the thread of their actions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import traitlets

from ptynb.analysis import Survey
from ptynb.data.arrivals import Acquisition
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import InvalidValueError
from ptynb.widgets.actions import Actions
from ptynb.widgets.element_tree import Element, Method, command, shown
from ptynb.widgets.viewer.viewer import Viewer


class InspectorState:
    """The scan, its survey and its earlier versions.

    index: the pattern that is shown. work: executes actions of panels. replaced: called after a change of the scan.
    clear: removes an error. say: called with the lines of Python that do the same as clicks.
    """

    def __init__(
        self,
        scan: Scan,
        work: Actions,
        replaced: Callable[[], None],
        clear: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        check_scan(scan)
        self.scan = scan
        self.survey: Survey | None = None
        self.index = 0
        self.work, self.say = work, say
        self._replaced, self._clear = replaced, clear
        self._earlier: list[tuple[Scan, tuple[str, ...]]] = []
        self._lines: tuple[str, ...] = ()

    def run(self, act: Callable[[], None], instead_of: str | None = None) -> None:
        """Queue an action of the user, which removes the error of the last one."""

        def carry_out() -> None:
            self._clear()
            act()

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

    def need_survey(self) -> Survey:
        """Return the survey. Raises ValueError before it has any pattern."""
        if self.survey is None:
            raise InvalidValueError(
                "The survey has no patterns yet; wait for the first ones.", code="scan.survey-incomplete"
            )
        return self.survey

    def _take(self, scan: Scan) -> None:
        self.index = min(self.index, len(scan) - 1)  # first: another thread may read this pattern from either scan
        self.scan, self.survey = scan, None
        self._replaced()


class InspectorPanel(Element):
    """A tab of the inspector: its state and commands. Methods that draw are called in a thread of the inspector."""

    view = shown(traitlets.Instance(Viewer, allow_none=True))

    def __init__(self, state: InspectorState, view: Viewer | None = None) -> None:
        self.state = state
        super().__init__(view=view)
        self.renew()

    def close(self) -> None:
        """Close the panel and its view."""
        super().close()
        if self.view is not None:
            self.view.close()

    def draw(self) -> None:
        """Show the current state; called when the tab is selected, and after each action and progress of the survey."""

    def renew(self) -> None:
        """Forget all about the scan before; called before `draw`."""


def action(method: Method) -> Method:
    """Make a method a command that is executed in a thread of the inspector, before the panel is drawn."""

    @functools.wraps(method)
    def put(self: InspectorPanel, *given: Any, **arguments: Any) -> None:
        def act() -> None:
            method(self, *given, **arguments)
            self.draw()

        self.state.run(act)

    return command(put)  # type: ignore[return-value]
