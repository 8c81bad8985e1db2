"""A service in real processes: a run from its submission to its result, and the commands."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest

from ptynb.cli.main import _parser, main
from ptynb.cli.serve_command import _check_server
from ptynb.service import require_packages, service_process
from ptynb.service.service_process import _supervise
from tests.raising import raises
from tests.service.running_service import ENDED, Start, environment
from tests.system_parts import ROOT
from tests.waiting import until

DOCS = ROOT / "docs" / "serve.md"
pytestmark = pytest.mark.timeout(120)


def test_a_job_runs_from_its_submission_to_its_result_also_across_an_end_of_the_service(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    service = start()
    answer = service.submit(id="first", epochs=4)
    assert (answer.status_code, answer.json()["status"]) == (201, "queued")
    done = service.reaches("first", *ENDED)
    assert (done["status"], done["exit_status"], done["attempt"], done["error"]) == ("completed", 0, 1, None)
    assert (done["epoch"], done["epochs"], done["loss"]) == (4, 4, 0.25)
    assert service.journal("first") == ["begin", "end"]
    told = service.request("GET", "/jobs/first/progress").json()
    assert [line["event"] for line in told["lines"]] == ["started", *["epoch"] * 4, "completed"]
    assert service.request("GET", f"/jobs/first/progress?since={told['next']}").json() == {**told, "lines": []}
    whole = service.request("GET", "/jobs/first/result")
    assert whole.content == b"\x89HDF" + bytes(range(250))
    part = service.request("GET", "/jobs/first/result", headers={"Range": "bytes=1-3"})
    assert (part.status_code, part.content) == (206, b"HDF")
    assert service.submit(id="first", epochs=4).status_code == 200
    assert service.submit(id="first", epochs=5).status_code == 409

    example = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTYNB_TOKEN", service.tokens["ann"])
    exec(compile(example.replace("http://127.0.0.1:8470", service.url), "serve.md", "exec"), {})
    assert (tmp_path / "scan17.h5").read_bytes() == whole.content

    service.submit(id="second", epochs=100_000)
    until(lambda: (service.queue.find("second").epoch or 0) > 0, 60)
    assert service.end() == 0
    put_back = service.queue.find("second")
    assert (put_back.status, put_back.losses, put_back.worker) == ("queued", 0, None)
    service.start()
    until(lambda: service.journal("second") == ["begin", "begin"], 60)
    (service.jobs / "second.enough").touch()
    assert service.reaches("second", *ENDED)["status"] == "completed"
    assert service.journal("second") == ["begin", "begin", "end"]
    assert service.request("DELETE", "/jobs/second").status_code == 204
    assert not (service.jobs / "second").exists()
    assert service.end() == 0
    (service.jobs / "second").mkdir()  # it was killed before all files were gone
    service.start()
    assert not (service.jobs / "second").exists()
    assert (service.jobs / "first").exists()
    assert service.request("GET", "/jobs/second").status_code == 404


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("is_early", [True, False], ids=["early", "late"])
def test_a_signal_ends_the_service_at_any_time(tmp_path: Path, number: int, is_early: bool):
    """Also one that comes before the HTTP server has its handlers, in `ready`, and one of which that has none."""
    program = (
        "import os, sys; from pathlib import Path; from ptynb.settings.site_file import Site\n"
        "from ptynb.service.service_process import serve, worker_options\n"
        "site = Site(serve={'folder': sys.argv[1], 'workers': 0})\n"
        "site = site.model_copy(update={'serve': site.serve.model_copy(update={'port': 0})})\n"
        "def ready(url):\n"
        f"    print(url, flush=True)\n    if {is_early}: os.kill(os.getpid(), {int(number)})\n"
        "serve(site, worker_options(site, Path(sys.argv[1])), ready)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "made")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(), text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            if not is_early:
                until(lambda: httpx.get(f"{url}/health").status_code == 401, 60)
                process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_workers_that_cannot_be_started_are_tried_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service_process, "RESTART", 0.0)
    ended: list[bool] = []
    fails = [OSError(errno.EAGAIN, "Resource temporarily unavailable"), BrokenPipeError(errno.EPIPE, "Broken pipe")]
    living = MagicMock()
    living.poll.return_value = None

    def start() -> Any:
        if fails:
            raise fails.pop()
        ended.append(True)
        return living

    _supervise(SimpleNamespace(start=start), 1, MagicMock(), ended)
    assert ended
    assert living.terminate.called


def test_the_commands_of_the_documentation_are_there():
    lines = re.findall(r"^(?:ExecStart=\S*/)?(ptynb .*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        assert _parser().parse_args(line.split()[1:]).run is not None, line


def test_the_commands_serve_and_submit(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "made"
    assert main(["serve", "--folder", str(folder), "--add-token", "ann"]) == 0
    token = capsys.readouterr().out.strip()
    assert token.startswith("ann~")
    assert folder.stat().st_mode & 0o077 == 0
    words = ["serve", "--folder", str(folder), "--port", "0", "--workers", "0", "--data", str(data)]
    run = tmp_path / "run.yaml"
    run.write_text("scan: scan.h5\nepochs: 3\n")
    with subprocess.Popen(
        [sys.executable, "-m", "ptynb.cli.main", *words], stdout=subprocess.PIPE, env=environment(), text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[2].rstrip(";")
        try:
            for variable, words, status, says in (
                (token, ("--id", "a"), 0, "a\n"),
                (token, ("--id", "a", "--priority", "5"), 64, "priority is 5"),
                ("ann~wrong", (), 64, "no valid token"),
                ("", (), 64, "PTYNB_TOKEN is not set"),
            ):
                monkeypatch.setenv("PTYNB_TOKEN", variable)
                assert main(["submit", str(run), "--server", address, *words]) == status
                assert says in "".join(capsys.readouterr())
        finally:
            process.terminate()
        assert process.wait(60) == 0
    monkeypatch.setenv("PTYNB_TOKEN", token)
    assert main(["submit", str(run), "--server", address]) == 69
    assert "cannot be reached" in capsys.readouterr().err
    assert main(["serve", "--folder", str(folder), "--remove-token", "ann"]) == 0
    assert main(["serve", "--folder", str(folder), "--remove-token", "ann"]) == 64


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--folder FOLDER"),
        (("--folder", "x", "--host", "0.0.0.0"), "--tls-certificate"),
        (("--folder", "x", "--host", "example.org"), "--behind-proxy"),
        (("--folder", "x", "--tls-key", "y"), "give both"),
        (("--folder", "x", "--lease", "0"), "--lease is 0.0"),
        (("--folder", "x", "--host", "192.0.2.1", "--behind-proxy"), "cannot be listened on"),
        (("--folder", "x", "--watch", "y", "z"), "not in the folders of data"),
    ],
)
def test_a_service_that_may_not_start_says_why(
    tmp_path: Path, words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
):
    given = [str(tmp_path / word) if word in ("x", "y", "z") else word for word in words]
    assert main(["serve", *given]) != 0
    assert says in " ".join(capsys.readouterr().err.split())


def test_without_the_extra_the_commands_say_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    require_packages()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises("package.not-installed", "fastapi", "pip install 'ptynb[serve]'"):
        require_packages()


def test_the_command_line_imports_nothing_of_the_service():
    names = ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "starlette")
    program = f"import sys, ptynb.cli.main; print([m for m in sys.modules if m.partition('.')[0] in {names}])"
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@contextmanager
def answering(status: int, headers: dict[str, str], content: bytes = b"") -> Iterator[tuple[str, list[str | None]]]:
    """The address of a server that answers all requests so, and the tokens that it was given."""
    tokens: list[str | None] = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            tokens.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - the name that the class expects

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", tokens
        server.shutdown()
        thread.join()


def test_the_token_goes_to_the_named_server_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PTYNB_TOKEN", "ann~x")
    run = tmp_path / "run.yaml"
    run.write_text("scan: scan.h5\nepochs: 3\n")
    with answering(200, {}, b'{"id": "stolen"}') as (other, stolen):
        for status in (301, 302, 307, 308):
            with answering(status, {"Location": f"{other}/jobs"}) as (address, tokens):
                assert main(["submit", str(run), "--server", address]) == 69
                assert tokens == ["Bearer ann~x"]
            assert f"answered {status}" in " ".join(capsys.readouterr().err.split())
    assert stolen == []
    for server in ("http://example.org:8470", "http://127.0.0.1.example.org", "http://10.0.0.1"):
        assert main(["submit", str(run), "--server", server]) == 64
        assert "in the clear" in " ".join(capsys.readouterr().err.split())
    for server in ("ftp://x", "http://", "http://[", "http://127.0.0.1:99999"):
        assert main(["submit", str(run), "--server", server]) == 64
    _check_server("http://example.org", unencrypted=True)
    _check_server("https://example.org", unencrypted=False)
    capsys.readouterr()


@pytest.mark.parametrize(
    ("headers", "content", "says"),
    [
        ({"Content-Length": "99"}, b"{", "cannot be reached"),
        ({}, b"no json", "no job"),
        ({}, b"[]", "no job"),
    ],
)
def test_an_answer_that_is_none_is_told(
    tmp_path: Path, headers: dict[str, str], content: bytes, says: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setenv("PTYNB_TOKEN", "ann~x")
    run = tmp_path / "run.yaml"
    run.write_text("scan: scan.h5\nepochs: 3\n")
    with answering(200, headers, content) as (address, _):
        assert main(["submit", str(run), "--server", address]) == 69
    assert says in " ".join(capsys.readouterr().err.split())
