"""The sheet that figures are drawn on: its width, its letters, and files in which text stays text."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from matplotlib import rc_context
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
"""Height of a printed page without its margins [m]."""
INCH = 0.0254
SMALLEST, LARGEST = 6.0, 9.0
"""Sizes of letters that journals ask for [points]."""
AROUND = 0.02
"""White around everything [inches]."""
FILES: dict[str, Any] = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "image.composite_image": False,
}
"""Text stays text that can be searched and edited, and each picture is one picture with the pixels it has."""


class Page(Figure):
    """A matplotlib figure that a notebook shows as it is, whether or not pyplot is in use.

    caption: what is to be known about what it shows, in sentences.
    """

    caption = ""
    screen = 90.0
    """Dots per inch in a notebook."""

    def __init__(self, *, letters: float | None = None, **options: Any) -> None:
        """letters: their size [points], with thin lines to go with it; None: as matplotlib has them."""
        self._style: Any = FILES if letters is None else FILES | paper_style(letters)
        super().__init__(**options)

    def styled(self) -> Any:
        """A context in which artists are made, and drawn, in this page's style."""
        return rc_context(self._style)

    def draw(self, renderer: RendererBase) -> None:
        """Draws it; ticks are made only now, and want its style."""
        with self.styled():
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Writes it to a file, as matplotlib's figures do."""
        with self.styled():
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.screen)
        return buffer.getvalue()


def paper_page(width: Width, letters: float) -> Page:
    """An empty page of this width [m], as high as a page can be until `fit`. Raises ValueError for what none can be."""
    inches = width_of(width) / INCH
    if not SMALLEST <= letters <= LARGEST:
        raise InvalidValueError(f"letters is {letters!r} points; expected {SMALLEST:g} to {LARGEST:g}.")
    layout = ConstrainedLayoutEngine(compress=True, w_pad=AROUND, h_pad=AROUND, wspace=0.03, hspace=0.03)
    page = Page(letters=letters, figsize=(inches, TALLEST / INCH), dpi=300, layout=layout)
    page.screen = 160.0
    return page


def width_of(width: Width) -> float:
    """The width [m] of what was asked for. Raises ValueError for an unknown name, or a width that is none of paper."""
    if isinstance(width, str):
        if width not in COLUMNS:
            raise InvalidValueError(
                f"width is {width!r}; expected {', '.join(map(repr, COLUMNS))} or a length in metres."
            )
        return COLUMNS[width]
    if isinstance(width, bool) or not NARROWEST <= width <= WIDEST:
        raise InvalidValueError(
            f"width is {width!r} m; expected {NARROWEST:g} to {WIDEST:g} m, or {', '.join(map(repr, COLUMNS))}."
        )
    return float(width)


def fit(page: Page) -> None:
    """Takes off the height that the panels do not need at this width."""
    for _ in range(2):  # the room that labels take changes a little with the first
        page.draw_without_rendering()
        with page.styled():
            needed = page.get_tightbbox().height + 2 * AROUND
        page.set_figheight(min(needed, TALLEST / INCH))


def name_panels(panels: Iterable[Axes]) -> None:
    """A bold letter at the upper left of each: a, b, c ..."""
    for number, axes in enumerate(panels):
        axes.set_title(chr(ord("a") + number), loc="left", fontweight="bold")


def known(value: str, choices: Iterable[str], what: str) -> str:
    """The value, one of the choices. Raises ValueError that says which are near."""
    choices = tuple(choices)
    if value in choices:
        return value
    near = difflib.get_close_matches(value, choices, n=3)
    told = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; expected one of {', '.join(choices)}."
    raise InvalidValueError(f"{what} is {value!r}{told}")


def paper_style(letters: float) -> dict[str, Any]:
    """Letters of this size [points], numbers along axes a point smaller, and lines as thin as print bears."""
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
