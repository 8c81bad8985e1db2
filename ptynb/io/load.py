"""`load`: open a path as a scan: recognise the format by content, read a record, and create a scan from it.

The reader of a format returns a `FileRecord` and raises no error for missing values: `assemble` does, for all formats.
Numbers in files that only a wrong unit explains are errors; what the user gives is accepted, except for positions that
form no scan. Suspicious patterns (empty, or far larger in memory than in the file) are warnings.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from ptynb import plugins
from ptynb.data.cut_pictures import length_text
from ptynb.data.geometry import metres_to_pixels
from ptynb.data.patterns import Frames
from ptynb.data.scan import AnyGeometry, Scan
from ptynb.exceptions import FileError, PluginError, PtynbError, PtynbWarning, about
from ptynb.io.array_file import read_array, real_numbers
from ptynb.io.formats import (
    cxi,
    emd,
    empad,
    matlab,
    merlin_raw,
    nexus,
    npy,
    plain_hdf5,
    ptyd,
    rosettasciio,
    seq,
    tiff,
    zarr_store,
)
from ptynb.io.hdf5_file import Linked, open_for_reading
from ptynb.io.reading.hdf5_reading import array, factor, units_of
from ptynb.io.reading.packed_patterns import LARGE, PackedFrames
from ptynb.io.reading.reader_interface import FileRecord, Format, Head, Missing
from ptynb.io.reading.reading_errors import unreadable
from ptynb.io.reading.settled_record import check_claims, check_width, place_of, settled
from ptynb.io.scan_file import FORMAT as NATIVE
from ptynb.io.scan_file import read_scan
from ptynb.plugins import Plugin
from ptynb.settings.claimed_values import UNITS
from ptynb.settings.load_options import LoadOptions, takes_load_options
from ptynb.table import gigabytes

FORMATS: tuple[Format, ...] = (
    cxi.FORMAT,
    nexus.FORMAT,
    ptyd.FORMAT,
    emd.FORMAT,
    empad.FORMAT,
    matlab.FORMAT,
    npy.NPY,
    npy.NPZ,
    zarr_store.FORMAT,
    tiff.FORMAT,
    seq.FORMAT,
    merlin_raw.FORMAT,  # before RosettaSciIO, which does not read raw data
    rosettasciio.FORMAT,
    plain_hdf5.FORMAT,  # accepts any HDF5 file: after all others
)
"""Readable formats; the first that recognises a file reads it. Those of plug-ins are asked before the last one."""
SUFFIXES = frozenset(suffix for format in FORMATS for suffix in format.suffixes)
"""Usual ends of the names of scans in these formats, in small letters."""
FIRST_BYTES = 4096
"""Number of first bytes by which formats other than HDF5 are recognised."""
GIVES_GEOMETRY = (
    "wavelength",
    "energy",
    "voltage",
    "distance",
    "detector_pixel",
    "angular_pixel",
    "geometry",
    "focus_to_sample",
)
"""Options that a file with a complete geometry excludes."""

FITTING = (0.002, 0.8)
"""Range of the step between neighbours relative to the window's width in usual scans."""
MOST_NEIGHBOURS = 20_000
SAMPLE = 8
"""Number of patterns, spread over a scan, that are read before it is reported as empty, besides first and last."""
MOST_BYTES = 2**30
"""Limit of the bytes of chunks that are unpacked for this: fewer patterns are read if they are large."""
LARGEST_UNNOTICED = 2**28
"""Bytes of patterns in memory below which there is no warning, however small the file is."""
MOST_TIMES = 1000
"""Ratio of memory to file size that causes a warning: deflate packs 20 electrons on 512 x 512 pixels to 1/900."""


