"""Run files that others submit: what they may name, and how they are kept.

What a run file reads has to lie in the folders of data, after links are followed; all that it writes is in the folder
of its job. Fields that call functions, run programs or connect to other machines are refused unless the site allows
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptynb.batch.run_folder import RESULT, RUN
from ptynb.exceptions import ServiceError, SettingsError
from ptynb.settings.base_models import check_names
from ptynb.settings.cluster_options import QUEUED, ClusterSection
from ptynb.settings.constraints import ConstraintPlugin
from ptynb.settings.load_options import MAY_BE_ARRAYS, LoadOptions
from ptynb.settings.plugin_entries import ComponentPlugin
from ptynb.settings.recipe import PrepareStep
from ptynb.settings.run_files.listen_section import FILES, ListenSection
from ptynb.settings.run_files.run_file import RunFile
from ptynb.settings.run_files.trusted_fields import marked
from ptynb.settings.yaml_reader import read_mapping
from ptynb.text import quoted

PICTURES = 10.0
"""Time between pictures of a run, if its file does not say [s]."""
HERE = ("local", "none")
"""Kinds of clusters on the machine of the worker."""
Change = Callable[[str, str], str]
"""A function (name of the field, path) that returns the path to use in its place."""


@dataclass(frozen=True)
class RunRules:
    """What a run file may name.

    data: folders of scans; paths that are not absolute are in the first. trust: whether fields that call functions, run
    programs or connect to other machines are accepted. engines: most of a job; None: no limit.
    """

    data: tuple[Path, ...]
    trust: bool = False
    engines: int | None = None

    def accepted(self, run: str | Mapping[str, Any], base: Path | None = None) -> str:
        """Return a run file, given as YAML or as plain values, as the JSON by which a job is run.

        base: folder to which its paths are relative; None: the first folder of data.
        Raises SettingsError if it is not valid, ServiceError if it names what it may not.
        """
        if not isinstance(run, str):  # by the reader that limits size, depth and number of values
            run = json.dumps(run, ensure_ascii=False)
        values = read_mapping(run, "run file", "epochs: 200")
        check_names(values)
        if not self.data:
            raise ServiceError(
                "No folder of data is named, from which scans may be read; whoever runs the service names it with "
                "--data, or in the site file.",
                code="service.not-allowed",
            )
        base = self.data[0] if base is None else base
        sections = {name: values.get(name) for name in ("checkpointing", "listen")}
        for name, section in sections.items():
            if isinstance(section, Mapping):  # all that is written is in the folder of the job
                values[name] = {key: value for key, value in section.items() if key != "folder"}
        whole = RunFile(**{**values, "result": RESULT}).placed(base, base / RUN)
        self._check_trust(whole)
        self._check_engines(whole)
        return self._kept(with_paths(whole, self._allowed))

    def _kept(self, run: RunFile) -> str:
        pictures = run.checkpointing.pictures or PICTURES
        checkpointing = run.checkpointing.model_copy(update={"pictures": pictures})
        update = {"result": Path(RESULT), "checkpointing": checkpointing}
        plain = run.model_copy(update=update).as_given()
        for name in ("checkpointing", "listen"):
            if plain.get(name):
                plain[name].pop("folder", None)  # it is in that of the job
        return json.dumps(plain, sort_keys=True)

    def _check_trust(self, run: RunFile) -> None:
        lines = [] if self.trust else [*marked(run)]
        if lines:
            named = ", ".join(f"{line.name}: {quoted(line.value)}" for line in lines)
            raise ServiceError(
                f"The run file calls functions, runs programs or connects to other machines ({named}), which this "
                "service does not allow; leave that out.",
                code="service.not-allowed",
            )
        if not self.trust:
            _check_entries(run)
        if run.cluster.kind not in HERE and not self.trust:
            raise ServiceError(
                f"cluster.kind is '{run.cluster.kind}', and this service runs jobs on the machines of its workers; "
                "expected 'local' or 'none'.",
                code="service.not-allowed",
            )

    def _check_engines(self, run: RunFile) -> None:
        if self.engines is None:
            return
        engines = _engines(run.cluster)
        if engines is None or engines > self.engines:
            given = "not given, and may become larger" if engines is None else str(engines)
            where = {"slurm": "cluster.nodes or engines_per_node", "ssh": "that of engines in cluster.hosts"}
            raise ServiceError(
                f"The number of engines is {given}; a job may have up to {self.engines}: give that, or less, as "
                f"{where.get(run.cluster.kind, 'cluster.engines')}.",
                code="service.limit-reached",
            )

    def _allowed(self, name: str, path: str) -> str:
        """Return a path with links followed. Raises ServiceError if it is not in a folder of data, or not there."""
        try:
            found = Path(path).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            found = None
        if found is None or not any(found.is_relative_to(folder.resolve()) for folder in self.data):
            places = ", ".join(map(str, self.data))
            raise ServiceError(
                f"{name} is {quoted(path)}, which is no file or folder in the folders of data; expected one in "
                f"{places}, which does not lead out of them by links.",
                code="service.not-allowed",
            )
        return str(found)


def _engines(cluster: ClusterSection) -> int | None:
    """Return the number of engines; None if it depends on the machines."""
    if cluster.kind == "none":
        return 1
    if cluster.kind == "ssh":
        counts = [*cluster.hosts.values()]
        return None if None in counts else sum(counts)
    if cluster.kind == "slurm" and cluster.nodes is None:  # those of the present job
        return None
    engines: int | None = cluster.engines
    return 1 if engines is None and cluster.kind in QUEUED else engines


def _check_entries(run: RunFile) -> None:
    """Raise ServiceError if a stage has entries of plug-ins, of whose fields nobody knows which are paths."""
    for settings in (run.settings, *run.recipe.stage_settings):
        for name in ("components", "constraints"):
            for entry in getattr(settings, name):
                if isinstance(entry, ComponentPlugin | ConstraintPlugin):
                    raise ServiceError(
                        f"settings.{name} has {entry.kind!r} of a plug-in, whose fields may name files or more; this "
                        "service does not allow entries of plug-ins: leave it out.",
                        code="service.not-allowed",
                    )


def with_paths(run: RunFile, change: Change) -> RunFile:
    """Return a run file, whose paths are absolute, with another path for each that it reads."""
    scans = []
    for number, one in enumerate(run.scan):
        name = f"scan.{number}"
        update: dict[str, Any] = {"file": Path(change(f"{name}.file", str(one.file)))}
        update["load"] = _with_load_paths(one.load, f"{name}.load", change)
        update["prepare"] = _with_step_paths(one.prepare, f"{name}.prepare", change)
        update["start"] = None if one.start is None else Path(change(f"{name}.start", str(one.start)))
        scans.append(one.model_copy(update=update))
    update = {"scan": tuple(scans), "load": _with_load_paths(run.load, "load", change)}
    update["prepare"] = _with_step_paths(run.prepare, "prepare", change)
    update["start"] = None if run.start is None else Path(change("start", str(run.start)))
    update["listen"] = None if run.listen is None else _with_plan_paths(run.listen, change)
    return run.model_copy(update=update)


def _with_load_paths(load: LoadOptions, name: str, change: Change) -> LoadOptions:
    if load.links != "folder":
        raise ServiceError(
            f"{name}.links is {quoted(load.links)}, by which a scan could refer to any file; expected 'folder'.",
            code="service.not-allowed",
        )
    update = {}
    for field in MAY_BE_ARRAYS:
        value = getattr(load, field)
        if value is None:
            continue
        if Path(value).is_absolute():  # it was a file when paths were made absolute, or it is meant to be one
            update[field] = change(f"{name}.{field}", value)
        elif ".." in Path(value).parts or value.startswith("~") or Path(value).drive:
            raise ServiceError(
                f"{name}.{field} is {quoted(value)}, which is no file in the folders of data; expected the path of "
                "one, or the name of a dataset without '/' at its beginning.",
                code="service.not-allowed",
            )
    return load.model_copy(update=update)


def _with_step_paths(steps: tuple[PrepareStep, ...], name: str, change: Change) -> tuple[PrepareStep, ...]:
    found = []
    for number, step in enumerate(steps):
        paths = {field: change(f"{name}.{number}.{field}", step.arguments[field]) for field in step.files}
        found.append(step.model_copy(update={"arguments": {**step.arguments, **paths}}))
    return tuple(found)


def _with_plan_paths(listen: ListenSection, change: Change) -> ListenSection:
    names = [name for name in FILES if getattr(listen.plan, name) is not None]
    plan = {name: change(f"listen.plan.{name}", getattr(listen.plan, name)) for name in names}
    source = listen.source if "://" in listen.source else change("listen.source", listen.source)
    return listen.model_copy(update={"source": source, "plan": listen.plan.model_copy(update=plan)})


def read_template(path: Path) -> dict[str, Any]:
    """Return the values of a run file whose scan is filled in for each new one. Raises SettingsError."""
    values = read_mapping(path, "run file", "epochs: 200")
    if "listen" in values:
        raise SettingsError(
            f"{path} has a section 'listen', and scans of a watched folder are complete files; leave it out.",
            code="argument.conflict",
        )
    given = values.get("scan")
    if isinstance(given, list | tuple) and len(given) != 1:
        raise SettingsError(
            f"{path} has {len(given)} scans, and scan is filled in with each new one; expected one, with its load and "
            "prepare, or none.",
            code="settings.invalid-value",
        )
    try:
        RunFile(**filled(values, Path("scan.h5")))
    except SettingsError as error:
        raise error.retold(SettingsError, f"{path}: {error}") from None
    return values


def filled(template: Mapping[str, Any], scan: Path) -> dict[str, Any]:
    """Return the values of a template with a scan; options of its own scan stay."""
    given = template.get("scan")
    if isinstance(given, list | tuple) and len(given) == 1:
        given = given[0]
    options = given if isinstance(given, Mapping) else {}
    return {**template, "scan": [{**options, "file": str(scan)}], "result": RESULT}
