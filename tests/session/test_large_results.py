"""Results whose object is in tiles and larger than what is kept in memory; here every object is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.io.reading import large_array
from ptynb.session.run_result import with_guesses_of
from tests.raising import raises

SETTINGS = pt.Settings(
    batch=10,
    batch_sampling="cells",
    object=pt.Object(modes=2, layout="tiles", parametrization="amplitude_phase"),
    slices={"count": 2, "thickness": 1e-6},
    positions={"learning_rate": 0.05},
)
IN_ENGINES = """
from ptynb.io.reading import large_array
from ptynb.optimize import object_tiles
large_array.LARGE_BYTES, object_tiles.PIECE_BYTES = {large}, {piece}
"""
NO_SPACE = """
import errno
from ptynb.engine import loop
before = loop.write_piece
def write_piece(path, *rest):
    def full(*_, **__): raise OSError(errno.ENOSPC, "No space left on device")
    large_array.h5py, own = type("h5py", (), {"File": full}), large_array.h5py
    try: before(path, *rest)
    finally: large_array.h5py = own
from ptynb.io.reading import large_array
loop.write_piece = write_piece
"""


@pytest.fixture(autouse=True)
def _large(cluster: pt.Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All objects are large, and engines send them in many pieces."""
    monkeypatch.setattr(large_array, "LARGE_BYTES", 0)
    for rank in (0, 1):
        cluster.call(rank, exec, IN_ENGINES.format(large=0, piece=5000))
    yield
    for rank in (0, 1):
        cluster.call(rank, exec, IN_ENGINES.format(large=2**28, piece=2**24))


def assert_mapped(object: object) -> None:
    assert isinstance(object, np.memmap)
    assert not object.flags.writeable


@pytest.fixture
def scan() -> pt.Scan:
    return pt.simulate(patterns=36, window=32, seed=4)


def test_the_object_of_a_streamed_run_is_in_a_file(scan: pt.Scan, tmp_path: Path) -> None:
    settings = SETTINGS.replace(object={"layout": "whole"}, batch_sampling="bands", batch_bands=2)
    results = []
    for layout in ("whole", "streamed"):
        with pt.Reconstruction(
            scan,
            settings.replace(object={"layout": layout}),
            device="cpu",
            checkpointing=pt.Checkpointing(folder=tmp_path / layout),
        ) as recon:
            [*recon.run(2)]
            results.append(recon.result.object)
            assert not [*(tmp_path / layout).glob(".*")]
    assert not isinstance(results[0], np.memmap)
    assert_mapped(results[1])
    np.testing.assert_allclose(results[1], results[0], atol=1e-4)


def test_the_object_of_a_result_is_in_a_file(scan: pt.Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=pt.Checkpointing(folder=kept)) as recon:
        [*recon.run(1)]
        first = recon.result
        [*recon.run(1)]
        checkpoint = recon.save_checkpoint()
        result = recon.result
        at_checkpoint, of_branch = pt.load_result(checkpoint), recon.branch_result("main")
        saved = pt.load_result(recon.save(tmp_path / "a.result.h5"))
        assert not [*kept.glob(".*")]
    assert result.object.shape[:2] == (2, 2)
    for one in (first, result, at_checkpoint, of_branch, saved):
        assert_mapped(one.object)
    assert_mapped(recon.result.object)
    difference = np.abs(first.object - result.object).max()
    assert difference > 1e-3, "a later result does not replace an earlier one"
    for one in (at_checkpoint, of_branch, saved):
        np.testing.assert_array_equal(one.object, result.object)
        assert (one.origin, one.positions.tolist()) == (result.origin, result.positions.tolist())
    assert of_branch.parameters.keys() == result.parameters.keys() > {"positions/start"}
    for name, values in result.parameters.items():
        np.testing.assert_array_equal(of_branch.parameters[name], values)
    checkpoint.with_name(f"{checkpoint.stem}.rank1.h5").unlink()
    with raises("checkpoint.incomplete", str(checkpoint), "rank1"):
        pt.load_result(checkpoint)


def test_it_is_that_which_is_gathered(scan: pt.Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    """Without checkpoints there is no folder that the engines see, too."""
    objects = []
    for checkpointing in (None, pt.Checkpointing(folder=tmp_path)):
        with pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=checkpointing) as recon:
            [*recon.run(1)]
            objects.append(recon.result.object)
    assert type(objects[0]) is np.ndarray
    assert_mapped(objects[1])
    np.testing.assert_array_equal(*objects)


def test_a_full_disk_is_told_and_the_run_goes_on(scan: pt.Scan, cluster: pt.Cluster, tmp_path: Path) -> None:
    cluster.call(0, exec, NO_SPACE)
    try:
        with pt.Reconstruction(scan, SETTINGS, cluster, checkpointing=pt.Checkpointing(folder=tmp_path)) as recon:
            [*recon.run(1)]
            with raises("file.not-writable", str(tmp_path), "No space left"):
                recon.result  # noqa: B018 - what it is read for
            cluster.call(0, exec, "from ptynb.engine import loop; loop.write_piece = before")
            [*recon.run(1)]
            assert_mapped(recon.result.object)
            cluster.call(0, exec, NO_SPACE)
            with raises("file.not-writable", str(tmp_path)):
                recon.close()
        assert recon.state == "closed"
    finally:
        cluster.call(0, exec, "from ptynb.engine import loop; from ptynb.io.reading import large_array; "
                              "loop.write_piece = large_array.write_piece")  # fmt: skip


def test_it_is_an_initial_guess(cluster: pt.Cluster, tmp_path: Path) -> None:
    scan = pt.simulate(patterns=16, window=16, step=3, seed=4)
    with pt.Reconstruction(scan, device="cpu", checkpointing=None) as recon:
        [*recon.run(1)]
        found = pt.load_result(recon.save(tmp_path / "a.result.h5"))
    assert_mapped(found.object)
    with pt.Reconstruction(with_guesses_of(found, scan), device="cpu", checkpointing=None) as recon:
        [*recon.run(1)]
        assert recon.result.epochs[0].loss < found.epochs[0].loss
    assert_mapped(found.object)
