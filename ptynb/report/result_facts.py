"""A result's facts as text: headline, settings, changes, environment, and code that reproduces it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ptynb.analysis.result_comparison import entries
from ptynb.data.admissions import Admissions
from ptynb.data.arrivals import COUNT_MEANINGS
from ptynb.data.engine_records import Change, Epoch, Result
from ptynb.data.provenance import ScanIdentity
from ptynb.data.record import utc
from ptynb.exceptions import SettingsError
from ptynb.figures.scale_marks import metric
from ptynb.report.page import Cell
from ptynb.settings.schema import as_python, structure
from ptynb.settings.settings import Optimiser, Settings

Row = tuple[Cell, ...]


def pixel_text(result: Result) -> str:
    """Return the size of an object pixel with its unit."""
    if result.pixel_size is None:
        return "unknown"
    sides = [metric(side) for side in result.pixel_size]
    return sides[0] if sides[0] == sides[1] else f"{sides[0]} × {sides[1]}"


def aberrations_text(result: Result) -> str:
    """Return how the aberrations of the probe have changed, those that are not round without azimuths; "": none."""
    changes = list[str]()
    for name, value in result.aberrations.items():
        size = value[0] if isinstance(value, tuple) else value
        changes.append(f"{name} {'-' if size < 0 else ''}{metric(abs(size))}")
    return f"changed by {', '.join(changes)}" if changes else ""


def name_of(result: Result) -> str:
    """Return the title of the result, or else the name of its scan."""
    return result.title or result.scan.name or result.metadata.get("scan", "") or "Reconstruction"


def date_of(result: Result) -> str:
    """Return the date and time of the result, to the minute; "" if unknown."""
    written = result.ended or result.metadata.get("written", "")
    return f"{written[:16].replace('T', ' ')}{' UTC' if result.ended else ''}" if written else ""


def duration(seconds: float) -> str:
    """Return a time with its unit."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, hours = seconds / 60, seconds / 3600
    return f"{minutes:.3g} min" if minutes < 100 else f"{hours:.3g} h"


