"""Reports and figures of results. The package is callable: `pt.report(recon, "scan.html")` writes a report.

The package itself is callable because importing one of its modules, such as `ptynb.figures.figure`, binds the
name `ptynb.report` to the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from ptynb.analysis.faults.diagnosis import Diagnosis
    from ptynb.data.scan import Truth


@final
class _Callable(ModuleType):
    """A module that can be called."""

    def __call__(
        self,
        source: Any,
        path: str | Path,
        *,
        title: str | None = None,
        comments: str | None = None,
        ground_truth: Truth | None = None,
        diagnosis: Diagnosis | None = None,
        full: bool = False,
    ) -> Path:
        """Write one HTML file that shows a result or compares several; it opens without a network.

        Parameters
        ----------
        source : Reconstruction, Result, str, Path, or list or dict of these
            What is reported: a reconstruction (its current result), a result, the path of a result file, or several of
            them; the others are compared with the first one. A dict gives them names.
        path : str or Path
            The HTML file; an existing one is replaced once the new one is complete.
        title : str, optional
            One line; by default the title of the result, or the name of its scan.
        comments : str, optional
            Text in Markdown; by default the comments of the result. HTML in it is shown as text.
        ground_truth : Truth, optional
            The ground truth of a simulated scan (`scan.ground_truth`), for the error and the Fourier ring correlation
            with it; for one result only.
        diagnosis : Diagnosis, optional
            Faults of the result and their remedies, from `ptynb.diagnose` with its scan; by default those that show in
            the result alone. For one result only.
        full : bool, optional
            Contain every pixel of all pictures and arrays, but not of objects of more than 256 MB. Otherwise they are
            reduced to keep the file below 10 MB.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        InvalidTypeError
            If `source` is not one of the above.
        InvalidValueError
            If there is no result, or a ground truth or diagnosis for several.
        FileError
            If a file is not a result, or the report cannot be written.
        """
        from ptynb.report.report_file import report

        return report(
            source, path, title=title, comments=comments, ground_truth=ground_truth, diagnosis=diagnosis, full=full
        )


sys.modules[__name__].__class__ = _Callable
