"""Registration: the shift, the complex factor and the linear phase ramp that fit one object to another.

Registration takes about a second on one core for 1024 x 1024 pixels, also of noisy objects: the curvature of the
squared difference is estimated from the products of the slopes of one object with those of the other, to which
independent noise does not contribute, and is then updated from the change of the gradient. The Gauss-Newton curvature,
of one object with itself, is dominated by noise and gives steps that are too short (a hundred iterations). S. Benhimane
and E. Malis, IROS 2004, 943, use the slopes of both for the same reason.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from ptynb.data.images import step_sums
from ptynb.exceptions import InvalidValueError

Array = NDArray[Any]
Area = tuple[slice, slice]

ITERATIONS = 100
"""Largest number of iterations; five are usual if the objects are similar."""
LEAST_CURVATURE = 1e-3
"""Smallest eigenvalue of the curvature, relative to the curvature of an object with itself."""
LARGEST_STEP = 1.0
"""Longest step [pixels]; the curvature is not valid beyond."""
SMALLEST_STEP = 1e-6
"""Length of a step at which the iteration ends [pixels, and radians over the area]."""
LARGE, AROUND = 2**24, 256
"""Number of pixels of arrays of which only a part is transformed: the area with a quarter of its sides, at least
`AROUND` pixels, around it. For 2048 x 2048 of 8192 x 8192 pixels all took 140 s and 9 GB."""
STEP = 2
"""Distance of the two factors in the products for the coarse search [pixels]; less sensitive to noise than 1."""


@dataclass(frozen=True, eq=False)
class Registered:
    """An object registered to another: aligned(r) = factor · exp(i ramp · r) · object(r - shift).

    Parameters
    ----------
    error : float
        Root mean squared complex difference, divided by that of the reference.
    aligned : ndarray of complex
        The object (y, x) inside the area.
    reference : ndarray of complex
        The reference (y, x) inside the area.
    shift : (float, float)
        Shift (y, x) of the object [pixels], in addition to the offset.
    factor : complex
        Factor of the object at the centre of the area, where r = 0.
    ramp : (float, float)
        Phase ramp (y, x) added to the object [rad/pixel].
    """

    error: float
    aligned: Array
    reference: Array
    shift: tuple[float, float]
    factor: complex
    ramp: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A reconstructed object and the true one over the compared area.

    Parameters
    ----------
    error : float
        Root mean squared complex difference, divided by the root mean square of the ground truth.
    aligned : ndarray of complex
        The reconstruction (y, x), shifted, scaled and without its ramp.
    ground_truth : ndarray of complex
        The ground truth (y, x).
    """

    error: float
    aligned: Array
    ground_truth: Array


def register(object: Array, reference: Array, area: Area | None = None, offset: tuple[int, int] = (0, 0)) -> Registered:
    """Fit one object to another by a shift, a complex factor and a linear phase ramp.

    Whole pixels are searched first, then all parameters are fitted by a damped quasi-Newton method on the squared
    difference. For periodic objects the nearest match is used.

    Parameters
    ----------
    object : ndarray
        Object (y, x), complex or real.
    reference : ndarray
        Reference (y, x).
    area : (slice, slice), optional
        Area of the reference that is compared; by default the common area without an eighth at each border.
    offset : (int, int), default (0, 0)
        Approximate pixel (y, x) of the reference at the first pixel of the object.

    Returns
    -------
    Registered
        The registered object and the parameters.

    Raises
    ------
    InvalidValueError
        If the area is not inside both (code "comparison.area-outside"), also after the shift
        ("comparison.registration-failed"), or one of them is 0 ("comparison.nothing-to-fit").
    """
    if area is None:
        area = _shared_area(object.shape, reference.shape, offset)
    fit = _Fit.of(*_around(object, reference, area, offset))
    shifts = {(0.0, 0.0), _coarse_shift(fit.candidate, fit.reference)}
    starts = [_without_ramp(fit, shift) for shift in sorted(shifts, key=lambda shift: np.hypot(*shift))]
    straight, parameters, ramp = min(starts, key=lambda start: start[0].error(start[1]))
    registered = _with_ramp(straight.solve(parameters), ramp)
    for part, side, moved in zip(fit.area, fit.object.shape, registered.shift, strict=True):
        if part.start - moved < -0.5 or part.stop - moved > side + 0.5:
            raise InvalidValueError(
                f"The best shift of the object is ({registered.shift[0]:.2f}, {registered.shift[1]:.2f}) pixels, "
                f"so that it does not cover the area {area}; choose a smaller area or a better offset, if the two "
                "show the same object.",
                code="comparison.registration-failed",
            )
    return registered


