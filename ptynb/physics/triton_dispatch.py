"""Chooses on a GPU between an operation's kernel in Triton and the operations of torch that it is made of."""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from ptynb.exceptions import PtynbWarning

OLDEST = (7, 0)
"""Compute capability of the oldest GPUs that Triton supports; for others its compiler may end the process."""


def run_by_triton(*operations: CustomOpDef, module: str = "launches", device: str = "cuda") -> None:
    """Run operations on CUDA by the functions of their names in a module of `kernels.gpu`.

    Triton is imported by the first of them that runs. If it is missing or does not work, they run as on other devices,
    and a warning says why, once.
    """
    for operation in operations:
        operation.register_kernel(device)(functools.partial(_run, module, operation._name, operation._init_fn, device))


def _run(module: str, name: str, by_torch: Any, device: str, *arguments: Any) -> Any:
    if not _works(device):
        return by_torch(*arguments)
    return getattr(importlib.import_module(f"ptynb.kernels.gpu.{module}"), name)(*arguments)


@functools.cache
def _works(device: str) -> bool:
    """Whether kernels of `kernels.gpu` can be compiled and run here; if not, warn."""
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
        except launches.FAILURES as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            remedy = "it needs a C compiler (gcc), Python's headers, and a writable folder (TRITON_CACHE_DIR)"
    warnings.warn(
        f"Triton does not work ({reason}), so updates on this GPU take several times as long: {remedy}.",
        PtynbWarning,
        stacklevel=2,
    )
    return False