@takes_load_options(LoadOptions)
def load(path: str | Path, options: LoadOptions) -> Scan:
    """Open a scan in any supported format, recognised by its content.

    Metadata are read now, patterns when they are needed: the first and the last one are checked here, the others when
    an engine reads them. Options replace what the file has wrong, or add what it lacks.

    Parameters
    ----------
    path : str or Path
        File, or folder of a zarr store or of TIFF files.
    {options}

    Returns
    -------
    Scan
        The scan; its patterns stay in the file where the format allows it.

    Raises
    ------
    FileError
        If the file is missing, damaged, of no supported format, lacks metadata, or has implausible ones.
    ScanError
        If patterns, positions and mask are inconsistent.
    InvalidValueError, InvalidTypeError
        If an option is invalid or unknown.

    Warns
    -----
    PtynbWarning
        If patterns are unpacked into much memory, seem to be empty, or are far larger than their file.
    """
    path = Path(path).expanduser()
    record = find(path, options)
    scan = record if isinstance(record, Scan) else assemble(record, options, path)
    plugin = None if isinstance(record, Scan) else record.plugin
    return _finished(scan, options, path, () if plugin is None else (plugin,))


def _finished(scan: Scan, options: LoadOptions, path: Path, by: tuple[Plugin, ...]) -> Scan:
    """Warn about suspicious patterns, and record the origin of the scan. by: plug-ins that have read it."""
    if scan.acquisition is not None:  # patterns are still to come
        return scan.loaded_from(path, options.arguments, by)
    for warning in check_patterns(scan.frames, scan.counts, masked=scan.mask is not None):
        warnings.warn(f"{path}: {warning}", PtynbWarning, stacklevel=4)
    return scan.loaded_from(path, options.arguments, by)


def find(path: Path, options: LoadOptions) -> FileRecord | Scan:
    """Return the content of a file from the first format that recognises it; of a file of ptynb, the scan itself."""
    try:
        with opened(path) as head:
            written_by = "" if head.file is None else str(head.file.attrs.get("format", ""))
            # Results and checkpoints of ptynb may resemble other formats.
            chosen = None if written_by.startswith("ptynb") else _recognised(head)
            if chosen is None and written_by != NATIVE:
                raise _unknown(head, written_by)
        if chosen is not None:
            return settled(chosen.read(path, options), options)
    except (FileError, PluginError):
        raise
    except Exception as error:
        raise unreadable(path, error) from error
    if options.names:
        raise FileError(
            f"{path} is a scan file of ptynb, which contains all metadata; leave out {', '.join(options.names)}.",
            code="argument.conflict",
        )
    return read_scan(path)


def _recognised(head: Head) -> Format | None:
    """Return the first format that recognises a file; plug-ins are asked if only the last one is left."""
    last = FORMATS[-1]
    found = next((one for one in FORMATS[:-1] if one.recognises(head)), None)
    found = found or next((one for one in _formats_of_plugins() if one.recognises(head)), None)
    return found or (last if last.recognises(head) else None)


def suffixes() -> frozenset[str]:
    """Return the usual ends of the names of scans, in small letters, in formats of plug-ins, too."""
    return SUFFIXES.union(*(format.suffixes for format in _formats_of_plugins()))


def _formats_of_plugins() -> Iterator[Format]:
    """Yield the formats of plug-ins, imported one after the other; what cannot be used of them is a notice."""
    for plugin in plugins.of_kind("formats"):
        with plugins.isolated():
            yield _guarded(plugin, plugins.instance(plugin, Format))


def _guarded(plugin: Plugin, format: Format) -> Format:
    """Return the format of a plug-in, whose errors name it, with the plug-in in what it reads."""

    def recognises(head: Head) -> bool:
        found = False
        with plugins.isolated(), plugins.guarded(plugin, "cannot say whether a file is of its format", whole=True):
            found = bool(format.recognises(head))
        return found

    def read(path: Path, options: LoadOptions) -> FileRecord:
        with plugins.guarded(plugin, f"cannot read {path.name}"):
            return dataclasses.replace(format.read(path, options), plugin=plugin)

    return dataclasses.replace(format, recognises=recognises, read=read)


@contextmanager
def opened(path: Path) -> Iterator[Head]:
    """Yield the beginning of a file, by which its format is recognised; an open file if it is HDF5."""
    if not path.exists():
        raise FileError(f"There is no file {path}. Working folder: {Path.cwd()}.", code="file.not-found")
    start = b""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(FIRST_BYTES)
    # HDF5 may begin after a user block, as version 7.3 of .mat does.
    if path.is_file() and h5py.is_hdf5(path):
        with open_for_reading(path) as file:
            try:
                yield Head(path, start, file)
            except FileError:
                raise
            except Exception as error:
                raise unreadable(path, error) from error
    else:
        yield Head(path, start, None)


