"""Which scan it is: how it was opened, and what tells it from another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import Frames
from ptynb.data.provenance import Loaded, ScanIdentity
from ptynb.data.scan import AnyGeometry, Scan
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import InvalidValueError
from ptynb.io.reading.records import Given

GEOMETRIES: tuple[type[AnyGeometry], ...] = (Geometry, NearField, TiltedGeometry)


def opened(path: Path, given: Given, scan: Scan) -> Loaded:
    """How `load` was called, and what it returned. Words that are arrays are named only."""
    words: dict[str, Any] = {}
    arrays = []
    for name in given.names:
        value = getattr(given, name)
        if isinstance(value, Path):
            words[name] = str(value)
        elif name in ("positions", "mask") and not isinstance(value, str):
            arrays.append(name)
        else:
            words[name] = _plain(value)
    status = path.stat()
    file = path.is_file()
    return Loaded(
        str(path.absolute()),
        status.st_size if file else None,
        status.st_mtime if file else None,
        words,
        tuple(sorted(arrays)),
        digest(scan),
        _steps(scan.frames),
    )


def identity_of(scan: Scan, counts: float | None = None) -> ScanIdentity:
    """What a result says of its scan. counts: sum of all, where it is known."""
    loaded, geometry = scan.loaded or Loaded(""), scan.geometry
    found = digest(scan)
    prepared = bool(loaded.digest) and (loaded.digest, loaded.steps) != (found, _steps(scan.frames))
    wavelength, distance, pixel = (getattr(geometry, name, None) for name in LENGTHS)
    return ScanIdentity(
        name=scan.name,
        patterns=len(scan),
        pattern_shape=scan.pattern_shape,
        path=loaded.path,
        size=loaded.size,
        modified=loaded.modified,
        given=loaded.given,
        arrays=loaded.arrays,
        digest=found,
        sample_digest=scan.sample_digest,
        prepared=prepared,
        counts=counts,
        is_far_field=scan.is_far_field,
        wavelength=wavelength,
        distance=distance,
        detector_pixel=pixel,
        geometry=plain_geometry(geometry),
    )


LENGTHS = ("wavelength", "distance", "detector_pixel")


def digest(scan: Scan) -> str:
    """SHA-256 of all that a scan says beside its counts: shape, order, positions, mask, geometry, guesses."""
    found = hashlib.sha256()
    facts = {
        "shape": [int(side) for side in scan.frames.shape],
        "centred": scan.centred,
        "clip_negative": scan.clip_negative,
        "geometry": plain_geometry(scan.geometry),
    }
    found.update(json.dumps(facts, sort_keys=True).encode())
    for name in ("positions", "mask", "probe", "object"):
        values: NDArray[Any] | None = getattr(scan, name)
        found.update(name.encode())
        if values is not None:
            little = values.dtype.newbyteorder("<")
            found.update(f"{little.str}{values.shape}".encode())
            found.update(np.ascontiguousarray(values, dtype=little).tobytes())
    return found.hexdigest()


def _steps(frames: Frames) -> int:
    """How many steps change patterns, or leave some out, when they are read. Each preparation adds one."""
    source = getattr(frames, "source", None)
    return 0 if source is None else 1 + _steps(source)


def plain_geometry(geometry: AnyGeometry | None) -> dict[str, Any]:
    """A geometry as plain values with its "kind"; empty for None. JSON knows no infinity, so that is a word."""
    if geometry is None:
        return {}
    return {
        "kind": type(geometry).__name__,
        **{name: _plain(one) for name, one in dataclasses.asdict(geometry).items()},
    }


def geometry_from(plain: dict[str, Any]) -> AnyGeometry | None:
    """The geometry of such values; None for empty ones. Raises ValueError where they are none."""
    if not plain:
        return None
    values = {name: _tuples(value) for name, value in plain.items() if name != "kind"}
    kind = next((one for one in GEOMETRIES if one.__name__ == plain.get("kind")), None)
    if kind is None:
        raise InvalidValueError(
            f"The geometry's kind is {plain.get('kind')!r}; expected one of "
            f"{', '.join(one.__name__ for one in GEOMETRIES)}."
        )
    try:
        found: AnyGeometry = kind(**values)
    except (TypeError, ValueError):
        raise InvalidValueError(f"The geometry is {sorted(values)}; expected the fields of {kind.__name__}.") from None
    return found


def _plain(value: Any) -> Any:
    """What JSON can hold, numpy's own numbers too."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(one) for one in value]
    return value


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    return float(value) if value in ("inf", "-inf") else value
