"""What happens to a run when its states can't be kept, and to its states when it fails; what watchers see."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ptynb.data.commands import ChangeSettings, CheckpointRequest, LeaveRun, StartRun
from ptynb.distributed.group import Membership
from ptynb.engine import checkpoint_writer
from ptynb.engine.checkpoint_writer import CheckpointWriter
from ptynb.engine.worker import Worker
from ptynb.io import checkpoint_dir as own_folder
from ptynb.io.checkpoint_file import ReconstructionState, load_state, newest_state, states
from ptynb.settings import Checkpointing, Probe, Settings
from tests.cases import a_scan
from tests.engine import checkpoint_work as work
from tests.engine.checkpoint_work import kept_now
from tests.engine.ranks import Ranks
from tests.engine.work import finished, loaded, obeyed
from tests.raising import raises

ALONE = Membership(rank=0, world=1, store=Path(), backend="none", device="cpu", identity="CPU")
SETTINGS = Settings(batch=8)
worlds = pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.system("worlds")), 2])
ON_REQUEST: dict[str, Any] = {"seconds": None, "epochs": None}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_save_of_5_s_under_a_timeout_of_2_s_ends_no_group(ranks: Ranks, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    keep = Checkpointing(folder=folder, epochs=2, seconds=None)
    script = [(0.0, StartRun(2)), (0.0, None), (2.5, StartRun(4)), (0.0, None)]
    warm = Checkpointing(folder=tmp_path / "warm", epochs=2, seconds=None)  # compiling takes longer than 2 s
    ranks.run(2, work.work, a_scan(), SETTINGS, warm, script[:2], None)
    answers = ranks.run(2, work.work, a_scan(), SETTINGS, keep, script, None, 5.0, timeout=2.0)
    for answer in answers:
        assert answer["status"].failure is None
        assert (answer["status"].state, answer["status"].epoch) == ("closed", 6)
    # It was under way when others were due; the last thing that an engine does is to wait for it, without the group.
    assert names(folder) == ["state-00002.h5"]
    assert answers[0]["status"].checkpoint == str(folder / "state-00002.h5")


def test_a_full_disk_is_told_once_and_the_last_good_state_stays(ranks: Ranks, tmp_path: Path) -> None:
    [answer] = ranks.run(
        1, work.full_disk, a_scan(), Checkpointing(folder=tmp_path / "kept", max_to_keep=2, **ON_REQUEST)
    )
    assert (answer["state"], answer["epoch"]) == ("closed", 10)
    assert [len(told) for told in answer["told"]] == [0, 1, 1, 1, 2]
    assert "checkpoint of epoch 4 could not be written" in answer["told"][1][0]
    assert "the latest one is" in answer["told"][1][0]
    assert answer["good"] == [2, 2, 2, 8, 8]
    first, both = ["state-00002.h5"], ["state-00002.h5", "state-00008.h5"]
    assert answer["names"] == [first, first, first, both, both], "nothing half written may stay"


def test_a_folder_that_vanished_is_made_again_and_one_that_can_not_be_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    worker = Worker(a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(folder=folder, **ON_REQUEST))
    kept_now(worker)
    shutil.rmtree(folder)
    kept_now(worker)
    assert names(folder) == ["state-00002.h5"]
    shutil.rmtree(folder)
    folder.write_text("a file where the folder was")
    kept_now(worker)
    kept_now(worker)
    assert len(worker.status().notices) == 1
    folder.unlink()
    kept_now(worker)
    worker.close()
    assert names(folder) == ["state-00005.h5"]
    assert worker.status().failure is None


def test_a_state_that_is_not_even_copied_counts_as_a_failure(tmp_path: Path) -> None:
    writer = CheckpointWriter(Checkpointing(folder=tmp_path, **ON_REQUEST), 0, 1, "scan")

    def short() -> ReconstructionState:
        raise MemoryError("no room, says the test")

    writer.take(short, writer.order(), (1, 0, 0))
    assert (writer.successes, writer.failures) == (0, 1)
    assert "could not be copied for a checkpoint: no room" in writer.notices[-1]
    writer._waiting = lambda kind: 2  # type: ignore[method-assign]
    writer.take(short, writer.order(), (2, 0, 0))
    assert writer.failures == 2
    assert "2 states wait for the disk already" in writer.notices[-1]


def test_pictures_that_cannot_be_drawn_end_no_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise ZeroDivisionError("no colours, says the test")

    monkeypatch.setattr(checkpoint_writer, "make_watched", breaks)
    keep = Checkpointing(folder=tmp_path, pictures=0.001, **ON_REQUEST)
    worker = Worker(a_scan(), SETTINGS, ALONE, checkpointing=keep)
    loaded(worker)
    kept_now(worker)
    kept_now(worker)
    worker.close()
    status = worker.status()
    assert (status.failure, status.checkpoint_epoch, status.checkpoint_counts) == (None, 2, (2, 0))
    assert names(tmp_path) == ["state-00001.h5", "state-00002.h5", "status.json"]
    assert json.loads((tmp_path / "status.json").read_text())["epoch"] == 2
    [notice] = status.notices
    assert "ZeroDivisionError: no colours, says the test" in notice


def test_an_error_of_any_job_is_told_and_the_next_one_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that no code expects, such as SystemExit, after which Python ends a thread without a word."""
    writer = CheckpointWriter(Checkpointing(folder=tmp_path, pictures=1, **ON_REQUEST), 0, 1, "scan")
    publish, outcomes = writer._publish, [SystemExit("of a library"), None]

    def fails_once(*arguments: Any) -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        publish(*arguments)

    monkeypatch.setattr(writer, "_publish", fails_once)
    worker = Worker(a_scan(), SETTINGS, ALONE)
    loaded(worker)
    writer.show(worker.status(), None, None)
    writer.show(worker.status(), None, None)
    worker.close()
    assert writer.close(lambda: None, 10)
    assert names(tmp_path) == ["status.json"]
    [notice] = writer.notices
    assert "SystemExit: of a library" in notice


