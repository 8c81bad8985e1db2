"""A service in real processes: a run from its submission to its result, and the commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ptynb.cli.main import _parser, main
from ptynb.service import require_packages
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

    service.submit(id="second", epochs=150)
    until(lambda: (service.queue.find("second").epoch or 0) > 0, 60)
    assert service.end() == 0
    put_back = service.queue.find("second")
    assert (put_back.status, put_back.losses, put_back.worker) == ("queued", 0, None)
    service.start()
    assert service.reaches("second", *ENDED)["status"] == "completed"
    assert service.journal("second") == ["begin", "begin", "end"]
    assert service.request("DELETE", "/jobs/second").status_code == 204
    assert not (service.jobs / "second").exists()
    assert service.request("GET", "/jobs/second").status_code == 404


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
