"""The report of one result: its sections, in the order in which a physicist reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ptynb.analysis.faults.diagnosis import Diagnosis
from ptynb.analysis.ring_correlation import RingCorrelation, ring_correlation
from ptynb.data.engine_records import Result
from ptynb.data.record import stop_reason
from ptynb.data.scan import Truth
from ptynb.figures.figure import compare_with_truth
from ptynb.report.curve_sections import (
    crossing_sentence,
    period_text,
    show_correlation,
    show_losses,
    show_state_changes,
)
from ptynb.report.diagnosis_section import diagnosis_section
from ptynb.report.page import (
    Block,
    CodeBlock,
    CurveBlock,
    HeadingBlock,
    PageSection,
    SaveButton,
    TableBlock,
    TextBlock,
    ViewerBlock,
    note,
)
from ptynb.report.page_data import ByteBudget, PageData
from ptynb.report.result_facts import (
    aberrations_text,
    arrival_rows,
    changes_rows,
    command_of,
    date_of,
    duration,
    environment_rows,
    lines_of,
    pixel_text,
    settings_rows,
)
from ptynb.report.result_viewers import show_cuts, show_errors, show_object, show_positions, show_probe
from ptynb.report.saved_files import SavedFiles, save_result_files

ONE_RESULT = (
    "The resolution cannot be determined from one result. Reconstruct the two halves of the scan, "
    "pt.analysis.split_scan(scan), and give both results to pt.report. A map of the standard error: pt.error_map(scan, "
    "settings)."
)
FULL = "full=True (ptynb report --full) keeps every pixel and digit"
LOSSES = {
    "auto": "Poisson likelihood of counts that are fewer than 10 a pixel (30 of electrons), else difference of "
    "amplitudes",
    "amplitude": "difference of amplitudes",
    "poisson": "Poisson likelihood",
    "intensity": "difference of intensities",
}
CHANGES = (
    "Object and probe: root-mean-square change since the epoch before, relative, without a common factor; positions: "
    "root-mean-square distance."
)
Truthful = tuple[float, RingCorrelation]
"""Error relative to a ground truth, and the Fourier ring correlation with it."""


def truth_correlation(result: Result, truth: Truth | None) -> Truthful | None:
    """Return the comparison with a ground truth; None without one."""
    if truth is None:
        return None
    comparison = compare_with_truth(result, truth)
    return comparison.error, ring_correlation(comparison.aligned, comparison.ground_truth, result.pixel_size)


def headline(result: Result, rings: RingCorrelation | None) -> list[tuple[str, str]]:
    """Return the facts at the top of the page: (name, value)."""
    known = result.pixel_size is not None
    seconds = sum(epoch.seconds for epoch in result.epochs)
    facts = {
        "Scan": result.scan.name or result.metadata.get("scan", ""),
        "Date": date_of(result),
        "R-factor": f"{result.r_factor:.4f}" if np.isfinite(result.r_factor) else "not known",
        "Pixel": pixel_text(result),
        "Aberrations": aberrations_text(result),
        "Resolution": "" if rings is None else f"{period_text(rings.resolution, known)} (period, against the truth)",
        "Epochs": f"{len(result.epochs)} in {duration(seconds)}" if result.epochs else "0",
    }
    return [(name, value) for name, value in facts.items() if value]


def sections(
    data: PageData,
    result: Result,
    path: Path | None,
    against: Truthful | None,
    budget: ByteBudget,
    diagnosis: Diagnosis | None = None,
) -> list[PageSection]:
    """Return all sections; their pictures, curves and files are added to `data`. path: of the result's file."""
    object, probe, positions = show_object(data, result, budget), show_probe(data, result, budget), None
    position_notes = show_positions(data, result)
    if "positions" in data.viewers:
        positions = ViewerBlock("positions")
    files = files_table(data, save_result_files(data, result, budget))  # sets what _precision describes
    environment = TableBlock(("what", "value"), environment_rows(result), "Data, software and machines")
    cut_notes, cuts = show_cuts(data, result), list[PageSection]()
    if cut_notes:
        cuts = [PageSection("Cuts", ViewerBlock("cuts"), note(cut_notes))]
    errors = []
    if result.error_map is not None:
        notes = show_errors(data, result.error_map, budget.whole / 2)
        errors = [PageSection("Standard error", ViewerBlock("errors"), note(notes))]
    return [
        PageSection("Object", ViewerBlock("object"), note([*object, _precision(data, "whole amplitude")])),
        *cuts,
        *errors,
        PageSection("Probe", ViewerBlock("probe"), note([*probe, _precision(data, "probe 1")])),
        PageSection("Positions", positions, note(position_notes)),
        PageSection("Loss", *_loss(data, result)),
        PageSection("Quality", *_quality(data, result, against)),
        diagnosis_section(data, result, diagnosis),
        *arrival_sections(result),
        PageSection("Settings", *_settings(result)),
        PageSection("Changes", _changes(result)),
        PageSection("Environment", environment),
        PageSection("Reproduce", *reproduce({"": result}, {"": path})),
        PageSection("Files", *files),
    ]


