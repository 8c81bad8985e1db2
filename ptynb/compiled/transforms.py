"""Fourier transforms of single planes inside compiled loops, by FFTW, without any factor in either direction.

pyfftw brings the library. Its plans are called directly, since a call through Python would wait for the interpreter's
lock between any two passes: the steps of an update took 1.4 times as long on two threads. On an AMD EPYC (Zen 4) a
plane of 128 x 128 in single precision takes FFTW 0.030 ms, torch's MKL 0.045 to 0.055 and scipy 0.067.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ptynb.compiled.compiler import compiled

try:
    import pyfftw
except ImportError:
    pyfftw = None

ALIGNMENT = 16
"""Bytes at which FFTW's fast plans have planes start; without it one takes 1.5 times as long."""
_FORWARD, _BACKWARD = -1, 1
_MEASURE, _UNALIGNED = 0, 1 << 1
_planning = threading.Lock()


class Plans(NamedTuple):
    """Addresses for `forward`, `backward` and `forward_into`, for planes of one shape and type."""

    execute: int
    forward: int
    backward: int
    forward_into: int


_LETTERS = {np.dtype(np.complex64): "f", np.dtype(np.complex128): ""}
"""In the names of FFTW's functions, by the type of waves."""


@functools.cache
def available() -> bool:
    """Whether FFTW is there for both precisions; on Windows its functions are not found in pyfftw."""
    try:
        return pyfftw is not None and all(_library(kind) for kind in _LETTERS)
    except (OSError, AttributeError):
        return False


@functools.cache
def plans(height: int, width: int, kind: Any) -> Plans:
    """FFTW's plans for planes (height, width); made once, a tenth of a second for 128 x 128.

    They are chosen by trying them out, so that two processes may differ by rounding. Raises ValueError where waves are
    not complex.
    """
    if kind not in _LETTERS:
        raise ValueError(f"Waves of type {kind} can't be transformed: complex64 or complex128 is expected.")
    execute, plan = _library(kind)
    # Planning overwrites its arrays, so it has its own, which start where those of the hot path do.
    one, other = (pyfftw.zeros_aligned((height, width), kind, n=64) for _ in range(2))
    aligned = one.nbytes % ALIGNMENT == 0
    flags = _MEASURE if aligned else _MEASURE | _UNALIGNED
    with _planning:
        made = [
            plan(height, width, one.ctypes.data, out.ctypes.data, sign, flags)
            for out, sign in ((one, _FORWARD), (one, _BACKWARD), (other, _FORWARD))
        ]
    return Plans(ctypes.cast(execute, ctypes.c_void_p).value or 0, *made)


@functools.cache
def _library(kind: Any) -> tuple[Any, Any]:
    """FFTW's functions to execute a plan on other arrays, and to make one."""
    library = ctypes.CDLL(pyfftw.pyfftw.__file__)
    letter = _LETTERS[kind]
    plan = getattr(library, f"fftw{letter}_plan_dft_2d")
    plan.restype = ctypes.c_void_p
    plan.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    return getattr(library, f"fftw{letter}_execute_dft"), plan


def _code_of_a_call(context: Any, address: Any, plan: Any, source: Any, target: Any) -> Any:
    """Calls void function(void*, void*, void*) at an address: numba keeps no code on disk that holds one itself."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [pointer] * 3).as_pointer()
        address, *others = arguments
        builder.call(builder.inttoptr(address, function), [builder.inttoptr(other, pointer) for other in others])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


_call: Any = intrinsic(_code_of_a_call)


@compiled
def forward(plans: Any, waves: Any, first: int, last: int) -> None:
    """Σ waves exp(-2πi k·r) in place, of each plane of waves (pattern, …, y, x) from pattern `first` to `last`."""
    _transform(plans.execute, plans.forward, waves, waves, first, last)


@compiled
def backward(plans: Any, waves: Any, first: int, last: int) -> None:
    """Σ waves exp(+2πi k·r) in place, of each plane as in `forward`."""
    _transform(plans.execute, plans.backward, waves, waves, first, last)


@compiled
def forward_into(plans: Any, waves: Any, out: Any, first: int, last: int) -> None:
    """`forward` into other waves of the same shape."""
    _transform(plans.execute, plans.forward_into, waves, out, first, last)


@compiled
def _transform(execute: int, plan: int, waves: Any, out: Any, first: int, last: int) -> None:
    source, target = waves.ctypes.data, out.ctypes.data
    plane, per = waves.shape[-2] * waves.shape[-1] * waves.itemsize, _planes(waves)
    for number in range(first * per, last * per):
        _call(execute, plan, source + number * plane, target + number * plane)


@compiled
def _planes(waves: Any) -> int:
    """Planes of a pattern."""
    count = 1
    for axis in waves.shape[1:-2]:
        count *= axis
    return count
