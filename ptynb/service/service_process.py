"""The process of `ptynb serve`: the HTTP API, workers of this machine that end with it, and watchers of folders."""

from __future__ import annotations

import logging
import math
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from ptynb.batch.signals import signals_are_noted
from ptynb.distributed.this_machine import is_here
from ptynb.exceptions import ServiceError
from ptynb.polling import wait_while
from ptynb.private_folder import private_folder
from ptynb.service import guarded_process
from ptynb.service.folder_watcher import FolderWatcher
from ptynb.service.http_api import Guard, make_app
from ptynb.service.job_queue import JobQueue, sqlite_url
from ptynb.service.job_worker import KEEPING, WorkerOptions
from ptynb.service.submissions import RunRules
from ptynb.settings.site_file import Site
from ptynb.supervised_thread import SupervisedThread

PERIOD = 0.5
"""Time between looks at the workers [s]."""
RESTART = 2.0
"""Time after which a worker that has ended is started again [s]."""
EXPIRY = 5.0
"""Time between looks for jobs whose workers are gone [s]."""
LEAVING = 5.0
"""Time for requests that are under way at the end [s]."""

logger = logging.getLogger("ptynb.service")


def worker_options(site: Site, folder: Path, **others: object) -> WorkerOptions:
    """Return the options of the workers of a service. others: those that are not in the site file."""
    jobs = private_folder(private_folder(folder.absolute()) / "jobs")
    given = {"database": site.serve.database or sqlite_url(folder), "folder": str(jobs), "trust": site.serve.trust}
    given |= {"jobs_running": site.limits.jobs_running, "hours": site.limits.hours}
    return WorkerOptions(**{**given, **others})  # type: ignore[arg-type]


def check_host(host: str, *, is_encrypted: bool, behind_proxy: bool) -> None:
    """Raise ServiceError if tokens would pass a network in the clear."""
    if not (is_here(host) or is_encrypted or behind_proxy):
        raise ServiceError(
            f"The host is {host}, where tokens could be read on the network; give --tls-certificate and --tls-key, or "
            "--behind-proxy if a proxy encrypts all that comes from outside, or serve on 127.0.0.1.",
            code="service.not-allowed",
        )


def serve(
    site: Site,
    options: WorkerOptions,
    ready: Callable[[str], object],
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    behind_proxy: bool = False,
) -> None:
    """Serve until a signal comes; see `ptynb serve`.

    ready: is called with the address. Raises ServiceError if the service cannot start.
    """
    check_host(site.serve.host, is_encrypted=certificate is not None, behind_proxy=behind_proxy)
    rules = RunRules(site.serve.data, site.serve.trust, site.limits.engines)
    for watched in site.serve.watch:
        if not any(watched.folder.resolve().is_relative_to(folder.resolve()) for folder in site.serve.data):
            raise ServiceError(
                f"The watched folder {watched.folder} is not in the folders of data, from which scans may be read; add "
                "it to them.",
                code="service.not-allowed",
            )
    queue = options.queue()
    try:
        _remove_deleted(queue, Path(options.folder))
        watchers = [FolderWatcher(watched, queue, rules) for watched in site.serve.watch]
        app = make_app(queue, Path(options.folder), rules, site.limits.jobs_queued)
        with _listening(site.serve.host, site.serve.port) as listening, signals_are_noted() as came:
            ended: list[bool] = []
            threads = [SupervisedThread("ptynb workers", _supervise, options, site.serve.workers, queue, ended)]
            threads += [SupervisedThread("ptynb watcher", one.watch, lambda: ended, restarts=True) for one in watchers]
            for thread in threads:
                thread.start()
            try:
                server = uvicorn.Server(_config(app, certificate, key))
                # uvicorn has handlers of its own of some signals, and only while it runs.
                threads.append(SupervisedThread("ptynb signals", _end_after_signal, server, came, ended))
                threads[-1].start()
                scheme = "http" if certificate is None else "https"
                host = f"[{site.serve.host}]" if ":" in site.serve.host else site.serve.host
                if not came:
                    ready(f"{scheme}://{host}:{listening.getsockname()[1]}")
                    server.run([listening])
            finally:
                ended.append(True)
                for thread in threads:
                    thread.join()
    finally:
        queue.close()


def _config(app: Guard, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing depends on the address of a client
        timeout_graceful_shutdown=round(LEAVING),
    )


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises ServiceError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ServiceError(
            f"{host}, port {port}, cannot be listened on ({error}); choose others with --host and --port.",
            code="argument.invalid-value",
        ) from None


def _supervise(options: WorkerOptions, count: int, queue: JobQueue, ended: list[bool]) -> None:
    """Keep so many workers running until it is time to end, and then end them."""
    workers = [_worker(options) for _ in range(count)]
    expired = time.monotonic()
    while not ended:
        for place, worker in enumerate(workers):
            if worker is not None and worker.poll() is None:
                continue
            if worker is not None:
                logger.warning("A worker has ended with status %s; starting another one.", worker.returncode)
                guarded_process.close(worker)
            wait_while(lambda: not ended, RESTART, 0.1)
            workers[place] = None if ended else _worker(options)
        if time.monotonic() - expired > EXPIRY:
            expired = time.monotonic()
            _expire(queue)
        wait_while(lambda: not ended, PERIOD, 0.1)
    living = [worker for worker in workers if worker is not None]
    for worker in living:
        worker.terminate()
    for worker in living:
        guarded_process.end(worker, KEEPING + LEAVING)


def _worker(options: WorkerOptions) -> subprocess.Popen[bytes] | None:
    """Return a new worker; None if the system has no process or memory for it now."""
    try:
        return options.start()
    except OSError as error:
        logger.warning("A worker cannot be started (%s); trying again.", error)
        return None


def _end_after_signal(server: uvicorn.Server, came: Sequence[int], ended: list[bool]) -> None:
    wait_while(lambda: not came and not ended, math.inf, 0.1)
    server.should_exit = True


def _remove_deleted(queue: JobQueue, folder: Path) -> None:
    """Remove files of deleted jobs: the service may have been killed before all were gone."""
    for name in queue.deleted():
        if (folder / name).exists():
            shutil.rmtree(folder / name, ignore_errors=True)


def _expire(queue: JobQueue) -> None:
    try:
        queue.expire()
    except SQLAlchemyError as error:
        logger.warning("The database does not answer (%s); trying again.", error)
