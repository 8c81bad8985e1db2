"""Default plots of a result file for viewers: NXdata groups of real numbers, with units and axes.

Phase and amplitude are for viewers without complex numbers. To limit the size of the file they are means of squares of
pixels: at most 1024 pixels on a side (8 MB), 512 for slices of a thick object (2 MB each), 256 for probe modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.data.result import Result

OBJECT_SIDE = 1024
SLICE_SIDE = 512
PROBE_SIDE = 256

Real = NDArray[np.floating[Any] | np.integer[Any]]


def write_plots(entry: h5py.Group, result: Result) -> None:
    """Write the groups phase, amplitude, probe, loss and, if it was measured, r_factor."""
    slices = result.slices
    reduction = images.reduction_for(slices.shape[-2:], OBJECT_SIDE if len(slices) == 1 else SLICE_SIDE)
    small = np.stack([images.reduce_by(one, reduction) for one in slices])
    small = small[0] if len(small) == 1 else small
    axes = _axes(small.shape[-2:], reduction, result.pixel_size, result.origin)
    if small.ndim == 3:
        axes = {"slice": (np.arange(1, len(small) + 1), ""), **axes}
    write_plot(entry, "phase", np.angle(small), "Phase of the object [rad]", "rad", axes)
    write_plot(entry, "amplitude", np.abs(small), "Amplitude of the object", "", axes)
    reduction = images.reduction_for(result.probe.shape[-2:], PROBE_SIDE)
    modes = np.stack([np.abs(images.reduce_by(mode, reduction)) for mode in result.probe])
    height, width = result.probe.shape[-2:]
    axes = _axes(modes.shape[-2:], reduction, result.pixel_size, (-(height // 2), -(width // 2)))
    axes = {"mode": (np.arange(1, len(modes) + 1), ""), **axes}
    write_plot(entry, "probe", modes, "Amplitude of the probe's modes [square root of counts]", "sqrt(counts)", axes)
    if result.epochs:
        numbers = np.array([epoch.number for epoch in result.epochs])
        write_plot(entry, "loss", result.losses, "Loss", "", {"epoch": (numbers, "")})
    if result.r_factors:
        numbers, values = (np.array(column) for column in zip(*result.r_factors, strict=True))
        write_plot(entry, "r_factor", values, "Amplitude R-factor", "", {"epoch": (numbers, "")})
    entry.attrs["default"] = "phase"


def _axes(
    shape: tuple[int, ...], reduction: int, pixel: tuple[float, float] | None, first: tuple[int, int]
) -> dict[str, tuple[Real, str]]:
    """Return the centres of pixels along each axis [m], or [pixels] if their size is unknown."""
    found: dict[str, tuple[Real, str]] = {}
    for axis, side, start, size in zip("yx", shape, first, pixel or (1.0, 1.0), strict=True):
        middles = start + reduction * np.arange(side) + (reduction - 1) / 2
        found[axis] = (middles * size, "m" if pixel else "pixel")
    return found


def write_plot(
    entry: h5py.Group, name: str, values: Real, title: str, units: str, axes: Mapping[str, tuple[Real, str]]
) -> None:
    """Write an array as NXdata; axes: coordinates and unit of each axis."""
    group = entry.create_group(name)
    group.attrs.update(NX_class="NXdata", signal="data", axes=[*axes])
    group["title"] = title
    group["data"] = values.astype(np.float32 if values.ndim > 1 else np.float64)
    # Without this attribute viewers show slices and modes as a volume.
    group["data"].attrs.update(units=units, long_name=title, interpretation="image" if values.ndim > 1 else "spectrum")
    for axis, (where, unit) in axes.items():
        group[axis] = where
        group[axis].attrs.update(units=unit, long_name=f"{axis} [{unit}]" if unit else axis)
