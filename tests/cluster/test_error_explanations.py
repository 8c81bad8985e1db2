"""Errors as NCCL, CUDA, gloo and nvidia-smi word them (from public reports of them), and what is made of them."""

import pytest

from ptynb.cluster import error_explanations
from ptynb.cluster.error_explanations import explain

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
]


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_known_words_are_explained(name, text):
    assert explain(f"On the engine of rank 1: {text}\nTraceback ...") == getattr(error_explanations, name)


@pytest.mark.parametrize("text", ["KeyError: 'one'", "Connection closed by peer [127.0.0.1]:20415", ""])
def test_what_is_not_known_is_not_guessed_at(text):
    assert explain(text) is None


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
