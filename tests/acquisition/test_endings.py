"""How scans end that do not end well: within ten seconds, with one sentence, and nothing is lost or left behind."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb.acquisition import receiver
from ptynb.acquisition.compression import Packed
from ptynb.acquisition.emulators import simplon_players
from ptynb.acquisition.emulators.playback import Recording, Sending
from ptynb.acquisition.emulators.simplon_players import Stream2Player
from ptynb.acquisition.messages import Frame, LiveSource, SeriesEnded, SeriesStarted
from ptynb.acquisition.receiver import Order
from ptynb.data.arrivals import INDEX_NAME, ArrivalIndex
from ptynb.data.source_address import pattern_address
from tests.acquisition.emulated import check_saved, emulator, log_of, planned, recorded, until_ended
from tests.raising import raises

LIMIT = 10.0
FILES = ["arrivals.index", "arrivals.log", "scan.h5"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize("source", ["stream2", "simplon"])
def test_an_aborted_series_ends_early_and_the_next_one_starts_clean(tmp_path, path, source):
    with emulator(path, "--as", source, "--rate", 500, "--abort", 0.4, "--stray", 7) as emulated:
        scan = pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "aborted", timeout=30)
        receiver = psutil.Process(scan.acquisition.index().receiver)
        began = time.monotonic()
        arrivals = until_ended(scan)
    sent = int(0.4 * len(scan))
    assert time.monotonic() - began < LIMIT
    assert arrivals.ended == f"ended early: {sent} of {len(scan)} (the source ended the series)"
    assert (arrivals.arrived, arrivals.missing, arrivals.stray) == (sent, len(scan) - sent, 7)
    assert "pattern" in log_of(tmp_path / "aborted")
    check_saved(tmp_path / "aborted", path, list(range(sent)))
    assert not psutil.wait_procs([receiver], 5)[1]
    assert sorted(one.name for one in (tmp_path / "aborted").iterdir()) == FILES


@pytest.mark.parametrize("words", [["--as", "stream2", "--kill", 0.4], ["--as", "swmr", "--kill", 0.4]])
def test_after_a_killed_sender_a_silence_ends_the_scan(tmp_path, path, words):
    written = tmp_path / "written.h5"
    with emulator(path, *words, "--rate", 200, "--file", written) as emulated:
        scan = pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "received", timeout=30)
        emulated.process.wait(30)
        began = time.monotonic()
        arrivals = until_ended(scan)
    assert time.monotonic() - began < LIMIT
    assert emulated.process.returncode == -signal.SIGKILL
    assert arrivals.ended.startswith(f"ended early: {arrivals.arrived} of {len(scan)} (no pattern for 5.")
    # What was in ZeroMQ's queue in the killed process is lost; what was written to a file is not.
    sent = -(-2 * len(scan) // 5)
    assert sent - 1 <= arrivals.arrived <= sent if "swmr" in words else 0 < arrivals.arrived <= sent
    check_saved(tmp_path / "received", path, np.flatnonzero(scan.acquisition.index().placed()).tolist())
    if "swmr" in words:
        with raises("file.being-written", "listen('written.h5'", "h5clear"):
            pt.load(written)


def test_a_source_that_never_ends_is_ended_by_silence_and_a_stall_is_not(tmp_path, path):
    with emulator(path, "--as", "stream2", "--rate", 500, "--drop", 0.1, "--stall", 3, "--endless") as emulated:
        scan = pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "received", timeout=30)
        time.sleep(2)
        assert 0 < scan.acquisition.index().summary().arrived < 0.6 * len(scan)
        with raises("file.not-writable", tmp_path / "received"):
            pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "received")
        arrivals = until_ended(scan)
    assert arrivals.arrived > 0.8 * len(scan)
    assert "no pattern for 5." in arrivals.ended


def test_stop_listening_ends_a_scan_that_never_ends_keeps_what_came_and_leaves_nothing(tmp_path, path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with emulator(path, "--as", "simplon", "--rate", 50, "--endless") as emulated:
        scan = pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "received", timeout=30)
        while scan.acquisition.index().summary().arrived < 10:
            time.sleep(0.02)
        again = pt.load(tmp_path / "received" / "scan.h5")  # another notebook, while it is received
        assert again.acquisition == scan.acquisition
        assert again.metadata_digest == scan.metadata_digest
        receiver = psutil.Process(scan.acquisition.index().receiver)
        sender = psutil.Process(emulated.process.pid)
        assert [one.status for one in sender.net_connections("tcp") if one.raddr] == [psutil.CONN_ESTABLISHED]
        began = time.monotonic()
        arrivals = scan.stop_listening()
        assert time.monotonic() - began < 2
        assert scan.stop_listening().arrived == arrivals.arrived
        assert not psutil.wait_procs([receiver], 5)[1]
        assert not [one for one in sender.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED]
        assert sender.is_running()
    assert "stopped on request" in arrivals.ended
    check_saved(tmp_path / "received", path, list(range(arrivals.arrived)))
    with raises("scan.not-received"):
        pt.load(tmp_path / "received" / "scan.h5").stop_listening()
    whole = pt.listen(tmp_path / "received")
    assert (len(whole), whole.metadata_digest) == (len(scan), scan.metadata_digest)
    assert sorted(one.name for one in (tmp_path / "received").iterdir()) == FILES
    assert not list((tmp_path / "temporary").iterdir())


def test_a_killed_receiver_is_noticed_and_what_it_wrote_is_read(tmp_path, path):
    with emulator(path, "--as", "stream2", "--rate", 50) as emulated:
        scan = pt.listen(emulated.source, plan=planned(path), folder=tmp_path / "received", timeout=30)
        index = scan.acquisition.index()
        while index.summary().arrived < 10:
            time.sleep(0.02)
        assert index.summary().silence < 1
        os.kill(index.receiver, signal.SIGKILL)
        arrived = index.summary().arrived
        while index.summary().silence < 1:
            time.sleep(0.1)
        assert index.ended is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptynb.data.arrivals.SILENCE_SECONDS", 1.0)
        check_saved(tmp_path / "received", path, list(range(arrived)))
        with raises("acquisition.failed", index.receiver):
            scan.stop_listening()
    (tmp_path / "received" / INDEX_NAME).unlink()
    with raises("file.incomplete", INDEX_NAME):
        pt.load(tmp_path / "received" / "scan.h5")


def test_a_notebook_that_ends_before_the_scan_began_takes_the_receiver_with_it(tmp_path, path):
    lines = (
        "import ptynb as pt; from tests.acquisition.emulated import planned\n"
        f"pt.listen({str(tmp_path / 'never.h5')!r}, plan=planned({str(path)!r}), folder={str(tmp_path / 'no')!r})"
    )
    notebook = subprocess.Popen([sys.executable, "-c", lines])
    until = time.monotonic() + 30
    while not (children := psutil.Process(notebook.pid).children()):
        assert time.monotonic() < until
        time.sleep(0.05)
    notebook.kill()
    notebook.wait()
    _, left = psutil.wait_procs(children, 10)
    assert not left


def test_a_scan_whose_first_pattern_never_comes_is_not_kept_open_for_nobody(tmp_path, path, monkeypatch):
    """The detector is armed, and the notebook ends: another has some time to come back to it."""
    player, notebook = Stream2Player(Recording(pt.load(path))), os.getppid()
    order = Order(
        patterns=pattern_address(player.address), positions=None, plan=planned(path),
        folder=tmp_path, parent=notebook, name="here",
    )  # fmt: skip
    alone = threading.Event()
    monkeypatch.setattr(receiver.os, "getppid", lambda: 1 if alone.is_set() else notebook)
    monkeypatch.setattr(receiver, "ALONE", 1.0)
    sender = threading.Thread(target=player.start)
    sender.start()
    threading.Timer(1.0, alone.set).start()
    began = time.monotonic()
    receiver.Receiver(order).run()
    assert 2 < time.monotonic() - began < 5
    sender.join()
    player.close()
    index = ArrivalIndex.open(tmp_path / INDEX_NAME)
    assert index.ended == f"ended early: 0 of {index.count} (the process that waited for the scan has ended)"


def test_nothing_is_left_of_a_scan_that_does_not_begin(tmp_path, path):
    with raises("acquisition.not-started", 1):
        pt.listen(tmp_path / "never.h5", plan=planned(path), folder=tmp_path / "received", timeout=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", [False, True])
def test_a_new_series_is_a_new_scan_and_whose_header_was_taken_is_said(tmp_path, path, ends):
    """The detector is armed again at once; the end of the first series comes, or is lost."""
    player = Stream2Player(Recording(pt.load(path)))
    listening = threading.Event()

    def send():
        player.start()
        for number in range(20):
            player.frame(Sending(number))
        if ends:
            player._pushing.send(simplon_players._coded(player._named("end", player._series)))
        player._series += 1
        player.start()
        assert listening.wait(30)
        if not ends:
            for number in range(20):
                player.frame(Sending(number))
            player.end()
        player.close()

    sender = threading.Thread(target=send)
    sender.start()
    scan = pt.listen(player.address, plan=planned(path), folder=tmp_path / "first", timeout=30)
    arrivals = until_ended(scan)
    reason = "the source ended the series" if ends else "series 9 began"
    assert arrivals.ended == (
        f"ended early: 20 of {len(scan)} ({reason}); the start of series 9 was taken with it, and is sent only once: "
        "listen again, then start that series again"
    )
    assert arrivals.series == "8"
    check_saved(tmp_path / "first", path, list(range(20)))
    listening.set()
    if not ends:
        told = "A pattern of series 9 came, whose header was sent before this receiver listened"
        with raises("acquisition.not-started", told), pytest.warns(pt.PtynbWarning, match=told) as warned:
            pt.listen(player.address, plan=planned(path), folder=tmp_path / "second", timeout=12)
        assert [warning.filename for warning in warned] == [__file__]
    sender.join()


class Given(LiveSource):
    """Messages that all wait when a receiver begins."""

    def __init__(self, messages):
        self._messages = messages

    def poll(self, timeout):
        messages, self._messages = self._messages, []
        return messages

    def close(self):
        pass


def test_the_header_of_another_series_is_said_of_a_complete_scan_too(tmp_path, path, monkeypatch):
    """It waits behind the last pattern, after which the receiver takes no more messages."""
    counts, plan = np.full((32, 32), 3, "<u2"), planned(path)
    number = 2 * receiver.AT_ONCE - 1
    plan = dataclasses.replace(plan, positions=plan.positions[:number])
    packed = Packed(counts.tobytes(), (32, 32), counts.dtype)
    header = SeriesStarted(
        series="8", shape=(32, 32), dtype=counts.dtype, energy=8e3, distance=1.0, detector_pixel=(1e-4, 1e-4)
    )
    patterns = [Frame(series="8", number=one, arrival=time.time(), packed=packed) for one in range(number)]
    given = Given([header, *patterns, SeriesEnded("8"), dataclasses.replace(header, series="9")])
    monkeypatch.setattr(receiver, "connect", lambda *_: given)
    receiver.Receiver(
        Order(
            patterns=pattern_address("stream2://here"), positions=None, plan=plan,
            folder=tmp_path, parent=os.getppid(), name="here",
        )
    ).run()  # fmt: skip
    ended = ArrivalIndex.open(tmp_path / INDEX_NAME).ended
    assert ended.startswith(f"complete: {number} of {number}; the start of series 9 was taken with it")
