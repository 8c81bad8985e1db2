"""Causes and remedies of known error messages of NCCL, CUDA, gloo and nvidia-smi."""

from __future__ import annotations

import re

PEER_TO_PEER = (
    "The GPUs cannot communicate directly (peer-to-peer). Try NCCL_P2P_DISABLE=1: in a notebook "
    "os.environ['NCCL_P2P_DISABLE'] = '1' before the cluster is created; permanently by a line NCCL_P2P_DISABLE=1 in "
    "~/.nccl.conf or /etc/nccl.conf. If that helps, the cause is an IOMMU (ACS) or the driver."
)
SHARED_MEMORY = (
    "The shared memory in /dev/shm is too small, as in a container with Docker's 64 MB: start it with --shm-size=1g "
    "(in Kubernetes mount an emptyDir with medium: Memory at /dev/shm), or remove files from it."
)
INTERFACES = (
    "The engines cannot connect over the network interface in use. Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to "
    "the one that connects them (ip -br addr) before the cluster is created, and open their ports in the firewall."
)
LOST_GPU = (
    "A GPU does not respond, or its memory failed; see dmesg for 'NVRM: Xid'. Restart the machine, and exclude the GPU "
    "(CUDA_VISIBLE_DEVICES) if the error recurs."
)
OLD_DRIVER = (
    "The GPU driver is too old for this torch: install a newer driver, or a torch for an older CUDA (pytorch.org, "
    "'Previous versions'); nvidia-smi shows the newest CUDA that the driver supports."
)
VERSIONS = (
    "There are two versions of NCCL: the installed package and one in LD_LIBRARY_PATH or another environment. "
    "Use the same environment everywhere, install one nvidia-nccl package only (pip list), unset LD_LIBRARY_PATH."
)
EXCLUSIVE = (
    "Another process, perhaps a crashed one, uses the GPU, whose compute mode allows only one. End it (nvidia-smi "
    "lists it), allow several (nvidia-smi -c 0, as root), or use another GPU (CUDA_VISIBLE_DEVICES)."
)
SAME_GPU = (
    "NCCL supports one engine per GPU; MIG slices of a GPU count as one. Start fewer engines, allow several per "
    "GPU by gloo (engines_per_gpu), or start a run of one engine on each MIG slice."
)
NO_MEMORY = (
    "The memory of a GPU is full: end other processes on it (nvidia-smi lists them), or use a free GPU "
    "(CUDA_VISIBLE_DEVICES)."
)
NO_GPU = (
    "CUDA finds no GPU. Check that nvidia-smi lists one, that this torch is a CUDA build, and that a container was "
    "started with GPUs (docker run --gpus all)."
)
FABRIC = (
    "The Fabric Manager of the GPUs is not running: start it, in exactly the version of the driver (systemctl status "
    "nvidia-fabricmanager)."
)
UNKNOWN = (
    "Set NCCL_DEBUG=WARN before the cluster is created, for the messages of NCCL in the logs of the engines, and try "
    "NCCL_P2P_DISABLE=1."
)
HANG = f"NCCL does not respond, mostly because the GPUs cannot communicate directly. {PEER_TO_PEER}"

EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (r"CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY", NO_MEMORY),
    (r"peer access is not supported|failed to open CUDA IPC handle|peer mapping resources exhausted", PEER_TO_PEER),
    (
        r"creating shared memory segment|attaching to shared memory segment|failed to extend /dev/shm"
        r"|posix_fallocate failed|/dev/shm.*No space left on device",
        SHARED_MEMORY,
    ),
    (r"Duplicate GPU detected|hold the same (GPU|device)", SAME_GPU),
    (
        r"GPU is lost|fallen off the bus|Unable to determine the device handle|Xid|uncorrectable ECC error",
        LOST_GPU,
    ),
    (
        r"driver on your system is too old|driver version is insufficient|forward compatibility was attempted"
        r"|provided PTX was compiled with an unsupported toolchain",
        OLD_DRIVER,
    ),
    (
        r"undefined symbol: nccl|Mismatched NCCL version|NCCL version mismatch|receiving \d+ bytes instead of \d+"
        r"|Message truncated : received \d+ bytes instead of \d+",
        VERSIONS,
    ),
    (r"devices? (are|is|\(s\) is/are) busy or unavailable|device\(s\) is/are busy|Exclusive_Process", EXCLUSIVE),
    (
        r"no socket interface found|Unable to find address for|ncclSocketInit: connecting to address.* with family"
        r"|No route to host|Network is unreachable|connectFullMesh failed|Connect timeout"
        r"|connect \[\S+: Connection refused|Call to connect (to \S+ )?failed|Connection timed out",
        INTERFACES,
    ),
    (r"No CUDA GPUs are available|no CUDA-capable device is detected|not compiled with CUDA enabled", NO_GPU),
    (r"Watchdog caught collective operation timeout|The first sum over \d+ GPUs by nccl did not end", HANG),
    (r"system not yet initialized|Fabric Manager", FABRIC),
    (r"NCCL error in|unhandled (cuda|system) error", UNKNOWN),
)
"""Patterns in the text of an error and explanations; causes before their consequences."""


def explain(text: str) -> str | None:
    """Return cause and remedy of an error, from its text, traceback or log; None: unknown."""
    return next((words for pattern, words in EXPLANATIONS if re.search(pattern, text, re.IGNORECASE)), None)
