"""Complex arithmetic with the processor's vector (SIMD) instructions, generated as LLVM code, used by `fft`.

A complex number here is a pair of vectors (real, imaginary); each lane belongs to one of several simultaneous
transforms. In arrays, real and imaginary parts are interleaved, as in numpy and torch.
"""

from __future__ import annotations

import cmath
import functools
import math
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

Complex = tuple[Any, Any]
LANES = {"f": 8, "d": 4}
"""Numbers in a vector of 256 bits, by type: "f" for float, "d" for double."""
_FLAGS = ("contract", "nsz")
_INDEX = ir.IntType(64)
_NEXT = (4, 2, 3, 5, 7)
"""Factorisation of composite radices, in order of preference."""


class Vectors:
    """Generator of instructions for vectors of one type."""

    def __init__(self, builder: Any, letter: str) -> None:
        """letter: a key of `LANES`."""
        self.builder, self.lanes = builder, LANES[letter]
        self.number = ir.FloatType() if letter == "f" else ir.DoubleType()
        self.bytes = 4 if letter == "f" else 8
        self.vector = ir.VectorType(self.number, self.lanes)
        self.size = self.lanes * self.bytes

    # Arithmetic

    def sum(self, one: Complex, other: Complex) -> Complex:
        """Return one + other."""
        return self._add(one[0], other[0]), self._add(one[1], other[1])

    def difference(self, one: Complex, other: Complex) -> Complex:
        """Return one - other."""
        return self._subtract(one[0], other[0]), self._subtract(one[1], other[1])

    def product(self, one: Complex, other: Complex) -> Complex:
        """Return one · other."""
        real = self._subtract(self._multiply(one[0], other[0]), self._multiply(one[1], other[1]))
        return real, self._add(self._multiply(one[0], other[1]), self._multiply(one[1], other[0]))

    def selected(self, condition: Any, value: Complex) -> Complex:
        """Return the value where the condition is true, otherwise 0."""
        zero = self._constant(0.0)
        return self.builder.select(condition, value[0], zero), self.builder.select(condition, value[1], zero)

    def zero(self) -> Complex:
        """Return 0."""
        return self._constant(0.0), self._constant(0.0)

    def turned(self, value: Complex, eighths: int) -> Complex:
        """Return value · exp(-2πi eighths / 8)."""
        real, imaginary = value
        if eighths % 2:
            root = self._constant(math.sqrt(0.5))
            value = self._add(real, imaginary), self._subtract(imaginary, real)
            return self.turned((self._multiply(value[0], root), self._multiply(value[1], root)), eighths - 1)
        match eighths % 8:
            case 0:
                return value
            case 2:
                return imaginary, self._negative(real)
            case 4:
                return self._negative(real), self._negative(imaginary)
            case _:
                return self._negative(imaginary), real

    def transform(self, values: Sequence[Complex]) -> list[Complex]:
        """Return X_q = Σ_k x_k exp(-2πi kq/n) for small n. Cooley and Tukey, Math. Comput. 19, 297 (1965)."""
        count = len(values)
        if count == 1:
            return [*values]
        if count == 2:
            return [self.sum(*values), self.difference(*values)]
        radix = next((factor for factor in _NEXT if count % factor == 0 and factor < count), None)
        if radix is None:
            return self._transform_of_prime(values)
        rest = count // radix
        if math.gcd(radix, rest) == 1:  # no twiddle factors: Good, J. R. Stat. Soc. B 20, 361 (1958)
            columns = [
                self.transform([values[(k * rest + j * radix) % count] for k in range(radix)]) for j in range(rest)
            ]
            rows = [self.transform([column[q] for column in columns]) for q in range(radix)]
            return [rows[q % radix][q % rest] for q in range(count)]
        columns = [self.transform([values[k * rest + j] for k in range(radix)]) for j in range(rest)]
        rows = [self.transform([self._rotated(columns[j][q], j * q, count) for j in range(rest)]) for q in range(radix)]
        return [rows[q][p] for p in range(rest) for q in range(radix)]

    def _transform_of_prime(self, values: Sequence[Complex]) -> list[Complex]:
        """Transform a prime number of values: x_k and x_n-k have equal cosines, and sines of opposite sign."""
        first, count = values[0], len(values)
        pairs = [(values[k], values[count - k]) for k in range(1, count // 2 + 1)]
        even, odd = [self.sum(*pair) for pair in pairs], [self.difference(*pair) for pair in pairs]
        found = [functools.reduce(self.sum, even, first)] * count
        for q in range(1, count // 2 + 1):
            angles = [2 * math.pi * (k * q % count) / count for k in range(1, count // 2 + 1)]
            cosines = [self._scaled(value, math.cos(angle)) for value, angle in zip(even, angles, strict=True)]
            sines = [self._scaled(value, math.sin(angle)) for value, angle in zip(odd, angles, strict=True)]
            along, across = (
                functools.reduce(self.sum, cosines, first),
                self.turned(functools.reduce(self.sum, sines), 2),
            )
            found[q], found[count - q] = self.sum(along, across), self.difference(along, across)
        return found

    def _rotated(self, value: Complex, turn: int, of: int) -> Complex:
        """Return value · exp(-2πi turn / of)."""
        if 8 * turn % of == 0:
            return self.turned(value, 8 * turn // of % 8)
        root = cmath.exp(-2j * math.pi * (turn % of) / of)
        return self.product(value, (self._constant(root.real), self._constant(root.imag)))

    def _scaled(self, value: Complex, factor: float) -> Complex:
        return self._multiply(value[0], self._constant(factor)), self._multiply(value[1], self._constant(factor))

    def _add(self, one: Any, other: Any) -> Any:
        return self.builder.fadd(one, other, flags=_FLAGS)

    def _subtract(self, one: Any, other: Any) -> Any:
        return self.builder.fsub(one, other, flags=_FLAGS)

    def _multiply(self, one: Any, other: Any) -> Any:
        return self.builder.fmul(one, other, flags=_FLAGS)

    def _negative(self, one: Any) -> Any:
        return self._subtract(self._constant(-0.0), one)

    def _constant(self, value: float) -> Any:
        return ir.Constant(self.vector, [ir.Constant(self.number, value)] * self.lanes)

    # Memory

    def load(self, address: Any, numbers: int | None = None) -> Any:
        """Load a vector; only its first `numbers` are read, the others are 0."""
        if numbers is None or numbers >= self.lanes:
            loaded = self.builder.load(self.builder.inttoptr(address, self.vector.as_pointer()))
            loaded.align = self.bytes
            return loaded
        vector = self._constant(0.0)
        for lane in range(numbers):
            number = self._number(self.moved(address, lane * self.bytes))
            vector = self.builder.insert_element(vector, number, _place(lane))
        return vector

    def store(self, vector: Any, address: Any, numbers: int | None = None) -> None:
        """Store a vector, or only its first `numbers`."""
        if numbers is None or numbers >= self.lanes:
            stored = self.builder.store(vector, self.builder.inttoptr(address, self.vector.as_pointer()))
            stored.align = self.bytes
            return
        for lane in range(numbers):
            own = self.builder.inttoptr(self.moved(address, lane * self.bytes), self.number.as_pointer())
            self.builder.store(self.builder.extract_element(vector, _place(lane)), own).align = self.bytes

    def load_whole(self, address: Any, count: int) -> tuple[Any, Any]:
        """Load one complex number per lane into two consecutive vectors; only `count` are read."""
        high = self.moved(address, self.size)
        return self.load(address, 2 * count), self.load(high, max(2 * count - self.lanes, 0))

    def store_whole(self, pair: tuple[Any, Any], address: Any, count: int) -> None:
        """Inverse of `load_whole`."""
        self.store(pair[0], address, 2 * count)
        self.store(pair[1], self.moved(address, self.size), max(2 * count - self.lanes, 0))

    def spread(self, address: Any) -> Any:
        """Broadcast one number from memory to all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, self._number(address), _place(0))
        return self._chosen(first, first, [0] * self.lanes)

    def moved(self, address: Any, by: int) -> Any:
        """Return address + by [bytes]."""
        return self.builder.add(address, ir.Constant(_INDEX, by)) if by else address

    def _number(self, address: Any) -> Any:
        number = self.builder.load(self.builder.inttoptr(address, self.number.as_pointer()))
        number.align = self.bytes
        return number

    # Order

    def split(self, low: Any, high: Any) -> Complex:
        """Convert two consecutive vectors of interleaved complex numbers to a pair (real, imaginary)."""
        even = range(0, 2 * self.lanes, 2)
        return self._chosen(low, high, even), self._chosen(low, high, [place + 1 for place in even])

    def merged(self, value: Complex) -> tuple[Any, Any]:
        """Inverse of `split`."""
        places = [part * self.lanes + lane for lane in range(self.lanes) for part in (0, 1)]
        return self._chosen(*value, places[: self.lanes]), self._chosen(*value, places[self.lanes :])

    def columns(self, rows: Sequence[tuple[Any, Any]]) -> list[Complex]:
        """Return the columns of a square of complex numbers, whose rows are as returned by `load_whole`."""
        half = self.lanes // 2
        found = list[Complex]()
        for side in (0, 1):
            upper, lower = (self._transposed([row[side] for row in some]) for some in (rows[:half], rows[half:]))
            found += [self.split(*pair) for pair in zip(upper, lower, strict=True)]
        return found

    def rows(self, columns: Sequence[Complex]) -> list[tuple[Any, Any]]:
        """Inverse of `columns`."""
        half = self.lanes // 2
        merged = [self.merged(column) for column in columns]
        found = list[tuple[Any, Any]]()
        for side in (0, 1):
            left, right = (self._transposed([pair[side] for pair in some]) for some in (merged[:half], merged[half:]))
            found += zip(left, right, strict=True)
        return found

    def _transposed(self, rows: Sequence[Any]) -> list[Any]:
        """Return the transpose of a square of complex numbers, one vector per row."""
        found, count = [*rows], len(rows)
        step = count // 2
        while step:
            for one in (row for row in range(count) if not row & step):
                pair = found[one], found[one + step]
                near = [place if not place & step else count + place - step for place in range(count)]
                far = [place + step if not place & step else count + place for place in range(count)]
                found[one], found[one + step] = (self._chosen(*pair, _of_pairs(places)) for places in (near, far))
            step //= 2
        return found

    def _chosen(self, one: Any, other: Any, places: Sequence[int]) -> Any:
        kind = ir.VectorType(ir.IntType(32), len(places))
        mask = ir.Constant(kind, [_place(place) for place in places])
        return self.builder.shuffle_vector(one, other, mask)


def _place(number: int) -> Any:
    return ir.Constant(ir.IntType(32), number)


def _of_pairs(places: Sequence[int]) -> list[int]:
    """Return indices of real and imaginary parts for indices of complex numbers."""
    return [2 * place + part for place in places for part in (0, 1)]
