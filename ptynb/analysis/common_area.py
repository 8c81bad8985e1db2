"""Several results of one sample together: on common pixels, over a common area, their difference, what else differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, gaussian_filter

from ptynb.analysis.registration import Area, Registered, register
from ptynb.analysis.ring_correlation import RingCorrelation, ring_correlation
from ptynb.data.geometry import illuminated_area
from ptynb.data.snapshot import Result
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
FEWEST = 16
"""Pixels a side that have to be common: fewer tell nothing."""
DRIFT = 0.1
"""Pixel sizes are the same where the objects drift apart by less than this over their sides [pixels]."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A result's object on the pixels of the comparison.

    field: complex (y, x). origin: (y, x) of its first pixel in the scan's coordinates [pixels of the comparison].
    illuminated: the part of it that was illuminated. resampled: whether its own pixels are others.
    """

    field: Array
    origin: tuple[int, int]
    illuminated: Area
    resampled: bool = False

    @property
    def covered(self) -> Area:
        """The illuminated part in the scan's coordinates [pixels of the comparison]."""
        return _moved(self.illuminated, self.origin)


@dataclass(frozen=True, eq=False)
class Difference:
    """One object against another, after what ptychography leaves open was taken off: shift, factor, phase ramp.

    registered: how the one was moved onto the other, and both over the area compared (see `Registered`).
    correlation: their Fourier ring correlation. meaning: a sentence, what that says of these two.
    """

    registered: Registered
    correlation: RingCorrelation
    meaning: str

    @property
    def relative(self) -> Array:
        """The complex difference (y, x) over the root-mean-square amplitude of the other."""
        one, other = self.registered.aligned, self.registered.reference
        difference: Array = (one - other) / np.sqrt(np.mean(np.abs(other) ** 2))
        return difference

    @property
    def amplitude(self) -> Array:
        """The difference of the amplitudes (y, x) over the root-mean-square amplitude of the other."""
        one, other = np.abs(self.registered.aligned), np.abs(self.registered.reference)
        difference: Array = (one - other) / np.sqrt(np.mean(other**2))
        return difference

    @property
    def phase(self) -> Array:
        """The difference of the phases (y, x) [rad], in [-π, π]."""
        difference: Array = np.angle(self.registered.aligned * self.registered.reference.conj())
        return difference


class Together:
    """Results by name, of which the first one's pixels and place are the measure.

    slice: of thick objects, from 0; None: the product of all. Thin objects take part in slice 0 and in the product.

    pixel_size: (y, x) of the comparison [m]; None where the first result does not know it.
    placed: those that can be compared, by name. left_out: a sentence for each other one, by name.
    area: what all that can be compared show, in the scan's coordinates [pixels of the comparison].
    """

    def __init__(self, results: Mapping[str, Result], slice: int | None = None) -> None:
        if not results:
            raise InvalidValueError("There is no result to compare; give at least one.", code="argument.missing")
        self.results, self.slice = dict(results), slice
        self.pixel_size = next(iter(results.values())).pixel_size
        self.placed: dict[str, Placed] = {}
        self.left_out: dict[str, str] = {}
        self._registered: dict[tuple[str, str], Registered] = {}
        self._differences: dict[tuple[str, str], Difference] = {}
        area: Area | None = None
        for name, result in results.items():
            try:
                one = placed(result, self.pixel_size, slice)
                area = _shared(one.covered, area)
            except ValueError as error:
                self.left_out[name] = f"{name} is not compared: {error}"
            else:
                self.placed[name] = one
        if area is None:
            raise InvalidValueError(next(iter(self.left_out.values())), code="comparison.not-comparable")
        self.area = area

    @property
    def first(self) -> str:
        """The result that the others are registered on."""
        return next(iter(self.placed))

    def covered(self, name: str) -> Array:
        """The object (y, x) over the common area, as it is; of one left out, all that was illuminated."""
        if name in self.placed:
            one = self.placed[name]
            return one.field[_moved(self.area, one.origin, back=True)]
        result = self.results[name]
        field = _chosen(result, self.slice if self.slice is not None and self.slice < len(result.slices) else None)
        return field[illuminated(result)]

    def registered(self, one: str, other: str) -> Registered:
        """The one moved onto the other over the common area; found once. Raises ValueError where they do not fit."""
        if (one, other) not in self._registered:
            for name in (one, other):
                if name in self.left_out:
                    raise InvalidValueError(self.left_out[name], code="comparison.not-comparable")
            ours, theirs = self.placed[one], self.placed[other]
            offset = (ours.origin[0] - theirs.origin[0], ours.origin[1] - theirs.origin[1])
            area = _moved(self.area, theirs.origin, back=True)
            try:
                self._registered[one, other] = register(ours.field, theirs.field, area, offset)
            except ValueError as error:
                raise InvalidValueError(
                    f"{one} could not be moved onto {other}: {error}", code="comparison.registration-failed"
                ) from error
        return self._registered[one, other]

    def difference(self, one: str, other: str) -> Difference:
        """The one against the other; found once. Raises ValueError where they cannot be compared."""
        if (one, other) not in self._differences:
            registered = self.registered(one, other)
            correlation = ring_correlation(registered.aligned, registered.reference, self.pixel_size)
            meaning = independence(self.results[one], self.results[other])
            self._differences[one, other] = Difference(registered, correlation, meaning)
        return self._differences[one, other]


