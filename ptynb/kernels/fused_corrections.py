"""Corrections of exit waves and their products on a CPU; same interface as in `physics.exit_wave_corrections`.

Each thread takes its patterns through all steps, while a pattern is in the second-level cache. The waves incident on
each slice and their corrections remain in memory, and sums over overlapping windows are made from them by rows, so that
no thread needs an object of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ptynb.kernels import elementwise, parallel_sections, step_kernels
from ptynb.kernels.cpu_steps import EMPTY, Cross, Move, array, near_field, seen
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.kernels.runtime import fft
from ptynb.kernels.runtime.buffers import empty, give_back
from ptynb.kernels.runtime.compiler import inner
from ptynb.kernels.runtime.thread_pool import in_shares, part
from ptynb.kernels.step_kernels import Crossing, Moving, Near, Seen


class CorrectionResults(NamedTuple):
    """Results for each pattern, and sums of each share.

    changes: χ behind each slice (slice, pattern, mode, y, x). roots: √w (pattern,). losses, and brightness: Σ |Ψ|²,
    (pattern,). power: Σ w Π |O|², and inverse: Σ 1 / D, (share, y, x). first: corrections of the first mode (pattern,
    1, y, x). Missing arrays are empty.
    """

    changes: Any
    roots: Any
    losses: Any
    brightness: Any
    power: Any
    inverse: Any
    first: Any


class CompiledCorrections:
    """`physics.exit_wave_corrections.Corrections`, compiled."""

    def __init__(self, illumination: Illumination, detection: Detection, *, shifts: bool, first: bool) -> None:
        object, origins, probes, subpixel, kernel, propagator = illumination
        self._move = Move(probes, subpixel, True, shifts)
        moving = self._move.moving
        kind, shares = moving.moved.dtype, len(moving.totals)
        (patterns, modes, *plane), slices = moving.moved.shape, object.shape[1]
        changes = empty((slices, patterns, modes, *plane), moving.moved)
        self._scratch = empty((2 * shares, modes, *plane), moving.moved)
        cross = Cross(object, origins, moving.moved, kernel, False, waves=changes[-1][:, None])
        self._crossing, near = cross.crossing, near_field(propagator, self._move, cross)
        rows = np.arange(patterns) if detection.rows is None else array(detection.rows)
        real = moving.moved.real.dtype
        # The square root of the weights is in the waves; a weight of 1 has as its gradient -Re Σ ψ* χ.
        ones = torch.ones(patterns, dtype=object.real.dtype)
        detected = seen(detection.stored, rows, detection.mask, ones, detection.background, real)
        nothing, lit = EMPTY[real], detection.background is not None
        # One array for the sums of each share, whether they are shared or not.
        totals = moving.totals if self._move.shared else empty((shares, modes, *plane), moving.moved)
        self._found = found = CorrectionResults(
            changes,
            nothing if detection.weights is None else np.sqrt(array(detection.weights)),
            np.empty(patterns),
            np.empty(patterns),
            empty((shares, *plane), moving.moved.real),
            np.empty((shares, *plane), real) if lit else nothing.reshape(0, 0, 0),
            np.empty((patterns if first else 0, 1, *plane), kind),
        )
        intensity = empty((shares, *plane), moving.moved.real)
        smoothing = detection.floor, detection.damping
        _correct(
            moving, self._crossing, near, detected, found, self._scratch, totals, intensity, *smoothing, shares=shares
        )
        self.object = torch.empty(object.shape[1:], dtype=object.dtype)
        self.illumination = torch.empty(object.shape[1:], dtype=object.real.dtype)
        _add_products(
            moving.moved, self._crossing, changes, self.object.numpy(), self.illumination.numpy(), shares=shares
        )
        self.probe = torch.empty((modes, *plane), dtype=object.dtype)
        summed = moving._replace(spectra=self.probe.numpy()[None], totals=totals)
        parallel_sections.gather_probes(summed, 1.0 if moving.still else 1 / (plane[0] * plane[1]), shares=shares)
        if not moving.still:
            parallel_sections.transform(moving.plans, self.probe.numpy(), True)
        self.power = torch.from_numpy(found.power.sum(0))
        self.loss = torch.tensor(found.losses.sum())
        self.brightness = torch.from_numpy(np.stack([-detected.of_weights.astype(np.float64), found.brightness], 1))
        self.background = None
        if lit:
            self.background = torch.from_numpy(np.stack([-detected.of_background.sum(0), found.inverse.sum(0)]))
        self.first = torch.from_numpy(found.first[:, 0]) if first else None
        self.shifts = None
        if shifts:
            self.shifts = torch.from_numpy(moving.slopes if near is None else moving.slopes + near.slopes)
        give_back(totals, intensity, found.power)

    def products(self, object_step: Tensor, probe_step: Tensor) -> Tensor:
        """Return `Corrections.products`."""
        moving, found = self._move.moving, self._found
        spectra = array(probe_step)[None].copy()
        if not moving.still:
            parallel_sections.transform(moving.plans, spectra[0], False)
        products = np.empty((len(found.losses), 5))
        step = moving._replace(spectra=spectra)
        _multiply(step, self._crossing, found, array(object_step), self._scratch, products, shares=self._shares)
        return torch.from_numpy(products)

    def weighted_illumination(self, weights: Tensor) -> Tensor:
        """Return `Corrections.weighted_illumination`."""
        out = torch.empty_like(self.illumination)
        _add_squares(self._move.moving.moved, self._crossing, array(weights), out.numpy(), shares=self._shares)
        return out

    def curvatures(self, field: Tensor) -> Tensor:
        """Return `Corrections.curvatures`."""
        curvatures = np.empty((len(self._found.losses), 3))
        _curve(array(field), self._crossing.window_origins, self._move.moving.moved, curvatures, shares=self._shares)
        return torch.from_numpy(curvatures)

    def release(self) -> None:
        """Store the large arrays for the next batch; no further call follows."""
        give_back(self._move.moving.moved, self._found.changes, self._scratch, self._crossing.arriving)

    @property
    def _shares(self) -> int:
        return len(self._scratch) // 2


@in_shares
def _correct(
    moving: Moving,
    crossing: Crossing,
    near: Near | None,
    seen: Seen,
    found: CorrectionResults,
    scratch: Any,
    totals: Any,
    intensity: Any,
    floor: float,
    damping: float,
    share: int,
    shares: int,
) -> None:
    """Compute the corrections of a share's patterns, and everything that follows from one pattern at a time."""
    room, pattern = scratch[share : share + 1], intensity[share : share + 1]
    changes, slices = found.changes, len(found.changes)
    totals[share] = 0
    found.power[share] = 0
    of_background = seen.of_background[share]
    of_background[...] = 0
    if found.inverse.size > 0:
        found.inverse[share] = 0
    first, last = part(len(found.losses), share, shares)
    for one in range(first, last):
        end = one + 1
        step_kernels.move(moving, moving.moved, one, end)
        root = found.roots[one] if found.roots.size > 0 else totals.real.dtype.type(1)
        if found.roots.size > 0:
            _scale(moving.moved, one, root)
        step_kernels.cross(crossing, crossing.probes, crossing.arriving[0], crossing.waves, one, end)
        if near is None:
            step_kernels.propagate(moving.plans, crossing.waves, one, end, pattern)
        else:
            step_kernels.propagate_near(moving, near, near.spectra, crossing.waves, one, end, pattern)
        found.brightness[one] = _sum_intensity(pattern, seen, floor, found.inverse, share)
        elementwise.amplitude_loss(pattern, seen, of_background, floor, damping, one, end, found.losses)
        if near is None:
            step_kernels.propagate_back(moving.plans, crossing.waves, pattern, -1.0, one, end)
        else:
            step_kernels.propagate_near_back(moving, near, near.spectra, crossing.waves, pattern, -1.0, one, end)
        for layer in range(slices - 1, 0, -1):
            before = changes[layer - 1]
            _through_conjugate(changes[layer], one, crossing.object, layer, crossing.window_origins[one], before, one)
            fft.forward(moving.plans, before, one, end)
            factor = 1 / (before.shape[-2] * before.shape[-1])
            filtering = before.reshape((before.shape[0], 1, before.shape[1], before.shape[2], before.shape[3]))
            elementwise.filtered(filtering, crossing.kernel, True, factor, one, end)
            fft.backward(moving.plans, before, one, end)
        _through_conjugate(changes[0], one, crossing.object, 0, crossing.window_origins[one], room, 0)
        if found.roots.size > 0:
            _scale(room, 0, root)
        _add_power(crossing.object, crossing.window_origins[one], root * root, found.power[share])
        step_kernels.move_back(moving, room, totals[share], one, end)
        if found.first.size > 0:
            if not moving.still:
                factor = 1 / (room.shape[-2] * room.shape[-1])
                elementwise.ramped_in_place(room, moving.along_y, moving.along_x, True, factor, one, end)
                fft.backward(moving.plans, room[:, 0], 0, 1)
            elementwise.copy_planes(room, one, end, found.first)


