"""A real kernel, and a reader of its messages that is late."""

from __future__ import annotations

import time

import zmq
from jupyter_client.manager import start_new_kernel

from tests.widgets.test_lab import ask

MAKE = """
import ipywidgets
import ptynb.widgets
made = [ipywidgets.Label(value=" " * 1000) for _ in range(3000)]
"""
OPENED = b'"comm_open"'


def test_a_late_reader_gets_all_widgets() -> None:
    """As a notebook's server that is held up while a workbench is made; a socket drops what it has no room for."""
    manager, client = start_new_kernel(kernel_name="python3")
    reader: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    try:
        reader.rcvhwm = 1  # what waits, waits in the kernel
        facts = client.get_connection_info()
        reader.connect(f"tcp://{facts['ip']}:{facts['iopub_port']}")
        reader.subscribe(b"")
        time.sleep(0.5)  # until the kernel knows of it
        client.execute(MAKE, reply=True, timeout=60)
        opened = 0
        while reader.poll(2000):
            opened += any(OPENED in part for part in reader.recv_multipart())
        assert opened == ask(client, "len(made) * 3")
    finally:
        reader.close(0)
        client.stop_channels()
        manager.shutdown_kernel(now=True)