def _unknown(head: Head, written_by: str) -> FileError:
    if head.file is None:
        kind = "a folder" if head.path.is_dir() else "not a readable HDF5 file, and of no other format that is known"
        message = f"{head.path} is {kind}; expected a scan: {', '.join(one.name for one in FORMATS)}, or ptynb's own."
    elif written_by == "ptynb result":
        message = f"{head.path} is a result of ptynb, not a scan; open it with load_result."
    else:
        message = f"{head.path} was written by ptynb ({written_by}), and is not a scan."
    return FileError(message, code="file.unknown-format")


def assemble(record: FileRecord, options: LoadOptions, path: Path, unpack: bool = True) -> Scan:
    """Create a scan from a record and the options. Patterns are not read, except those that have to be unpacked.

    unpack: whether to read patterns that are compressed as a whole into memory (with a warning if they are large).
    """
    if unpack and isinstance(record.frames, PackedFrames):
        record.frames.check()
    check_claims(record, options, path)
    lacks = missing(record, options)
    if lacks:
        names, ways = ", ".join(lack.name for lack in lacks), ", ".join(lack.give for lack in lacks)
        fields = tuple(dict.fromkeys(name for lack in lacks for name in lack.options))
        raise FileError(
            f"{path} ({record.format}) does not contain {names}; give it: load(..., {ways}).",
            code="scan.missing-metadata",
            fields=fields,
        )
    assert record.frames is not None
    if record.near_field and not options.is_near_field:
        raise FileError(
            f"{path} contains patterns of the near field (at {record.near_field}), and is opened as far field; give "
            "geometry='near field'.",
            code="scan.near-field",
            fields=("geometry",),
            proposals={"geometry": "near field"},
        )
    try:
        geometry = _geometry(record, options)
    except FileError:
        raise
    except PtynbError as error:
        error.code = "scan.implausible-metadata"
        raise error.retold(FileError, f"{path}: {error}") from None
    window = record.frames.shape[1:]
    if record.geometry is None:
        check_width(record, geometry, path)
    positions = _positions(record, options, path, geometry)
    if geometry is not None and not positions_in_pixels(record, options) and min(window) > 0:
        _check_positions(positions, window, geometry.object_pixel(window), record, path)
    frames = record.frames
    if unpack and isinstance(frames, PackedFrames):
        if frames.nbytes >= LARGE:
            warnings.warn(f"{path}: {frames.note}", PtynbWarning, stacklevel=4)
        frames = frames.unpacked()
    scan = Scan(
        frames=frames,
        positions=positions,
        centred=record.centred,
        mask=record.mask if options.mask is None else _array(options.mask, path, "mask", record, options).astype(bool),
        probe=record.probe if options.probe is None else _array(options.probe, path, "probe", record, options),
        object=record.object,
        geometry=geometry,
        clip_negative=options.clip_negative,
        motion=None if options.motion is None else _motion(options.motion, record, options, path, geometry),
        name=path.stem,
    )
    angle, defocus = options.convergence_angle, options.defocus
    if angle is None:
        return scan
    return scan.with_probe(convergence_angle=angle, defocus=defocus, aberrations=options.aberrations)


def missing(record: FileRecord, options: LoadOptions) -> tuple[Missing, ...]:
    """Return what a scan needs and neither the file nor the options contain."""
    lacks: list[Missing] = []
    if record.frames is None:
        lacks.append(Missing("the patterns", "patterns='entry/data/data' (the name of their dataset)", ("patterns",)))
    in_pixels = positions_in_pixels(record, options)
    if options.positions is None and record.positions is None and record.pixel_positions is None:
        step = "step=(20e-9, 20e-9) (y, x) [m]"
        if options.raster is None and record.raster is None and record.points is None:
            ways = f"positions=array (pattern, yx) [m], or raster=(rows, columns) and {step}"
            lacks.append(Missing("the positions", ways, ("positions", "raster", "step")))
        elif options.step is None and record.step is None:
            lacks.append(Missing("the scan's step", step, ("step",)))
    if record.geometry is not None or (in_pixels and not options.is_near_field):
        return tuple(lacks)
    if options.beam is None and record.beam_question is not None:
        lacks.append(record.beam_question)
    elif options.beam is None and record.wavelength is None:
        ways = "wavelength=1.24e-10 [m], energy=10e3 (photons, [eV]) or voltage=300e3 [V]"
        lacks.append(Missing("the wavelength", ways, ("wavelength", "energy", "voltage")))
    angle = options.angular_pixel
    if angle is None and not (options.is_near_field or options.detector_pixel or options.distance):
        angle = record.angular_pixel
    if angle is None:
        if options.distance is None and record.distance is None:
            ways = "distance=2.0 [m]" if options.is_near_field else "distance=2.0 [m], or angular_pixel [rad]"
            lacks.append(Missing("the distance to the detector", ways, ("distance",)))
        if options.detector_pixel is None and record.detector_pixel is None:
            ways = "detector_pixel=(55e-6, 55e-6) (y, x) [m]"
            if options.is_near_field:
                lacks.append(Missing("the detector's pixel size", ways, ("detector_pixel",)))
            else:
                either = f"{ways}, or angular_pixel [rad]"
                lacks.append(Missing("the detector's pixel size", either, ("detector_pixel", "angular_pixel")))
    return tuple(lacks)


