from __future__ import annotations

from collections.abc import Iterator

import pytest

import ptynb as pt
from ptynb.scan import Scan


@pytest.fixture(scope="module")
def cluster() -> Iterator[pt.Cluster]:
    """A real ipyparallel cluster of two engines."""
    with pt.Cluster(2, device="cpu") as started:
        yield started


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=100, window=64, seed=5)
