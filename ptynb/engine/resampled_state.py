"""Convert a state to patterns of another size: coarse to fine, or back.

In the far field a window of n' instead of n detector pixels has object pixels of n / n' times the size. The object is
resampled, the far fields of the probe are cut or padded with 0, so that their counts are conserved, and positions are
scaled, with the shifts that were refined.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.fft
import torch
from numpy.typing import NDArray

from ptynb.data.scan import ObjectFrame, Scan
from ptynb.engine.reconfigure import Parts, key_prefix
from ptynb.io.checkpoint_file import Array, ReconstructionState
from ptynb.physics.model_builder import model_window, object_frame, tilt_unit, window_positions
from ptynb.preparation.field_resampling import cut_spectrum, middle_start
from ptynb.settings import Settings

Scans = tuple[Scan, Scan]
RESAMPLED = ("object", "probe", "variations", "positions", "offset", "affine", "background", "tilt")
"""Components whose parameters depend on the window."""


def resampled_state(
    state: ReconstructionState, scans: Scans, settings: Settings, mean_counts: tuple[float, float]
) -> ReconstructionState:
    """Return the state for other windows of the same patterns.

    scans: with the present and the new window. settings: with which both models are created. mean_counts: of a pixel in
    both windows. Moments of the optimiser remain for components that do not depend on the window.
    """
    ratios = _ratios(scans)
    unit = math.sqrt(ratios[0] * ratios[1])  # rms amplitude of a probe in its unit stays the same
    windows = model_window(scans[0], settings), model_window(scans[1], settings)
    arrays: dict[str, dict[str, Array]] = {name: dict(found) for name, found in Parts.of(state).arrays.items()}

    def resampled_probe(parts: Array) -> Array:
        field = cut_spectrum(_complex(parts), middle_start(*windows), windows[1]) * unit
        return _real(field, parts.dtype)

    arrays["probe"]["parts"] = resampled_probe(arrays["probe"]["parts"])
    if "variations" in arrays:
        arrays["variations"]["ways"] = resampled_probe(arrays["variations"]["ways"])
    frames = object_frame(scans[0], settings), object_frame(scans[1], settings)
    starts = np.array(frames[0].origin), np.array(frames[1].origin) - _offset(scans)
    for name, values in arrays["object"].items():
        if name == "parts":
            arrays["object"][name] = _real(resampled_object(_complex(values), frames, starts, ratios), values.dtype)
        else:
            arrays["object"][name] = resampled_object(values, frames, starts, ratios).astype(values.dtype)
    for component, name in (("positions", "moves"), ("offset", "shift")):
        values = arrays[component][name]
        arrays[component][name] = (values * np.array(ratios)).astype(values.dtype)
    arrays["affine"]["map"] = _affine(arrays["affine"]["map"], scans, settings, ratios)
    if "tilt" in arrays:
        angles, (old, new) = arrays["tilt"]["angles"], (tilt_unit(scan, settings) for scan in scans)
        arrays["tilt"]["angles"] = (angles * (old / new)).astype(angles.dtype)
    background = arrays["background"]["background"]
    unit_of_intensity = mean_counts[0] / mean_counts[1] if state.active["background"] else 1.0
    factor = math.sqrt(unit_of_intensity) if settings.background.parametrization == "amplitude" else unit_of_intensity
    arrays["background"]["background"] = (_windowed(background, scans[1].pattern_shape) * factor).astype(
        background.dtype
    )
    names = [*arrays]
    model = {f"{key_prefix(names, name)}.{key}": one for name in names for key, one in arrays[name].items()}
    return dataclasses.replace(
        state,
        model=model,
        scale=np.asarray(state.scale / unit, dtype=state.scale.dtype),
        algorithm={name: one for name, one in state.algorithm.items() if _remains(name)},
        numbers={name: one for name, one in state.numbers.items() if _remains(name)},
    )


def resampled_object(
    field: NDArray[Any],
    frames: tuple[ObjectFrame, ObjectFrame],
    starts: tuple[Array, Array],
    ratios: tuple[float, float],
) -> NDArray[Any]:
    """Return an object (…, y, x) on the grid of another frame, `ratios` (y, x) times as fine.

    starts: distance (y, x) of the first pixel of each frame from a point that both have in common [own pixels]. Each
    axis is a cosine series, without the frequencies that the new grid does not have; beyond the present frame the
    object continues as a mirror image.
    """
    old, new = frames
    for axis, ratio in enumerate(ratios):
        places = (np.arange(new.shape[axis]) + starts[1][axis]) / ratio - starts[0][axis]
        side = old.shape[axis]
        values = np.moveaxis(field, axis - 2, -1)
        coefficients = scipy.fft.dct(values, type=2, axis=-1) / side
        coefficients[..., 0] /= 2
        used = min(side, math.ceil(side * ratio))
        basis = np.cos(np.pi * np.arange(used)[:, None] * (places + 0.5)[None, :] / side)
        field = np.moveaxis(coefficients[..., :used] @ basis, -1, axis - 2)
    return field


def _ratios(scans: Scans) -> tuple[float, float]:
    (y, x), (new_y, new_x) = (scan.pattern_shape for scan in scans)
    return new_y / y, new_x / x


def _offset(scans: Scans) -> Array:
    """Return d (y, x) of the map u' = ratio * u + d between the pixels in which both scans have their positions."""
    centres = [scan.positions.mean(0) + np.array(scan.pattern_shape) // 2 for scan in scans]
    offset: Array = centres[1] - np.array(_ratios(scans)) * centres[0]
    return offset


def _affine(values: Array, scans: Scans, settings: Settings, ratios: tuple[float, float]) -> Array:
    """Return the affine map, whose unit is the radius of the scan, in the new pixels."""
    radii = []
    for scan in scans:
        places = window_positions(scan, settings)
        radii.append(max(1.0, float(np.linalg.norm(places - places.mean(0), axis=1).max())))
    scale = np.array(ratios)
    return (values / radii[0] * scale[:, None] / scale[None, :] * radii[1]).astype(values.dtype)


def _windowed(values: Array, window: tuple[int, int]) -> Array:
    """Return a window of an image (y, x) in FFT order; pixels outside it have the value of the nearest one."""
    centred = np.fft.fftshift(values)
    starts = middle_start((values.shape[0], values.shape[1]), window)
    rows, columns = (
        np.clip(np.arange(side) + start, 0, whole - 1)
        for side, start, whole in zip(window, starts, values.shape, strict=True)
    )
    return np.fft.ifftshift(centred[rows][:, columns])


def _remains(name: str) -> bool:
    kind, component, *_ = name.split("/")
    return kind == "optimiser" and component not in RESAMPLED


def _complex(parts: Array) -> Array:
    return torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(parts))).numpy()


def _real(field: Array, kind: np.dtype[Any]) -> Array:
    return np.stack([field.real, field.imag], -1).astype(kind)