def positions_in_pixels(record: FileRecord, options: LoadOptions) -> bool:
    """Whether the positions are given in object pixels, not in metres."""
    return options.units == "pixels" if options.positions is not None else record.pixel_positions is not None


def _geometry(record: FileRecord, options: LoadOptions) -> AnyGeometry | None:
    if record.geometry is not None:
        extra = [name for name in GIVES_GEOMETRY if name in options.names]
        if extra:
            raise FileError(
                f"The file contains a complete geometry; leave out {', '.join(extra)}.",
                code="argument.conflict",
                fields=tuple(extra),
            )
        return record.geometry
    parts = ("distance", "detector_pixel", "focus_to_sample")
    found = {name: getattr(record if getattr(options, name) is None else options, name) for name in parts}
    found |= {
        "wavelength": record.wavelength if options.beam is None else options.beam,
        "energy": None,
        "voltage": None,
    }
    if all(name not in options.names for name in ("angular_pixel", "distance", "detector_pixel", "geometry")):
        found["angular_pixel"] = record.angular_pixel
    return options.model_copy(update=found).whole_geometry


def positions_in_metres(record: FileRecord, options: LoadOptions, path: Path) -> NDArray[np.float64]:
    """Return positions (pattern, yx) [m], if they are given in metres."""
    return _positions(record, options, path, None)


def _positions(
    record: FileRecord, options: LoadOptions, path: Path, geometry: AnyGeometry | None
) -> NDArray[np.float64]:
    """Return positions (pattern, yx) [object pixels]."""
    assert record.frames is not None
    pixel = (1.0, 1.0) if geometry is None else geometry.object_pixel(record.frames.shape[1:])
    metres, in_pixels = record.positions, record.pixel_positions
    if options.positions is not None:
        given = _array(options.positions, path, "positions", record, options).astype(np.float64)
        metres, in_pixels = (given, None) if options.units == "metres" else (None, given)
    elif options.raster or options.step or (metres is None and in_pixels is None):
        metres, in_pixels = _raster(record, options, path), None
    if metres is None:
        assert in_pixels is not None
        metres = in_pixels * np.asarray(pixel) if in_pixels.ndim == 2 and in_pixels.shape[1] == 2 else in_pixels
    if metres.ndim != 2 or metres.shape[1] != 2:
        return metres  # Scan raises the error
    turn = _rotation(record, options, path)
    if turn is not None:  # about the mean
        centre = metres.mean(0)
        metres = centre + (metres - centre) @ turn.T
    return metres_to_pixels(metres, pixel)


def _rotation(record: FileRecord, options: LoadOptions, path: Path) -> NDArray[np.float64] | None:
    """Return the matrix (yx, yx) that rotates the scan from x towards y, clockwise as arrays are printed; or None."""
    angle = (record.rotation if options.rotation is None else options.rotation) or 0.0
    if not math.isfinite(angle):
        raise FileError(
            f"{path} has a scan rotation of {angle} rad; expected a finite angle: give rotation= [rad].",
            code="scan.implausible-metadata",
            fields=("rotation",),
        )
    return np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]) if angle else None


