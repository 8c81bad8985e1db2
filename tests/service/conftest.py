"""What the tests of the service share: databases, a folder of data, and a service in processes of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from ptynb.service.job_queue import JobQueue, sqlite_url
from tests.service.running_service import RunningService, Start
from tests.waiting import until

NUMBERS = itertools.count()


def postgres_programs() -> Path:
    """The folder of PostgreSQL's programs; the tests that need it are skipped without (in CI: a failure)."""
    found = shutil.which("initdb") or next(map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb")), None)
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    return Path(found).resolve().parent


@contextmanager
def postgres() -> Iterator[str]:
    """The address of a server, for the name of a database; it runs as another user where this one is root."""
    programs = postgres_programs()
    folder = Path(tempfile.mkdtemp(prefix="ptynb-postgres-"))
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"
    initdb = [programs / "initdb", "-D", data, "--username=ptynb", "--auth=trust", "--no-sync", "--encoding=UTF8"]
    subprocess.run(initdb, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)
    options = [f"-cunix_socket_directories={folder}", "-clisten_addresses=", "-cfsync=off", "-cmax_connections=200"]
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, *options], user=user, cwd="/", stderr=subprocess.DEVNULL
    )
    address = f"postgresql://ptynb@/{{}}?host={folder}"

    def answers() -> bool:
        try:
            psycopg.connect(address.format("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    until(answers, 60)
    try:
        yield address
    finally:
        server.send_signal(signal.SIGINT)  # which waits for no client
        server.wait()
        shutil.rmtree(folder)


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server for the name of a database; none for SQLite."""
    if request.param == "sqlite":
        yield ""
    else:
        with postgres() as address:
            yield address


@pytest.fixture
def database(server: str, tmp_path: Path) -> str:
    """The address of a new database, of each kind."""
    if not server:
        return sqlite_url(tmp_path)
    name = f"ptynb_{next(NUMBERS)}"
    with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.format(name)


@pytest.fixture
def queue(database: str) -> Iterator[JobQueue]:
    opened = JobQueue(database)
    yield opened
    opened.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data with a file that is taken for a scan until one looks."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "scan.h5").write_bytes(b"no scan")
    return folder


@pytest.fixture
def start(tmp_path: Path, data: Path) -> Iterator[Start]:
    """Starts a service of the stand-in for `ptynb run`, which is ended after the test."""
    started: list[RunningService] = []

    def make(**options: object) -> RunningService:
        started.append(RunningService(tmp_path / "service", data, **options))
        return started[-1]

    yield make
    for one in started:
        one.end()
