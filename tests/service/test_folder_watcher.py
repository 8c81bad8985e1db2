"""Watched folders: a new scan is submitted once, when it is whole, also across a restart."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ptynb as pt
import ptynb.io.load as scan_io
from ptynb.service import folder_watcher
from ptynb.service.folder_watcher import FolderWatcher
from ptynb.service.job_queue import JobQueue, sqlite_url
from ptynb.service.submissions import RunRules
from ptynb.settings.site_file import WatchedFolder
from ptynb.supervised_thread import SupervisedThread
from tests.waiting import until


@pytest.fixture(scope="module")
def scan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "whole.h5"
    pt.save_scan(pt.simulate(patterns=9, window=16, seed=0), path)
    return path


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[JobQueue]:
    opened = JobQueue(sqlite_url(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def watched(tmp_path: Path) -> WatchedFolder:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "template.yaml").write_text("epochs: 5\nsettings: {loss: poisson}\n")
    return WatchedFolder(folder=tmp_path / "incoming", run=tmp_path / "template.yaml", pattern="*.h5", user="beamline")


def watcher(watched: WatchedFolder, queue: JobQueue, settled: float = 0.0) -> FolderWatcher:
    return FolderWatcher(watched, queue, RunRules((watched.folder,)), settled)


def test_a_new_scan_is_submitted_once(watched: WatchedFolder, queue: JobQueue, scan_file: Path):
    one = watcher(watched, queue)
    assert one.look() == []
    shutil.copy(scan_file, watched.folder / "scan one.h5")
    shutil.copy(scan_file, watched.folder / "other.txt")
    shutil.copy(scan_file, watched.folder / ".hidden.h5")
    [name] = one.look()
    assert name.startswith("scan_one-")
    job = queue.find(name)
    assert (job.user, job.status) == ("beamline", "queued")
    run = json.loads(job.run)
    assert run["scan"][0]["file"] == str(watched.folder / "scan one.h5")
    assert (run["epochs"], run["settings"]) == (5, {"loss": "poisson"})
    assert one.look() == []
    queue.stop(name)
    queue.delete(name)
    assert watcher(watched, queue).look() == [name], "known, after a restart"
    assert len(queue.jobs()) == 0
    os.utime(watched.folder / "scan one.h5", (1, 1))
    [newer] = one.look()
    assert newer != name, "it was written again"
    assert [job.id for job in queue.jobs()] == [newer]


def test_a_file_is_submitted_when_it_is_whole(
    watched: WatchedFolder, queue: JobQueue, scan_file: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    monkeypatch.setattr(folder_watcher, "AGAIN", 0.0)
    content, path = scan_file.read_bytes(), watched.folder / "slow.h5"
    one = watcher(watched, queue)
    with caplog.at_level(logging.WARNING, "ptynb.service"):
        for part in (0, 10, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:part])
            for _ in range(2):
                assert one.look() == []
    assert "slow.h5 is not submitted (yet)" in caplog.text
    path.write_bytes(content)
    assert len(one.look()) == 1


def test_a_file_that_still_changes_is_not_read(watched: WatchedFolder, queue: JobQueue, scan_file: Path):
    one = watcher(watched, queue, settled=0.4)
    shutil.copy(scan_file, watched.folder / "scan.h5")
    assert one.look() == []
    os.utime(watched.folder / "scan.h5", (1, 1))
    assert one.look() == []
    until(one.look, 10)


def test_a_scan_that_leads_out_of_the_folder_is_not_submitted(watched: WatchedFolder, queue: JobQueue, scan_file: Path):
    (watched.folder / "link.h5").symlink_to(scan_file)
    assert watcher(watched, queue).look() == []


def test_paths_of_a_template_are_relative_to_its_folder(watched: WatchedFolder, queue: JobQueue, scan_file: Path):
    shutil.copy(scan_file, watched.folder / "scan.h5")
    path = watched.folder / "below" / "template.yaml"
    path.parent.mkdir()
    path.write_text("epochs: 5\nstart: before.h5\n")
    (path.parent / "before.h5").touch()
    [name] = watcher(watched.model_copy(update={"run": path}), queue).look()
    assert json.loads(queue.find(name).run)["start"] == str(path.parent / "before.h5")


def test_a_file_with_any_problem_does_not_keep_others_from_being_submitted(
    watched: WatchedFolder, queue: JobQueue, scan_file: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    for name in ("a.h5", "b.h5"):
        shutil.copy(scan_file, watched.folder / name)
    load = scan_io.load

    def fails(path: Path, **options: Any) -> Any:
        if path.name == "a.h5":
            raise ZeroDivisionError("of a reader")
        return load(path, **options)

    monkeypatch.setattr(scan_io, "load", fails)
    with caplog.at_level(logging.WARNING, "ptynb.service"):
        [name] = watcher(watched, queue).look()
    assert name.startswith("b-")
    assert "a.h5 is not submitted (yet): ZeroDivisionError('of a reader')" in caplog.text


def test_a_folder_that_comes_later_is_watched_from_then_on(watched: WatchedFolder, queue: JobQueue, scan_file: Path):
    watched.folder.rmdir()
    ended: list[bool] = []
    one = watcher(watched, queue)
    thread = SupervisedThread("watcher of a test", one.watch, lambda: ended, 0.05)
    thread.start()
    watched.folder.mkdir()
    shutil.copy(scan_file, watched.folder / "scan.h5")
    until(queue.jobs, 20)
    ended.append(True)
    thread.join()
