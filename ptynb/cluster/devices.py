"""Plans of clusters: device, threads and environment of each engine, and the backend for gradients."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch.distributed as dist

from ptynb.cluster.accelerators import Accelerator, chosen, find_accelerators, names_of_devices, usable
from ptynb.cluster.cpu_cores import numa_nodes
from ptynb.cluster.cpu_cores import usable_cores as usable_cores
from ptynb.cluster.gpu_checks import check_distinct, check_slices, check_usable, notes_on
from ptynb.cluster.gpus import GPU as GPU
from ptynb.cluster.gpus import find_gpus as find_gpus
from ptynb.exceptions import ClusterError as ClusterError
from ptynb.settings.cluster_options import LOCAL_DEVICES
from ptynb.settings.cluster_options import Device as Device
from ptynb.text import counted


@dataclass(frozen=True)
class EnginePlan:
    """Plan of one engine: rank, device and environment.

    kind: "CPU" or the name of the GPU. identity: unique in the cluster. engines_per_gpu: number of engines on its GPU,
    which share the memory.
    """

    rank: int
    device: str
    kind: str
    identity: str
    threads: int
    environment: dict[str, str] = field(repr=False)
    engines_per_gpu: int = 1


@dataclass(frozen=True)
class ClusterPlan:
    """Plan of all engines.

    backend: of torch.distributed; "none" for one engine. reason: for the choice of the backend. notes: messages on
    limits of speed or number of the engines, with remedies.
    """

    engines: tuple[EnginePlan, ...]
    backend: str
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether the engines compute on GPUs."""
        return self.engines[0].kind != "CPU"

    @property
    def engines_per_gpu(self) -> int:
        """The largest number of engines that share a GPU."""
        return max(engine.engines_per_gpu for engine in self.engines)

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> ClusterPlan:
        """Return the plan that `to_plain` wrote."""
        return cls(**{**plain, "engines": tuple(EnginePlan(**engine) for engine in plain["engines"])})


def plan_of(answers: list[dict[str, Any]]) -> ClusterPlan:
    """Return the plan of running engines from the description of each, by rank.

    Raises ClusterError if some compute on GPUs and others do not.
    """
    kinds = {answer["device"] for answer in answers}
    if "CPU" in kinds and len(kinds) > 1:
        found = "; ".join(f"rank {answer['rank']} on {answer['host']}: {answer['device']}" for answer in answers)
        raise ClusterError(
            f"Some engines have a GPU and others have none ({found}); request GPUs on all nodes.",
            code="cluster.mixed-devices",
        )
    identities = [_identity(answer) for answer in answers]
    engines = tuple(
        EnginePlan(
            rank=answer["rank"],
            device="cpu" if answer["device"] == "CPU" else "cuda:0",
            kind=answer["device"],
            identity=identity,
            threads=answer["threads"],
            environment={},
            engines_per_gpu=identities.count(identity),
        )
        for answer, identity in zip(answers, identities, strict=True)
    )
    gpus, nccl = 0 if "CPU" in kinds else len({*identities}), all(answer["nccl"] for answer in answers)
    return ClusterPlan(engines, *choose_backend(len(engines), gpus, sys.platform, nccl))


def _identity(answer: dict[str, Any]) -> str:
    """Return an identity that is unique in the cluster: engines on the CPU of one host differ by rank."""
    if answer["device"] != "CPU":
        return f"{answer['host']}: {answer['identity']}"
    return f"{answer['host']}: CPU {answer['rank']} ({counted(answer['threads'], 'thread')})"


def plan_for(n: int | None, device: Device, threads: int | None = None, engines_per_gpu: int = 1) -> ClusterPlan:
    """Return the plan of a cluster on this machine."""
    gpus = () if device in ("cpu", *LOCAL_DEVICES) else find_gpus()
    accelerators = () if device in ("cpu", "cuda") or gpus else find_accelerators()
    return plan_cluster(
        n, device, gpus, usable_cores(), threads, engines_per_gpu, dist.is_nccl_available(), numa_nodes(), accelerators
    )


