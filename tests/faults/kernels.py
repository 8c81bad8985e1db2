"""A real notebook kernel whose cells are interrupted as the stop button does it."""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

CELL_SECONDS = 60.0
COLOURS = re.compile("\x1b\\[[0-9;]*m")

PREPARING = """
import signal
get_ipython().InteractiveTB.set_mode('Minimal')
get_ipython().events.register('post_run_cell', lambda _: signal.signal(signal.SIGINT, signal.SIG_IGN))
"""
"""Minimal tracebacks: IPython takes its time for whole ones. SIGINT is ignored between two cells: where one comes while
ipykernel 7.4 answers, it ends or aborts all later cells."""


class CellError(Exception):
    """What a cell raised. name: of its class."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class Kernel:
    """A kernel that runs cells one after the other, as a notebook has it do."""

    def __init__(self, folder: Path) -> None:
        """folder: for marks that cells leave."""
        self._marks, self._count = folder, 0
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(CELL_SECONDS)
        self.run(PREPARING)

    @property
    def pid(self) -> int:
        """Of the kernel's process."""
        pid: int = self._manager.provisioner.pid  # type: ignore[union-attr]
        return pid

    def run(self, code: str) -> Any:
        """Runs a cell and returns what its last line printed, read as JSON. Raises CellError."""
        return self._outcome(self._client.execute(code))

    def interrupted(self, begun: str, after: float, again: float | None = None) -> float:
        """Runs a cell and interrupts it `after` seconds from its mark, and once more `again` seconds later.

        begun: its code, which calls `mark()` where it begins what is to be interrupted. Returns seconds from the last
        interrupt to the reply of the next cell. Fails where the cell ended otherwise than by the interrupt.
        """
        self._count += 1
        mark = self._marks / f"mark-{self._count}"
        message = self._client.execute(f"mark = __import__('pathlib').Path({str(mark)!r}).touch\n{begun}")
        until = time.monotonic() + CELL_SECONDS
        while not mark.exists():
            assert time.monotonic() < until, f"no mark: {begun}"
            time.sleep(0.005)
        time.sleep(after)
        self._manager.interrupt_kernel()
        if again is not None:
            time.sleep(again)
            self._manager.interrupt_kernel()
        started = time.monotonic()
        with pytest.raises(CellError) as ended:
            self._outcome(message)
        assert ended.value.name == "KeyboardInterrupt", str(ended.value)
        assert self.run("print(1)") == 1
        return time.monotonic() - started

    def _outcome(self, message: str) -> Any:
        printed = ""
        while True:
            said = _whole(lambda: self._client.get_iopub_msg(timeout=CELL_SECONDS))
            if said["parent_header"].get("msg_id") != message:
                continue
            if said["msg_type"] == "stream" and said["content"]["name"] == "stdout":
                printed += said["content"]["text"]
            if said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
                break
        reply = self._reply(message)
        if reply["status"] != "ok":
            raise CellError(reply.get("ename", reply["status"]), COLOURS.sub("", "\n".join(reply.get("traceback", []))))
        return json.loads(printed.splitlines()[-1]) if printed.strip() else None

    def _reply(self, message: str) -> dict[str, Any]:
        """Of a cell that has ended; ipykernel sends none where a second interrupt came while it answered the first."""
        while True:
            try:
                reply = _whole(lambda: self._client.get_shell_msg(timeout=0.5))
            except queue.Empty:
                return {"status": "error", "ename": "KeyboardInterrupt"}
            if reply["parent_header"]["msg_id"] == message:
                content: dict[str, Any] = reply["content"]
                return content

    def close(self) -> None:
        """Ends the kernel."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def _whole(get: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The next message; not one that an interrupt damaged while ipykernel signed it, which a server drops too."""
    while True:
        try:
            return get()
        except ValueError as error:
            if "Invalid Signature" not in str(error):
                raise
