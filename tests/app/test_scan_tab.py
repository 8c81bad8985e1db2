"""The tab Scan of the workbench without a browser: files and live sources, and the lines of Python that do the same."""

from __future__ import annotations

import html
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.playback import Recording
from ptynb.app.plan_fields import FROM_ADDRESS, SAME_FILE, PlanFields
from ptynb.app.scan_tab import LIVE
from ptynb.app.workbench_app import Workbench
from ptynb.data.scan import Scan
from ptynb.settings.load_options import LoadOptions
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from ptynb.widgets.shared_widgets import marking
from tests.acquisition.emulated import emulator, recorded
from tests.io import layouts
from tests.io.test_near_field import FOCUS, shadows
from tests.live_source import Source
from tests.raising import raises


@pytest.fixture(scope="module")
def scan() -> Scan:
    return pt.simulate(patterns=36, window=32, seed=2)


@pytest.fixture(autouse=True)
def _own_recent_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))


@pytest.fixture
def empty_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    bench = pt.workbench()
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    bench.close()


def button(bench: Workbench, tab: str, text: str) -> elements.Button:
    place = {"Scan": bench.scan_tab, "Settings": bench.form, "Compare": bench.compare_tab}[tab]
    return next(one for one in below(place) if isinstance(one, elements.Button) and one.description == text)


def field(bench: Workbench, tab: str, text: str) -> Any:
    place = {"Scan": bench.scan_tab, "Settings": bench.form, "Compare": bench.compare_tab}[tab]
    return next(one for one in below(place) if getattr(one, "description", "") == text and hasattr(one, "value"))


def click(bench: Workbench, tab: str, text: str) -> None:
    button(bench, tab, text).click()
    bench.actions.settle()


def test_what_a_file_lacks_is_entered_in_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = pt.simulate(patterns=25, window=32, seed=7).counts(0, 25)
    np.savez("some.npz", patterns=counts)
    bench = pt.workbench()
    try:
        tab = bench.scan_tab
        field(bench, "Scan", "File").value = "some.npz"
        bench.actions.settle()
        pointed: list[str] = []
        monkeypatch.setattr(tab._options, "send", lambda content: pointed.append(content["focus"]))
        lacks = "The file lacks the positions, the wavelength, the distance to the detector and the detector"
        assert lacks in tab._remarks.value
        ways = (
            "enter Positions from, or Raster and Raster step; Wavelength, Photon energy or Electron voltage; Detector"
        )
        assert ways in tab._remarks.value
        assert "25 of 32 × 32" in tab._facts.value, "what it has is shown before it is loaded"
        click(bench, "Scan", "Load")
        assert "does not contain the positions, the wavelength" in bench.message
        assert pointed == ["energy"], "the first one on the page"
        assert tab._open_file.layout.display is None, "the fields are shown"
        for name, value in {
            "raster": "5, 5",
            "step": "2",
            "energy": "12",
            "distance": "99 cm",
            "detector_pixel": "50 50",
            "geometry": "near field",
            "focus_to_sample": "10",
        }.items():
            tab._options.enter(name, value)
        bench.actions.settle()
        assert "distance is '99 cm'" in bench.message
        assert pointed[-1] == "distance"
        tab._options.enter("distance", "990 mm")
        bench.actions.settle()
        assert bench.message == ""
        assert "effective distance" in tab._facts.value
        assert [line for line in bench.code.splitlines() if "pt.info" in line] == ["pt.info('some.npz')"]
        click(bench, "Scan", "Load")
        assert bench.scan is not None
        assert isinstance(bench.scan.geometry, pt.NearField)
        assert bench.scan.geometry.magnification == pytest.approx(100)
        np.testing.assert_allclose(np.ptp(bench.scan.positions, axis=0), 4 * 2e-6 / 0.5e-6)
        told = [line for line in bench.code.splitlines() if line.startswith("scan = ")]
        names: dict[str, Any] = {"pt": pt}
        exec(told[-1], names)
        assert names["scan"].geometry == bench.scan.geometry
        assert tab._open_file.layout.display == "none", "folded once it is open"
        tab._options.enter("energy", "12 kilos")
        click(bench, "Scan", "Load")
        assert "energy is '12 kilos'" in bench.message
        assert "see the message" in tab._options.notes["energy"]["text"]
        assert tab._open_file.layout.display is None
        tab._options.enter("energy", "12 keV")
        tab._options.enter("geometry", "far field")
        click(bench, "Scan", "Load")
        assert "focus_to_sample=0.01 was given and geometry is 'far field'" in bench.message
        assert "see the message" in tab._options.notes["focus_to_sample"]["text"]
        assert "it proposes near field" in tab._options.notes["geometry"]["text"]
    finally:
        bench.close()


