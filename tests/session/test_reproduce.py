"""A run repeated from its own record: to the bit, on one engine and on two; and what can't be repeated is said."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb import preparation
from ptynb.data.record import Change, RunSpan
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.io.result_file import load_result, save_result
from ptynb.session.reproduce import compared, notes_on
from tests.raising import raises

SETTINGS = pt.Settings(
    batch=8, seed=3, descan=pt.Descan(start="plane", learning_rate=0.05), fly_scan=pt.FlyScan(steps=2)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "scan.h5"
    pt.simulate(patterns=36, window=32, seed=5, path=path)
    return path


@pytest.fixture(scope="module")
def scan(file: Path) -> Scan:
    return pt.load(file)


def restless(scan: Scan, cluster: pt.Cluster | None, path: Path) -> Path:
    """A run with changes of rates, a schedule and a freeze in mid-epoch, more modes, and another batch; its result."""
    device = "auto" if cluster else "cpu"
    with pt.Reconstruction(
        scan, SETTINGS, cluster, device=device, checkpointing=pt.Checkpointing(folder=path.parent / "kept")
    ) as recon:
        for epoch, update, changes in (
            (1, 2, {"probe": {"learning_rate": 0.003}, "schedule": {"kind": "linear", "end_factor": 0.2}}),
            (2, 0, {"probe": {"modes": 2}}),
            (3, 1, {"probe": {"learning_rate": 0.0}}),
            (3, 3, {"batch": 12, "object": {"learning_rate": 0.02}}),
            (4, 1, {"probe": {"learning_rate": 0.01}}),
        ):
            recon.run_until(epoch, update)
            recon.wait()
            recon.reconfigure(recon.settings.replace(**changes))
        recon.run_until(5, 2)
        recon.wait()
        return recon.save(path)


@pytest.fixture(scope="module")
def alone(scan: Scan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return restless(scan, None, tmp_path_factory.mktemp("alone") / "result.h5")


def test_a_run_with_changes_is_repeated_to_the_bit(alone: Path) -> None:
    told: list[str] = []
    repeat = pt.reproduce(alone, device="cpu", report=told.append)
    assert repeat.equal
    assert (repeat.difference, repeat.loss, repeat.notes) == (0.0, 0.0, ())
    assert str(repeat) == "5 epochs again. Equal to the bit."
    assert [line.split(": ")[1] for line in told] == [
        "probe.learning_rate, schedule.kind, schedule.end_factor",
        "probe.modes",
        "probe.learning_rate",
        "object.learning_rate, batch",
        "probe.learning_rate",
    ]
    second = repeat.second
    assert (second.update, second.machines.engines, len(second.probe)) == (2, 1, 2)
    assert second.changes == load_result(alone).changes
    spans = (0, 0, 0, 2), (2, 0, 2, 4), (3, 0, 3, 5), (4, 1, 4, 6)
    assert second.runs == load_result(alone).runs == tuple(RunSpan(*span, 0.0) for span in spans)
    assert second.initial_settings == SETTINGS.model_dump(mode="json")


def test_a_run_whose_object_grew_for_refined_positions_is_repeated_to_the_bit(scan: Scan, tmp_path: Path) -> None:
    """All of its changes are live ones, and need checkpoints nevertheless."""
    kept = pt.Checkpointing(folder=tmp_path / "kept")
    with pt.Reconstruction(scan, pt.Settings(batch=12), device="cpu", checkpointing=kept) as recon:
        recon.run_until(1, 1)
        recon.wait()
        recon.reconfigure(recon.settings.replace(positions={"learning_rate": 0.1}))
        recon.run_until(2)
        recon.wait()
        path = recon.save(tmp_path / "result.h5")
    repeat = pt.reproduce(path, device="cpu")
    assert (repeat.equal, repeat.notes) == (True, ())


def test_a_run_on_two_engines_is_repeated_to_the_bit(scan: Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    path = restless(scan, cluster, tmp_path / "result.h5")
    repeat = pt.reproduce(path, cluster=cluster)
    assert (repeat.equal, repeat.notes) == (True, ())
    assert repeat.second.machines.engines == 2
    other = pt.reproduce(path, device="cpu")
    assert not other.equal
    assert other.difference is not None
    assert other.difference < 1e-2
    assert "engines: 2 in the original run, 1 now." in other.notes


def test_what_goes_another_way_is_found(alone: Path, tmp_path: Path) -> None:
    first = load_result(alone)
    path = save_result(dataclasses.replace(first, changes=first.changes[:-1]), tmp_path / "result.h5")
    repeat = pt.reproduce(path, device="cpu")
    assert not repeat.equal
    assert repeat.difference is not None
    assert 0 < repeat.difference < 0.5
    assert "Not equal to the bit.\nRelative difference of the objects" in str(repeat)


def broken(first: Result) -> Iterator[tuple[str, Result, str, str]]:
    where = first.scan
    yield "arrays", dataclasses.replace(where, path=""), "scan.not-in-file", "reproduce(path, scan)"
    yield "words", dataclasses.replace(where, arrays=("mask",)), "scan.not-in-file", "mask"
    yield "gone", dataclasses.replace(where, path="/nowhere/a.h5"), "file.not-found", "a.h5"
    yield "size", dataclasses.replace(where, size=7), "scan.other", "had 7 when"
    yield "digest", dataclasses.replace(where, digest="0"), "scan.other", "positions"
    yield "sample", dataclasses.replace(where, sample_digest="0"), "scan.other", "other patterns"
    yield "patterns", dataclasses.replace(where, patterns=7), "scan.other", "7 patterns of 32 x 32 pixels"
    yield "given", dataclasses.replace(where, given={"volts": 3}), "file.damaged", "volts"


def test_another_scan_is_refused_with_one_sentence_and_the_remedy_works(
    scan: Scan, alone: Path, tmp_path: Path
) -> None:
    first = load_result(alone)
    for name, identity, code, fact in broken(first):
        path = save_result(dataclasses.replace(first, scan=identity), tmp_path / f"{name}.h5")
        with raises(code, fact) as caught:
            pt.reproduce(path, device="cpu")
        assert "\n" not in str(caught.value)
    assert pt.reproduce(tmp_path / "gone.h5", scan, device="cpu").equal
    moved = dataclasses.replace(scan, positions=scan.positions + 0.25)
    with raises("scan.other", "positions"):
        pt.reproduce(alone, moved, device="cpu")


GOOD = np.arange(28) != np.arange(28)[:, None]


def prepared(scan: Scan, folder: Path) -> Scan:
    """Some steps, by functions and by their names, one with a small array and one with a file."""
    np.save(folder / "bad.npy", GOOD)
    scan = preparation.select(preparation.flip(scan, "x", positions=True), slice(0, None, 2))
    scan = preparation.subtract_dark(preparation.crop(scan, 28, centre=(15, 16)), 0.25)
    scan = preparation.affine_positions(scan, [[1.0, 0.01], [0.0, 1.0]])
    return pt.prepare(scan, [{"normalise": 1e5}, {"mask_pixels": str(folder / "bad.npy")}, "transpose"])


def test_a_scan_that_was_prepared_is_loaded_and_prepared_again(file: Path, tmp_path: Path) -> None:
    scan = prepared(pt.load(file), tmp_path)
    with pt.Reconstruction(scan, SETTINGS, device="cpu") as recon:
        list(recon.run(1))
        path = recon.save(tmp_path / "result.h5")
    identity = load_result(path).scan
    assert identity.prepared
    assert identity.preparation == (
        {"flip": {"axes": "x", "positions": True}},
        {"select": {"which": "0::2"}},
        {"crop": {"window": 28, "centre": [15, 16]}},
        {"subtract_dark": {"dark": 0.25}},
        {"affine_positions": {"matrix": [[1.0, 0.01], [0.0, 1.0]]}},
        {"normalise": {"counts": 1e5}},
        {"mask_pixels": {"mask": str(tmp_path / "bad.npy")}},
        {"transpose": {}},
    )
    assert pt.reproduce(path, device="cpu").equal
    with pytest.raises(pt.FileError, match="is the result of"):
        pt.reproduce(path, pt.load(file), device="cpu")
    np.save(tmp_path / "bad.npy", ~GOOD)
    with raises("scan.other", "mask"):
        pt.reproduce(path, device="cpu")
    (tmp_path / "bad.npy").unlink()
    with raises("file.not-found", "bad.npy", "mask", "reproduce(path, scan)"):
        pt.reproduce(path, device="cpu")


CHANGES: dict[str, tuple[Callable[[Scan], Scan], str]] = {
    "a large array": (lambda scan: preparation.mask_pixels(scan, np.eye(32) == 0), "mask_pixels, had mask as an array"),
    "no function": (lambda scan: dataclasses.replace(scan, positions=scan.positions + 1), "by other means"),
}
"""Changes after loading that are not, or not wholly, in a result's record."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_not_recorded_is_not_repeated_from_the_file(name: str, file: Path, tmp_path: Path) -> None:
    change, fact = CHANGES[name]
    saved = pt.save_scan(pt.load(file), tmp_path / "saved.h5")
    changed = change(saved)
    with pt.Reconstruction(changed, SETTINGS, device="cpu") as recon:
        list(recon.run(1))
        path = recon.save(tmp_path / "result.h5")
    assert load_result(path).scan.prepared
    with raises("scan.not-in-file", fact, "reproduce(path, scan)"):
        pt.reproduce(path, device="cpu")
    assert pt.reproduce(path, changed, device="cpu").equal


