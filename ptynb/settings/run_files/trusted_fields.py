"""The fields of a run file that call functions, run programs or connect to other machines, marked with `TRUST`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ptynb.settings.base_models import ADDRESS, TRUST
from ptynb.settings.run_files.run_file import RunFile


@dataclass(frozen=True)
class Line:
    """A field and its plain value. does: its effect, to follow the word "it"."""

    name: str
    value: Any
    does: str


def marked(run: RunFile) -> Iterator[Line]:
    """Yield the marked fields of a run file that have a value; those of a stage where they differ from before."""
    yield from _in_model(run, "")
    before = [*_in_model(run.settings, "")]
    for number, settings in enumerate(run.recipe.stage_settings if run.stages else ()):
        lines = [*_in_model(settings, "")]
        for line in lines:
            if line not in before:
                yield Line(f"stages.{number}.settings.{line.name}", line.value, line.does)
        before = lines


def _in_model(model: BaseModel, prefix: str) -> Iterator[Line]:
    for name, field in type(model).model_fields.items():
        value, extra = getattr(model, name), field.json_schema_extra
        if not isinstance(extra, dict) or TRUST not in extra:
            yield from _inside(value, f"{prefix}{name}")
        elif value is not None and not (ADDRESS in extra and "://" not in str(value)):
            plain = model.model_dump(mode="json", include={name})[name]
            yield Line(f"{prefix}{name}", plain, str(extra[TRUST]))


def _inside(value: Any, name: str) -> Iterator[Line]:
    """Yield those of the models in a value, also in lists and mappings: entries, which may be of plug-ins."""
    if isinstance(value, BaseModel):
        yield from _in_model(value, f"{name}.")
    elif isinstance(value, Mapping | list | tuple):
        for key, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _inside(one, f"{name}.{key}")
