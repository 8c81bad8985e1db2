"""The tab Scan of the workbench without a browser: files and live sources, and the lines of Python that do the same."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.playback import Recording
from ptynb.app.plan_fields import FROM_ADDRESS, SAME_FILE, PlanFields
from ptynb.app.scan_tab import ScanTab
from ptynb.app.workbench_app import Workbench
from ptynb.polling import wait_until
from ptynb.widgets.option_fields import marking
from tests.acquisition.emulated import emulator, recorded
from tests.io import layouts
from tests.io.test_near_field import FOCUS, shadows
from tests.live_source import Source
from tests.raising import raises


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    bench = pt.workbench()
    yield bench
    bench.close()


@pytest.fixture
def tab(bench: Workbench) -> ScanTab:
    return bench.scan_tab


def after(bench: Workbench, command: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """The message of the workbench after a command."""
    command(*arguments, **named)
    bench.actions.settle()
    return str(bench.message)


def loads(bench: Workbench) -> list[str]:
    return [line for line in bench.code.splitlines() if line.startswith("scan = pt.load")]


# Files


def test_what_a_file_lacks_is_entered_in_fields(
    bench: Workbench, tab: ScanTab, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez("some.npz", patterns=pt.simulate(patterns=25, window=32, seed=7).counts(0, 25))
    pointed: list[str] = []
    monkeypatch.setattr(tab.options, "send", lambda content: pointed.append(content["focus"]))
    assert "No file is named" in after(bench, tab.open)
    after(bench, tab.name_file, "some.npz")
    lacks = (
        "The file lacks the positions, the wavelength, the distance to the detector and the detector's pixel size: "
        "enter Positions from, or Raster and Raster step; Wavelength, Photon energy or Electron voltage; Detector "
        "distance; Detector pixel size or Pixel angle."
    )
    assert tab.remarks == [{"role": "status", "text": lacks}]
    assert ["patterns", "25 of 32 × 32, float32 counts", "patterns"] in tab.facts, "before it is loaded"
    assert "does not contain the positions, the wavelength" in after(bench, tab.open)
    assert {*pointed} == {"energy"}, "the first one on the page"
    for name, text in {
        "raster": "5, 5", "step": "2", "energy": "12", "detector_pixel": "50 50", "geometry": "near field",
        "focus_to_sample": "10",
    }.items():  # fmt: skip
        tab.options.enter(name, text)
    assert "distance is '99 cm'" in after(bench, tab.options.enter, "distance", "99 cm")
    assert pointed[-1] == "distance"
    assert after(bench, tab.options.enter, "distance", "990 mm") == ""
    assert "effective distance" in [row[0] for row in tab.facts]
    assert [line for line in bench.code.splitlines() if "pt.info" in line] == ["pt.info('some.npz')"]
    assert tab.unfolded
    assert after(bench, tab.open) == ""
    assert not tab.unfolded
    assert bench.scan is not None
    assert isinstance(bench.scan.geometry, pt.NearField)
    assert bench.scan.geometry.magnification == pytest.approx(100)
    names: dict[str, Any] = {"pt": pt}
    exec(loads(bench)[-1], names)
    assert names["scan"].geometry == bench.scan.geometry
    assert np.array_equal(names["scan"].positions, bench.scan.positions)
    tab.options.enter("energy", "12 kilos")
    assert "energy is '12 kilos'" in after(bench, tab.open)
    assert tab.options.notes["energy"]["text"] == "see the message"
    assert tab.unfolded
    tab.options.fill({"energy": 12e3, "geometry": "far field"})
    assert "focus_to_sample=0.01 was given and geometry is 'far field'" in after(bench, tab.open)
    assert tab.options.notes["geometry"]["text"] == "see the message; it proposes near field"


TRAPS = ("give distance=8.0", "3 x 4 over 2e-06", "Value error, Input should be")
"""Folders with names like what messages are made of."""


def test_paths_in_messages_stay_as_they_are_and_fields_are_marked(
    bench: Workbench, tab: ScanTab, tmp_path: Path
) -> None:
    scan, plan = pt.simulate(patterns=9, window=16, seed=7), tab.listening.fields
    known = {"distance": scan.geometry.distance, "detector_pixel": scan.geometry.detector_pixel}
    values = {"patterns": scan.counts(0, 9), "positions": scan.positions * scan.pixel_size, "energy": 8.3}
    for trap in TRAPS:
        path = tmp_path / "data" / trap / "scan.npz"
        path.parent.mkdir(parents=True)
        np.savez(path, **values, **known)
        tab.name_file(str(path))
        message = after(bench, tab.open)
        assert f"{path} has a photon energy of 8.3 eV" in message
        assert "give energy=8300 [eV]" in message
        assert tab.options.notes["energy"]["text"] == "see the message; it proposes 8.3 keV"
        assert any(str(path) in remark["text"] for remark in tab.remarks)
        assert tab.title[0] == str(path)
        plan.fill({"source": "never.h5", "planned": str(path.with_name("none.npy"))})
        after(bench, tab.listening.listen)
        assert {*plan.problems} == {"planned"}
        assert str(path.with_name("none.npy")) in plan.problems["planned"]


def test_a_near_field_file_is_opened_by_three_clicks(bench: Workbench, tab: ScanTab, tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    layouts.cxidb(tmp_path / "night" / "shadows.cxi", shadows(FOCUS))
    tab.chooser.refresh()
    tab.chooser.open("night")
    after(bench, tab.chooser.open, "shadows.cxi")
    assert any("look like shadows of the near field" in remark["text"] for remark in tab.remarks)
    assert tab.suggestion.startswith("Use near field, focus to sample about 10")
    after(bench, tab.suggest)
    assert "magnification" in [row[0] for row in tab.facts]
    assert tab.suggestion == ""
    after(bench, tab.open)
    assert bench.scan is not None
    assert isinstance(bench.scan.geometry, pt.NearField)
    assert loads(bench)[0].startswith("scan = pt.load('night/shadows.cxi', geometry='near field', focus_to_sample=")
    tab.unfolded = True
    assert tab.chooser.recent == [str(tmp_path / "night" / "shadows.cxi")]


def test_a_file_that_says_that_it_is_of_the_near_field_needs_no_click_for_it(
    bench: Workbench, tab: ScanTab, tmp_path: Path
) -> None:
    with h5py.File(layouts.ptyd(tmp_path / "shadows.ptyd", shadows(math.inf)), "r+") as file:
        layouts.put(file, "info/propagation", "nearfield").attrs["type"] = "string"
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "far.h5")
    tab.chooser.refresh()
    tab.chooser.open("shadows.ptyd")
    assert after(bench, tab.chooser.open, "shadows.ptyd", twice=True) == ""
    assert bench.scan is not None
    assert isinstance(bench.scan.geometry, pt.NearField)
    after(bench, tab.chooser.open, "far.h5")
    assert tab.options.arguments == {}, "of the file before"


# Live sources


WRITER = """
import os, h5py
file = h5py.File("written.h5", "w", libver="latest")
file.create_dataset("data", (0, 8, 8), "u2", maxshape=(None, 8, 8), chunks=(1, 8, 8))
file.swmr_mode = True
os._exit(0)
"""
"""Leaves a file as it is while it is written."""


def test_a_plan_is_entered_and_told_as_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    positions = np.arange(8.0).reshape(4, 2) * 1e-6
    np.save("planned.npy", positions)
    np.savetxt("planned.csv", positions, delimiter=",")
    pt.save_mask(np.eye(8) == 0, "mask.npy")
    monkeypatch.setattr(pt, "listen", lambda source, **more: {"source": source, **more})
    fields = PlanFields()

    def same(positions: str) -> Any:
        """The plan, which the line of Python makes, too."""
        found = fields.arguments()
        names: dict[str, Any] = {}
        exec(f"import numpy as np\nimport ptynb as pt\n{found.line}", names)
        told = names["scan"]
        assert (told["source"], told.get("positions", "planned")) == (found.source, positions)
        assert told.get("folder") == found.folder
        for name in ("geometry", "extent", "count", "window", "centre", "units", "clip_negative"):
            assert getattr(told["plan"], name) == getattr(found.plan, name), name
        for name in ("positions", "mask"):
            assert np.array_equal(getattr(told["plan"], name), getattr(found.plan, name)), name
        return found.plan

    fields.fill({"source": "stream2://det", "planned": "planned.csv", "folder": "night 1"})
    assert np.array_equal(same("planned").positions, positions)
    fields.fill({"planned": "planned.npy", "window": "64", "centre": "50, 52", "energy": 8e3, "distance": 2})
    with raises("scan.no-geometry", "Detector pixel size"), marking(fields):
        fields.arguments()
    assert list(fields.problems) == ["detector_pixel"]
    fields.fill({"detector_pixel": 75e-6, "mask": "mask.npy", "clip_negative": True})
    plan = same("planned")
    assert (plan.window, plan.centre, plan.clip_negative) == ((64, 64), (50, 52), True)
    assert (plan.geometry.energy, plan.geometry.detector_pixel) == (pytest.approx(8e3), (75e-6, 75e-6))
    fields.enter("geometry", "near field")
    assert "focus_to_sample" not in fields.folded
    assert math.isinf(same("planned").geometry.focus_to_sample)
    assert fields.hidden == ["positions"]
    fields.fill({"planned": "", "count": "100", "kind": FROM_ADDRESS, "positions": "panda://host?y=A.B&x=C.D"})
    assert fields.hidden == []
    fields.fill({"extent_y": "-5, 5", "extent_x": "0 4 "})
    plan = same("panda://host?y=A.B&x=C.D")
    assert (plan.count, plan.extent) == (100, ((-5e-6, 5e-6), (0.0, 4e-6)))
    fields.enter("units", "pixels")
    assert same("panda://host?y=A.B&x=C.D").extent == ((-5.0, 5.0), (0.0, 4.0))
    fields.fill({"source": "x.h5", "kind": SAME_FILE, "positions": "entry/y,entry/x"})
    before: dict[str, Any] = {**fields.values}
    for values, at, code, fact in (
        ({"source": ""}, "source", "argument.missing", "stream2://"),
        ({"source": "tcp://a"}, "source", "argument.invalid-value", "tcp://a"),
        ({"source": "stream2://a"}, "positions", "argument.conflict", "same file"),
        ({"positions": "a,b,c"}, "positions", "argument.invalid-value", "a,b,c"),
        ({"planned": "none.npy"}, "planned", "file.not-found", "none.npy"),
        ({"planned": "planned.npy"}, "planned", "argument.conflict", "both"),
        ({"count": "many"}, "count", "argument.invalid-value", "many"),
        ({"count": "0"}, "count", "argument.invalid-value", "0"),
        ({"extent_y": "5, 1"}, "extent_y", "argument.invalid-value", "y0 < y1"),
        ({"extent_y": "five"}, "extent_y", "argument.invalid-value", "five"),
        ({"extent_y": "", "extent_x": ""}, "extent_y", "argument.missing", "extents"),
        ({"window": "2"}, "window", "argument.invalid-value", "window"),
        ({"kind": "planned"}, "positions", "acquisition.no-positions", "extent"),
    ):
        fields.fill(values)
        with raises(code, fact), marking(fields):
            fields.arguments()
        assert list(fields.problems) == [at], values
        fields.fill(before)
    same("entry/y,entry/x")
    fields.mark(None)
    assert fields.problems == {}


def test_a_wait_for_a_scan_is_shown_and_cancelled_and_ends_with_the_workbench(
    bench: Workbench, tab: ScanTab, tmp_path: Path
) -> None:
    panel, fields = tab.listening, tab.listening.fields
    np.save("planned.npy", np.arange(8.0).reshape(4, 2) * 1e-6)
    source = {"source": "never.h5", "planned": "planned.npy", "folder": "night", "kind": "planned"}
    for values, at in (
        ({}, "source"),
        (source | {"source": str(tmp_path / "planned.npy")}, "source"),  # no HDF5
        (source | {"folder": "planned.npy"}, "folder"),
        (source | {"kind": FROM_ADDRESS, "positions": "panda://127.0.0.1:1?y=A.B&x=C.D"}, "positions"),  # nobody there
    ):
        fields.fill(values)
        assert after(bench, panel.listen) == ""
        assert (list(fields.problems), panel.busy) == ([at], False)
    after(bench, fields.fill, source)
    line = "scan = pt.listen('never.h5', plan=pt.Plan(positions=np.load('planned.npy')), folder='night')"
    assert (fields.line, fields.problems) == (line, {})
    panel.listen()
    assert wait_until(lambda: panel.waiting == "waiting for the scan to begin, 0:01", 30)
    assert panel.busy
    after(bench, panel.cancel)
    assert (panel.status, panel.waiting, panel.busy) == ("Cancelled; nothing was received.", "", False)
    assert line not in bench.code
    panel.listen()
    assert wait_until(lambda: panel.waiting, 30)
    bench.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["planned.npy"]


def test_a_file_in_writing_is_offered_as_a_source(bench: Workbench, tab: ScanTab) -> None:
    subprocess.run([sys.executable, "-c", WRITER], check=True)
    tab.name_file("written.h5")
    assert "still being written" in after(bench, tab.open)
    assert tab.being_written
    tab.unfolded = False
    tab.listen_to_file()
    assert (tab.live, tab.unfolded, tab.listening.fields.text("source")) == (True, True, "written.h5")
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    after(bench, tab.name_file, "some.h5")
    assert not tab.being_written


def test_the_end_of_a_live_scan_is_asked_for_and_what_came_is_opened_after_it(tmp_path: Path) -> None:
    source = Source(pt.simulate(patterns=36, window=32, seed=2), tmp_path / "spool")
    bench = pt.workbench(source.live)
    tab = bench.scan_tab
    try:
        assert (tab.receiving, tab.question) == ("on", "")
        source.give([5, 9, 20, 7])
        assert wait_until(lambda: source.index.summary().arrived == 4, 30)
        after(bench, tab.stop)
        assert tab.question.startswith("End the scan? 4 of 36 patterns came")
        assert source.index.ended is None
        assert not (source.folder / "stop").exists()
        after(bench, tab.answer, end=False)
        assert tab.question == ""
        assert "scan.stop_listening()" not in bench.code
        after(bench, tab.stop)
        source.give([number for number in range(36) if number not in (5, 9, 20, 7, 30)])
        source.end("ended early: 35 of 36")
        assert wait_until(lambda: tab.receiving == "ended", 30)
        assert tab.question == "", "it ended by itself"
        after(bench, tab.open_received)
        assert bench.scan is not None
        assert (len(bench.scan), bench.scan.acquisition, tab.receiving) == (35, None, "")
        assert bench.code.splitlines()[-1] == f"scan = pt.load({str(source.folder / 'scan.h5')!r})"
    finally:
        bench.close()
        source.close()


def test_an_emulated_detector_is_listened_to_and_stopped(bench: Workbench, tab: ScanTab, tmp_path: Path) -> None:
    path = recorded(tmp_path, patterns=100)
    np.save("planned.npy", Recording(pt.load(path)).positions)
    tab.live = True
    with emulator(path, "--as", "stream2", "--rate", 10) as emulated:
        tab.listening.fields.fill({"source": emulated.source, "planned": "planned.npy", "folder": "night"})
        tab.listening.listen()
        bench.actions.settle(60)
        scan: Any = bench.scan
        assert len(scan) == 100
        assert not tab.unfolded
        line = bench.code.splitlines()[-1]
        plan = "plan=pt.Plan(positions=np.load('planned.npy')), folder='night'"
        assert line == f"scan = pt.listen({emulated.source!r}, {plan})"
        assert wait_until(lambda: scan.acquisition.index().summary().arrived > 32, 30)
        after(bench, tab.stop)
        assert scan.acquisition.index().ended is None
        after(bench, tab.answer, end=True)
        assert "stopped on request" in scan.acquisition.index().ended
    assert after(bench, tab.open_received) == ""
    opened: Any = bench.scan
    assert 32 <= len(opened) < 100
    assert bench.code.splitlines()[-2:] == ["scan.stop_listening()", "scan = pt.load('night/scan.h5')"]
