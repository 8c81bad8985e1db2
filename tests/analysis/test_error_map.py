"""The map of the standard error: on objects with known noise, and on simulated scans, held against the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import fourier_shift, gaussian_filter

import ptynb as pt
from ptynb.analysis import error_map, register, registration
from ptynb.data.result import Result
from tests.raising import raises

SIDE, WINDOW = 160, 32


def structured(seed: int) -> NDArray[np.complex128]:
    field = gaussian_filter(np.random.default_rng(seed).standard_normal((SIDE, SIDE)), 3, mode="wrap")
    return (1 - 0.1 * np.abs(field) / field.std()) * np.exp(0.6j * field / field.std())


def result_of(object: NDArray[Any], origin: tuple[int, int] = (0, 0)) -> Result:
    last = SIDE - WINDOW
    positions = np.array([[0.0, 0.0], [0.0, last], [last, 0.0], [last, last]])
    return Result(object, np.ones((1, WINDOW, WINDOW), np.complex64), positions, origin, r_factor=0.1)


def noise(seed: int) -> NDArray[np.complex128]:
    """Of unit variance, half of it in each part."""
    real, imaginary = np.random.default_rng(seed).standard_normal((2, SIDE, SIDE))
    return (real + 1j * imaginary) / np.sqrt(2)


@pytest.fixture
def level() -> NDArray[np.float64]:
    """Standard deviation of each object: three times larger on the right."""
    return np.where(np.arange(SIDE) < SIDE // 2, 0.01, 0.03)[None, :] * np.ones((SIDE, 1))


def test_it_is_the_standard_deviation_of_the_mean_of_both(level: NDArray[np.float64]) -> None:
    true = structured(0)
    found = error_map(result_of(true + level * noise(1)), result_of(true + level * noise(2)))
    middle = SIDE // 2 - found.origin[1]
    for columns, sigma in ((slice(0, middle - 12), 0.01), (slice(middle + 12, None), 0.03)):
        expected = sigma / np.sqrt(2)
        assert np.median(found.standard_error[:, columns]) == pytest.approx(expected, rel=0.03)
        assert found.standard_error[:, columns].std() < 0.07 * expected
        assert np.median(found.amplitude_error[:, columns]) == pytest.approx(expected / np.sqrt(2), rel=0.05)
        amplitude = np.sqrt(np.mean(np.abs(true) ** 2))
        assert np.median(found.phase_error[:, columns]) == pytest.approx(expected / np.sqrt(2) / amplitude, rel=0.06)
    area = tuple(slice(at, at + side) for at, side in zip(found.origin, found.object.shape, strict=True))
    assert np.sqrt(np.mean(np.abs(found.object - true[area]) ** 2)) == pytest.approx(
        np.sqrt(np.mean(level[area] ** 2) / 2), rel=0.05
    )


def test_a_part_is_mapped_as_in_the_whole(level: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large object only what is around it is registered."""
    true = structured(0)
    first, second = (result_of(true + level * noise(seed), (-10, 5)) for seed in (1, 2))
    whole = error_map(first, second)
    part = slice(whole.origin[0] + 40, whole.origin[0] + 90), slice(whole.origin[1] + 30, whole.origin[1] + 80)
    monkeypatch.setattr(registration, "LARGE", 1000)
    monkeypatch.setattr(registration, "AROUND", 16)
    found = error_map(first, second, area=part)
    assert found.origin == (part[0].start, part[1].start)
    assert found.object.shape == (50, 50)
    inner = slice(16, -16), slice(16, -16)
    for name in ("object", "standard_error", "amplitude_error", "phase_error"):
        one, other = getattr(whole, name)[40:90, 30:80][inner], getattr(found, name)[inner]
        np.testing.assert_allclose(np.abs(other), np.abs(one), rtol=0.02)
    assert not np.array_equal(whole.object[40:90, 30:80], found.object), "each is registered by its own area"


