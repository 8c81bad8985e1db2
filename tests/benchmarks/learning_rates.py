"""Which learning rate of a part is best, with X-rays, electrons and in the near field, and what it costs unneeded.

usage: python -m tests.benchmarks.learning_rates [PART ...] [--rates 0.001 0.003 ...] [--epochs 100]

Each scan has one defect, which the part of the model describes, or none. For each rate: the error of the part after the
same number of epochs, in the unit given, and the error of the object against the ground truth; then the error of the
object where there is no defect. "0" is the model without the part. The wavelengths are 0.15 nm and 2 pm, object pixels
62 nm and 25 pm, slices 3.9 mm and 4 nm apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb.analysis import compare
from ptynb.data.scan import Scan

Array = NDArray[Any]
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
WINDOW, PADDING = 64, 9


@dataclass(frozen=True)
class Beamline:
    """What a scan is made of: photons of a pattern, columns of a square scan, and their distance [object pixels].

    depth: distance of two slices [object pixel squared / wavelength].
    """

    geometry: pt.Geometry | pt.NearField
    step: float
    photons: float
    columns: int
    depth: float
    object: Callable[[tuple[int, int], int], Array]
    probe: Callable[[], Array]
    guess: Callable[[], Array]

    @property
    def pixel(self) -> float:
        """Object pixel [m]."""
        return self.geometry.object_pixel((WINDOW, WINDOW))[0]

    @property
    def thickness(self) -> float:
        """Distance of two slices [m]."""
        return self.depth * self.pixel**2 / self.geometry.wavelength


def field(shape: tuple[int, int], seed: int, sigma: float) -> Array:
    values = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), sigma, mode="wrap")
    return values / values.std()


def mottle(shape: tuple[int, int], seed: int) -> Array:
    values = field(shape, seed, 1.0) + field(shape, seed + 50, 3.0)
    values = (values - values.min()) / np.ptp(values)
    return np.exp((0.8j - 0.1) * values)


def atoms(shape: tuple[int, int], seed: int) -> Array:
    """Weak phase of atoms on a distorted lattice."""
    random = np.random.default_rng(seed)
    phase = np.zeros(shape)
    places = np.stack(np.meshgrid(np.arange(5, shape[0], 9.0), np.arange(5, shape[1], 9.0), indexing="ij"), -1)
    for y, x in np.rint(places.reshape(-1, 2) + random.normal(0, 1.5, (places[..., 0].size, 2))).astype(int) % shape:
        phase[y, x] += random.choice([4.0, 8.0])
    return np.exp(1j * ndimage.gaussian_filter(phase, 1.2, mode="wrap"))


def disc(radius: float, defocus: float) -> Array:
    """A soft aperture of this radius [cycles a pixel], focused, with a phase of `defocus` at its edge."""
    frequency = np.fft.fftfreq(WINDOW)
    squared = frequency[:, None] ** 2 + frequency[None] ** 2
    aperture = 1 / (1 + np.exp((np.sqrt(squared) - radius) / 0.008))
    wave = np.fft.fftshift(np.fft.ifft2(aperture * np.exp(1j * defocus * squared / radius**2)))
    return wave[None] / np.linalg.norm(wave)


def speckled() -> Array:
    shape = (WINDOW, WINDOW)
    wave = (1 + 0.15 * field(shape, 7, 3)) * np.exp(0.6j * field(shape, 8, 3))
    return wave[None] / np.linalg.norm(wave)


BEAMLINES = {
    "X-rays": Beamline(
        geometry=pt.Geometry(wavelength=1.5e-10, distance=2.0, detector_pixel=(75e-6, 75e-6)),
        step=4.0,
        photons=1e7,
        columns=11,
        depth=150.0,
        object=mottle,
        probe=lambda: disc(0.13, np.pi * 2.2 * WINDOW * 0.13**2),
        guess=lambda: disc(0.13, 0.9 * np.pi * 2.2 * WINDOW * 0.13**2),
    ),
    "electrons": Beamline(
        geometry=pt.Geometry(wavelength=1.97e-12, distance=1.0, detector_pixel=(1.23e-3, 1.23e-3)),
        step=2.5,
        photons=1e6,
        columns=11,
        depth=12.0,
        object=atoms,
        probe=lambda: disc(0.22, 12.0),
        guess=lambda: disc(0.22, 11.0),
    ),
    "near field": Beamline(
        geometry=pt.NearField(
            wavelength=1e-10, focus_to_sample=0.02, sample_to_detector=0.98, detector_pixel=(5e-6, 5e-6)
        ),
        step=6.0,
        photons=4e6,
        columns=6,
        depth=0.0,
        object=lambda shape, seed: (
            (0.95 + 0.03 * field(shape, seed, 3)).clip(0.5, 1) * np.exp(0.3j * field(shape, seed + 50, 2))
        ),
        probe=speckled,
        guess=lambda: np.full((1, WINDOW, WINDOW), 1 / WINDOW, dtype=complex),
    ),
}


@dataclass(frozen=True)
class Made:
    """A scan, its true object, settings beside the defaults, and the error of the part in a result."""

    scan: Scan
    truth: Array
    settings: dict[str, Any]
    miss: Callable[[pt.Result], float]


def diffracted(line: Beamline, object: Array | None = None, probe: Array | None = None, **choices: Any) -> Scan:
    """Patterns with the initial probe of the beamline."""
    positions = places(line)
    true = probe_of(line)
    object = line.object(shape_for(positions), 1) if object is None else object
    return pt.simulate_diffraction(
        object,
        true if probe is None else probe,
        positions,
        geometry=line.geometry,
        guess=line.guess() * math.sqrt(line.photons),
        **choices,
    )


def places(line: Beamline) -> Array:
    grid = np.stack(np.meshgrid(*[np.arange(line.columns)] * 2, indexing="ij"), -1).reshape(-1, 2) * line.step
    return 12 + grid + np.random.default_rng(3).uniform(-0.3, 0.3, grid.shape) * line.step


def probe_of(line: Beamline) -> Array:
    return line.probe() * math.sqrt(line.photons)


def shape_for(positions: Array) -> tuple[int, int]:
    height, width = np.ceil(positions.max(0)).astype(int) + WINDOW + 12
    return int(height), int(width)


def rms(values: Array) -> float:
    return float(np.sqrt((np.abs(values) ** 2).sum(-1).mean()))


def shifted_positions(line: Beamline, defect: bool, moved: Callable[[Array], Array]) -> Made:
    """The initial probe is the true one: a wrong defocus and a wrong scale of the positions nearly compensate."""
    scan = diffracted(line)
    scan, truth = dataclasses.replace(scan, probe=scan.ground_truth.probe), scan.ground_truth.object
    start = dataclasses.replace(scan, positions=moved(scan.positions)) if defect else scan

    def miss(result: pt.Result) -> float:
        left = result.positions + result.origin - scan.positions
        return rms(left - left.mean(0))

    return Made(start, truth, {}, miss)


def positions(line: Beamline, defect: bool) -> Made:
    wrong = np.random.default_rng(0).normal(0, 1.5 / math.sqrt(2), places(line).shape)
    return shifted_positions(line, defect, lambda true: true + wrong)


def affine(line: Beamline, defect: bool) -> Made:
    matrix = 1.03 * np.array([[1, 0.03], [-0.03, 1]])
    return shifted_positions(line, defect, lambda true: (true - true.mean(0)) @ matrix.T + true.mean(0))


def probe_offset(line: Beamline, defect: bool) -> Made:
    """Object and probe are known: only so is a common shift determined."""
    scan = diffracted(line)
    truth = scan.ground_truth.object
    away = np.array([1.5, -2.0]) if defect else np.zeros(2)
    start = dataclasses.replace(
        scan, positions=scan.positions + away, object=truth.astype(np.complex64), probe=scan.ground_truth.probe
    )
    fixed = {"object": {"learning_rate": 0.0}, "probe": {"learning_rate": 1e-6}}
    return Made(start, truth, fixed, lambda result: rms((result.positions + result.origin - scan.positions)[:1]))


def opr(line: Beamline, defect: bool) -> Made:
    probe, side = probe_of(line)[0], WINDOW
    y, x = np.meshgrid(*[(np.arange(side) - side // 2) / side] * 2, indexing="ij")
    width = np.sqrt((np.abs(probe) ** 2 * (y**2 + x**2)).sum() / (np.abs(probe) ** 2).sum())
    time = np.linspace(-1, 1, line.columns**2)[:, None, None]
    probes = probe * (1 + (0.4j * time * x + 0.3 * np.cos(5 * time) * y) / width)
    probes *= math.sqrt(line.photons / (np.abs(probes) ** 2).sum((1, 2)).mean())
    scan = diffracted(line, probe=probes[:, None]) if defect else diffracted(line)
    true = probes if defect else np.repeat(probe[None], len(scan), 0)

    def miss(result: pt.Result) -> float:
        found = np.repeat(result.probe[:1], len(scan), 0)
        if "variations/ways" in result.parameters:
            ways, coefficients = (result.parameters[f"variations/{name}"] for name in ("ways", "coefficients"))
            found = found + np.einsum("pr,ryx->pyx", coefficients, ways)
        found = found * np.vdot(found, true) / np.vdot(found, found)
        return float(np.linalg.norm(found - true) / np.linalg.norm(true))

    return Made(scan, scan.ground_truth.object, {"opr": {"modes": 2}}, miss)


def descan(line: Beamline, defect: bool) -> Made:
    shifts = np.random.default_rng(5).normal(0, 0.5, places(line).shape) * defect
    shifts -= shifts.mean(0)
    scan = diffracted(line, descan=shifts)

    def miss(result: pt.Result) -> float:
        return rms(result.parameters.get("descan/shifts", 0.0) - shifts)

    return Made(scan, scan.ground_truth.object, {"descan": {"start": "zero"}}, miss)


def thick(line: Beamline, count: int, **choices: Any) -> tuple[Scan, Array, dict[str, Any]]:
    shape = shape_for(places(line))
    slices = np.array([line.object(shape, seed) for seed in range(count)])
    rates = {"object": {"learning_rate": 0.03}, "probe": {"learning_rate": 0.03}}
    return diffracted(line, slices, thickness=line.thickness, **choices), slices.prod(0), rates


def slices(line: Beamline, defect: bool) -> Made:
    scan, truth, settings = thick(line, 2)
    start = {"count": 2, "thickness": line.thickness * (0.8 if defect else 1.0)}

    def miss(result: pt.Result) -> float:
        return abs(float(result.parameters["slices/thickness"]) / line.thickness - 1)

    return Made(scan, truth, settings | {"slices": start}, miss)


def tilt(line: Beamline, defect: bool, count: int = 2, parametrization: str = "shift") -> Made:
    """A tilt of each position, a shift of 2 pixels at most from the first to the last slice."""
    most = 2 * line.pixel / line.thickness / (count - 1)
    tilts = np.random.default_rng(2).uniform(-most, most, places(line).shape) * defect
    scan, truth, settings = thick(line, count, tilt=tilts)

    def miss(result: pt.Result) -> float:
        found = result.parameters.get("tilt/angles", np.zeros_like(tilts))
        return rms((found - found.mean(0)) - (tilts - tilts.mean(0))) * line.thickness * (count - 1) / line.pixel

    own = {"per_position": True, "parametrization": parametrization}
    structure = {"slices": {"count": count, "thickness": line.thickness}, "tilt": own}
    return Made(scan, truth, settings | structure, miss)


def tilt_of_six(line: Beamline, defect: bool) -> Made:
    return tilt(dataclasses.replace(line, depth=line.depth / 3), defect, 6)


def tilt_in_milliradians(line: Beamline, defect: bool) -> Made:
    return tilt(line, defect, parametrization="angle")


PARTS: dict[str, tuple[str, str, Callable[[Beamline, bool], Made], tuple[str, ...]]] = {
    "positions": ("positions", "object pixels", positions, ("X-rays", "electrons", "near field")),
    "affine": ("affine", "object pixels", affine, ("X-rays", "electrons", "near field")),
    "probe_offset": ("probe_offset", "object pixels", probe_offset, ("X-rays", "electrons", "near field")),
    "opr": ("opr", "of the probes", opr, ("X-rays", "electrons", "near field")),
    "descan": ("descan", "detector pixels", descan, ("X-rays", "electrons")),
    "slices": ("slices", "of the thickness", slices, ("X-rays", "electrons")),
    "tilt": ("tilt", "object pixels", tilt, ("X-rays", "electrons")),
    "tilt, mrad": ("tilt", "object pixels", tilt_in_milliradians, ("X-rays", "electrons")),
    "tilt, 6 slices": ("tilt", "object pixels", tilt_of_six, ("X-rays", "electrons")),
}
"""Name -> part, unit of its error, the scan with or without its defect, beamlines."""


def reconstructed(made: Made, part: str, rate: float, epochs: int, batch: int) -> tuple[float, float]:
    """Return the errors of part and object after so many epochs; the part begins after a tenth of them."""
    own = {**made.settings.get(part, {}), "learning_rate": rate, "start_epoch": max(2, epochs // 10)}
    object = {**made.settings.get("object", {}), "padding": PADDING}
    fading = {"kind": "cosine", "epochs": epochs, "end_factor": 0.05}
    settings = pt.Settings(**{**made.settings, part: own, "object": object, "batch": batch, "schedule": fading})
    try:
        with pt.Reconstruction(made.scan, settings, device="cpu", checkpointing=None) as recon:
            recon.start(epochs)
            recon.wait()
            result = recon.result
    except pt.ReconstructionError:
        return math.inf, math.inf
    low, high = (made.scan.positions.min(0) + WINDOW / 2, made.scan.positions.max(0) + WINDOW / 2)
    area = slice(math.ceil(low[0]), math.floor(high[0])), slice(math.ceil(low[1]), math.floor(high[1]))
    return made.miss(result), compare(result.projection, made.truth, area, result.origin).error


def main() -> None:
    """Prints a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--epochs", type=int, default=100)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for name in chosen.parts or PARTS:
        part, unit, make, lines = PARTS[name]
        rates = [0.0, *chosen.rates]
        print(f"\n{name}: errors of the part [{unit}] and of the object")
        print("| | | " + " | ".join(f"{rate:g}" for rate in rates) + " |")
        print("| --- " * (len(rates) + 2) + "|")
        for line_name in lines:
            line = BEAMLINES[line_name]
            batch = 4 if line_name == "near field" else 8
            for defect in (True, False):
                made = make(line, defect)
                errors = [reconstructed(made, part, rate, chosen.epochs, batch) for rate in rates]
                for what, column in (("part", 0), ("object", 1)):
                    if defect or what == "object":
                        label = what if defect else "object, not needed"
                        values = " | ".join(f"{row[column]:.2g}" for row in errors)
                        print(f"| {line_name} | {label} | {values} |", flush=True)


if __name__ == "__main__":
    main()
