"""What a run leaves for whoever started it: changes by the command line, folder, lines, outcome, exit status."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

import ptynb as pt
from ptynb.batch import run_job
from ptynb.batch.run_job import RunJob
from ptynb.cli.main import main
from ptynb.run import main as run_of_ranks
from ptynb.settings.run_files.run_changes import changed, changes_of
from ptynb.settings.run_files.run_file import RunFile, read_run
from tests.parametrization import each
from tests.raising import raises

ALONE = ("--cluster", "none", "--device", "cpu", "--threads", "1")


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "scan.h5"
    pt.save_scan(pt.simulate(patterns=16, window=32, seed=3), path)
    return path


@pytest.fixture
def run_file(scan: Path, tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(f"scan: {scan}\nepochs: 2\nsettings: {{batch: 8, schedule: {{kind: constant}}}}\n")
    return path


def outcome(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "outcome.json").read_text())
    return found


def test_all_that_a_run_writes_is_in_its_folder_and_its_lines_say_how_it_went(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["run", str(run_file), *ALONE, "--output", str(tmp_path / "out"), "--progress", "json"]
    line += ["--set", "settings.seed=7", "--id", "first"]
    assert main(line) == 0
    folder, printed = tmp_path / "out" / "first", capsys.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == [
        *("checkpoints", "lock", "outcome.json", "progress.jsonl", "result.h5", "run.yaml")
    ]
    assert printed.out == (folder / "progress.jsonl").read_text()
    events = [json.loads(text) for text in printed.out.splitlines()]
    assert events[0]["event"] == "started"
    assert events[-1]["event"] == "completed"
    assert [(one["epoch"], one["epochs"]) for one in events if one["event"] == "epoch"] == [(1, 2), (2, 2)]
    assert all(one["loss"] > 0 and one["seconds"] > 0 for one in events if one["event"] == "epoch")
    assert {one["id"] for one in events} == {"first"}
    assert "R-factor" in printed.err
    ended = outcome(folder)
    assert (ended["id"], ended["status"], ended["exit_status"], ended["epoch"]) == ("first", "completed", 0, 2)
    assert ended["result"] == str(folder / "result.h5")
    assert ended["error"] is None
    result = pt.load_result(folder / "result.h5")
    assert result.settings["seed"] == 7

    before = (folder / "result.h5").stat().st_mtime_ns
    assert main([*line, "--resume"]) == 0, "it is completed, and nothing is run again"
    assert (folder / "result.h5").stat().st_mtime_ns == before
    assert main(line) == 73, "without --resume checkpoints are not replaced"
    assert outcome(folder) == ended, "what was refused leaves the outcome of what was done"
    assert main([*line, "--resume", "--epochs", "3"]) == 0, "another number of epochs is another run"
    assert len(pt.load_result(folder / "result.h5").epochs) == outcome(folder)["epoch"] == 3

    assert main(["run", str(folder / "run.yaml"), *ALONE, "--output", str(tmp_path / "again")]) == 0
    again = pt.load_result(tmp_path / "again" / "run" / "result.h5")
    np.testing.assert_array_equal(again.object, pt.load_result(folder / "result.h5").object)


@each(
    ("changes", "status", "facts"),
    [
        (["settings.los=poisson"], 78, ["--set settings.los", "'loss'"]),
        (["setings.loss=poisson"], 78, ["--set setings.loss", "'settings'"]),
        (["settings.loss=poison"], 78, ["--set settings.loss", "poison"]),
        (["epochs.x=3"], 78, ["--set epochs.x", "epochs is 2"]),
        (["epochs"], 64, ["--set", "epochs"]),
        (["epochs=[1"], 78, ["--set epochs", "line 1"]),
        (["scan=none.h5"], 66, ["none.h5"]),
        (["epochs=1", "result=/none/at/all.h5"], 73, ["/none/at"]),
    ],
)
def test_what_is_wrong_has_a_status_and_names_the_key(
    run_file: Path, capsys: pytest.CaptureFixture[str], changes: list[str], status: int, facts: list[str]
) -> None:
    more = [word for change in ("result=out.h5", *changes) for word in ("--set", change)]
    assert main(["run", str(run_file), *ALONE, *more]) == status
    said = " ".join(capsys.readouterr().err.split())
    for fact in facts:
        assert fact in said


def test_what_failed_before_it_began_has_an_outcome(run_file: Path, tmp_path: Path) -> None:
    assert main(["run", str(run_file), *ALONE, "--set", "epochs=none", "--output", str(tmp_path / "out")]) == 78
    ended = outcome(tmp_path / "out" / "job")
    assert (ended["status"], ended["exit_status"], ended["epoch"]) == ("failed", 78, None)
    assert ended["error"]["code"] == "settings.invalid-value"
    assert "epochs" in ended["error"]["message"]


def test_changes_reach_into_lists_and_the_last_one_holds() -> None:
    values = {"epochs": 1, "stages": [{"epochs": 2}, {"epochs": 3}], "settings": {"probe": {"modes": 2}}}
    changes = changes_of(["stages.1.epochs=7", "settings.probe={learning_rate: 1e-2}", "epochs=4", "epochs=5", "a.b=x"])
    assert changed(values, changes) == {
        "epochs": 5,
        "stages": [{"epochs": 2}, {"epochs": 7}],
        "settings": {"probe": {"modes": 2, "learning_rate": 0.01}},
        "a": {"b": "x"},
    }
    assert values["epochs"] == 1
    with raises("settings.unknown-name", "--set stages.2.epochs", "stages.2"):
        changed(values, changes_of(["stages.2.epochs=7"]))


def test_a_file_of_changes_has_nested_or_dotted_names_and_may_be_standard_input(
    run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = tmp_path / "more.json"
    more.write_text('{"settings": {"batch": 4}, "settings.seed": 5, "epochs": 1}')
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"settings.seed": 6}'))
    line = ["run", str(run_file), *ALONE, "--output", str(tmp_path / "out"), "--set-json", str(more), "--set-json", "-"]
    assert main([*line, "--set", "epochs=2"]) == 0
    plan = read_run(tmp_path / "out" / "job" / "run.yaml")
    assert (plan.settings.batch, plan.settings.seed, plan.epochs) == (4, 6, 2)
    more.write_text('{"checkpointing": {"transfer": "os:remove"}}')
    capsys.readouterr()
    assert main([*line[:-2], "--id", "other"]) == 78, "a file is not trusted more than a run file"
    assert "checkpointing.transfer: 'os:remove'" in " ".join(capsys.readouterr().err.split())
    more.write_text('{"settings": {"los": 1}}')
    assert main([*line[:-2], "--id", "third"]) == 78
    said = "".join(capsys.readouterr().err.split())  # rich breaks lines, also within a long path
    assert f"--set-json{more}" in said


def test_what_is_typed_is_trusted(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", str(run_file), *ALONE, "--set", "result=out.h5", "--set", "checkpointing.transfer=none:at_all"]
    assert main(line) == 78
    said = " ".join(capsys.readouterr().err.split())
    assert "not confirmed" not in said
    assert "none" in said


def test_a_second_process_leaves_the_folder_alone(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out" / "job"
    folder.mkdir(parents=True)
    with FileLock(folder / "lock"):
        assert main(["run", str(run_file), *ALONE, "--output", str(tmp_path / "out")]) == 75
    assert "Another process works on the run 'job'" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in folder.iterdir()] == ["lock"]


@each("id", ["", "..", "a/b", "-x", "a b", "x" * 300])
def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, id: str) -> None:
    with raises("argument.invalid-value", "--id"):
        RunJob(id, tmp_path)
    assert [*tmp_path.iterdir()] == []


@each("options", [["--output", "out", "--result", "r.h5"], ["--output", "out", "--keep", "k"]])
def test_options_that_contradict_the_folder_are_refused(
    run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", str(run_file), *options]) == 64


@each("option", ["--set=a=1", "--set-json=a", "--output=a", "--id=a", "--progress=json"])
def test_reproducing_takes_no_changes(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert main(["run", str(run_file), "--reproduce", option]) == 64
    assert option.split("=")[0] in capsys.readouterr().err


def test_a_number_that_json_lacks_is_null(tmp_path: Path) -> None:
    with RunJob("a", tmp_path) as job:
        job.tell("epoch", loss=float("nan"))
    first = json.loads((tmp_path / "a" / "progress.jsonl").read_text().splitlines()[0])
    assert first["loss"] is None


def test_a_disk_that_is_full_does_not_end_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunJob("a", tmp_path) as job:
        (tmp_path / "a" / "progress.jsonl").mkdir()  # as little as a full disk can it be written to
        job.tell("notice", text="one")
        job.tell("notice", text="two")
    assert capsys.readouterr().out.count("could not be written") == 1
    assert outcome(tmp_path / "a")["status"] == "completed"


def test_another_kind_of_constraint_is_another_run(tmp_path: Path) -> None:
    """Both have their default values."""
    runs = [
        RunFile(scan="a", epochs=1, result="b.h5", settings={"constraints": [{"kind": kind}]})
        for kind in ("centred_probe", "fixed_probe_power")
    ]
    with RunJob("a", tmp_path) as job:
        first, second = map(job.plan, runs)
        job.begin(first)
        first.result.touch()
    with RunJob("a", tmp_path) as job:
        assert job.is_completed(first)
        assert not job.is_completed(second)


def test_names_that_are_no_latin_letters_are_kept_whatever_the_locale(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\nfrom ptynb.batch.run_job import RunJob\n"
        "from ptynb.settings.run_files.run_file import RunFile\n"
        "with RunJob('a', Path.cwd()) as job:\n"
        "    plan = job.plan(RunFile(scan='\\u6e2c\\u5b9a.h5', epochs=1, result='b.h5'))\n"
        "    job.begin(plan)\n    plan.result.touch()\n"
        "with RunJob('a', Path.cwd()) as job:\n    assert job.is_completed(plan)\n"
    )
    command = [sys.executable, "-X", "utf8=0", "-c", program]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=100)
    assert "\u6e2c" in (tmp_path / "a" / "run.yaml").read_text(encoding="utf-8")


def test_an_outcome_that_cannot_be_replaced_is_output_that_cannot_be_written(
    run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name == "outcome.json":
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    assert main(["run", str(run_file), *ALONE, "--output", str(tmp_path / "out")]) == 73


@each("command", [lambda *line: main(["run", *line]), lambda *line: run_of_ranks([*line])])
@each(
    ("raised", "status", "said"),
    [
        (lambda: signal.raise_signal(signal.SIGTERM), 75, "interrupted"),
        (lambda: signal.raise_signal(signal.SIGINT), 130, "interrupted"),
        (lambda: np.empty(2**50), 69, "Unable to allocate"),
        (lambda: bytearray(sys.maxsize), 69, "not enough memory"),
    ],
)
def test_what_ends_a_run_before_it_has_a_folder_has_its_status(
    run_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: Any,
    raised: Any,
    status: int,
    said: str,
) -> None:
    """As while everything is imported, which takes seconds."""
    monkeypatch.setattr(run_job, "RunJob", lambda *_, **__: raised())
    assert command(str(run_file)) == status
    assert said in capsys.readouterr().err
