"""The problems: the common ones that every package is timed on, and large files of integer counts."""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptynb as pt
from ptynb.data.geometry import NearField
from ptynb.data.patterns import AbsentFrames
from ptynb.io.scan_file import write_scan
from tests.benchmarks.harness import Bench


def made(bench: Bench, name: str, *choices: str) -> Path:
    """A common problem as a file, made once."""
    path = bench.folder / f"{name}.npz"
    if not path.exists():
        bench.said(f"making {path.name}")
        command = [sys.executable, str(bench.scripts / "make_problem.py"), str(path), *choices]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def scan_of(path: Path, whole_pixels: bool = False, near_field: bool = False) -> pt.Scan:
    """A common problem, with the start that all packages get: a defocused probe, and nothing of the object.

    whole_pixels: positions are rounded, as packages do that do not move the probe between pixels. near_field: the same
    numbers taken for shadows, for measurements of time only. Other files are loaded as they are.
    """
    if path.suffix != ".npz":
        return pt.load(path)
    shadows = NearField(wavelength=1.5e-10, focus_to_sample=0.01, sample_to_detector=1.0, detector_pixel=(5e-5, 5e-5))
    with np.load(path) as data:
        pixel = float(data["det_pixel"])
        return pt.Scan.from_arrays(
            data["patterns"],
            np.rint(data["positions_px"]) if whole_pixels else data["positions_px"],
            probe=data["start_probe"],
            geometry=shadows
            if near_field
            else pt.Geometry(
                wavelength=float(data["wavelength"]),
                distance=float(data["det_distance"]),
                detector_pixel=(pixel, pixel),
            ),
        )


def score(bench: Bench, problem: Path, result: Path) -> float:
    """The independent score: normalised complex error of the object in a saved result; of slices, their mean."""
    with np.load(problem) as data, np.load(result) as saved:
        truth, found = data["object"], saved["object"]
        rest = {"positions_px": data["positions_px"], "patterns": np.empty((0, *data["patterns"].shape[1:]))}
    if truth.ndim == 2:
        return _scored(bench, problem, result)
    errors = []
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        one, other = Path(folder) / "truth.npz", Path(folder) / "found.npz"
        for wanted, layer in zip(truth, found, strict=True):
            np.savez(one, object=wanted, **rest)
            np.savez(other, object=layer)
            errors.append(_scored(bench, one, other))
    return float(np.mean(errors))


