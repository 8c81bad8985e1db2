"""States mapped onto other structures: array by array in float64, and as a whole."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from ptynb.data.scan import ObjectFrame
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.engine.reconfigure import (
    NEW_MODE,
    in_frame,
    in_slices,
    restructured,
    why_not,
    with_background_of,
    with_modes,
    with_states,
)
from ptynb.exceptions import SettingsError
from ptynb.io.checkpoint_file import ReconstructionState
from ptynb.physics.hotpath import exit_waves
from ptynb.settings import (
    OPR,
    Aberrations,
    Descan,
    Detector,
    FlyScan,
    Object,
    PatternIntensities,
    Positions,
    Probe,
    Schedule,
    Settings,
    Slices,
    Tilt,
    constraints,
    regularizers,
)
from ptynb.settings.base_models import flat
from tests.cases import THICK, a_scan
from tests.engine import reconfigure_work
from tests.engine.ranks import Ranks
from tests.raising import raises

CPU = SingleGroup(torch.device("cpu"))
RANDOM = torch.Generator().manual_seed(1)


def some(*shape: int) -> torch.Tensor:
    return torch.complex(*torch.randn((2, *shape), generator=RANDOM, dtype=torch.float64))


def densities(probe: torch.Tensor) -> torch.Tensor:
    """What all patterns follow from, whatever the object: Σ_m P_m(r) P_m*(r')."""
    flat = probe.flatten(1)
    return flat.T @ flat.conj()


def test_new_modes_are_faint_and_orthogonal_to_those_there_are() -> None:
    y, x = torch.meshgrid(torch.linspace(-3, 3, 24), torch.linspace(-3, 3, 24), indexing="ij")
    beam = torch.exp(-(x**2 + 2 * y**2) / 2).double()
    probe = torch.stack([beam * torch.polar(torch.ones_like(beam), (x * y).double()), 0.2 * beam * (x + 1j * y)])
    more = with_modes(probe, 4)
    powers = more.abs().square().sum((1, 2))
    assert float(powers.sum()) == pytest.approx(float(probe.abs().square().sum()), rel=1e-12)
    torch.testing.assert_close(
        powers[2:] / powers.sum(), torch.full((2,), NEW_MODE, dtype=torch.float64), rtol=1e-2, atol=0
    )
    overlaps = (more.flatten(1).conj() @ more.flatten(1).T).abs()
    assert float(overlaps[2:, :2].max()) < 1e-10
    assert float(overlaps[2, 3]) < 1e-10
    torch.testing.assert_close(more[:2], probe * (1 - 2 * NEW_MODE) ** 0.5, rtol=1e-3, atol=0)


def test_fewer_modes_keep_the_strongest_mixture() -> None:
    strong, faint = some(2, 12, 12), 1e-3 * some(1, 12, 12)
    mixture = torch.linalg.qr(some(3, 3))[0]
    probe = torch.einsum("mn,nyx->myx", mixture, torch.cat([strong, faint]))
    fewer = with_modes(probe, 2)
    error = (densities(fewer) - densities(probe)).norm() / densities(probe).norm()
    assert float(error) < 1e-2
    assert float((densities(probe[:2]) - densities(probe)).norm() / densities(probe).norm()) > 0.1
    torch.testing.assert_close(fewer.abs().square().sum(), probe.abs().square().sum())
    first = with_modes(probe, 2, first_stays=True)
    torch.testing.assert_close(first[0] / first[0].norm(), probe[0] / probe[0].norm())
    torch.testing.assert_close(with_modes(probe, 1, first_stays=True)[0], probe[0] * probe.norm() / probe[0].norm())


@pytest.mark.parametrize(("old", "new"), [(1, 4), (4, 1), (3, 2), (2, 3), (2, 4)])
def test_slices_multiply_to_the_object_they_come_from(old: int, new: int) -> None:
    object = some(2, old, 6, 5)
    amplitude, phase = in_slices(object.abs(), object.angle(), new)
    assert amplitude.shape == (2, new, 6, 5)
    torch.testing.assert_close(torch.polar(amplitude, phase).prod(1), object.prod(1))
    if old == 2 and new == 4:  # each in its own depth
        torch.testing.assert_close(torch.polar(amplitude, phase)[:, :2].prod(1), object[:, 0])
    dark, _ = in_slices(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2), new)
    assert not dark.any()


