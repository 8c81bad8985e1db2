from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ptynb.cluster.launchers import slurm_commands
from ptynb.settings.cluster_options import SlurmCluster
from tests.slurm.daemons import PARTITIONS, Slurm
from tests.slurm.runs import Run


@pytest.fixture(scope="package")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes; what they started is gone with them."""
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        left = cluster.stop()
    assert not left, f"left behind by Slurm's nodes: {left}"


@pytest.fixture(scope="package")
def limited(daemons: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A job on a node of its own whose time is over: Slurm looks every 30 s, and other tests need not wait for that."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in daemons.environment.items():
            environment.setenv(name, value)
        run = Run(tmp_path_factory.mktemp("limited"), SlurmCluster(nodes=1, time="1", partition="limited"))
        run.start()
        slurm_commands.ask("scontrol", "update", f"jobid={run.launcher.job}", "endtime=now")
        yield run
        run.launcher.stop()


@pytest.fixture
def nodes(daemons: Slurm, limited: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """Both nodes idle, their Slurm that of this process; a test must leave no job behind."""
    for name, value in daemons.environment.items():
        monkeypatch.setenv(name, value)
    yield daemons
    left = daemons.command("squeue", "--noheader", f"--partition={PARTITIONS}", "--format=%i %j %T")
    daemons.clear()
    assert not left, f"jobs left behind: {left}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster's folder, with a name that needs care in a script."""
    made = tmp_path / "it's 100% mine"
    made.mkdir(mode=0o700)
    return made
