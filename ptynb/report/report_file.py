"""The implementation of `pt.report`: named results are written to one HTML file."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ptynb.analysis.faults.diagnosis import Diagnosis
from ptynb.data.engine_records import Checkpoint, Result
from ptynb.data.scan import Truth
from ptynb.exceptions import InvalidTypeError, InvalidValueError
from ptynb.io.named_results import sources
from ptynb.io.new_files import replacing_file, writable
from ptynb.io.reading.large_array import is_large
from ptynb.io.result_file import load_result
from ptynb.report import comparison_report, result_report
from ptynb.report.comments import rendered
from ptynb.report.page import page
from ptynb.report.page_data import UNLIMITED, ByteBudget, PageData
from ptynb.report.result_facts import name_of

LARGEST = 10_000_000
"""Maximum size of a page without full=True [bytes]."""


def report(
    source: Any,
    path: str | Path,
    *,
    title: str | None = None,
    comments: str | None = None,
    ground_truth: Truth | None = None,
    diagnosis: Diagnosis | None = None,
    full: bool = False,
) -> Path:
    """Write a report as one HTML file; see `ptynb.report`."""
    target = Path(path).expanduser()
    several = source if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    loaded = {name: _result(one) for name, one in sources(several)}
    if not loaded:
        raise InvalidValueError(
            "The list of results is empty; expected a reconstruction, a result, or the path of a result file.",
            code="report.no-result",
        )
    for name, given in (("ground_truth", ground_truth), ("diagnosis", diagnosis)):
        if given is not None and len(loaded) > 1:
            raise InvalidValueError(
                f"{name} is supported for one result, not for {len(loaded)}; report them one by one.",
                code="argument.conflict",
            )
    results = {name: result for name, (result, _) in loaded.items()}
    paths = {name: file for name, (_, file) in loaded.items()}
    first = next(iter(results.values()))
    # Names of saved files have letters only that every system supports.
    data = PageData(re.sub(r"[^A-Za-z0-9_-]+", "-", target.stem).strip("-")[:60] or "report")
    large = any(is_large(result.object.nbytes) for result in results.values())
    budget = UNLIMITED if full and not large else ByteBudget()
    if len(results) == 1:
        heading, text = title or name_of(first), first.comments if comments is None else comments
        against = result_report.truth_correlation(first, ground_truth)
        headline = result_report.headline(first, against[1] if against else None)
        sections = result_report.sections(data, first, next(iter(paths.values())), against, budget, diagnosis)
    else:
        heading, text = title or f"Comparison of {', '.join(results)}", comments or ""
        headline, sections = comparison_report.headline_and_sections(data, results, paths, budget)
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    footer = f"Made by ptynb {version('ptynb')} on {when}. This file is complete and loads nothing from a network."
    html = page(heading, headline, rendered(text), sections, data, footer)
    assert full or len(html.encode()) < LARGEST, f"the page has {len(html)} characters"
    with writable(target), replacing_file(target) as beside:
        beside.write_text(html, encoding="utf-8")
    return target


def _result(source: Any) -> tuple[Result, Path | None]:
    """Return the result, and the path of its file if it was loaded from one."""
    if isinstance(source, Checkpoint):
        source = source.path
    if isinstance(source, str | Path):
        return load_result(source), Path(source).expanduser().absolute()
    if isinstance(source, Result):
        return source, None
    # A Reconstruction, whose class is not imported here because that would import torch.
    if isinstance(inspect.getattr_static(source, "result", None), property):
        result = source.result
        if isinstance(result, Result):
            return result, None
    raise InvalidTypeError(
        f"{type(source).__name__} is not supported; expected a Reconstruction, a Result, a Checkpoint, or the path "
        "of a file of one of these.",
        code="argument.invalid-type",
    )
