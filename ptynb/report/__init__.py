"""Reports and figures of results for people. The package is itself the function: `pt.report(recon, "scan.html")`.

It has to be, as both have the name that users expect: whoever imports a module of it, such as
`ptynb.report.figures.figure`, puts the package in the place of any function that `ptynb` calls `report`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from ptynb.data.scan import Truth


@final
class _Callable(ModuleType):
    """A module that can be called; see `ptynb.report.report_file.report`, whose documentation is its own."""

    def __call__(
        self,
        source: Any,
        path: str | Path,
        *,
        title: str | None = None,
        comments: str | None = None,
        ground_truth: Truth | None = None,
        full: bool = False,
    ) -> Path:
        """Writes one HTML file that shows a result, or compares several: `ptynb.report.report_file.report`."""
        from ptynb.report.report_file import report

        return report(source, path, title=title, comments=comments, ground_truth=ground_truth, full=full)


sys.modules[__name__].__class__ = _Callable
