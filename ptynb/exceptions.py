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
    "argument.invalid-type": "An argument has a type that is not supported.",
    "argument.invalid-value": "An argument is out of range, or not among the choices.",
    "argument.missing": "A required argument is missing.",
    "array.shape-mismatch": "An array does not have the expected shape.",
    "component.invalid-parameter": "A parameter of a custom component cannot be optimised.",
    "component.unsupported-optimiser": "The optimiser supports no other components than object and probe.",
    "kernel.unsupported": "Arrays have a size, type or device that has no compiled step.",
    "patterns.not-enough-memory": "The patterns do not fit in memory.",
    "patterns.not-in-file": "Patterns cannot be read for each batch, since they are in memory only.",
    "probe.pixels-too-large": "The pixels are too large to sample the probe.",
    "probe.too-few-pixels": "The probe is nonzero in too few pixels for its modes.",
    "probe.window-too-small": "The probe does not fit in its window.",
    "scan.invalid-guess": "The initial guess of probe or object does not fit the scan.",
    "scan.near-field": "The operation does not support near-field scans.",
    "scan.no-counts": "All patterns are empty.",
    "scan.no-geometry": "The operation requires a geometry.",
    "scan.position-outside": "A position lies outside the given object.",
    "scan.tilted-geometry": "The operation does not support tilted geometries.",
    "settings.batch-too-small": "A batch has fewer patterns than there are engines.",
    "settings.unsupported-combination": "Settings are valid, but not supported together.",
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
