"""CXI files (Coherent X-ray Imaging data bank, version 1.6; https://www.cxidb.org/cxi.html) in their variants.

    entry_N/instrument_1/source_1/      wavelength [m], or energy [J]
    entry_N/instrument_1/detector_N/    distance [m] (or corner_position, or geometry_1/translation),
                                        basis_vectors (xyz, row/column) [m] or x_pixel_size, y_pixel_size;
                                        mask (0 is good); data
    entry_N/data_N/data                 (pattern, y, x) counts, zero frequency in the centre; often a link to the
                                        detector's; also image_N/data
    entry_N/data_N/translation          (pattern, xyz) [m], of the SAMPLE: the probe moves the other way
                                        (also in sample_N/geometry_N or instrument_1/detector_N)

Lengths and energies may have an attribute `units`. Of several scans in a file the first is read, and the others are
named in a note. The object's pixel axes are those of the detector: its rows and columns, at pitch λ z / (n p).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import ELECTRON_VOLT
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import Linked, identity, names_of, own, values_text
from ptynb.io.reading.hdf5_reading import (
    Notes,
    array,
    lengths,
    looks_like_patterns,
    numbered,
    nx_class,
    patterns_at,
    quantity,
    text,
    where,
)
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.settings.load_options import LoadOptions

DATA = ("entry_1/data_1/data", "entry_1/instrument_1/detector_1/data")
SIGNAL_ABOVE_BACKGROUND = 0x00001000
"""The only bit of a CXI mask that marks a good pixel."""
SMALLEST = 1e-12
"""Lower limit of a detector pixel [m]; the squares of smaller ones underflow."""
UPRIGHT = np.array([[0.0, -1.0], [-1.0, 0.0], [0.0, 0.0]])
"""Directions (xyz, row/column) of a detector that faces the beam: rows run down (-y), columns towards -x."""
LEAST_JOULES, MOST_JOULES = 1e-20, 1e-12
"""Photon energies from 0.06 eV to 6 MeV; other numbers are not in joules."""
ENTRY = re.compile(r"entry_\d{1,9}")
NEXUS_DEFINITIONS = "NXcxi_ptycho", "NXptycho"


def recognises(head: Head) -> bool:
    """Return whether top-level names are those of CXI, and no group is an entry that the reader `nexus` accepts."""
    if head.file is None or not any(name == "cxi_version" or ENTRY.fullmatch(name) for name in names_of(head.file)):
        return False
    return not has_entry(head.file)


def has_entry(file: h5py.File) -> bool:
    """Return whether a top-level group is an NXentry that the reader `nexus` accepts.

    In a file that is also CXI, its definition has to be one for ptychography.
    """
    is_cxi = "cxi_version" in names_of(file)
    for _, item in own(file):
        if isinstance(item, h5py.Group) and nx_class(item) == "NXentry":
            definition = dict(own(item)).get("definition")
            if not is_cxi or (isinstance(definition, h5py.Dataset) and text(definition) in NEXUS_DEFINITIONS):
                return True
    return False


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of a CXI file; a pixel size in the options replaces its basis vectors, also for positions."""
    with Linked(path, options.links) as linked:
        notes = Notes()
        entry, place = _entry(linked, path, options, notes)
        patterns = patterns_at(linked, place)
        notes.at("patterns", patterns.place)
        notes.sentences += patterns.notes
        detector = _detector(linked, entry, place)
        basis = _basis(linked, detector, path, options.detector_pixel, notes)
        translations = _translations(linked, _translation_names(entry, place, detector), path, notes)
        directions = UPRIGHT if basis is None else basis
        return FileRecord(
            format=FORMAT.name,
            frames=patterns.frames,
            positions=None if translations is None else on_detector(translations, directions),
            raster=patterns.raster,
            **_beam(linked, entry, notes),
            detector=description(linked, linked.group(detector)),
            distance=_distance(linked, detector, basis, notes),
            detector_pixel=None if basis is None else _lengths(basis),
            mask=_mask(linked, detector, notes),
            places=notes.places,
            notes=tuple(notes.sentences),
        )


FORMAT = Format("CXI", recognises, read, (".cxi",))


def _entry(linked: Linked, path: Path, options: LoadOptions, notes: Notes) -> tuple[str, str]:
    """Return the names of the entry and of its patterns: those of the options, or the first ones."""
    if options.patterns is not None:
        first = options.patterns.strip("/").split("/")[0]
        return (first if ENTRY.fullmatch(first) else "entry_1"), options.patterns
    entries = sorted((name for name in names_of(linked.root) if ENTRY.fullmatch(name)), key=_number) or ["entry_1"]
    found: dict[tuple[int, int], tuple[str, str]] = {}
    for entry in entries:
        for place in _places(linked, entry):
            item = linked.get(place)
            if isinstance(item, h5py.Dataset) or (isinstance(item, h5py.Group) and numbered(item)):
                found.setdefault(identity(item), (entry, place))
    if not found:
        raise FileError(f"{path} has no patterns; expected them in {' or '.join(DATA)}.", code="file.incomplete")
    fitting = [
        pair
        for pair in found.values()
        if (item := linked.get(pair[1])) is not None and (isinstance(item, h5py.Group) or looks_like_patterns(item))
    ]
    chosen, *others = fitting or found.values()
    if others:
        names = ", ".join(place for _, place in others)
        notes.add(f"{chosen[1]} is read; the file also has {names}, which patterns='...' selects.")
    return chosen


