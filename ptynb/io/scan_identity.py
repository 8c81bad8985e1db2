"""Identity of a scan, as stored in results."""

from __future__ import annotations

import dataclasses
from typing import Any

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.provenance import Loaded, ScanIdentity
from ptynb.data.scan import AnyGeometry, Scan, plain_geometry
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import InvalidValueError

GEOMETRIES: tuple[type[AnyGeometry], ...] = (Geometry, NearField, TiltedGeometry)


def identity_of(scan: Scan, counts: float | None = None) -> ScanIdentity:
    """Return the identity of a scan. counts: the sum of all counts, if known."""
    loaded, geometry = scan.loaded or Loaded(""), scan.geometry
    digest = scan.metadata_digest
    prepared = bool(loaded.digest) and (loaded.digest, loaded.steps) != (digest, scan.preparation_steps)
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
        digest=digest,
        sample_digest=scan.sample_digest,
        prepared=prepared,
        preparation=scan.preparation,
        counts=counts,
        is_far_field=scan.is_far_field,
        wavelength=wavelength,
        distance=distance,
        detector_pixel=pixel,
        geometry=plain_geometry(geometry),
        combination=plain_combination(scan),
    )


def plain_combination(scan: Scan) -> dict[str, Any]:
    """Return how a scan is made of several, with their identities, as plain values; empty for other scans."""
    combination = scan.combination
    if combination is None:
        return {}
    return {
        "share": combination.share,
        "gap": combination.gap,
        "offsets": combination.offsets.tolist(),
        "frames": combination.frames.tolist(),
        "scans": [_as_plain(identity_of(one)) for one in combination.scans],
    }


def _as_plain(identity: ScanIdentity) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in dataclasses.asdict(identity).items()
        if name != "combination"
    }


LENGTHS = ("wavelength", "distance", "detector_pixel")


def geometry_from(plain: dict[str, Any]) -> AnyGeometry | None:
    """Return a geometry from the output of `plain_geometry`. Raise InvalidValueError for other values."""
    if not plain:
        return None
    values = {name: _tuples(value) for name, value in plain.items() if name != "kind"}
    kind = next((one for one in GEOMETRIES if one.__name__ == plain.get("kind")), None)
    if kind is None:
        raise InvalidValueError(
            f"The geometry's kind is {plain.get('kind')!r}; expected one of "
            f"{', '.join(one.__name__ for one in GEOMETRIES)}.",
            code="file.unexpected-content",
        )
    try:
        found: AnyGeometry = kind(**values)
    except (TypeError, ValueError):
        raise InvalidValueError(
            f"The geometry is {sorted(values)}; expected the fields of {kind.__name__}.", code="file.unexpected-content"
        ) from None
    return found


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(one) for one in value)
    return float(value) if value in ("inf", "-inf") else value
