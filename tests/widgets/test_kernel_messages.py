"""A real kernel, and a page that sends a value and a click after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

from ptynb.polling import wait_until
from tests.widgets.test_lab import ask

FORM = """
import threading
from ptynb.widgets import elements
text, button, seen = elements.Text(), elements.Button(), []
button.on_click(lambda _: seen.append((text.value, threading.current_thread().name)))
page = elements.HBox([text, button]).widget
"""


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    manager, client = start_new_kernel(kernel_name="python3")
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


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
