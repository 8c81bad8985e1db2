"""Public names have docstrings in the format of numpydoc, which describe every parameter.

`python -m tests.test_docstrings [NAME ...]` lists what is missing.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from numpydoc.validate import validate

import ptynb

HELD = {
    "GL05": "no tabs",
    "GL06": "known sections",
    "GL07": "order of sections",
    "GL08": "there is a docstring",
    "SS01": "there is a summary",
    "SS03": "the summary ends with a period",
    "PR01": "every parameter is described",
    "PR02": "no other parameter is described",
    "PR03": "parameters are in their order",
    "PR04": "parameters have a type",
    "PR07": "parameters have a description",
    "RT01": "what is returned is described",
    "RT03": "what is returned has a description",
    "YD01": "what is yielded is described",
}


def _members(name: str, value: Any) -> Iterator[str]:
    """A public name and, of a class or a module, those in it that are ptynb's own."""
    if isinstance(value, types.ModuleType):
        for inner in getattr(value, "__all__", [one for one in vars(value) if not one.startswith("_")]):
            item = getattr(value, inner)
            if getattr(item, "__module__", "").startswith(value.__name__) and callable(item):
                yield from _members(f"{name}.{inner}", item)
        return
    yield name
    if inspect.isclass(value):
        own = [one for one in value.__mro__ if one is value or one.__module__.startswith("ptynb.session.")]
        for inner, item in ((inner, item) for base in own for inner, item in vars(base).items()):
            if not inner.startswith("_") and isinstance(item, types.FunctionType | classmethod | staticmethod):
                yield f"{name}.{inner}"


NAMES = {public: sorted({*_members(f"ptynb.{public}", getattr(ptynb, public))}) for public in ptynb.__all__}
"""Public names, and what is in them."""


def problems(name: str) -> list[str]:
    """What numpydoc finds wrong in a docstring, of that which is held here."""
    return [f"{code}: {message}" for code, message in validate(name)["errors"] if code in HELD]


@pytest.mark.parametrize("public", NAMES)
def test_a_public_name_is_documented(public):
    assert {name: found for name in NAMES[public] if (found := problems(name))} == {}


if __name__ == "__main__":
    for one in [name for names in NAMES.values() for name in names]:
        if not sys.argv[1:] or one.startswith(tuple(sys.argv[1:])):
            for problem in problems(one):
                print(f"{one}: {problem}")