def placed(result: Result, pixel_size: tuple[float, float] | None, slice: int | None = None) -> Placed:
    """A result's object on pixels of this size [m]; slice as in `Together`.

    Where one of the pixel sizes is not known, pixels are compared with pixels. Others are interpolated by cubic
    splines, after what larger pixels cannot show was smoothed away. Raises ValueError where there is no such slice.
    """
    if slice is not None and slice >= len(result.slices):
        raise InvalidValueError(
            f"it has {len(result.slices)} slice(s) and no slice {slice}; choose another one, or all.",
            code="argument.invalid-value",
        )
    field, lit = _chosen(result, slice), illuminated(result)
    own = result.pixel_size
    if own is None or pixel_size is None:
        return Placed(field, result.origin, lit)
    step = np.array(pixel_size) / np.array(own)
    if (np.abs(step - 1) * field.shape < DRIFT).all():
        return Placed(field, result.origin, lit)
    # A new pixel k lies at (k step - origin) of the old ones.
    old = np.array(result.origin)
    first = np.ceil(old / step - 1e-9).astype(int)
    shape = np.maximum(np.floor((old + np.array(field.shape) - 1) / step + 1e-9).astype(int) - first + 1, 1)
    sigma = np.sqrt(np.maximum(step**2 - 1, 0)) / np.sqrt(12)
    parts = [
        affine_transform(gaussian_filter(part, sigma), step, first * step - old, tuple(shape), order=3, mode="nearest")
        for part in (field.real, field.imag)
    ]
    bounds = [((part.start + at) / by, (part.stop + at) / by) for part, at, by in zip(lit, old, step, strict=True)]
    low, high = (np.rint([bound[end] for bound in bounds]).astype(int) - first for end in (0, 1))
    low, high = np.clip(low, 0, shape), np.clip(high, 0, shape)
    area = (_slice(low[0], high[0]), _slice(low[1], high[1]))
    return Placed(parts[0] + 1j * parts[1], (int(first[0]), int(first[1])), area, resampled=True)


def independence(one: Result, other: Result) -> str:
    """What a Fourier ring correlation of two results says, by the scans that they tell they come from."""
    first, second = one.metadata.get("scan", ""), other.metadata.get("scan", "")
    if not first or not second:
        return (
            "Which scans they are of is not known: where the patterns are the same, this is agreement, not resolution."
        )
    if first == second:
        return (
            "Both are of the same patterns and share their noise: this is the finest detail in which the two "
            "reconstructions agree, not the resolution. For that, compare the results of quality.split_scan(scan)."
        )
    if are_halves(one, other):
        return "They are of the two halves of a scan, whose noise is independent: this is the resolution of a half."
    return "They are of different scans: this is the resolution if both scans are of the same sample at the same place."


def are_halves(one: Result, other: Result) -> bool:
    """Whether they tell that they are of the two halves of a scan, as `halves` makes them: of independent noise."""
    scans = [result.metadata.get("scan", "").rpartition(", half ") for result in (one, other)]
    return scans[0][0] == scans[1][0] != "" and {scan[2] for scan in scans} == {"1 of 2", "2 of 2"}


def settings_that_differ(results: Mapping[str, Result]) -> dict[str, tuple[Any, ...]]:
    """Settings by dotted name that are not the same in all results, with each one's value; None where it has none."""
    return _rows_that_differ([dict(entries(result.settings)) for result in results.values()])


def facts_of(result: Result) -> dict[str, Any]:
    """What a result tells of itself, by name: how it fits, how long it took, on what, with which versions."""
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


def _rows_that_differ(columns: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    names: Iterable[str] = dict.fromkeys(name for column in columns for name in column)
    rows = {name: tuple(column.get(name) for column in columns) for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row[1:])}


def entries(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every field; the terms and constraints in a list by their kinds."""
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


def _chosen(result: Result, slice: int | None) -> Array:
    field: Array = result.projection if slice is None else result.slices[slice]
    return field


def illuminated(result: Result) -> Area:
    """The illuminated part of a result's object, inside its array: positions may have moved beyond it."""
    area = illuminated_area(result.positions, result.probe.shape[-2:])
    sides = result.object.shape[-2:]
    y, x = (_slice(max(part.start, 0), min(part.stop, side)) for part, side in zip(area, sides, strict=True))
    return y, x


def _shared(one: Area, other: Area | None) -> Area:
    if other is not None:
        y, x = (_slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other, strict=True))
        one = (y, x)
    sides = [part.stop - part.start for part in one]
    if min(sides) < FEWEST:
        what = "it shows" if other is None else "it shares with those before"
        raise InvalidValueError(
            f"{what} {max(sides[0], 0)} x {max(sides[1], 0)} pixels; expected at least {FEWEST} x {FEWEST}. "
            "Compare it with results of the same place.",
            code="comparison.area-too-small",
        )
    return one


def _moved(area: Area, origin: tuple[int, int], back: bool = False) -> Area:
    sign = -1 if back else 1
    y, x = (_slice(part.start + sign * at, part.stop + sign * at) for part, at in zip(area, origin, strict=True))
    return y, x


def _slice(start: int, stop: int) -> slice:
    return slice(int(start), int(stop))
