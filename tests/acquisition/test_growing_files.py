"""Files that are being written, seen by their reader step by step, in one process each."""

import os
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.file_players import EigerPlayer
from ptynb.acquisition.emulators.playback import Recording, Sending
from ptynb.acquisition.messages import Frame, Pace, SeriesEnded, SeriesStarted
from ptynb.acquisition.protocols.swmr import GrowingFile
from ptynb.data.source_address import pattern_address
from tests.acquisition.emulated import recorded
from tests.raising import raises


@pytest.fixture
def recording(tmp_path):
    return Recording(pt.load(recorded(tmp_path, patterns=9, window=16)))


def messages_of(source, seconds=0.3):
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        found += source.poll(0.02)
    return found


@pytest.mark.parametrize("names", [["data_000001", "data_000002", "data_000003"], ["data_9", "data_10", "data_11"]])
def test_data_files_are_waited_for_as_long_as_they_take(tmp_path, recording, names):
    player = EigerPlayer(recording, tmp_path / "x.h5", in_a_file=3)
    source = GrowingFile(pattern_address(tmp_path / "x_master.h5"))
    assert messages_of(source) == []
    player.start()
    with h5py.File(tmp_path / "x_master.h5", "r+") as master:
        for written_as, name in zip([*master["entry/data"]], names, strict=True):
            master["entry/data"].move(written_as, name)
    written = (tmp_path / "x_master.h5").stat().st_mtime
    (started,) = messages_of(source)[:1] or [None]
    assert started is None  # the type of the counts is in the first data file
    for number in range(3):
        player.frame(Sending(number))
    first = tmp_path / "x_data_000001.h5"
    os.utime(first, (written + 20, written + 20))
    found = messages_of(source)
    assert [type(one) for one in found] == [SeriesStarted, Pace, Frame, Frame, Frame]
    assert (found[0].count, found[0].shape, found[0].dtype) == (9, (16, 16), np.uint16)
    geometry = recording.scan.geometry
    assert found[0].wavelength == pytest.approx(geometry.wavelength, rel=1e-6)
    assert (found[0].distance, found[0].detector_pixel) == (geometry.distance, geometry.detector_pixel)
    assert found[1].seconds == pytest.approx(60, abs=0.1)
    # The next one is still being copied: first a part of it, then all.
    for number in range(3, 9):
        player.frame(Sending(number))
    second = tmp_path / "x_data_000002.h5"
    shutil.move(second, tmp_path / "whole")
    second.write_bytes((tmp_path / "whole").read_bytes()[:3000])
    assert messages_of(source) == []
    shutil.move(tmp_path / "whole", second)
    found = messages_of(source)
    assert [one.number for one in found if isinstance(one, Frame)] == [3, 4, 5, 6, 7, 8]
    assert isinstance(found[-1], SeriesEnded)  # all data files are there, and closed
    np.testing.assert_array_equal(found[-2].packed.counts(), recording.counts(8))
    source.close()


WRITER = """
import sys, h5py
def wait():
    print(flush=True)
    sys.stdin.readline()
with h5py.File(sys.argv[1], "w", libver="latest") as file:
    data = file.create_dataset("data", (0, 16, 16), "u2", maxshape=(None, 16, 16), chunks=(1, 16, 16))
    file.create_dataset("small", (9, 3, 3), "u2", chunks=(1, 3, 3))
    file.flush()
    wait()
    file.swmr_mode = True
    wait()
    data.resize(2, axis=0)
    data.flush()
    wait()
    data[1] = 7
    data.flush()
    wait()
wait()
with h5py.File(sys.argv[1], "r+", libver="latest") as file:
    file["data"].resize(4, axis=0)
    file["data"][3] = 8
wait()
"""


def test_a_file_in_writing_step_by_step(tmp_path):
    path = tmp_path / "x.h5"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:

        def step(first=False):
            if not first:
                writer.stdin.write("\n")
                writer.stdin.flush()
            writer.stdout.readline()

        step(first=True)
        source = GrowingFile(pattern_address(path))
        assert messages_of(source) == []  # not in SWMR mode yet
        with raises("file.being-written", path):
            pt.load(path)
        step()
        assert [type(one) for one in messages_of(source)] == [SeriesStarted]
        step()
        assert messages_of(source) == []  # it is longer, and nothing is written
        step()
        (frame,) = messages_of(source)
        assert frame.number == 1
        assert (frame.packed.counts() == 7).all()
        step()
        found = messages_of(source)
        assert [type(one) for one in found] == [SeriesEnded]
        step()  # whoever reads does not keep a writer from opening it again
        assert path.stat().st_size > 0
        source.close()
        again = GrowingFile(pattern_address(path))
        assert [one.number for one in messages_of(again) if isinstance(one, Frame)] == [1, 3]
        again.close()
        writer.stdin.write("\n")
