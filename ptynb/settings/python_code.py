"""Settings as Python code."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ptynb.settings.settings import Settings

LISTED = {"ptynb.settings.constraints": "constraints", "ptynb.settings.regularizers": "regularizers"}
"""Module with the entries of a list -> its name in `pt`."""


def as_python(settings: Settings) -> str:
    """Return an expression with all non-default values: `pt.Settings(batch=32, probe=pt.Probe(modes=3))`."""
    return _call("pt.Settings", settings)


def _call(name: str, model: BaseModel) -> str:
    arguments = []
    for field, info in type(model).model_fields.items():
        value = getattr(model, field)
        if field != "kind" and (info.is_required() or value != info.default):
            arguments.append(f"{field}={_value(value)}")
    return f"{name}({', '.join(arguments)})"


def _value(value: Any) -> str:
    if isinstance(value, BaseModel):
        home = LISTED.get(type(value).__module__, "")
        return _call(f"pt.{home}.{type(value).__name__}" if home else f"pt.{type(value).__name__}", value)
    if isinstance(value, tuple):
        inside = ", ".join(_value(one) for one in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value)
