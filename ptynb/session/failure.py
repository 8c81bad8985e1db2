"""Cause of a failure: the rank that failed first, and the location of its error."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ptynb.cluster.error_explanations import explained
from ptynb.cluster.error_messages import MOST_LINES, summarize
from ptynb.data.engine_records import Failure, Status
from ptynb.exceptions import ClusterError, EngineLostError, ReconstructionError
from ptynb.polling import wait_until
from ptynb.session.engines import Engines

FAILURE_SECONDS = 3.0
"""Time limit for the reports of the other ranks after the first failure [s]."""
NOTICE_SECONDS = 1.0
"""The same if an engine is known to be lost [s]: the others notice at once, or not before the group's timeout."""
LOOK_SECONDS = 0.01
"""Period in which they are asked [s]; an answer takes 0.15 ms of a rank, or 4 ms through the controller."""
MESSAGE_LINES = MOST_LINES - 2
"""Largest number of lines of an engine's message; two more lines have the location in the code."""


HINTS = re.compile(
    r"Search for `cuda\w*' in |CUDA kernel errors might be asynchronously reported|For debugging consider passing CUDA_"
    r"|Compile with `TORCH_USE_CUDA_DSA`|Device-side assertion tracking was not enabled"
)
"""Lines for programmers that torch adds to each error of CUDA; they are in the file."""


@dataclass(frozen=True)
class Cause:
    """Cause of the end of a reconstruction. lost: an engine was lost, or did not answer, and `recover` may help."""

    text: str
    lost: bool
    code: str
    fields: tuple[str, ...] = ()

    def error(self, text: str = "") -> ReconstructionError:
        """Return the error of the reconstruction. text: instead of the own one."""
        return ReconstructionError(text or self.text, code=self.code, fields=self.fields)


def find_cause(engines: Engines, lost: Exception | None, received: Mapping[int, Failure]) -> Cause:
    """Return the error of the rank that failed first, not of one that only lost its connection to that rank.

    lost: error raised in the session, used if no engine reports one. received: the failures that ranks have sent, to
    which other threads add. The tracebacks of the ranks that have failed by then are written to a file.
    """
    failures, gone = dict[int, Failure](), dict[int, Exception]()
    noticed = time.monotonic() + NOTICE_SECONDS

    def known() -> bool:
        nonlocal failures, gone
        failures, gone, idle = _failures(engines, received)
        # A rank that makes no updates does not notice that another one is lost.
        complete = len(failures) + len(gone) + idle * bool(gone) == engines.world
        return bool(_causes(failures)) or complete or (bool(gone) and time.monotonic() > noticed)

    wait_until(known, FAILURE_SECONDS, LOOK_SECONDS)
    causes = _causes(failures)
    tracebacks = [f"Rank {one.rank}: {one.message}\n\n{one.traceback}" for one in failures.values()]
    logs = engines.logs()
    if causes:
        text = summarize(_first(causes[0]), "\n\n".join(tracebacks), logs)
        if causes[0].ends_engine:
            return Cause(explained(text), True, "engine.lost")
        return Cause(explained(text), False, causes[0].code or "engine.failed", causes[0].fields)
    if gone or isinstance(lost, EngineLostError):
        first = str(next(iter(gone.values()), lost))
        text = summarize(first, "\n\n".join([*map(str, gone.values()), *tracebacks]), logs)
        return Cause(explained(text), True, "engine.lost")
    if failures:
        silent = sorted({*range(engines.world)} - {*failures})
        if not silent:
            first = _first(next(iter(failures.values())))
            return Cause(explained(summarize(first, "\n\n".join(tracebacks), logs)), True, "engine.lost")
        stalled = ", ".join(str(rank) for rank in silent)
        head = f"Rank {stalled} did not keep up with the others, which stopped waiting after the timeout."
        stacks = [f"Rank {rank} is at\n{engines.stacks(rank)}" for rank in silent]
        return Cause(summarize(head, "\n\n".join([*stacks, *tracebacks]), logs), True, "engine.no-answer")
    return Cause(summarize(str(lost)), False, getattr(lost, "code", "") or "engine.failed", getattr(lost, "fields", ()))


def _causes(failures: Mapping[int, Failure]) -> list[Failure]:
    """Return the failures that are not the consequence of another rank's."""
    return [failure for failure in failures.values() if not failure.lost_group]


def _first(failure: Failure) -> str:
    """Return the message of a failure, and the location in the code at which it was raised."""
    lines = f"Rank {failure.rank}: {failure.message}".splitlines()
    message = [line for line in lines if not HINTS.match(line)][:MESSAGE_LINES]
    frames = [line for line in failure.traceback.splitlines() if line.startswith(("  File ", "    "))]
    last = max((at for at, line in enumerate(frames) if line.startswith("  File ")), default=0)
    return "\n".join([*message, *frames[last : last + 2]])


def _failures(
    engines: Engines, received: Mapping[int, Failure]
) -> tuple[dict[int, Failure], dict[int, Exception], int]:
    """Return the failures that engines report by rank, the errors of those that are lost or do not answer by rank, and
    the number of those that are ready or paused."""
    failures, gone, idle = {**received}, dict[int, Exception](), 0
    if _causes(failures):
        return failures, gone, idle
    for rank in [one for one in range(engines.world) if one not in failures]:
        try:
            status: Status = engines.call(rank, "status", 10**9, timeout=FAILURE_SECONDS)
        except EngineLostError as error:
            gone[rank] = error
        except ClusterError as error:
            gone[rank] = ClusterError(engines.suspended(rank) or str(error), code="engine.no-answer")
        else:
            if status.failure is not None:
                failures[rank] = status.failure
            idle += status.state in ("ready", "paused")
    return failures, gone, idle
