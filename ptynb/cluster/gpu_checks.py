"""What is to be said of the GPUs that engines are to have: which can't be used, which are busy or small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ptynb.cluster.gpus import GPU
from ptynb.exceptions import ClusterError

BUSY_MEMORY, BUSY_LOAD = 1024, 25
"""In use by others [MiB] and of its time [%] from which a GPU is called busy; a desktop takes less."""
LITTLE_MEMORY = 2048
"""Free [MiB], below which it is told."""
NO_MEMORY = 512
"""Free [MiB], below which no engine can start: CUDA itself takes about as much."""
MUCH_LESS = 0.6
"""Of the largest one's memory, below which a GPU is called small."""


def check_distinct(gpus: Sequence[GPU]) -> None:
    """Raises ClusterError where two have the same UUID, or one has none: engines find theirs by it."""
    for gpu in gpus:
        if not gpu.uuid.startswith(("GPU-", "MIG-")):
            raise ClusterError(
                f"nvidia-smi tells no UUID of {gpu.words} but {gpu.uuid!r}, and engines find their GPUs by it. "
                f"{leave_out([gpu], gpus)}.",
                code="gpu.unusable",
            )
    uuid, count = Counter(gpu.uuid for gpu in gpus).most_common(1)[0]
    if count > 1:
        raise ClusterError(
            f"nvidia-smi lists {count} GPUs with the same UUID {uuid}, and each engine needs its own. "
            "Give CUDA_VISIBLE_DEVICES one of them, or ask for CPU engines: device='cpu'.",
            code="gpu.unusable",
        )


def check_usable(taken: Sequence[GPU], known: Sequence[GPU], engines: int) -> None:
    """Raises ClusterError that names a GPU on which no engine could start, and says how to leave it out."""
    for gpu in taken:
        reason = _unusable(gpu, shared=engines > len(taken))
        if reason is not None:
            raise ClusterError(f"{gpu.words} can't be used: {reason}. {leave_out([gpu], known)}.", code="gpu.unusable")


def _unusable(gpu: GPU, shared: bool) -> str | None:
    if gpu.mode == "Prohibited":
        return "its compute mode is Prohibited (nvidia-smi -c 0, as root, allows computing)"
    if gpu.mig:
        return "it is in MIG mode and has no slice (nvidia-smi mig -cgi makes some, nvidia-smi -mig 0 ends the mode)"
    if gpu.free is not None and gpu.free < NO_MEMORY:
        return f"of its {gpu.memory} MiB of memory {gpu.free} MiB are free, the rest is in use by other processes"
    if shared and gpu.mode.startswith("Exclusive"):
        return f"its compute mode {gpu.mode} allows one process, and several engines were to share it"
    return None


def notes_on(taken: Sequence[GPU], known: Sequence[GPU]) -> tuple[str, ...]:
    """Sentences on those that are busy, small, or left to others; what can't be used is an error before."""
    found = []
    largest = max(gpu.memory for gpu in taken)
    for gpu in taken:
        reasons = _busy(gpu)
        if 0 < gpu.memory < MUCH_LESS * largest:
            reasons.append(f"has {gpu.memory} MiB of memory where another has {largest} MiB, and all need the same")
        if reasons:
            found.append(f"{gpu.words} {' and '.join(reasons)}. {leave_out([gpu], known)}.")
    slices = [gpu for gpu in known if gpu.part_of and gpu not in taken]
    if slices:
        names = ", ".join(gpu.uuid for gpu in slices)
        found.append(
            "MIG slices can't join a group and are left to runs of their own, each a cluster of one engine with "
            f"CUDA_VISIBLE_DEVICES set to one of them: {names}."
        )
    return tuple(found)


def _busy(gpu: GPU) -> list[str]:
    reasons = []
    if gpu.used is not None and gpu.used >= BUSY_MEMORY:
        reasons.append(f"is busy: other processes hold {gpu.used} MiB of its {gpu.memory} MiB of memory")
    elif gpu.free is not None and gpu.free < LITTLE_MEMORY:
        reasons.append(f"has only {gpu.free} MiB of memory free")
    if gpu.load is not None and gpu.load >= BUSY_LOAD:
        reasons.append(f"is at work {gpu.load} % of its time")
    if gpu.mode.startswith("Exclusive"):
        reasons.append(f"takes one process only (compute mode {gpu.mode}), so no second cluster can use it")
    return reasons


def leave_out(left: Sequence[GPU], known: Sequence[GPU]) -> str:
    """What to do to start without some of the known ones."""
    rest = ",".join(gpu.chosen_by for gpu in known if gpu not in left)
    if not rest:
        return "There is no other one; ask for CPU engines: device='cpu'"
    return f"To leave it out, start with CUDA_VISIBLE_DEVICES={rest}"


def check_slices(gpus: Sequence[GPU], count: int) -> None:
    """Raises ClusterError where a group of several engines would need MIG slices, which can't reach each other."""
    slices = [gpu for gpu in gpus if gpu.part_of]
    whole = len(gpus) - len(slices)
    if slices and count > max(whole, 1):
        names = ", ".join(gpu.uuid for gpu in slices)
        instead = f", or ask for {whole} on whole GPUs" if whole else ""
        raise ClusterError(
            f"{count} engines were asked for, and {len(slices)} of the {len(gpus)} devices found are MIG slices, which "
            "can't join a group. Start runs of their own, each a Cluster(1) with CUDA_VISIBLE_DEVICES set to one of "
            f"{names}{instead}.",
            code="gpu.unusable",
        )
