"""A scan whose axes can't be mistaken: an oblong raster with unequal steps, of which every format gets the patterns."""

import pickle
from dataclasses import dataclass

import numpy as np

import ptynb as pt
from ptynb.data.electrons import electron_wavelength
from ptynb.data.scan import Scan
from ptynb.simulation.simulated_scan import simulate

ROWS, COLUMNS = 4, 6
STEP = (4, 3)
"""Object pixels (y, x)."""
VOLTAGE = 300e3
ANGLE = 0.8e-3
"""A detector pixel, seen from the sample [rad]."""


@dataclass(frozen=True, eq=False)
class Oblong:
    """patterns: (row, column, y, x), float32 whole numbers. step: (y, x) [m]. scan: the same from arrays."""

    patterns: np.ndarray
    step: tuple[float, float]
    scan: Scan

    @property
    def stack(self):
        return self.patterns.reshape(-1, *self.patterns.shape[2:])


def oblong(window, photons=1e5, step=STEP):
    """The patterns of a raster over a test object, with noise."""
    truth = simulate(4, window=window, photons=photons, seed=5, step=30).ground_truth
    random = np.random.default_rng(1)
    rows, columns = np.indices((ROWS, COLUMNS)).reshape(2, -1)
    positions = np.column_stack([rows * step[0], columns * step[1]])
    waves = [truth.probe[0] * truth.object[y : y + window, x : x + window] for y, x in positions]
    intensity = np.fft.fftshift(np.abs(np.fft.fft2(waves, norm="ortho")) ** 2, axes=(1, 2))
    patterns = random.poisson(intensity).astype(np.float32)
    geometry = pt.Geometry(wavelength=electron_wavelength(VOLTAGE), distance=1.0, detector_pixel=(ANGLE, ANGLE))
    pixel = geometry.object_pixel((window, window))
    return Oblong(
        patterns.reshape(ROWS, COLUMNS, window, window),
        (step[0] * pixel[0], step[1] * pixel[1]),
        Scan.from_arrays(patterns, positions, geometry=geometry),
    )


SETTINGS = pt.Settings(seed=2, batch=8, probe={"start": "mean pattern"})
"""Of a start by which losses agree although positions differ in their last digits."""


def losses(scan):
    """Of a few epochs, in this process."""
    with pt.Reconstruction(scan, SETTINGS, device="cpu") as recon:
        return [epoch.loss for epoch in recon.run(3)]


def agrees(scan, original, rtol=1e-9):
    """Counts, positions and object pixel are the original's; positions but for a common shift.

    Counts as an engine takes them, too, which gets the frames by pickle and wants some patterns in any order.
    """
    counts = original.counts(0, len(original))
    np.testing.assert_array_equal(scan.counts(0, len(scan)), counts)
    some = np.array([20, 3, 4, 5, 11])
    out = np.empty((len(some), *counts.shape[1:]), scan.frames.dtype)
    pickle.loads(pickle.dumps(scan.frames)).local().take(some, out)
    np.testing.assert_array_equal(out if scan.mask is None else out * scan.mask, counts[some])
    moved, wanted = (one.positions - one.positions[0] for one in (scan, original))
    np.testing.assert_allclose(moved, wanted, rtol=rtol, atol=rtol * 10)
    np.testing.assert_allclose(scan.pixel_size, original.pixel_size, rtol=rtol)
