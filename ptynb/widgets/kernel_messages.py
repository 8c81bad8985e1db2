"""Messages of a page to its kernel are handled in the order in which the page sends them.

JupyterLab has one thread of the kernel (a subshell) handle what widgets send. ipykernel 7.4 hands the messages of a
widget to the thread that changed this widget last instead: a typed value went to one thread, the click on the button
after it to another, and on a machine with much else to do 4 of 47 clicks came first.
"""

from __future__ import annotations

import importlib
import sys


def keep_order() -> None:
    """Let the kernel of this process, if it is one, handle the messages of pages where JupyterLab sends them."""
    ipython, ipykernel = sys.modules.get("IPython"), sys.modules.get("ipykernel.iostream")
    if ipython is None or ipykernel is None:
        return
    thread = getattr(getattr(ipython.get_ipython(), "kernel", None), "iopub_thread", None)
    if isinstance(thread, ipykernel.IOPubThread):
        # Without a last thread, messages go where JupyterLab sends them; answers to requests are found by their number.
        importlib.import_module("ipykernel.comm.comm").BaseComm._reply_subshell_id = property(_unknown, _unnoted)


def _unknown(comm: object) -> None:
    raise AttributeError("_reply_subshell_id")


def _unnoted(comm: object, subshell: str | None) -> None:
    """Forget the thread."""
