"""NeXus files (https://manual.nexusformat.org), also NXcxi_ptycho; groups are identified by NX_class, not by name.

    NXentry             definition = NXcxi_ptycho or NXptycho
    NXbeam              incident_wavelength, incident_beam_energy, incident_energy or energy; else NXmonochromator
    NXdetector          data (pattern, y, x) or (row, column, y, x), or data_000001 and so on (of more axes, those of
                        length 1 before y are ignored: (row, column, 1, y, x)); distance,
                        x_pixel_size, y_pixel_size, pixel_mask (0 is good)
    NXdata              signal: the patterns; data_000001 and so on, as Eiger's master files link them; y, x
    translation         (pattern, xyz), of the SAMPLE: the probe moves the other way
    NXtransformations   of the sample: its motors, each with a vector (xyz)

An energy may be of electrons, where the detector is one of Dectris' for electrons, or photons do not have it
(`beam_of`); what is beside such a master file: `reading/dectris_files.py`. All have an attribute `units`.
Coordinates are NeXus': z with the beam, y up, so a detector that faces the beam has its rows along -y and its columns
along -x, as in CXI.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.formats import plain_hdf5
from ptynb.io.formats.cxi import (
    NEXUS_DEFINITIONS,
    UPRIGHT,
    description,
    has_entry,
    on_detector,
    photon_energy,
    pixel_sizes,
)
from ptynb.io.hdf5_file import Item, Linked, identity
from ptynb.io.reading.dataset_search import PAIRS, Names, candidates, choose, positions_in, without_doubles
from ptynb.io.reading.dectris_files import beside_master
from ptynb.io.reading.hdf5_reading import (
    Notes,
    PatternSource,
    array,
    attribute_of,
    factor,
    is_real,
    lengths,
    looks_like_patterns,
    numbered,
    nx_class,
    patterns_at,
    quantity,
    real,
    text,
    units_of,
    where,
)
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.settings.claimed_values import STORAGE_RING
from ptynb.settings.load_options import LoadOptions

WAVELENGTHS = "incident_wavelength", "wavelength"
ENERGIES = "incident_beam_energy", "incident_energy", "energy", "photon_energy"
DISTANCES = "distance", "detector_distance"
MASKS = "pixel_mask", "mask", "detectorSpecific/pixel_mask"
PHOTON_ENERGY = "photon_energy"
"""Name of the energy that a detector is set to."""
DIRECTIONS = {"y": (0.0, 1.0, 0.0), "x": (1.0, 0.0, 0.0)}
"""Directions (xyz) of motors without an attribute `vector`."""


def recognises(head: Head) -> bool:
    """Return whether a top-level group is an NXentry that the reader `cxi` does not accept."""
    return head.file is not None and has_entry(head.file)


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of a NeXus file; values that are in no NeXus class are searched by name."""
    with Linked(path, options.links) as linked:
        notes = Notes()
        entry = _entry(linked, options, notes)
        classes = _Classes(linked, entry)
        place = options.patterns or _patterns(linked, classes, path, notes)
        patterns = patterns_at(linked, place)
        notes.at("patterns", patterns.place)
        notes.sentences += patterns.notes
        names = Names(linked, entry)
        detector = classes.detector_of(linked.get(place))
        distance, pixel = _detector(linked, detector, notes)
        beam = _beam(linked, classes, notes)
        by_name, loose = plain_hdf5.detector(names, spare := Notes()), Notes()
        loose_beam = plain_hdf5.beam(names, loose)
        if not any(beam.values()):
            beam = loose_beam
        elif beam["energy"] is None and PHOTON_ENERGY in loose.places.get("energy", ""):
            beam["energy"] = loose_beam["energy"]  # from which the detector computed the wavelength
        found: dict[str, Any] = {
            **beam,
            "detector": description(linked, detector),
            "distance": by_name["distance"] if distance is None else distance,
            "focus_to_sample": by_name["focus_to_sample"],
            "detector_pixel": by_name.get("detector_pixel") if pixel is None else pixel,
            "mask": _mask(linked, detector, patterns.frames.shape[1:], notes),
            "positions": _positions(linked, classes, entry, patterns, names, options, notes),
        }
        about = found["detector"]
        extra = beside_master(linked, about, patterns.frames.shape[0], notes) if found["positions"] is None else {}
        notes.sentences += loose.sentences
        notes.places = {**spare.places, **loose.places, **notes.places}
        return FileRecord(
            format=FORMAT.name,
            frames=patterns.frames,
            **{"raster": patterns.raster} | found | extra,
            **plain_hdf5.noted(notes),
        )


FORMAT = Format("NeXus", recognises, read, (".nxs", ".nx", ".h5", ".cxi"))


