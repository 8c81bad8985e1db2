"""Ends what is left of a cluster on this machine: `python -m ptynb.cluster.lifetime.remote_cleanup CLUSTER [RANK]`, by
ssh.

Its engines, and what they started, are known by the cluster's name and a rank in their environment. Those that were
told to leave have the time to keep their state; what then still runs is killed.
"""

from __future__ import annotations

import sys

from ptynb.cluster.lifetime import watchdog

RANK = "PTYNB_RANK"
GRACE_SECONDS = 10.0


def marked(name: str, rank: str | None = None) -> list[tuple[int, float]]:
    """(process id, start time) of the engines of this cluster, or of one. This may be the controller's machine too."""
    return [
        (process.pid, process.create_time())
        for process, environment in watchdog.all_marked()
        if environment[watchdog.MARK] == name and RANK in environment and rank in (None, environment[RANK])
    ]


if __name__ == "__main__":
    watchdog.end(marked(*sys.argv[1:3]), GRACE_SECONDS)
