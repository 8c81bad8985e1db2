"""What the session records of what its engines send, and when it asks them; engines in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ptynb.cluster.error_explanations import FAULT
from ptynb.data.engine_records import Change, Epoch, Failure, Pictures, RenderRequest, Status
from ptynb.data.record import STOPPED
from ptynb.engine.status_publisher import Deliver
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
SILENT = ClusterError("The engine of rank 0 did not answer within 5 s.", code="engine.no-answer")


class Told:
    """Two engines, whose answers are given one after the other; `asked` is what was asked of whom."""

    name, world, signal, reachable, why = "told", 2, "", True, ""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = [*answers], list[tuple[int, str]]()
        self.deliver: Deliver = lambda status, known: None

    def call(self, rank: int, method: str, *arguments: Any, timeout: float = 60.0) -> Any:
        self.asked.append((rank, method))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def follow(self, receive: Deliver, known: int, ended: Callable[[], None]) -> None:
        self.deliver = receive

    def unfollow(self) -> None:
        pass

    def lost(self) -> str:
        return self.why

    def suspended(self, rank: int) -> str:
        return self.signal

    def logs(self) -> list[Path]:
        return []

    def close(self) -> None:
        pass


def status(epoch: int = 0, failure: Failure | None = None, known: int = 0, **more: Any) -> Status:
    """One of rank 0, with the records after the first `known` epochs."""
    values: dict[str, Any] = {
        "rank": 0,
        "world": 2,
        "state": "running",
        "epoch": epoch,
        "updates_per_epoch": 4,
        "target": 9,
        "device": "CPU 0",
        "backend": "gloo",
        "threads": 1,
        "rates": {},
        "applied": 0,
        "failure": failure,
        "epochs": tuple(Epoch(number, 1.0 / number, 0.1, 100.0) for number in range(known + 1, epoch + 1)),
        "number": epoch,
    }
    return Status(**{**values, **more})


def linked(*answers: Any) -> tuple[EngineClient, Told]:
    """Not looked after by its thread."""
    engines = Told(*answers)
    client = EngineClient(cast(Engines, engines), RunSpec(a_scan(), Settings(), b"", None, 60.0, "pause", 0.0))
    cast(threading.Event, client._looking).set()
    return client, engines


def numbers(client: EngineClient) -> list[int]:
    return [epoch.number for epoch in client.epochs]


def test_who_waits_goes_on_with_the_status_that_has_what_it_waits_for() -> None:
    client, engines = linked()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.wait_for, lambda: client.status().epoch == 2)
        engines.deliver(status(1), 0)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        engines.deliver(status(2, known=1), 1)
        assert waiting.result(5)
    assert numbers(client) == [1, 2]
    with pytest.raises(TimeoutError):
        client.wait_for(lambda: client.status().epoch == 3, time.monotonic() + 0.01)
    assert engines.asked == []


def test_what_was_lost_on_the_way_is_asked_for_once_the_next_status_shows_it() -> None:
    client, engines = linked(status(7, known=2))
    engines.deliver(status(2), 0)
    engines.deliver(status(6, known=5), 5)
    assert numbers(client) == [*range(1, 8)]
    assert engines.asked == [(0, "status")]
    engines.deliver(status(8, known=6), 6)  # sent before the answer, which had some of it
    assert numbers(client) == [*range(1, 9)]


def test_an_older_status_does_not_replace_a_newer_one() -> None:
    client, engines = linked()
    engines.deliver(status(2, state="ready"), 0)
    engines.deliver(status(2, number=1, state="running"), 0)
    assert client.status().state == "ready"


def replaced(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Other engines, which have made one epoch, in place of the present ones."""
    others = Told(0)
    monkeypatch.setattr(others, "follow", lambda receive, *_: receive(status(1), 0))
    monkeypatch.setattr(client.engines, "reopened", lambda *_: others, raising=False)
    client.open_from(client.spec, Path("state-00000.h5"), None, None)
    return others


