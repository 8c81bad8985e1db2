"""The HTTP API of a real process: tokens on every route, what users see, limits, and answers to anything."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from ptynb.exceptions import CODES
from ptynb.service.job_queue import Job, JobQueue
from tests.service.running_service import RunningService

AS_JSON = {"Content-Type": "application/json"}
pytestmark = pytest.mark.timeout(120)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SECTIONS = ("scan", "epochs", "settings", "prepare", "load", "cluster", "stages", "listen", "checkpointing")
RUNS = st.dictionaries(st.sampled_from(SECTIONS) | st.text(max_size=5), JSON, max_size=5)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "data").mkdir()
    (folder / "data" / "scan.h5").write_bytes(b"no scan")
    limits = {"jobs_queued": 40, "engines": 4}
    started = RunningService(folder / "service", folder / "data", workers=0, limits=limits)
    yield started
    started.end()


@pytest.fixture(autouse=True)
def _not_full(service: RunningService) -> None:
    """Jobs of earlier tests don't count."""
    for job in service.queue.jobs(status="queued", limit=1000):
        service.queue.stop(job.id)


@pytest.fixture(scope="module")
def document(service: RunningService) -> dict[str, Any]:
    return service.request("GET", "/openapi.json").json()


def is_error(answer: httpx.Response, status: int, code: str) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    told: dict[str, str] = answer.json()
    assert {*told} == {"code", "message"}
    assert told["code"] == code, told
    assert "Traceback" not in told["message"]
    return told


def routes(document: dict[str, Any]) -> list[tuple[str, str]]:
    found = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert len(found) > 9
    return [(method, path.format(id="a", name="phase")) for method, path in found]


def test_no_request_is_answered_without_a_token(service: RunningService, document: dict[str, Any]):
    others = [("GET", path) for path in ("/", "/docs", "/redoc", "/openapi.json", "/nothing", "/jobs/../health", "//")]
    others += [(method, "/jobs") for method in ("HEAD", "OPTIONS", "PUT", "TRACE", "PROPFIND")]
    right = service.tokens["ann"]
    wrong = [None, "", "Bearer", f"Basic {right}", f"Bearer {right}x", f"Bearer {right[:-1]}", right]
    wrong += [f"Bearer {right.replace('ann', 'root')}", "Bearer ann~", "Bearer \xff", f"Token {right}"]
    with httpx.Client(base_url=service.url) as client:
        for method, path in [*routes(document), *others]:
            for header in wrong:
                headers = {} if header is None else {"Authorization": header.encode("latin-1")}
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401, (method, path, header)
                assert answer.headers["www-authenticate"] == "Bearer"
                if method != "HEAD":
                    is_error(answer, 401, "service.no-token")
            query = client.request(method, path, params={"token": right, "access_token": right})
            assert query.status_code == 401
    with service.client() as client:
        twice = [("Authorization", "Bearer x"), ("Authorization", f"Bearer {right}")]
        assert httpx.get(f"{service.url}/health", headers=twice).status_code == 401
        assert client.get("/health").status_code == 200


def test_what_does_not_exist_is_an_error_in_json(service: RunningService):
    is_error(service.request("GET", "/nothing"), 404, "service.invalid-request")
    is_error(service.request("PUT", "/jobs"), 405, "service.invalid-request")
    is_error(service.request("GET", "/jobs/nothing"), 404, "job.not-found")
    is_error(service.request("GET", "/jobs/..%2f..%2fetc"), 404, "service.invalid-request")
    is_error(service.request("GET", "/jobs/.hidden"), 422, "service.invalid-request")
    service.submit(id="new")
    for path in ("result", "pictures/phase"):
        is_error(service.request("GET", f"/jobs/new/{path}"), 404, "job.no-file")
    is_error(service.request("GET", "/jobs/new/pictures/secret"), 422, "service.invalid-request")
    assert service.request("GET", "/jobs/new/progress").json() == {"lines": [], "next": 0}
    is_error(service.request("DELETE", "/jobs/new"), 409, "job.wrong-status")
    is_error(service.request("POST", "/jobs/new/restart"), 409, "job.wrong-status")


def test_users_see_only_their_jobs(service: RunningService):
    assert service.submit("ben", id="of-ben").json()["user"] == "ben"
    for method, path in (
        ("GET", ""), ("GET", "/run"), ("GET", "/progress"), ("GET", "/result"), ("GET", "/pictures/phase"),
        ("POST", "/stop"), ("POST", "/restart"), ("DELETE", ""),
    ):  # fmt: skip
        is_error(service.request(method, f"/jobs/of-ben{path}", "ann"), 404, "job.not-found")
    is_error(service.submit("ann", id="of-ben"), 409, "job.exists")
    for user, query, sees in (("ann", "", False), ("ann", "?owner=ben", False), ("ben", "", True), ("root", "", True)):
        listed = service.request("GET", f"/jobs{query}", user).json()["jobs"]
        assert ("of-ben" in [job["id"] for job in listed]) == sees
    assert {job["user"] for job in service.request("GET", "/jobs?owner=ben", "root").json()["jobs"]} == {"ben"}
    assert service.request("GET", "/health", "root").json()["jobs"]["queued"] >= 1
    assert service.request("POST", "/jobs/of-ben/stop", "root").json()["status"] == "stopped"


