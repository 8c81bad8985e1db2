"""Patterns and positions are joined by number, and the end of a scan is decided by what is new."""

import errno
import io
import os
import threading
import time

import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.arrival_log import ArrivalLog
from ptynb.acquisition.complete_plan import completed
from ptynb.acquisition.compression import Packed
from ptynb.acquisition.intake import Intake
from ptynb.acquisition.join import Join
from ptynb.acquisition.messages import Frame, LiveSource, MeasuredPositions, Pace, SeriesEnded, SeriesStarted
from ptynb.acquisition.spool import Spool
from tests.acquisition.emulated import log_of
from tests.raising import raises

COUNT, SHAPE = 12, (8, 8)
U2 = np.dtype("<u2")


@pytest.fixture
def scan(tmp_path):
    """A join of a scan whose positions are measured, and its spool."""
    plan = pt.Plan(extent=((0, 10), (0, 10)), units="pixels", count=COUNT, silence=0.3)
    complete = completed(plan, SeriesStarted(series="5"), SHAPE, measured=True)
    spool, log = Spool(tmp_path, plan, complete, U2, "here"), ArrivalLog(tmp_path)
    yield Join(plan, complete, U2, spool, log), spool
    spool.close()
    log.close()


def frame(number, series="5", value=None, shape=SHAPE, dtype=U2):
    counts = np.full(shape, abs(number) if value is None else value, dtype)
    return Frame(
        series=series, number=number, arrival=time.time(), packed=Packed(counts.tobytes(), shape, counts.dtype)
    )


def test_the_first_of_equal_numbers_is_kept(scan):
    join, spool = scan
    for message in (frame(3), frame(3), frame(3, value=9), frame(4, series="4"), frame(COUNT), frame(-1)):
        join.take(message)
    join.take(frame(5, shape=(8, 9)))
    join.take(frame(6, dtype=np.dtype("<u4")))
    join.place(MeasuredPositions(2, np.array([[1.0, 2.0], [3.0, 4.0], [np.nan, 1], [5, 10.1], [0, 10]])))
    for _ in range(2):
        join.place(MeasuredPositions(3, np.array([[3.0, 4.0]])))  # the same again is not refused
    join.place(MeasuredPositions(3, np.array([[3.0, 4.5]])))
    join.place(MeasuredPositions(COUNT, np.array([[3.0, 4.5]])))
    found = spool.index.summary()
    assert (found.arrived, found.placed, found.duplicates, found.differing) == (1, 1, 2, 1)
    assert (found.stray, found.outside, found.damaged, found.refused) == (1, 2, 2, 4)
    assert spool.index.states().tolist() == [0, 0, 2, 3, 0, 0, 2, 0, 0, 0, 0, 0]
    assert spool.index.positions()[[2, 3, 6]].tolist() == [[1, 2], [3, 4], [0, 10]]
    assert spool.is_same(3, np.full(SHAPE, 3))
    for words in ("pattern 3 came again with other counts", "position 4 at (nan, 1)", "position 3 came again"):
        assert words in log_of(spool.path.parent)


def test_a_full_disk_ends_the_scan_with_a_sentence_and_keeps_what_came(scan, monkeypatch):
    join, spool = scan
    for number in range(4):
        join.take(frame(number))
    join.place(MeasuredPositions(0, np.ones((4, 2)) * np.arange(4)[:, None]))

    class Full(io.FileIO):
        def write(self, values):
            raise OSError(errno.ENOSPC, "No space left on device")

    with Full(spool.path, "r+") as file, monkeypatch.context() as patch:
        patch.setattr(spool, "_file", file)
        with raises("acquisition.failed", spool.path, "No space left on device"):
            join.take(frame(4))
        with raises("acquisition.failed"):
            spool.finish("the disk is full")
    assert spool.index.ended == "the disk is full"
    whole = pt.load(spool.path)
    assert (len(whole), whole.positions.tolist()) == (4, [[n, n] for n in range(4)])
    np.testing.assert_array_equal(whole.frames.read(3, 4)[0], np.full(SHAPE, 3))


