"""Looking at a reconstruction on a real cluster of two engines, and in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.engine.worker import LATEST_R_FACTORS
from tests.raising import raises
from tests.session.test_reconstruction import until


@pytest.fixture(params=["two engines", "this process"])
def recon(request: pytest.FixtureRequest, cluster: pt.Cluster, scan: Scan) -> Iterator[pt.Reconstruction]:
    chosen = cluster if request.param == "two engines" else None
    with pt.Reconstruction(
        scan, pt.Settings(positions=pt.Positions(learning_rate=0.01)), chosen, checkpointing=None
    ) as made:
        yield made


def test_patterns_positions_and_values_are_those_of_the_result(recon: pt.Reconstruction, scan: Scan) -> None:
    list(recon.run(3))
    start, now = recon.positions
    result = recon.result
    np.testing.assert_allclose(start + result.origin, scan.positions)
    np.testing.assert_array_equal(now, result.positions)
    for index in (0, len(scan) // 2, len(scan) - 1):
        pair = recon.pattern(index)
        np.testing.assert_array_equal(pair.measured, scan.frames.read(index, index + 1)[0])
        assert pair.position == pytest.approx(tuple(result.positions[index]))
        assert pair.r_factor < 0.5
    pictures = recon.pictures()
    assert pictures is not None
    y, x = (side // 2 for side in pictures.pictures[0].shape)
    value = recon.value_at("complex", y, x, pt.RenderRequest(panes=("complex",)))
    assert value == result.object[y + pictures.corner[0], x + pictures.corner[1]]
    assert recon.value_at("amplitude", y, x) == pytest.approx(abs(value))
    for wrong in (-1, len(scan)):
        with raises("argument.invalid-value", f"pattern got {wrong}", len(scan) - 1):
            recon.pattern(wrong)


def test_a_pattern_is_followed_while_it_runs(recon: pt.Reconstruction, scan: Scan) -> None:
    recon.start(2000)
    until(lambda: recon.epoch >= 1)
    first = [recon.pattern(index) for index in (3, len(scan) - 3)]
    until(lambda: recon.pattern(3).epoch > first[0].epoch + 1)
    assert recon.pattern(3).modelled.tolist() != first[0].modelled.tolist()
    assert recon.state == "running"
    recon.stop()


def test_the_r_factor_is_measured_every_so_many_epochs_and_takes_no_time_of_theirs(recon: pt.Reconstruction) -> None:
    assert recon.r_factor_every == 0
    list(recon.run(1))
    recon.r_factor_every = 3
    list(recon.run(6))
    until(lambda: len(recon.r_factors) == 2)
    assert [epoch for epoch, _ in recon.r_factors] == [3, 6]
    assert recon.result.r_factor == pytest.approx(recon.r_factors[-1][1], rel=0.3)
    assert [epoch for epoch, _ in recon.r_factors] == [3, 6, 7]
    with raises("argument.invalid-type", "r_factor_every got 0.5"):
        recon.r_factor_every = 0.5  # type: ignore[assignment]
    assert recon.r_factor_every == 3


def test_each_engine_says_how_it_is(recon: pt.Reconstruction, scan: Scan) -> None:
    list(recon.run(2))
    # The other engines end the epoch after rank 0, and answer late on a busy machine.
    until(lambda: all(one.answered and one.agreed == 2 for one in recon.health()))
    told = recon.health()
    engines = len(recon.status())
    assert [one.rank for one in told] == [*range(engines)]
    assert sum(one.patterns for one in told) == len(scan)
    assert all(one.agreed == 2 and one.patterns_per_second for one in told)
    assert all(one.memory is not None and one.host for one in told)


def test_an_engine_that_is_busy_is_not_waited_for(cluster: pt.Cluster, scan: Scan) -> None:
    with pt.Reconstruction(scan, pt.Settings(), cluster, checkpointing=None) as recon:
        recon.step()
        before = recon.health()
        pid = cluster.status()[1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            told = recon.health()
            assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        finally:
            os.kill(pid, signal.SIGCONT)
        assert told[0].answered
        assert not told[1].answered
        assert told[1].patterns == before[1].patterns > 0
        until(lambda: all(one.answered for one in recon.health()))
        assert recon.step().number == 2


def test_a_long_curve_of_r_factors_is_whole_and_whoever_joins_gets_it_all() -> None:
    with pt.Reconstruction(pt.simulate(patterns=16, window=32), checkpointing=None) as recon:
        recon.r_factor_every = 1
        recon.start(LATEST_R_FACTORS + 5)
        engine = recon._client.engines
        until(lambda: any(epoch == LATEST_R_FACTORS + 5 for epoch, _ in engine.call(0, "status", 10**9).r_factors))
        assert len(engine.call(0, "status", 10**9).r_factors) == LATEST_R_FACTORS
        # However late the session asks, none is missing.
        assert [epoch for epoch, _ in engine.call(0, "status", 3).r_factors] == [*range(3, LATEST_R_FACTORS + 6)]
        recon.wait(60)
        assert [epoch for epoch, _ in recon.r_factors] == [*range(1, LATEST_R_FACTORS + 6)]
        assert recon._call(0, "measured") == (1, [*recon.r_factors])