def test_a_saved_scan_is_repeated_from_its_file_and_not_from_one_with_other_counts(file: Path, tmp_path: Path) -> None:
    saved = pt.save_scan(pt.simulate(patterns=16, window=16, seed=2), tmp_path / "scan.h5")
    with pt.Reconstruction(saved, SETTINGS, device="cpu") as recon:
        list(recon.run(1))
        path = recon.save(tmp_path / "result.h5")
    assert pt.reproduce(path, device="cpu").equal
    with h5py.File(tmp_path / "scan.h5", "r+") as opened:
        opened["patterns"][0] = opened["patterns"][0][:, ::-1]  # the file's size and the sum of counts stay
    with raises("scan.other", "other patterns"):
        pt.reproduce(path, device="cpu")


def test_own_pieces_have_to_be_given_again(alone: Path, tmp_path: Path) -> None:
    first = load_result(alone)
    machines = dataclasses.replace(first.machines, extensions=("Mine",))
    path = save_result(dataclasses.replace(first, machines=machines), tmp_path / "result.h5")
    with raises("argument.missing", "Mine", "0 are given"):
        pt.reproduce(path, device="cpu")


def test_a_result_without_settings_can_not_be_repeated(alone: Path, tmp_path: Path) -> None:
    bare = dataclasses.replace(load_result(alone), settings={}, initial_settings={}, changes=())
    with raises("file.incomplete", "settings"):
        pt.reproduce(save_result(bare, tmp_path / "result.h5"), device="cpu")


