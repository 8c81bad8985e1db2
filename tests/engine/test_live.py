"""Patterns that come while they are reconstructed: what was used when determines the result, on any engines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.session.recorded_arrivals import with_recorded_arrivals
from ptynb.settings import Checkpointing, Settings
from tests.cases import ALGORITHMS, CASES, a_scan
from tests.engine import live_work, work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import difference
from tests.live_source import Source, log_of

EPOCHS = 4


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """All numbers of two runs are equal to the bit."""
    assert one["losses"] == other["losses"]
    assert (one["live_epochs"], one["updates"]) == (other["live_epochs"], other["updates"])
    for name in ("object", "probe", "positions"):
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("world", [1, 3])
def test_a_run_repeated_by_its_record_is_equal_to_the_bit(ranks: Ranks, source: Source, world: int) -> None:
    """The patterns come in any order, and the run is paused meanwhile."""
    order = np.random.default_rng(world).permutation(100)
    source.start(40, order, before_call=32)
    first = ranks.run(world, live_work.live, source.live, Settings(batch=8), EPOCHS, None, None, None, 60)
    source.join()
    record = first[0]["admissions"]
    assert len(record) > 5
    assert sorted(record.patterns.tolist()) == [*range(100)]
    assert 0 < first[0]["live_epochs"] == len(first[0]["losses"]) - EPOCHS
    assert first[0]["status"].arrivals.admitted == 100
    again = ranks.run(world, live_work.live, with_recorded_arrivals(source.complete, record), Settings(batch=8), EPOCHS)
    for one, other in zip(first, again, strict=True):
        same(one, other)


@pytest.mark.parametrize("world", [1, 3])
def test_patterns_that_are_all_there_are_an_ordinary_scan(ranks: Ranks, source: Source, world: int) -> None:
    source.give(range(100))
    source.end()
    settings = Settings(batch=8, object=pt.Object(padding=4), schedule={"epochs": 100})
    updates = 26
    first = ranks.run(world, live_work.live, source.live, settings, 2)
    assert first[0]["live_epochs"] == 0
    ordinary = settings.replace(batch_sampling="interleaved")
    again = ranks.run(world, work.train, source.complete, ordinary, updates)
    for one, other in zip(first, again, strict=True):
        assert one["losses"] == other["losses"]
        for name in ("object", "probe", "positions"):
            np.testing.assert_array_equal(one[name], other[name])


LIVE = ("plain", "bad pixels", "positions", "variations", "weights", "two losses", "accumulated", "tilt of each")
BY_OTHERS = ("rpie", "lsqml")


@pytest.mark.parametrize("case", [*LIVE, *BY_OTHERS])
def test_n_engines_give_one_engines_answer(ranks: Ranks, case: str) -> None:
    """In double precision; a pattern comes with another position than planned, and some never come."""
    if case in CASES:
        kind, settings, _ = CASES[case]
    else:
        kind, settings, _ = ALGORITHMS[case]
    settings, most = settings.replace(batch=8, precision="double", schedule={"kind": "constant"}), 1e-8
    if settings.optimiser == "adam":  # 50 larger steps would amplify the rounding errors more
        settings = settings.replace(object={"learning_rate": 0.01}, probe={"learning_rate": 0.01})
    scan = a_scan(kind=kind)
    moved = scan.positions + np.random.default_rng(1).uniform(-1.5, 1.5, scan.positions.shape)
    order = np.random.default_rng(0).permutation(37)[:35]
    record = log_of(dataclasses.replace(scan, positions=moved), order, first=9, together=2, every=2)
    record = dataclasses.replace(record, planned=scan.positions)
    complete = with_recorded_arrivals(dataclasses.replace(scan, positions=moved), record)
    alone = ranks.run(1, live_work.repeat, complete, settings, record, 50)[0]
    assert 0 < alone["live_epochs"] < len(alone["losses"])
    for answer in ranks.run(3, live_work.repeat, complete, settings, record, 50):
        assert answer["losses"] == pytest.approx(alone["losses"], rel=most)
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=most)
        for name in {name for name in alone if isinstance(alone[name], np.ndarray)}:
            assert difference(alone[name], answer[name]) < most, name


def test_patterns_are_read_from_the_file_for_each_batch(ranks: Ranks, source: Source) -> None:
    """The same bits as from memory; counts that need a wider type come late."""
    record = log_of(source.scan, np.arange(100), first=32, together=6, every=2)
    source.give(range(100))
    source.end()
    complete, settings = with_recorded_arrivals(source.complete, record), Settings(batch=8)
    kept = ranks.run(2, live_work.repeat, complete, settings, record, 60)
    streamed = ranks.run(2, live_work.repeat, complete, settings.replace(pattern_storage="disk"), record, 60)
    for one, other in zip(kept, streamed, strict=True):
        same(one, other)
        assert one["r_factor"] == other["r_factor"]
        assert other["unexpected"] == 0


def test_a_pattern_with_larger_counts_widens_the_stored_type(ranks: Ranks, measured: Scan) -> None:
    counts = measured.counts(0, 100).astype(np.uint32)
    counts[80] *= 50
    assert counts[:80].max() < 2**16 < counts[80].max()
    stored = pt.Scan.from_arrays(counts, measured.positions, geometry=measured.geometry)
    record = log_of(stored, np.arange(100), first=32, together=6, every=2)
    wide = pt.Scan.from_arrays(counts.astype(np.float64), measured.positions, geometry=measured.geometry)
    for world in (1, 2):
        one, other = (
            ranks.run(world, live_work.repeat, with_recorded_arrivals(of, record), Settings(batch=8), record, 60)[0]
            for of in (stored, wide)
        )
        same(one, other)


def test_faults_of_a_source_leave_the_run_of_the_patterns_that_came(
    ranks: Ranks, measured: Scan, tmp_path: Path
) -> None:
    """Shuffled, with duplicates and missing patterns, positions measured and two seconds late, one of them outside."""
    random = np.random.default_rng(3)
    positions = measured.positions + random.uniform(-2, 2, measured.positions.shape)
    positions[40] = measured.positions.max(0) + 25
    source = Source(measured, tmp_path / "spool", positions=positions)
    try:
        order = np.arange(100)
        for start in range(0, 100, 25):
            random.shuffle(order[start : start + 25])
        came = np.setdiff1d(order, [13, 57, 98])
        sent = [number for number in order.tolist() if number in came]
        sent = [*sent[:60], *sent[50:53], *sent[60:]]
        source.start(200, sent, late=2.0, before_call=32)
        first = ranks.run(2, live_work.live, source.live, Settings(batch=8), EPOCHS)
        source.join()
        arrivals = first[0]["status"].arrivals
        assert (arrivals.arrived, arrivals.missing, arrivals.duplicates, arrivals.refused) == (97, 3, 3, 1)
        assert (arrivals.admitted, arrivals.late) == (96, 0)
        record = first[0]["admissions"]
        assert sorted(record.patterns.tolist()) == [number for number in came.tolist() if number != 40]
        np.testing.assert_array_equal(record.positions, positions[record.patterns])
        assert record.summary["missing"] == 3
        (notice,) = first[0]["status"].notices
        assert "96 of 100" in notice
        used = np.sort(record.patterns)
        clean = pt.preparation.select(dataclasses.replace(measured, positions=positions), used)
        for complete in (clean, source.live):
            again = ranks.run(2, live_work.live, with_recorded_arrivals(complete, record), Settings(batch=8), EPOCHS)
            for one, other in zip(first, again, strict=True):
                same(one, other)
    finally:
        source.close()


def test_a_checkpoint_during_the_scan_continues_as_if_uninterrupted(
    ranks: Ranks, source: Source, tmp_path: Path
) -> None:
    keep = Checkpointing(folder=tmp_path / "kept", epochs=None, seconds=None)
    source.start(40, before_call=32)  # slower than epochs, also on a busy machine
    settings = Settings(batch=8, positions=pt.Positions(learning_rate=0.1))
    first = ranks.run(2, live_work.live, source.live, settings, EPOCHS, keep, None, 50)
    source.join()
    record = first[0]["admissions"]
    complete = with_recorded_arrivals(source.complete, record)
    state = pt.io.checkpoint_file.load_state(first[0]["kept"])
    assert 50 <= len(state.admissions.patterns) < 100
    assert 0 < state.updates_done < first[0]["updates"]
    again = ranks.run(2, live_work.live, complete, settings, EPOCHS, None, Path(first[0]["kept"]))
    for one, other in zip(first, again, strict=True):
        same(one, other)
        assert one["counts"] == other["counts"]
