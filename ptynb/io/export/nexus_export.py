"""Export of a result with the patterns of its scan as NXcxi_ptycho, a NeXus file that is also CXI, version 1.6.

/cxi_version
/entry_1/definition     "NXcxi_ptycho"; title, start_time, end_time
  instrument_1          source_1 (of the machine nothing is known: NaN), beam_1/{energy, incident_beam_energy} [J],
                        incident_wavelength [m], detector_1
    detector_1          data (pattern, y, x), translation (pattern, xyz) [m], x_pixel_size, y_pixel_size, distance [m],
                        pixel_mask (0 is good); in the near field focus_to_sample [m]
  data                  NXdata: links to data, and to x and y of the sample
  data_1                NXcollection, for CXI: links to data and translation
  sample_1              transformations/{x, y}, geometry_1/translation [m]
  result_1, result_2    the object (slice, y, x) or (mode, slice, y, x), the probe (mode, y, x), complex; "object" and
                        "probe" are links to them, as in the results of PyNX
  process_1             NXprocess: program, version, date, the record as JSON, and plots of real numbers for viewers

The definition (contributed_definitions/NXcxi_ptycho.nxdl.xml) closes its entry before NXdata, data_1 and sample_1,
though its links and CXI have them within: so they are within, and links of these names stand beside the entry.

Translations are those of the sample, on whose object array they begin at the first pixel: positions in metres are
refined ones, and the patterns of the file fit its object and probe.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.electrons import LONGEST_ELECTRON
from ptynb.data.geometry import ELECTRON_VOLT, Geometry, NearField
from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import ScanError
from ptynb.io.export.npz_export import record_of
from ptynb.io.formats.cxi import UPRIGHT
from ptynb.io.hdf5_file import replacing
from ptynb.io.nxdata_plots import write_plots
from ptynb.io.record_mapper import as_json, write_text
from ptynb.settings.claimed_values import energy_of

DEFINITION = "NXcxi_ptycho"
VERSION = 160
BESIDE = "data", "data_1", "sample_1"
"""Groups that the definition has beside its entry."""
PORTION = 2**24
"""Pixels of patterns that are copied at once."""
SHORTEST_LIGHT = 1e-7
"""Wavelength [m] above which photons are called light, not X-rays."""


def check_nexus(result: Result, scan: Scan) -> None:
    """Raise ScanError if the definition has no place for a scan like this one."""
    problem = ""
    if scan.combination is not None:
        problem = "made of several scans; write each of result.split() with its own scan"
    elif not isinstance(scan.geometry, Geometry | NearField) or result.pixel_size is None:
        known = "tilted planes" if scan.geometry is not None else "no known geometry"
        problem = f"with {known}, and {DEFINITION} needs wavelength, distance and pixels of a detector across the beam"
    if problem:
        raise ScanError(
            f"'{scan.name}' is a scan {problem}; .cxi and .h5 are written without it.", code="file.unsupported-content"
        )


def write_nexus(result: Result, scan: Scan, path: Path) -> None:
    """Write a result and the patterns of its scan, which `check_nexus` accepts. Large objects stay in their files."""
    with replacing(path) as file:
        file["cxi_version"] = VERSION
        file.attrs.update(NX_class="NXroot", default="entry_1", creator=f"ptynb {result.software.ptynb}")
        entry = _group(file, "entry_1", "NXentry")
        entry["definition"] = DEFINITION
        write_text(entry, "title", result.title or scan.name)
        for name, value in (("start_time", result.started), ("end_time", result.ended)):
            if value:
                entry[name] = value
        _instrument(_group(entry, "instrument_1", "NXinstrument"), scan)
        assert result.pixel_size is not None, "it is checked"
        translations = -(result.positions * result.pixel_size) @ UPRIGHT.T
        _detector(entry["instrument_1"], scan, translations)
        _sample(_group(entry, "sample_1", "NXsample"), scan, translations)
        _links(entry)
        _image(_group(entry, "result_1", "NXdata"), result, result.object, "Object")
        _image(_group(entry, "result_2", "NXdata"), result, result.probe, "Probe")
        entry["object"], entry["probe"] = (h5py.SoftLink(f"{entry.name}/result_{number}") for number in (1, 2))
        _process(_group(entry, "process_1", "NXprocess"), result)
        entry.attrs["default"] = "process_1"
        for name in BESIDE:
            file[name] = h5py.SoftLink(f"{entry.name}/{name}")


def _group(parent: h5py.Group, name: str, nx_class: str) -> h5py.Group:
    group = parent.create_group(name)
    group.attrs["NX_class"] = nx_class
    return group


def _put(group: h5py.Group, name: str, values: Any, units: str, **attributes: Any) -> None:
    group[name] = values
    group[name].attrs.update(units=units, **attributes)


def _instrument(group: h5py.Group, scan: Scan) -> None:
    assert isinstance(scan.geometry, Geometry | NearField), "it is checked"
    wavelength, source = scan.geometry.wavelength, _group(group, "source_1", "NXsource")
    electrons = wavelength < LONGEST_ELECTRON
    source["name"] = "unknown"
    _put(source, "energy", np.nan, "J")
    source["probe"] = "electron" if electrons else "x-ray" if wavelength < SHORTEST_LIGHT else "visible light"
    source["type"] = "unknown"
    beam, energy = _group(group, "beam_1", "NXbeam"), energy_of(wavelength) * ELECTRON_VOLT
    _put(beam, "energy", energy, "J")
    _put(beam, "incident_beam_energy", energy, "J")
    _put(beam, "incident_energy_spread", np.nan, "J")
    _put(beam, "incident_wavelength", wavelength, "m")


def _detector(instrument: h5py.Group, scan: Scan, translations: NDArray[np.float64]) -> None:
    detector, geometry = _group(instrument, "detector_1", "NXdetector"), scan.geometry
    detector.attrs.update(signal="data", axes="[, data]")
    assert isinstance(geometry, Geometry | NearField), "it is checked"
    height, width = geometry.detector_pixel
    lengths = {"y_pixel_size": height, "x_pixel_size": width}
    if isinstance(geometry, Geometry):
        lengths["distance"] = geometry.distance
    else:
        lengths["distance"] = geometry.sample_to_detector
        if math.isfinite(geometry.focus_to_sample):  # else the beam is parallel
            lengths["focus_to_sample"] = geometry.focus_to_sample
    for name, length in lengths.items():
        _put(detector, name, length, "m")
    _put(detector, "translation", translations, "m", axes="translation:y:x", interpretation="image")
    _group(detector, "transformations", "NXtransformations")["vector"] = [0.0, 0.0, 1.0]
    count, *window = scan.frames.shape
    stored = detector.create_dataset("data", scan.frames.shape, scan.frames.dtype, chunks=(1, *window))
    stored.attrs.update(units="counts", interpretation="image")
    step = max(1, PORTION // (window[0] * window[1]))
    for start in range(0, count, step):
        stored[start : start + step] = _centred(scan, scan.frames.read(start, min(start + step, count)))
    if scan.mask is not None:
        detector["pixel_mask"] = (~_centred(scan, scan.mask)).astype(np.uint32)


def _centred(scan: Scan, values: NDArray[Any]) -> NDArray[Any]:
    return values if scan.centred else np.fft.fftshift(values, (-2, -1))


def _sample(group: h5py.Group, scan: Scan, translations: NDArray[np.float64]) -> None:
    write_text(group, "name", scan.name)
    group["depends_on"] = f"{group.name}/transformations/x"
    motors = _group(group, "transformations", "NXtransformations")
    motors.attrs["vector"] = [1.0, 0.0, 0.0]
    chain = {"x": ([1.0, 0.0, 0.0], f"{motors.name}/y"), "y": ([0.0, 1.0, 0.0], ".")}
    for column, (name, (vector, depends_on)) in enumerate(chain.items()):
        described = {"transformation_type": "translation", "vector": vector, "depends_on": depends_on}
        _put(motors, name, translations[:, column], "m", **described)
    _group(group, "geometry_1", "NXcollection")


def _links(entry: h5py.Group) -> None:
    detector, motors = f"{entry.name}/instrument_1/detector_1", f"{entry.name}/sample_1/transformations"
    plot = _group(entry, "data", "NXdata")
    plot.attrs.update(signal="data", axes=["x", ".", "."], x_indices=0, y_indices=0)
    plot["x_indices"] = plot["y_indices"] = "0"
    collection = _group(entry, "data_1", "NXcollection")
    for group, name, target in (
        (entry["instrument_1/detector_1"], "data_1", f"{detector}/data"),
        (plot, "data", f"{detector}/data"),
        (plot, "x", f"{motors}/x"),
        (plot, "y", f"{motors}/y"),
        (collection, "data", f"{detector}/data"),
        (collection, "translation", f"{detector}/translation"),
        (entry["sample_1/geometry_1"], "translation", f"{detector}/translation"),
    ):
        group[name] = h5py.SoftLink(target)
        entry[target].attrs["target"] = target  # by which NeXus knows the original among the links to it


def _image(group: h5py.Group, result: Result, values: NDArray[Any], title: str) -> None:
    """Write an image as CXI has it, with the coordinates of its pixels as NXdata has them."""
    values = values if values.ndim > 2 else values[None]
    height, width = result.pixel_size or (1.0, 1.0)
    rows, columns = values.shape[-2:]
    group["title"] = title
    group["data"] = values
    group["data"].attrs.update(interpretation="image", long_name=title)
    group["data_space"], group["data_type"] = "real", "unknown"
    group["is_fft_shifted"], group["dimensionality"] = 0, 2
    leading = [".", *(["."] if values.ndim > 3 else [])]
    group.attrs.update(signal="data", axes=[*leading, "y", "x"])
    first = result.origin if title == "Object" else (-(rows // 2), -(columns // 2))
    _put(group, "y", (first[0] + np.arange(rows)) * height, "m")
    _put(group, "x", (first[1] + np.arange(columns)) * width, "m")
    # CXI has x first, and a third side of length 0.
    _put(group, "image_size", [columns * width, rows * height, 0.0], "m")
    _put(group, "y_pixel_size", height, "m")
    _put(group, "x_pixel_size", width, "m")
    if title == "Object":
        group["origin"] = result.origin
        thickness = result.parameters.get("slices/thickness", result.settings.get("slices", {}).get("thickness"))
        if thickness is not None and np.size(thickness) == 1:
            _put(group, "slice_distance", float(np.reshape(thickness, ())), "m")


def _process(group: h5py.Group, result: Result) -> None:
    group["program"], group["version"], group["sequence_index"] = "ptynb", result.software.ptynb, 1
    if result.ended:
        group["date"] = result.ended
    note = _group(group, "record", "NXnote")
    note["type"], note["description"] = "application/json", "Settings, changes, scan, software and machines of the run"
    write_text(note, "data", as_json(record_of(result)))
    parameters = _group(group, "parameters", "NXparameters")
    for name, values in result.parameters.items():
        parameters[name] = values
    _put(parameters, "r_factor", result.r_factor, "")
    write_plots(group, result)
