"""How failures are shown: a few lines, and a file with tracebacks and logs."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ptynb.cluster import error_messages
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.error_messages import MOST_LINES, log_end, summarize
from ptynb.cluster.selftest import last_words


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


def file_of(text: str) -> Path:
    """The file that a failure names."""
    found = re.search(r"Tracebacks and logs: (.*)$", text, re.MULTILINE)
    assert found is not None, text
    return Path(found[1])


def test_a_short_cause_without_details_stays_as_it_is(runtime: Path) -> None:
    assert summarize("The engine of rank 1 has died.\n") == "The engine of rank 1 has died."
    assert not runtime.exists()


def test_a_long_one_is_cut_and_whole_in_a_file_with_the_logs(tmp_path: Path) -> None:
    log = tmp_path / "engine-rank0.log"
    log.write_text("x" * error_messages.MOST_LOG_BYTES + "the last line\n")
    cause = "\n".join(f"line {number}" for number in range(100))
    told = summarize(cause, "Rank 1: details", [log, tmp_path / "removed.log"])
    assert told.splitlines()[:MOST_LINES] == cause.splitlines()[:MOST_LINES]
    assert len(told.splitlines()) == MOST_LINES + 1
    whole = file_of(told).read_text()
    assert whole.startswith(f"{cause}\nRank 1: details\n--- engine-rank0.log\nxxx")
    assert whole.endswith("the last line\n")
    assert len(whole) < error_messages.MOST_LOG_BYTES + 2000
    assert stat.S_IMODE(file_of(told).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(told).parent.stat().st_mode) == 0o700


def test_the_same_failure_has_one_file_and_only_the_newest_are_kept() -> None:
    first = file_of(summarize("first", "details"))
    assert file_of(summarize("first", "details")) == first
    others = [file_of(summarize(f"cause {number}", "details")) for number in range(error_messages.KEPT_FILES)]
    assert len({*others}) == error_messages.KEPT_FILES
    assert {*first.parent.iterdir()} == {*others}


def test_a_folder_that_cant_be_written_to_hides_no_cause(runtime: Path) -> None:
    runtime.write_text("no folder")
    assert re.fullmatch(
        r"the cause\n\(Its tracebacks and logs could not be written to a file: .*\.\)", summarize("the cause", "more")
    )


def test_the_end_of_a_log_leaves_out_what_ipyparallel_writes_by_itself(tmp_path: Path) -> None:
    engine, other = tmp_path / "engine.log", tmp_path / "other.log"
    own = "2026-11-23 08:07:28.255 [Engine.0] Handling apply_request: 5ec96600_53\n\n"
    engine.write_text(own)
    assert log_end([engine, tmp_path / "removed.log"]) == ""
    other.write_text("".join(f"line {number}\n{own}" for number in range(9)))
    assert log_end([engine, other]) == "\nThe end of its log:\nline 5\nline 6\nline 7\nline 8"


def test_logs_are_those_of_the_rank_and_in_the_order_of_ranks(tmp_path: Path) -> None:
    cluster = cast(Any, SimpleNamespace(folder=tmp_path))
    (tmp_path / "log").mkdir()
    for rank in (1, 2, 10, 11):
        (tmp_path / "log" / f"engine-rank{rank}.log").write_text(f"of rank {rank}")
    (tmp_path / "log" / "srun-rank1.log").write_text("")
    assert [path.name for path in Cluster.logs(cluster, 1)] == ["engine-rank1.log", "srun-rank1.log"]
    assert [path.name for path in Cluster.logs(cluster)][:3] == [
        "engine-rank1.log",
        "engine-rank2.log",
        "engine-rank10.log",
    ]
    assert re.findall(r"of rank (\d+)", last_words(cluster)) == ["1", "2", "10", "11"]