def test_a_disk_that_is_slow_at_the_end_is_no_silence(scan, monkeypatch):
    join, spool = scan
    join.take(frame(0))
    silences = []

    def slow(_):
        for _ in range(10):
            time.sleep(0.1)
            silences.append(spool.index.summary().silence)

    monkeypatch.setattr(os, "fsync", slow)
    spool.finish("all came")
    assert len(silences) == 20
    assert max(silences) < 0.6
    assert spool.index.ended == "all came"

    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with raises("acquisition.failed", spool.path, "Input/output error"):
        spool.finish("all came")


def test_where_the_index_cannot_be_created_no_file_is_left(tmp_path):
    plan = pt.Plan(positions=np.zeros((COUNT, 2)), units="pixels")
    complete = completed(plan, SeriesStarted(series="5"), SHAPE)
    (tmp_path / "arrivals.index").touch()
    with raises("file.not-writable", tmp_path / "arrivals.index"):
        Spool(tmp_path, plan, complete, U2, "here")
    assert [one.name for one in tmp_path.iterdir()] == ["arrivals.index"]


def test_messages_are_taken_in_portions_and_a_source_that_hangs_is_left(monkeypatch):
    class Hanging(LiveSource):
        def __init__(self):
            self.sent, self.let_go = [[frame(n, shape=(64, 64)) for n in range(9)]], threading.Event()

        def poll(self, timeout):
            if self.sent:
                return self.sent.pop()
            self.let_go.wait()
            return []

        def close(self):
            pass

    source, arrived = Hanging(), threading.Event()
    intake = Intake(source, "patterns", arrived)
    assert arrived.wait(5)
    taken = [intake.take(*limits) for limits in ((2, 2**20), (9, 3 * 64 * 64 * 2), (9, 1), (9, 2**20))]
    assert [[one.number for one in part] for part in taken] == [[0, 1], [2, 3, 4], [5], [6, 7, 8]]
    monkeypatch.setattr("ptynb.acquisition.intake.CLOSING", 0.2)
    began = time.monotonic()
    intake.close()
    assert 0.2 <= time.monotonic() - began < 2
    source.let_go.set()


def test_who_repeats_himself_does_not_keep_a_scan_open(scan):
    join, _ = scan
    join.take(frame(0))
    until = time.monotonic() + 5
    while (reason := join.reason_to_end()) is None:
        assert time.monotonic() < until
        for message in (frame(0), frame(COUNT + 7), frame(1, shape=(8, 9))):
            join.take(message)
        time.sleep(0.01)
    assert reason.startswith("ended early: 1 of 12; 1 of them without a position (no pattern for 0.3")


def test_patterns_in_portions_have_longer_pauses(tmp_path, monkeypatch):
    monkeypatch.setattr("ptynb.acquisition.join.SILENCE", 0.1)
    plan = pt.Plan(extent=((0, 10), (0, 10)), units="pixels", count=COUNT)
    complete = completed(plan, SeriesStarted(series="5"), SHAPE)
    spool, log = Spool(tmp_path, plan, complete, U2, "here"), ArrivalLog(tmp_path)
    join = Join(plan, complete, U2, spool, log)
    join.take(frame(0))
    join.take(Pace(0.5))
    join.take(Pace(0.2))
    time.sleep(0.3)
    assert join.reason_to_end() is None
    time.sleep(0.3)
    assert join.reason_to_end().startswith("ended early: 1 of 12 (no pattern for 0.6 s)")
    spool.close()
    log.close()


def test_patterns_that_the_end_has_overtaken_are_taken(scan):
    join, spool = scan
    for number in range(5):
        join.take(frame(number))
    join.take(SeriesEnded("4"))  # of another series
    join.take(SeriesEnded("5"))
    assert join.reason_to_end() is None
    join.take(frame(5))
    time.sleep(0.35)
    join.place(MeasuredPositions(0, np.ones((6, 2))))
    assert join.reason_to_end() == "ended early: 6 of 12 (the source ended the series)"
    assert spool.index.summary().placed == 6


def test_positions_have_time_after_the_last_pattern_unless_their_source_has_ended(scan):
    join, _ = scan
    for number in range(COUNT):
        join.take(frame(number))
    assert join.reason_to_end() is None
    join.place(MeasuredPositions(0, np.ones((4, 2))))
    time.sleep(0.2)
    join.place(MeasuredPositions(4, np.ones((4, 2))))
    time.sleep(0.2)
    assert join.reason_to_end() is None  # 0.3 s after the last one
    join.place(SeriesEnded())
    assert join.reason_to_end() == "complete: 12 of 12; 4 of them without a position"
