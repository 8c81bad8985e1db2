"""Engines by ssh from the tab Run of the workbench: real hosts, and one that is not there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.hosts import ENGINE_HOSTS, ROOT, Far, Hosts, wait_until


@pytest.fixture
def notebook(hosts: Hosts) -> Iterator[Far]:
    opened = hosts.notebook()
    yield opened
    opened.close()


@pytest.fixture
def python(tmp_path: Path) -> str:
    """This Python with this package, as a program: the workbench has no field for variables of the hosts."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_hosts_that_are_typed_run_and_are_told_as_python(hosts: Hosts, notebook: Far, python: str) -> None:
    before = {host: len(hosts.processes(host)) for host in ENGINE_HOSTS}
    said = notebook.call("workbench", "one=1, two", python)
    ssh = tuple(hosts.ssh)
    assert said == {
        "problems": {},
        "message": "",
        "epoch": 2,
        "hosts": ["one", "two"],
        "lines": [
            "cluster = pt.Cluster.ssh({'one': 1, 'two': None}, device='cpu', threads=1, "
            f"python={python!r}, ssh={ssh!r})"
        ],
    }
    wait_until(lambda: {host: len(hosts.processes(host)) for host in ENGINE_HOSTS} == before, 20, "all has ended")


def test_a_host_that_is_not_there_is_said_at_its_field(notebook: Far, python: str) -> None:
    said = notebook.call("workbench", "one, three", python)
    assert [*said["problems"]] == ["hosts"]
    assert "three cannot be used: its name is not known here" in said["problems"]["hosts"]
    assert said["message"] == ""
