"""Measures by which faults of a reconstruction are recognised: of object, probe, patterns, positions and loss.

Each function returns a number that is small, or 0, for a good reconstruction, with the place where it is large. Which
number is a fault, and what to do then, is decided in `ptynb.analysis.faults.diagnosis`.

Residuals are those of √I, whose variance is 1/4 for Poisson counts that are not few (F. J. Anscombe, Biometrika 35, 246
(1948)); expectation and variance for few counts are computed from the distribution.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, stats

from ptynb.analysis.outliers import CEILING
from ptynb.analysis.position_refinement import PositionRefinement
from ptynb.analysis.probe_modes import mode_powers, orthogonal_modes
from ptynb.analysis.result_comparison import illuminated
from ptynb.data.images import reduce_by, step_sums
from ptynb.data.record import Thumbnail, last_tenth, late_progress
from ptynb.data.result import Result

Array = NDArray[Any]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
LIT = 0.1
"""Illumination of an object pixel, relative to the brightest, from which the patterns determine the object."""
BORDER = 1 / 16
"""Width of the frame at the edge of a window [its side]."""
LARGEST_MEAN = 300.0
"""Counts up to which moments of √I are taken from the table; above, the first terms of their series are exact."""
LATTICE = 0.3
"""Structure factor of the positions from which a frequency is one of a lattice; of random positions it is 1 / N."""
MOST_PLACES, MOST_WAVES, MOST_PIXELS = 10_000, 2000, 512
"""Positions of which illumination and structure factor are computed, and side of the examined object: 1 s each."""
FEWEST_PLACES = 4
"""Positions below which nothing is said of the object."""
NOISE = 5.0
"""Position steps have to be so many times their noise."""
LONE = 4
"""Distance of two opposite vortices that belong together: a zero of the amplitude between pixels [object pixels]."""
EMPTY_MODE = 0.01
"""Share of the power below which a probe mode describes next to nothing."""


@dataclass(frozen=True, eq=False)
class FaultMeasure:
    """A measured value, with the place where it is large.

    value: the measure. where: mask (y, x) of object, probe or detector pixels; None: everywhere, or no place.
    patterns: indices. detail: further numbers by name, for sentences and remedies.
    """

    value: float
    where: Mask | None = None
    patterns: NDArray[np.int64] | None = None
    detail: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Residuals:
    """Measured and modelled patterns of a sample, and how the model changes with the position and with defocus.

    indices: of the patterns, in increasing order. measured, modelled: (pattern, y, x) [counts], centred. good: mask
    (y, x) of working pixels. moved: derivatives (yx, pattern, y, x) of √M by the position [1/pixel]. defocused: the
    change (pattern, y, x) of √M by some defocus of the probe.
    """

    indices: NDArray[np.int64]
    measured: NDArray[np.float32]
    modelled: NDArray[np.float32]
    good: Mask
    moved: NDArray[np.float32]
    defocused: NDArray[np.float32]

    @functools.cached_property
    def difference(self) -> Floats:
        """√I minus the expectation of √I for Poisson counts of the model (pattern, y, x); 0 at bad pixels."""
        return np.where(self.good, np.sqrt(self.measured) - poisson_roots(self.modelled)[0], 0)

    def misfit(self, area: Mask) -> float:
        """Return the sum of squared residuals over that of Poisson noise, in an area (y, x) of the detector."""
        variance = poisson_roots(self.modelled)[1][:, area & self.good].sum()
        return float((self.difference[:, area] ** 2).sum() / max(variance, 1e-9))


def poisson_roots(means: Array) -> tuple[Floats, Floats]:
    """Return expectation and variance of √I for Poisson counts I of these means.

    Of few counts the expectation is below √mean: about the mean itself for small ones. The variance is 1/4 for many.
    """
    logs, roots, variances = _table_of_roots()
    at = np.log(np.maximum(means, 1e-6))
    series = np.sqrt(np.maximum(means, 1.0)) - 1 / (8 * np.sqrt(np.maximum(means, 1.0)))
    return np.where(means > LARGEST_MEAN, series, np.interp(at, logs, roots)), np.interp(at, logs, variances)


@functools.cache
def _table_of_roots() -> tuple[Floats, Floats, Floats]:
    means = np.geomspace(1e-6, LARGEST_MEAN, 400)
    counts = np.arange(int(LARGEST_MEAN + 12 * math.sqrt(LARGEST_MEAN)))
    roots, squares = (stats.poisson.pmf(counts, means[:, None]) @ power for power in (np.sqrt(counts), counts))
    return np.log(means), roots, squares - roots**2


def middle_of(result: Result) -> tuple[Result, tuple[int, int]]:
    """Return a result with the middle of its object, of `MOST_PIXELS` and two windows a side at most, and its corner.

    It has the positions whose windows lie in it.
    """
    sides, window = np.array(result.object.shape[-2:]), np.array(result.probe.shape[-2:])
    most = np.minimum(np.maximum(MOST_PIXELS, 2 * window), sides)
    if (most == sides).all():
        return result, (0, 0)
    middle = np.median(result.positions, axis=0) + window / 2
    y, x = np.clip(np.rint(middle - most / 2), 0, sides - most).astype(np.int64).tolist()
    places = result.positions - (y, x)
    inside = ((places >= 0) & (places + window <= most)).all(1)
    part = dataclasses.replace(
        result, object=result.object[..., y : y + most[0], x : x + most[1]], positions=places[inside]
    )
    return part, (y, x)


def lit_area(result: Result) -> Mask:
    """Return where (y, x) the object is determined by the patterns."""
    power = (np.abs(result.probe) ** 2).sum(0).astype(np.float64)
    sides, window = np.array(result.object.shape[-2:]), np.array(power.shape)
    total, inside = np.zeros(sides), np.zeros(sides, bool)
    if len(result.positions) < FEWEST_PLACES:
        return inside
    places = _some(result.positions, MOST_PLACES)
    for y, x in np.clip(np.rint(places), 0, sides - window).astype(np.int64):
        total[y : y + window[0], x : x + window[1]] += power
    inside[illuminated(result)] = True
    return inside & (total > LIT * np.percentile(total[inside], 95))


def scan_lattice(result: Result, lit: Mask) -> FaultMeasure:
    """Measure the part of the object's variation that has the periods of the scan.

    If P(r) O(r) solves a scan on a lattice, so do P(r) f(r) and O(r) / f(r) for each f with the lattice's periods: the
    raster grid pathology, P. Thibault et al., Ultramicroscopy 109, 338 (2009). Frequencies of such an f are where the
    positions' structure factor |Σ exp(2πi k·r)|² / N² is near 1. There the power of the object's spectrum is compared
    with its mean around. The value is the root of the excess over the power of all frequencies; 0 without periods.
    """
    y, x = illuminated(result)
    inside = lit[y, x]
    field = _flat(result.projection, lit)[y, x]
    weight = inside * np.hanning(field.shape[0] + 2)[1:-1, None] * np.hanning(field.shape[1] + 2)[1:-1]
    field = weight * (field / ((weight * field).sum() / weight.sum()) - 1)
    transform = np.fft.fft2(field)
    power = np.abs(transform) ** 2
    frequencies = [np.fft.fftfreq(side) for side in field.shape]
    places = _some(result.positions, MOST_WAVES)
    waves = [np.exp(2j * np.pi * np.outer(axis, along)) for axis, along in zip(frequencies, places.T, strict=True)]
    structure = np.abs(waves[0] @ waves[1].T / len(places)) ** 2
    extent = np.ptp(places, axis=0)
    beyond = (np.abs(frequencies[0])[:, None] * extent[0] > 3) | (np.abs(frequencies[1])[None] * extent[1] > 3)
    radius = np.hypot(*np.meshgrid(*frequencies, indexing="ij"))
    highest = structure == ndimage.maximum_filter(structure, 9, mode="wrap")
    peaks = np.argwhere(highest & (structure > LATTICE) & beyond & (radius < 0.45))
    total = float(power[beyond].sum())
    if not len(peaks) or not total:
        return FaultMeasure(0.0)
    free = ~ndimage.binary_dilation(structure > 0.05)
    excess = sum(_excess(power, free, peak) for peak in peaks)
    chosen = ndimage.binary_dilation(highest & (structure > LATTICE) & beyond, np.ones((3, 3)))
    wave = np.abs(np.fft.ifft2(np.where(chosen, transform, 0)))
    where = np.zeros(lit.shape, bool)
    where[y, x] = inside & (wave > math.sqrt(2 * float((wave[inside] ** 2).mean())))
    value = math.sqrt(max(excess, 0.0) / total)
    steps = {f"period_{name}": _period(along) for name, along in zip("yx", places.T, strict=True)}
    return FaultMeasure(value, where, detail=steps)


def _some(positions: Floats, most: int) -> Floats:
    """Return at most so many positions, a random choice: regular ones would have other periods."""
    if len(positions) <= most:
        return positions
    return positions[np.random.default_rng(0).choice(len(positions), most, replace=False)]


def _excess(power: Floats, free: Mask, peak: NDArray[np.int64], reach: int = 7) -> float:
    """Return the power within 3 x 3 samples about a peak, above the mean of the free ones around."""
    rows, columns = (np.arange(at - reach, at + reach + 1) % side for at, side in zip(peak, power.shape, strict=True))
    near, unused = power[np.ix_(rows, columns)], free[np.ix_(rows, columns)]
    level = float(near[unused].mean()) if unused.any() else math.inf
    return float(near[reach - 1 : reach + 2, reach - 1 : reach + 2].sum()) - 9 * level


def _period(along: Floats) -> float:
    """Return the longest period of places along an axis [object pixels]."""
    frequencies = np.linspace(3 / max(float(np.ptp(along)), 6.0), 0.5, 2000)
    strength = np.abs(np.exp(2j * np.pi * np.outer(frequencies, along)).mean(1))
    first = int(np.argmax(strength >= 0.8 * strength.max()))
    return float(1 / frequencies[first + int(strength[first : first + 20].argmax())])


def motion_in_modes(result: Result, steps: float) -> FaultMeasure:
    """Measure the motion that the probe modes describe and the positions lack [object pixels, root mean square].

    A probe that moves by s is P + s·∇P to first order: modes in the span of the first one's derivatives describe
    positions that vary by the root of their power over that of the derivatives (P. Thibault and A. Menzel, Nature 494,
    68 (2013), name vibrations among what modes describe). A partially coherent beam has such modes, too. So the value
    is at most `steps`, the root mean square of what the single patterns ask for (`position_steps`).
    """
    modes = orthogonal_modes(result.probe.astype(np.complex128))
    first, rest = modes[0], modes[1:].reshape(len(modes) - 1, -1)
    spectrum = np.fft.fft2(first)
    ramps = [2j * np.pi * np.fft.fftfreq(side) for side in first.shape]
    basis = np.array([np.fft.ifft2(spectrum * ramp).ravel() for ramp in (ramps[0][:, None], ramps[1][None])])
    basis -= np.outer(basis @ first.ravel().conj(), first.ravel()) / np.vdot(first, first).real
    unit = np.linalg.svd(basis, full_matrices=False)[2]
    inside = float((np.abs(rest @ unit.conj().T) ** 2).sum())
    motion = math.sqrt(2 * inside / float((np.abs(basis) ** 2).sum()))
    return FaultMeasure(min(motion, steps), detail={"motion": motion})


def empty_modes(result: Result) -> FaultMeasure:
    """Count the orthogonal probe modes with less than a hundredth of the power."""
    powers = mode_powers(orthogonal_modes(result.probe.astype(np.complex128)))
    weak = powers < EMPTY_MODE
    return FaultMeasure(float(weak.sum()), detail={"used": float((~weak).sum()), "share": float(powers[weak].sum())})


def object_in_modes(result: Result, lit: Mask) -> FaultMeasure:
    """Measure how much a probe mode repeats a part of the object, relative to what chance explains.

    The ratio of each further mode to the first, where that is bright, is correlated with the object at all places; so
    are its mirror images along y, along x and both, which have the same spectrum and no relation to the object. The
    value is the largest correlation over the largest of the mirror images.
    """
    modes = orthogonal_modes(result.probe.astype(np.complex128))
    power = np.abs(modes[0]) ** 2
    bright = power > LIT * power.max()
    field = _flat(result.projection, lit)
    field = np.where(lit, field - field[lit].mean(), 0)
    best = FaultMeasure(0.0)
    for number, mode in enumerate(modes[1:], 2):
        ratio = mode / np.where(bright, modes[0], 1)
        pattern = np.where(bright, ratio - ratio[bright].mean(), 0)
        found = [
            _largest_correlation(field, pattern[::y, ::x], bright[::y, ::x], lit)
            for y, x in ((1, 1), (-1, 1), (1, -1), (-1, -1))
        ]
        value = found[0][0] / max(1e-12, *(one for one, _ in found[1:]))
        if value > best.value:
            y, x = found[0][1]
            where = np.zeros(lit.shape, bool)
            where[y : y + bright.shape[0], x : x + bright.shape[1]] = bright
            best = FaultMeasure(value, where, detail={"mode": float(number)})
    return best


def _largest_correlation(field: Array, pattern: Array, support: Mask, lit: Mask) -> tuple[float, tuple[int, int]]:
    """Return the largest normalised correlation of a pattern with a field, over its places, and the place."""
    shape = field.shape
    product = np.fft.ifft2(np.fft.fft2(field) * np.fft.fft2(pattern, s=shape).conj())
    mask = np.fft.fft2(support.astype(np.float64), s=shape).conj()
    energy = np.fft.ifft2(np.fft.fft2(np.abs(field) ** 2) * mask).real
    seen = np.fft.ifft2(np.fft.fft2(lit.astype(np.float64)) * mask).real
    valid = seen > 0.8 * support.sum()
    valid[shape[0] - pattern.shape[0] + 1 :] = False
    valid[:, shape[1] - pattern.shape[1] + 1 :] = False
    scale = np.sqrt(np.maximum(energy, 1e-12) * float((np.abs(pattern) ** 2).sum()) + 1e-300)
    values = np.where(valid, np.abs(product) / scale, 0)
    y, x = np.unravel_index(int(values.argmax()), values.shape)
    return float(values[y, x]), (int(y), int(x))


def position_steps(seen: Residuals) -> FaultMeasure:
    """Measure by how much patterns ask for other positions [object pixels, root mean square].

    One Gauss-Newton step for each pattern, s = (DᵀD)⁻¹ Dᵀ (√I - √M) with D = ∂√M/∂r, as in position refinement by
    gradients, M. Guizar-Sicairos and J. R. Fienup, Opt. Express 16, 7264 (2008). The expected square of s by what is
    left of the residuals, σ² tr (DᵀD)⁻¹, is subtracted; steps below five times it are not counted. The object has
    adapted to wrong positions, so that errors of the positions are larger than these steps.
    """
    count = len(seen.indices)
    difference = seen.difference.reshape(count, -1)
    slopes = np.where(seen.good, seen.moved, 0).reshape(2, count, -1).astype(np.float64)
    normal = np.einsum("apk,bpk->pab", slopes, slopes)
    right = np.einsum("apk,pk->pa", slopes, difference)
    scale = normal.trace(axis1=1, axis2=2)
    usable = (scale > 1e-6 * np.median(scale)) & (np.linalg.det(normal) > 1e-6 * scale**2)
    if not usable.any():
        return FaultMeasure(0.0, detail={"smooth": 0.0, "gain": 0.0})
    normal, right, difference = normal[usable], right[usable], difference[usable]
    steps = np.linalg.solve(normal, right[..., None])[..., 0]
    explained = (steps * right).sum(1)
    squares = (difference**2).sum(1)
    variance = np.linalg.inv(normal).trace(axis1=1, axis2=2) * (squares - explained) / seen.good.sum()
    lengths = np.hypot(*steps.T)
    value = math.sqrt(max(float((lengths**2 - variance).mean()), 0.0))
    far = seen.indices[usable][lengths > np.maximum(4 * np.sqrt(variance), 2 * np.median(lengths))]
    steps -= steps.mean(0)
    smooth = float((steps[1:] * steps[:-1]).sum() / max(float((steps**2).sum()), 1e-30))
    detail = {"smooth": smooth, "gain": float((explained / np.maximum(squares, 1e-30)).mean())}
    return FaultMeasure(value if value > NOISE * math.sqrt(float(np.median(variance))) else 0.0, None, far, detail)


def outlying_patterns(seen: Residuals) -> FaultMeasure:
    """Count the patterns whose squared residuals, relative to Poisson noise, are 10 times the median of all."""
    variance = np.where(seen.good, poisson_roots(seen.modelled)[1], 0).sum((1, 2))
    each = (seen.difference**2).sum((1, 2)) / np.maximum(variance, 1e-9)
    far = seen.indices[each > 10 * np.median(each)]
    return FaultMeasure(float(len(far)), patterns=far)


def depth_steps(seen: Residuals, of_positions: float) -> FaultMeasure:
    """Measure which part of the squared residuals a different defocus of each pattern would explain.

    The features that a pattern sees of a thick object lie at various depths, which one slice cannot describe; a change
    of defocus is the same for all patterns of a thin object, and the probe has adapted to it. √I - √M of each pattern
    is fitted by its change with defocus, together with what has other causes: the level √M, the bias by few counts and
    the position. 0 if the position explains more than twice as much (`of_positions`): wrong positions have the same
    consequence.
    """
    roots, _ = poisson_roots(seen.modelled)
    amplitudes = np.sqrt(seen.modelled)
    gains = []
    for number in range(len(seen.indices)):
        columns = (
            amplitudes[number],
            amplitudes[number] - roots[number],
            *seen.moved[:, number],
            seen.defocused[number],
        )
        matrix = np.stack([one[seen.good] for one in columns]).astype(np.float64)
        difference = (np.sqrt(seen.measured[number]) - amplitudes[number])[seen.good].astype(np.float64)
        normal, right = matrix @ matrix.T, matrix @ difference
        fits = [np.linalg.lstsq(normal[:n, :n], right[:n], rcond=None)[0] @ right[:n] for n in (4, 5)]
        gains.append((fits[1] - fits[0]) / max(float(difference @ difference) - fits[0], 1e-30))
    value = float(np.mean(gains)) - 1 / int(seen.good.sum())
    return FaultMeasure(value if value > of_positions / 2 else 0.0)


def similar_slices(result: Result, lit: Mask) -> FaultMeasure:
    """Measure the largest correlation of two neighbouring slices' deviations from their means."""
    flat = [_flat(one, lit)[lit] for one in result.slices]
    flat = [one / one.mean() - 1 for one in flat]
    equal = [
        float(np.vdot(one, other).real / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-30))
        for one, other in itertools.pairwise(flat)
    ]
    return FaultMeasure(max(equal), detail={"different": float(1 + sum(one < 0.9 for one in equal))})


