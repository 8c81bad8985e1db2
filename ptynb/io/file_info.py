"""Content of a file, as `ptynb info` prints it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.cut_pictures import length_text
from ptynb.data.geometry import Geometry, NearField
from ptynb.data.scan import AnyGeometry, Scan
from ptynb.exceptions import ScanError
from ptynb.io.checkpoint_file import FORMAT as CHECKPOINT
from ptynb.io.hdf5_file import own
from ptynb.io.load import (
    assemble,
    check_patterns,
    find,
    missing,
    opened,
    positions_in_metres,
    positions_in_pixels,
    unusual_step,
)
from ptynb.io.reading.packed_patterns import PackedFrames
from ptynb.io.reading.reader_interface import FileRecord, Missing
from ptynb.io.reading.safe_reading import mapped
from ptynb.io.reading.shadow_motion import shadow_motion
from ptynb.io.result_file import FORMAT as RESULT
from ptynb.io.scan_file import FORMAT as SCAN
from ptynb.io.scan_file import read_scan
from ptynb.kernels.window_sides import slow_window
from ptynb.preparation.bright_field_disc import bright_field_disc
from ptynb.preparation.rotation_fit import FEWEST_PATTERNS, ScanRotation, nearest_to_centre, rotation_if_known
from ptynb.settings.load_options import LoadOptions, takes_load_options
from ptynb.table import Table, Tabular

DISC_OF = 32
"""Largest number of patterns whose mean shows the bright-field disc."""
QUICK = 2**26
"""Limit of the bytes of patterns that are unpacked to check them; more would take too long for `info`."""
GLANCE = 2**24
"""Limit of the bytes of patterns that are read to find their orientation: 128 patterns of 256 x 256 and 16 bits."""
PARALLEL = 0.03
"""Deviation of a measured magnification from 1 that a parallel beam may have."""
PTYNB_OWN = {
    RESULT: ("a result of ptynb", "result = ptynb.load_result({path!r})"),
    CHECKPOINT: ("a checkpoint of ptynb", "recon = ptynb.resume({path!r})"),
}


@dataclass(frozen=True)
class Fact:
    """A known value.

    Parameters
    ----------
    name : str
        Name of the quantity.
    value : str
        Value as text.
    unit : str
        Unit of the value.
    place : str
        Where it was found in the file; "given" for options, "computed" for derived values.
    parts : tuple of str or tuple of float
        The value as words and numbers, of which the last is in this unit; empty for words only.
    """

    name: str
    value: str
    unit: str = ""
    place: str = ""
    parts: tuple[str | tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class FileInfo(Tabular):
    """What a file contains.

    Parameters
    ----------
    path : str
        Path of the file.
    format : str
        Name of the format, such as "CXI".
    facts : tuple of Fact
        Known values.
    missing : tuple of Missing
        Metadata that a scan needs and the file lacks, with the options of `load` that supply them.
    notes : tuple of str
        What was guessed, and other remarks.
    problem : str or None
        Why the file cannot be opened as it is; None if it can.
    open : str
        Line of Python that opens the file, with "..." for what is missing.
    suggested : dict of str to Any
        Options of `load` that fit what the file states, or what its patterns look like, and were not given.
    """

    path: str
    format: str
    facts: tuple[Fact, ...]
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]
    problem: str | None
    open: str
    suggested: dict[str, Any] = field(default_factory=dict)

    def table(self) -> Table:
        """Return the facts as a table, below what was guessed, what is missing and how to open the file.

        Returns
        -------
        Table
            Name, value, unit and place of each fact.
        """
        rows = tuple((fact.name, fact.value, fact.unit, fact.place) for fact in self.facts)
        lines = [f"{self.path}: {self.format}."]
        lines += [f"REMARK: {remark}" for remark in self.notes]
        lines += [f"MISSING: {lack.name}; give {lack.give}" for lack in self.missing]
        lines += [] if self.problem is None else [f"PROBLEM: {self.problem}"]
        return Table(("what", "value", "unit", "where"), rows, "\n".join([*lines, f"Open it: {self.open}"]))


@takes_load_options(LoadOptions)
def info(path: str | Path, options: LoadOptions) -> FileInfo:
    """Return what a file contains: format, metadata and where they are, what is missing, and what was guessed.

    Results, checkpoints and masks of ptynb are recognised too, with the line of Python that opens them.

    Parameters
    ----------
    path : str or Path
        File, or folder of a zarr store or of TIFF files.
    {options}

    Returns
    -------
    FileInfo
        Facts with value, unit and place; shown as a table.

    Raises
    ------
    FileError
        If the file is missing, damaged, or of no supported format.
    InvalidValueError, InvalidTypeError
        If an option is invalid or unknown.
    """
    path = Path(path).expanduser()
    with opened(path) as head:
        kind = str(head.file.attrs.get("format", "")) if head.file is not None else ""
        if kind in PTYNB_OWN:
            return _of_ptynb(path, kind, head.file)
        if head.file is not None and kind != SCAN:
            inside = dict(own(head.file))
            if set(inside) == {"mask"} and isinstance(inside["mask"], h5py.Dataset) and inside["mask"].ndim == 2:
                return _of_mask(path, inside["mask"].shape)
    if path.suffix == ".npy":
        array = mapped(path, "an array of numbers")
        if array.ndim == 2 and np.issubdtype(array.dtype, np.bool_):
            return _of_mask(path, array.shape)
    if kind == SCAN:
        scan = read_scan(path)
        remarks, problem, found = tuple[str, ...](), None, None
        try:
            remarks = _remarks_on_patterns(scan)
            found = _orientation(scan)
        except ValueError as error:
            problem = str(error)
        facts, remarks = (*_of_scan(scan), *_fact_of(found)), (*remarks, *_remark_on(found))
        return FileInfo(str(path), "a scan of ptynb", facts, (), remarks, problem, _line(path, {}, ()))
    record = find(path, options)
    assert isinstance(record, FileRecord)
    return _of_record(path, record, options)


def _of_record(path: Path, record: FileRecord, options: LoadOptions) -> FileInfo:
    lacks = missing(record, options)
    problem, facts, remarks = None, tuple(_facts(record, options)), record.notes
    arguments, unpack = options.arguments, True
    suggested: dict[str, Any] = {}
    if record.near_field and not options.is_near_field:
        suggested = {"geometry": "near field"}
        arguments |= suggested
    try:
        if isinstance(record.frames, PackedFrames) and record.frames.nbytes > QUICK:
            unpack, remarks = False, (*remarks, f"{record.frames.note} None of them was read.")
            record.frames.check()
        if not lacks:
            looks, like_shadows = _shadows(record, options, path)
            remarks, suggested = (*remarks, *looks), suggested | like_shadows
            scan = assemble(record, options, path, unpack)
            facts += tuple(_derived(scan))
            remarks += unusual_step(scan)
            remarks += _remarks_on_patterns(scan)
            found = _orientation(scan) if unpack else None
            facts, remarks = (*facts, *_fact_of(found)), (*remarks, *_remark_on(found))
            if unpack and options.convergence_angle is not None:
                remarks += _remark_on_disc(scan, options.convergence_angle)
        elif record.frames is not None:
            remarks += check_patterns(record.frames, record.frames.read)
    except ValueError as error:
        problem = str(error)
    line = _line(path, arguments, lacks)
    return FileInfo(str(path), record.format, facts, lacks, remarks, problem, line, suggested)


def _remarks_on_patterns(scan: Scan) -> tuple[str, ...]:
    checked = check_patterns(scan.frames, scan.counts, masked=scan.mask is not None)
    return (*checked, *slow_window(scan.pattern_shape))


def _shadows(record: FileRecord, options: LoadOptions, path: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return a remark, and options, if patterns that are read as far field look like shadows of the near field."""
    distance = options.distance or record.distance
    pixel = options.detector_pixel or record.detector_pixel
    known = distance is not None and pixel is not None and not positions_in_pixels(record, options)
    if options.is_near_field or record.near_field or not known or isinstance(record.frames, PackedFrames):
        return (), {}
    assert record.frames is not None
    assert distance is not None
    assert pixel is not None
    mask = record.mask if record.mask is not None and record.mask.shape == record.frames.shape[1:] else None
    motion = shadow_motion(record.frames, positions_in_metres(record, options, path), mask)
    if motion is None:
        return (), {}
    magnification = motion * float(np.mean(pixel))
    words, suggested = "geometry='near field'", dict[str, Any](geometry="near field")
    if magnification > 1 + PARALLEL:
        focus = f"{distance / (magnification - 1):.3g}"
        words, suggested["focus_to_sample"] = f"{words}, focus_to_sample={focus}", float(focus)
    remark = (
        "The patterns look like shadows of the near field: they are bright up to the corners of the detector, and move "
        f"with the positions, by a pixel in {length_text(1 / motion)} (magnification {magnification:.3g}). If they "
        f"are, give {words}, with the distance that was measured."
    )
    return (remark,), suggested


