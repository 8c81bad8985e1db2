"""Results as images: PNG for viewing, TIFF of 32-bit floats for ImageJ and other programs.

PNG: grey of 8 or 16 bits, a colour map, or phase as hue; one pixel per pixel of the array.

TIFF: amplitude and phase are channels, slices or modes the depth (a hyperstack of ImageJ, ZCYX). The pixel size is in
the tags XResolution and YResolution [pixels per centimetre] and in ImageJ's description, whose unit is also the
centimetre. Layout of ImageJ: https://imagej.net/ij/docs/guide/146-7.html and TIFF 6.0, section 8.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ptynb.data import images
from ptynb.data.result import Result
from ptynb.exceptions import InvalidValueError
from ptynb.io.record_mapper import visible

Of = Literal["object", "probe"]
What = Literal["amplitude", "phase", "complex"]
PERCENTILES = (0.1, 99.9)
"""Percentiles of the data for black and white; the text "values" in the PNG has their values."""
MOST_PER_METRE = 2**31 - 1
MOST_BYTES = 2**32 - 2**20
"""Upper limit of the bytes of pixels in a TIFF, whose offsets have 32 bits."""


@dataclass(frozen=True)
class ExportedArrays:
    """Selection of the arrays of a result; see `ptynb.export`. Raise InvalidValueError for unknown values."""

    of: Of = "object"
    what: What | None = None
    slice: int | None = None

    def __post_init__(self) -> None:
        if self.of not in get_args(Of):
            raise InvalidValueError(f"of is {self.of!r}; expected 'object' or 'probe'.", code="argument.invalid-value")
        if self.what is not None and self.what not in get_args(What):
            raise InvalidValueError(
                f"what is {self.what!r}; expected 'amplitude', 'phase' or 'complex'.", code="argument.invalid-value"
            )

    @property
    def layer(self) -> str:
        """Name of a layer."""
        return "slice" if self.of == "object" else "mode"

    @property
    def channels(self) -> list[str]:
        """Quantities of a TIFF. Raise InvalidValueError for complex values."""
        if self.what == "complex":
            raise InvalidValueError(
                "what is 'complex', which TIFF does not support; use 'amplitude' or 'phase', or leave it out for both.",
                code="argument.conflict",
            )
        return ["amplitude", "phase"] if self.what is None else [self.what]

    def layers(self, result: Result) -> NDArray[Any]:
        """Return a complex array (layer, y, x): all slices or modes, or the selected one."""
        found = result.slices if self.of == "object" else result.probe
        if self.slice is None:
            return found
        if not 0 <= self.slice < len(found):
            raise InvalidValueError(
                f"slice is {self.slice}, and the {self.of} has {len(found)} {self.layer}s; expected 0 to "
                f"{len(found) - 1}.",
                code="argument.invalid-value",
            )
        return found[self.slice][None]


def write_png(result: Result, selected: ExportedArrays, bits: int = 8, colours: str = "gray") -> bytes:
    """Return the content of a PNG. Raise InvalidValueError for unsupported arguments."""
    if bits not in (8, 16):
        raise InvalidValueError(f"bits is {bits}; expected 8 or 16.", code="argument.invalid-value")
    what = selected.what or "phase"
    if bits == 16 and (colours != "gray" or what == "complex"):
        raise InvalidValueError(
            f"bits is 16, colours {colours!r} and what {what!r}; 16 bits support grey only: leave out the colours and "
            "'complex', or use 8 bits.",
            code="argument.conflict",
        )
    if selected.slice is not None:
        field = selected.layers(result)[0]
    else:
        field = result.projection if selected.of == "object" else result.probe[0]
    record: dict[str, Any] = {"of": selected.of, "what": what, "pixel_size": result.pixel_size, "bits": bits}
    if what == "complex":
        pixels: NDArray[Any] = images.complex_colours(field)
    else:
        values = real_values(field, what)
        if what == "phase":
            values = images.without_ramp(values, field)
        low, high = limits = images.limits_of(values, *PERCENTILES)
        record |= {"black": low, "white": high, "unit": "rad" if what == "phase" else ""}
        if bits == 16:
            known = np.nan_to_num(values.astype(np.float64), nan=low)
            pixels = ((np.clip(known, low, high) - low) * (65535.999 / (high - low))).astype(np.uint16)
        elif colours == "gray":
            pixels = images.levels(values, limits)
        else:
            from matplotlib import colormaps

            if colours not in colormaps:
                raise InvalidValueError(
                    f"colours is {colours!r}; expected a colour map of matplotlib, such as 'gray' or 'viridis'.",
                    code="argument.invalid-value",
                )
            table = (colormaps[colours](np.arange(256) / 255.0)[:, :3] * 255).round().astype(np.uint8)
            pixels = images.coloured(values, limits, table)
    note = PngInfo()
    note.add_text("Software", "ptynb")
    note.add_text("Title", visible(result.title).encode("latin-1", "replace").decode("latin-1"))
    note.add_text("values", json.dumps(record))
    resolution: dict[str, Any] = {}
    if result.pixel_size is not None and 1 / min(result.pixel_size) <= MOST_PER_METRE:
        # Pillow takes dots per inch and writes whole ones per metre.
        y, x = (0.0254 / size for size in result.pixel_size)
        resolution = {"dpi": (x, y)}
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", pnginfo=note, **resolution)
    return buffer.getvalue()


def write_tiff(result: Result, selected: ExportedArrays, path: Path) -> None:
    """Write a TIFF. Raise InvalidValueError for complex values, and for more than a TIFF can hold."""
    import tifffile

    channels, fields = selected.channels, selected.layers(result)
    size = 4 * fields.size * len(channels)
    if size > MOST_BYTES:
        raise InvalidValueError(
            f"TIFF files hold up to 4 GB, and these pages have {size / 2**30:.3g} GB; "
            "write an .ome.tif, or choose amplitude or phase, or one slice.",
            code="export.too-large",
        )
    pages = np.stack([real_values(fields, channel) for channel in channels], axis=1)
    labels = [
        f"{channel}{' [rad]' if channel == 'phase' else ''}, {selected.layer} {number + 1}"
        for number in range(len(fields))
        for channel in channels
    ]
    lines = [f"title: {result.title}", f"scan: {result.scan.name}", "made with ptynb"]
    description: dict[str, Any] = {"axes": "ZCYX", "mode": "grayscale", "Labels": labels}
    resolution: dict[str, Any] = {}
    if result.pixel_size is not None:
        lines.append(f"pixel size (y, x): {result.pixel_size[0]:.9g} m, {result.pixel_size[1]:.9g} m")
        y, x = (0.01 / size for size in result.pixel_size)
        resolution = {"resolution": (x, y), "resolutionunit": "CENTIMETER"}
        description["unit"] = "cm"
        thickness = result.parameters.get("slices/thickness", result.settings.get("slices", {}).get("thickness"))
        if selected.of == "object" and len(fields) > 1 and thickness is not None and np.mean(thickness):
            description["spacing"] = 100 * float(np.mean(thickness))
    description["Info"] = visible("\n".join(lines))
    tifffile.imwrite(path, pages, imagej=True, metadata=description, **resolution)


def real_values(field: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Return the amplitude or phase [rad] of a complex array."""
    return (np.abs(field) if what == "amplitude" else np.angle(field)).astype(np.float32)
