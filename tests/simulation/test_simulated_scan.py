import numpy as np
import pytest
import torch

from ptynb.physics.hotpath import exit_waves, far_field_intensity, moved_probes
from ptynb.simulation.simulated_scan import MODE_POWERS, simulate
from tests.parametrization import each
from tests.raising import raises


def arrays_of(scan):
    return scan.counts(0, len(scan)), scan.positions, scan.probe, scan.ground_truth.object, scan.ground_truth.probe


def modelled(scan):
    """Centred patterns of the truth by the reconstruction's own model, in double precision."""
    positions = torch.from_numpy(scan.positions)
    corners = positions.round()
    object, probe = (
        torch.from_numpy(a).to(torch.complex128) for a in (scan.ground_truth.object, scan.ground_truth.probe)
    )
    waves = exit_waves(object[None, None], corners.long(), moved_probes(probe, positions - corners))
    return torch.fft.fftshift(far_field_intensity(waves), dim=(-2, -1)).numpy()


@each("options", [{}, {"modes": 3}, {"window": 33}, {"subpixel": False, "modes": 8}, {"step": 5.5, "photons": 1e9}])
def test_patterns_are_those_of_the_reconstruction_model(options):
    scan = simulate(7, noise=False, **{"window": 32, **options})
    expected = modelled(scan)
    # Stored as float32: half a unit in the last place.
    np.testing.assert_allclose(scan.counts(0, 7), expected, rtol=2**-23, atol=1e-12 * expected.max())


def test_noise_is_that_of_poisson():
    mean = simulate(60, window=32, noise=False).counts(0, 60).astype(np.float64)
    noisy = simulate(60, window=32).counts(0, 60).astype(np.float64)
    np.testing.assert_array_equal(noisy, np.rint(noisy))
    bright = mean > 1
    deviation = ((noisy - mean) / np.sqrt(np.maximum(mean, 1e-9)))[bright]
    assert bright.sum() > 20_000
    # Mean 0 and variance 1; four standard errors (the fourth moment of Poisson is 3 + 1 / mean, at most 4).
    assert abs(deviation.mean()) < 4 / np.sqrt(bright.sum())
    assert abs(deviation.var() - 1) < 4 * np.sqrt(3 / bright.sum())


def test_noise_differs_from_pattern_to_pattern():
    scan = simulate(2, window=32, photons=1e4, step=1e-6, subpixel=False)
    np.testing.assert_array_equal(scan.positions[0], scan.positions[1])
    assert (scan.counts(0, 1) != scan.counts(1, 2)).any()


def test_noise_off_changes_nothing_else():
    noisy, quiet = (arrays_of(simulate(6, window=16, noise=noise))[1:] for noise in (True, False))
    for one, other in zip(noisy, quiet, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_seed_decides_positions_and_object():
    one, again, other = (arrays_of(simulate(6, window=16, modes=2, seed=seed)) for seed in (8, 8, 1))
    for left, right in zip(one, again, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one[1], other[1])
    size = min(len(one[3]), len(other[3])) // 2
    assert not np.array_equal(one[3][:size, :size], other[3][:size, :size])


@each("modes", range(1, 9))
def test_modes_are_orthogonal_with_the_stated_powers(modes):
    probe = simulate(4, window=32, modes=modes, photons=5e5).ground_truth.probe.astype(np.complex128).reshape(modes, -1)
    gram = probe.conj() @ probe.T
    powers = np.array(MODE_POWERS[:modes]) / sum(MODE_POWERS[:modes]) * 5e5
    # Stored in single precision.
    np.testing.assert_allclose(gram, np.diag(powers), rtol=1e-6, atol=1e-6 * 5e5)


def test_the_guess_has_the_spectrum_of_the_main_mode_and_another_defocus():
    scan = simulate(4, window=32)
    truth, guess = np.fft.fft2(scan.ground_truth.probe[0]), np.fft.fft2(scan.probe[0])
    frequency = np.fft.fftfreq(32)
    squared = frequency[:, None] ** 2 + frequency[None, :] ** 2
    # The true defocus is exp(2.2 πi n k²); the guess has three quarters of it.
    expected = truth * np.exp(-0.25j * np.pi * 2.2 * 32 * squared)
    np.testing.assert_allclose(guess, expected, rtol=0, atol=1e-6 * np.abs(truth).max())


@each("subpixel", [True, False])
def test_every_window_is_inside_the_true_object(subpixel):
    scan = simulate(23, window=16, step=7.3, subpixel=subpixel)
    assert scan.positions.min() >= 1
    assert (np.rint(scan.positions) + 16 <= scan.ground_truth.object.shape).all()
    assert (scan.positions == np.rint(scan.positions)).all() == (not subpixel)


def test_the_step_is_the_mean_distance():
    positions = simulate(100, window=32, step=3.0).positions.reshape(10, 10, 2)
    assert np.diff(positions[:, :, 0], axis=0).mean() == pytest.approx(3.0, abs=0.2)
    assert np.diff(positions[:, :, 1], axis=1).mean() == pytest.approx(3.0, abs=0.2)


@each(
    ("options", "fact"),
    [
        ({"patterns": 0}, "patterns=0"),
        ({"window": 8}, "window=8"),
        ({"photons": 0}, "photons=0"),
        ({"photons": float("nan")}, "photons=nan"),
        ({"photons": float("inf")}, "photons=inf"),
        ({"modes": 0}, "modes is 0"),
        ({"modes": 9}, "modes is 9"),
        ({"step": 0}, "step is 0"),
        ({"step": -2.0}, "step is -2.0"),
        ({"step": float("nan")}, "step is nan"),
    ],
)
def test_nonsense_is_refused(options, fact):
    with raises("argument.invalid-value", fact):
        simulate(**{"patterns": 4, "window": 16, **options})