def _places(linked: Linked, entry: str) -> Iterator[str]:
    """Yield names under which the patterns of an entry may be stored, in the order of preference."""
    for kind in ("data", "image"):
        for group in _numbered(linked, entry, kind):
            yield f"{group}/data"
    for instrument in _numbered(linked, entry, "instrument"):
        for detector in _numbered(linked, instrument, "detector"):
            yield f"{detector}/data"


def _numbered(linked: Linked, parent: str, kind: str) -> list[str]:
    """Return the names of numbered groups (data_1, data_2, ...) in a group, in numerical order."""
    group = linked.group(parent)
    if group is None:
        return []
    return [
        f"{parent}/{name}"
        for name in sorted((n for n in names_of(group) if re.fullmatch(rf"{kind}_\d{{1,9}}", n)), key=_number)
    ]


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _detector(linked: Linked, entry: str, patterns: str) -> str:
    """Return the name of the detector: the one that contains the patterns, has the same number, or is the first."""
    names = [
        detector
        for instrument in _numbered(linked, entry, "instrument")
        for detector in _numbered(linked, instrument, "detector")
    ]
    item = linked.get(patterns)
    for name in names:
        data = linked.get(f"{name}/data")
        if patterns.strip("/").startswith(f"{name}/") or (
            data is not None and item is not None and identity(data) == identity(item)
        ):
            return name
    number = re.search(r"/(?:data|image)_(\d+)/", patterns)
    same = [name for name in names if number is not None and name.endswith(f"_{number[1]}")]
    return next(iter(same or names), f"{entry}/instrument_1/detector_1")


def _beam(linked: Linked, entry: str, notes: Notes) -> dict[str, Any]:
    """Return what the sources state: arguments of `FileRecord`."""
    found: dict[str, Any] = {"wavelength": None, "energy": None}
    for instrument in _numbered(linked, entry, "instrument"):
        for source in (*_numbered(linked, instrument, "source"), *_numbered(linked, instrument, "beam")):
            if found["wavelength"] is None:
                found["wavelength"] = notes.number(
                    "wavelength", quantity(linked.dataset(f"{source}/wavelength"), "length", "m")
                )
            if found["energy"] is None:
                found["energy"] = photon_energy(linked.dataset(f"{source}/energy"), notes)
    return found


DESCRIPTIONS = "description", "detector_description", "detector_name", "type", "local_name"


def description(linked: Linked, detector: h5py.Group | None) -> str:
    """Return what a group says about its detector ("Dectris ARINA Si")."""
    if detector is None:
        return ""
    return " ".join(found for name in DESCRIPTIONS if (found := text(linked.dataset(name, detector))))


def photon_energy(item: h5py.Dataset | None, notes: Notes) -> float | None:
    """Return the energy [eV] in a dataset in joules; implausible values without a unit are taken as eV or keV.

    Whether it is of photons or of electrons is decided later, by `beam_of`.
    """
    found = quantity(item, "energy", "J")
    if item is None or found is None or found.value is None or not found.value > 0:
        notes.add("" if found is None else found.note)
        return None
    joules = found.value * ELECTRON_VOLT
    if found.stated or LEAST_JOULES <= joules <= MOST_JOULES:
        return notes.number("energy", found)
    unit, scale = ("eV", 1.0) if joules >= 100 else ("keV", 1e3)
    notes.add(f"{where(item)} is {joules:.6g} without a unit, which is implausible in joules; it is taken as {unit}.")
    notes.at("energy", where(item))
    return joules * scale


def _basis(
    linked: Linked, detector: str, path: Path, detector_pixel: tuple[float, float] | None, notes: Notes
) -> NDArray[np.float64] | None:
    """Return the basis vectors (xyz, row/column) [m]: steps between adjacent detector rows and columns."""
    if detector_pixel is None:
        stored = linked.dataset(f"{detector}/basis_vectors")
        if stored is not None:
            basis, note = lengths(stored, "basis vectors")
            basis = basis.T if basis.shape == (2, 3) else basis
            right = basis.shape == (3, 2) and np.isfinite(basis).all() and min(_lengths(basis)) > SMALLEST
            if not right or np.linalg.matrix_rank(basis) < 2:
                raise FileError(
                    f"{path} has basis vectors {values_text(basis)}; expected two that are not parallel, (3, 2) "
                    "or (2, 3).",
                    code="file.unexpected-content",
                )
            notes.add(note)
            notes.at("detector_pixel", where(stored))
            return basis
        detector_pixel = pixel_sizes(linked, linked.group(detector), notes)
        if detector_pixel is None:
            return None
        if not (np.isfinite(detector_pixel).all() and min(detector_pixel) > SMALLEST):
            raise FileError(
                f"{path} has detector pixels of {detector_pixel} m; expected positive, finite lengths.",
                code="file.unexpected-content",
                fields=("detector_pixel",),
            )
    return UPRIGHT * np.asarray(detector_pixel)


