"""The fields of a run file that call functions, run programs or connect to other machines, marked with `TRUST`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ptynb.settings.base_models import ADDRESS, TRUST


@dataclass(frozen=True)
class Line:
    """A field and its plain value. does: its effect, to follow the word "it"."""

    name: str
    value: Any
    does: str


def marked(model: BaseModel, prefix: str = "") -> Iterator[Line]:
    """Yield the marked fields of a run file that have a value."""
    for name, field in type(model).model_fields.items():
        value, extra = getattr(model, name), field.json_schema_extra
        if isinstance(value, BaseModel):
            yield from marked(value, f"{prefix}{name}.")
        elif isinstance(value, tuple) and any(isinstance(one, BaseModel) for one in value):  # entries, also of plug-ins
            for number, one in enumerate(value):
                yield from marked(one, f"{prefix}{name}.{number}.") if isinstance(one, BaseModel) else ()
        elif isinstance(extra, dict) and TRUST in extra and value is not None:
            if ADDRESS in extra and "://" not in value:
                continue
            plain = model.model_dump(mode="json", include={name})[name]
            yield Line(f"{prefix}{name}", plain, str(extra[TRUST]))
