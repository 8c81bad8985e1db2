"""Fly scans: a pattern is the mean over positions along the motion, which follows from the scan or its positions."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.components.fly_scan import motion_between
from ptynb.physics.model_builder import check_together
from ptynb.settings import OPR, FlyScan, Probe, Settings, Slices
from tests.cases import THICK, a_scan
from tests.parametrization import each
from tests.raising import raises


@torch.no_grad()
def patterns(scan: Scan, settings: Settings, *extensions: ModelComponent) -> np.ndarray:
    """Modelled patterns; with OPR the probe of each is another."""
    loop = Loop(scan, settings.replace(precision="double"), SingleGroup(torch.device("cpu")), extensions)
    if settings.opr.modes:
        variations = loop.model.components["variations"]
        variations.coefficients[:, 0, 0] = 0.1 * torch.arange(len(scan))  # type: ignore[index,operator]
        variations.active = True
    return loop.model.intensities(loop.shard.batch(np.arange(len(scan)), len(scan))).numpy()


@each("kind", ["far", "near", "parallel"])
@each("settings", [Settings(probe=Probe(modes=2)), Settings(slices=THICK), Settings(opr=OPR(modes=1))])
def test_patterns_are_the_mean_over_the_positions_of_the_steps(kind: str, settings: Settings) -> None:
    """With an object that varies; the motion stays within half a pixel, so that every step has the same windows."""
    if kind == "near" and settings.slices.count > 1:
        settings = settings.replace(slices=Slices())
    scan = a_scan(9, 16, kind)
    random = np.random.default_rng(2)
    shape = np.ceil(scan.positions.max(0)).astype(int) + 18
    scan = dataclasses.replace(
        scan,
        positions=np.rint(scan.positions),
        object=np.exp(1j * random.uniform(-0.5, 0.5, shape)),
        motion=random.uniform(-0.9, 0.9, (9, 2)),
        ground_truth=None,
    )
    assert scan.motion is not None
    steps = [scan.positions + time * scan.motion for time in (-1 / 3, 0, 1 / 3)]
    expected = np.mean([patterns(dataclasses.replace(scan, positions=one), settings) for one in steps], axis=0)
    found = patterns(scan, settings.replace(fly_scan={"steps": 3}))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.max())
    assert np.abs(found - patterns(scan, settings)).max() > 1e-3 * expected.max()


class FirstMode(ModelComponent):
    """Removes all modes of the probe but the first."""

    name = "first mode"

    def illuminate(self, probes: torch.Tensor, batch: Batch) -> torch.Tensor:
        return probes[:, :1]


def test_components_of_the_user_see_the_modes_of_the_probe() -> None:
    scan = a_scan(9, 16)
    still = Settings(probe=Probe(modes=2))
    places = [scan.positions + time * motion_between(scan.positions, 0.1) for time in (-0.25, 0.25)]
    parts = [patterns(dataclasses.replace(scan, positions=one), still, FirstMode()) for one in places]
    expected = np.mean(parts, axis=0)
    moving = Settings(probe=Probe(modes=2), fly_scan=FlyScan(steps=2, exposure_fraction=0.1))
    np.testing.assert_allclose(patterns(scan, moving, FirstMode()), expected, rtol=1e-9, atol=1e-9 * expected.max())


def test_lines_end_where_the_direction_changes() -> None:
    there = [[0, 0], [0, 2], [0, 4.2]]
    lines = {
        "to and fro": (
            [*there, [1, 4], [1, 2.1], [1, 0]],
            [[0, 2], [0, 2.2], [0, 2.2], [0, -1.9], [0, -2.1], [0, -2.1]],
        ),
        "fly back": ([*there, [1, 0], [1, 2], [1, 4]], [[0, 2], [0, 2.2], [0, 2.2], [0, 2], [0, 2], [0, 2]]),
        "one step": ([[1, 1], [2, 5]], [[1, 4], [1, 4]]),
        "one position": ([[1, 1]], [[0, 0]]),
    }
    for name, (positions, expected) in lines.items():
        found = motion_between(np.array(positions, float), 0.5)
        np.testing.assert_allclose(found, 0.5 * np.array(expected), atol=1e-12, err_msg=name)


def test_the_scan_s_own_motion_comes_first() -> None:
    scan, settings = a_scan(9, 16), Settings(fly_scan=FlyScan(steps=2))
    own = dataclasses.replace(scan, motion=motion_between(scan.positions, 1.0))
    np.testing.assert_array_equal(patterns(own, settings), patterns(scan, settings))
    half = settings.replace(fly_scan={"exposure_fraction": 0.5})
    np.testing.assert_array_equal(patterns(own, half), patterns(own, settings))
    assert not np.array_equal(patterns(scan, half), patterns(scan, settings))


def test_a_motion_over_half_the_window_is_refused() -> None:
    scan = a_scan(9, 16)
    far = dataclasses.replace(scan, motion=np.full((9, 2), 8.1))
    with raises("scan.implausible-metadata", "8.1 x 8.1", "motion="):
        check_together(far, Settings(fly_scan=FlyScan(steps=2)))
    check_together(far, Settings())


def test_one_position_has_no_motion() -> None:
    scan = a_scan(1, 16)
    with raises("argument.missing", "fly_scan.steps is 4", "motion="):
        check_together(scan, Settings(fly_scan=FlyScan(steps=4)))
    check_together(dataclasses.replace(scan, motion=np.ones((1, 2))), Settings(fly_scan=FlyScan(steps=4)))
