"""The HTTP API: jobs over HTTP, described by the OpenAPI document at /openapi.json.

Every request needs the token of a user, whether there is such a route or not: `Guard` stands before all of them. Errors
are JSON, {"code", "message"}.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

import ptynb
from ptynb.batch.run_folder import CHECKPOINTS, PROGRESS, RESULT
from ptynb.exceptions import PtynbError, ServiceError
from ptynb.io.status_file import Folder
from ptynb.service.job_queue import ID, USER, Job, JobQueue, Status, User
from ptynb.service.job_worker import is_of_another
from ptynb.service.submissions import RunRules
from ptynb.text import in_one_line

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
MOST_BYTES = 2**20
"""Largest size of a request."""
MOST_LINES = 2**20
"""Largest size of the lines in one answer [bytes]."""
LARGEST = 2**62
STATUSES = {
    "job.exists": 409,
    "job.no-file": 404,
    "job.not-found": 404,
    "job.wrong-status": 409,
    "service.invalid-request": 422,
    "service.limit-reached": 429,
    "service.no-token": 401,
    "service.not-allowed": 403,
    "service.too-large": 413,
    "service.unavailable": 503,
    "service.failed": 500,
}
"""HTTP statuses by code of an error; 422 for others, which are about the run file."""
SHOWN = 1000
"""Longest message of an error."""

logger = logging.getLogger("ptynb.service")
bearer = HTTPBearer(auto_error=False, description="The token that `ptynb serve --add-token USER` printed")


class ErrorAnswer(BaseModel):
    """Why a request was not fulfilled."""

    code: str = Field(description="Kind of the problem, one of `ptynb.exceptions.CODES`")
    message: str = Field(description="What was found, what is expected, and what to do")


class JobRequest(BaseModel):
    """A job to submit."""

    model_config = ConfigDict(extra="forbid")

    run: dict[str, Any] | str = Field(
        description="Run file, as an object or as YAML; its result and checkpoints are in the folder of the job, "
        "whatever it says"
    )
    id: str | None = Field(
        default=None,
        pattern=ID,
        description="Name of the job; none: a random one. The same content under the same id is submitted once",
    )
    priority: int = Field(
        default=0, ge=-100, le=100, description="Jobs of a higher one run first; above 0 by administrators only"
    )


class JobAnswer(BaseModel):
    """A job."""

    number: int = Field(description="Its number, in the order in which jobs were submitted")
    id: str
    user: str
    status: Status
    priority: int
    attempt: int = Field(description="How often a worker has taken it")
    worker: str | None = Field(description="Host and process that has it")
    created: datetime
    started: datetime | None = Field(description="Beginning of the latest attempt")
    ended: datetime | None
    exit_status: int | None = Field(description="Exit status of `ptynb run`")
    error: ErrorAnswer | None = Field(description="Why it has failed, or waits for another attempt")
    epoch: int | None
    epochs: int | None
    loss: float | None


class JobsAnswer(BaseModel):
    """A page of jobs, the newest first."""

    jobs: list[JobAnswer]
    next: int | None = Field(description="Value of `before` for the next page; null at the end")


class LinesAnswer(BaseModel):
    """Lines that a run wrote about its progress."""

    lines: list[dict[str, Any]]
    next: int = Field(description="Value of `since` for the lines after these")


class HealthAnswer(BaseModel):
    """State of the service."""

    version: str
    jobs: dict[str, int] = Field(description="Number of the user's jobs of each status; an administrator's: of all")


def _answer(job: Job) -> JobAnswer:
    values = asdict(job)
    times = {name: _time(values[name]) for name in ("created", "started", "ended")}
    told = job.code is not None or job.message is not None
    error = ErrorAnswer(code=job.code or "", message=job.message or "") if told else None
    return JobAnswer(**{name: values[name] for name in JobAnswer.model_fields if name in values} | times, error=error)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


async def _user(request: Request, _: Annotated[Any, Depends(bearer)]) -> User:
    """Return the user whose token `Guard` has found."""
    user: User = request.scope["ptynb_user"]
    return user


Visitor = Annotated[User, Depends(_user)]
JobId = Annotated[str, InPath(pattern=ID, description="Id of the job")]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        401: "The token is missing or not valid",
        403: "Not allowed",
        404: "There is no such job of the user, or it has no such file yet",
        405: "The route has no such method",
        409: "The job has another content or status",
        413: "The request is too large",
        422: "The request or the run file is not valid",
        429: "A limit of the site is reached",
        503: "The database does not answer",
    }.items()
}


def make_app(queue: JobQueue, folder: Path, rules: RunRules, most_queued: int | None = None) -> Guard:
    """Return the application.

    folder: of the jobs. rules: what run files may name. most_queued: number of queued jobs of a user.
    """
    app = FastAPI(
        title="ptynb serve",
        version=ptynb.__version__,
        summary="Queue of ptychographic reconstructions",
        docs_url=None,  # these pages would load scripts from another host
        redoc_url=None,
        responses=ERRORS,
    )

    def mine(user: User) -> str | None:
        return None if user.admin else user.name

    def place(id: str, user: User) -> Path:
        return folder / queue.find(id, user).id

    @app.post("/jobs", status_code=201, responses={200: {"model": JobAnswer, "description": "It was submitted before"}})
    def submit(request: JobRequest, user: Visitor, response: Response) -> JobAnswer:
        """Submit a job."""
        if request.priority > 0 and not user.admin:
            raise ServiceError(
                f"priority is {request.priority}; expected 0 or less, or an administrator's token.",
                code="service.not-allowed",
            )
        run = rules.accepted(request.run)
        id = request.id or f"job-{secrets.token_hex(8)}"
        if not queue.is_known(id) and is_of_another(folder / id, user.name, run):
            raise ServiceError(
                f"There are files of a former job {id!r}, with other content or of another user; choose another id.",
                code="job.exists",
            )
        job, is_new = queue.submit(id, user.name, run, priority=request.priority, most_queued=most_queued)
        response.status_code = 201 if is_new else 200
        return _answer(job)

    @app.get("/jobs")
    def list_jobs(
        user: Visitor,
        status: Annotated[Status | None, Query(description="Only jobs of this status")] = None,
        owner: Annotated[str | None, Query(pattern=USER, description="Only jobs of this user")] = None,
        before: Annotated[int | None, Query(ge=0, le=LARGEST, description="Only jobs with a smaller number")] = None,
        limit: Annotated[int, Query(ge=1, le=500, description="Number of jobs on a page")] = 100,
    ) -> JobsAnswer:
        """List jobs, the newest first: the user's own, or those of all if an administrator asks."""
        if not user.admin and owner not in (None, user.name):
            return JobsAnswer(jobs=[], next=None)
        found = queue.jobs(mine(user) or owner, status, before, limit)
        return JobsAnswer(jobs=[*map(_answer, found)], next=found[-1].number if len(found) == limit else None)

    @app.get("/jobs/{id}")
    def show_job(id: JobId, user: Visitor) -> JobAnswer:
        """Return a job."""
        return _answer(queue.find(id, user))

    @app.get("/jobs/{id}/run")
    def show_run(id: JobId, user: Visitor) -> dict[str, Any]:
        """Return the run file of a job, with whole paths."""
        run: dict[str, Any] = json.loads(queue.find(id, user).run)
        return run

    @app.get("/jobs/{id}/progress")
    def show_progress(
        id: JobId,
        user: Visitor,
        since: Annotated[int, Query(ge=0, le=LARGEST, description="`next` of an earlier answer")] = 0,
    ) -> LinesAnswer:
        """Return the lines of progress of a job, all or those after an earlier answer."""
        return _progress(place(id, user) / PROGRESS, since)

    @app.get(
        "/jobs/{id}/pictures/{name}",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}, "description": "The newest picture"}},
    )
    def show_picture(id: JobId, name: Literal["amplitude", "phase", "probe"], user: Visitor) -> Response:
        """Return the newest picture of the object's amplitude or phase, or of the probe."""
        pictures = Folder(place(id, user) / CHECKPOINTS)
        pictures.look()
        if name not in pictures.pictures:
            raise ServiceError(
                f"The job {id!r} has no picture of the {name} yet; they come with its first epochs.",
                code="job.no-file",
            )
        return Response(pictures.pictures[name], media_type="image/jpeg", headers={"Cache-Control": "no-store"})

    @app.get(
        "/jobs/{id}/result",
        response_class=FileResponse,
        responses={
            200: {"content": {"application/x-hdf5": {}}, "description": "The file; ranges are supported"},
            206: {"content": {"application/x-hdf5": {}}, "description": "A range of the file"},
            416: {"content": {"text/plain": {}}, "description": "The file has no such range"},
        },
    )
    def download_result(id: JobId, user: Visitor) -> FileResponse:
        """Return the result of a completed job, a file of HDF5."""
        job = queue.find(id, user)
        path = folder / job.id / RESULT
        if job.status != "completed" or path.is_symlink() or not path.is_file():
            raise ServiceError(
                f"The job {id!r} is {job.status} and has no result; expected a completed job.", code="job.no-file"
            )
        return FileResponse(path, media_type="application/x-hdf5", filename=f"{id}.h5")

    @app.post("/jobs/{id}/stop")
    def stop_job(id: JobId, user: Visitor) -> JobAnswer:
        """Stop a job; one that runs writes a checkpoint first."""
        return _answer(queue.stop(id, user))

    @app.post("/jobs/{id}/restart")
    def restart_job(id: JobId, user: Visitor) -> JobAnswer:
        """Queue a stopped or failed job again; it continues from its newest checkpoint."""
        return _answer(queue.restart(id, user, most_queued=most_queued))

    @app.delete("/jobs/{id}", status_code=204)
    def delete_job(id: JobId, user: Visitor) -> None:
        """Delete an ended job with its files."""
        shutil.rmtree(folder / queue.delete(id, user).id, ignore_errors=True)

    @app.get("/health")
    def health(user: Visitor) -> HealthAnswer:
        """Return the state of the service."""
        return HealthAnswer(version=ptynb.__version__, jobs=queue.counts(mine(user)))

    for kind in (PtynbError, SQLAlchemyError, Exception):
        app.add_exception_handler(kind, _failed)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(HTTPException, _refused)
    return Guard(app, queue)


