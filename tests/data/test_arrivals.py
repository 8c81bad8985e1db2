"""The index of arrivals: one process writes, others read, and a pattern is placed only once all of it is there."""

import os
import pickle
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ptynb.data import arrivals
from ptynb.data.arrivals import INDEX_NAME, Acquisition, ArrivalIndex
from tests.raising import raises

COUNT = 20_000


def write(path, count, size):
    """A receiver: bytes of the pattern into the file, then its frame and its position, in an order of its own."""
    index = ArrivalIndex.create(path / INDEX_NAME, count, series="7")
    file = os.open(path / "patterns", os.O_WRONLY)
    for number in np.random.default_rng(0).permutation(count).tolist():
        os.pwrite(file, np.full(size, number, "<u4").tobytes(), 4 * size * number)
        if number % 2:
            index.place(number, (number, -number))
            index.frame(number, time.time())
        else:
            index.frame(number, time.time())
            index.place(number, (number, -number))
        index.beat()
    index.end("all came")


def test_what_another_process_sees_as_placed_is_there(tmp_path):
    size = 64
    (tmp_path / "patterns").write_bytes(bytes(4 * size * COUNT))
    lines = f"import pathlib; from tests.data.test_arrivals import write; write(pathlib.Path({str(tmp_path)!r}), "
    writer = subprocess.Popen([sys.executable, "-c", f"{lines}{COUNT}, {size})"])
    try:
        acquisition = pickle.loads(pickle.dumps(Acquisition(tmp_path, COUNT)))
        while not (tmp_path / INDEX_NAME).exists():
            assert writer.poll() is None
            time.sleep(0.001)
        index, seen, looks = acquisition.index(), np.zeros(COUNT, bool), 0
        with (tmp_path / "patterns").open("rb", buffering=0) as file:
            while not seen.all():
                over = writer.poll() is not None
                placed = index.placed()
                positions = index.positions()
                for number in np.flatnonzero(placed & ~seen):
                    read = np.frombuffer(os.pread(file.fileno(), 4 * size, 4 * size * int(number)), "<u4")
                    assert (read == number).all()
                    assert positions[number].tolist() == [number, -number]
                looks += bool((placed & ~seen).any())
                assert not (seen & ~placed).any()
                seen = placed
                assert not over or placed.all()
        assert looks > 3
        assert index.receiver == writer.pid
        assert writer.wait(30) == 0
        assert index.ended == "all came"
    finally:
        writer.kill()
        writer.wait()
    assert not list(tmp_path.glob(".*"))


