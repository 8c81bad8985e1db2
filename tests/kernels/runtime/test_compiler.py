"""Compilation of loops: by one process at a time, without the garbage collector."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import filelock
import pytest
from numba.core import event

from ptynb.kernels.runtime.compiler import compiled


def double(value: Any) -> Any:
    return value + value


def test_a_loop_is_compiled_while_no_other_process_compiles_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    loop = compiled(double)
    assert loop(2) == 4
    (path,) = tmp_path.rglob("*.lock")
    found: list[float] = []
    other = threading.Thread(target=lambda: found.append(loop(0.25)))
    with filelock.FileLock(path):  # as another process holds it
        other.start()
        other.join(0.5)
        assert not found
    other.join(60)
    assert found == [0.5]


def test_garbage_is_not_collected_while_a_loop_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    during: list[bool] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            during.append(gc.isenabled())

        def on_end(self, event: Any) -> None:
            during.append(gc.isenabled())

    loop = compiled(double)
    with event.install_listener("numba:compile", Listener()):
        loop(2)
    assert during == [False, False]
    assert gc.isenabled()
