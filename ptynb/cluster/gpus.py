"""GPUs and MIG slices of this machine, listed by nvidia-smi, so that the kernel never uses CUDA.

One query of nvidia-smi has all facts; a second one lists the slices of partitioned GPUs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
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
UUID_BEGINNING = len("GPU-8932f937")
CUDA_SECONDS = 30.0
"""Time limit for `cuda_numbers` [s]; without a persistent driver its start takes seconds for each GPU."""
CUDA_LISTING = """
import ctypes, sys
cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
def ask(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status != 0:
        sys.exit(f"{name} failed with status {status}.")
ask("cuInit", 0)
count, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
ask("cuDeviceGetCount", ctypes.byref(count))
for number in range(count.value):
    ask("cuDeviceGet", ctypes.byref(device), number)
    ask("cuDeviceGetUuid", ctypes.byref(uuid), device)
    print(bytes(uuid).hex())
"""
"""Program that prints the digits of the UUIDs of the GPUs, in CUDA's order."""
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
        """Its entry in CUDA_VISIBLE_DEVICES: the beginning of its UUID, since CUDA may count in another order.

        CUDA documents that the beginning of a UUID is enough, but not of that of a slice.
        """
        return self.uuid if self.part_of else self.uuid[:UUID_BEGINNING]

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
    left = visible(gpus, chosen, _cuda_order(gpus, chosen))
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
        if pid.isdecimal() and (used := _number(memory)) is not None:
            held[int(pid)] = held.get(int(pid), 0) + used
    return held


def parse_gpus(listing: str) -> tuple[GPU, ...]:
    """Return the GPUs in nvidia-smi's CSV with `FIELDS`, without lines about lost ones."""
    gpus = []
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(FIELDS) and cells[0].isdecimal() and not LOST.match(line):
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
    return int(cell) if cell.isdecimal() else None


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


def _cuda_order(gpus: tuple[GPU, ...], chosen: str | None) -> Mapping[str, int]:
    """Return the number by which CUDA knows each GPU, by UUID, where CUDA_VISIBLE_DEVICES has such numbers.

    nvidia-smi lists GPUs in the order of the PCI bus. CUDA begins with the one that it considers the fastest, and lists
    equal ones in the order of the bus; with CUDA_DEVICE_ORDER=PCI_BUS_ID all of them (CUDA programming guide,
    "CUDA Environment Variables"). Only CUDA itself knows which it considers the fastest.
    """
    listed = {gpu.uuid: gpu.index for gpu in gpus}
    numbers = any(entry.strip().isdecimal() for entry in (chosen or "").split(","))
    different = len({gpu.name for gpu in gpus}) > 1 and not any(gpu.part_of or gpu.mig for gpu in gpus)
    if not numbers or not different or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return listed
    found = cuda_numbers()
    digits = {gpu.uuid: gpu.uuid.removeprefix("GPU-").replace("-", "").lower() for gpu in gpus}
    return {uuid: found[own] for uuid, own in digits.items()} if {*digits.values()} <= {*found} else listed


def cuda_numbers() -> dict[str, int]:
    """Return CUDA's numbers of all GPUs by the digits of their UUIDs, asked in another process; empty if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-P", "-c", CUDA_LISTING]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=CUDA_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {} if answer.returncode != 0 else {uuid: number for number, uuid in enumerate(answer.stdout.split())}


def visible(gpus: tuple[GPU, ...], chosen: str | None, numbers: Mapping[str, int] | None = None) -> tuple[GPU, ...]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES (CUDA's numbers or beginnings of UUIDs), in its order.

    numbers: CUDA's number of each GPU by UUID; None: as nvidia-smi lists them. The number or UUID of a partitioned GPU
    selects all its slices.
    """
    if chosen is None:
        return gpus
    kept: list[GPU] = []
    for entry in (part.strip() for part in chosen.split(",") if part.strip()):
        match = _named(gpus, entry, numbers or {})
        if not match:
            break  # as CUDA does: an invalid entry hides itself and all after it
        if any(gpu in kept for gpu in match):
            return ()  # as CUDA does: a GPU that is listed twice hides all
        kept += match
    return tuple(kept)


def _named(gpus: tuple[GPU, ...], entry: str, numbers: Mapping[str, int]) -> list[GPU]:
    if entry.startswith(("GPU-", "MIG-")):
        first = [gpu for gpu in gpus if gpu.uuid.startswith(entry)][:1]
        return first or [gpu for gpu in gpus if gpu.part_of.startswith(entry)]
    return [gpu for gpu in gpus if entry == str(numbers.get(gpu.uuid, gpu.index))]
