"""Real processes that act as ranks, started once for many tests: each test forms its own group among them."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

import torch

from ptynb.distributed.group import Membership
from ptynb.distributed.rendezvous import close_store, open_store

ANSWER_SECONDS = 120


class Ranks:
    """Up to `most` processes with one thread each."""

    def __init__(self, most: int) -> None:
        started = [_start() for _ in range(most)]
        self._pipes = [pipe for pipe, _ in started]
        self._processes = [process for _, process in started]

    def run(
        self,
        world: int,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float = 30.0,
        present: int | None = None,
    ) -> list[Any]:
        """`function(membership, *arguments)` on `world` ranks (or only `present` of them); their answers by rank.

        They meet through a store that this process serves, as a cluster's engines do: by a file, one group in some
        thousand could not be formed.
        """
        store = open_store("127.0.0.1") if world > 1 else ""
        taking_part = self._pipes[: world if present is None else present]
        for rank, pipe in enumerate(taking_part):
            membership = Membership(
                rank=rank,
                world=world,
                store=store,
                backend="gloo" if world > 1 else "none",
                device="cpu",
                identity=f"CPU {rank}",
                timeout=timeout,
            )
            pipe.send((function, membership, arguments))
        answers = [self._answer(rank, pipe) for rank, pipe in enumerate(taking_part)]
        close_store(store)
        failures = [text for failed, text in answers if failed]
        if failures:
            self._begin_anew()  # what failed may have left half a group, at which every later test would fail too
        assert not failures, "\n".join(failures)
        return [answer for _, answer in answers]

    def _begin_anew(self) -> None:
        most = len(self._processes)
        self.close()
        started = [_start() for _ in range(most)]
        self._pipes = [pipe for pipe, _ in started]
        self._processes = [process for _, process in started]

    def _answer(self, rank: int, pipe: Connection) -> tuple[bool, Any]:
        if not pipe.poll(ANSWER_SECONDS):
            self._processes[rank].kill()
            self._pipes[rank], self._processes[rank] = _start()
            return True, f"rank {rank} did not answer within {ANSWER_SECONDS} s; it was killed"
        answer: tuple[bool, Any] = pipe.recv()
        return answer

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            if process.is_alive():
                pipe.send(None)  # to all before waiting for the first: they end beside each other
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
            process.close()


def _start() -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while (task := pipe.recv()) is not None:
        function, membership, arguments = task
        try:
            pipe.send((False, function(membership, *arguments)))
        except BaseException:  # noqa: BLE001 - the test process tells
            pipe.send((True, f"rank {membership.rank}:\n{traceback.format_exc()}"))