def test_states_and_frames_grow_around_what_there_is() -> None:
    object = some(2, 1, 6, 5)
    more = with_states(object, 5, seed=3)
    torch.testing.assert_close(more[:2], object, rtol=0, atol=0)
    torch.testing.assert_close(more[2:].abs(), object[[0, 1, 0]].abs())
    assert not torch.equal(more[2], object[0])
    torch.testing.assert_close(with_states(more, 2, seed=3), object, rtol=0, atol=0)
    grown = in_frame(object.real, ObjectFrame((2, -1), (6, 5)), ObjectFrame((0, -4), (10, 9)), 1.0)
    torch.testing.assert_close(grown[..., 2:8, 3:8], object.real, rtol=0, atol=0)
    assert float(grown.sum() - object.real.sum()) == pytest.approx(2 * (90 - 30))


START: dict[str, Any] = {"precision": "double", "batch": 8, "probe": Probe(modes=2)}
ABERRATIONS = {"aberrations": Aberrations(order=2), "probe": Probe(modes=2, learning_rate=0)}
# name -> (settings before, what changes, how far the R-factor may move)
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "more modes": ({}, {"probe": {"modes": 4}}, 4e-3),
    "fewer modes": ({"probe": Probe(modes=3)}, {"probe": {"modes": 2}}, 8e-2),
    "slices": ({}, {"slices": {"count": 3, "thickness": 1e-9}}, 1e-6),
    "other slices": ({"slices": Slices(count=2, thickness=1e-9)}, {"slices": {"count": 4}}, 1e-6),
    "no slices": ({"slices": Slices(count=2, thickness=1e-9)}, {"slices": {"count": 1}}, 1e-6),
    "each its tilt": ({"slices": THICK, "tilt": Tilt(learning_rate=1.0)}, {"tilt": {"per_position": True}}, 1e-9),
    "batch": ({}, {"batch": 12}, 1e-9),
    "optimiser": ({}, {"optimiser": "sgd"}, 1e-9),
    "projections": ({}, {"optimiser": "raar"}, 1e-9),
    "from projections": ({"optimiser": "dm"}, {"optimiser": "adam", "probe": {"modes": 3}}, 4e-3),
    "l-bfgs": ({"optimiser": "lbfgs"}, {"probe": {"modes": 3}}, 4e-3),
    "loss": ({}, {"loss": "poisson"}, 1e-9),
    "polar": ({}, {"object": {"parametrization": "amplitude_phase"}}, 1e-9),
    "complex": (
        {"object": Object(parametrization="amplitude_phase")},
        {"object": {"parametrization": "complex"}},
        1e-9,
    ),
    "polar slices": (
        {"object": Object(parametrization="amplitude_phase")},
        {"slices": {"count": 2, "thickness": 1e-9}},
        1e-6,
    ),
    "positions": ({}, {"positions": {"learning_rate": 0.1}, "batch": 9}, 1e-9),
    "padding": ({}, {"object": {"padding": 9}}, 1e-9),
    "variations": ({}, {"opr": {"modes": 2}}, 1e-9),
    "more variations": ({"opr": OPR(modes=1)}, {"opr": {"modes": 3}}, 1e-9),
    "fewer variations": ({"opr": OPR(modes=3)}, {"opr": {"modes": 2}}, 1e-2),
    "no variations": ({"opr": OPR(modes=1)}, {"opr": {"modes": 0}}, 1e-1),
    "aberrations": ({}, {"aberrations": {"order": 2}, "probe": {"modes": 3, "learning_rate": 0}}, 4e-3),
    "more aberrations": (ABERRATIONS, {"aberrations": {"order": 3}}, 1e-9),
    "fewer aberrations": (ABERRATIONS, {"aberrations": {"order": 1}}, 1e-9),
    "no aberrations": (ABERRATIONS, {"aberrations": {"order": 0}, "optimiser": "lbfgs"}, 1e-9),
    "descan": ({}, {"descan": {"start": "plane", "learning_rate": 0.1}}, 1e-9),
    "no motion": ({"fly_scan": FlyScan(steps=2, exposure_fraction=1e-4)}, {"fly_scan": {"steps": 1}}, 1e-6),
    "blur": ({"pattern_intensities": PatternIntensities(learning_rate=0.01)}, {"detector": {"psf_sigma": 1e-3}}, 1e-6),
    "states": ({}, {"object": {"modes": 2}}, 5e-2),
}