def _precision(data: PageData, picture: str) -> str:
    """Return a sentence on the precision of values under the cursor."""
    if "plane" in data.pictures[picture]:
        return "Values under the cursor are those of the array; every pixel is among the files."
    return f"Values under the cursor are read from the picture, which has 256 levels; {FULL}."


def _loss(data: PageData, result: Result) -> list[Block | None]:
    if not show_losses(data, {"": result}):
        return [TextBlock("No epoch was completed.")]
    kind = str(result.settings.get("loss", ""))
    blocks: list[Block | None] = [
        CurveBlock("loss"),
        note([f"Loss function: {LOSSES.get(kind, kind)}." if kind else ""]),
    ]
    if show_state_changes(data, result):
        reason = stop_reason(result.changes, len(result.epochs))
        ended = f"The run was ended before its last epoch: {reason}." if reason else ""
        blocks += [CurveBlock("changes"), note([CHANGES, ended])]
    return blocks


def _quality(data: PageData, result: Result, against: Truthful | None) -> list[Block | None]:
    loss = f"{result.epochs[-1].loss:.5g}" if result.epochs else "not known"
    rows = [
        ("R-factor", f"{result.r_factor:.5f}" if np.isfinite(result.r_factor) else "not known",
         "Σ |√I − √model| / Σ √I of the final state over all patterns"),
        *((f"R-factor of {name}", f"{value:.5f}", "the same over the patterns of this scan")
          for name, value in zip((one["name"] for one in result.scan.combination.get("scans", ())),
                                 result.scan_r_factors or (), strict=False)),
        ("Loss", loss, "of the last epoch; each pattern's loss is taken before the update that uses it"),
    ]  # fmt: skip
    explanation: list[Block | None] = [note([ONE_RESULT])]
    if against is not None:
        error, rings = against
        known = result.pixel_size is not None
        rows.append(("Error", f"{error:.4f}", "complex difference from the truth over the truth, root mean square"))
        show_correlation(data, "frc", "Fourier ring correlation with the truth", rings, known)
        explanation = [CurveBlock("frc"), note([crossing_sentence(rings, known)])]
    return [TableBlock(("what", "value", "meaning"), rows, "Agreement of model and data"), *explanation]


def arrival_sections(result: Result) -> list[PageSection]:
    """Return the section on when the patterns came; none for a scan that was measured before the run."""
    if result.admissions is None:
        return []
    rows = arrival_rows(result.admissions, result.epochs)
    columns = ("what", "value", "meaning")
    return [PageSection("Arrivals", TableBlock(columns, rows, "Patterns that came during the run"))]


def _settings(result: Result) -> list[Block]:
    changed, every = settings_rows(result.settings)
    first: Block = TextBlock("All settings have their default values.")
    if changed:
        columns = ("setting", "value", "default", "description")
        first = TableBlock(columns, changed, "Settings that differ from the defaults")
    names = ("setting", "value", "description")
    return [first, TableBlock(names, every, "All settings", summary=f"All {len(every)} settings")]


def _changes(result: Result) -> Block:
    rows = changes_rows(result.changes)
    columns = ("number", "when", "setting", "before", "after", "clock [UTC]")
    return (
        TableBlock(columns, rows, "Changes during the run")
        if rows
        else TextBlock("Nothing was changed during the run.")
    )


def reproduce(results: Mapping[str, Result], paths: Mapping[str, Path | None]) -> list[Block]:
    """Return the command and the Python code that reproduce each result."""
    blocks: list[Block] = []
    for number, (name, result) in enumerate(results.items(), start=1):
        if name:
            blocks.append(HeadingBlock(name))
        saved = "" if paths.get(name) else ', once it is saved (recon.save("scan.result.h5"))'
        blocks += [
            TextBlock(f"From the result's own record, with the changes during the run{saved}:"),
            CodeBlock(command_of(paths.get(name)), f"command-{number}"),
            TextBlock("In Python:"),
            CodeBlock(lines_of(result), f"lines-{number}"),
        ]
    return blocks


def files_table(data: PageData, saved: SavedFiles) -> list[Block]:
    """Return the files that can be saved, and those that exceeded the byte budget."""
    names = {key: str(data.files[key]["name"]) for key, _, _ in saved.rows}
    rows = [(names[key], what, size, SaveButton(key, names[key])) for key, what, size in saved.rows]
    blocks: list[Block] = [TableBlock(("file", "content", "size", "save"), rows, "Files contained in this page")]
    if saved.left_out:
        left_out = ", ".join(saved.left_out)
        blocks.append(TextBlock(f"Left out to stay below 10 MB; full=True (ptynb report --full) adds: {left_out}."))
    return blocks
