"""The GPU of an engine: its name and UUID, written as nvidia-smi writes them, and its errors.

Plans of clusters, the self-test and the diagnostics compare the UUID or pass it to nvidia-smi. After some errors a
process can no longer use its GPU; others mean that memory was short.
"""

from __future__ import annotations

import re

import torch

from ptynb.exceptions import PtynbError

PREFIX = "GPU-"
OWN_GPU = torch.device("cuda:0")
"""The only GPU that an engine sees."""
FATAL = re.compile(
    r"an illegal memory access was encountered|misaligned address|an illegal instruction was encountered"
    r"|invalid program counter|hardware stack error|operation not supported on global/shared address space"
    r"|device-side assert triggered|unspecified launch failure|the launch timed out and was terminated"
    r"|uncorrectable ECC error|uncorrectable NVLink error|Invalid access of peer GPU memory over nvlink"
    r"|CUDA error: unknown error"
)
"""Errors after which "the process must be terminated and relaunched", as CUDA documents each of them (`cudaError_t`).

Every later call returns the same error, so all that the process has on its GPU is lost. Others, such as "out of memory"
or "no kernel image", leave the GPU usable."""
NO_MEMORY = re.compile(r"not enough memory|can't allocate|out of memory|_ALLOC_FAILED")
"""Messages of errors that mean that memory was short, of torch, CUDA and its libraries (CUFFT_ALLOC_FAILED)."""
MEMORY_ADVICE = (
    ". Out of memory: use more engines, pattern_storage='disk', a smaller batch, or a larger "
    "gradient_accumulation, which computes the same batch in portions."
)


def gpu_uuid(device: torch.device = OWN_GPU) -> str:
    """Return the UUID "GPU-..." of a GPU; "" on a CPU, and if torch does not provide it.

    torch prints it without the prefix (`uuid_to_string` in its torch/csrc/cuda/Module.cpp), nvidia-smi with it.
    """
    if device.type != "cuda":
        return ""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return PREFIX + uuid.removeprefix(PREFIX) if uuid else ""


def gpu_identity(device: torch.device = OWN_GPU) -> str:
    """Return name and UUID of the engine's GPU, as in the plan of a cluster on one machine; of Intel's the name."""
    name: str = torch.get_device_module(device).get_device_name(device)
    return f"{name} {gpu_uuid(device)}".rstrip()


def memory_advice(error: BaseException) -> str:
    """Return advice to append to the message if the error means that memory was short; else an empty string."""
    short = isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None
    )
    return MEMORY_ADVICE if short else ""


def loses_gpu(error: BaseException, device: torch.device) -> bool:
    """Return whether the process cannot use its GPU any more after this error.

    A library may report the failure first, in its own words (cuFFT, cuBLAS), so CUDA itself is asked too.
    """
    if not isinstance(error, RuntimeError) or isinstance(error, PtynbError):
        return False
    return FATAL.search(str(error)) is not None or (device.type == "cuda" and _refuses(device))


def _refuses(device: torch.device) -> bool:
    """Return whether CUDA reports one of these errors for anything that is asked of the GPU."""
    try:
        torch.cuda.current_stream(device).query()  # returns at once, also if a kernel never ends
    except RuntimeError as error:
        return FATAL.search(str(error)) is not None
    return False
