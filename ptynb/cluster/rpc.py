"""Calls of functions on the engines of a cluster, through ipyparallel, or directly where kernel and engine can."""

from __future__ import annotations

import contextlib
import json
import pickle
import queue
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipyparallel
from ipyparallel.client.futures import MessageFuture
from ipyparallel.error import EngineError, RemoteError

from ptynb.cluster.direct_calls import DirectAnswer, DirectCalls, receive_in_thread, socket_of
from ptynb.cluster.engine_main import REMEMBERED_SIGNATURES
from ptynb.cluster.error_messages import summarize
from ptynb.distributed.timeouts import RunningTime
from ptynb.engine import run_registry
from ptynb.exceptions import ClusterError, ClusterStoppedError, EngineLostError
from ptynb.polling import wait_until
from ptynb.serial_executor import held_back, waiting
from ptynb.supervised_thread import SupervisedThread

NOTICE_SECONDS = 0.5
"""Period at which a waiting call checks whether the cluster was stopped, or the engine lost."""
ENDING_SECONDS = 1.0
"""Time limit for the end of the process of an engine that is lost, after which more is known about it [s]."""

PUBLISHED = "ptynb_published"
"""Type of the messages that an engine publishes through the controller, signed as all others."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences for colours in a terminal."""


class Caller:
    """Connection to the controller, and the ranks of its engines.

    lost: returns why a rank's engine is lost, or "" (possibly earlier than the controller notices).
    """

    def __init__(self, connection: Path, timeout: float, lost: Callable[[int], str]) -> None:
        # Without them the client makes a folder of IPython in the user's home, with the umask's permissions.
        folders = {"ipython_dir": str(connection.parent), "profile_dir": str(connection.parent.parent)}
        self._client = ipyparallel.Client(str(connection), timeout=int(timeout) or 1, **folders)
        self._client.session.digest_history_size = REMEMBERED_SIGNATURES
        self._folder, self._lost = connection.parent.parent, lost
        self._direct = dict[int, DirectCalls | None]()
        """Connections by rank; None: calls go through the controller."""
        self._engine_of: dict[int, int] = {}
        self._gone: set[int] = set()
        self._closed = False
        self._listening = set[Callable[[], None]]()

    def give_up(self, rank: int) -> None:
        """Forget the engine of this rank, also if the controller has not noticed its end yet."""
        engine = self._engine_of.pop(rank, None)
        if engine is not None:
            self._gone.add(engine)
        self._disconnect(rank)

    def ranks(self) -> list[int]:
        """Ranks of the engines that are registered with the controller."""
        known = set(self._client.ids)
        return sorted(rank for rank, engine in self._engine_of.items() if engine in known)

    def find(self, timeout: float = 60.0) -> dict[int, dict[str, Any]]:
        """Request the descriptions of engines that registered since the last call; return them by rank.

        Engines get ids in the order in which they register, and have ranks of their own. Raises ClusterError if two
        running engines have the same rank.
        """
        known = set(self._client.ids) - self._gone
        self._engine_of = {rank: engine for rank, engine in self._engine_of.items() if engine in known}
        requests = {
            engine: self._client[engine].apply_async(run_registry.describe)
            for engine in known - set(self._engine_of.values())
        }
        found: dict[int, dict[str, Any]] = {}
        until = time.monotonic() + timeout
        for engine, answer in requests.items():
            try:
                description = answer.get(max(0.0, until - time.monotonic()))
            except (EngineError, RemoteError, TimeoutError):
                continue  # it ended meanwhile, or does not answer: a call to it raises an error
            finally:
                _forget(self._client, answer)
            if description["rank"] in found or description["rank"] in self._engine_of:
                raise ClusterError(
                    f"Two engines have the rank {description['rank']}; stop the cluster and start a new one.",
                    code="cluster.duplicate-rank",
                )
            found[description["rank"]] = description
            self._engine_of[description["rank"]] = engine
            self._disconnect(description["rank"])  # from the engine that this one replaces
        return found

    def call_all(
        self,
        ranks: Sequence[int],
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        timeout: float,
    ) -> list[Any]:
        """Call the function on these ranks at the same time, each with its own arguments; waits for all of them.

        Raises EngineLostError if an engine is lost, ClusterError for its error or if it does not answer.
        """
        pending: list[tuple[int, Any]] = []
        failures: list[ClusterError] = []
        with held_back():  # an interrupt must not leave some engines without the call
            for rank, own in zip(ranks, arguments, strict=True):
                try:
                    pending.append((rank, self._view(rank).apply_async(function, *own)))
                except EngineLostError as error:
                    failures.append(error)
        waited = RunningTime()
        answers = []
        for rank, answer in pending:  # wait for all, also after one has failed
            try:
                answers.append(self._answer(rank, answer, waited, timeout))
            except ClusterError as error:
                failures.append(error)
            finally:
                _forget(self._client, answer)
        if failures:
            raise failures[0]
        return answers

    def call_worker(self, rank: int, arguments: tuple[Any, ...], timeout: float) -> Any:
        """Call `run_registry.call_worker` on this rank, directly if possible. Raises as `call_all`."""
        with held_back():
            answer = self._begin(rank, arguments)
        if answer is None:
            return self.call_all([rank], run_registry.call_worker, [arguments], timeout)[0]
        try:
            return self._answer(rank, answer, RunningTime(), timeout)
        finally:
            answer.release()

    def _begin(self, rank: int, arguments: tuple[Any, ...], follows: bool = False) -> DirectAnswer | None:
        """Begin a direct call; None if there is no connection to this engine."""
        try:
            if rank not in self._direct:
                direct: DirectCalls | None = DirectCalls(socket_of(self._folder, rank))
                self._direct[rank] = direct
            else:
                direct = self._direct.get(rank)
            return None if direct is None else direct.begin(arguments, follows)
        except OSError:
            self._disconnect(rank)
            self._direct[rank] = None
            return None

    def _disconnect(self, rank: int) -> None:
        if direct := self._direct.pop(rank, None):
            direct.close()

    def follow_worker(
        self,
        rank: int,
        arguments: tuple[Any, ...],
        receive: Callable[..., None],
        ended: Callable[[], None],
        timeout: float,
    ) -> Callable[[], None]:
        """Call `run_registry.follow_worker` on this rank with a last argument that calls `receive` here with its own.

        Messages arrive in their order, in a thread of their own; what is sent while the connection is interrupted is
        lost. `ended` is called at the end of the worker or its process, if the connection is direct. Returns the
        function that ends this.
        """
        with held_back():
            answer = self._begin(rank, arguments, follows=True)
        if answer is None:
            return self._listen(rank, arguments, receive, timeout)
        try:
            self._answer(rank, answer, RunningTime(), timeout)
        except BaseException:
            answer.connection.close()
            raise

        end_receiving = receive_in_thread(answer.connection, receive, ended)

        def end() -> None:
            self._listening.discard(end)
            end_receiving()

        self._listening.add(end)
        return end

    def _listen(
        self, rank: int, arguments: tuple[Any, ...], receive: Callable[..., None], timeout: float
    ) -> Callable[[], None]:
        """Do the same through the controller: the engine publishes the messages."""
        name, come = secrets.token_hex(16), queue.SimpleQueue[Any]()
        header = {"msg_id": name, "session": self._client.session.session}
        future = MessageFuture(name, header=header)
        future.iopub_callbacks.append(come.put)
        self._client._futures[name] = future  # messages whose parent is this one go to its callbacks

        def end() -> None:
            self._listening.discard(end)
            self._client._futures.pop(name, None)
            self._client.metadata.pop(name, None)
            come.put(None)

        self._listening.add(end)
        SupervisedThread("ptynb listener", _pass_on, come, receive, restarts=True).start()
        try:
            self.call_all([rank], _follow_worker, [(header, *arguments)], timeout)
        except BaseException:
            end()
            raise
        return end

    def _answer(self, rank: int, answer: Any, waited: RunningTime, timeout: float) -> Any:
        try:
            self._wait(rank, answer, waited, timeout)
            return answer.get(0)
        except EngineError as error:
            if self._closed:
                raise _stopped() from None
            wait_until(lambda: self._lost(rank), ENDING_SECONDS)  # its connection ends before its process does
            why = self._lost(rank) or f"The engine of rank {rank} has died ({error})."
            raise EngineLostError(why, code="engine.lost") from None
        except RemoteError as error:
            if error.ename == "EngineError":  # raised by the controller for an engine that has ended
                why = self._lost(rank) or f"The engine of rank {rank} has died."
                raise EngineLostError(why, code="engine.lost") from None
            code, fields, text = "", [], f"{error.ename}: {error.evalue}"
            if error.ename == run_registry.EngineCallError.__name__:
                code, fields, text = json.loads(error.evalue)
            message = summarize(f"On the engine of rank {rank}: {text}", COLOURS.sub("", error.traceback))
            raise ClusterError(message, code=code or "engine.failed", fields=tuple(fields)) from None
        except TimeoutError:
            raise ClusterError(
                f"The engine of rank {rank} did not answer within {timeout:.0f} s.", code="engine.no-answer"
            ) from None

    def _wait(self, rank: int, answer: Any, waited: RunningTime, timeout: float) -> None:
        """Wait for an answer, the end of the cluster, or the loss of the engine."""
        while True:
            with waiting():
                if answer.wait(max(0.0, min(NOTICE_SECONDS, timeout - waited.seconds))):
                    return
            if self._closed:
                raise _stopped()
            if why := self._lost(rank):
                raise EngineLostError(why, code="engine.lost")
            if self._engine_of.get(rank) not in self._client.ids:
                raise EngineLostError(f"The engine of rank {rank} cannot be reached any more.", code="engine.lost")
            if waited.seconds > timeout:
                return

    def _view(self, rank: int) -> ipyparallel.DirectView:
        if why := self._lost(rank):
            raise EngineLostError(why, code="engine.lost")
        engine = self._engine_of.get(rank)
        if engine is None or engine not in self._client.ids:  # the controller noticed first
            raise EngineLostError(
                f"The engine of rank {rank} has died, or cannot be reached any more.", code="engine.lost"
            )
        return self._client[engine]

    def shut_down(self) -> None:
        """Request all engines to end, without waiting for them."""
        with contextlib.suppress(Exception):  # the controller may be gone
            self._client.shutdown(block=False)

    def close(self) -> None:
        """End the connection; calls under way raise ClusterStoppedError."""
        self._closed = True
        for end in [*self._listening]:
            end()
        for rank in [*self._direct]:
            self._disconnect(rank)
        self._client.close()


