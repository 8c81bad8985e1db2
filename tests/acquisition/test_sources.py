"""Every source, sent by an emulator in a process of its own with faults, arrives by number, and is counted exactly."""

import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.faults import Faults
from ptynb.acquisition.emulators.playback import order
from tests.acquisition.emulated import (
    POSITIONS_OF_FILE,
    check_saved,
    emulator,
    expected,
    log_of,
    planned,
    recorded,
    unplanned,
    until_ended,
)

DISORDER = Faults(drop=0.03, duplicate=0.05, differ=0.02, shuffle=50, stray=4, garbage=0.02, seed=3)
LOST = Faults(drop=0.03, shuffle=20, seed=3)
# name -> words of the emulator, faults that the protocol can show, messages that are stray
SOURCES = {
    "stream2, PandA": (["--as", "stream2", "--send-positions", "panda", "--late-positions", 1], DISORDER, 4),
    "Simplon, JSON": (["--as", "simplon", "--send-positions", "json", "--late-positions", 0.5], DISORDER, 4),
    "a file in writing": (["--as", "swmr", "--send-positions", "file", "--late-positions", 0.2], LOST, 0),
    "Eiger's files": (["--as", "eiger"], LOST, 0),
    "PV Access": (["--as", "pva"], Faults(drop=0.03, duplicate=0.05, shuffle=50, seed=3), 1),
}


def words_of(faults):
    names = ("drop", "duplicate", "differ", "shuffle", "stray", "garbage", "seed")
    return [word for name in names for word in (f"--{name}", getattr(faults, name))]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_with_faults_is_received_and_counted(tmp_path, path, name):
    words, faults, stray = SOURCES[name]
    folder, sent = tmp_path / "received", order(len(pt.load(path)), faults)
    numbers = expected(path, faults)
    with emulator(path, *words, "--rate", 300, "--file", tmp_path / "written.h5", *words_of(faults)) as emulated:
        # Few patterns are not waited for long in tests.
        geometry = pt.load(path).geometry if name == "PV Access" else None
        make = planned if emulated.positions == "planned" else unplanned
        plan = make(path, geometry=geometry, silence=2.0)
        scan = pt.listen(emulated.source, plan=plan, positions=emulated.positions, folder=folder, timeout=30)
        assert len(scan) == len(pt.load(path))
        assert scan.acquisition.start_after == 32
        arrivals = until_ended(scan)
    again = len([step for step in sent if step.number >= 0]) - len(numbers)
    assert (arrivals.planned, arrivals.arrived, arrivals.placed) == (len(scan), len(numbers), len(numbers))
    assert (arrivals.missing, arrivals.late) == (len(scan) - len(numbers), 0)
    assert (arrivals.duplicates, arrivals.stray) == (again, stray)
    assert arrivals.differing == len([step for step in sent if step.changed])
    assert (arrivals.damaged, arrivals.outside) == (len([step for step in sent if step.number < 0]), 0)
    assert arrivals.refused == 0
    assert arrivals.ended.startswith(f"ended early: {len(numbers)} of {len(scan)}")
    np.testing.assert_array_equal(np.flatnonzero(scan.acquisition.index().placed()), numbers)
    check_saved(folder, path, numbers)
    assert f"{arrivals.missing} patterns never came" in log_of(folder)
    assert sorted(one.name for one in folder.iterdir()) == ["arrivals.index", "arrivals.log", "scan.h5"]
    if name != "PV Access" and "file" not in name and "Eiger" not in name:  # headers that have a mask
        np.testing.assert_array_equal(scan.mask, pt.load(path).mask)


@pytest.mark.parametrize("layout", ["fixed", "uid", "chunks"])
def test_a_file_in_writing_tells_what_is_written_however_it_is_laid_out(tmp_path, path, layout):
    from tests.acquisition.writing import writer

    faults, folder = LOST, tmp_path / "received"
    with writer(path, tmp_path / "written.h5", layout, faults) as address:
        plan = unplanned(path, silence=2.0)
        scan = pt.listen(address, plan=plan, positions=POSITIONS_OF_FILE, folder=folder, timeout=30)
        arrivals = until_ended(scan)
    assert arrivals.placed == len(expected(path, faults))
    check_saved(folder, path, expected(path, faults))


def test_all_patterns_end_a_scan_at_once_and_a_window_is_cut_out(tmp_path, path):
    with emulator(path, "--as", "stream2", "--rate", 0, "--endless") as emulated:
        plan = planned(path, window=(16, 20), centre=(15, 17))
        scan = pt.listen(emulated.source, plan=plan, folder=tmp_path / "received", timeout=30)
        arrivals = until_ended(scan, 4)  # before a silence would end it
    assert arrivals.ended == f"complete: {len(scan)} of {len(scan)}"
    part = np.s_[7:23, 7:27]
    whole, cut = pt.load(path), pt.load(tmp_path / "received" / "scan.h5")
    np.testing.assert_array_equal(cut.frames.read(0, len(cut)), whole.frames.read(0, len(whole))[:, *part])
    np.testing.assert_array_equal(cut.mask, whole.mask[part])
    # Pixels of the object are larger with a smaller window.
    np.testing.assert_allclose(cut.positions * cut.pixel_size, whole.positions * whole.pixel_size, rtol=1e-6)


def test_positions_outside_or_not_finite_are_refused_and_never_moved(tmp_path, path):
    whole = pt.load(path)
    with emulator(path, "--as", "stream2", "--send-positions", "json", "--rate", 500) as emulated:
        positions = whole.positions * np.asarray(whole.pixel_size)
        half = float(np.median(positions[:, 0]))
        plan = pt.Plan(
            extent=((positions[:, 0].min(), half), (positions[:, 1].min(), positions[:, 1].max())), silence=1
        )
        scan = pt.listen(
            emulated.source, plan=plan, positions=emulated.positions, folder=tmp_path / "received", timeout=30
        )
        arrivals = until_ended(scan)
    inside = np.flatnonzero(positions[:, 0] <= half)
    assert 0 < len(inside) < len(whole)
    assert (arrivals.arrived, arrivals.placed) == (len(whole), len(inside))
    assert arrivals.refused == arrivals.late == len(whole) - len(inside)
    assert f"{arrivals.late} of them without a position" in arrivals.ended
    check_saved(tmp_path / "received", path, inside.tolist())
