"""The tree stays one that a stranger finds his way in: names occur once, folders are small, imports make no circle."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import grimp

import ptynb

PACKAGE = Path(ptynb.__file__).parent
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
PAIRS = ("settings", "physics")
"""A setting and the physics that it chooses have one name in these two packages."""


def _homes(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def _is_pair(paths: list[Path]) -> bool:
    return sorted(map(_homes, paths)) == sorted(PAIRS)


def test_a_module_name_occurs_once():
    found = defaultdict(list)
    for path in FILES:
        found[path.stem].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and not _is_pair(paths)} == {}


def test_a_public_class_name_occurs_once():
    found = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1 and not _is_pair(paths)} == {}


def test_a_folder_holds_at_most_twenty_files():
    count = Counter(path.parent for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert {str(folder): files for folder, files in count.items() if files > 20 and folder.name != "__pycache__"} == {}


def test_imports_make_no_circle_not_even_for_type_checkers():
    graph = grimp.build_graph("ptynb", cache_dir=None)
    left = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules - {"ptynb"}}
    trimmed = set(left)
    while trimmed:  # what imports nothing that is left, or is imported by nothing that is left, is in no circle
        imported = set().union(*left.values())
        trimmed = {module for module, below in left.items() if not below & left.keys() or module not in imported}
        left = {module: below for module, below in left.items() if module not in trimmed}
    assert sorted(left) == [], "these import each other, or stand between two circles"
