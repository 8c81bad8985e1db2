"""The kernels themselves, in Triton, which compiles these functions for a GPU.

A program, which a block of threads runs, has some pixels of a window or of the object, and all modes there:

- neighbouring threads have neighbouring pixels, and access both parts of a complex number at once, 8 or 16 bytes;
- what modes have in common (ramps, object, propagator) is read or computed once;
- a sum over patterns is that of a program's own pixels, in the order of the patterns: nothing is added atomically, and
  results are equal to the bit when a kernel is repeated.

Arrays are contiguous; those of complex numbers are given by their real parts. The size of windows and the number of
modes are constants of the compiled code, so that a pixel's row costs no division; the number of patterns is not, since
the last batch of an epoch may be smaller. Numbers from Python are float64, where Triton would round them to float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

LANES = tl.constexpr(32)
"""Patterns of which a tile of the object finds at once those whose windows touch it."""
STEPS = tl.constexpr(4096.0)
"""A frequency, in steps of 1 / side, times a multiple of 1 / STEPS is exact in float32."""


@triton.jit
def shift_spectra(
    spectra,
    shifts,
    out,
    factor: tl.float64,
    shared: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """out[j, m] = R_j spectra[0 if shared else j, m] factor."""
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    shift_y, shift_x = _of_pattern(shifts, pattern)
    re, im = _scaled(_ramp(pixel, shift_y, shift_x, height, width, True), factor)
    source = 0 if shared else pattern
    _multiply_modes(spectra, source, out, pattern, re, im, pixel, inside, modes, height, width, chunk)


@triton.jit
def multiply_by_windows(
    waves,
    object,
    origins,
    out,
    columns,
    conjugate: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """out[j, m] = waves[j, m] O[c_j], or O[c_j]*; `out` may be `waves`. columns: width of the object."""
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    top, left = _of_pattern(origins, pattern)
    row = pixel // width
    at = row.to(tl.int64) * columns + (pixel - row * width)
    re, im = _load(object + 2 * (top * columns + left), at, inside)
    if conjugate:
        im = -im
    _multiply_modes(waves, pattern, out, pattern, re, im, pixel, inside, modes, height, width, chunk)


@triton.jit
def multiply_spectra(
    spectra,
    kernel,
    shifts,
    factor: tl.float64,
    shared: tl.constexpr,
    adjoint: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """spectra[j, m] *= R_j* H factor, or its conjugate if `adjoint`. H is `kernel`, one for all patterns if shared."""
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    re, im = _load(kernel + _start(0 if shared else pattern, 0, 1, height, width), pixel, inside)
    if shifts is not None:
        shift_y, shift_x = _of_pattern(shifts, pattern)
        turn_re, turn_im = _ramp(pixel, shift_y, shift_x, height, width, True)
        re, im = re * turn_re + im * turn_im, im * turn_re - re * turn_im
    re, im = _scaled((re, im), factor)
    if adjoint:
        im = -im
    _multiply_modes(spectra, pattern, spectra, pattern, re, im, pixel, inside, modes, height, width, chunk)


@triton.jit(do_not_specialize=["patterns"])
def compare(
    waves,
    stored,
    rows,
    mask,
    weights,
    background,
    losses,
    slopes,
    scale: tl.float64,
    floor: tl.float64,
    damping: tl.float64,
    factor: tl.float64,
    patterns,
    loss: tl.constexpr,
    damped: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """losses[j, part] = Σ loss(M_j, I_j), and waves[j, m] *= 2 w_j dL/dM_j factor.

    loss: "amplitude": (√(M + ε) - √(I + ε))²; "poisson": M - I + I log(I / M), where M and I include ε; "intensity":
    (M - I)². slopes: dL/dM_j and M_j before weight and background, (2, pattern, y, x). rows, mask, weights, background
    and slopes may be None.
    """
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    wave_re, wave_im = _load_modes(waves, pattern, 0, pixel, inside, modes, height, width, chunk)
    intensity = tl.sum(wave_re * wave_re + wave_im * wave_im, 0, keep_dims=True)
    for first in range(chunk, modes, chunk):
        more_re, more_im = _load_modes(waves, pattern, first, pixel, inside, modes, height, width, chunk)
        intensity += tl.sum(more_re * more_re + more_im * more_im, 0, keep_dims=True)
    intensity *= tl.full((), scale, intensity.dtype)
    modelled = intensity
    if weights is not None:
        weight = tl.load(weights + pattern).to(intensity.dtype)
        modelled *= weight
    if background is not None:
        modelled += tl.load(background + pixel, inside, 0.0).to(intensity.dtype)
    smallest = tl.full((), floor, intensity.dtype)
    row = pattern.to(tl.int64) if rows is None else tl.load(rows + pattern)
    counts = tl.load(stored + row * (height * width) + pixel, inside, 0).to(intensity.dtype)
    if mask is not None:
        valid = tl.load(mask + pixel, inside, 0).to(intensity.dtype)
    if loss == "amplitude":
        amplitude = tl.sqrt(modelled + smallest)
        difference = tl.where(inside, amplitude - tl.sqrt(counts + smallest), 0.0)
        if mask is not None:
            difference *= valid
        terms = difference * difference
        if damped:
            slope = difference * amplitude / (amplitude * amplitude + tl.full((), damping, intensity.dtype))
        else:
            slope = difference / amplitude
    else:
        if loss == "poisson":
            modelled, counts = modelled + smallest, counts + smallest
            slope = (modelled - counts) / modelled
            terms = modelled * _excess(counts / modelled, -slope)
        else:
            slope = modelled - counts
            terms = slope * slope
            slope = 2.0 * slope
        terms = tl.where(inside, terms, 0.0)
        if mask is not None:
            terms *= valid
            slope *= valid
    tl.store(losses + tl.program_id(0), tl.sum(terms).to(tl.float64))
    if slopes is not None:
        start = pattern.to(tl.int64) * (height * width)
        tl.store(slopes + start + pixel, slope, inside)
        tl.store(slopes + (start + patterns.to(tl.int64) * (height * width)) + pixel, intensity, inside)
    if weights is not None:
        slope *= weight
    slope *= tl.full((), 2 * factor, intensity.dtype)
    wave_re, wave_im = wave_re * slope, wave_im * slope
    _store_modes(waves, pattern, 0, pixel, inside, modes, height, width, chunk, wave_re, wave_im)
    for first in range(chunk, modes, chunk):
        more_re, more_im = _load_modes(waves, pattern, first, pixel, inside, modes, height, width, chunk)
        more_re, more_im = more_re * slope, more_im * slope
        _store_modes(waves, pattern, first, pixel, inside, modes, height, width, chunk, more_re, more_im)


@triton.jit(do_not_specialize=["patterns"])
def set_object_gradient(
    gradient,
    waves,
    change,
    origins,
    factor: tl.float64,
    patterns,
    rows,
    columns,
    row: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """gradient (rows, columns) = factor Σ_jm waves[j, m]* change[j, m] at c_j, for a tile of `block` pixels."""
    top, left = _tile(tl.program_id(0), columns, row, block)
    y, x = _pixels_of_tile(top, left, row, block)
    re = tl.zeros((1, block), gradient.dtype.element_ty)
    im = tl.zeros((1, block), gradient.dtype.element_ty)
    for first in range(0, patterns, LANES):
        touching = _touching(origins, first, patterns, top, left, height, width, row, block)
        if touching != 0:
            for lane in range(LANES):
                if (touching >> lane) & 1 != 0:
                    pattern = first + lane
                    pixel, inside = _pixels_in_window(origins, pattern, y[None, :], x[None, :], height, width)
                    for mode in range(0, modes, chunk):
                        wave_re, wave_im = _load_modes(waves, pattern, mode, pixel, inside, modes, height, width, chunk)
                        change_re, change_im = _load_modes(
                            change, pattern, mode, pixel, inside, modes, height, width, chunk
                        )
                        re += tl.sum(wave_re * change_re + wave_im * change_im, 0, keep_dims=True)
                        im += tl.sum(wave_re * change_im - wave_im * change_re, 0, keep_dims=True)
    re, im = _scaled((re, im), factor)
    _store(gradient, (y.to(tl.int64) * columns + x)[None, :], ((y < rows) & (x < columns))[None, :], re, im)


@triton.jit(do_not_specialize=["patterns"])
def gather_probe_gradient(
    spectra,
    shifts,
    out,
    factor: tl.float64,
    patterns,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    summed: tl.constexpr,
    block: tl.constexpr,
):
    """out[m] = Σ_j R_j* spectra[j, m] factor: sums over every `summed`-th pattern, then the sum of these."""
    mode, pixel, inside = _pattern_and_pixels(height, width, block)
    re = tl.zeros((summed, block), out.dtype.element_ty)
    im = tl.zeros((summed, block), out.dtype.element_ty)
    one = tl.arange(0, summed)[:, None]
    at = one.to(tl.int64) * (modes * height * width) + pixel
    for first in range(0, patterns, summed):
        there = first + one < patterns
        shift_y = tl.load(shifts + 2 * (first + one), there, 0.0)
        shift_x = tl.load(shifts + 2 * (first + one) + 1, there, 0.0)
        turn_re, turn_im = _ramp(pixel, shift_y, shift_x, height, width, _meets_nyquist(height, width, block))
        start = _start(first, mode, modes, height, width)
        wave_re, wave_im = _load(spectra + start, at, there & inside)
        re += wave_re * turn_re + wave_im * turn_im
        im += wave_im * turn_re - wave_re * turn_im
    re, im = _scaled((tl.sum(re, 0, keep_dims=True), tl.sum(im, 0, keep_dims=True)), factor)
    _store(out + _start(0, mode, modes, height, width), pixel, inside, re, im)


@triton.jit
def shift_gradient(
    change,
    spectra,
    shifts,
    out,
    factor: tl.float64,
    shared: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """out[j, part] (yx) = Re Σ_mk change[j, m] spectra[0 if shared else j, m]* (dR_j/ds)* factor, for parts of Σ_k."""
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    shift_y, shift_x = _of_pattern(shifts, pattern)
    y, x, frequency_y, frequency_x = _frequencies(pixel, height, width, shift_y.dtype)
    turn_re, turn_im = _rotation(_turns(frequency_y, frequency_x, shift_y, shift_x, height, width))
    re = tl.zeros((1, block), turn_re.dtype)
    im = tl.zeros((1, block), turn_re.dtype)
    for first in range(0, modes, chunk):
        change_re, change_im = _load_modes(change, pattern, first, pixel, inside, modes, height, width, chunk)
        source = 0 if shared else pattern
        wave_re, wave_im = _load_modes(spectra, source, first, pixel, inside, modes, height, width, chunk)
        re += tl.sum(change_re * wave_re + change_im * wave_im, 0, keep_dims=True)
        im += tl.sum(change_im * wave_re - change_re * wave_im, 0, keep_dims=True)
    # With R = exp(-2πi k·s) the sum is -2πk Im(…R*); where R is cos πs, Re(…) times -π sin πs.
    re, im = re * turn_re - im * turn_im, re * turn_im + im * turn_re
    slope_y = im * frequency_y * (-6.283185307179586 / height)
    slope_x = im * frequency_x * (-6.283185307179586 / width)
    if height % 2 == 0:
        cosine, sine = _rotation(_fraction(0.5 * shift_y))
        slope_y = tl.where(2 * y == height, re * sine * -3.141592653589793, slope_y)
        slope_x = tl.where(2 * y == height, slope_x * cosine, slope_x)
    if width % 2 == 0:
        cosine, sine = _rotation(_fraction(0.5 * shift_x))
        slope_y = tl.where(2 * x == width, slope_y * cosine, slope_y)
        along_x = re * sine * -3.141592653589793
        if height % 2 == 0:
            along_x = tl.where(2 * y == height, along_x * _rotation(_fraction(0.5 * shift_y))[0], along_x)
        slope_x = tl.where(2 * x == width, along_x, slope_x)
    number = tl.full((), factor, re.dtype)
    tl.store(out + 2 * tl.program_id(0), tl.sum(slope_y) * number)
    tl.store(out + 2 * tl.program_id(0) + 1, tl.sum(slope_x) * number)


@triton.jit(do_not_specialize=["patterns"])
def select_places(chosen, origins, shifts, chosen_origins, chosen_shifts, patterns, block: tl.constexpr):
    """chosen_origins[j], chosen_shifts[j] = origins[chosen[j]], shifts[chosen[j]], (pattern, yx) each."""
    number = tl.program_id(0) * block + tl.arange(0, block)
    keep = (number < patterns)[:, None]
    axis = tl.arange(0, 2)[None, :]
    source = 2 * tl.load(chosen + number, number < patterns, 0)[:, None] + axis
    target = 2 * number[:, None] + axis
    tl.store(chosen_origins + target, tl.load(origins + source, keep), keep)
    tl.store(chosen_shifts + target, tl.load(shifts + source, keep), keep)


@triton.jit
def step_rows(
    values,
    gradient,
    means,
    squares,
    steps,
    rows,
    rate,
    beta: tl.float64,
    log_beta: tl.float64,
    beta_of_squares: tl.float64,
    log_beta_of_squares: tl.float64,
    epsilon: tl.float64,
    length,
    block: tl.constexpr,
):
    """Make a step of Adam for rows[program] of values (row, length).

    A program is one warp: all its threads read the number of the step before one of them writes the next.
    """
    row = tl.load(rows + tl.program_id(0))
    step = tl.load(steps + row) + 1
    for first in range(0, length, block):
        at = row * length + first + tl.arange(0, block)
        keep = first + tl.arange(0, block) < length
        _step(
            values,
            gradient,
            means,
            squares,
            at,
            keep,
            step,
            rate,
            beta,
            log_beta,
            beta_of_squares,
            log_beta_of_squares,
            epsilon,
        )
    tl.store(steps + row, step)


@triton.jit
def step_all(
    values,
    gradient,
    means,
    squares,
    step,
    rate,
    beta: tl.float64,
    log_beta: tl.float64,
    beta_of_squares: tl.float64,
    log_beta_of_squares: tl.float64,
    epsilon: tl.float64,
    length,
    block: tl.constexpr,
):
    """Make the step-th step of Adam for values (length,)."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    _step(
        values,
        gradient,
        means,
        squares,
        at,
        at < length,
        tl.load(step),
        rate,
        beta,
        log_beta,
        beta_of_squares,
        log_beta_of_squares,
        epsilon,
    )


