"""A result as a TIFF of 32-bit floats, for ImageJ and any other program.

Amplitude and phase are channels, slices or modes the depth (an ImageJ hyperstack, axes ZCYX). The pixel size is in the
tags XResolution and YResolution [pixels per centimetre] and in ImageJ's description, whose unit is the centimetre too.
ImageJ's own layout: https://imagej.net/ij/docs/guide/146-7.html and TIFF 6.0, section 8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ptynb.data.result import Result
from ptynb.exceptions import FileError
from ptynb.io.export.exported_arrays import Chosen, real
from ptynb.io.record_mapper import visible

MOST_BYTES = 2**32 - 2**20
"""Of pixels: offsets in a TIFF have 32 bits."""


def write_tiff(result: Result, chosen: Chosen, path: Path) -> None:
    """Writes the file. Raises FileError for complex values, and for more than a TIFF can hold."""
    import tifffile

    if chosen.what == "complex":
        raise FileError(
            "A TIFF for other programs holds no complex numbers; ask for 'amplitude' or 'phase', or both.",
            code="argument.conflict",
        )
    fields = chosen.layers(result)
    channels = ["amplitude", "phase"] if chosen.what is None else [chosen.what]
    size = 4 * fields.size * len(channels)
    if size > MOST_BYTES:
        raise FileError(
            f"{path.suffix} files hold up to 4 GB, and these pages have {size / 2**30:.3g} GB; "
            "choose amplitude or phase, one slice, or .npz.",
            code="export.too-large",
        )
    pages = np.stack([real(fields, channel) for channel in channels], axis=1)
    labels = [
        f"{channel}{' [rad]' if channel == 'phase' else ''}, {chosen.word} {number + 1}"
        for number in range(len(fields))
        for channel in channels
    ]
    about: dict[str, Any] = {"axes": "ZCYX", "mode": "grayscale", "Labels": labels, "Info": _info(result)}
    resolution: dict[str, Any] = {}
    if result.pixel_size is not None:
        y, x = (0.01 / size for size in result.pixel_size)
        resolution = {"resolution": (x, y), "resolutionunit": "CENTIMETER"}
        about["unit"] = "cm"
        thickness = _thickness(result)
        if chosen.of == "object" and len(fields) > 1 and thickness:
            about["spacing"] = 100 * thickness
    tifffile.imwrite(path, pages, imagej=True, metadata=about, **resolution)


def _thickness(result: Result) -> float | None:
    """Between two slices [m]."""
    found = result.parameters.get("slices/thickness", result.settings.get("slices", {}).get("thickness"))
    return None if found is None else float(np.mean(found))


def _info(result: Result) -> str:
    """What ImageJ shows of the file, in plain letters."""
    lines = [f"title: {result.title}", f"scan: {result.scan.name}", "made with ptynb"]
    if result.pixel_size is not None:
        lines.append(f"pixel size (y, x): {result.pixel_size[0]:.9g} m, {result.pixel_size[1]:.9g} m")
    return visible("\n".join(lines))
