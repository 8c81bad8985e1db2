"""What ssh is called with: names are never options, and what a shell of the host reads is what was meant."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.launchers import host_probe, ssh_launcher
from ptynb.cluster.launchers.ssh_launcher import Host, Remote, ask_hosts, place_engines
from tests.raising import raises

ARGUMENTS = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/called
for last in "$@"; do :; done
exec sh -c "$last"
"""
"""In the place of ssh: writes down what it was called with, and does what a host would."""
PYTHON = """#!{python}
import json, os, sys
json.dump([sys.argv[1:], os.environ["ODD"]], open({told!r}, "w"))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    "name",
    ["-oProxyCommand=id", "me@-oProxyCommand=id", "-l", "ssh://-l", "", "a b", "a;id", "$(id)", "`id`", "a|id", "a'b",
     'a"b', "a\nb", "a\0b", "{a}", "a&b", "<a", "a/b"],
)  # fmt: skip
def test_no_host_is_an_option_or_more_than_a_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *words, **more: pytest.fail(f"{words} was run"))
    with raises("argument.invalid-value") as caught:
        Cluster.ssh(["one", name])
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name",
    ["one", "node-01.beam_line", "me@one", "me@domain@one", "10.77.0.1", "fd77::2", "fe80::1%eth0", "::1", "größe",
     "ssh://me@one:2222", "ssh://[fd77::2]:22/"],
)  # fmt: skip
def test_names_that_ssh_knows_are_taken(name: str) -> None:
    assert ssh_launcher.HOST.fullmatch(name)
    command = Remote(python="/usr/bin/python3").command(name, {}, "-")
    assert command[-3:] == ["--", name, "exec env /usr/bin/python3 -"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"ssh": ()}, "ssh is ()"),
        ({"ssh": ("-oProxyCommand=id", "x")}, "ssh is ('-oProxyCommand=id', 'x')"),
        ({"ssh": ("ssh", "-o", "User=a\nb")}, "ssh is "),
        ({"python": "-c"}, "python is '-c'"),
        ({"python": "-Simport os"}, "python is "),
        ({"python": "PATH=/tmp"}, "python is 'PATH=/tmp'"),  # which `env` would set
        ({"python": "/a\n/b"}, "python is "),
        ({"environment": {"-u": "PATH"}}, "environment has '-u': 'PATH'"),
        ({"environment": {"A=B;id": "1"}}, "environment has "),
        ({"environment": {"": "1"}}, "environment has ''"),
        ({"environment": {"A": "1\nid"}}, r"environment has 'A': '1\nid'"),
        ({"environment": {"A": "\0"}}, "environment has "),
    ],
)
def test_words_that_would_be_read_as_something_else_are_refused(
    wrong: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subprocess.run", lambda *words, **more: pytest.fail(f"{words} was run"))
    with raises("argument.invalid-value", told):
        Cluster.ssh(["one"], **wrong)


def test_what_a_host_runs_is_what_was_meant(tmp_path: Path) -> None:
    odd = tmp_path / "my data; touch 'a' $(touch b) `touch c` & \"d\"\\e"
    value = "x y; touch e $(touch f) 'g' \"h\" `touch i` \\ * ~ !! #"
    python = program(odd / "python", PYTHON.format(python=sys.executable, told=str(tmp_path / "told")))
    words = (program(tmp_path / "ssh", ARGUMENTS.format(folder=tmp_path)), "-J", "gate")
    remote = Remote(ssh=words, python=python, environment={"ODD": value})
    (found,) = ask_hosts(["me@one"], remote)
    assert found.answers["ptynb"] == ssh_launcher.importlib.metadata.version("ptynb")
    arguments, there = json.loads((tmp_path / "told").read_text())
    assert (arguments, there) == (["-"], value)
    called = (tmp_path / "called").read_text().splitlines()
    assert called[:3] == ["-J", "gate", "-T"]
    assert called.index("--") == called.index("me@one") - 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([odd.name, "ssh", "called", "told"])


def host(name: str, platform: str = "linux", nccl: bool = True, gpus: int = 1) -> Host:
    """A host with GPUs, as its probe describes it."""
    listed = [{"index": i, "uuid": f"GPU-{name}-{i}", "name": "H200", "memory": 143771} for i in range(gpus)]
    facts = {"cores": 8, "numa_nodes": [[*range(8)]], "platform": platform, "nccl": nccl}
    return Host(name, {"gpus": listed, "gpu_problem": "", **facts})


@pytest.mark.parametrize(
    ("others", "backend", "note"),
    [
        ((host("b"),), "nccl", ""),
        ((host("b", nccl=False),), "gloo", "On b: Gradients pass through the memory of the host by gloo"),
        ((host("b", platform="win32"),), "gloo", "On b: Gradients pass through the memory of the host by gloo"),
        ((host("b"), host("c", nccl=False)), "gloo", "On c: "),
        ((), "none", ""),
    ],
)
@pytest.mark.parametrize("here", ["darwin", "win32", "linux"])
def test_the_backend_is_one_that_all_hosts_have_whatever_the_notebook_runs_on(
    monkeypatch: pytest.MonkeyPatch, here: str, others: tuple[Host, ...], backend: str, note: str
) -> None:
    monkeypatch.setattr("sys.platform", here)
    hosts = (host("a"), *others)
    plan, _ = place_engines(hosts, {one.name: None for one in hosts}, "auto", None)
    assert plan.backend == backend
    assert note in " ".join(plan.notes)
    assert bool(plan.notes) is bool(note)


@pytest.mark.parametrize(
    ("cuda", "expected"), [("cuda: Optional[str] = None", False), ("cuda: Optional[str] = '12.8'", True)]
)
def test_a_host_reports_whether_its_torch_has_nccl(tmp_path: Path, cuda: str, expected: bool) -> None:
    """The lines are those of torch/version.py of a CPU and of a CUDA build."""
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("raise AssertionError('it was imported, which takes seconds')")
    (torch / "version.py").write_text(f"from typing import Optional\n{cuda}\nhip: Optional[str] = None\n")
    probe = Path(host_probe.__file__)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, probe], capture_output=True, text=True, env=environment, check=True)
    answers = json.loads(done.stdout.removeprefix(host_probe.MARK))
    assert (answers["nccl"], answers["platform"]) == (expected and sys.platform == "linux", sys.platform)


def test_torch_here_reports_what_it_has() -> None:
    assert host_probe.has_nccl() is torch.distributed.is_nccl_available()