class _Classes:
    """Groups of an entry by their NeXus class, nearest first."""

    def __init__(self, linked: Linked, entry: h5py.Group) -> None:
        self.linked, self.entry = linked, entry
        self._groups: dict[str, list[tuple[str, h5py.Group]]] = {}
        for name, item in linked.walk(entry):
            if isinstance(item, h5py.Group):
                self._groups.setdefault(nx_class(item), []).append((name, item))

    def of(self, *kinds: str) -> Iterator[tuple[str, h5py.Group]]:
        """Yield (name, group) of all groups of these classes, in the order of the arguments."""
        for kind in kinds:
            yield from self._groups.get(kind, ())

    def detector_of(self, patterns: Item | None) -> h5py.Group | None:
        """Return the detector group that contains these patterns, else the first one."""
        detectors = [group for _, group in self.of("NXdetector")]
        for group in detectors:
            data = self.linked.get("data", group)
            if data is not None and patterns is not None and identity(data) == identity(patterns):
                return group
        return next(iter(detectors), None)


def _entry(linked: Linked, options: LoadOptions, notes: Notes) -> h5py.Group:
    """Return the entry of the options, else one with a definition for ptychography, else the default or first entry."""
    entries = {
        name: item
        for name, item in linked.children(linked.root)
        if isinstance(item, h5py.Group) and nx_class(item) == "NXentry"
    }
    if options.patterns is not None and options.patterns.strip("/").split("/")[0] in entries:
        return entries[options.patterns.strip("/").split("/")[0]]
    default = str(attribute_of(linked.root, "default") or "").strip("/").split("/")[0]
    fitting = [name for name, item in entries.items() if text(linked.dataset("definition", item)) in NEXUS_DEFINITIONS]
    ordered = list(dict.fromkeys([*fitting, *([default] if default in entries else []), *entries]))
    chosen = next((name for name in ordered if candidates(linked, entries[name])), ordered[0])
    others = [name for name in ordered if name != chosen]
    if others:
        notes.add(f"{chosen} is read; {', '.join(others)} is not; patterns='...' selects what is in it.")
    return entries[chosen]


def _patterns(linked: Linked, classes: _Classes, path: Path, notes: Notes) -> str:
    """Return the name of the patterns: in NXdetector or NXdata, else any dataset of their shape."""
    found: dict[str, Item] = {}
    for name, group in classes.of("NXdetector", "NXdata", "NXcollection"):
        signal = str(attribute_of(group, "signal") or "data")
        for one in dict.fromkeys((signal, "data")):
            item = linked.get(one, group)
            if item is not None and (looks_like_patterns(item) or (isinstance(item, h5py.Group) and numbered(item))):
                found[f"{name}/{one}"] = item
        if numbered(group):
            found[name] = group
    if text(linked.dataset("definition", classes.entry)) in NEXUS_DEFINITIONS:  # results in the file are no patterns
        measured = {f"{name}/data" for name, _ in classes.of("NXdetector")}
        found = {name: item for name, item in found.items() if name in measured} or found
    unique = without_doubles(found)
    if len(unique) == 1:
        return next(iter(unique))
    chosen = choose(unique or candidates(linked), path, linked)
    if chosen is None:
        raise plain_hdf5.nothing_found(linked)
    notes.sentences += chosen[1]
    return chosen[0]


def _beam(linked: Linked, classes: _Classes, notes: Notes) -> dict[str, float | None]:
    """Return what the groups of the beam state: arguments of `FileRecord`."""
    found: dict[str, float | None] = {"wavelength": None, "energy": None}
    for _, group in classes.of("NXbeam", "NXmonochromator", "NXsource"):
        for name in WAVELENGTHS:
            item = linked.dataset(name, group)
            length = quantity(item, "length", "m")
            if found["wavelength"] is None and length is not None and item is not None:
                if length.value is not None and length.value > 1e-4 and not units_of(item):
                    length = quantity(item, "length", "angstrom")
                    notes.add(f"{where(item)} has no units, and is implausible in metres; it is taken as angstrom.")
                found["wavelength"] = notes.number("wavelength", length)
        for name in ENERGIES:
            item = linked.dataset(name, group)
            energy = photon_energy(item, Notes())
            if found["energy"] is None and energy is not None and energy <= STORAGE_RING:
                found["energy"] = photon_energy(item, notes)
    return found


def _detector(
    linked: Linked, detector: h5py.Group | None, notes: Notes
) -> tuple[float | None, tuple[float, float] | None]:
    """Return (distance [m], pixel size (y, x) [m])."""
    if detector is None:
        return None, None
    distance = None
    for name in DISTANCES:
        if distance is None:
            distance = notes.number("distance", quantity(linked.dataset(name, detector), "length", "m"))
    return distance, pixel_sizes(linked, detector, notes)


def _mask(linked: Linked, detector: h5py.Group | None, window: Sequence[int], notes: Notes) -> NDArray[np.bool_] | None:
    if detector is None:
        return None
    for name in MASKS:
        item = linked.dataset(name, detector)
        if item is not None and is_real(item.dtype) and item.shape == tuple(window):
            notes.at("mask", where(item))
            return np.asarray(array(item, "a mask") == 0)
    return None


