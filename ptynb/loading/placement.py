"""Where an engine keeps its frames: on the device, in the host's memory, or in the file."""

from __future__ import annotations

from typing import Literal

import psutil
import torch

from ptynb.exceptions import InvalidValueError

Place = Literal["device", "host", "disk"]
Wanted = Literal["auto", "device", "host", "disk"]

FREE_PART = 0.5
"""Of the free memory, what frames may take by themselves; the rest is for object, optimiser and waves."""


def choose_place(wanted: Wanted, needed: int, everybody: int, device: torch.device, in_file: bool) -> Place:
    """`place_for` in the memory that is free now. Raises ValueError where frames can't be there."""
    if wanted == "disk" and not in_file:
        raise InvalidValueError(
            "frames is 'disk', and the patterns of this scan are in memory, not in a file; "
            "write them with save_scan and load that file, or choose 'auto'."
        )
    free = free_on_host()
    place = place_for(
        wanted, needed, everybody, in_file, free, None if device.type == "cpu" else free_on_device(device)
    )
    if wanted == "auto" and place == "host" and everybody > free:
        raise InvalidValueError(
            f"The patterns take {everybody / 1e9:.3g} GB, and {free / 1e9:.3g} GB of memory are free; "
            "write them with save_scan and load that file, to have them read as they are needed."
        )
    return place


def place_for(
    wanted: Wanted, needed: float, everybody: float, in_file: bool, host: float, device: float | None
) -> Place:
    """The place that was asked for, or with "auto" the first one with room.

    needed: by this engine's frames, everybody: by those of all engines, which share the host's memory [bytes].
    host, device: what is free there [bytes]; device is None on a CPU, whose memory is the host's.
    """
    if wanted == "device" and device is None:
        return "host"
    if wanted != "auto":
        return wanted
    if device is not None and needed <= FREE_PART * device:
        return "device"
    return "host" if everybody <= FREE_PART * host or not in_file else "disk"


def free_on_host() -> int:
    """Memory that this machine has to give [bytes]."""
    return int(psutil.virtual_memory().available)


def free_on_device(device: torch.device) -> int:
    """Memory that a GPU has to give [bytes]."""
    return int(torch.cuda.mem_get_info(device)[0])
