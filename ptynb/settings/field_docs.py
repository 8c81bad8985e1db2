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
"""In the extra schema of a field: the text of its type in docstrings, where the annotation does not say it."""


def documentation(model: type[BaseModel]) -> str:
    """Docstring of a model with a section Parameters in the format of numpydoc."""
    fields = model.model_fields.items()
    lines = (line for name, field in fields for line in _documentation(name, field, field.annotation))
    return "\n".join([inspect.cleandoc(model.__doc__ or ""), "", "Parameters", "----------", *lines])


def summary(model: type[BaseModel]) -> str:
    """First line of a model's docstring, without the full stop."""
    return (model.__doc__ or "").partition("\n")[0].rstrip(".")


def documented_by(model: type[BaseModel], **names: str) -> Callable[[Target], Target]:
    """Make fields keywords: in the place of `**options` in a signature, and of {options} in the docstring.

    The target is a function, or a class with its `__init__`. A field that its signature has is only documented.
    names: of parameters, by field, where they differ. The field `kind` is omitted.
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
    """Lines of a numpydoc section about one field."""
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
    """An annotation as in a docstring, without None: 'float', '{"spread", "random"}', 'sequence of Regularizer'."""
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
    """Constraints of the numbers in an annotation such as `Rate | None`; not those in models and dictionaries."""
    for inner in get_args(annotation) if get_origin(annotation) is not dict else ():
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