def test_what_can_not_be_repeated_is_said_by_name(alone: Path) -> None:
    second = load_result(alone)
    first = dataclasses.replace(
        second,
        changes=(Change(2, 0, "engines", "engine 1 was killed", "1 engine continues"),),
        failure="Rank 0: a\nb",
        update=0,
        machines=dataclasses.replace(second.machines, threads=7),
        software=dataclasses.replace(second.software, torch="1.0"),
    )
    remarks = " ".join(notes_on(first, second))
    for words in (
        "After epoch 2 engines were lost, and the run continued from a checkpoint (engine 1 was killed)",
        "Rank 0: a ",
        "after epoch 5 and 0 updates, this one after epoch 5 and 2 updates",
        "threads of each engine: 7 in the original run",
        "torch: 1.0 in the original run",
    ):
        assert words in remarks


def test_losses_are_compared_where_both_have_them(alone: Path) -> None:
    first = load_result(alone)
    epochs = tuple(dataclasses.replace(epoch, loss=1.25 * epoch.loss) for epoch in first.epochs[:3])
    found = compared(first, dataclasses.replace(first, epochs=epochs))
    assert not found.equal
    assert found.loss == pytest.approx(0.25)
    assert found.difference == pytest.approx(0, abs=1e-6)
    small = dataclasses.replace(first, object=np.ones((3, 3), np.complex64), epochs=())
    found = compared(first, small)
    assert (found.difference, found.loss) == (None, None)
    assert "cannot be compared" in found.notes[0]
