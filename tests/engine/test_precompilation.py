"""A process compiles what a usual reconstruction needs, while an engine is idle or beside its first run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ptynb as pt


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


def test_a_reconstruction_without_a_cluster_starts_the_compilation_of_other_loops(tmp_path: Path) -> None:
    script = (
        "import ptynb as pt\n"
        "with pt.Reconstruction(pt.simulate(patterns=9, window=16), device='cpu', checkpointing=None) as recon:\n"
        "    assert len(list(recon.run(1))) == 1\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    (tmp_path / "torch.py").write_text("raise SystemExit(1)")  # is not run instead of the package
    subprocess.run([sys.executable, "-P", "-c", script], env=environment, cwd=tmp_path, check=True, timeout=120)
    until = time.monotonic() + 120
    while not marker_in(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert any(name.startswith("spin_queue.patterns_") for name in code_in(tmp_path))
