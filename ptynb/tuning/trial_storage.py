"""File with the trials of a study: a journal of Optuna, lines of JSON that are only appended.

An incomplete last line, left by a kernel that ended, is removed when the file is opened again; the trials that were
running then are tried again. A file is open in one study at a time: the lock is a file beside it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import filelock
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
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from ptynb.data.engine_records import Picture
from ptynb.data.trial_record import TunedTrial
from ptynb.exceptions import FileError, SettingsError
from ptynb.private_folder import make_folder
from ptynb.settings import Settings
from ptynb.settings.base_models import flat
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

    about: what scores depend on besides settings and ranges, as plain values; a file with others raises FileError.
    first: values of the first trial; those that are missing are suggested. make_sampler: returns the sampler, for the
    number of trials in the file.
    """

    def __init__(
        self,
        path: Path,
        about: dict[str, Any],
        settings: Settings,
        ranges: Mapping[str, Range],
        first: Mapping[str, Any],
        pruner: BasePruner,
        make_sampler: Callable[[int], BaseSampler],
    ) -> None:
        self.path = path
        self.finished: list[TunedTrial] = []
        self._distributions = {name: _distribution(name, range) for name, range in ranges.items()}
        self._lock = _lock(path)
        try:
            _remove_incomplete_line(path)
            with _quiet():
                self._study = _opened(path)
                self._study.pruner = pruner
                known = [trial for trial in self._study.trials if trial.state != TrialState.WAITING]
                self._study.sampler = make_sampler(len(known))
            self._check(about, settings, ranges)
            if not self._study.trials and first:
                self._study.enqueue_trial(dict(first))
            self._take_over(known)
        except BaseException:
            self.close()
            raise

    def _check(self, about: dict[str, Any], settings: Settings, ranges: Mapping[str, Range]) -> None:
        record = {
            "about": about,
            "settings": settings.model_dump(mode="json"),
            "ranges": {name: range if isinstance(range, tuple) else repr(range) for name, range in ranges.items()},
        }
        record = json.loads(json.dumps(record))  # as read from the file
        before = self._study.user_attrs.get(RECORD)
        if before is not None:
            then = self._compared(before)
            now = self._compared(record)
            for name in (*then, *now):
                if now.get(name) != then.get(name):
                    raise FileError(
                        f"{self.path} contains a study whose {name} is {then.get(name)!s:.200}, and here it "
                        f"is {now.get(name)!s:.200}; scores are not comparable. Give another file, or the same values.",
                        code="tuning.different-study",
                    )
        if before != record:
            self._study.set_user_attr(RECORD, record)

    def _compared(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return what has to be equal in two records, by name: all but the settings that are varied."""
        try:
            settings = Settings(**record["settings"]).model_dump(mode="json")
        except SettingsError as error:
            raise FileError(
                f"{self.path} contains a study with settings that do not exist any more ({error}); give another file.",
                code="tuning.different-study",
            ) from None
        return {
            **record["about"],
            **{
                f"range of {name}": tuple(range) if isinstance(range, list) else range
                for name, range in record["ranges"].items()
            },
            **{name: value for name, value in flat(settings) if name not in record["ranges"]},
        }

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
        self._lock.release()


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


def _lock(path: Path) -> filelock.BaseFileLock:
    """Create the file if it is missing, and lock it for this study."""
    try:
        make_folder(path.parent)
        path.touch(mode=0o600)
        path.open("r+b").close()
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror}; give a file in another folder.", code="file.not-writable"
        ) from None
    lock = filelock.FileLock(f"{path}.open", timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise FileError(
            f"{path} is open in another study; stop that one (or end its kernel), or give another file.",
            code="tuning.file-in-use",
        ) from None
    except (OSError, NotImplementedError):  # a file system without locks
        pass
    return lock


def _remove_incomplete_line(path: Path) -> None:
    """Remove an incomplete last line. Raises FileError, without any change, for a file of another format."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if content and not content.startswith(FIRST_BYTES):
        raise FileError(
            f"{path} is not the file of a study; give a new file, or one written by tune().",
            code="file.unknown-format",
        )
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)


def _opened(path: Path) -> optuna.Study:
    try:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path), JournalFileOpenLock(str(path)))),
            study_name=NAME,
            direction="minimize",
            load_if_exists=True,
        )
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
