"""The kernels of `physics.gpu_line_operations`, in Triton: a program has some columns, or rows, of an image.

Arrays are contiguous and in float32, complex ones are given by their real parts. `parts` and `steps` divide a line as
in `line_transforms`, `lines` is the number of columns or rows of a program. A program overwrites only what it has read
before, and sums over patterns run in their order: results are equal to the bit when a kernel is repeated.
"""

# ruff: noqa: RUF005 (Triton has no unpacking in tuples)

from __future__ import annotations

import triton
import triton.language as tl

from ptynb.kernels.gpu.line_transforms import (
    load,
    places,
    product,
    ramps_of_columns,
    store,
    store_whole,
    transform,
    whole,
)


@triton.jit
def columns_ramp(
    spectra,
    shifts,
    hybrid,
    table,
    factor,
    shared: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    parts: tl.constexpr,
    steps: tl.constexpr,
    lines: tl.constexpr,
):
    """hybrid[j, m] = F_y⁻¹[R_j spectra[0 if shared else j, m] factor]."""
    image, first = _image_and_first(width, lines)
    pattern = image // modes
    source = image % modes if shared else image
    at = places(first, lines, steps, width, True)
    re, im = load(spectra + source.to(tl.int64) * (2 * height * width), at, steps * width, parts)
    shift_y, shift_x = tl.load(shifts + 2 * pattern), tl.load(shifts + 2 * pattern + 1)
    ramp_re, ramp_im = ramps_of_columns(shift_y, shift_x, first, lines, parts, height, width, factor)
    re, im = product(re, im, ramp_re, ramp_im, False)
    re, im = transform(re, im, table, True, True)
    at = places(first, lines, parts, width, True)
    store(hybrid + image.to(tl.int64) * (2 * height * width), at, parts * width, re, im)


@triton.jit
def rows_multiply(
    hybrid,
    object,
    origins,
    waves,
    table,
    columns_of_object,
    conjugate: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    parts: tl.constexpr,
    steps: tl.constexpr,
    lines: tl.constexpr,
):
    """waves = F_x⁻¹[hybrid], unless it is None, and hybrid = F_x[waves O_j], or with O_j* if `conjugate`."""
    image, first = _image_and_first(height, lines)
    pattern = image // modes
    start = image.to(tl.int64) * (2 * height * width)
    at = places(first, lines, steps, width, False)
    re, im = load(hybrid + start, at, steps, parts)
    re, im = transform(re, im, table, True, False)
    if waves is not None:
        store(waves + start, places(first, lines, parts, width, False), parts, re, im)
    corner = tl.load(origins + 2 * pattern) * columns_of_object + tl.load(origins + 2 * pattern + 1)
    by_re, by_im = load(object + 2 * corner, places(first, lines, parts, columns_of_object, False), parts, steps)
    re, im = product(re, im, by_re, by_im, conjugate)
    re, im = transform(re, im, table, False, False)
    store(hybrid + start, at, steps, re, im)


@triton.jit
def columns_propagate(
    hybrid,
    kernel,
    shifts,
    spectra,
    table,
    factor,
    shared: tl.constexpr,
    adjoint: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    parts: tl.constexpr,
    steps: tl.constexpr,
    lines: tl.constexpr,
):
    """spectra = F_y[hybrid], unless it is None, and hybrid = F_y⁻¹[R_j* H spectra factor], or with the conjugate.

    kernel: H, one for all patterns if `shared`, or None; shifts: those of R_j, or None.
    """
    image, first = _image_and_first(width, lines)
    pattern = image // modes
    start = image.to(tl.int64) * (2 * height * width)
    at = places(first, lines, steps, width, True)
    middle = places(first, lines, parts, width, True)
    re, im = load(hybrid + start, at, steps * width, parts)
    re, im = transform(re, im, table, False, True)
    if spectra is not None:
        store(spectra + start, middle, parts * width, re, im)
    if kernel is not None:
        source = 0 if shared else pattern.to(tl.int64) * (2 * height * width)
        by_re, by_im = load(kernel + source, middle, parts * width, steps)
        re, im = product(re, im, by_re, by_im, adjoint)
    if shifts is not None:
        shift_y, shift_x = tl.load(shifts + 2 * pattern), tl.load(shifts + 2 * pattern + 1)
        by_re, by_im = ramps_of_columns(shift_y, shift_x, first, lines, steps, height, width, 1.0)
        re, im = product(re, im, by_re, by_im, not adjoint)
    re, im = _scaled(re, im, factor)
    re, im = transform(re, im, table, True, True)
    store(hybrid + start, at, steps * width, re, im)


