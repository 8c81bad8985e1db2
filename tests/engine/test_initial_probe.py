"""The probe of a scan without one is found by a short reconstruction, on any number of engines."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine import initial_probe
from ptynb.engine.loop import Loop
from ptynb.settings import Settings
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import after, error_of

CPU = torch.device("cpu")
WINDOW = 48
MEAN = Settings(probe={"start": "mean pattern"})


def through_a_diffuser(size: tuple[int, int] = (WINDOW, WINDOW)) -> Scan:
    """A scan without probe: a strong object, seen with the light of a lens behind a diffuser of 2 rad."""
    random = np.random.default_rng(1)
    distance = np.hypot(*np.meshgrid(*(np.fft.fftfreq(side) * 2 for side in size), indexing="ij"))
    screen = smooth(random, size, 0.06)
    lens = (distance < 0.45) * np.exp(1j * (2 * screen + 40 * distance**2))
    probe = np.fft.fftshift(np.fft.ifft2(lens))
    probe *= np.sqrt(1e6 / np.sum(np.abs(probe) ** 2))
    positions = np.stack(np.meshgrid(np.arange(12), np.arange(12), indexing="ij"), -1).reshape(-1, 2) * 3.0
    positions += random.uniform(-1, 1, positions.shape)
    shape = size[0] + 40, size[1] + 40
    object = (0.6 + 0.35 * np.tanh(smooth(random, shape, 0.1))) * np.exp(1.5j * smooth(random, shape, 0.1))
    return dataclasses.replace(pt.simulate_diffraction(object, probe[None], positions + 2, seed=2), probe=None)


def smooth(random: np.random.Generator, shape: tuple[int, int], cut: float) -> np.ndarray:
    """Random numbers of mean 0 and deviation 1 with frequencies below `cut` [1 / pixels]."""
    frequency = np.hypot(*np.meshgrid(*map(np.fft.fftfreq, shape), indexing="ij"))
    field = np.fft.ifft2(np.fft.fft2(random.normal(size=shape)) * (frequency < cut)).real
    return (field - field.mean()) / field.std()


def start(scan: Scan, settings: Settings) -> np.ndarray:
    loop = Loop(scan, settings, SingleGroup(CPU))
    try:
        return loop.model.probe.values.detach().numpy().copy()
    finally:
        loop.disconnect()


@pytest.fixture(scope="module")
def scan() -> Scan:
    return through_a_diffuser()


def test_a_strong_object_behind_a_diffuser_is_found_without_a_probe(scan: Scan) -> None:
    assert error_of(after(scan, MEAN, 60), scan) > 0.5
    assert error_of(after(scan, Settings(), 60), scan) < 0.1


def through_a_pinhole() -> Scan:
    """A scan without probe: an object with structures of 2 pixels, amplitudes from 0.15 to 1 and phases up to 5.3."""
    random = np.random.default_rng(1)
    places = np.arange(WINDOW) - WINDOW // 2
    probe = np.clip(WINDOW / 3 + 0.5 - np.hypot(places[:, None], places), 0, 1).astype(complex)
    probe *= np.sqrt(1e7 / np.sum(np.abs(probe) ** 2))
    positions = np.stack(np.meshgrid(np.arange(12), np.arange(12), indexing="ij"), -1).reshape(-1, 2) * 5.0
    positions += random.uniform(-1, 1, positions.shape)
    fields = [scipy.ndimage.gaussian_filter(random.normal(size=(WINDOW + 64,) * 2), 2) for _ in range(2)]
    amplitude, phase = (np.clip(field / field.std() / 4 + 0.5, 0, 1) for field in fields)
    object = (0.15 + 0.85 * amplitude) * np.exp(5.3j * phase)
    return dataclasses.replace(pt.simulate_diffraction(object, probe[None], positions + 2, seed=2), probe=None)


def test_an_object_that_gradients_do_not_find_is_found_by_the_difference_map(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = through_a_pinhole()
    assert error_of(after(scan, Settings(), 60), scan) < 0.02
    monkeypatch.setattr(initial_probe, "NOT_NOISE", np.inf)
    assert error_of(after(scan, Settings(seed=1), 60), scan) > 0.5  # with another seed, which is not known yet


@pytest.mark.parametrize(
    ("r_factors", "tried", "best"),
    [
        ({("lsqml", 0, 50): 0.09}, 1, 0.09),
        ({("lsqml", 0, 50): 0.5, ("dm", 0, 60): 0.08}, 2, 0.08),
        ({("lsqml", 0, 50): 0.5, ("dm", 0, 60): 0.4, ("lsqml", 0, 150): 0.45}, 3, 0.5),
        ({("lsqml", 0, 50): 0.5, ("dm", 0, 60): 0.4, ("lsqml", 0, 150): 0.06}, 3, 0.06),
        ({("lsqml", 0, 50): 0.5, ("dm", 0, 60): 0.4, ("lsqml", 0, 150): 0.2, ("lsqml", 1, 150): 0.05}, 4, 0.05),
        ({("lsqml", 0, 150): 0.2, ("lsqml", 1, 150): 0.19, ("lsqml", 2, 150): 0.1}, 5, 0.1),
        ({}, 3, None),
    ],
    ids=["at once", "by DM", "not with more epochs", "with more", "with another seed", "all diverge at first", "none"],
)
def test_the_search_is_continued_until_the_r_factor_is_near_that_of_noise(
    r_factors: dict[tuple[str, int, int], float], tried: int, best: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial_probe, "noise", lambda counts: 0.05)
    monkeypatch.setattr(initial_probe, "_known", {})
    scan = Scan.from_arrays(np.ones((16, 8, 8), np.float32), np.zeros((16, 2)))
    asked = list[tuple[str, int, int]]()

    def reconstruct(
        scan: Scan, settings: Settings, device: torch.device, epochs: int
    ) -> initial_probe.ShortResult | None:
        asked.append((settings.optimiser, settings.seed, epochs))
        r_factor = r_factors.get(asked[-1])
        return r_factor and initial_probe.ShortResult(np.ones((1, 8, 8)), np.ones((8, 8)), (0, 0), r_factor)

    found = initial_probe._searched(scan, initial_probe.run_settings(Settings()), CPU, reconstruct)
    assert len(asked) == tried
    assert best == (found and found.r_factor)


@pytest.mark.parametrize("photons", [0.1, 3.0, 1000.0])
def test_the_r_factor_of_noise_is_known_from_the_counts(photons: float) -> None:
    random = np.random.default_rng(0)
    means = photons * random.exponential(size=(1, 64, 64))
    counts = random.poisson(np.broadcast_to(means, (32, 64, 64))).astype(np.float32)
    true = np.abs(np.sqrt(counts) - np.sqrt(means)).sum() / np.sqrt(counts).sum()
    assert initial_probe.noise(counts) == pytest.approx(true, rel=0.25)
    assert initial_probe.noise(counts * 1.01) == initial_probe.noise(0 * counts) == initial_probe.NOISE


def test_all_engines_begin_with_the_probe_of_one(ranks: Ranks, scan: Scan) -> None:
    alone, *both = *ranks.run(1, work.initial, scan, Settings()), *ranks.run(2, work.initial, scan, Settings())
    for found in both:
        np.testing.assert_array_equal(found["start"]["probe"], alone["start"]["probe"])


def test_another_run_of_the_scan_repeats_the_probe_without_another_search(
    scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = start(scan, Settings())
    monkeypatch.setattr(initial_probe, "EPOCHS", 0)  # a search would end with the disc
    np.testing.assert_array_equal(start(scan, Settings(batch=32)), found)
    assert not np.array_equal(start(scan, Settings(seed=1)), found)


def test_the_mean_pattern_is_used_where_the_search_diverges(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(loop: Loop) -> None:
        raise FloatingPointError

    monkeypatch.setattr(Loop, "step", diverge)
    np.testing.assert_array_equal(start(scan, Settings(seed=2)), start(scan, MEAN))


def test_each_scan_with_a_probe_of_its_own_gets_one(scan: Scan) -> None:
    parts = [pt.preparation.select(scan, slice(0, 72)), pt.preparation.select(scan, slice(72, 144))]
    together = start(pt.preparation.combine(parts, share="object"), Settings())
    alone = [start(part, Settings())[0] for part in parts]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


@pytest.mark.parametrize("radius", [0.08, 0.15, 0.22])
def test_the_extent_of_a_disc_is_found_of_a_flat_phase_and_of_speckles(radius: float) -> None:
    """The autocorrelation of the first is the overlap of two discs, the mean modulus of the other's is its root."""
    size = (96, 64)
    random = np.random.default_rng(0)
    y, x = np.meshgrid(*((np.arange(side) - side // 2) / side for side in size), indexing="ij")
    inside = np.hypot(y, x) < radius
    found = []
    for phases in (np.zeros((64, *size)), random.uniform(0, 2 * np.pi, (64, *size))):
        waves = np.fft.fftshift(np.fft.fft2(inside * np.exp(1j * phases)), axes=(-2, -1))
        patterns = random.poisson(np.abs(waves) ** 2 / inside.sum() * 10)
        found.append(initial_probe.disc_radius(torch.from_numpy(patterns)) / radius)
    assert found[0] == pytest.approx(1, abs=0.06)
    assert 1.1 < found[1] < 1.4
    assert initial_probe.disc_radius(torch.ones(16, *size)) == 0


def test_the_patterns_are_neighbours_and_evenly_spread() -> None:
    positions = np.stack(np.meshgrid(np.arange(100.0), np.arange(100.0), indexing="ij"), -1).reshape(-1, 2)
    every = np.arange(len(positions))
    few = initial_probe.neighbours(positions, every, np.array([10.0, 20.0]))
    offsets = (positions[few] - 49.5) / [10, 20]
    assert len(few) == initial_probe.PATTERNS
    assert np.hypot(*offsets.T).max() <= 1.0
    gaps = np.hypot(*(offsets[:, None] - offsets).T) + 9 * np.eye(len(few))
    assert gaps.min(0).min() > 0.1, "no two are next to each other"
    near = initial_probe.neighbours(positions, every, np.array([3.0, 3.0]))
    assert len(near) == initial_probe.PATTERNS, "as many as are needed, if there are few within reach"
    assert np.array_equal(initial_probe.neighbours(positions[:20], every[:20], np.array([1.0, 1.0])), every[:20])
