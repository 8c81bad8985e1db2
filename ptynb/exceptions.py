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
    "array.not-finite": "An array contains NaN or infinite values.",
    "array.shape-mismatch": "An array does not have the expected shape.",
    "cluster.stopped": "The cluster was stopped by request.",
    "comparison.area-outside": "The area to compare does not lie inside both images.",
    "comparison.area-too-small": "The common area has too few pixels to compare.",
    "comparison.nothing-to-fit": "The area to compare is zero everywhere, or not finite.",
    "comparison.not-comparable": "A result cannot be compared with the others.",
    "comparison.registration-failed": "One object cannot be registered to the other.",
    "file.damaged": "A file is damaged.",
    "file.not-found": "A file does not exist.",
    "file.not-writable": "A file cannot be written.",
    "file.unknown-format": "A file has a format that is not supported.",
    "geometry.degenerate": "Vectors of a tilted geometry do not define planes and directions.",
    "probe.focus-outside": "The focus lies outside the given distances.",
    "scan.has-object-guess": "The scan has an object guess, which the operation does not support.",
    "scan.invalid-count": "A pattern contains negative or non-finite counts.",
    "scan.invalid-guess": "The initial guess of probe or object does not fit the scan.",
    "scan.mask-empty": "The mask excludes all pixels.",
    "scan.near-field": "The operation does not support near-field scans.",
    "scan.no-bright-field-disc": "No bright-field disc was found in the mean pattern.",
    "scan.no-counts": "All patterns are empty.",
    "scan.no-geometry": "The operation requires a geometry.",
    "scan.no-rotation": "The rotation between scan and detector cannot be determined.",
    "scan.nothing-left": "No pattern would be left.",
    "scan.patterns-lost": "The patterns were only in the memory of a process that has ended.",
    "scan.patterns-unreadable": "Patterns cannot be read from their file.",
    "scan.position-disconnected": "A position is separated from all others.",
    "scan.position-outside": "A position lies outside the given object.",
    "scan.survey-incomplete": "The survey covers too few patterns.",
    "scan.tilted-geometry": "The operation does not support tilted geometries.",
    "scan.too-few-patterns": "The scan has too few patterns for the operation.",
    "scan.too-small": "The patterns have too few pixels.",
    "scan.wrong-survey": "The survey belongs to another scan.",
    "settings.given-twice": "A setting is given under two names.",
    "settings.invalid-name": "The name of a setting is not text.",
    "settings.invalid-value": "A setting has an invalid type or value.",
    "settings.invalid-yaml": "The text is not valid YAML.",
    "settings.not-a-mapping": "The settings are not a mapping of names to values.",
    "settings.too-large": "The text of the settings is too long.",
    "settings.unknown-name": "There is no setting of this name.",
    "settings.unsupported-combination": "Settings are valid, but not supported together.",
    "settings.wrong-order": "The lower limit is above the upper one.",
    "tuning.already-running": "The study is already running.",
    "tuning.different-study": "The file contains a study with other choices.",
    "tuning.file-in-use": "The file is in use by another study.",
    "tuning.invalid-range": "A range of a study is invalid.",
    "tuning.invalid-score": "A metric did not return a finite number.",
    "tuning.no-complete-trial": "No trial is complete yet.",
    "tuning.no-engines-left": "All engines of the study were lost.",
    "tuning.run-closed": "The reconstruction of a trial was closed before its end.",
    "tuning.too-little-memory": "The trials need more memory than is available.",
    "tuning.too-many-engines": "A trial requires more engines than the cluster has.",
    "tuning.trials-failed": "Too many trials in a row have failed.",
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
    """Settings are invalid.

    Parameters
    ----------
    message : str
        What was found, what was expected and what to do.
    problems : tuple of ErrorDetails
        Entry of pydantic for each invalid field.
    code : str
        The kind of the first problem, one of `ptynb.exceptions.CODES`.
    """

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
