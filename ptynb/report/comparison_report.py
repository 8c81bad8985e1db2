"""The report of several results: side by side, their differences, and what else is not the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.analysis.common_area import Difference, Together, are_halves, facts_of, settings_that_differ
from ptynb.analysis.comparison_images import DIFFERENCE, ComparisonPictures, objects, probes
from ptynb.data.snapshot import Picture, Result
from ptynb.report.assets import Contents, Shares, choice, coloured_still, still
from ptynb.report.curve_sections import crossing_sentence, period_text, show_correlation, show_losses
from ptynb.report.markup import Content, Markup, element
from ptynb.report.pdf_figures import save_compared_figures
from ptynb.report.result_facts import Row, name_of, said, table
from ptynb.report.result_report import FULL, curve, files_table, paragraphs, reproduce, section, viewer
from ptynb.report.saved_files import save_compared

NONE = "none"
Pair = tuple[str, str]
Headed = tuple[list[tuple[str, str]], list[Markup]]


def headline_and_sections(
    contents: Contents, results: dict[str, Result], paths: dict[str, Path | None], shares: Shares
) -> Headed:
    """What is said first, and all sections, with their pictures and curves put into `contents`."""
    together = Together(results)
    pairs = [(name, together.first) for name in results if name != together.first]
    objects_of, remarks = _objects(contents, together, pairs, shares)
    made = [
        section("Objects", viewer("object") if objects_of else None, paragraphs(remarks)),
        section("Differences", *_differences(contents, together, pairs)),
        section("Losses", *_losses(contents, results)),
        section("Settings that differ", _settings(results)),
        section("Facts", _facts(results)),
        section("Probes", *_probes(contents, results, shares)),
        section("Reproduce", *reproduce(results, paths)),
        section("Files", *_files(contents, together, pairs, shares)),
    ]
    return _headline(results, together, pairs), made


def _files(contents: Contents, together: Together, pairs: list[Pair], shares: Shares) -> list[Content]:
    compared = [pair for pair in pairs if isinstance(_difference(together, pair), Difference)]
    figures = save_compared_figures(contents, together.results, compared, shares)
    return files_table(contents, figures, save_compared(contents, together, shares))


def _headline(results: Mapping[str, Result], together: Together, pairs: list[Pair]) -> list[tuple[str, str]]:
    facts = [(f"R-factor of {name}", f"{result.r_factor:.4f}") for name, result in itertools.islice(results.items(), 4)]
    scans = list(dict.fromkeys(result.scan.name or result.metadata.get("scan", "") for result in results.values()))
    if "" not in scans and len(scans) <= 2:
        facts.insert(0, ("Scan", ", ".join(scans)))
    if len(results) == 2:
        difference = _difference(together, pairs[0])
        if isinstance(difference, Difference):
            period = period_text(difference.correlation.resolution, together.pixel_size is not None)
            what = "Resolution of a half" if are_halves(*results.values()) else "They agree to"
            facts.append((what, f"{period} (period, FRC)"))
    return facts


def _difference(together: Together, pair: Pair) -> Difference | str:
    """The difference of a pair, or a sentence why there is none."""
    try:
        return together.difference(*pair)
    except ValueError as error:
        return str(error)


def _objects(contents: Contents, together: Together, pairs: list[Pair], shares: Shares) -> tuple[bool, list[str]]:
    """Adds the viewer "object": all of them registered on the first, with the difference of each from it."""
    makers: dict[str, Callable[[int], Picture]] = {}
    frames: dict[str, dict[str, Any]] = {}
    remarks: list[str] = []
    differences = [pair for pair in pairs if isinstance(_difference(together, pair), Difference)]
    options = [*(f"{one} − {other}" for one, other in differences), NONE]
    for quantity in ("phase", "amplitude"):
        for text, pair in zip(options, [*differences, None], strict=True):
            shown = objects(together, quantity, True, pair)
            remarks += shown.notes
            names = []
            for picture in shown.pictures:
                apart = f" {text}" if picture.name == DIFFERENCE else ""
                key = f"{quantity} {picture.name}{apart}"
                makers.setdefault(key, partial(_again, shown, picture))
                names.append(key)
            frames[f"{quantity}|{text}"] = {"pictures": names}
    stills = contents.stills(makers, shares.total - shares.probe)
    _colours(contents, together, frames, options)
    between = [(f"{one} | {other}", (one, other)) for one, other in itertools.combinations(together.results, 2)]
    controls = [
        choice("Show", [(quantity, quantity) for quantity in ("phase", "amplitude", "complex")]),
        choice("Difference", [(text, text) for text in options]),
        choice("Slider between", [("off", ()), *between]),
    ]
    contents.viewer("object", "Objects", frames, controls)
    remarks.append(f"All are moved onto {together.first}, with its phase and amplitude, over the area that all share.")
    if stills.reduction > 1:
        remarks.append(f"They are reduced {stills.reduction} × {stills.reduction} here; {FULL}.")
    remarks.append("Values under the cursor are read from the pictures, which have 256 levels.")
    return bool(frames), list(dict.fromkeys(remarks))


def _again(shown: ComparisonPictures, picture: Picture, reduction: int) -> Picture:
    """A picture of the same values, as small as the page needs it."""
    limits = picture.limits
    assert limits is not None, "phases and amplitudes have limits"
    return still(
        np.nan_to_num(shown.values[picture.name]),
        picture.name,
        picture.title,
        limits,
        unit=picture.unit,
        pixel_size=picture.pixel_size,
        colours=picture.colours,
        reduction=reduction,
        note=picture.note,
    )


def _colours(contents: Contents, together: Together, frames: dict[str, dict[str, Any]], options: list[str]) -> None:
    """Adds complex pictures, made on the page of the amplitudes and phases; the difference beside them is of phases."""
    for text in options:
        names = []
        for name in together.results:
            key = contents.composed(f"complex {name}", name, f"amplitude {name}", f"phase {name}")
            contents.pictures[key] = {**contents.pictures[key], "name": name}
            names.append(key)
        rest = [name for name in frames[f"phase|{text}"]["pictures"] if name.startswith(f"phase {DIFFERENCE} ")]
        frames[f"complex|{text}"] = {"pictures": [*names, *(one for one in rest if text != NONE)]}


def _differences(contents: Contents, together: Together, pairs: list[Pair]) -> list[Content]:
    """For each pair how the one was moved, what is left, and the Fourier ring correlation."""
    made: list[Content] = []
    known = together.pixel_size is not None
    for number, pair in enumerate(pairs, start=1):
        made.append(element("h3", None, f"{pair[0]} − {pair[1]}"))
        difference = _difference(together, pair)
        if isinstance(difference, str):
            made.append(element("p", None, difference))
            continue
        found = difference.registered
        text = (
            f"{pair[0]} was moved onto {pair[1]} by ({found.shift[0]:.3f}, {found.shift[1]:.3f}) pixels (y, x), "
            f"multiplied by {abs(found.factor):.4g} with a phase of {np.angle(found.factor):.3f} rad, and "
            f"given a ramp of ({found.ramp[0]:.3g}, {found.ramp[1]:.3g}) rad/pixel; "
            f"what is left is {found.error:.2%} of it."
        )
        name = f"frc-{number}"
        title = f"Fourier ring correlation of {pair[0]} and {pair[1]}"
        show_correlation(contents, name, title, difference.correlation, known)
        sentence = f"{crossing_sentence(difference.correlation, known)} {difference.meaning}"
        made += [element("p", None, text), curve(name), paragraphs([sentence])]
    return made


def _losses(contents: Contents, results: dict[str, Result]) -> list[Content]:
    if not show_losses(contents, results):
        return [element("p", None, "No epoch was completed.")]
    kinds = {name: str(result.settings.get("loss", "unknown")) for name, result in results.items()}
    told = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    remark = f"The losses are of different kinds ({told}); their heights do not compare."
    return [curve("loss"), paragraphs([remark]) if len(set(kinds.values())) > 1 else None]


def _settings(results: Mapping[str, Result]) -> Markup:
    rows: list[Row] = [(name, *(said(value) for value in row)) for name, row in settings_that_differ(results).items()]
    if not rows:
        return element("p", None, "Their settings are the same.")
    return table(("setting", *results), rows, "Settings that differ")


def _facts(results: Mapping[str, Result]) -> Markup:
    """What each tells of itself; what differs stands out by weight."""
    columns = [{"title": name_of(result), **facts_of(result)} for result in results.values()]
    rows: list[Row] = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name) for column in columns]
        differs = any(value != values[0] for value in values)
        texts = ["—" if value is None else said(value) for value in values]
        rows.append(
            (name, *(element("span", {"class": "report-differs"}, text) if differs else text for text in texts))
        )
    return table(("fact", *results), rows, "What each tells of itself")


def _probes(contents: Contents, results: dict[str, Result], shares: Shares) -> list[Content]:
    shown = probes(results)
    makers = {f"probe {picture.name}": partial(_probe, shown, picture) for picture in shown.pictures}
    stills = contents.stills(makers, shares.probe)
    contents.viewer("probes", "Probes", {"all": {"pictures": stills.names}}, tools=False, height=230)
    sentence = "Hue is the phase, brightness the amplitude, turned to the phases of the first result's modes."
    return [viewer("probes"), paragraphs([sentence])]


def _probe(shown: ComparisonPictures, picture: Picture, reduction: int) -> Picture:
    field = np.nan_to_num(shown.values[picture.name])
    return coloured_still(field, picture.name, picture.title, reduction, picture.pixel_size, picture.note)
