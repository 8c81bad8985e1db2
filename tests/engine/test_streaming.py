"""Frames that are not held: read batch by batch, ahead of time, bit for bit the reconstruction with held ones."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.geometry import Geometry
from ptynb.data.patterns import HDF5Frames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.io.scan_file import save_scan
from ptynb.kernels import parallel_unpack
from ptynb.loading import engine_patterns
from ptynb.loading.engine_patterns import choose_storage
from ptynb.loading.pattern_reader import PatternReader
from ptynb.loading.prefetch import AHEAD, ParallelPrefetch, ThreadPrefetch
from ptynb.settings import Optimiser, Settings
from tests.cases import MODES, a_scan
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.parametrization import each
from tests.raising import raises

CPU = torch.device("cpu")
STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "one a chunk": {"chunks": (1, 32, 32)},
    "five a chunk": {"chunks": (5, 32, 32)},
    "compressed": {"chunks": (5, 32, 32), "compression": "gzip"},
    "tiles": {"chunks": (4, 16, 32)},
}


def in_file(folder: Path, scan: Scan, how: str = "contiguous", dtype: str = "<u2") -> Scan:
    """The same scan with its patterns in a file."""
    with h5py.File(folder / "patterns.h5", "w") as file:
        patterns = scan.frames.read(0, len(scan))
        return dataclasses.replace(
            scan, frames=HDF5Frames.of(file.create_dataset("patterns", data=patterns.astype(dtype), **STORED[how]))
        )


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in ("object", "probe", "losses", "r_factor"):
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.system("worlds")), 2])
@pytest.mark.parametrize("batches", ["spread", "random", "compact"])
def test_frames_on_disk_give_the_same_bits(ranks: Ranks, tmp_path: Path, batches: Any, world: int) -> None:
    scan = in_file(tmp_path, a_scan(kind="masked"))
    held, streamed = (
        ranks.run(
            world, work.train, scan, Settings(probe=MODES, batch=8, batch_sampling=batches, pattern_storage=frames), 12
        )  # type: ignore[arg-type]
        for frames in ("host", "disk")
    )
    for one, other in zip(held, streamed, strict=True):
        assert_equal(one, other)


def several_probes(folder: Path) -> Scan:
    """Two scans of one object in files, each with a probe of its own; batches have patterns of both."""
    whole = pt.simulate(patterns=37, window=32, modes=2, photons=1e5, step=4, seed=3)
    parts = (pt.preparation.select(whole, part) for part in (slice(22), slice(22, None)))
    return pt.preparation.combine(
        [pt.save_scan(part, folder / f"{number}.h5") for number, part in enumerate(parts)], share="object"
    )


@pytest.mark.parametrize(
    "choices",
    [
        *({"optimiser": name} for name in get_args(Optimiser)),
        *({"optimiser": name, "probes": 2} for name in ("adam", "rpie", "lsqml", "lbfgs", "dm")),
        {"optimiser": "adam", "gradient_accumulation": 3},
        {"optimiser": "rpie", "gradient_accumulation": 2},
        {"optimiser": "adam", "loss": "intensity"},
        {"optimiser": "adam", "precision": "double"},
        {"optimiser": "adam", "batch_sampling": "random", "batch": 50},
        {"optimiser": "adam", "opr": {"modes": 1}},
        {"optimiser": "lsqml", "opr": {"modes": 1}, "batch_sampling": "compact"},
        {"optimiser": "lsqml", "batch_sampling": "interleaved"},
        {"optimiser": "adam", "positions": {"search_trials": 2, "search_start_epoch": 1}, "gradient_accumulation": 2},
    ],
    ids=str,
)
def test_whatever_the_algorithm_all_was_read_ahead(tmp_path: Path, choices: dict[str, Any]) -> None:
    scan, results = several_probes(tmp_path) if "probes" in choices else in_file(tmp_path, a_scan(kind="masked")), []
    choices = {name: value for name, value in choices.items() if name != "probes"}
    for frames in ("host", "disk"):
        settings = Settings(**{"probe": MODES, "batch": 8, **choices}, pattern_storage=frames)
        loop = Loop(scan, settings, SingleGroup(CPU))
        stream = loop.shard._ahead
        before = stream.unexpected if stream else 0
        _run(loop, 2)
        if stream:
            assert stream.unexpected == before
        losses = [epoch.loss for epoch in loop.epochs]
        results.append({**loop.arrays(), "losses": losses, "r_factor": loop.r_factor()[0]})
        loop.step()
        if stream:
            asked = stream.unexpected
            loop.step()
            assert stream.unexpected == asked, "evaluating lost the place"
        loop.disconnect()
    assert_equal(*results)


@each("dtype", ["u1", "<u2", ">u2", "<i2", "<u4", ">i8", "<f4", ">f8"])
@each("how", STORED)
def test_counts_are_those_of_the_file_however_stored(tmp_path: Path, how: str, dtype: str) -> None:
    folder = tmp_path / how / dtype
    folder.mkdir(parents=True)
    patterns = np.minimum(a_scan().frames.read(0, 37), 200).round().astype(np.float64)
    scan = dataclasses.replace(a_scan(kind="masked"), frames=Scan.from_arrays(patterns, a_scan().positions).frames)
    scan = in_file(folder, scan, how, dtype)
    expected = np.fft.ifftshift(np.where(scan.mask, patterns, 0), axes=(1, 2))
    order = np.random.default_rng(0).permutation(37)
    for frames in ("host", "disk"):
        loop = Loop(scan, Settings(pattern_storage=frames, loss="intensity"), SingleGroup(CPU))
        for some in (order, order[:1], order[3:9], order[:0]):
            counts = loop.shard.batch(some, 37).counts
            assert counts.dtype == torch.float32, (dtype, frames)
            np.testing.assert_array_equal(counts.numpy(), expected[some], f"{dtype}, {frames}")
        mean, sums = loop.shard.totals(37)
        np.testing.assert_allclose(mean.numpy(), expected.mean(0), rtol=1e-15, err_msg=f"{dtype}, {frames}")
        assert sums.counts == expected.sum(), (dtype, frames)
        assert sums.squares == (expected**2).sum(), (dtype, frames)
        loop.disconnect()


def test_a_file_cut_short_while_it_runs_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    scan = in_file(tmp_path, a_scan())
    loop = Loop(scan, Settings(pattern_storage="disk"), SingleGroup(CPU))
    loop.step()
    with (tmp_path / "patterns.h5").open("r+b") as file:
        file.truncate(4096)
    with pytest.raises(ValueError, match=r"Patterns \d+ to \d+ can't be read from .*patterns.h5.*Is the file whole"):
        _run(loop, 2)
    loop.disconnect()


def _run(loop: Loop, epochs: int) -> None:
    while loop.epoch < epochs:
        loop.step()


def test_status_and_result_say_where_frames_are(tmp_path: Path) -> None:
    scan = save_scan(a_scan(), tmp_path / "scan.h5")
    for frames, place in (("auto", "host"), ("device", "host"), ("host", "host"), ("disk", "disk")):
        loop = Loop(scan, Settings(pattern_storage=frames), SingleGroup(CPU))  # type: ignore[arg-type]
        assert loop.shard.place == place
        loop.disconnect()
    with contextlib.closing(pt.Reconstruction(scan, pt.Settings(pattern_storage="disk"), device="cpu")) as recon:
        recon.step()
        assert recon.status()[0].frames == recon.result.metadata["frames"] == "disk"
        assert recon.engines.endswith("frames read from disk")


def test_patterns_in_memory_are_not_sought_on_disk() -> None:
    with (
        contextlib.closing(pt.Reconstruction(a_scan(), pt.Settings(pattern_storage="disk"), device="cpu")) as recon,
        raises("patterns.not-in-file", "pattern_storage"),
    ):
        recon.wait()


GPU = torch.device("cuda")
GB = 10**9


def test_evaluating_takes_no_more_patterns_at_once_than_an_update() -> None:
    loop = Loop(a_scan(), Settings(batch=12, gradient_accumulation=4), SingleGroup(CPU))
    taken = list[int]()
    batch = loop.shard.batch

    def watched(patterns: Any, members: int, indices: Any = None) -> Any:
        taken.append(len(patterns))
        return batch(patterns, members, indices)

    loop.shard.batch = watched  # type: ignore[method-assign]
    loop.step()
    assert max(taken) == 3
    taken.clear()
    loop.r_factor()
    assert max(taken) == 3
    loop.disconnect()


def test_auto_takes_the_first_place_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 GB are free on the device and 40 on the host, for two engines."""
    monkeypatch.setattr(engine_patterns, "free_on_device", lambda device, engines: 10 * GB / engines)
    monkeypatch.setattr(engine_patterns, "free_on_host", lambda: 40 * GB)
    cases: list[tuple[Any, int, torch.device, bool, str]] = [
        ("auto", 4, GPU, False, "device"),
        ("auto", 6, GPU, True, "host"),
        ("auto", 11, GPU, True, "disk"),
        ("auto", 11, GPU, False, "host"),
        ("device", 100, GPU, True, "device"),
        ("host", 1, GPU, True, "host"),
        ("disk", 1, GPU, True, "disk"),
        ("auto", 9, CPU, True, "host"),
        ("auto", 11, CPU, True, "disk"),
    ]
    for wanted, needed, device, in_file, place in cases:
        chosen = choose_storage(wanted, needed * GB, 2 * needed * GB, device, in_file)
        assert chosen == place, (wanted, needed, device, in_file)
    assert choose_storage("auto", 3 * GB, 6 * GB, GPU, True, engines_per_gpu=2) == "host"


