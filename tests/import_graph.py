"""Which files a test depends on: those that it imports, those that they import, and so on. Nothing is run for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = re.compile(r"(?:ptynb|tests)(?:\.\w+)+")
PUBLIC = re.compile(r"\bpt\.(\w+)")


def reached(starts: Iterable[Path], root: Path = ROOT) -> dict[Path, int]:
    """The files that these depend on, with the number of imports that lead there.

    Imports inside functions count, but for those of the commands in `ptynb/cli`, each of which imports what it needs,
    where the command is not among the starts.
    """
    found = dict.fromkeys(starts, 0)
    queue = [*found]
    for path in queue:
        inside = found[path] == 0 or not path.is_relative_to(root / "ptynb/cli")
        for other in imported(path, inside, root) - found.keys():
            found[other] = found[path] + 1
            queue.append(other)
    return found


@cache
def imported(path: Path, inside: bool = True, root: Path = ROOT) -> frozenset[Path]:
    """The files of ptynb and of its tests that a file imports, or names: a module to run, `pt.Scan` in a cell's text.

    Public names count as the module that they come from. For a test, the conftest.py of its folders belong to it.
    inside: also what is imported inside functions.
    """
    found: set[Path] = set()
    for name in names_in(ast.parse(path.read_text()), inside):
        head, _, rest = name.partition(".")
        public = public_names(root).get(rest.partition(".")[0]) if head == "ptynb" else None
        for dotted in {name, public or name}:
            found |= {*files_of(dotted, root)}
    if path.is_relative_to(root / "tests"):
        found |= {folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").exists()}
    return frozenset(found - {path, root / "ptynb/__init__.py"})


def names_in(tree: ast.AST, inside: bool) -> Iterator[str]:
    """Dotted names of modules, or of what is in them, without those that only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.FunctionDef) and not inside:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pt":
            yield f"ptynb.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from MODULE.findall(node.value) if " " not in node.value else ()
            yield from (f"ptynb.{name}" for name in PUBLIC.findall(node.value))
        yield from names_in(node, inside)


@cache
def public_names(root: Path) -> dict[str, str]:
    """Where the public names come from, from `ptynb/__init__.pyi`."""
    return {
        alias.name: f"ptynb.{node.module or ''}.{alias.name}".replace("..", ".")
        for node in ast.walk(ast.parse((root / "ptynb/__init__.pyi").read_text()))
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


def files_of(name: str, root: Path) -> Iterator[Path]:
    """The files that are run when a module, or a name in it, is imported."""
    if not name.startswith(("ptynb.", "tests.")):
        return
    parts = name.split(".")
    for length in range(2, len(parts) + 1):
        place = root.joinpath(*parts[:length])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.exists():
                yield file


def nearest(changed: set[Path], tests: Iterable[Path], root: Path = ROOT) -> list[Path]:
    """Of these tests those that depend on changed files, the nearest first.

    That is the test of the same name (`test_npy.py` of `npy.py`), then those with the fewest imports on the way, and
    of these the ones in the folder of the same name (`tests/io` of `ptynb/io`).
    """
    names = {f"test_{path.stem}" for path in changed}
    folders = {path.relative_to(root).parts[:2][-1] for path in changed}
    ranks = {}
    for test in tests:
        found = reached([test], root)
        if steps := [found[path] for path in changed & found.keys()]:
            ranks[test] = (test.stem not in names, min(steps), test.relative_to(root).parts[1] not in folders)
    return sorted(ranks, key=lambda test: ranks[test])
