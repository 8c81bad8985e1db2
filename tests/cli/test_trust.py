"""Run files that do more than reconstruct: who is asked, and that no other file does so much."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
from pydantic import BaseModel, Field

import ptynb as pt
import ptynb.run
from ptynb import plugins
from ptynb.batch import batch_run
from ptynb.cli import main
from ptynb.cli.run_command import check_plan, plan_of, resume_command
from ptynb.cli.trust_prompt import lines_to_confirm
from ptynb.engine import checkpoint_writer
from ptynb.settings.base_models import TRUST, SettingsModel, kinds_in
from ptynb.settings.cluster_options import CLUSTERS, JOB_CLUSTERS
from ptynb.settings.constraints import ConstraintPlugin
from ptynb.settings.plugin_entries import PluginEntries
from ptynb.settings.run_files.run_file import RunFile, read_run
from ptynb.settings.run_files.run_file_example import example
from ptynb.settings.run_files.trusted_fields import marked
from tests.parametrization import each
from tests.raising import raises

LEAST = "scan: scan.h5\nepochs: 2\nresult: out.h5\n"
TRANSFER = "checkpointing: {transfer: 'helper:send', seconds: null, epochs: 1}\n"
SSH = "cluster: {kind: ssh, hosts: [one], ssh: [ssh, -J, gate], python: /opt/python, address: 10.0.0.1}\n"
PLAN = "plan: {count: 9, extent: [[0, 1], [0, 1]]}"
LIVE = "listen: {{source: '{}', positions: '{}', " + PLAN.replace("{", "{{").replace("}", "}}") + "}}\n"
LIVE += "epochs: 2\nresult: out.h5\n"
SSH_NAMES = ("cluster.hosts", "cluster.python", "cluster.ssh", "cluster.address")
SLURM = "cluster: {kind: slurm, nodes: 2, partition: gpu, extra: ['--wrap=id'], address: 10.0.0.1}\n"


@pytest.fixture
def run_file(tmp_path: Path) -> Any:
    def write(text: str, folder: str = "here") -> Path:
        path = tmp_path / folder / "run.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


class Terminal(io.StringIO):
    """What somebody types, or sees, at a terminal."""

    def isatty(self) -> bool:
        return True


def asked(monkeypatch: pytest.MonkeyPatch, answer: str, *line: str) -> str:
    """What is shown before the run of this command line, where somebody at a terminal would answer so."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown)
    chosen = main._parser().parse_args(["run", *line])
    check_plan(plan_of(chosen), chosen)
    return shown.getvalue()


@each(
    ("text", "names"),
    [
        (LEAST, []),
        (
            LEAST
            + "cluster: {engines: 3, threads: 2, detached_timeout: 5}\n"
            + "checkpointing: {folder: /data/kept, pictures: 1}\n",
            [],
        ),
        (LEAST + "cluster: {kind: slurm, nodes: 2, partition: gpu, account: beam, memory: 4G, time: 1:00:00}\n", []),
        (LEAST + TRANSFER, ["checkpointing.transfer"]),
        (LEAST + SSH, ["cluster.hosts", "cluster.python", "cluster.ssh", "cluster.address"]),
        (LEAST + SLURM, ["cluster.extra", "cluster.address"]),
        (LIVE.format("stream2://det", "panda://panda"), ["listen.source", "listen.positions"]),
        (LIVE.format("pva://PV", "planned").replace(PLAN, "plan: {positions: planned.npy}"), ["listen.source"]),
        (LIVE.format("raw/x_master.h5", "entry/y,entry/x"), []),
        (LEAST.replace("out.h5", "sub/.bashrc"), []),
        (LEAST.replace("out.h5", "~/.bashrc"), ["result"]),
        (LEAST.replace("out.h5", "../../x.pth"), ["result"]),
    ],
)
def test_lines_that_do_more_than_reconstruct_are_known(run_file: Any, text: str, names: list[str]) -> None:
    path = run_file(text)
    assert [line.name for line in lines_to_confirm(read_run(path), path)] == names


