"""ptynb's own scan files.

/                 attributes: format = "ptynb scan", version = 1, name, centred, clip_negative
/patterns         (pattern, y, x) counts, one chunk per pattern
/positions        (pattern, yx) float64, object pixels
/motion           (pattern, yx) float64, object pixels: displacement during the exposure (optional)
/mask             (y, x) bool, True where the detector works (optional)
/probe, /object   complex first guesses (optional)
/geometry         attributes: wavelength [m], detector_pixel (y, x) [m], and distance [m], or in the near field
                  focus_to_sample and sample_to_detector [m]; with tilted planes detector_steps (yx, 3) [m],
                  detector_centre (3) [m], beam (3) and sample_normal (3) instead of these (optional)
/truth/object, /truth/probe   of a simulated scan (optional)
/acquisition      of a scan that `ptynb.listen` receives, or has received (optional); attributes: source, series,
                  start_after, positions_planned (0: only their extent was). Patterns and positions above are then the
                  planned ones. Every dataset is contiguous and allocated when the file is made, and the receiver
                  writes into it without HDF5: the file stays whole.
    arrived       (pattern,) uint8: 1 frame only, 2 position only, 3 both, which are the patterns that `load` returns
    positions     (pattern, yx) float64, object pixels: measured, or planned where they are not measured
    times         (pattern,) float64, s since 1970: when each pattern came
    ended         text: why the scan has ended; empty while it is received, when all these are not yet written
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.arrivals import INDEX_NAME, PLACED, Acquisition
from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import ArrivingFrames, HDF5Frames
from ptynb.data.scan import AnyGeometry, Scan, Truth, part_that_came
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import FileError, ScanError
from ptynb.io.hdf5_file import open_for_reading, replacing
from ptynb.io.reading.safe_reading import Checked
from ptynb.plugins import Plugin
from ptynb.preparation.recorded_steps import check_measured

FORMAT = "ptynb scan"
VERSION = 1
ACQUISITION = "acquisition"
REASON_BYTES = 1024
"""Length of the text `ended`."""


def write_scan(path: str | Path, scan: Scan, chunks: Iterable[NDArray[Any]]) -> Scan:
    """Write a scan whose patterns come in chunks (pattern, y, x), in order; return the scan that reads them.

    scan: with frames of which only shape and type are used.
    """
    path, shape = Path(path).expanduser(), scan.frames.shape
    with replacing(path) as file:
        patterns = file.create_dataset("patterns", shape, scan.frames.dtype, chunks=(1, *shape[1:]))
        start = 0
        for chunk in chunks:
            patterns[start : start + len(chunk)] = chunk
            start += len(chunk)
        assert start == shape[0], "fewer patterns than in shape"
        _write_metadata(file, scan)
        if scan.ground_truth is not None:
            file["truth/object"] = scan.ground_truth.object
            file["truth/probe"] = scan.ground_truth.probe
    return read_scan(path).loaded_from(path, {})


def write_acquired_scan(
    path: Path, scan: Scan, acquisition: Acquisition, *, source: str, series: str
) -> dict[str, int]:
    """Write the file of a scan whose patterns are yet to come, without them.

    scan: with the planned positions, and frames of which only shape and type are used.
    Return the offset of each dataset that the receiver will write [bytes from the start of the file].
    """
    count, parts = len(scan), {}
    with replacing(path) as file:
        group = file.create_group(ACQUISITION)
        group.attrs.update(
            source=source,
            series=series,
            start_after=acquisition.start_after,
            positions_planned=acquisition.positions_planned,
        )
        parts["patterns"] = _allocated(file, "patterns", scan.frames.shape, scan.frames.dtype)
        parts["arrived"] = _allocated(group, "arrived", (count,), np.dtype("<u1"))
        parts["positions"] = _allocated(group, "positions", (count, 2), np.dtype("<f8"))
        parts["times"] = _allocated(group, "times", (count,), np.dtype("<f8"))
        parts["ended"] = _allocated(group, "ended", (), np.dtype(f"S{REASON_BYTES}"))
        _write_metadata(file, scan)
        return {name: int(part.id.get_offset()) for name, part in parts.items()}


def _write_metadata(file: h5py.File, scan: Scan) -> None:
    file.attrs.update(
        format=FORMAT, version=VERSION, name=scan.name, centred=scan.centred, clip_negative=scan.clip_negative
    )
    for name in ("positions", "motion", "mask", "probe", "object"):
        values = getattr(scan, name)
        if values is not None:
            file[name] = values
    if scan.geometry is not None:
        known = {name: value for name, value in dataclasses.asdict(scan.geometry).items() if value is not None}
        file.create_group("geometry").attrs.update(known)


def _allocated(group: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> h5py.Dataset:
    """Create a dataset whose bytes have their place in the file, where nothing is written."""
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_layout(h5py.h5d.CONTIGUOUS)
    layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    return h5py.Dataset(
        h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(dtype, logical=True), space, layout)
    )


def save_scan(scan: Scan, path: str | Path) -> Scan:
    """Write a scan with its patterns, in portions, to a file of ptynb.

    Parameters
    ----------
    scan : Scan
        The scan.
    path : str or Path
        File to write; an existing one is replaced once the new one is complete.

    Returns
    -------
    Scan
        The scan, with its patterns in that file.

    Raises
    ------
    FileError
        If the folder does not exist.
    InvalidValueError
        If the patterns cannot be read.
    ScanError
        If it is made of several scans (code "scan.combined"), or is being measured ("scan.live").
    """
    check_measured(scan, "save_scan")
    if scan.combination is not None:
        raise ScanError(
            f"'{scan.name}' is made of {len(scan.combination.scans)} scans, and a file holds one; save each.",
            code="scan.combined",
        )
    step = max(1, 2**24 // (scan.pattern_shape[0] * scan.pattern_shape[1]))
    chunks = (scan.frames.read(start, min(start + step, len(scan))) for start in range(0, len(scan), step))
    return write_scan(path, scan, chunks)


def as_planned(path: Path, plugins: tuple[Plugin, ...] = ()) -> Scan:
    """Load a scan that was, or is, received: all planned patterns with their planned positions, and its `acquisition`.

    Of a file that was not received this is the scan as it is. plugins: by which it is received.
    """
    return _arriving(_read(path)).loaded_from(path, {}, plugins)


def _arriving(scan: Scan) -> Scan:
    if not isinstance(scan.acquisition, Acquisition):
        return scan
    return dataclasses.replace(scan, frames=ArrivingFrames(scan.frames, scan.acquisition))


def read_scan(path: Path) -> Scan:
    """Read a file that `write_scan` or `write_acquired_scan` wrote.

    Of a received scan this is what `as_planned` returns until it has ended, and then the patterns with a position.
    """
    scan = _read(path)
    if not isinstance(scan.acquisition, Acquisition):
        return scan
    index = scan.acquisition.index() if (path.parent / INDEX_NAME).exists() else None
    ended, arrived, positions = _arrived(path)
    if not ended and index is not None:
        if index.ended is None and index.is_alive():
            return _arriving(scan)
        ended, arrived, positions = True, index.states(), index.positions()
    if not ended:
        raise FileError(
            f"{path} was not written to its end, and lacks {INDEX_NAME} beside it, which says what came; copy both.",
            code="file.incomplete",
        )
    placed = np.flatnonzero(arrived == PLACED)
    if not len(placed):
        raise FileError(f"{path} has no pattern with a position; nothing came.", code="scan.nothing-left")
    if len(placed) == len(scan):
        return dataclasses.replace(scan, positions=positions, acquisition=None)
    return part_that_came(scan, placed, positions)


def _arrived(path: Path) -> tuple[bool, NDArray[np.uint8], NDArray[np.float64]]:
    """Return whether a received scan has ended, the state of each pattern, and the positions."""
    with open_for_reading(path) as file:
        checked = Checked(file, path)
        reason = checked.dataset(f"{ACQUISITION}/ended")
        if reason.shape != () or reason.dtype.kind != "S":
            raise FileError(
                f"{path} has another dataset {ACQUISITION}/ended than a text.", code="file.unexpected-content"
            )
        arrived = checked.array(f"{ACQUISITION}/arrived", "iu", 1)
        positions = checked.array(f"{ACQUISITION}/positions", "f", 2, last=2)
        if len(arrived) != len(positions) or len(arrived) != len(checked.dataset("patterns")):
            raise FileError(
                f"{path} has {len(arrived)} states and {len(positions)} positions of "
                f"{len(checked.dataset('patterns'))} patterns; expected equal numbers.",
                code="file.count-mismatch",
            )
        return bool(reason[()]), arrived, positions


def _read(path: Path) -> Scan:
    with open_for_reading(path) as file:
        checked = Checked(file, path)
        version = checked.real(file, "version")
        if version != VERSION:
            raise FileError(
                f"{path} is a ptynb scan of version {version:g}; this ptynb reads version {VERSION}. Update ptynb.",
                code="file.unsupported-version",
            )
        patterns, truth = checked.dataset("patterns"), None
        if patterns.ndim != 3:
            raise FileError(
                f"{path} has patterns of shape {patterns.shape}; expected (pattern, y, x).",
                code="file.unexpected-content",
            )
        if checked.has("truth"):
            truth = Truth(checked.array("truth/object", "c", 2, 3), checked.array("truth/probe", "c", 3))
        acquisition = None
        if checked.has(ACQUISITION):
            group = checked.group(ACQUISITION)
            first = checked.real(group, "start_after")
            acquisition = Acquisition(
                path.absolute().parent,
                len(patterns),
                int(first) if 0 < first < 2**31 else 0,
                checked.real(group, "positions_planned") != 0,
            )
        return Scan(
            frames=HDF5Frames.of(patterns),
            positions=checked.array("positions", "fiu", 2).astype(np.float64),
            centred=checked.real(file, "centred") != 0,
            clip_negative=checked.real(file, "clip_negative") != 0,
            motion=checked.array("motion", "fiu", 2).astype(np.float64) if checked.has("motion") else None,
            mask=checked.array("mask", "biu", 2).astype(bool) if checked.has("mask") else None,
            probe=checked.array("probe", "c", 3) if checked.has("probe") else None,
            object=checked.array("object", "c", 2, 3) if checked.has("object") else None,
            geometry=_read_geometry(checked) if checked.has("geometry") else None,
            ground_truth=truth,
            name=str(checked.attribute(file, "name")),
            acquisition=acquisition,
        )


def _read_geometry(checked: Checked) -> AnyGeometry:
    group = checked.group("geometry")
    try:
        if "beam" in group.attrs:
            return _read_tilted(checked, group)
        kind = NearField if "focus_to_sample" in group.attrs else Geometry
        height, width = checked.numbers(group, "detector_pixel", 2)
        lengths = {
            field.name: checked.real(group, field.name)
            for field in dataclasses.fields(kind)
            if field.name != "detector_pixel"
        }
        return kind(**lengths, detector_pixel=(height, width))
    except FileError:
        raise
    except ValueError as error:  # for an impossible geometry
        raise FileError(f"{checked.path}: {error}", code="scan.implausible-metadata") from None


def _read_tilted(checked: Checked, group: h5py.Group) -> TiltedGeometry:
    def vector(name: str) -> tuple[float, float, float]:
        x, y, z = checked.numbers(group, name, 3)
        return x, y, z

    steps = np.asarray(checked.attribute(group, "detector_steps"))
    if steps.shape != (2, 3) or steps.dtype.kind not in "fiu" or not np.isfinite(steps).all():
        raise FileError(
            f"{checked.path} has detector_steps of shape {steps.shape}; expected finite numbers (2, 3).",
            code="file.unexpected-content",
        )
    along_y, along_x = ((float(x), float(y), float(z)) for x, y, z in steps)
    return TiltedGeometry(
        wavelength=checked.real(group, "wavelength"),
        detector_steps=(along_y, along_x),
        detector_centre=vector("detector_centre"),
        beam=vector("beam"),
        sample_normal=vector("sample_normal") if "sample_normal" in group.attrs else None,
    )
