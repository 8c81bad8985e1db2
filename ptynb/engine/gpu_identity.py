"""Name and UUID of the GPU of an engine, written as nvidia-smi writes them.

Plans of clusters, the self-test and the diagnostics compare the UUID or pass it to nvidia-smi.
"""

from __future__ import annotations

import torch

PREFIX = "GPU-"
OWN_GPU = torch.device("cuda:0")
"""The only GPU that an engine sees."""


def gpu_uuid(device: torch.device = OWN_GPU) -> str:
    """Return the UUID "GPU-..." of a GPU; "" on a CPU, and if torch does not provide it.

    torch prints it without the prefix (`uuid_to_string` in its torch/csrc/cuda/Module.cpp), nvidia-smi with it.
    """
    if device.type != "cuda":
        return ""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return PREFIX + uuid.removeprefix(PREFIX) if uuid else ""


def gpu_identity(device: torch.device = OWN_GPU) -> str:
    """Return name and UUID of the engine's GPU, as in the plan of a cluster on one machine; of Intel's the name."""
    name: str = torch.get_device_module(device).get_device_name(device)
    return f"{name} {gpu_uuid(device)}".rstrip()
