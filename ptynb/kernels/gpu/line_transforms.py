"""Fourier transforms of the lines of a tile inside a Triton kernel, and access to these lines.

A line, of `parts` x `steps` complex numbers, is a tuple of tensors, one for each part: element k of part i is number
i * steps + k of the line. A tensor has also an axis of lines: (k, line) where lines are columns, else (line, k). Real
and imaginary parts are separate tuples. A thread has the same element of all parts, so that a transform over the parts
(`_dft`) takes place in its registers; accesses to memory are those of single tensors, with neighbouring threads at
neighbouring pixels.

With n = i steps + k and the frequency f = p + q parts

    Σ_n x_n e^(-2πi nf / N) = Σ_k e^(-2πi kq / steps) [ e^(-2πi kp / N) Σ_i x_ik e^(-2πi ip / parts) ]

(Cooley and Tukey, Math. Comput. 19, 297, 1965): transforms over the parts, a factor, and transforms over k. Between
them tensors with an element for each k, one for each p, become tensors with an element for each p, one for each k; this
is the only passage through shared memory, 8 bytes of a pixel in one direction and 8 in the other. The spectrum has
`steps` parts of `parts` elements, in natural order as well.

Compiled for Hopper and Ampere, the exchange is a single conversion of layouts, and 16 pixels a thread take 56 to 128
registers, sums over patterns up to 224.

All parts of a line are loaded, and stored, by one operation on a tensor with an axis of parts. Triton's pass that
arranges accesses to memory takes time in proportion to the number of accesses and to the square of the number of
operations: with an operation for each part kernels took 4 to 50 s to compile (128 pixels, 1 to 4 modes), so 1 to 4 s.
"""

# ruff: noqa: RUF005 (Triton has no unpacking in tuples)

from __future__ import annotations

import math

import triton
import triton.language as tl

from ptynb.kernels.gpu.triton_kernels import fraction, rotation, turns_per_frequency


@triton.constexpr_function
def _cosine(turns: float) -> float:
    return math.cos(2 * math.pi * turns)


@triton.constexpr_function
def _sine(turns: float) -> float:
    return math.sin(2 * math.pi * turns)


@triton.constexpr_function
def _binary(number: int) -> tuple[int, ...]:
    """Return the shape of an axis of 2^n elements as n axes of two."""
    return (2,) * (number.bit_length() - 1)


@triton.jit
def transform(re, im, table, inverse: tl.constexpr, columns: tl.constexpr):
    """Transform lines, without a factor; a spectrum has as many parts as the line has steps.

    table: e^(2πi n / N), (n, 2).
    """
    parts: tl.constexpr = len(re)
    steps: tl.constexpr = re[0].shape[0] if columns else re[0].shape[1]
    lines: tl.constexpr = re[0].shape[1] if columns else re[0].shape[0]
    re, im = _dft(re, im, inverse)
    k = tl.arange(0, steps)
    k = k[:, None] if columns else k[None, :]
    turns = _turns(table, k, parts, inverse)
    pairs = (tl.join(re[0], im[0]),)
    for p in tl.static_range(1, parts):
        out_re, out_im = _product((re[p], im[p]), turns[p - 1])
        pairs = pairs + (tl.join(out_re, out_im),)
    joined = _joined(pairs)
    if columns:
        joined = tl.permute(tl.reshape(joined, (steps, lines, 2, parts)), (3, 1, 2, 0))
        pairs = _divided(tl.reshape(joined, (parts, lines, 2) + _binary(steps)), steps)
    else:
        joined = tl.permute(tl.reshape(joined, (lines, steps, 2, parts)), (0, 3, 2, 1))
        pairs = _divided(tl.reshape(joined, (lines, parts, 2) + _binary(steps)), steps)
    re, im = _apart(pairs)
    return _dft(re, im, inverse)


@triton.jit
def _turns(table, k, parts: tl.constexpr, inverse: tl.constexpr):
    """Return e^(-2πi kp / N), or its conjugate if `inverse`, for p from 1 to parts - 1.

    Those of powers of two are read from the table, others are products of these.
    """
    half: tl.constexpr = parts // 2
    cosine, sine = _load(table, half * k)
    one = (cosine, sine if inverse else -sine)
    if half == 1:
        return (one,)
    else:
        lower = _turns(table, k, half, inverse)
        upper = ()
        for i in tl.static_range(half - 1):
            upper = upper + (_product(lower[i], one),)
        return lower + (one,) + upper


@triton.jit
def places(first, lines: tl.constexpr, elements: tl.constexpr, width, columns: tl.constexpr):
    """Return the places of part 0 of lines first … first + lines - 1 in an image with rows of `width` pixels."""
    line = first + tl.arange(0, lines)
    k = tl.arange(0, elements)
    if columns:
        return k[:, None] * width + line[None, :]
    else:
        return line[:, None] * width + k[None, :]


@triton.jit
def load(numbers, at, step, parts: tl.constexpr):
    """Load complex numbers (n, 2), those at at + i step for each part i."""
    joined = tl.permute(tl.load(numbers + _of_all(at, step, parts)), (1, 2, 3, 0))
    return _apart(_divided(tl.reshape(joined, joined.shape[:3] + _binary(parts)), parts))


@triton.jit
def store(numbers, at, step, re, im):
    """Store complex numbers to where `load` finds them."""
    store_whole(numbers, at, step, whole(re, im))


@triton.jit
def whole(re, im):
    """Return all parts as one tensor of real and imaginary parts, (part, …, 2)."""
    parts: tl.constexpr = len(re)
    pairs = ()
    for i in tl.static_range(parts):
        pairs = pairs + (tl.join(re[i], im[i]),)
    return tl.permute(tl.reshape(_joined(pairs), (re[0].shape[0], re[0].shape[1], 2, parts)), (3, 0, 1, 2))


