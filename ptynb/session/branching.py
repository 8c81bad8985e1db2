"""Checkpoint branches of one reconstruction: restore, branch, switch, and reconfigure."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import SupportsIndex

from ptynb.cluster.cluster import Cluster
from ptynb.data.engine_records import Branch, Checkpoint, Result
from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.distributed.group import nothing
from ptynb.engine import reconfigure as restructuring
from ptynb.exceptions import ReconstructionError, SettingsError
from ptynb.io import checkpoint_branches as files
from ptynb.io.checkpoint_file import (
    ReconstructionState,
    file_name,
    load_state,
    progress_of,
    save_state,
    states,
)
from ptynb.io.reading.checkpoint_object import load_object
from ptynb.optimize.batching import check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Room, Workload, memory_of, place_of_patterns, refusal, room_for, totals
from ptynb.session.engine_client import EngineClient
from ptynb.session.engines import ChangeNote
from ptynb.session.reopen import Reopening, reopen
from ptynb.session.run_result import in_stage, result_of
from ptynb.settings import Settings
from ptynb.settings.recipe import StagePlan

Which = Checkpoint | int | str | Path
"""A checkpoint: one of `checkpoints`, its epoch on the present branch, or its file."""


class BranchManager:
    """List the checkpoint branches of a reconstruction, and switch between them."""

    def __init__(self, client: EngineClient, scan: Scan, cluster: Cluster | None) -> None:
        self._client, self._scan, self._cluster = client, scan, cluster

    # Listing

    @property
    def folder(self) -> Path | None:
        """Folder of the present branch; None before its first checkpoint."""
        folder = self._client.checkpoint_folder()
        return None if folder is None else Path(folder)

    @property
    def name(self) -> str:
        """Name of the present branch."""
        folder = self.folder
        return files.MAIN if folder is None else files.name_of(folder)

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of all branches, in the order in which they were written."""
        folder = self.folder
        return () if folder is None else files.all_states(files.root_of(folder))

    def branches(self) -> tuple[Branch, ...]:
        """Return all branches."""
        folder = self.folder
        return () if folder is None else files.all_branches(files.root_of(folder), files.name_of(folder))

    def result(self, name: str) -> Result:
        """Return the result of a branch's newest checkpoint; its R-factor, which needs all patterns, is NaN."""
        return result_of(self._newest(name), self._client.spec)

    # Switching

    def restore(self, which: Which) -> None:
        """Return to a checkpoint; later ones of its branch are moved to a branch of their own."""
        self._check_open()
        target = self._find(which)
        files.stay(target)  # before the present state is written, which may remove the oldest
        came_from = self.name

        def prepare(checkpoint: Path | None) -> Reopening:
            if target == checkpoint:
                raise ReconstructionError(
                    f"{target.name} is the present state; choose an earlier checkpoint.", code="checkpoint.present"
                )
            state, folder = load_state(target), target.parent
            root, here, known = files.root_of(folder), files.name_of(folder), states(folder)
            now = len(self._client.epochs) if checkpoint is None else progress_of(checkpoint)[0]
            later = known[known.index(target) + 1 :]
            name = files.free_name(root, f"{here}-{progress_of(later[-1])[0] if later else now}")
            aside = files.folder_of(root, name)

            def carry_out() -> None:
                if later:
                    files.set_aside(later, name, state.epoch)
                files.use(folder)

            def undo() -> None:
                if aside.exists():
                    files.put_back(aside, folder)
                files.use(files.folder_of(root, came_from))

            where = ("", "") if here == came_from else (f"{came_from}, ", f"{here}, ")
            failed = ", where it failed" if checkpoint is None else ""
            note = "went back", f"{where[0]}epoch {now}{failed}", f"{where[1]}epoch {state.epoch}"
            return self._plan_from(target, note, state, carry_out=carry_out, undo=undo)

        reopen(self._client, prepare)

    def branch(self, name: str | None, which: Which | None) -> str:
        """Create a branch at a checkpoint or at the present state, switch to it, and return its name."""
        self._check_open()
        came_from, created = self.name, list[Path]()

        def begin(state: Path) -> Path:
            root = files.root_of(state.parent)
            created.append(files.begin(root, name or files.free_name(root, "branch"), state))
            return created[0]

        first = None if which is None else begin(self._find(which, before=True))  # before the present state is written

        def prepare(checkpoint: Path | None) -> Reopening:
            start = first or begin(_present(checkpoint))
            note = "branch", came_from, files.name_of(start.parent)
            return self._plan_from(start, note, continues=which is None, carry_out=lambda: files.use(start.parent))

        try:
            reopen(self._client, prepare)
        except Exception:
            for start in created:
                files.remove(start.parent)
            raise
        return files.name_of(created[0].parent)

    def switch_branch(self, name: str) -> None:
        """Switch to the newest checkpoint of another branch."""
        self._check_open()
        came_from, target = self.name, self._newest(name)
        if name == came_from:
            raise ReconstructionError(f"{name!r} is the present branch already.", code="checkpoint.present")

        def prepare(_: Path | None) -> Reopening:
            return self._plan_from(
                target,
                ("branch", came_from, name),
                carry_out=lambda: files.use(target.parent),
                undo=lambda: files.use(files.folder_of(files.root_of(target.parent), came_from)),
            )

        reopen(self._client, prepare)

    def drop(self, name: str) -> None:
        """Remove a branch and its checkpoints."""
        if name in (files.MAIN, self.name):
            why = "it is the present one" if name == self.name else "the others came from it"
            raise ReconstructionError(f"The branch {name!r} cannot be removed: {why}.", code="branch.not-removable")
        files.remove(self._newest(name).parent)

    # Reconfiguring

    def why_not(self, settings: Settings) -> str | None:
        """Return why the reconstruction cannot continue with these settings, or None if it can."""
        spec, engines = self._client.spec, self._client.engines.world
        if settings == spec.settings:
            return None
        if self._client.failure is not None:
            return f"It has failed: {str(self._client.failure).splitlines()[0]}"
        try:
            self._check_open()
            check_shares(self._scan, settings, engines)
            check_together(self._scan, settings)
            active = self._client.call(0, "active")
        except (ValueError, RuntimeError) as error:
            return str(error)
        if (why := restructuring.why_not(spec.settings, settings, active)) is not None:
            return why
        workload = Workload(settings, engines, self._cluster is not None)
        return refusal(self._scan, workload, self._room(workload))

    def why_too_large(self, settings: Settings) -> str | None:
        """Return why memory does not suffice for live settings that require more than the present ones, or None."""
        workload = Workload(settings, self._client.engines.world, self._cluster is not None)
        present = replace(workload, settings=self._client.spec.settings)
        now, then = (totals(memory_of(self._scan, one, "host", self._on_gpu)) for one in (present, workload))
        more = any(then[where] > now[where] for where in now)
        return refusal(self._scan, workload, self._room(workload)) if more else None

    @property
    def _on_gpu(self) -> bool:
        return "CPU" not in self._client.engines.description if self._cluster is None else self._cluster.plan.on_gpu

    def _room(self, workload: Workload) -> Room:
        """Return the memory that is available once the present workers are closed."""
        if self._cluster is not None:
            reused = self._cluster.held_bytes() * workload.engines / len(self._cluster)  # only by the engines in use
            return room_for(self._on_gpu, reused, self._cluster.plan.engines_per_gpu)
        room = room_for(self._on_gpu)
        now = replace(workload, settings=self._client.spec.settings)
        place = place_of_patterns(self._scan, now, room)
        return room_for(self._on_gpu, totals(memory_of(self._scan, now, place, self._on_gpu))["host"])

    def reconfigure(self, settings: Settings) -> None:
        """Continue with these settings, from the present state converted to them."""
        if problem := self.why_not(settings):
            raise ReconstructionError(problem, code="settings.not-reconfigurable")

        def prepare(present: Path | None) -> Reopening:
            checkpoint = _present(present)
            before = load_object(checkpoint, load_state(checkpoint, with_object=False))
            try:
                state = restructuring.restructured(before, settings, in_stage(self._scan, before))
            except SettingsError as error:  # depends on the state, such as on a component that was active earlier
                raise ReconstructionError(str(error), code="settings.not-reconfigurable") from error
            root = files.root_of(checkpoint.parent)
            name = files.free_name(root, f"{files.name_of(checkpoint.parent)}-{before.epoch}")
            aside = files.folder_of(root, name) / checkpoint.name
            start = checkpoint.with_name(file_name(state.epoch, state.update, files.read_note(checkpoint.parent).stays))

            def carry_out() -> None:
                files.begin(root, name, checkpoint)
                for part in files.parts_of(checkpoint)[1:] if start == checkpoint else ():
                    part.unlink()
                save_state(state, start)

            def undo() -> None:
                if start != checkpoint:
                    start.unlink(missing_ok=True)
                if aside.exists():
                    files.copy_into(aside, checkpoint.parent)
                    files.remove(aside.parent)

            return self._plan_from(start, None, state, continues=True, carry_out=carry_out, undo=undo)

        reopen(self._client, prepare)

    # Finding checkpoints

    def _plan_from(
        self,
        start: Path,
        note: ChangeNote | None,
        state: ReconstructionState | None = None,
        *,
        continues: bool = False,
        carry_out: Callable[[], object] = nothing,
        undo: Callable[[], object] = nothing,
    ) -> Reopening:
        """Return the plan for reopening the reconstruction from this checkpoint, with its settings and branch.

        state: content of the checkpoint; None: it is read.
        """
        state, checkpointing = state or load_state(start), self._client.spec.checkpointing
        assert checkpointing is not None, "checked by _check_open"
        checkpointing = checkpointing.model_copy(update={"folder": start.parent.absolute()})
        plan, settings = StagePlan.of(state.stages, state.stage), Settings(**state.settings)
        spec = replace(self._client.spec, settings=settings, plan=plan, checkpointing=checkpointing)
        return Reopening(spec, start, state, note, continues, carry_out, undo)

    def _check_open(self) -> None:
        if self._client.spec.checkpointing is None:
            raise ReconstructionError(
                "This reconstruction writes no checkpoints (checkpointing=None); make it with "
                "checkpointing=Checkpointing().",
                code="checkpoint.disabled",
            )
        if isinstance(self._client.spec.scan.frames, AbsentFrames):
            raise ReconstructionError(
                "The patterns were in the memory of a notebook that has ended, and are needed to open engines again; "
                "make the scan again, and continue with ptynb.resume(path, scan).",
                code="scan.patterns-lost",
            )

    def _find(self, which: Which, before: bool = False) -> Path:
        """Return the file of a checkpoint. before: whether to look for an epoch on ancestors of the branch, too."""
        if isinstance(which, SupportsIndex):  # numpy's integers too
            return self._of_epoch(operator.index(which), before)
        path = which.path if isinstance(which, Checkpoint) else Path(which).expanduser().absolute()
        folder = self.folder
        own = folder is not None and files.root_of(path.parent) == files.root_of(folder)
        if own and path.exists():
            return path
        why = "was removed" if own else "is not a checkpoint of this reconstruction"
        raise ReconstructionError(f"{path} {why}; choose one of its `checkpoints`.", code="checkpoint.not-found")

    def _of_epoch(self, epoch: int, before: bool) -> Path:
        """Return the last checkpoint of an epoch, preferably the one at the end of the epoch."""
        checkpoints, origins = self.checkpoints(), {branch.name: branch.origin for branch in self.branches()}
        names = [self.name]
        while before and (origin := origins.get(names[-1])) and origin not in names:
            names.append(origin)
        for name in names:
            matching = [one for one in checkpoints if (one.branch, one.epoch) == (name, epoch)]
            if matching:
                return max(matching, key=lambda one: (one.update == 0, one.written)).path
        epochs = ", ".join(str(one) for one in sorted({one.epoch for one in checkpoints if one.branch in names}))
        where = " and ".join(repr(name) for name in names)
        raise ReconstructionError(
            f"There is no checkpoint of epoch {epoch} on the branch {where}; there are those of epochs "
            f"{epochs or 'none'}.",
            code="checkpoint.not-found",
        )

    def _newest(self, name: str) -> Path:
        newest = {branch.name: branch.newest.path for branch in self.branches()}
        if name not in newest:
            raise ReconstructionError(
                f"There is no branch {name!r}; there are: {', '.join(newest) or 'none'}.", code="branch.not-found"
            )
        return newest[name]


def _present(written: Path | None) -> Path:
    """Return the checkpoint of the present state. Raises ReconstructionError if there is none."""
    if written is None:
        raise ReconstructionError(
            "The run has failed, so there is no present state; restore(...) one of `checkpoints`.",
            code="reconstruction.failed",
        )
    return written