def lone_vortices(result: Result, lit: Mask) -> FaultMeasure:
    """Count the phase vortices without one of the opposite sign nearby, per 10,000 pixels.

    The sum of wrapped phase differences around 2 x 2 pixels is ±2π at a vortex (residue), R. M. Goldstein et al., Radio
    Science 23, 713 (1988). Close pairs are zeros of the amplitude and steps of more than π; a lone vortex is usually
    one that the reconstruction could not remove.
    """
    phase = np.angle(result.projection).astype(np.float64)
    steps = (np.diff(phase, axis=axis) for axis in (0, 1))
    down, across = (values - 2 * np.pi * np.rint(values / (2 * np.pi)) for values in steps)
    turns = np.rint((across[:-1] + down[:, 1:] - across[1:] - down[:, :-1]) / (2 * np.pi)).astype(np.int64)
    inside = ndimage.binary_erosion(lit, iterations=3)[:-1, :-1]
    turns[~inside] = 0
    near = np.hypot(*np.mgrid[-LONE : LONE + 1, -LONE : LONE + 1]) <= LONE
    lone = np.zeros(turns.shape, bool)
    for sign in (1, -1):
        lone |= (turns == sign) & ~ndimage.binary_dilation(turns == -sign, near)
    where = np.zeros(lit.shape, bool)
    where[:-1, :-1] = ndimage.binary_dilation(lone, near)
    return FaultMeasure(1e4 * float(lone.sum()) / max(int(inside.sum()), 1), where, detail={"count": float(lone.sum())})


