"""Errors and warnings of ptynb.

Each error has a `code`, "subject.problem", which stays the same when its message is improved: programs and tests
compare the code and show the message. `CODES` lists all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

CODES: dict[str, str] = {
    "argument.conflict": "Arguments exclude each other.",
    "argument.invalid-value": "An argument is out of range or not among the choices.",
    "argument.missing": "A required argument is missing.",
    "array.shape-mismatch": "An array has another shape than expected.",
    "file.not-found": "A file does not exist.",
    "file.not-writable": "A file cannot be written.",
    "settings.invalid-range": "A range of a setting to tune is invalid.",
    "study.running": "A study is running on the engines.",
    "survey.incomplete": "The survey of a scan has no patterns yet.",
    "widget.nothing-selected": "A click needs a selection in a list, and there is none.",
    "widget.selection-gone": "The selected item does not exist any more.",
    "workbench.cluster-stopped": "The cluster of the workbench was stopped.",
    "workbench.no-cluster": "The workbench has not started engines.",
    "workbench.no-reconstruction": "The workbench has no reconstruction.",
    "workbench.no-scan": "The workbench has no scan.",
    "workbench.run-active": "A run is active in the workbench.",
}
"""Each code and what it means."""


class PtynbError(Exception):
    """Base class of the errors that ptynb raises.

    Parameters
    ----------
    message : str
        What was found, what was expected and what to do.
    code : str
        The kind of problem, one of `ptynb.exceptions.CODES`.
    """

    code = ""

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class InvalidValueError(PtynbError, ValueError):
    """An argument has a value that is not supported."""


class InvalidTypeError(PtynbError, TypeError):
    """An argument has a type that is not supported."""


class FileError(PtynbError, ValueError):
    """A file cannot be read or written."""


class ScanError(PtynbError, ValueError):
    """A scan is incomplete, inconsistent, or not suitable for an operation."""


class SettingsError(PtynbError, ValueError):
    """Settings are invalid; `problems` has one entry of pydantic for each invalid field."""

    def __init__(self, message: str = "", problems: tuple[ErrorDetails, ...] = (), *, code: str = "") -> None:
        super().__init__(message, code=code)
        self.problems = problems


class ClusterError(PtynbError, RuntimeError):
    """A cluster cannot be started, or has failed."""


class EngineLostError(ClusterError):
    """An engine's process has ended or cannot be reached."""


class ClusterStoppedError(ClusterError):
    """The cluster was stopped by request."""


class ReconstructionError(PtynbError, RuntimeError):
    """A reconstruction has failed, or cannot do what was requested."""


class EnginesBusyError(ReconstructionError):
    """The requested engines are running another reconstruction."""


class PtynbWarning(UserWarning):
    """Base class of the warnings of ptynb."""
