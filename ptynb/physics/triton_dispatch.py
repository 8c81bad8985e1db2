"""Chooses on a GPU between an operation's kernel in Triton and the operations of torch that it is made of."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

OLDEST = (7, 0)
"""Compute capability of the oldest GPUs that Triton supports; for others its compiler may end the process."""
_problems: dict[str, str] = {}
"""Why Triton cannot be used, by type of device."""


def run_by_triton(*operations: CustomOpDef, device: str = "cuda") -> None:
    """Run operations on CUDA by the functions of their names in `kernels.gpu.launches`.

    Triton is imported by the first of them that runs. If it is missing or does not work, they run as on other devices,
    and `found_problems` says why.
    """
    for operation in operations:
        operation.register_kernel(device)(functools.partial(_run, operation._name, operation._init_fn, device))


def _run(name: str, by_torch: Any, device: str, *arguments: Any) -> Any:
    launches = _working_launches(device)
    return (by_torch if launches is None else getattr(launches, name))(*arguments)


def check_triton(device: str = "cuda") -> str:
    """Compile and run a kernel; return a sentence for the user if that fails, else an empty text."""
    _working_launches(device)
    return _problems.get(device, "")


def found_problems() -> tuple[str, ...]:
    """Return the sentences of `check_triton` about devices that this process has computed on."""
    return tuple(_problems.values())


@functools.cache
def _working_launches(device: str) -> ModuleType | None:
    """Return `kernels.gpu.launches` if its kernels can be compiled and run here; else None, with a problem noted."""
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
                return launches
        except launches.FAILURES as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            remedy = "it needs a C compiler (gcc), Python's headers, and a writable folder (TRITON_CACHE_DIR)"
    _problems[device] = f"Triton does not work ({reason}), so updates on this GPU take several times as long: {remedy}."
    return None
