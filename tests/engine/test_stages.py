"""Stages: a state in another window of the patterns has the same patterns, and engines begin a stage together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from ptynb.data.scan import ObjectFrame, Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.engine.resampled_state import resampled_object, resampled_state
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.preparation.pattern_window import in_window
from ptynb.settings import Background, Object, Positions, Settings, Slices, Tilt
from ptynb.settings.recipe import Stage, StagePlan
from tests.preparation.scans import smooth_scan
from tests.raising import raises

CPU = SingleGroup(torch.device("cpu"))
SETTINGS = Settings(
    precision="double",
    batch=4,
    positions=Positions(learning_rate=0.01, max_shift=3),
    background=Background(learning_rate=0.01),
    object=Object(padding=6),
)


def loop_of(scan: Scan, size: tuple[int, int] | None, settings: Settings = SETTINGS) -> Loop:
    return Loop(scan, settings, CPU, (), StagePlan((Stage(epochs=1, pattern_size=size),)))


@torch.no_grad()
def moved(loop: Loop) -> None:
    """Parameters other than at the start, as after some epochs."""
    random = torch.Generator().manual_seed(3)
    parts: Any = loop.model.parts
    parts["positions"].moves.copy_(torch.randn(parts["positions"].moves.shape, generator=random, dtype=torch.float64))
    parts["offset"].shift.copy_(torch.tensor([0.4, -0.7]))
    parts["affine"].map.copy_(torch.tensor([[0.3, -0.2], [0.5, 0.1]]))
    parts["background"].background.fill_(0.2)
    for part in parts.values():
        part.active = True


@torch.no_grad()
def patterns_of(loop: Loop) -> np.ndarray[Any, Any]:
    """The modelled patterns, centred."""
    batch = loop.shard.batch(loop.shard.patterns, len(loop.shard))
    return np.fft.fftshift(loop.model.intensities(batch).numpy(), axes=(-2, -1))


def converted(loop: Loop, scan: Scan, size: tuple[int, int] | None) -> Loop:
    """The loop of another window, with the state of this one."""
    other = loop_of(scan, size, loop.settings)
    state: ReconstructionState = loop.state(loop.loss_sums())
    windows = in_window(scan, loop.pattern_size), in_window(scan, size)
    state = resampled_state(state, windows, loop.settings, (loop.mean_count, other.mean_count))
    other.restore(dataclasses.replace(state, scan=other.scan))
    return other


def middle(patterns: np.ndarray[Any, Any], size: tuple[int, int]) -> np.ndarray[Any, Any]:
    y, x = (whole // 2 - side // 2 for whole, side in zip(patterns.shape[1:], size, strict=True))
    return patterns[:, y : y + size[0], x : x + size[1]]


@pytest.mark.parametrize("size", [(28, 36), (33, 31)])
@pytest.mark.parametrize("guess", [True, False])
@pytest.mark.parametrize("polar", [True, False])
def test_a_state_in_another_window_has_the_same_patterns(size: tuple[int, int], guess: bool, polar: bool) -> None:
    whole = smooth_scan((48, 48))
    scan = whole if guess else dataclasses.replace(whole, object=None)
    form: Any = "amplitude_phase" if polar else "complex"
    fine = loop_of(scan, None, SETTINGS.replace(object={"parametrization": form}))
    if not guess:  # the object of the guess, in the loop's own frame
        assert whole.object is not None
        shape, origin = fine.model.object.values.shape[-2:], np.array(fine.frame.origin)
        y, x = (np.arange(side) + first for side, first in zip(shape, origin, strict=True))
        values = np.pad(whole.object, 60, mode="symmetric")[np.ix_(y + 60, x + 60)]
        fine.model.object.set(torch.from_numpy(values)[None, None])
    moved(fine)
    coarse = converted(fine, scan, size)
    expected = patterns_of(fine)
    scale = expected.max()
    np.testing.assert_allclose(patterns_of(coarse), middle(expected, size), atol=1e-5 * scale)
    again = converted(coarse, scan, None)
    np.testing.assert_allclose(middle(patterns_of(again), size), middle(expected, size), atol=1e-5 * scale)
    # No power is lost, and the unit of the probe follows its mean amplitude, which steps are relative to.
    probes = [loop.model.probe for loop in (coarse, fine)]
    powers = [float(probe.values.detach().abs().square().sum()) for probe in probes]
    means = [float(probe.parts.detach().square().mean()) for probe in probes]
    assert powers[0] == pytest.approx(powers[1], rel=1e-4)
    assert means[0] == pytest.approx(means[1], rel=1e-4)
    assert coarse.model.parts["positions"].limit == pytest.approx(3 * max(size) / 48)


def test_a_tilt_keeps_its_angle_in_another_window() -> None:
    """Its unit is a shift of one object pixel, which is larger there."""
    slices, tilt = Slices(count=2, thickness=1e-5), Tilt(y=1e-4, x=-2e-4)
    scan = dataclasses.replace(smooth_scan((48, 48)), object=None)
    fine = loop_of(scan, None, SETTINGS.replace(slices=slices, tilt=tilt))
    angles = converted(fine, scan, (32, 24)).parameters()["tilt/angles"].numpy()
    np.testing.assert_allclose(angles, [[1e-4, -2e-4]], rtol=1e-12)


def test_windows_at_the_edge_of_an_object_guess_stay_at_their_place() -> None:
    whole = smooth_scan((45, 45))
    # In the coarse pixels the first window begins before the guess, which is extended there.
    scan = dataclasses.replace(whole, positions=whole.positions - whole.positions.min(0) - 0.4)
    size = (40, 40)
    shift = in_window(scan, size).positions + 20 - (scan.positions + 22) * 40 / 45
    assert np.allclose(shift, 1)
    fine = loop_of(scan, None)
    expected = patterns_of(fine)
    coarse = patterns_of(converted(fine, scan, size))
    np.testing.assert_allclose(coarse, middle(expected, size), atol=1e-4 * expected.max())


def test_an_object_is_evaluated_where_the_new_pixels_are() -> None:
    y, x = np.mgrid[:20, :24]

    def wave(y: Any, x: Any) -> Any:
        return np.cos(np.pi * 3 * (y + 0.5) / 20) + 1j * np.cos(np.pi * 5 * (x + 0.5) / 24)

    frames = ObjectFrame((0, 0), (20, 24)), ObjectFrame((0, 0), (15, 30))
    starts = np.array([-4.0, 7.0]), np.array([-1.5, 10.25])
    found = resampled_object(wave(y, x), frames, starts, (0.75, 1.5))
    y, x = np.mgrid[:15, :30]
    np.testing.assert_allclose(found, wave((y - 1.5) / 0.75 + 4, (x + 10.25) / 1.5 - 7), atol=1e-12)
    fast = np.cos(np.pi * 18 * (np.mgrid[:20, :24][0] + 0.5) / 20)  # above the Nyquist frequency of the new grid
    np.testing.assert_allclose(resampled_object(fast, frames, starts, (0.75, 1.5)), 0, atol=1e-12)


def test_what_has_no_coarser_object_is_refused() -> None:
    from tests.preparation.scans import NEAR

    with raises("scan.near-field", "24 x 24"):
        in_window(smooth_scan((48, 48), geometry=NEAR), (24, 24))
    with raises("argument.invalid-value", "64 x 48", "48 x 48"):
        in_window(smooth_scan((48, 48)), (64, 48))
    scan = smooth_scan((48, 48))
    assert in_window(scan, (48, 48)) is in_window(scan, None) is scan
