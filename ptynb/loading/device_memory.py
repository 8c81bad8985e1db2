"""Memory of a GPU: what is free for one engine, and the release of what torch keeps."""

from __future__ import annotations

import contextlib
import gc
import threading

import torch

WHOLE_GPU = threading.Lock()
"""Held where memory of the whole GPU is released or all its work is waited for, which CUDA refuses while another thread
records an update: two reconstructions in one process."""


def free_on_device(device: torch.device, engines: int = 1) -> int:
    """Return the memory of a GPU that this process may still allocate [bytes].

    engines: number of engines that share the GPU. Each may take an equal part of it, whichever of them allocates first.

    torch keeps the memory of released tensors for later ones, which the driver counts as used.
    """
    backend = torch.get_device_module(device)
    free, total = backend.mem_get_info(device)
    allocated = backend.memory_allocated(device)
    unused = backend.memory_reserved(device) - allocated
    return max(0, min(free + unused, total // engines - allocated))


def release_unused() -> None:
    """Free objects in reference cycles, and return the memory of GPUs that torch keeps for later tensors."""
    gc.collect()
    for backend in (torch.cuda, torch.xpu):
        if backend.is_initialized():
            # A GPU that is lost repeats its error here; the caller has more to release.
            with WHOLE_GPU, contextlib.suppress(RuntimeError):
                backend.empty_cache()
