"""Export of a result with its geometry as CXI (https://www.cxidb.org/cxi.html, version 1.5).

/cxi_version
/entry_1/image_1        the object: data (complex), data_space "real", image_size [m], and the processing
/entry_1/image_2        the probe, in the same way
/entry_1/instrument_1   source_1/energy [J], detector_1/{distance, x_pixel_size, y_pixel_size} [m], if known
/entry_1/sample_1       geometry_1/translation (pattern, xyz) [m]: of the sample
/entry_1/data_1         data: a link to the object, for viewers

Translations are those of the sample, as `ptynb.io.formats.cxi` reads them: the probe moves the other way. Their origin
is the first pixel of the object's array; their axes are rows and columns of a detector that faces the beam.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from ptynb.data.geometry import ELECTRON_VOLT, energy_from_wavelength
from ptynb.data.result import Result
from ptynb.io.formats.cxi import UPRIGHT
from ptynb.io.hdf5_file import replacing
from ptynb.io.record_mapper import write_text

VERSION = 150
SHORTEST = 1e-11
"""Minimum wavelength of photons [m]; shorter ones are of electrons, for whose energy CXI has no field."""


def write_cxi(result: Result, path: Path) -> None:
    """Write a result to a CXI file."""
    with replacing(path) as file:
        file["cxi_version"] = VERSION
        file.attrs.update(NX_class="NXroot", default="entry_1")
        entry = file.create_group("entry_1")
        entry.attrs.update(NX_class="NXentry", default="data_1")
        write_text(entry, "title", result.title)
        entry["start_time"], entry["end_time"] = result.started, result.ended
        _image(entry.create_group("image_1"), result, result.object, "Object")
        _image(entry.create_group("image_2"), result, result.probe, "Probe")
        _instrument(entry.create_group("instrument_1"), result)
        if result.pixel_size is not None:
            entry["sample_1/geometry_1/translation"] = -(result.positions * result.pixel_size) @ UPRIGHT.T
            entry["sample_1/geometry_1/translation"].attrs["units"] = "m"
        data = entry.create_group("data_1")
        data.attrs.update(NX_class="NXdata", signal="data")
        data["data"] = h5py.SoftLink("/entry_1/image_1/data")


def _image(group: h5py.Group, result: Result, values: NDArray[Any], title: str) -> None:
    group["title"] = title
    group["data"] = values
    group["data_space"], group["data_type"] = "real", "unknown"
    group["is_fft_shifted"], group["dimensionality"] = 0, 2
    if result.pixel_size is not None:
        height, width = values.shape[-2:]
        # CXI stores x first, and a third side of length 0.
        group["image_size"] = [width * result.pixel_size[1], height * result.pixel_size[0], 0.0]
        group["x_pixel_size"], group["y_pixel_size"] = result.pixel_size[1], result.pixel_size[0]
        for name in ("image_size", "x_pixel_size", "y_pixel_size"):
            group[name].attrs["units"] = "m"
    process = group.create_group("process_1")
    process["command"], process["version"] = "ptynb", result.software.ptynb


def _instrument(group: h5py.Group, result: Result) -> None:
    scan = result.scan
    if scan.wavelength is not None:
        if scan.wavelength >= SHORTEST:
            group["source_1/energy"] = energy_from_wavelength(scan.wavelength) * ELECTRON_VOLT
            group["source_1/energy"].attrs["units"] = "J"
        group["source_1/wavelength"] = scan.wavelength
        group["source_1/wavelength"].attrs["units"] = "m"
    if scan.distance is not None and scan.detector_pixel is not None:
        height, width = scan.detector_pixel
        lengths = {"distance": scan.distance, "y_pixel_size": height, "x_pixel_size": width}
        for name, value in {**lengths, "basis_vectors": UPRIGHT * scan.detector_pixel}.items():
            group[f"detector_1/{name}"] = value
            group[f"detector_1/{name}"].attrs["units"] = "m"
