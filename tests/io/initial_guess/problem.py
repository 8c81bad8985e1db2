"""A scan whose truth has no symmetry at all, in a model written out here, and its truth as packages write it.

Window, scan and object are oblong, the object's and probe's phases matter, positions are not whole pixels: any flip,
transpose, conjugate or shift of a pixel shows in the R-factor.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass

import h5py
import numpy as np
import scipy.io
import torch
from scipy.ndimage import gaussian_filter

import ptynb as pt

with warnings.catch_warnings():
    # CDTools uses what matplotlib has deprecated
    warnings.simplefilter("ignore")
    from cdtools.datasets import Ptycho2DDataset
    from cdtools.models import FancyPtycho

PIXEL = (5e-8, 4e-8)
WAVELENGTH, DISTANCE = 1.5e-10, 1.2
SLICES_APART = 2e-6


@dataclass(frozen=True, eq=False)
class Problem:
    """A scan, and the object (…, y, x), the probe (mode, y, x) and the positions (pattern, yx) behind it."""

    scan: pt.Scan
    object: np.ndarray
    probe: np.ndarray
    positions: np.ndarray


WINDOW = (34, 38)


def problem(window=WINDOW, pixel=PIXEL, modes=2, slices=1, whole=False, seed=5):
    """Patterns without noise, from a forward model of a few lines."""
    random = np.random.default_rng(seed)
    rows, columns = np.indices((3, 7)).reshape(2, -1)
    positions = np.column_stack([rows * 5.0, columns * 4.0]) + random.uniform(0, 2, (21, 2)) + 1
    positions = np.rint(positions) if whole else positions
    sides = np.ceil(positions.max(0)).astype(int) + window + (3, 6)
    object = np.exp(gaussian_filter(random.standard_normal((slices, *sides)), (0, 1.5, 1.5)) * (0.6 + 3j))
    object /= np.abs(object).max()
    probe = gaussian_filter(random.standard_normal((2, modes, *window)), (0, 0, 2, 2))
    y, x = ((np.arange(n) - n // 2) / n for n in window)
    spot = np.exp(-12 * (y[:, None] - 0.05) ** 2 - 18 * (x + 0.08) ** 2)
    probe = (probe[0] + 1j * probe[1]) * spot
    probe *= (
        np.sqrt([1e6 / 4**mode for mode in range(modes)])[:, None, None]
        / np.linalg.norm(probe, axis=(1, 2))[:, None, None]
    )
    geometry = pt.Geometry(
        wavelength=WAVELENGTH,
        distance=DISTANCE,
        detector_pixel=tuple(WAVELENGTH * DISTANCE / (n * size) for n, size in zip(window, pixel, strict=True)),
    )
    object = object[0] if slices == 1 else object
    patterns = forward(object, probe, positions, pixel)
    scan = pt.Scan.from_arrays(patterns.astype(np.float32), positions, geometry=geometry)
    return Problem(scan, object, probe, positions)


def forward(object, probe, positions, pixel=PIXEL, thickness=SLICES_APART):
    """Centred patterns: the probe moved by a phase, multiplied, carried on between slices, and its far field."""
    window = probe.shape[-2:]
    y, x = (np.fft.fftfreq(n) for n in window)
    squared = (y[:, None] / pixel[0]) ** 2 + (x / pixel[1]) ** 2
    squared = squared / (1 / WAVELENGTH + np.sqrt(WAVELENGTH**-2 - squared))
    between = np.exp(-2j * np.pi * thickness * squared)
    patterns = []
    for place in positions:
        corner = np.rint(place).astype(int)
        rest = place - corner
        wave = np.fft.ifft2(np.fft.fft2(probe) * np.exp(-2j * np.pi * (y[:, None] * rest[0] + x * rest[1])))
        for number, layer in enumerate(object.reshape(-1, *object.shape[-2:])):
            if number:
                wave = np.fft.ifft2(np.fft.fft2(wave) * between)
            wave = wave * layer[corner[0] : corner[0] + window[0], corner[1] : corner[1] + window[1]]
        patterns.append(np.fft.fftshift((np.abs(np.fft.fft2(wave, norm="ortho")) ** 2).sum(0)))
    return np.array(patterns)


def truth(problem):
    """The scan with the truth as its first guesses."""
    return dataclasses.replace(
        problem.scan, object=problem.object.astype(np.complex64), probe=problem.probe.astype(np.complex64)
    )


def r_factor(scan):
    """Of the first guesses of this scan, with the probe scaled to the counts, in the model of `forward`."""
    model = np.sqrt(forward(scan.object, scan.probe, scan.positions, scan.pixel_size))
    measured = np.sqrt(scan.counts(0, len(scan)))
    scale = (measured * model).sum() / (model**2).sum()
    return np.abs(measured - scale * model).sum() / measured.sum()


def unknown(problem):
    """The scan as somebody has it who knows neither probe nor object, with positions off by a stage's errors."""
    random = np.random.default_rng(8)
    return dataclasses.replace(
        problem.scan, positions=problem.positions + random.normal(0, 0.7, problem.positions.shape) + (11, -3)
    )


