"""`pt.report`: what is given becomes results with names, and these become one HTML file."""

from __future__ import annotations

import inspect
import re
import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ptynb.data.scan import Truth
from ptynb.data.snapshot import Result
from ptynb.exceptions import FileError, InvalidTypeError, InvalidValueError
from ptynb.io.named_results import sources
from ptynb.io.result_file import load_result
from ptynb.report import comparison_report, result_report
from ptynb.report.assets import UNLIMITED, Contents, Shares
from ptynb.report.comments import rendered
from ptynb.report.markup import Content, element
from ptynb.report.page import page
from ptynb.report.result_facts import name_of

LARGEST = 10_000_000
"""Bytes of a page that does not hold everything in full."""


def report(
    source: Any,
    path: str | Path,
    *,
    title: str | None = None,
    comments: str | None = None,
    ground_truth: Truth | None = None,
    full: bool = False,
) -> Path:
    """Writes one HTML file that tells all about a result, or compares several; it needs no network, now or later.

    source: a reconstruction (its result is taken, while it runs too), a `Result`, the path of a result file; or
        several of these, in a list or a mapping of names to them: the first one is what the others are compared with.
    path: of the file, which is replaced once the new one is whole.
    title: one line; the result's own, or its scan's name, unless given.
    comments: text in Markdown; the result's own unless given. HTML in it is shown as text.
    ground_truth: of a simulated scan (`scan.ground_truth`), for the error and the resolution against it; of one result
    only.
    full: every pixel of all pictures and arrays; else what keeps the file below 10 MB, and the page says what that is.

    Returns the path. Raises TypeError for what is no result, FileError for a file that holds none or can't be written,
    ValueError for nothing to report and for a truth of several results.
    """
    target = Path(path).expanduser()
    several = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    given = {name: _result(one) for name, one in sources(several)}
    if not given:
        raise InvalidValueError(
            "There is no result to report; expected a reconstruction, a result, or the path of one."
        )
    if ground_truth is not None and len(given) > 1:
        raise InvalidValueError(f"There are {len(given)} results and a truth; a report with a truth is of one result.")
    results = {name: result for name, (result, _) in given.items()}
    paths = {name: file for name, (_, file) in given.items()}
    first = next(iter(results.values()))
    heading = title or (name_of(first) if len(results) == 1 else f"Comparison of {', '.join(results)}")
    contents, shares = Contents(_file_name(target)), UNLIMITED if full else Shares()
    words = comments if comments is not None else (first.comments if len(results) == 1 else "")
    if len(results) == 1:
        against = result_report.truth_correlation(first, ground_truth)
        headline = result_report.headline(first, against[1] if against else None)
        sections = result_report.sections(contents, first, next(iter(paths.values())), against, shares)
    else:
        headline, sections = comparison_report.headline_and_sections(contents, results, paths, shares)
    text = page(heading, headline, _comments(words), sections, contents, _made_by())
    assert full or len(text.encode()) < LARGEST, f"the page has {len(text)} characters"
    return _written(text, target)


def _result(source: Any) -> tuple[Result, Path | None]:
    if isinstance(source, str | Path):
        return load_result(source), Path(source).expanduser().absolute()
    if isinstance(source, Result):
        return source, None
    # A reconstruction: this package does not know its type, which would load torch.
    if isinstance(inspect.getattr_static(source, "result", None), property):
        result = source.result
        if isinstance(result, Result):
            return result, None
    raise InvalidTypeError(
        f"A {type(source).__name__} is no result; expected a reconstruction, its result, or the path of a result file."
    )


def _comments(text: str) -> Content:
    shown = rendered(text)
    if not shown:
        return None
    heading = element("h2", {"id": "comments-title"}, "Comments")
    named = {"id": "comments", "class": "report-comments", "aria-labelledby": "comments-title"}
    return element("section", named, heading, shown)


def _made_by() -> str:
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return f"Made by ptynb {version('ptynb')} on {when}. It holds all that it shows, and asks nothing of any network."


def _file_name(target: Path) -> str:
    """What the names of files saved from the page begin with: letters that every system takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", target.stem).strip("-")[:60] or "report"


def _written(text: str, target: Path) -> Path:
    """Writes beside the target, and takes its place once all is there."""
    if not target.parent.is_dir():
        raise FileError(f"There is no folder {target.parent} to write {target.name} in; make it first.")
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        raise FileError(f"{target} can't be written ({error.strerror}); give another place.") from None
    finally:
        beside.unlink(missing_ok=True)
    return target
