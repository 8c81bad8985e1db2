"""Exit status of the command `ptynb`, by the kind of failure; the numbers are those of sysexits.h.

A scheduler, a workflow or a queue decides by them: after 75 the same command with --resume continues, after 69 it can
be tried again later or elsewhere, after 64, 65, 66, 73 and 78 somebody has to correct what was given.
"""

from __future__ import annotations

import errno

from ptynb.exceptions import ClusterError, EngineLostError, PtynbError, SettingsError

COMPLETED, UNEXPECTED, USAGE, ARGUMENT, DATA, NO_INPUT = 0, 1, 2, 64, 65, 66
UNAVAILABLE, FAILED, NO_OUTPUT, INTERRUPTED, INVALID, CTRL_C = 69, 70, 73, 75, 78, 130
STATUSES = {
    COMPLETED: "completed",
    UNEXPECTED: "an unexpected error",
    USAGE: "the command line is not understood",
    ARGUMENT: "an argument is invalid or missing",
    DATA: "the input data are invalid",
    NO_INPUT: "an input is not found or not readable",
    UNAVAILABLE: "memory, GPU, cluster, package, plug-in or source is not available",
    FAILED: "the run failed: an engine was lost, or a number is not finite",
    NO_OUTPUT: "output cannot be written",
    INTERRUPTED: "interrupted by a signal, --resume continues; or another process works in the folder",
    INVALID: "settings, run file or site file are invalid",
    CTRL_C: "interrupted by Ctrl-C, --resume continues",
}
"""Exit statuses and their meanings."""
BY_CODE = {
    "acquisition": UNAVAILABLE,
    "acquisition.damaged-message": DATA,
    "acquisition.no-count": INVALID,
    "acquisition.no-positions": INVALID,
    "argument": ARGUMENT,
    "array": DATA,
    "branch": ARGUMENT,
    "checkpoint": INVALID,
    "checkpoint.exists": NO_OUTPUT,
    "checkpoint.failed": NO_OUTPUT,
    "checkpoint.incomplete": NO_INPUT,
    "checkpoint.not-found": NO_INPUT,
    "checkpoint.other-scan": DATA,
    "checkpoint.timeout": NO_OUTPUT,
    "cluster": UNAVAILABLE,
    "cluster.stopped": FAILED,
    "comparison": DATA,
    "component": INVALID,
    "engine": FAILED,
    "engine.busy": UNAVAILABLE,
    "environment": INVALID,
    "export": DATA,
    "file": DATA,
    "file.not-found": NO_INPUT,
    "file.not-private": NO_OUTPUT,
    "file.not-readable": NO_INPUT,
    "file.not-writable": NO_OUTPUT,
    "film": DATA,
    "geometry": DATA,
    "gpu": UNAVAILABLE,
    "group": UNAVAILABLE,
    "guess": DATA,
    "job": ARGUMENT,
    "kernel": FAILED,
    "memory": UNAVAILABLE,
    "package": UNAVAILABLE,
    "patterns": UNAVAILABLE,
    "plugin": UNAVAILABLE,
    "plugin.invalid": INVALID,
    "probe": DATA,
    "reconstruction": FAILED,
    "report": DATA,
    "run": INTERRUPTED,
    "scan": DATA,
    "scheduler": UNAVAILABLE,
    "service": UNAVAILABLE,
    "service.failed": UNEXPECTED,
    "service.invalid-request": ARGUMENT,
    "service.no-token": ARGUMENT,
    "service.not-allowed": ARGUMENT,
    "service.too-large": DATA,
    "settings": INVALID,
    "slurm": UNAVAILABLE,
    "ssh": UNAVAILABLE,
    "tuning": FAILED,
    "widget": UNEXPECTED,
    "workbench": UNEXPECTED,
}
"""Exit statuses by code of an error, or by its subject."""
BY_SYSTEM = {
    **dict.fromkeys((errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR), NO_INPUT),
    **dict.fromkeys((errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EEXIST), NO_OUTPUT),
    errno.ENOMEM: UNAVAILABLE,
}
"""Exit statuses by number of an error of the system."""


def status_of_code(code: str) -> int | None:
    """Return the exit status for an error with this code; None if it is unknown."""
    return BY_CODE.get(code, BY_CODE.get(code.partition(".")[0]))


def exit_status(error: BaseException) -> int:
    """Return the exit status of a command that this error ended."""
    if isinstance(error, KeyboardInterrupt):
        return CTRL_C
    if isinstance(error, PtynbError):
        if isinstance(error, SettingsError) and error.problems:
            return INVALID  # whatever the rule that a field of a file breaks
        by_class = FAILED if isinstance(error, EngineLostError) else UNAVAILABLE
        without_code = by_class if isinstance(error, ClusterError) else UNEXPECTED
        return status_of_code(error.code) or without_code
    if isinstance(error, MemoryError):
        return UNAVAILABLE
    if isinstance(error, OSError):
        return BY_SYSTEM.get(error.errno or 0, UNEXPECTED)
    return UNEXPECTED


def told(error: BaseException) -> str:
    """Return the message of an error; Python's own of missing memory has none."""
    without = "there is not enough memory; use a smaller batch, or a machine with more"
    return str(error) or (without if isinstance(error, MemoryError) else type(error).__name__)
