"""Requested reopening of a reconstruction: from another checkpoint, on another branch, or with other settings.

All engines pause before the same update, the present state is written to a checkpoint, the workers are closed, files
are moved, and new workers are opened from a checkpoint, as after the loss of an engine. If a step fails, the previous
state is restored. A failed reconstruction has no present state to write; its failure is cleared on success.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ptynb.data.commands import CheckpointRequest, PauseRun, ResumeRun
from ptynb.data.engine_records import Status
from ptynb.distributed.group import nothing
from ptynb.exceptions import ClusterError, ReconstructionError
from ptynb.io.checkpoint_file import ReconstructionState, load_state, precedes
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ChangeNote
from ptynb.session.run_spec import RunSpec

CHECKPOINT_SECONDS = 600.0
"""Time limit for writing the checkpoint of the present state [s]."""


@dataclass(frozen=True)
class Reopening:
    """Plan for reopening a reconstruction.

    start: file of the checkpoint, which contains `state` once `carry_out` was called. note: entry for `changes`.
    continues: whether an active run is started again. carry_out: moves files while no worker is open; undo: reverts
    it, also if it was interrupted by an error.
    """

    spec: RunSpec
    start: Path
    state: ReconstructionState
    note: ChangeNote | None = None
    continues: bool = True
    carry_out: Callable[[], object] = nothing
    undo: Callable[[], object] = nothing


def reopen(client: EngineClient, prepare: Callable[[Path | None], Reopening]) -> None:
    """Pause the run, write a checkpoint, and reopen the engines by the plan that `prepare` returns for that file.

    After a failure `prepare` is called with None. Other requests wait meanwhile. Raises the error of `prepare` before
    anything is changed, or ReconstructionError if the engines cannot be opened; in both cases the run continues as
    before.
    """
    failure = client.failure
    if failure is None:
        client.apart(lambda: _exchange(client, prepare))
    else:
        client.apart(lambda: _replace(client, prepare, str(failure).split("\n", 1)[0]), failed=True)


def _replace(client: EngineClient, prepare: Callable[[Path | None], Reopening], failure: str) -> None:
    """Replace workers that failed."""
    plan, target, paused, spec = prepare(None), client.target_epoch, client.paused, client.spec
    try:
        with contextlib.suppress(ClusterError, TimeoutError):  # lost or hanging workers are ended by open_from
            client.engines.close()
        plan.carry_out()
        client.target_epoch, client.paused = None, False
        client.open_from(plan.spec, plan.start, plan.state, plan.note, instead_of=failure)
    except Exception as error:
        client.target_epoch, client.paused, client.spec = target, paused, spec
        plan.undo()
        raise ReconstructionError(
            f"It could not be opened again, and stays as it failed: {error}", code="reconstruction.not-reopened"
        ) from error


def _exchange(client: EngineClient, prepare: Callable[[Path | None], Reopening]) -> None:
    was_running = _pause(client)
    try:
        written = _write_checkpoint(client)
        before = Reopening(client.spec, written, load_state(written))
        target, paused = client.target_epoch, client.paused
        plan = prepare(written)
    except Exception:
        if was_running:
            with contextlib.suppress(ClusterError, TimeoutError):  # the first error is raised
                client.sent = max(client.sent, client.engines.call(0, "command", ResumeRun()))
        raise
    try:
        client.engines.close()
        plan.carry_out()
        if not plan.continues:
            client.target_epoch, client.paused = None, False
        client.open_from(plan.spec, plan.start, plan.state, plan.note)
    except Exception as error:
        client.target_epoch, client.paused = target, paused
        try:
            plan.undo()
            with contextlib.suppress(ClusterError, TimeoutError):
                client.engines.close()
            _restore(client, before)
        except Exception as second:  # noqa: BLE001 - shown to the user beside the first cause
            text = f"{error}\n\nThe previous state could not be restored: {second}\n\n{client.offer()}"
            client.failure = ReconstructionError(text, code="reconstruction.not-reopened")
            client.can_recover = True
            raise client.failure from error
        raise ReconstructionError(
            f"It could not be opened again, and continues as before: {error}", code="reconstruction.not-reopened"
        ) from error


def _restore(client: EngineClient, before: Reopening) -> None:
    """Reopen the previous state; with `on_failure="continue"`, replace lost engines."""
    try:
        client.open_from(before.spec, before.start, before.state, None)
    except Exception:
        lost = client.engines.lost()
        if before.spec.on_failure != "continue" or not lost:
            raise
        client.open_from(before.spec, before.start, before.state, None, instead_of=lost)


def _pause(client: EngineClient) -> bool:
    """Pause all engines before the same update; return whether a run was active."""
    sent = client.sent  # includes pending start commands
    if client.wait_inside(lambda status: status.state != "loading" and status.applied >= sent).state != "running":
        return False
    client.command_inside(PauseRun())
    return True


def checkpoint_since(before: Status, now: Status) -> Path | None:
    """Return the checkpoint that was requested at the status `before`, or None while it is not complete.

    Earlier ones may still have been on their way to the disk. Raises ReconstructionError if it could not be written.
    """
    (written, failed), (written_now, failed_now) = before.checkpoint_counts, now.checkpoint_counts
    if now.checkpoint is not None and written_now != written:  # an engine that replaced a lost one counts from 0
        path = Path(now.checkpoint)
        if not precedes(path, before.epoch, before.update):
            return path
    if failed_now > failed and not now.writes_checkpoint:
        raise ReconstructionError(now.checkpoint_failure, code="checkpoint.failed")
    return None


def _write_checkpoint(client: EngineClient) -> Path:
    """Write a checkpoint of the present state; return its file once it is complete."""
    before = client.wait_inside(lambda _: True)
    client.command_inside(CheckpointRequest())
    try:
        status = client.wait_inside(
            lambda status: checkpoint_since(before, status) is not None, time.monotonic() + CHECKPOINT_SECONDS
        )
    except TimeoutError:
        raise ReconstructionError(
            f"The checkpoint of the present state was not written within {CHECKPOINT_SECONDS:g} s, so nothing was "
            "changed; check that its folder is writable, and try again.",
            code="checkpoint.timeout",
        ) from None
    return Path(str(status.checkpoint))
