"""State files: what is read is what was written, and whatever is not whole is refused with a sentence."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

from ptynb.data.engine_records import Change, Epoch
from ptynb.exceptions import FileError
from ptynb.io.checkpoint_file import (
    ReconstructionState,
    companion,
    file_name,
    image,
    is_of,
    load_rows,
    load_state,
    newest_state,
    packed,
    precedes,
    put,
    save_state,
    states,
)
from tests.raising import raises


def a_state(epoch: int = 3, update: int = 0, run: str = "one") -> ReconstructionState:
    random = np.random.default_rng(epoch)
    return ReconstructionState(
        settings={"batch": 8, "loss": "amplitude"},
        begun={"batch": 8, "loss": "poisson"},
        scan={"name": "a scan", "patterns": 5, "window": [4, 4], "positions": "ab", "file": None, "counts": 1 / 3},
        epoch=epoch,
        update=update,
        target=9,
        epochs=(Epoch(1, 0.1, 1 / 3, 7.0), Epoch(2, float("nan"), 0.2, 8.0)),
        changes=(Change(1, 2, "probe.learning_rate", 0.1, 0.2),),
        seconds=0.1 + 0.2,
        active={"object": True, "point spread": False},
        power=1e7 / 3,
        numbers={"algorithm/t": 1 / 3, "algorithm/n_iter": 4},
        batch=8,
        loss_sums=random.random(3),
        scale=np.float32(0.3).reshape(()),
        model={"object.parts": random.random((1, 1, 40, 50, 2)).astype(np.float32), "affine.map": np.array(3)},
        algorithm={
            "optimiser/object/parts/exp_avg": random.random((1, 1, 40, 50, 2)),
            "algorithm/ro": np.zeros((0, 2)),
        },
        patterns=np.array([0, 2, 4]),
        rows={"waves": random.random((3, 2, 2))},
        run=run,
        token=f"token {epoch}",
        metadata={"ptynb": "1"},
    )


def assert_same(one: ReconstructionState, other: ReconstructionState) -> None:
    (record, arrays), (others, theirs) = packed(one), packed(other)
    assert repr(record) == repr(others)
    assert set(arrays) == set(theirs)
    for name, values in arrays.items():
        assert (values.dtype, values.shape) == (theirs[name].dtype, theirs[name].shape), name
        np.testing.assert_array_equal(values, theirs[name])


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    state = a_state()
    path = save_state(state, tmp_path / "made" / file_name(3, 17))
    assert path.name == "state-00003-017.h5"
    assert_same(load_state(path), state)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pytest.raises(IsADirectoryError):
        save_state(state, path.parent)
    assert [*tmp_path.iterdir()] == [path.parent], "a file that can't be moved to its place is removed"
    assert b"pickle" not in path.read_bytes()
    with h5py.File(path) as file:
        assert file["model/object.parts"].fletcher32


def test_any_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    state = a_state()
    whole = save_state(state, tmp_path / file_name(3, 0)).read_bytes()
    damaged, refused = tmp_path / file_name(4, 0), 0
    random = np.random.default_rng(0)
    for place in random.integers(512, len(whole), 60).tolist():
        octets = bytearray(whole)
        octets[place] ^= 1 << int(random.integers(8))
        damaged.write_bytes(octets)
        try:
            assert_same(load_state(damaged), state)
        except FileError as error:
            refused += 1
            assert "state-00003.h5, the one before it" in str(error)  # noqa: PT017 - either is right
    assert refused > 30
    for size in (0, 100, 512, 600, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:size])
        with raises("file.damaged", "state-00004.h5", "Use", "state-00003.h5"):
            newest_state(tmp_path)


def test_foreign_files_are_refused_and_the_one_before_is_named(tmp_path: Path) -> None:
    with raises("checkpoint.not-found", tmp_path):
        newest_state(tmp_path)
    foreign = tmp_path / file_name(7, 0)
    foreign.write_text("not HDF5 at all")
    with raises("file.damaged", tmp_path) as refusal:
        newest_state(tmp_path)
    assert "the one before" not in str(refusal.value)
    for epoch in (1, 2):
        save_state(a_state(epoch), tmp_path / file_name(epoch, 0))
    assert newest_state(tmp_path) == tmp_path / file_name(2, 0)
    with h5py.File(foreign, "w") as file:
        file.attrs["format"] = "ptynb result"
    os.utime(foreign, (time.time() + 10,) * 2)
    with raises("file.unknown-format", "state-00007.h5", "Use", "state-00002.h5"):
        newest_state(tmp_path)
    with h5py.File(foreign, "w") as file:
        file.attrs.update(format="ptynb state", version=4)
    with raises("file.unsupported-version", "version 4", "reads 2 and 3"):
        load_state(foreign)
    with h5py.File(foreign, "w") as file:
        file.attrs.update(format="ptynb state", version=2)
        file["record"] = np.frombuffer(b'{"epoch": 3}', dtype=np.uint8)
        file["record"].attrs["shape"] = (12,)
    with raises("file.incomplete", "settings"):
        load_state(foreign)


def test_the_order_is_that_of_writing_not_of_names(tmp_path: Path) -> None:
    """Who goes on from an earlier state comes to other ones, which are newer than those of the first attempt."""
    for epoch in (5, 9, 6):
        save_state(a_state(epoch), tmp_path / file_name(epoch, 0))
    (tmp_path / "state-5.h5").write_text("not a name of ours")
    assert [path.name for path in states(tmp_path)] == ["state-00005.h5", "state-00009.h5", "state-00006.h5"]
    assert newest_state(tmp_path).name == "state-00006.h5"
    assert states(tmp_path / "nowhere") == []


PROGRESS = [(2, 0), (2, 1), (2, 999), (2, 1000), (3, 0), (99_999, 7), (100_000, 0), (100_000, 1000), (1_000_000, 0)]


def test_progress_in_names_is_compared_as_numbers(tmp_path: Path) -> None:
    """After update 999 and epoch 99,999 numbers are longer than the padding of the names."""
    for (place, one), (other_place, other) in itertools.product(enumerate(PROGRESS), repeat=2):
        for path in (Path(file_name(*one)), Path(file_name(*one, [file_name(*one)]))):
            assert precedes(path, *other) is (place < other_place), (path, other)
            assert is_of(path, *other) is (place == other_place), (path, other)
    assert precedes(tmp_path / "renamed by the user.h5", 0, 0), "it was written before all of this run"
    for number, progress in enumerate(PROGRESS):
        path = tmp_path / file_name(*progress)
        path.write_bytes(b"")
        os.utime(path, (1e9, 1e9))  # as a disk that counts whole seconds says of a fast run
        assert [one.name for one in states(tmp_path)] == [file_name(*one) for one in PROGRESS[: number + 1]]


def test_rows_are_found_by_pattern_in_whatever_file_they_are(tmp_path: Path) -> None:
    path, waves = tmp_path / file_name(3, 0), np.random.default_rng(0).random((5, 2, 2))
    for rank, patterns in enumerate((np.array([0, 2, 4]), np.array([1, 3]))):
        part = dataclasses.replace(a_state(), patterns=patterns, rows={"waves": waves[patterns]}, parts=2)
        put(companion(path, rank), image(part, rank))
        if rank == 0:
            with raises("checkpoint.incomplete", "[1]", "state-00003.rank1.h5"):
                load_state(path)
            put(companion(path, 1), image(dataclasses.replace(part, token="another moment"), 1))
            with raises("checkpoint.incomplete", "[1]", "of another moment"):
                load_state(path)
    state = load_state(path)
    for wanted in ([0, 1, 2], [3, 4], [0, 1, 2, 3, 4]):
        np.testing.assert_array_equal(load_rows(path, state, np.array(wanted))["waves"], waves[wanted])
