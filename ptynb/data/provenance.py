"""Provenance of a result: data, software versions and machines. Plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ptynb.data.record import at
from ptynb.plugins import Plugin


@dataclass(frozen=True)
class Loaded:
    """Record of how `load` opened a scan.

    path: of the file or folder, absolute.
    size [bytes] and modified [s since 1970, UTC]: of that file at loading; None for a folder.
    given: the options besides the path, as plain values ({"energy": 8000.0}).
    arrays: names of the options that were arrays ("mask", "motion", "positions", "probe"); values are not recorded.
    digest: as in `ScanIdentity`, and steps: how many steps change patterns when they are read; both of the scan as
        `load` returned it.
    plugins: those that read the file, or received the scan.
    """

    path: str
    size: int | None = None
    modified: float | None = None
    given: dict[str, Any] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    digest: str = ""
    steps: int = 0
    plugins: tuple[Plugin, ...] = ()


@dataclass(frozen=True)
class ScanIdentity:
    """Identity of a scan, and how to open it again.

    name, patterns, window (y, x): as in `Scan`.
    path, size, modified, given, arrays: as in `Loaded`; empty and None for arrays and simulations.
    digest: SHA-256 of positions, mask, geometry, guesses and shape, hexadecimal: equal only for equal metadata.
    sample_digest: SHA-256 of eight of the patterns, hexadecimal (see `Scan.sample_digest`); empty: unknown.
    prepared: whether the scan was changed after it was loaded (cropped, flipped, masked ...).
    preparation: the steps of these changes, as in `Scan.preparation`; () in files of earlier versions.
    counts: sum of all counts where the mask is True; None: unknown.
    is_far_field: whether the patterns are in Fourier space (far field). wavelength [m], distance [m], detector_pixel
        (y, x) [m]: if known. geometry: all of it as plain values, by the names of its class's fields, with "kind":
        "Geometry", "NearField" or "TiltedGeometry"; empty if unknown.
    combination: of a scan that is made of several: "share", "gap", "offsets" and "frames" as in `CombinedScans`, and
        "scans", the identities of the scans as plain values; of one of these scans, after `Result.split`: "part_of",
        the name of the combined scan, and "number", from 0. Else empty.
    """

    name: str = ""
    patterns: int = 0
    pattern_shape: tuple[int, int] = field(default=(0, 0), metadata=at("window"))
    path: str = ""
    size: int | None = field(default=None, metadata=at(unit="byte"))
    modified: float | None = field(default=None, metadata=at(unit="s since 1970"))
    given: dict[str, Any] = field(default_factory=dict)
    arrays: tuple[str, ...] = ()
    digest: str = ""
    sample_digest: str = ""
    prepared: bool = False
    preparation: tuple[Any, ...] = ()
    counts: float | None = None
    is_far_field: bool = field(default=True, metadata=at("fourier"))
    wavelength: float | None = field(default=None, metadata=at(unit="m"))
    distance: float | None = field(default=None, metadata=at(unit="m"))
    detector_pixel: tuple[float, float] | None = field(default=None, metadata=at(unit="m"))
    geometry: dict[str, Any] = field(default_factory=dict)
    combination: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Return an identity from its fields as JSON has them. Raises TypeError for unknown fields."""
        fields: dict[str, Any] = {n: tuple(one) if isinstance(one, list) else one for n, one in plain.items()}
        return cls(**fields)


@dataclass(frozen=True)
class Software:
    """Software versions of a run. system: operating system and processor. Empty: unknown."""

    ptynb: str = ""
    torch: str = ""
    numpy: str = ""
    h5py: str = ""
    python: str = ""
    system: str = ""

    @classmethod
    def of(cls, metadata: Mapping[str, str], system: str = "") -> Self:
        """Return the versions in the metadata of a run, as its engines have them."""
        versions = {name: metadata.get(name, "") for name in ("ptynb", "torch", "numpy", "h5py", "python")}
        return cls(**versions, system=system)


@dataclass(frozen=True)
class Machines:
    """Engines and devices at the end of a run.

    engines: number of engines; threads: of each on a CPU. devices: of each engine, by rank.
    kind: number and kind as text ("2 engines on CPU"). backend: of torch.distributed ("gloo", "nccl", "none").
    frames: storage of the patterns, "device", "host" or "disk". batch: the effective one, as text.
    extensions: class names of the user's components and constraints, which are not stored in files.
    """

    engines: int = 0
    threads: int = 0
    devices: tuple[str, ...] = ()
    kind: str = ""
    backend: str = ""
    frames: str = ""
    batch: str = ""
    extensions: tuple[str, ...] = ()
