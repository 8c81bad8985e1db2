"""What run files of others may name: files in the folders of data, and nothing that runs code or reaches further."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from ptynb import plugins
from ptynb.exceptions import PtynbError
from ptynb.plugins import Plugin
from ptynb.service.submissions import RunRules, filled, read_template, with_paths
from ptynb.settings.base_models import TRUST
from ptynb.settings.constraints import ConstraintPlugin
from ptynb.settings.load_options import MAY_BE_ARRAYS
from ptynb.settings.plugin_entries import ComponentPlugin
from ptynb.settings.run_files.listen_section import FILES
from ptynb.settings.run_files.run_file import RunFile, read_run
from tests.raising import raises

RUN: dict[str, Any] = {"scan": "scan.h5", "epochs": 3}


@pytest.fixture
def rules(data: Path, tmp_path: Path) -> RunRules:
    (data / "mask.npy").write_bytes(b"")
    (data / "below").mkdir()
    (data / "below" / "start.h5").write_bytes(b"")
    (tmp_path / "secret.h5").write_bytes(b"")
    (data / "out.h5").symlink_to(tmp_path / "secret.h5")
    (data / "out").symlink_to(tmp_path)
    (data / "in.h5").symlink_to(data / "scan.h5")
    return RunRules((data,))


def kept(rules: RunRules, **values: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rules.accepted({**RUN, **values}))
    return found


def test_what_is_kept_is_the_same_run_with_whole_paths(rules: RunRules, data: Path, tmp_path: Path):
    values = {"settings": {"loss": "poisson"}, "start": "below/start.h5", "prepare": [{"mask_pixels": "mask.npy"}]}
    values |= {"load": {"mask": "mask.npy", "positions": "entry/y", "energy": 8e3}, "epochs": 7}
    run = kept(rules, **values)
    assert run["scan"][0]["file"] == str(data / "scan.h5")
    assert run["start"] == str(data / "below" / "start.h5")
    assert run["load"]["mask"] == str(data / "mask.npy")
    assert run["load"]["positions"] == "entry/y"
    assert run["prepare"] == [{"mask_pixels": {"mask": str(data / "mask.npy")}}]
    assert "folder" not in run["checkpointing"]
    assert run["checkpointing"]["pictures"] == 10.0
    (tmp_path / "submitted.yaml").write_text(json.dumps(run))
    read = read_run(tmp_path / "submitted.yaml")
    assert read.settings.loss == "poisson"
    assert (read.epochs, read.load.energy) == (7, 8e3)
    assert json.loads(rules.accepted(json.dumps(run))) == run, "it is accepted as it is kept"


def test_all_that_is_written_is_in_the_folder_of_the_job(rules: RunRules):
    values = {"result": "/etc/cron.d/x", "checkpointing": {"folder": "/etc", "pictures": 3}}
    run = kept(rules, **values)
    assert run["result"] == "result.h5"
    assert run["checkpointing"] == {"pictures": 3.0}


@pytest.mark.parametrize(
    "values",
    [
        {"scan": "/etc/passwd"},
        {"scan": "../secret.h5"},
        {"scan": "out.h5"},
        {"scan": "out/secret.h5"},
        {"scan": "below/../../secret.h5"},
        {"scan": "missing.h5"},
        {"scan": "~root/x.h5"},
        {"scan": "a" * 5000},
        {"scan": ["scan.h5", "out.h5"], "share": "probe"},
        {"scan": [{"file": "scan.h5", "start": "../secret.h5"}]},
        {"scan": [{"file": "scan.h5", "load": {"mask": "../secret.h5"}}]},
        {"scan": [{"file": "scan.h5", "prepare": [{"subtract_dark": "../secret.h5"}]}]},
        {"start": "out.h5"},
        {"load": {"positions": "out.h5"}},
        {"load": {"positions": "../later.npy"}},
        {"load": {"probe": "/later.npy"}},
        {"load": {"motion": "~/later.npy"}},
        {"load": {"links": "anywhere"}},
        {"prepare": [{"divide_flat": "/etc/passwd"}]},
        {"prepare": [{"divide_flat": "missing.npy"}]},
    ],
    ids=str,
)
def test_files_outside_of_the_data_are_refused(rules: RunRules, values: dict[str, Any]):
    with pytest.raises(PtynbError) as caught:
        rules.accepted({**RUN, **values})
    assert caught.value.code in ("service.not-allowed", "file.not-found", "settings.invalid-value")
    assert caught.value.code == "service.not-allowed" or "a" * 5000 in str(values) or "~root" in str(values)


def test_a_scan_that_is_listened_to_reads_only_data(rules: RunRules, data: Path):
    plan = {"extent": [[0, 1], [0, 1]], "units": "metres"}
    listen = {"source": "scan.h5", "positions": "entry/y,entry/x", "plan": plan, "folder": "/elsewhere"}
    alone = {"epochs": 3, "listen": listen, "cluster": {"kind": "none"}}
    run = json.loads(rules.accepted(alone))
    assert run["listen"]["source"] == str(data / "scan.h5")
    assert "folder" not in run["listen"]
    for changed in (
        {**listen, "source": "../secret.h5"},
        {**listen, "plan": {**plan, "mask": "out.h5"}},
        {**listen, "positions": "panda://host:8889?y=A.VAL.Mean&x=B.VAL.Mean"},
    ):
        with raises("service.not-allowed"):
            rules.accepted({**alone, "listen": changed})


@pytest.mark.parametrize(
    "values",
    [
        {"checkpointing": {"transfer": "os:remove"}},
        {"cluster": {"kind": "ssh", "hosts": ["other"]}},
        {"cluster": {"kind": "slurm", "nodes": 1}},
        {"cluster": {"kind": "slurm", "extra": ["--wrap=x"]}},
    ],
    ids=str,
)
def test_what_runs_code_or_reaches_further_needs_the_consent_of_the_site(rules: RunRules, values: dict[str, Any]):
    with raises("service.not-allowed"):
        rules.accepted({**RUN, **values})
    RunRules(rules.data, trust=True).accepted({**RUN, **values})


class Filed(ComponentPlugin):
    kind: Literal["filed"] = "filed"
    strength: float = Field(default=1.0, description="Strength")

    def component(self, scan: Any) -> Any:
        return None


class FiledToo(ConstraintPlugin):
    kind: Literal["filed"] = "filed"
    strength: float = Field(default=1.0, description="Strength")

    def impose(self, model: Any) -> None:
        return None


@pytest.mark.parametrize("section", ["components", "constraints"])
def test_entries_of_plug_ins_need_the_consent_of_the_site(
    rules: RunRules, section: str, monkeypatch: pytest.MonkeyPatch
):
    """Nobody knows what they do."""
    models = {"components": Filed, "constraints": FiledToo}
    monkeypatch.setattr(plugins, "named", lambda kind, name: Plugin(kind, name, "x", "1"))
    monkeypatch.setattr(plugins, "class_of", lambda plugin, base: models[plugin.kind])
    entries = {section: [{"kind": "filed", "strength": 2.0}]}
    for changed in (
        {"settings": entries},
        {"epochs": None, "stages": [{"epochs": 2, "settings": entries}, {"epochs": 1}]},
    ):
        given = {name: value for name, value in {**RUN, **changed}.items() if value is not None}
        with raises("service.not-allowed", section, "'filed'"):
            rules.accepted(given)
        RunRules(rules.data, trust=True).accepted(given)


def test_the_number_of_engines_is_limited(rules: RunRules):
    limited = RunRules(rules.data, trust=True, engines=4)
    for cluster in (
        {}, {"kind": "local"}, {"engines": 5}, {"kind": "slurm", "nodes": 5}, {"kind": "slurm"},
        {"kind": "slurm", "nodes": 2, "engines_per_node": 3}, {"kind": "pbs", "engines": 5},
        {"kind": "ssh", "hosts": ["a"]}, {"kind": "ssh", "hosts": {"a": 3, "b": 2}},
    ):  # fmt: skip
        with raises("service.limit-reached", "4"):
            limited.accepted({**RUN, "cluster": cluster})
    for cluster in (
        {"engines": 4}, {"kind": "local", "engines": 1}, {"kind": "none"}, {"kind": "slurm", "nodes": 2},
        {"kind": "slurm", "nodes": 2, "engines_per_node": 2}, {"kind": "pbs"}, {"kind": "lsf", "engines": 4},
        {"kind": "ssh", "hosts": {"a": 2, "b": 2}},
    ):  # fmt: skip
        run = limited.accepted({**RUN, "cluster": cluster})
        assert limited.accepted(run) == run, "what is run has the same number"


def test_without_folders_of_data_nothing_is_accepted():
    with raises("service.not-allowed", "--data"):
        RunRules(()).accepted(RUN)


def fields(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """The fields of a run file that hold a path or any text, with what is marked in them."""
    found: dict[str, Any] = {}

    def look(annotation: Any, name: str, extra: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            found.update(fields(annotation, f"{name}."))
        elif annotation in (str, Path, Any):
            found[name] = extra
        for part in typing.get_args(annotation) if typing.get_origin(annotation) is not typing.Literal else ():
            if not isinstance(part, types.EllipsisType):
                look(part, name, extra)

    for name, field in model.model_fields.items():
        look(field.annotation, f"{prefix}{name}", field.json_schema_extra or {})
    return found


def test_every_field_that_can_be_a_path_is_looked_at():
    """A new field of text has to be added here, and, if it is a path that is read, to `with_paths`."""
    read = {"scan.file", "scan.start", "start", "listen.source", *(f"listen.plan.{name}" for name in FILES)}
    read |= {f"{load}.{name}" for load in ("load", "scan.load") for name in MAY_BE_ARRAYS}
    read |= {"prepare.arguments", "scan.prepare.arguments"}
    written = {"result", "checkpointing.folder", "listen.folder"}
    names = {"load.patterns", "scan.load.patterns", "prepare.function", "scan.prepare.function", "listen.plan.name"}
    names |= {"load.aberrations", "scan.load.aberrations", "stages.settings", "stages.reason"}
    others = {
        name
        for name, extra in fields(RunFile).items()
        if TRUST not in extra and not name.startswith(("settings.", "cluster."))
    }
    assert others - read - written - names == set()
    by_settings = {name for name in fields(RunFile) if name.startswith("settings.")}
    assert not any("file" in name or "path" in name or "folder" in name for name in by_settings), by_settings


def test_every_path_that_is_read_is_changed(rules: RunRules, data: Path):
    plain = {"share": "probe", "load": {"mask": "mask.npy"}, "prepare": [{"subtract_dark": "mask.npy"}]}
    one = {"file": "scan.h5", "start": "below/start.h5", "load": {"probe": "mask.npy"}}
    scans = [{**one, "prepare": [{"divide_flat": "mask.npy"}]}, "in.h5"]
    run = RunFile(**{**RUN, **plain, "scan": scans, "result": "x.h5"}).placed(data, data / "run.yaml")
    seen: list[str] = []
    with_paths(run, lambda name, path: seen.append(name) or path)
    assert sorted(seen) == [
        "load.mask", "prepare.0.dark", "scan.0.file", "scan.0.load.probe", "scan.0.prepare.0.flat", "scan.0.start",
        "scan.1.file",
    ]  # fmt: skip


def test_templates(tmp_path: Path):
    path = tmp_path / "template.yaml"
    one = "{file: old.h5, load: {energy: 8e3}}"
    for scan in (one, f"[{one}]"):
        path.write_text(f"epochs: 5\nscan: {scan}\n")
        template = read_template(path)
        assert filled(template, Path("/data/new.h5"))["scan"] == [{"file": "/data/new.h5", "load": {"energy": 8e3}}]
    for text, code in (
        ("epochs: x\n", "settings.invalid-value"),
        ("listen: {}\nepochs: 3\n", "argument.conflict"),
        (f"epochs: 3\nscan: [{one}, old.h5]\n", "settings.invalid-value"),
        ("epochs: 3\nscan: []\n", "settings.invalid-value"),
    ):
        path.write_text(text)
        with raises(code, path):
            read_template(path)