def compare(object: Array, ground_truth: Array, area: Area, offset: tuple[int, int] = (0, 0)) -> Comparison:
    """Compare a reconstructed object with the true one.

    Ptychography does not determine a shift, a complex factor and a linear phase ramp (probe and positions compensate
    them); they are fitted, to fractions of a pixel.

    Parameters
    ----------
    object : ndarray of complex
        Reconstructed object (y, x).
    ground_truth : ndarray of complex
        True object (y, x).
    area : (slice, slice)
        Area of the ground truth, at least a few pixels inside the object.
    offset : (int, int), default (0, 0)
        Approximate pixel (y, x) of the ground truth at the first pixel of the object.

    Returns
    -------
    Comparison
        Error and aligned objects.

    Raises
    ------
    InvalidValueError
        If the area is not inside both (code "comparison.area-outside").
    """
    fit = _Fit.of(*_around(object, ground_truth, area, offset))
    found = fit.solve(fit.start((0.0, 0.0)))
    return Comparison(found.error, found.aligned, found.reference)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The least-squares problem with the parameters (shift y, shift x, ramp y, ramp x).

    The best factor follows from the others (variable projection).
    object: whole array. area: compared area, in pixels of the object. ramped: whether a ramp is fitted; not for real
    images. reference: inside the area. reference_slopes: its derivatives along y and x.
    """

    object: Array
    reference: Array
    reference_slopes: tuple[Array, Array]
    area: Area
    ramped: bool

    @classmethod
    def of(cls, object: Array, reference: Array, area: Area, offset: tuple[int, int]) -> _Fit:
        rows, columns = (slice(part.start - shift, part.stop - shift) for part, shift in zip(area, offset, strict=True))
        for part, side in zip((*area, rows, columns), (*reference.shape, *object.shape), strict=True):
            if not 0 <= part.start < part.stop <= side:
                raise InvalidValueError(
                    f"The area {area} of the reference is empty or does not lie inside both the reference of shape "
                    f"{reference.shape} and the object of shape {object.shape} that begins at {offset}.",
                    code="comparison.area-outside",
                )
        for values, name in ((reference[area], "reference"), (object[rows, columns], "object")):
            if not (np.isfinite(values).all() and values.any()):
                raise InvalidValueError(
                    f"The {name} is 0 in the whole area {area}, or not finite. Choose another area.",
                    code="comparison.nothing-to-fit",
                )
        ramped = np.iscomplexobj(object) or np.iscomplexobj(reference)
        slopes = (_derivative(reference[:, area[1]], 0)[area[0]], _derivative(reference[area[0]], 1)[:, area[1]])
        whole, cut = np.asarray(object, complex), np.ascontiguousarray(reference[area], complex)
        return cls(whole, cut, slopes, (rows, columns), ramped)

    @property
    def candidate(self) -> Array:
        return self.object[self.area]

    def start(self, shift: tuple[float, float]) -> Array:
        """Return the parameters at a shift [pixels], with the ramp that follows from it."""
        whole = np.roll(self.object, [round(distance) for distance in shift], (0, 1))[self.area]
        steps = step_sums(self.reference * whole.conj()) if self.ramped else (0, 0)
        return np.array([*shift, *np.angle(steps)])

    def error(self, parameters: Array) -> float:
        """Return the normalised root mean squared difference with the best factor."""
        moved, _ = self._moved(parameters, slopes=False)
        return self._error(moved, self._factor(moved))

    def solve(self, parameters: Array) -> Registered:
        """Minimise the error by a damped Newton method, with BFGS updates of the curvature."""
        damping = 1e-3
        moved, slopes = self._moved(parameters)
        factor = self._factor(moved)
        error, gradient = self._error(moved, factor), self._gradient(moved, slopes, factor)
        curvature = self._curvature(parameters, moved, slopes, factor)
        count = len(slopes)
        for _ in range(ITERATIONS):
            step = np.zeros(4)
            step[:count] = -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), gradient)
            step /= max(1.0, float(np.abs(step[:2]).max()) / LARGEST_STEP)
            tried, tried_slopes = self._moved(parameters + step)
            tried_factor = self._factor(tried)
            tried_error = self._error(tried, tried_factor)
            tried_gradient = self._gradient(tried, tried_slopes, tried_factor)
            curvature = _bfgs_update(curvature, step[:count], tried_gradient - gradient)
            if tried_error < error:
                gain = error - tried_error
                parameters, moved, gradient = parameters + step, tried, tried_gradient
                factor, error = tried_factor, tried_error
                damping /= 10
                if gain < 1e-9 * error:
                    break
            elif damping > 1e6:
                break
            else:
                damping *= 10
            if np.abs(step * self._scales).max() < SMALLEST_STEP:
                break
        shift_y, shift_x, ramp_y, ramp_x = (float(value) for value in parameters)
        return Registered(error, factor * moved, self.reference, (shift_y, shift_x), factor, (ramp_y, ramp_x))

    @property
    def _scales(self) -> Array:
        """Factors that convert parameters to pixels, and to radians over the area."""
        return np.array([1.0, 1.0, *self.reference.shape])

    @property
    def coordinates(self) -> tuple[Array, Array]:
        """Coordinates y and x of the pixels of the object, relative to the centre of the area."""
        y, x = (
            np.arange(side) - (part.start + part.stop - 1) / 2
            for side, part in zip(self.object.shape, self.area, strict=True)
        )
        return y, x

    def _moved(self, parameters: Array, slopes: bool = True) -> tuple[Array, list[Array]]:
        """Return the shifted object with its ramp inside the area, and optionally its derivatives by the parameters."""
        y, x = (axis[part] for axis, part in zip(self.coordinates, self.area, strict=True))
        ramp = _ramp(y, x, parameters[2:])
        (phase_y, slope_y), (phase_x, slope_x) = (
            _shift_phase(side, distance) for side, distance in zip(self.object.shape, parameters[:2], strict=True)
        )
        down = self._rows(phase_y)
        moved = self._columns(down, phase_x) * ramp
        if not slopes:
            return moved, []
        by = [self._columns(self._rows(slope_y), phase_x) * ramp, self._columns(down, slope_x) * ramp]
        if self.ramped:
            by += [1j * y[:, None] * moved, 1j * x[None, :] * moved]
        return moved, by

    def _rows(self, phase: Array) -> Array:
        """Return the rows of the area of the object filtered along y, still Fourier-transformed along x."""
        return scipy.fft.ifft(self._spectrum * phase[:, None], axis=0, overwrite_x=True)[self.area[0]]

    def _columns(self, rows: Array, phase: Array) -> Array:
        return scipy.fft.ifft(rows * phase[None, :], axis=1, overwrite_x=True)[:, self.area[1]]

    @cached_property
    def _spectrum(self) -> Array:
        return scipy.fft.fft2(self.object)

    def _gradient(self, moved: Array, slopes: list[Array], factor: complex) -> Array:
        """Return the gradient of half the squared difference; the best factor does not contribute."""
        weighted = np.conj(factor) * (factor * moved - self.reference)
        return np.array([np.vdot(slope, weighted).real for slope in slopes])

    def _curvature(self, parameters: Array, moved: Array, slopes: list[Array], factor: complex) -> Array:
        """Return second derivatives of half the squared difference, from the slopes of both, made positive definite.

        The power of the shifted object is constant, except for what crosses the border of the area. So only its product
        with the reference contributes; integrated by parts, a second derivative of one becomes the product of the first
        derivatives of both.
        """
        of_reference = self._slopes_of_reference(parameters)
        # The component that is equivalent to a change of the factor is not curvature.
        along = np.array([np.vdot(moved, slope) for slope in of_reference]) / np.linalg.norm(moved)
        # Single products: stacked slopes took four times as long, since they exceed the cache.
        product = np.array([[(np.conj(factor) * np.vdot(one, other)).real for other in of_reference] for one in slopes])
        normal = (product + product.T) / 2 - np.outer(along.conj(), along).real
        scale = np.array([abs(factor) * np.linalg.norm(slope) for slope in slopes])
        scale = np.maximum(scale, 1e-12 * max(float(scale.max()), 1e-300))
        values, directions = np.linalg.eigh(normal / np.outer(scale, scale))
        positive = (directions * np.maximum(np.abs(values), LEAST_CURVATURE)) @ directions.T
        return positive * np.outer(scale, scale)

    def _slopes_of_reference(self, parameters: Array) -> list[Array]:
        """Return derivatives (y, x) of the reference by the parameters, as if it were the moved object."""
        ramps = parameters[2:]
        slopes = [1j * ramp * self.reference - slope for ramp, slope in zip(ramps, self.reference_slopes, strict=True)]
        if self.ramped:
            y, x = (axis[part] for axis, part in zip(self.coordinates, self.area, strict=True))
            slopes += [1j * y[:, None] * self.reference, 1j * x[None, :] * self.reference]
        return slopes

    def _factor(self, moved: Array) -> complex:
        return complex(np.vdot(moved, self.reference) / np.vdot(moved, moved).real)

    def _error(self, moved: Array, factor: complex) -> float:
        return float(np.linalg.norm(factor * moved - self.reference) / np.linalg.norm(self.reference))


def _bfgs_update(curvature: Array, step: Array, change: Array) -> Array:
    """Update the curvature by the change of the gradient over a step (BFGS formula); it stays positive definite."""
    measured = float(step @ change)
    product = curvature @ step
    expected = float(step @ product)
    if not measured > 0.01 * expected > 0:
        return curvature
    return curvature - np.outer(product, product) / expected + np.outer(change, change) / measured


def _without_ramp(fit: _Fit, shift: tuple[float, float]) -> tuple[_Fit, Array, Array]:
    """Return the fit with the ramp at this shift removed from the object, its parameters, and that ramp.

    A ramp is discontinuous at the border of the object, so that a Fourier shift would cause ringing in the area.
    """
    parameters = fit.start(shift)
    straight = fit.object * _ramp(*fit.coordinates, parameters[2:])
    return dataclasses.replace(fit, object=straight), np.array([*shift, 0.0, 0.0]), parameters[2:]


def _with_ramp(registered: Registered, ramp: Array) -> Registered:
    """Convert the registration of an object times `ramp` (y, x) [rad/pixel] to that of the object.

    The product with exp(i ramp · (r - shift)) is a ramp and a constant.
    """
    constant = np.exp(-1j * np.dot(ramp, registered.shift))
    total = (float(registered.ramp[0] + ramp[0]), float(registered.ramp[1] + ramp[1]))
    return dataclasses.replace(registered, factor=complex(registered.factor * constant), ramp=total)


def _ramp(y: Array, x: Array, ramp: Array) -> Array:
    return np.exp(1j * ramp[0] * y)[:, None] * np.exp(1j * ramp[1] * x)[None, :]


def _shared_area(object: tuple[int, ...], reference: tuple[int, ...], offset: tuple[int, int]) -> Area:
    """Return the common area without an eighth at each border."""
    parts = []
    for inner, outer, shift in zip(object, reference, offset, strict=True):
        low, high = max(0, shift), min(outer, inner + shift)
        margin = max(high - low, 0) // 8
        parts.append(slice(low + margin, high - margin))
    return parts[0], parts[1]


def _around(
    object: Array, reference: Array, area: Area, offset: tuple[int, int]
) -> tuple[Array, Array, Area, tuple[int, int]]:
    """Return the arguments of a fit, of large arrays only the part around the area, since all of it is transformed."""
    if max(object.size, reference.size) <= LARGE:
        return object, reference, area, offset
    here, there, inside, shifts = [], [], [], []
    for part, shift, own, side in zip(area, offset, object.shape, reference.shape, strict=True):
        around = margin_around(part)
        first, last = part.start - around, part.stop + around
        there.append(slice(min(max(first, 0), side), min(max(last, 0), side)))
        here.append(slice(min(max(first - shift, 0), own), min(max(last - shift, 0), own)))
        inside.append(slice(part.start - there[-1].start, part.stop - there[-1].start))
        shifts.append(shift + here[-1].start - there[-1].start)
    return object[tuple(here)], reference[tuple(there)], (inside[0], inside[1]), (shifts[0], shifts[1])


def margin_around(part: slice) -> int:
    """Return how many pixels around one side of an area are transformed with it, of large arrays."""
    return max((part.stop - part.start) // 4, AROUND)


def _shift_phase(side: int, distance: float) -> tuple[Array, Array]:
    """Return exp(-2πi k s), and its derivative by s.

    This includes the Nyquist frequency: cos(π s), as for probes, would reduce noise and so favour a shift.
    """
    angular = 2 * np.pi * np.fft.fftfreq(side)
    phase = np.exp(-1j * angular * distance)
    return phase, -1j * angular * phase


def _coarse_shift(candidate: Array, reference: Array) -> tuple[float, float]:
    """Return the shift (y, x) [pixels] from the candidate to the reference.

    In the products O(r + d) O*(r) of two near pixels, a factor and a ramp become a constant, so that the
    cross-correlation of products does not depend on them. Zero padding favours the nearest of equal peaks.
    """
    # Single precision is enough to find a peak, in half the time.
    shape = tuple(scipy.fft.next_fast_len(2 * side) for side in candidate.shape)
    correlation = np.zeros(shape, np.float32)
    for axis in (0, 1):
        if candidate.shape[axis] > STEP:
            one, other = (_products(field, axis, shape) for field in (candidate, reference))
            other *= one.conj()
            correlation += np.abs(scipy.fft.ifft2(other, overwrite_x=True)) ** 2
    peak = np.unravel_index(int(correlation.argmax()), shape)
    # The second half of the doubled sides contains negative shifts.
    y, x = (float((place + side // 2) % side - side // 2) for place, side in zip(peak, shape, strict=True))
    return y, x


def _products(field: Array, axis: int, shape: tuple[int, ...]) -> Array:
    """Return the Fourier transform of O(r + d) O*(r) minus its mean, padded with 0 to `shape`, normalised."""
    along = np.moveaxis(field, axis, 0)
    products = np.moveaxis(along[STEP:] * along[:-STEP].conj(), 0, axis)
    products = products - products.mean()
    # Normalised to avoid overflow of the correlation of many bright pixels.
    level = np.sqrt(np.vdot(products, products).real / products.size) or 1.0
    return scipy.fft.fft2((products / level).astype(np.complex64), s=shape, overwrite_x=True)


def _derivative(field: Array, axis: int) -> Array:
    """Return the derivative of `field` (y, x) along an axis [1/pixel] by its Fourier transform."""
    along = [1, 1]
    along[axis] = -1
    angular = 2j * np.pi * np.fft.fftfreq(field.shape[axis]).reshape(along)
    return scipy.fft.ifft(scipy.fft.fft(np.asarray(field, complex), axis=axis) * angular, axis=axis)
