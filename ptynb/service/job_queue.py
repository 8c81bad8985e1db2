"""The queue of `ptynb serve`: jobs and users in a database, SQLite on one host or PostgreSQL for several.

A job is queued, then running on one worker, and in the end completed, failed or stopped. A worker that takes it gets
the number of its attempt and a lease, which it renews; after the lease has expired the job is queued again. All changes
go through `JobQueue._change`, which names the status and the attempt that it expects, so that a worker which lost its
lease changes nothing any more. Each method is one transaction, and is on the disk when it returns.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from ptynb.exceptions import ServiceError
from ptynb.text import quoted

SCHEMA = 1
"""Version of the tables."""
Status = Literal["queued", "running", "stopping", "completed", "failed", "stopped"]
ACTIVE = ("running", "stopping")
"""A worker has the job."""
ENDED = ("completed", "failed", "stopped")
DELETED = "deleted"
"""Of a job that is no longer shown; its id is not free, so that nothing is submitted a second time."""
BEFORE: dict[str, tuple[str, ...]] = {
    "running": ("queued",),
    "stopping": ("running",),
    "queued": ("running", "failed", "stopped"),
    "completed": ACTIVE,
    "failed": ACTIVE,
    "stopped": ("queued", *ACTIVE),
    DELETED: ENDED,
}
"""The statuses that a job may have before each."""
LEASE = 30.0
"""Time without a renewal after which a job is taken from its worker [s]."""
ATTEMPTS = 5
"""Number of attempts that may be lost or lack resources before a job has failed."""
ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-]$|^[A-Za-z0-9]$"
USER = r"^[a-z0-9][a-z0-9_.-]{0,63}$"
LOCK = 0x7079746E62
"""Key of PostgreSQL's lock of what has to be done by one process after the other."""
LONGEST_MESSAGE = 2000

