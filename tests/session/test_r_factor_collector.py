"""R-factors of single patterns, and the map of the standard error, of a session: on engines as in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.pattern_r_factors import MeasuredRFactors, PatternRFactors
from ptynb.data.scan import Scan
from ptynb.session.r_factor_collector import RFactorCollector
from tests.raising import raises

SETTINGS = pt.Settings(precision="double", positions=pt.Positions(learning_rate=0.1))


def measured_after(scan: Scan, cluster: pt.Cluster | None) -> tuple[PatternRFactors, list[float]]:
    device = "cpu" if cluster is None else "auto"
    with pt.Reconstruction(scan, SETTINGS, cluster, device=device, checkpointing=None) as recon:
        list(recon.run(3))
        found = recon.pattern_r_factors()
        return found, [recon.pattern(index).r_factor for index in (0, 17, 99)]


def test_engines_give_what_one_process_gives(scan: Scan, cluster: pt.Cluster) -> None:
    alone, direct = measured_after(scan, None)
    together, _ = measured_after(scan, cluster)
    assert alone.complete
    assert together.complete
    np.testing.assert_allclose(together.values, alone.values, rtol=1e-5)
    np.testing.assert_allclose(alone.values[[0, 17, 99]], direct, rtol=1e-9)
    assert {*together.epochs} == {3}
    assert repr(together).startswith("<PatternRFactors: 100 of 100 patterns, median 0.")


def test_a_run_is_measured_piece_by_piece_and_a_restored_state_anew(
    scan: Scan, cluster: pt.Cluster, tmp_path: Path
) -> None:
    with pt.Reconstruction(scan, cluster=cluster, checkpointing=pt.Checkpointing(folder=tmp_path)) as recon:
        first = recon.pattern_r_factors(0.0)
        assert 0 < first.measured.sum() < 100
        assert not first.complete
        assert np.isnan(first.values[~first.measured]).all()
        recon.start(100_000)
        running = recon.pattern_r_factors()  # while it runs: all later than the call
        assert running.measured.all()
        assert running.median < first.median
        assert 0 < running.cost < 5
        recon.stop()
        recon.wait()
        stored = recon.save_checkpoint()
        done = recon.pattern_r_factors()
        assert done.complete
        again = recon.pattern_r_factors(0.0)
        np.testing.assert_array_equal(again.values, done.values)
        recon.step()
        recon.restore(stored)
        restored = recon.pattern_r_factors()
        np.testing.assert_allclose(restored.values, done.values, rtol=1e-4)
        assert {*restored.epochs} == {recon.epoch}
        with raises("argument.invalid-value", "-1"):
            recon.pattern_r_factors(-1.0)


class Engine:
    """An engine with 4 patterns, which measures one at each question."""

    def __init__(self, rank: int, source: str) -> None:
        self.patterns, self.source, self.total = np.arange(4) + 4 * rank, source, 0

    def answer(self, source: str, total: int) -> MeasuredRFactors:
        self.total += 1
        new = np.arange(max(total if source == self.source else 0, self.total - 4), self.total) % 4
        values = np.full(len(new), float(self.source))
        return MeasuredRFactors(
            self.source, self.total, 4, self.patterns[new], values, 0 * new + self.total, self.total >= 4, 0.01
        )


def test_what_other_engines_have_measured_is_forgotten() -> None:
    engines = [Engine(0, "1"), Engine(1, "1.0")]
    loading = [2]

    def ask(rank: int, seconds: float, source: str, total: int) -> MeasuredRFactors | None:
        if loading[0]:
            loading[0] -= 1
            return None
        return engines[rank].answer(source, total)

    collector = RFactorCollector(8)
    assert not collector.collect(ask, 2, 0.1).measured.any()  # the next stage is being made
    for count in (1, 2):
        found = collector.collect(ask, 2, 0.1)
        assert found.measured.sum() == 2 * count
        assert not found.complete
    assert collector.collect(ask, 2, None).complete
    engines[1] = Engine(1, "2")
    found = collector.collect(ask, 2, 0.1)
    assert found.values[found.measured].tolist() == [2.0]
    assert not found.complete
    found = collector.collect(ask, 2, None)
    np.testing.assert_array_equal(found.values, [1.0] * 4 + [2.0] * 4)
    engines.pop()
    assert collector.collect(ask, 1, 0.1).measured.sum() <= 4


def test_the_error_map_beside_a_run_is_followed_and_can_be_cancelled(scan: Scan) -> None:
    with pt.Reconstruction(scan, pt.Settings(seed=4), device="cpu", checkpointing=None) as recon:
        with raises("argument.invalid-value", "error_map got 0 epochs"):
            recon.error_map()
        list(recon.run(3))
        done: list[tuple[int, int]] = []
        found = recon.error_map(progress=lambda *counts: done.append(counts))
        expected = pt.error_map(scan, pt.Settings(seed=4), epochs=3, device="cpu")
        np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-4)
        assert done[-1] == (6, 6)
        assert done == sorted(done)
        with raises("reconstruction.stopped", "cancelled after", "of 200000 epochs"):
            recon.error_map(100_000, cancelled=lambda: True)
        assert recon.step().number == 4  # it goes on


def test_engines_are_started_for_an_error_map_and_stopped(
    scan: Scan, cluster: pt.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[pt.Cluster] = []

    class Noted(pt.Cluster):
        def start(self) -> None:
            started.append(self)
            super().start()

    monkeypatch.setattr("ptynb.session.reconstruction.Cluster", Noted)
    with pt.Reconstruction(scan, pt.Settings(seed=4), cluster, checkpointing=None) as recon:
        found = recon.error_map(3, engines=2)
    expected = pt.error_map(scan, pt.Settings(seed=4), epochs=3, device="cpu")
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-2)
    own = started[0]
    assert all(one is own for one in started)
    assert len(own) == 2
    assert not own.running