def _progress(path: Path, since: int) -> LinesAnswer:
    """Return whole lines of a file from a place in it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(min(since, size))
            content = file.read(MOST_LINES)
    except FileNotFoundError:
        return LinesAnswer(lines=[], next=0)
    whole = content.rfind(b"\n") + 1
    if whole == 0 and len(content) == MOST_LINES:
        whole = MOST_LINES  # part of a line that is longer than any that ptynb writes
    return LinesAnswer(lines=[*filter(None, map(_line, content[:whole].splitlines()))], next=min(since, size) + whole)


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        # What is no number in JSON is no number in the answer either.
        found = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Guard:
    """Stands before the application: each request needs a token, is small, and gets an answer in JSON."""

    def __init__(self, app: FastAPI, queue: JobQueue) -> None:
        self.app, self.queue = app, queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as ASGI defines it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)
        else:  # WebSocket: there are none
            await send({"type": "websocket.close", "code": 1008})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            scope["ptynb_user"] = await anyio.to_thread.run_sync(self._user_of, scope)
            body = await _whole(scope, receive)
            await self.app(scope, body, sending)
        except Exception as error:  # noqa: BLE001 - nobody else would answer
            if not begun:  # else the application has answered, and raised its error again
                await _error_answer(error)(scope, receive, send)

    def _user_of(self, scope: Scope) -> User:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, token = (given[0] if len(given) == 1 else b"").decode("latin-1").partition(" ")
        user = self.queue.user_of(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            raise ServiceError(
                "The request has no valid token; expected the header 'Authorization: Bearer TOKEN', with a token that "
                "whoever runs the service makes by ptynb serve --add-token USER.",
                code="service.no-token",
            )
        return user


async def _whole(scope: Scope, receive: Receive) -> Receive:
    """Return a function that gives the whole body of a request, once it is here. Raises ServiceError if it is large."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > MOST_BYTES:
            raise ServiceError(
                f"The request has more than {MOST_BYTES} bytes; expected a run file, which has a few thousand.",
                code="service.too-large",
            )
    given = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return given.pop() if given else await receive()

    return replay


