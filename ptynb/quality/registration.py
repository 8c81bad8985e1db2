"""Registration: the shift, the complex factor and the linear phase ramp that make one object fit another."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Area = tuple[slice, slice]

ITERATIONS = 100
"""Ten are usual; more only where the two objects have nothing in common."""
STEP = 2
"""Pixels between the two factors of the products that the search correlates: noise counts less than at 1."""


@dataclass(frozen=True, eq=False)
class Registered:
    """An object moved onto another one: aligned(r) = factor · exp(i ramp · r) · object(r - shift).

    error: root of the mean squared complex difference over that of the mean squared reference.
    aligned, reference: complex (y, x), both inside the area.
    shift: (y, x) that the object was moved by [pixels], on top of the offset.
    factor: that it was multiplied by, at the middle of the area, where r = 0.
    ramp: (y, x) phase that was added [rad/pixel].
    """

    error: float
    aligned: Array
    reference: Array
    shift: tuple[float, float]
    factor: complex
    ramp: tuple[float, float]


def register(object: Array, reference: Array, area: Area | None = None, offset: tuple[int, int] = (0, 0)) -> Registered:
    """Finds the shift, the complex factor and the linear phase ramp by which `object` fits `reference` best.

    object, reference: (y, x), complex, or both real (then there is no ramp); their shapes may differ.
    area: of the reference, in which the two are compared; None: all that both cover, less an eighth at each border.
    offset: (y, x), pixel of the reference that the object's first pixel stands for, as far as is known.

    Whole pixels are searched for, then everything is fitted to fractions of a pixel by
    Levenberg and Marquardt's method on the squared difference. Of a periodic object the nearest match is taken.

    Raises ValueError where the area is not inside both, also after the shift, and where one of them is 0 all over it.
    """
    if area is None:
        area = _shared_area(object.shape, reference.shape, offset)
    fit = _Fit.of(object, reference, area, offset)
    starts = [_straightened(fit, shift) for shift in ((0.0, 0.0), _coarse_shift(fit.candidate, fit.reference))]
    straight, parameters, ramp = min(starts, key=lambda start: start[0].error(start[1]))
    registered = _with_ramp(straight.solve(parameters), ramp)
    for part, side, moved in zip(fit.area, object.shape, registered.shift, strict=True):
        if part.start - moved < -0.5 or part.stop - moved > side + 0.5:
            raise ValueError(
                f"The object fits when it is moved by ({registered.shift[0]:.2f}, {registered.shift[1]:.2f}) pixels, "
                f"which leaves the area {area} partly without object; choose a smaller area or a "
                "better offset, if the two show the same at all."
            )
    return registered


def registered_near(object: Array, reference: Array, area: Area, offset: tuple[int, int] = (0, 0)) -> Registered:
    """As `register`, for a shift that is known to about a pixel: nothing is searched for, only fitted."""
    fit = _Fit.of(object, reference, area, offset)
    return fit.solve(fit.start((0.0, 0.0)))


@dataclass(frozen=True, eq=False)
class _Fit:
    """The least-squares problem; its parameters are (shift y, shift x, ramp y, ramp x).

    The factor is not among them: for given parameters the best one is known (variable projection).
    object: whole; area: in its pixels; ramped: whether a ramp makes sense, which it does not between real images.
    """

    object: Array
    reference: Array
    area: Area
    ramped: bool

    @classmethod
    def of(cls, object: Array, reference: Array, area: Area, offset: tuple[int, int]) -> _Fit:
        rows, columns = (slice(part.start - shift, part.stop - shift) for part, shift in zip(area, offset, strict=True))
        for part, side in zip((*area, rows, columns), (*reference.shape, *object.shape), strict=True):
            if not 0 <= part.start < part.stop <= side:
                raise ValueError(
                    f"The area {area} of the reference is empty or does not lie inside both the reference of shape "
                    f"{reference.shape} and the object of shape {object.shape} that begins at {offset}."
                )
        for values, name in ((reference[area], "reference"), (object[rows, columns], "object")):
            if not (np.isfinite(values).all() and values.any()):
                raise ValueError(
                    f"The {name} is 0 all over the area {area}, or not finite; expected something to register. "
                    "Choose another area."
                )
        ramped = np.iscomplexobj(object) or np.iscomplexobj(reference)
        return cls(np.asarray(object, complex), np.asarray(reference[area], complex), (rows, columns), ramped)

    @property
    def candidate(self) -> Array:
        return self.object[self.area]

    def start(self, shift: tuple[float, float]) -> Array:
        """The parameters at this shift [pixels], with the ramp that follows from it."""
        whole = np.roll(self.object, [round(distance) for distance in shift], (0, 1))[self.area]
        return np.array([*shift, *(_ramp_between(whole, self.reference) if self.ramped else (0.0, 0.0))])

    def error(self, parameters: Array) -> float:
        """Normalised root of the mean squared difference, with the best factor."""
        moved = self._moved(parameters)[0]
        return self._error(moved, self._factor(moved))

    def solve(self, parameters: Array) -> Registered:
        """Levenberg and Marquardt's method from these parameters on."""
        damping = 1e-3
        moved, slopes = self._moved(parameters)
        factor = self._factor(moved)
        error = self._error(moved, factor)
        for _ in range(ITERATIONS):
            step = self._step(moved, slopes, factor, damping)
            tried = self._moved(parameters + step)
            tried_factor = self._factor(tried[0])
            tried_error = self._error(tried[0], tried_factor)
            if tried_error < error:
                gain = error - tried_error
                parameters, (moved, slopes), factor, error = parameters + step, tried, tried_factor, tried_error
                damping /= 10
                if gain < 1e-9 * error:
                    break
            elif damping > 1e6:
                break
            else:
                damping *= 10
            if np.abs(step * self._scales).max() < 1e-9:
                break
        shift_y, shift_x, ramp_y, ramp_x = (float(value) for value in parameters)
        return Registered(error, factor * moved, self.reference, (shift_y, shift_x), factor, (ramp_y, ramp_x))

    @property
    def _scales(self) -> Array:
        """Turns parameters into pixels and radians over the area."""
        return np.array([1.0, 1.0, *self.reference.shape])

    @property
    def places(self) -> tuple[Array, Array]:
        """y and x of the object's pixels, from the middle of the area on."""
        y, x = (
            np.arange(side) - (part.start + part.stop - 1) / 2
            for side, part in zip(self.object.shape, self.area, strict=True)
        )
        return y, x

    def _moved(self, parameters: Array) -> tuple[Array, list[Array]]:
        """The object moved and given its ramp, inside the area; and its derivatives by the parameters."""
        y, x = (places[part] for places, part in zip(self.places, self.area, strict=True))
        ramp = _ramp(y, x, parameters[2:])
        (phase_y, slope_y), (phase_x, slope_x) = (
            _shift_phase(side, distance) for side, distance in zip(self.object.shape, parameters[:2], strict=True)
        )
        moved, by_y, by_x = (
            np.fft.ifft2(self._spectrum * down[:, None] * across[None, :])[self.area] * ramp
            for down, across in ((phase_y, phase_x), (slope_y, phase_x), (phase_y, slope_x))
        )
        slopes = [by_y, by_x]
        if self.ramped:
            slopes += [1j * y[:, None] * moved, 1j * x[None, :] * moved]
        return moved, slopes

    @cached_property
    def _spectrum(self) -> Array:
        return np.fft.fft2(self.object)

    def _step(self, moved: Array, slopes: list[Array], factor: complex, damping: float) -> Array:
        residual = (factor * moved - self.reference).ravel()
        unit = moved.ravel() / np.linalg.norm(moved)
        jacobian = np.stack([factor * slope.ravel() for slope in slopes])
        # What a change of the factor would do as well is no reason for a step.
        jacobian -= (jacobian @ unit.conj())[:, None] * unit
        normal = (jacobian.conj() @ jacobian.T).real
        gradient = (jacobian.conj() @ residual).real
        diagonal = np.diag(normal)
        floor = 1e-12 * max(float(diagonal.max()), 1e-300)
        damped = normal + np.diag(damping * diagonal + floor)
        step = np.zeros(4)
        step[: len(slopes)] = -np.linalg.solve(damped, gradient)
        return step

    def _factor(self, moved: Array) -> complex:
        return complex(np.vdot(moved, self.reference) / np.vdot(moved, moved).real)

    def _error(self, moved: Array, factor: complex) -> float:
        return float(np.linalg.norm(factor * moved - self.reference) / np.linalg.norm(self.reference))


