"""`pt.figure`: a result as a figure, for a screen or fit for a paper."""

from __future__ import annotations

from typing import Literal, get_args

from matplotlib import colormaps
from matplotlib.axes import Axes

from ptynb.data.scan import Truth
from ptynb.data.snapshot import Result
from ptynb.exceptions import InvalidValueError
from ptynb.report.figures import curve_figures, field_panels
from ptynb.report.figures.overview import overview
from ptynb.report.figures.sheet import Page as Page
from ptynb.report.figures.sheet import Width, fit, known, name_panels, paper_page
from ptynb.report.figures.truth_error import compare_with_truth as compare_with_truth

Kind = Literal["overview", "object", "amplitude", "phase", "complex", "slices", "probe", "positions", "loss", "frc"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WIDE: tuple[Kind, ...] = ("object", "slices")
"""Kinds that take two columns unless told otherwise."""


def figure(
    result: Result,
    kind: Kind | Truth | None = None,
    against: Truth | Result | None = None,
    *,
    width: Width | None = None,
    letters: float = 7.0,
    panels: bool = False,
    colours: str | None = None,
) -> Page:
    """A figure of a result, for a screen (`pt.figure(result)`) or fit for a paper (`pt.figure(result, "phase")`).

    kind: what it shows.

    - "overview": object amplitude and phase, probe modes, loss, for a thick object up to 6 of its slices; with
      `scan.ground_truth` of a simulated scan in its place, or as `against`, also the error. For screens: it has a size
      of its own, and none of the options below.
    - "object" (amplitude beside phase), "amplitude", "phase", "complex" (hue for phase, lightness for amplitude),
      "slices" (the phase of each, up to 16), "probe" (its modes by their power).
    - "loss" over the epochs. "positions": where the probe was; `against` another result: how far they moved.
    - "frc": Fourier ring correlation `against` another result, or the truth, with its crossings.

    width: "single" (89 mm) or "double" (183 mm) column, or a length [m]; the height follows. letters: their size
    [points], 6 to 9; numbers along axes are one smaller. panels: name them a, b, c ... colours: a colour map of
    matplotlib's for a phase (for "amplitude", of the amplitude).

    Phases are without their mean and their ramp. Scale bars have round lengths, in pixels where no pixel size is known.
    In PDF and SVG text stays text, lines are lines, and pictures have all their pixels. `caption` of the figure says
    what it shows. It belongs to no window and is never shown by itself; save it with `savefig("x.pdf")`.

    Raises ValueError for an unknown kind or option, and where `against` is missing or does not fit.
    """
    if isinstance(kind, Truth):
        return overview(result, kind)
    chosen = known(kind or "overview", KINDS, "kind")
    if chosen == "overview":
        if isinstance(against, Result):
            raise InvalidValueError("An overview is compared with a truth only; use pt.figure(result, 'frc', other).")
        return overview(result, against)
    if colours is not None:
        known(colours, colormaps, "colours")
    wide = chosen in WIDE and not (chosen == "slices" and len(result.slices) == 1)
    page = paper_page(width or ("double" if wide else "single"), letters)
    with page.styled():
        drawn = _drawn(page, chosen, result, against, colours)
        if panels:
            name_panels(drawn)
    fit(page)
    return page


def _drawn(page: Page, kind: str, result: Result, against: Truth | Result | None, colours: str | None) -> list[Axes]:
    match kind:
        case "object":
            return field_panels.both(page, result, colours)
        case "amplitude":
            return field_panels.amplitude(page, result, colours)
        case "phase":
            return field_panels.phase(page, result, colours)
        case "complex":
            return field_panels.field(page, result)
        case "slices":
            return field_panels.slices(page, result, colours)
        case "probe":
            return field_panels.probe(page, result)
        case "loss":
            return curve_figures.loss(page, result)
        case "positions":
            if isinstance(against, Truth):
                raise InvalidValueError("A truth has no positions of its own; give another result, or leave it out.")
            return curve_figures.positions(page, result, against)
    if against is None:
        raise InvalidValueError(
            "A Fourier ring correlation needs two; give another result, or scan.ground_truth, after 'frc'."
        )
    return curve_figures.frc(page, result, against)