def test_all_but_the_last_states_are_removed_with_their_companions(ranks: Ranks, tmp_path: Path) -> None:
    keep = Checkpointing(folder=tmp_path, max_to_keep=2, **ON_REQUEST)
    script: work.Script = []
    for _ in range(4):
        script += [(0.0, StartRun(1)), (0.0, None), (0.15, CheckpointRequest())]
    ranks.run(2, work.work, a_scan(), SETTINGS.replace(optimiser="dm", probe=Probe(learning_rate=1)), keep, script)
    assert names(tmp_path) == ["state-00003.h5", "state-00003.rank1.h5", "state-00004.h5", "state-00004.rank1.h5"]
    (tmp_path / "state-00004.rank1.h5").replace(tmp_path / "state-00003.rank1.h5")
    with raises("checkpoint.incomplete", "state-00004.h5", "[1]"):
        load_state(tmp_path / "state-00004.h5")
    with raises("checkpoint.incomplete", "state-00003.h5", "[1]", "another moment"):
        load_state(tmp_path / "state-00003.h5")


def test_a_moment_that_is_kept_twice_at_once_is_whole(ranks: Ranks, tmp_path: Path) -> None:
    keep = Checkpointing(folder=tmp_path, **ON_REQUEST)
    script = [(0.0, StartRun(1)), (0.0, None), (0.0, CheckpointRequest()), (0.0, CheckpointRequest())]
    settings = SETTINGS.replace(optimiser="dm", probe=Probe(learning_rate=1))
    answers = ranks.run(2, work.work, a_scan(), settings, keep, script, None, 0.3)
    assert answers[0]["status"].notices == ()
    assert names(tmp_path) == ["state-00001.h5", "state-00001.rank1.h5"]
    assert load_state(tmp_path / "state-00001.h5").epoch == 1


