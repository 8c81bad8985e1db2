"""Errors and warnings of ptynb.

Each error has a `code`, "subject.problem", which stays the same when its message is improved: programs and tests
compare the code and show the message. `CODES` lists all of them. Errors about options or settings have their names in
`fields`, and in `proposals` values for them: a form marks these fields, shows the proposals in its own units, and the
message as it is. An error that is raised again with more context keeps all of it by `retold`; `about` names the fields
of errors of functions that do not know them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, SupportsFloat, TypeVar

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

E = TypeVar("E", bound="PtynbError")

CODES: dict[str, str] = {
    "acquisition.cancelled": "The wait for a scan was cancelled by the user.",
    "acquisition.damaged-message": "A message of a detector or of a source of positions cannot be read.",
    "acquisition.failed": "A receiver has ended by an error.",
    "acquisition.no-count": "The number of patterns is neither in the plan nor in the header of the series.",
    "acquisition.no-positions": "There are no positions: none planned, and no source of them.",
    "acquisition.not-started": "A scan that is listened to has not begun within the given time.",
    "acquisition.source-lost": "A source of patterns or positions has closed its connection, or cannot be reached.",
    "argument.conflict": "Arguments exclude each other.",
    "argument.invalid-type": "An argument has an unsupported type.",
    "argument.invalid-value": "An argument is out of range or not among the choices.",
    "argument.missing": "A required argument is missing.",
    "argument.unknown": "There is no argument of this name.",
    "array.not-finite": "An array contains NaN or infinite values.",
    "array.shape-mismatch": "Arrays have different or unexpected shapes.",
    "branch.exists": "There is a branch of this name already.",
    "branch.invalid-name": "A name of a branch contains characters that are not allowed.",
    "branch.not-found": "A reconstruction has no branch of this name.",
    "branch.not-removable": 'The present branch and "main" cannot be removed.',
    "checkpoint.disabled": "The reconstruction writes no checkpoints (checkpointing=None).",
    "checkpoint.exists": "The folder holds checkpoints of an earlier run.",
    "checkpoint.failed": "A checkpoint could not be written.",
    "checkpoint.incomplete": "Files of other ranks that belong to a checkpoint are missing.",
    "checkpoint.invalid-transfer": "Checkpointing.transfer is not a function that can be imported.",
    "checkpoint.not-found": "The reconstruction has no such checkpoint.",
    "checkpoint.other-model": "A checkpoint has another model than the settings and extensions make.",
    "checkpoint.other-scan": "A checkpoint was created from another scan.",
    "checkpoint.other-settings": "A checkpoint has settings that cannot change in a reconstruction.",
    "checkpoint.present": "The reconstruction is at this checkpoint, or on this branch, already.",
    "checkpoint.timeout": "A checkpoint was not written in time.",
    "cluster.duplicate-rank": "Two running engines have the same rank.",
    "cluster.elsewhere": "A cluster was started on another machine and cannot be ended from here.",
    "cluster.engine-not-replaced": "A scheduler cannot start an engine again in the place of a lost one.",
    "cluster.held-elsewhere": "Another running process holds the cluster.",
    "cluster.mixed-devices": "Some engines of a cluster compute on GPUs and others on the CPU.",
    "cluster.no-address": "No address or interface of this machine leads to the engines.",
    "cluster.not-found": "No cluster has this name.",
    "cluster.not-reachable": "A running cluster does not answer.",
    "cluster.selftest-failed": "The self-test of the engines failed.",
    "cluster.start-cancelled": "The user cancelled the start of a cluster, such as its wait in a queue.",
    "cluster.start-failed": "A process of the cluster ended while the cluster started.",
    "cluster.stopped": "The cluster was stopped by request.",
    "cluster.unknown-kind": "A cluster was started by another version, in a way that this one does not have.",
    "comparison.area-outside": "The area to compare does not lie inside both images.",
    "comparison.area-too-small": "The common area has too few pixels to compare.",
    "comparison.not-comparable": "A result cannot be compared with the others.",
    "comparison.nothing-to-fit": "The area to compare is zero everywhere, or not finite.",
    "comparison.registration-failed": "One object cannot be registered to the other.",
    "component.invalid-parameter": "A parameter of a custom component cannot be optimised.",
    "component.unsupported-optimiser": "The optimiser supports no other components than object and probe.",
    "engine.busy": "The engines have another reconstruction.",
    "engine.failed": "An error on an engine that is not one of ptynb's.",
    "engine.lost": "An engine's process has ended or cannot be reached.",
    "engine.no-answer": "An engine did not answer in time.",
    "engine.parameters-differ": "The engines hold different parameters, by a bug or a hardware fault.",
    "environment.invalid": "Environment variables of ranks (RANK, WORLD_SIZE) are missing or contradict each other.",
    "export.exists": "There is something at an address of a server already.",
    "export.server-failed": "A server cannot be reached, or does not accept a result.",
    "export.too-large": "The arrays are larger than the file format allows.",
    "file.being-written": "A file is still being written, or its writer was ended.",
    "file.count-mismatch": "The numbers of positions and patterns in a file differ.",
    "film.too-few-epochs": "A film needs at least two epochs that were kept.",
    "file.damaged": "A file is damaged or cut short; copy it again.",
    "file.incomplete": "A file lacks a group, dataset or attribute.",
    "file.link-not-allowed": "A file refers to another one that may not be read.",
    "file.not-found": "A file or folder does not exist.",
    "file.not-private": "A file that only its user may write can be written by others.",
    "file.not-readable": "The system does not let a file be read.",
    "file.not-writable": "A file cannot be written.",
    "file.reader-failed": "A file cannot be read, by a fault of ptynb.",
    "file.several-choices": "Several datasets may be the requested one; name one.",
    "file.too-large": "What a file announces is too large to be read.",
    "file.too-many-links": "Links of a file are too many, too deep, or circular.",
    "file.unexpected-content": "A value in a file has another type or shape than expected.",
    "file.unknown-format": "A file is of no supported format.",
    "file.unsupported-content": "A file of a supported format has content that is not supported.",
    "file.unsupported-version": "A file was written by a newer version of ptynb.",
    "geometry.degenerate": "Vectors of a tilted geometry do not define planes and directions.",
    "gpu.driver-failed": "Nvidia-smi failed, or a GPU does not respond.",
    "gpu.no-float64": "A GPU has no 64-bit numbers, which the model needs.",
    "gpu.not-found": "GPU engines are requested and no GPU is found or visible.",
    "gpu.too-few": "There are fewer GPUs than engines.",
    "gpu.unusable": "No engine can start on a GPU, because of its mode, memory, UUID or MIG slices.",
    "group.address-invalid": "The address by which ranks find each other is missing or wrong.",
    "group.join-failed": "Ranks did not join a group in time, or do not match.",
    "group.no-answer": "Another rank did not answer within the time limit.",
    "guess.count-mismatch": "The initial guess and the scan have different numbers of patterns.",
    "guess.nothing-selected": "No part of the initial guess is selected or available.",
    "guess.pixel-size-mismatch": "The object pixels of the initial guess and of the scan have different sizes.",
    "guess.positions-outside-object": "The positions reach too far beyond the object of the initial guess.",
    "guess.window-mismatch": "The probe of the initial guess has another window than the patterns.",
    "job.exists": "There is another job of this id.",
    "job.incomplete": "A run has ended without saying how.",
    "job.lost": "A job was lost by its workers too often.",
    "job.no-file": "A job has no such file, or not yet.",
    "job.not-found": "There is no job of this id that the user may see.",
    "job.time-limit": "A job took longer than the site allows.",
    "job.wrong-status": "The status of a job does not allow the request.",
    "kernel.unsupported": "Arrays have a size, type or device that has no compiled step.",
    "memory.insufficient": "The memory does not suffice for a reconstruction.",
    "package.not-installed": "An optional package is not installed.",
    "patterns.not-enough-memory": "The patterns do not fit in memory.",
    "patterns.not-in-file": "Patterns cannot be read for each batch, since they are in memory only.",
    "plugin.failed": "A plug-in of another package cannot be imported, or has raised an error.",
    "plugin.invalid": "A plug-in is not what its kind of plug-ins has to be.",
    "plugin.not-installed": "A plug-in that is named is not installed.",
    "plugin.other-version": "A plug-in is installed in another version than the one that is needed.",
    "probe.focus-outside": "The focus lies outside the given distances.",
    "probe.pixels-too-large": "The pixels are too large to sample the probe.",
    "probe.too-few-pixels": "The probe is nonzero in too few pixels for its modes.",
    "probe.window-too-small": "The probe does not fit in its window.",
    "reconstruction.ambiguous": "Several reconstructions run, and none is named.",
    "reconstruction.busy": "A run, or the opening of engines, is under way.",
    "reconstruction.closed": "The reconstruction is closed.",
    "reconstruction.failed": "The reconstruction has failed, and has no present state.",
    "reconstruction.no-result": "The reconstruction has no result.",
    "reconstruction.not-finite": "The loss or a parameter is not finite.",
    "reconstruction.not-found": "No reconstruction runs that could be attached to.",
    "reconstruction.not-recoverable": "Recover() is called and no engine was lost.",
    "reconstruction.not-reopened": "Engines could not be opened again from a checkpoint.",
    "reconstruction.not-running": "No run is under way.",
    "reconstruction.window-left-tile": "A pattern's window has moved beyond its tile, or the rows of its band.",
    "reconstruction.stopped": "The run was stopped meanwhile.",
    "report.no-result": "There is no result to report.",
    "run.locked": "Another process works in the folder of a run.",
    "scan.combined": "The operation does not support a scan that is made of several.",
    "scan.different": "Scans differ in what they have to have in common to be combined.",
    "scan.disjoint": "Scans that share an object do not overlap.",
    "scan.empty": "All patterns are empty.",
    "scan.has-object-guess": "The scan has an object guess, which the operation does not support.",
    "scan.implausible-metadata": "A number in a file is only explained by a wrong unit.",
    "scan.invalid-count": "A pattern contains negative or non-finite counts.",
    "scan.invalid-guess": "The initial guess of probe or object does not fit the scan.",
    "scan.live": "The operation does not support a scan that is being measured.",
    "scan.mask-empty": "The mask excludes all pixels.",
    "scan.missing-metadata": "A file lacks metadata that a scan needs; give them as options.",
    "scan.near-field": "The operation does not support near-field scans.",
    "scan.no-bright-field-disc": "No bright-field disc was found in the mean pattern.",
    "scan.no-geometry": "The operation requires a geometry.",
    "scan.no-rotation": "The rotation between scan and detector cannot be determined.",
    "scan.not-in-file": "The scan cannot be loaded from a file alone; it has to be passed.",
    "scan.not-received": "The scan is not one that is received while it is measured.",
    "scan.nothing-left": "No pattern would be left.",
    "scan.other": "The scan is not the one of the result.",
    "scan.patterns-lost": "The patterns were in the memory of a process that has ended.",
    "scan.patterns-unreadable": "Patterns cannot be read from their file.",
    "scan.position-disconnected": "A position is separated from all others.",
    "scan.position-outside": "A position lies outside the given object.",
    "scan.raster-mismatch": "A raster has another number of positions than there are patterns.",
    "scan.survey-incomplete": "The survey covers too few patterns.",
    "scan.tilted-geometry": "The operation does not support tilted geometries.",
    "scan.too-few-patterns": "The scan has too few patterns for the operation.",
    "scan.too-small": "The patterns have too few pixels.",
    "scan.wrong-survey": "The survey belongs to another scan.",
    "scheduler.command-failed": "A command of a scheduler failed.",
    "scheduler.no-answer": "A command of a scheduler did not answer in time.",
    "scheduler.not-installed": "A command of a scheduler is not found.",
    "service.failed": "The service has failed by a fault of ptynb.",
    "service.invalid-database": "The database of the service cannot be used.",
    "service.invalid-request": "A request to the service is not one of those in its OpenAPI document.",
    "service.limit-reached": "A limit of the site for its users is reached.",
    "service.no-token": "A request to the service has no valid token.",
    "service.not-allowed": "The service does not allow what a run file, a request or its own options name.",
    "service.too-large": "A request to the service is too large.",
    "service.unavailable": "The database of the service does not answer.",
    "settings.batch-too-small": "A batch has fewer patterns than there are engines.",
    "settings.given-twice": "A setting is given under two names.",
    "settings.invalid-name": "The name of a setting is not text.",
    "settings.invalid-toml": "The site file is not valid TOML.",
    "settings.invalid-value": "A setting has an invalid type or value.",
    "settings.invalid-yaml": "The text is not valid YAML.",
    "settings.not-a-mapping": "The settings are not a mapping of names to values.",
    "settings.not-confirmed": "A run file has lines that run code or reach other machines, which were not confirmed.",
    "settings.not-live": "A setting that is not live cannot change during a run.",
    "settings.not-reconfigurable": "The reconstruction cannot continue with these settings.",
    "settings.too-large": "The text of the settings is too long.",
    "settings.unknown-name": "There is no setting of this name.",
    "settings.unsupported-combination": "Settings are valid, but not supported together.",
    "settings.wrong-order": "The lower limit is above the upper one.",
    "slurm.job-too-small": "The present Slurm job lacks what is requested.",
    "slurm.no-job": "There is no running Slurm job around this process.",
    "slurm.unequal-nodes": "The nodes of the present Slurm job differ, or Slurm does not list their resources.",
    "ssh.not-installed": "The ssh command is not found.",
    "ssh.unreachable": "A host cannot be used by ssh.",
    "ssh.version-mismatch": "A host lacks a package, or has another version than this machine.",
    "tuning.already-running": "A study is running on the engines.",
    "tuning.cancelled": "The trials were cancelled.",
    "tuning.different-study": "The file contains a study with other choices.",
    "tuning.file-in-use": "The file is in use by another study.",
    "tuning.invalid-range": "A range of a setting to tune is invalid.",
    "tuning.invalid-score": "A metric did not return a finite number.",
    "tuning.no-complete-trial": "No trial is complete yet.",
    "tuning.no-engines-left": "All engines of the study were lost.",
    "tuning.run-closed": "The reconstruction of a trial was closed before its end.",
    "tuning.too-little-memory": "The trials need more memory than is available.",
    "tuning.too-many-engines": "A trial requires more engines than the cluster has.",
    "tuning.trials-failed": "Too many trials in a row have failed.",
    "widget.nothing-selected": "A click needs a selection in a list, and there is none.",
    "widget.selection-gone": "The selected item does not exist any more.",
    "workbench.cluster-stopped": "The cluster of the workbench was stopped.",
    "workbench.no-cluster": "The workbench has not started engines.",
    "workbench.no-reconstruction": "The workbench has no reconstruction.",
    "workbench.no-scan": "The workbench has no scan.",
    "workbench.run-active": "A run is active in the workbench.",
}
"""Codes and their meanings."""


class PtynbError(Exception):
    """Base class of the errors that ptynb raises.

    Parameters
    ----------
    message : str
        Text with the actual value, the expected one, and a remedy.
    code : str
        Kind of problem, one of `ptynb.exceptions.CODES`.
    fields : tuple of str
        Dotted names of the options or settings that the message is about, such as "probe.modes".
    proposals : mapping of str to float or str
        Values that the message proposes for some of the fields, in the units of their options.
    """

    code = ""
    fields: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        """Add a section Parameters to the docstring of a class that has none."""
        own, base = cls.__doc__, PtynbError.__doc__
        if cls.__init__ is PtynbError.__init__ and own and base:
            cls.__doc__ = own + base[base.index("\n") :]

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        fields: tuple[str, ...] = (),
        proposals: Mapping[str, float | str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.fields, self.proposals = code, fields, proposals or {}

    def retold(self, kind: type[E], message: str) -> E:
        """Return an error of another kind and message about the same: with this code, these fields and proposals.

        Parameters
        ----------
        kind : type
            Class of the error.
        message : str
            Its text.

        Returns
        -------
        PtynbError
            The error, of that class.
        """
        return kind(message, code=self.code, fields=self.fields, proposals=self.proposals)


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
        Text with the actual value, the expected one, and a remedy.
    problems : tuple of ErrorDetails
        Entry of pydantic for each invalid field.
    code : str
        Kind of the first problem, one of `ptynb.exceptions.CODES`.
    fields : tuple of str
        Dotted names of the settings that the message is about, such as "probe.modes".
    proposals : mapping of str to float or str
        Values that the message proposes for some of them.
    """

    def __init__(
        self,
        message: str = "",
        problems: tuple[ErrorDetails, ...] = (),
        *,
        code: str = "",
        fields: tuple[str, ...] = (),
        proposals: Mapping[str, float | str] | None = None,
    ) -> None:
        super().__init__(message, code=code, fields=fields, proposals=proposals)
        self.problems = problems


