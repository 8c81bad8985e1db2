"""Errors as NCCL, CUDA, gloo and nvidia-smi word them (from public reports of them), and what is made of them."""

import pytest

from ptynb.cluster import error_explanations
from ptynb.cluster.error_explanations import explain, explained
from ptynb.distributed.timeouts import ON_GPU

TEXTS = [
    (
        "PEER_TO_PEER",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/c10d/ProcessGroupNCCL.cpp:3699"
        ", unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Cuda failure 217 'peer access is not supported between these two devices'",
    ),
    (
        "PEER_TO_PEER",
        "transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between "
        "these two devices",
    ),
    (
        "HANG",
        "[rank1]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=30000) ran for 30020 "
        "milliseconds before timing out.",
    ),
    ("HANG", "The first sum over 2 GPUs by nccl did not end within 15 s."),
    ("HANG", f"Another engine did not answer within 30 s ({ON_GPU})."),
    (
        "SHARED_MEMORY",
        "misc/shmutils.cc:88 NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space "
        "left on device (28)",
    ),
    (
        "SHARED_MEMORY",
        "include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-1-2-3 (size 9637888)",
    ),
    ("SHARED_MEMORY", "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"),
    (
        "SAME_GPU",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid "
        "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5\nLast error:\nDuplicate GPU detected : rank "
        "1 and rank 0 both on CUDA device 10",
    ),
    ("SAME_GPU", "Two engines hold the same GPU (['A', 'A']), and each needs its own."),
    (
        "LOST_GPU",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover it",
    ),
    ("LOST_GPU", "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error"),
    ("LOST_GPU", "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"),
    ("LOST_GPU", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    (
        "OLD_DRIVER",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
        "driver by downloading and installing a new version",
    ),
    (
        "OLD_DRIVER",
        "init.cc:1582 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'",
    ),
    ("VERSIONS", "ImportError: torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister"),
    ("VERSIONS", "bootstrap.cc NCCL WARN Message truncated : received 1024 bytes instead of 256"),
    ("EXCLUSIVE", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("EXCLUSIVE", "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    ("INTERFACES", "NCCL WARN Bootstrap : no socket interface found"),
    (
        "INTERFACES",
        "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. "
        "Unable to find address for: ib0",
    ),
    (
        "INTERFACES",
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] "
        "timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:4321",
    ),
    (
        "INTERFACES",
        "what():  [/opt/third_party/gloo/gloo/transport/tcp/pair.cc:724] connect [127.0.1.1]:3210: Connection refused",
    ),
    ("INTERFACES", "gloo/transport/tcp/socket.cc:142] rv != -1. -1 vs -1. connect: Network is unreachable."),
    ("INTERFACES", "RuntimeError: No route to host"),
    (
        "INTERFACES",
        "ncclInternalError: Internal check failed.\nLast error:\nncclSocketInit: connecting to address  with family "
        "59936 is neither AF_INET(2) nor AF_INET6(10)",
    ),
    ("INTERFACES", "include/socket.h:360 WARN Call to connect failed : Connection timed out"),
    (
        "NO_MEMORY",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65 "
        "GiB of which 11.06 MiB is free.",
    ),
    ("NO_MEMORY", "RuntimeError: CUDA error: out of memory"),
    ("NO_GPU", "RuntimeError: No CUDA GPUs are available"),
    ("NO_GPU", "AssertionError: Torch not compiled with CUDA enabled"),
    ("FABRIC", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"),
    (
        "UNKNOWN",
        "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:410, unhandled system error, NCCL "
        "version 2.4.8",
    ),
    # pytorch/pytorch#31981
    ("NO_CODE", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    # A warning at the import of torch, before the former: pytorch/pytorch#150733
    (
        "NO_CODE",
        "UserWarning: \nNVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch "
        "installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 "
        "sm_90.",
    ),
    # pytorch/helion#867: what torch.AcceleratorError says, here and below
    (
        "FAULT",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "Search for `cudaErrorIllegalAddress' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html "
        "for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ),
    # pytorch/pytorch#74235
    ("FAULT", "RuntimeError: CUDA error: unspecified launch failure"),
    # index-tts/index-tts#336
    ("FAULT", "torch.AcceleratorError: CUDA error: an illegal instruction was encountered"),
    # CUDA runtime API, cudaErrorMisalignedAddress as cudaGetErrorString words it
    ("FAULT", "torch.AcceleratorError: CUDA error: misaligned address"),
    # vllm-project/vllm#15083
    ("ASSERTION", "RuntimeError: CUDA error: device-side assert triggered"),
    # CUDA runtime API, cudaErrorLaunchTimeout
    ("TIME_LIMIT", "RuntimeError: CUDA error: the launch timed out and was terminated"),
    # CUDA runtime API, cudaErrorNvlinkUncorrectable
    ("LOST_GPU", "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"),
    # NVIDIA/nvidia-container-toolkit#171
    ("DRIVER_MISMATCH", "Failed to initialize NVML: Driver/library version mismatch"),
    # CompVis/stable-diffusion#439
    (
        "DRIVER_MISMATCH",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / "
        "cuda "
        "driver combination",
    ),
    # pytorch/pytorch#49327
    (
        "DRIVER_STATE",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env "
        "variable CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.",
    ),
    # NVIDIA/nvidia-docker#1671
    ("DRIVER_STATE", "Failed to initialize NVML: Unknown Error"),
    # torch/cuda/__init__.py, _lazy_init
    (
        "FORK",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
        "the 'spawn' start method",
    ),
    # CUDA runtime API, cudaErrorInvalidDevice
    ("NOT_VISIBLE", "torch.AcceleratorError: CUDA error: invalid device ordinal"),
    # pytorch/pytorch#119420 (little memory) and #89556 (CUDA 11.6 on a RTX 4090)
    ("LIBRARY_MEMORY", "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR"),
    ("LIBRARY_MEMORY", "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    # pytorch/pytorch#128601
    ("NO_MEMORY", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    # aten/src/ATen/native/cuda/CuFFTUtils.h, CUFFT_CHECK
    ("NO_MEMORY", "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED"),
    # c10/cuda/driver_api.h, C10_CUDA_DRIVER_CHECK
    ("NO_MEMORY", "RuntimeError: CUDA driver error: out of memory"),
    # NCCL's src/include/checks.h, CUDACHECK
    (
        "NO_MEMORY",
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:328, "
        "unhandled "
        "cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA "
        "function failed.\nLast error:\nCuda failure 2 'out of memory'",
    ),
    # NVIDIA/nccl#955
    ("OLD_DRIVER", "NCCL WARN Cuda failure 'API call is not supported in the installed CUDA driver'"),
    # NVIDIA/nccl#2076
    (
        "LEFT",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
        "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgressOpt: "
        "Call "
        "to recv from 172.16.0.1<33759> failed : Connection reset by peer",
    ),
    # pytorch/pytorch#64241
    ("LEFT", "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1."),
    # torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, broadcastUniqueNCCLID
    (
        "LEFT",
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error: failed to recv, got 0 bytes",
    ),
    # NVIDIA/nccl#1814
    (
        "INFINIBAND",
        "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with status=12 opcode=129 "
        "len=65536 vendor err 129 (Recv)",
    ),
    # NVIDIA/nccl-tests#206
    (
        "LOCKED_MEMORY",
        "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
    ),
    # NVIDIA/nccl#550
    ("OPEN_FILES", "include/socket.h:403 NCCL WARN Net : Socket creation failed : Too many open files"),
    # NVIDIA/nccl#2101
    ("VIRTUAL_GPU", "[0] init.cc:426 NCCL WARN Cuda failure 'operation not supported'"),
    # The loader's words, with a library of the wheel nvidia-cudnn-cu12
    (
        "BROKEN_INSTALL",
        "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
    ),
]


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_known_words_are_explained(name, text):
    assert explain(f"On the engine of rank 1: {text}\nTraceback ...") == getattr(error_explanations, name)


@pytest.mark.parametrize("text", ["KeyError: 'one'", "Connection closed by peer [127.0.0.1]:20415", ""])
def test_what_is_not_known_is_not_guessed_at(text):
    assert explain(text) is None


def test_the_explanation_of_a_failure_is_appended_once():
    text = "RuntimeError: CUDA error: misaligned address"
    told = explained(text)
    assert told == f"{text}\n{error_explanations.FAULT}"
    assert explained(told) == told
    assert explained("KeyError: 'one'") == "KeyError: 'one'"
    assert explained("Something else", text).endswith(error_explanations.FAULT)


def test_every_explanation_has_a_real_text():
    assert {words for _, words in error_explanations.EXPLANATIONS} == {
        getattr(error_explanations, name) for name, _ in TEXTS
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PEER_TO_PEER", "~/.nccl.conf"),
        ("HANG", "NCCL_P2P_DISABLE=1"),
        ("INTERFACES", "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME"),
        ("SHARED_MEMORY", "--shm-size"),
        ("SAME_GPU", "MIG"),
        ("LOST_GPU", "Xid"),
    ],
)
def test_it_says_what_to_do(name, words):
    assert words in getattr(error_explanations, name)
