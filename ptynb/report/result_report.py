"""The report of one result: its sections, in the order in which a physicist reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ptynb.analysis.ring_correlation import RingCorrelation, ring_correlation
from ptynb.data.scan import Truth
from ptynb.data.snapshot import Result
from ptynb.report.assets import Contents, Shares
from ptynb.report.curve_sections import crossing_sentence, period_text, show_correlation, show_losses
from ptynb.report.figures.figure import compare_with_truth
from ptynb.report.markup import Content, Markup, element
from ptynb.report.pdf_figures import save_figures
from ptynb.report.result_facts import (
    changes_rows,
    command_of,
    date_of,
    duration,
    environment_rows,
    lines_of,
    pixel_text,
    settings_rows,
    table,
)
from ptynb.report.result_viewers import show_object, show_positions, show_probe
from ptynb.report.saved_files import Saved, save_arrays

ALONE = (
    "One result does not tell its own resolution. For that, reconstruct the two halves of the scan, "
    "pt.analysis.split_scan(scan), and give both results to pt.report."
)

FULL = "full=True (ptynb report --full) keeps every pixel and digit"


def headline(result: Result, rings: RingCorrelation | None) -> list[tuple[str, str]]:
    """What is said first: (what, value)."""
    known = result.pixel_size is not None
    seconds = sum(epoch.seconds for epoch in result.epochs)
    facts = {
        "Scan": result.scan.name or result.metadata.get("scan", ""),
        "Date": date_of(result),
        "R-factor": f"{result.r_factor:.4f}" if np.isfinite(result.r_factor) else "not known",
        "Pixel": pixel_text(result),
        "Resolution": "" if rings is None else f"{period_text(rings.resolution, known)} (period, against the truth)",
        "Epochs": f"{len(result.epochs)} in {duration(seconds)}" if result.epochs else "0",
    }
    return [(name, value) for name, value in facts.items() if value]


def truth_correlation(result: Result, truth: Truth | None) -> tuple[float, RingCorrelation] | None:
    """The error against a known truth and the Fourier ring correlation with it; None where none is given."""
    if truth is None:
        return None
    comparison = compare_with_truth(result, truth)
    return comparison.error, ring_correlation(comparison.aligned, comparison.ground_truth, result.pixel_size)


def sections(
    contents: Contents,
    result: Result,
    path: Path | None,
    against: tuple[float, RingCorrelation] | None,
    shares: Shares,
) -> list[Markup]:
    """All sections, with their pictures, curves and files put into `contents`. path: of the result's file."""
    object, probe = show_object(contents, result, shares), show_probe(contents, result, shares)
    positions = _positions(contents, result)
    files = _files(contents, result, shares)  # which say how exactly values are known
    made = [
        section("Object", _viewer("object"), paragraphs([*object, _precision(contents, "whole amplitude")])),
        section("Probe", _viewer("probe"), paragraphs([*probe, _precision(contents, "probe 1")])),
        section("Positions", *positions),
        section("Loss", *_loss(contents, result)),
        section("Quality", *_quality(contents, result, against)),
        section("Settings", *_settings(result)),
        section("Changes", *_changes(result)),
        section("Environment", table(("what", "value"), environment_rows(result), "From what, and on what")),
        section("Reproduce", *reproduce({"": result}, {"": path})),
        section("Files", *files),
    ]  # fmt: skip
    return made


def _precision(contents: Contents, picture: str) -> str:
    """What the values under the cursor are."""
    if "plane" in contents.pictures[picture]:
        return "Values under the cursor are those of the array; every pixel is among the files."
    return f"Values under the cursor are read from the picture, which has 256 levels; {FULL}."


def section(title: str, *content: Content) -> Markup:
    """A section with its heading, which links can lead to."""
    identity = title.lower().replace(" ", "-")
    named = {"id": identity, "aria-labelledby": f"{identity}-title"}
    return element("section", named, element("h2", {"id": f"{identity}-title"}, title), *content)


def paragraphs(sentences: Sequence[str]) -> Markup | None:
    """Sentences about what is shown above them."""
    return element("p", {"class": "report-note"}, " ".join(sentences)) if sentences else None


def viewer(name: str) -> Markup:
    """The place of a viewer."""
    return element("div", {"class": "report-viewer", "data-viewer": name})


def curve(name: str) -> Markup:
    """The place of a curve."""
    return element("div", {"class": "report-curve", "data-curve": name})


_viewer, _curve = viewer, curve


