"""Simulated scans written in the layouts that other programs use, by their published descriptions."""

import h5py
import numpy as np

from ptynb.data.geometry import ELECTRON_VOLT

GZIP = {"compression": "gzip"}


def truth(simulated):
    """(counts, positions of the probe [m], energy [eV], distance [m], pixel [m]) of a simulated scan."""
    geometry = simulated.geometry
    distance = geometry.distance if simulated.is_far_field else geometry.sample_to_detector
    metres = simulated.positions * np.asarray(simulated.pixel_size)
    return simulated.counts(0, len(simulated)), metres, geometry.energy, distance, geometry.detector_pixel[0]


def of_sample(metres):
    """(pattern, xyz) [m]: how the sample moves where the probe moves down the rows and along the columns.

    Looking with the beam y is up and x is to the left, so rows run along -y and columns along -x.
    """
    return np.column_stack([metres[:, 1], metres[:, 0], np.zeros(len(metres))])


def put(file, name, value, units=None, **how):
    made = file.create_dataset(name, data=value, **how)
    if units is not None:
        made.attrs["units"] = units
    return made


def group(file, name, kind):
    made = file.require_group(name)
    made.attrs["NX_class"] = kind
    return made


def cxidb(path, simulated, detector=1, **_):
    """The data at the detector, linked softly to data_1; energy in joules; pixel sizes; the sample's geometry."""
    counts, metres, energy, distance, pixel = truth(simulated)
    with h5py.File(path, "w") as file:
        file["cxi_version"] = 160
        place = f"entry_1/instrument_1/detector_{detector}"
        file[f"{place}/data"] = counts
        file[f"{place}/distance"], file[f"{place}/x_pixel_size"], file[f"{place}/y_pixel_size"] = distance, pixel, pixel
        file[f"{place}/mask"] = np.zeros(counts.shape[1:], np.uint32)
        file["entry_1/instrument_1/source_1/energy"] = energy * ELECTRON_VOLT
        file["entry_1/sample_1/geometry_1/translation"] = of_sample(metres)
        file["entry_1/data_1/data"] = h5py.SoftLink(f"/{place}/data")
        file["entry_1/data_1/translation"] = h5py.SoftLink("/entry_1/sample_1/geometry_1/translation")
    return path


def cxi_with_units(path, simulated, **_):
    """Energy in keV, lengths in mm and um, and the detector's distance as its place; two entries."""
    counts, metres, energy, distance, pixel = truth(simulated)
    with h5py.File(path, "w") as file:
        file["cxi_version"] = 150
        file["entry_1/title"] = "a scan of the sample before"
        place = "entry_2/instrument_1/detector_1"
        put(file, "entry_2/image_1/data", counts, **GZIP)
        put(file, "entry_2/image_1/translation", of_sample(metres) * 1e6, "um")
        put(file, f"{place}/x_pixel_size", pixel * 1e6, "um")
        put(file, f"{place}/y_pixel_size", pixel * 1e6, "micron")
        put(file, f"{place}/geometry_1/translation", [0, 0, distance * 1e3], "mm")
        put(file, "entry_2/instrument_1/source_1/energy", energy / 1e3, "keV")
    return path


def nxcxi(path, simulated, raster=None, **_):
    """By the application definition: classes, units, the machine's energy beside the beam's, links between groups."""
    counts, metres, energy, distance, pixel = truth(simulated)
    with h5py.File(path, "w") as file:
        file["cxi_version"] = 160
        group(file, "entry_1", "NXentry")["definition"] = "NXcxi_ptycho"
        group(file, "entry_1/instrument_1", "NXinstrument")
        put(group(file, "entry_1/instrument_1/source_1", "NXsource"), "energy", 3.0, "GeV")
        put(group(file, "entry_1/instrument_1/beam_1", "NXbeam"), "incident_beam_energy", energy / 1e3, "keV")
        detector = group(file, "entry_1/instrument_1/detector_1", "NXdetector")
        detector["data"] = counts if raster is None else counts.reshape(*raster, *counts.shape[1:])
        put(detector, "distance", distance * 1e3, "mm")
        put(detector, "x_pixel_size", pixel * 1e6, "um")
        put(detector, "y_pixel_size", pixel * 1e6, "um")
        put(detector, "translation", of_sample(metres), "m")
        if raster is None:
            group(file, "entry_1/data_1", "NXcollection")["data"] = h5py.SoftLink(f"{detector.name}/data")
        else:
            virtual = h5py.VirtualLayout(counts.shape, counts.dtype)
            source = h5py.VirtualSource(detector["data"])
            for row in range(raster[0]):
                virtual[row * raster[1] : (row + 1) * raster[1]] = source[row]
            group(file, "entry_1/data_1", "NXcollection").create_virtual_dataset("data", virtual)
        file["entry_1/data_1/translation"] = h5py.SoftLink(f"{detector.name}/translation")
        plot = group(file, "entry_1/data", "NXdata")
        plot.attrs["signal"] = "data"
        plot["data"] = h5py.SoftLink(f"{detector.name}/data")
    return path


