"""Scans that other packages simulate, each with the propagation and the units of its package, not with ptynb's.

usage: python -m tests.benchmarks.foreign.simulate NAME ... --folder FOLDER

Needs numpy and the package that a scan's docstring names, in an environment of its own, and does not import ptynb. Each
scan is a file NAME.npz: patterns (pattern, y, x) [counts], zero frequency at n // 2; positions (pattern, yx), the first
pixel of the window [object pixels]; object and probe, as they were multiplied; wavelength, distance and detector_pixel
[m]; near_field. `judge.py` reconstructs it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.problems import rough

Array = NDArray[Any]
Content = dict[str, Any]
WINDOW = 128
X_RAYS = {"wavelength": 1.5e-10, "distance": 2.0, "detector_pixel": 75e-6, "near_field": False}


def strong_object(positions: Array, amplitude: float, phase: float, *blurs: float) -> Array:
    """An object for these positions with amplitudes from `amplitude` to 1, and phases over a range of `phase` [rad].

    Its structures are of 2 pixels, or of all sizes in `blurs`.
    """
    height, width = np.ceil(positions.max(0)).astype(int) + WINDOW + 8
    sizes = blurs or (2.0,)
    fields = [
        sum(rough((height, width), blur, 10 * place + seed) for place, blur in enumerate(sizes)) for seed in (1, 2)
    ]
    first, second = (np.clip(field / field.std() / 4 + 0.5, 0, 1) for field in fields)
    return (amplitude + (1 - amplitude) * first) * np.exp(1j * phase * second)


def raster(side: int, step: float, jitter: float, whole: bool = True) -> Array:
    """side x side positions with random deviations, so that they have no period [pixels]."""
    grid = np.stack(np.meshgrid(*[step * np.arange(side)] * 2, indexing="ij"), -1).reshape(-1, 2)
    positions = grid + np.random.default_rng(3).uniform(0, 2 * jitter, grid.shape) + 4
    return np.rint(positions).astype(int) if whole else positions


def centred(side: int = WINDOW) -> tuple[Array, Array]:
    """Coordinates (y, x) of the pixels of a window [pixels]."""
    axis = np.arange(side) - side // 2
    return axis[:, None], axis[None, :]


def counted(intensities: Array, probe: Array, photons: float) -> tuple[Array, Array]:
    """Poisson counts, with `photons` in the probe; and the probe in that unit. Propagation preserves the sum."""
    factor = photons / (np.abs(probe) ** 2).sum()
    counts = np.random.default_rng(4).poisson(factor * intensities)
    return counts.astype(np.float32), np.sqrt(factor) * probe


def scan_of(
    positions: Array, object: Array, probe: Array, intensities: Array, photons: float, **geometry: Any
) -> Content:
    counts, probe = counted(intensities, probe, photons)
    return {"patterns": counts, "positions": positions, "object": object, "probe": probe, **X_RAYS, **geometry}


def patches(object: Array, positions: Array) -> Array:
    return np.array([object[y : y + WINDOW, x : x + WINDOW] for y, x in positions])


def cdtools_fancy() -> Content:
    """CDTools (cdtools-py 0.3.2): a KB-like probe, further out of focus along y than x, positions between pixels."""
    import torch
    from cdtools.tools import interactions, propagators

    y, x = centred()
    slits = (np.abs(y) <= 22) & (np.abs(x) <= 22)
    pupil = torch.as_tensor(slits * np.exp(1j * (0.020 * y**2 + 0.012 * x**2)))
    probe = propagators.inverse_far_field(pupil)
    positions = raster(14, 7.0, 2.0, whole=False)
    object = strong_object(positions, 0.5, 3.0)
    waves = interactions.ptycho_2D_sinc(
        probe, torch.as_tensor(object), torch.as_tensor(positions), multiple_modes=False
    )
    far = propagators.far_field(waves).abs().numpy() ** 2
    return scan_of(positions, object, probe.numpy(), far, 1e7)


def ptypy_moonflower(amplitude: float, phase: float, *blurs: float) -> Content:
    """ptypy (0.9, from its repository): `MoonFlowerScan`, its pinhole in place of the moon, 10^8 photons.

    The flowers, a picture, are replaced by an object with such structures, from 2 to 24 pixels.
    """
    from ptypy import utils
    from ptypy.core.data import MoonFlowerScan

    np.random.seed(1)  # noqa: NPY002 - ptypy draws its noise from it
    scan = MoonFlowerScan(utils.Param(num_frames=175, shape=WINDOW, density=0.12, photons=1e8))
    positions = np.asarray(scan.pixel)
    scan.obj = strong_object(positions, amplitude, phase, *blurs)
    pinhole = utils.ellipsis(utils.grids(np.array([WINDOW, WINDOW]))).astype(complex)
    scan.pr = pinhole * np.sqrt(1e8 / (np.abs(pinhole) ** 2).sum())
    counts = scan.load(range(len(positions)))[0]
    meta = scan.geo
    return {
        "patterns": np.array([counts[number] for number in range(len(positions))], np.float32),
        "positions": positions,
        "object": scan.obj,
        "probe": scan.pr,
        "wavelength": float(meta.lam),
        "distance": float(meta.distance),
        "detector_pixel": float(meta.psize[0]),
        "near_field": False,
    }


def hcipy_zone_plate(photons: float, diffuser: float) -> Content:
    """HCIPy 0.7: a zone plate with a central stop, out of focus, and a diffuser of this phase [rad] in front of it."""
    import hcipy

    wavelength, focus, distance = X_RAYS["wavelength"], 0.02, X_RAYS["distance"]
    pixel = wavelength * distance / (WINDOW * X_RAYS["detector_pixel"])
    planes = [wavelength * focus / (WINDOW * pixel), pixel, X_RAYS["detector_pixel"]]
    lens, sample, detector = (
        hcipy.make_uniform_grid([WINDOW] * 2, [WINDOW * size] * 2, has_center=True) for size in planes
    )
    aperture = hcipy.make_obstructed_circular_aperture(48 * planes[0], 0.3)(lens)
    screen = diffuser * rough((WINDOW, WINDOW), 4.0, 5).ravel()
    wave = hcipy.Wavefront(aperture * np.exp(1j * screen), wavelength)
    wave = hcipy.FraunhoferPropagator(lens, sample, focus)(wave)
    wave = hcipy.FresnelPropagator(sample, 90 * pixel**2 / wavelength)(wave)
    probe = np.asarray(wave.electric_field.shaped)
    positions = raster(12, 8.0, 2.0)
    object = strong_object(positions, 0.4, 3.0)
    to_detector = hcipy.FraunhoferPropagator(sample, detector, distance)
    far = []
    for patch in patches(object, positions):
        exit_wave = hcipy.Wavefront(hcipy.Field((probe * patch).ravel(), sample), wavelength)
        far.append(np.asarray(to_detector(exit_wave).power.shaped))
    # Powers are integrals over pixels, which preserve the sum of |field|² times the area of a pixel.
    return scan_of(positions, object, probe * pixel, np.array(far), photons)


def lightpipes_near(mild: bool = False) -> Content:
    """LightPipes 2.1: the shadow of an object in the rough beam of a pinhole, visible light, 3 mm behind it.

    The field has twice the size of the detector, so that nothing comes back from its border.
    """
    import LightPipes

    wavelength, pixel, whole, distance = 633e-9, 5e-6, 2 * WINDOW, 3e-3
    beam = LightPipes.Begin(whole * pixel, wavelength, whole)
    beam = LightPipes.CircAperture(beam, 40 * pixel)
    beam = LightPipes.MultPhase(beam, 1.5 * rough((whole, whole), 5.0, 6))
    beam = LightPipes.Forvard(beam, 1e-3)
    inside = slice(WINDOW // 2, 3 * WINDOW // 2)
    positions = raster(12, 6.0, 2.0)
    object = strong_object(positions, 0.8, 1.0, 3.0) if mild else strong_object(positions, 0.3, 4.0, 3.0)
    shadows = []
    for patch in patches(object, positions):
        transmission = np.ones((whole, whole), complex)
        transmission[inside, inside] = patch
        wave = LightPipes.MultPhase(LightPipes.MultIntensity(beam, np.abs(transmission) ** 2), np.angle(transmission))
        shadows.append(LightPipes.Intensity(LightPipes.Forvard(wave, distance))[inside, inside])
    probe = beam.field[inside, inside]
    geometry = {"wavelength": wavelength, "distance": distance, "detector_pixel": pixel, "near_field": True}
    return scan_of(positions, object, probe, np.array(shadows), 1e7, **geometry)


def xptycho_pinhole() -> Content:
    """xptycho 0.1.0: the Fresnel diffraction of a pinhole."""
    import xptycho
    from xptycho.pmace import fresnel_propagate

    y, x = centred()
    pinhole = 1 / (1 + np.exp((np.hypot(y, x) - 22) / 0.7))
    probe = fresnel_propagate(pinhole.astype(complex), 9.0)
    corners = raster(12, 8.0, 2.0)
    pixel = X_RAYS["wavelength"] * X_RAYS["distance"] / (WINDOW * X_RAYS["detector_pixel"])
    model = xptycho.PtychoModel(
        wavelength=X_RAYS["wavelength"],
        det_distance=X_RAYS["distance"],
        det_pixel_pitch=X_RAYS["detector_pixel"],
        frame_size=WINDOW,
        probe_positions=(corners + WINDOW // 2) * pixel,
    )
    object = strong_object(corners, 0.5, 3.0)
    model.set_params(object_shape=object.shape, object_origin=(0.0, 0.0))
    scan = model.simulate(xptycho.Sample(object, probe, pixel), peak_photons=2e4)
    return {"patterns": scan.frames, "positions": corners, "object": object, "probe": probe, **X_RAYS}


def ptylab() -> Content:
    """PtyLab 0.3.7: a vortex in two parts that an opaque ring separates, on a Fermat spiral."""
    from PtyLab.Operators.Operators import aspw
    from PtyLab.utils.scanGrids import GenerateNonUniformFermat
    from PtyLab.utils.utils import fft2c

    wavelength, distance, detector = 632.8e-9, 0.05, 72e-6
    pixel = wavelength * distance / (WINDOW * detector)
    y, x = centred()
    pupil = (np.hypot(y, x) < 32) * np.exp(-1j * np.pi * (y**2 + x**2) * pixel**2 / (wavelength * 8e-3))
    probe = aspw(pupil, 14e-3, wavelength, WINDOW * pixel)[0]
    rows, columns = GenerateNonUniformFermat(150, radius=110, power=1)
    positions = np.rint(np.stack([rows, columns], -1)).astype(int)
    positions -= positions.min(0) - 4
    height, width = positions.max(0) + WINDOW + 4
    y, x = np.arange(height)[:, None] - height / 2, np.arange(width) - width / 2
    radius, angle = np.hypot(y, x), np.arctan2(y, x)
    petals = 0.5 + 0.5 * np.tanh(4 * np.sin(17 * angle + 2 * np.pi * (radius / 60) ** 2))
    opaque = 1 / (1 + np.exp(-(np.abs(radius - 70) - 12)))
    object = opaque * petals * np.exp(2j * (angle + 2 * np.pi * (radius / 100) ** 2))
    far = np.abs(fft2c(probe * patches(object, positions))) ** 2
    geometry = {"wavelength": wavelength, "distance": distance, "detector_pixel": detector}
    return scan_of(positions, object, probe, far, 1e7, **geometry)


def mos2(width: float, cells: tuple[int, int]) -> Content:
    """abTEM 1.0.11: multislice of MoS2 with a vacancy and a dopant, 80 kV, 21.4 mrad, C10 = -15 nm, 36 x 36 positions.

    The window is `width` [angstrom], with so many cells of the crystal: the disc has a radius of 11 pixels at 22, and
    of 19 at 38. Patterns are parts of the beam, without noise; `object` is the transmission of the projected potential.
    """
    import abtem
    import ase.build
    from abtem.core.energy import energy2sigma, energy2wavelength

    energy, step = 80e3, 0.6  # [eV], [angstrom]
    atoms = abtem.orthogonalize_cell(ase.build.mx2("MoS2", a=3.16, thickness=3.17, vacuum=2.0)).repeat((*cells, 1))
    atoms.set_cell([width, width, atoms.cell[2, 2]], scale_atoms=True)
    middle = np.hypot(*(atoms.positions[:, :2] - width / 2).T)
    heavy, light = (np.flatnonzero(atoms.symbols == name) for name in ("Mo", "S"))
    atoms.symbols[heavy[middle[heavy].argmin()]] = "W"
    del atoms[light[np.abs(middle[light] - 6.0).argmin()]]
    fine = 2 * WINDOW
    potential = abtem.Potential(atoms, gpts=fine, slice_thickness=1.0, projection="infinite").build().compute()
    probe = abtem.Probe(energy=energy, semiangle_cutoff=21.4, C10=-150.0)
    probe.grid.match(potential)
    places = step * np.stack(np.meshgrid(*[np.arange(36)] * 2, indexing="ij"), -1).reshape(-1, 2)
    inside = slice((fine - WINDOW) // 2, (fine + WINDOW) // 2)
    patterns = []
    for some in np.array_split(places, 12):
        measured = probe.scan(potential, abtem.CustomScan(some), abtem.PixelatedDetector(max_angle=None))
        patterns.append(np.asarray(measured.compute().array)[:, inside, inside])
    phase = energy2sigma(energy) * np.asarray(potential.array).sum(0)
    coarse = np.fft.fftshift(np.fft.fft2(phase))[inside, inside] / 4
    phase = np.fft.ifft2(np.fft.ifftshift(coarse)).real
    wavelength = energy2wavelength(energy)
    return {
        "patterns": np.concatenate(patterns).astype(np.float32),
        "positions": places * WINDOW / width + WINDOW // 2,  # the cell is repeated: three times along y and x
        "object": np.exp(1j * np.tile(phase, (3, 3))),
        "probe": np.zeros((WINDOW, WINDOW), complex),
        "wavelength": wavelength * 1e-10,
        "distance": 1.0,
        "detector_pixel": wavelength / width,
        "near_field": False,
    }


SCANS: dict[str, Callable[[], Content]] = {
    "cdtools_fancy": cdtools_fancy,
    "ptypy_moonflower": functools.partial(ptypy_moonflower, 0.15, 5.3, 2.0, 8.0, 24.0),
    "ptypy_moonflower_weak": functools.partial(ptypy_moonflower, 1.0, 0.2, 2.0, 8.0, 24.0),
    "ptypy_speckle": functools.partial(ptypy_moonflower, 0.15, 5.3),
    "hcipy_1e4": functools.partial(hcipy_zone_plate, 1e4, 2.0),
    "hcipy_1e6": functools.partial(hcipy_zone_plate, 1e6, 2.0),
    "hcipy_1e8": functools.partial(hcipy_zone_plate, 1e8, 2.0),
    "hcipy_zp_1e6": functools.partial(hcipy_zone_plate, 1e6, 0.0),
    "hcipy_zp_1e8": functools.partial(hcipy_zone_plate, 1e8, 0.0),
    "lightpipes_near": lightpipes_near,
    "lightpipes_near_mild": functools.partial(lightpipes_near, mild=True),
    "xptycho_pinhole": xptycho_pinhole,
    "ptylab": ptylab,
    "el_right": functools.partial(mos2, 22.0, (7, 4)),
    "el_wide": functools.partial(mos2, 38.0, (12, 7)),
}


def main() -> None:
    """Writes the scans that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=SCANS, metavar="NAME", help=", ".join(SCANS))
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.names:
        content = SCANS[name]()
        np.savez(chosen.folder / f"{name}.npz", **content)
        counts = content["patterns"]
        print(f"{name}: {counts.shape}, {counts.sum((1, 2)).mean():.3g} counts a pattern", flush=True)


if __name__ == "__main__":
    main()
