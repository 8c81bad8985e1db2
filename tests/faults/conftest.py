"""What tests of faults share: whatever becomes of a test, no cluster outlives it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from ptynb.cluster import runtime_dir
from ptynb.cluster.lifetime import watchdog


@pytest.fixture(autouse=True)
def _no_cluster_outlives_a_test() -> Iterator[None]:
    """A failed test may leave one that nobody holds, and that goes on for the time of its lease."""
    before = runtime_dir.known_clusters()
    yield
    for folder in runtime_dir.known_clusters():
        if folder not in before:
            watchdog.end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)
