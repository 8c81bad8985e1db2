from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.ranks import Ranks


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    started = Ranks(3, tmp_path_factory.mktemp("groups"))
    yield started
    started.close()