class PluginError(PtynbError, ValueError):
    """A plug-in of another package is not installed, or has failed."""


class AcquisitionError(PtynbError, RuntimeError):
    """A scan cannot be received: its source fails, or sends what cannot be read."""


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


class ServiceError(PtynbError, RuntimeError):
    """The service of `ptynb serve` cannot do what was requested, or cannot start."""


@contextmanager
def about(*fields: str) -> Iterator[None]:
    """Name the fields of an error of what is done inside, unless it names its own.

    Parameters
    ----------
    *fields : str
        Dotted names of the options or settings.
    """
    try:
        yield
    except PtynbError as error:
        error.fields = error.fields or fields
        raise


def check_positive(value: float, name: str, unit: str = "", field: str = "") -> None:
    """Raise InvalidValueError for a number that is not positive and finite. field: name of the option that it is."""
    if not isinstance(value, SupportsFloat) or not (math.isfinite(value) and value > 0):
        raise InvalidValueError(
            f"The {name} is {value!r}{f' {unit}' if unit else ''}; expected a positive, finite number.",
            code="argument.invalid-value",
            fields=(field,) if field else (),
        )


def check_choice(value: object, name: str, choices: Sequence[str]) -> None:
    """Raise InvalidValueError for a value of an argument that is none of the choices."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise InvalidValueError(
            f"{name} is {value!r}; expected {', '.join(others)} or {last}.",
            code="argument.invalid-value",
            fields=(name,),
        )


class PtynbWarning(UserWarning):
    """Base class of the warnings of ptynb."""
