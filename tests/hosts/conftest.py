from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.hosts import Hosts


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Three hosts, and all cables in their places."""
    made = Hosts()
    yield made
    made.close()
