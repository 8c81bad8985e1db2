"""What torch reports of an NVIDIA GPU, on a machine without one.

The values are typed as torch's: it prints a UUID as 8-4-4-4-12 hexadecimal digits without "GPU-" (`uuid_to_string` in
torch/csrc/cuda/Module.cpp), as `uuid.UUID` does.
"""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
import torch

NAME = "NVIDIA H200"
UUID_DIGITS = "8f6c5d20-1b7e-4a39-9d52-0c6e3a7b41f8"
BY_NVIDIA_SMI = f"GPU-{UUID_DIGITS}"


def pretend(monkeypatch: pytest.MonkeyPatch, digits: str = UUID_DIGITS) -> None:
    """Let torch report one H200 with this UUID."""
    properties = SimpleNamespace(name=NAME, uuid=UUID(digits), total_memory=150_754_820_096)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: NAME)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