def phase_ramp(result: Result, lit: Mask) -> FaultMeasure:
    """Measure the linear phase ramp over the illuminated area [turns]; patterns determine it only with the probe's."""
    steps = np.angle(step_sums(np.where(lit, result.projection, 0)))
    extent = [np.ptp(np.flatnonzero(lit.any(axis))) for axis in (1, 0)]
    return FaultMeasure(float(np.hypot(steps[0] * extent[0], steps[1] * extent[1])) / (2 * np.pi))


def _frame(shape: tuple[int, ...]) -> Mask:
    """Return the frame at the edge of a window (y, x)."""
    y, x = (max(1, round(BORDER * side)) for side in shape)
    found = np.ones(shape, bool)
    found[y:-y, x:-x] = False
    return found


def clipped_probe(result: Result) -> FaultMeasure:
    """Measure the probe's intensity at the edge of its window, relative to the mean.

    The window is λ z / (detector pixel): a wider probe is undersampled on the detector, J. M. Rodenburg and R. H. T.
    Bates, Phil. Trans. R. Soc. A 339, 521 (1992), and enters again at the other side.
    """
    power = (np.abs(result.probe) ** 2).sum(0)
    frame = _frame(power.shape)
    return FaultMeasure(float(power[frame].mean() / power.mean()), frame & (power > 0.1 * power.mean()))