def _motion(
    given: str | Path | ArrayLike, record: FileRecord, options: LoadOptions, path: Path, geometry: AnyGeometry | None
) -> NDArray[np.float64]:
    """Return the given displacement during the exposures (pattern, yx) [object pixels]."""
    assert record.frames is not None
    pixel = np.array((1.0, 1.0) if geometry is None else geometry.object_pixel(record.frames.shape[1:]))
    motion = _array(given, path, "motion", record, options).astype(np.float64)
    if motion.ndim != 2 or motion.shape[1] != 2:
        return motion  # Scan raises the error
    metres = motion if options.units == "metres" else motion * pixel
    turn = _rotation(record, options, path)
    return (metres if turn is None else metres @ turn.T) / pixel


def _raster(record: FileRecord, options: LoadOptions, path: Path) -> NDArray[np.float64]:
    """Return positions [m] of a scan line by line, from its first corner, or of the points that the file has."""
    raster = options.raster or record.raster
    step = options.step or record.step
    assert record.frames is not None
    assert step is not None
    count = record.frames.shape[0]
    if record.points is not None and options.raster is None:
        return record.points * step
    assert raster is not None
    if raster[0] * raster[1] != count or min(raster) < 1:
        raise FileError(
            f"{path} has {count} patterns, and the raster has {raster[0]} x {raster[1]} positions; expected as many. "
            f"Give raster=(rows, columns) with a product of {count}.",
            code="scan.raster-mismatch",
            fields=("raster",),
        )
    if 0 in step:
        raise FileError(
            f"The scan's step is {step} m; expected two numbers that are not 0: step=(20e-9, 20e-9).",
            code="scan.implausible-metadata",
            fields=("step",),
        )
    rows, columns = np.indices(raster).reshape(2, -1)
    return np.column_stack([rows * step[0], columns * step[1]])


def _array(
    value: str | Path | ArrayLike, path: Path, name: str, record: FileRecord, options: LoadOptions
) -> NDArray[Any]:
    """Return an array option: an array, the name of a dataset in the file at `path`, or the path of another file."""
    with about(name):
        return _named_array(value, path, name, record, options)


def _named_array(
    value: str | Path | ArrayLike, path: Path, name: str, record: FileRecord, options: LoadOptions
) -> NDArray[Any]:
    if not isinstance(value, str | Path):
        return real_numbers(np.asarray(value), name, "what was given")
    if isinstance(value, str) and path.is_file() and h5py.is_hdf5(path):
        with Linked(path, options.links) as linked:
            stored = linked.dataset(value)
            if stored is not None:
                values = real_numbers(array(stored, name), name, f"{path} at {value}")
                metres = name in ("positions", "motion") and options.units == "metres"
                scale = factor(units_of(stored), "length") if metres else None
                return values if scale is None else values * scale
    inside = record.named(value) if isinstance(value, str) and record.named is not None else None
    if inside is not None:
        return real_numbers(inside, name, f"{path} at {value}")
    beside = Path(value).expanduser()
    if not beside.is_file():
        raise FileError(
            f"{name} is {str(value)!r}, which is neither a dataset of {path} nor a file; name one of them.",
            code="file.not-found",
        )
    return read_array(beside, name)


def neighbour_step(positions: NDArray[np.float64]) -> float | None:
    """Return the median distance of a position to its nearest neighbour; None for few or invalid positions."""
    if positions.ndim != 2 or positions.shape[1] != 2 or len(positions) < 4 or not np.isfinite(positions).all():
        return None
    some = positions[:MOST_NEIGHBOURS]
    return float(np.median(cKDTree(some).query(some, k=2)[0][:, 1]))


def unusual_step(scan: Scan) -> tuple[str, ...]:
    """Return a remark if neighbouring positions are unusually far apart, or close, for the window of the patterns."""
    step, side = neighbour_step(scan.positions), min(scan.pattern_shape)
    if step is None or FITTING[0] <= step / side <= FITTING[1]:
        return ()
    return (
        f"Neighbouring positions are {step:.3g} object pixels apart, where a window has {side}, which is unusual "
        f"({FITTING[0] * side:.2g} to {FITTING[1] * side:.3g}); check their unit (positions= or step= [m]), "
        "wavelength, distance and pixel size.",
    )


