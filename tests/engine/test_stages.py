"""Stages: a state in another window of the patterns has the same patterns, and engines begin a stage together."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_args

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.scan import ObjectFrame, Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine import stages
from ptynb.engine.loop import Loop
from ptynb.engine.resampled_state import Units, resampled_object, resampled_state, settings_in_window
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.preparation.crop_and_pad import in_window
from ptynb.settings import PARTS, Background, Object, Positions, Settings, Slices, Tilt, constraints
from ptynb.settings.constraints import AnyConstraint
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
    parts: Any = loop.model.components
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
    state = resampled_state(state, windows, loop.settings, (Units.of(loop.model), Units.of(other.model)))
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
    assert coarse.model.components["positions"].limit == pytest.approx(3 * max(size) / 48)


def numbers_of(loop: Loop) -> dict[str, Any]:
    """All that steps, losses and constraints are relative to, or take from the window of the patterns."""
    model, problem = loop.model, loop.problem
    parts: Any = model.components
    assert model.slab is not None
    assert problem.initial_object is not None
    return {
        "power of the probe": model.probe.power,
        "unit of the probe": float(model.probe.scale),
        "unit of its variations": float(parts["variations"].scale),
        "unit of the background": parts["background"].mean_count,
        "unit of the affine map": parts["affine"].radius,
        "unit of tilts": model.slab.tilt.unit.numpy(),
        "largest shift": parts["positions"].limit,
        "motion": parts["fly_scan"].motion.numpy(),
        "ramps of descan": [one.numpy() for one in parts["descan"]._coordinates],
        "point spread": parts["point spread"].along_y.numpy(),
        "mean count": loop.mean_count,
        "sum of counts": loop.scan["counts"],
        "divisor of the loss": problem.normaliser,
        "scale of gradients": problem.scale,
        "rates": [*loop.algorithm.rates().values()],
        "radius of the search": problem.settings.positions.search_radius,
        "object to restart from": [*problem.initial_object.shape],
        "pixel": loop.pixel_size,
        "object": [*loop.frame.origin, *loop.frame.shape],
    }


def test_after_a_stage_units_are_those_of_a_run_that_began_with_its_window() -> None:
    """Also the power to which `FixedProbePower` scales the probe: counts outside the window of a stage belong to it."""
    whole = dataclasses.replace(pt.simulate(patterns=16, window=48, seed=4), probe=None, ground_truth=None)
    learned = {"learning_rate": 0.01}
    settings = SETTINGS.replace(
        slices=Slices(count=2, thickness=1e-5),
        tilt=learned,
        affine=learned,
        probe_offset=learned,
        pattern_intensities=learned,
        opr={"modes": 2},
        descan={"start": "zero", **learned},
        fly_scan={"steps": 2},
        detector={"psf_sigma": 1},
        positions={"search_trials": 1, "search_radius": 2, "search_start_epoch": 50},
        constraints=(constraints.FixedProbePower(),),
        schedule={"kind": "constant"},
    )
    plan = StagePlan((Stage(epochs=1, pattern_size=28), Stage(epochs=1)))
    coarse, began = Loop(whole, settings, CPU, (), plan), loop_of(whole, None, settings)
    before, expected = numbers_of(coarse), numbers_of(began)
    for _ in range(coarse.updates):
        coarse.step()
    state = stages.state_of_next(coarse, plan.following, whole, 2)
    assert isinstance(state, ReconstructionState)
    fine = stages.loop_of_next(state, stages.PreviousStage.of(coarse), plan.following, whole, CPU, ())
    after = numbers_of(fine)
    for name, value in expected.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-12, err_msg=name)
        differs = np.shape(before[name]) != np.shape(value) or not np.allclose(before[name], value, rtol=1e-3)
        assert differs, f"{name} is the same in both windows"
    assert not fine.algorithm.state(), "gradients have another scale"
    for loop in (fine, began):
        for _ in range(loop.updates):
            loop.step()
    powers = [float(loop.model.probe.values.detach().abs().square().sum()) for loop in (fine, began)]
    assert powers[0] == pytest.approx(powers[1], rel=1e-12)


def test_a_stage_that_refines_positions_enlarges_the_object() -> None:
    """If there is room already, nothing but the settings changes."""
    scan = dataclasses.replace(smooth_scan((48, 48)), object=None)
    plan = StagePlan((Stage(epochs=1), Stage(epochs=1, settings={"positions": {"learning_rate": 0.1}})))
    for padding, larger in ((4, 5), (9, 0)):
        loop = Loop(scan, Settings(object=Object(padding=padding)), CPU, (), plan)
        assert stages.change_in_place(loop, plan.following) is (larger == 0)
        if larger:
            state = stages.state_of_next(loop, plan.following, scan, 2)
            assert isinstance(state, ReconstructionState)
            following = stages.loop_of_next(state, stages.PreviousStage.of(loop), plan.following, scan, CPU, ())
            assert following.frame.shape == tuple(side + 2 * larger for side in loop.frame.shape)
            assert following.settings.positions.learning_rate == 0.1


OF_PIXELS = re.compile("object pixel|fraction of the detector|Nyquist|pixel/slice")
"""Units of settings that are others in a window of the patterns."""
ONLY_ROOM = {"object.padding"}


def settings_with(constraint: Any = None) -> Settings:
    """Settings in which each number is other than 0, with one constraint."""
    moving = {name: {"learning_rate": 0.1} for name in ("positions", "affine", "probe_offset", "tilt")}
    imposed = () if constraint is None else (constraint,)
    return Settings(slices=Slices(count=2, thickness=1e-5), constraints=imposed, **moving)  # type: ignore[arg-type]


def test_settings_in_object_pixels_are_those_of_whole_patterns() -> None:
    whole, seen = settings_with(), set[str]()
    found = settings_in_window(whole, (48, 48), (24, 24))
    for name in PARTS:
        fields = type(whole.part(name)).model_fields.items()
        seen |= {f"{name}.{field}" for field, info in fields if OF_PIXELS.search(info.description or "")}
    assert seen >= {"positions.max_shift", "tilt.learning_rate"}
    assert set(whole.differences(found)) == seen - ONLY_ROOM
    for kind in get_args(get_args(AnyConstraint)[0]):
        required = {name: 0.25 for name, info in kind.model_fields.items() if info.is_required()}
        given = kind(**required)
        [imposed] = settings_in_window(settings_with(given), (48, 48), (24, 24)).constraints
        fields = {name for name, info in kind.model_fields.items() if OF_PIXELS.search(info.description or "")}
        factors = {name: getattr(imposed, name) / getattr(given, name) for name in fields if getattr(given, name)}
        assert set(factors.values()) <= {0.5, 2.0}, kind
        assert imposed == given.model_copy(update={name: getattr(imposed, name) for name in fields}), kind


IMPOSED = {
    "blur": constraints.GaussianBlur(sigma=3),
    "low-pass": constraints.LowPass(cutoff=0.15, edge=0.1),
    "aperture": constraints.ProbeAperture(radius=0.1, edge=0.1),
    "support": constraints.ProbeSupport(radius=0.12, edge=0.2),
    "grid": constraints.RemoveGridArtifacts(period_y=20, period_x=24, width=3),
    "smoothing": constraints.Denoise(norm="l2", amount=0.5),
}


@pytest.mark.parametrize("name", IMPOSED)
def test_a_constraint_has_the_same_effect_in_a_window(name: str) -> None:
    """It acts on the same lengths and frequencies of the sample and the detector, whose pixels are coarser."""
    scan = smooth_scan((64, 64), object_sigma=4)
    fine = loop_of(scan, None, SETTINGS.replace(constraints=(IMPOSED[name],)))
    coarse, before = converted(fine, scan, (40, 40)), patterns_of(fine)
    for loop in (fine, coarse):
        loop.after_update(epoch_ended=True)
    after = middle(patterns_of(fine), (40, 40))
    effect = np.abs(after - middle(before, (40, 40))).max()
    difference = np.abs(patterns_of(coarse) - after).max()
    assert effect > 0.05 * before.max()
    assert difference < 0.01 * effect


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