def _error_answer(error: Exception) -> Response:
    """Return the answer to a request that has raised an error."""
    if isinstance(error, SQLAlchemyError):
        logger.error("The database does not answer: %s", error)
        error = ServiceError("The database of the service does not answer; try again.", code="service.unavailable")
    if not isinstance(error, PtynbError):
        logger.error("A request has failed", exc_info=error)
        error = ServiceError("The service has failed; its log says why.", code="service.failed")
    status = STATUSES.get(error.code, 422)
    return _json(status, error.code, str(error), {"WWW-Authenticate": "Bearer"} if status == 401 else {})


async def _failed(_: Request, error: Exception) -> Response:
    return _error_answer(error)


async def _refused(_: Request, error: Exception) -> Response:
    """Return the answer to a request that FastAPI has refused."""
    if isinstance(error, RequestValidationError):
        sentences = [
            f"{'.'.join(str(part) for part in problem['loc'][1:]) or 'the request'}: {problem['msg']}"
            for problem in error.errors()[:3]
        ]
        return _json(422, "service.invalid-request", f"{'; '.join(sentences)}. See /openapi.json.")
    assert isinstance(error, HTTPException)
    status = 422 if error.status_code == 400 else error.status_code
    text = f"{error.detail}; the requests that there are stand in /openapi.json."
    return _json(status, "service.invalid-request", text, dict(error.headers or {}))


def _json(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    # In ASCII, since the message may quote what no encoding has.
    text = json.dumps({"code": code, "message": in_one_line(message, SHOWN)})
    return Response(text, status, headers, media_type="application/json")
