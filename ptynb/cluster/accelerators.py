"""GPUs of other makers than NVIDIA, as torch finds them: Intel's ("xpu") and Apple's ("mps").

The model computes sums of losses, positions, propagation over a distance and the parameters' checksum in 64 bits on
the device, also with single precision: in 32 bits, sums over the pixels of a batch and the phases k_z z lose digits
that matter. Apple's GPUs have no 64-bit numbers, and neither have some of Intel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch

from ptynb.exceptions import ClusterError, SettingsError
from ptynb.settings.cluster_options import LOCAL_DEVICES, OFFERED_DEVICES, Device

AN_APPLE_GPU = "an Apple GPU"
NEEDS_FLOAT64 = "sums, positions and propagation need them with precision='single' too"
MAKERS = {"xpu": "Intel", "mps": "Apple"}
"""Makers of the GPUs of these devices."""


@dataclass(frozen=True)
class Accelerator:
    """A GPU of Intel or Apple.

    device: as torch names it. problem: why it cannot be used; empty if it can. memory: all of it [bytes]; 0: unknown.
    """

    device: str
    name: str
    problem: str = ""
    memory: int = 0

    @property
    def kind(self) -> str:
        """Its name among the choices of a device."""
        return self.device.partition(":")[0]


def find_accelerators() -> tuple[Accelerator, ...]:
    """Return the GPUs of Intel and Apple that torch finds, those that cannot be used too."""
    found = []
    for number in range(torch.xpu.device_count() if torch.xpu.is_available() else 0):
        name = torch.xpu.get_device_name(number)
        properties = torch.xpu.get_device_properties(number)
        problem = "" if properties.has_fp64 else _problem(name)
        found.append(Accelerator(f"xpu:{number}", name, problem, properties.total_memory))
    if torch.backends.mps.is_available():
        found.append(Accelerator("mps:0", "Apple GPU", _problem(AN_APPLE_GPU)))
    return tuple(found)


def _problem(name: str) -> str:
    return f"{name} has no 64-bit floating-point numbers: {NEEDS_FLOAT64}"


def usable(accelerators: Sequence[Accelerator]) -> Accelerator | None:
    """Return the first one that can be used."""
    return next((one for one in accelerators if not one.problem), None)


def chosen(
    device: str, accelerators: Sequence[Accelerator], error: type[ClusterError | SettingsError] = ClusterError
) -> Accelerator | None:
    """Return the first one that can be used; raise `error` with a remedy if "xpu" or "mps" is asked for in vain."""
    own = [one for one in accelerators if one.kind == device]
    if device not in LOCAL_DEVICES or usable(own) is not None:
        return usable(accelerators)
    if device == "mps" or own:  # Apple's have no 64-bit numbers wherever they are
        problem = own[0].problem if own else _problem(AN_APPLE_GPU)
        raise error(
            f"device is {device!r}, and {problem}. Use device='cpu'.", code="gpu.no-float64", fields=("device",)
        )
    raise error(
        f"device is {device!r}, and torch finds no GPU of {MAKERS[device]}. Use device='cpu', or run 'ptynb doctor'.",
        code="gpu.not-found",
        fields=("device",),
    )


def local_device(device: str) -> str:
    """Return the device of this process as torch names it: for "auto" a GPU of NVIDIA, or one of Intel, or the CPU."""
    if device not in get_args(Device):
        raise SettingsError(
            f"device is {device!r}; expected {names_of_devices()}.", code="argument.invalid-value", fields=("device",)
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            "device is 'cuda', and torch finds no GPU. Use device='cpu', or run 'ptynb doctor'.",
            code="gpu.not-found",
            fields=("device",),
        )
    if device in ("auto", "cuda") and torch.cuda.is_available():
        return "cuda:0"
    accelerator = None if device == "cpu" else chosen(device, find_accelerators(), SettingsError)
    return "cpu" if accelerator is None else accelerator.device


def device_name(device: str) -> str:
    """Return the name of a GPU that this process computes on, by its name in torch; "CPU" for a CPU."""
    place = torch.device(device)
    if place.type == "cpu":
        return "CPU"
    name: str = torch.get_device_module(place).get_device_name(place)
    return name


def names_of_devices() -> str:
    """Return the devices that may be there as text."""
    *others, last = map(repr, OFFERED_DEVICES)
    return f"{', '.join(others)} or {last}"
