"""The page of a figure: width, font sizes, and files in which text stays text."""

from __future__ import annotations

import contextlib
import difflib
import io
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ptynb.exceptions import InvalidValueError

Width: TypeAlias = Literal["single", "double"] | float
COLUMNS = {"single": 0.089, "double": 0.183}
"""Widths of one and of two columns of a journal [m]."""
NARROWEST, WIDEST = 0.03, 1.0
TALLEST = 0.24
"""Maximum height of a figure: a printed page without margins [m]."""
INCH = 0.0254
SMALLEST, LARGEST = 6.0, 9.0
"""Range of font sizes that journals accept [points]."""
AROUND = 0.02
"""Margin around the figure [inches]."""
FILES: dict[str, Any] = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "image.composite_image": False,
}
"""Text stays searchable and editable, and pictures keep their pixels."""


_styling = threading.RLock()


class Page(Figure):
    """A matplotlib figure that a notebook displays without pyplot. caption: a description of what it shows."""

    caption = ""
    screen = 90.0
    """Resolution in a notebook [dots per inch]."""

    def __init__(self, *, letters: float | None = None, **options: Any) -> None:
        """letters: font size [points], with thin lines; None: the defaults of matplotlib."""
        self._style: Any = FILES if letters is None else FILES | paper_style(letters)
        super().__init__(**options)

    @contextlib.contextmanager
    def styled(self) -> Iterator[None]:
        """Context in which artists are created and drawn in this page's style.

        matplotlib has one style for the process: of two pages that other threads draw, the second one waits. What the
        user sets meanwhile stays, but for the names in this page's style (`rc_context` would undo it).
        """
        with _styling:
            before = {name: rcParams[name] for name in self._style}
            rcParams.update(self._style)
            try:
                yield
            finally:
                rcParams.update(before)

    def draw(self, renderer: RendererBase) -> None:
        """Draw in the page's style, which ticks created now need."""
        with self.styled():
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Write to a file, as `matplotlib.figure.Figure.savefig`."""
        with self.styled():
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.screen)
        return buffer.getvalue()


def paper_page(width: Width, letters: float) -> Page:
    """Return an empty page of this width and the largest height, which `fit` reduces."""
    inches = width_of(width) / INCH
    if not SMALLEST <= letters <= LARGEST:
        raise InvalidValueError(
            f"letters is {letters!r} points; expected {SMALLEST:g} to {LARGEST:g}.", code="argument.invalid-value"
        )
    layout = ConstrainedLayoutEngine(compress=True, w_pad=AROUND, h_pad=AROUND, wspace=0.03, hspace=0.03)
    page = Page(letters=letters, figsize=(inches, TALLEST / INCH), dpi=300, layout=layout)
    page.screen = 160.0
    return page


def width_of(width: Width) -> float:
    """Return the width [m] of a column by name, or the given length."""
    if isinstance(width, str):
        if width not in COLUMNS:
            raise InvalidValueError(
                f"width is {width!r}; expected {', '.join(map(repr, COLUMNS))} or a length in metres.",
                code="argument.invalid-value",
            )
        return COLUMNS[width]
    if isinstance(width, bool) or not NARROWEST <= width <= WIDEST:
        raise InvalidValueError(
            f"width is {width!r} m; expected {NARROWEST:g} to {WIDEST:g} m, or {', '.join(map(repr, COLUMNS))}.",
            code="argument.invalid-value",
        )
    return float(width)


def fit(page: Page) -> None:
    """Reduce the height to that of the panels."""
    for _ in range(2):  # the size of labels changes a little with the first
        page.draw_without_rendering()
        with page.styled():
            needed = page.get_tightbbox().height + 2 * AROUND
        page.set_figheight(min(needed, TALLEST / INCH))


def name_panels(panels: Iterable[Axes]) -> None:
    """Label each panel with a bold letter at the upper left: a, b, c ..."""
    for number, axes in enumerate(panels):
        axes.set_title(chr(ord("a") + number), loc="left", fontweight="bold")


def known(value: str, choices: Iterable[str], what: str) -> str:
    """Return the value if it is one of the choices; otherwise raise an error that lists similar ones."""
    choices = tuple(choices)
    if value in choices:
        return value
    near = difflib.get_close_matches(value, choices, n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; expected one of {', '.join(choices)}."
    raise InvalidValueError(f"{what} is {value!r}{hint}", code="argument.invalid-value")


def paper_style(letters: float) -> dict[str, Any]:
    """Return a style: text of this size [points], tick labels a point smaller, thin lines."""
    small = max(SMALLEST, letters - 1)
    ticks = {f"{axis}tick.{name}": value for axis in "xy" for name, value in _ticks(small).items()}
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["Arial", "Helvetica", "Liberation Sans", "DejaVu Sans"],
        "mathtext.fontset": "dejavusans",
        "font.size": letters,
        "axes.titlesize": letters,
        "axes.labelsize": letters,
        "legend.fontsize": small,
        "axes.titlepad": 3.0,
        "axes.labelpad": 2.0,
        "axes.linewidth": 0.5,
        "grid.linewidth": 0.4,
        "lines.linewidth": 1.0,
        "lines.markersize": 3.0,
        "patch.linewidth": 0.5,
        "legend.frameon": False,
        "legend.handlelength": 1.6,
        **ticks,
    }


def _ticks(size: float) -> dict[str, Any]:
    return {
        "labelsize": size,
        "major.width": 0.5,
        "minor.width": 0.4,
        "major.size": 2.5,
        "minor.size": 1.5,
        "major.pad": 2.0,
        "minor.pad": 2.0,
    }
