"""Fourier transforms of single planes inside compiled loops, without normalisation in either direction.

Designed for planes of a few hundred pixels a side, transformed one at a time on the thread that has just written the
plane and reads it next. First all columns are transformed, then all rows, as many side by side as a vector has lanes,
each in passes of small radices (Stockham's order, which needs no permutation: Van Loan, Computational Frameworks for
the Fast Fourier Transform, SIAM 1992, section 1.7) that stay in the first-level cache. Sizes, and with them all loops
and factors, are constants of the machine code, which is generated once for each shape and cached on disk.

A prime factor above 31 is transformed by a convolution (`Convolution`): on a Xeon a plane of 129 x 129 takes 1.5 times
as long as one of 128 x 128, 127 x 127 1.8, 131 x 131 2.2 times, 257 x 257 1.7 times as long as 256 x 256.

On an AMD EPYC (Zen 4) a plane of 128 x 128 in single precision takes 0.019 ms; FFTW (pyfftw) 0.030, torch's MKL 0.045
to 0.055 and scipy 0.067. The result is the same to the last bit in every process, unlike that of FFTW, which chooses
its plans by timing.
"""

from __future__ import annotations

import cmath
import contextlib
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ptynb.kernels.runtime.compiler import callback, inner
from ptynb.kernels.runtime.radices import RADICES, is_zero_padded, radices
from ptynb.kernels.runtime.simd import Complex, Vectors

LARGEST_COMPOSITE = 16
"""Largest composite radix of a convolution; two passes of 16 take less time than three of 4 to 8."""
LETTERS = {np.dtype(np.complex64): "f", np.dtype(np.complex128): "d"}
ALIGNMENT = 64
_making = threading.Lock()


class Plans(NamedTuple):
    """Addresses of the code that transforms a plane of one shape and type; `room`: size of its work memory [bytes]."""

    forward: int
    backward: int
    room: int


class Convolution(NamedTuple):
    """How a prime number p of values is transformed: X[g^t] = x[0] + Σ_n x[g^n] exp(-2πi g^(n + t) / p).

    The powers of g, modulo p, are all numbers but 0, so that the sum is a cyclic correlation of p - 1 values (Rader,
    Proc. IEEE 56, 1107 (1968)); if p - 1 has a large prime factor, it is zero-padded to a longer one. It is computed by
    two transforms and a product between them.

    radices: of each transform. twiddled: False if these have no common factor: then n is replaced by its remainders,
    by which the transforms are ones of several dimensions, without twiddle factors (Good, J. R. Stat. Soc. B 20, 361
    (1958)). powers: g^n, in the order of the remainders. factors: of the product, in the order in which the first
    transform leaves its results.
    """

    radices: tuple[int, ...]
    twiddled: bool
    powers: tuple[int, ...]
    factors: tuple[complex, ...]


@functools.cache
def convolution(prime: int) -> Convolution:
    """Return the convolution that transforms a prime number of values, at least 3."""
    count = prime - 1
    orders = [order for order in range(1, count) if count % order == 0]
    root = next(g for g in range(2, prime) if all(pow(g, order, prime) != 1 for order in orders))
    size = next(size for size in itertools.count(2 * count - 1) if _fewest(size)) if is_zero_padded(prime) else count
    values = np.zeros(size, np.complex128)
    for n in range(min(size, 2 * count - 1)):
        values[n] = cmath.exp(-2j * math.pi * pow(root, n, prime) / prime)
    passes, order = _fewest(size), [*range(count)]
    twiddled = size > count or math.lcm(*passes) < size
    if twiddled:
        factors = np.fft.ifft(values).reshape(passes[::-1]).transpose()
    else:
        order.sort(key=lambda n: [n % radix for radix in passes])
        factors = np.fft.ifftn(values[order].reshape(passes))
    return Convolution(passes, twiddled, tuple(pow(root, n, prime) for n in order), tuple(factors.ravel().tolist()))


