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
import traitlets
from ptynb.widgets.element_tree import Element, command
seen = []
class Field(Element):
    component = "field"
    text, button = traitlets.Unicode().tag(sync=True), traitlets.Any().tag(sync=True)
    @command
    def click(self):
        seen.append((field.text, threading.current_thread().name))
button = Field()
field = Field(button=button)
page = field.widget
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
    channel, text, button = ask(kernel, "page.channel, field.key, button.key")
    typed, clicked = (
        {"to": text, "set": {"text": "10"}, "from": "page"},
        {"to": button, "command": "click", "arguments": {}},
    )
    for content in (typed, clicked):
        data = {"method": "custom", "content": content}
        message = kernel.session.msg("comm_msg", {"comm_id": channel, "data": data})
        message["header"]["subshell_id"] = subshell
        kernel.shell_channel.send(message)
    assert wait_until(lambda: ask(kernel, "seen"), 20)
    assert ask(kernel, "seen") == [("10", f"subshell-{subshell}")]
