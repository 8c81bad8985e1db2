"""A real kernel, a reader of its messages that is late, and a page that sends a value and a click after it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import zmq
from jupyter_client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from ptynb.polling import wait_until
from tests.widgets.test_lab import ask

MAKE = """
import ipywidgets
import ptynb.widgets
made = [ipywidgets.Label(value=" " * 1000) for _ in range(3000)]
"""
FORM = """
import threading
from ptynb.widgets import elements
text, button, seen = elements.Text(), elements.Button(), []
button.on_click(lambda _: seen.append((text.value, threading.current_thread().name)))
page = elements.HBox([text, button]).widget
"""
OPENED = b'"comm_open"'


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_a_late_reader_gets_all_widgets(kernel: BlockingKernelClient) -> None:
    """As a notebook's server that is held up while a workbench is made; a socket drops what it has no room for."""
    reader: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    try:
        reader.rcvhwm = 1  # what waits, waits in the kernel
        facts = kernel.get_connection_info()
        reader.connect(f"tcp://{facts['ip']}:{facts['iopub_port']}")
        reader.subscribe(b"")
        time.sleep(0.5)  # until the kernel knows of it
        kernel.execute(MAKE, reply=True, timeout=60)
        opened, made = 0, ask(kernel, "len(made) * 3")
        while opened < made and reader.poll(20_000):
            opened += any(OPENED in part for part in reader.recv_multipart())
        assert opened == made
    finally:
        reader.close(0)


def test_a_click_comes_after_the_value_that_was_typed_before_it(kernel: BlockingKernelClient) -> None:
    """Both in the thread that JupyterLab names, whichever thread has changed the field or the button last."""
    kernel.execute(FORM, reply=True, timeout=60)
    kernel.control_channel.send(kernel.session.msg("create_subshell_request"))
    subshell = kernel.get_control_msg(timeout=20)["content"]["subshell_id"]
    channel, text, button = ask(kernel, "page.channel, text.key, button.key")
    typed, clicked = {"to": text, "set": {"value": "10"}, "from": "page"}, {"to": button, "content": {"click": True}}
    for content in (typed, clicked):
        data = {"method": "custom", "content": content}
        message = kernel.session.msg("comm_msg", {"comm_id": channel, "data": data})
        message["header"]["subshell_id"] = subshell
        kernel.shell_channel.send(message)
    assert wait_until(lambda: ask(kernel, "seen"), 20)
    assert ask(kernel, "seen") == [("10", f"subshell-{subshell}")]