def test_patterns_for_which_no_place_has_room_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_patterns, "free_on_host", lambda: 40 * GB)
    with raises("patterns.not-enough-memory", "60 GB", "40 GB", "save_scan"):
        choose_storage("auto", 30 * GB, 60 * GB, CPU, in_file=False)


def batches(count: int) -> list[np.ndarray[Any, Any]]:
    return [np.array([number, number + 1]) for number in range(count)]


def test_a_stream_makes_what_is_announced_and_what_is_not() -> None:
    made = []

    def load(patterns: np.ndarray[Any, Any]) -> tuple[torch.Tensor, None]:
        made.append(patterns.tolist())
        return torch.from_numpy(patterns) * 10, None

    stream = ThreadPrefetch(lambda patterns: lambda: load(patterns))
    empty = np.array([], dtype=np.int64)
    stream.follow(iter([empty, *batches(3), empty, *batches(6)[3:]]))
    for patterns in [*batches(2), np.array([7, 7]), *batches(3)[2:], *batches(6)[4:]]:
        assert stream.take(patterns).tolist() == (10 * patterns).tolist()
        assert stream.take(patterns).tolist() == (10 * patterns).tolist()
    stream.close()
    assert stream.unexpected == 1
    assert sorted(made) == sorted([batch.tolist() for batch in batches(6)] + [[7, 7]])


