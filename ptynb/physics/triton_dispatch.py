"""Operations of torch that a kernel in Triton executes on CUDA, and torch's own operations elsewhere."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar

import torch

OLDEST = (7, 0)
"""Compute capability of the oldest GPUs that Triton supports; for others its compiler may end the process."""
LOST = tuple(getattr(torch, name) for name in ("AcceleratorError", "OutOfMemoryError") if hasattr(torch, name))
"""Errors of the GPU itself, which torch's operations would raise too."""
LIBRARY = torch.library.Library("ptynb", "FRAGMENT")
_problems: dict[str, str] = {}
"""Why Triton does not work here, by type of device."""
_avoided: dict[str, str] = {}
"""Why it is not used although it works."""
P = ParamSpec("P")
R = TypeVar("R")


class Operation(Generic[P, R]):
    """An operation `ptynb::name` of torch, which dispatches by device; by default to a function of torch's operations.

    The counterpart of `torch.library.custom_op`, whose first call imports torch._dynamo (1.4 to 6 s), and whose calls
    take 75 µs instead of 24 (measured).
    """

    def __init__(self, by_torch: Callable[P, R], mutates_args: Iterable[str], name: str) -> None:
        self.by_torch, self.operation = by_torch, name
        LIBRARY.define(name + torch.library.infer_schema(by_torch, mutates_args=[*mutates_args]))
        LIBRARY.impl(name, by_torch, "CompositeExplicitAutograd")
        self._overload = getattr(torch.ops.ptynb, name).default
        functools.update_wrapper(self, by_torch)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        """Execute it on the device of the tensors."""
        found: R = self._overload(*arguments, **named)
        return found


def operation(mutates_args: Iterable[str] = (), name: str = "") -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Make an `Operation` of a function on tensors. mutates_args: arguments that it overwrites. name: if another."""
    return lambda by_torch: Operation(by_torch, mutates_args, name or by_torch.__name__)


def run_by_triton(*operations: Operation[..., Any], device: str = "cuda") -> None:
    """Run operations on CUDA by the functions of their names in `kernels.gpu.launches`.

    Triton is imported by the first of them that runs. If it is missing or does not work, they run as on other devices,
    and `found_problems` says why.
    """
    for one in operations:
        LIBRARY.impl(one.operation, functools.partial(_run, one.operation, one.by_torch, device), device.upper())


def _run(name: str, by_torch: Callable[..., Any], device: str, *arguments: Any) -> Any:
    if not _works(device) or device in _avoided:
        return by_torch(*arguments)
    return getattr(importlib.import_module("ptynb.kernels.gpu.launches"), name)(*arguments)


def check_triton(device: str = "cuda") -> str:
    """Compile and run a kernel; return a sentence for the user if Triton is not used, else an empty text."""
    _works(device)
    return _problems.get(device) or _avoided.get(device, "")


def avoid_triton(reason: str, device: str = "cuda") -> None:
    """Use torch's operations from now on although Triton works; without a reason: use Triton again."""
    _avoided.pop(device, None)
    if reason:
        _avoided[device] = _slower(reason, "`ptynb doctor` says more")


def found_problems() -> tuple[str, ...]:
    """Return the sentences of `check_triton` about devices that this process has computed on."""
    return tuple(({**_avoided, **_problems}).values())


def _slower(reason: str, remedy: str) -> str:
    return f"Triton is not used ({reason}), so updates on this GPU take several times as long: {remedy}."


@functools.cache
def _works(device: str) -> bool:
    """Whether kernels can be compiled and run here; if not, the problem is noted."""
    spectra = torch.ones(1, 1, 2, 2, dtype=torch.complex64, device=device)
    shifts = torch.zeros(1, 2, device=device)
    reason, remedy = "its results are wrong", "please report this"
    try:
        if device == "cuda" and torch.cuda.get_device_capability() < OLDEST:
            raise ImportError(f"{torch.cuda.get_device_name()} is older than the GPUs that it supports")
        launches = importlib.import_module("ptynb.kernels.gpu.launches")
    except ImportError as error:
        reason, remedy = str(error), "it comes with torch's builds for CUDA on Linux, for GPUs since 2017"
    else:
        try:
            # This kernel uses most of the language: where it can be compiled, others can.
            if bool((launches.gather_probe_gradient(spectra, shifts, 1.0) == 1).all()):
                return True
        except LOST:
            raise
        except Exception as error:  # noqa: BLE001 - Triton, compilers and linkers fail in many ways; torch still works
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            remedy = "it needs a C compiler (gcc), Python's headers, and a writable folder (TRITON_CACHE_DIR)"
            if isinstance(error, AssertionError):
                remedy = "it needs the driver's libcuda.so.1 in the linker's cache (ldconfig)"
    _problems[device] = _slower(reason, remedy)
    return False
