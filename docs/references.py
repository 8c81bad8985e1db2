"""Pages that are generated: the public names, settings, formats, errors, the command, and a run file."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import ptynb
import ptynb.report
from docs.remedies import REMEDIES
from ptynb.cli.main import _parser
from ptynb.exceptions import CODES
from ptynb.io.load import FORMATS
from ptynb.io.reading import dataset_search as searched
from ptynb.io.reading import named_arrays
from ptynb.report import report_file
from ptynb.settings.run_files.run_file_example import example
from ptynb.settings.schema import Setting, structure

GROUPS: dict[str, tuple[str, ...]] = {
    "Scans": (
        *("load", "info", "FileInfo", "Scan", "Geometry", "NearField", "TiltedGeometry", "save_scan", "prepare"),
        *("preparation", "load_mask", "save_mask", "load_initial_guess", "electrons", "direct", "DirectImages"),
    ),
    "While it is measured": ("listen", "Plan", "Arrivals", "Admissions"),
    "Settings": (
        *("Settings", "Object", "Probe", "Slices", "Tilt", "Positions", "Affine", "ProbeOffset", "Aberrations", "OPR"),
        *("PatternIntensities", "Background", "Descan", "FlyScan", "Detector", "Schedule", "Stop", "Checkpointing"),
        *("constraints", "regularizers", "preset", "Recipe", "Stage", "PrepareStep", "between"),
    ),
    "Runs": (
        *("Cluster", "Reconstruction", "attach", "resume", "reproduce", "Reproduction", "Change", "Epoch"),
        *("RenderRequest", "Thumbnail", "preview", "error_map"),
    ),
    "Choosing settings": (
        *("recommend", "Recommendation", "tune", "Study", "estimate", "Estimate", "advise", "Advice"),
        *("scaling_test", "ScalingTest", "scaling_figure"),
    ),
    "Views": ("workbench", "live", "inspect", "compare", "settings_form", "tuner", "watch", "history"),
    "Results": (
        *("Result", "load_result", "save_result", "figure", "film", "report", "export", "diagnose", "Diagnosis"),
        *("Finding", "analysis"),
    ),
    "Your own physics": ("ModelComponent", "CustomConstraint"),
    "Simulation": ("simulate", "simulate_diffraction", "simulate_from_result", "illumination"),
    "Errors and warnings": (
        *("FileError", "ScanError", "SettingsError", "ClusterError", "ReconstructionError", "AcquisitionError"),
        *("PtynbWarning", "InitialGuessWarning"),
    ),
}
"""Public names by subject, in the order in which a reader needs them."""
NEEDS = {"zarr": "ptynb[formats]", "MIB, DM3/DM4, EMD of Velox, BLO, TVIPS, MRC (RosettaSciIO)": "ptynb[formats]"}
"""Formats that need a further package -> what pip installs."""
ROSETTA = "ptynb.io.formats.rosettasciio"
HDF5_NAMES = {
    "positions (pattern, yx)": searched.POSITIONS,
    "positions, y and x apart": tuple(" and ".join(pair) for pair in searched.PAIRS),
    "mask (y, x)": searched.MASK,
    "wavelength": searched.WAVELENGTH,
    "photon energy": searched.ENERGY,
    "voltage": searched.VOLTAGE,
    "distance to the detector": searched.DISTANCE,
    "distance from the focus to the sample": searched.FOCUS,
    "detector pixel": (*searched.PIXEL, *searched.PIXEL_Y, *searched.PIXEL_X),
    "step of a raster": searched.STEP,
}
"""What is found by name in HDF5 files without a convention; patterns are found by their shape."""


def write(source: Path, pictures: Mapping[str, str]) -> None:
    """Write all generated pages; pictures: section of the settings -> Markdown of its picture."""
    pages = {
        "reference/settings.md": settings_page(pictures),
        "reference/formats.md": formats_page(),
        "reference/errors.md": errors_page(),
        "reference/command_line.md": command_page(),
        "reference/run_file.md": run_file_page(),
    }
    for place, text in {**pages, **dict(api_pages())}.items():
        (source / place).parent.mkdir(exist_ok=True)
        (source / place).write_text(text)


# ---------------------------------------------------------------------------------------------- public names


def api_pages() -> Iterator[tuple[str, str]]:
    """Yield (place, reStructuredText) of the list of public names and of a page for each."""
    grouped = {name for names in GROUPS.values() for name in names}
    others = tuple(sorted({*ptynb.__all__} - grouped))
    report_file.report.__doc__ = type(ptynb.report).__call__.__doc__  # the package can be called, too
    lines = [_title("Public names"), "``import ptynb as pt``; every name below is ``pt.NAME``.", ""]
    for group, names in (*GROUPS.items(), *((("Others", others),) if others else ())):
        lines += [_title(group, "-"), ".. list-table::", "   :widths: 30 70", ""]
        for name in names:
            lines += [f"   * - :doc:`{name} <{name}>`", f"     - {_first_line(getattr(ptynb, name))}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""]
    yield "api/index.rst", "\n".join(lines)
    for name in ptynb.__all__:
        yield f"api/{name}.rst", "\n".join(_api_page(name, getattr(ptynb, name)))


def _api_page(name: str, value: Any) -> Iterator[str]:
    yield _title(f"ptynb.{name}")
    if isinstance(value, ModuleType) and name != "report":
        yield f"{_doc(value).partition(chr(10))[0]}\n"
        for inner in _names_in(value):
            if inner in ptynb.__all__ and getattr(value, inner) is getattr(ptynb, inner):
                continue  # has a page of its own
            yield _directive(f"{value.__name__}.{inner}", getattr(value, inner))
    elif name == "report":
        yield ".. autofunction:: ptynb.report.report_file.report\n"
    else:
        yield _directive(f"ptynb.{name}", value)


def _directive(name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f".. autofunction:: {name}\n"
    lines = [f".. autoclass:: {name}"]
    if members := [*_members(value)]:
        lines += [f"   :members: {', '.join(members)}"]
    return "\n".join([*lines, ""])


def _members(owner: type) -> Iterator[str]:
    """Yield documented methods and properties: own ones, and those from bases of ptynb that are not public."""
    seen = set[str]()
    for base in owner.__mro__:
        if base is not owner and (not base.__module__.startswith("ptynb.") or base.__name__ in ptynb.__all__):
            continue
        for name, item in vars(base).items():
            shown = isinstance(item, property | classmethod | staticmethod) or inspect.isfunction(item)
            if shown and not name.startswith(("_", "model_")) and name not in seen and getattr(owner, name).__doc__:
                seen.add(name)
                yield name


def _names_in(module: ModuleType) -> list[str]:
    own = (name for name, item in vars(module).items() if getattr(item, "__module__", "").startswith(module.__name__))
    names = getattr(module, "__all__", None) or [name for name in own if not name.startswith("_")]
    return [name for name in names if callable(getattr(module, name)) and not _is_alias(getattr(module, name))]


def _is_alias(value: Any) -> bool:
    return not (inspect.isclass(value) or inspect.isfunction(value))


def _doc(value: Any) -> str:
    return inspect.getdoc(value) or ""


def _first_line(value: Any) -> str:
    text = _doc(report_file.report if value is ptynb.report else value)
    return re.sub(r"`+([^`]+)`+", r"``\1``", " ".join(text.partition("\n\n")[0].split()))


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


# -------------------------------------------------------------------------------------------------- settings


def settings_page(pictures: Mapping[str, str]) -> str:
    """Return the page of all settings."""
    whole = structure()
    lines = ["# Every setting\n"]
    lines += [
        "All fields of `pt.Settings`, from which forms, run files and the command line are made. In Python: "
        "`pt.Settings(batch=32, probe=pt.Probe(modes=3))`; in a run file: `settings: {batch: 32, probe: {modes: 3}}`; "
        "`ptynb run` refuses what is not in its range. *Live* settings can be changed during a run and take effect on "
        "every engine before the same update.\n"
    ]
    for section in whole.sections:
        lines.append(f"## {section.title}\n\n{section.description}.\n")
        if section.name in pictures:
            lines.append(f"{pictures[section.name]}\n")
        lines += [_setting_text(setting) for setting in section.settings]
    for entries in whole.lists:
        lines.append(f"## {entries.title}\n\n{entries.description}. Each is a class of `pt.{entries.name}`.\n")
        if entries.name in pictures:
            lines.append(f"{pictures[entries.name]}\n")
        for kind in entries.kinds:
            lines.append(f"### {kind.kind}\n\n{kind.description}\n")
            lines += [_setting_text(setting, f"{entries.name}-{kind.kind}-") for setting in kind.settings]
    return "\n".join(lines)


def _setting_text(setting: Setting, prefix: str = "") -> str:
    """Return an entry of a definition list: name, facts, description."""
    facts = [f"*{_kind(setting)}*"]
    if bounds := _bounds(setting):
        facts.append(bounds)
    if setting.required:
        facts.append("required")
    else:
        facts.append(f"default `{'none' if setting.default is None else _plain(setting.default)}`")
    if setting.live:
        facts.append("live")
    description = setting.description.replace("*", r"\*").rstrip(".")
    anchor = re.sub(r"[^a-z]+", "-", f"{prefix}{setting.name}".lower())
    return f"(setting-{anchor})=\n`{setting.name}`\n: {' · '.join(facts)}\n\n  {description}.\n"


def _kind(setting: Setting) -> str:
    if setting.kind == "choice":
        return "one of " + ", ".join(f"`{choice}`" for choice in setting.choices)
    kind = {"number": "number", "integer": "whole number", "switch": "true or false"}[setting.kind]
    return f"{kind}, in {setting.unit}" if setting.unit else kind


def _bounds(setting: Setting) -> str:
    if not setting.numeric or (setting.low is None and setting.high is None):
        return ""
    left = "(-∞" if setting.low is None else f"{'[' if setting.low_included else '('}{setting.low:g}"
    right = "∞)" if setting.high is None else f"{setting.high:g}{']' if setting.high_included else ')'}"
    return f"{left}, {right}"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --------------------------------------------------------------------------------------------- other tables


def formats_page() -> str:
    """Return the page of the formats of scans."""
    lines = [
        "# Formats\n",
        "`pt.load(path)` and `ptynb info FILE` recognise a file by its content, whatever its name. The first format "
        "of this list that recognises a file reads it; ptynb's own scan files (`pt.save_scan`) come before all.\n",
        "| format | usual names | what is read, and from where | needs |\n| --- | --- | --- | --- |",
    ]
    for one in FORMATS:
        reader = inspect.getmodule(one.read)
        assert reader is not None
        first = _doc(reader).partition("\n\n")[0].partition("\n    ")[0]
        needs = f"`pip install '{NEEDS[one.name]}'`" if one.name in NEEDS else ""
        lines.append(f"| {one.name} | {', '.join(f'`{end}`' for end in one.suffixes)} | {_cell(first)} | {needs} |")
    lines += ["\n## Where values are looked for\n", "What the reader of each format says of itself:\n"]
    for module in dict.fromkeys(inspect.getmodule(one.read) for one in FORMATS):
        assert module is not None
        names = ", ".join(one.name for one in FORMATS if inspect.getmodule(one.read) is module)
        lines.append(f"### {names}\n\n```text\n{_doc(module)}\n```\n")
    lines += ["## Names in HDF5 files without a convention\n", "Without case, in any group, the first that is found:\n"]
    for value, names in HDF5_NAMES.items():
        lines.append(f"- {value}: {', '.join(f'`{name}`' for name in names)}")
    lines += ["\n## Names in .npz, .mat and zarr\n", f"```text\n{_doc(named_arrays)}\n```\n"]
    return "\n".join(lines)


def errors_page() -> str:
    """Return the page of the error codes and what to do."""
    lines = [
        "# Errors and what to do\n",
        "Every error of ptynb says what was found, what was expected and what to do, and has a `code` that stays the "
        "same when its words are improved: `except pt.FileError as error: error.code`. The message knows the values "
        "of your case; this page says what helps in general. `ptynb run` ends with an exit status by kind of failure, "
        "see [](../howto/facility.md).\n",
    ]
    for group in dict.fromkeys(code.partition(".")[0] for code in sorted(CODES)):
        lines.append(f"## {group}\n")
        for code in sorted(code for code in CODES if code.partition(".")[0] == group):
            remedy = REMEDIES[code]
            lines.append(f"`{code}`\n: {_cell(CODES[code])}\n\n  {remedy}\n")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("*", r"\*").replace("<", r"\<")


def command_page() -> str:
    """Return the page of the command and its subcommands."""
    parser = _parser()
    lines = ["# The command `ptynb`\n", f"{parser.description}\n"]
    for name, command, help_text in subcommands(parser):
        lines.append(f"## ptynb {name}\n\n{help_text[:1].upper()}{help_text[1:].rstrip('.')}.\n")
        lines += _options(command)
        for inner, below, below_help in subcommands(command):
            lines.append(f"### ptynb {name} {inner}\n\n{below_help[:1].upper()}{below_help[1:].rstrip('.')}.\n")
            lines += _options(below)
    return "\n".join(lines)


def subcommands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield (name, parser, help) of the subcommands of a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield name, command, helps.get(name, "")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = re.sub(r"^usage: ", "", parser.format_usage())
    yield f"```text\n{inspect.cleandoc(usage)}\n```\n"
    for action in parser._actions:
        if action.help in (None, argparse.SUPPRESS) or isinstance(
            action, argparse._HelpAction | argparse._SubParsersAction
        ):
            continue
        shown = parser._get_formatter()._format_action_invocation(action)
        text = parser._get_formatter()._expand_help(action)
        yield f"`{shown}`\n: {_cell(text)}\n"


def run_file_page() -> str:
    """Return the page with the example of a run file."""
    return (
        "# The run file\n\nAll that a run file can say, as `ptynb run --example` prints it. Only `scan` (or `listen`), "
        "`epochs` (or `stages`) and `result` are required. What the settings mean: [](settings.md).\n\n"
        f"```yaml\n{example()}```\n"
    )
