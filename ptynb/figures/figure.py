"""`pt.figure`: a result as a figure, for a screen or fit for a paper."""

from __future__ import annotations

from typing import Literal, get_args

from matplotlib import colormaps
from matplotlib.axes import Axes

from ptynb.data.engine_records import Result
from ptynb.data.scan import Truth
from ptynb.exceptions import InvalidValueError
from ptynb.figures import curve_figures, field_panels
from ptynb.figures.figure_page import Page as Page
from ptynb.figures.figure_page import Width, fit, known, name_panels, paper_page
from ptynb.figures.overview import overview
from ptynb.figures.truth_error import compare_with_truth as compare_with_truth

Kind = Literal[
    "overview", "object", "amplitude", "phase", "complex", "slices", "probe", "positions", "loss", "errors", "frc"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
WIDE: tuple[Kind, ...] = ("object", "slices", "errors")
"""Kinds that are two columns wide by default."""


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
    """Return a figure of a result, for a screen (`pt.figure(result)`) or for a paper (`pt.figure(result, "phase")`).

    Phases are shown without mean and ramp. Scale bars have round lengths, in pixels if the pixel size is unknown. In
    PDF and SVG text stays text and pictures have all their pixels. The attribute `caption` describes the figure. A
    notebook shows it as the value of a cell; save it with `savefig("x.pdf")`.

    Parameters
    ----------
    result : Result
        What is drawn.
    kind : str or Truth, default "overview"
        - "overview": object amplitude and phase, probe modes, loss, and up to 6 slices, for a screen; with a ground
          truth here or as `against` also the error. None of the options below applies to it.
        - "object" (amplitude beside phase), "amplitude", "phase", "complex" (hue: phase, lightness: amplitude),
          "slices" (phase of up to 16), "probe" (modes ordered by power).
        - "loss" over epochs; "positions" (probe centres; `against` another result: the differences).
        - "errors": phase of the object beside its standard error, of a result with an `error_map`.
        - "frc": Fourier ring correlation `against` another result or a ground truth, with its crossings.
    against : Truth or Result, optional
        The ground truth or the result that `result` is compared with.
    width : {"single", "double"} or float, optional
        Column width: 89 mm, 183 mm, or a length [m]; the height follows.
    letters : float, default 7
        Font size [points], 6 to 9; tick labels are one point smaller.
    panels : bool, default False
        Label the panels a, b, c ...
    colours : str, optional
        Colour map of matplotlib for the phase (for "amplitude", of the amplitude).

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which is not registered with pyplot.

    Raises
    ------
    InvalidValueError
        If an option is not supported, or `against` is missing or does not match the result.
    """
    if isinstance(kind, Truth):
        return overview(result, kind)
    chosen = known(kind or "overview", KINDS, "kind")
    if chosen == "overview":
        if isinstance(against, Result):
            raise InvalidValueError(
                "An overview supports a ground truth only, not another result; use pt.figure(result, 'frc', other).",
                code="argument.conflict",
            )
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
        case "errors":
            if result.error_map is None:
                raise InvalidValueError(
                    "The result has no error map; add one: result.with_error_map(pt.error_map(scan, settings)).",
                    code="argument.missing",
                )
            return field_panels.errors(page, result.error_map, colours)
        case "positions":
            if isinstance(against, Truth):
                raise InvalidValueError(
                    "A ground truth has no positions; give another result, or omit `against`.",
                    code="argument.conflict",
                )
            return curve_figures.positions(page, result, against)
    if against is None:
        raise InvalidValueError(
            "kind 'frc' requires `against`; give another result or scan.ground_truth after 'frc'.",
            code="argument.missing",
        )
    return curve_figures.frc(page, result, against)