@in_shares
def _add_products(
    moved: Any, crossing: Crossing, changes: Any, numerator: Any, illumination: Any, share: int, shares: int
) -> None:
    """numerator = Σ_jm A_k* χ_k and illumination = Σ_jm |A_k|² (slice, y, x), in a share's rows."""
    elementwise.clear(numerator, share, shares)
    elementwise.clear(illumination, share, shares)
    for layer in range(len(changes)):
        waves = moved if layer == 0 else crossing.arriving[0, layer - 1, :, 0]
        patterns, modes, height, width = waves.shape
        for pattern in range(patterns):
            top, left = crossing.window_origins[pattern]
            for y in range((share - top) % shares, height, shares):
                above = numerator[layer, top + y, left : left + width]
                below = illumination[layer, top + y, left : left + width]
                for mode in range(modes):
                    wave, change = waves[pattern, mode, y], changes[layer, pattern, mode, y]
                    for x in range(width):
                        above[x] += np.conj(wave[x]) * change[x]
                        below[x] += wave[x].real * wave[x].real + wave[x].imag * wave[x].imag


@in_shares
def _add_squares(moved: Any, crossing: Crossing, weights: Any, out: Any, share: int, shares: int) -> None:
    """out = Σ_jm c_j |A_k|² (slice, y, x), in a share's rows."""
    elementwise.clear(out, share, shares)
    for layer in range(len(out)):
        waves = moved if layer == 0 else crossing.arriving[0, layer - 1, :, 0]
        patterns, modes, height, width = waves.shape
        for pattern in range(patterns):
            top, left = crossing.window_origins[pattern]
            weight = weights[pattern]
            for y in range((share - top) % shares, height, shares):
                target = out[layer, top + y, left : left + width]
                for mode in range(modes):
                    wave = waves[pattern, mode, y]
                    for x in range(width):
                        target[x] += weight * (wave[x].real * wave[x].real + wave[x].imag * wave[x].imag)


