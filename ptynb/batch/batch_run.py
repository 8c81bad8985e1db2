"""A run without a notebook: start or resume, show progress, write the result, checkpoint on a signal.

Its engines are those of a cluster, or this process, which may be rank 0 of several (`ptynb.batch.torchrun`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from ptynb import __version__
from ptynb.batch.live_scan import check_listening, live_scan, still_received
from ptynb.batch.run_job import RunJob
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.cluster_start import start_cluster
from ptynb.data.engine_records import Failure
from ptynb.data.record import STOPPED
from ptynb.data.scan import Scan
from ptynb.distributed.group import nothing
from ptynb.exceptions import FileError
from ptynb.io import checkpoint_branches
from ptynb.io.checkpoint_file import is_of, load_state, newest_state, progress_of, states
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
    job: RunJob,
    own: OwnRank | None = None,
    check: Callable[[], None] = nothing,
    ended: Callable[[BaseException, Failure | None], None] = lambda error, failure: None,
) -> None:
    """Perform the whole run, in a context `signals_raise`.

    Engines are started before a scan that is to be received: they are ready when it begins.

    job: where the run is recorded. own: this process as an engine; None: the cluster of the run file. check: called
    again and again, may raise an error. ended: called after an error, before the engines are closed, with the error and
    the failure of rank 0 if there is one. Raises the error that ended the run, of a signal `Leaving`.
    """
    console = job.console
    require_folder(plan.result)  # before hours of computing
    start = first_state(plan, resume, console)
    to_receive = check_listening(plan, resume)
    job.begin(plan)
    scan = None if plan.listen is not None else scan_of(plan)
    with contextlib.nullcontext(own) if own else start_cluster(plan.cluster, partial(log, console)) as place:
        if plan.listen is not None and start is None:
            scan = live_scan(plan.listen, to_receive, console)
        recon = _opened(plan, scan, place, start)
        del scan  # frees the patterns of other ranks that are in memory
        news = News(recon, job)
        try:
            _run(recon, news, plan, job, check, resumed=start is not None)
        except BaseException as error:
            try:
                _save_checkpoint(recon)
            finally:
                status = recon.last_status()
                ended(error, None if status is None else status.failure)
            news.tell()
            if note := still_received(recon.scan):
                log(console, note)
            log(console, _how_to_go_on(plan, job))
            raise
        finally:
            if own is not None:
                recon.close(result=False)


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
    recon: Reconstruction, news: News, plan: RunFile, job: RunJob, check: Callable[[], None], *, resumed: bool
) -> None:
    console = job.console

    def meanwhile() -> None:
        check()
        news.tell()

    recon.warns = False  # the notices are told
    if plan.listen is None or resumed:
        recon.wait(progress=check)  # until the patterns are read, and the checkpoint
    news.skip()  # those of the checkpoint were told by the run that made them
    log(console, f"{recon.scan.name}: {recon.engines}, batch {recon.batch}")
    job.tell(
        "started",
        scan=recon.scan.name,
        engines=recon.engines,
        batch=recon.batch,
        epoch=recon.epoch,
        epochs=plan.epochs,
        version=__version__,
    )
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
    _save_checkpoint(recon)  # for a --resume with more epochs, or if a signal comes while the result is written
    news.tell()
    path = recon.save(plan.result)
    result = recon.result
    job.result, job.epoch = path, recon.epoch
    log(console, f"Loss {result.losses[-1]:.5g}, R-factor {result.r_factor:.4f}. Result: {path}")


def _live_epochs(recon: Reconstruction) -> int:
    """Return the number of epochs in which further patterns could come, beside which those of a run are counted."""
    status = recon.last_status()
    return 0 if status is None else status.live_epochs


class News:
    """Reports, once each, epochs, checkpoints, failures that did not end the run, and changes by other processes."""

    def __init__(self, recon: Reconstruction, job: RunJob) -> None:
        self._recon, self._job = recon, job
        self._told = set[str]()
        self._changes = self._epochs = 0
        self._checkpoint: Path | None = None

    def skip(self) -> None:
        """Regard changes, epochs and the checkpoint so far as told."""
        self._changes, self._epochs = len(self._recon.changes), self._recon.epoch
        self._checkpoint = self._recon.latest_checkpoint

    def tell(self) -> None:
        """Report what is new."""
        recon, job = self._recon, self._job
        notices, changes, epochs, checkpoint = recon.notices, recon.changes, recon.epochs, recon.latest_checkpoint
        for notice in notices:
            if notice not in self._told:
                self._told.add(notice)
                log(job.console, notice)
                job.tell("notice", text=notice)
        for change in changes[self._changes :]:
            if change.name != STOPPED:  # reported at the end of the run
                log(job.console, f"After epoch {change.epoch}: {change.name}: {change.old} -> {change.new}")
            job.tell("changed", epoch=change.epoch, name=change.name, old=change.old, new=change.new)
        self._changes = len(changes)
        for epoch in epochs[self._epochs :]:
            job.tell("epoch", epoch=epoch.number, epochs=recon.target, loss=epoch.loss, seconds=epoch.seconds)
        job.epoch = self._epochs = len(epochs)  # fewer than before if the run went back to a checkpoint
        if checkpoint is not None and checkpoint != self._checkpoint:
            self._checkpoint = checkpoint
            status = recon.last_status()
            job.tell("checkpoint", epoch=None if status is None else status.checkpoint_epoch, file=checkpoint)


def _save_checkpoint(recon: Reconstruction) -> None:
    """Stop and save a checkpoint, unless it is saved already or the reconstruction failed or is closed."""
    if recon.failure is not None or recon.closed:
        return
    status = recon.last_status()
    if status is None or status.state == "loading":  # at the checkpoint that it continues from, if there is one
        return
    if not (status.epoch or status.update):  # the first update may compile for long
        return
    recon.stop()
    status, latest = recon.last_status(), recon.latest_checkpoint
    if status is None or (latest is not None and is_of(latest, status.epoch, status.update)):
        return
    recon.save_checkpoint()


def _how_to_go_on(plan: RunFile, job: RunJob) -> str:
    """Return the message for an unfinished run."""
    job.told_how_to_go_on = True
    folder = plan.checkpointing.folder
    line = None if folder is None else checkpoint_branches.last_line(folder.expanduser())
    if line is None:
        return f"No checkpoint was written. Start again with: {job.again}"
    newest = states(line)[-1]
    return f"The checkpoint of epoch {progress_of(newest)[0]} is in {newest}. Continue with: {job.again}"
