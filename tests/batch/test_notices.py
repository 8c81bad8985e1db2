"""A run without a notebook prints each notice of its engines once, whatever others come before it in the status."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from ptynb.batch.run_on_cluster import News
from ptynb.batch.torchrun import Rank

FULL, TRITON = "The disk is full.", "Triton does not work."
STATUSES = ((FULL,), (TRITON, FULL), (TRITON, FULL))


def test_of_a_run_on_a_cluster() -> None:
    recon: Any = SimpleNamespace(notices=(), changes=())
    printed = StringIO()
    news = News(recon, Console(file=printed))
    for recon.notices in STATUSES:
        news.tell()
    assert [printed.getvalue().count(one) for one in (FULL, TRITON)] == [1, 1]


def test_of_a_rank_of_torchrun() -> None:
    unused: Any = None
    rank = Rank(unused, unused, unused, unused, unused, "")
    rank._console = Console(file=(printed := StringIO()))
    for notices in STATUSES:
        status: Any = SimpleNamespace(notices=notices)
        rank._tell_notices(status)
    assert [printed.getvalue().count(one) for one in (FULL, TRITON)] == [1, 1]