def write_nxcxi(path, problem):
    """By ptynb's own export of a result whose object is in other coordinates than the scan."""
    result = pt.Result(
        object=problem.object.astype(np.complex64),
        probe=problem.probe.astype(np.complex64),
        positions=problem.positions,
        origin=(0, 0),
        r_factor=0.0,
        settings={"slices": {"thickness": SLICES_APART}},
        pixel_size=problem.scan.pixel_size,
    )
    return pt.export(result, path.with_suffix(".nxs"), scan=problem.scan)


def write_cdtools(path, problem, turned=0.4, **options):
    """By CDTools' own model and writer; the detector is turned, which has to make no difference.

    options: "fourier_probe", "exponentiate_obj", or weights of OPR.
    """
    turn = np.array([[np.cos(turned), -np.sin(turned), 0], [np.sin(turned), np.cos(turned), 0], [0, 0, 1]])
    upright = turn @ np.array([[0, -1.0], [-1.0, 0], [0, 0]])
    pixel = np.array(problem.scan.pixel_size)
    detector = upright * np.array(problem.scan.geometry.detector_pixel)
    first = problem.positions.min(0) - (2, 1)
    moves = (problem.positions + first) @ (upright * pixel).T
    geometry = {"distance": DISTANCE, "basis": torch.as_tensor(detector), "corner": None}
    probe, object = torch.as_tensor(problem.probe), torch.as_tensor(problem.object)
    if options.get("fourier_probe"):
        probe = torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(probe, dim=(-2, -1)), norm="ortho"), dim=(-2, -1))
    if options.get("exponentiate_obj"):
        object = -1j * torch.log(object)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FancyPtycho(
            torch.as_tensor(WAVELENGTH),
            geometry,
            torch.as_tensor(upright * pixel),
            probe.to(torch.complex64),
            object.to(torch.complex64),
            min_translation=torch.as_tensor(first),
            background=torch.zeros(problem.scan.pattern_shape),
            **{"weights": np.ones(len(problem.scan)), **options},
        )
        patterns = torch.as_tensor(problem.scan.frames.read(0, len(problem.scan)))
        dataset = Ptycho2DDataset(moves, patterns, wavelength=WAVELENGTH, detector_geometry=geometry)
        model.save_to_h5(path, dataset)
    return path


def write_ptyrad(path, problem):
    corners = np.rint(problem.positions).astype(np.int32)
    object = problem.object.reshape(1, -1, *problem.object.shape[-2:])
    with h5py.File(path, "w") as file:
        tensors = file.create_group("optimizable_tensors")
        tensors["obja"], tensors["objp"] = np.abs(object).astype("f4"), np.angle(object).astype("f4")
        tensors["probe"] = (problem.probe / 30).astype(np.complex64)  # patterns are normalised first
        tensors["probe_pos_shifts"] = (problem.positions - corners).astype("f4")
        tensors["slice_thickness"] = np.float32(SLICES_APART * 1e10)
        attributes = file.create_group("model_attributes")
        attributes["crop_pos"], attributes["dx"] = corners, np.float32(problem.scan.pixel_size[0] * 1e10)
        file["params/init_params/probe_illum_type"] = "electron"
        file["ptyrad_version"] = "1.0.0"
    return path


