"""`pt.figure`: a result, or an array, as a figure, for a screen or fit for a paper."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ptynb.analysis.direct.direct_imaging import DirectImages
from ptynb.data.engine_records import Result
from ptynb.data.scan import Truth
from ptynb.exceptions import InvalidValueError
from ptynb.figures import curve_figures, field_panels
from ptynb.figures.array_panel import array
from ptynb.figures.direct_panels import direct_panels
from ptynb.figures.figure_page import Page as Page
from ptynb.figures.figure_page import Width, fit, known, name_panels, paper_page
from ptynb.figures.figure_part import FigurePart, Region
from ptynb.figures.overview import overview
from ptynb.figures.truth_error import compare_with_truth as compare_with_truth
from ptynb.io.export.colour_maps import names_with

Kind = Literal[
    "overview", "object", "amplitude", "phase", "complex", "slices", "probe", "positions", "loss", "errors", "frc"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
WIDE: tuple[Kind, ...] = ("object", "slices", "errors")
"""Kinds that are two columns wide by default."""
WITH_PART: tuple[Kind, ...] = ("object", "amplitude", "phase", "complex")
"""Kinds that can show a region, with ticks."""
WITH_LIMITS: tuple[Kind, ...] = ("amplitude", "phase")


def figure(
    result: Result | DirectImages | NDArray[Any],
    kind: Kind | Truth | None = None,
    against: Truth | Result | None = None,
    *,
    width: Width | None = None,
    letters: float = 7.0,
    panels: bool = False,
    colours: str | None = None,
    limits: tuple[float, float] | None = None,
    region: Region | None = None,
    ticks: bool = False,
    pixel_size: tuple[float, float] | None = None,
    label: str = "",
) -> Page:
    """Return a figure of a result, for a screen (`pt.figure(result)`) or for a paper (`pt.figure(result, "phase")`).

    ``pt.figure(array)`` is one of an array (y, x), such as a picture of a viewer; ``pt.figure(pt.direct(scan))`` shows
    all its pictures, for a screen, and has no options.

    Phases are shown without mean and ramp. Scale bars have round lengths, in pixels if the pixel size is unknown. In
    PDF and SVG text stays text and pictures have all their pixels. The attribute `caption` describes the figure. A
    notebook shows it as the value of a cell; save it with `savefig("x.pdf")`.

    Parameters
    ----------
    result : Result, DirectImages or ndarray
        What is drawn. A complex array has hue for phase and lightness for amplitude.
    kind : str or Truth, default "overview"
        - "overview": object amplitude and phase, probe modes, loss, and up to 6 slices, for a screen; with a ground
          truth here or as `against` also the error. None of the options below applies to it.
        - "object" (amplitude beside phase), "amplitude", "phase", "complex" (hue: phase, lightness: amplitude),
          "slices" (phase of up to 16), "probe" (modes ordered by power).
        - "loss" over epochs; "positions" (probe centres, with arrows where they were refined; `against` another result:
          the differences).
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
        Colour map of matplotlib for the phase (for "amplitude", of the amplitude; for an array, of its values).
    limits : (float, float), optional
        Values at the ends of the colour map, of "phase" [rad], "amplitude" and real arrays; by default percentiles.
    region : ((float, float), (float, float)), optional
        ((top, bottom), (left, right)) of the part that is drawn [pixels of the object, or of the array], for "object",
        "amplitude", "phase", "complex" and arrays.
    ticks : bool, default False
        Axes with ticks and labels, in units of length or in pixels; for the same.
    pixel_size : (float, float), optional
        Size (y, x) of an array's pixels [m].
    label : str, optional
        Label of the colour bar of an array: quantity and unit, "Phase [rad]".

    Returns
    -------
    matplotlib.figure.Figure
        The figure, which is not registered with pyplot.

    Raises
    ------
    InvalidValueError
        If an option is not supported, or `against` is missing or does not match the result.
    """
    part = FigurePart(region, limits, ticks)
    if isinstance(result, DirectImages):
        if kind is not None or against is not None or not part.plain or limits is not None or colours is not None:
            raise InvalidValueError(
                "The pictures of pt.direct have no options together; use pt.figure(found.pictures[name], ...) for one.",
                code="argument.conflict",
            )
        return direct_panels(result)
    if isinstance(result, np.ndarray):
        return _of_array(result, part, kind, against, width, letters, colours, pixel_size, label)
    if pixel_size is not None or label:
        raise InvalidValueError(
            "pixel_size and label are for arrays; a result has its own. Omit them.", code="argument.conflict"
        )
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
        known(colours, names_with(colours), "colours")
    if (not part.plain and chosen not in WITH_PART) or (limits is not None and chosen not in WITH_LIMITS):
        raise InvalidValueError(
            f"kind {chosen!r} supports no region, limits or ticks; limits are for {', '.join(WITH_LIMITS)} and arrays, "
            f"the others for {', '.join(WITH_PART)} and arrays.",
            code="argument.conflict",
        )
    wide = chosen in WIDE and not (chosen == "slices" and len(result.slices) == 1)
    page = paper_page(width or ("double" if wide else "single"), letters)
    with page.styled():
        drawn = _drawn(page, chosen, result, against, colours, part)
        if panels:
            name_panels(drawn)
    fit(page)
    return page


def _of_array(
    values: NDArray[Any],
    part: FigurePart,
    kind: Any,
    against: Any,
    width: Width | None,
    letters: float,
    colours: str | None,
    pixel_size: tuple[float, float] | None,
    label: str,
) -> Page:
    if kind is not None or against is not None:
        raise InvalidValueError(
            "kind and `against` are for results, not for arrays; name the quantity of an array by label.",
            code="argument.conflict",
        )
    if colours is not None:
        known(colours, names_with(colours), "colours")
    page = paper_page(width or "single", letters)
    with page.styled():
        array(page, values, part, pixel_size, label, colours)
    fit(page)
    return page


def _drawn(
    page: Page, kind: str, result: Result, against: Truth | Result | None, colours: str | None, part: FigurePart
) -> list[Axes]:
    match kind:
        case "object":
            return field_panels.both(page, result, colours, part)
        case "amplitude":
            return field_panels.amplitude(page, result, colours, part)
        case "phase":
            return field_panels.phase(page, result, colours, part)
        case "complex":
            return field_panels.field(page, result, part)
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
