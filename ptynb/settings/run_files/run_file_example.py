"""Example of a run file, generated from the descriptions of the fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ptynb.settings.checkpointing import Checkpointing
from ptynb.settings.cluster_options import CLUSTERS, LocalCluster
from ptynb.settings.field_docs import summary
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.run_files.listen_section import ListenSection, PlanSection
from ptynb.settings.run_files.run_file import RunFile
from ptynb.settings.settings import Settings

HEAD = """\
# A run without a notebook: ptynb run FILE. Paths are relative to this file. --set settings.loss=poisson changes a field
# for one run, and --output DIR --id NAME writes everything in DIR/NAME.
# Lines with '#:' contain the defaults; to change one, remove the mark there and in the line of its section.
# checkpointing.transfer, the hosts of ssh, addresses of listen and similar fields run code or connect to other
# machines: they have to be confirmed, or require --trust.
"""
FIRST: dict[str, Any] = {"scan": "scan.cxi", "epochs": 200, "result": "scan.result.h5"}
"""Fields without a default."""
MARK = "#: "
SEVERAL = """\
scan:
  - first.cxi
  - file: second.cxi
    load: {rotation: 0.012}  # [rad]
    prepare: [{flip: y}]
    start: second.result.h5
    shift: [0, 250]  # along y and x [object pixels]
share: object
"""
"""Example of several scans as one, in place of `scan`."""
LISTENING = {"source": "stream2://detector:31001", "positions": "panda://panda:8889?y=INENC1.VAL&x=INENC2.VAL"}
PLANNED = {"count": "1024", "extent": "[[0, 2.0e-6], [0, 2.0e-6]]"}
"""Fields of the example of a scan that is measured during the run, in place of `scan`; the others have defaults."""
EXAMPLES = {
    "prepare": """\
- crop: 128  # window [detector pixels]
- flip: y
- mask_pixels: bad.npy  # True or 1 at working pixels
""",
    "stages": """\
- epochs: 50
  pattern_size: 64  # patterns are cropped to this window first
- epochs: 150
  settings: {probe: {modes: 3}, positions: {learning_rate: 0.02}}
""",
}
"""Examples of sections that are empty by default."""


def example() -> str:
    """Return a run file with every field, its default and its description."""
    lines = [HEAD]
    lines += [_line(name, str(value), RunFile.model_fields[name]) for name, value in FIRST.items()]
    lines += [MARK + _line(name, "null", RunFile.model_fields[name]) for name in ("share", "start")]
    lines += ["# Several scans:", *(f"#   {line}" for line in SEVERAL.splitlines())]
    lines += [f"# {_line('listen', '', RunFile.model_fields['listen'])}"]
    lines += [f"#   {line}" for line in _listening()]
    lines += ["", _line("cluster", "", RunFile.model_fields["cluster"]), "  kind: local"]
    lines += [f"  {line}" for line in _fields(LocalCluster(), skip="kind")]
    for model in CLUSTERS[1:]:
        kind = model.model_fields["kind"].default
        names = ", ".join(name for name in model.model_fields if name != "kind")
        lines.append(f"  # kind: {kind}  # {summary(model)}: {names}")
    for name in ("prepare", "stages"):
        lines += ["", MARK + _line(name, "[]", RunFile.model_fields[name]), f"# {name}:"]
        lines += [f"#   {line}" for line in EXAMPLES[name].splitlines()]
    for name, section in (("load", LoadOptions()), ("checkpointing", Checkpointing()), ("settings", Settings())):
        lines += ["", _line(name, "", RunFile.model_fields[name])]
        lines += [f"  {line}" for line in _fields(section)]
    lines += ["", _line("on_failure", "continue", RunFile.model_fields["on_failure"])]
    return "\n".join(lines) + "\n"


def _listening() -> Iterator[str]:
    """Yield the lines of all fields of a scan that is measured during the run, with their defaults."""
    for name, field in ListenSection.model_fields.items():
        yield _line(name, "" if name == "plan" else LISTENING.get(name) or _default(field), field)
    for name, field in PlanSection.model_fields.items():
        yield "  " + _line(name, PLANNED.get(name) or _default(field), field)


def _default(field: FieldInfo) -> str:
    """Return the default of a field as a line of YAML."""
    return yaml.safe_dump(field.default).removesuffix("\n").removesuffix("...").strip()


def _fields(model: BaseModel, skip: str = "", indent: str = "") -> Iterator[str]:
    """Yield the commented lines of all fields of a model."""
    for name, field in type(model).model_fields.items():
        if name == skip:
            continue
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield MARK + indent + _line(name, "", field)
            yield from _fields(value, indent=f"{indent}  ")
        else:
            yield MARK + indent + _line(name, _plain(model, name), field)


def _plain(model: BaseModel, name: str) -> str:
    """Return the value of a field as a line of YAML."""
    value = model.model_dump(mode="json", include={name})[name]
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("...").strip()


def _line(name: str, value: str, field: FieldInfo) -> str:
    return f"{name}: {value}".rstrip() + f"  # {field.description}"
