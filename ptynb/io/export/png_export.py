"""A picture of a result: grey of 8 or 16 bits, a colour map, or phase as hue. Every pixel of the array is one of it."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ptynb.data import images
from ptynb.data.result import Result
from ptynb.exceptions import FileError
from ptynb.io.export.exported_arrays import Chosen, real
from ptynb.io.record_mapper import visible

PERCENTILES = (0.1, 99.9)
"""Between which grey levels lie; the text "values" in the file says what they stand for."""
MOST_PER_METRE = 2**31 - 1


def write_png(result: Result, chosen: Chosen, bits: int = 8, colours: str = "gray") -> bytes:
    """The file's bytes. Raises FileError for what a PNG can't show."""
    if bits not in (8, 16):
        raise FileError(f"bits is {bits}; expected 8 or 16.", code="argument.invalid-value")
    field, what = chosen.picture(result), chosen.what or "phase"
    if bits == 16 and (colours != "gray" or what == "complex"):
        raise FileError(
            "16 bits go with grey only; leave out the colours and 'complex', or use 8 bits.", code="argument.conflict"
        )
    about: dict[str, Any] = {"of": chosen.of, "what": what, "pixel_size": result.pixel_size, "bits": bits}
    if what == "complex":
        pixels: NDArray[Any] = images.complex_colours(field)
    else:
        values = real(field, what)
        if what == "phase":
            values = images.without_ramp(values, field)
        limits = images.limits_of(values, *PERCENTILES)
        about |= {"black": limits[0], "white": limits[1], "unit": "rad" if what == "phase" else ""}
        pixels = _grey16(values, limits) if bits == 16 else _grey8(values, limits, colours)
    note = PngInfo()
    note.add_text("Software", "ptynb")
    note.add_text("Title", visible(result.title).encode("latin-1", "replace").decode("latin-1"))
    note.add_text("values", json.dumps(about))
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", pnginfo=note, **_resolution(result))
    return buffer.getvalue()


def _resolution(result: Result) -> dict[str, Any]:
    """Pixels per metre, as the file holds them; none where that is unknown or too many."""
    if result.pixel_size is None or 1 / min(result.pixel_size) > MOST_PER_METRE:
        return {}
    # Pillow takes dots per inch and writes whole ones per metre.
    y, x = (0.0254 / size for size in result.pixel_size)
    return {"dpi": (x, y)}


def _grey8(values: NDArray[np.float32], limits: tuple[float, float], colours: str) -> NDArray[np.uint8]:
    if colours == "gray":
        return images.levels(values, limits)
    from matplotlib import colormaps

    if colours not in colormaps:
        raise FileError(
            f"There is no colour map {colours!r}; matplotlib's are meant, such as 'gray' or 'viridis'.",
            code="argument.invalid-value",
        )
    table = (colormaps[colours](np.arange(256) / 255.0)[:, :3] * 255).round().astype(np.uint8)
    return images.coloured(values, limits, table)


def _grey16(values: NDArray[np.float32], limits: tuple[float, float]) -> NDArray[np.uint16]:
    low, high = limits
    known = np.nan_to_num(values.astype(np.float64), nan=low)
    return ((np.clip(known, low, high) - low) * (65535.999 / (high - low))).astype(np.uint16)
