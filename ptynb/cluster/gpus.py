"""GPUs and MIG slices of this machine, listed by nvidia-smi, so that the kernel never uses CUDA.

One query of nvidia-smi has all facts; a second one lists the slices of partitioned GPUs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from ptynb.exceptions import ClusterError

FIELDS = (
    *("index", "uuid", "name", "memory.total", "memory.used", "memory.free"),
    *("utilization.gpu", "compute_mode", "mig.mode.current"),
)
LOST = re.compile(r"Unable to determine the device handle for gpu|.*\[GPU is lost\]", re.IGNORECASE)
SLICE = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")
WHOLE = re.compile(r"GPU \d+: .*\(UUID: (?P<uuid>[^)]+)\)")
SLICE_USABLE = 0.95
"""Of the memory that a slice's profile names: 1g.10gb has 9728 MiB, 1g.5gb 4864 MiB."""
MEND = "repair it, or use CPU engines: Cluster(device='cpu')."


@dataclass(frozen=True)
class GPU:
    """A GPU, or a MIG slice of one, as nvidia-smi lists it.

    memory, used, free: in MiB; 0 (memory) or None if the driver does not report it. load: [%].
    mode: compute mode. mig: whether it is partitioned into slices. part_of: of a slice, the UUID of its GPU.
    """

    index: int
    uuid: str
    name: str
    memory: int
    used: int | None = None
    free: int | None = None
    load: int | None = None
    mode: str = "Default"
    mig: bool = False
    part_of: str = ""

    @property
    def chosen_by(self) -> str:
        """Its entry in CUDA_VISIBLE_DEVICES."""
        return self.uuid if self.part_of else str(self.index)

    @property
    def words(self) -> str:
        """Return for example 'GPU 1 (NVIDIA H200)'."""
        return f"GPU {self.index} ({self.name})"


def find_gpus() -> tuple[GPU, ...]:
    """Return the GPUs and MIG slices that this process may use; none without a driver.

    Slices replace their GPU. Raises ClusterError if the driver does not work, a GPU is lost, or CUDA_VISIBLE_DEVICES
    excludes all.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    answer = _ask(tool, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits")
    chosen, said = os.environ.get("CUDA_VISIBLE_DEVICES"), f"{answer.stdout}\n{answer.stderr}"
    lost = lost_gpus(said)
    if answer.returncode != 0 and not lost:
        raise ClusterError(
            f"nvidia-smi failed: {said.strip()!r}. The GPU driver is not working; {MEND}", code="gpu.driver-failed"
        )
    gpus = parse_gpus(answer.stdout)
    if any(gpu.mig for gpu in gpus):
        gpus = with_slices(gpus, _ask(tool, "-L").stdout)
    left = visible(gpus, chosen)
    if lost and (not chosen or not left):
        others = ",".join(gpu.uuid for gpu in gpus)
        leave_out = f", exclude it: CUDA_VISIBLE_DEVICES={others}" if others else ""
        raise ClusterError(
            f"nvidia-smi lost a GPU: {lost[0]!r}. Restart the machine{leave_out}, "
            "or use CPU engines: Cluster(device='cpu').",
            code="gpu.driver-failed",
        )
    if gpus and not left and chosen:
        raise ClusterError(
            f"CUDA_VISIBLE_DEVICES={chosen!r} excludes all {len(gpus)} GPUs and MIG slices. "
            "Set it to some of them, by index or UUID, or use CPU engines: Cluster(device='cpu').",
            code="gpu.not-found",
        )
    return left


def _ask(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"nvidia-smi did not answer within 30 s. The GPU driver is not working; {MEND}", code="gpu.driver-failed"
        ) from None


def memory_by_process() -> dict[int, int] | None:
    """Return GPU memory [MiB] by process id, as far as the driver reports it; None without a working driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        answer = _ask(tool, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    except ClusterError:
        return None
    return None if answer.returncode != 0 else parse_processes(answer.stdout)


def parse_processes(listing: str) -> dict[int, int]:
    """Return ids and memory [MiB] of processes, from nvidia-smi's CSV: a line per process and GPU."""
    held: dict[int, int] = {}
    for line in listing.splitlines():
        pid, _, memory = (cell.strip() for cell in line.partition(","))
        if pid.isdigit() and (used := _number(memory)) is not None:
            held[int(pid)] = held.get(int(pid), 0) + used
    return held


def parse_gpus(listing: str) -> tuple[GPU, ...]:
    """Return the GPUs in nvidia-smi's CSV with `FIELDS`, without lines about lost ones."""
    gpus = []
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(FIELDS) and cells[0].isdigit() and not LOST.match(line):
            index, uuid, name, total, used, free, load, mode, mig = cells
            gpus.append(
                GPU(
                    int(index),
                    uuid,
                    name,
                    _number(total) or 0,
                    _number(used),
                    _number(free),
                    _number(load),
                    "Default" if mode.startswith("[") else mode,
                    mig == "Enabled",
                )
            )
        elif line.strip() and not LOST.match(line):
            raise ClusterError(
                f"nvidia-smi answered {line.strip()!r}, which is not a GPU. The driver may not work; {MEND}",
                code="gpu.driver-failed",
            )
    return tuple(gpus)


def _number(cell: str) -> int | None:
    """Return a number, or None for '[N/A]', '[Not Supported]', '[Insufficient Permissions]' and similar."""
    return int(cell) if cell.isdigit() else None


def lost_gpus(listing: str) -> list[str]:
    """Return the lines of nvidia-smi about GPUs that do not respond."""
    return [line.strip() for line in listing.splitlines() if LOST.match(line)]


def with_slices(gpus: tuple[GPU, ...], names: str) -> tuple[GPU, ...]:
    """Replace partitioned GPUs by their MIG slices, as `nvidia-smi -L` lists them.

    A GPU in MIG mode without slices remains, to be named in an error.
    """
    slices: dict[str, list[re.Match[str]]] = {}
    inside = ""
    for line in names.splitlines():
        if whole := WHOLE.match(line):
            inside = whole["uuid"]
        elif found := SLICE.match(line):
            slices.setdefault(inside, []).append(found)
    result: list[GPU] = []
    for gpu in gpus:
        own = slices.get(gpu.uuid, []) if gpu.mig else []
        if not own:
            result.append(gpu)
        for found in own:
            size = re.search(r"(\d+)gb", found["profile"])
            memory = round(SLICE_USABLE * 1024 * int(size[1])) if size else 0
            name = f"{gpu.name} MIG {found['profile']}"
            result.append(GPU(gpu.index, found["uuid"], name, memory, mode=gpu.mode, part_of=gpu.uuid))
    return tuple(result)


def visible(gpus: tuple[GPU, ...], chosen: str | None) -> tuple[GPU, ...]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES (indices or beginnings of UUIDs), in its order.

    The index or UUID of a partitioned GPU selects all its slices.
    """
    if chosen is None:
        return gpus
    kept: list[GPU] = []
    for entry in (part.strip() for part in chosen.split(",") if part.strip()):
        match = _named(gpus, entry)
        if not match:
            break  # as CUDA does: an invalid entry hides itself and all after it
        if any(gpu in kept for gpu in match):
            return ()  # as CUDA does: a GPU that is listed twice hides all
        kept += match
    return tuple(kept)


def _named(gpus: tuple[GPU, ...], entry: str) -> list[GPU]:
    if entry.startswith(("GPU-", "MIG-")):
        first = [gpu for gpu in gpus if gpu.uuid.startswith(entry)][:1]
        return first or [gpu for gpu in gpus if gpu.part_of.startswith(entry)]
    return [gpu for gpu in gpus if entry == str(gpu.index)]
