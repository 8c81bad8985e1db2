"""What SECURITY.md promises of a cluster on one machine: keys are where they belong only, and nobody else gets in."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import ipyparallel
import psutil
import pytest

import ptynb as pt
from ptynb.cluster.controller import start_controller
from ptynb.cluster.runtime_dir import client_file, engine_file
from tests.faults.test_notebook import processes_of
from tests.raising import raises
from tests.waiting import until


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def cluster(base: Path) -> Iterator[pt.Cluster]:
    """Two engines that have written all that they write, with a reconstruction open on them."""
    (base / "temporary").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(base / "temporary"))
        started = pt.Cluster(2, device="cpu", threads=1)
    with started:
        scan = pt.save_scan(pt.simulate(patterns=40, window=32, seed=5), base / "scan.h5")
        keep = pt.Checkpointing(folder=base / "states", epochs=2, seconds=None, pictures=0.1)
        recon = pt.Reconstruction(scan, pt.Settings(batch=20), started, checkpointing=keep)
        recon.start(4)
        recon.wait(60)
        recon.save(base / "result.h5")
        pt.figure(recon.result).savefig(base / "figure.png")
        with pytest.raises(pt.ClusterError, match="ZeroDivisionError"):
            started.call(1, divmod, 1, 0)
        recon.save_checkpoint()
        until((base / "states" / "status.json").exists, 20, "pictures")
        yield started


def folder_of(cluster: pt.Cluster) -> Path:
    assert cluster.folder is not None
    return cluster.folder


def key_of(cluster: pt.Cluster) -> str:
    key: str = json.loads(client_file(folder_of(cluster)).read_text())["key"]
    return key


def files_with(key: str, *places: Path) -> set[Path]:
    """Files in these folders that hold the key; at least one file must be there."""
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert files
    found = set()
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # one that was being written has its name now, and is listed too
            if key.encode() in file.read_bytes():
                found.add(file)
    return found


def test_the_key_is_in_the_connection_files_only(cluster: pt.Cluster, base: Path) -> None:
    folder, key = folder_of(cluster), key_of(cluster)
    assert len(key) >= 32
    assert json.loads(client_file(folder).read_text())["signature_scheme"] == "hmac-sha256"
    assert files_with(key, folder) == {client_file(folder), engine_file(folder)}
    names = {file.name for file in base.rglob("*")}
    assert any(name.startswith("state-") for name in names)
    assert {"status.json", "amplitude.jpg", "result.h5", "figure.png"} <= names
    assert files_with(key, base) == set()
    assert len([*folder.glob("ptynb-engine-*")]) == 2
    assert {"controller.log", "engine-rank0.log", "engine-rank1.log"} <= {
        one.name for one in (folder / "log").iterdir()
    }
    assert key not in repr(cluster) + str(cluster.status())


def test_the_key_is_in_no_command_line_and_no_environment(cluster: pt.Cluster) -> None:
    key, own = key_of(cluster).encode(), processes_of(cluster.name)
    assert len(own) > 8
    shown = [Path(f"/proc/{one.pid}/{what}").read_bytes() for one in own for what in ("cmdline", "environ")]
    assert all(shown)
    shown += [process.info["cmdline"] and " ".join(process.info["cmdline"]).encode() for process in every()]
    assert not any(key in text for text in shown if text)


def every() -> Iterator[psutil.Process]:
    """All processes of this machine."""
    return psutil.process_iter(["cmdline"])


def test_nobody_else_can_read_the_folder_and_the_keys(cluster: pt.Cluster) -> None:
    folder = folder_of(cluster)
    private = [folder, folder / "security", folder / "log", *(folder / "security").iterdir(), *folder.glob("*.json")]
    assert len(private) >= 8
    for path in private:
        assert path.stat().st_mode & 0o077 == 0, path
        assert path.stat().st_uid == os.getuid()


def test_everything_listens_on_the_loopback_interface(cluster: pt.Cluster) -> None:
    own = {one.pid: one for one in processes_of(cluster.name)}
    listening = {
        connection.laddr.ip
        for one in own.values()
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    engines = [status["pid"] for status in cluster.status()]
    assert listening == {"127.0.0.1"}
    assert all(any(c.status == psutil.CONN_LISTEN for c in own[pid].net_connections("inet")) for pid in engines)  # gloo


def test_who_does_not_know_the_key_gets_no_answer(cluster: pt.Cluster, tmp_path: Path) -> None:
    told = json.loads(client_file(folder_of(cluster)).read_text())
    for name, key in (("right", told["key"]), ("wrong", told["key"][::-1]), ("none", "")):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({**told, "key": key}))
        if name == "right":
            with ipyparallel.Client(str(file), timeout=10) as client:
                assert len(client.ids) == 2
        else:
            with pytest.raises(TimeoutError):
                ipyparallel.Client(str(file), timeout=1)


@pytest.mark.parametrize("address", ["*", "0.0.0.0", "::"])
def test_a_controller_never_listens_everywhere(tmp_path: Path, address: str) -> None:
    with raises("argument.invalid-value", repr(address)):
        start_controller("ptynb-00000000", tmp_path, address)
    assert list(tmp_path.iterdir()) == []
