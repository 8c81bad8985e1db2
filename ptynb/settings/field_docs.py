"""Docstrings, signatures and fields of forms generated from the fields of models; types found in annotations."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ptynb.text import in_one_line

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


Kind = Literal["number", "integer", "choice", "switch", "text"]
Schema = Mapping[str, Any]
_UNIT = re.compile(r" ?\[([^]]+)\]")
_RATIO = re.compile(r"^1 = ")
ABBREVIATIONS = {"dct": "DCT", "opr": "OPR", "pacbed": "PACBED", "psf": "PSF", "rpie": "rPIE"}
"""Words of names with a special spelling."""
MOST_LETTERS = 80
"""Largest number of characters of the message of an error in a model of a plug-in."""


@dataclass(frozen=True)
class Setting:
    """One field.

    name: dotted, "probe.learning_rate"; for a field of an entry the last part only, "sigma".
    unit: "" if there is none. description: without the unit. low, high: of the range, None if unlimited;
    low_included, high_included: whether the limits belong to it. choices: of a kind "choice". optional: None is
    allowed. required: it has no default. live: it can be changed during a run. simple: forms show it first.
    """

    name: str
    title: str
    kind: Kind
    description: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    low_included: bool = True
    high_included: bool = True
    choices: tuple[str, ...] = ()
    optional: bool = False
    required: bool = False
    default: Any = None
    live: bool = False
    simple: bool = False

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.kind in ("number", "integer")


@functools.cache
def form_problem(model: type[BaseModel]) -> str:
    """Return why forms cannot show an entry with this model, which is of a plug-in; empty if they can."""
    try:
        schema = model.model_json_schema()
    except Exception as error:  # noqa: BLE001 - of pydantic, or of a function of the plug-in
        return f"has fields that no form can show ({in_one_line(error, MOST_LETTERS)})"
    for name, field in schema.get("properties", {}).items():
        try:
            shown = [*settings_in("", {"properties": {name: field}})]
        except (KeyError, TypeError, ValueError):
            shown = []
        if name != "kind" and not (shown and all(isinstance(choice, str) for choice in shown[0].choices)):
            return (
                f"has the field {name}, which no form can show; expected a number, a bool, a text or a Literal of "
                'texts (or None), with a description: name: float = Field(default=1.0, description="...")'
            )
    return ""


def settings_in(prefix: str, model: Schema) -> Iterator[Setting]:
    """Yield the fields of a model."""
    required = model.get("required", ())
    for name, field in model["properties"].items():
        if name != "kind" or "const" not in field:
            yield setting_of(f"{prefix}{name}", name, field, required=name in required)


def setting_of(whole: str, name: str, field: Schema, *, required: bool) -> Setting:
    """Return a field of a schema. whole: its dotted name. Raises KeyError or ValueError for a type without a form."""
    values, optional = field, False
    if "anyOf" in field:
        optional = True
        (values,) = (choice for choice in field["anyOf"] if choice["type"] != "null")
    unit = _UNIT.search(field["description"])
    low, high = values.get("minimum"), values.get("maximum")
    return Setting(
        name=whole,
        title=title_of(name, field),
        kind="choice" if "enum" in values else _KINDS[values.get("format", values["type"])],
        description=field["description"].replace(unit.group(), "", 1) if unit else field["description"],
        unit=_RATIO.sub("× ", unit.group(1)) if unit else "",
        low=values.get("exclusiveMinimum") if low is None else low,
        high=values.get("exclusiveMaximum") if high is None else high,
        low_included=low is not None,
        high_included=high is not None,
        choices=tuple(values.get("enum", ())),
        optional=optional,
        required=required,
        default=field.get("default"),
        live=bool(field.get("live")),
        simple=bool(field.get("simple")),
    )


_KINDS: dict[str, Kind] = {"number": "number", "integer": "integer", "boolean": "switch", "string": "text"}
"""Kinds by JSON type. A text with a format (a path, a date, a password) has none: files have it in another form."""


def title_of(name: str, field: Schema) -> str:
    """Return the title of a field, or its name as words; the default titles of pydantic are capitalised."""
    title = field.get("title", "")
    return title if title and title != name.replace("_", " ").title() else in_words(name)


def in_words(name: str) -> str:
    """Return a name as words with a capital letter."""
    first, *others = name.split("_")
    return " ".join([ABBREVIATIONS.get(first, first.capitalize()), *(ABBREVIATIONS.get(word, word) for word in others)])
