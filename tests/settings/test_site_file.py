"""The site file: its values, their variables, and one sentence with file and key for what is wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ptynb.cluster.addresses import site_address
from ptynb.io.checkpoint_dir import default_folder
from ptynb.private_folder import code_folder
from ptynb.settings.cluster_options import JOB_CLUSTERS, LocalCluster, SlurmCluster
from ptynb.settings.site_file import Site, site, with_site_defaults
from ptynb.site_values import caches
from tests.raising import raises

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the site file, which PTYNB_SITE names."""

    def write(text: str) -> Path:
        path = tmp_path / "site.toml"
        path.write_text(text)
        monkeypatch.setenv("PTYNB_SITE", str(path))
        return path

    return write


def test_values_of_a_file(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMEBODY", "ada")
    path = write(
        """
        [cluster]
        account = "p1234"
        queue = "gpu"
        interface = "ib0"
        [folders]
        caches = "/scratch/$SOMEBODY/ptynb"
        [limits]
        jobs_running = 2
        hours = 12
        [serve]
        folder = "jobs"
        data = ["/data", "own"]
        [[serve.watch]]
        folder = "incoming"
        run = "template.yaml"
        """
    )
    found = site()
    assert (found.cluster.account, found.cluster.queue, found.cluster.interface) == ("p1234", "gpu", "ib0")
    assert found.folders.caches == caches() == Path("/scratch/ada/ptynb")
    assert (found.limits.jobs_queued, found.limits.jobs_running, found.limits.hours) == (None, 2, 12)
    assert found.serve.folder == path.parent / "jobs"
    assert found.serve.data == (Path("/data"), path.parent / "own")
    (watched,) = found.serve.watch
    assert (watched.folder, watched.run) == (path.parent / "incoming", path.parent / "template.yaml")
    with pytest.raises(ValueError, match="frozen"):
        found.cluster = Site().cluster


def test_a_variable_replaces_a_value(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write('[serve]\nport = 9000\nhost = "::1"\n')
    monkeypatch.setenv("PTYNB_SITE_SERVE__DATABASE", "postgresql://u:p@host/db")
    monkeypatch.setenv("PTYNB_SITE_SERVE__PORT", "9001")
    service = site().serve
    assert (service.database, service.port, service.host) == ("postgresql://u:p@host/db", 9001, "::1")
    monkeypatch.setenv("PTYNB_SITE_SERVE__PORT", "many")
    with raises("settings.invalid-value", "PTYNB_SITE_SERVE__PORT", "many"):
        site()


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("[cluster]\nacount = 'a'\n", "settings.unknown-name", ("cluster.acount", "account")),
        ("[clusters]\n", "settings.unknown-name", ("clusters", "cluster")),
        ("[limits]\nhours = -1\n", "settings.invalid-value", ("limits.hours", "-1")),
        ("[limits]\nengines = true\n", "settings.invalid-value", ("limits.engines",)),
        ("[cluster]\naccount = '--x'\n", "argument.invalid-value", ("cluster.account", "--x")),
        ("[cluster]\ninterface = 'a b'\n", "settings.invalid-value", ("cluster.interface", "a b")),
        ("[folders]\ncaches = '/s/$NOT_SET_ANYWHERE'\n", "settings.invalid-value", ("folders.caches", "$NOT_SET")),
        ("[[serve.watch]]\nfolder = '/a'\n", "settings.invalid-value", ("serve.watch", "run")),
        ("[cluster\n", "settings.invalid-toml", ("line 1",)),
        ("cluster = 3\n", "settings.invalid-value", ("cluster", "3")),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(write: Write, text: str, code: str, facts: tuple[str, ...]) -> None:
    path = write(text)
    with raises(code, str(path), *facts) as caught:
        site()
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_an_error_and_none_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTYNB_SITE", str(tmp_path / "missing.toml"))
    with raises("file.not-found", "missing.toml", "PTYNB_SITE"):
        site()
    monkeypatch.setenv("PTYNB_SITE", "/dev/null")
    assert site() == Site()


def test_defaults_of_a_cluster_come_from_the_file_where_none_is_given(write: Write) -> None:
    write('[cluster]\naccount = "p1234"\nqueue = "gpu"\n')
    slurm = with_site_defaults(SlurmCluster(nodes=1, device="cpu", account="own"))
    assert (slurm.account, slurm.partition) == ("own", "gpu")
    jobs = {one.model_fields["kind"].default: one(engines=1) for one in (JOB_CLUSTERS[0], JOB_CLUSTERS[-1])}
    filled = {name: with_site_defaults(one) for name, one in jobs.items()}
    assert [(one.account, one.queue) for one in filled.values()] == [("p1234", "gpu"), ("p1234", None)]
    assert with_site_defaults(LocalCluster()) == LocalCluster()


def test_the_interface_gives_the_address_of_a_cluster(write: Write) -> None:
    name, own = next((name, one.address) for name, ones in psutil.net_if_addrs().items() for one in ones
                     if one.family == socket.AF_INET)  # fmt: skip
    write("")
    assert site_address() is None
    write(f'[cluster]\ninterface = "{name}"\n')
    assert site_address() == own
    write('[cluster]\ninterface = "none7"\n')
    with raises("cluster.no-address", "none7", name):
        site_address()


def test_one_variable_moves_all_caches(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBA_CACHE_DIR", "MPLCONFIGDIR", "PTYNB_KEPT"):
        monkeypatch.delenv(name, raising=False)
    write(f'[folders]\ncaches = "{tmp_path / "by file"}"\n')
    assert code_folder("NUMBA_CACHE_DIR") == tmp_path / "by file" / "ptynb"
    monkeypatch.setenv("PTYNB_CACHE", str(tmp_path / "moved"))
    assert code_folder("NUMBA_CACHE_DIR") == tmp_path / "moved" / "ptynb"
    assert default_folder() == tmp_path / "moved" / "ptynb" / "kept"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    assert code_folder("NUMBA_CACHE_DIR") == tmp_path / "named" / "ptynb"
    program = "import os, ptynb.figures, matplotlib; print(matplotlib.get_cachedir(), 'XDG_CACHE_HOME' in os.environ)"
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert said.stdout.split() == [str(tmp_path / "moved" / "matplotlib"), "False"]
