"""Checks of the GPUs of engines: errors for unusable ones, notes on busy or small ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ptynb.cluster.gpus import GPU
from ptynb.exceptions import ClusterError

BUSY_MEMORY, BUSY_FRACTION, BUSY_LOAD = 1024, 0.1, 25
"""Memory in use [MiB, fraction of all] and load [%] of a busy GPU; a desktop, or this kernel's own CUDA, needs less."""
LITTLE_MEMORY = 2048
"""Free memory [MiB] below which there is a note."""
NO_MEMORY = 512
"""Free memory [MiB] that an engine needs to start: CUDA itself takes about as much."""
MUCH_LESS = 0.6
"""Fraction of the largest memory below which a GPU is small."""


def check_distinct(gpus: Sequence[GPU]) -> None:
    """Raise ClusterError if two have the same UUID, or one has none: engines are assigned by it."""
    for gpu in gpus:
        if not gpu.uuid.startswith(("GPU-", "MIG-")):
            raise ClusterError(
                f"nvidia-smi reports {gpu.uuid!r} as UUID of {gpu.words}; expected GPU-... or MIG-... "
                f"{leave_out([gpu], gpus)}.",
                code="gpu.unusable",
            )
    uuid, count = Counter(gpu.uuid for gpu in gpus).most_common(1)[0]
    if count > 1:
        raise ClusterError(
            f"nvidia-smi lists {count} GPUs with the same UUID {uuid}, and each engine needs its own. "
            "Set CUDA_VISIBLE_DEVICES to one of them, or use CPU engines: device='cpu'.",
            code="gpu.unusable",
        )


def check_usable(taken: Sequence[GPU], known: Sequence[GPU], engines: int) -> None:
    """Raise ClusterError for a GPU on which no engine can start, with the command to exclude it."""
    for gpu in taken:
        reason = _unusable(gpu, shared=engines > len(taken))
        if reason is not None:
            raise ClusterError(f"{gpu.words} cannot be used: {reason}. {leave_out([gpu], known)}.", code="gpu.unusable")


def _unusable(gpu: GPU, shared: bool) -> str | None:
    if gpu.mode == "Prohibited":
        return "its compute mode is Prohibited (nvidia-smi -c 0, as root, resets it)"
    if gpu.mig:
        return (
            "it is in MIG mode and has no slice (nvidia-smi mig -cgi creates slices, nvidia-smi -mig 0 ends the mode)"
        )
    if gpu.free is not None and gpu.free < NO_MEMORY:
        return f"only {gpu.free} of its {gpu.memory} MiB of memory are free, other processes use the rest"
    if shared and gpu.mode.startswith("Exclusive"):
        return f"its compute mode {gpu.mode} allows one process, and several engines would share it"
    return None


def notes_on(taken: Sequence[GPU], known: Sequence[GPU]) -> tuple[str, ...]:
    """Return notes on GPUs that are busy, small, or not used."""
    found = []
    largest = max(gpu.memory for gpu in taken)
    for gpu in taken:
        reasons = _busy(gpu)
        if 0 < gpu.memory < MUCH_LESS * largest:
            reasons.append(
                f"has {gpu.memory} MiB of memory while another has {largest} MiB, and all engines need the same"
            )
        if reasons:
            instead = f" {leave_out([gpu], known)}." if len(known) > 1 else ""
            found.append(f"{gpu.words} {' and '.join(reasons)}.{instead}")
    slices = [gpu for gpu in known if gpu.part_of and gpu not in taken]
    if slices:
        names = ", ".join(gpu.uuid for gpu in slices)
        found.append(
            "MIG slices cannot join a group; use each by a cluster of one engine with CUDA_VISIBLE_DEVICES set to one "
            f"of them: {names}."
        )
    return tuple(found)


def _busy(gpu: GPU) -> list[str]:
    reasons = []
    if gpu.used is not None and gpu.used >= max(BUSY_MEMORY, BUSY_FRACTION * gpu.memory):
        reasons.append(f"is busy: processes use {gpu.used} MiB of its {gpu.memory} MiB of memory")
    elif gpu.free is not None and gpu.free < LITTLE_MEMORY:
        reasons.append(f"has only {gpu.free} MiB of memory free")
    if gpu.load is not None and gpu.load >= BUSY_LOAD:
        reasons.append(f"has a load of {gpu.load} %")
    if gpu.mode.startswith("Exclusive"):
        reasons.append(f"allows one process (compute mode {gpu.mode}), so no second cluster can use it")
    return reasons


def leave_out(left: Sequence[GPU], known: Sequence[GPU]) -> str:
    """Return the instruction to start without these GPUs."""
    rest = ",".join(gpu.chosen_by for gpu in known if gpu not in left)
    if not rest:
        return "There is no other GPU; use CPU engines: device='cpu'"
    return f"To exclude it, start with CUDA_VISIBLE_DEVICES={rest}"


def check_slices(gpus: Sequence[GPU], count: int) -> None:
    """Raise ClusterError if a group of several engines would need MIG slices, which cannot communicate."""
    slices = [gpu for gpu in gpus if gpu.part_of]
    whole = len(gpus) - len(slices)
    if slices and count > max(whole, 1):
        names = ", ".join(gpu.uuid for gpu in slices)
        instead = f", or use n={whole} on whole GPUs" if whole else ""
        raise ClusterError(
            f"{count} engines were requested, and {len(slices)} of the {len(gpus)} devices found are MIG slices, which "
            "cannot join a group. Start separate runs, each a Cluster(1) with CUDA_VISIBLE_DEVICES set to one of "
            f"{names}{instead}.",
            code="gpu.unusable",
        )
