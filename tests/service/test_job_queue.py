"""The queue, on SQLite and PostgreSQL: what a job may become, and that a worker which lost it changes nothing."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from ptynb.service import job_queue
from ptynb.service.job_queue import ATTEMPTS, JobQueue, User, database_url, sqlite_url
from tests.raising import raises


def test_a_job_is_submitted_once_and_its_id_stays_taken(queue: JobQueue):
    job, is_new = queue.submit("a", "ann", "{}")
    assert is_new
    assert (job.status, job.attempt, job.user) == ("queued", 0, "ann")
    assert queue.submit("a", "ann", "{}") == (job, False)
    for user, run in (("ann", "{ }"), ("ben", "{}")):
        with raises("job.exists", "'a'"):
            queue.submit("a", user, run)
    queue.stop("a")
    queue.delete("a")
    with raises("job.not-found", "'a'"):
        queue.find("a")
    with raises("job.exists", "'a'"):
        queue.submit("a", "ann", "{}")
    assert queue.is_known("a")
    assert queue.jobs() == []


def test_the_highest_priority_comes_first_then_the_oldest(queue: JobQueue):
    for name, priority in (("a", 0), ("b", -5), ("c", 7), ("d", 0)):
        queue.submit(name, "ann", "{}", priority=priority)
    taken = [queue.take("w") for _ in range(5)]
    assert [job.id if job else None for job in taken] == ["c", "a", "d", "b", None]
    assert {job.status for job in taken if job} == {"running"}


def test_a_worker_that_lost_its_lease_changes_nothing(queue: JobQueue):
    queue.lease = 0.0
    queue.submit("a", "ann", "{}")
    first = queue.take("w1")
    queue.lease = 30.0
    second = queue.take("w2")  # by which the first has lost it
    assert first is not None
    assert second is not None
    assert (second.attempt, second.losses, second.worker) == (2, 1, "w2")
    assert queue.renew(first, 5, 10, 0.5) is None
    assert not queue.finish(first, "completed")
    assert not queue.put_back(first)
    assert queue.find("a") == second
    assert queue.renew(second, 5, 10, 0.5) == "running"
    assert queue.finish(second, "completed", exit_status=0, epoch=10)
    done = queue.find("a")
    assert (done.status, done.epoch, done.epochs, done.loss, done.worker) == ("completed", 10, 10, 0.5, None)
    assert not queue.finish(second, "failed")
    assert not queue.put_back(second)


def test_a_job_that_is_lost_too_often_has_failed(queue: JobQueue):
    queue.lease = 0.0
    queue.submit("a", "ann", "{}")
    for attempt in range(1, ATTEMPTS + 1):
        job = queue.take("w")
        assert job is not None
        assert job.attempt == attempt
    assert queue.take("w") is None
    failed = queue.find("a")
    assert (failed.status, failed.code) == ("failed", "job.lost")
    queue.lease = 30.0
    assert queue.restart("a").losses == 0
    assert queue.take("w") is not None


def test_attempts_without_resources_are_limited_and_others_are_not(queue: JobQueue):
    queue.submit("a", "ann", "{}")
    for attempt in range(1, 2 * ATTEMPTS + 1):
        job = queue.take("w")
        assert job is not None
        assert queue.put_back(job, code="memory.insufficient", message="no memory", counts=attempt > ATTEMPTS)
    failed = queue.find("a")
    assert (failed.status, failed.code) == ("failed", "memory.insufficient")
    assert "no memory" in (failed.message or "")


def test_a_job_that_waits_is_not_taken_before_its_time(queue: JobQueue):
    queue.submit("a", "ann", "{}")
    job = queue.take("w")
    assert job is not None
    queue.put_back(job, delay=60.0)
    assert queue.find("a").status == "queued"
    assert queue.take("w") is None


def test_what_is_stopped_while_it_runs_is_stopped_however_its_attempt_ends(queue: JobQueue):
    for name in ("put back", "lost"):
        queue.submit(name, "ann", "{}")
        queue.lease = 0.0 if name == "lost" else 30.0
        job = queue.take("w")
        assert job is not None
        assert queue.stop(name).status == "stopping"
        assert queue.stop(name).status == "stopping"
        if name == "lost":
            assert queue.expire() == 1
        else:
            assert queue.renew(job) == "stopping"
            assert queue.put_back(job)
        assert queue.find(name).status == "stopped"


@pytest.mark.parametrize("request_", ["stop", "restart", "delete"])
def test_requests_that_do_not_fit_the_status_are_refused(queue: JobQueue, request_: str):
    allowed = {"stop": {"queued", "running", "stopping"}, "restart": {"failed", "stopped"}}
    allowed["delete"] = {"completed", "failed", "stopped"}
    for status in ("queued", "running", "stopping", "completed", "failed", "stopped"):
        queue.submit(status, "ann", "{}")
        if status == "stopped":
            queue.stop(status)
        elif status != "queued":
            job = queue.take("w")
            while job is not None and job.id != status:
                job = queue.take("w")
            assert job is not None
            if status == "stopping":
                queue.stop(status)
            elif status != "running":
                queue.finish(job, status)
        if status == "queued" and request_ != "stop":
            with raises("job.wrong-status", status):
                getattr(queue, request_)(status)
            queue.stop(status)  # so that it is not taken in the place of the others
        elif status in allowed[request_]:
            getattr(queue, request_)(status)
        else:
            with raises("job.wrong-status", status):
                getattr(queue, request_)(status)


def test_users_see_their_own_jobs_and_an_administrator_all(queue: JobQueue):
    queue.submit("a", "ann", "{}")
    queue.submit("b", "ben", "{}")
    for action in (queue.find, queue.stop, queue.restart, queue.delete):
        with raises("job.not-found", "'b'"):
            action("b", User("ann"))
    assert queue.find("b", User("root", admin=True)).id == "b"
    assert [job.id for job in queue.jobs()] == ["b", "a"]
    assert [job.id for job in queue.jobs(user="ann")] == ["a"]
    assert [job.id for job in queue.jobs(before=queue.find("b").number)] == ["a"]
    assert [job.id for job in queue.jobs(limit=1)] == ["b"]
    assert queue.stop("a", User("ann")).status == "stopped"
    assert [job.id for job in queue.jobs(status="stopped")] == ["a"]
    assert queue.counts("ben") == {**dict.fromkeys(queue.counts(), 0), "queued": 1}


def test_limits_of_a_user(queue: JobQueue):
    for number in range(2):
        queue.submit(f"a{number}", "ann", "{}", most_queued=2)
    with raises("service.limit-reached", "ann", "2"):
        queue.submit("a2", "ann", "{}", most_queued=2)
    assert not queue.submit("a1", "ann", "{}", most_queued=2)[1], "which is there already"
    queue.submit("b", "ben", "{}", most_queued=2)
    queue.submit("a2", "ann", "{}", most_queued=3)
    queue.stop("a2")
    with raises("service.limit-reached", "ann", "2"):
        queue.restart("a2", most_queued=2)
    assert queue.find("a2").status == "stopped"
    taken = [queue.take("w", most_running=1) for _ in range(3)]
    assert [job.id if job else None for job in taken] == ["a0", "b", None]
    assert taken[0] is not None
    queue.finish(taken[0], "completed")
    assert queue.take("w", most_running=1) is not None
    assert queue.restart("a2", most_queued=2).status == "queued"


def test_ids_that_differ_in_case_would_share_a_folder_and_are_refused(queue: JobQueue):
    queue.submit("Scan1", "ann", "{}")
    for name in ("scan1", "SCAN1"):
        with raises("job.exists", repr(name), "case"):
            queue.submit(name, "ann", "{}")
    assert not queue.submit("Scan1", "ann", "{}")[1]
    queue.stop("Scan1")
    queue.delete("Scan1")
    assert queue.deleted() == ["Scan1"]
    with raises("job.exists", "'scan1'"):
        queue.submit("scan1", "ann", "{}")


def test_many_workers_take_each_job_once(queue: JobQueue):
    for number in range(60):
        queue.submit(f"j{number}", "ann", "{}")
    taken: Counter[str] = Counter()
    most = threading.Semaphore(1)

    def work(name: int) -> None:
        while (job := queue.take(f"w{name}")) is not None:
            with most:
                taken[job.id] += 1
            assert queue.finish(job, "completed")

    with ThreadPoolExecutor(8) as pool:
        [*pool.map(work, range(8))]
    assert taken == {f"j{number}": 1 for number in range(60)}
    assert {job.attempt for job in queue.jobs()} == {1}


def test_a_limit_of_running_jobs_holds_among_many_workers(queue: JobQueue):
    for number in range(12):
        queue.submit(f"j{number}", "ann", "{}")
    with ThreadPoolExecutor(8) as pool:
        taken = [*pool.map(lambda name: queue.take(f"w{name}", most_running=3), range(8))]
    assert sum(job is not None for job in taken) == 3


def test_tokens(queue: JobQueue):
    token = queue.add_user("ann")
    admin = queue.add_user("root", admin=True)
    assert queue.user_of(token) == User("ann")
    assert queue.user_of(admin) == User("root", admin=True)
    others = ("", "ann", "ann~", "\0~", "nobody~x", "\udc80")
    for wrong in (*others, f"{token}x", token[:-1], token.replace("ann", "root")):
        assert queue.user_of(wrong) is None
    newer = queue.add_user("ann")
    assert (queue.user_of(token), queue.user_of(newer)) == (None, User("ann"))
    queue.remove_user("ann")
    assert queue.user_of(newer) is None
    with raises("argument.invalid-value", "ann"):
        queue.remove_user("ann")
    with raises("argument.invalid-value", "Ann"):
        queue.add_user("Ann")


def test_only_the_hash_of_a_token_is_stored(tmp_path):
    queue = JobQueue(sqlite_url(tmp_path))
    token = queue.add_user("ann")
    queue.close()
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.partition("~")[2].encode() not in content
    assert b"ann" in content


def test_messages_that_a_database_cannot_store_are_made_so(queue: JobQueue):
    queue.submit("a", "ann", "{}")
    job = queue.take("w")
    assert job is not None
    assert queue.finish(job, "failed", code="engine.failed", message="zero \0, lone \udc80, long " + "x" * 10_000)
    message = queue.find("a").message
    assert message is not None
    assert message.startswith("zero  , lone ?, long xxx")
    assert len(message) == job_queue.LONGEST_MESSAGE


def test_sqlite_is_on_the_disk_when_a_method_returns(tmp_path):
    queue = JobQueue(sqlite_url(tmp_path))
    with queue._engine.connect() as connection:
        assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == 2
    queue.close()


def test_tables_of_another_version_are_refused(database: str):
    queue = JobQueue(database)
    with queue._engine.begin() as connection:
        connection.execute(sa.text("UPDATE ptynb_schema SET version = 999"))
    queue.close()
    with raises("service.invalid-database", "999", str(job_queue.SCHEMA)):
        JobQueue(database)


@pytest.mark.parametrize("address", ["mysql://host/x", "sqlite://", "no address", "sqlite:///:memory:"])
def test_other_databases_are_refused(address: str):
    with raises("service.invalid-database", "sqlite:////folder/queue.sqlite"):
        database_url(address)


def test_a_password_is_in_no_message():
    with raises("service.invalid-database", "***") as caught:
        JobQueue("postgresql://ann:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "queue.sqlite").write_bytes(b"not a database" * 100)
    with raises("service.invalid-database", "queue.sqlite"):
        JobQueue(sqlite_url(tmp_path))


def test_every_change_of_a_status_is_in_one_place():
    source = re.sub(r'"""(.|\n)*?"""', "", Path(job_queue.__file__).read_text(encoding="utf-8"))
    changes = re.findall(r"_jobs\.update\(\).*", source)
    assert len(changes) == 2, "in _change, and in renew, which changes no status"
    assert sum("status=status" in one for one in changes) == 1
    assert sqlite3.sqlite_version_info >= (3, 35), "RETURNING"
