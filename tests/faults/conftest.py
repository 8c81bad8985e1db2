"""What tests of faults share: whatever becomes of a test, no cluster outlives it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from ptynb.driver import folders, guardian


@pytest.fixture(autouse=True)
def _no_cluster_outlives_a_test() -> Iterator[None]:
    """A failed test may leave one that nobody holds, and that goes on for the time of its lease."""
    before = folders.known_clusters()
    yield
    for folder in folders.known_clusters():
        if folder not in before:
            guardian.end_processes(folder)
            shutil.rmtree(folder, ignore_errors=True)