@triton.jit(do_not_specialize=["patterns"])
def lines_compare(
    lines_of_waves,
    stored,
    rows,
    mask,
    weights,
    background,
    losses,
    slopes,
    table,
    scale,
    floor,
    damping,
    factor,
    patterns,
    damped: tl.constexpr,
    columns: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    parts: tl.constexpr,
    steps: tl.constexpr,
    lines: tl.constexpr,
):
    """Waves on the detector: losses[j, tile] = Σ (√(M_j + ε) - √(I_j + ε))², and waves *= 2 w_j dL/dM_j factor.

    Waves are the transforms of columns (to frequencies), or of rows (from frequencies), which are transformed back.
    slopes: dL/dM_j and M_j before weight and background, (2, pattern, y, x). rows, mask, weights, background and slopes
    may be None.
    """
    pixels: tl.constexpr = height * width
    pattern, first = _image_and_first(width if columns else height, lines)
    step: tl.constexpr = width if columns else 1
    at = places(first, lines, steps, width, columns)
    middle = places(first, lines, parts, width, columns)
    image = pattern.to(tl.int64) * (2 * modes * pixels)
    intensities = ()
    if modes == 1:
        re, im = load(lines_of_waves + image, at, steps * step, parts)
        re, im = transform(re, im, table, not columns, columns)
        for i in tl.static_range(steps):
            intensities = intensities + (re[i] * re[i] + im[i] * im[i],)
    else:
        for _ in tl.static_range(steps):
            intensities = intensities + (tl.zeros(middle.shape, tl.float32),)
        for mode in range(modes):
            re, im = load(lines_of_waves + (image + 2 * mode * pixels), at, steps * step, parts)
            re, im = transform(re, im, table, not columns, columns)
            summed = ()
            for i in tl.static_range(steps):
                summed = summed + (intensities[i] + (re[i] * re[i] + im[i] * im[i]),)
            intensities = summed
    source = pattern.to(tl.int64) if rows is None else tl.load(rows + pattern)
    weight = 1.0 if weights is None else tl.load(weights + pattern)
    factors = ()
    loss = tl.zeros(middle.shape, tl.float32)
    for i in tl.static_range(steps):
        pixel = middle + i * parts * step
        intensity = intensities[i] * scale
        modelled = intensity if weights is None else intensity * weight
        if background is not None:
            modelled += tl.load(background + pixel)
        amplitude = tl.sqrt_rn(modelled + floor)
        counts = tl.load(stored + source * pixels + pixel).to(tl.float32)
        difference = amplitude - tl.sqrt_rn(counts + floor)
        if mask is not None:
            difference *= tl.load(mask + pixel)
        loss += difference * difference
        slope = difference * amplitude / (amplitude * amplitude + damping) if damped else difference / amplitude
        if slopes is not None:
            target = slopes + pattern.to(tl.int64) * pixels
            tl.store(target + pixel, slope)
            tl.store(target + patterns.to(tl.int64) * pixels + pixel, intensity)
        factors = factors + (slope * (2.0 * factor * weight),)
    tl.store(losses + tl.program_id(0), tl.sum(loss).to(tl.float64))
    if modes == 1:
        re, im = _times(re, im, factors)
        re, im = transform(re, im, table, columns, columns)
        store(lines_of_waves + image, at, steps * step, re, im)
    else:
        # Waves of several modes are transformed again, which takes less time than to write and read them.
        for mode in range(modes):
            re, im = load(lines_of_waves + (image + 2 * mode * pixels), at, steps * step, parts)
            re, im = transform(re, im, table, not columns, columns)
            re, im = _times(re, im, factors)
            re, im = transform(re, im, table, columns, columns)
            store(lines_of_waves + (image + 2 * mode * pixels), at, steps * step, re, im)


@triton.jit(do_not_specialize=["patterns", "patterns_per_sum"])
def columns_gather(
    hybrid,
    shifts,
    sums,
    spectra,
    table,
    factor,
    patterns,
    patterns_per_sum,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    parts: tl.constexpr,
    steps: tl.constexpr,
    lines: tl.constexpr,
):
    """sums[n, m] = Σ_j R_j* F_y[hybrid[j, m]] factor, of `patterns_per_sum` patterns each; spectra = F_y[hybrid].

    spectra may be None.
    """
    pixels: tl.constexpr = height * width
    image, first = _image_and_first(width, lines)
    mode = image % modes
    start = (image // modes).to(tl.int64) * patterns_per_sum
    at = places(first, lines, steps, width, True)
    middle = places(first, lines, parts, width, True)
    total = tl.zeros((steps, parts, lines, 2), tl.float32)
    for number in range(0, tl.minimum(patterns_per_sum, patterns - start)):
        pattern = start + number
        source = 2 * (pattern * modes + mode) * pixels
        re, im = load(hybrid + source, at, steps * width, parts)
        re, im = transform(re, im, table, False, True)
        if spectra is not None:
            store(spectra + source, middle, parts * width, re, im)
        shift_y, shift_x = tl.load(shifts + 2 * pattern), tl.load(shifts + 2 * pattern + 1)
        by_re, by_im = ramps_of_columns(shift_y, shift_x, first, lines, steps, height, width, factor)
        re, im = product(re, im, by_re, by_im, True)
        total += whole(re, im)
    store_whole(sums + image.to(tl.int64) * (2 * pixels), middle, parts * width, total)


@triton.jit
def _image_and_first(side: tl.constexpr, lines: tl.constexpr):
    """Return the number of this program's image, and that of its first line among the `side` lines of the image."""
    tiles: tl.constexpr = side // lines
    return tl.program_id(0) // tiles, tl.program_id(0) % tiles * lines


@triton.jit
def _scaled(re, im, factor):
    out_re = ()
    out_im = ()
    for i in tl.static_range(len(re)):
        out_re = out_re + (re[i] * factor,)
        out_im = out_im + (im[i] * factor,)
    return out_re, out_im


@triton.jit
def _times(re, im, factors):
    out_re = ()
    out_im = ()
    for i in tl.static_range(len(re)):
        out_re = out_re + (re[i] * factors[i],)
        out_im = out_im + (im[i] * factors[i],)
    return out_re, out_im
