"""Messages between a kernel and its pages: none is lost, and those of a page are handled in its order.

A kernel publishes through a ZeroMQ socket that keeps 1000 messages for each reader, and drops further ones without an
error. Of 2600 messages within a second, 150 never arrived at a server that was held up meanwhile, as on a machine with
much else to do. A page asks again for messages that it has missed, but without its models it is missing for good.

JupyterLab has one thread of the kernel (a subshell) handle what widgets send. ipykernel 7.4 hands the messages of a
widget to the thread that changed this widget last instead: a typed value went to one thread, the click on the button
after it to another, and on a machine with much else to do 4 of 47 clicks came first.
"""

from __future__ import annotations

import importlib
import sys

MOST_WAITING = 20_000
"""Messages that a kernel keeps for a reader. Pictures are few, since pages confirm them."""


def keep_messages() -> None:
    """Let the kernel of this process, if it is one, keep its messages for late readers, and the order of a page's."""
    ipython, ipykernel = sys.modules.get("IPython"), sys.modules.get("ipykernel.iostream")
    if ipython is None or ipykernel is None:
        return
    thread = getattr(getattr(ipython.get_ipython(), "kernel", None), "iopub_thread", None)
    if isinstance(thread, ipykernel.IOPubThread):
        thread.schedule(lambda: setattr(thread.socket, "sndhwm", MOST_WAITING))  # a socket is of one thread
        # Without a last thread, messages go where JupyterLab sends them; answers to requests are found by their number.
        importlib.import_module("ipykernel.comm.comm").BaseComm._reply_subshell_id = property(_unknown, _unnoted)


def _unknown(comm: object) -> None:
    raise AttributeError("_reply_subshell_id")


def _unnoted(comm: object, subshell: str | None) -> None:
    """Forget the thread."""
