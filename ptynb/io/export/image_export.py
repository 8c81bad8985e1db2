"""Results as images: PNG for viewing, TIFF of 32-bit floats for ImageJ and other programs.

PNG: grey of 8 or 16 bits, a colour map, or phase as hue; one pixel per pixel of the array.

TIFF: amplitude and phase are channels, slices or modes the depth (a hyperstack of ImageJ, ZCYX). The pixel size is in
the tags XResolution and YResolution [pixels per centimetre] and in ImageJ's description, whose unit is also the
centimetre. Layout of ImageJ: https://imagej.net/ij/docs/guide/146-7.html and TIFF 6.0, section 8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ptynb.data import images
from ptynb.data.result import Result
from ptynb.exceptions import InvalidValueError
from ptynb.io.export.colour_maps import look_up_table
from ptynb.io.export.png_file import write_png_bands
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


def write_png(result: Result, selected: ExportedArrays, path: Path, bits: int = 8, colours: str = "gray") -> None:
    """Write a PNG, band by band. Raise InvalidValueError for unsupported arguments."""
    if bits not in (8, 16):
        raise InvalidValueError(f"bits is {bits}; expected 8 or 16.", code="argument.invalid-value")
    what = selected.what or "phase"
    if bits == 16 and (colours != "gray" or what == "complex"):
        raise InvalidValueError(
            f"bits is 16, colours {colours!r} and what {what!r}; 16 bits support grey only: leave out the colours and "
            "'complex', or use 8 bits.",
            code="argument.conflict",
        )
    layers = selected.layers(result)
    if selected.of == "probe":
        layers = layers[:1]
    record: dict[str, Any] = {"of": selected.of, "what": what, "pixel_size": result.pixel_size, "bits": bits}
    if what == "complex":
        largest = images.largest_amplitude(layers)

        def pixels(rows: slice) -> NDArray[Any]:
            field = images.finite_product(layers, rows)
            return images.hues(np.angle(field), np.abs(field), largest)

    else:
        values = _Values(layers, what)
        low, high = limits = values.limits()
        record |= {"black": low, "white": high, "unit": "rad" if what == "phase" else ""}
        table = None if colours == "gray" else look_up_table(colours)

        def pixels(rows: slice) -> NDArray[Any]:
            band = values.band(rows)
            if bits == 16:
                known = np.nan_to_num(band.astype(np.float64), nan=low)
                return ((np.clip(known, low, high) - low) * (65535.999 / (high - low))).astype(np.uint16)
            return images.levels(band, limits) if table is None else images.coloured(band, limits, table)

    texts = {"Software": "ptynb", "Title": visible(result.title), "values": json.dumps(record)}
    per_metre = None
    if result.pixel_size is not None and 1 / min(result.pixel_size) <= MOST_PER_METRE:
        per_metre = round(1 / result.pixel_size[0]), round(1 / result.pixel_size[1])
    shape = layers.shape[1], layers.shape[2]
    write_png_bands(path, shape, (pixels(rows) for rows in images.bands(shape)), texts, per_metre)


class _Values:
    """Amplitude, or phase [rad] without its mean and ramp, of the product of layers (layer, y, x)."""

    def __init__(self, layers: NDArray[Any], what: str) -> None:
        self._layers, self._what = layers, what
        _, height, width = layers.shape
        ramp: tuple[NDArray[Any], NDArray[Any]] = np.zeros(height), np.zeros(width)
        self._down, self._across = images.product_ramp(layers) if what == "phase" else ramp

    def band(self, rows: slice) -> NDArray[np.float32]:
        """Return some rows (y, x)."""
        return self._flat(self._layers[:, rows], self._down[rows, None], self._across)

    def limits(self) -> tuple[float, float]:
        """Return the values of black and white, percentiles of a sample."""
        _, height, width = self._layers.shape
        y, x = np.divmod(np.arange(0, height * width, max(1, height * width // images.SAMPLE)), width)
        return images.limits_of(self._flat(self._layers[:, y, x], self._down[y], self._across[x]), *PERCENTILES)

    def _flat(self, layers: NDArray[Any], down: NDArray[Any], across: NDArray[Any]) -> NDArray[np.float32]:
        values = real_values(layers.prod(0), self._what)
        if self._what == "phase":
            values -= down.astype(np.float32)
            values -= across.astype(np.float32)
            images.wrapped(values)
        return values


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
    count, height, width = fields.shape
    place = tifffile.imwrite(
        path,
        shape=(count, len(channels), height, width),
        dtype=np.float32,
        imagej=True,
        metadata=description,
        returnoffset=True,
        **resolution,
    )
    assert place is not None, "it is not compressed"
    with path.open("r+b") as file:
        file.seek(place[0])
        for layer, channel, rows in product(fields, channels, images.bands((height, width))):
            file.write(real_values(layer[rows], channel).data)


def real_values(field: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Return the amplitude or phase [rad] of a complex array."""
    return (np.abs(field) if what == "amplitude" else np.angle(field)).astype(np.float32)
