"""The section "Diagnosis" of a report: faults, their remedies, and where they are in the pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import ndimage

from ptynb.analysis.faults.diagnosis import Diagnosis, Finding, findings_of
from ptynb.data import images
from ptynb.data.engine_records import Array, Result
from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.report.page import Block, PageSection, TableBlock, TextBlock, ViewerBlock, note
from ptynb.report.page_data import PageData, choice, picture_of, plain_picture, points

SIDE = 512
"""Largest side of a picture in which a fault is marked [pixels]."""
PERCENTILES = (0.5, 99.5)


def diagnosis_section(data: PageData, result: Result, found: Diagnosis | None) -> PageSection:
    """Return the section; its pictures are added to `data`. found: None: from the result alone."""
    try:
        found = findings_of(result) if found is None else found
    except (InvalidValueError, SettingsError) as error:
        return PageSection("Diagnosis", TextBlock(str(error)))
    if not found.findings:
        return PageSection("Diagnosis", TextBlock(found.summary), note(found.notes))
    rows = [
        (one.name, f"{one.measure}: {one.value:.3g}", f"{one.threshold:.3g} ({one.false_alarm:.1%})", one.explanation,
         one.remedy if one.confirmation is None else f"{one.remedy}. It {one.confirmation}.")
        for one in found
    ]  # fmt: skip
    columns = ("fault", "measure", "threshold (false alarms)", "what it says", "remedy")
    blocks: list[Block | None] = [TableBlock(columns, rows, found.summary)]
    frames = {one.name: frame for one in found if (frame := _frame(data, result, found, one))}
    if frames:
        data.add_viewer(
            "faults", "Faults", frames, [choice("Fault", [(name, name) for name in frames])], tools=False, height=420
        )
        blocks += [ViewerBlock("faults"), note(["Outlines and points mark where the fault was measured."])]
    return PageSection("Diagnosis", *blocks, note(found.notes))


def _frame(data: PageData, result: Result, found: Diagnosis, one: Finding) -> dict[str, Any] | None:
    """Return the frame of a finding in the viewer, with its picture added to `data`; None if it has no place."""
    place = marked_place(result, found, one)
    if place is None:
        return None
    values, patterns = place
    limits = images.limits_of(values, 0, 100)
    picture = picture_of(values, one.name, one.name.capitalize(), limits, colours="viridis")
    data.pictures[f"fault {one.name}"] = plain_picture(picture)
    frame = {"pictures": [f"fault {one.name}"]}
    return frame if patterns is None else {**frame, "points": points(patterns)}


def marked_place(result: Result, found: Diagnosis, one: Finding) -> tuple[Array, Array | None] | None:
    """Return a picture (y, x) of what a finding is seen in, with its outline in the colour of the largest value.

    And points (point, yx) in this picture, the middles of its patterns, instead of an outline. None: it has no place.
    """
    planes = {"object": lambda: images.flat_phase(np.nan_to_num(result.projection)),
              "probe": lambda: np.sqrt((np.abs(result.probe) ** 2).sum(0)),
              "detector": lambda: None if found.pattern is None else np.log1p(found.pattern)}  # fmt: skip
    patterns, where = one.patterns if one.patterns is not None and len(one.patterns) else None, one.where
    plane = one.plane if patterns is None else "object"
    values = planes[plane]() if plane in planes else None
    if values is None or (patterns is None and (where is None or not where.any() or where.shape != values.shape)):
        return None
    reduction = images.reduction_for(values.shape, SIDE)
    shown = images.reduce_by(np.asarray(values, np.float64), reduction)
    shown = np.clip(shown, *images.limits_of(shown, *PERCENTILES))
    if patterns is not None:
        middles = result.positions[patterns] + np.array(result.probe.shape[-2:]) / 2
        return shown, (middles + 0.5) / reduction - 0.5
    assert where is not None
    marked = images.reduce_by(where.astype(np.float64), reduction) > 0
    shown[ndimage.binary_dilation(marked, iterations=2) & ~marked] = shown.max()
    return shown, None