def _positions(contents: Contents, result: Result) -> list[Content]:
    remarks = show_positions(contents, result)
    return [_viewer("positions") if "positions" in contents.viewers else None, paragraphs(remarks)]


def _loss(contents: Contents, result: Result) -> list[Content]:
    if not show_losses(contents, {"": result}):
        return [element("p", None, "No epoch was completed.")]
    kind = str(result.settings.get("loss", ""))
    names = {
        "amplitude": "difference of amplitudes",
        "poisson": "Poisson likelihood",
        "intensity": "difference of intensities",
    }
    return [_curve("loss"), paragraphs([f"Minimised was the {names.get(kind, kind)}." if kind else ""])]  # fmt: skip


def _quality(contents: Contents, result: Result, against: tuple[float, RingCorrelation] | None) -> list[Content]:
    loss = f"{result.epochs[-1].loss:.5g}" if result.epochs else "not known"
    rows: list[tuple[Content, ...]] = [
        ("R-factor", f"{result.r_factor:.5f}" if np.isfinite(result.r_factor) else "not known",
         "Σ |√I − √model| / Σ √I of the final state over all patterns"),
        ("Loss", loss, "of the last epoch, as the patterns were met during it"),
    ]  # fmt: skip
    if against is None:
        return [table(("what", "value", "meaning"), rows, "How well it fits"), paragraphs([ALONE])]
    error, rings = against
    known = result.pixel_size is not None
    rows.append(("Error", f"{error:.4f}", "complex difference from the truth over the truth, root mean square"))
    show_correlation(contents, "frc", "Fourier ring correlation with the truth", rings, known)
    said = crossing_sentence(rings, known)
    return [table(("what", "value", "meaning"), rows, "How well it fits"), _curve("frc"), paragraphs([said])]


def _settings(result: Result) -> list[Content]:
    changed, every = settings_rows(result.settings)
    first: Content = element("p", None, "All settings have their default values.")
    if changed:
        first = table(("setting", "value", "default", "what it is"), changed, "Settings that are not the defaults")
    everything = table(("setting", "value", "what it is"), every, "All settings")
    return [first, element("details", None, element("summary", None, f"All {len(every)} settings"), everything)]


def _changes(result: Result) -> list[Content]:
    rows = changes_rows(result.changes)
    if not rows:
        return [element("p", None, "Nothing was changed while it ran.")]
    columns = ("number", "when", "what", "before", "after", "clock [UTC]")
    return [table(columns, rows, "What was changed while it ran")]


def reproduce(results: dict[str, Result], paths: dict[str, Path | None]) -> list[Content]:
    """The command and the Python that repeat each result."""
    made: list[Content] = []
    for number, (name, result) in enumerate(results.items(), start=1):
        if name:
            made.append(element("h3", None, name))
        command = command_of(paths.get(name))
        note = "From its own record, mid-run changes included:" if paths.get(name) else (
            "From its own record, mid-run changes included, once it is saved (recon.save(\"scan.result.h5\")):"
        )  # fmt: skip
        made += [element("p", None, note), code(command, f"command-{number}")]
        made += [element("p", None, "In Python:"), code(lines_of(result), f"lines-{number}")]
    return made


def code(text: str, identity: str) -> Markup:
    """Lines of code with a button that copies them."""
    copies = element("button", {"type": "button", "class": "ptynb-tool-button", "data-copies": identity}, "Copy")
    return element(
        "div", {"class": "report-code"}, element("pre", None, element("code", {"id": identity}, text)), copies
    )


def _files(contents: Contents, result: Result, shares: Shares) -> list[Content]:
    return files_table(contents, save_figures(contents, result, shares), save_arrays(contents, result, shares))


def files_table(contents: Contents, *groups: Saved) -> list[Content]:
    """What can be saved, and what there was no room for."""
    rows = [
        (str(contents.files[key]["name"]), what, size, file_button(key, str(contents.files[key]["name"])))
        for saved in groups
        for key, what, size in saved.rows
    ]
    heads = "file", "what it is", "size", "save"
    made: list[Content] = [table(heads, rows, "Saved from this page, without a network")]
    left_out = ", ".join(what for saved in groups for what in saved.left_out)
    if left_out:
        made.append(element("p", None, f"No room below 10 MB; full=True (ptynb report --full) has them: {left_out}."))
    return made


def file_button(key: str, name: str) -> Markup:
    """A button that saves one of the page's files."""
    named = {"type": "button", "class": "ptynb-tool-button", "data-file": key, "aria-label": f"Save {name}"}
    return element("button", named, "Save")