def test_files_of_a_former_job_are_shown_to_nobody(service: RunningService):
    """As after a change of the database."""
    (service.jobs / "former").mkdir()
    (service.jobs / "former" / "progress.jsonl").write_text('{"event": "started"}\n')
    is_error(service.submit("ben", id="former"), 409, "job.exists")
    is_error(service.request("GET", "/jobs/former/progress", "ben"), 404, "job.not-found")


def test_jobs_are_listed_by_page(service: RunningService):
    for number in range(5):
        service.submit("ben", id=f"page{number}")
    found, query = [], "?limit=2&status=queued"
    while True:
        page = service.request("GET", f"/jobs{query}", "ben").json()
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        query = f"?limit=2&status=queued&before={page['next']}"
    assert found == [f"page{number}" for number in (4, 3, 2, 1, 0)]


def test_a_run_is_given_as_values_or_as_yaml_and_is_the_same_job(service: RunningService):
    run = {"scan": "scan.h5", "epochs": 7, "cluster": {"kind": "none"}, "result": "/elsewhere/x.h5"}
    first = service.request("POST", "/jobs", json={"run": run, "id": "both"})
    text = "epochs: 7\nscan: scan.h5\ncluster: {kind: none}\nresult: y.h5\n"
    second = service.request("POST", "/jobs", json={"run": text, "id": "both"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json()
    kept = service.request("GET", "/jobs/both/run").json()
    assert kept["scan"][0]["file"] == str(service.data / "scan.h5")
    assert kept["result"] == "result.h5"


@pytest.mark.parametrize(
    ("run", "status", "code"),
    [
        ({"scan": "scan.h5"}, 422, "settings.invalid-value"),
        ({"scan": "scan.h5", "epochs": 3, "epoch": 3}, 422, "settings.unknown-name"),
        ("scan: [", 422, "settings.invalid-yaml"),
        ("- 1", 422, "settings.not-a-mapping"),
        ({"scan": "scan.h5", "epochs": 3, "settings": {"a\ud800": 1}}, 422, "settings.invalid-yaml"),
        ({"scan": "../../../etc/passwd", "epochs": 3, "cluster": {"kind": "none"}}, 403, "service.not-allowed"),
        ({"scan": "scan.h5", "epochs": 3, "checkpointing": {"transfer": "os:remove"}}, 403, "service.not-allowed"),
        ({"scan": "scan.h5", "epochs": 3, "cluster": {"kind": "local", "engines": 9}}, 429, "service.limit-reached"),
    ],
)
def test_a_run_file_that_is_not_accepted_is_an_error_in_json(service: RunningService, run: Any, status: int, code: str):
    answer = service.request("POST", "/jobs", content=json.dumps({"run": run}), headers=AS_JSON)
    is_error(answer, status, code)
    assert code in CODES


def test_limits(service: RunningService):
    for _ in range(40):
        assert service.submit("ben").status_code == 201
    is_error(service.submit("ben"), 429, "service.limit-reached")
    assert service.submit("ann").status_code == 201
    is_error(service.submit("ann", priority=1), 403, "service.not-allowed")
    assert service.submit("root", priority=1, id="urgent").status_code == 201
    large = {"run": "#" * 2**20 + "\nscan: scan.h5\nepochs: 3"}
    is_error(service.request("POST", "/jobs", json=large), 413, "service.too-large")

    def parts() -> Iterator[bytes]:
        for _ in range(300):
            yield b" " * 10_000

    is_error(service.request("POST", "/jobs", content=parts(), headers=AS_JSON), 413, "service.too-large")
    assert service.request("GET", "/health").status_code == 200


def completed(queue: JobQueue, name: str) -> Job:
    """A job that a worker has completed."""
    queue.submit(name, "ann", "{}", priority=100)
    job = queue.take("w")
    assert job is not None
    assert job.id == name
    queue.finish(job, "completed")
    return job


def test_pictures_and_lines_of_progress(service: RunningService):
    completed(service.queue, "seen")
    folder = service.jobs / "seen"
    (folder / "checkpoints").mkdir(parents=True)
    picture = io.BytesIO()
    Image.new("L", (8, 8), 99).save(picture, "JPEG")
    (folder / "checkpoints" / "phase.jpg").write_bytes(picture.getvalue())
    (folder / "checkpoints" / "probe.jpg").symlink_to(service.folder / "queue.sqlite")
    answer = service.request("GET", "/jobs/seen/pictures/phase")
    assert (answer.content, answer.headers["content-type"]) == (picture.getvalue(), "image/jpeg")
    is_error(service.request("GET", "/jobs/seen/pictures/probe"), 404, "job.no-file")
    lines = b'{"event": "epoch", "loss": NaN}\nno json\n[1]\n\xff\n{"event": "epoch", "epoch": 2}\n{"event": "cut'
    (folder / "progress.jsonl").write_bytes(lines)
    told = service.request("GET", "/jobs/seen/progress").json()
    assert told["lines"] == [{"event": "epoch", "loss": None}, {"event": "epoch", "epoch": 2}]
    assert told["next"] == lines.rindex(b"\n") + 1
    assert service.request("GET", f"/jobs/seen/progress?since={2**62}").json() == {"lines": [], "next": len(lines)}
    (folder / "result.h5").symlink_to(service.folder / "queue.sqlite")
    is_error(service.request("GET", "/jobs/seen/result"), 404, "job.no-file")
    (folder / "result.h5").unlink()
    (folder / "result.h5").write_bytes(b"0123456789")
    for requested, status, content in (
        ("bytes=2-4", 206, b"234"), ("bytes=-2", 206, b"89"), ("bytes=99-", 416, None), ("what", 400, None)
    ):  # fmt: skip
        answer = service.request("GET", "/jobs/seen/result", headers={"Range": requested})
        assert answer.status_code == status
        assert content in (None, answer.content)


def test_the_document_describes_every_route_and_its_token(document: dict[str, Any]):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["security"] == [{"HTTPBearer": []}], (method, path)
            assert {"401", "422", "503"} <= {*operation["responses"]}
            assert operation["description"]
    assert document["openapi"].startswith("3.")


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values of a parameter: those that its schema describes, and any others."""
    if "anyOf" in schema:
        return st.one_of([values(one) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"]) | st.text()
    if schema.get("type") == "integer":
        return st.integers(-(10**25), 10**25)
    return st.sampled_from(["a", "seen", "new", "0", "a" * 101]) | st.text(min_size=1)


def test_no_request_makes_the_service_fail(service: RunningService, document: dict[str, Any]):
    operations = [(method, path, one) for path, methods in document["paths"].items() for method, one in methods.items()]
    seen: set[int] = set()
    with service.client() as client:

        @settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
        @given(st.data())
        def request(draw: st.DataObject) -> None:
            method, path, operation = draw.draw(st.sampled_from(operations))
            places: dict[str, dict[str, Any]] = {"path": {}, "query": {}}
            for parameter in operation.get("parameters", []):
                if parameter["required"] or draw.draw(st.booleans()):
                    drawn = draw.draw(values(parameter["schema"]))
                    places[parameter["in"]][parameter["name"]] = "" if drawn is None else str(drawn)
            body = None
            if "requestBody" in operation:
                whole = {"run": draw.draw(RUNS | st.text() | JSON), "id": draw.draw(st.none() | st.text() | JSON)}
                texts = [json.dumps(whole), json.dumps(whole["run"]), "{", "[" * 9999]
                body = draw.draw(st.sampled_from(texts) | st.text())
            path = re.sub(r"\{(\w+)\}", lambda found: quoted(places["path"][found[1]]), path)
            query = {name: value.encode("utf-8", "replace").decode() for name, value in places["query"].items()}
            content = None if body is None else body.encode("utf-8", "replace")
            answer = client.request(method.upper(), path, params=query, content=content, headers=AS_JSON)
            seen.add(answer.status_code)
            assert answer.status_code < 500, (method, path, query, body, answer.text)
            if answer.status_code >= 400 and answer.status_code != 416:
                assert {*answer.json()} == {"code", "message"}

        request()
    assert {200, 404, 422} <= seen
    assert "Traceback" not in (service.folder / "serve.log").read_text()


def quoted(text: str) -> str:
    """A text in a path, where httpx would resolve dots."""
    return "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "replace"))


def test_a_fault_of_the_service_is_told_without_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from ptynb.service.http_api import make_app
    from ptynb.service.job_queue import sqlite_url
    from ptynb.service.submissions import RunRules

    queue = JobQueue(sqlite_url(tmp_path))
    token = queue.add_user("ann")
    app = make_app(queue, tmp_path, RunRules((tmp_path,)))

    def get() -> httpx.Response:
        async def request() -> httpx.Response:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
                return await client.get("/jobs/a", headers=headers)

        return asyncio.run(request())

    monkeypatch.setattr(queue, "find", lambda *_: 1 / 0)
    is_error(get(), 500, "service.failed")
    monkeypatch.undo()
    (tmp_path / "queue.sqlite").unlink()
    queue.close()
    (tmp_path / "queue.sqlite").write_bytes(b"not a database any more" * 100)
    for left in tmp_path.glob("queue.sqlite-*"):
        left.unlink()
    is_error(get(), 503, "service.unavailable")
    queue.close()
