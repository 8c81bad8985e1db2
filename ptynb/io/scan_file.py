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
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import HDF5Frames
from ptynb.data.scan import AnyGeometry, Scan, Truth
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import FileError, ScanError
from ptynb.io.hdf5_file import open_for_reading, replacing
from ptynb.io.reading.safe_reading import Checked

FORMAT = "ptynb scan"
VERSION = 1


def write_scan(
    path: str | Path,
    shape: tuple[int, int, int],
    dtype: np.dtype[Any],
    chunks: Iterable[NDArray[Any]],
    *,
    positions: NDArray[np.float64],
    name: str,
    centred: bool = True,
    clip_negative: bool = False,
    motion: NDArray[np.float64] | None = None,
    mask: NDArray[np.bool_] | None = None,
    probe: NDArray[Any] | None = None,
    object: NDArray[Any] | None = None,
    geometry: AnyGeometry | None = None,
    ground_truth: Truth | None = None,
) -> Scan:
    """Write a scan whose patterns come in chunks (pattern, y, x), in order; return the scan that reads them."""
    path = Path(path).expanduser()
    with replacing(path) as file:
        file.attrs.update(format=FORMAT, version=VERSION, name=name, centred=centred, clip_negative=clip_negative)
        patterns = file.create_dataset("patterns", shape, dtype, chunks=(1, *shape[1:]))
        start = 0
        for chunk in chunks:
            patterns[start : start + len(chunk)] = chunk
            start += len(chunk)
        assert start == shape[0], "fewer patterns than in shape"
        file["positions"] = positions
        for key, values in (("motion", motion), ("mask", mask), ("probe", probe), ("object", object)):
            if values is not None:
                file[key] = values
        if geometry is not None:
            known = {name: value for name, value in dataclasses.asdict(geometry).items() if value is not None}
            file.create_group("geometry").attrs.update(known)
        if ground_truth is not None:
            file["truth/object"] = ground_truth.object
            file["truth/probe"] = ground_truth.probe
    return read_scan(path).loaded_from(path, {})


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
        If it is made of several scans (code "scan.combined").
    """
    if scan.combination is not None:
        raise ScanError(
            f"'{scan.name}' is made of {len(scan.combination.scans)} scans, and a file holds one; save each.",
            code="scan.combined",
        )
    step = max(1, 2**24 // (scan.pattern_shape[0] * scan.pattern_shape[1]))
    chunks = (scan.frames.read(start, min(start + step, len(scan))) for start in range(0, len(scan), step))
    return write_scan(
        path,
        scan.frames.shape,
        scan.frames.dtype,
        chunks,
        positions=scan.positions,
        name=scan.name,
        centred=scan.centred,
        clip_negative=scan.clip_negative,
        motion=scan.motion,
        mask=scan.mask,
        probe=scan.probe,
        object=scan.object,
        geometry=scan.geometry,
        ground_truth=scan.ground_truth,
    )


def is_native(file: h5py.File) -> bool:
    """Return whether this is a scan file of ptynb."""
    return bool(file.attrs.get("format") == FORMAT)


def read_scan(path: Path) -> Scan:
    """Read a file that `write_scan` wrote."""
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
