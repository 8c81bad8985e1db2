"""Comparison of several results: common pixels, common area, differences of objects and settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, gaussian_filter

from ptynb.analysis.registration import Area, Registered, register
from ptynb.analysis.ring_correlation import RingCorrelation, ring_correlation
from ptynb.data.engine_records import Result
from ptynb.data.geometry import illuminated_area
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
FEWEST = 16
"""Smallest side of the common area [pixels]."""
DRIFT = 0.1
"""Pixel sizes are taken as equal if the objects are displaced by less than this over their sides [pixels]."""


@dataclass(frozen=True, eq=False)
class Placed:
    """The object of a result on the pixels of the comparison.

    field: complex (y, x). origin: (y, x) of its first pixel in the coordinates of the scan [pixels of the comparison].
    illuminated: illuminated area of `field`. resampled: whether it was interpolated from other pixels.
    """

    field: Array
    origin: tuple[int, int]
    illuminated: Area
    resampled: bool = False

    @property
    def covered(self) -> Area:
        """Illuminated area in the coordinates of the scan [pixels of the comparison]."""
        return _moved(self.illuminated, self.origin)


@dataclass(frozen=True, eq=False)
class Difference:
    """Difference of two objects, after removing what ptychography cannot determine: shift, factor, phase ramp.

    Parameters
    ----------
    registered : Registered
        The registered object and its reference over the common area.
    correlation : RingCorrelation
        Their Fourier ring correlation.
    meaning : str
        Interpretation of the correlation for these two results.
    """

    registered: Registered
    correlation: RingCorrelation
    meaning: str

    @property
    def relative(self) -> Array:
        """Complex difference (y, x), divided by the root-mean-square amplitude of the reference."""
        one, other = self.registered.aligned, self.registered.reference
        return (one - other) / np.sqrt(np.mean(np.abs(other) ** 2))

    @property
    def amplitude(self) -> Array:
        """Difference of the amplitudes (y, x), divided by the root-mean-square amplitude of the reference."""
        one, other = np.abs(self.registered.aligned), np.abs(self.registered.reference)
        return (one - other) / np.sqrt(np.mean(other**2))

    @property
    def phase(self) -> Array:
        """Difference of the phases (y, x) [rad], in [-π, π]."""
        return np.angle(self.registered.aligned * self.registered.reference.conj())


class Together:
    """Several results on the pixels of the first one.

    Parameters
    ----------
    results : Mapping of str to Result
        Results by name.
    slice : int, optional
        Slice of thick objects, from 0; by default the product of all. Thin objects have slice 0 only.
    within : (slice, slice), optional
        Part (y, x) to which the comparison is limited, in the coordinates of the scan [pixels of the comparison]: of
        large objects all of the common area takes much memory. Both slices have a start and a stop.

    Attributes
    ----------
    pixel_size : (float, float) or None
        Size (y, x) of the pixels [m]; None if the first result has none.
    placed : dict of str to Placed
        Comparable results by name.
    left_out : dict of str to str
        Reasons why other results are not comparable, by name.
    area : (slice, slice)
        Area common to all comparable results, in the coordinates of the scan [pixels of the comparison].

    Raises
    ------
    InvalidValueError
        If no result is given or comparable (code "comparison.not-comparable").
    """

    def __init__(self, results: Mapping[str, Result], slice: int | None = None, within: Area | None = None) -> None:
        if not results:
            raise InvalidValueError("There are no results to compare; give at least one.", code="argument.missing")
        self.results, self.slice = dict(results), slice
        self.pixel_size = next(iter(results.values())).pixel_size
        self.placed: dict[str, Placed] = {}
        self.left_out: dict[str, str] = {}
        self._registered: dict[tuple[str, str], Registered] = {}
        self._differences: dict[tuple[str, str], Difference] = {}
        if within is not None:
            check_area(within)
        area = within
        for name, result in results.items():
            try:
                one = placed(result, self.pixel_size, slice)
                area = common_area(one.covered, area, limited=not self.placed)
            except ValueError as error:
                self.left_out[name] = f"{name} is not compared: {error}"
            else:
                self.placed[name] = one
        if area is None or not self.placed:
            raise InvalidValueError(next(iter(self.left_out.values())), code="comparison.not-comparable")
        self.area = area

    @property
    def first(self) -> str:
        """Name of the result to which the others are registered."""
        return next(iter(self.placed))

    def covered(self, name: str) -> Array:
        """Return an object over the common area; for a result that is not comparable, its illuminated area.

        Parameters
        ----------
        name : str
            Name of the result.

        Returns
        -------
        ndarray
            Object (y, x), complex.
        """
        if name in self.placed:
            one = self.placed[name]
            return one.field[_moved(self.area, one.origin, back=True)]
        result = self.results[name]
        field = _field_of(result, self.slice if self.slice is not None and self.slice < len(result.slices) else None)
        return field[illuminated(result)]

    def registered(self, one: str, other: str) -> Registered:
        """Register one object to another over the common area; the result is cached.

        Parameters
        ----------
        one : str
            Name of the result that is registered.
        other : str
            Name of the reference.

        Returns
        -------
        Registered
            The registered object.

        Raises
        ------
        InvalidValueError
            If registration fails (code "comparison.registration-failed"), or one is not comparable.
        """
        if (one, other) not in self._registered:
            for name in (one, other):
                if name in self.left_out:
                    raise InvalidValueError(self.left_out[name], code="comparison.not-comparable")
            moving, fixed = self.placed[one], self.placed[other]
            offset = (moving.origin[0] - fixed.origin[0], moving.origin[1] - fixed.origin[1])
            area = _moved(self.area, fixed.origin, back=True)
            try:
                self._registered[one, other] = register(moving.field, fixed.field, area, offset)
            except ValueError as error:
                raise InvalidValueError(
                    f"{one} could not be moved onto {other}: {error}", code="comparison.registration-failed"
                ) from error
        return self._registered[one, other]

    def on_area(self, name: str, registered: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return where points of an object lie in the common area: point = scale · (point of the object) + offset.

        Points are (y, x) in pixels, from the outer corner of the first pixel.

        Parameters
        ----------
        name : str
            Name of a result that is comparable.
        registered : bool, optional
            Whether its object is shown registered to the first one; if that fails, it is shown as it is.

        Returns
        -------
        tuple of ndarray
            scale and offset, float64 (yx,).
        """
        one, own = self.placed[name], self.results[name].pixel_size
        step = np.ones(2)
        if one.resampled and own is not None and self.pixel_size is not None:
            step = np.array(self.pixel_size) / np.array(own)
        shift = np.zeros(2)
        if registered and name != self.first:
            with contextlib.suppress(InvalidValueError):
                shift = np.array(self.registered(name, self.first).shift)
        start = np.array([part.start for part in self.area])
        return 1 / step, (np.array(self.results[name].origin) - 0.5) / step + 0.5 - start + shift

    def difference(self, one: str, other: str) -> Difference:
        """Return the difference of two objects after registration; the result is cached.

        Parameters
        ----------
        one : str
            Name of the result that is registered.
        other : str
            Name of the reference.

        Returns
        -------
        Difference
            Their difference.

        Raises
        ------
        InvalidValueError
            If they cannot be compared.
        """
        if (one, other) not in self._differences:
            registered = self.registered(one, other)
            correlation = ring_correlation(registered.aligned, registered.reference, self.pixel_size)
            meaning = independence(self.results[one], self.results[other])
            self._differences[one, other] = Difference(registered, correlation, meaning)
        return self._differences[one, other]