def write_ptypy(path, problem, recorded=True):
    pixel, window = np.array(problem.scan.pixel_size), np.array(problem.probe.shape[-2:])
    origin = np.array([-3.1e-6, 1.7e-6])
    y, x = ((np.arange(n) - n // 2) * size for n, size in zip(window, pixel, strict=True))
    curve = np.exp(1j * np.pi * (y[:, None] ** 2 + x**2) / (WAVELENGTH * DISTANCE))
    with h5py.File(path, "w") as file:
        file["content/probe/SMFG00/data"] = (problem.probe / curve).astype(np.complex64)
        storage = file.create_group("content/obj/SMFG00")
        storage["data"], storage["_psize"], storage["_origin"] = problem.object[None], pixel, origin
        if recorded:
            file["content/positions/SMFG00"] = (problem.positions + window // 2) * pixel + origin
    return path


def write_py4dstem(path, problem, transposed=False, potential=False):
    object, probe = problem.object, np.fft.ifftshift(problem.probe, axes=(-2, -1))
    centres, pixel = problem.positions + np.array(problem.probe.shape[-2:]) // 2, problem.scan.pixel_size
    if transposed:
        object, probe, centres = object.swapaxes(-1, -2), probe.swapaxes(-1, -2), centres[:, ::-1]
        pixel = pixel[::-1]
    with h5py.File(path, "w") as file:
        place = file.create_group("root/ptychographic_reconstruction")
        place["_object_emd/data"] = np.angle(object) if potential else object
        place["_probe_emd/data"] = probe if len(probe) > 1 else probe[0]
        prepared = place.create_group("metadatabundle/preprocess_metadata")
        prepared["positions_px"], prepared["data_transpose"] = centres, transposed
        prepared["sampling"] = np.array(pixel) * 1e10
        instance = place.create_group("metadatabundle/instantiation_metadata")
        instance["object_type"] = b"potential" if potential else b"complex"
        if object.ndim == 3:
            instance["slice_thicknesses"] = np.full(len(object) - 1, SLICES_APART * 1e10)
    return path


def matlab(problem, electrons=False):
    """object, probe, outputs and p in MATLAB's order of axes, as the GPU engines save them."""
    object, window = problem.object, np.array(problem.probe.shape[-2:])
    difference = np.array(object.shape[-2:]) - window
    from_centre = (problem.positions - np.ceil(difference / 2) + 1)[:, ::-1]
    unit = 1e-10 if electrons else 1.0
    p = {"dx_spec": np.array([problem.scan.pixel_size]) / unit, "lambda": WAVELENGTH / unit}
    if object.ndim == 3:
        object = object.transpose(1, 2, 0)
        p["multi_slice_param"] = {"z_distance": np.array([[SLICES_APART / unit] * (object.shape[2] - 1) + [np.inf]])}
    probe = problem.probe.transpose(1, 2, 0)[..., None] * np.array([1, 0.1])  # a constant part and a variable one
    return {"object": object, "probe": probe, "outputs": {"probe_positions": from_centre}, "p": p}


def write_mat5(path, problem, **kind):
    scipy.io.savemat(path, matlab(problem, **kind))
    return path


def write_recons(path, problem, engine):
    """*_recons.mat: positions are corners, of the CPU's engines from 0, of the GPU's as `save_to_p` counts."""
    difference = np.array(problem.object.shape[-2:]) - np.array(problem.probe.shape[-2:])
    corners = problem.positions + (1 - difference % 2 if "GPU" in engine else 0)
    engines = np.empty((1, 1), object)
    engines[0, 0] = {"name": engine}
    p = {"positions": corners, "dx_spec": np.array([problem.scan.pixel_size]), "engines": engines}
    if "GPU" in engine:
        p["probe_fourier_shift"] = np.zeros((0, 0))
    scipy.io.savemat(path, {"object": problem.object, "probe": problem.probe.transpose(1, 2, 0), "p": p})
    return path


def write_mat73(path, problem, **kind):
    """As MATLAB 7.3: a block of text first, axes the other way round, complex as pairs of real and imag."""

    def put(group, values):
        for name, value in values.items():
            if isinstance(value, dict):
                put(group.create_group(name), value)
                continue
            value = np.asarray(value).T
            if np.iscomplexobj(value):
                pairs = np.empty(value.shape, [("real", "f8"), ("imag", "f8")])
                pairs["real"], pairs["imag"] = value.real, value.imag
                value = pairs
            group[name] = value

    with h5py.File(path, "w", userblock_size=512) as file:
        put(file, matlab(problem, **kind))
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\x00\x02IM")
    return path