@triton.jit
def _step(
    values,
    gradient,
    means,
    squares,
    at,
    keep,
    step,
    rate,
    beta: tl.float64,
    log_beta: tl.float64,
    beta_of_squares: tl.float64,
    log_beta_of_squares: tl.float64,
    epsilon: tl.float64,
):
    """Make the step-th step of Adam for values[at] where `keep`; 1 - β^step in double precision."""
    real = values.dtype.element_ty
    number = step.to(tl.float64)
    scale = (tl.load(rate).to(tl.float64) / (1.0 - tl.exp(number * log_beta))).to(real)
    unbiased = (1.0 / (1.0 - tl.exp(number * log_beta_of_squares))).to(real)
    old, old_of_squares = tl.full((), beta, real), tl.full((), beta_of_squares, real)
    new, new_of_squares = tl.full((), 1.0 - beta, real), tl.full((), 1.0 - beta_of_squares, real)
    slope = tl.load(gradient + at, keep, 0.0)
    mean = old * tl.load(means + at, keep, 0.0) + new * slope
    square = old_of_squares * tl.load(squares + at, keep, 0.0) + new_of_squares * slope * slope
    value = tl.load(values + at, keep, 0.0) - scale * mean / (tl.sqrt(square * unbiased) + tl.full((), epsilon, real))
    tl.store(means + at, mean, keep)
    tl.store(squares + at, square, keep)
    tl.store(values + at, value, keep)