def clipped_patterns(seen: Residuals) -> FaultMeasure:
    """Measure the counts at the detector's edge that the model cannot describe, relative to the mean.

    Scattering beyond the detector's edge is not in the model, which fits what comes from there least. The value is the
    mean at the edge over that of all, and 0 if the residuals there are near those of noise, or below half of those
    elsewhere.
    """
    mean, frame = seen.measured.mean(0), _frame(seen.good.shape)
    edge, inside = seen.misfit(frame), seen.misfit(~frame)
    value = float(mean[frame & seen.good].mean() / mean[seen.good].mean()) if (frame & seen.good).any() else 0.0
    return FaultMeasure(value if edge > max(5.0, inside / 2) else 0.0, frame, detail={"misfit": edge})


def bad_pixels(seen: Residuals, known: Mask) -> FaultMeasure:
    """Count the pixels whose residual is alike in all patterns and unlike that of their neighbours.

    The mean residual of a pixel minus the median of 5 x 5 pixels has to be 8 of its standard errors, twice as many as
    that of 98% of the pixels, and 0.4 of the mean amplitude, which the edge of a bright field does not reach. The model
    may have fitted a hot pixel, with larger residuals beside it. So of `known` pixels (y, x), those that the patterns
    alone show to be bad, the residual may have any size, and their neighbours do not count.
    """
    difference = seen.difference
    mean = difference.mean(0)
    own = mean - ndimage.median_filter(mean, 5)
    sigmas = np.abs(own) / np.sqrt(np.maximum(difference.var(0), 0.05) / len(difference))
    least = max(8.0, 2 * float(np.percentile(sigmas[seen.good], 98)))
    level = np.sqrt(np.maximum(seen.modelled, seen.measured).mean(0))
    alike = seen.good & (sigmas > least)
    known = known & alike
    bad = known | (alike & (np.abs(own) > 0.4 * level) & ~ndimage.binary_dilation(known, np.ones((3, 3))))
    return FaultMeasure(float(bad.sum()), bad, detail={"unknown": float((bad & ~known).sum())})