@functools.cache
def run(settings: Settings, epochs: int, updates: int = 0) -> tuple[Loop, ReconstructionState, float]:
    """A loop after so many epochs and updates, disconnected, with its state and its R-factor."""
    loop = Loop(a_scan(), settings, CPU)
    for _ in range(epochs * loop.updates + updates):
        loop.step()
    found = loop, loop.state(loop.loss_sums(), 9), loop.r_factor()[0]
    loop.disconnect()
    return found


def begun(state: ReconstructionState, settings: Settings | None = None) -> Loop:
    """Another loop with this state."""
    loop = Loop(a_scan(), Settings(**state.begun), CPU)
    loop.restore(state, settings)
    return loop


@pytest.mark.parametrize("case", CHANGES)
def test_what_the_model_gave_before_it_gives_right_after_and_goes_on(case: str) -> None:
    before, changes, tolerance = CHANGES[case]
    settings = Settings(**{**START, **before})
    _, state, there = run(settings, 2, 2 if settings.optimiser == "adam" else 0)
    wanted = settings.replace(**changes)
    mapped = restructured(state, wanted, a_scan())
    assert {change.name for change in mapped.changes} == set(settings.differences(wanted))
    loop = begun(mapped, wanted)
    assert loop.r_factor()[0] == pytest.approx(there, rel=tolerance)
    loop.step()
    loop.disconnect()


@pytest.mark.parametrize("world", [1, 2])
def test_pieces_that_are_switched_on_take_part(ranks: Ranks, world: int) -> None:
    settings = Settings(**START)
    wanted = settings.replace(pattern_intensities={"learning_rate": 0.01}, opr={"modes": 1})
    state = restructured(run(settings, 0, 1)[1], wanted, a_scan())
    for moved in ranks.run(world, reconfigure_work.moved, a_scan(), state, 2):
        assert {"weights", "variations"} <= moved


LIVE_VALUES: dict[str, Any] = {
    "learning_rate": 0.05,
    "amplitude_learning_rate": 0.03,
    "start_epoch": 2,
    "end_epoch": 1,
    "positions.momentum": 0.5,
    "positions.search_start_epoch": 1,
    "positions.search_end_epoch": 2,
    "regularizers": (regularizers.DataTerm(weight=0.1, loss="intensity"), regularizers.TotalVariation(weight=0.1)),
    "constraints": (constraints.FixedProbePower(after="update"), constraints.GaussianBlur(sigma=1)),
    "schedule.kind": "cosine",
    "schedule.epochs": 3,
    "schedule.end_factor": 0.3,
    "gradient_sync": "dense",
    "stop": None,
}
"""Values of live settings, by name, or by the last part of it; None: it acts on no update."""
ROOM: dict[str, Any] = {"precision": "double", "batch": 8, "object": Object(padding=9)}
RICH: dict[str, Any] = {
    **ROOM,
    "object": Object(padding=9, parametrization="amplitude_phase"),
    "slices": THICK,
    "opr": OPR(modes=1, learning_rate=0),
    "descan": Descan(start="zero"),
    "positions": Positions(search_trials=2, search_radius=1, search_start_epoch=2),
    "schedule": Schedule(kind="exponential", epochs=4),
}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "adam": RICH,
    "sgd": {**ROOM, "opr": OPR(modes=1, learning_rate=0)},
    "rpie": ROOM,
    "lsqml": {**ROOM, "opr": OPR(modes=1, learning_rate=0)},
    "lbfgs": ROOM,
    "dm": ROOM,
}