def test_a_shift_a_factor_and_a_ramp_are_no_error(level: NDArray[np.float64]) -> None:
    true, y = structured(0), np.arange(SIDE)[:, None]
    one, other = true + level * noise(1), true + level * noise(2)
    plain = error_map(result_of(one), result_of(other))
    moved = np.fft.ifft2(fourier_shift(np.fft.fft2(other), (0.3, -1.4))) * 0.7 * np.exp(2j + 0.01j * y)
    found = error_map(result_of(one), result_of(moved))
    ratio = found.standard_error[10:-10, 10:-10] / plain.standard_error[10:-10, 10:-10]
    assert np.median(ratio) == pytest.approx(1, rel=0.03)


def test_the_error_of_a_phase_is_not_one_of_the_amplitude() -> None:
    true = structured(0)
    phases = [np.exp(0.05j * np.random.default_rng(seed).standard_normal((SIDE, SIDE))) for seed in (1, 2)]
    found = error_map(result_of(true * phases[0]), result_of(true * phases[1]), smoothing=6.0)
    assert np.median(found.phase_error) == pytest.approx(0.05 / np.sqrt(2), rel=0.03)
    assert np.median(found.amplitude_error) < 0.05 * np.median(found.standard_error)
    assert found.smoothing == 6.0


def test_one_pixel_is_no_average() -> None:
    with raises("argument.invalid-value", "smoothing", "0.5", "at least 1"):
        error_map(result_of(structured(0)), result_of(structured(0)), smoothing=0.5)


def test_a_notebook_shows_the_phase_beside_its_error(level: NDArray[np.float64]) -> None:
    true = structured(0)
    found = error_map(result_of(true + level * noise(1)), result_of(true + level * noise(2)))
    shown = found._repr_html_()
    assert shown.count("data:image/png;base64,iVBOR") == 2
    assert "Standard error of the phase [rad]" in shown
    assert f"median standard error {found.median:.3g} of the amplitude, {np.median(found.phase_error):.3g} rad" in repr(
        found
    )


def true_error(found: pt.analysis.ErrorMap, scan: pt.Scan) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The map, and the local error of its object against the truth, in the inner area of both."""
    assert scan.ground_truth is not None
    edge = 6
    area = tuple(slice(at + edge, at + side - edge) for at, side in zip(found.origin, found.object.shape, strict=True))
    fit = register(found.object, scan.ground_truth.object, (area[0], area[1]), found.origin)
    squares = np.abs(fit.aligned - fit.reference) ** 2
    true = np.sqrt(gaussian_filter(squares, found.smoothing)) / abs(fit.factor)
    return found.standard_error[edge:-edge, edge:-edge].astype(float)[4:-4, 4:-4], true[4:-4, 4:-4]


def smooth_scan(photons: float) -> pt.Scan:
    """An object without details that the counts do not resolve, and a defocused guess of the probe."""
    base = pt.simulate(patterns=100, window=48, seed=1, photons=photons)
    truth = base.ground_truth
    assert truth is not None
    field = gaussian_filter(np.random.default_rng(3).standard_normal(truth.object.shape), 3)
    object = np.exp((0.8j - 0.3) * (field - field.min()) / np.ptp(field))
    return pt.simulate_diffraction(object, truth.probe, base.positions, geometry=base.geometry, guess=base.probe)


def test_it_is_the_error_against_the_truth_and_falls_with_the_dose() -> None:
    """With the likelihood of counts; the amplitude loss is biased for few counts, in both halves alike."""
    settings, levels = pt.Settings(loss="poisson", optimiser="lbfgs"), []
    for photons in (1e5, 2e5):
        scan = smooth_scan(photons)
        estimated, true = true_error(pt.error_map(scan, settings, epochs=80, device="cpu"), scan)
        ratio, correlation = np.median(estimated / true), np.corrcoef(estimated.ravel(), true.ravel())[0, 1]
        print(f"{photons:g} photons: standard error {ratio:.2f} of the true error, correlation {correlation:.2f}")
        assert 0.7 < ratio < 1.1
        assert correlation > 0.7
        levels.append(np.median(estimated))
    assert levels[1] / levels[0] == pytest.approx(1 / np.sqrt(2), rel=0.12)