def test_states_counters_and_times(tmp_path):
    index = ArrivalIndex.create(tmp_path / INDEX_NAME, 10, series="a β series " + "x" * 80)
    reader = ArrivalIndex.open(tmp_path / INDEX_NAME)
    assert reader.series.startswith("a β series x")
    assert len(reader.series.encode()) == 64
    assert reader.summary().arrived == 0
    now = time.time()
    assert [index.frame(number, now - 4 + number / 4) for number in (0, 1, 4, 3)] == [True] * 4
    assert not index.frame(1, now)
    assert [index.place(number, (number + 0.5, 2)) for number in (4, 0, 7)] == [True] * 3
    assert not index.place(4, (9, 9))
    index.add("duplicates")
    index.add("stray", 3)
    found = reader.summary(now)
    assert (found.planned, found.arrived, found.placed, found.late, found.missing) == (10, 4, 2, 2, 1)
    assert (found.duplicates, found.stray, found.damaged) == (1, 3, 0)
    assert (found.ended, found.admitted) == (None, None)
    assert found.rate == pytest.approx(1)  # four in the four seconds since the first
    assert found.lag == pytest.approx(3.5, abs=0.5)  # medians of 4 and 3 seconds
    assert reader.states().tolist() == [3, 1, 0, 1, 3, 0, 0, 2, 0, 0]
    np.testing.assert_array_equal(reader.placed(), reader.states() == 3)
    assert reader.positions()[[0, 4, 7]].tolist() == [[0.5, 2], [4.5, 2], [7.5, 2]]
    assert np.isnan(reader.positions()[[1, 2, 3, 5, 6, 8, 9]]).all()
    np.testing.assert_array_equal(np.isnan(reader.arrival_times()), reader.states() & 1 == 0)
    np.testing.assert_array_equal(np.isnan(reader.usable_times()), ~reader.placed())
    index.end("ended early: 4 of 10")
    index.end("another reason")
    found = reader.summary(now + 60)
    assert found.ended == "ended early: 4 of 10"
    assert found.arrived + found.missing == found.planned
    assert found.rate == pytest.approx(3)  # three intervals in one second, however long ago
    counts = "6 missing, 2 late, 1 duplicate, 3 stray"
    assert str(found) == f"4 of 10 patterns came; {counts}; 3 patterns/s on average; ended early: 4 of 10"


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_clock_that_is_set_is_no_silence(tmp_path, monkeypatch, step):
    """The receiver's, or that of the reader; also the clocks of two machines may differ so much."""
    index = ArrivalIndex.create(tmp_path / INDEX_NAME, 4)
    reader, real, beating = index.open(index.path), time.time, threading.Event()
    assert reader.is_alive()
    monkeypatch.setattr(arrivals.time, "time", lambda: real() + step)
    assert reader.silence < 1
    assert reader.summary().silence < 1
    assert not reader.is_alive(), "nobody gives signs of life"
    monkeypatch.setattr(arrivals.time, "time", lambda: real() + (step if threading.current_thread() is beat else 0))
    beat = threading.Thread(target=lambda: [index.beat() for _ in iter(lambda: beating.wait(0.1), True)])
    beat.start()
    try:
        seen = []
        for _ in range(30):
            seen.append(reader.silence)
            time.sleep(0.05)
        assert max(seen[5:]) < 0.5
        assert ArrivalIndex.open(index.path).is_alive()
    finally:
        beating.set()
        beat.join()
    while reader.silence < 1:
        time.sleep(0.05)


def test_positions_known_before_the_scan(tmp_path):
    planned = np.random.default_rng(1).normal(size=(5, 2))
    index = ArrivalIndex.create(tmp_path / INDEX_NAME, 5, positions=planned)
    assert not index.placed().any()
    np.testing.assert_array_equal(index.positions(), planned)
    index.frame(3, time.time())
    assert np.flatnonzero(ArrivalIndex.open(tmp_path / INDEX_NAME).placed()).tolist() == [3]


def test_an_index_has_its_space_on_the_disk_or_is_not_created(tmp_path):
    """The limit of a file's size stands for a full disk; memory beyond its space would end the process later."""
    index = ArrivalIndex.create(tmp_path / INDEX_NAME, 1000)
    assert 512 * index.path.stat().st_blocks >= ArrivalIndex.size(1000)
    index.path.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with raises("file.not-writable", tmp_path / INDEX_NAME):
            ArrivalIndex.create(tmp_path / INDEX_NAME, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_refused(tmp_path):
    path = tmp_path / INDEX_NAME
    with raises("file.not-found", path):
        Acquisition(tmp_path, 4).index()
    with raises("argument.invalid-value", 0):
        ArrivalIndex.create(path, 0)
    ArrivalIndex.create(path, 4)
    with raises("file.not-writable", path):
        ArrivalIndex.create(path, 4)
    with raises("file.damaged", 4, 5):
        Acquisition(tmp_path, 5).index()
    whole = path.read_bytes()
    for broken in (whole[:-1], whole + b"\0", b"", whole[:100], b"PTYNBARR" + whole[8:], bytes(len(whole))):
        path.write_bytes(broken)
        with raises("file.damaged", path):
            ArrivalIndex.open(path)
    assert not list(tmp_path.glob(".*"))
