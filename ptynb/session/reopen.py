"""Opening a reconstruction again on purpose: from another state, in another branch, or with another structure.

The run is held before the same update on all engines, the state kept, the workers closed, files moved, and workers
opened again from a state, as after a lost engine. Whatever can't be done leaves it as it was. After a failure there is
no present state that could be kept; where the work succeeds, the failure is over.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ptynb.engine.worker import Command
from ptynb.exceptions import ClusterError, ReconstructionError
from ptynb.io.checkpoint_file import ReconstructionState, is_of, load_state
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ChangeNote
from ptynb.session.spec import Opening

KEEP_SECONDS = 600.0
"""How long the present state may take until it is kept."""


def nothing() -> None:
    """What there is to do with files where none are moved."""


@dataclass(frozen=True)
class Reopening:
    """How it is opened again, and from what.

    start: the state's file, with `state` in it once `carry_out` was called. note: of a line in the record of changes.
    goes_on: whether a run that was under way is taken up again. carry_out: what is to be done with files while no
    engine is open; undo: what takes it back, however far it got.
    """

    opening: Opening
    start: Path
    state: ReconstructionState
    note: ChangeNote | None = None
    goes_on: bool = True
    carry_out: Callable[[], object] = nothing
    undo: Callable[[], object] = nothing


def reopen(link: EngineClient, prepare: Callable[[Path | None], Reopening]) -> None:
    """Holds the run, keeps the state, and opens engines again as `prepare`, given the state's file, tells.

    After a failure `prepare` is given None. Whoever asks something meanwhile waits. Raises what `prepare` raised,
    before anything was changed, or ReconstructionError where the engines can't be opened so; it goes on as before then.
    """
    failure = link.failure
    if failure is None:
        link.apart(lambda: _exchange(link, prepare))
    else:
        link.apart(lambda: _replace(link, prepare, str(failure).split("\n", 1)[0]), failed=True)


def _replace(link: EngineClient, prepare: Callable[[Path | None], Reopening], failure: str) -> None:
    """Workers that failed make way for others."""
    plan, wanted, held, opening = prepare(None), link.wanted, link.suspended, link.opening
    try:
        with contextlib.suppress(ClusterError, TimeoutError):  # one that is lost, or hangs, is ended below
            link.engines.close()
        plan.carry_out()
        link.wanted, link.suspended = None, False
        link.open_from(plan.opening, plan.start, plan.state, plan.note, instead_of=failure)
    except Exception as error:
        link.wanted, link.suspended, link.opening = wanted, held, opening
        plan.undo()
        raise ReconstructionError(f"This can't be done, and it stays as it failed: {error}") from error


def _exchange(link: EngineClient, prepare: Callable[[Path | None], Reopening]) -> None:
    ran = _hold(link)
    try:
        kept = _keep(link)
        before, wanted, held = Reopening(link.opening, kept, load_state(kept)), link.wanted, link.suspended
        plan = prepare(kept)
    except Exception:
        if ran:
            with contextlib.suppress(ClusterError, TimeoutError):  # what went wrong first is what the user is to see
                link.sent = max(link.sent, link.engines.call(0, "command", Command("resume")))
        raise
    try:
        link.engines.close()
        plan.carry_out()
        if not plan.goes_on:
            link.wanted, link.suspended = None, False
        link.open_from(plan.opening, plan.start, plan.state, plan.note)
    except Exception as error:
        link.wanted, link.suspended = wanted, held
        try:
            plan.undo()
            with contextlib.suppress(ClusterError, TimeoutError):
                link.engines.close()
            _restore(link, before)
        except Exception as second:  # noqa: BLE001 - the user is to see it beside the first cause
            text = f"{error}\n\nIt could not go on as before: {second}"
            link.failure, link.can_recover = ReconstructionError(f"{text}\n\n{link.offer()}"), True
            raise link.failure from error
        raise ReconstructionError(f"This can't be done, and it goes on as before: {error}") from error


def _restore(link: EngineClient, before: Reopening) -> None:
    """As it was; on fresh engines in the place of lost ones, where it is to go on by itself after a loss."""
    try:
        link.open_from(before.opening, before.start, before.state, None)
    except Exception:
        lost = link.engines.lost()
        if before.opening.on_failure != "continue" or not lost:
            raise
        link.open_from(before.opening, before.start, before.state, None, instead_of=lost)


def _hold(link: EngineClient) -> bool:
    """Holds all engines before the same update; returns whether they ran."""
    while (status := link.ask()).state == "loading" or status.applied < link.sent:  # a start on its way counts
        time.sleep(0.02)
    if status.state != "running":
        return False
    number = link.engines.call(0, "command", Command("pause"))
    while link.ask().applied < number:
        time.sleep(0.002)
    return True


def _keep(link: EngineClient) -> Path:
    """Keeps the present state; returns its file once it is whole."""
    done, failed = link.ask().keeps
    link.engines.call(0, "command", Command("keep"))
    until = time.monotonic() + KEEP_SECONDS
    while True:
        status = link.ask()
        if status.keeps[1] > failed:
            raise ReconstructionError(status.notices[-1])
        kept = None if status.kept is None else Path(status.kept)
        if status.keeps[0] > done and kept is not None and is_of(kept, status.epoch, status.update):
            return kept
        if time.monotonic() > until:
            raise ReconstructionError(
                f"The present state was not kept within {KEEP_SECONDS:g} s, so nothing was changed; look whether its "
                "folder can be written to, and try again."
            )
        time.sleep(0.005)