@worlds
def test_leaving_keeps_what_changed_and_a_worker_goes_on_from_there(ranks: Ranks, tmp_path: Path, world: int) -> None:
    keep, scan = Checkpointing(folder=tmp_path, **ON_REQUEST), a_scan()
    run: work.Script = [(0.0, StartRun(6)), (0.0, None)]
    slower = SETTINGS.replace(probe={"learning_rate": 0.003})
    whole = ranks.run(world, work.work, scan, SETTINGS, None, run)
    ranks.run(world, work.work, scan, SETTINGS, keep, [(0.0, StartRun(6)), (0.01, LeaveRun())])
    [path] = states(tmp_path)
    assert load_state(path).target == 6
    missing = 6 - load_state(path).epoch
    [before] = [path.read_bytes()]
    script: work.Script = [(0.0, LeaveRun())]
    ranks.run(world, work.work, scan, SETTINGS, keep, script, path)
    assert path.read_bytes() == before, "nothing changed, so nothing was to be written"
    if missing:
        script = [(0.0, StartRun(missing)), (0.0, None), (0.0, LeaveRun())]
        for one, other in zip(whole, ranks.run(world, work.work, scan, SETTINGS, keep, script, path), strict=True):
            assert one["losses"] == other["losses"]
            assert work.equal(one["model"], other["model"]) == []
            assert other["status"].target == 6
    changed = ranks.run(world, work.work, scan, slower, keep, [(0.0, LeaveRun())], newest_state(tmp_path))
    assert [change.name for change in changed[0]["status"].changes] == ["probe.learning_rate"]
    assert [change.name for change in load_state(newest_state(tmp_path)).changes] == ["probe.learning_rate"]


@worlds
def test_a_worker_refuses_what_does_not_fit_on_every_rank(ranks: Ranks, tmp_path: Path, world: int) -> None:
    worker = Worker(a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(folder=tmp_path, **ON_REQUEST))
    kept_now(worker)
    kept_now(worker)
    worker.close()
    path = newest_state(tmp_path)
    for scan, settings, sentence in (
        (a_scan(window=16), SETTINGS, "from another scan"),
        (a_scan(), SETTINGS.replace(batch=4), "other settings: batch"),
    ):
        for message in ranks.run(world, work.refused, scan, settings, path):
            assert sentence in message
    path.write_bytes(path.read_bytes()[:-5000])
    for message in ranks.run(world, work.refused, a_scan(), SETTINGS, path):
        assert f"Use {tmp_path / 'state-00001.h5'}, the one before it" in message


def test_a_folder_of_another_reconstruction_is_refused(tmp_path: Path) -> None:
    worker = Worker(a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(folder=tmp_path, **ON_REQUEST))
    kept_now(worker)
    worker.close()
    with raises("checkpoint.exists", tmp_path, "state-00001.h5"):
        Worker(a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(folder=tmp_path))
    again = Worker(
        a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(folder=tmp_path), start=tmp_path / "state-00001.h5"
    )
    loaded(again)
    assert (again.status().checkpoint_epoch, again.status().epoch) == (1, 1)
    again.close()
    silent = Worker(a_scan(), SETTINGS, ALONE)
    with raises("checkpoint.disabled", "checkpointing="):
        silent.command(CheckpointRequest())
    silent.close()


@pytest.mark.parametrize(
    "name", ["nowhere.at_all:note", "tests.engine.checkpoint_work:nothing", "tests.engine.checkpoint_work:handed"]
)
def test_a_transfer_that_is_no_function_is_refused(name: str) -> None:
    with raises("checkpoint.invalid-transfer", name):
        Worker(a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(transfer=name))
    with pytest.raises(ValueError, match="transfer"):
        Checkpointing(transfer="os.path")


def test_transfer_is_handed_each_whole_file_and_its_failure_is_told_once(tmp_path: Path) -> None:
    work.handed.clear()
    good = Checkpointing(
        folder=tmp_path / "good", transfer="tests.engine.checkpoint_work:note", pictures=1000, **ON_REQUEST
    )
    bad = Checkpointing(folder=tmp_path / "bad", transfer="tests.engine.checkpoint_work:refuse", **ON_REQUEST)
    for keep in (good, bad):
        worker = Worker(a_scan(), SETTINGS, ALONE, checkpointing=keep)
        kept_now(worker)
        kept_now(worker)
        worker.close()
        assert worker.status().failure is None
        assert (worker.status().checkpoint_epoch, len(worker.status().notices)) == (2, 0 if keep is good else 1)
    assert "ConnectionError: nobody answers" in worker.status().notices[0]
    told = [path.name for path in work.handed]
    assert {"state-00001.h5", "state-00002.h5", "amplitude.jpg", "phase.jpg", "probe.jpg", "status.json"} == {*told}
    assert told[-1] == "status.json"