def _orientation(scan: Scan) -> ScanRotation | None:
    """Return the rotation between scan and detector if a few patterns at the centre show it."""
    frames = scan.frames
    for count in (4096, 2048, 1024, 512, 256, 128, FEWEST_PATTERNS):
        chunks = np.unique(nearest_to_centre(scan.positions, count) // frames.stored_together)
        if len(chunks) * frames.stored_together * (frames.nbytes // len(scan)) <= GLANCE:
            return rotation_if_known(scan, count)
    return None


def _fact_of(found: ScanRotation | None) -> Iterator[Fact]:
    if found is not None:
        yield Fact("orientation", str(found) if found.needed else "positions agree with the detector", "", "computed")


def _remark_on(found: ScanRotation | None) -> Iterator[str]:
    if found is not None and found.needed:
        yield (
            f"The centres of mass of the patterns fit the positions if {found} (probability of a false alarm "
            f"{found.false_alarm:.0e}): {'; '.join(found.lines)}. A further 180° fits equally, with the opposite phase."
        )


def _remark_on_disc(scan: Scan, angle: float) -> tuple[str, ...]:
    """Return a remark if the bright-field disc of some patterns contradicts the convergence angle [rad]."""
    one = scan.frames.stored_together * (scan.frames.nbytes // len(scan))
    some = np.unique(np.linspace(0, len(scan) - 1, max(1, min(DISC_OF, GLANCE // max(1, one)))).astype(int)).tolist()
    mean = np.mean([scan.counts(index, index + 1)[0] for index in some], 0)
    try:
        disc = bright_field_disc(scan, mean)
    except ScanError:
        return ()
    assert isinstance(scan.geometry, Geometry)  # of which the probe of a lens was made
    found = disc.radius * math.sqrt(math.prod(scan.geometry.detector_pixel)) / scan.geometry.distance
    if abs(found / angle - 1) < max(0.02, 0.3 / disc.radius):
        return ()
    return (
        f"The bright-field disc has a radius of {found * 1e3:.4g} mrad with these pixels, and the convergence angle is "
        f"{angle * 1e3:.4g} mrad; if the angle is right, pt.preparation.calibrate_from_disc(scan, {angle!r}) corrects "
        "the pixel size.",
    )


def _facts(record: FileRecord, options: LoadOptions) -> Iterator[Fact]:
    """Yield values of the options, else of the file."""
    if record.frames is not None:
        count, height, width = record.frames.shape
        stored = (f"{count} of ", (height, width), f", {record.frames.dtype}")
        yield _fact("patterns", *stored, unit="counts", place=_place(record, "patterns"))
        yield Fact("patterns in memory", f"{record.frames.nbytes / 1e6:.4g}", "MB", "computed")
    positions = record.positions if record.positions is not None else record.pixel_positions
    if options.positions is not None:
        yield Fact("positions", "as given", options.units, "given")
    elif positions is not None and not (options.raster or options.step):
        yield _spanned(positions, "object pixels" if record.positions is None else "m", _place(record, "positions"))
    else:
        for name in ("raster", "step"):
            yield from _one(record, options, name, "m" if name == "step" else "positions")
    yield from _one(record, options, "rotation", "rad")
    if record.geometry is not None:
        yield from _of_geometry(record.geometry)
    else:
        wavelength = record.wavelength if options.beam is None else options.beam
        place = "given" if options.beam is not None else _place(record, "wavelength") or _place(record, "energy")
        if wavelength is not None:
            yield _fact("wavelength", (wavelength,), unit="m", place=place)
        if record.near_field or options.is_near_field:
            place = "given" if options.is_near_field else record.near_field
            yield Fact("geometry", "near field", "", place)
        names = [("distance", "m"), ("detector_pixel", "m"), ("angular_pixel", "rad")]
        for name, unit in (*names, *([("focus_to_sample", "m")] if options.is_near_field else [])):
            yield from _one(record, options, name, unit)
    if options.motion is not None:
        yield Fact("motion", "as given", options.units, "given")
    if options.mask is not None:
        yield Fact("mask", "as given", "", "given")
    elif record.mask is not None:
        yield Fact("mask", _bad(record.mask), "", _place(record, "mask"))
    if options.probe is not None:
        yield Fact("probe, first guess", "as given", "", "given")
    if options.convergence_angle is not None:
        yield _fact("convergence angle", (options.convergence_angle,), unit="rad", place="given")
        yield Fact("probe, first guess", "of this lens", "", "given")
    for name, guess in (("probe", None if options.probe is not None else record.probe), ("object", record.object)):
        if guess is not None:
            yield _fact(f"{name}, first guess", guess.shape, place=_place(record, name))


def _one(record: FileRecord, options: LoadOptions, name: str, unit: str) -> Iterator[Fact]:
    value, place = getattr(options, name), "given"
    if value is None:
        value, place = getattr(record, name), _place(record, name)
    if value is not None:
        numbers = value if isinstance(value, tuple) else (value,)
        yield _fact(name.replace("_", " "), numbers, unit=unit, place=place)


def _fact(name: str, *parts: str | tuple[float, ...], unit: str = "", place: str = "") -> Fact:
    """Return a fact made of words and numbers."""
    return Fact(name, "".join(one if isinstance(one, str) else _shown(one) for one in parts), unit, place, parts)


def _bad(mask: NDArray[np.bool_]) -> str:
    return f"{int((~mask).sum())} of {mask.size} pixels bad"


def _shown(numbers: tuple[float, ...]) -> str:
    return " x ".join(str(one) if isinstance(one, int) else f"{one:.6g}" for one in numbers)


def _spanned(positions: Any, unit: str, place: str) -> Fact:
    if positions.ndim != 2 or not len(positions) or not np.isfinite(positions).all():
        return Fact("positions", f"of shape {positions.shape}", unit, place)
    extent = tuple(float(f"{side:.4g}") for side in np.ptp(positions, axis=0))
    return _fact("positions", f"{len(positions)} over ", extent, unit=unit, place=place)


def _derived(scan: Scan) -> Iterator[Fact]:
    """Yield derived values."""
    if isinstance(scan.geometry, NearField):
        yield from _of_shadows(scan.geometry, scan.pattern_shape)
    if scan.pixel_size is not None:
        yield _fact("object pixel", scan.pixel_size, unit="m", place="computed")
    if len(scan) > 1:
        frame = scan.object_frame(0)
        yield _fact("object", frame.shape, unit="object pixels", place="computed")


def _of_shadows(geometry: NearField, window: tuple[int, int]) -> Iterator[Fact]:
    beam = "parallel beam" if math.isinf(geometry.focus_to_sample) else "beam from a focus"
    yield Fact("magnification", f"{geometry.magnification:.6g}, {beam}", "", "computed")
    yield _fact("effective distance", (geometry.effective_distance,), unit="m", place="computed")
    numbers = _shown(geometry.fresnel_number()), _shown(geometry.fresnel_number(window))
    yield Fact("Fresnel number", f"{numbers[0]} of a pixel, {numbers[1]} of the window", "", "computed")


def _of_geometry(geometry: AnyGeometry) -> Iterator[Fact]:
    yield _fact("wavelength", (geometry.wavelength,), unit="m")
    if isinstance(geometry, Geometry):
        yield _fact("distance", (geometry.distance,), unit="m")
    if isinstance(geometry, NearField):
        yield _fact("focus to sample", (geometry.focus_to_sample,), unit="m")
        yield _fact("sample to detector", (geometry.sample_to_detector,), unit="m")
    if isinstance(geometry, Geometry | NearField):
        yield _fact("detector pixel", geometry.detector_pixel, unit="m")


def _of_scan(scan: Scan) -> Iterator[Fact]:
    names = ("patterns", "positions", "mask", "probe", "object")
    record = FileRecord(
        format=SCAN,
        frames=scan.frames,
        pixel_positions=scan.positions,
        geometry=scan.geometry,
        mask=scan.mask,
        probe=scan.probe,
        object=scan.object,
        places=dict(zip(names, names, strict=True)),
    )
    yield from _facts(record, LoadOptions())
    yield from _derived(scan)


def _of_ptynb(path: Path, kind: str, file: h5py.File) -> FileInfo:
    description, line = PTYNB_OWN[kind]
    inside = dict(own(file))
    facts = [Fact("version", str(file.attrs.get("version", "unknown")))]
    for name in ("object", "probe", "positions"):
        item = inside.get(name)
        if isinstance(item, h5py.Dataset):
            facts.append(_fact(name, item.shape, f", {item.dtype}", place=name))
    return FileInfo(str(path), description, tuple(facts), (), (), None, line.format(path=str(path)))


def _of_mask(path: Path, shape: tuple[int, ...]) -> FileInfo:
    facts = (_fact("mask", shape, unit="True where the detector works"),)
    return FileInfo(str(path), "a mask", facts, (), (), None, f"scan = ptynb.load(..., mask={str(path)!r})")


def _place(record: FileRecord, name: str) -> str:
    return record.places.get(name, "")


def _line(path: Path, names: dict[str, Any], lacks: tuple[Missing, ...]) -> str:
    """Return the line of Python that opens a scan, with the given options and placeholders for missing ones."""
    arguments = [repr(str(path))]
    for name, value in names.items():
        plain = isinstance(value, str | int | float | tuple | dict)
        shown = repr(str(value)) if isinstance(value, Path) else repr(value) if plain else "..."
        arguments.append(f"{name}={shown}")
    arguments += [f"{lack.give.partition('=')[0]}=..." for lack in lacks]
    return f"scan = ptynb.load({', '.join(arguments)})"
