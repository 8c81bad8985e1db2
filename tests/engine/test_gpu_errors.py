"""Which errors of CUDA end an engine, and which mean that memory was short."""

import pytest
import torch

from ptynb.engine import gpu
from ptynb.engine.gpu import MEMORY_ADVICE, loses_gpu, memory_advice
from ptynb.exceptions import ClusterError

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
HINTS = (
    "\nSearch for `{name}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
    "information.\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to "
    "enable device-side assertions.\n"
)
"""What torch 2.9 and later adds to the text of CUDA (pytorch/helion#867)."""


def error_of(text: str, name: str = "cudaErrorIllegalAddress") -> torch.AcceleratorError:
    return torch.AcceleratorError(f"CUDA error: {text}{HINTS.format(name=name)}")


@pytest.mark.parametrize(
    "text",
    # As cudaGetErrorString words them; the documentation of each says that the process must be terminated.
    [
        "an illegal memory access was encountered",
        "the launch timed out and was terminated",
        "device-side assert triggered",
        "hardware stack error",
        "an illegal instruction was encountered",
        "misaligned address",
        "operation not supported on global/shared address space",
        "invalid program counter",
        "unspecified launch failure",
        "uncorrectable ECC error encountered",
        "uncorrectable NVLink error detected during the execution",
        "Invalid access of peer GPU memory over nvlink or a hardware error",
        "unknown error",
    ],
)
def test_an_error_that_cuda_does_not_forget_loses_the_gpu(text):
    assert loses_gpu(error_of(text), CPU)
    assert loses_gpu(RuntimeError(f"CUDA error: {text}"), CPU), "as torch before 2.8 raises it"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 GiB"
        ),
        error_of("out of memory", "cudaErrorMemoryAllocation"),
        error_of("no kernel image is available for execution on the device", "cudaErrorNoKernelImageForDevice"),
        error_of("invalid device ordinal", "cudaErrorInvalidDevice"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        ClusterError("The self-test failed: CUDA error: misaligned address", code="cluster.selftest-failed"),
        ValueError("device-side assert triggered"),
    ],
)
def test_others_leave_the_gpu_usable(error):
    assert not loses_gpu(error, CPU)


@pytest.mark.parametrize(("asked", "expected"), [(error_of("unspecified launch failure"), True), (None, False)])
def test_cuda_is_asked_where_a_library_reports_the_failure_in_its_own_words(monkeypatch, asked, expected):
    class Stream:
        def query(self):
            if asked is not None:
                raise asked
            return True

    monkeypatch.setattr(gpu.torch.cuda, "current_stream", lambda device: Stream())
    assert loses_gpu(RuntimeError("cuFFT error: CUFFT_EXEC_FAILED"), GPU) is expected
    assert not loses_gpu(RuntimeError("cuFFT error: CUFFT_EXEC_FAILED"), CPU)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 22.00 MiB."),
        MemoryError("Unable to allocate 8.00 EiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory"),
        # aten/src/ATen/native/cuda/CuFFTUtils.h, CUFFT_CHECK
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        # pytorch/pytorch#128601
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        # c10/cuda/driver_api.h, C10_CUDA_DRIVER_CHECK
        RuntimeError("CUDA driver error: out of memory"),
        # NCCL's src/include/checks.h, CUDACHECK
        torch.distributed.DistBackendError(
            "NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"
        ),
    ],
)
def test_memory_that_is_short_is_told_with_what_to_change(error):
    assert memory_advice(error) == MEMORY_ADVICE


def test_other_errors_give_no_advice_on_memory():
    assert memory_advice(RuntimeError("cuFFT error: CUFFT_INVALID_PLAN")) == ""
    assert memory_advice(ValueError("not enough memory")) == ""