def saturation(seen: Residuals) -> FaultMeasure:
    """Measure the part of the patterns in which several pixels have the largest count of all patterns."""
    top = float(seen.measured.max(initial=0))
    at = (seen.measured == top) & seen.good
    share = float((at.sum((1, 2)) > 1).mean()) if top > CEILING else 0.0
    return FaultMeasure(share, at.any(0), detail={"top": top})


def missing_counts(seen: Residuals) -> FaultMeasure:
    """Measure the part of the counts that the model lacks, of patterns with few counts.

    A loss of amplitudes makes √M the mean of √I, which for few counts is below the root of the mean: P. Godard et al.,
    Opt. Express 20, 25914 (2012), compare the noise models.
    """
    counts = float(seen.measured[:, seen.good].mean())
    return FaultMeasure(1 - float(seen.modelled[:, seen.good].mean()) / max(counts, 1e-30), detail={"counts": counts})


def progressing(result: Result, rates: Floats) -> FaultMeasure:
    """Measure what still changed at the end of the run: its loss, or its phase.

    The fall of the loss is divided by the root of the learning rates' mean there, relative to the first ones: at the
    end of a schedule the loss of a run that has not converged hardly falls, too. The whole ratio would be too much, as
    lower rates lower also the noise of the updates. Of simulated runs with the default schedule it was up to 0.016
    once they had converged, and 0.056 to 0.6 in shorter ones.
    """

    def late_object(early: Thumbnail) -> Array:
        end = [corner + early.reduction * side for corner, side in zip(early.corner, early.object.shape, strict=True)]
        return reduce_by(result.projection[early.corner[0] : end[0], early.corner[1] : end[1]], early.reduction)

    found = late_progress(result.epochs, result.history, late_object)
    slowed = float(rates[-last_tenth(len(rates)) :].mean())
    return FaultMeasure(max(found.loss / math.sqrt(slowed), found.phase), detail={**found._asdict(), "rates": slowed})


