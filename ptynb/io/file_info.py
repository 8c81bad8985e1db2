"""What is in a file, before anything is done with it: what `ptynb info` prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import Frames
from ptynb.data.scan import AnyGeometry, Scan
from ptynb.io.checkpoint_file import FORMAT as STATE
from ptynb.io.load import find, looked_at
from ptynb.io.reading.hdf5_links import own
from ptynb.io.reading.memory_limit import mapped
from ptynb.io.reading.packed_patterns import PackedFrames
from ptynb.io.reading.records import FileRecord, Given, missing, pairs
from ptynb.io.reading.sanity_checks import look_at, look_at_frames
from ptynb.io.reading.scan_assembly import assemble
from ptynb.io.result_file import FORMAT as RESULT
from ptynb.io.scan_file import FORMAT as SCAN
from ptynb.io.scan_file import read_scan
from ptynb.table import Table, Tabular

QUICK = 2**26
"""Bytes of patterns that are unpacked for a look at them: more would take longer than a user waits."""
PTYNB_OWN = {
    RESULT: ("a result of ptynb", "result = ptynb.load_result({path!r})"),
    STATE: ("a kept state of ptynb", "recon = ptynb.resume({path!r})"),
}


@dataclass(frozen=True)
class Fact:
    """One thing that is known: its name, value and unit for a reader, and where it came from (a place, or "given")."""

    name: str
    value: str
    unit: str = ""
    place: str = ""


@dataclass(frozen=True)
class Lack:
    """One thing that is missing, and the words that give it."""

    name: str
    give: str


@dataclass(frozen=True)
class FileInfo(Tabular):
    """What a file is, and what it says.

    path: of the file. format: its name for a reader ("CXI"). facts: what is known of it. missing: what is missing of a
    scan. notes: what was guessed, and what else the user should know. problem: why it can't be opened as it is; None
    where it can. open: the line of Python that opens it, with what is missing to be filled in.
    """

    path: str
    format: str
    facts: tuple[Fact, ...]
    missing: tuple[Lack, ...]
    notes: tuple[str, ...]
    problem: str | None
    open: str

    def table(self) -> Table:
        """Name, value, unit and place of what is known; above it what was guessed, what is missing, how to open it."""
        rows = tuple((fact.name, fact.value, fact.unit, fact.place) for fact in self.facts)
        sentences = [f"{self.path}: {self.format}."]
        sentences += [f"REMARK: {remark}" for remark in self.notes]
        sentences += [f"MISSING: {lack.name}; give {lack.give}" for lack in self.missing]
        sentences += [] if self.problem is None else [f"PROBLEM: {self.problem}"]
        return Table(("what", "value", "unit", "where"), rows, "\n".join([*sentences, f"Open it: {self.open}"]))


def info(
    path: str | Path,
    *,
    patterns: str | None = None,
    positions: str | Path | ArrayLike | None = None,
    mask: str | Path | ArrayLike | None = None,
    units: str = "metres",
    raster: tuple[int, int] | None = None,
    step: float | tuple[float, float] | None = None,
    rotation: float | None = None,
    wavelength: float | None = None,
    energy: float | None = None,
    voltage: float | None = None,
    distance: float | None = None,
    detector_pixel: float | tuple[float, float] | None = None,
    angular_pixel: float | tuple[float, float] | None = None,
    clip_negative: bool = False,
    links: str = "folder",
) -> FileInfo:
    """What is in a file: format, what it says of the scan and where, what is missing, and what had to be guessed.

    Takes what `load` takes. Results, kept states and masks of ptynb are named, with the line that opens them.
    Raises FileError for a file that is of no known format, or broken.
    """
    path = Path(path).expanduser()
    given = Given(
        patterns=patterns,
        positions=positions,
        mask=mask,
        units=units,
        rotation=rotation,
        wavelength=wavelength,
        energy=energy,
        voltage=voltage,
        distance=distance,
        clip_negative=clip_negative,
        links=links,
        **pairs(raster=raster, step=step, detector_pixel=detector_pixel, angular_pixel=angular_pixel),
    )
    with looked_at(path) as head:
        kind = str(head.file.attrs.get("format", "")) if head.file is not None else ""
        if kind in PTYNB_OWN:
            return _of_ptynb(path, kind, head.file)
        if head.file is not None and kind != SCAN and _is_mask(head.file):
            return _of_mask(path, head.file["mask"].shape, bool)
    if kind == SCAN:
        scan = read_scan(path)
        facts, remarks, problem = tuple(_of_scan(scan)), tuple[str, ...](), None
        try:
            remarks = look_at(scan)
        except ValueError as error:
            problem = str(error)
        return FileInfo(str(path), "a scan of ptynb", facts, (), remarks, problem, _line(path, {}, ()))
    if path.suffix == ".npy":
        array = mapped(path, "an array of numbers")
        if array.ndim == 2 and np.issubdtype(array.dtype, np.bool_):
            return _of_mask(path, array.shape, array.dtype)
    return _of_found(path, find(path, given), given)


def _of_found(path: Path, found: FileRecord, given: Given) -> FileInfo:
    lacks = tuple(Lack(lack.name, lack.give) for lack in missing(found, given))
    problem, facts, remarks = None, tuple(_facts(found, given)), found.notes
    unpack = True
    try:
        if isinstance(found.frames, PackedFrames) and found.frames.nbytes > QUICK:
            unpack, remarks = False, (*remarks, f"{found.frames.note} None of them was looked at.")
            found.frames.check()
        if not lacks:
            scan = assemble(found, given, path, unpack)
            facts += tuple(_derived(scan))
            remarks += look_at(scan)
        elif found.frames is not None:
            remarks += look_at_frames(found.frames)
    except ValueError as error:
        problem = str(error)
    names = {name: getattr(given, name) for name in given.names}
    return FileInfo(str(path), found.format, facts, lacks, remarks, problem, _line(path, names, lacks))


def _facts(found: FileRecord, given: Given) -> Iterator[Fact]:
    """What the file and its user say, the user's in the place of the file's."""
    if found.frames is not None:
        count, height, width = found.frames.shape
        stored = f"{count} of {height} x {width}, {found.frames.dtype}"
        yield Fact("patterns", stored, "counts", _place(found, "patterns"))
        yield _in_memory(found.frames)
    positions = found.positions if found.positions is not None else found.pixel_positions
    if given.positions is not None:
        yield Fact("positions", "as given", given.units, "given")
    elif positions is not None and not (given.raster or given.step):
        yield _spanned(positions, "object pixels" if found.positions is None else "m", _place(found, "positions"))
    else:
        for name in ("raster", "step"):
            yield from _one(found, given, name, "m" if name == "step" else "positions")
    yield from _one(found, given, "rotation", "rad")
    if found.geometry is not None:
        yield from _of_geometry(found.geometry)
    else:
        given_beam = given.beam
        wavelength = found.wavelength if given_beam is None else given_beam
        place = "given" if given_beam is not None else _place(found, "wavelength") or _place(found, "energy")
        if wavelength is not None:
            yield Fact("wavelength", f"{wavelength:.6g}", "m", place)
        for name, unit in (("distance", "m"), ("detector_pixel", "m"), ("angular_pixel", "rad")):
            yield from _one(found, given, name, unit)
    if given.mask is not None:
        yield Fact("mask", "as given", "", "given")
    elif found.mask is not None:
        yield Fact("mask", _bad(found.mask), "", _place(found, "mask"))
    for name, guess in (("probe", found.probe), ("object", found.object)):
        if guess is not None:
            yield Fact(f"{name}, first guess", " x ".join(map(str, guess.shape)), "", _place(found, name))


def _in_memory(frames: Frames) -> Fact:
    return Fact("patterns in memory", f"{frames.nbytes / 1e6:.4g}", "MB", "computed")


def _one(found: FileRecord, given: Given, name: str, unit: str) -> Iterator[Fact]:
    value, place = getattr(given, name), "given"
    if value is None:
        value, place = getattr(found, name), _place(found, name)
    if value is not None:
        yield Fact(name.replace("_", " "), _shown(value), unit, place)


def _bad(mask: NDArray[np.bool_]) -> str:
    return f"{int((~mask).sum())} of {mask.size} pixels bad"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " x ".join(f"{one:.6g}" for one in value)
    return f"{value:.6g}"


def _spanned(positions: Any, unit: str, place: str) -> Fact:
    if positions.ndim != 2 or not len(positions) or not np.isfinite(positions).all():
        return Fact("positions", f"of shape {positions.shape}", unit, place)
    extent = " x ".join(f"{side:.4g}" for side in np.ptp(positions, axis=0))
    return Fact("positions", f"{len(positions)} over {extent}", unit, place)


def _derived(scan: Scan) -> Iterator[Fact]:
    """What follows from the rest."""
    if scan.pixel_size is not None:
        yield Fact("object pixel", " x ".join(f"{side:.6g}" for side in scan.pixel_size), "m", "computed")
    if len(scan) > 1:
        frame = scan.object_frame(0)
        yield Fact("object", f"{frame.shape[0]} x {frame.shape[1]}", "object pixels", "computed")


def _of_geometry(geometry: AnyGeometry) -> Iterator[Fact]:
    yield Fact("wavelength", f"{geometry.wavelength:.6g}", "m")
    if isinstance(geometry, Geometry):
        yield Fact("distance", f"{geometry.distance:.6g}", "m")
    if isinstance(geometry, NearField):
        yield Fact("focus to sample", f"{geometry.focus_to_sample:.6g}", "m")
        yield Fact("sample to detector", f"{geometry.sample_to_detector:.6g}", "m")
    if isinstance(geometry, Geometry | NearField):
        yield Fact("detector pixel", _shown(geometry.detector_pixel), "m")


def _of_scan(scan: Scan) -> Iterator[Fact]:
    count, height, width = scan.frames.shape
    yield Fact("patterns", f"{count} of {height} x {width}, {scan.frames.dtype}", "counts", "patterns")
    yield _in_memory(scan.frames)
    yield _spanned(scan.positions, "object pixels", "positions")
    if scan.geometry is not None:
        yield from _of_geometry(scan.geometry)
    if scan.mask is not None:
        yield Fact("mask", _bad(scan.mask), "", "mask")
    for name, guess in (("probe", scan.probe), ("object", scan.object)):
        if guess is not None:
            yield Fact(f"{name}, first guess", " x ".join(map(str, guess.shape)), "", name)
    yield from _derived(scan)


def _of_ptynb(path: Path, kind: str, file: h5py.File) -> FileInfo:
    words, line = PTYNB_OWN[kind]
    found = dict(own(file))
    facts = [Fact("version", str(file.attrs.get("version", "unknown")))]
    for name in ("object", "probe", "positions"):
        item = found.get(name)
        if isinstance(item, h5py.Dataset):
            facts.append(Fact(name, " x ".join(map(str, item.shape)) + f", {item.dtype}", "", name))
    return FileInfo(str(path), words, tuple(facts), (), (), None, line.format(path=str(path)))


def _is_mask(file: h5py.File) -> bool:
    found = dict(own(file))
    return set(found) == {"mask"} and isinstance(found["mask"], h5py.Dataset) and found["mask"].ndim == 2


def _of_mask(path: Path, shape: tuple[int, ...], dtype: Any) -> FileInfo:
    facts = (Fact("mask", " x ".join(map(str, shape)), "True where the detector works"),)
    return FileInfo(str(path), "a mask", facts, (), (), None, f"scan = ptynb.load(..., mask={str(path)!r})")


def _place(found: FileRecord, name: str) -> str:
    return found.places.get(name, "")


def _line(path: Path, names: dict[str, Any], lacks: tuple[Lack, ...]) -> str:
    """The line that opens a scan, with what was given and with what is missing."""
    words = [repr(str(path))]
    for name, value in names.items():
        plain = isinstance(value, str | int | float | tuple)
        shown = repr(str(value)) if isinstance(value, Path) else repr(value) if plain else "..."
        words.append(f"{name}={shown}")
    words += [f"{lack.give.partition('=')[0]}=..." for lack in lacks]
    return f"scan = ptynb.load({', '.join(words)})"