def live_settings(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Each live setting, and settings that differ in it; those that are not supported together are left out."""
    names = [name for name, _ in flat(settings.model_dump(mode="json")) if Settings.is_live(name)]
    for name in names:
        first, last = name.split(".")[0], name.split(".")[-1]
        value = next(LIVE_VALUES[key] for key in (name, last, first) if key in LIVE_VALUES)
        if value is None:
            continue
        with contextlib.suppress(SettingsError):
            yield name, settings.with_values({name: value})


@pytest.mark.parametrize("optimiser", ALGORITHMS)
def test_a_live_change_gives_what_a_run_with_it_from_the_start_gives(optimiser: str) -> None:
    """To the bit, if it is made before the first update: nothing is fixed by the value that a run begins with."""
    scan = a_scan(17, 16)
    present, met = Settings(**ALGORITHMS[optimiser], optimiser=optimiser), 0
    for name, wanted in live_settings(present):
        loops = [Loop(scan, one, CPU) for one in (present, wanted)]
        loops[0].change(wanted)
        for loop in loops:
            for _ in range(2 * loop.updates):
                loop.step()
            loop.disconnect()
        assert [epoch.loss for epoch in loops[0].epochs] == [epoch.loss for epoch in loops[1].epochs], name
        for key, values in loops[1].model.arrays().items():
            torch.testing.assert_close(loops[0].model.arrays()[key], values, rtol=0, atol=0, msg=f"{name}: {key}")
        met += 1
    assert met >= 10


def test_positions_that_are_refined_later_need_the_margin_of_those_from_the_start() -> None:
    """Without it windows at the edge would stay there, and the probe be shifted in them periodically."""
    scan = a_scan()
    still = Settings(**START, optimiser="adam")
    loop = Loop(scan, still, CPU)
    moves = torch.full((len(scan), 2), -7.5, dtype=torch.float64)
    for part in ("positions", "affine", "probe_offset"):
        wanted = still.replace(**{part: {"learning_rate": 0.1}})
        with raises("settings.not-live", "8 object pixels", "margin of 9", "has 4", "reconfigure(settings)"):
            loop.change(wanted)
        assert (loop.settings, loop.changes) == (still, [])
        state = restructured(loop.state(loop.loss_sums()), wanted, scan)
        found = list[torch.Tensor]()
        for start, restored in ((still, None), (Settings(**state.begun), state), (wanted, None)):
            one = Loop(scan, start, CPU)
            if restored is not None:
                one.restore(restored)
            positions: Any = one.model.components["positions"]
            positions.active = True
            places = [torch.arange(side) + first for side, first in zip(one.frame.shape, one.frame.origin, strict=True)]
            with torch.no_grad():
                positions.moves.copy_(moves)
                phase = torch.sin(0.4 * places[0])[:, None] + torch.sin(0.5 * places[1])
                one.model.object.set(torch.polar(torch.ones_like(phase), phase)[None, None])
                found.append(one.model.intensities(one.shard.batch(np.arange(len(scan)), len(scan))))
            one.disconnect()
        torch.testing.assert_close(found[1], found[2], rtol=1e-12, atol=1e-12)
        assert (found[0] - found[2]).abs().max() > 1e-3 * found[2].max(), "the reason"
    loop.disconnect()
    guess = dataclasses.replace(
        scan, object=np.ones(loop.frame.shape, complex), positions=scan.positions - loop.frame.origin
    )
    given = Loop(guess, still, CPU)
    assert given.why_not_live(wanted) == "", "an object that is given does not grow"
    given.disconnect()


def test_moments_stay_with_what_stays() -> None:
    settings = Settings(**START, positions=Positions(learning_rate=0.1), optimiser="adam")
    state = run(settings, 1, 2)[1]
    kept = restructured(state, settings.replace(batch=9), a_scan())
    assert kept.algorithm.keys() == state.algorithm.keys()
    assert (kept.epoch, kept.update, state.update) == (1, 0, 2)  # other updates: the epoch begins anew
    more = restructured(state, settings.replace(probe={"modes": 3}), a_scan())
    assert {name.split("/")[1] for name in more.algorithm} == {"object", "positions"}
    assert more.update == 2
    np.testing.assert_array_equal(
        more.algorithm["optimiser/object/parts/exp_avg"], state.algorithm["optimiser/object/parts/exp_avg"]
    )
    assert restructured(state, settings.replace(optimiser="nadam"), a_scan()).algorithm == {}


def test_a_history_stays_with_the_same_problem_only() -> None:
    settings = Settings(**START, optimiser="lbfgs")
    state = run(settings, 2)[1]
    assert restructured(state, settings.replace(seed=9), a_scan()).algorithm.keys() == state.algorithm.keys() != set()
    for others in ({"background": {"learning_rate": 0.01}}, {"probe": {"learning_rate": 0.0}}, {"loss": "poisson"}):
        assert restructured(state, settings.replace(**others), a_scan()).algorithm == {}


def test_with_another_loss_the_running_epoch_begins_anew() -> None:
    settings = Settings(**START)
    state = run(settings, 2, 2)[1]
    mapped = restructured(state, settings.replace(loss="poisson"), a_scan())
    assert (state.update, mapped.epoch, mapped.update) == (2, 2, 0)
    assert state.loss_sums.any()
    assert not mapped.loss_sums.any()


def test_the_exit_waves_are_those_of_before() -> None:
    settings, waves = Settings(**START), []
    loop, state, _ = run(settings, 2, 2)
    wanted = settings.replace(slices={"count": 3, "thickness": 1e-12}, object={"padding": 7})
    other = begun(restructured(state, wanted, a_scan()))
    for one in (loop, other):
        batch = one.shard.batch(np.arange(5), 5)
        with torch.no_grad():
            object, corners, probes, _, kernel, _ = one.model.illumination(batch)
            waves.append(exit_waves(object, corners, probes, kernel))
    other.disconnect()
    torch.testing.assert_close(waves[1], waves[0], rtol=1e-6, atol=1e-9)


def test_what_has_nothing_in_common_is_refused() -> None:
    settings = Settings(**START, pattern_intensities=PatternIntensities(learning_rate=0.01))
    assert why_not(settings, settings.replace(batch=4), {}) is None
    assert "precision cannot change" in str(why_not(settings, settings.replace(precision="single"), {}))
    assert "another window" in str(why_not(settings, settings.replace(detector=Detector(oversampling=2)), {}))
    state = run(settings, 0, 1)[1]
    with pytest.raises(SettingsError, match="weights has been active"):
        restructured(state, settings.replace(pattern_intensities={"learning_rate": 0.0}, optimiser="dm"), a_scan())
    with pytest.raises(SettingsError, match="precision cannot change"):
        restructured(state, settings.replace(precision="single"), a_scan())


def test_a_background_keeps_its_intensities_in_the_other_parametrization() -> None:
    settings = Settings(background={"learning_rate": 0.01, "parametrization": "intensity"}, batch=8)
    loop, state, _ = run(settings, 2)
    before = loop.parameters()["background/background"].numpy()
    assert before.max() > 0
    found = with_background_of(state, "amplitude")
    other = begun(found)
    after = other.parameters()["background/background"].numpy()
    np.testing.assert_allclose(after, before, atol=2e-6 * other.mean_count, rtol=1e-5)
    other.step()
    assert np.abs(other.parameters()["background/background"].numpy() - after).max() > 1e-6
    other.disconnect()
    again = with_background_of(found, "intensity")
    assert Settings(**again.settings) == settings
    assert with_background_of(state, "intensity") is state
    assert not any(name.startswith("optimiser/background") for name in found.algorithm)


@pytest.mark.parametrize("count", [2, 3])
def test_a_tilt_keeps_its_angle_in_the_other_parametrization_and_in_other_slices(count: int) -> None:
    """Its unit depends on the pixel and on the slices."""
    settings = Settings(
        batch=8,
        slices=Slices(count=2, thickness=2e-4),
        tilt=Tilt(y=1e-4, per_position=True, learning_rate=0.01, parametrization="angle"),
    )
    loop, state, _ = run(settings, 1)
    before = loop.parameters()["tilt/angles"].numpy()
    assert np.ptp(before) > 1e-5
    wanted = settings.replace(slices={"count": count, "thickness": 1e-4}, tilt={"parametrization": "shift"})
    found = restructured(state, wanted, a_scan())
    other = begun(found)
    np.testing.assert_allclose(other.parameters()["tilt/angles"].numpy(), before, rtol=1e-5)
    other.disconnect()
    assert not any(name.startswith("optimiser/tilt") for name in found.algorithm)