def _straightened(fit: _Fit, shift: tuple[float, float]) -> tuple[_Fit, Array, Array]:
    """The problem with the ramp at this shift taken off the whole object, its parameters there, and that ramp.

    A ramp jumps at the object's border, where a shift by Fourier phases wraps round and lets it ring into the area.
    """
    parameters = fit.start(shift)
    straight = fit.object * _ramp(*fit.places, parameters[2:])
    return dataclasses.replace(fit, object=straight), np.array([*shift, 0.0, 0.0]), parameters[2:]


def _with_ramp(registered: Registered, ramp: Array) -> Registered:
    """What was found for an object that had been given `ramp` (y, x) [rad/pixel] before, told of the object itself.

    exp(i ramp · (r - shift)) is the ramp and a constant.
    """
    constant = np.exp(-1j * np.dot(ramp, registered.shift))
    total = (float(registered.ramp[0] + ramp[0]), float(registered.ramp[1] + ramp[1]))
    return dataclasses.replace(registered, factor=complex(registered.factor * constant), ramp=total)


def _ramp(y: Array, x: Array, ramp: Array) -> Array:
    return np.exp(1j * ramp[0] * y)[:, None] * np.exp(1j * ramp[1] * x)[None, :]


def _shared_area(object: tuple[int, ...], reference: tuple[int, ...], offset: tuple[int, int]) -> Area:
    """What both cover, less an eighth of it at each border."""
    parts = []
    for inner, outer, shift in zip(object, reference, offset, strict=True):
        low, high = max(0, shift), min(outer, inner + shift)
        margin = max(high - low, 0) // 8
        parts.append(slice(low + margin, high - margin))
    return parts[0], parts[1]