def _follow_worker(header: dict[str, str], name: str, known: int) -> None:
    """Publish the status of a worker on its engine, as replies to this header."""
    from ipykernel.zmqshell import ZMQInteractiveShell  # the process of the session may have no kernel

    kernel = ZMQInteractiveShell.instance().kernel

    def publish(*values: Any) -> None:
        kernel.session.send(
            kernel.iopub_socket, PUBLISHED, {}, {"header": header}, b"ptynb", [pickle.dumps(values)]
        )  # by the thread that sends what engines print, so that any thread may call it

    run_registry.follow_worker(name, known, publish)


def _pass_on(come: queue.SimpleQueue[Any], receive: Callable[..., None]) -> None:
    while (message := come.get()) is not None:
        if message["msg_type"] == PUBLISHED:
            receive(*pickle.loads(message["buffers"][0]))


def _stopped() -> ClusterStoppedError:
    return ClusterStoppedError("The cluster was stopped during the call.", code="cluster.stopped")


def _forget(client: ipyparallel.Client, answer: Any) -> None:
    """Remove the client's records of a call once it is answered, which would be kept until the client is closed."""

    def drop(_: Any) -> None:
        for message in answer.msg_ids:
            for records in (client.results, client.metadata, client._futures, client._output_futures):
                records.pop(message, None)
            with contextlib.suppress(ValueError):
                client.history.remove(message)

    answer.add_done_callback(drop)  # at once if it is answered