def pixel_sizes(linked: Linked, detector: h5py.Group | None, notes: Notes) -> tuple[float, float] | None:
    """Return the size (y, x) of a detector pixel [m]; if one is missing, the pixel is taken as square."""
    if detector is None:
        return None
    found = [quantity(linked.dataset(f"{axis}_pixel_size", detector), "length", "m") for axis in ("y", "x")]
    sizes = [size for size in (notes.number("detector_pixel", one) for one in found) if size is not None]
    return (sizes[0], sizes[-1]) if sizes else None


def _distance(linked: Linked, detector: str, basis: NDArray[np.float64] | None, notes: Notes) -> float | None:
    found = notes.number("distance", quantity(linked.dataset(f"{detector}/distance"), "length", "m"))
    if found is not None:
        return found
    if basis is None:
        return None
    normal = np.cross(basis[:, 0], basis[:, 1])
    for name in ("corner_position", "geometry_1/translation"):
        item = linked.dataset(f"{detector}/{name}")
        if item is not None and item.size == 3:
            place, note = lengths(item, "the detector's position")
            notes.add(note)
            notes.at("distance", where(item))
            return float(abs(np.dot(place.ravel(), normal / np.linalg.norm(normal))))
    return None


def _translation_names(entry: str, patterns: str, detector: str) -> tuple[str, ...]:
    """Return names under which the translations of these patterns may be stored."""
    beside = patterns.strip("/").rpartition("/")[0]
    names = [f"{beside}/translation", f"{entry}/data_1/translation", f"{entry}/image_1/translation"]
    number = re.search(r"\d{1,9}$", beside)  # of the group with the patterns: data_2, or another program's detector2
    numbers = (int(number[0]) if number else 1, 1)
    names += [f"{entry}/sample_{n}/geometry_{n}/translation" for n in numbers]
    return tuple(dict.fromkeys([*names, f"{detector}/translation"]))


def _translations(linked: Linked, names: tuple[str, ...], path: Path, notes: Notes) -> NDArray[np.float64] | None:
    """Return translations (pattern, xyz) of the SAMPLE [m] from the first of these datasets that exists."""
    found = next((item for item in map(linked.dataset, names) if item is not None), None)
    if found is None:
        return None
    if not np.issubdtype(found.dtype, np.number):
        raise FileError(
            f"{path} has translations of type {found.dtype} at {where(found)}; expected numbers [m].",
            code="file.unexpected-content",
        )
    translations, note = lengths(found, "translations")
    notes.add(note)
    if translations.ndim == 3 and translations.shape[2] in (2, 3):
        translations = translations.reshape(-1, translations.shape[2])  # (row, column, xyz) of a raster
    if translations.ndim != 2 or translations.shape[1] not in (2, 3):
        raise FileError(
            f"{path} has translations of shape {translations.shape} at {where(found)}; expected (pattern, 3): "
            "x, y, z [m].",
            code="file.unexpected-content",
        )
    notes.at("positions", where(found))
    if translations.shape[1] == 2:
        translations = np.column_stack([translations, np.zeros(len(translations))])
    return translations


def on_detector(translations: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return positions (pattern, yx) [m] of the probe along the detector's rows and columns.

    translations: (pattern, xyz) of the sample. basis: (xyz, row/column) of the detector.
    """
    return -translations @ np.linalg.pinv(basis / np.linalg.norm(basis, axis=0)).T


def _lengths(basis: NDArray[np.float64]) -> tuple[float, float]:
    height, width = np.linalg.norm(basis, axis=0)
    return float(height), float(width)


def _mask(linked: Linked, detector: str, notes: Notes) -> NDArray[np.bool_] | None:
    for name in ("mask", "mask_shared"):
        stored = linked.dataset(f"{detector}/{name}")
        if stored is None:
            continue
        values: NDArray[Any] = array(stored, "a mask")
        if values.dtype.kind not in "biuf":
            raise FileError(
                f"{linked.path} has a mask of type {values.dtype} at {where(stored)}; expected numbers.",
                code="file.unexpected-content",
            )
        notes.at("mask", where(stored))
        bits = values.astype(np.int64)
        good: NDArray[np.bool_] = (bits == 0) | (bits == SIGNAL_ABOVE_BACKGROUND)
        if good.ndim == 3:
            notes.add(f"{where(stored)} has a mask for each pattern; pixels that are bad in any pattern are masked.")
            return np.asarray(good.all(0))
        return good
    return None