def _positions(
    linked: Linked,
    classes: _Classes,
    entry: h5py.Group,
    patterns: PatternSource,
    names: Names,
    options: LoadOptions,
    notes: Notes,
) -> NDArray[np.float64] | None:
    """Return positions (pattern, yx) [m] of the probe, from the translations of the sample."""
    if options.positions is not None or options.raster or options.step:
        return None
    count = patterns.frames.shape[0]
    translations = _translations(linked, entry, count, notes)
    if translations is None:
        translations = _motors(linked, classes, patterns, notes)
    if translations is not None:
        return on_detector(translations, UPRIGHT)
    silent = Notes()
    places = positions_in(names, count, patterns.raster, silent)
    if places is None or places.pixels:
        return None
    notes.sentences += silent.sentences
    notes.at("positions", places.place)
    notes.add(
        f"{places.place} is taken as y and x of the sample, opposite to the probe's; give rotation=3.14159265 if it "
        "is of the probe."
    )
    values = places.values
    xyz = values if values.shape[1] == 3 else np.column_stack([values[:, ::-1], np.zeros(count)])
    return on_detector(xyz, UPRIGHT)


def _translations(linked: Linked, entry: h5py.Group, count: int, notes: Notes) -> NDArray[np.float64] | None:
    for name, item in linked.walk(entry):
        if not (isinstance(item, h5py.Dataset) and name.endswith("/translation") and is_real(item.dtype)):
            continue
        if item.ndim < 2 or item.shape[-1] not in (2, 3) or item.size // item.shape[-1] != count:
            continue
        linked.check_sources(item)
        values, note = lengths(item, "translations")
        notes.add(note)
        notes.at("positions", where(item))
        flat = values.reshape(count, -1)
        return flat if flat.shape[1] == 3 else np.column_stack([flat, np.zeros(count)])
    return None


def _motors(linked: Linked, classes: _Classes, patterns: PatternSource, notes: Notes) -> NDArray[np.float64] | None:
    """Return translations (pattern, xyz) [m]: the sum of the sample's motors, each along its vector."""
    total, places = np.zeros((patterns.frames.shape[0], 3)), []
    samples = [f"{name}/" for name, _ in classes.of("NXsample")]
    for name, group in classes.of("NXtransformations"):
        if samples and not any(name.startswith(sample) for sample in samples):
            continue
        found = {one: item for one, item in linked.children(group) if isinstance(item, h5py.Dataset)}
        _check_lengths(found, patterns, linked)
        for number, one in enumerate(_scanned(found, patterns)):
            item = found[one]
            linked.check_sources(item)
            values = _over_scan(item, number, patterns)
            scale = factor(units_of(item) or "m", "length")
            vector = _vector(item, one)
            if values is None or scale is None or vector is None:
                continue
            total += np.outer(values * scale, vector)
            places.append(where(item))
    if not places:
        return None
    notes.at("positions", " and ".join(places))
    return total


def _check_lengths(found: dict[str, h5py.Dataset], patterns: PatternSource, linked: Linked) -> None:
    """Raise FileError if the number of a motor's values does not match the patterns; ignoring it would give a line."""
    count, raster = patterns.frames.shape[0], patterns.raster or ()
    for item in found.values():
        stated = attribute_of(item, "transformation_type")
        if stated != "translation" or item.size is None or item.size <= 1:
            continue
        if item.size not in (count, *raster) or not is_real(item.dtype):
            raise FileError(
                f"{linked.path} has {item.size} values of type {item.dtype} at {where(item)} and {count} patterns; "
                "expected equal numbers. Give positions=array (pattern, yx) [m].",
                code="file.count-mismatch",
                fields=("positions",),
            )


def _scanned(found: dict[str, h5py.Dataset], patterns: PatternSource) -> list[str]:
    """Return the names of motors with a value for each pattern, row or column; that of the rows first."""
    count, raster = patterns.frames.shape[0], patterns.raster or ()
    moved = [
        name
        for name, item in found.items()
        if is_real(item.dtype)
        and item.size in (count, *raster)
        and item.size > 1
        and str(attribute_of(item, "transformation_type") or "translation") == "translation"
    ]
    return sorted(moved, key=lambda name: (not name.casefold().endswith("y"), name))


def _over_scan(item: h5py.Dataset, number: int, patterns: PatternSource) -> NDArray[np.float64] | None:
    values, count = real(item, "positions").ravel(), patterns.frames.shape[0]
    if len(values) == count:
        return values
    if patterns.raster is None:
        return None
    rows, columns = patterns.raster
    if number == 0 and len(values) == rows:
        return np.repeat(values, columns)
    return np.tile(values, rows) if len(values) == columns else None


def _vector(item: h5py.Dataset, name: str) -> NDArray[np.float64] | None:
    """Return the direction (xyz) of a motor: its attribute `vector`, else by the last letter of its name."""
    try:
        stated = np.asarray(item.attrs["vector"], dtype=np.float64).ravel() if "vector" in item.attrs else None
    except (OSError, TypeError, ValueError):
        stated = None
    if stated is not None and stated.size == 3 and np.isfinite(stated).all() and stated.any():
        return stated / np.linalg.norm(stated)
    axis = name.casefold()[-1:]
    known = {letter for pair in PAIRS[:1] for letter in pair}
    return np.array(DIRECTIONS[axis]) if axis in known else None
