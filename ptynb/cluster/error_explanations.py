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
NO_CODE = (
    "This torch has no code for the GPU, which is newer or older than those it was built for: install a build for it "
    "(pytorch.org; for new GPUs the one for the newest CUDA). torch.cuda.get_arch_list() lists what a build supports."
)
FAULT = (
    "A computation on the GPU failed, after which its process cannot use the GPU any more. If it recurs, exclude the "
    "GPU (CUDA_VISIBLE_DEVICES): it may be defective or overclocked (dmesg shows 'NVRM: Xid'). If it recurs on others, "
    "the cause is a bug: CUDA_LAUNCH_BLOCKING=1, set before the cluster is created, shows the operation."
)
ASSERTION = (
    "An operation on the GPU was given an index or a value that it does not allow, mostly in a custom component or "
    "constraint; its process cannot use the GPU any more. On a CPU (device='cpu') the same error names the operation, "
    "or set CUDA_LAUNCH_BLOCKING=1 before the cluster is created."
)
TIME_LIMIT = (
    "The system ended a computation that took the GPU for seconds, as it does on a GPU with a screen: use a smaller "
    "batch or a larger gradient_accumulation, or another GPU (CUDA_VISIBLE_DEVICES)."
)
DRIVER_MISMATCH = (
    "The parts of the GPU driver have different versions, as after an update of the driver: restart the machine. In a "
    "container update nvidia-container-toolkit, and remove another libcuda.so from LD_LIBRARY_PATH (cuda-compat)."
)
DRIVER_STATE = (
    "The GPU driver does not respond as it should, as after the machine slept, or in a container whose devices were "
    "taken away: restart the container, or reload the driver (modprobe -r nvidia_uvm, then modprobe nvidia_uvm, as "
    "root), or restart the machine."
)
FORK = (
    "A process that uses the GPU was copied by fork, which CUDA does not support. Use a Cluster for several engines, "
    "and in own code multiprocessing.set_start_method('spawn')."
)
NOT_VISIBLE = (
    "The GPU is not visible to the process, because CUDA_VISIBLE_DEVICES was changed after it had started, or excludes "
    "the GPU: restart the process (in a notebook: the kernel)."
)
LIBRARY_MEMORY = (
    "A library of CUDA could not start, mostly because the memory of the GPU is nearly full: use a smaller batch or "
    "pattern_storage='host', or end other processes on it (nvidia-smi lists them). If there is memory, this torch is "
    "too old for the GPU: install a newer one (pytorch.org)."
)
LEFT = (
    "Another engine of the group has ended, or the network between them was interrupted. The first failure is in the "
    "log of another engine; if there is none, check the network and its cables."
)
INFINIBAND = (
    "The InfiniBand or RoCE connection between the hosts does not work: check its state (ibstat) and choose the "
    "adapter (NCCL_IB_HCA), or use Ethernet: NCCL_IB_DISABLE=1, set before the cluster is created."
)
LOCKED_MEMORY = (
    "The limit of locked memory is too low for InfiniBand: raise it to unlimited (ulimit -l; for all users in "
    "/etc/security/limits.conf; for Docker --ulimit memlock=-1), and log in again."
)
OPEN_FILES = "A process may not open more files: raise the limit (ulimit -n 65536, or nofile in limits.conf)."
VIRTUAL_GPU = (
    "The GPUs, probably virtual ones (vGPU), do not support what NCCL needs: the administrator can allow unified "
    "memory for them (pciPassthru0.cfg.enable_uvm = 1 on VMware); without it use one engine."
)
BROKEN_INSTALL = (
    "A library of CUDA is missing or is found in another place: install torch again in its own environment (pip "
    "install --force-reinstall torch), and unset LD_LIBRARY_PATH."
)
UNKNOWN = (
    "Set NCCL_DEBUG=WARN before the cluster is created, for the messages of NCCL in the logs of the engines, and try "
    "NCCL_P2P_DISABLE=1."
)
HANG = f"NCCL does not respond, mostly because the GPUs cannot communicate directly. {PEER_TO_PEER}"

