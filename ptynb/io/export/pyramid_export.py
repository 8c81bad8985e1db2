"""OME-TIFF with a pyramid of levels, for programs that show images larger than memory (QuPath, napari, Bio-Formats).

Amplitude and phase are channels of 32-bit floats, slices or modes the depth (axes CZYX), in tiles. A level is made of
means of the complex values of the one below it over blocks of 2 x 2 pixels, without incomplete blocks at the far edge;
its amplitude and phase are written. Levels are SubIFDs. Pixel sizes are in the OME metadata [nm].

Format: https://ome-model.readthedocs.io/en/stable/ome-tiff/specification.html, section "Sub-resolutions".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.data.result import Result
from ptynb.io.export.image_export import ExportedArrays, real_values
from ptynb.io.reading.large_array import large_array

ENDINGS = (".ome.tif", ".ome.tiff")
TILE = 512
"""Side of a tile, and the longest side of the last level [pixels]."""


def write_pyramid(result: Result, selected: ExportedArrays, path: Path) -> None:
    """Write an OME-TIFF, tile by tile. Raise InvalidValueError for complex values."""
    import tifffile

    channels, levels = selected.channels, [selected.layers(result)]
    while max(levels[-1].shape[1:]) > TILE and min(levels[-1].shape[1:]) > 1:
        levels.append(_halved(levels[-1], path.parent))
    about: dict[str, Any] = {
        "axes": "CZYX",
        "Name": (result.title or result.scan.name).encode("ascii", "backslashreplace").decode().replace("\0", ""),
        "Channel": {"Name": [f"{one} [rad]" if one == "phase" else one for one in channels]},
    }
    for axis, size in zip("YX", result.pixel_size or (), strict=False):
        about |= {f"PhysicalSize{axis}": size * 1e9, f"PhysicalSize{axis}Unit": "nm"}
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as file:
        for number, level in enumerate(levels):
            place: dict[str, Any] = {"subfiletype": 1} if number else {"subifds": len(levels) - 1, "metadata": about}
            file.write(
                _tiles(level, channels),
                shape=(len(channels), *level.shape),
                dtype=np.float32,
                tile=(TILE, TILE),
                photometric="minisblack",
                software="ptynb",
                **place,
            )


def _halved(layers: NDArray[Any], folder: Path) -> NDArray[Any]:
    """Return means of layers (layer, y, x) over blocks of 2 x 2 pixels; large ones are in a file in this folder."""
    height, width = (side // 2 for side in layers.shape[1:])
    with large_array((len(layers), height, width), layers.dtype, folder) as halves:
        for half, layer in zip(halves, layers, strict=True):
            for rows in images.bands((2 * height, layer.shape[1]), 2):
                half[rows.start // 2 : rows.stop // 2] = images.reduce_by(layer[rows], 2)
    return halves


def _tiles(layers: NDArray[Any], channels: Sequence[str]) -> Iterator[NDArray[np.float32]]:
    """Yield the tiles of each channel of each layer, in the order of the file."""
    _, height, width = layers.shape
    for channel, layer, top, left in product(channels, layers, range(0, height, TILE), range(0, width, TILE)):
        yield real_values(layer[top : top + TILE, left : left + TILE], channel)