def _scored(bench: Bench, problem: Path, result: Path) -> float:
    command = [sys.executable, str(bench.scripts / "score.py"), str(problem), str(result)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(said.split("error")[1].split()[0])


def large(folder: Path, patterns: int, window: int, distinct: int = 256) -> pt.Scan:
    """An HDF5 file of uint16 counts, made once: that many patterns, of which `distinct` are simulated and come again.

    What is in the patterns matters for neither memory nor reading; that they are as many, and integers, does.
    """
    path = folder / f"{patterns}x{window}.h5"
    if path.exists():
        return pt.load(path)
    some = pt.simulate(patterns=min(distinct, patterns), window=window, photons=1e5, seed=0)
    counts = some.frames.read(0, len(some))
    assert counts.max() < 2**16, "the counts do not fit in 16 bits"
    side = math.ceil(math.sqrt(patterns))
    grid = np.stack(np.divmod(np.arange(patterns), side), 1) * 8.0
    places = grid + np.random.default_rng(0).uniform(-2.0, 2.0, grid.shape)
    frames = AbsentFrames((patterns, window, window), "<u2")
    scan = pt.Scan(frames=frames, positions=places, name=path.stem, probe=some.probe, geometry=some.geometry)
    return write_scan(path, scan, _repeated(counts.astype(np.uint16), patterns))


def _repeated(counts: NDArray[Any], patterns: int) -> Iterator[NDArray[Any]]:
    for first in range(0, patterns, len(counts)):
        yield counts[: patterns - first]


def unsteady(bench: Bench, name: str) -> Path:
    """A common problem measured with an unsteady beam and stage, as a file, made once.

    Positions are wrong by 1 pixel (root mean square), and patterns have between 60% and 100% of their counts, by
    binomial thinning, which leaves Poisson counts.
    """
    source, path = made(bench, name), bench.folder / f"{name}-unsteady.npz"
    if not path.exists():
        random = np.random.default_rng(0)
        with np.load(source) as data:
            arrays = dict(data)
        patterns = arrays["patterns"]
        intensity = random.uniform(0.6, 1.0, (len(patterns), 1, 1))
        arrays["patterns"] = random.binomial(patterns.astype(np.int64), intensity).astype(np.float32)
        wrong = random.normal(0, 1 / math.sqrt(2), arrays["positions_px"].shape)
        arrays["positions_px"] = (arrays["positions_px"] + wrong).astype(np.float32)
        np.savez(path, **arrays)
    return path


def varying(bench: Bench, name: str) -> Path:
    """A common problem measured with a probe that varies, as a file, made once.

    The beam wanders and its shape changes: to each mode of the probe come its derivatives along y and x and its
    product with r², orthogonal to each other and to it, with real coefficients of 0.15 of its amplitude (root mean
    square), which change slowly over the scan by half and at random by half.
    """
    source, path = made(bench, name), bench.folder / f"{name}-varying.npz"
    if not path.exists():
        random = np.random.default_rng(0)
        with np.load(source) as data:
            arrays = dict(data)
        probe, count = arrays["probe"][0].astype(complex), len(arrays["patterns"])
        along = np.linspace(-1, 1, probe.shape[-1])
        radius = along[:, None] ** 2 + along**2
        ways = np.stack([probe, np.gradient(probe, axis=0), np.gradient(probe, axis=1), radius * probe])
        ways = np.linalg.qr(ways.reshape(4, -1).T)[0].T.reshape(ways.shape)[1:] * np.linalg.norm(probe)
        slow = np.cumsum(random.normal(size=(count, 3)), 0)
        parts = [(one - one.mean(0)) / one.std(0) for one in (slow, random.normal(size=(count, 3)))]
        coefficients = 0.15 * (parts[0] + parts[1]) / math.sqrt(2)
        probes = probe + np.tensordot(coefficients, ways, 1)
        arrays["patterns"] = _counts(arrays, probes, arrays["object"][None], np.ones(probe.shape), random)
        np.savez(path, **arrays)
    return path


def thick(bench: Bench, name: str, count: int, thickness: float, *choices: str) -> Path:
    """A common problem with an object of slices in its place, as a file, made once.

    The slices are the object, turned by a right angle each, with the square root of its transmission; `thickness`
    apart [m]. "object" is (slice, y, x).
    """
    source, path = made(bench, name, *choices), bench.folder / f"{name}-{count}-slices.npz"
    if not path.exists():
        with np.load(source) as data:
            arrays = dict(data)
        object, probe = arrays["object"].astype(complex), arrays["probe"][0].astype(complex)
        half = np.sqrt(np.abs(object)) * np.exp(0.5j * np.angle(object))
        slices = np.stack([np.rot90(half, turn) for turn in range(count)])
        wavelength, side = float(arrays["wavelength"]), probe.shape[-1]
        pixel = wavelength * float(arrays["det_distance"]) / (side * float(arrays["det_pixel"]))
        frequencies = np.fft.fftfreq(side, pixel)
        squares = frequencies[:, None] ** 2 + frequencies**2
        kernel = np.exp(2j * np.pi * thickness * (np.sqrt(wavelength**-2 - squares) - 1 / wavelength))
        probes = np.broadcast_to(probe, (len(arrays["patterns"]), side, side))
        arrays["patterns"] = _counts(arrays, probes, slices, kernel, np.random.default_rng(0))
        arrays["object"] = slices.astype(np.complex64)
        np.savez(path, **arrays)
    return path


def _counts(
    arrays: dict[str, Any],
    probes: NDArray[Any],
    slices: NDArray[Any],
    kernel: NDArray[Any],
    random: np.random.Generator,
) -> NDArray[Any]:
    """Counts (pattern, y, x) at the positions of a problem, of probes (pattern, y, x) behind slices (slice, y, x)."""
    side = probes.shape[-1]
    frequencies = np.fft.fftfreq(side)
    patterns = np.empty(probes.shape, np.float32)
    for number, place in enumerate(arrays["positions_px"].astype(float)):
        corner = np.floor(place).astype(int)
        shift = place - corner
        ramp = np.exp(-2j * np.pi * (frequencies[:, None] * shift[0] + frequencies * shift[1]))
        wave = np.fft.ifft2(np.fft.fft2(probes[number]) * ramp)
        for depth, layer in enumerate(slices):
            if depth:
                wave = np.fft.ifft2(np.fft.fft2(wave) * kernel)
            wave = wave * layer[corner[0] : corner[0] + side, corner[1] : corner[1] + side]
        # The common problem's order: its waves have the centre in the middle of the window.
        far = np.fft.fftshift(np.fft.fft2(wave, norm="ortho"))
        patterns[number] = random.poisson(np.abs(far) ** 2)
    return patterns
