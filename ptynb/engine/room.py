"""Where an engine keeps its frames: on the device, in the host's memory, or in the file."""

from __future__ import annotations

from typing import Literal

import psutil
import torch

Place = Literal["device", "host", "disk"]

FREE_PART = 0.5
"""Of the free memory, what frames may take by themselves; the rest is for object, optimiser and waves."""


def choose_place(
    wanted: Literal["auto", "device", "host", "disk"], needed: int, everybody: int, device: torch.device, in_file: bool
) -> Place:
    """The place that was asked for, or with "auto" the first one with room.

    needed: by this engine's frames, everybody: by those of all engines, which share the host's memory [bytes].
    On a CPU the device's memory is the host's. Raises ValueError where frames can't be there.
    """
    if wanted == "disk" and not in_file:
        raise ValueError(
            "frames is 'disk', and the patterns of this scan are in memory, not in a file; "
            "write them with save_scan and load that file, or choose 'auto'."
        )
    if wanted == "device":
        return "host" if device.type == "cpu" else "device"
    if wanted != "auto":
        return wanted
    if device.type != "cpu" and needed <= FREE_PART * free_on_device(device):
        return "device"
    free = free_on_host()
    if everybody <= FREE_PART * free:
        return "host"
    if in_file:
        return "disk"
    if everybody <= free:
        return "host"
    raise ValueError(
        f"The patterns take {everybody / 1e9:.3g} GB, and {free / 1e9:.3g} GB of memory are free; "
        "write them with save_scan and load that file, to have them read as they are needed."
    )


def free_on_host() -> int:
    """Memory that this machine has to give [bytes]."""
    return int(psutil.virtual_memory().available)


def free_on_device(device: torch.device) -> int:
    """Memory that a GPU has to give [bytes]."""
    return int(torch.cuda.mem_get_info(device)[0])
