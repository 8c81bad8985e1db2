"""Errors and warnings of ptynb.

Each error has a `code`, "subject.problem", which stays the same when its message is improved: programs and tests
compare the code and show the message. `CODES` lists all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

CODES: dict[str, str] = {
    "argument.conflict": "arguments exclude each other",
    "argument.invalid-type": "an argument has a type that is not supported",
    "argument.invalid-value": "an argument is out of range or not among the choices",
    "argument.unknown": "there is no argument of this name",
    "array.not-finite": "an array contains NaN or infinite values",
    "export.too-large": "the arrays are larger than the file format allows",
    "file.count-mismatch": "the numbers of positions and patterns in a file differ",
    "file.damaged": "a file is damaged or cut short; copy it again",
    "file.incomplete": "a file lacks a group, dataset or attribute",
    "file.link-not-allowed": "a file refers to another one that may not be read",
    "file.not-found": "a file or folder does not exist",
    "file.not-writable": "a file cannot be written there",
    "file.several-choices": "several datasets may be the requested one; name one",
    "file.too-large": "what a file announces is too large to be read",
    "file.too-many-links": "links of a file are too many, too deep, or circular",
    "file.unexpected-content": "a value in a file has another type or shape than expected",
    "file.unknown-format": "a file is of no supported format",
    "file.unsupported-content": "a file of a supported format has content that is not supported",
    "file.unsupported-version": "a file was written by a newer version of ptynb",
    "guess.count-mismatch": "the initial guess and the scan have different numbers of patterns",
    "guess.nothing-selected": "no part of the initial guess is selected or available",
    "guess.pixel-size-mismatch": "the object pixels of the initial guess and of the scan have different sizes",
    "guess.positions-outside-object": "the positions reach too far beyond the object of the initial guess",
    "guess.window-mismatch": "the probe of the initial guess has another window than the patterns",
    "package.not-installed": "an optional package is not installed",
    "scan.implausible-metadata": "a number in a file is only explained by a wrong unit",
    "scan.missing-metadata": "a file lacks metadata that a scan needs; give them as options",
    "scan.raster-mismatch": "a raster has another number of positions than there are patterns",
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
