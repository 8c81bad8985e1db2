"""Going back, branches and restructuring: what a reconstruction does with the states that it has kept."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import SupportsIndex

from ptynb.cluster.cluster import Cluster
from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.data.snapshot import Branch, Checkpoint, Result
from ptynb.engine import reconfigure as restructuring
from ptynb.exceptions import ReconstructionError, SettingsError
from ptynb.io import checkpoint_branches as files
from ptynb.io.checkpoint_file import ReconstructionState, file_name, load_state, save_state, states
from ptynb.optimize.batching import check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory_check import Room, place_of_patterns, refusal, room_for
from ptynb.planning.memory_model import Workload, memory_of, totals
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ChangeNote
from ptynb.session.reopen import Reopening, nothing, reopen
from ptynb.session.run_result import result_of
from ptynb.settings import Settings

Which = Checkpoint | int | str | Path
"""A state to go back to: one of `checkpoints`, its epoch on the present branch, or its file."""


class BranchManager:
    """The lines of states of one reconstruction, and the way from one to another."""

    def __init__(self, link: EngineClient, scan: Scan, cluster: Cluster | None) -> None:
        self._link, self._scan, self._cluster = link, scan, cluster

    # Looking

    @property
    def folder(self) -> Path | None:
        """Where states of the present line are kept; None before the first one."""
        known = self._link.folder_of_states()
        return None if known is None else Path(known)

    @property
    def name(self) -> str:
        """Of the present line."""
        folder = self.folder
        return files.MAIN if folder is None else files.name_of(folder)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """All states of all lines, in the order in which they were written."""
        folder = self.folder
        return () if folder is None else files.all_states(files.root_of(folder))

    def branches(self) -> tuple[Branch, ...]:
        """All lines."""
        folder = self.folder
        return () if folder is None else files.all_branches(files.root_of(folder), files.name_of(folder))

    def result(self, name: str) -> Result:
        """Of the newest state of a line; its R-factor is not a number, since that takes a pass over all patterns."""
        opening = self._link.opening
        return result_of(load_state(self._newest(name)), opening.scan, opening.extensions)

    # Going from one to another

    def restore(self, which: Which) -> None:
        """Returns to a state; what came after it on its line is moved to a line of its own."""
        self._check_open()
        target = self._found(which)
        files.stay(target)  # before the present one is kept, which may thin out the oldest
        came_from = self.name

        def prepare(kept: Path | None) -> Reopening:
            if target == kept:
                raise ReconstructionError(f"It is at this state already ({target.name}); choose an earlier one.")
            state = load_state(target)
            now = len(self._link.epochs) if kept is None else load_state(kept).epoch
            line = target.parent
            known = states(line)
            later = known[known.index(target) + 1 :]
            name = files.free_name(files.root_of(line), f"{files.name_of(line)}-{_epoch_of(later, now)}")
            aside = files.folder_of(files.root_of(line), name)

            def carry_out() -> None:
                if later:
                    files.set_aside(later, name, state.epoch)
                files.use(line)

            def undo() -> None:
                if aside.exists():
                    files.put_back(aside, line)
                files.use(files.folder_of(files.root_of(line), came_from))

            here = files.name_of(line)
            where = ("", "") if here == came_from else (f"{came_from}, ", f"{here}, ")
            failed = ", where it failed" if kept is None else ""
            remark = "went back", f"{where[0]}epoch {now}{failed}", f"{where[1]}epoch {state.epoch}"
            return self._to(target, state, remark, carry_out=carry_out, undo=undo)

        reopen(self._link, prepare)

    def branch(self, name: str | None, which: Which | None) -> str:
        """Begins a new line at a state, or here, and goes on there; returns its name."""
        self._check_open()
        came_from, began = self.name, list[Path]()

        def begin(state: Path) -> Path:
            root = files.root_of(state.parent)
            began.append(files.begin(root, name or files.free_name(root, "branch"), state))
            return began[0]

        first = None if which is None else begin(self._found(which, before=True))  # while it is sure to be there

        def prepare(kept: Path | None) -> Reopening:
            start = first or begin(_present(kept))
            line = start.parent
            remark = "branch", came_from, files.name_of(line)

            def carry_out() -> None:
                files.use(line)

            return self._to(start, load_state(start), remark, goes_on=which is None, carry_out=carry_out)

        try:
            reopen(self._link, prepare)
        except Exception:
            for start in began:
                files.remove(start.parent)
            raise
        return files.name_of(began[0].parent)

    def switch_branch(self, name: str) -> None:
        """Goes to the newest state of another line."""
        self._check_open()
        came_from, target = self.name, self._newest(name)
        if name == came_from:
            raise ReconstructionError(f"It is on the branch {name!r} already.")
        present = files.folder_of(files.root_of(target.parent), came_from)

        def prepare(_: Path | None) -> Reopening:
            return self._to(
                target,
                load_state(target),
                ("branch", came_from, name),
                carry_out=lambda: files.use(target.parent),
                undo=lambda: files.use(present),
            )

        reopen(self._link, prepare)

    def drop(self, name: str) -> None:
        """Removes a line and its states."""
        folder = self._newest(name).parent
        if name in (files.MAIN, self.name):
            why = "the reconstruction is on it" if name == self.name else "the others came from it"
            raise ReconstructionError(f"The branch {name!r} can't be removed: {why}.")
        files.remove(folder)

    # Another structure

    def why_not(self, settings: Settings) -> str | None:
        """A sentence where it can't go on with these settings; None where it can."""
        opening, engines = self._link.opening, self._link.engines.world
        if settings == opening.settings:
            return None
        if self._link.failure is not None:
            return f"It has failed: {str(self._link.failure).splitlines()[0]}"
        try:
            self._check_open()
            check_shares(self._scan, settings, engines)
            check_together(self._scan, settings)
            active = self._link.call(0, "active")
        except (ValueError, RuntimeError) as error:
            return str(error)
        why = restructuring.why_not(opening.settings, settings, active)
        if why is not None:
            return why
        asked = Workload(settings, engines, self._cluster is not None)
        return refusal(self._scan, asked, self._room(opening.settings, asked))

    def _room(self, present: Settings, asked: Workload) -> Room:
        """What there will be, once the present engines have let go of theirs."""
        if self._cluster is not None:
            held = self._cluster.held_bytes() * asked.engines / len(self._cluster)  # by its own engines alone
            return room_for(self._cluster.plan.on_gpu, held)
        on_gpu = "CPU" not in self._link.engines.description
        room = room_for(on_gpu)
        now = replace(asked, settings=present)
        present_bytes = totals(memory_of(self._scan, now, place_of_patterns(self._scan, now, room), on_gpu))["host"]
        return room_for(on_gpu, present_bytes)

    def reconfigure(self, settings: Settings) -> None:
        """Goes on with these settings, from the present state mapped onto them."""
        if problem := self.why_not(settings):
            raise ReconstructionError(problem)

        def prepare(present: Path | None) -> Reopening:
            kept = _present(present)
            before = load_state(kept)
            try:
                state = restructuring.restructured(before, settings, self._scan)
            except SettingsError as error:  # what only the state tells, such as a piece that took part earlier
                raise ReconstructionError(str(error)) from error
            root = files.root_of(kept.parent)
            name = files.free_name(root, f"{files.name_of(kept.parent)}-{before.epoch}")
            aside = files.folder_of(root, name) / kept.name
            start = kept.with_name(file_name(state.epoch, state.update, files.read_note(kept.parent).stays))

            def carry_out() -> None:
                files.begin(root, name, kept)
                for part in files.parts_of(kept)[1:] if start == kept else ():
                    part.unlink()
                save_state(state, start)

            def undo() -> None:
                if start != kept:
                    start.unlink(missing_ok=True)
                if aside.exists():
                    files.copy_into(aside, kept.parent)
                    files.remove(aside.parent)

            return self._to(start, state, None, goes_on=True, carry_out=carry_out, undo=undo)

        reopen(self._link, prepare)

    # Finding

    def _to(
        self,
        start: Path,
        state: ReconstructionState,
        note: ChangeNote | None,
        *,
        goes_on: bool = False,
        carry_out: Callable[[], object] = nothing,
        undo: Callable[[], object] = nothing,
    ) -> Reopening:
        """How it is opened again from this state, with the state's settings and in its line."""
        opening = self._link.opening
        assert opening.keep is not None, "checked by _check_open"
        keep = opening.keep.model_copy(update={"folder": start.parent.absolute()})
        opening = replace(opening, settings=Settings(**state.settings), keep=keep)
        return Reopening(opening, start, state, note, goes_on, carry_out, undo)

    def _check_open(self) -> None:
        if self._link.opening.keep is None:
            raise ReconstructionError(
                "This reconstruction keeps no states, so there is nothing to go on from; make it with "
                "checkpointing=Checkpointing()."
            )
        if isinstance(self._link.opening.scan.frames, AbsentFrames):
            raise ReconstructionError(
                "The patterns were in the memory of a notebook that has ended, and engines that are opened again need "
                "them; make the scan again, and go on with ptynb.resume(state, scan)."
            )

    def _found(self, which: Which, before: bool = False) -> Path:
        """The file of a state. before: whether an epoch may be one on the lines that the present one came from."""
        if isinstance(which, SupportsIndex):  # numpy's integers too
            return self._of_epoch(operator.index(which), before)
        path = which.path if isinstance(which, Checkpoint) else Path(which).expanduser().absolute()
        folder = self.folder
        if folder is None or files.root_of(path.parent) != files.root_of(folder):
            raise ReconstructionError(
                f"{path} is no checkpoint of this reconstruction; choose one of its `checkpoints`."
            )
        if not path.exists():
            raise ReconstructionError(f"{path} is not there any more; choose one of `checkpoints`.")
        return path

    def _of_epoch(self, epoch: int, before: bool) -> Path:
        """The last state of an epoch, one at its very end if there is one."""
        states, origins = self.checkpoints(), {branch.name: branch.origin for branch in self.branches()}
        lines = [self.name]
        while before and (origin := origins.get(lines[-1])) and origin not in lines:
            lines.append(origin)
        for line in lines:
            found = [one for one in states if (one.branch, one.epoch) == (line, epoch)]
            if found:
                return max(found, key=lambda one: (one.update == 0, one.written)).path
        there = ", ".join(str(one) for one in sorted({one.epoch for one in states if one.branch in lines})) or "none"
        where = " and ".join(repr(line) for line in lines)
        raise ReconstructionError(
            f"No state of epoch {epoch} is kept on the branch {where}; there are those of epochs {there}."
        )

    def _newest(self, name: str) -> Path:
        known = {branch.name: branch.newest.path for branch in self.branches()}
        if name not in known:
            there = ", ".join(known) or "none"
            raise ReconstructionError(f"There is no branch {name!r}; there are: {there}.")
        return known[name]


def _present(kept: Path | None) -> Path:
    """The present state's file, where one is needed. Raises ReconstructionError where there is none."""
    if kept is None:
        raise ReconstructionError(
            "It has failed meanwhile, so there is no present state; go back to one of `checkpoints`."
        )
    return kept


def _epoch_of(later: list[Path], now: int) -> int:
    """What a line is named after: how far it got."""
    with contextlib.suppress(ValueError):
        return load_state(later[-1]).epoch if later else now
    return now
