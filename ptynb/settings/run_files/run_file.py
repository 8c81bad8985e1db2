"""Run files: scans or a source of one, epochs, result, settings, checkpoints and cluster of a run without a notebook.

The file is YAML; paths are relative to its folder. A file with settings only is accepted if scan, epochs and result
are given on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_core import ErrorDetails

from ptynb.data.scan import Share
from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings.base_models import (
    MOST_EPOCHS,
    MOST_PROBLEMS,
    FileSection,
    SettingsModel,
    check_names,
    closest,
    code_of,
    dotted,
    merge,
    message_of,
    names_beside,
)
from ptynb.settings.checkpointing import Checkpointing
from ptynb.settings.cluster_options import CLUSTERS, AnyCluster, LocalCluster
from ptynb.settings.load_options import ONE_OR_TWO, LoadOptions, without_arrays
from ptynb.settings.recipe import PrepareStep, Recipe, Stage, check_stages
from ptynb.settings.run_files.listen_section import ListenSection, expanded
from ptynb.settings.run_files.run_changes import RunChange, changed
from ptynb.settings.settings import Settings
from ptynb.settings.yaml_reader import read_mapping
from ptynb.text import quoted

Shift = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]


class RunScan(FileSection):
    """One of the scans of a run, with what differs from the others. In files, the name of its file alone suffices."""

    file: Path = Field(description="File with the scan")
    load: Annotated[LoadOptions, AfterValidator(without_arrays)] = Field(
        default=LoadOptions(), description="Metadata of this scan, beside and before `load` of the run"
    )
    prepare: tuple[PrepareStep, ...] = Field(
        default=(), description="Steps of preparation of this scan, after `prepare` of the run"
    )
    start: Path | None = Field(
        default=None,
        description="Result, of ptynb or another package, with the initial object, probe and positions of this scan",
    )
    shift: Annotated[tuple[Shift, Shift] | None, ONE_OR_TWO] = Field(
        default=None,
        description="Vector (y, x) that is added to the positions of a scan which shares an object [object pixels]",
    )

    def placed(self, folder: Path) -> Self:
        """Return the scan with paths relative to `folder`."""
        start = None if self.start is None else folder / expanded(self.start)
        steps = tuple(step.resolved(folder) for step in self.prepare)
        placed = {"file": folder / expanded(self.file), "load": self.load.resolved(folder)}
        return self.model_copy(update={**placed, "prepare": steps, "start": start})


def _one_or_several(value: Any) -> Any:
    """Return a list of scans, each with the name of its file at least."""
    entries = value if isinstance(value, list | tuple) else [value]
    return [one if isinstance(one, Mapping | RunScan) else {"file": one} for one in entries]


class RunFile(SettingsModel):
    """A run without a notebook."""

    scan: Annotated[tuple[RunScan, ...], BeforeValidator(_one_or_several)] = Field(
        description="File with the scan, or a list of several, each the name of a file, or a mapping with file, load, "
        "prepare, start and shift",
    )
    listen: ListenSection | None = Field(
        default=None, description="In place of scan and load: a scan that is reconstructed while it is measured"
    )
    share: Share | None = Field(default=None, description="What several scans have in common: probe or object")
    load: Annotated[LoadOptions, AfterValidator(without_arrays)] = Field(
        default=LoadOptions(), description="Metadata that the file of the scan lacks, or that are to be replaced"
    )
    epochs: int = Field(
        ge=1,
        le=MOST_EPOCHS,
        description="Total number of epochs, including those before a --resume; by default those of all stages",
    )
    result: Path = Field(description="File for the result")
    start: Path | None = Field(
        default=None,
        description="Result, of ptynb or another package, with the initial object, probe and positions",
    )
    prepare: tuple[PrepareStep, ...] = Field(
        default=(),
        description="Steps of preparation of the scan, in this order: functions of ptynb.preparation and their "
        "arguments, such as '- crop: 128'; arrays are in files",
    )
    cluster: AnyCluster = Field(default=LocalCluster(), description="Engines of the run")
    checkpointing: Checkpointing = Field(
        default=Checkpointing(),
        description="Checkpoints and pictures of the run; their folder is named after the result",
    )
    on_failure: Literal["pause", "continue"] = Field(
        default="continue",
        description="What to do after the loss of an engine: stop, or continue from the latest checkpoint",
    )
    settings: Settings = Field(default=Settings(), description="Settings of the reconstruction")
    stages: tuple[Stage, ...] = Field(
        default=(), description="Stages of the run, one after the other, each with its changes of the settings"
    )

    @field_validator("result")
    @classmethod
    def _file(cls, result: Path) -> Path:
        if result.name in ("", ".."):
            raise InvalidValueError(
                "expected the name of a file, such as scan.result.h5", code="settings.invalid-value"
            )
        return result

    @model_validator(mode="before")
    @classmethod
    def _sections(cls, values: Any) -> Any:
        """Replace empty sections by their defaults, and what is missing: epochs by stages, cluster local."""
        if not isinstance(values, Mapping):
            return values
        empty: dict[str, Any] = {
            "cluster": {},
            "checkpointing": {},
            "load": {},
            "settings": {},
            "prepare": (),
            "stages": (),
        }
        values = {name: empty.get(name) if value is None else value for name, value in values.items()}
        if values.get("listen") is not None:
            values = {"scan": (), **values}
        stages = values.get("stages")
        if "epochs" not in values and isinstance(stages, list | tuple):
            counts = [one.get("epochs") if isinstance(one, Mapping) else getattr(one, "epochs", None) for one in stages]
            whole = [count for count in counts if isinstance(count, int)]
            values |= {"epochs": sum(whole)} if whole and len(whole) == len(counts) else {}
        cluster = values.get("cluster")
        if isinstance(cluster, Mapping) and "kind" not in cluster:
            values["cluster"] = {"kind": "local", **cluster}
        return values

    @model_validator(mode="after")
    def _valid_stages(self) -> Self:
        check_stages(self.settings, self.stages)
        return self

    @model_validator(mode="after")
    def _valid_listening(self) -> Self:
        if self.listen is None:
            return self
        others = {
            "scan": (bool(self.scan), "give one of them"),
            "load": (bool(self.load.names), "the geometry belongs to listen.plan"),
            "share": (self.share is not None, "one scan can be received at a time: leave it out"),
            "start": (self.start is not None, "give listen.plan.probe, which may be a result"),
            "prepare": (bool(self.prepare), "crop by listen.plan.window, or prepare the scan after its end"),
        }
        for name, (is_given, remedy) in others.items():
            if is_given:
                raise InvalidValueError(f"{name} and listen exclude each other; {remedy}", code="argument.conflict")
        if self.cluster.kind not in ("local", "none"):
            raise InvalidValueError(
                f"cluster.kind is '{self.cluster.kind}', and listen needs engines on this machine, where they read the "
                "patterns that are received; expected 'local' or 'none'",
                code="argument.conflict",
            )
        for number, stage in enumerate(self.stages, 1):
            if stage.pattern_size is not None:
                raise InvalidValueError(
                    f"stage {number} has pattern_size, and the patterns of a scan that is being measured keep their "
                    "size; leave it out, or crop by listen.plan.window",
                    code="argument.conflict",
                )
        return self

    @model_validator(mode="after")
    def _valid_scans(self) -> Self:
        if self.listen is not None:
            return self
        if not self.scan:
            raise InvalidValueError("scan is []; expected at least 1 file", code="settings.invalid-value")
        several = len(self.scan) > 1
        if several and self.share is None:
            raise InvalidValueError(
                f"{len(self.scan)} scans are given, and not what they have in common; add 'share: probe' or "
                "'share: object' (--share)",
                code="argument.missing",
            )
        if self.share is not None and not several:
            raise InvalidValueError(
                f"share is '{self.share}', and one scan is given; give several, as 'scan: [a.h5, b.h5]' (--scan "
                "twice), or leave share out",
                code="argument.conflict",
            )
        if self.share != "object" and any(one.shift is not None for one in self.scan):
            raise InvalidValueError(
                "shift is given for a scan that shares no object with others, in whose coordinate system it would be; "
                "leave it out",
                code="argument.conflict",
            )
        if self.start is not None and (several or self.scan[0].start is not None):
            raise InvalidValueError(
                "start is given beside a list of scans; give each its own, as 'scan: [{file: a.h5, start: "
                "a.result.h5}, ...]'",
                code="argument.conflict",
            )
        for one in self.scan:
            try:
                self.options_of(one)
            except SettingsError as error:
                raise error.retold(
                    InvalidValueError,
                    f"the options of {quoted(str(one.file))} do not fit those of all scans: {str(error).rstrip('.')}",
                ) from None
        return self

    def options_of(self, scan: RunScan) -> LoadOptions:
        """Return the options of `ptynb.load` for one of the scans: its own, and those of all."""
        return LoadOptions(**self.load.arguments | scan.load.arguments)

    @property
    def recipe(self) -> Recipe:
        """Preparation, settings and stages."""
        return Recipe(prepare=self.prepare, settings=self.settings, stages=self.stages)

    def placed(self, folder: Path, name: Path) -> Self:
        """Return the run with paths relative to `folder` (that of the file), and a folder for the checkpoints."""
        result = folder / expanded(self.result)
        chosen = self.checkpointing.folder
        folder_of_states = chosen if chosen is not None else result.with_name(f"{result.stem}.states")
        checkpointing = self.checkpointing.model_copy(update={"folder": folder / expanded(folder_of_states)})
        start = None if self.start is None else folder / expanded(self.start)
        scans = tuple(one.placed(folder) for one in self.scan)
        placed: dict[str, Any] = {"scan": scans, "load": self.load.resolved(folder), "start": start}
        placed["prepare"] = tuple(step.resolved(folder) for step in self.prepare)
        placed["listen"] = None if self.listen is None else self.listen.resolved(folder, result)
        return self.model_copy(update={**placed, "result": result, "checkpointing": checkpointing})


def read_run(
    path: Path, options: Mapping[str, Any] | None = None, changes: Sequence[RunChange] = (), **defaults: Any
) -> RunFile:
    """Read a run file, or a file with settings only; its paths are relative to its folder.

    options: values that replace those of the file, parts given as mappings; their paths are relative to the working
    folder. Another kind of cluster replaces all of `cluster`. changes: others, as if they stood in the file. defaults:
    values of fields that are given nowhere.

    Raises SettingsError with the file, the field, and the expected values.
    """
    path, options = expanded(path), dict(options or {})
    values = _values(path)
    try:
        check_names(values)
    except SettingsError as error:
        raise error.retold(SettingsError, f"{path}: {error}") from None
    if not values.keys() & RunFile.model_fields.keys() and values.keys() & Settings.model_fields.keys():
        values = {"settings": values}  # a file with settings only
    values = {**defaults, **changed(values, changes)}
    for name in ("result", "start"):
        if name in options:
            options[name] = expanded(Path(options[name])).absolute()
    if "scan" in options:
        given = options["scan"] if isinstance(options["scan"], list) else [options["scan"]]
        options["scan"] = [expanded(Path(one)).absolute() for one in given]
    if (options.get("checkpointing") or {}).get("folder") is not None:
        chosen = options["checkpointing"]
        options["checkpointing"] = {**chosen, "folder": expanded(Path(chosen["folder"])).absolute()}
    kind = (options.get("cluster") or {}).get("kind")
    if kind is not None and kind != _kind_of(values.get("cluster")):
        values = {**values, "cluster": None}
    try:
        return RunFile(**merge(values, options)).placed(path.parent.absolute(), path)
    except SettingsError as error:
        if not error.problems:
            raise error.retold(SettingsError, f"{path}: {error}") from None
        # An unknown name comes first: it may be a misspelt one that is missing.
        problems = sorted(error.problems, key=lambda problem: problem["type"] != "extra_forbidden")
        source = _source(problems[0], changes) or path
        sentences = [_sentence(problem) for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            sentences.append(f"{len(problems) - MOST_PROBLEMS} more fields are invalid")
        text = f"{source}: {'; '.join(sentences)}."
        raise SettingsError(text, error.problems, code=code_of(problems), fields=error.fields) from None


def _source(problem: ErrorDetails, changes: Sequence[RunChange]) -> str:
    """Return where the invalid value was given, if not in the file."""
    parts = [str(part) for part in problem["loc"]]
    without_kind = [parts[0], *parts[2:]] if parts[:1] == ["cluster"] else parts
    for change in reversed(changes):
        given = change.name.split(".")
        shorter = [(place, min(len(given), len(place))) for place in (parts, without_kind)]
        if any(count and place[:count] == given[:count] for place, count in shorter):
            return change.source
    return ""


def _kind_of(cluster: Any) -> Any:
    return cluster.get("kind", "local") if isinstance(cluster, Mapping) else "local"


def _values(path: Path) -> dict[str, Any]:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise SettingsError(
            f"{path} {what}; expected a run file (ptynb run --example prints one).", code="file.not-found"
        )
    return read_mapping(path, "run file", "epochs: 200")


def _sentence(problem: ErrorDetails) -> str:
    """Return the message about one field, without a full stop."""
    location = problem["loc"]
    # The kind of the cluster is the second part of the location, and not a name in the file.
    shown = ("cluster", *location[2:]) if location[:1] == ("cluster",) else location
    name = dotted(shown)
    message = message_of(problem)
    if problem["type"] == "extra_forbidden":
        return _unknown(name, str(shown[-1]), names_beside(RunFile, location))
    if problem["type"] == "missing":
        option = f" in the file or by --{name}" if len(shown) == 1 else ""
        option += ", or a section 'listen'" * (name == "scan")
        return f"'{name}' is missing ({_description(shown)}); give it{option}"
    if problem["type"] == "union_tag_invalid" and shown == ("cluster",):
        kinds = ", ".join(f"'{model.model_fields['kind'].default}'" for model in CLUSTERS)
        return f"cluster.kind is {quoted(problem['input'].get('kind'))}; expected one of {kinds}"
    if problem["type"] == "string_pattern_mismatch":
        return f"{name} is {quoted(problem['input'])}; expected {_description(shown)}"
    if not name:
        return message
    if problem["type"] == "value_error" and isinstance(problem["input"], Mapping):
        return f"in {name}, {message}"
    return f"{name} is {quoted(problem['input'])}: {message}"


def _unknown(name: str, last: str, known: list[str]) -> str:
    if "." not in name and last in Settings.model_fields:
        return f"'{name}' is one of the settings; expected it below 'settings:'"
    return f"there is no field '{name}'{closest(last, known)}; expected one of {', '.join(known)}"


def _description(location: tuple[int | str, ...]) -> str:
    """Return the description of a field."""
    first, _, rest = dotted(part for part in location if isinstance(part, str)).partition(".")
    sections: dict[str, tuple[type[SettingsModel], ...]] = {
        "cluster": CLUSTERS,
        "checkpointing": (Checkpointing,),
        "load": (LoadOptions,),
        "listen": (ListenSection,),
        "scan": (RunScan,),
    }
    models = sections.get(first, (RunFile,)) if rest else (RunFile,)
    for model in models:
        field = model.model_fields.get(rest or first)
        if field is not None and field.description:
            return field.description[0].lower() + field.description[1:]
    return "another value"
