"""Scans of trials: opened again with other options, prepared with other values, or made by a function of the user.

A trial's values are named "load.NAME" (an option of `ptynb.load`), "prepare.NAME" (a field of `PreparationValues`) and
"scan.NAME" (an argument of the user's function), and applied in this order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.scan import Scan, check_scan
from ptynb.exceptions import SettingsError
from ptynb.io.load import load
from ptynb.io.scan_identity import identity_of
from ptynb.preparation import affine_matrix, affine_positions, bin, crop, rotate_positions
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.ranges import SCAN_GROUPS, group_of

ScanFunction = Callable[..., Scan]
"""Function of a scan, and of the values "scan.NAME" as keyword arguments, that returns the scan of a trial."""
VALUE_FUNCTIONS: dict[str, Callable[[Scan, Any], Scan]] = {
    "crop": crop,
    "bin": bin,
    "position_rotation": rotate_positions,
    "position_scale": lambda scan, scale: affine_positions(scan, affine_matrix(scale=scale)),
}
"""Functions of the fields of `PreparationValues`, in the order in which they are applied."""
OTHER_PATTERNS = "prepare.bin", "prepare.crop"
"""Values that change the patterns: losses and correlations of different patterns are not comparable."""


def check_variants(scan: Scan, names: Iterable[str], function: ScanFunction | None) -> None:
    """Raise SettingsError if scans with other values of these names cannot be made."""
    groups = {group_of(name) for name in names}
    if "load" in groups and (problem := _not_reopenable(scan)):
        raise SettingsError(
            f"ranges contains options of load, and the scan '{scan.name}' {problem}. Give the scan as "
            "pt.load(path, ...) returns it, and change it in scan_function=..., which is called after each load.",
            code="scan.not-in-file",
        )
    if "scan" in groups and function is None:
        raise SettingsError(
            "ranges contains values named 'scan.NAME', and there is no function that uses them; give "
            "scan_function=..., called as scan_function(scan, NAME=value).",
            code="argument.missing",
        )


def loaded_options(scan: Scan) -> LoadOptions:
    """Return the options with which a scan was loaded."""
    given = {} if scan.loaded is None else scan.loaded.given
    return LoadOptions.from_arguments(
        {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    )


def variant(scan: Scan, values: Mapping[str, Any], function: ScanFunction | None) -> Scan:
    """Return the scan of a trial; values of settings are ignored. Raises errors of `load`, steps and the function."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in SCAN_GROUPS}
    for name, value in values.items():
        if (group := group_of(name)) is not None:
            groups[group][name.partition(".")[2]] = value
    if groups["load"]:
        assert scan.loaded is not None
        scan = load(scan.loaded.path, **{**loaded_options(scan).arguments, **groups["load"]})
    for name, prepare in VALUE_FUNCTIONS.items():
        if name in groups["prepare"]:
            scan = prepare(scan, groups["prepare"][name])
    if function is not None:
        scan = function(scan, **groups["scan"])
        check_scan(scan)
    return scan


def present_values(scan: Scan, names: Iterable[str]) -> dict[str, Any]:
    """Return the values that the scan itself has, of those names whose values are known."""
    known: dict[str, Any] = {"prepare.bin": 1, "prepare.position_rotation": 0.0, "prepare.position_scale": 1.0}
    if scan.pattern_shape[0] == scan.pattern_shape[1]:
        known["prepare.crop"] = scan.pattern_shape[0]
    known |= {f"load.{name}": value for name, value in _lengths(scan.geometry).items()}
    known |= {f"load.{name}": value for name, value in loaded_options(scan).arguments.items()}
    return {name: _one_number(known[name]) for name in names if name in known}


def _lengths(geometry: object) -> dict[str, Any]:
    """Return the options of `load` that a geometry contains."""
    match geometry:
        case Geometry():
            own: dict[str, Any] = {"distance": geometry.distance, "geometry": "far field"}
        case NearField():
            own = {"distance": geometry.sample_to_detector, "geometry": "near field"}
            if math.isfinite(geometry.focus_to_sample):
                own["focus_to_sample"] = geometry.focus_to_sample
        case _:
            return {}
    shared = {name: getattr(geometry, name) for name in ("wavelength", "energy", "detector_pixel")}
    return own | shared


def _one_number(value: Any) -> Any:
    """Return a pair of equal numbers as one number, as ranges have it."""
    return value[0] if isinstance(value, tuple) and len({*value}) == 1 else value


def _not_reopenable(scan: Scan) -> str:
    """Return why `load` cannot open this scan again; "" if it can."""
    loaded = scan.loaded
    if loaded is None:
        return "was not opened by load"
    if loaded.arrays:
        return f"was opened with {' and '.join(loaded.arrays)} as arrays, which are not recorded"
    if identity_of(scan).prepared:
        return "was changed after it was loaded (cropped, flipped, masked, given a probe ...)"
    return ""
