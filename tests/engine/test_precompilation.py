"""An idle engine compiles what a usual reconstruction needs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import ptynb as pt


def code_in(folder: Path) -> set[str]:
    """Files of compiled loops, without those of transforms, which each length of a side has of its own."""
    return {path.name for path in folder.rglob("*.nbc") if not path.name.startswith("fft.")}


def test_a_reconstruction_finds_what_the_idle_engine_has_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    scan = pt.simulate(patterns=25, window=32, modes=2)
    with pt.Cluster(1, device="cpu") as cluster:
        until = time.monotonic() + 120
        while not any(tmp_path.rglob("usual-loops-*")):
            assert time.monotonic() < until
            time.sleep(0.1)
        compiled = code_in(tmp_path)
        with pt.Reconstruction(scan, pt.Settings(probe={"modes": 2}), cluster, checkpointing=None) as recon:
            assert len(list(recon.run(2))) == 2
            assert recon.result.r_factor < 1
        assert code_in(tmp_path) == compiled
    assert len(compiled) > 10
