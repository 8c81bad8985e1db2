"""Errors and warnings of ptynb.

Each error has a `code`, "subject.problem", which stays the same when its message is improved: programs and tests
compare the code and show the message. `CODES` lists all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

CODES: dict[str, str] = {
    "argument.invalid-value": "An argument is out of range or not among the choices.",
    "array.not-finite": "An array contains NaN or infinite values.",
    "branch.exists": "There is a branch of this name already.",
    "branch.invalid-name": "A name of a branch contains characters that are not allowed.",
    "checkpoint.incomplete": "Files of other ranks that belong to a checkpoint are missing.",
    "checkpoint.invalid-transfer": "checkpointing.transfer is not a function that can be imported.",
    "checkpoint.not-found": "There is no checkpoint, or it has been removed.",
    "checkpoint.other-run": "A folder holds checkpoints of another reconstruction.",
    "checkpoint.other-settings": "A checkpoint has settings that cannot change in a reconstruction.",
    "file.damaged": "A file is damaged or has invalid content.",
    "file.unknown-format": "A file has a format or version that is not supported.",
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