def test_after_a_failure_nothing_is_written_over_and_the_sentence_says_what_to_change(
    ranks: Ranks, tmp_path: Path
) -> None:
    keep = Checkpointing(folder=tmp_path, seconds=0.001, pictures=1000)
    answers = ranks.run(2, work.failing, a_scan(), SETTINGS, keep, 3)
    assert answers[0]["before"] != {}
    assert answers[0]["before"] == answers[0]["after"]
    message = answers[1]["status"].failure.message
    assert "no more, says the test. Out of memory: use more engines, pattern_storage='disk', a smaller batch" in message
    assert answers[0]["status"].failure.lost_group
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "failed"


def test_watchers_see_pictures_and_the_end_of_a_run(tmp_path: Path) -> None:
    worker = Worker(
        a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(folder=tmp_path, pictures=0.01, epochs=2, seconds=None)
    )
    loaded(worker)
    obeyed(
        worker,
        worker.command(ChangeSettings(SETTINGS.replace(probe={"learning_rate": 0.02}).model_dump(mode="json"))),
    )
    kept_now(worker, 5)
    worker.command(LeaveRun())
    worker._thread.join(20)
    shown = json.loads((tmp_path / "status.json").read_text())
    loop = worker._loop
    assert loop is not None
    assert (shown["format"], shown["version"], shown["name"]) == ("ptynb status", 1, tmp_path.name)
    assert (shown["state"], shown["epoch"], shown["target"], shown["update"]) == ("closed", 5, 5, 0)
    assert (shown["scan"], shown["engines"], shown["updates_per_epoch"]) == ("simulated", 1, 5)
    assert shown["losses"] == [epoch.loss for epoch in loop.epochs]
    assert shown["seconds"] == [epoch.seconds for epoch in loop.epochs]
    assert (shown["changes"], shown["r_factor"], shown["kept"]) == (
        [[0, "probe.learning_rate"]],
        None,
        "state-00005.h5",
    )
    assert (shown["picture"]["epoch"], shown["picture"]["update"]) == (5, 0)
    assert np.isclose(sum(shown["picture"]["powers"]), 1)
    for name in ("amplitude", "phase", "probe"):
        low, high = shown["picture"]["limits"][name]
        assert low < high
        with Image.open(tmp_path / f"{name}.jpg") as picture:
            assert picture.format == "JPEG"
            assert np.asarray(picture).std() > 1


def test_ptynbs_own_folder_is_private_made_late_and_tidied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "own" / "kept"
    monkeypatch.setenv("PTYNB_KEPT", str(base))
    worker = Worker(a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(**ON_REQUEST))
    obeyed(worker, worker.command(StartRun(1)))
    finished(worker)
    assert not base.exists(), "made before there was anything to keep"
    base.mkdir(parents=True, mode=0o700)
    old, young, foreign = (base / f"scan-2026010{day}-000000-abcd" for day in (1, 2, 3))
    for folder in (old, young, foreign):
        folder.mkdir()
        (folder / "state-00001.h5").write_text("a state")
    (foreign / "notes.txt").write_text("the user's")
    for folder in (old, foreign):
        for path in [*folder.iterdir(), folder]:
            os.utime(path, (time.time() - 15 * 86400,) * 2)
    kept_now(worker)
    worker.close()
    assert worker.status().checkpoint is not None
    present = Path(str(worker.status().checkpoint)).parent
    assert own_folder.FOLDER.fullmatch(present.name)
    assert present.name.startswith("simulated-")
    assert stat.S_IMODE(present.stat().st_mode) == 0o700
    assert {path.name for path in base.iterdir()} == {present.name, young.name, foreign.name}
    assert names(foreign) == ["notes.txt"]
    monkeypatch.setattr(own_folder, "MOST_BYTES", 3)
    own_folder.create_and_prune(present)
    assert {path.name for path in base.iterdir()} == {present.name, foreign.name}
    assert names(present) == ["state-00002.h5"]
    again = Worker(
        a_scan(), SETTINGS, ALONE, checkpointing=Checkpointing(**ON_REQUEST), start=present / "state-00002.h5"
    )
    kept_now(again)
    again.close()
    assert names(present) == ["state-00002.h5", "state-00003.h5"], "going on stays in the folder"