HARMLESS = {
    "Settings.loss": "is one of ptynb's, or of those that installed packages declare as plug-ins",
    "DataTerm.loss": "the same",
    "RunScan.file": "is read",
    "RunScan.start": "is read",
    "RunFile.start": "is read",
    "RunFile.result": "is written; `lines_to_confirm` looks at where",
    "Checkpointing.folder": "gets files whose names are ptynb's own",
    "LoadOptions.patterns": "is read",
    "LoadOptions.positions": "is read",
    "LoadOptions.motion": "is read",
    "LoadOptions.mask": "is read",
    "LoadOptions.probe": "is read",
    "ListenSection.folder": "is created, and has no scan before",
    "PlanSection.positions": "is read",
    "PlanSection.mask": "is read",
    "PlanSection.probe": "is read",
    "PlanSection.object": "is read",
    "PlanSection.name": "is shown",
    "PrepareStep.function": "is one of a table of names",
    "PrepareStep.arguments": "are numbers, and names of files of arrays that are read",
    "Stage.settings": "are values of Settings, and `marked` looks at the settings of each stage",
    "Stage.reason": "is shown in reports",
    "LoadOptions.aberrations": "names that are known, and numbers",
    "SlurmCluster.time": "has a pattern",
    "SlurmCluster.partition": "Slurm decides who may use it, and it can be no other option",
    "SlurmCluster.account": "the same",
    "SlurmCluster.memory": "the same",
    **{
        f"{section.__name__}.{name}": "as of Slurm"
        for section in JOB_CLUSTERS
        for name in ("time", "queue", "account", "memory")
    },
}