def plan_cluster(
    n: int | None,
    device: str,
    gpus: tuple[GPU, ...],
    cores: int,
    threads: int | None = None,
    engines_per_gpu: int = 1,
    nccl: bool = True,
    nodes: Sequence[Sequence[int]] = (),
    accelerators: Sequence[Accelerator] = (),
) -> ClusterPlan:
    """Return the plan of n engines (None: one per GPU, or on the CPU one per NUMA node).

    threads: of each engine; None: an equal share of the cores. engines_per_gpu: number of engines that may share a GPU,
    by gloo. nccl: whether the installed torch has it. nodes: cores of each NUMA node. accelerators: GPUs of other
    makers, one of which a single engine can use. Raises ClusterError if the request cannot be met in full.
    """
    if device not in get_args(Device):
        raise ClusterError(
            f"device is {device!r}; expected {names_of_devices()}.", code="argument.invalid-value", fields=("device",)
        )
    for number, name in ((n, "n"), (engines_per_gpu, "engines_per_gpu")):
        if number is not None and number < 1:
            raise ClusterError(
                f"{name} is {number}; expected at least 1.", code="argument.invalid-value", fields=(name,)
            )
    if threads is not None and not 1 <= threads <= cores:
        raise ClusterError(
            f"{threads} threads were requested on {cores} cores; expected 1 to {cores} for each engine.",
            code="argument.invalid-value",
            fields=("threads",),
        )
    if device == "cuda" or (device == "auto" and gpus):
        return _plan_gpus(n, gpus, cores, threads, engines_per_gpu, nccl)
    if device in LOCAL_DEVICES or (device == "auto" and n in (None, 1) and usable(accelerators) is not None):
        return _plan_accelerator(n, device, accelerators, threads or cores)
    # One engine with all cores: two exchange gradients, and took 2 to 3 times the epoch on a machine with two cores.
    count = n if n is not None else max(1, len(nodes))
    if count > 4 * cores:
        raise ClusterError(
            f"{count} CPU engines were requested on {cores} cores; expected at most {4 * cores}.",
            code="argument.invalid-value",
            fields=("n",),
        )
    each = [len(node) for node in nodes] if len(nodes) == count else [max(1, cores // count)] * count
    engines = tuple(
        _on_cpu(rank, threads or each[rank], nodes if len(nodes) == count > 1 else ()) for rank in range(count)
    )
    return ClusterPlan(engines, *choose_backend(count, 0, sys.platform, nccl))


def _plan_accelerator(n: int | None, device: str, accelerators: Sequence[Accelerator], threads: int) -> ClusterPlan:
    """Return the plan of one engine on a GPU of Intel."""
    gpu = chosen(device, accelerators)
    assert gpu is not None, "otherwise engines on the CPU are planned"
    if n is not None and n > 1:
        raise ClusterError(
            f"{n} engines were requested on {gpu.name}; expected 1: engines on GPUs of Intel form no group. "
            "Use n=1, or device='cpu'.",
            code="gpu.too-few",
            fields=("n", "device"),
        )
    environment = {**_environment(0, threads, ""), "PTYNB_DEVICE": gpu.device}
    engine = EnginePlan(0, gpu.device, gpu.name, gpu.name, threads, environment)
    return ClusterPlan((engine,), *choose_backend(1, 1, sys.platform, nccl=False))


def _on_cpu(rank: int, threads: int, nodes: Sequence[Sequence[int]]) -> EnginePlan:
    """Return the plan of an engine on the CPU. nodes: cores of each rank, if it has a NUMA node of its own."""
    environment = _environment(rank, threads, "")
    if nodes:
        environment["PTYNB_CORES"] = ",".join(str(core) for core in nodes[rank])
    return EnginePlan(rank, "cpu", "CPU", f"CPU {rank} ({counted(threads, 'thread')})", threads, environment)


def _plan_gpus(
    n: int | None, gpus: tuple[GPU, ...], cores: int, threads: int | None, engines_per_gpu: int, nccl: bool
) -> ClusterPlan:
    if not gpus:
        raise ClusterError(
            "GPU engines were requested and no GPU was found; use device='cpu', or run 'ptynb doctor'.",
            code="gpu.not-found",
            fields=("device",),
        )
    check_distinct(gpus)
    whole = tuple(gpu for gpu in gpus if not gpu.part_of)
    devices = whole or gpus
    count = n if n is not None else len(devices) * engines_per_gpu
    check_slices(gpus, -(-count // engines_per_gpu) if whole else count)
    if count > len(devices) * engines_per_gpu:
        share = -(-count // len(devices))
        raise ClusterError(
            f"{count} engines were requested and {counted(len(devices), 'GPU')} found; use n="
            f"{len(devices) * engines_per_gpu}, device='cpu', or engines_per_gpu={share} on shared GPUs.",
            code="gpu.too-few",
            fields=("n", "device", "engines_per_gpu"),
        )
    taken = devices[:count]
    check_usable(taken, gpus, count)
    threads = threads or max(1, cores // count)
    engines = tuple(_on_gpu(rank, taken, count, threads) for rank in range(count))
    backend, reason, slow = choose_backend(count, len(taken), sys.platform, nccl)
    return ClusterPlan(engines, backend, reason, (*slow, *notes_on(taken, gpus)))


def _on_gpu(rank: int, gpus: tuple[GPU, ...], count: int, threads: int) -> EnginePlan:
    """Return the plan of an engine on the GPU with the fewest engines so far."""
    gpu, which = gpus[rank % len(gpus)], rank // len(gpus)
    sharing = len(range(rank % len(gpus), count, len(gpus)))
    identity = f"{gpu.name} {gpu.uuid}" + (f" ({which + 1} of {sharing})" if sharing > 1 else "")
    return EnginePlan(rank, "cuda:0", gpu.name, identity, threads, _environment(rank, threads, gpu.uuid), sharing)


def choose_backend(engines: int, gpus: int, platform: str, nccl: bool) -> tuple[str, str, tuple[str, ...]]:
    """Return the backend for engines on GPUs (0: on the CPU), the reason, and notes if it is slow.

    platform: as `sys.platform`. nccl: whether the installed torch has it. NCCL does not support two engines on one GPU.
    """
    if engines == 1:
        return "none", "one engine, no group", ()
    if not gpus:
        return "gloo", "gloo: engines on the CPU", ()
    slowly = "Gradients pass through the memory of the host by gloo, slower than NCCL"
    if engines > gpus:
        remedy = f"{engines} engines share {counted(gpus, 'GPU')}; n={gpus} gives each its own"
        return "gloo", "gloo: several engines on one GPU, slower", (f"{slowly}: {remedy}.",)
    if platform != "linux":
        where = "Windows" if platform == "win32" else platform
        return "gloo", f"gloo: no NCCL on {where}, slower", (f"{slowly}, which needs Linux.",)
    if not nccl:
        remedy = "this torch has none; install a CUDA build (pytorch.org)"
        return "gloo", "gloo: this torch has no NCCL, slower", (f"{slowly}: {remedy}.",)
    return "nccl", "NCCL: distinct GPUs", ()


def _environment(rank: int, threads: int, visible_gpu: str) -> dict[str, str]:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    return {
        "PTYNB_RANK": str(rank),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # numpy only renders pictures there; its threads would spin on the cores that torch uses.
        "OPENBLAS_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": visible_gpu,
        # Gradients stay on this machine: gloo would otherwise listen on the address of the host name.
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }
