"""Lines of states: folders, links, notes, and what thins them out."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ptynb.data.engine_records import Epoch
from ptynb.engine.checkpoint_writer import CheckpointWriter
from ptynb.io import checkpoint_branches, checkpoint_dir
from ptynb.io.checkpoint_file import load_state, save_state, states
from ptynb.settings import Checkpointing
from tests.io.cases import of_case
from tests.io.test_checkpoint_file import a_state
from tests.raising import raises


def put(folder: Path, epoch: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    epochs = tuple(Epoch(number, 1 / number, 1.0, 1.0) for number in range(1, min(epoch, 9) + 1))
    return save_state(dataclasses.replace(a_state(epoch), epochs=epochs), folder / f"state-{epoch:05d}.h5")


def names(folder: Path) -> list[str]:
    return [path.name for path in states(folder)]


def three(folder: Path) -> Path:
    """A folder of three states."""
    for epoch in (2, 4, 6):
        put(folder / "kept", epoch)
    return folder / "kept"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return three(tmp_path)


def test_a_line_begins_at_a_state_without_taking_room(root: Path) -> None:
    start = checkpoint_branches.begin(root, "trial", root / "state-00004.h5")
    assert os.path.samefile(start, root / "state-00004.h5")
    assert checkpoint_branches.name_of(start.parent) == "trial"
    assert checkpoint_branches.root_of(start.parent) == checkpoint_branches.root_of(root) == root
    note = checkpoint_branches.read_note(start.parent)
    assert (note.origin, note.epoch, note.stays) == ("main", 4, ("state-00004.h5",))
    with raises("branch.exists", "trial"):
        checkpoint_branches.begin(root, "trial", root / "state-00004.h5")
    for name in ("../out", "", ".hidden", "a/b", "x" * 65):
        with raises("branch.invalid-name", repr(name)):
            checkpoint_branches.begin(root, name, root / "state-00004.h5")
    assert checkpoint_branches.free_name(root, "trial") == "trial-2"


def test_a_line_that_can_not_be_begun_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no room, says the test")

    monkeypatch.setattr(checkpoint_branches, "write_note", full)
    with pytest.raises(OSError, match="no room"):
        checkpoint_branches.begin(root, "trial", root / "state-00004.h5")
    assert not (root / "branches").exists()
    assert names(root) == ["state-00002.h5", "state-00004.h5", "state-00006.h5"]


def test_where_links_are_impossible_states_are_copied(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    start = checkpoint_branches.begin(root, "trial", root / "state-00004.h5")
    assert not os.path.samefile(start, root / "state-00004.h5")
    assert load_state(start).epoch == 4


def test_states_set_aside_are_a_line_and_can_be_put_back(root: Path) -> None:
    (root / "state-00006.rank1.h5").write_bytes(b"rows")
    checkpoint_branches.stay(root / "state-00006.h5")
    checkpoint_branches.stay(root / "state-00002.h5")
    aside = checkpoint_branches.set_aside([root / "state-00004.h5", root / "state-00006.h5"], "main-6", 2)
    assert names(root) == ["state-00002.h5"]
    assert names(aside) == ["state-00004.h5", "state-00006.h5"]
    assert (aside / "state-00006.rank1.h5").exists()
    assert checkpoint_branches.read_note(aside).stays == ("state-00006.h5",)
    assert checkpoint_branches.read_note(root).stays == ("state-00002.h5",)
    checkpoint_branches.put_back(aside, root)
    assert names(root) == ["state-00002.h5", "state-00004.h5", "state-00006.h5"]
    assert checkpoint_branches.read_note(root).stays == ("state-00002.h5", "state-00006.h5")
    assert not aside.parent.exists()


def test_the_newest_is_that_of_the_line_worked_on_last(root: Path) -> None:
    assert checkpoint_branches.newest(root) == root / "state-00006.h5"
    start = checkpoint_branches.begin(root, "trial", root / "state-00002.h5")
    assert checkpoint_branches.newest(root) == root / "state-00006.h5"
    checkpoint_branches.use(start.parent)
    assert checkpoint_branches.newest(root) == start
    put(root, 8)
    assert checkpoint_branches.newest(root) == root / "state-00008.h5"
    assert checkpoint_branches.newest(start.parent) == start
    with raises("checkpoint.not-found", root / "nothing"):
        checkpoint_branches.newest(root / "nothing")


def test_states_and_lines_are_listed(root: Path) -> None:
    start = checkpoint_branches.begin(root, "trial", root / "state-00004.h5")
    (root / "state-00007.h5").write_bytes(b"no state at all")
    found = checkpoint_branches.all_states(root)
    assert [one.epoch for one in found] == [2, 4, 4, 6]
    assert {(one.branch, one.stays) for one in found} == {("main", False), ("trial", True)}
    assert found[-1].loss == pytest.approx(1 / 6)
    assert found[-1].size == (root / "state-00006.h5").stat().st_size
    assert abs(found[-1].written - time.time()) < 60
    main, trial = checkpoint_branches.all_branches(root, "trial")
    assert (main.name, main.checkpoints, main.present, main.newest.epoch) == ("main", 3, False, 6)
    assert (trial.name, trial.checkpoints, trial.present, trial.origin, trial.epoch) == ("trial", 1, True, "main", 4)
    checkpoint_branches.remove(start.parent)
    assert [one.name for one in checkpoint_branches.all_branches(root, "main")] == ["main"]
    for name in ("try-10", "try-9", "try"):
        checkpoint_branches.begin(root, name, root / "state-00004.h5")
    listed = [one.name for one in checkpoint_branches.all_branches(root, "main")]
    assert listed == ["main", "try", "try-9", "try-10"]


def test_a_note_that_can_not_be_read_is_not_taken_for_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoint_branches.read_note(root / "nothing") == checkpoint_branches.Note()
    checkpoint_branches.stay(root / "state-00002.h5")
    writer = CheckpointWriter(Checkpointing(folder=root, max_to_keep=1), 0, 1, "a scan", root / "state-00006.h5")
    plain = Path.open

    def fail(path: Path, *arguments: Any, **more: Any) -> Any:
        if path.name == checkpoint_branches.NOTE:
            raise OSError(5, "Input/output error")
        return plain(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fail)
        writer._remove_old(root)
        for act in (checkpoint_branches.read_note, checkpoint_branches.use, checkpoint_branches.newest):
            with pytest.raises(OSError, match="Input/output"):
                act(root)
        with pytest.raises(OSError, match="Input/output"):
            checkpoint_branches.stay(root / "state-00004.h5")
        assert [one.epoch for one in checkpoint_branches.all_states(root)] == [2, 4, 6]
    assert names(root) == ["state-00002.h5", "state-00004.h5", "state-00006.h5"]
    assert checkpoint_branches.read_note(root).stays == ("state-00002.h5",)
    (root / checkpoint_branches.NOTE).write_text("{")
    writer._remove_old(root)
    with raises("file.damaged", root / "branch.json"):
        checkpoint_branches.newest(root)
    assert len(names(root)) == 3
    (root / checkpoint_branches.NOTE).unlink()
    assert checkpoint_branches.newest(root).name == "state-00006.h5"
    writer._remove_old(root)
    assert names(root) == ["state-00006.h5"]


def test_the_keeper_thins_out_all_but_what_is_to_stay(root: Path) -> None:
    checkpoint_branches.stay(root / "state-00002.h5")
    writer = CheckpointWriter(Checkpointing(folder=root, max_to_keep=2), 0, 1, "a scan", root / "state-00006.h5")
    put(root, 8)
    put(root, 10)
    writer._remove_old(root)
    assert names(root) == ["state-00002.h5", "state-00008.h5", "state-00010.h5"]
    with raises("checkpoint.not-found", "state-00004.h5"):
        checkpoint_branches.stay(root / "state-00004.h5")


def test_parts_of_a_state_that_is_being_written_stay(tmp_path: Path) -> None:
    """Another rank may have written its part before rank 0 has removed the parts that belong to nothing."""
    put(tmp_path, 99_999)
    coming = ["state-100000.rank1.h5", "state-99999-1000.rank10.h5", "state-99999.2.rank1.h5"]
    for name in ["state-99998-007.rank1.h5", "state-09999.rank1.h5", *coming]:
        (tmp_path / name).write_bytes(b"rows")
    CheckpointWriter(Checkpointing(folder=tmp_path), 0, 1, "a scan", tmp_path / "state-99999.h5")._remove_old(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.rank*.h5")) == sorted(coming)


def test_a_branch_is_preceded_by_what_came_before_it_was_left(tmp_path: Path) -> None:
    for epoch in (99_999, 100_000, 100_001):
        put(tmp_path, epoch)
    branch = checkpoint_branches.begin(tmp_path, "trial", tmp_path / "state-100000.h5").parent
    assert checkpoint_branches.lineage(branch) == [tmp_path / "state-99999.h5", branch / "state-100000.h5"]


def test_a_folder_of_our_own_goes_with_its_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTYNB_KEPT", str(tmp_path))
    old = checkpoint_dir.new_folder("old")
    put(old, 2)
    checkpoint_branches.begin(old, "trial", old / "state-00002.h5")
    assert checkpoint_dir._ours(old) != []
    for path in [*old.rglob("*.h5"), *old.rglob("*.json")]:
        os.utime(path, (1, 1))
    checkpoint_dir.create_and_prune(checkpoint_dir.new_folder("new"))
    assert not old.exists()


def test_a_note_with_other_values_is_damaged(tmp_path: Path) -> None:
    for note in ["[" * 100_000, '{"stays": [3]}', '{"stays": [], "used": "now"}']:
        with of_case(note, tmp_path) as home:
            root = three(home)
            (root / checkpoint_branches.NOTE).write_text(note)
            with raises("file.damaged", "branch.json"):
                checkpoint_branches.newest(root)
            assert len(checkpoint_branches.all_states(root)) == 3
            (root / checkpoint_branches.NOTE).unlink()
            assert checkpoint_branches.newest(root).name == "state-00006.h5"


def test_a_state_whose_first_bytes_say_nothing_is_as_old_as_its_file(tmp_path: Path) -> None:
    for header in ['{"run": "a", "token": "b", "written": "now"}', '{"run": [', "[" * 400]:
        with of_case(header, tmp_path) as home:
            root = three(home)
            path = root / "state-00004.h5"
            with path.open("r+b") as file:
                file.write(f"ptynb state 1\n{header}\n".encode().ljust(512, b"\0"))
            os.utime(path, ns=(1, 1))
            assert names(root) == ["state-00004.h5", "state-00002.h5", "state-00006.h5"]


def test_a_state_with_another_record_is_left_out(tmp_path: Path) -> None:
    for record in ["[1]", '{"epoch": [], "update": 0, "epochs": []}']:
        with of_case(record, tmp_path) as home:
            root = three(home)
            path = root / "state-00004.h5"
            with h5py.File(path, "r+") as file:
                del file["record"]
                file["record"] = np.frombuffer(record.encode(), np.uint8)
            assert [one.epoch for one in checkpoint_branches.all_states(root)] == [2, 6]
