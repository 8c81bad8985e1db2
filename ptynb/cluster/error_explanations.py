"""What the words of NCCL, CUDA, gloo and the driver's tool mean for a cluster, and what to do."""

from __future__ import annotations

import re

PEER_TO_PEER = (
    "The GPUs can't reach each other directly (peer-to-peer). Try NCCL_P2P_DISABLE=1: in a notebook "
    "os.environ['NCCL_P2P_DISABLE'] = '1' before the cluster is made; for good, a line NCCL_P2P_DISABLE=1 in "
    "~/.nccl.conf or /etc/nccl.conf. Where that helps, an IOMMU (ACS) or the driver is what breaks it."
)
SHARED_MEMORY = (
    "The shared memory in /dev/shm is too small, as in a container with Docker's 64 MB: start it with --shm-size=1g "
    "(in Kubernetes mount an emptyDir with medium: Memory at /dev/shm), or remove what fills it."
)
INTERFACES = (
    "The engines can't reach each other over the network interface in use. Name the one that joins them (ip -br addr) "
    "in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME before the cluster is made, and let their ports through the firewall."
)
LOST_GPU = (
    "A GPU does not answer any more, or its memory failed; dmesg tells it after 'NVRM: Xid'. Restart the machine, and "
    "leave the GPU out (CUDA_VISIBLE_DEVICES) if it comes back."
)
OLD_DRIVER = (
    "The GPU driver is older than what this torch was built for: install a newer driver, or a torch for an older CUDA "
    "(pytorch.org, 'Previous versions'); nvidia-smi shows the newest CUDA that the driver knows."
)
VERSIONS = (
    "Two versions of NCCL meet: the installed package and another in LD_LIBRARY_PATH or in another environment. Use "
    "the same environment on all machines, have one nvidia-nccl package only (pip list), and unset LD_LIBRARY_PATH."
)
EXCLUSIVE = (
    "Another process holds the GPU, and its compute mode lets no second one in, or a process that crashed still does. "
    "End it (nvidia-smi lists it), allow several (nvidia-smi -c 0, as root), or take another (CUDA_VISIBLE_DEVICES)."
)
SAME_GPU = (
    "NCCL takes one engine for each GPU, and MIG slices of one GPU count as one. Start fewer engines, allow several on "
    "a GPU by gloo (engines_per_gpu), or on MIG slices start runs of one engine each."
)
NO_MEMORY = (
    "A GPU's memory is full: end what else uses it (nvidia-smi lists it), or use a GPU that is free "
    "(CUDA_VISIBLE_DEVICES)."
)
NO_GPU = (
    "CUDA shows the engine no GPU. Look whether nvidia-smi lists one, whether this torch is a CUDA build, and, in a "
    "container, whether it was started with GPUs (docker run --gpus all)."
)
FABRIC = (
    "The GPUs' switches are not managed: start the service that does it, of exactly the driver's version (systemctl "
    "status nvidia-fabricmanager)."
)
UNKNOWN = (
    "Set NCCL_DEBUG=WARN before the cluster is made, to have NCCL's own words in the engines' logs, and try "
    "NCCL_P2P_DISABLE=1."
)
HANG = f"NCCL hangs: most often GPUs that can't reach each other directly. {PEER_TO_PEER}"

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
"""Patterns in the text of an error, the more specific before those that may only follow from them."""


def explain(text: str) -> str | None:
    """What the text of an error (with a traceback, or the tail of a log) means and what to do; None: not known."""
    return next((words for pattern, words in EXPLANATIONS if re.search(pattern, text, re.IGNORECASE)), None)