_tables = sa.MetaData()
_schema = sa.Table("ptynb_schema", _tables, sa.Column("version", sa.Integer, nullable=False))
_users = sa.Table(
    "ptynb_users",
    _tables,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("token", sa.String(64), nullable=False),
    sa.Column("admin", sa.Boolean, nullable=False),
)
_jobs = sa.Table(
    "ptynb_jobs",
    _tables,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(100), nullable=False, unique=True),
    sa.Column("user", sa.String(64), nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("losses", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("not_before", sa.Double, nullable=False),
    sa.Column("worker", sa.String(200)),
    sa.Column("lease", sa.Double),
    sa.Column("started", sa.Double),
    sa.Column("ended", sa.Double),
    sa.Column("exit_status", sa.Integer),
    sa.Column("code", sa.String(100)),
    sa.Column("message", sa.Text),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("epochs", sa.BigInteger),
    sa.Column("loss", sa.Double),
    sa.Index("ptynb_jobs_order", "status", "priority", "number"),
    sa.Index("ptynb_jobs_of_user", "user", "status"),
)
# Ids are names of folders, and some file systems don't distinguish case.
sa.Index("ptynb_jobs_folder", sa.func.lower(_jobs.c.id), unique=True)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as it was when it was read.

    run: its run file as JSON. attempt: how often it was taken by a worker; losses: how many attempts ended by no fault
    of the run. lease: until when its worker has it, not_before: from when it may be taken. Times are seconds since
    1970.
    """

    number: int
    id: str
    user: str
    run: str
    priority: int
    status: str
    attempt: int
    losses: int
    created: float
    not_before: float
    worker: str | None
    lease: float | None
    started: float | None
    ended: float | None
    exit_status: int | None
    code: str | None
    message: str | None
    epoch: int | None
    epochs: int | None
    loss: float | None


@dataclass(frozen=True)
class User:
    """Who made a request. admin: sees, stops and removes the jobs of all users."""

    name: str
    admin: bool = False


def database_url(text: str) -> sa.URL:
    """Return the address of a database, with the driver. Raises ServiceError."""
    try:
        url = sa.make_url(text)
    except ArgumentError:
        raise ServiceError(
            "The address of the database cannot be read; expected one such as postgresql://host/ptynb, or "
            "sqlite:////folder/queue.sqlite.",
            code="service.invalid-database",
        ) from None
    kind = url.get_backend_name()
    if kind not in ("sqlite", "postgresql") or (kind == "sqlite" and url.database in (None, "", ":memory:")):
        raise ServiceError(
            f"The database is {quoted(url.render_as_string())}; expected a file of SQLite, as "
            "sqlite:////folder/queue.sqlite, or PostgreSQL, as postgresql://host/ptynb.",
            code="service.invalid-database",
        )
    return url.set(drivername="postgresql+psycopg") if kind == "postgresql" else url


class JobQueue:
    """Jobs and users in a database, whose tables are made if they are missing. For use by several threads.

    url: of the database. lease: time without a renewal after which a job is taken from its worker [s]. attempts: number
    of attempts that may end by no fault of the run. Raises ServiceError if the database cannot be used.
    """

    def __init__(self, url: str, *, lease: float = LEASE, attempts: int = ATTEMPTS) -> None:
        self.lease, self.attempts = lease, attempts
        address = database_url(url)
        self._is_sqlite = address.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"connect_args": {"timeout": 60.0}} if self._is_sqlite else {"pool_pre_ping": True}
        try:
            self._engine = sa.create_engine(address, pool_size=8, max_overflow=32, **options)
        except (NoSuchModuleError, ImportError):
            raise ServiceError(
                "PostgreSQL is reached by psycopg, which is not installed: pip install 'ptynb[postgresql]'.",
                code="package.not-installed",
            ) from None
        if self._is_sqlite:
            sa.event.listen(self._engine, "connect", _prepare_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        self._reading = self._engine.execution_options(ptynb_reading=True)
        try:
            self._make_tables()
        except ServiceError:
            self.close()
            raise
        except SQLAlchemyError as error:
            self.close()
            raise ServiceError(
                f"The database {quoted(address.render_as_string())} cannot be used ({_reason(error)}); check its "
                "address, and that its server runs.",
                code="service.invalid-database",
            ) from None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def submit(
        self, id: str, user: str, run: str, *, priority: int = 0, most_queued: int | None = None
    ) -> tuple[Job, bool]:
        """Add a job; return it, and whether it is new: the same content under the same id is the same job.

        most_queued: number of queued jobs that a user may have. Raises ServiceError if another job has the id, or one
        that differs in case only, or the user has too many.
        """
        with self._one_by_one() as connection:
            same = sa.select(_jobs).where(sa.func.lower(_jobs.c.id) == sa.func.lower(id))
            row = connection.execute(same).first()
            if row is not None:
                present = _job(row)
                if (present.id, present.user, present.run) == (id, user, run) and present.status != DELETED:
                    return present, False
                raise ServiceError(
                    f"There is a job {id!r} already, with other content or deleted, or one whose id differs in case "
                    "only; choose another id.",
                    code="job.exists",
                )
            self._check_queued(connection, user, most_queued)
            now = self._now(connection)
            connection.execute(
                _jobs.insert().values(
                    id=id, user=user, run=run, priority=priority, status="queued", attempt=0, losses=0, created=now,
                    not_before=now,
                )
            )  # fmt: skip
            added = self._read(connection, id)
            assert added is not None
            return added, True

    def find(self, id: str, user: User | None = None) -> Job:
        """Return a job that a user may see; None: any. Raises ServiceError if there is none."""
        with self._reading.begin() as connection:
            return _visible(self._read(connection, id), id, user)

    def is_known(self, id: str) -> bool:
        """Return whether there is, or was, a job of this id."""
        with self._reading.begin() as connection:
            return self._read(connection, id) is not None

    def jobs(
        self, user: str | None = None, status: Status | None = None, before: int | None = None, limit: int = 100
    ) -> list[Job]:
        """Return jobs, the newest first: those of a user, of a status, with a number below `before`."""
        query = sa.select(_jobs).where(_jobs.c.status != DELETED).order_by(_jobs.c.number.desc()).limit(limit)
        if user is not None:
            query = query.where(_jobs.c.user == user)
        if status is not None:
            query = query.where(_jobs.c.status == status)
        if before is not None:
            query = query.where(_jobs.c.number < before)
        with self._reading.begin() as connection:
            return [_job(row) for row in connection.execute(query)]

    def counts(self, user: str | None = None) -> dict[str, int]:
        """Return the number of jobs of each status, of a user or of all."""
        query = sa.select(_jobs.c.status, sa.func.count()).group_by(_jobs.c.status)
        if user is not None:
            query = query.where(_jobs.c.user == user)
        with self._reading.begin() as connection:
            found = {row[0]: row[1] for row in connection.execute(query)}
        return {status: found.get(status, 0) for status in get_args(Status)}

    def take(self, worker: str, most_running: int | None = None) -> Job | None:
        """Give a worker the next job: the highest priority, then the oldest; None if there is none.

        most_running: number of running jobs that a user may have.
        """
        self.expire()
        # What a user has running is counted over all hosts, which needs one to take after the other.
        with self._one_by_one() if most_running is not None else self._engine.begin() as connection:
            now = self._now(connection)
            query = (
                sa.select(_jobs)
                .where(_jobs.c.status == "queued", _jobs.c.not_before <= now)
                .order_by(_jobs.c.priority.desc(), _jobs.c.number)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            if most_running is not None:
                other = _jobs.alias()
                busy = sa.select(other.c.user).where(other.c.status.in_(ACTIVE)).group_by(other.c.user)
                query = query.where(_jobs.c.user.not_in(busy.having(sa.func.count() >= most_running)))
            row = connection.execute(query).first()
            if row is None:
                return None
            job = _job(row)
            given: dict[str, Any] = {
                "worker": worker[:200],
                "lease": now + self.lease,
                "attempt": job.attempt + 1,
                "started": now,
            }
            self._change(connection, job, "running", **given, ended=None, exit_status=None, code=None, message=None)
            return self._read(connection, job.id)

    def expire(self) -> int:
        """Queue the jobs whose leases have expired; return how many there were.

        One that was stopping is stopped, and one that was lost too often has failed.
        """
        query = sa.select(_jobs).where(_jobs.c.status.in_(ACTIVE)).with_for_update(skip_locked=True)
        with self._reading.begin() as connection:  # most of the time there is none, and no other process has to wait
            now = self._now(connection)
            any_expired = sa.select(_jobs.c.number).where(_jobs.c.status.in_(ACTIVE), _jobs.c.lease < now).limit(1)
            if connection.execute(any_expired).first() is None:
                return 0
        with self._engine.begin() as connection:
            now = self._now(connection)
            lost = [_job(row) for row in connection.execute(query.where(_jobs.c.lease < now))]
            for job in lost:
                why = f"its worker {job.worker} was not heard of for {self.lease:g} s"
                self._give_up(connection, job, 0.0, "job.lost", why, counts=True)
            return len(lost)

    def renew(
        self, job: Job, epoch: int | None = None, epochs: int | None = None, loss: float | None = None
    ) -> str | None:
        """Prolong the lease of an attempt; return the status of its job, or None if the attempt has lost the job."""
        with self._engine.begin() as connection:
            values = {"lease": self._now(connection) + self.lease, "epoch": epoch, "epochs": epochs, "loss": loss}
            given = {name: value for name, value in values.items() if value is not None}
            renewed = _jobs.update().where(*_held(job, ACTIVE)).values(**given).returning(_jobs.c.status)
            status: str | None = connection.execute(renewed).scalar()
            return status

    def finish(
        self,
        job: Job,
        status: Status,
        *,
        exit_status: int | None = None,
        code: str | None = None,
        message: str | None = None,
        epoch: int | None = None,
        epochs: int | None = None,
        loss: float | None = None,
    ) -> bool:
        """End the job of an attempt; return False if the attempt has lost it."""
        values: dict[str, Any] = {"exit_status": exit_status, "code": code, "message": _text(message)}
        seen = {"epoch": epoch, "epochs": epochs, "loss": loss}
        seen = {name: value for name, value in seen.items() if value is not None}
        with self._engine.begin() as connection:
            values |= {"ended": self._now(connection), "lease": None, "worker": None, **seen}
            return self._change(connection, job, status, held=True, **values)

    def put_back(
        self, job: Job, *, delay: float = 0.0, code: str = "", message: str = "", counts: bool = False
    ) -> bool:
        """Queue the job of an attempt again, after a delay [s]; return False if the attempt has lost it.

        counts: whether this is one of the attempts that may end by no fault of the run; after too many, the job has
        failed, with the code and the message. A job that was to be stopped is stopped.
        """
        with self._engine.begin() as connection:
            held = sa.select(_jobs).where(*_held(job, ACTIVE)).with_for_update()
            row = connection.execute(held).first()
            return row is not None and self._give_up(connection, _job(row), delay, code, message, counts=counts)

    def stop(self, id: str, user: User | None = None) -> Job:
        """Stop a job: at once if it is queued, else its worker does it. Raises ServiceError if it has ended."""
        return self._move(id, user, {"queued": "stopped", "running": "stopping", "stopping": "stopping"}, "stopped")

    def restart(self, id: str, user: User | None = None, *, most_queued: int | None = None) -> Job:
        """Queue a failed or stopped job again. Raises ServiceError for another one.

        most_queued: number of queued jobs that its user may have.
        """
        return self._move(id, user, {"failed": "queued", "stopped": "queued"}, "restarted", most_queued)

    def delete(self, id: str, user: User | None = None) -> Job:
        """Show an ended job no longer; its id is not free. Raises ServiceError for one that has not ended."""
        return self._move(id, user, dict.fromkeys(ENDED, DELETED), "deleted")

    def deleted(self) -> list[str]:
        """Return the ids of the jobs that are no longer shown."""
        with self._reading.begin() as connection:
            return [*connection.execute(sa.select(_jobs.c.id).where(_jobs.c.status == DELETED)).scalars()]

    def add_user(self, name: str, *, admin: bool = False) -> str:
        """Return a new token of a user, which replaces an older one; only its hash is kept. Raises ServiceError."""
        if re.match(USER, name) is None:
            raise ServiceError(
                f"The user's name is {quoted(name)}; expected up to 64 of a-z, 0-9, '.', '-' and '_'.",
                code="argument.invalid-value",
            )
        token = f"{name}~{secrets.token_urlsafe(32)}"
        with self._one_by_one() as connection:
            connection.execute(_users.delete().where(_users.c.name == name))
            connection.execute(_users.insert().values(name=name, token=_hash(token), admin=admin))
        return token

    def remove_user(self, name: str) -> None:
        """Make the token of a user invalid; the jobs stay. Raises ServiceError if there is no such user."""
        with self._engine.begin() as connection:
            removed = connection.execute(_users.delete().where(_users.c.name == name)).rowcount
        if not removed:
            raise ServiceError(f"There is no user {quoted(name)} with a token.", code="argument.invalid-value")

    def user_of(self, token: str) -> User | None:
        """Return the user to whom a token belongs."""
        name = token.partition("~")[0]
        query = sa.select(_users.c.token, _users.c.admin).where(_users.c.name == name)
        row = None
        if re.match(USER, name) is not None:
            with self._reading.begin() as connection:
                row = connection.execute(query).first()
        # A token of 256 random bits needs no slow hash. The comparison takes as long if there is no such user.
        right = hmac.compare_digest(_hash(token), "" if row is None else row.token)
        return User(name, row.admin) if row is not None and right else None

    def _change(self, connection: sa.Connection, job: Job, status: str, held: bool = False, **values: Any) -> bool:
        """Change the status of a job as it was read: the only place where that is done.

        held: by a worker, for which any status of a job that it has will do. Returns False if it has changed meanwhile.
        """
        before = BEFORE[status] if held else (job.status,)
        assert {*before} <= {*BEFORE[status]}, f"{job.status} -> {status}"
        changed = connection.execute(_jobs.update().where(*_held(job, before)).values(status=status, **values))
        return changed.rowcount == 1

    def _give_up(
        self, connection: sa.Connection, job: Job, delay: float, code: str, message: str, *, counts: bool
    ) -> bool:
        """Take a running job from its worker: it is queued, stopped if that was requested, or failed."""
        now, losses = self._now(connection), job.losses + counts
        values: dict[str, Any] = {
            "worker": None,
            "lease": None,
            "losses": losses,
            "code": code or None,
            "message": _text(message),
        }
        if job.status == "stopping":
            return self._change(connection, job, "stopped", **values, ended=now)
        if losses >= self.attempts and counts:
            values["message"] = _text(f"{losses} attempts ended before the run had ended; the last one: {message}")
            return self._change(connection, job, "failed", **values, ended=now)
        return self._change(connection, job, "queued", **values, not_before=now + delay)

    def _move(self, id: str, user: User | None, to: dict[str, str], done: str, most_queued: int | None = None) -> Job:
        """Change the status of a job at a user's request.

        to: status by the present one. done: the request in words. most_queued: number of queued jobs of its user.
        """
        # What a user has queued is counted over all requests, which needs one after the other.
        with self._one_by_one() if most_queued is not None else self._engine.begin() as connection:
            query = sa.select(_jobs).where(_jobs.c.id == id).with_for_update()
            row = connection.execute(query).first()
            job = _visible(None if row is None else _job(row), id, user)
            if job.status not in to:
                raise ServiceError(
                    f"The job {id!r} is {job.status} and cannot be {done}; expected one that is {' or '.join(to)}.",
                    code="job.wrong-status",
                )
            status, now = to[job.status], self._now(connection)
            values: dict[str, Any] = {"ended": now} if status == "stopped" else {}
            if status == "queued":
                self._check_queued(connection, job.user, most_queued)
                values = {"losses": 0, "not_before": now, "ended": None, "exit_status": None, "code": None}
                values |= {"message": None}
            if status != job.status:
                self._change(connection, job, status, **values)
            moved = self._read(connection, id)
            assert moved is not None
            return moved

    def _read(self, connection: sa.Connection, id: str) -> Job | None:
        row = connection.execute(sa.select(_jobs).where(_jobs.c.id == id)).first()
        return None if row is None else _job(row)

    def _check_queued(self, connection: sa.Connection, user: str, most: int | None) -> None:
        """Raise ServiceError if a user has as many queued jobs as there may be."""
        query = sa.select(sa.func.count()).where(_jobs.c.user == user, _jobs.c.status == "queued")
        if most is not None and connection.execute(query).scalar_one() >= most:
            raise ServiceError(
                f"{user} has {most} queued jobs, the most that a user may have; try again when some have started.",
                code="service.limit-reached",
            )

    def _now(self, connection: sa.Connection) -> float:
        """Return the time of the database, which is the same for all hosts."""
        if self._is_sqlite:  # has no other clock than this host's
            return time.time()
        return float(connection.execute(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))).scalar_one())

    @contextmanager
    def _one_by_one(self) -> Iterator[sa.Connection]:
        """Yield a connection for a transaction that no other process makes at the same time; in SQLite, each is one."""
        with self._engine.begin() as connection:
            if not self._is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
            yield connection

    def _make_tables(self) -> None:
        with self._one_by_one() as connection:
            _tables.create_all(connection)
            version = connection.execute(sa.select(_schema.c.version)).scalar()
            if version is None:
                connection.execute(_schema.insert().values(version=SCHEMA))
            elif version != SCHEMA:
                raise ServiceError(
                    f"The database has tables of version {version}, and this ptynb needs {SCHEMA}; use another "
                    "database, or the ptynb that made it.",
                    code="service.invalid-database",
                )


def sqlite_url(folder: Path) -> str:
    """Return the address of the database in the folder of a service."""
    return sa.URL.create("sqlite", database=str((folder / "queue.sqlite").absolute())).render_as_string()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so, not where the driver guesses
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=60000"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that began by reading could not write after another process has.
    reading = connection.get_execution_options().get("ptynb_reading", False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _held(job: Job, statuses: tuple[str, ...]) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions of a job that is still what it was in this attempt."""
    return _jobs.c.number == job.number, _jobs.c.attempt == job.attempt, _jobs.c.status.in_(statuses)


def _job(row: Any) -> Job:
    return Job(**{field.name: getattr(row, field.name) for field in fields(Job)})


def _visible(job: Job | None, id: str, user: User | None) -> Job:
    """Return a job if the user may see it. To others it does not exist."""
    if job is None or job.status == DELETED or (user is not None and not user.admin and user.name != job.user):
        raise ServiceError(f"There is no job {id!r} of yours; list your jobs.", code="job.not-found")
    return job


def _text(message: str | None) -> str | None:
    """Return a message that each database can store."""
    plain = None if message is None else message.replace("\0", " ").encode("utf-8", "replace").decode()
    return plain[:LONGEST_MESSAGE] if plain else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _reason(error: SQLAlchemyError) -> str:
    """Return the first line of the driver's message."""
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