def models(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {model.__name__: model}
    for field in model.model_fields.values():
        for kind in kinds_in(field.annotation):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= models(kind)
    return found


def test_every_field_that_holds_any_text_is_harmless_or_asked_about() -> None:
    """A new field has to be put on one of the two lists."""
    free, marked = set(), set()
    for name, model in models(RunFile).items():
        for field, info in model.model_fields.items():
            kinds = [*kinds_in(info.annotation)]
            extra = info.json_schema_extra
            if isinstance(extra, dict) and TRUST in extra:
                marked.add(f"{name}.{field}")
            elif field != "kind" and any(kind in (str, Path, Any) for kind in kinds if isinstance(kind, type)):
                free.add(f"{name}.{field}")
    assert {model.__name__ for model in CLUSTERS} <= {*models(RunFile)}
    assert free == {*HARMLESS}
    assert marked == {
        "Checkpointing.transfer",
        "ListenSection.source",
        "ListenSection.positions",
        *(f"SshCluster.{name}" for name in ("hosts", "python", "ssh", "address")),
        *(f"SlurmCluster.{name}" for name in ("extra", "template", "address")),
        *(f"{section.__name__}.{name}" for section in JOB_CLUSTERS for name in ("extra", "template", "address")),
    }


def test_without_a_terminal_nothing_is_obeyed_until_that_is_asked_for(
    run_file: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run_file(LEAST + TRANSFER)
    pt.save_scan(pt.simulate(patterns=12, window=16, seed=3), path.parent / "scan.h5")
    (tmp_path / "helper.py").write_text(
        f"from pathlib import Path\nSENT = Path({str(tmp_path / 'sent')!r})\nSENT.touch()\n"
        "def send(path):\n    with SENT.open('a') as file:\n        print(path.name, file=file)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    line = ["run", str(path), "--cluster", "none", "--device", "cpu", "--threads", "1"]
    assert main.main(line) == 78
    told = " ".join(capsys.readouterr().err.split())
    assert "checkpointing.transfer: 'helper:send'" in told
    assert "add --trust, or use" in told
    assert ptynb.run.main([str(path)]) == 78
    assert "add --trust" in " ".join(capsys.readouterr().err.split())
    assert "helper" not in sys.modules
    assert not (tmp_path / "sent").exists()
    assert main.main([*line, "--trust"]) == 0
    assert "state-00001.h5" in (tmp_path / "sent").read_text()
    assert main.main([*line, "--resume"]) == 78


def test_a_yes_holds_for_one_run_and_anything_else_is_no(run_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_file(LEAST + TRANSFER + SSH)
    for answer in ("y\n", "yes\n"):
        shown = asked(monkeypatch, answer, str(path))
        assert "checkpointing.transfer: 'helper:send'\n" in shown
        assert "'gate'" in shown
    for answer in ("", "\n", "no\n", "yes please\n"):
        with raises("settings.not-confirmed", "run.yaml"):
            asked(monkeypatch, answer, str(path))


def test_ranks_ask_nobody_and_have_no_use_for_a_cluster(run_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\ny\n"))
    monkeypatch.setattr(sys, "stderr", Terminal())
    for text, passes in ((LEAST + SSH, True), (LEAST + SSH + TRANSFER, False)):
        chosen = main._parser().parse_args(["run", str(run_file(text))])
        if passes:
            check_plan(plan_of(chosen), chosen, on_ranks=True)
        else:
            with raises("settings.not-confirmed", "(checkpointing.transfer: 'helper:send')", "--trust"):
                check_plan(plan_of(chosen), chosen, on_ranks=True)
    assert sys.stdin.read() == "y\ny\n"


def test_what_the_command_line_says_is_not_asked_about(run_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run_file(LEAST.replace("out.h5", "~/.bashrc") + SSH)
    line = (str(path), "--result", "/data/out.result", "--cluster", "local")
    assert asked(monkeypatch, "", *line) == ""
    assert asked(monkeypatch, "", str(path), "--trust") == ""
    chosen = main._parser().parse_args(["run", str(path), "--trust"])
    assert resume_command("ptynb run", chosen) == f"ptynb run {path} --trust --resume"


@each(
    ("text", "change", "names"),
    [
        (TRANSFER, "checkpointing={}", ["checkpointing.transfer"]),
        (TRANSFER, "checkpointing={max_to_keep: 3}", ["checkpointing.transfer"]),
        (TRANSFER, "checkpointing={transfer: 'other:send'}", []),
        (TRANSFER, "checkpointing.transfer=other:send", []),
        (TRANSFER, "checkpointing=null", []),
        (SSH, "cluster={threads: 2, python: /opt/other}", ["cluster.hosts", "cluster.ssh", "cluster.address"]),
        (SSH.replace("[one]", "{one.two: 1}"), "cluster.hosts={one: 1}", [*SSH_NAMES]),
        ("", "cluster={kind: ssh, hosts: {one: 2}}", []),
    ],
)
def test_a_typed_section_leaves_what_it_does_not_have_to_be_confirmed(
    run_file: Any, text: str, change: str, names: list[str]
) -> None:
    line = ["run", str(run_file(LEAST + text)), "--set", change]
    chosen = main._parser().parse_args(line)
    if not names:
        check_plan(plan_of(chosen), chosen)
        return
    with raises("settings.not-confirmed") as error:
        check_plan(plan_of(chosen), chosen)
    assert re.findall(r"(\w+\.\w+): ", str(error.value).partition("(")[2]) == names


class Inner(SettingsModel):
    program: str | None = Field(default=None, description="Runs", json_schema_extra={TRUST: "runs a program"})


class Outer(SettingsModel):
    pairs: tuple[tuple[Inner, ...], ...]
    named: dict[str, list[Inner]]


def test_fields_of_entries_are_found_at_any_depth() -> None:
    run = RunFile(scan="a", epochs=1, result="b.h5")
    within = Outer(pairs=((Inner(), Inner(program="a")),), named={"x": [Inner(program="b")]})
    run = run.model_copy(update={"prepare": ({"deep": [within]},)})
    assert [(line.name, line.value) for line in marked(run)] == [
        ("prepare.0.deep.0.pairs.0.1.program", "a"),
        ("prepare.0.deep.0.named.x.0.program", "b"),
    ]


def test_entries_of_plug_ins_in_stages_are_asked_about_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    class Running(ConstraintPlugin):
        kind: Literal["running"] = "running"
        program: str | None = Field(default=None, description="Runs", json_schema_extra={TRUST: "runs a program"})

        def impose(self, model: Any) -> None:
            raise NotImplementedError

    monkeypatch.setattr(PluginEntries, "model", lambda self, kind: Running if kind == "running" else None)
    monkeypatch.setattr(plugins, "of_kind", lambda kind: ())
    steps = [{"epochs": 1, "settings": {"constraints": [{"kind": "running", "program": name}]}} for name in "aab"]
    run = RunFile(scan="a", result="b.h5", settings=steps[0]["settings"], stages=[{"epochs": 1}, *steps])
    assert [(line.name, line.value) for line in marked(run)] == [
        ("settings.constraints.0.program", "a"),
        ("stages.3.settings.constraints.0.program", "b"),
    ]


def test_lines_are_shown_so_that_nothing_hides_in_them(run_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = SSH.replace("gate", '"\\u202eetag\\u202c"')
    shown = asked(monkeypatch, "y\n", str(run_file(LEAST + hidden)))
    assert r"\u202eetag\u202c" in shown
    assert shown.replace("\n", "").isprintable()
    long = SSH.replace("gate", "x" * 4000)
    with raises("settings.not-confirmed", "too long", "--trust"):
        asked(monkeypatch, "y\n", str(run_file(LEAST + long)))
    assert asked(monkeypatch, "", str(run_file(LEAST + long)), "--trust") == ""


def test_the_example_asks_for_nothing_and_says_what_would(run_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, "", str(run_file(example()))) == ""
    assert "--trust" in example()


@each(("text", "found"), [(LEAST, False), (LEAST + "checkpointing: {transfer: 'os:remove'}\n", True)])
def test_modules_beside_a_run_file_are_no_packages(
    run_file: Any, monkeypatch: pytest.MonkeyPatch, text: str, found: bool
) -> None:
    """An engine is `python -m ...`, as what is started here."""
    path = run_file(text)
    (path.parent / "psutil.py").write_text("from pathlib import Path\nPath('taken').touch()\nraise SystemExit\n")
    monkeypatch.chdir(path.parent)
    engine = [sys.executable, "-m", "ptynb.cluster.lifetime.watchdog", "--engines", "no cluster"]
    monkeypatch.setattr(batch_run, "run", lambda *_: subprocess.run(engine, check=True, timeout=60).returncode)
    before = dict(os.environ)
    assert main.main(["run", str(path), "--trust"]) == 0
    assert Path("taken").exists() == found
    assert dict(os.environ) == before


# Other files can't cause such calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that a keeper was to import."""
    called: list[str] = []
    monkeypatch.setattr(checkpoint_writer, "_imported", called.append)
    return called


def spoil(path: Path, name: str, change: dict[str, Any]) -> None:
    """Puts values into a JSON record of an HDF5 file, whose checksums then hold again."""
    with h5py.File(path, "r+") as file:
        stored = file[name]
        text = stored[()].tobytes() if stored.dtype == np.uint8 else stored.asstr()[()]
        changed = json.dumps({**json.loads(text), **change})
        shape = "shape" in stored.attrs
        del file[name]
        if shape:
            values = np.frombuffer(changed.encode(), np.uint8)
            file.create_dataset(name, data=values).attrs["shape"] = np.array(values.shape)
        else:
            file[name] = changed


MORE = {
    "checkpointing": {"transfer": "os:system"},
    "extensions": ["os:system"],
    "cluster": {"kind": "ssh", "hosts": ["one"]},
}


def test_results_and_states_call_nothing_whatever_they_say(tmp_path: Path, calls: list[str]) -> None:
    pt.save_scan(pt.simulate(patterns=12, window=16, seed=3), tmp_path / "scan.h5")
    scan = pt.load(tmp_path / "scan.h5")
    keep = pt.Checkpointing(folder=tmp_path / "states", seconds=None)
    with pt.Reconstruction(scan, pt.Settings(), device="cpu", checkpointing=keep) as recon:
        recon.start(1)
        recon.wait(60)
        state, result = recon.save_checkpoint(), recon.save(tmp_path / "result.h5")
    assert calls == []
    spoil(result, "settings/at_start", MORE)
    with pytest.raises(pt.SettingsError, match="There is no setting 'checkpointing'"):
        pt.reproduce(result, device="cpu")
    recon.save(result)
    spoil(result, "scan/given", {"transfer": "os:system"})
    with raises("file.damaged", "transfer"):
        pt.reproduce(result, device="cpu")
    whole = state.read_bytes()
    for name, change in (("record", MORE), ("record", {"settings": {**pt.Settings().model_dump(mode="json"), **MORE}})):
        state.write_bytes(whole)
        spoil(state, name, change)
        with pytest.raises(ValueError, match=r"record has a field 'checkpointing'|There is no setting 'checkpointing'"):
            pt.resume(state, device="cpu")
    assert calls == []
    assert main.main(["run", str(result), "--reproduce", "--trust"]) == 64  # it has no use there
