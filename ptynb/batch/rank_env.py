"""Rank and device of this process among those of torchrun, Kubernetes or a shell, by environment variables.

Used before torch is imported, which reads the variables that are set here.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Self

from ptynb.cluster.cpu_cores import usable_cores
from ptynb.cluster.gpu_checks import check_distinct, check_slices, check_usable
from ptynb.cluster.gpus import GPU, find_gpus
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import LOCAL_DEVICES, Device


@dataclass(frozen=True)
class Place:
    """Rank of a process among all ranks (rank of world) and among those of its host (local_rank of local_world)."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; without RANK the world has one rank.

        In a pod of an Indexed Job of Kubernetes with WORLD_SIZE, its index is the rank. Raises ClusterError if
        variables are missing or contradict each other.
        """
        if "RANK" not in environment and "WORLD_SIZE" in environment and "JOB_COMPLETION_INDEX" in environment:
            environment = {**environment, "RANK": environment["JOB_COMPLETION_INDEX"]}
        if "RANK" not in environment:
            return cls()
        rank, world = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
        local_rank = _number(environment, "LOCAL_RANK", 0)
        local_world = _number(environment, "LOCAL_WORLD_SIZE", local_rank + 1)
        if not (rank < world and local_rank < local_world <= world):
            raise ClusterError(
                f"RANK={rank} of WORLD_SIZE={world}, LOCAL_RANK={local_rank} of LOCAL_WORLD_SIZE={local_world} "
                "contradict each other; expected 0 <= rank < size.",
                code="environment.invalid",
            )
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if world > 1 and not environment.get(name)]
        if missing:
            raise ClusterError(
                f"RANK is {rank} of {world}, and {' and '.join(missing)} is not set; "
                "expected address and port of rank 0.",
                code="environment.invalid",
            )
        return cls(rank, world, local_rank, local_world)

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_world == self.world


@dataclass(frozen=True)
class Seat:
    """Device of a rank. kind: "CPU" or the name of the GPU; identity: unique among the ranks."""

    device: str
    kind: str
    identity: str
    backend: str
    threads: int


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal():
        raise ClusterError(
            f"RANK is set and {name} is {text!r}; expected a number: start with torchrun.",
            code="environment.invalid",
        )
    return int(text)


def take_seat(
    place: Place, device: Device, threads: int | None, environment: MutableMapping[str, str] = os.environ
) -> Seat:
    """Select device and threads of this rank and set the environment, before torch is loaded.

    threads: None: OMP_NUM_THREADS, or an equal share of the cores of this host.
    Raises ClusterError if a requested GPU is missing.
    """
    threads = threads or _threads_set(environment) or max(1, usable_cores() // place.local_world)
    # numpy only renders pictures; its threads would spin on the cores that torch uses.
    environment.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS="1")
    if place.one_host:
        # Gradients stay on this machine: gloo would otherwise listen on the address of the host name.
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(name, "lo0" if sys.platform == "darwin" else "lo")
    gpus = () if device in ("cpu", *LOCAL_DEVICES) else find_gpus()
    if device == "cuda" and not gpus:
        raise ClusterError(
            f"Rank {place.rank} needs a GPU (device: cuda) and none was found; use device: cpu.", code="gpu.not-found"
        )
    if not gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        if (other := _of_other_maker(place, device, threads)) is not None:
            return other
        host = "" if place.one_host else f" on {socket.gethostname()}"
        return Seat("cpu", "CPU", f"CPU {place.rank}{host}", "gloo" if place.world > 1 else "none", threads)
    gpu = _own(place, gpus)
    environment["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    backend = "none"
    if place.world > 1:
        import torch.distributed as dist  # torch reads the variables that were set before

        backend = "nccl" if dist.is_nccl_available() else "gloo"
    return Seat("cuda:0", gpu.name, f"{gpu.name} {gpu.uuid}", backend, threads)


def _of_other_maker(place: Place, device: Device, threads: int) -> Seat | None:
    """Return the seat of a single rank on a GPU of Intel, or None. Raises ClusterError if it was asked for."""
    if device == "cpu" or (device == "auto" and place.world > 1):
        return None
    # It loads torch, which reads the variables that were set before.
    from ptynb.cluster.accelerators import chosen, find_accelerators

    gpu = chosen(device, find_accelerators())
    if place.world > 1:
        raise ClusterError(
            f"{place.world} ranks were started with device: {device}; expected 1: ranks on GPUs of Intel form no "
            "group. Start one rank, or use device: cpu.",
            code="gpu.too-few",
        )
    return None if gpu is None else Seat(gpu.device, gpu.name, gpu.name, "none", threads)


def _own(place: Place, gpus: tuple[GPU, ...]) -> GPU:
    """Return the GPU of this rank. Raises ClusterError if there are too few, or it is not usable."""
    check_distinct(gpus)
    check_slices(gpus, place.local_world)
    places = tuple(gpu for gpu in gpus if not gpu.part_of) or gpus
    if 1 < len(places) < place.local_world:
        raise ClusterError(
            f"{place.local_world} ranks were started on a host with {len(places)} GPUs; expected one GPU each: "
            f"start {len(places)} ranks, or use device: cpu.",
            code="gpu.too-few",
        )
    # One visible GPU: the launcher has assigned it. Two ranks with the same GPU raise an error when they join a group.
    gpu = places[place.local_rank if len(places) > 1 else 0]
    check_usable([gpu], gpus, 1)
    return gpu


def _threads_set(environment: Mapping[str, str]) -> int | None:
    """Return OMP_NUM_THREADS if a user set it: torchrun sets 1 for several ranks otherwise."""
    text = environment.get("OMP_NUM_THREADS", "")
    by_torchrun = text == "1" and "TORCHELASTIC_RUN_ID" in environment
    return int(text) if text.isdecimal() and int(text) > 0 and not by_torchrun else None