def value_text(value: Any) -> str:
    """Return a value of a setting as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_text(one)}" for name, one in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(value_text(one) for one in value) or "none"
    return str(value)


def settings_rows(settings: Mapping[str, Any]) -> tuple[list[Row], list[Row]]:
    """Return the settings that differ from the defaults, and all settings: (name, value, [default,] description)."""
    optimiser = settings.get("optimiser")
    defaults_of = Settings().replace(optimiser=optimiser) if optimiser in get_args(Optimiser) else Settings()
    values, defaults = dict(entries(settings)), dict(entries(defaults_of.model_dump(mode="json")))
    defaults["optimiser"] = Settings().optimiser  # by which those of other settings differ
    known = {setting.name: setting for setting in structure().settings}
    changed: list[Row] = []
    every: list[Row] = []
    for name, value in values.items():
        setting = known.get(name)
        unit = f" {setting.unit}" if setting and setting.unit and value is not None else ""
        what = setting.description if setting else ""
        shown = f"{value_text(value)}{unit}"
        every.append((name, shown, what))
        if name not in defaults or value != defaults[name]:
            changed.append((name, shown, value_text(defaults[name]) if name in defaults else "not a setting", what))
    return changed, every


def changes_rows(changes: tuple[Change, ...]) -> list[Row]:
    """Return (number, when, setting, before, after, clock) of the changes during the run."""
    rows: list[Row] = []
    for number, change in enumerate(changes, start=1):
        update = f", after {change.update} updates" if change.update else ""
        clock = utc(change.when)[:19].replace("T", " ")
        when = f"in epoch {change.epoch + 1}{update}"
        rows.append((number, when, change.name, value_text(change.old), value_text(change.new), clock))
    return rows


def arrival_rows(admissions: Admissions, epochs: Sequence[Epoch]) -> list[Row]:
    """Return (what, value, meaning) of the patterns that came during a run. epochs: of the run."""
    times, numbers, summary = admissions.times, admissions.patterns, admissions.summary
    first, last = float(times.min()), float(times.max())
    rows: list[Row] = [
        ("Planned patterns", len(admissions.planned), ""),
        ("Used", len(numbers), "patterns that came and whose position is known"),
        ("First pattern", f"{utc(first)[:19].replace('T', ' ')} UTC", ""),
        ("Last pattern", f"{utc(last)[:19].replace('T', ' ')} UTC", ""),
    ]
    if last > first:
        rows.append(("Patterns per second", f"{(len(numbers) - 1) / (last - first):.4g}", "from the first to the last"))
    order = np.argsort(times, kind="stable")
    for part in (0.25, 0.5, 0.75):
        at = times[order[min(int(part * len(times)), len(times) - 1)]]
        rows.append((f"{part:.0%} had come after", duration(float(at) - first), "since the first"))
    rows += [(name.capitalize(), summary[name], COUNT_MEANINGS[name]) for name in COUNT_MEANINGS if summary.get(name)]
    rows.append(("Used at first", int(admissions.sizes[0]), "patterns with which the reconstruction began"))
    rows.append(("Epochs during the scan", admissions.epochs, "the epochs of the run count from its end"))
    if 0 < admissions.epochs <= len(epochs):
        rows.append(("Loss of the last of them", f"{epochs[admissions.epochs - 1].loss:.5g}", ""))
    rows.append(("End of the scan", admissions.ended or "had not come when the result was taken", ""))
    return rows


def environment_rows(result: Result) -> list[Row]:
    """Return (what, value) of data, software and machines, as far as known."""
    scan, software, machines = result.scan, result.software, result.machines
    size = "" if scan.size is None else f"{scan.size} bytes"
    patterns = f"{scan.patterns} of {scan.pattern_shape[0]} × {scan.pattern_shape[1]} pixels" if scan.patterns else ""
    rows: dict[str, Any] = {
        "Scan": scan.name,
        "Scans": _scans_text(scan.combination),
        "File": scan.path,
        "Size of the file": size,
        "Changed": utc(scan.modified)[:19].replace("T", " "),
        "Options of load": ", ".join(f"{name}={value!r}" for name, value in scan.given.items()),
        "Arrays passed to load": ", ".join(scan.arrays),
        "Changed after loading": "yes (cropped, flipped, masked ...)" if scan.prepared else "",
        "Preparation": "; ".join(_step_text(step) for step in scan.preparation),
        "Stages": "; ".join(_stage_text(number, stage) for number, stage in enumerate(result.stages, 1)),
        "SHA-256 of its metadata": scan.digest,
        "SHA-256 of a sample of its patterns": scan.sample_digest,
        "Patterns": patterns,
        "Counts": "" if scan.counts is None else f"{scan.counts:.6g}",
        "Wavelength": "" if scan.wavelength is None else metric(scan.wavelength),
        "Distance": "" if scan.distance is None else metric(scan.distance),
        "Detector pixel": "" if scan.detector_pixel is None else " × ".join(map(metric, scan.detector_pixel)),
        "ptynb": software.ptynb,
        "torch": software.torch,
        "numpy": software.numpy,
        "h5py": software.h5py,
        "Python": software.python,
        "System": software.system,
        "Engines": machines.kind,
        "Devices": ", ".join(machines.devices),
        "Threads per engine": machines.threads or "",
        "Backend": machines.backend,
        "Batch": machines.batch,
        "Patterns stored on": machines.frames,
        "Extensions": ", ".join(machines.extensions),
        "Plug-ins": ", ".join(f"{one.name} ({one.distribution} {one.version})" for one in result.plugins),
        "Seed": "" if result.seed is None else result.seed,
        "Started": result.started[:19].replace("T", " "),
        "Result taken": result.ended[:19].replace("T", " "),
        "Failure": result.failure,
    }
    rows = {name: value for name, value in rows.items() if value != ""}
    if not software.ptynb:  # of a version that did not store these separately
        rows |= {name: value for name, value in result.metadata.items() if value and name not in ("scan", "failure")}
    return list(rows.items())


def command_of(path: Path | None) -> str:
    """Return the command that reproduces a result from its own record. path: of its file, if any."""
    return f"ptynb run {shlex.quote(path.name if path else 'scan.result.h5')} --reproduce"


def lines_of(result: Result) -> str:
    """Return Python code of the same run: scan, initial settings, epochs; changes during the run as comments."""
    lines = ["import ptynb as pt", "", *_lines_of_scan(result.scan)]
    lines.append(f"settings = {_settings_line(result.initial_settings or result.settings)}")
    chosen = "recipe" if result.stages else "settings"
    if result.stages:
        lines.append(f"recipe = pt.Recipe(settings=settings, stages={[*result.stages]!r})")
    engines = result.machines.engines
    cluster = f"pt.Cluster({engines}) as cluster, " if engines > 1 else ""
    with_cluster = ", cluster" if engines > 1 else ""
    lines += ["", f"with {cluster}pt.Reconstruction(scan, {chosen}{with_cluster}) as recon:"]
    lines += [f"    # in epoch {change.epoch + 1}: {change.name} {value_text(change.old)} → {value_text(change.new)}"
              for change in result.changes]  # fmt: skip
    lines.append(f"    for epoch in recon.run({max(len(result.epochs), 1)}):")
    lines += ["        print(epoch)", '    recon.save("again.result.h5")']
    return "\n".join(" ".join(line.splitlines()) for line in lines)


def _step_text(step: Any) -> str:
    """Return a recorded step of preparation: 'crop window 128'."""
    name, arguments = next(iter(step.items())) if isinstance(step, Mapping) and step else (step, {})
    return f"{name} {value_text(arguments)}" if arguments else str(name)


def _stage_text(number: int, stage: Any) -> str:
    """Return a recorded stage: '1: epochs 5, pattern_size 64, 64'."""
    return f"{number}: {value_text(stage)}"


def _lines_of_scan(scan: ScanIdentity, name: str = "scan") -> list[str]:
    """Return Python code that opens a scan, or opens several and combines them."""
    if combination := scan.combination if "scans" in scan.combination else None:
        names = [f"scan_{number + 1}" for number in range(len(combination["scans"]))]
        lines = [
            line
            for own, plain in zip(names, combination["scans"], strict=True)
            for line in _lines_of_scan(ScanIdentity.from_plain(plain), own)
        ]
        share = combination["share"]
        place = f"gap={combination['gap']}" if share == "probe" else f"shifts={combination['offsets']}"
        return [*lines, f"{name} = pt.preparation.combine([{', '.join(names)}], share={share!r}, {place})"]
    given = "".join(f", {option}={value!r}" for option, value in scan.given.items())
    opened = f"pt.load({scan.path!r}{given})" if scan.path else f"...  # {scan.name or 'the scan'}: not from a file"
    lines = [f"{name} = {opened}"]
    if scan.arrays:
        lines.append(f"# {', '.join(scan.arrays)}: were passed as arrays, which are not recorded")
    if scan.preparation:
        lines.append(f"{name} = pt.prepare({name}, {[*scan.preparation]!r})")
    elif scan.prepared:
        lines.append("# the scan was changed after loading (cropped, flipped, masked ...): repeat these steps here")
    return lines


def _scans_text(combination: Mapping[str, Any]) -> str:
    """Return which scans were reconstructed together, or of what a scan is a part; "" for one scan alone."""
    if "part_of" in combination:
        return f"part of {combination['part_of']}, which were reconstructed together"
    if "scans" not in combination:
        return ""
    names = [f"{scan['name']} ({scan['patterns']} patterns)" for scan in combination["scans"]]
    return f"{', '.join(names)}, with a common {combination['share']}"


def _settings_line(values: Mapping[str, Any]) -> str:
    try:
        return as_python(Settings(**values))
    except (SettingsError, TypeError):  # of another version of ptynb
        return f"pt.Settings(**{dict(values)!r})"
