"""`ptynb run` on a cluster: start or resume, show progress, write the result, checkpoint on a signal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ptynb.batch.signals import Leaving, signals_raise
from ptynb.batch.torchrun import INTERRUPTED, check_folder, first_state, go_on
from ptynb.cluster.cluster import Cluster
from ptynb.data.record import STOPPED
from ptynb.data.scan import Scan
from ptynb.io.checkpoint_file import is_of
from ptynb.io.run_file_scan import scan_of
from ptynb.progress import follow, log
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.resume import resume as resume_from
from ptynb.settings.cluster_options import AnyCluster
from ptynb.settings.run_file import RunFile


def run(plan: RunFile, resume: bool, again: str) -> int:
    """Perform the whole run and return its exit status: 0, or 130 if a signal ended it.

    again: the command that continues the run, for messages. Raises the error that ended the run.
    """
    console = Console()
    check_folder(plan)
    start = first_state(plan, resume, console)
    scan = scan_of(plan)
    with signals_raise():
        try:
            with start_cluster(plan.cluster, lambda news: log(console, news)) as cluster:
                recon = _opened(plan, scan, cluster, start)
                try:
                    _run(recon, plan, console)
                except BaseException:
                    _save_checkpoint(recon)
                    log(console, go_on(*_latest_checkpoint(recon), again))
                    raise
        except Leaving:
            return INTERRUPTED
    return 0


def _opened(plan: RunFile, scan: Scan, cluster: Cluster, start: Path | None) -> Reconstruction:
    recipe = plan.recipe.model_copy(update={"prepare": ()})  # the scan is prepared
    if start is None:
        return Reconstruction(scan, recipe, cluster, checkpointing=plan.checkpointing, on_failure=plan.on_failure)
    return resume_from(
        start, scan, cluster, settings=recipe, checkpointing=plan.checkpointing, on_failure=plan.on_failure
    )


def start_cluster(chosen: AnyCluster, report: Callable[[str], None]) -> Cluster:
    """Start a cluster of this kind. report: called with what it waits for, such as a queue. Raises ClusterError."""
    given = chosen.model_dump(exclude={"kind"}, exclude_none=True)
    if chosen.kind == "local":
        return Cluster(given.pop("engines", None), **given)
    if chosen.kind == "slurm":
        given["report"] = report
    cluster: Cluster = getattr(Cluster, chosen.kind)(**given)
    return cluster


def _run(recon: Reconstruction, plan: RunFile, console: Console) -> None:
    recon.wait()  # until the patterns are read, and the checkpoint
    log(console, f"{recon.scan.name}: {recon.engines}, batch {recon.batch}")
    news = News(recon, console)
    follow(recon, plan.epochs, console, news.tell)
    news.tell()
    if recon.stopped:
        log(console, f"Stopped after epoch {recon.epoch} of {plan.epochs}: {recon.stopped}.")
    elif recon.epoch < plan.epochs:
        log(console, f"Stopped from elsewhere after epoch {recon.epoch} of {plan.epochs}; the result is of that.")
    path = recon.save(plan.result)
    _save_checkpoint(recon)  # for a --resume with more epochs
    result = recon.result
    log(console, f"Loss {result.losses[-1]:.5g}, R-factor {result.r_factor:.4f}. Result: {path}")


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