def placed(result: Result, pixel_size: tuple[float, float] | None, slice: int | None = None) -> Placed:
    """Return the object of a result on pixels of size `pixel_size` [m]; `slice` as in `Together`.

    If one of the pixel sizes is unknown, the pixels are taken as equal. Others are interpolated by cubic splines, after
    smoothing to the resolution of larger pixels. Raises InvalidValueError if the slice does not exist.
    """
    if slice is not None and slice >= len(result.slices):
        raise InvalidValueError(
            f"it has no slice {slice} (its number of slices is {len(result.slices)}); choose another one, or all.",
            code="argument.invalid-value",
        )
    field, area = _field_of(result, slice), illuminated(result)
    own = result.pixel_size
    if own is None or pixel_size is None:
        return Placed(field, result.origin, area)
    step = np.array(pixel_size) / np.array(own)
    if (np.abs(step - 1) * field.shape < DRIFT).all():
        return Placed(field, result.origin, area)
    # New pixel k is at (k step - origin) in old pixels.
    old = np.array(result.origin)
    first = np.ceil(old / step - 1e-9).astype(int)
    shape = np.maximum(np.floor((old + np.array(field.shape) - 1) / step + 1e-9).astype(int) - first + 1, 1)
    sigma = np.sqrt(np.maximum(step**2 - 1, 0)) / np.sqrt(12)
    parts = [
        affine_transform(gaussian_filter(part, sigma), step, first * step - old, tuple(shape), order=3, mode="nearest")
        for part in (field.real, field.imag)
    ]
    bounds = [((part.start + at) / by, (part.stop + at) / by) for part, at, by in zip(area, old, step, strict=True)]
    low, high = (np.rint([bound[end] for bound in bounds]).astype(int) - first for end in (0, 1))
    low, high = np.clip(low, 0, shape), np.clip(high, 0, shape)
    area = (_slice(low[0], high[0]), _slice(low[1], high[1]))
    return Placed(parts[0] + 1j * parts[1], (int(first[0]), int(first[1])), area, resampled=True)


