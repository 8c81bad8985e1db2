"""The problems: the common ones that every package is timed on, and large files of integer counts."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ptynb as pt
from ptynb.data.geometry import NearField
from ptynb.io.scan_file import write_scan
from tests.benchmarks.sides import Bench


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
    numbers taken for shadows, for measurements of time only.
    """
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
    """The independent score: normalised complex error of the object in a saved result."""
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
    return write_scan(
        path,
        (patterns, window, window),
        np.dtype(np.uint16),
        _repeated(counts.astype(np.uint16), patterns),
        positions=places,
        name=path.stem,
        probe=some.probe,
        geometry=some.geometry,
    )


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
