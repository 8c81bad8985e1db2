"""Clusters on other hosts by ssh: real servers, keys and cables, and what a host without them is told to be."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from ptynb.cluster.launchers.ssh_launcher import Host, Remote, ask_hosts, place_engines
from ptynb.exceptions import ClusterError
from tests.hosts.hosts import ADDRESSES, ADDRESSES_6, ENGINE_HOSTS, ROOT, SWITCH, Far, Hosts, wait_until
from tests.raising import raises

HERE = Path(__file__).parent
TEXT = "the marker that nobody else may read"


@pytest.fixture(scope="module")
def notebook(hosts: Hosts) -> Iterator[Far]:
    opened = hosts.notebook()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def cluster(notebook: Far) -> dict[str, Any]:
    """Of an engine on each of two hosts, as its notebook describes it."""
    started = notebook.call("start", {"one": 1, "two": 1})
    assert "error" not in started, started
    return started


@pytest.mark.parametrize("layout", ["whole", "tiles"])
def test_engines_on_two_hosts_reconstruct_as_one_engine(notebook: Far, cluster: dict[str, Any], layout: str) -> None:
    assert cluster["hosts"] == ["one", "two"]
    assert cluster["identities"] == ["one: CPU 0 (1 thread)", "two: CPU 0 (1 thread)"]
    found = notebook.call("compare", layout)
    assert found["moved"] > 0.1
    assert found["difference"] < 1e-5 * 3
    assert found["losses"][0] == pytest.approx(found["losses"][1], rel=1e-4)


def test_all_listen_on_their_own_address_only(hosts: Hosts, cluster: dict[str, Any]) -> None:
    assert len(hosts.listening("head")) > 10
    for host in ("head", *ENGINE_HOSTS):
        assert {address for address, _ in hosts.listening(host)} <= {ADDRESSES[host], "127.0.0.1"}


def test_keys_are_in_no_command_line_and_no_environment(hosts: Hosts, cluster: dict[str, Any]) -> None:
    security = Path(cluster["folder"]) / "security"
    connection = json.loads((security / "ipcontroller-engine.json").read_text())
    keys = [connection["key"], connection["curve_serverkey"]]
    assert min(map(len, keys)) >= 40
    processes = [process for host in ("head", *ENGINE_HOSTS) for process in hosts.processes(host)]
    assert len(processes) > 8
    for process in processes:
        shown = [*process.cmdline(), *process.environ().values()]
        assert not any(key in text for key in keys for text in shown)
    for file in [*security.iterdir(), security.parent / "ipcontroller_config.py"]:
        assert file.stat().st_mode & 0o077 == 0
    logs = "".join(file.read_text() for file in (security.parent / "log").iterdir())
    assert not any(key in logs for key in keys)


def test_a_client_needs_both_keys(hosts: Hosts, cluster: dict[str, Any]) -> None:
    whole = json.loads((Path(cluster["folder"]) / "security/ipcontroller-client.json").read_text())
    other = zmq.curve_keypair()[0].decode()
    variants = {
        "whole": whole,
        "unencrypted": {**whole, "curve_serverkey": None},
        "wrong": {**whole, "curve_serverkey": other},
        "unsigned": {**whole, "key": ""},
        "wrongly-signed": {**whole, "key": "0" * len(whole["key"])},
    }
    files = [hosts.folder / f"client-{name}.json" for name in variants]
    for file, variant in zip(files, variants.values(), strict=True):
        file.write_text(json.dumps(variant))
    trying = hosts.python("two", HERE / "client.py", *map(str, files))
    said = trying.communicate(timeout=60)[0]
    answers = dict(zip(variants, json.loads(said.splitlines()[-1]), strict=True))
    assert answers.pop("whole") == 4
    assert answers == dict.fromkeys(answers, "TimeoutError")


def test_what_passes_the_switch_can_only_be_read_without_our_encryption(
    hosts: Hosts, notebook: Far, cluster: dict[str, Any]
) -> None:
    sniffer = Far(hosts, SWITCH, HERE / "sniffer.py")
    plain = hosts.notebook()
    try:
        sniffer.call("seen", TEXT)
        assert notebook.call("send", 1, TEXT * 100) == 100 * len(TEXT)
        passed, seen = sniffer.call("seen", TEXT)
        assert passed > 100 * len(TEXT)
        assert not seen
        assert "error" not in plain.call("start_in_clear", {"two": 1})
        assert plain.call("send", 0, TEXT * 100) == 100 * len(TEXT)
        assert sniffer.call("seen", TEXT)[1]
        killed = psutil.Process(plain.pid)
        assert len(hosts.processes("two")) > 2
        killed.kill()
        wait_until(lambda: len(hosts.processes("two")) == 2, 20, "the engine of a killed notebook is ended")
    finally:
        sniffer.close()
        plain.close()


def test_a_run_outlives_a_host_whose_cable_is_cut(hosts: Hosts, tmp_path: Path) -> None:
    before = set(hosts.engines())
    notebook = hosts.notebook()
    try:
        assert "error" not in notebook.call("start", {"one": 1, "two": 1})
        notebook.call("train", str(tmp_path))
        notebook.ask("outlive")
        hosts.cut("two")
        found = notebook.answer()
        print(f"noticed after {found['noticed']:.1f} s, beyond where it was after {found['beyond']:.1f} s")
        assert found["noticed"] < 10
        assert found["beyond"] - found["noticed"] < 15
        assert found["engines"] == "1 engine on CPU"
        assert found["change"] == ["engines", "1 engine continues"]
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-3)
    finally:
        hosts.mend("two")
        notebook.call("stop")
        notebook.close()
    wait_until(lambda: not set(hosts.engines()) - before, 60, "its engines have left everywhere")


def test_a_silent_host_is_lost_soon_and_nothing_is_left_anywhere(
    hosts: Hosts, notebook: Far, cluster: dict[str, Any]
) -> None:
    """The last test of this cluster."""
    assert min(len(hosts.processes(host)) for host in ENGINE_HOSTS) >= 2  # engine and nanny
    hosts.cut("two")
    try:
        assert notebook.call("lost_after", [1], 10.0) is not None
        notebook.call("stop")
        wait_until(lambda: not hosts.processes("one"), 5, "a host that can be reached is left empty")
        # The guardian may have asked the hosts at the same time.
        alone = [psutil.Process(notebook.pid)]
        wait_until(lambda: hosts.processes("head") == alone, 10, "nothing is left on the head")
        assert not Path(cluster["folder"]).exists()
        wait_until(lambda: not hosts.processes("two"), 60, "an engine leaves that hears nothing of its controller")
    finally:
        hosts.mend("two")


@pytest.fixture(scope="module")
def asking(hosts: Hosts) -> Iterator[Far]:
    opened = hosts.notebook()
    yield opened
    opened.close()


def fake_torch(hosts: Hosts) -> str:
    """A folder that gives torch another version for whoever asks the packages' records."""
    record = hosts.folder / "other" / "torch-1.0.dist-info"
    record.mkdir(parents=True, exist_ok=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    return f"{record.parent}:{ROOT}"


@pytest.mark.parametrize(
    ("names", "how", "told"),
    [
        ({"three": 1}, {}, "three cannot be used: its name is not known here"),
        ({"one": 1}, {"ssh": ["-p", "23"]}, "one cannot be used: no ssh server answers there"),
        (
            {"one": 1},
            {"ssh": ["-o", "UserKnownHostsFile=/dev/null"]},
            "one cannot be used: its host key is not known here",
        ),
        ({"one": 1}, {"ssh": ["-o", "User=nobody"]}, "one cannot be used: it accepts none of your keys"),
        ({"one": 1}, {"python": "/no/python"}, "one has no Python at /no/python"),
        ({"one": 1}, {"python": "/usr/bin/python3"}, "one has no ptynb for /usr/bin/python3; install it there"),
        ({"one": 1}, {"environment": "fake torch"}, "one has torch 1.0, and this machine has"),
        ({"one": 1}, {"device": "cuda"}, "On one: "),
        ({}, {}, "hosts is {}"),
        (["one", "one"], {}, "each name once"),
        (["-oProxyCommand=touch /tmp/x"], {}, "expected a name for ssh"),
    ],
)
def test_a_host_that_can_not_be_used_is_named_with_the_remedy(
    hosts: Hosts, asking: Far, names: Any, how: dict[str, Any], told: str
) -> None:
    options = dict(how)
    if "ssh" in options:
        options["ssh"] = [hosts.ssh[0], *options["ssh"], *hosts.ssh[1:]]
    if "environment" in options:
        options["environment"] = {"PYTHONPATH": fake_torch(hosts)}
    error = asking.call("start", names, options)["error"]
    assert told in error
    assert "\n" not in error


def test_a_host_that_does_not_answer_is_named(hosts: Hosts, asking: Far) -> None:
    hosts.cut("two")
    try:
        error = asking.call("start", ["one", "two"])["error"]
    finally:
        hosts.mend("two")
    assert error.startswith("two cannot be used: ")
    assert "switched on" in error


def test_addresses_are_those_on_the_way(asking: Far) -> None:
    assert asking.call("address", "one") == [ADDRESSES["head"], "eth0"]
    assert asking.call("address", ADDRESSES["two"]) == [ADDRESSES["head"], "eth0"]
    assert asking.call("address", ADDRESSES_6["two"]) == [ADDRESSES_6["head"], "eth0"]
    assert asking.call("address", "127.0.1.1") == ["127.0.0.1", "lo"]
    assert "'three'" in asking.call("address", "three")[0]
    assert "no route from this machine" in asking.call("address", "192.0.2.1")[0]


def host(name: str, gpus: int) -> Host:
    listed = [{"index": i, "uuid": f"GPU-{name}-{i}", "name": "Some GPU", "memory": 40000} for i in range(gpus)]
    facts = {"cores": 8, "numa_nodes": [[*range(8)]], "platform": "linux", "nccl": True}
    return Host(name, {"gpus": listed, "gpu_problem": "", **facts})


def test_ranks_follow_the_hosts_and_each_engine_has_its_own_gpu() -> None:
    plan, homes = place_engines([host("a", 2), host("b", 3)], {"a": None, "b": 2}, "auto", None)
    assert homes == ("a", "a", "b", "b")
    assert [engine.rank for engine in plan.engines] == [0, 1, 2, 3]
    given = [engine.environment["CUDA_VISIBLE_DEVICES"] for engine in plan.engines]
    assert given == ["GPU-a-0", "GPU-a-1", "GPU-b-0", "GPU-b-1"]
    assert [engine.environment["PTYNB_RANK"] for engine in plan.engines] == ["0", "1", "2", "3"]
    assert len({engine.identity for engine in plan.engines}) == 4
    assert not any("GLOO_SOCKET_IFNAME" in engine.environment for engine in plan.engines)


def test_gpus_on_one_host_and_none_on_another_is_refused() -> None:
    with raises("cluster.mixed-devices", "b would"):
        place_engines([host("a", 1), host("b", 0)], {"a": None, "b": None}, "auto", None)
    plan, homes = place_engines([host("a", 1)], {"a": None}, "auto", None)
    assert (homes, plan.on_gpu) == (("a",), True)


def test_more_engines_than_a_host_has_gpus_is_refused_by_its_name() -> None:
    with raises("gpu.too-few", "On b: ", "2 engines", "1 GPU"):
        place_engines([host("a", 2), host("b", 1)], {"a": 2, "b": 2}, "cuda", None)


NEVER_ANSWERS = """#!/bin/sh
case "$*" in *BatchMode*) exec sleep 60 ;; esac
echo "Enter the code that was sent to you" >&2
"""
ANSWERS = """#!/bin/sh
for last in "$@"; do :; done
exec sh -c "$last"
"""
FAILS = """#!/bin/sh
echo "gate: no such user" >&2
exit 1
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (NEVER_ANSWERS, r"lab did not answer within 0\.3 s"),
        (FAILS, r"lab did not answer as expected .*: gate: no such user"),
    ],
    ids=["never answers", "fails"],
)
def test_by_hand_one_sees_what_is_wrong_and_what_answers_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, told: str
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(program)
    ssh.chmod(0o700)
    remote = Remote(ssh=(str(ssh), "-J", "gate"), python=sys.executable)
    with monkeypatch.context() as patch:
        patch.setattr("ptynb.cluster.launchers.ssh_launcher.ASK_SECONDS", 0.3 if program is NEVER_ANSWERS else 40.0)
        with pytest.raises(ClusterError, match=f"{told}; try by hand: .*ssh -J gate lab$") as caught:
            ask_hosts(["lab"], remote)
    by_hand = shlex.split(str(caught.value).split("try by hand: ")[1])
    seen = subprocess.run(by_hand, capture_output=True, text=True, timeout=60).stderr
    assert seen == ("Enter the code that was sent to you\n" if program is NEVER_ANSWERS else "gate: no such user\n")
    ssh.write_text(ANSWERS)
    (found,) = ask_hosts(["lab"], remote)
    assert found.name == "lab"
