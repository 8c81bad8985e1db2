"""Files of electron microscopes, read by RosettaSciIO: MIB, DM3/DM4, EMD of Velox, BLO, TVIPS and MRC.

RosettaSciIO is optional (`pip install 'ptynb[formats]'`) and imported when needed. Files are opened lazily, by each
process. It provides the axes with scales and units, the beam energy [kV] and the camera length [mm]. Detector axes are
those in reciprocal lengths or angles if there are two, else its signal axes.

Orientation: as RosettaSciIO orders the axes, rows before columns in scan and patterns; nothing is flipped or rotated.
Files without a raster (MIB without .hdr, TVIPS) are a stack: give raster=(rows, columns).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import logging
import math
import struct
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.electrons import electron_wavelength
from ptynb.data.patterns import FileFrames, Frames
from ptynb.data.patterns.frames import rectangles
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import LinkPolicy, check_chunks, check_texts, has, inside, open_for_reading
from ptynb.io.reading import microscope_scales
from ptynb.io.reading.direct_electron import movie_metadata
from ptynb.io.reading.hdf5_reading import factor
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.reading_errors import reading, require
from ptynb.io.reading.safe_reading import MOST_EXPANSION, SMALL, size
from ptynb.io.reading.stack_axes import check_counts, native, stacked
from ptynb.process_state import ProcessState
from ptynb.settings.load_options import LoadOptions

PACKAGE = "RosettaSciIO"


@dataclass(frozen=True)
class RosettaFormat:
    """A format of RosettaSciIO: name for messages, module of RosettaSciIO, and function that recognises a file."""

    name: str
    module: str
    recognises: Callable[[Head], bool]


def _is_dm(head: Head) -> bool:
    """Test for version 3 or 4, the length of the tags (4 or 8 bytes), and the byte order (0 or 1)."""
    version = int.from_bytes(head.start[:4], "big")
    place = {3: 8, 4: 12}.get(version, 0)
    return bool(place) and head.start[place : place + 4] in (b"\0\0\0\0", b"\0\0\0\1")


def _is_velox(head: Head) -> bool:
    if head.file is None or not has(head.file, "Version", "Data/Image"):
        return False
    return isinstance(inside(head.file, "Data/Image", head.path), h5py.Group)


def _is_tvips(head: Head) -> bool:
    """Test for a header of 256 bytes with version 1 or 2, and "TVIPS" in the header or as suffix."""
    named = b"TVIPS" in head.start[:256] or head.path.suffix.lower() == ".tvips"
    return named and head.start[:4] == b"\0\1\0\0" and head.start[4:8] in (b"\1\0\0\0", b"\2\0\0\0")


KINDS = (
    RosettaFormat("MIB", "quantumdetector", lambda head: head.start.startswith(b"MQ1,")),
    RosettaFormat("DigitalMicrograph", "digitalmicrograph", _is_dm),
    RosettaFormat("EMD (Velox)", "emd", _is_velox),
    RosettaFormat("BLO", "blockfile", lambda head: head.start.startswith(b"IMGBLO")),
    RosettaFormat("TVIPS", "tvips", _is_tvips),
    RosettaFormat("MRC", "mrc", lambda head: head.start[208:212] == b"MAP "),
)


def recognises(head: Head) -> bool:
    """Return whether the file has one of the formats in `KINDS`."""
    return any(kind.recognises(head) for kind in KINDS)


@dataclass(frozen=True)
class Axis:
    """An axis of an array: length, step [unit], unit, and whether it belongs to the scan."""

    size: int
    scale: float
    unit: str
    navigate: bool


@dataclass(frozen=True)
class RosettaFrames(FileFrames):
    """Patterns of a file that RosettaSciIO reads; each process opens the file itself.

    module: of RosettaSciIO. number: index of the signal in the file. order: permutation of its axes to (scan..., y, x).
    grid: lengths of the scan's axes.
    """

    path: Path
    module: str
    number: int
    order: tuple[int, ...]
    grid: tuple[int, ...]
    file_shape: tuple[int, int, int]
    file_dtype: str
    policy: LinkPolicy

    def read(self, start: int, stop: int) -> NDArray[Any]:
        return self.local().read(start, stop)

    def local(self) -> Frames:
        """Return frames that have the file open in this process."""
        with reading(self.path):
            data = _signals(self.path, self.module, self.policy, self.grid)[self.number]["data"].transpose(self.order)
        return OpenedFrames(self, data)


@dataclass(frozen=True, eq=False)
class OpenedFrames(Frames):
    """Patterns of a file that is open in this process."""

    closed: RosettaFrames
    data: Any

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.closed.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.closed.dtype

    @property
    def in_file(self) -> bool:
        """Always True: patterns are read when they are needed."""
        return True

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((stop - start, *self.shape[1:]), self.dtype)
        with reading(self.closed.path):
            for selection, _, place in rectangles(self.closed.grid, start, stop):
                block = self.data[selection]
                read = block if isinstance(block, np.ndarray) else block.compute(scheduler="synchronous")
                patterns[place] = read.reshape(-1, *self.shape[1:])
        return patterns

    def part(self, patterns: NDArray[np.int64]) -> Frames:
        """Return the closed file, which can be sent to other processes."""
        return self.closed


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return what RosettaSciIO reads from the file."""
    require("rsciio", PACKAGE, path)
    policy = LinkPolicy.around(path, options.links)
    path = path.resolve()  # companion files are searched in the same folder as by engines
    kind, start = _kind(path)
    with reading(path):
        _check_size(path, kind.module, start)
        signals = _signals(path, kind.module, policy)
        number = _chosen(signals, path)
        signal = signals[number]
        axes = _axes(signal)
        shape, dtype = tuple(int(side) for side in signal["data"].shape), np.dtype(signal["data"].dtype)
        beam, camera_length = _microscope(signal)
        if camera_length is not None and kind.module == "blockfile":
            camera_length *= 1e3  # RosettaSciIO converts tenths of a millimetre to metres
    order = _order(axes)
    ordered = [axes[axis] for axis in order]
    stack, raster = stacked(tuple(shape[axis] for axis in order), path)
    if raster is not None and min(raster) == 1:
        raster = None  # a stack in one column
    check_counts(dtype, path)
    voltage = None if beam is None or options.beam is not None else microscope_scales.volts(beam, str(path))
    wavelength = None if voltage is None else electron_wavelength(voltage)
    detector = _lengths(ordered[-2:])
    frames = RosettaFrames(
        path, kind.module, number, order, tuple(one.size for one in ordered[:-2]), stack, dtype.str, policy
    )
    found: dict[str, Any] = {
        "raster": raster,
        "step": _lengths(ordered[:-2]) if raster is not None else None,
        "angular_pixel": _angles(ordered[-2:], options.beam or wavelength),
        "places": {"patterns": f"signal {number} of {len(signals)}"},
    }
    if kind.module == "mrc":
        movie = movie_metadata(path, stack[0], policy)
        reciprocal = movie.pop("reciprocal", None)
        beam = options.beam or (electron_wavelength(movie["voltage"]) if "voltage" in movie else None)
        if reciprocal is not None and beam is not None:
            movie["angular_pixel"] = reciprocal[0] * beam, reciprocal[1] * beam
        found |= movie | {"places": found["places"] | movie.get("places", {})}
    return FileRecord(
        format=kind.name,
        frames=native(frames),
        wavelength=wavelength,
        distance=None if detector is None or not camera_length else camera_length * 1e-3,
        detector_pixel=None if camera_length is None else detector,
        **found,
    )


