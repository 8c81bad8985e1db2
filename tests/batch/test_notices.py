"""A run without a notebook prints each notice of its engines once, whatever others come before it in the status."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from ptynb.batch.batch_run import News
from ptynb.batch.run_job import RunJob

FULL, TRITON = "The disk is full.", "Triton does not work."
STATUSES = ((FULL,), (TRITON, FULL), (TRITON, FULL))


def test_each_notice_is_told_once() -> None:
    recon: Any = SimpleNamespace(notices=(), changes=(), epochs=(), latest_checkpoint=None)
    printed = StringIO()
    job = RunJob("run")
    job.console = Console(file=printed)
    news = News(recon, job)
    for recon.notices in STATUSES:
        news.tell()
    assert [printed.getvalue().count(one) for one in (FULL, TRITON)] == [1, 1]
