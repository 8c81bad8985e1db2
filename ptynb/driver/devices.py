"""What engines a cluster is made of. Asks the driver's own tool for GPUs, so the kernel never touches CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Literal, get_args

import psutil

Device = Literal["auto", "cpu", "cuda"]


class ClusterError(RuntimeError):
    """A cluster that can't be made or has broken; the message says why and what to do."""


@dataclass(frozen=True)
class GPU:
    """A GPU as nvidia-smi lists it; memory in MiB."""

    index: int
    uuid: str
    name: str
    memory: int


@dataclass(frozen=True)
class EnginePlan:
    """One engine to be: its rank, where it computes, and the environment it starts with.

    kind: "CPU" or the GPU's name. identity: unlike that of any other engine.
    """

    rank: int
    device: str
    kind: str
    identity: str
    threads: int
    environment: dict[str, str] = field(repr=False)


@dataclass(frozen=True)
class ClusterPlan:
    """All engines to be, and how they will talk about gradients."""

    engines: tuple[EnginePlan, ...]
    backend: str

    @property
    def on_gpu(self) -> bool:
        """Whether engines compute on GPUs."""
        return self.engines[0].kind != "CPU"


def find_gpus() -> tuple[GPU, ...]:
    """The GPUs that this process may use, by nvidia-smi and CUDA_VISIBLE_DEVICES; none where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    try:
        query = subprocess.run(
            [tool, "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            "nvidia-smi did not answer within 30 s. The GPU driver is not working; "
            "mend it, or ask for CPU engines: Cluster(device='cpu')."
        ) from None
    if query.returncode != 0:
        raise ClusterError(
            f"nvidia-smi failed: {(query.stdout + query.stderr).strip()!r}. The GPU driver is not working; "
            "mend it, or ask for CPU engines: Cluster(device='cpu')."
        )
    gpus, chosen = parse_gpus(query.stdout), os.environ.get("CUDA_VISIBLE_DEVICES")
    left = visible(gpus, chosen)
    if gpus and not left and chosen:
        raise ClusterError(
            f"CUDA_VISIBLE_DEVICES={chosen!r} leaves none of the {len(gpus)} GPUs here (MIG slices can't be used). "
            "Set it to whole GPUs, by index or UUID; or ask for CPU engines: Cluster(device='cpu')."
        )
    return left


def parse_gpus(listing: str) -> tuple[GPU, ...]:
    """GPUs from nvidia-smi's CSV: index, uuid, name, memory [MiB]."""
    gpus = []
    for line in listing.splitlines():
        if line.strip():
            index, uuid, name, memory = (part.strip() for part in line.split(","))
            gpus.append(GPU(int(index), uuid, name, int(memory) if memory.isdigit() else 0))
    return tuple(gpus)


def visible(gpus: tuple[GPU, ...], chosen: str | None) -> tuple[GPU, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves (indices or beginnings of UUIDs), in its order."""
    if chosen is None:
        return gpus
    kept = []
    for entry in (part.strip() for part in chosen.split(",") if part.strip()):
        match = [
            gpu for gpu in gpus if entry == str(gpu.index) or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
        ]
        if not match:
            break  # as CUDA does: an invalid entry hides itself and all after it
        if match[0] in kept:
            return ()  # as CUDA does: a GPU named twice hides them all
        kept.append(match[0])
    return tuple(kept)


def usable_cores() -> int:
    """Processor cores that this process may use."""
    return len(psutil.Process().cpu_affinity()) if sys.platform != "darwin" else os.cpu_count() or 1


def plan_for(n: int | None, device: Device, threads: int | None = None) -> ClusterPlan:
    """`plan_cluster` for this machine."""
    return plan_cluster(n, device, () if device == "cpu" else find_gpus(), usable_cores(), threads)


def plan_cluster(
    n: int | None, device: str, gpus: tuple[GPU, ...], cores: int, threads: int | None = None
) -> ClusterPlan:
    """The engines for n (None: as many as there are GPUs, or 2 that share the CPU's cores).

    threads: of each engine; None: an equal share of the cores.
    Raises ClusterError where that can't be had; nothing is silently less than what was asked for.
    """
    if device not in get_args(Device):
        raise ClusterError(f"device is {device!r}; expected 'auto', 'cpu' or 'cuda'.")
    if n is not None and n < 1:
        raise ClusterError(f"{n} engines were asked for; expected at least 1.")
    if threads is not None and not 1 <= threads <= cores:
        raise ClusterError(f"{threads} threads were asked for on {cores} cores; expected 1 to {cores} for each engine.")
    if device == "cuda" or (device == "auto" and gpus):
        return _plan_gpus(n, gpus, cores, threads)
    count = n if n is not None else min(2, cores)
    if count > 4 * cores:
        raise ClusterError(
            f"{count} CPU engines were asked for on {cores} cores; at most {4 * cores} make sense. Ask for fewer."
        )
    threads = threads or max(1, cores // count)
    engines = tuple(
        EnginePlan(
            rank, "cpu", "CPU", f"CPU {rank} ({counted(threads, 'thread')})", threads, _environment(rank, threads, "")
        )
        for rank in range(count)
    )
    return ClusterPlan(engines, "gloo" if count > 1 else "none")


def _plan_gpus(n: int | None, gpus: tuple[GPU, ...], cores: int, threads: int | None) -> ClusterPlan:
    if not gpus:
        raise ClusterError("GPU engines were asked for, and no GPU was found. Use device='cpu', or run 'ptynb doctor'.")
    count = n if n is not None else len(gpus)
    if count > len(gpus):
        raise ClusterError(
            f"{count} engines were asked for and {len(gpus)} GPUs found. "
            f"Ask for {len(gpus)}, or for CPU engines: device='cpu'."
        )
    threads = threads or max(1, cores // count)
    engines = tuple(
        EnginePlan(rank, "cuda:0", gpu.name, f"{gpu.name} {gpu.uuid}", threads, _environment(rank, threads, gpu.uuid))
        for rank, gpu in enumerate(gpus[:count])
    )
    backend = "nccl" if sys.platform == "linux" else "gloo"
    return ClusterPlan(engines, backend if count > 1 else "none")


def counted(number: int, noun: str) -> str:
    """'1 thread', '2 threads'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _environment(rank: int, threads: int, visible_gpu: str) -> dict[str, str]:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "PTYNB_RANK": str(rank),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # numpy only makes pictures there; its threads would wait, spinning, on the cores that torch computes on.
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": visible_gpu,
        # Gradients stay on this machine: gloo would otherwise listen where the host's name points to.
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }
