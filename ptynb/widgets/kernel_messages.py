"""Messages of a kernel to its pages: they wait for a notebook's server that is late.

A kernel publishes through a ZeroMQ socket that keeps 1000 messages for each reader, and drops further ones without an
error. A workbench is 2600 messages within a second: of a server that was held up meanwhile, as on a machine with much
else to do, 270 never arrived. A widget whose model is lost is missing for good, with all that are in the same box.
"""

from __future__ import annotations

import sys

MOST_WAITING = 20_000
"""Messages that a kernel keeps for a reader: several workbenches. Pictures are few, since pages confirm them."""


def keep_messages() -> None:
    """Let the kernel of this process, if it is one, keep its messages for readers that are late."""
    ipython, ipykernel = sys.modules.get("IPython"), sys.modules.get("ipykernel.iostream")
    if ipython is None or ipykernel is None:
        return
    thread = getattr(getattr(ipython.get_ipython(), "kernel", None), "iopub_thread", None)
    if isinstance(thread, ipykernel.IOPubThread):
        thread.schedule(lambda: setattr(thread.socket, "sndhwm", MOST_WAITING))  # a socket is of one thread