TRAPS = [*(f"give {name}=8.0" for name in LoadOptions.model_fields), "3 x 4 over 2e-06", "Value error, Input should be"]
"""Folders with names like what messages are made of."""


def test_paths_in_messages_stay_as_they_are_and_fields_are_marked(empty_bench: Workbench, tmp_path: Path) -> None:
    bench, tab, scan = empty_bench, empty_bench.scan_tab, pt.simulate(patterns=9, window=16, seed=7)
    plan = tab._listening.fields
    known = {"distance": scan.geometry.distance, "detector_pixel": scan.geometry.detector_pixel}
    values = {"patterns": scan.counts(0, 9), "positions": scan.positions * scan.pixel_size, "energy": 8.3}

    def told(text: str, path: Path) -> bool:
        return str(path) in html.unescape(text)

    for trap in TRAPS:
        folder = tmp_path / "data" / trap
        folder.mkdir(parents=True)
        np.savez(folder / "scan.npz", **values, **known)
        field(bench, "Scan", "File").value = str(folder / "scan.npz")
        click(bench, "Scan", "Load")
        message = bench.message
        assert f"{folder / 'scan.npz'} has a photon energy of 8.3 eV" in message
        assert "give energy=8300 [eV]" in message
        assert "it proposes 8.3 keV" in tab._options.notes["energy"]["text"]
        assert told(tab._remarks.value, folder / "scan.npz")
        assert told(tab._facts.value, folder / "scan.npz")
        plan.fill({"source": "never.h5", "planned": str(folder / "none.npy")})
        tab._listening.start()
        tab._listening.settle()
        assert {*plan.problems} == {"planned"}
        assert told(plan.problems["planned"], folder / "none.npy")


def test_a_near_field_file_is_opened_by_three_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "night").mkdir()
    layouts.cxidb(tmp_path / "night" / "shadows.cxi", shadows(FOCUS))
    bench = pt.workbench()
    tab = bench.scan_tab
    try:
        for name in ("night", "shadows.cxi"):
            tab._chooser.list._said(None, {"open": name}, [])
        bench.actions.settle()
        assert "look like shadows of the near field" in tab._remarks.value
        assert tab._suggestion.description.startswith("Use near field, focus to sample about 10")
        tab._suggestion.click()
        bench.actions.settle()
        assert "magnification" in tab._facts.value
        assert tab._suggestion.layout.display == "none"
        click(bench, "Scan", "Load")
        assert bench.scan is not None
        assert isinstance(bench.scan.geometry, pt.NearField)
        told = [line for line in bench.code.splitlines() if line.startswith("scan = ")]
        assert told[0].startswith("scan = pt.load('night/shadows.cxi', geometry='near field', focus_to_sample=")
        tab._browse.value = True
        assert [label for label, _ in tab._chooser.recent.options][1].startswith("shadows.cxi")
    finally:
        bench.close()


def test_a_file_that_says_that_it_is_of_the_near_field_needs_no_click_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File(layouts.ptyd(tmp_path / "shadows.ptyd", shadows(math.inf)), "r+") as file:
        layouts.put(file, "info/propagation", "nearfield").attrs["type"] = "string"
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "far.h5")
    bench = pt.workbench()
    tab = bench.scan_tab
    try:
        tab._chooser.list._said(None, {"open": "shadows.ptyd"}, [])
        tab._chooser.list._said(None, {"open": "shadows.ptyd", "twice": True}, [])
        bench.actions.settle()
        assert bench.message == ""
        assert bench.scan is not None
        assert isinstance(bench.scan.geometry, pt.NearField)
        tab._chooser.list._said(None, {"open": "far.h5"}, [])
        bench.actions.settle()
        assert tab._options.arguments == {}, "of the file before"
    finally:
        bench.close()


# Live sources


WRITER = """
import os, h5py
file = h5py.File("written.h5", "w", libver="latest")
file.create_dataset("data", (0, 8, 8), "u2", maxshape=(None, 8, 8), chunks=(1, 8, 8))
file.swmr_mode = True
os._exit(0)
"""
"""Leaves a file as it is while it is written."""


