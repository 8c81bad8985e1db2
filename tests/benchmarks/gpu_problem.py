"""The common problem made on a device: simulated in seconds, and kept in memory as 16-bit counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import ptynb as pt
from ptynb.data.geometry import Geometry
from ptynb.data.patterns import ArrayFrames

STEP = 8.0
"""Between two positions [object pixels], as in the common problem."""
PHOTONS = 1e6
WAVELENGTH, DISTANCE, DETECTOR_PIXEL = 1e-10, 2.0, 75e-6
APERTURE, EDGE = 0.12, 0.004
"""Radius of the aperture and width of its edge [cycles per pixel]."""
DEFOCUS, GUESSED_DEFOCUS = 280.0, 230.0
"""Of the probe and of its initial guess [pixels²]."""
MODE_POWERS = (1.0, 0.3, 0.2, 0.1)
AT_ONCE = 2**24
"""Pixels of patterns that are simulated at once."""
MOST = 2**16 - 1
"""Largest count of 16 bits."""


@dataclass(frozen=True)
class Problem:
    """A scan with its ground truth: object (y, x), probe (mode, y, x)."""

    scan: pt.Scan
    object: NDArray[np.complex64]
    probe: NDArray[np.complex64]

    @contextmanager
    def file(self, folder: Path) -> Iterator[Path]:
        """Write what the peers' scripts read, in a folder that is removed at the end."""
        with TemporaryDirectory(dir=folder) as temporary:
            path = Path(temporary) / "problem.npz"
            guess = self.scan.probe
            assert guess is not None
            np.savez(
                path,
                patterns=self.scan.frames.read(0, len(self.scan)).astype(np.float32),
                positions_px=self.scan.positions.astype(np.float32),
                object=self.object,
                probe=self.probe,
                start_probe=guess[0],
                wavelength=WAVELENGTH,
                det_pixel=DETECTOR_PIXEL,
                det_distance=DISTANCE,
            )
            yield path


def simulated(
    side: int, window: int, modes: int, device: torch.device, *, whole_pixels: bool = False, noise: bool = True
) -> Problem:
    """Simulate side x side patterns of window x window pixels with up to four modes on a device."""
    random = np.random.default_rng(0)
    raster = np.stack(np.meshgrid(*(np.arange(side) * STEP,) * 2, indexing="ij"), -1).reshape(-1, 2)
    positions = 8 + raster + random.uniform(-0.3, 0.3, raster.shape) * STEP
    positions = np.rint(positions) if whole_pixels else positions
    object = _object(int(window + side * STEP + 16), device)
    probe = _probe(window, modes, DEFOCUS, device)
    counts = np.concatenate([*_counts(object, probe, positions, noise)])
    geometry = Geometry(wavelength=WAVELENGTH, distance=DISTANCE, detector_pixel=(DETECTOR_PIXEL, DETECTOR_PIXEL))
    guess = _probe(window, 1, GUESSED_DEFOCUS, device).cpu().numpy()
    scan = pt.Scan.from_arrays(counts[:1].astype(np.uint16), positions[:1], probe=guess, geometry=geometry)
    scan = dataclasses.replace(scan, frames=ArrayFrames.of(counts), positions=positions)
    return Problem(scan, object.cpu().numpy(), probe.cpu().numpy())


def _object(side: int, device: torch.device) -> Tensor:
    """Return a smooth object with edges, in amplitude and phase."""
    generator = torch.Generator().manual_seed(0)
    y, x = (torch.arange(side, device=device, dtype=torch.float32) - side / 2 for _ in range(2))
    angle = torch.atan2(y[:, None], x[None, :])

    def texture(sigma: float) -> Tensor:
        smooth = _smoothed(torch.randn((side, side), generator=generator).to(device), sigma)
        return (smooth - smooth.min()) / (smooth.max() - smooth.min())

    amplitude = 1 - 0.25 * texture(3) - 0.2 * (torch.sin(18 * angle) > 0)
    phase = 1.2 * texture(2) - 0.7 * (torch.sin(24 * angle + 1) > 0)
    return torch.polar(_smoothed(amplitude, 0.7), _smoothed(phase, 0.7))


def _smoothed(image: Tensor, sigma: float) -> Tensor:
    """Return an image filtered by a Gaussian, as if it continued periodically."""
    y, x = (torch.fft.fftfreq(side, device=image.device) for side in image.shape)
    transfer = torch.exp(-2 * (torch.pi * sigma) ** 2 * (y[:, None] ** 2 + x[None, :] ** 2))
    return torch.fft.ifft2(torch.fft.fft2(image) * transfer).real


def _probe(window: int, modes: int, defocus: float, device: torch.device) -> Tensor:
    """Return a defocused probe (mode, y, x), its further modes made orthogonal to the first."""
    frequency = torch.fft.fftfreq(window, device=device)
    square = frequency[:, None] ** 2 + frequency[None, :] ** 2
    aperture = torch.sigmoid((APERTURE - square.sqrt()) / EDGE)
    main = torch.fft.fftshift(torch.fft.ifft2(torch.polar(aperture, torch.pi * defocus * square), norm="ortho"))
    across = (torch.arange(window, device=device) - window / 2) / window
    y, x = across[:, None], across[None, :]
    found: list[Tensor] = []
    for factor in (torch.ones_like(y), x, y, x * y)[:modes]:
        mode = main * factor
        for other in found:
            mode = mode - other * (other.conj() * mode).sum() / other.abs().square().sum()
        found.append(mode / mode.abs().square().sum().sqrt())
    powers = torch.tensor(MODE_POWERS[:modes], device=device)
    return torch.stack(found) * (PHOTONS * powers / powers.sum()).sqrt()[:, None, None]


def _counts(object: Tensor, probe: Tensor, positions: NDArray[np.float64], noise: bool) -> Iterator[NDArray[Any]]:
    """Yield counts (pattern, y, x) in portions, uint16; without noise the rates, float32."""
    window, device = probe.shape[-1], object.device
    frequency = torch.fft.fftfreq(window, device=device)
    within, spectrum = torch.arange(window, device=device), torch.fft.fft2(probe)
    generator = torch.Generator(device).manual_seed(1)
    size = max(1, AT_ONCE // (window**2 * len(probe)))
    for first in range(0, len(positions), size):
        own = torch.from_numpy(positions[first : first + size])
        corners = own.round().long()
        rest = (own - corners).to(device, torch.float32)
        rows, columns = (corners[:, axis].to(device)[:, None] + within for axis in (0, 1))
        cycles = frequency[:, None] * rest[:, 0, None, None] + frequency * rest[:, 1, None, None]
        ramp = torch.polar(torch.ones_like(cycles), -2 * torch.pi * cycles)
        moved = torch.fft.ifft2(spectrum * ramp[:, None])
        waves = torch.fft.fft2(moved * object[rows[:, :, None], columns[:, None, :]][:, None], norm="ortho")
        rates = torch.fft.fftshift(waves.abs().square().sum(1), dim=(1, 2))
        if not noise:
            yield rates.cpu().numpy()
            continue
        counts = torch.poisson(rates, generator)
        assert float(counts.max()) <= MOST, "the counts do not fit in 16 bits"
        yield counts.to(torch.int32).cpu().numpy().astype(np.uint16)
