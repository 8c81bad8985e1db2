"""Docstrings of settings, generated from the descriptions of their fields; types found in annotations."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def documentation(model: type[BaseModel]) -> str:
    """Docstring of a model with a section Parameters in the format of numpydoc."""
    lines = (line for name, field in model.model_fields.items() for line in _documentation(name, field))
    return "\n".join([inspect.cleandoc(model.__doc__ or ""), "", "Parameters", "----------", *lines])


def summary(model: type[BaseModel]) -> str:
    """First line of a model's docstring, without the full stop."""
    return (model.__doc__ or "").partition("\n")[0].rstrip(".")


def _documentation(name: str, field: FieldInfo) -> Iterator[str]:
    """Lines of a numpydoc section about one field."""
    default = field.default
    known = default is None or isinstance(default, str | int | float)
    end = "" if field.is_required() else f", default {default!r}" if known else ", optional"
    yield f"{name} : {type_text(field.annotation)}{end}"
    description = (field.description or "Kind of the entry, as written in files; the only possible value").rstrip(".")
    live = isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("live")
    notes = (
        f" Range: {bounds}." if (bounds := _range_text(field)) else "",
        " Can be changed during a run." * bool(live),
    )
    yield from textwrap.wrap(
        f"{description}.{''.join(notes)}", 112, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


def type_text(annotation: Any) -> str:
    """An annotation as in a docstring: 'float or None', '{"spread", "random"}', 'tuple of Regularizer'."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(inner[0])
    if origin is Literal:
        return f"{{{', '.join(map(repr, inner))}}}"
    if origin is tuple:
        return f"tuple of {type_text(inner[0])}" if inner[1:] == (...,) else f"({', '.join(map(type_text, inner))})"
    if origin is dict:
        return f"dict of {type_text(inner[0])} to {type_text(inner[1])}"
    if inner:
        bases = models_in(annotation)
        common = [base for base in bases[0].__mro__ if all(issubclass(one, base) for one in bases)] if bases else []
        if len(bases) > 1 and issubclass(common[0], BaseModel) and common[0].model_fields:
            return common[0].__name__
        return " or ".join(dict.fromkeys(map(type_text, inner)))
    return "None" if annotation is type(None) else str(annotation.__name__)


def _range_text(field: FieldInfo) -> str:
    """Range of a number as an interval, '(0, 10]'; '' where there is none."""
    bounds = {
        end: value
        for constraint in (*field.metadata, *_constraints_in(field.annotation))
        for end in ("ge", "gt", "le", "lt")
        if (value := getattr(constraint, end, None)) is not None
    }
    low, high = bounds.get("ge", bounds.get("gt")), bounds.get("le", bounds.get("lt"))
    if low is None and high is None:
        return ""
    left = f"({low:g}" if "gt" in bounds else "(-inf" if low is None else f"[{low:g}"
    return f"{left}, inf)" if high is None else f"{left}, {high:g}{')' if 'lt' in bounds else ']'}"


def _constraints_in(annotation: Any) -> Iterator[Any]:
    """Constraints of the numbers in an annotation such as `Rate | None`; those of models are their own."""
    for inner in get_args(annotation):
        if get_origin(inner) is Annotated:
            for extra in inner.__metadata__:
                yield from extra.metadata if isinstance(extra, FieldInfo) else ()
        elif get_origin(inner) is not Literal:
            yield from _constraints_in(inner)


def kinds_in(annotation: Any) -> Iterator[Any]:
    """The types in an annotation such as `int | None`."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for kind in inner:
        yield from kinds_in(kind)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models in an annotation such as `tuple[OneModel | OtherModel, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]
