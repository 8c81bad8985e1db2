"""Sentences of errors that name a remedy, and whether some test has its words: `python -m tests.remedies`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERBS = (
    "ask|choose|close|compare|copy|cut|find|free|give|install|keep|leave|load|look|make|name|open|pass|pip|press|run|save|"
    "say|set|start|stop|take|try|unset|update|use|wait|write"
)
REMEDY = re.compile(rf"[;:.] (?:so )?(?:\w+ )?(?:{VERBS})\b.*", re.IGNORECASE)
"""What follows a stop and tells the reader to do something."""
WORDS = 3
"""So many words one after another, in a test, are taken for its naming the sentence."""


@dataclass(frozen=True)
class Told:
    """An error's sentence, without what is filled in. named: whether a test has words of its remedy."""

    place: str
    sentence: str
    named: bool


def told() -> Iterator[Told]:
    """All of the package, by file and line."""
    tests = " ".join(_words("\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py")))))
    for path in sorted((ROOT / "ptynb").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and _name(node).endswith("Error") and node.args):
                continue
            sentence = "\0".join(_pieces(node.args[0]))
            remedy = REMEDY.search(sentence)
            if remedy:
                runs = [" ".join(run) for piece in remedy[0].split("\0") for run in _runs(_words(piece))]
                named = not runs or any(run in tests for run in runs)
                yield Told(f"{path.relative_to(ROOT)}:{node.lineno}", sentence.replace("\0", "…"), named)


def _name(call: ast.Call) -> str:
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _pieces(node: ast.AST) -> Iterator[str]:
    """The parts of a text that stand in the source, in their order."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _pieces(part)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.replace("\\", "").lower())


def _runs(words: list[str]) -> Iterator[list[str]]:
    for start in range(len(words) - WORDS + 1):
        yield words[start : start + WORDS]


if __name__ == "__main__":
    sentences = list(told())
    missing = [one for one in sentences if not one.named]
    for one in missing:
        print(f"{one.place}: {one.sentence}")
    print(f"{len(sentences)} sentences name a remedy; no test has the words of {len(missing)} of them.")
