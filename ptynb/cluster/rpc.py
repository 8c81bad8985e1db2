"""Calls of functions on the engines of a cluster, through ipyparallel."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipyparallel
from ipyparallel.error import EngineError, RemoteError

from ptynb.cluster.engine_main import REMEMBERED_SIGNATURES
from ptynb.cluster.errors import summarize
from ptynb.cluster.interrupts import held_back, waiting
from ptynb.distributed.timeouts import RunningTime
from ptynb.engine import registry
from ptynb.exceptions import ClusterError, ClusterStoppedError, EngineLostError

NOTICE_SECONDS = 0.5
"""How soon a call that waits for an answer notices that the cluster was stopped, or the engine lost."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What a terminal takes for colours, and nothing else does."""


class Caller:
    """The connection to the controller, and which of its engines has which rank.

    lost: says of a rank why its engine is known to be lost, or "" (it may know earlier than the controller).
    """

    def __init__(self, connection: Path, timeout: float, lost: Callable[[int], str]) -> None:
        self._client = ipyparallel.Client(str(connection), timeout=int(timeout) or 1)
        self._client.session.digest_history_size = REMEMBERED_SIGNATURES
        self._lost = lost
        self._engine_of: dict[int, int] = {}
        self._gone: set[int] = set()
        self._closed = False

    def give_up(self, rank: int) -> None:
        """Another engine is to have this rank; the controller may not know yet that the old one is gone."""
        engine = self._engine_of.pop(rank, None)
        if engine is not None:
            self._gone.add(engine)

    def ranks(self) -> list[int]:
        """Of the engines that the controller knows."""
        known = set(self._client.ids)
        return sorted(rank for rank, engine in self._engine_of.items() if engine in known)

    def find(self, timeout: float = 60.0) -> dict[int, dict[str, Any]]:
        """Asks engines that have come since the last time what they are; their answers by rank, in `timeout` seconds.

        Engines get ids in the order in which they come, ranks are their own. Raises ClusterError where two that live
        have the same rank.
        """
        known = set(self._client.ids) - self._gone
        self._engine_of = {rank: engine for rank, engine in self._engine_of.items() if engine in known}
        asked = {
            engine: self._client[engine].apply_async(registry.describe)
            for engine in known - set(self._engine_of.values())
        }
        found: dict[int, dict[str, Any]] = {}
        until = time.monotonic() + timeout
        for engine, answer in asked.items():
            try:
                said = answer.get(max(0.0, until - time.monotonic()))
            except (EngineError, RemoteError, TimeoutError):
                continue  # it left meanwhile, or does not listen: whoever needs it will see that it is not there
            finally:
                _forget(self._client, answer)
            if said["rank"] in found or said["rank"] in self._engine_of:
                raise ClusterError(f"Two engines have the rank {said['rank']}; stop the cluster and start a new one.")
            found[said["rank"]] = said
            self._engine_of[said["rank"]] = engine
        return found

    def call_all(
        self,
        ranks: Sequence[int],
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        timeout: float,
    ) -> list[Any]:
        """Calls the function on these ranks at the same time, each with its own arguments; waits for all of them.

        Raises EngineLostError where an engine is gone, ClusterError for what it raised or if it does not answer.
        """
        pending: list[tuple[int, Any]] = []
        failures: list[ClusterError] = []
        with held_back():  # or some engines would be told and others not
            for rank, own in zip(ranks, arguments, strict=True):
                try:
                    pending.append((rank, self._view(rank).apply_async(function, *own)))
                except EngineLostError as error:
                    failures.append(error)
        waited = RunningTime()
        answers = []
        for rank, answer in pending:  # every one is waited for, also after one has failed
            try:
                answers.append(self._answer(rank, answer, waited, timeout))
            except ClusterError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return answers

    def _answer(self, rank: int, answer: Any, waited: RunningTime, timeout: float) -> Any:
        try:
            self._wait(rank, answer, waited, timeout)
            return answer.get(0)
        except EngineError as error:
            if self._closed:
                raise ClusterStoppedError("The cluster was stopped while it was asked.") from None
            raise EngineLostError(self._lost(rank) or f"The engine of rank {rank} has died ({error}).") from None
        except RemoteError as error:
            if error.ename == "EngineError":  # the controller's word for it
                raise EngineLostError(self._lost(rank) or f"The engine of rank {rank} has died.") from None
            told = f"On the engine of rank {rank}: {error.ename}: {error.evalue}"
            raise ClusterError(summarize(told, COLOURS.sub("", error.traceback))) from None
        except TimeoutError:
            raise ClusterError(f"The engine of rank {rank} did not answer within {timeout:.0f} s.") from None
        finally:
            _forget(self._client, answer)

    def _wait(self, rank: int, answer: Any, waited: RunningTime, timeout: float) -> None:
        """Waits for an answer, also while the cluster is stopped or the engine lost: then nobody would ever send it."""
        while True:
            with waiting():
                if answer.wait(max(0.0, min(NOTICE_SECONDS, timeout - waited.seconds))):
                    return
            if self._closed:
                raise ClusterStoppedError("The cluster was stopped while it was asked.")
            if why := self._lost(rank):
                raise EngineLostError(why)
            if self._engine_of.get(rank) not in self._client.ids:
                raise EngineLostError(f"The engine of rank {rank} can't be reached any more.")
            if waited.seconds > timeout:
                return

    def _view(self, rank: int) -> ipyparallel.DirectView:
        if why := self._lost(rank):
            raise EngineLostError(why)
        engine = self._engine_of.get(rank)
        if engine is None or engine not in self._client.ids:  # the controller has noticed before us
            raise EngineLostError(f"The engine of rank {rank} has died, or can't be reached any more.")
        return self._client[engine]

    def shut_down(self) -> None:
        """Asks all engines to end, without waiting for them."""
        with contextlib.suppress(Exception):  # a controller that is gone can't pass it on
            self._client.shutdown(block=False)

    def close(self) -> None:
        """Ends the connection; calls under way are told."""
        self._closed = True
        self._client.close()


def _forget(client: ipyparallel.Client, answer: Any) -> None:
    """Drops what the client keeps of a call, its answer too, once that has come: else for ever."""

    def drop(_: Any) -> None:
        for message in answer.msg_ids:
            for kept in (client.results, client.metadata, client._futures, client._output_futures):
                kept.pop(message, None)
            with contextlib.suppress(ValueError):
                client.history.remove(message)

    answer.add_done_callback(drop)  # at once where it is there
