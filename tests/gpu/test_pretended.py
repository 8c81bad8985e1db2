"""The GPU path on a pretended GPU (`tests.gpu.pretended`): answers, waits, launches, repeats.

The device is made in processes of their own, since it cannot be removed from a process again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.gpu import update_cases
from tests.gpu.problems import TOLERANCE, problems

pytestmark = pytest.mark.timeout(900)  # the first test waits for both processes
EPOCH_WAITS = 2
"""Waits at the end of an epoch: for its loss with the changes of the state, and for the checksum of the parameters."""
Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> Found:
    """What both processes found."""
    command = [sys.executable, "-m", "tests.gpu.pretended_checks"]
    started = [subprocess.Popen([*command, number], stdout=subprocess.PIPE, text=True) for number in ("0", "1")]
    both = Found()
    for process in started:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0, output[-2000:]
        for name, values in json.loads(output.splitlines()[-1]).items():
            both.setdefault(name, {}).update(values)
    return both


def test_the_device_refuses_what_cuda_refuses(found: Found) -> None:
    said = found["refused"]
    assert said["type"]
    assert "expected all tensors to be on the same device" in said["mixed"]
    assert said["numpy"] != "nothing"
    assert "bincount with weights" in said["weights"]
    assert [said[name] for name in ("item", "mask", "index", "to", "cpu")] == [1, 1, 1, 1, 1]
    assert [said[name] for name in ("without", "not waited for")] == [0, 0]
    assert said["orders"] > 1, "additions at one place are made in a random order"
    assert said["noted"] == 20
    assert said["conjugate"]
    assert said["peak"] > 0


def test_every_problem_has_the_cpus_answer(found: Found) -> None:
    assert set(found["problems"]) == {problem.name for problem in problems()}
    wrong = {name: one["difference"] for name, one in found["problems"].items() if not one["difference"][0] < TOLERANCE}
    assert not wrong
    least = sorted(one["difference"][0] for one in found["problems"].values())
    assert least[len(least) // 2] < 1e-10, "most differ by rounding only"


def test_steps_of_adam_in_double_precision_have_rates_in_double_precision(found: Found) -> None:
    for name in ("plain adam, far field", "plain adam, near field", "adam, everything"):
        assert found["problems"][name]["difference"][0] < 1e-11, name


def test_a_restored_state_is_equal(found: Found) -> None:
    assert not {name: one["restored"] for name, one in found["problems"].items() if one["restored"][0] != 0}


def test_pictures_and_patterns_are_the_cpus(found: Found) -> None:
    views = {name: one["views"] for name, one in found["problems"].items() if one["views"][1]}
    assert len(views) == 7
    assert not {name: one for name, one in views.items() if not one[0] < 1e-3}


def test_patterns_can_be_stored_anywhere(found: Found) -> None:
    for place, one in found["storages"].items():
        assert one["place"] == place
        assert one["difference"][0] < TOLERANCE, place


def test_patterns_can_come_during_the_run(found: Found) -> None:
    assert len(found["live"]) == 6
    for name, one in found["live"].items():
        assert one["difference"][0] < TOLERANCE, name


def test_no_sum_depends_on_an_order_that_is_not_fixed(found: Found) -> None:
    everything = found["problems"] | found["updates"]
    assert not {name: one["unordered"] for name, one in everything.items() if one["unordered"]}


@pytest.mark.parametrize("case", [name for name in update_cases.UPDATES if name != "whole steps"])
def test_an_update_waits_for_nothing(found: Found, case: str) -> None:
    one = found["updates"][case]
    assert one["most_waits"] <= update_cases.WAITING.get(case, 0), one["waits"]
    assert one["copies"] <= update_cases.COPYING.get(case, 1)


def test_a_line_search_waits_once_an_evaluation(found: Found) -> None:
    one = found["updates"]["whole steps"]
    # And three times an update: are the parameters those of the last evaluation, is the last step of use, the slope.
    assert one["most_waits"] <= 3 + one["evaluations"]


@pytest.mark.parametrize("case", [name for name in update_cases.UPDATES if name not in update_cases.VARYING])
def test_each_update_has_the_same_operations(found: Found, case: str) -> None:
    """Which a CUDA graph needs."""
    assert found["updates"][case]["same"]


@pytest.mark.parametrize("case", update_cases.UPDATES)
def test_repeats_are_equal_to_the_bit(found: Found, case: str) -> None:
    assert not found["updates"][case]["differing"]


@pytest.mark.parametrize("case", update_cases.COUNTED)
def test_launches_and_bytes(found: Found, case: str) -> None:
    *_, launches, moved = update_cases.COUNTED[case]
    one = found["counted"][case]
    assert one["launches"] <= launches
    assert one["bytes"] <= moved


def test_waits_between_epochs(found: Found) -> None:
    one = found["epoch end"]
    assert len(one["waits"]) == EPOCH_WAITS, one["waits"]
    assert len(one["r_factor"]) == 1, "one for all batches"
    assert one["batches"] == 1, "of as many patterns as the memory allows"
