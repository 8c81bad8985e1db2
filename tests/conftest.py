"""What all tests share: nothing is left behind, and real data is found through one environment variable."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ptynb.supervised_thread import problems
from tests.system_parts import PARTS, ROOT, part_of

if TYPE_CHECKING:
    import ptynb as pt
    from ptynb.data.scan import Scan
    from tests.engine.ranks import Ranks
    from tests.live_source import Source

REAL_DATA = "PTYNB_TEST_DATA"
"""Names the folder with others' real data, which is not part of the project."""
BENCH = "PTYNB_TEST_BENCH"
"""Names the folder with the problem that packages are compared on, and its scoring."""
STDERR = pytest.StashKey[int]()
"""The process's own, which no test's capture has."""
HUNG = 60.0
"""Seconds after its own limit at which a test that no signal interrupts, being in code that isn't Python, is ended."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Ends the process of a test that hangs where its limit can't reach it, saying where; xdist goes on in another."""
    own = item.get_closest_marker("timeout")
    seconds = float(own.args[0] if own else item.config.getini("timeout"))
    stderr = item.config.stash[STDERR]
    faulthandler.dump_traceback_later(seconds + HUNG, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--system",
        default="all",
        metavar="PART",
        help="of the system tests (tests/system_parts.py): all, none, or one part",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)
    if (wanted := config.getoption("--system")) not in ("all", "none", *PARTS):
        raise pytest.UsageError(f"--system is {wanted!r}; expected all, none, or one of {', '.join(PARTS)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--system none` the tests of no part are left, with `--system PART` those of this part alone."""
    wanted = config.getoption("--system")
    if wanted == "all":
        return
    kept, left_out = [], []
    for item in items:
        mark = item.get_closest_marker("system")
        part = mark.args[0] if mark else part_of(item.path.relative_to(ROOT).as_posix())
        (kept if part == (None if wanted == "none" else wanted) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def descendants(known: set[int]) -> list[psutil.Process]:
    """Living processes below this one, without those known and what these start (a browser starts helpers at will)."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            family = {process.pid, *(parent.pid for parent in process.parents())} - {os.getpid()}
            if process.status() != psutil.STATUS_ZOMBIE and not family & known:
                found.append(process)
    return found


@pytest.fixture(autouse=True, scope="session")
def _apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """States are not kept among the user's own, and no cluster is mixed up with one of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTYNB_KEPT", str(tmp_path_factory.mktemp("kept")))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        yield


@pytest.fixture(autouse=True, scope="module")
def _quick_collections() -> None:
    """What is there before a module's tests, mostly torch and numba, is not gone through by each full collection.

    Every reconstruction that is closed makes one, which takes a third of a second otherwise.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaves a process or one of ptynb's threads behind (shared fixtures' own are known before).

    So does an error in a thread, which is reported to users and goes on.
    """
    before = {process.pid for process in descendants(set())}
    threads, known = set(threading.enumerate()), problems()
    yield
    assert problems() == known
    until = time.monotonic() + 5
    while time.monotonic() < until:
        left = descendants(before)
        busy = [
            thread.name
            for thread in set(threading.enumerate()) - threads
            if thread.name.startswith("ptynb") and thread.is_alive()
        ]
        if not left and not busy:
            return
        time.sleep(0.05)
    pytest.fail(f"left behind: processes {[process.cmdline() for process in left]}, threads {busy}")


def named_folder(variable: str) -> Path:
    """The folder that this environment variable names; without it the test is skipped (in CI: a failure)."""
    folder = os.environ.get(variable)
    if folder is None:
        pytest.skip(f"{variable} does not name a folder; CONTRIBUTING.md says what it holds")
    return Path(folder)


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Three real ranks, for every test that kills none of them."""
    from tests.engine.ranks import Ranks

    started = Ranks(3)
    yield started
    started.close()


@pytest.fixture(scope="session")
def _shared_cluster() -> Iterator[pt.Cluster]:
    import ptynb as pt

    with pt.Cluster(2, device="cpu") as started:
        yield started


@pytest.fixture(scope="module")
def cluster(_shared_cluster: pt.Cluster) -> pt.Cluster:
    """A real ipyparallel cluster of two engines, which all files share; a file may leave it stopped or broken."""
    if _shared_cluster.alive() != [0, 1]:
        _shared_cluster.stop()
        _shared_cluster.start()
    return _shared_cluster


@pytest.fixture(scope="module")
def scan() -> Scan:
    import ptynb as pt

    return pt.simulate(patterns=100, window=64, seed=5)


@pytest.fixture(scope="module")
def measured() -> Scan:
    """The scan that `source` measures."""
    import ptynb as pt

    return pt.simulate(patterns=100, window=32, seed=5)


@pytest.fixture
def source(measured: Scan, tmp_path: Path) -> Iterator[Source]:
    """A scan that is written to a spool while it is reconstructed."""
    from tests.live_source import Source

    opened = Source(measured, tmp_path / "spool")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def real_data() -> Path:
    return named_folder(REAL_DATA)


@pytest.fixture(scope="session")
def bench() -> Path:
    return named_folder(BENCH)


ALLOWED_SKIPS = tuple(f"{variable} does not name a folder" for variable in (REAL_DATA, BENCH))
"""Why a test may be skipped where CI is set."""


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI a skip for another reason than those above is a failure: nothing hides."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    skipped = reporter.stats.get("skipped", [])
    hidden = [one.nodeid for one in skipped if not any(reason in str(one.longrepr) for reason in ALLOWED_SKIPS)]
    if hidden and exitstatus == 0:
        reporter.write_line(f"skipped, and not for an allowed reason: {', '.join(hidden)}", red=True)
        session.exitstatus = 1