def _check_positions(
    positions: NDArray[np.float64], window: tuple[int, int], pixel: tuple[float, float], record: FileRecord, path: Path
) -> None:
    """Raise FileError for positions [object pixels] from metres that form no scan: in one pixel, or without overlap."""
    step = neighbour_step(positions)
    if step is None:
        return
    span = float(np.ptp(positions, axis=0).max())
    if step > min(window):
        problem = f"neighbouring positions are {step:.3g} object pixels apart"
    elif 0 < span < 0.5:
        problem = f"all positions are within {span:.2g} object pixels"
    else:
        return
    # The first unit in which neighbours overlap as they do in scans.
    fits = [unit for scale, unit in UNITS.items() if FITTING[0] < step * scale / min(window) < FITTING[1]]
    fits_inverse = [unit for scale, unit in UNITS.items() if FITTING[0] < step / scale / min(window) < FITTING[1]]
    meant = f"; they would fit if they were in {fits[0]}" if fits else ""
    if not fits and fits_inverse:
        meant = f"; they would fit if they were metres taken as {fits_inverse[0]}"
    raise FileError(
        f"{path}: {problem}{place_of(record, 'positions')}, where a window has {window[0]} x {window[1]} and an object "
        f"pixel is {length_text(pixel[0])}{meant}: give positions=array (pattern, yx) [m] (units='pixels' where they "
        "are pixels), or check wavelength, distance and pixel size.",
        code="scan.implausible-metadata",
        fields=("positions", "units"),
    )


def check_patterns(
    frames: Frames, counts: Callable[[int, int], NDArray[Any]], *, masked: bool = False
) -> tuple[str, ...]:
    """Read the first and the last pattern, and return warnings: all empty, or far larger in memory than in the file.

    Patterns that would have to be unpacked are not read. counts: reads patterns, and raises ScanError for invalid ones.
    """
    warned = []
    stored = frames.stored_bytes
    if stored is not None and frames.nbytes >= LARGEST_UNNOTICED and frames.nbytes > MOST_TIMES * stored:
        count, height, width = frames.shape
        warned.append(
            f"{count} patterns of {height} x {width}, {frames.dtype}, take {gigabytes(frames.nbytes)} in memory and "
            f"only {gigabytes(stored)} in the file."
        )
    last = frames.shape[0] - 1
    indices = () if isinstance(frames, PackedFrames) or last < 0 else sorted({0, last})
    ends = [counts(index, index + 1)[0] for index in indices]
    warned += _marked(ends)
    empty = _empty(frames, counts) if ends and not any(end.any() for end in ends) else []
    if empty:
        numbers = ", ".join(map(str, empty))
        warning = f"All counts are zero in the patterns that were read ({numbers} of {frames.shape[0]})"
        remedy = (
            ", where the mask is True; invert the mask if it is inverted, or name another dataset: patterns=..."
            if masked
            else "; name another dataset with patterns=..., or check whether the scan was completed."
        )
        warned.append(warning + remedy)
    return tuple(warned)


def _marked(ends: list[NDArray[Any]]) -> list[str]:
    """Return a warning on pixels that have the largest number of an unsigned type in the first and the last pattern."""
    if not ends or ends[0].dtype.kind != "u" or ends[0].dtype.itemsize < 2:
        return []
    most = np.iinfo(ends[0].dtype).max
    number = int(np.logical_and.reduce([end == most for end in ends]).sum())
    marks = "with which detectors mark pixels that do not count; give a mask that is False there: mask=array (y, x)."
    return [f"{number} pixels have the count {most} in the first and the last pattern, {marks}"] if number else []


def _empty(frames: Frames, counts: Callable[[int, int], NDArray[Any]]) -> list[int]:
    """Return the indices of the patterns read if all are zero, of a scan whose first and last ones are."""
    last = frames.shape[0] - 1
    # One pattern is read at the cost of a chunk.
    cost = max(1, frames.stored_together * frames.nbytes // (last + 1))
    spread = np.linspace(0, last, int(np.clip(MOST_BYTES // cost, 2, SAMPLE))).astype(int).tolist()
    near = [1, last // 2, last - 1] if len(spread) == SAMPLE else []
    numbers = sorted({*spread, *near} & set(range(last + 1)))
    return [] if any(counts(index, index + 1).any() for index in numbers) else numbers