def independence(one: Result, other: Result) -> str:
    """Return an interpretation of the Fourier ring correlation of two results, from the names of their scans."""
    first, second = one.metadata.get("scan", ""), other.metadata.get("scan", "")
    if not first or not second:
        return "The scans are not known: if the patterns are the same, this is agreement, not resolution."
    if first == second:
        return (
            "Both are reconstructed from the same patterns and share their noise: this is the finest detail in which "
            "they agree, not the resolution. For that, compare the results of analysis.split_scan(scan)."
        )
    if are_halves(one, other):
        return "They are reconstructed from halves of a scan, with independent noise: this is the resolution of a half."
    return (
        "They are reconstructed from different scans: this is the resolution if both show the same place of a sample."
    )


def are_halves(one: Result, other: Result) -> bool:
    """Whether two results are of the two halves of a scan from `split_scan`, which have independent noise."""
    scans = [result.metadata.get("scan", "").rpartition(", half ") for result in (one, other)]
    return scans[0][0] == scans[1][0] != "" and {scan[2] for scan in scans} == {"1 of 2", "2 of 2"}


def settings_that_differ(results: Mapping[str, Result]) -> dict[str, tuple[Any, ...]]:
    """Return the settings that differ between results.

    Parameters
    ----------
    results : Mapping of str to Result
        Results by name.

    Returns
    -------
    dict of str to tuple
        Dotted name -> value in each result; None if it has none.
    """
    columns = [dict(entries(result.settings)) for result in results.values()]
    names = dict.fromkeys(name for column in columns for name in column)
    rows = {name: tuple(column.get(name) for column in columns) for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row[1:])}


def facts_of(result: Result) -> dict[str, Any]:
    """Return figures of a result: fit, time, size, versions.

    Parameters
    ----------
    result : Result
        Result.

    Returns
    -------
    dict of str to Any
        Values by name.
    """
    seconds = sum(epoch.seconds for epoch in result.epochs)
    patterns = sum(epoch.seconds * epoch.patterns_per_second for epoch in result.epochs)
    return {
        "R-factor": result.r_factor,
        "loss": result.epochs[-1].loss if result.epochs else None,
        "epochs": len(result.epochs),
        "seconds": seconds,
        "patterns/s": patterns / seconds if seconds > 0 else None,
        "object [pixels]": " × ".join(str(side) for side in result.object.shape),
        "pixel [nm]": None if result.pixel_size is None else tuple(side * 1e9 for side in result.pixel_size),
        "probe modes": len(result.probe),
        "changes on the way": len(result.changes),
        **{name: value for name, value in result.metadata.items() if value},
    }


def entries(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field of nested mappings; items of lists are named by their kinds."""
    for name, value in values.items():
        if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            kinds = [str(item.get("kind", number)) for number, item in enumerate(value, start=1)]
            inside = {
                kind if kinds.count(kind) == 1 else f"{kind} {n}": v
                for n, (kind, v) in enumerate(zip(kinds, value, strict=True), 1)
            }
            yield from entries(inside, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            yield from entries(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", list(value) if isinstance(value, tuple) else value


def _field_of(result: Result, slice: int | None) -> Array:
    return result.projection if slice is None else result.slices[slice]


def illuminated(result: Result) -> Area:
    """Return the illuminated area of a result's object, limited to its array."""
    area = illuminated_area(result.positions, result.probe.shape[-2:])
    sides = result.object.shape[-2:]
    y, x = (_slice(max(part.start, 0), min(part.stop, side)) for part, side in zip(area, sides, strict=True))
    return y, x


def check_area(area: Area) -> None:
    """Raise InvalidValueError if an area to compare is not limited."""
    if any(None in (part.start, part.stop) for part in area):
        raise InvalidValueError(
            f"The area to compare is {area}; expected slices (y, x) with a start and a stop.",
            code="argument.invalid-value",
            fields=("within",),
        )


def common_area(one: Area, other: Area | None, limited: bool) -> Area:
    """Return the common part of two areas. limited: whether the other one was asked for, and not found.

    Raises InvalidValueError if it is too small to be compared.
    """
    covered = one
    if other is not None:
        y, x = (_slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True))
        one = (y, x)
    sides = [max(part.stop - part.start, 0) for part in one]
    if min(sides) < FEWEST:
        what, remedy = "it shows", "Compare it with results of the same place."
        if other is not None:
            what = "it shares with those before"
        if other is not None and limited:
            rows, columns = (f"{part.start} to {part.stop}" for part in covered)
            what = "in the area asked for it has"
            remedy = f"It covers rows {rows} and columns {columns}: choose another area."
        raise InvalidValueError(
            f"{what} {sides[0]} x {sides[1]} pixels; expected at least {FEWEST} x {FEWEST}. {remedy}",
            code="comparison.area-too-small",
        )
    return one


def _moved(area: Area, origin: tuple[int, int], back: bool = False) -> Area:
    sign = -1 if back else 1
    y, x = (_slice(part.start + sign * at, part.stop + sign * at) for part, at in zip(area, origin, strict=True))
    return y, x


def _slice(start: int, stop: int) -> slice:
    return slice(int(start), int(stop))
