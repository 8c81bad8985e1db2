"""The problems: scans with their truth, simulated by packages of others, and measured data that is open.

usage: python problems.py NAME FILE.npz, with the package that the problem's docstring names

A file has patterns (pattern, y, x) [counts], zero frequency at n // 2; positions (pattern, yx), the first pixel of the
window [object pixels]; start_probe (mode, y, x), with which every package begins, beside a flat object; object (y, x)
and probe (mode, y, x), the truth; wavelength, distance, detector_pixel [m]; of electrons also energy [eV] and
convergence_angle [rad].
"""

from __future__ import annotations

import bz2
import hashlib
import io
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Content = dict[str, Any]
WINDOW = 128
SIDE = 32
"""Positions along y and x: 1024, so that all sizes of batch divide their number."""


def rough(shape: tuple[int, int], blur: float, seed: int) -> Array:
    """Return a random field of unit variance with structures of `blur` pixels."""
    white = np.random.default_rng(seed).standard_normal(shape)
    y, x = (np.fft.fftfreq(side) for side in shape)
    field = np.fft.ifft2(np.fft.fft2(white) * np.exp(-2 * (np.pi * blur) ** 2 * (y[:, None] ** 2 + x**2))).real
    return (field - field.mean()) / field.std()


def spokes(shape: tuple[int, int], count: int) -> Array:
    """Return a star of so many spokes, 0 or 1, its edges one pixel wide."""
    y, x = (np.arange(side) - side / 2 for side in shape)
    angle, radius = np.arctan2(y[:, None], x), np.hypot(y[:, None], x)
    return 0.5 + 0.5 * np.tanh(radius * np.sin(count * angle) / count)


def raster(step: float, jitter: float) -> Array:
    """Return SIDE x SIDE positions with random deviations, so that they have no period [pixels]."""
    grid = np.stack(np.meshgrid(*[step * np.arange(SIDE)] * 2, indexing="ij"), -1).reshape(-1, 2)
    return grid + np.random.default_rng(3).uniform(0, 2 * jitter, grid.shape) + 4


def specimen(positions: Array) -> Array:
    """Return an object for these positions: amplitudes 0.6 to 1, phases over 2 rad, a star and rough structures."""
    height, width = np.ceil(positions.max(0)).astype(int) + WINDOW + 8
    field = [np.clip(rough((height, width), 2.0, seed) / 4 + 0.5, 0, 1) for seed in (1, 2)]
    star = spokes((height, width), 24)
    return (1 - 0.25 * field[0] - 0.15 * star) * np.exp(1j * (1.2 * field[1] + 0.8 * star))


def _x_rays(photons: float, modes: int) -> Content:
    import torch
    from cdtools.tools import interactions, propagators

    y, x = np.arange(WINDOW)[:, None] - WINDOW // 2, np.arange(WINDOW) - WINDOW // 2
    slits = 1 / (1 + np.exp(np.maximum(np.abs(y), np.abs(x)) - 20.0))
    shapes = [np.ones((WINDOW, WINDOW)), x / 12 + 0 * y, y / 12 + 0 * x][:modes]
    powers = np.array([0.7, 0.2, 0.1])[:modes]
    # Out of focus, further along y than along x; the start 15% less.
    focus, start = (
        [
            propagators.inverse_far_field(
                torch.as_tensor(slits * shape * np.exp(1j * part * (0.020 * y**2 + 0.013 * x**2)))
            )
            for shape in shapes
        ]
        for part in (1.0, 0.85)
    )
    probe, begun = (_scaled(np.array([mode.numpy() for mode in set_]), powers, photons) for set_ in (focus, start))
    positions = raster(6.0, 2.0)
    object = specimen(positions)
    intensities = np.zeros((len(positions), WINDOW, WINDOW))
    for mode in probe:
        waves = interactions.ptycho_2D_sinc(
            torch.as_tensor(mode), torch.as_tensor(object), torch.as_tensor(positions), multiple_modes=False
        )
        intensities += propagators.far_field(waves).abs().numpy() ** 2
    counts = np.random.default_rng(4).poisson(intensities).astype(np.float32)
    return {
        "patterns": counts,
        "positions": positions,
        "start_probe": begun,
        "object": object,
        "probe": probe,
        "wavelength": 1.5e-10,
        "distance": 2.0,
        "detector_pixel": 75e-6,
    }


def _scaled(modes: Array, powers: Array, photons: float) -> Array:
    """Return modes with these parts of the counts of a pattern."""
    norms = np.sqrt((np.abs(modes) ** 2).sum((1, 2), keepdims=True))
    return modes / norms * np.sqrt(photons * powers / powers.sum())[:, None, None]


def x_rays() -> Content:
    """X-rays behind slits, one mode, positions between pixels, 10^6 photons a pattern (cdtools-py 0.3.2)."""
    return _x_rays(1e6, 1)


def x_rays_modes() -> Content:
    """The same in partially coherent light: three modes (cdtools-py 0.3.2)."""
    return _x_rays(1e6, 3)