@in_shares
def _multiply(
    step: Moving,
    crossing: Crossing,
    found: CorrectionResults,
    object_step: Any,
    scratch: Any,
    out: Any,
    share: int,
    shares: int,
) -> None:
    """out (pattern, 5) = xx, xy, yy, χx, χy. step: `Moving` of the probe's step."""
    x, y = scratch[2 * share : 2 * share + 1], scratch[2 * share + 1 : 2 * share + 2]
    changes, slices = found.changes, len(found.changes)
    factor = 1 / (x.shape[-2] * x.shape[-1])
    first, last = part(len(out), share, shares)
    for one in range(first, last):
        origin = crossing.window_origins[one]
        elementwise.ramped(step.spectra, step.along_y, step.along_x, 1.0 if step.still else factor, one, one + 1, y)
        if not step.still:
            fft.backward(step.plans, y, 0, 1)
        if found.roots.size > 0:
            _scale(y, 0, found.roots[one])
        for layer in range(slices):
            if layer > 0:
                for waves in (x, y):
                    fft.forward(step.plans, waves, 0, 1)
                    filtering = waves.reshape((1, 1, waves.shape[1], waves.shape[2], waves.shape[3]))
                    elementwise.filtered(filtering, crossing.kernel, False, factor, one, one + 1)
                    fft.backward(step.plans, waves, 0, 1)
            arriving = step.moved[one] if layer == 0 else crossing.arriving[0, layer - 1, one, 0]
            _add_tangents(arriving, crossing.object[0, layer], object_step[layer], origin, layer == 0, x[0], y[0])
        _products(changes[slices - 1, one], x[0], y[0], out[one])


@in_shares
def _curve(field: Any, window_origins: Any, moved: Any, out: Any, share: int, shares: int) -> None:
    """out (pattern, 3) = Σ |P|² Re(∂_a O* ∂_b O) for ab = yy, yx, xx."""
    patterns, modes, height, width = moved.shape
    first, last = part(patterns, share, shares)
    for one in range(first, last):
        top, left = window_origins[one]
        yy, yx, xx = 0.0, 0.0, 0.0
        for y in range(height):
            here = field[top + y, left : left + width]
            below = field[top + min(y + 1, height - 1), left : left + width]
            row_yy, row_yx, row_xx = field.real.dtype.type(0), field.real.dtype.type(0), field.real.dtype.type(0)
            for mode in range(modes):
                wave = moved[one, mode, y]
                for x in range(width - 1):
                    power = wave[x].real * wave[x].real + wave[x].imag * wave[x].imag
                    along_y, along_x = below[x] - here[x], here[x + 1] - here[x]
                    row_yy += power * (along_y.real * along_y.real + along_y.imag * along_y.imag)
                    row_yx += power * (along_y.real * along_x.real + along_y.imag * along_x.imag)
                    row_xx += power * (along_x.real * along_x.real + along_x.imag * along_x.imag)
                end = wave[width - 1]
                along_y = below[width - 1] - here[width - 1]
                row_yy += (end.real * end.real + end.imag * end.imag) * (
                    along_y.real * along_y.real + along_y.imag * along_y.imag
                )
            yy += row_yy
            yx += row_yx
            xx += row_xx
        out[one, 0], out[one, 1], out[one, 2] = yy, yx, xx