def test_a_status_of_replaced_engines_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 answers while they are replaced."""
    client, engines = linked()

    def answer(*_: Any, **__: Any) -> tuple[Pictures, Status]:
        replaced(client, monkeypatch)
        return PICTURES, status(5)

    monkeypatch.setattr(engines, "call", answer)
    client.look_at(RenderRequest())
    assert (numbers(client), client.status().epoch) == ([1], 1)


@pytest.mark.parametrize("stopped", [False, True])
def test_other_engines_continue_a_run_unless_it_was_stopped(stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    client, engines = linked(0)
    engines.deliver(status(2), 0)
    client.begin(7)
    changes = (Change(3, 0, STOPPED, 9, "the loss decreased by 0.1%"),) if stopped else ()
    engines.deliver(status(3, known=2, changes=changes), 2)
    assert replaced(client, monkeypatch).asked == ([] if stopped else [(0, "command")])


def test_only_busy_engines_that_are_silent_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    client, engines = linked(status(1), status(2, known=1))
    client.look()
    assert engines.asked == []
    monkeypatch.setattr(engine_client_module, "ASKING_SECONDS", 0.0)
    client.look()
    client.look()
    assert numbers(client) == [1, 2]
    engines.deliver(status(2, number=3, state="ready"), 0)
    client.look()
    assert engines.asked == [(0, "status")] * 2


def test_silence_ends_the_waiting_but_not_while_a_signal_holds_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_client_module, "ASKING_SECONDS", 0.0)
    client, engines = linked(*[SILENT] * 2, status(3))
    client.look()
    assert engines.asked == [(0, "status")]
    monkeypatch.setattr(engine_client_module, "MOST_SILENCE", 0.0)
    engines.signal = "The cluster's controller does not answer: its process is held by a signal."
    client.look()
    engines.deliver(status(3), 0)
    assert client.status().epoch == 3
    client, engines = linked(SILENT, status(3))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.status)
        client.look()
        with pytest.raises(ClusterError, match="did not answer within 5 s"):
            waiting.result(5)
    client.look()  # it answers again
    assert client.status().epoch == 3


def test_waiting_ends_with_the_cluster_and_with_the_session() -> None:
    client, engines = linked()
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(client.status) for _ in range(2)]
        engines.reachable = False
        client.look()
        for one in waiting:
            with raises("cluster.stopped"):
                one.result(5)
        engines.reachable = True
        one = pool.submit(client.status)
        client.close()
        with raises("reconstruction.closed"):
            one.result(5)


def test_a_lost_engine_is_a_failure_for_who_waits_and_who_asks() -> None:
    client, engines = linked(*[status()] * 1000)
    engines.why = "The engine of rank 1 has died."
    client.look()
    with raises("engine.lost", "rank 1"):
        client.status()


def test_a_look_brings_the_status() -> None:
    client, engines = linked((PICTURES, status(5)))
    assert client.look_at(RenderRequest()) is PICTURES
    assert client.status().epoch == 5
    assert engines.asked == [(0, "look")]


def test_a_failure_that_another_rank_delivers_ends_it_without_a_question() -> None:
    client, engines = linked()
    engines.deliver(status(3), 0)
    engines.deliver(status(2, rank=1, number=10), 0)
    assert client.status().epoch == 3, "of rank 0"
    engines.deliver(status(0, Failure(1, "ValueError: no such thing", ""), rank=1, number=11), 0)
    assert str(client.failure).startswith("Rank 1: ValueError: no such thing")
    assert engines.asked == []


def test_a_rank_that_makes_no_updates_is_not_waited_for_after_the_loss_of_another() -> None:
    gone = EngineLostError("The engine of rank 0 has died.")
    client, engines = linked(*[gone, status(rank=1, state="ready")] * 2)
    engines.why = "The engine of rank 0 has died."
    client.look()
    assert str(client.failure).startswith("The engine of rank 0 has died.")
    assert engines.asked == [(0, "status"), (1, "status")] * 2, "once for the cause, and once for the checkpoints"


@pytest.mark.parametrize("recovering", [False, True])
def test_a_failure_that_is_delivered_ends_it(recovering: bool) -> None:
    """Also if it came during a recovery, after that."""
    failure = Failure(0, "ValueError: no such thing", "")
    client, engines = linked(*[status(5, failure)] * 2)
    if recovering:
        client.apart(lambda: engines.deliver(status(5, failure), 0))
        assert client.failure is None
        client.look()
    else:
        engines.deliver(status(5, failure), 0)
    with raises("engine.failed", "no such thing"):
        client.status()


def test_idle_time_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_client_module, "ASKING_SECONDS", 0.2)
    client, engines = linked()
    engines.deliver(status(2, state="ready"), 0)
    for _ in range(5):
        time.sleep(0.1)
        client.look()
    client._note_sent(1)
    client.look()
    assert engines.asked == []


def test_code_and_fields_of_the_cause_are_those_of_the_error() -> None:
    failure = Failure(1, "ScanError: The mask has nan", "", code="array.not-finite", fields=("mask",))
    client, _ = linked(*[status(), status(5, failure)] * 20)
    client.fail(None, 0)
    assert client.failure is not None
    assert (client.failure.code, client.failure.fields) == ("array.not-finite", ("mask",))


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
    client, _ = linked(*[status(), status(5, failure)] * 20)
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
    client, engines = linked(status(5, cause))
    engines.deliver(status(5, echo), 0)
    with pytest.raises(ReconstructionError) as raised:
        client.status()
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
