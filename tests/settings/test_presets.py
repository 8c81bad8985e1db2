"""Each preset on a small simulated scan of its kind, beside the defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb.analysis import compare
from ptynb.data.scan import Scan
from ptynb.settings.base_models import flat
from ptynb.settings.presets import PRESETS
from tests.parametrization import each
from tests.raising import raises


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small problems are fastest so, and the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mottled(shape: tuple[int, int], seed: int, sigma: float, phase: float, loss: float) -> NDArray[np.complex128]:
    field = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma)
    field = (field - field.min()) / np.ptp(field)
    return np.exp((1j * phase - loss) * field)


def raster(patterns: int, step: float) -> NDArray[np.float64]:
    columns, index = math.isqrt(patterns), np.arange(patterns)
    jitter = np.random.default_rng(3).uniform(-0.3, 0.3, (patterns, 2))
    positions = (np.stack([index // columns, index % columns], 1) + jitter) * step
    return positions - np.floor(positions.min(0)) + 4


def room(positions: NDArray[np.float64], window: int) -> tuple[int, int]:
    height, width = np.ceil(positions.max(0)).astype(int) + window + 4
    return int(height), int(width)


def thin_xray() -> Scan:
    """A partly coherent beam: three modes."""
    return pt.simulate(patterns=64, window=48, modes=3, photons=1e6, step=4, seed=1)


def thick_electron() -> Scan:
    """16 nm of specimen at 200 kV, a probe of 25 mrad, 8 nm from its focus."""
    wavelength, window = pt.electrons.electron_wavelength(200e3), (48, 48)
    geometry = pt.Geometry(wavelength=wavelength, distance=1.0, detector_pixel=(0.12 / 48,) * 2)
    pixel = geometry.object_pixel(window)
    probe = 1e3 * pt.illumination.electron_probe(window, pixel, wavelength, 0.025, {"C10": 8e-9})
    positions = raster(81, 3.0)
    slices = np.array([mottled(room(positions, 48), seed, 1.5, 0.5, 0.0) for seed in range(4)])
    return pt.simulate_diffraction(slices, probe[None], positions, geometry=geometry, thickness=4e-9, seed=1)


def near_field() -> Scan:
    """Sixteen shadows in a structured beam whose brightness varies by a tenth, on a background that is not flat.

    The positions are wrong by up to two pixels.
    """
    geometry = pt.NearField(
        wavelength=1e-10, focus_to_sample=math.inf, sample_to_detector=0.1, detector_pixel=(1e-6, 1e-6)
    )
    probe = 100 * mottled((64, 64), 7, 2.0, 3.0, 0.3)
    positions = raster(16, 10.0)
    rng = np.random.default_rng(1)
    brightness = 1 + 0.1 * rng.standard_normal(16)
    object = mottled(room(positions, 64), 1, 1.5, 0.8, 0.1)
    scan = pt.simulate_diffraction(
        object,
        probe[None],
        positions,
        geometry=geometry,
        weights=brightness / brightness.mean(),
        background=0.1 * np.mean(np.abs(probe) ** 2) * np.linspace(0.5, 1.5, 64)[:, None],
        seed=1,
    )
    return dataclasses.replace(scan, probe=None, positions=scan.positions + rng.uniform(-2, 2, (16, 2)))


def low_dose() -> Scan:
    """Less than a photon a pixel."""
    return pt.simulate(patterns=100, window=48, photons=2e3, step=3, seed=2)


def errors(scan: Scan, settings: pt.Settings, epochs: int) -> tuple[float, float]:
    """Of the object against the true one, between the outermost probe centres; and the R-factor."""
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as recon:
        recon.start(epochs)
        recon.wait(120)
        result = recon.result
    assert scan.ground_truth is not None
    truth: NDArray[Any] = scan.ground_truth.object
    half = np.array(scan.pattern_shape) / 2
    low, high = np.ceil(scan.positions.min(0) + half), np.floor(scan.positions.max(0) + half)
    area = (slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1])))
    found = compare(result.projection, truth.prod(0) if truth.ndim == 3 else truth, area, result.origin).error
    return found, result.r_factor


PROVED = [
    ("thin X-ray", thin_xray, 30, 0.4, 0.6),
    ("thick electron", thick_electron, 25, 0.25, 1.0),
    ("near field", near_field, 60, 0.8, 0.4),
    ("low dose", low_dose, 60, 0.9, None),
]


@pytest.mark.parametrize(("name", "make", "epochs", "ratio", "r_ratio"), PROVED, ids=[case[0] for case in PROVED])
def test_a_preset_does_better_than_the_defaults_on_a_scan_of_its_kind(name, make, epochs, ratio, r_ratio) -> None:
    scan = make()
    with_defaults, their_r = errors(scan, pt.Settings(), epochs)
    with_preset, own_r = errors(scan, pt.preset(name, scan), epochs)
    print(f"{name}: error {with_defaults:.4f} with defaults, {with_preset:.4f} with the preset")
    print(f"{name}: R-factor {their_r:.4f} with defaults, {own_r:.4f} with the preset")
    assert with_preset < ratio * with_defaults
    if r_ratio is not None:  # None: most of the R-factor is noise, which a better object does not fit
        assert own_r < r_ratio * their_r


def test_every_preset_is_proved_and_says_what_it_suits() -> None:
    assert {case[0] for case in PROVED} == PRESETS.keys()
    for name, preset in PRESETS.items():
        assert preset.about.endswith(".")
        assert isinstance(pt.preset(name), pt.Settings)


def test_a_batch_leaves_updates_in_an_epoch_of_few_patterns() -> None:
    assert pt.preset("near field").batch == 4
    assert pt.preset("near field", pt.simulate(patterns=8, window=16)).batch == 2
    assert pt.preset("thin X-ray", pt.simulate(patterns=4, window=16)).batch == 1


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    with raises("argument.invalid-value", "'thin xray'", "'thin X-ray'", "'low dose'"):
        pt.preset("thin xray")


@each("name", PRESETS)
def test_each_setting_of_a_preset_has_its_reason(name: str) -> None:
    chosen = PRESETS[name].make(100)
    assert {*PRESETS[name].reasons} == {name for name, _ in flat(chosen)}
