"""Movies of Direct Electron's cameras (PREFIX_movie.mrc): their metadata and the order in which points were scanned.

    PREFIX_info.txt              lines "name = value"; -1 where nothing is known
    PREFIX_scan_coordinates.csv  x, y of each pattern [steps], where the scan is no raster (random, spiral, custom)

RosettaSciIO sorts patterns by these coordinates, which needs a whole raster, and takes all steps as 1 nm; here patterns
stay in the order of the file, and the coordinates are their positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.array_file import read_array
from ptynb.io.hdf5_file import LinkPolicy
from ptynb.settings.claimed_values import is_set

LONGEST = 2**20
"""Upper limit of the bytes of an _info.txt."""


def movie_metadata(path: Path, count: int, policy: LinkPolicy) -> dict[str, Any]:
    """Return arguments of `FileRecord` for a movie of `count` patterns; none if it has no metadata beside it.

    reciprocal: size (y, x) of a detector pixel [1/m], instead of `angular_pixel`.
    """
    prefix, _, rest = path.name.partition("_movie")
    if not rest:
        return {}
    found: dict[str, Any] = {"places": {}}
    info = _beside(path, f"{prefix}_info.txt", policy)
    if info is not None and info.stat().st_size <= LONGEST:
        lines = (line.partition("=") for line in info.read_text("utf-8", "replace").splitlines())
        values = {name.strip(): value.strip() for name, _, value in lines}
        for what, name, unit in (
            ("step", "Specimen Pixel Size {} (nanometers)", 1e-9),
            ("reciprocal", "Diffraction Pixel Size {}", 1e9),
        ):
            sizes = [_number(values, name.format(axis)) for axis in "YX"]
            if None not in sizes:
                found[what] = tuple(size * unit for size in sizes if size is not None)
                found["places"]["angular_pixel" if what == "reciprocal" else what] = info.name
        voltage = _number(values, "Instrument Accelerating Voltage (V)")
        if voltage is not None:
            found["voltage"] = voltage
            found["places"]["voltage"] = info.name
        size = "ROI Size" if values.get("Scan - ROI Enable") == "Enable" else "Size"
        sides = [_number(values, f"Scan - {size} {axis}") for axis in "YX"]
        if sides[0] and sides[1] and sides[0] * sides[1] == count:
            found["raster"] = int(sides[0]), int(sides[1])
            found["places"]["raster"] = info.name
    coordinates = _beside(path, f"{prefix}_scan_coordinates.csv", policy)
    if coordinates is not None:
        points = read_array(coordinates, "positions").astype(np.float64)
        if points.ndim != 2 or points.shape[1] != 2 or not len(points) or count % len(points):
            raise FileError(
                f"{coordinates} has coordinates of shape {points.shape}, and {path.name} has {count} patterns; "
                "expected (x, y) of each, or of each point of a repeated scan: give positions=array (pattern, yx) [m].",
                code="file.count-mismatch",
                fields=("positions",),
            )
        found["points"] = np.tile(points[:, ::-1], (count // len(points), 1))
        found["places"]["positions"] = coordinates.name
        found.pop("raster", None)
    return found


def _beside(path: Path, name: str, policy: LinkPolicy) -> Path | None:
    beside = path.with_name(name)
    return policy.check(beside, f"{path} stores a part of the scan") if beside.is_file() else None


def _number(values: Mapping[str, str], name: str) -> float | None:
    try:
        number = float(values[name])
    except (KeyError, ValueError):
        return None
    return number if is_set(number) else None
