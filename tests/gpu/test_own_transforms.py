"""Updates with Fourier transforms inside of kernels, on the pretended GPU: answers, repeats, work, memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.gpu import update_cases
from tests.gpu.problems import TOLERANCE


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What a process with the pretended GPU found."""
    command = [sys.executable, "-m", "tests.gpu.pretended_checks", "transforms"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    values: dict[str, Any] = json.loads(output.splitlines()[-1])
    return values


def test_every_problem_has_the_cpus_answer(found: dict[str, Any]) -> None:
    assert len(found["problems"]) == len(update_cases.BY_LINES) + 1
    assert {name: one for name, one in found["problems"].items() if not one[0] < TOLERANCE} == {}


@pytest.mark.parametrize("case", update_cases.COUNTED_BY_LINES)
def test_launches_and_bytes(found: dict[str, Any], case: str) -> None:
    *_, launches, moved = update_cases.COUNTED_BY_LINES[case]
    one = found["updates"][case]
    assert one["launches"] <= launches
    assert one["bytes"] <= moved


@pytest.mark.parametrize("case", update_cases.COUNTED_BY_LINES)
def test_an_update_can_be_recorded_and_repeated(found: dict[str, Any], case: str) -> None:
    one = found["updates"][case]
    assert one["most_waits"] == 0, one["waits"]
    assert one["same"], "each update has the same operations, as a CUDA graph needs"
    assert not one["unordered"]
    assert not one["differing"], "repeats are equal to the bit"


@pytest.mark.parametrize("case", update_cases.COUNTED_BY_LINES)
def test_memory_is_foreseen(found: dict[str, Any], case: str) -> None:
    assert found["peaks"][case] >= 1