@inner
def _sum_intensity(model: Any, seen: Seen, floor: float, inverse: Any, share: int) -> float:
    """Return Σ M of a pattern (1, y, x), and add 1 / (M + B + ε) to inverse[share], unless it is empty."""
    _, height, width = model.shape
    number, total = model.dtype.type, 0.0
    least, masked = number(floor), seen.mask.size > 0
    for y in range(height):
        modelled, row = model[0, y], number(0)
        for x in range(width):
            row += modelled[x]
        total += row
        if inverse.size > 0:
            target, background = inverse[share, y], seen.background[y]
            for x in range(width):
                one = number(1) / (modelled[x] + background[x] + least)
                if masked:
                    one *= seen.mask[y, x]
                target[x] += one
    return total


@inner
def _through_conjugate(change: Any, source: int, object: Any, layer: int, origin: Any, out: Any, target: int) -> None:
    """out[target] = O* change[source], of all modes, with the window of the object at `origin`."""
    _, modes, height, width = change.shape
    top, left = origin
    for mode in range(modes):
        for y in range(height):
            wave, back = change[source, mode, y], out[target, mode, y]
            window = object[0, layer, top + y, left : left + width]
            for x in range(width):
                back[x] = np.conj(window[x]) * wave[x]


@inner
def _add_tangents(
    arriving: Any, object: Any, step: Any, origin: Any, is_first: bool, x_waves: Any, y_waves: Any
) -> None:
    """x ← O x + ΔO A (at the first slice ΔO A), y ← O y, for waves (mode, y, x)."""
    modes, height, width = arriving.shape
    top, left = origin
    for mode in range(modes):
        for y in range(height):
            wave, one, other = arriving[mode, y], x_waves[mode, y], y_waves[mode, y]
            window, change = object[top + y, left : left + width], step[top + y, left : left + width]
            if is_first:
                for x in range(width):
                    one[x] = change[x] * wave[x]
                    other[x] *= window[x]
            else:
                for x in range(width):
                    one[x] = window[x] * one[x] + change[x] * wave[x]
                    other[x] *= window[x]


@inner
def _products(chi: Any, x_waves: Any, y_waves: Any, out: Any) -> None:
    """out = xx, xy, yy, χx, χy, real products of waves (mode, y, x); rows in their precision, their sums in double."""
    modes, height, width = chi.shape
    out[:] = 0
    number = chi.real.dtype.type
    for mode in range(modes):
        for y in range(height):
            c, p, q = chi[mode, y], x_waves[mode, y], y_waves[mode, y]
            pp, pq, qq, cp, cq = number(0), number(0), number(0), number(0), number(0)
            for x in range(width):
                pp += p[x].real * p[x].real + p[x].imag * p[x].imag
                pq += p[x].real * q[x].real + p[x].imag * q[x].imag
                qq += q[x].real * q[x].real + q[x].imag * q[x].imag
                cp += c[x].real * p[x].real + c[x].imag * p[x].imag
                cq += c[x].real * q[x].real + c[x].imag * q[x].imag
            out[0] += pp
            out[1] += pq
            out[2] += qq
            out[3] += cp
            out[4] += cq


@inner
def _add_power(object: Any, origin: Any, weight: Any, out: Any) -> None:
    """out (y, x) += weight Π_k |O_k|²."""
    height, width = out.shape
    top, left = origin
    for y in range(height):
        target = out[y]
        for x in range(width):
            square = weight
            for layer in range(object.shape[1]):
                value = object[0, layer, top + y, left + x]
                square *= value.real * value.real + value.imag * value.imag
            target[x] += square


@inner
def _scale(waves: Any, place: int, factor: Any) -> None:
    """waves[place] (mode, y, x) *= factor."""
    _, modes, height, width = waves.shape
    for mode in range(modes):
        for y in range(height):
            target = waves[place, mode, y]
            for x in range(width):
                target[x] *= factor