@triton.jit
def store_whole(numbers, at, step, values):
    """Store complex numbers, given as `whole` makes them, to where `load` finds them."""
    tl.store(numbers + _of_all(at, step, values.shape[0]), values)


@triton.jit
def product(re, im, by_re, by_im, conjugate: tl.constexpr):
    """Return each part times a factor, or times its complex conjugate."""
    out_re = ()
    out_im = ()
    for i in tl.static_range(len(re)):
        if conjugate:
            out_re = out_re + (re[i] * by_re[i] + im[i] * by_im[i],)
            out_im = out_im + (im[i] * by_re[i] - re[i] * by_im[i],)
        else:
            out_re = out_re + (re[i] * by_re[i] - im[i] * by_im[i],)
            out_im = out_im + (re[i] * by_im[i] + im[i] * by_re[i],)
    return out_re, out_im


@triton.jit
def ramps_of_columns(
    shift_y, shift_x, first, lines: tl.constexpr, parts: tl.constexpr, height: tl.constexpr, width: tl.constexpr, factor
):
    """Return exp(-2πi k·s) times `factor` for columns of a spectrum, with these parts; real at Nyquist frequencies."""
    elements: tl.constexpr = height // parts
    x_re, x_im = _ramp((first + tl.arange(0, lines))[None, :], shift_x, width)
    x_re *= factor
    x_im *= factor
    re = ()
    im = ()
    for i in tl.static_range(parts):
        y_re, y_im = _ramp(tl.arange(0, elements)[:, None] + i * elements, shift_y, height)
        re = re + (y_re * x_re - y_im * x_im,)
        im = im + (y_re * x_im + y_im * x_re,)
    return re, im


@triton.jit
def _ramp(index, shift, side: tl.constexpr):
    """Return exp(-2πi k s) of these frequencies, real at the Nyquist frequency."""
    frequency = tl.where(2 * index < side, index, index - side).to(tl.float32)
    coarse, fine = turns_per_frequency(shift, side)
    re, im = rotation(fraction(frequency * coarse) + frequency * fine)
    return re, tl.where(2 * index == side, 0.0, -im)


@triton.jit
def _dft(re, im, inverse: tl.constexpr):
    """Transform over the parts, in natural order: sums and differences of halves, then the same for each half."""
    parts: tl.constexpr = len(re)
    if parts == 1:
        return re, im
    else:
        half: tl.constexpr = parts // 2
        even_re = ()
        even_im = ()
        odd_re = ()
        odd_im = ()
        for i in tl.static_range(half):
            even_re = even_re + (re[i] + re[i + half],)
            even_im = even_im + (im[i] + im[i + half],)
            one_re, one_im = _turned(
                re[i] - re[i + half], im[i] - im[i + half], i if inverse else (parts - i) % parts, parts
            )
            odd_re = odd_re + (one_re,)
            odd_im = odd_im + (one_im,)
        even_re, even_im = _dft(even_re, even_im, inverse)
        odd_re, odd_im = _dft(odd_re, odd_im, inverse)
        out_re = ()
        out_im = ()
        for i in tl.static_range(half):
            out_re = out_re + (even_re[i], odd_re[i])
            out_im = out_im + (even_im[i], odd_im[i])
        return out_re, out_im


@triton.jit
def _turned(re, im, number: tl.constexpr, of: tl.constexpr):
    """Return a complex number times exp(2πi number / of)."""
    if number == 0:
        return re, im
    elif 4 * number == of:
        return -im, re
    elif 2 * number == of:
        return -re, -im
    elif 4 * number == 3 * of:
        return im, -re
    else:
        cosine: tl.constexpr = _cosine(number / of)
        sine: tl.constexpr = _sine(number / of)
        return re * cosine - im * sine, re * sine + im * cosine


@triton.jit
def _joined(values):
    """Return a tensor with an axis of two for each bit of the number of a part, the highest first."""
    parts: tl.constexpr = len(values)
    if parts == 1:
        return values[0]
    else:
        half: tl.constexpr = parts // 2
        pairs = ()
        for i in tl.static_range(half):
            pairs = pairs + (tl.join(values[i], values[i + half]),)
        return _joined(pairs)


@triton.jit
def _divided(values, parts: tl.constexpr):
    """Return the tensors of which `_joined` makes this one."""
    if parts == 1:
        return (values,)
    else:
        even, odd = tl.split(values)
        even = _divided(even, parts // 2)
        odd = _divided(odd, parts // 2)
        out = ()
        for i in tl.static_range(parts // 2):
            out = out + (even[i], odd[i])
        return out


@triton.jit
def _product(one, other):
    """Return the product of two complex numbers."""
    re, im = one
    by_re, by_im = other
    return re * by_re - im * by_im, re * by_im + im * by_re


@triton.jit
def _load(numbers, at):
    """Load both parts of complex numbers, which one access of a thread reads."""
    return tl.split(tl.load(numbers + _both(at)))


@triton.jit
def _of_all(at, step, parts: tl.constexpr):
    """Return where both parts of complex numbers at at + i step are, for each i, (i, …, 2)."""
    return 2 * step * tl.arange(0, parts)[:, None, None, None] + _both(at)[None, :, :, :]


@triton.jit
def _apart(pairs):
    """Return real and imaginary parts of complex numbers."""
    re = ()
    im = ()
    for i in tl.static_range(len(pairs)):
        one_re, one_im = tl.split(pairs[i])
        re = re + (one_re,)
        im = im + (one_im,)
    return re, im


@triton.jit
def _both(at):
    """Return where both parts of complex numbers are."""
    return 2 * at[:, :, None] + tl.arange(0, 2)[None, None, :]
