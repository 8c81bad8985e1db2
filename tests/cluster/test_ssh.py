"""What ssh is called with: names are never options, and what a shell of the host reads is what was meant."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.launchers import ssh_launcher
from ptynb.cluster.launchers.ssh_launcher import Remote, ask_hosts
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