def rising(losses: Floats) -> FaultMeasure:
    """Measure by how much the mean loss of the last tenth of the epochs is above that of any as long before."""
    last = last_tenth(len(losses))
    means = np.convolve(losses, np.full(last, 1 / last), "valid")
    return FaultMeasure(float(means[-1] / means[:-last].min() - 1))


def oscillating(losses: Floats) -> FaultMeasure:
    """Measure the scatter of the loss from epoch to epoch in the last tenth, relative."""
    return FaultMeasure(float(np.std(np.diff(np.log(losses[-last_tenth(len(losses)) :]))) / math.sqrt(2)))


def drift(found: PositionRefinement) -> FaultMeasure:
    """Measure the refined positions' smooth drift in time [object pixels, root mean square].

    The moves times the root of their correlation from pattern to pattern, less twice its standard deviation by chance:
    errors of single positions are independent.
    """
    moves = found.refined - found.measured
    moves = moves - moves.mean(0)
    power = float((moves**2).sum())
    common = float((moves[1:] * moves[:-1]).sum()) / max(power, 1e-30)
    rms = math.sqrt(power / len(moves))
    return FaultMeasure(
        rms * math.sqrt(max(common - 2 / math.sqrt(len(moves)), 0.0)),
        detail={"rms": rms, "largest": float(np.abs(moves).max())},
    )


def _flat(object: Array, lit: Mask) -> Array:
    """Return an object (y, x) without its mean phase step between pixels, in double precision."""
    field = object.astype(np.complex128)
    steps = np.angle(step_sums(np.where(lit, field, 0)))
    y, x = (np.exp(-1j * step * np.arange(side)) for step, side in zip(steps, field.shape, strict=True))
    return field * y[:, None] * x[None]