FORMAT = Format(
    "MIB, DM3/DM4, EMD of Velox, BLO, TVIPS, MRC (RosettaSciIO)",
    recognises,
    read,
    (".mib", ".dm3", ".dm4", ".emd", ".blo", ".tvips", ".mrc"),
)


def _kind(path: Path) -> tuple[RosettaFormat, bytes]:
    """Return the format of a file, and its first bytes (none for HDF5)."""
    if h5py.is_hdf5(path):
        return next(kind for kind in KINDS if kind.module == "emd"), b""
    with path.open("rb") as file:
        start = file.read(4096)
    head = Head(path, start, None)
    return next(kind for kind in KINDS if kind.recognises(head)), start


def _signals(path: Path, module: str, policy: LinkPolicy, grid: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Return the signals in the file, with warnings suppressed.

    grid: shape of the scan, if known; for MIB it would be determined again from the headers of all patterns.
    Raise FileError if RosettaSciIO would open other files that may not be read.
    """
    for companion in _companions(path, module):
        real = policy.check(companion, f"{path} stores a part of the scan")
        if real.exists() and not real.is_file():
            raise FileError(
                f"{path} has {companion.name} beside it, which is not a regular file; remove it.",
                code="file.unsupported-content",
            )
    reader = importlib.import_module(f"rsciio.{module}").file_reader
    known: dict[str, Any] = {"navigation_shape": grid[::-1]} if module == "quantumdetector" and grid else {}
    if module == "mrc" and "metadata_file" in inspect.signature(reader).parameters:
        known["metadata_file"] = None  # read by `movie_metadata`
    with _QUIET:
        signals: list[dict[str, Any]] = reader(str(path), lazy=True, **known)
    return signals


def _silence() -> Callable[[], object]:
    restoring = contextlib.ExitStack()
    restoring.enter_context(warnings.catch_warnings())
    warnings.simplefilter("ignore")
    logger = logging.getLogger("rsciio")
    restoring.callback(logger.setLevel, logger.level)
    logger.setLevel(logging.ERROR)
    return restoring.close


_QUIET = ProcessState(_silence)


def _companions(path: Path, module: str) -> Iterator[Path]:
    """Yield other files in the same folder that RosettaSciIO opens too, by their names."""
    if module == "quantumdetector":
        yield Path(str(path).replace(".mib", ".hdr"))
    elif module == "tvips":  # all parts of a scan, of which this is number 000
        parts = (Path(f"{str(path)[:-9]}{number:03d}{path.suffix}") for number in itertools.count(1))
        yield from itertools.takewhile(Path.exists, parts)


def _check_size(path: Path, module: str, start: bytes) -> None:
    """Raise FileError if a header announces more data than the file has; lazy arrays would get very many chunks."""
    if module == "mrc":
        columns, rows, sections, mode = struct.unpack_from("<4i", start)
        itemsize = {0: 1, 1: 2, 2: 4, 6: 2, 12: 2}.get(mode, 1)
        announced = -1 if min(columns, rows, sections) < 1 else columns * rows * sections * itemsize
    elif module == "blockfile":
        side, _, columns, rows = struct.unpack_from("<4H", start, 20)
        announced = -1 if min(side, columns, rows) < 1 else columns * rows * side * side
    else:
        if module == "emd":
            _check_datasets(path)
        return
    if not 0 < announced <= path.stat().st_size:
        raise FileError(
            f"{path} has {path.stat().st_size} bytes, and its header announces patterns of {announced} bytes; the file "
            "is incomplete or damaged, copy it again.",
            code="file.damaged",
        )


def _check_datasets(path: Path) -> None:
    """Raise FileError if data are in another file, which Velox never writes, or larger than the file can hold."""
    elsewhere = "stores {} in another file, which Velox never does; load that file."
    beyond = "claims more for {} than a file of its size can hold; it is damaged, copy it again."
    most = max(SMALL, MOST_EXPANSION * path.stat().st_size)

    def problem(name: str, item: h5py.Group | h5py.Dataset) -> str | None:
        if not isinstance(item, h5py.Dataset):
            return None
        if item.is_virtual or item.external:
            return elsewhere.format(name)
        check_chunks(item, path)
        return beyond.format(name) if size(item.shape or (), item.dtype) > most else None

    with open_for_reading(path) as file:
        check_texts(file)  # RosettaSciIO opens the file itself
        leads = file.visititems_links(lambda name, link: name if isinstance(link, h5py.ExternalLink) else None)
        sentence = elsewhere.format(leads) if leads else file.visititems(problem)
    if sentence:
        raise FileError(f"{path} {sentence}", code="file.damaged")


def _chosen(signals: list[dict[str, Any]], path: Path) -> int:
    """Return the index of the largest signal with three or four axes."""
    stacks = [number for number, signal in enumerate(signals) if len(signal["data"].shape) in (3, 4)]
    if not stacks:
        shapes = ", ".join(str(tuple(signal["data"].shape)) for signal in signals[:5]) or "nothing"
        raise FileError(
            f"{path} has {shapes}; expected patterns (pattern, y, x) or (row, column, y, x).",
            code="file.incomplete",
        )
    return max(
        stacks, key=lambda number: (len(signals[number]["data"].shape), math.prod(signals[number]["data"].shape))
    )


def _axes(signal: dict[str, Any]) -> list[Axis]:
    """Return the axes in the order of the array; axes without a description have no unit."""
    shape = signal["data"].shape
    axes = [Axis(int(size), 1.0, "", index < len(shape) - 2) for index, size in enumerate(shape)]
    for number, axis in enumerate(signal["axes"]):
        index = int(axis.get("index_in_array", number))
        unit = axis.get("units")
        navigate = bool(axis.get("navigate", axes[index].navigate))
        axes[index] = Axis(
            axes[index].size, abs(float(axis.get("scale", 1.0))), unit if isinstance(unit, str) else "", navigate
        )
    return axes


def _order(axes: list[Axis]) -> tuple[int, ...]:
    """Return a permutation with the detector axes last, identified by units, else by `navigate`, else by order."""
    every = range(len(axes))
    by_unit = [index for index in every if microscope_scales.angular_pixel(1.0, axes[index].unit, 1.0) is not None]
    by_name = [index for index in every if not axes[index].navigate]
    detector = next((found for found in (by_unit, by_name) if len(found) == 2), list(every)[-2:])
    return (*(index for index in every if index not in detector), *detector)


def _lengths(axes: list[Axis]) -> tuple[float, float] | None:
    """Return the steps (rows, columns) [m] of two axes; None if they are no lengths."""
    factors = [factor(axis.unit, "length") for axis in axes]
    if len(axes) != 2 or factors[0] is None or factors[1] is None or min(axis.scale for axis in axes) <= 0:
        return None
    return axes[0].scale * factors[0], axes[1].scale * factors[1]


def _angles(axes: list[Axis], beam: float | None) -> tuple[float, float] | None:
    rows, columns = (microscope_scales.angular_pixel(axis.scale, axis.unit, beam) for axis in axes)
    return (rows, columns) if rows and columns else None


def _microscope(signal: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return (beam energy [kV], camera length [mm]), from general metadata or those of the format."""
    common = signal.get("metadata", {}).get("Acquisition_instrument", {}).get("TEM", {})
    values: dict[str, Any] = {name: common.get(name) for name in ("beam_energy", "camera_length")}
    for place, (target, function) in signal.get("mapping", {}).items():
        name = target.rsplit(".", 1)[-1]
        if name in values and not values[name]:
            found = signal.get("original_metadata", {})
            for key in place.split("."):
                found = found.get(key) if isinstance(found, dict) else None
            values[name] = found if found is None or function is None else function(found)
    energy, length = values["beam_energy"], values["camera_length"]
    return (float(energy) if energy else None), (float(length) if length else None)
