"""File with the trials of a study: a journal of Optuna, lines of JSON that are only appended.

An incomplete last line, left by a kernel that ended, is removed when the file is opened again; the trials that were
running then are tried again. A file is open in one study at a time.
"""

from __future__ import annotations

import base64
import dataclasses
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from ptynb.data.engine_records import Picture
from ptynb.data.trial_record import TunedTrial
from ptynb.exceptions import FileError
from ptynb.private_folder import make_folder
from ptynb.settings.ranges import Between, Range, is_whole

NAME = "ptynb tuning"
RECORD = "ptynb"
"""Attribute of the study and of each trial with the data of ptynb."""
FIRST_BYTES = b'{"op_code":'
"""First bytes of a journal of Optuna."""
STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
INTERRUPTED = "The trial was running when the kernel ended."


class StudyFile:
    """Trials of a study and the sampler that suggests the next one; not thread-safe, except for `close`.

    about: everything that scores depend on, as plain values; a file with other values raises FileError. first: values
    of the first trial; those that are missing are suggested. make_sampler: returns the sampler, for the number of
    trials in the file.
    """

    def __init__(
        self,
        path: Path,
        about: dict[str, Any],
        ranges: Mapping[str, Range],
        first: Mapping[str, Any],
        pruner: BasePruner,
        make_sampler: Callable[[int], BaseSampler],
    ) -> None:
        self.path = path
        self.finished: list[TunedTrial] = []
        self._distributions = {name: _distribution(name, range) for name, range in ranges.items()}
        self._lock: int | None = _lock(path)
        try:
            _remove_incomplete_line(path, self._lock)
            with _quiet():
                self._study = _opened(path)
                self._study.pruner = pruner
                known = [trial for trial in self._study.trials if trial.state != TrialState.WAITING]
                self._study.sampler = make_sampler(len(known))
            self._check(about)
            if not self._study.trials and first:
                self._study.enqueue_trial(dict(first))
            self._take_over(known)
        except BaseException:
            self.close()
            raise

    def _check(self, about: dict[str, Any]) -> None:
        about = json.loads(json.dumps(about))  # as read from the file
        before = self._study.user_attrs.get(RECORD)
        if before is None:
            self._study.set_user_attr(RECORD, about)
            return
        for name in (*before, *about):
            if about.get(name) != before.get(name):
                raise FileError(
                    f"{self.path} contains a study whose {name} is {before.get(name)!s:.200}, and here it "
                    f"is {about.get(name)!s:.200}; scores are not comparable. Give another file, or the same values.",
                    code="tuning.different-study",
                )

    def _take_over(self, known: list[FrozenTrial]) -> None:
        for trial in known:
            if trial.state == TrialState.RUNNING:
                unfinished = TunedTrial(trial.number + 1, trial.params, "stopped", reason=INTERRUPTED)
                self._study._storage.set_trial_user_attr(trial._trial_id, RECORD, _plain(unfinished))
                self._study.tell(trial.number, state=TrialState.FAIL)
                self.finished.append(unfinished)
                self._study.enqueue_trial(trial.params)
            else:
                self.finished.append(_record(trial))

    def ask(self) -> Trial:
        """Return the next trial, with its values in `params`."""
        return self._study.ask(fixed_distributions=self._distributions)

    def hopeless(self, trial: Trial, epoch: int, loss: float) -> bool:
        """Record the loss of an epoch; return whether the trial should end."""
        trial.report(loss, epoch)
        return trial.should_prune()

    def finish(self, trial: Trial, record: TunedTrial) -> None:
        """Record the outcome of a trial. One that was stopped will be tried again."""
        trial.set_user_attr(RECORD, _plain(record))
        score = record.score if record.state == "complete" else None
        with _quiet():
            self._study.tell(trial, score, STATES.get(record.state, TrialState.FAIL))
        self.finished.append(record)
        if record.state == "stopped":
            self._study.enqueue_trial(trial.params)

    def close(self) -> None:
        """Release the file."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


_opening = threading.Lock()


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages of Optuna about every trial."""
    logger = logging.getLogger("optuna")
    with _opening:
        level = logger.level
        logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.setLevel(level)


def _lock(path: Path) -> int:
    """Lock the file for this study while the returned file descriptor is open."""
    make_folder(path.parent)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror}; give a file in another folder.", code="file.not-writable"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FileError(
            f"{path} is open in another study; stop that one (or end its kernel), or give another file.",
            code="tuning.file-in-use",
        ) from None
    except OSError:  # a file system without locks
        pass
    return lock


def _remove_incomplete_line(path: Path, file: int) -> None:
    """Remove an incomplete last line. Raises FileError, without any change, for a file of another format."""
    content = os.pread(file, os.fstat(file).st_size, 0)
    whole = content.rfind(b"\n") + 1
    if content and not content.startswith(FIRST_BYTES):
        raise FileError(
            f"{path} is not the file of a study; give a new file, or one written by tune().",
            code="file.unknown-format",
        )
    if whole < len(content):
        os.truncate(file, whole)


def _opened(path: Path) -> optuna.Study:
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(storage=storage, study_name=NAME, direction="minimize", load_if_exists=True)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise FileError(
            f"{path} is damaged, or from another version of Optuna ({error}); give another file.", code="file.damaged"
        ) from None


def _distribution(name: str, range: Range) -> BaseDistribution:
    if not isinstance(range, Between):
        return CategoricalDistribution(range)
    if is_whole(name):
        return IntDistribution(int(range.low), int(range.high), log=range.log)
    return FloatDistribution(range.low, range.high, log=range.log)


def _plain(trial: TunedTrial) -> dict[str, Any]:
    """Return a trial as JSON types; Optuna stores values and score."""
    picture = None
    if trial.picture is not None:
        picture = dataclasses.asdict(trial.picture) | {"image": base64.b64encode(trial.picture.image).decode()}
    return {
        "state": trial.state,
        "losses": trial.losses,
        "seconds": trial.seconds,
        "places": trial.ranks,
        "picture": picture,
        "scan": trial.scan,
        "reason": trial.reason,
    }


def _record(trial: FrozenTrial) -> TunedTrial:
    plain = trial.user_attrs.get(RECORD, {})
    picture = plain.get("picture")
    if picture is not None:
        pairs = {name: tuple(value) for name, value in picture.items() if isinstance(value, list)}
        picture = Picture(**{**picture, **pairs, "image": base64.b64decode(picture["image"])})
    return TunedTrial(
        number=trial.number + 1,
        values=trial.params,
        state=plain.get("state", "failed"),
        score=trial.value if trial.state == TrialState.COMPLETE else None,
        losses=tuple(plain.get("losses", ())),
        seconds=plain.get("seconds", 0.0),
        ranks=tuple(plain.get("places", ())),
        picture=picture,
        scan=plain.get("scan", ""),
        reason=plain.get("reason", INTERRUPTED),
    )
