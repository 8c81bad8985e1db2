"""HDF5 files that follow no convention: patterns are found by shape, other values by commonly used names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py

from ptynb.data.geometry import ELECTRON_VOLT
from ptynb.data.patterns import Frames
from ptynb.exceptions import FileError
from ptynb.io.formats.cxi import DESCRIPTIONS, UPRIGHT, on_detector
from ptynb.io.hdf5_file import Linked
from ptynb.io.reading import dataset_search as known
from ptynb.io.reading.dataset_search import Names, candidates, choose
from ptynb.io.reading.hdf5_reading import Notes, PatternSource, Quantity, is_real, other_axes, patterns_at
from ptynb.io.reading.microscope_scales import kilovolts
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.settings.load_options import LoadOptions

ORDER = "give positions=array (pattern, yx) [m] where that is wrong."


def recognises(head: Head) -> bool:
    """Return whether this is an HDF5 file; tried last."""
    return head.file is not None


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the values that were found by name and shape; every assumption is noted."""
    with Linked(path, options.links) as linked:
        notes = Notes()
        if options.patterns is not None:
            place = options.patterns
        else:
            chosen = choose(candidates(linked), path, linked)
            if chosen is None:
                raise nothing_found(linked)
            place, found = chosen
            notes.sentences += found
        names = Names(linked)
        patterns = patterns_at(linked, place)
        notes.at("patterns", patterns.place)
        notes.sentences += patterns.notes
        return FileRecord(format=FORMAT.name, **described(names, patterns, options, notes), **noted(notes))


FORMAT = Format("HDF5", recognises, read, (".h5", ".hdf5", ".hdf"))


def noted(notes: Notes) -> dict[str, Any]:
    """Return the arguments `places` and `notes` of `FileRecord`."""
    return {"places": notes.places, "notes": tuple(notes.sentences)}


def described(names: Names, patterns: PatternSource, options: LoadOptions, notes: Notes) -> dict[str, Any]:
    """Return arguments of `FileRecord`, found by name: frames, positions, beam, distances and mask."""
    frames: Frames = patterns.frames
    found: dict[str, Any] = {**beam(names, notes), **detector(names, notes)}
    found["detector"] = names.text(DESCRIPTIONS)
    found |= {"frames": frames, "raster": patterns.raster, "mask": known.mask_in(names, frames.shape[1:], notes)}
    step = notes.number("step", names.number(known.STEP, "length", "m"))
    if step is not None:
        found["step"] = (step, step)
    if options.positions is None and not options.raster and not options.step:
        found |= _positions(names, patterns, notes)
    return found


def _positions(names: Names, patterns: PatternSource, notes: Notes) -> dict[str, Any]:
    places = known.positions_in(names, patterns.frames.shape[0], patterns.raster, notes)
    if places is None:
        return {}
    notes.at("positions", places.place)
    if places.values.shape[1] == 3:
        if "translation" in places.place.casefold():
            notes.add(f"{places.place} is taken as x, y and z of the sample, as in CXI; {ORDER}")
            return {"positions": on_detector(places.values, UPRIGHT)}
        notes.add(f"{places.place} is taken as x, y and z of the probe; {ORDER}")
        return {"positions": places.values[:, 1::-1]}
    if " and " not in places.place:
        notes.add(f"{places.place} is taken as y and x of the probe, in this order; {ORDER}")
    else:
        notes.add(f"{places.place} are taken as rows and columns of the probe; {ORDER}")
    return {"pixel_positions" if places.pixels else "positions": places.values}


def beam(names: Names, notes: Notes) -> dict[str, float | None]:
    """Return what was found by name of the beam: arguments of `FileRecord`."""
    length = names.number(known.WAVELENGTH, "length", "m")
    energy = names.number(known.ENERGY, "energy", "eV")
    voltage = names.number(known.VOLTAGE, "voltage", "V")
    found: dict[str, float | None] = dict.fromkeys(("wavelength", "energy", "voltage"))
    if length is not None:
        found["wavelength"] = notes.number("wavelength", _scaled_length(length, notes))
    if energy is not None and energy.value is not None and energy.value > 0:
        silent = Notes() if length is not None else notes
        found["energy"] = _electron_volts(energy, silent)
        notes.places |= silent.places
    if voltage is not None and voltage.value is not None and length is None and energy is None:
        number = notes.number("voltage", voltage)
        found["voltage"] = number if number is None or voltage.stated else kilovolts(number)
    return found


def _scaled_length(found: Quantity, notes: Notes) -> Quantity:
    """Return a wavelength; without a unit, a value that is implausible in metres is taken as ångström."""
    assert found.value is not None
    if found.stated or found.value < 1e-4:
        return found
    notes.add(
        f"{found.place} is {found.value:.6g} without a unit, which is implausible in metres; it is taken as angstrom."
    )
    return Quantity(found.value * 1e-10, found.place)


def _electron_volts(found: Quantity, notes: Notes) -> float:
    """Return a photon energy [eV]; without a unit it is taken as joules, eV or keV by its magnitude."""
    assert found.value is not None
    notes.at("energy", found.place)
    notes.add(found.note)
    if found.stated:
        return found.value
    unit, scale = (
        ("eV", 1.0) if found.value >= 100 else ("keV", 1e3) if found.value >= 0.05 else ("J", 1 / ELECTRON_VOLT)
    )
    notes.add(f"{found.place} is {found.value:.6g} without a unit; it is taken as {unit}.")
    return found.value * scale


def detector(names: Names, notes: Notes) -> dict[str, Any]:
    """Return arguments of `FileRecord`, found by name: distances of focus and detector, and its pixel size [m]."""
    found: dict[str, Any] = {
        "distance": notes.number("distance", names.number(known.DISTANCE, "length", "m")),
        "focus_to_sample": notes.number("focus_to_sample", names.number(known.FOCUS, "length", "m")),
    }
    y = names.number(known.PIXEL_Y, "length", "m")
    x = names.number(known.PIXEL_X, "length", "m")
    one = y or x or names.number(known.PIXEL, "length", "m")
    if one is not None:
        size = notes.number("detector_pixel", one)
        other = notes.number("detector_pixel", x or one)
        found["detector_pixel"] = None if size is None or other is None else (size, other)
    return found


def nothing_found(linked: Linked) -> FileError:
    """Return the error for an HDF5 file without patterns, or with links that were not followed."""
    for name, item in linked.walk():
        if isinstance(item, h5py.Dataset) and item.ndim > 4 and is_real(item.dtype):
            return other_axes(item.shape, linked.path, name.strip("/"))
    if linked.left_out:
        return linked.left_out[0]  # the patterns may be in those files
    return FileError(
        f"{linked.path} is HDF5 and has no dataset (pattern, y, x) of real numbers (it holds "
        f"{', '.join(sorted(linked.root)) or 'nothing'}); name it: patterns='entry/data/data', or read the arrays with "
        "h5py and use Scan.from_arrays.",
        code="file.incomplete",
        fields=("patterns",),
    )