@triton.jit
def copy_windows(
    field,
    origins,
    out,
    layers,
    rows,
    columns,
    components: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
):
    """out[j, layer] = field[layer] (rows, columns) at c_j, each pixel with its components."""
    blocks: tl.constexpr = (height * width + block - 1) // block
    window = tl.program_id(0) // blocks
    pattern, layer = window // layers, window % layers
    pixel = (tl.program_id(0) % blocks) * block + tl.arange(0, block)
    corner_y, corner_x = _of_pattern(origins, pattern)
    source = field + ((layer.to(tl.int64) * rows + corner_y) * columns + corner_x) * components
    target = out + window.to(tl.int64) * (height * width * components)
    part = tl.arange(0, components)[None, :]
    row = pixel // width
    keep = (pixel < height * width)[:, None]
    at = row.to(tl.int64) * columns + (pixel - row * width)
    values = tl.load(source + (at[:, None] * components + part), keep)
    tl.store(target + (pixel[:, None] * components + part), values, keep)


@triton.jit(do_not_specialize=["patterns"])
def add_windows(
    field,
    origins,
    windows,
    patterns,
    layers,
    rows,
    columns,
    components: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    row: tl.constexpr,
    block: tl.constexpr,
):
    """field[layer] (rows, columns) += Σ_j windows[j, layer] at c_j, for a tile of `block` pixels."""
    tiles = tl.cdiv(rows, block // row) * tl.cdiv(columns, row)
    layer = tl.program_id(0) // tiles
    top, left = _tile(tl.program_id(0) % tiles, columns, row, block)
    y, x = _pixels_of_tile(top, left, row, block)
    part = tl.arange(0, components)[None, :]
    sums = tl.zeros((block, components), field.dtype.element_ty)
    touched = 0
    for first in range(0, patterns, LANES):
        touching = _touching(origins, first, patterns, top, left, height, width, row, block)
        if touching != 0:
            touched = 1
            for lane in range(LANES):
                if (touching >> lane) & 1 != 0:
                    pattern = first + lane
                    pixel, inside = _pixels_in_window(origins, pattern, y, x, height, width)
                    start = (tl.cast(pattern, tl.int64) * layers + layer) * (height * width * components)
                    sums += tl.load(windows + start + (pixel[:, None] * components + part), inside[:, None], 0)
    if touched != 0:
        at = (layer.to(tl.int64) * rows + y) * columns + x
        target = field + (at[:, None] * components + part)
        keep = ((y < rows) & (x < columns))[:, None]
        tl.store(target, tl.load(target, keep) + sums, keep)


@triton.jit(do_not_specialize=["patterns"])
def set_intensity(
    sums,
    waves,
    origins,
    weights,
    patterns,
    rows,
    columns,
    row: tl.constexpr,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """sums (rows, columns) = Σ_jm weights[j] |waves[j, m]|² at c_j, for a tile. weights may be None."""
    top, left = _tile(tl.program_id(0), columns, row, block)
    y, x = _pixels_of_tile(top, left, row, block)
    total = tl.zeros((1, block), sums.dtype.element_ty)
    for first in range(0, patterns, LANES):
        touching = _touching(origins, first, patterns, top, left, height, width, row, block)
        if touching != 0:
            for lane in range(LANES):
                if (touching >> lane) & 1 != 0:
                    pattern = first + lane
                    pixel, inside = _pixels_in_window(origins, pattern, y[None, :], x[None, :], height, width)
                    intensity = tl.zeros((1, block), total.dtype)
                    for mode in range(0, modes, chunk):
                        re, im = _load_modes(waves, pattern, mode, pixel, inside, modes, height, width, chunk)
                        intensity += tl.sum(re * re + im * im, 0, keep_dims=True)
                    if weights is not None:
                        intensity *= tl.load(weights + pattern).to(total.dtype)
                    total += intensity
    tl.store(sums + (y.to(tl.int64) * columns + x)[None, :], total, ((y < rows) & (x < columns))[None, :])


@triton.jit(do_not_specialize=["patterns"])
def sum_object_power(
    object,
    origins,
    weights,
    out,
    patterns,
    layers,
    rows,
    columns,
    height: tl.constexpr,
    width: tl.constexpr,
    summed: tl.constexpr,
    block: tl.constexpr,
):
    """out = Σ_j weights[j] Π_k |O_k[c_j]|²: sums over every `summed`-th pattern, then the sum of these."""
    pixel = tl.program_id(0) * block + tl.arange(0, block)[None, :]
    one = tl.arange(0, summed)[:, None]
    row = pixel // width
    at = row.to(tl.int64) * columns + (pixel - row * width)
    total = tl.zeros((summed, block), out.dtype.element_ty)
    for first in range(0, patterns, summed):
        there = first + one < patterns
        corner_y = tl.load(origins + 2 * (first + one), there, 0)
        corner_x = tl.load(origins + 2 * (first + one) + 1, there, 0)
        start = corner_y * columns + corner_x + at
        power = tl.full((summed, block), 1.0, total.dtype)
        if weights is not None:
            power *= tl.load(weights + first + one, there, 0.0).to(total.dtype)
        for layer in range(layers):
            plane = tl.cast(layer, tl.int64) * rows * columns
            re, im = _load(object, start + plane, there & (pixel < height * width))
            power *= re * re + im * im
        total += power
    tl.store(out + pixel, tl.sum(total, 0, keep_dims=True), pixel < height * width)


@triton.jit
def compare_steps(
    change,
    waves,
    steps,
    before,
    object,
    object_step,
    origins,
    out,
    columns,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """out[j, part] = xx, xy, yy, χx, χy with x = O before + ΔO waves and y = O steps, χ = change, for parts of Σ_x.

    columns: width of the object. before may be None.
    """
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    top, left = _of_pattern(origins, pattern)
    corner = top * columns + left
    row = pixel // width
    place = row.to(tl.int64) * columns + (pixel - row * width)
    here_re, here_im = _load(object + 2 * corner, place, inside)
    step_re, step_im = _load(object_step + 2 * corner, place, inside)
    xx = tl.zeros((1, block), here_re.dtype)
    xy, yy, cx, cy = xx, xx, xx, xx
    for first in range(0, modes, chunk):
        re, im = _load_modes(waves, pattern, first, pixel, inside, modes, height, width, chunk)
        x_re, x_im = re * step_re - im * step_im, re * step_im + im * step_re
        if before is not None:
            re, im = _load_modes(before, pattern, first, pixel, inside, modes, height, width, chunk)
            x_re += re * here_re - im * here_im
            x_im += re * here_im + im * here_re
        re, im = _load_modes(steps, pattern, first, pixel, inside, modes, height, width, chunk)
        y_re, y_im = re * here_re - im * here_im, re * here_im + im * here_re
        re, im = _load_modes(change, pattern, first, pixel, inside, modes, height, width, chunk)
        xx += tl.sum(x_re * x_re + x_im * x_im, 0, keep_dims=True)
        xy += tl.sum(x_re * y_re + x_im * y_im, 0, keep_dims=True)
        yy += tl.sum(y_re * y_re + y_im * y_im, 0, keep_dims=True)
        cx += tl.sum(re * x_re + im * x_im, 0, keep_dims=True)
        cy += tl.sum(re * y_re + im * y_im, 0, keep_dims=True)
    target = out + 5 * tl.program_id(0)
    tl.store(target, tl.sum(xx).to(tl.float64))
    tl.store(target + 1, tl.sum(xy).to(tl.float64))
    tl.store(target + 2, tl.sum(yy).to(tl.float64))
    tl.store(target + 3, tl.sum(cx).to(tl.float64))
    tl.store(target + 4, tl.sum(cy).to(tl.float64))


@triton.jit
def sum_curvatures(
    field,
    waves,
    origins,
    out,
    columns,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
):
    """out[j, part] = Σ_m |waves[j, m]|² Re(∂_a O* ∂_b O) for ab = yy, yx, xx, for parts of Σ_x. columns: of `field`."""
    pattern, pixel, inside = _pattern_and_pixels(height, width, block)
    top, left = _of_pattern(origins, pattern)
    corner = top * columns + left
    row = pixel // width
    column = pixel - row * width
    place = row.to(tl.int64) * columns + column
    here_re, here_im = _load(field + 2 * corner, place, inside)
    has_below, has_right = row < height - 1, (column < width - 1) & (row < height)
    y_re, y_im = _load(field + 2 * corner, place + columns, has_below)
    x_re, x_im = _load(field + 2 * corner, place + 1, has_right)
    y_re, y_im = tl.where(has_below, y_re - here_re, 0.0), tl.where(has_below, y_im - here_im, 0.0)
    x_re, x_im = tl.where(has_right, x_re - here_re, 0.0), tl.where(has_right, x_im - here_im, 0.0)
    power = tl.zeros((1, block), here_re.dtype)
    for first in range(0, modes, chunk):
        re, im = _load_modes(waves, pattern, first, pixel, inside, modes, height, width, chunk)
        power += tl.sum(re * re + im * im, 0, keep_dims=True)
    target = out + 3 * tl.program_id(0)
    tl.store(target, tl.sum(power * (y_re * y_re + y_im * y_im)).to(tl.float64))
    tl.store(target + 1, tl.sum(power * (y_re * x_re + y_im * x_im)).to(tl.float64))
    tl.store(target + 2, tl.sum(power * (x_re * x_re + x_im * x_im)).to(tl.float64))


@triton.jit(do_not_specialize=["patterns"])
def fit_steps(products, out, patterns, block: tl.constexpr):
    """out[j] = a, b that minimise Σ |χ - a x - b y|², from products[j] = xx, xy, yy, χx, χy."""
    number = tl.program_id(0) * block + tl.arange(0, block)
    keep = number < patterns
    source = products + 5 * number
    xx, xy, yy = tl.load(source, keep, 1.0), tl.load(source + 1, keep, 0.0), tl.load(source + 2, keep, 1.0)
    cx, cy = tl.load(source + 3, keep, 0.0), tl.load(source + 4, keep, 0.0)
    more = (xx + yy) * tl.full((), 1e-6, tl.float64) + tl.full((), 1e-100, tl.float64)
    xx, yy = xx + more, yy + more
    determinant = xx * yy - xy * xy
    tl.store(out + 2 * number, (yy * cx - xy * cy) / determinant, keep)
    tl.store(out + 2 * number + 1, (xx * cy - xy * cx) / determinant, keep)


@triton.jit
def _excess(ratio, d):
    """Return r log r - d with r = 1 + d, by its series where the difference would cancel."""
    series = d * (-1 / 210) + 1 / 182
    series = -d * (-d * series + 1 / 156) + 1 / 132
    series = -d * (-d * series + 1 / 110) + 1 / 90
    series = -d * (-d * series + 1 / 72) + 1 / 56
    series = -d * (-d * series + 1 / 42) + 1 / 30
    series = -d * (-d * series + 1 / 20) + 1 / 12
    series = d * d * (-d * (-d * series + 1 / 6) + 1 / 2)
    logarithm = tl.log(tl.where(ratio > 0, ratio, 1.0))
    return tl.where(tl.abs(d) < 0.1, series, ratio * logarithm - d)


@triton.jit
def _pattern_and_pixels(height: tl.constexpr, width: tl.constexpr, block: tl.constexpr):
    """Return the pattern of this program, its pixels of the window, (1, pixel), and which of them exist."""
    blocks: tl.constexpr = (height * width + block - 1) // block
    program = tl.program_id(0)
    pixel = (program % blocks) * block + tl.arange(0, block)[None, :]
    return program // blocks, pixel, pixel < height * width


@triton.jit
def _of_pattern(places, pattern):
    """Return y and x of a pattern: its shift, or the origin of its window."""
    return tl.load(places + 2 * pattern), tl.load(places + 2 * pattern + 1)


@triton.jit
def _scaled(number, factor):
    """Return real and imaginary parts times a factor, in their precision."""
    re, im = number
    same = tl.full((), factor, re.dtype)
    return re * same, im * same


@triton.jit
def _multiply_modes(
    waves,
    source,
    out,
    target,
    re,
    im,
    pixel,
    inside,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
):
    """out[target, m] = waves[source, m] (re + i im) at pixels (1, pixel); source, target: numbers of patterns."""
    for first in range(0, modes, chunk):
        wave_re, wave_im = _load_modes(waves, source, first, pixel, inside, modes, height, width, chunk)
        out_re, out_im = wave_re * re - wave_im * im, wave_re * im + wave_im * re
        _store_modes(out, target, first, pixel, inside, modes, height, width, chunk, out_re, out_im)


@triton.jit
def _start(pattern, mode, modes: tl.constexpr, height: tl.constexpr, width: tl.constexpr):
    """Return where in (pattern, mode, y, x) the window of a mode starts, in numbers."""
    return (tl.cast(pattern, tl.int64) * modes + mode) * (2 * height * width)


@triton.jit
def _load_modes(
    waves,
    pattern,
    first,
    pixel,
    inside,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
):
    """Return real and imaginary parts of `chunk` modes of a pattern, (mode, pixel), at pixels (1, pixel)."""
    mode = tl.arange(0, chunk)[:, None]
    at, keep = mode * (height * width) + pixel, (first + mode < modes) & inside
    return _load(waves + _start(pattern, first, modes, height, width), at, keep)


@triton.jit
def _store_modes(
    waves,
    pattern,
    first,
    pixel,
    inside,
    modes: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    chunk: tl.constexpr,
    re,
    im,
):
    """Write what `_load_modes` reads."""
    mode = tl.arange(0, chunk)[:, None]
    at, keep = mode * (height * width) + pixel, (first + mode < modes) & inside
    _store(waves + _start(pattern, first, modes, height, width), at, keep, re, im)


@triton.jit
def _load(numbers, at, keep):
    """Return real and imaginary parts of complex numbers (a, b), which one access of a thread reads; 0 elsewhere."""
    part = tl.arange(0, 2)[None, None, :]
    return tl.split(tl.load(numbers + (2 * at[:, :, None] + part), keep[:, :, None], 0.0))


@triton.jit
def _store(numbers, at, keep, re, im):
    """Write complex numbers (a, b)."""
    part = tl.arange(0, 2)[None, None, :]
    tl.store(numbers + (2 * at[:, :, None] + part), tl.join(re, im), keep[:, :, None])


@triton.jit
def _ramp(pixel, shift_y, shift_x, height: tl.constexpr, width: tl.constexpr, nyquist):
    """Return exp(-2πi k·s) at pixels of the window, a product of one factor for each axis.

    At the Nyquist frequency of an even side the factor is its real part; nyquist: whether pixels may have one. Shifts
    [pixels] are scalars or (pattern, 1); they and the sides are below 4096.
    """
    y, x, frequency_y, frequency_x = _frequencies(pixel, height, width, shift_y.dtype)
    re, im = _rotation(_turns(frequency_y, frequency_x, shift_y, shift_x, height, width))
    if nyquist:
        factor = tl.full(re.shape, 1.0, re.dtype)
        if height % 2 == 0:
            factor = tl.where(2 * y == height, _rotation(_fraction(0.5 * shift_y))[0], factor)
        if width % 2 == 0:
            factor = tl.where(2 * x == width, factor * _rotation(_fraction(0.5 * shift_x))[0], factor)
        re, im = re * factor, im * factor
    return re, -im


@triton.jit
def _frequencies(pixel, height: tl.constexpr, width: tl.constexpr, real: tl.constexpr):
    """Return y and x of pixels of the window, and their frequencies [1 / side], 0 instead of the Nyquist frequency."""
    y = pixel // width
    x = pixel - y * width
    frequency_y = tl.where(2 * y < height, y, tl.where(2 * y == height, 0, y - height))
    frequency_x = tl.where(2 * x < width, x, tl.where(2 * x == width, 0, x - width))
    return y, x, frequency_y.to(real), frequency_x.to(real)


@triton.jit
def _turns(frequency_y, frequency_x, shift_y, shift_x, height: tl.constexpr, width: tl.constexpr):
    """Return k·s without whole turns, in [-½, ½]."""
    coarse_y, fine_y = _turns_per_frequency(shift_y, height)
    coarse_x, fine_x = _turns_per_frequency(shift_x, width)
    turns = _fraction(frequency_y * coarse_y + frequency_x * coarse_x)
    return turns + (frequency_y * fine_y + frequency_x * fine_x)


@triton.jit
def _meets_nyquist(height: tl.constexpr, width: tl.constexpr, block: tl.constexpr):
    """Whether this program has a pixel at the Nyquist frequency of an even side."""
    blocks: tl.constexpr = (height * width + block - 1) // block
    first = (tl.program_id(0) % blocks) * block
    last = first + block - 1
    in_row = (height % 2 == 0) & (first // width <= height // 2) & (last // width >= height // 2)
    in_column = (width % 2 == 0) & ((last + width // 2) // width > (first + width // 2 - 1) // width)
    return in_row | in_column


@triton.jit
def _turns_per_frequency(shift, side: tl.constexpr):
    """Return s / n as a multiple of 1 / 4096, whose product with a frequency is exact, and the rest.

    Whole turns can so be removed without an error. In float32 the phase of a shift by 256 pixels would else be wrong by
    1e-4.
    """
    coarse = tl.floor(shift * (STEPS / side) + 0.5) * (1 / STEPS)
    return coarse, (shift - coarse * side) * (1 / side)


@triton.jit
def _fraction(turns):
    """Return turns without whole ones, in [-½, ½]."""
    return turns - tl.floor(turns + 0.5)


@triton.jit
def _rotation(turns):
    """Return cos 2πt and sin 2πt for |t| ≤ ½, within 3e-7, or 1e-15 in float64.

    From sine and cosine of the half angle, by Chebyshev approximations in t² whose errors are 2e-10 and 4e-18. A third
    of the work of the sine and cosine of CUDA, whose reduction of any angle needs memory.
    """
    u = turns * turns
    if turns.dtype == tl.float64:
        s = 7.697826768224191e-07 * u - 2.1903497074626018e-05
        s = (s * u + 0.0004662998161898394) * u - 0.007370430505916944
        s = (s * u + 0.0821458865731029) * u - 0.5992645293189447
        s = (s * u + 2.5501640398773007) * u - 5.167712780049969
        c = 4.149564353942586e-06 * u - 0.00010456655338748738
        c = (c * u + 0.0019295562724817132) * u - 0.025806888737002202
        c = (c * u + 0.23533063012953284) * u - 1.335262768843447
        c = (c * u + 4.058712126416497) * u - 4.934802200544676
    else:
        s = -0.007028303855203096 * u + 0.08205035020147247
        s = (s * u - 0.599252186531583) * u + 2.550163317938427
        s = s * u - 5.167712764593
        c = -0.024395932097550446 * u + 0.2349370685950865
        c = (c * u - 1.3352119493905503) * u + 4.058709154763134
        c = c * u - 4.934802136928946
    s = (s * u + 3.141592653589793) * turns
    c = c * u + 1.0
    return 1.0 - 2.0 * (s * s), 2.0 * (s * c)


@triton.jit
def _tile(program, columns, row: tl.constexpr, block: tl.constexpr):
    """Return the origin of a tile of (block / row, row) pixels of an array with this many columns."""
    across = tl.cdiv(columns, row)
    return (program // across) * (block // row), (program % across) * row


@triton.jit
def _pixels_of_tile(top, left, row: tl.constexpr, block: tl.constexpr):
    """Return y and x of the pixels of a tile."""
    number = tl.arange(0, block)
    return top + number // row, left + number % row


@triton.jit
def _touching(
    origins,
    first,
    patterns,
    top,
    left,
    height: tl.constexpr,
    width: tl.constexpr,
    row: tl.constexpr,
    block: tl.constexpr,
):
    """Return the patterns from the first one on whose windows touch a tile, a bit each."""
    lane = tl.arange(0, LANES)
    there = first + lane < patterns
    y = tl.load(origins + 2 * (first + lane), there, 0)
    x = tl.load(origins + 2 * (first + lane) + 1, there, 0)
    touching = there & (y < top + block // row) & (y + height > top) & (x < left + row) & (x + width > left)
    return tl.sum(touching.to(tl.int64) << lane, 0)


@triton.jit
def _pixels_in_window(origins, pattern, y, x, height: tl.constexpr, width: tl.constexpr):
    """Return where pixels (y, x) of the object are in the window of a pattern, and which are inside."""
    corner_y, corner_x = _of_pattern(origins, pattern)
    y -= corner_y.to(tl.int32)
    x -= corner_x.to(tl.int32)
    return y * width + x, (y >= 0) & (y < height) & (x >= 0) & (x < width)
