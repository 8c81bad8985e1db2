from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    started = Ranks(3)
    yield started
    started.close()
