"""Parallel reading of patterns from a file into the model's pixel order, outside the Python interpreter."""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ptynb.kernels.runtime.compiler import address_of, compiled, system_function
from ptynb.kernels.runtime.thread_pool import in_shares, part
from ptynb.kernels.unpack import row_into

_INTEGER = ir.IntType(64)
_WILL_NEED = getattr(os, "POSIX_FADV_WILLNEED", 3)


class _System(NamedTuple):
    """Addresses of ssize_t pread(file, memory, bytes, offset) and int posix_fadvise(file, offset, bytes, advice)."""

    read: int
    advise: int


@functools.cache
def _system() -> _System | None:
    found = _System(*(address_of(system_function(name)) for name in ("pread", "posix_fadvise")))
    return found if all(found) else None


def possible() -> bool:
    """Whether the system has the required functions."""
    return _system() is not None


class PatternLayout(NamedTuple):
    """Layout of patterns in a file.

    file: file descriptor. bytes: size of a pattern. shifts: as for `unpack.arrange`. good: (y, x), in the order of the
    file; other pixels are set to 0; size 0: all are good. clip: whether negative counts become 0.
    """

    file: int
    bytes: int
    shifts: tuple[int, int]
    good: NDArray[np.bool_]
    clip: bool


def read(
    stored: PatternLayout,
    places: NDArray[np.int64],
    coming: NDArray[np.int64],
    scratch: NDArray[Any],
    out: NDArray[Any],
) -> bool:
    """Read the pattern at byte offset places[j] of the file into out[j], in the model's pixel order.

    places: (pattern,) [bytes]. coming: offsets of patterns that will be read next, for the system's read-ahead.
    scratch: buffers (share, y, x) of the file's type. out: (pattern, y, x). Return whether all data could be read.
    """
    missing = np.zeros(len(scratch), np.int64)
    _read(_system(), stored, places, coming, scratch, out, missing, shares=len(scratch))
    return not missing.any()


@in_shares
def _read(
    system: Any,
    stored: Any,
    places: Any,
    coming: Any,
    scratch: Any,
    out: Any,
    missing: Any,
    share: int,
    shares: int,
) -> None:
    for pattern in range(*part(len(coming), share, shares)):
        _call(system.advise, stored.file, coming[pattern], stored.bytes, _WILL_NEED)
    one, (shift_y, shift_x) = scratch[share], stored.shifts
    height, width = one.shape
    cut = width - shift_x
    for pattern in range(*part(len(out), share, shares)):
        if not _filled(system.read, stored, places[pattern], one):
            missing[share] = 1
            return
        for y in range(height):
            source = one[(y + shift_y) % height]
            if stored.good.size > 0:
                works = stored.good[(y + shift_y) % height]
                for x in range(width):
                    if not works[x]:
                        source[x] = 0
            if stored.clip:
                for x in range(width):
                    source[x] = max(source[x], 0)
            row_into(source[shift_x:], out[pattern, y, :cut])
            row_into(source[:shift_x], out[pattern, y, cut:])


@compiled
def _filled(code: int, stored: Any, place: int, out: Any) -> bool:
    """Read a pattern at this offset into `out`; return whether all its bytes could be read."""
    start, done = out.ctypes.data, 0
    while done < stored.bytes:
        got = _call(code, stored.file, start + done, stored.bytes - done, place + done)
        if got <= 0:
            return False
        done += got
    return True


def _code_of_call(context: Any, code: Any, file: Any, first: Any, second: Any, third: Any) -> Any:
    """Call int64 code(int32 file, int64, int64, int64) by its address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_INTEGER, [ir.IntType(32), _INTEGER, _INTEGER, _INTEGER]).as_pointer()
        code, file, *others = arguments
        return builder.call(builder.inttoptr(code, kind), [builder.trunc(file, ir.IntType(32)), *others])

    return types.int64(*[types.int64] * 5), generate


_call: Any = intrinsic(_code_of_call)