def until(condition: Any, seconds: float = 30.0) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.01)


def shown(widget: elements.Element) -> bool:
    return bool(widget.layout.display != "none")


def test_a_plan_is_entered_and_told_as_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    positions = np.arange(8.0).reshape(4, 2) * 1e-6
    np.save("planned.npy", positions)
    np.savetxt("planned.csv", positions, delimiter=",")
    pt.save_mask(np.eye(8) == 0, "mask.npy")
    fields = PlanFields()

    def same(positions: str) -> pt.Plan:
        found = fields.arguments()
        names: dict[str, Any] = {}
        monkeypatch.setattr(pt, "listen", lambda source, **more: {"source": source, **more})
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
    fields.enter("detector_pixel", "75")
    fields.fill({"mask": "mask.npy", "clip_negative": True})
    plan = same("planned")
    assert (plan.window, plan.centre, plan.clip_negative) == ((64, 64), (50, 52), True)
    assert plan.geometry.energy == pytest.approx(8e3)
    assert plan.geometry.detector_pixel == (75e-6, 75e-6)
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
    same("entry/y,entry/x")
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
    empty_bench: Workbench, tmp_path: Path
) -> None:
    tab = empty_bench.scan_tab
    panel = tab._listening
    np.save("planned.npy", np.arange(8.0).reshape(4, 2) * 1e-6)
    assert shown(tab._file_row)
    assert not shown(panel)
    tab._kind.chosen = LIVE
    assert [shown(one) for one in (tab._file_row, tab._open_file, panel, panel.fields)] == [False, False, True, True]
    panel.listen.click()
    panel.settle()
    assert list(panel.fields.problems) == ["source"]
    fields = panel.fields
    fields.fill({"source": "never.h5", "planned": "planned.npy", "folder": "night"})
    panel.settle()
    line = "scan = pt.listen('never.h5', plan=pt.Plan(positions=np.load('planned.npy')), folder='night')"
    assert fields.line == line
    assert fields.problems == {}
    panel.listen.click()
    until(lambda: "waiting for the scan to begin, 0:01" in panel.status.value)
    assert shown(panel.cancel)
    assert panel.listen.disabled
    panel._take_notice("A pattern of series 9 came")  # as the receiver says it
    until(lambda: "A pattern of series 9 came" in panel.status.value)
    panel.cancel.click()
    panel.settle()
    assert "Cancelled" in panel.status.value
    assert (shown(panel.cancel), panel.listen.disabled) == (False, False)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["planned.npy"]
    assert line not in empty_bench.code
    fields.enter("source", str(tmp_path / "planned.npy"))  # no HDF5
    panel.listen.click()
    panel.settle()
    assert list(fields.problems) == ["source"]
    fields.enter("folder", "planned.npy")
    panel.listen.click()
    panel.settle()
    assert list(fields.problems) == ["folder"]
    fields.fill({"source": "never.h5", "folder": "night"})
    fields.fill({"kind": FROM_ADDRESS, "positions": "panda://127.0.0.1:1?y=A.B&x=C.D"})  # nobody is there
    panel.listen.click()
    panel.settle()
    assert list(fields.problems) == ["positions"]
    fields.enter("kind", "planned")
    panel.listen.click()
    until(lambda: shown(panel.cancel))
    empty_bench.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["planned.npy"]


def test_a_file_in_writing_is_offered_as_a_source(empty_bench: Workbench, tmp_path: Path) -> None:
    tab = empty_bench.scan_tab
    subprocess.run([sys.executable, "-c", WRITER], check=True)
    field(empty_bench, "Scan", "File").value = "written.h5"
    click(empty_bench, "Scan", "Load")
    assert "still being written" in empty_bench.message
    assert shown(tab._follow)
    tab._follow.click()
    assert (tab._kind.chosen, tab._listening.fields.text("source")) == (LIVE, "written.h5")
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    field(empty_bench, "Scan", "File").value = "some.h5"
    empty_bench.actions.settle()
    assert not shown(tab._follow)


