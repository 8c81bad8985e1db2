"""What belongs to a master file of Dectris' detectors of electrons (ARINA, ELA, QUADRO, SINGLA) besides patterns.

    NAME_master.h5  the master file, in NeXus: detectorSpecific/nimages, ntrigger
    NAME.h5         metadata of the microscope, if its software writes them: attributes of the group "STEM Metadata".
                    Pixel Size [nm] is the step, as py4DSTEM and RosettaSciIO read it; others are found by common names

Neither says whether the scan is a raster. A series of lines has a trigger a line; else a square number of patterns is
taken as a square raster, as other packages take it, with a remark.
"""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

from ptynb.io.hdf5_file import Linked
from ptynb.io.reading import dataset_search as known
from ptynb.io.reading.dataset_search import Names
from ptynb.io.reading.hdf5_reading import Notes, is_real, real
from ptynb.io.reading.microscope_scales import kilovolts
from ptynb.settings.claimed_values import ELECTRON_DETECTORS, is_set

MASTER = "_master.h5"
GROUP, STEP = "STEM Metadata", "Pixel Size"
RASTERS = "scan_shape", "scan_size", "scan_resolution", "scan_dimensions", "shape"


def beside_master(linked: Linked, detector: str, count: int, notes: Notes) -> dict[str, Any]:
    """Return arguments of `FileRecord` for the master file of a detector of electrons, of `count` patterns."""
    if not ELECTRON_DETECTORS.search(detector):
        return {}
    found: dict[str, Any] = {}
    if linked.path.name.endswith(MASTER):
        beside = linked.path.with_name(f"{linked.path.name.removesuffix(MASTER)}.h5")
        if beside.is_file() and h5py.is_hdf5(linked.policy.check(beside, f"{linked.path} has its metadata")):
            with Linked(beside, linked.policy) as other:
                found = _metadata(other, count, notes)
    if "raster" not in found:
        raster = _raster(linked, count, notes)
        found |= {} if raster is None else {"raster": raster}
    return found


def _metadata(linked: Linked, count: int, notes: Notes) -> dict[str, Any]:
    names, found = Names(linked), dict[str, Any]()
    voltage = names.number(known.VOLTAGE, "voltage", "V")
    if voltage is not None and voltage.value is not None and is_set(voltage.value):
        found["voltage"] = kilovolts(voltage.value)
        notes.at("voltage", f"{linked.path.name}: {voltage.place}")
    length = names.number(("camera_length",), "length", "")  # a number without a unit may be m or mm
    if length is not None and length.value is not None:
        found["distance"] = length.value
        notes.at("distance", f"{linked.path.name}: {length.place}")
    group = linked.group(GROUP)
    sizes = () if group is None else _numbers(group, STEP)
    if sizes and all(is_set(size) for size in sizes):
        found["step"] = (sizes[-1] * 1e-9, sizes[0] * 1e-9)
        notes.at("step", f"{linked.path.name}: {GROUP}@{STEP}")
    for one in names.all(RASTERS):
        sides = _sides(one)
        if len(sides) == 2 and math.prod(sides) == count:
            found["raster"] = sides
            notes.at("raster", f"{linked.path.name}: {one.name}")
            break
    return found


def _sides(one: known.Named) -> tuple[int, ...]:
    if one.attribute is not None:
        return tuple(map(int, _numbers(one.item, one.attribute)))
    if not isinstance(one.item, h5py.Dataset) or not is_real(one.item.dtype) or one.item.size != 2:
        return ()
    return tuple(int(side) for side in real(one.item, "the raster").ravel())


def _numbers(item: h5py.Dataset | h5py.Group, attribute: str) -> tuple[float, ...]:
    """Return the one or two numbers of an attribute; none if it has others."""
    try:
        stored = item.attrs.get(attribute)
    except (OSError, TypeError, ValueError, RuntimeError):
        return ()
    values = np.asarray(stored).ravel()
    return tuple(map(float, values)) if values.dtype.kind in "iuf" and values.size in (1, 2) else ()


def _raster(linked: Linked, count: int, notes: Notes) -> tuple[int, int] | None:
    names = Names(linked)
    found = [names.number((name,), "length", "m") for name in ("ntrigger", "nimages")]  # of no unit
    lines, columns = (0 if one is None or one.value is None else int(one.value) for one in found)
    if lines > 1 and columns > 1 and lines * columns == count:
        notes.add(f"The scan is taken as {lines} lines of {columns} patterns, those of a trigger.")
        return lines, columns
    side = math.isqrt(count)
    if side * side != count or side < 2:
        return None
    notes.add(
        f"The scan is taken as a square raster of {side} x {side}, which the file does not state; raster=(rows, "
        "columns) sets it."
    )
    return side, side