@functools.cache
def _fewest(size: int) -> tuple[int, ...]:
    """Return the fewest radices, of a convolution, whose product is `size`; none if a prime factor is too large."""
    usable = [radix for radix in {*RADICES, *range(2, LARGEST_COMPOSITE + 1)} if size % radix == 0]
    found = [(size,)] if size in usable else [(radix, *_fewest(size // radix)) for radix in usable]
    whole = [tuple(sorted(some, reverse=True)) for some in found if math.prod(some) == size]
    return min(whole, key=lambda some: (len(some), some[0]), default=())


@functools.cache
def plans(height: int, width: int, kind: Any) -> Plans:
    """Return the code for planes (height, width), generated at the first call, in a second or two if not cached.

    Raises ValueError if waves are not complex.
    """
    if kind not in LETTERS:
        raise ValueError(f"The waves are of type {kind}; expected complex64 or complex128.")
    letter = LETTERS[kind]
    with _making:
        forward, backward = (_code(letter, height, width, back) for back in (False, True))
    primes = [radix for radix in radices(height) + radices(width) if radix > RADICES[-1]]
    numbers = 2 * max(height, width) + max((len(convolution(prime).factors) for prime in primes), default=0)
    return Plans(forward, backward, 2 * numbers * Vectors(None, letter).size + ALIGNMENT)


def _code(letter: str, height: int, width: int, backwards: bool) -> int:
    """Return the address of void transform(source, target, room), with the address of work memory as `room`."""
    kind, back = "df".index(letter), int(backwards)

    def transform(source: int, target: int, room: int) -> None:
        _plane(source, target, room, kind, height, width, back)

    address: int = callback(types.void(types.int64, types.int64, types.int64), transform)
    return address


def _code_of_a_plane(
    context: Any, source: Any, target: Any, room: Any, kind: Any, height: Any, width: Any, back: Any
) -> Any:
    """Generate the code of a plane's transform; arguments from `kind` on are constants."""
    letter, backwards = "df"[kind.literal_value], bool(back.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target, room, *_ = arguments
        writer = _Writer(Vectors(builder, letter), height.literal_value, width.literal_value)
        writer.plane(source, target, room, backwards)
        return context.get_dummy_value()

    return types.void(source, target, room, kind, height, width, back), generate


_plane: Any = intrinsic(prefer_literal=True)(_code_of_a_plane)


class _Place(NamedTuple):
    """Memory layout of a block of transforms: one number every `step` bytes, `lanes` numbers side by side.

    lanes: None for work memory, whose numbers are vectors, real parts before imaginary ones. swapped: whether real and
    imaginary part are exchanged when read or written; exchanged before and after, a transform becomes the inverse one.
    """

    address: Any
    step: int
    lanes: int | None = None
    swapped: bool = False


class _Writer:
    """Generator of the code for one shape."""

    def __init__(self, vectors: Vectors, height: int, width: int) -> None:
        self.vectors, self.builder = vectors, vectors.builder
        self.height, self.width = height, width
        self.number = 2 * vectors.bytes
        self.step = 2 * vectors.size

    def plane(self, source: Any, target: Any, room: Any, backwards: bool) -> None:
        """Transform all columns from `source` to `target`, then all rows of `target` in place."""
        line = max(self.height, self.width) * self.step
        rooms, self.work = (room, self._moved(room, line)), _Place(self._moved(room, 2 * line), self.step)
        row = self.width * self.number

        def columns(first: Any, lanes: int) -> None:
            offset = self._times(first, self.number)
            start = _Place(self.builder.add(source, offset), row, lanes, backwards)
            self._line(self.height, start, _Place(self.builder.add(target, offset), row, lanes), rooms)

        def rows(first: Any, lanes: int) -> None:
            start = self.builder.add(target, self._times(first, row))
            self._turn(start, rooms[0], lanes, inwards=True, swapped=False)
            end = self._line(self.width, None, None, rooms)
            self._turn(start, end, lanes, inwards=False, swapped=backwards)

        self._blocks(self.width, columns)
        self._blocks(self.height, rows)

    def _blocks(self, count: int, write: Callable[[Any, int], None]) -> None:
        """Call write(first, count) for blocks of the width of a vector, and for the remainder."""
        lanes = self.vectors.lanes
        with self._loop(count // lanes) as block:
            write(self._times(block, lanes), lanes)
        if count % lanes:
            write(_constant(count - count % lanes), count % lanes)

    def _line(self, side: int, source: _Place | None, target: _Place | None, rooms: tuple[Any, Any]) -> Any:
        """Transform lines of length `side`, side by side, from `source` or the first buffer; return the address."""
        before, steps = 1, radices(side) or (1,)
        here, there = (_Place(room, self.step) for room in rooms)
        place = source or here
        if source is not None:
            here, there = there, here
        for number, radix in enumerate(steps):
            end = target if target is not None and number == len(steps) - 1 else there
            self._pass(radix, before, side // (before * radix), place, end)
            before *= radix
            place, here, there = end, there, here
        return place.address

    def _pass(self, radix: int, before: int, after: int, source: _Place, target: _Place) -> None:
        """y[j, q, i] = exp(-2πi jq / (radix · after)) Σ_k x[k, j, i] exp(-2πi kq / radix), one of Stockham's passes.

        x: (radix, after, before), y: (after, radix, before).
        """
        with self._loop(after) as j, self._loop(before) as i:
            row = self._times(j, before)
            start = self._at(source, self.builder.add(row, i))
            end = self._at(target, self.builder.add(self._times(row, radix), i))
            start = source._replace(address=start, step=after * before * source.step)
            end = target._replace(address=end, step=before * target.step)
            factors = self._factors(radix, after, j) if after > 1 else None
            if radix > RADICES[-1]:
                self._convolve(convolution(radix), start, end, factors)
            else:
                for q, value in enumerate(self.vectors.transform([self._load(start, k) for k in range(radix)])):
                    self._store(self._multiplied(value, factors, q), end, q)

    def _convolve(self, plan: Convolution, source: _Place, target: _Place, factors: Any) -> None:
        """Transform a prime number of values, and multiply the results by `factors`."""
        size, count = len(plan.factors), len(plan.powers)
        powers = self._table([ir.Constant(ir.IntType(64), power) for power in plan.powers], ir.IntType(64))
        start = self._load(source, 0)

        def power(n: Any) -> Any:
            address = self.builder.inttoptr(self._at(_Place(powers, 8), n), ir.IntType(64).as_pointer())
            return self.builder.load(address)

        def gather(n: Any) -> Complex:
            return self._load(source, power(n))

        def scatter(value: Complex, t: Any) -> None:
            q = power(t)
            self._store(self._multiplied(value, factors, q), target, q)

        def read(n: Any) -> Complex:
            return self._load(self.work, n)

        def write(value: Complex, n: Any) -> None:
            self._store(value, self.work, n)

        padded = size > count
        if padded:
            with self._loop(count) as n:
                write(gather(n), n)
            with self._loop(size - count) as n:
                write(self.vectors.zero(), self.builder.add(n, _constant(count)))
        take, give = (read, write) if padded else (gather, scatter)
        # The first transform goes from long distances between the values of a radix to short ones, the second one back,
        # so that neither needs to sort.
        outer = plan.radices[:-1]
        for number in range(len(outer)):
            with self._places(plan, number) as (places, own, _):
                values = self.vectors.transform([(read if number else take)(place) for place in places])
                for q, value in enumerate(values):
                    write(self._multiplied(value, own, q), places[q])
        with self._places(plan, len(outer)) as (places, _, block):
            values = self.vectors.transform([(read if outer else take)(place) for place in places])
            at_0 = self.builder.icmp_unsigned("==", block, _constant(0))
            with self.builder.if_then(at_0):
                self._store(self.vectors.sum(start, values[0]), target, 0)
            table = self._numbers(plan.factors)
            values = [self._multiplied(value, table, place) for value, place in zip(values, places, strict=True)]
            values[0] = self.vectors.sum(values[0], self.vectors.selected(at_0, start))
            for value, place in zip(self.vectors.transform(values), places, strict=True):
                (write if outer else give)(value, place)
        for number in reversed(range(len(outer))):
            with self._places(plan, number) as (places, own, _):
                values = [self._multiplied(read(place), own, q) for q, place in enumerate(places)]
                for value, place in zip(self.vectors.transform(values), places, strict=True):
                    (write if number else give)(value, place)
        if padded:
            with self._loop(count) as t:
                scatter(read(t), t)

    @contextlib.contextmanager
    def _places(self, plan: Convolution, number: int) -> Iterator[tuple[list[Any], Any, Any]]:
        """Loop over the sets of values of one of the radices; yield their indices, factors, and their block."""
        radix, after = plan.radices[number], math.prod(plan.radices[number + 1 :])
        with self._loop(math.prod(plan.radices[:number])) as block, self._loop(after) as j:
            first = self.builder.add(self._times(block, radix * after), j)
            places = [self._moved(first, k * after) for k in range(radix)]
            yield places, self._factors(radix, after, j) if plan.twiddled and after > 1 else None, block

    def _factors(self, radix: int, after: int, j: Any) -> Any:
        """Return the address of the twiddle factors exp(-2πi jq / (radix · after)) for all q."""
        turns = [-2 * math.pi * row * q / (radix * after) for row in range(after) for q in range(radix)]
        return self.builder.add(
            self._numbers([cmath.exp(1j * turn) for turn in turns]), self._times(j, radix * self.number)
        )

    def _multiplied(self, value: Complex, factors: Any, q: Any) -> Complex:
        """Return value · factors[q]; the factors are at an address, or None for 1; the first one is not used."""
        if factors is None or q == 0:
            return value
        own = self._at(_Place(factors, self.number), q)
        return self.vectors.product(
            value, (self.vectors.spread(own), self.vectors.spread(self._moved(own, self.vectors.bytes)))
        )

    def _numbers(self, numbers: Iterable[complex]) -> Any:
        return self._table([part for number in numbers for part in (number.real, number.imag)], self.vectors.number)

    def _table(self, values: Sequence[Any], kind: Any) -> Any:
        """Return the address of constants in memory."""
        constants = ir.Constant(ir.ArrayType(kind, len(values)), values)
        name = self.builder.module.get_unique_name("table")
        return self.builder.ptrtoint(cgutils.global_constant(self.builder, name, constants), ir.IntType(64))

    def _turn(self, plane: Any, room: Any, lanes: int, inwards: bool, swapped: bool) -> None:
        """Copy rows of the plane to work memory (if `inwards`) or back; there the rows are stored side by side."""
        vectors, row = self.vectors, self.width * self.number

        def block(first: Any, count: int) -> None:
            start = self.builder.add(plane, self._times(first, self.number))
            inside = _Place(self.builder.add(room, self._times(first, self.step)), self.step)
            if inwards:
                loaded = [
                    vectors.load_whole(self._moved(start, line * row), count if line < lanes else 0)
                    for line in range(vectors.lanes)
                ]
                for place, value in enumerate(vectors.columns(loaded)[:count]):
                    self._store(value, inside, place)
                return
            values = [self._load(inside, min(place, count - 1)) for place in range(vectors.lanes)]
            values = [(value[1], value[0]) for value in values] if swapped else values
            for line, pair in enumerate(vectors.rows(values)[:lanes]):
                vectors.store_whole(pair, self._moved(start, line * row), count)

        self._blocks(self.width, block)

    def _load(self, place: _Place, index: Any) -> Complex:
        address = self._at(place, index)
        if place.lanes is None:
            return self.vectors.load(address), self.vectors.load(self._moved(address, self.vectors.size))
        value = self.vectors.split(*self.vectors.load_whole(address, place.lanes))
        return (value[1], value[0]) if place.swapped else value

    def _store(self, value: Complex, place: _Place, index: Any) -> None:
        address = self._at(place, index)
        if place.lanes is None:
            self.vectors.store(value[0], address)
            self.vectors.store(value[1], self._moved(address, self.vectors.size))
        else:
            self.vectors.store_whole(self.vectors.merged(value), address, place.lanes)

    @contextlib.contextmanager
    def _loop(self, count: int) -> Iterator[Any]:
        """Loop over 0, 1, … count - 1; the body is the code generated inside the context."""
        if count == 1:
            yield _constant(0)
        else:
            with cgutils.for_range(self.builder, _constant(count)) as loop:
                yield loop.index

    def _at(self, place: _Place, index: Any) -> Any:
        if isinstance(index, int):
            return self._moved(place.address, index * place.step)
        return self.builder.add(place.address, self._times(index, place.step))

    def _times(self, index: Any, by: int) -> Any:
        return self.builder.mul(index, _constant(by))

    def _moved(self, address: Any, by: int) -> Any:
        return self.vectors.moved(address, by)


def _constant(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _code_of_a_call(context: Any, address: Any, source: Any, target: Any, room: Any) -> Any:
    """Call void function(source, target, room) by its address: numba does not cache code that contains an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 3).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


_call: Any = intrinsic(_code_of_a_call)


@inner
def forward(plans: Any, waves: Any, first: int, last: int) -> None:
    """Σ waves exp(-2πi k·r) in place, of each plane of waves (pattern, …, y, x) from pattern `first` to `last`."""
    _transform(plans.forward, plans.room, waves, waves, first, last)


@inner
def backward(plans: Any, waves: Any, first: int, last: int) -> None:
    """Σ waves exp(+2πi k·r) in place, of each plane as in `forward`."""
    _transform(plans.backward, plans.room, waves, waves, first, last)


@inner
def forward_into(plans: Any, waves: Any, out: Any, first: int, last: int) -> None:
    """`forward` into other waves of the same shape."""
    _transform(plans.forward, plans.room, waves, out, first, last)


@inner
def _transform(code: int, room: int, waves: Any, out: Any, first: int, last: int) -> None:
    source, target = waves.ctypes.data, out.ctypes.data
    pixels = waves.shape[-2] * waves.shape[-1]
    plane, per = pixels * waves.itemsize, waves.size // max(waves.shape[0] * pixels, 1)
    memory = np.empty(room, np.uint8)
    start = (memory.ctypes.data + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    for number in range(first * per, last * per):
        _call(code, source + number * plane, target + number * plane, start)
    memory[0] = 0  # keeps the memory allocated up to here
