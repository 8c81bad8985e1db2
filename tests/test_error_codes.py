"""Every error that ptynb raises has a code, and every code is raised somewhere."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import ptynb
from ptynb import exceptions
from ptynb.exceptions import CODES, PtynbError, about

PACKAGE = Path(ptynb.__file__).parent
ERRORS = {name for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, PtynbError)}
PLAIN = ("ValueError", "TypeError", "RuntimeError")
"""Builtin errors, in the place of which one of ptynb's is raised."""


def _calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Each call of an error's class in a file, with its name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            yield node, node.func.id


def _codes(path: Path) -> Iterator[tuple[int, ast.expr | None]]:
    for call, _ in _calls(path):
        yield call.lineno, next((one.value for one in call.keywords if one.arg == "code"), None)


FOLDERS = sorted({path.relative_to(PACKAGE).parts[0] for path in PACKAGE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_error_has_a_code(folder):
    place = PACKAGE / folder
    without = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(place.rglob("*.py") if place.is_dir() else [place])
        for line, code in _codes(path)
        if code is None or (isinstance(code, ast.Constant) and code.value not in CODES)
    ]
    assert without == []


def test_a_code_is_raised_somewhere():
    text = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "exceptions.py")
    assert [code for code in CODES if f'"{code}"' not in text] == []


def test_builtin_errors_are_not_raised():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id in PLAIN
        and "kernels/runtime" not in str(path)  # which imports nothing of ptynb
    ]
    assert found == []


@pytest.mark.parametrize("kind", [getattr(exceptions, name) for name in sorted(ERRORS)], ids=lambda kind: kind.__name__)
def test_an_error_keeps_code_fields_and_proposals_from_another_process_and_with_another_message(kind):
    error = kind("Give energy=8300.", code="argument.invalid-value", fields=("energy",), proposals={"energy": 8300.0})
    for other in (pickle.loads(pickle.dumps(error)), error.retold(exceptions.FileError, "Give energy=8300.")):
        assert str(other) == "Give energy=8300."
        assert (other.code, other.fields, other.proposals) == (error.code, ("energy",), {"energy": 8300.0})


@pytest.mark.parametrize("own", [(), ("probe.modes",)])
def test_fields_are_named_by_a_caller_where_an_error_has_none(own):
    with pytest.raises(PtynbError) as caught, about("mask"):
        raise PtynbError("It is empty.", code="argument.invalid-value", fields=own)
    assert caught.value.fields == (own or ("mask",))
