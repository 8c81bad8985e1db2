"""Watched folders: each new scan in one is submitted once, with a template of a run file.

The folder is looked at again and again, which also works where the system tells nothing of new files, as on NFS. A scan
is complete when its size and time have not changed between looks and ptynb can read it. The id of its job is made of
its path, size and time, so that it is known to the queue after a restart.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from ptynb.exceptions import PtynbError
from ptynb.polling import wait_while
from ptynb.service.job_queue import JobQueue
from ptynb.service.submissions import RunRules, filled, read_template
from ptynb.settings.run_files.run_file import RunFile
from ptynb.settings.site_file import WatchedFolder

PERIOD = 5.0
"""Time between looks at a folder [s]."""
SETTLED = 10.0
"""Time in which a file must not change before it is read [s]."""
AGAIN = 60.0
"""Time after which a file that could not be read is tried again [s]."""
Version = tuple[int, int]
"""Time and size of a file."""

logger = logging.getLogger("ptynb.service")


class FolderWatcher:
    """Submits the scans of one folder. For use by one thread. Raises SettingsError if its template is not valid.

    settled: time in which a file must not change [s].
    """

    def __init__(self, watched: WatchedFolder, queue: JobQueue, rules: RunRules, settled: float = SETTLED) -> None:
        self.watched, self._queue, self._rules, self._settled = watched, queue, rules, settled
        self._template = read_template(watched.run)
        self._seen: dict[Path, tuple[Version, float]] = {}
        self._done: set[str] = set()
        self._problems: dict[Path, str] = {}

    def watch(self, ended: Callable[[], object], period: float = PERIOD) -> None:
        """Look at the folder until a function says that it is time to end."""
        while not ended():
            try:
                self.look()
            except SQLAlchemyError as error:
                logger.warning("The database does not answer (%s); trying again.", error)
            wait_while(lambda: not ended(), period, 0.1)

    def look(self) -> list[str]:
        """Submit what is new and complete; return the ids of its jobs."""
        submitted, seen = [], {}
        try:
            files = sorted(self.watched.folder.glob(self.watched.pattern))
        except OSError as error:
            self._note(self.watched.folder, str(error))
            return []
        for path in files:
            try:
                found = path.stat()
            except OSError:  # removed meanwhile
                continue
            if not path.is_file() or path.name.startswith("."):
                continue
            version, now = (found.st_mtime_ns, found.st_size), time.monotonic()
            before, since = self._seen.get(path, (version, now))
            seen[path] = (version, since if before == version else now)
            name = job_id(path, version)
            if name in self._done or now - seen[path][1] < self._settled:
                continue
            if self._queue.is_known(name) or self._submit(path, name):
                self._done.add(name)
                submitted.append(name)
                self._problems.pop(path, None)
            else:
                seen[path] = (version, now + AGAIN - self._settled)
        self._seen = seen
        return submitted

    def _submit(self, path: Path, name: str) -> bool:
        """Submit a scan; return whether it was complete."""
        from ptynb.io.load import load  # takes longer than all else, and most services watch no folder

        try:
            run = self._rules.accepted(filled(self._template, path), self.watched.run.parent)
            plan = RunFile(**json.loads(run))
            with warnings.catch_warnings(action="ignore"):
                load(plan.scan[0].file, **plan.options_of(plan.scan[0]).arguments)
            self._queue.submit(name, self.watched.user, run)
        except SQLAlchemyError:  # of the database, not of this file
            raise
        except Exception as error:  # noqa: BLE001 - whatever one file has, others are submitted
            self._note(path, str(error) if isinstance(error, PtynbError | OSError) else repr(error))
            return False
        logger.info("%s is submitted as %s", path, name)
        return True

    def _note(self, path: Path, problem: str) -> None:
        """Log a problem once."""
        if self._problems.get(path) != problem:
            self._problems[path] = problem
            logger.warning("%s is not submitted (yet): %s", path, problem)


def job_id(path: Path, version: Version) -> str:
    """Return the id of the job of a scan."""
    digest = hashlib.sha256(f"{path.absolute()}\0{version}".encode("utf-8", "surrogateescape")).hexdigest()
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem).strip("_-")[:60]
    return f"{plain or 'scan'}-{digest[:16]}"