def test_a_stream_stays_at_most_two_batches_ahead() -> None:
    made = []

    def begin(patterns: np.ndarray[Any, Any]) -> Any:
        made.append(patterns[0])
        return lambda: (torch.zeros(1), None)

    stream = ThreadPrefetch(begin)
    stream.follow(iter(batches(50)))
    for number, patterns in enumerate(batches(10)):
        stream.take(patterns)
        assert len(made) <= number + 1 + AHEAD
    stream.close()
    assert len(made) <= 10 + AHEAD


@each("threads", [1, 3])
@each("window", [(32, 32), (7, 10)])
@each("kind", ["<u1", "<u2", "<i4", "<f4", "<f8"])
def test_all_threads_read_what_one_reads(tmp_path: Path, window: tuple[int, int], threads: int, kind: str) -> None:
    """Bad pixels are 0, negative counts too, zero frequency comes first."""
    folder = tmp_path / f"{threads} {window} {kind}"
    folder.mkdir()
    random, before = np.random.default_rng(4), torch.get_num_threads()
    stored = random.integers(0 if kind[1] == "u" else -20, 200, (9, *window)).astype(kind)
    mask = random.random(window) > 0.1
    with h5py.File(folder / "patterns.h5", "w") as file:
        frames = HDF5Frames.of(file.create_dataset("patterns", data=stored))
    geometry = Geometry(wavelength=1e-10, distance=1.0, detector_pixel=(1e-4, 1e-4))
    positions = random.random((9, 2)) * 9
    scan = Scan(frames=frames, positions=positions, geometry=geometry, mask=mask, clip_negative=True)
    source = PatternReader(scan, torch.float64)
    assert ParallelPrefetch.possible(source, CPU), kind
    torch.set_num_threads(threads)
    direct = ParallelPrefetch(source, torch.float64)
    try:
        for patterns in (np.array([8, 0, 3]), np.array([5]), np.arange(9)):
            expected = np.fft.ifftshift(np.where(mask, stored[patterns].clip(0), 0), axes=(1, 2))
            np.testing.assert_array_equal(direct.take(patterns).numpy(), expected.astype(np.float64), kind)
    finally:
        direct.close()
        torch.set_num_threads(before)
    open_files = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    assert str(folder / "patterns.h5") not in open_files


def test_the_system_is_told_what_comes_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = PatternReader(in_file(tmp_path, a_scan()), torch.float32)
    places, told, read = source.frames.places, list[list[int]](), parallel_unpack.read  # type: ignore[attr-defined]

    def watched(stored: Any, now: Any, coming: Any, *others: Any) -> bool:
        told.append(coming.tolist())
        return read(stored, now, coming, *others)

    monkeypatch.setattr(parallel_unpack, "read", watched)
    direct = ParallelPrefetch(source, torch.uint16)
    direct.follow(iter(batches(5)))
    for patterns in batches(5):
        direct.take(patterns)
    direct.close()
    assert told[0] == places[[0, 1, 1, 2, 2, 3]].tolist()
    assert told[1:] == [places[[3, 4]].tolist(), places[[4, 5]].tolist(), [], []]


def test_patterns_of_which_no_loop_can_be_made_are_read_beside(tmp_path: Path) -> None:
    scan = in_file(tmp_path, a_scan(), dtype=">u2")
    loop = Loop(scan, Settings(batch=8, pattern_storage="disk"), SingleGroup(CPU))
    assert isinstance(loop.shard._ahead, ThreadPrefetch)
    loop.disconnect()
