"""Count the files of ptynb that a command passes in the kernel's process until it is sent to an engine."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import ptynb
from ptynb.cluster.direct_calls import DirectCalls
from ptynb.data.commands import Command
from ptynb.serial_executor import SerialExecutor
from ptynb.widgets.actions import Actions

PACKAGE = Path(ptynb.__file__).parent
QUEUES = (SerialExecutor, "submit"), (Actions, "put")
"""Methods that take work which another thread does: their callers pass the command on."""


def files_until_sent(act: Callable[[], object], kind: type[Command], seconds: float = 30.0) -> list[str]:
    """The files that pass on the command of this kind which `act` causes, from there to the send.

    A file counts where one of its functions is on the stack when a connection to the engine gets the command.
    Where work is put into a queue for another thread, the stack of that moment counts too, and the queue's file.
    Functions that have returned by then, such as a check of settings, do not pass the command on and do not count.
    """
    files: set[str] = set()
    sent = threading.Event()

    def add(frame: FrameType | None) -> None:
        while frame is not None and not sent.is_set():
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                files.add(str(path.relative_to(PACKAGE)))
            frame = frame.f_back

    def watched(method: Callable[..., Any], file: str = "") -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if file:
                add(sys._getframe())
                files.add(file)
            elif any(isinstance(one, kind) for part in arguments[1:2] for one in part):
                add(sys._getframe())
                sent.set()
            return method(*arguments, **options)

        return call

    with contextlib.ExitStack() as patches:
        for owner, name in QUEUES:
            file = str(Path(sys.modules[owner.__module__].__file__ or "").relative_to(PACKAGE))
            patches.enter_context(patch.object(owner, name, watched(getattr(owner, name), file)))
        send = watched(DirectCalls.begin)  # of connections, the arguments ...
        patches.enter_context(patch.object(DirectCalls, "begin", send))
        act()
        assert sent.wait(seconds), f"no {kind.__name__} was sent"
    return sorted(files)
