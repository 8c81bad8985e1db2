"""The self-test of a running cluster: distinct devices, correct sums, bandwidth and latency."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ptynb.cluster.engine_groups import RunningCluster, joining
from ptynb.cluster.error_explanations import explain, explained
from ptynb.distributed.group import is_echo
from ptynb.engine.group_selftest import attempt
from ptynb.exceptions import ClusterError
from ptynb.table import duration, gigabytes
from ptynb.text import counted, natural_order

MARGIN = 120.0
"""Additional time for imports, which are slow on a busy file server [s]."""


@dataclass(frozen=True)
class SelfTest:
    """Result of the self-test.

    devices: by rank. backend: "none" for one engine; reason: for its choice. bandwidth: of a ring all-reduce on the
    slowest rank [bytes/s], latency: of a small one [s]; None for one engine. seconds: duration. notes: messages on
    engines that compute more slowly than they could, with remedies.
    """

    world: int
    backend: str
    reason: str
    devices: tuple[str, ...]
    bandwidth: float | None
    latency: float | None
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The result as (name, value)."""
        devices = "; ".join(f"rank {rank}: {device}" for rank, device in enumerate(self.devices))
        found = [("World", counted(self.world, "engine")), ("Devices", devices), ("Exchange by", self.reason)]
        if self.bandwidth is not None and self.latency is not None:
            found += [("Bandwidth", f"{gigabytes(self.bandwidth)}/s"), ("Latency", duration(self.latency))]
        return (*found, ("Self-test", f"passed in {duration(self.seconds)}"))


def run_selftest(cluster: RunningCluster, timeout: float = 30.0) -> SelfTest:
    """Run the self-test on all engines of a running cluster without a reconstruction.

    timeout: longest time to wait for another rank [s]. Raises ClusterError with the cause and, if known, a remedy.
    """
    ranks = [*range(len(cluster))]
    with joining(cluster, timeout=timeout) as memberships:
        try:
            answers = cluster.call_all(ranks, attempt, [(one,) for one in memberships], timeout=timeout + MARGIN)
        except ClusterError as error:  # an engine is lost; its last messages are in its log
            text = explained(f"The self-test ended: {error}", last_words(cluster))
            raise error.retold(type(error), text) from error
    failures = {rank: message for rank, (findings, message) in enumerate(answers) if findings is None}
    if failures:
        raise ClusterError(_failed(failures, len(ranks), last_words(cluster)), code="cluster.selftest-failed")
    found = [findings for findings, _ in answers if findings is not None]
    return SelfTest(
        world=found[0].world,
        backend=found[0].backend,
        reason=cluster.plan.reason,
        devices=found[0].devices,
        bandwidth=min((one.bandwidth for one in found if one.bandwidth is not None), default=None),
        latency=max((one.latency for one in found if one.latency is not None), default=None),
        seconds=max(one.seconds for one in found),
        notes=_notes({rank: one.slow for rank, one in enumerate(found) if one.slow}),
    )


def _notes(slow: dict[int, str]) -> tuple[str, ...]:
    """Return each sentence once, with the ranks that it is about."""
    return tuple(
        f"{sentence} (rank {', '.join(str(rank) for rank, own in slow.items() if own == sentence)})"
        for sentence in dict.fromkeys(slow.values())
    )


def last_words(cluster: RunningCluster, lines: int = 50) -> str:
    """Return the last lines of the logs of the engines, with messages of NCCL (NCCL_DEBUG=WARN)."""
    logs = [] if cluster.folder is None else (cluster.folder / "log").glob("*rank*.log")
    ordered = sorted(logs, key=lambda log: natural_order(log.name))
    return "\n".join(
        line for log in ordered for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    )


def _failed(failures: dict[int, str], world: int, logs: str) -> str:
    """Return one message about the rank with the most informative failure."""

    # The lines below torch's message are a traceback of its own code.
    texts = {
        rank: re.split(r"\n(?:Traceback|Exception raised from|frame #)", text)[0] for rank, text in failures.items()
    }
    rank = min(failures, key=lambda rank: (is_echo(texts[rank]), explain(failures[rank]) is None, rank))
    words = texts[rank]
    sentence = re.sub(r"^(Runtime|Cluster|InvalidValue|Reconstruction)Error: ", "", " ".join(words.split()))
    known = explain(logs) if "NCCL error" in failures[rank] else None
    known = known or explain(failures[rank])
    message = f"The self-test of {counted(world, 'engine')} failed on rank {rank}: {sentence}"
    return message if known is None else f"{message} {known}"
