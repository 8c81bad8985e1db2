"""`ptynb run` on a cluster: start or resume, show progress, write the result, checkpoint on a signal.

A scan that is received while it is measured is reconstructed here without a cluster, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from ptynb.batch.live_scan import check_listening, live_scan, still_received
from ptynb.batch.signals import Leaving, signals_raise
from ptynb.batch.torchrun import INTERRUPTED, check_folder, first_state, go_on
from ptynb.cluster.cluster import Cluster
from ptynb.data.record import STOPPED
from ptynb.data.scan import Scan
from ptynb.io.checkpoint_file import is_of
from ptynb.io.run_file_scan import scan_of
from ptynb.progress import follow, follow_live, log
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.resume import resume as resume_from
from ptynb.settings.cluster_options import AnyCluster
from ptynb.settings.run_files.run_file import RunFile


def run(plan: RunFile, resume: bool, again: str) -> int:
    """Perform the whole run and return its exit status: 0, or 130 if a signal ended it.

    Engines are started before a scan that is to be received: they are ready when it begins.

    again: the command that continues the run, for messages. Raises the error that ended the run.
    """
    console = Console()
    check_folder(plan)
    start = first_state(plan, resume, console)
    to_receive = check_listening(plan, resume)
    scan = None if plan.listen is not None else scan_of(plan)
    with signals_raise():
        try:
            with _engines(plan, console) as cluster:
                if plan.listen is not None and start is None:
                    scan = live_scan(plan.listen, to_receive, console)
                recon = _opened(plan, scan, cluster, start)
                try:
                    _run(recon, plan, console, resumed=start is not None)
                except BaseException:
                    _save_checkpoint(recon)
                    if note := still_received(recon.scan):
                        log(console, note)
                    log(console, go_on(*_latest_checkpoint(recon), again))
                    raise
                finally:
                    if cluster is None:
                        recon.close(result=False)
        except Leaving:
            return INTERRUPTED
    return 0


@contextlib.contextmanager
def _engines(plan: RunFile, console: Console) -> Iterator[Cluster | None]:
    """Start the cluster of the run; None if this process reconstructs."""
    if plan.cluster.kind == "none":
        yield None
        return
    with start_cluster(plan.cluster, lambda news: log(console, news)) as cluster:
        yield cluster


def _opened(plan: RunFile, scan: Scan | None, cluster: Cluster | None, start: Path | None) -> Reconstruction:
    """Open the reconstruction. scan: None: that of the checkpoint `start`, with what has come of it since."""
    recipe = plan.recipe.model_copy(update={"prepare": ()})  # the scan is prepared
    device = "auto" if cluster is not None else plan.cluster.device
    keep: dict[str, Any] = {"checkpointing": plan.checkpointing, "on_failure": plan.on_failure}
    if start is None:
        assert scan is not None
        return Reconstruction(scan, recipe, cluster, device=device, **keep)
    return resume_from(start, scan, cluster, device=device, settings=recipe, **keep)


def start_cluster(chosen: AnyCluster, report: Callable[[str], None]) -> Cluster:
    """Start a cluster of this kind. report: called with what it waits for, such as a queue. Raises ClusterError."""
    given = chosen.model_dump(exclude={"kind"}, exclude_none=True)
    if chosen.kind == "local":
        return Cluster(given.pop("engines", None), **given)
    if chosen.kind == "slurm":
        given["report"] = report
    cluster: Cluster = getattr(Cluster, chosen.kind)(**given)
    return cluster


def _run(recon: Reconstruction, plan: RunFile, console: Console, *, resumed: bool) -> None:
    news = News(recon, console)
    recon.warns = False  # the notices are told
    if plan.listen is None or resumed:
        recon.wait()  # until the patterns are read, and the checkpoint
    log(console, f"{recon.scan.name}: {recon.engines}, batch {recon.batch}")
    if plan.listen is None:
        follow(recon, plan.epochs, console, news.tell)
    elif (missing := plan.epochs - recon.epoch + _live_epochs(recon)) > 0:
        follow_live(recon, missing, console, news.tell)
    news.tell()
    target = plan.epochs + _live_epochs(recon)
    if recon.stopped:
        log(console, f"Stopped after epoch {recon.epoch} of {target}: {recon.stopped}.")
    elif recon.epoch < target:
        log(console, f"Stopped from elsewhere after epoch {recon.epoch} of {target}; the result is of that.")
    path = recon.save(plan.result)
    _save_checkpoint(recon)  # for a --resume with more epochs
    result = recon.result
    log(console, f"Loss {result.losses[-1]:.5g}, R-factor {result.r_factor:.4f}. Result: {path}")


def _live_epochs(recon: Reconstruction) -> int:
    """Return the number of epochs in which further patterns could come, beside which those of a run are counted."""
    status = recon.last_status()
    return 0 if status is None else status.live_epochs


class News:
    """Reports, once each, failures that did not end the run, and changes by other processes."""

    def __init__(self, recon: Reconstruction, console: Console) -> None:
        self._recon, self._console = recon, console
        self._told, self._changes = set[str](), len(recon.changes)

    def tell(self) -> None:
        """Report what is new."""
        notices, changes = self._recon.notices, self._recon.changes
        for notice in notices:
            if notice not in self._told:
                self._told.add(notice)
                log(self._console, notice)
        for change in changes[self._changes :]:
            if change.name != STOPPED:  # reported at the end of the run
                log(self._console, f"After epoch {change.epoch}: {change.name}: {change.old} -> {change.new}")
        self._changes = len(changes)


def _save_checkpoint(recon: Reconstruction) -> None:
    """Stop and save a checkpoint, unless it is saved already or the reconstruction failed or is closed."""
    if recon.failure is not None or recon.closed:
        return
    recon.stop()
    status, latest = recon.last_status(), recon.latest_checkpoint
    if status is None or (latest is not None and is_of(latest, status.epoch, status.update)):
        return
    if status.epoch or status.update:
        recon.save_checkpoint()


def _latest_checkpoint(recon: Reconstruction) -> tuple[str | None, int | None]:
    status, latest = recon.last_status(), recon.latest_checkpoint
    return (None, None) if latest is None or status is None else (str(latest), status.checkpoint_epoch)