def electrons() -> Content:
    """Amorphous silicon, 1 nm, with gold atoms: multislice, 80 keV, 21.4 mrad, 10^4 electrons (abtem 1.0.11).

    32 x 32 positions at distances of 0.6 angstrom; 15 nm underfocus, the start 2.5 nm less. The truth is the
    transmission of the projected potential. No crystal: a lattice can be reconstructed one period off.
    """
    import abtem
    import ase
    from abtem.core.energy import energy2sigma, energy2wavelength

    energy, step, width, angle, electrons = 80e3, 0.6, 38.0, 21.4, 1e4  # [eV], [angstrom], [angstrom], [mrad]
    thickness = 10.0
    places = _apart(np.array([width, width, thickness]), 720, 2.2)
    symbols = ["Au"] * 40 + ["Si"] * (len(places) - 40)
    atoms = ase.Atoms(symbols, places + np.array([0.0, 0.0, 1.0]), cell=[width, width, thickness + 2], pbc=True)
    fine = 2 * WINDOW
    potential = abtem.Potential(atoms, gpts=fine, slice_thickness=2.0, projection="infinite").build().compute()
    inside = slice((fine - WINDOW) // 2, (fine + WINDOW) // 2)

    def beam(defocus: float) -> abtem.Probe:
        made = abtem.Probe(energy=energy, semiangle_cutoff=angle, C10=defocus)
        made.grid.match(potential)
        return made

    def cropped(field: Array) -> Array:
        """Return a field with half the pixels, of the low frequencies that the detector has."""
        spectrum = np.fft.fftshift(np.fft.fft2(field))[inside, inside]
        return np.fft.ifft2(np.fft.ifftshift(spectrum)) / 4

    scanned = step * np.stack(np.meshgrid(*[np.arange(SIDE)] * 2, indexing="ij"), -1).reshape(-1, 2)
    measured = [
        np.asarray(
            beam(-150.0)
            .scan(potential, abtem.CustomScan(some), abtem.PixelatedDetector(max_angle=None))
            .compute()
            .array
        )[:, inside, inside]
        for some in np.array_split(scanned, 12)
    ]
    patterns = np.concatenate(measured)
    patterns *= electrons / patterns.sum((1, 2)).mean()
    phase = cropped(energy2sigma(energy) * np.asarray(potential.array).sum(0)).real
    wavelength = energy2wavelength(energy)
    middle = abtem.CustomScan([[width / 2, width / 2]], squeeze=True)
    probes = [
        _scaled(cropped(np.asarray(beam(defocus).build(middle).compute().array))[None], np.ones(1), electrons)
        for defocus in (-150.0, -125.0)
    ]
    return {
        "patterns": np.random.default_rng(4).poisson(patterns).astype(np.float32),
        "positions": scanned * WINDOW / width + WINDOW // 2,  # the cell is repeated: three times along y and x
        "start_probe": probes[1],
        "object": np.exp(1j * np.tile(phase, (3, 3))),
        "probe": probes[0],
        "wavelength": wavelength * 1e-10,
        "distance": 1.0,
        "detector_pixel": wavelength / width,
        "energy": energy,
        "convergence_angle": angle * 1e-3,
    }


def _apart(cell: Array, count: int, distance: float) -> Array:
    """Return random places (place, xyz) in a cell, periodic along x and y, that are so far apart [angstrom]."""
    rng, found = np.random.default_rng(5), np.empty((0, 3))
    period = np.array([cell[0], cell[1], np.inf])
    while len(found) < count:
        place = rng.uniform(0, cell)
        apart = np.abs(found - place)
        if (np.hypot(*np.minimum(apart, period - apart)[:, :2].T) ** 2 + apart[:, 2] ** 2 > distance**2).all():
            found = np.vstack([found, place])
    return found


STAR = (
    "https://raw.githubusercontent.com/AdvancedPhotonSource/tike/8e1f93724921be1a443edccc669b4c88ae4a9b6a/"
    "tests/data/siemens-star-small.npz.bz2"
)
STAR_DIGEST = "dbce7715c1d4a7c28a48f684dacc7d343fbc5d06fe993d6ea31714ffb5c68d3d"


def siemens_star(source: str = STAR) -> Content:
    """A Siemens star measured by X-rays: 516 patterns, of the tests of tike (Argonne National Laboratory); no truth."""
    with urllib.request.urlopen(source) as answer:
        packed = answer.read()
    if (found := hashlib.sha256(packed).hexdigest()) != STAR_DIGEST:
        raise SystemExit(
            f"{source} has the SHA-256 {found}; expected {STAR_DIGEST}: it is damaged, or another version."
        )
    with np.load(io.BytesIO(bz2.decompress(packed))) as data:
        counts, positions, probe = data["data"][0], data["scan"][0], data["probe"].reshape(1, WINDOW, WINDOW)
    positions = positions - positions.min(0) + 4
    counts = np.fft.fftshift(counts, axes=(-2, -1))
    return {
        "patterns": counts,
        "positions": positions,
        "start_probe": _scaled(probe, np.ones(1), counts.sum((1, 2)).mean()).astype(complex),
        "wavelength": 1.5e-10,  # pixels are the unit: any geometry will do
        "distance": 2.0,
        "detector_pixel": 75e-6,
    }


@dataclass(frozen=True)
class Problem:
    """A problem. modes: of the probe. error, frequency: what is to be reached.

    error: of the object, against the truth. frequency: up to which the Fourier ring correlation with the truth is above
    0.5 [Nyquist frequency].
    """

    make: Callable[[], Content]
    modes: int = 1
    error: float = 0.0
    frequency: float = 0.0


PROBLEMS = {
    "x-rays": Problem(x_rays, error=0.05, frequency=1.0),
    "x-rays, 3 modes": Problem(x_rays_modes, modes=3, error=0.07, frequency=1.0),
    "electrons": Problem(electrons, error=0.09, frequency=0.6),
    "Siemens star": Problem(siemens_star, modes=2),
}


def main() -> None:
    """Make a problem."""
    name, file = sys.argv[1], Path(sys.argv[2])
    content = PROBLEMS[name].make()
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **content)
    patterns = content["patterns"]
    print(f"{name}: {patterns.shape}, {patterns.sum((1, 2)).mean():.3g} counts a pattern")


if __name__ == "__main__":
    main()