def test_a_live_scan_is_shown_as_it_comes_and_opened_after_its_end(tmp_path: Path, scan: Scan) -> None:
    source = Source(scan, tmp_path / "spool")
    bench = pt.workbench(source.live)
    tab = bench.scan_tab
    try:
        look = tab._inspect
        assert look is not None
        assert look._tab.titles == ("First pictures",), "the others need all patterns"
        assert "need all patterns" in look._problems[2].value
        assert "<b>0</b> of 36 patterns came" in look._progress.value
        assert (shown(tab._receiving), tab._receiving.stop.disabled, tab._receiving.received.disabled) == (
            True,
            False,
            True,
        )
        source.give([5, 9, 20])
        until(lambda: "<b>3</b> of 36" in look._progress.value and look.state.index == 20)
        look.settle()
        np.testing.assert_array_equal(look.patterns._counts, scan.counts(20, 21)[0])
        look.choose(7)
        look.settle()
        assert "Pattern 7 has not come yet (3 of 36 have)" in look._problems[0].value
        look.choose(5)
        source.give([7])
        until(lambda: "<b>4</b> of 36" in look._progress.value)
        look.settle()
        assert look.state.index == 5, "the one that was chosen stays"
        assert look._problems[0].value == ""
        click(bench, "Settings", "Preview")
        bench.form.settle()
        assert "being measured" in bench.form._message.value
        click(bench, "Scan", "Stop listening")
        assert shown(tab._receiving.question)
        about = tab._receiving._about.value
        assert "4 of 36 patterns came" in about
        assert "<code>scan.stop_listening()</code>" in about
        assert source.index.ended is None
        assert not (source.folder / "stop").exists()
        click(bench, "Scan", "Keep listening")
        assert not shown(tab._receiving.question)
        assert "scan.stop_listening()" not in bench.code
        click(bench, "Scan", "Stop listening")
        source.give([number for number in range(36) if number not in (5, 9, 20, 7, 30)])
        source.end("ended early: 35 of 36")
        until(lambda: not tab._receiving.received.disabled)
        assert tab._receiving.stop.disabled
        assert not shown(tab._receiving.question), "it ended by itself"
        assert "The scan has ended" in look._problems[2].value
        tab._receiving.received.click()
        bench.actions.settle()
        assert bench.scan is not None
        assert (len(bench.scan), bench.scan.acquisition) == (35, None)
        assert not shown(tab._receiving)
        assert tab._inspect is not None
        assert len(tab._inspect._tab.titles) > 1
        assert bench.code.splitlines()[-1] == f"scan = pt.load({str(source.folder / 'scan.h5')!r})"
    finally:
        bench.close()
        source.close()


def test_an_emulated_detector_is_listened_to_and_stopped(empty_bench: Workbench, tmp_path: Path) -> None:
    bench, panel = empty_bench, empty_bench.scan_tab._listening
    path = recorded(tmp_path, patterns=100)
    np.save("planned.npy", Recording(pt.load(path)).positions)
    bench.scan_tab._kind.chosen = LIVE
    with emulator(path, "--as", "stream2", "--rate", 10) as emulated:
        fields = panel.fields
        fields.fill({"source": emulated.source, "planned": "planned.npy", "folder": "night"})
        panel.listen.click()
        panel.settle(60)
        assert fields.problems == {}
        assert bench.message == ""
        scan = bench.scan
        assert scan is not None
        assert len(scan) == 100
        line = bench.code.splitlines()[-1]
        assert line == (
            f"scan = pt.listen({emulated.source!r}, plan=pt.Plan(positions=np.load('planned.npy')), folder='night')"
        )
        assert scan.acquisition is not None
        until(lambda: scan.acquisition.index().summary().arrived > 32)
        click(bench, "Scan", "Stop listening")
        assert scan.acquisition.index().ended is None
        click(bench, "Scan", "End the scan")
        assert "stopped on request" in (scan.acquisition.index().ended or "")
    click(bench, "Scan", "Open received scan")
    assert bench.message == ""
    assert bench.scan is not None
    assert 32 <= len(bench.scan) < 100
    assert bench.code.splitlines()[-2:] == ["scan.stop_listening()", "scan = pt.load('night/scan.h5')"]
    with emulator(
        path, "--as", "stream2", "--rate", 0
    ) as emulated:  # pasted, with the address and folder of another scan
        names: dict[str, Any] = {}
        source = line.split("'")[1]
        exec(
            f"import numpy as np, ptynb as pt\n{line.replace(source, emulated.source).replace('night', 'next')}", names
        )
        names["scan"].stop_listening()
