"""Docstrings and signatures generated from the fields of models; types found in annotations."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Target = TypeVar("Target")
DOCUMENTED_TYPE = "documented_type"
"""Key in the extra schema of a field: text of its type in docstrings, if it does not follow from the annotation."""


def documentation(model: type[BaseModel]) -> str:
    """Return the docstring of a model with a section Parameters in the format of numpydoc."""
    fields = model.model_fields.items()
    lines = (line for name, field in fields for line in _documentation(name, field, field.annotation))
    return "\n".join([inspect.cleandoc(model.__doc__ or ""), "", "Parameters", "----------", *lines])


def summary(model: type[BaseModel]) -> str:
    """Return the first line of a model's docstring, without the full stop."""
    return (model.__doc__ or "").partition("\n")[0].rstrip(".")


def documented_by(model: type[BaseModel], **names: str) -> Callable[[Target], Target]:
    """Return a decorator that documents the fields of a model as keyword arguments.

    They replace `**options` in the signature and {options} in the docstring of a function, or of a class and its
    `__init__`. Fields that are already parameters are only documented. names: field -> name of its parameter, if they
    differ. The field `kind` is omitted.
    """

    def apply(target: Target) -> Target:
        function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        signature = inspect.signature(function, follow_wrapped=False)
        own = [one for one in signature.parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        own_types, types, keywords, lines = get_type_hints(function), get_type_hints(model), [], list[str]()
        for field_name, field in model.model_fields.items():
            if field_name == "kind":
                continue
            name = names.get(field_name, field_name)
            if name not in signature.parameters:
                keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
                keywords.append(keyword.replace(annotation=types[field_name]))
            lines += _documentation(name, field, own_types.get(name, field.annotation))
        positional = [one for one in own if one.kind is not one.KEYWORD_ONLY]
        own_keywords = [one for one in own if one.kind is one.KEYWORD_ONLY]
        function.__signature__ = signature.replace(parameters=[*positional, *keywords, *own_keywords])
        text = target.__doc__ or ""
        if margin := re.search(r"^( *)\{options\}", text, re.MULTILINE):
            target.__doc__ = text.replace("{options}", "\n".join(lines).replace("\n", f"\n{margin[1]}"))
        return target

    return apply


def _documentation(name: str, field: FieldInfo, annotation: Any) -> Iterator[str]:
    """Yield the lines of a numpydoc section about one field."""
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    known = isinstance(field.default, str | int | float)
    end = "" if field.is_required() else f", default {field.default!r}" if known else ", optional"
    yield f"{name} : {extra.get(DOCUMENTED_TYPE) or type_text(annotation)}{end}"
    description = (field.description or "Kind of the entry, as written in files; the only possible value").rstrip(".")
    notes = (
        f" Range: {bounds}." if (bounds := _range_text(field)) else "",
        " Can be changed during a run." * bool(extra.get("live")),
    )
    text = f"{description}.{''.join(notes)}".replace("; none:", ". None:").replace("; auto:", ". 'auto':")
    yield from textwrap.wrap(text, 112, initial_indent="    ", subsequent_indent="    ", break_long_words=False)


def type_text(annotation: Any) -> str:
    """Return an annotation as text, without None: 'float', '{"spread", "random"}', 'sequence of Regularizer'."""
    origin = get_origin(annotation)
    inner = [one for one in get_args(annotation) if one is not NoneType]
    if origin is Annotated:
        return type_text(inner[0])
    if origin is Literal:
        return f"{{{', '.join(map(repr, inner))}}}"
    if origin is Sequence or (origin is tuple and inner[1:] == [...]):
        return f"sequence of {type_text(inner[0])}"
    if origin is tuple:
        return f"({', '.join(map(type_text, inner))})"
    if origin in (dict, Mapping):
        return f"{'dict' if origin is dict else 'mapping'} of {type_text(inner[0])} to {type_text(inner[1])}"
    if inner:
        bases = models_in(annotation)
        common = [base for base in bases[0].__mro__ if all(issubclass(one, base) for one in bases)] if bases else []
        if len(bases) > 1 and issubclass(common[0], BaseModel) and common[0].model_fields:
            return common[0].__name__
        return " or ".join(dict.fromkeys(map(type_text, inner)))
    return str(annotation.__name__)


def _range_text(field: FieldInfo) -> str:
    """Return the range of a number as an interval, '(0, 10]'; '' if there is none."""
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
    """Yield constraints of numbers in an annotation such as `Rate | None`; not those in models and dictionaries."""
    for inner in get_args(annotation) if get_origin(annotation) is not dict else ():
        if get_origin(inner) is Annotated:
            for extra in inner.__metadata__:
                yield from extra.metadata if isinstance(extra, FieldInfo) else ()
        elif get_origin(inner) is not Literal:
            yield from _constraints_in(inner)


def kinds_in(annotation: Any) -> Iterator[Any]:
    """Yield the types in an annotation such as `int | None`."""
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for kind in inner:
        yield from kinds_in(kind)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in an annotation such as `tuple[OneModel | OtherModel, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]