def _shift_phase(side: int, distance: float) -> tuple[Array, Array]:
    """exp(-2πi k s), and its derivative by s.

    Also at the Nyquist frequency: cos(π s) there, as for probes, would dampen noise and so reward a shift.
    """
    angular = 2 * np.pi * np.fft.fftfreq(side)
    phase = np.exp(-1j * angular * distance)
    return phase, -1j * angular * phase


def _ramp_between(candidate: Array, reference: Array) -> tuple[float, float]:
    """Phase step [rad/pixel] of a linear ramp, by the mean phase step of the ratio of the two."""
    ratio = reference * candidate.conj()
    steps = (np.vdot(ratio[:-1], ratio[1:]), np.vdot(ratio[:, :-1], ratio[:, 1:]))
    return float(np.angle(steps[0])), float(np.angle(steps[1]))


def _coarse_shift(candidate: Array, reference: Array) -> tuple[float, float]:
    """The shift (y, x) [pixels] that brings the candidate onto the reference.

    The products O(r + d) O*(r) of a pixel and a near one know a factor and a ramp only as one constant, so their
    cross-correlation finds the shift whatever these are. Zeros around prefer the nearest of equal peaks.
    """
    correlation = np.zeros([2 * side for side in candidate.shape])
    for axis in (0, 1):
        if candidate.shape[axis] > STEP:
            one, other = (_products(field, axis, correlation.shape) for field in (candidate, reference))
            correlation += np.abs(np.fft.ifft2(other * one.conj())) ** 2
    peak = np.unravel_index(int(correlation.argmax()), correlation.shape)
    # Behind the middle of the doubled sides lie the negative shifts.
    y, x = (float((place + side) % (2 * side) - side) for place, side in zip(peak, candidate.shape, strict=True))
    return y, x


def _products(field: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """The Fourier transform of O(r + d) O*(r) without its mean, with zeros around up to `shape`."""
    along = np.moveaxis(field, axis, 0)
    products = np.moveaxis(along[STEP:] * along[:-STEP].conj(), 0, axis)
    return np.fft.fft2(products - products.mean(), s=shape, axes=(0, 1))
