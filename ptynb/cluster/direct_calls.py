"""Calls of a worker's methods, and the status that it sends, through a socket of its engine on the kernel's machine.

Through ipyparallel's controller a call takes 4 ms: messages pass two further processes, and the engine's main thread.
Through this socket it takes 0.15 ms. It is in the cluster's folder, which only this user can open. An engine on another
machine has none that the kernel can reach, nor has one whose folder has a longer path than such sockets allow: these
are called through the controller.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import socket
import threading
import traceback
import weakref
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, final

from ipyparallel.error import EngineError, RemoteError

from ptynb.supervised_thread import SupervisedThread

WAITING_CONNECTIONS = 64
"""Number of connections that may wait until the engine accepts them, which it does at once."""
CONNECT_SECONDS = 0.5
"""Time limit of a connection [s]: a suspended engine accepts none, and its queue may be full."""
MOST_IDLE = 4
"""Number of connections of a kernel to an engine that are kept for further calls."""
MOST_UNSENT = 100
"""Number of messages that wait for a kernel that does not read, as a suspended one; further ones are lost, which it
notices by the numbers of epochs."""


def socket_of(folder: Path, rank: str | int) -> Path:
    """Return the path of the socket of an engine."""
    return folder / f"rank{rank}.calls"


# In the engine


def serve(path: Path, call: Callable[..., Any], follow: Callable[..., None]) -> None:
    """Answer calls of `call`, and of `follow`, whose last argument sends its arguments to the kernel, in threads."""
    if not hasattr(socket, "AF_UNIX"):  # Windows
        return
    with contextlib.suppress(OSError):  # the path is too long, or the file system has no sockets
        path.unlink(missing_ok=True)  # of the engine that this one replaces
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(WAITING_CONNECTIONS)
        SupervisedThread("ptynb calls", _accept, listener, call, follow, restarts=True).start()


def _accept(listener: socket.socket, call: Callable[..., Any], follow: Callable[..., None]) -> None:
    while True:
        connection = Connection(listener.accept()[0].detach())
        SupervisedThread("ptynb call", _answer_all, connection, call, follow).start()


def _answer_all(connection: Connection, call: Callable[..., Any], follow: Callable[..., None]) -> None:
    """Answer calls until the kernel closes the connection, or has ended."""
    with connection, contextlib.suppress(EOFError, OSError):
        while True:
            request, follows, arguments = connection.recv_bytes(), False, ()
            unsent = queue.SimpleQueue[bytes | None]()
            try:
                follows, arguments = pickle.loads(request)
                if follows:
                    arguments = (*arguments, _publisher(unsent))
                answer = pickle.dumps((True, (follow if follows else call)(*arguments)))
            except BaseException as error:  # noqa: BLE001 - goes to the caller
                answer = pickle.dumps((False, (type(error).__name__, str(error), traceback.format_exc())))
            del arguments  # the publisher
            connection.send_bytes(answer)
            if follows:
                while (message := unsent.get()) is not None:
                    connection.send_bytes(message)
                return


def _publisher(unsent: queue.SimpleQueue[bytes | None]) -> Callable[..., None]:
    """Return a function that adds its arguments to the messages, and whose end adds None."""

    def publish(*values: Any) -> None:
        if unsent.qsize() < MOST_UNSENT:
            unsent.put(pickle.dumps(values))

    weakref.finalize(publish, unsent.put, None)
    return publish


# In the kernel


def _connected(path: str) -> Connection:
    """Return a connection to an engine. Raises OSError if there is none, or it does not accept one."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no such sockets")
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(socket.socket(socket.AF_UNIX))
        own.settimeout(CONNECT_SECONDS)
        own.connect(path)
        own.setblocking(True)
        stack.pop_all()
        return Connection(own.detach())


class DirectCalls:
    """The connections of a kernel to an engine, one for each call under way."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if no engine of this machine has this socket."""
        self._path = str(path)
        self._lock = threading.Lock()
        self._idle = [_connected(self._path)]

    def begin(self, arguments: tuple[Any, ...], follows: bool = False) -> DirectAnswer:
        """Begin a call. Raises OSError if the engine has ended."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or _connected(self._path)
        connection.send_bytes(pickle.dumps((follows, arguments)))
        return DirectAnswer(connection, self._keep)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that no call uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


@final
class DirectAnswer:
    """The answer to a call, with the methods and errors of ipyparallel's `AsyncResult` that are used here."""

    def __init__(self, connection: Connection, keep: Callable[[Connection], None]) -> None:
        self.connection, self._keep = connection, keep
        self._was_taken = False

    def wait(self, seconds: float) -> bool:
        """Wait until the answer or the end of the engine is known; return False if that takes longer."""
        return self.connection.poll(seconds)

    def get(self, seconds: float) -> Any:
        """Return the answer. Raises TimeoutError, RemoteError for an error of the function, EngineError."""
        if not self.wait(seconds):
            raise TimeoutError
        try:
            succeeded, answer = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise EngineError(str(error) or "the connection to it has ended") from None
        self._was_taken = True
        if not succeeded:
            raise RemoteError(*answer)
        return answer

    def release(self) -> None:
        """Keep the connection for further calls, or close it if an answer may still come."""
        if self._was_taken:
            self._keep(self.connection)
        else:
            self.connection.close()


def receive_in_thread(
    connection: Connection, receive: Callable[..., None], ended: Callable[[], None]
) -> Callable[[], None]:
    """Call `receive` with the arguments of each message, in a thread, and return the function that ends this.

    ended: called at the end of what sends them, or of its process.
    """
    same = socket.socket(fileno=os.dup(connection.fileno()))
    ending = threading.Event()
    SupervisedThread("ptynb listener", _receive_all, connection, receive, ended, ending, restarts=True).start()

    def end() -> None:
        ending.set()
        with same, contextlib.suppress(OSError):
            same.shutdown(socket.SHUT_RDWR)  # to close it would not end the thread's wait

    return end


def _receive_all(
    connection: Connection, receive: Callable[..., None], ended: Callable[[], None], ending: threading.Event
) -> None:
    while not connection.closed:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            connection.close()
            if not ending.is_set():
                ended()
            return
        receive(*pickle.loads(message))