def nexus_motors(path, simulated, **_):
    """No translation: the sample's motors, each with a vector; a wavelength in angstrom."""
    counts, metres, _, distance, pixel = truth(simulated)
    with h5py.File(path, "w") as file:
        group(file, "scan", "NXentry")
        group(file, "scan/instrument", "NXinstrument")
        put(
            group(file, "scan/instrument/b", "NXbeam"),
            "incident_wavelength",
            simulated.geometry.wavelength * 1e10,
            "angstrom",
        )
        detector = group(file, "scan/instrument/merlin", "NXdetector")
        detector["data"] = counts
        put(detector, "distance", distance, "m")
        put(detector, "x_pixel_size", pixel * 1e3, "mm")
        put(detector, "y_pixel_size", pixel * 1e3, "mm")
        detector["pixel_mask"] = np.zeros(counts.shape[1:], np.int32)
        motors = group(group(file, "scan/sample", "NXsample"), "transformations", "NXtransformations")
        sample = of_sample(metres)
        # An x motor that runs to the right, looking with the beam.
        for name, values, vector in (("x", -sample[:, 0], (-1, 0, 0)), ("y", sample[:, 1], (0, 1, 0))):
            motor = put(motors, name, values * 1e3, "mm")
            motor.attrs["vector"], motor.attrs["transformation_type"] = vector, "translation"
    return path


def plain(path, simulated, raster=None, **_):
    """No convention: names that programs use, units in attributes and in names."""
    counts, metres, energy, distance, pixel = truth(simulated)
    with h5py.File(path, "w") as file:
        data = counts if raster is None else counts.reshape(*raster, *counts.shape[1:])
        put(file, "measurement/frames", data, **GZIP)
        put(file, "measurement/dark", np.zeros((2, *counts.shape[1:]), np.float32))
        put(file, "scan/positions_um", metres * 1e6)
        put(file, "setup/photon_energy", energy, "eV")
        file["setup"].attrs["detector_distance"] = distance
        put(file, "setup/pixel_size_um", pixel * 1e6)
    return path


def ptyd(path, simulated, chunks=3, link=False, **_):
    """As ptypy appends prepared data, chunk by chunk, or links to a file a chunk."""
    counts, metres, energy, distance, pixel = truth(simulated)
    with h5py.File(path, "w") as file:
        for name, value in (("energy", energy / 1e3), ("distance", distance)):
            put(file, f"meta/{name}", value).attrs["type"] = "scalar"
        put(file, "meta/psize", [pixel, pixel], **GZIP).attrs["type"] = "array"
        put(file, "meta/center", np.array(counts.shape[1:]) / 2, **GZIP).attrs["type"] = "array"
        put(file, "meta/label", np.zeros(1)).attrs["type"] = "None"
        file.create_group("info")
        for number, indices in enumerate(np.array_split(np.arange(len(counts)), chunks)):
            name = f"chunks/{number}"
            if link:
                beside = path.with_name(f"{path.name}.part{number:03d}")
                with h5py.File(beside, "w") as part:
                    _chunk(part, counts[indices], metres[indices], indices)
                file[name] = h5py.ExternalLink(str(beside), "/")
            else:
                _chunk(file.create_group(name), counts[indices], metres[indices], indices)
    return path


def _chunk(group, counts, metres, indices):
    weights = np.ones(counts.shape, np.float32)
    weights[:, 0, 0] = 0
    for name, values in (("data", counts), ("positions", metres), ("indices", indices), ("weights", weights)):
        put(group, name, values, **GZIP).attrs["type"] = "array"


def eiger(path, simulated, files=3, virtual=False, how=None, **_):
    """A master file as Dectris writes it: classes, wavelength, distances, a pixel mask, and links to files of data."""
    counts, _, _, distance, pixel = truth(simulated)
    counts = counts.astype(np.uint32)
    names = []
    for number, some in enumerate(np.array_split(counts, files), 1):
        beside = path.with_name(f"{path.stem.removesuffix('_master')}_data_{number:06d}.h5")
        with h5py.File(beside, "w") as file:
            group(file, "entry", "NXentry")
            group(file, "entry/data", "NXdata").create_dataset(
                "data", data=some, chunks=(1, *some.shape[1:]), **how or {}
            )
        names.append((beside.name, len(some)))
    with h5py.File(path, "w") as file:
        group(file, "entry", "NXentry")
        group(file, "entry/instrument", "NXinstrument")
        beam = group(file, "entry/instrument/beam", "NXbeam")
        put(beam, "incident_wavelength", np.float32(simulated.geometry.wavelength * 1e10), "angstrom")
        detector = group(file, "entry/instrument/detector", "NXdetector")
        put(detector, "detector_distance", np.float64(distance), "m")
        put(detector, "x_pixel_size", np.float64(pixel), "m")
        put(detector, "y_pixel_size", np.float64(pixel), "m")
        group(detector, "detectorSpecific", "NXcollection")["pixel_mask"] = np.zeros(counts.shape[1:], np.uint32)
        data = group(file, "entry/data", "NXdata")
        for number, (name, _) in enumerate(names, 1):
            if not virtual:
                data[f"data_{number:06d}"] = h5py.ExternalLink(name, "/entry/data/data")
        if virtual:
            layout, start = h5py.VirtualLayout(counts.shape, counts.dtype), 0
            for name, count in names:
                source = h5py.VirtualSource(name, "/entry/data/data", (count, *counts.shape[1:]))
                layout[start : start + count] = source
                start += count
            data.create_virtual_dataset("data", layout)
    return path
