import dataclasses

import numpy as np
import pytest

from ptynb.data.result import Result
from ptynb.data.scan import plain_geometry
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings
from ptynb.simulation.diffraction import simulate_diffraction
from ptynb.simulation.from_result import simulate_from_result
from ptynb.simulation.simulated_scan import simulate
from tests.raising import raises


@pytest.fixture(scope="module")
def result():
    scan = simulate(patterns=36, window=32, seed=5)
    with Reconstruction(
        scan, Settings(batch=8, positions={"learning_rate": 0.05}), device="cpu", checkpointing=None
    ) as recon:
        [*recon.run(20)]
        return recon.result


def counts(scan):
    return scan.frames.read(0, len(scan)).astype(float)


def noise_loss(scan, exact):
    """Σ (√I - √M)² / Σ I: what noise alone makes of the amplitude loss."""
    measured, modelled = counts(scan), counts(exact)
    return ((np.sqrt(measured) - np.sqrt(modelled)) ** 2).sum() / measured.sum()


def test_from_its_own_guesses_the_loss_is_that_of_the_noise_at_once(result):
    exact = simulate_from_result(result, noise=False, guesses=True)
    noisy = simulate_from_result(result, guesses=True, dose=1e6, seed=2)
    losses = {}
    for name, scan in (("exact", exact), ("noisy", noisy)):
        with Reconstruction(
            scan, Settings(batch=36, optimiser="sgd", loss="amplitude"), device="cpu", checkpointing=None
        ) as recon:
            losses[name] = next(iter(recon.run(1))).loss
    assert losses["exact"] < 1e-6
    assert losses["noisy"] == pytest.approx(
        noise_loss(noisy, simulate_from_result(result, noise=False, dose=1e6)), rel=0.05
    )
    assert losses["noisy"] < result.losses[-1]


def test_dose_positions_and_seed_are_as_asked(result):
    places = result.positions[::4] + 0.25
    scan = simulate_from_result(result, places, dose=5e4, seed=1)
    assert len(scan) == 9
    np.testing.assert_array_equal(scan.positions, places)
    assert counts(scan).sum((1, 2)).mean() == pytest.approx(5e4, rel=0.02)
    np.testing.assert_array_equal(counts(scan), counts(simulate_from_result(result, places, dose=5e4, seed=1)))
    assert (counts(scan) != counts(simulate_from_result(result, places, dose=5e4, seed=2))).any()
    np.testing.assert_array_equal(scan.ground_truth.object, result.object)
    assert scan.pixel_size == pytest.approx(result.pixel_size)


def test_what_else_was_found_takes_part(result):
    """Against the same exposure, put together by hand."""
    random = np.random.default_rng(0)
    weights, background = random.uniform(0.5, 1.5, 36), random.uniform(0, 3, (32, 32))
    ways, shares = random.standard_normal((1, 32, 32)) + 0j, 10 * random.standard_normal((36, 1)) + 0j
    found = {"weights/weights": weights, "background/background": background}
    found |= {"variations/ways": ways, "variations/coefficients": shares}
    shifts, motion = random.uniform(-3, 3, (36, 2)), random.uniform(-2, 2, (36, 2))
    found |= {"descan/shifts": shifts, "fly_scan/motion": motion}
    settings = result.settings | {"fly_scan": {"steps": 3}}
    whole = dataclasses.replace(result, parameters=found, settings=settings)
    probes = np.repeat(result.probe[None], 36, 0).astype(complex)
    probes[:, 0] += shares[:, 0, None, None] * ways[0]
    wanted = simulate_diffraction(
        result.object,
        probes,
        result.positions,
        weights=weights,
        background=background,
        descan=shifts,
        motion=motion,
        motion_steps=3,
        noise=False,
    )
    np.testing.assert_allclose(counts(simulate_from_result(whole, noise=False)), counts(wanted), rtol=1e-4, atol=1e-3)
    others = counts(simulate_from_result(whole, result.positions, noise=False))
    assert not np.allclose(others, counts(wanted), rtol=1e-2), "what belongs to single patterns is theirs alone"


def refused(result: Result):
    outside = result.positions + np.array([0, 1000])
    tilted = {"kind": "TiltedGeometry", "wavelength": 1e-10}
    near = dataclasses.replace(result.scan, is_far_field=False, geometry={})
    yield (result, {"positions": outside}), "scan.position-outside"
    yield (result, {"positions": [1.0, 2.0]}), "array.shape-mismatch"
    turned = dataclasses.replace(result.scan, geometry=tilted)
    yield (dataclasses.replace(result, scan=turned), {}), "scan.tilted-geometry"
    yield (dataclasses.replace(result, scan=near), {}), "scan.no-geometry"


def test_what_can_not_be_simulated_is_refused(result):
    for (one, words), code in refused(result):
        with raises(code):
            simulate_from_result(one, **words)


def test_a_result_of_several_states_is_simulated_without_guesses(result):
    states = dataclasses.replace(result, object=np.stack([result.object[None]] * 2))
    with raises("argument.conflict", "2 modes", "leave out guesses=True"):
        simulate_from_result(states, guesses=True)
    scan = simulate_from_result(states, noise=False)
    assert scan.object is None
    assert counts(scan).shape == (36, 32, 32)


def test_a_geometry_comes_back_from_its_plain_values(result):
    assert simulate_from_result(result).geometry is not None
    assert plain_geometry(simulate_from_result(result).geometry) == result.scan.geometry
