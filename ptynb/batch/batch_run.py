"""A run without a notebook: start or resume, show progress, write the result, checkpoint on a signal.

Its engines are those of a cluster, or this process, which may be rank 0 of several (`ptynb.batch.torchrun`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from ptynb.batch.live_scan import check_listening, live_scan, still_received
from ptynb.batch.signals import INTERRUPTED, Leaving, signals_raise
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.cluster_start import start_cluster
from ptynb.data.engine_records import Failure
from ptynb.data.record import STOPPED
from ptynb.data.scan import Scan
from ptynb.distributed.group import nothing
from ptynb.exceptions import FileError
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_file import is_of, load_state, newest_state, states
from ptynb.io.new_files import require_folder
from ptynb.io.run_file_scan import scan_of
from ptynb.progress import follow, follow_live, log
from ptynb.session.engines import OwnRank
from ptynb.session.reconstruction import Reconstruction
from ptynb.session.resume import scan_of_state, to_continue_with
from ptynb.session.run_spec import OnFailure, RunSpec, pickled
from ptynb.settings.recipe import StagePlan
from ptynb.settings.run_files.run_file import RunFile


def run(
    plan: RunFile,
    resume: bool,
    again: str,
    own: OwnRank | None = None,
    check: Callable[[], None] = nothing,
    ended: Callable[[BaseException, Failure | None], None] = lambda error, failure: None,
) -> int:
    """Perform the whole run and return its exit status: 0, or 130 if a signal ended it.

    Engines are started before a scan that is to be received: they are ready when it begins.

    again: the command that continues the run, for messages. own: this process as an engine; None: the cluster of the
    run file. check: called again and again, may raise an error. ended: called after an error, before the engines are
    closed, with the error and the failure of rank 0 if there is one. Raises the error that ended the run.
    """
    console = Console()
    require_folder(plan.result)  # before hours of computing
    start = first_state(plan, resume, console)
    to_receive = check_listening(plan, resume)
    scan = None if plan.listen is not None else scan_of(plan)
    with signals_raise():
        try:
            with contextlib.nullcontext(own) if own else start_cluster(plan.cluster, partial(log, console)) as place:
                if plan.listen is not None and start is None:
                    scan = live_scan(plan.listen, to_receive, console)
                recon = _opened(plan, scan, place, start)
                del scan  # frees the patterns of other ranks that are in memory
                news = News(recon, console)
                try:
                    _run(recon, news, plan, console, check, resumed=start is not None)
                except BaseException as error:
                    try:
                        _save_checkpoint(recon)
                    finally:
                        status = recon.last_status()
                        ended(error, None if status is None else status.failure)
                    news.tell()
                    if note := still_received(recon.scan):
                        log(console, note)
                    log(console, _how_to_go_on(recon, again))
                    raise
                finally:
                    if own is not None:
                        recon.close(result=False)
        except Leaving:
            return INTERRUPTED
    return 0


def first_state(plan: RunFile, resume: bool, console: Console) -> Path | None:
    """Return the checkpoint to continue from, or None. Raises FileError if unrequested checkpoints exist."""
    folder = plan.checkpointing.folder
    line = None if folder is None else checkpoint_branches.last_line(folder.expanduser())
    if line is None:
        return None
    if not resume:
        raise FileError(
            f"{folder} contains checkpoints of an earlier run, the newest {states(line)[-1].name}; continue from it "
            "with --resume, or choose another folder with --keep.",
            code="checkpoint.exists",
        )
    newest = newest_state(line)
    log(console, f"Continuing from {newest}.")
    return newest


def _opened(plan: RunFile, scan: Scan | None, place: Cluster | OwnRank, start: Path | None) -> Reconstruction:
    """Open the reconstruction. scan: None: that of the checkpoint `start`, with what has come of it since."""
    recipe, state = plan.recipe, None
    if start is None:
        stages, settings = StagePlan(recipe.stages), recipe.stage_settings[0]
    else:
        state = load_state(start)
        stages, settings = to_continue_with(state, recipe)
        scan = scan_of_state(state, start) if scan is None else scan
    assert scan is not None, "without a checkpoint it is loaded, or received"
    # No engine can replace one that another launcher started.
    on_failure: OnFailure = "pause" if isinstance(place, OwnRank) else plan.on_failure
    spec = RunSpec(scan, settings, pickled((), stages), plan.checkpointing, on_failure=on_failure, plan=stages)
    return Reconstruction._opened(spec, place, start, state)


def _run(
    recon: Reconstruction, news: News, plan: RunFile, console: Console, check: Callable[[], None], *, resumed: bool
) -> None:
    def meanwhile() -> None:
        check()
        news.tell()

    recon.warns = False  # the notices are told
    if plan.listen is None or resumed:
        recon.wait(progress=check)  # until the patterns are read, and the checkpoint
    news.changes = len(recon.changes)  # those of the checkpoint were told by the run that made them
    log(console, f"{recon.scan.name}: {recon.engines}, batch {recon.batch}")
    if plan.listen is None:
        follow(recon, plan.epochs, console, meanwhile)
    elif (missing := plan.epochs - recon.epoch + _live_epochs(recon)) > 0:
        follow_live(recon, missing, console, meanwhile)
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
        self._told = set[str]()
        self.changes = 0
        """Number of changes that are known."""

    def tell(self) -> None:
        """Report what is new."""
        notices, changes = self._recon.notices, self._recon.changes
        for notice in notices:
            if notice not in self._told:
                self._told.add(notice)
                log(self._console, notice)
        for change in changes[self.changes :]:
            if change.name != STOPPED:  # reported at the end of the run
                log(self._console, f"After epoch {change.epoch}: {change.name}: {change.old} -> {change.new}")
        self.changes = len(changes)


def _save_checkpoint(recon: Reconstruction) -> None:
    """Stop and save a checkpoint, unless it is saved already or the reconstruction failed or is closed."""
    if recon.failure is not None or recon.closed:
        return
    status = recon.last_status()
    if status is None or (status.state == "loading" and not status.epoch):
        return
    recon.stop()
    status, latest = recon.last_status(), recon.latest_checkpoint
    if status is None or (latest is not None and is_of(latest, status.epoch, status.update)):
        return
    if status.epoch or status.update:
        recon.save_checkpoint()


def _how_to_go_on(recon: Reconstruction, again: str) -> str:
    """Return the message for an unfinished run."""
    status = recon.last_status()
    if status is None or status.checkpoint is None:
        return f"No checkpoint was written. Start again with: {again}"
    return f"The checkpoint of epoch {status.checkpoint_epoch} is in {status.checkpoint}. Continue with: {again}"