EXPLANATIONS: tuple[tuple[str, str], ...] = (
    (
        r"CUDA out of memory|CUDA (driver )?error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|_ALLOC_FAILED"
        r"|Cuda failure (\d+ )?'out of memory'",
        NO_MEMORY,
    ),
    (
        r"no kernel image is available|device kernel image is invalid|is not compatible with the current PyTorch"
        r"|invalid value for --gpu-architecture",
        NO_CODE,
    ),
    (r"device-side assert triggered", ASSERTION),
    (
        r"illegal memory access|misaligned address|illegal instruction was encountered|invalid program counter"
        r"|hardware stack error|unspecified launch failure|operation not supported on global/shared address space",
        FAULT,
    ),
    (r"launch timed out and was terminated", TIME_LIMIT),
    (r"Driver/library version mismatch|unsupported display driver / cuda driver combination", DRIVER_MISMATCH),
    (r"CUDA unknown error|CUDA error: unknown error|Failed to initialize NVML: Unknown Error", DRIVER_STATE),
    (r"Cannot re-initialize CUDA in forked subprocess", FORK),
    (r"invalid device ordinal", NOT_VISIBLE),
    (r"CUFFT_INTERNAL_ERROR|CU(BLAS|DNN|SOLVER)_STATUS_NOT_INITIALIZED", LIBRARY_MEMORY),
    (r"ibv_reg_\w+ failed with error Cannot allocate memory", LOCKED_MEMORY),
    (r"Too many open files", OPEN_FILES),
    (r"Cuda failure (\d+ )?'operation not supported'", VIRTUAL_GPU),
    (r"lib(cudart|cudnn|cublas|cufft|nccl|nvrtc|cupti|nvJitLink)\S*: cannot open shared object file", BROKEN_INSTALL),
    (r"peer access is not supported|failed to open CUDA IPC handle|peer mapping resources exhausted", PEER_TO_PEER),
    (
        r"creating shared memory segment|attaching to shared memory segment|failed to extend /dev/shm"
        r"|posix_fallocate failed|/dev/shm.*No space left on device",
        SHARED_MEMORY,
    ),
    (r"Duplicate GPU detected|hold the same (GPU|device)", SAME_GPU),
    (
        r"GPU is lost|fallen off the bus|Unable to determine the device handle|Xid|uncorrectable ECC error"
        r"|uncorrectable NVLink error|Invalid access of peer GPU memory over nvlink",
        LOST_GPU,
    ),
    (
        r"driver on your system is too old|driver version is insufficient|forward compatibility was attempted"
        r"|provided PTX was compiled with an unsupported toolchain"
        r"|API call is not supported in the installed CUDA driver",
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
    (
        r"Watchdog caught collective operation timeout|The first sum over \d+ GPUs by nccl did not end"
        r"|a collective on the GPUs did not end",
        HANG,
    ),
    (r"system not yet initialized|Fabric Manager", FABRIC),
    (r"NET/IB ?: Got completion from peer|ibv_\w+ failed with error", INFINIBAND),
    (
        r"ncclRemoteError|remote process exited or there was a network error|NCCL communicator was aborted"
        r"|is setting up NCCL communicator and retrieving ncclUniqueId",
        LEFT,
    ),
    (r"NCCL error in|unhandled (cuda|system) error", UNKNOWN),
)
"""Patterns in the text of an error and explanations; causes before their consequences."""


def explain(text: str) -> str | None:
    """Return cause and remedy of an error, from its text, traceback or log; None: unknown."""
    return next((words for pattern, words in EXPLANATIONS if re.search(pattern, text, re.IGNORECASE)), None)


def explained(text: str, logs: str = "") -> str:
    """Append the explanation of a text or of logs, if one is known."""
    words = explain(text) or explain(logs)
    return text if words is None or words in text else f"{text}\n{words}"
