"""The report of several results: pictures side by side, differences, and settings and facts that differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.analysis.comparison_images import DIFFERENCE, ComparisonPictures, objects, probes
from ptynb.analysis.result_comparison import Difference, Together, are_halves, facts_of, settings_that_differ
from ptynb.data.engine_records import Picture, Result
from ptynb.report.curve_sections import crossing_sentence, period_text, show_correlation, show_losses
from ptynb.report.page import (
    Block,
    Cell,
    CurveBlock,
    Differing,
    HeadingBlock,
    PageSection,
    TableBlock,
    TextBlock,
    ViewerBlock,
    note,
)
from ptynb.report.page_data import ByteBudget, PageData, choice, coloured_picture, picture_of
from ptynb.report.result_facts import name_of, value_text
from ptynb.report.result_report import FULL, files_table, reproduce
from ptynb.report.saved_files import save_compared_files

NONE = "none"
Pair = tuple[str, str]


def headline_and_sections(
    data: PageData, results: dict[str, Result], paths: dict[str, Path | None], budget: ByteBudget
) -> tuple[list[tuple[str, str]], list[PageSection]]:
    """Return the facts at the top of the page, and all sections; pictures, curves and files are added to `data`."""
    together = Together(results)
    pairs = [(name, together.first) for name in results if name != together.first]
    objects_of, notes = _objects(data, together, pairs, budget)
    sections = [
        PageSection("Objects", ViewerBlock("object") if objects_of else None, note(notes)),
        PageSection("Differences", *_differences(data, together, pairs)),
        PageSection("Losses", *_losses(data, results)),
        PageSection("Settings that differ", _settings(results)),
        PageSection("Facts", _facts(results)),
        PageSection("Probes", *_probes(data, results, budget)),
        PageSection("Reproduce", *reproduce(results, paths)),
    ]
    compared = [pair for pair in pairs if isinstance(_difference(together, pair), Difference)]
    files = files_table(data, save_compared_files(data, together, compared, budget))
    return _headline(results, together, pairs), [*sections, PageSection("Files", *files)]


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
    """Return the difference of a pair, or the reason why there is none."""
    try:
        return together.difference(*pair)
    except ValueError as error:
        return str(error)


def _objects(data: PageData, together: Together, pairs: list[Pair], budget: ByteBudget) -> tuple[bool, list[str]]:
    """Add the viewer "object": all objects, registered with the first, and the difference of each from it."""
    makers: dict[str, Callable[[int], Picture]] = {}
    frames: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    differences = [pair for pair in pairs if isinstance(_difference(together, pair), Difference)]
    options = [*(f"{one} − {other}" for one, other in differences), NONE]
    for quantity in ("phase", "amplitude"):
        for text, pair in zip(options, [*differences, None], strict=True):
            shown = objects(together, quantity, True, pair)
            notes += shown.notes
            names = []
            for picture in shown.pictures:
                apart = f" {text}" if picture.name == DIFFERENCE else ""
                key = f"{quantity} {picture.name}{apart}"
                makers.setdefault(key, partial(_scaled, shown, picture))
                names.append(key)
            frames[f"{quantity}|{text}"] = {"pictures": names}
    added = data.add_pictures(makers, budget.total - budget.probe)
    _colours(data, together, frames, options)
    between = [(f"{one} | {other}", (one, other)) for one, other in itertools.combinations(together.results, 2)]
    controls = [
        choice("Show", [(quantity, quantity) for quantity in ("phase", "amplitude", "complex")]),
        choice("Difference", [(text, text) for text in options]),
        choice("Slider between", [("off", ()), *between]),
    ]
    data.add_viewer("object", "Objects", frames, controls)
    notes.append(f"All objects are registered with {together.first} and shown in their common area.")
    if added.reduction > 1:
        notes.append(f"The pictures are reduced {added.reduction} × {added.reduction}; {FULL}.")
    notes.append("Values under the cursor are read from the pictures, which have 256 levels.")
    return bool(frames), list(dict.fromkeys(notes))


def _scaled(shown: ComparisonPictures, picture: Picture, reduction: int) -> Picture:
    """Return the picture at a reduction."""
    limits = picture.limits
    assert limits is not None, "phases and amplitudes have limits"
    return picture_of(
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


def _colours(data: PageData, together: Together, frames: dict[str, dict[str, Any]], options: list[str]) -> None:
    """Add complex pictures, which the page computes from amplitudes and phases; their difference is that of phases."""
    for text in options:
        names = []
        for name in together.results:
            key = data.add_composed(f"complex {name}", name, f"amplitude {name}", f"phase {name}")
            data.pictures[key] = {**data.pictures[key], "name": name}
            names.append(key)
        rest = [name for name in frames[f"phase|{text}"]["pictures"] if name.startswith(f"phase {DIFFERENCE} ")]
        frames[f"complex|{text}"] = {"pictures": [*names, *(one for one in rest if text != NONE)]}


def _differences(data: PageData, together: Together, pairs: list[Pair]) -> list[Block | None]:
    """Return for each pair the registration, the remaining difference, and the Fourier ring correlation."""
    blocks: list[Block | None] = []
    known = together.pixel_size is not None
    for number, pair in enumerate(pairs, start=1):
        blocks.append(HeadingBlock(f"{pair[0]} − {pair[1]}"))
        difference = _difference(together, pair)
        if isinstance(difference, str):
            blocks.append(TextBlock(difference))
            continue
        found = difference.registered
        text = (
            f"{pair[0]} was moved onto {pair[1]} by ({found.shift[0]:.3f}, {found.shift[1]:.3f}) pixels (y, x), "
            f"multiplied by {abs(found.factor):.4g} with a phase of {np.angle(found.factor):.3f} rad, and "
            f"given a phase ramp of ({found.ramp[0]:.3g}, {found.ramp[1]:.3g}) rad/pixel; "
            f"the remaining difference is {found.error:.2%}."
        )
        name = f"frc-{number}"
        title = f"Fourier ring correlation of {pair[0]} and {pair[1]}"
        show_correlation(data, name, title, difference.correlation, known)
        explanation = f"{crossing_sentence(difference.correlation, known)} {difference.meaning}"
        blocks += [TextBlock(text), CurveBlock(name), note([explanation])]
    return blocks


def _losses(data: PageData, results: dict[str, Result]) -> list[Block | None]:
    if not show_losses(data, results):
        return [TextBlock("No epoch was completed.")]
    kinds = {name: str(result.settings.get("loss", "unknown")) for name, result in results.items()}
    listed = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    warning = f"The loss functions differ ({listed}), so their values cannot be compared."
    return [CurveBlock("loss"), note([warning]) if len(set(kinds.values())) > 1 else None]


def _settings(results: Mapping[str, Result]) -> Block:
    differ = settings_that_differ(results).items()
    rows = [(name, *(value_text(value) for value in values)) for name, values in differ]
    return (
        TableBlock(("setting", *results), rows, "Settings that differ")
        if rows
        else TextBlock("The settings are equal.")
    )


def _facts(results: Mapping[str, Result]) -> Block:
    """Return the facts of each result; those that differ are emphasised."""
    columns = [{"title": name_of(result), **facts_of(result)} for result in results.values()]
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name) for column in columns]
        texts = ["—" if value is None else value_text(value) for value in values]
        differs = any(value != values[0] for value in values)
        rows.append((name, *(Differing(text) if differs else text for text in texts)))
    return TableBlock(("fact", *results), rows, "Facts of each result")


def _probes(data: PageData, results: dict[str, Result], budget: ByteBudget) -> list[Block | None]:
    shown = probes(results)
    makers = {f"probe {picture.name}": partial(_probe, shown, picture) for picture in shown.pictures}
    added = data.add_pictures(makers, budget.probe)
    data.add_viewer("probes", "Probes", {"all": {"pictures": added.names}}, tools=False, height=230)
    legend = "Hue is the phase, brightness the amplitude; phases are aligned with those of the first result's modes."
    return [ViewerBlock("probes"), note([legend])]


def _probe(shown: ComparisonPictures, picture: Picture, reduction: int) -> Picture:
    values = np.nan_to_num(shown.values[picture.name])
    return coloured_picture(values, picture.name, picture.title, reduction, picture.pixel_size, picture.note)
