"""A process compiles what a usual reconstruction needs, while an engine is idle or beside its first run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import ptynb as pt
from ptynb.engine import precompilation, run_registry


def code_in(folder: Path) -> set[str]:
    """Files of compiled loops, without those of transforms, which each length of a side has of its own."""
    return {path.name for path in folder.rglob("*.nbc") if not path.name.startswith("fft.")}


def marker_in(folder: Path) -> bool:
    """Whether all usual loops have been compiled."""
    return any(path.suffix != ".lock" for path in folder.rglob("usual-loops-*"))


def test_a_reconstruction_finds_what_the_idle_engine_has_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    scan = pt.simulate(patterns=25, window=32, modes=2)
    with pt.Cluster(1, device="cpu") as cluster:
        until = time.monotonic() + 120
        while not marker_in(tmp_path):
            assert time.monotonic() < until
            time.sleep(0.1)
        compiled = code_in(tmp_path)
        with pt.Reconstruction(scan, pt.Settings(probe=pt.Probe(modes=2)), cluster, checkpointing=None) as recon:
            assert len(list(recon.run(2))) == 2
            assert recon.result.r_factor < 1
        assert code_in(tmp_path) == compiled
    assert len(compiled) > 10


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The processes that are started for a marker, as on a machine where nothing has been compiled yet."""
    processes = list[Path]()
    monkeypatch.setattr(precompilation, "_started", False)
    monkeypatch.setattr(precompilation, "marker_of", lambda name, function: tmp_path / "usual-loops-x")
    monkeypatch.setattr(precompilation, "_run_process", processes.append)
    return processes


@pytest.mark.parametrize(("device", "count"), [("cpu", 1), ("cuda:0", 0), ("xpu:0", 0)])
def test_only_an_engine_on_a_cpu_compiles(started: list[Path], device: str, count: int) -> None:
    for _ in range(2):
        precompilation.start(torch.device(device))
    until = time.monotonic() + 10
    while len(started) < count and time.monotonic() < until:
        time.sleep(0.01)
    assert len(started) == count


def test_an_engine_on_a_gpu_of_intel_knows_it_before_it_computes(
    started: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SimpleNamespace(total_memory=48 * 2**30)
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda device: "Max 1100")
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: gpu)
    monkeypatch.setenv("PTYNB_DEVICE", "xpu:1")
    described = run_registry.describe()
    assert [described[name] for name in ("device", "identity", "memory")] == ["Max 1100", "Max 1100", 48 * 2**30]
    assert started == []


def test_a_reconstruction_without_a_cluster_starts_the_compilation_of_other_loops(tmp_path: Path) -> None:
    script = (
        "import ptynb as pt\n"
        "with pt.Reconstruction(pt.simulate(patterns=9, window=16), device='cpu', checkpointing=None) as recon:\n"
        "    assert len(list(recon.run(1))) == 1\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    (tmp_path / "torch.py").write_text("raise SystemExit(1)")  # is not run instead of the package
    until = time.monotonic() + 280  # in which two cores that others share compile
    subprocess.run([sys.executable, "-P", "-c", script], env=environment, cwd=tmp_path, check=True, timeout=240)
    while not marker_in(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert any(name.startswith("spin_queue.patterns_") for name in code_in(tmp_path))
