"""What the session asks of its engines, and how often; engines that answer as they are told, in this process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ptynb.cluster.error_explanations import FAULT
from ptynb.data.engine_records import Failure, Pictures, RenderRequest, Status
from ptynb.exceptions import ClusterError, EngineLostError, ReconstructionError
from ptynb.session import engine_client as engine_client_module
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import Engines
from ptynb.session.run_spec import RunSpec
from ptynb.settings import Settings
from tests.cases import a_scan
from tests.cluster.test_error_messages import file_of
from tests.raising import raises

PICTURES = Pictures(0, 0, (), ())


class Told:
    """Two engines, whose answers are given one after the other; `asked` is what was asked of whom."""

    name, world, signal = "told", 2, ""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = [*answers], list[tuple[int, str]]()

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        self.asked.append((rank, method))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def lost(self) -> str:
        return ""

    def suspended(self, rank: int) -> str:
        return self.signal

    def logs(self) -> list[Path]:
        return []


def status(epoch: int = 0, failure: Failure | None = None) -> Status:
    return Status(
        rank=0,
        world=2,
        state="running",
        epoch=epoch,
        updates_per_epoch=4,
        target=9,
        device="CPU 0",
        backend="gloo",
        threads=1,
        rates={},
        applied=0,
        failure=failure,
    )


def linked(*answers: Any) -> tuple[EngineClient, Told]:
    engines = Told(*answers)
    return EngineClient(cast(Engines, engines), RunSpec(a_scan(), Settings(), b"", None, 60.0, "pause", 0.0)), engines


def test_engines_that_are_all_silent_for_a_while_are_asked_again() -> None:
    silent = ClusterError("The engine of rank 0 did not answer within 5 s.")
    client, engines = linked(silent, silent, silent, silent, status(3))
    assert client.fetch().epoch == 3
    assert engines.asked == [(0, "status"), (1, "status")] * 2 + [(0, "status")]
    assert client.failure is None


def test_silence_ends_the_waiting_but_not_while_a_signal_holds_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_client_module, "MOST_SILENCE", -1.0)
    silent = ClusterError("The engine of rank 0 did not answer within 5 s.")
    client, _ = linked(silent, silent)
    with pytest.raises(ClusterError, match="did not answer within 5 s"):
        client.fetch()
    client, engines = linked(*[silent] * 6, status(3))
    engines.signal = "The cluster's controller does not answer: its process is held by a signal."
    assert client.fetch().epoch == 3
    assert client.failure is None


def test_an_engine_that_is_found_lost_while_rank_0_is_silent_ends_it() -> None:
    gone = EngineLostError("The engine of rank 1 has died.")
    client, _ = linked(ClusterError("silent"), gone, *[status(), gone] * 20)
    with raises("engine.lost", "rank 1"):
        client.fetch()


def test_a_look_brings_the_status_and_nobody_else_asks_for_it_meanwhile() -> None:
    client, engines = linked((PICTURES, status(5)), status(6))
    assert client.look(RenderRequest()) is PICTURES
    assert client.statuses[0].epoch == 5
    assert client.fetch(within=60).epoch == 5
    assert engines.asked == [(0, "look")]
    assert client.fetch().epoch == 6


def test_a_failure_that_a_look_brings_is_asked_for_at_once() -> None:
    failure = Failure(0, "ValueError: no such thing", "")
    client, engines = linked((PICTURES, status(5, failure)), status(5, failure), status(5, failure), status(5, failure))
    client.look(RenderRequest())
    with raises("engine.failed", "no such thing"):
        client.fetch(within=60)
    assert engines.asked[:2] == [(0, "look"), (0, "status")]


def test_the_code_of_the_cause_is_that_of_the_error() -> None:
    failure = Failure(1, "ScanError: Pattern 80 has the count nan", "", code="array.not-finite")
    client, _ = linked(status(), *[status(), status(5, failure)] * 20)
    client.fail(None, 0)
    assert client.failure is not None
    assert client.failure.code == "array.not-finite"


def test_an_engine_that_ends_because_its_gpu_is_lost_can_be_replaced_and_the_hints_of_torch_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    # As torch says it: pytorch/helion#867.
    text = (
        "AcceleratorError: CUDA error: an illegal memory access was encountered\n"
        "Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/cuda/... for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might "
        "be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
    )
    failure = Failure(1, text, "Traceback:\n", ends_engine=True)
    client, _ = linked(status(), *[status(), status(5, failure)] * 20)
    client.fail(None, 0)
    assert client.failure is not None
    assert client.can_recover
    assert client.failure.code == "engine.lost"
    first, place, explanation, *_ = str(client.failure).splitlines()
    assert first == "Rank 1: AcceleratorError: CUDA error: an illegal memory access was encountered"
    assert explanation == FAULT
    assert "TORCH_USE_CUDA_DSA" in file_of(place).read_text()


def test_of_several_failures_the_first_cause_is_told_and_the_others_are_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    frames = "".join(f'  File "module.py", line {number}, in function\n    call({number})\n' for number in range(50))
    echo = Failure(0, "RuntimeError: Connection closed by peer", f"Traceback:\n{frames}RuntimeError", True)
    message = "\n".join(["RuntimeError: CUDA error", *[f"frame #{number}" for number in range(40)]])
    cause = Failure(1, message, f"Traceback:\n{frames}RuntimeError")
    client, _ = linked(status(5, echo), status(5, echo), status(5, cause), *[status(5, echo), status(5, cause)] * 5)
    with pytest.raises(ReconstructionError) as raised:
        client.fetch()
    lines = str(raised.value).splitlines()
    assert lines[0] == "Rank 1: RuntimeError: CUDA error"
    assert lines[-3:-1] == ['  File "module.py", line 49, in function', "    call(49)"]
    assert len(lines) <= 10
    whole = file_of(str(raised.value)).read_text()
    assert whole.count("Traceback:") == 2
    assert "frame #39" in whole


def test_before_the_first_checkpoint_only_rank_0_is_asked_for_its_folder_if_it_answers() -> None:
    client, engines = linked(status())
    assert client.checkpoint_folder() is None
    assert engines.asked == [(0, "status")]


def test_the_folder_is_told_by_any_engine_if_rank_0_does_not_answer_or_failed() -> None:
    told = replace(status(), checkpoint_folder="/checkpoints")
    for silent in (ClusterError("no answer"), status(failure=Failure(0, "lost", ""))):
        client, engines = linked(silent, told)
        assert client.checkpoint_folder() == "/checkpoints"
        assert engines.asked == [(0, "status"), (1, "status")]
