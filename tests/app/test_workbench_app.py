"""The workbench without a browser: what each tab does, and the lines of Python that do the same."""

from __future__ import annotations

import dataclasses
import gc
import html
import math
import re
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.playback import Recording
from ptynb.app.diagnosis_panel import DiagnosisPanel
from ptynb.app.plan_fields import FROM_ADDRESS, SAME_FILE, PlanFields
from ptynb.app.scan_tab import LIVE
from ptynb.app.session_state import Desk
from ptynb.app.workbench_app import TABS, Workbench
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.polling import wait_until
from ptynb.report.diagnosis_section import marked_place
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.schema import as_python
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from ptynb.widgets.history import History
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
def bench(scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    bench = pt.workbench(scan)
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    bench.close()


def button(bench: Workbench, tab: str, text: str) -> elements.Button:
    place = bench._tabs.children[TABS.index(tab)]
    return next(one for one in below(place) if isinstance(one, elements.Button) and one.description == text)


def field(bench: Workbench, tab: str, text: str) -> Any:
    place = bench._tabs.children[TABS.index(tab)]
    return next(one for one in below(place) if getattr(one, "description", "") == text and hasattr(one, "value"))


def click(bench: Workbench, tab: str, text: str) -> None:
    button(bench, tab, text).click()
    bench._actions.settle()


def reconstruct(bench: Workbench, epochs: int) -> None:
    field(bench, "Run", "Engines").value = 0
    field(bench, "Run", "Epochs").value = epochs
    click(bench, "Run", "New run")
    assert bench.recon is not None
    bench.recon.wait()


def test_what_was_clicked_is_told_as_python_that_does_the_same(bench: Workbench, scan: Scan, tmp_path: Path) -> None:
    bench._form.settings = pt.Settings(batch=12, probe=pt.Probe(modes=2))
    bench._form.settle()
    reconstruct(bench, 3)
    click(bench, "Run", "Save result")
    click(bench, "Run", "Add to comparison")
    saved = pt.load_result(tmp_path / "simulated.result.h5")
    (tmp_path / "simulated.result.h5").unlink()
    lines = bench.code
    names: dict[str, Any] = {"scan": scan}
    exec(lines, names)
    names["recon"].close()
    again = pt.load_result(tmp_path / "simulated.result.h5")
    np.testing.assert_allclose(again.losses, saved.losses, rtol=1e-5)
    assert list(names["kept"]) == ["epoch 3"]


def test_stages_of_a_recommendation_are_entered_and_leave_those_of_the_user(bench: Workbench) -> None:
    stages = (pt.Stage(epochs=14), pt.Stage(epochs=6, settings={"loss": "poisson"}))
    tab = bench._run_tab
    tab.propose(stages)
    assert pt.Recipe.from_yaml(f"stages:\n{tab._stages.value}").stages == stages
    tab.propose(())
    assert tab._stages.value == ""
    tab._stages.value = "- epochs: 3"
    tab.propose(())
    assert tab._stages.value == "- epochs: 3"


def test_stages_are_entered_and_told_as_python(bench: Workbench, scan: Scan) -> None:
    field(bench, "Run", "Stages").value = "- epochs: 2\n  pattern_size: 16\n- epochs: 1\n  settings: {batch: 9}"
    reconstruct(bench, 50)
    assert bench.recon is not None
    assert (bench.recon.epoch, bench.recon.stage, bench.recon.settings.batch) == (3, 2, 9)
    names: dict[str, Any] = {"scan": scan}
    exec(bench.code, names)
    names["recon"].wait()
    assert names["recon"].stages == bench.recon.stages
    np.testing.assert_allclose(names["recon"].result.losses, bench.recon.result.losses, rtol=1e-5)
    names["recon"].close()
    field(bench, "Run", "Stages").value = "- epoch: 2"
    click(bench, "Run", "New run")
    assert "did you mean" in bench._message.value
    assert bench.recon.stage == 2  # the present one is kept
    assert not bench.recon.closed


def test_a_run_is_told_to_start_until_its_view_is_there(bench: Workbench) -> None:
    tab, seen = bench._run_tab, list[tuple[str, int]]()
    tab._starting.text.observe(lambda change: seen.append((change["new"], len(tab._run.children))), "value")
    reconstruct(bench, 1)
    assert seen == [('<span role="status">starting the run …</span>', 0), ("", 1)]


def test_where_checkpoints_are_kept_is_entered_refused_at_its_field_and_told_as_python(
    bench: Workbench, tmp_path: Path
) -> None:
    """Default, own folder and interval, none at all; a second run does not write among the files of the first."""
    place = bench._run_tab._checkpoints
    line = r"recon = pt\.Reconstruction\(scan, settings.*\)"

    def told() -> str:
        return next(one for one in reversed(bench.code.splitlines()) if re.fullmatch(line, one))

    def enter(**texts: str) -> None:
        for name, text in texts.items():
            place.fields[name].value = text
        bench._actions.settle()

    assert "default" in place.children[-1].value
    enter(epochs="0", seconds="soon", max_to_keep="")
    assert {name: "expected" in problem for name, problem in place.problems.items()} == {
        "epochs": True, "seconds": True, "max_to_keep": True,
    }  # fmt: skip
    assert "One every [s]" in place.problems["seconds"]
    click(bench, "Run", "New run")
    assert bench.recon is None
    assert bench._run_tab._bar.shown == "Checkpointing"
    enter(folder="night", epochs="2", seconds="", max_to_keep="5")
    assert place.problems == {}
    given = "checkpointing=pt.Checkpointing(folder='night', epochs=2, seconds=None, max_to_keep=5)"
    assert given.replace("'", "&#x27;") in place.children[-2].value
    reconstruct(bench, 4)
    assert told() == f"recon = pt.Reconstruction(scan, settings, {given})"
    assert bench.recon is not None
    before = bench.recon
    assert wait_until(lambda: [*(tmp_path / "night").glob("state-*.h5")], 10)  # written beside the run
    click(bench, "Run", "New run")
    assert "already contains checkpoints" in place.problems["folder"]
    assert bench.recon is before
    assert before.state == "ready"  # refused before the first run was closed
    (tmp_path / "file").write_text("")
    enter(folder="file")
    assert "is a file" in place.problems["folder"]
    place.wanted.value = False
    bench._actions.settle()
    assert place.fields["folder"].disabled
    reconstruct(bench, 1)
    assert told() == "recon = pt.Reconstruction(scan, settings, checkpointing=None)"
    with raises("checkpoint.disabled"):
        bench.recon.save_checkpoint()
    place.wanted.value = True
    enter(folder="", epochs="", seconds="60", max_to_keep="3")
    reconstruct(bench, 1)
    assert told() == "recon = pt.Reconstruction(scan, settings)"


def test_reports_are_written_by_a_button_and_by_the_lines_that_are_told(bench: Workbench, tmp_path: Path) -> None:
    reconstruct(bench, 2)
    click(bench, "Run", "Report")
    click(bench, "Run", "Add to comparison")
    bench._compare_tab.report()
    bench._actions.settle()
    names = ["simulated.html", "report.html"]
    lines = bench.code.splitlines()
    told = [
        "pt.report(recon, 'simulated.html')",
        "pt.report({name: kept[name] for name in ['epoch 2']}, 'report.html')",
    ]
    assert [line for line in lines if "pt.report(" in line] == told
    assert all("<h1>" in (tmp_path / name).read_text(encoding="utf-8") for name in names)


def test_errors_of_what_was_clicked_are_shown_and_nothing_stops(bench: Workbench) -> None:
    click(bench, "Run", "Save result")
    assert "There is no reconstruction; press New run first" in bench._message.value
    field(bench, "Scan", "File").value = "nowhere.h5"
    click(bench, "Scan", "Load")
    assert "nowhere.h5" in bench._message.value
    bench._compare_tab.show()
    bench._actions.settle()
    assert "select 2 or more" in bench._message.value
    reconstruct(bench, 1)
    assert bench._message.value == ""
    click(bench, "Run", "Save result")
    assert "saved: " in bench._run_tab._saved.value


def test_a_file_is_opened_and_everything_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    bench = pt.workbench()
    try:
        assert bench.scan is None
        click(bench, "Run", "New run")
        assert "There is no scan" in bench._message.value
        field(bench, "Scan", "File").value = "some.h5"
        click(bench, "Scan", "Load")
        assert bench.scan is not None
        assert len(bench.scan) == 25
        assert "scan = pt.load('some.h5')" in bench.code
        assert "25 patterns" in bench._facts.value
        assert bench._form.scan is bench._tuning.scan is bench.scan
        look = bench._scan_tab._inspect
        assert look is not None
        look.settle()
        look.positions.exclude = "3, 7-9"
        look.positions.remove_excluded()
        look.settle()
        assert len(bench.scan) == 21
    finally:
        bench.close()


def test_what_a_file_lacks_is_entered_in_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts = pt.simulate(patterns=25, window=32, seed=7).counts(0, 25)
    np.savez("some.npz", patterns=counts)
    bench = pt.workbench()
    try:
        tab = bench._scan_tab
        field(bench, "Scan", "File").value = "some.npz"
        bench._actions.settle()
        pointed: list[str] = []
        for one in tab._options.fields.values():
            monkeypatch.setattr(one.input, "focus", lambda one=one: pointed.append(one.input.description))
        lacks = "The file lacks the positions, the wavelength, the distance to the detector and the detector"
        assert lacks in tab._remarks.value
        ways = (
            "enter Positions from, or Raster and Raster step; Wavelength, Photon energy or Electron voltage; Detector"
        )
        assert ways in tab._remarks.value
        assert "25 of 32 × 32" in tab._facts.value, "what it has is shown before it is loaded"
        click(bench, "Scan", "Load")
        assert "does not contain the positions, the wavelength" in bench._message.value
        assert pointed == ["Photon energy"], "the first one on the page"
        assert tab._open_file.layout.display is None, "the fields are shown"
        for name, value in {
            "Raster": "5, 5",
            "Raster step": "2",
            "Photon energy": "12",
            "Detector distance": "99 cm",
            "Detector pixel size": "50 50",
            "Geometry": "near field",
            "Focus to sample": "10",
        }.items():
            field(bench, "Scan", name).value = value
        bench._actions.settle()
        assert "distance is &#x27;99 cm&#x27;" in bench._message.value
        assert pointed[-1] == "Detector distance"
        field(bench, "Scan", "Detector distance").value = "990 mm"
        bench._actions.settle()
        assert bench._message.value == ""
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
        field(bench, "Scan", "Photon energy").value = "12 kilos"
        click(bench, "Scan", "Load")
        assert "energy is &#x27;12 kilos&#x27;" in bench._message.value
        assert "see the message" in tab._options.fields["energy"]._about.value
        assert tab._open_file.layout.display is None
        field(bench, "Scan", "Photon energy").value = "12 keV"
        field(bench, "Scan", "Geometry").value = "far field"
        click(bench, "Scan", "Load")
        assert "focus_to_sample=0.01 was given and geometry is &#x27;far field&#x27;" in bench._message.value
        assert "see the message" in tab._options.fields["focus_to_sample"]._about.value
        assert "it proposes near field" in tab._options.fields["geometry"]._about.value
    finally:
        bench.close()


class SlowEngines:
    """A cluster whose engines wait in a queue until they are released."""

    asked, released = threading.Event(), threading.Event()
    plan = types.SimpleNamespace(engines=[types.SimpleNamespace(kind="CPU")])
    running = True

    def __init__(self, engines: int) -> None:
        self.asked.set()
        assert self.released.wait(60)

    def __len__(self) -> int:
        return 1


def test_while_engines_start_files_are_described_and_loaded_and_results_compared(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def refuse(scan: pt.Scan, *_: Any, **more: Any) -> None:
        begun.append(scan)
        raise pt.ReconstructionError("No engine is left.", code="reconstruction.failed")

    monkeypatch.setattr("ptynb.cluster.cluster_start.Cluster", SlowEngines)
    monkeypatch.setattr("ptynb.app.run_tab.Reconstruction", refuse)
    before = bench.scan
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    field(bench, "Run", "Engines").value = 1
    button(bench, "Run", "New run").click()
    assert SlowEngines.asked.wait(10)
    tab, started = bench._scan_tab, time.monotonic()
    field(bench, "Scan", "File").value = "some.h5"
    until(lambda: "a scan of ptynb" in tab._facts.value)
    assert time.monotonic() - started < 1
    button(bench, "Scan", "Load").click()
    until(lambda: bench.scan is not before)
    bench._compare_tab.add("")
    until(lambda: "No file is named" in bench._message.value)
    assert not begun, "engines are still starting"
    SlowEngines.released.set()
    bench._actions.settle()
    assert begun == [before], "the scan that was open when the run was asked for"
    assert "No engine is left" in bench._message.value


TRAPS = [*(f"give {name}=8.0" for name in LoadOptions.model_fields), "3 x 4 over 2e-06", "Value error, Input should be"]
"""Folders with names like what messages are made of."""


def test_paths_in_messages_stay_as_they_are_and_fields_are_marked(empty_bench: Workbench, tmp_path: Path) -> None:
    bench, tab, scan = empty_bench, empty_bench._scan_tab, pt.simulate(patterns=9, window=16, seed=7)
    plan, checkpoints = tab._listening.fields, bench._run_tab._checkpoints
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
        message = html.unescape(bench._message.value)
        assert f"{folder / 'scan.npz'} has a photon energy of 8.3 eV" in message
        assert "give energy=8300 [eV]" in message
        assert "it proposes 8.3 keV" in tab._options.fields["energy"]._about.value
        assert told(tab._remarks.value, folder / "scan.npz")
        assert told(tab._facts.value, folder / "scan.npz")
        plan.source.value, plan.planned.value = "never.h5", str(folder / "none.npy")
        tab._listening.start()
        tab._listening.settle()
        assert {*problems(plan)} == {"planned"}
        assert told(problems(plan)["planned"], folder / "none.npy")
        checkpoints.fields["folder"].value = str(folder / "scan.npz")
        bench._actions.settle()
        assert {*checkpoints.problems} == {"folder"}
        assert told(checkpoints.problems["folder"], folder / "scan.npz")
        bench._compare_tab.add(str(folder / "none.result.h5"))
        bench._actions.settle()
        assert told(bench._message.value, folder / "none.result.h5")


def test_a_run_that_is_asked_for_while_a_file_is_loaded_is_of_that_scan(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, held = list[Any](), threading.Event()
    scan = pt.simulate(patterns=25, window=32, seed=7)
    monkeypatch.setattr("ptynb.app.scan_tab.load", lambda path, **options: (held.wait(30), scan)[1])
    monkeypatch.setattr("ptynb.app.run_tab.Reconstruction", lambda scan, *_, **more: begun.append(scan))
    field(bench, "Run", "Engines").value = 0
    field(bench, "Scan", "File").value = "some.h5"
    button(bench, "Scan", "Load").click()
    button(bench, "Run", "New run").click()
    held.set()
    bench._actions.settle()
    assert begun == [scan]


def test_checkpoints_are_followed_while_their_page_is_shown(bench: Workbench) -> None:
    reconstruct(bench, 1)
    view = bench._run_tab._run.children[0]
    history = next(one for one in below(view) if isinstance(one, History))
    assert history.resting
    view.page = "Checkpoints"
    assert not history.resting
    view.page = None
    assert history.resting


def test_a_near_field_file_is_opened_by_three_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "night").mkdir()
    layouts.cxidb(tmp_path / "night" / "shadows.cxi", shadows(FOCUS))
    bench = pt.workbench()
    tab = bench._scan_tab
    try:
        for name in ("night", "shadows.cxi"):
            tab._chooser.list._said(None, {"open": name}, [])
        bench._actions.settle()
        assert "look like shadows of the near field" in tab._remarks.value
        assert tab._suggestion.description.startswith("Use near field, focus to sample about 10")
        tab._suggestion.click()
        bench._actions.settle()
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
    tab = bench._scan_tab
    try:
        tab._chooser.list._said(None, {"open": "shadows.ptyd"}, [])
        tab._chooser.list._said(None, {"open": "shadows.ptyd", "twice": True}, [])
        bench._actions.settle()
        assert bench._message.value == ""
        assert bench.scan is not None
        assert isinstance(bench.scan.geometry, pt.NearField)
        tab._chooser.list._said(None, {"open": "far.h5"}, [])
        bench._actions.settle()
        assert tab._options.arguments == {}, "of the file before"
    finally:
        bench.close()


# Live sources


@pytest.fixture
def empty_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.chdir(tmp_path)
    bench = pt.workbench()
    yield bench
    if bench.recon is not None:
        bench.recon.close()
    bench.close()


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


def problems(fields: PlanFields) -> dict[str, str]:
    return {name: asked.problem for name, asked in fields.asked.items() if asked.problem}


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

    entered = fields.options.fields
    fields.source.value, fields.planned.value, fields.folder.value = "stream2://det", "planned.csv", "night 1"
    assert np.array_equal(same("planned").positions, positions)
    fields.planned.value, fields.window.value, fields.centre.value = "planned.npy", "64", "50, 52"
    entered["energy"].input.value, entered["distance"].input.value = "8", "2"
    with raises("scan.no-geometry", "Detector pixel size"), marking(fields):
        fields.arguments()
    assert list(problems(fields)) == ["options"]
    assert [name for name, one in entered.items() if "see the message" in one._about.value] == ["detector_pixel"]
    entered["detector_pixel"].input.value = "75"
    entered["mask"].input.value, entered["clip_negative"].input.value = "mask.npy", True
    plan = same("planned")
    assert (plan.window, plan.centre, plan.clip_negative) == ((64, 64), (50, 52), True)
    assert plan.geometry.energy == pytest.approx(8e3)
    assert plan.geometry.detector_pixel == (75e-6, 75e-6)
    entered["geometry"].input.value = "near field"
    assert math.isinf(same("planned").geometry.focus_to_sample)
    fields.planned.value, fields.count.value, fields.kind.value = "", "100", FROM_ADDRESS
    fields.positions.value = "panda://host?y=A.B&x=C.D"
    fields.extent[0].input.value, fields.extent[1].input.value = "-5, 5", "0 4 "
    plan = same("panda://host?y=A.B&x=C.D")
    assert (plan.count, plan.extent) == (100, ((-5e-6, 5e-6), (0.0, 4e-6)))
    entered["units"].input.value = "pixels"
    assert same("panda://host?y=A.B&x=C.D").extent == ((-5.0, 5.0), (0.0, 4.0))
    fields.source.value, fields.kind.value, fields.positions.value = "x.h5", SAME_FILE, "entry/y,entry/x"
    same("entry/y,entry/x")
    for values, field, code, fact in (
        ({fields.source: ""}, "source", "argument.missing", "stream2://"),
        ({fields.source: "tcp://a"}, "source", "argument.invalid-value", "tcp://a"),
        ({fields.source: "stream2://a"}, "positions", "argument.conflict", "same file"),
        ({fields.positions: "a,b,c"}, "positions", "argument.invalid-value", "a,b,c"),
        ({fields.planned: "none.npy"}, "planned", "file.not-found", "none.npy"),
        ({fields.planned: "planned.npy"}, "planned", "argument.conflict", "both"),
        ({fields.count: "many"}, "count", "argument.invalid-value", "many"),
        ({fields.count: "0"}, "count", "argument.invalid-value", "0"),
        ({fields.extent[0].input: "5, 1"}, "extent", "argument.invalid-value", "y0 < y1"),
        ({fields.extent[0].input: "five"}, "extent", "argument.invalid-value", "five"),
        ({fields.extent[0].input: "", fields.extent[1].input: ""}, "extent", "argument.missing", "extents"),
        ({fields.window: "2"}, "window", "argument.invalid-value", "window"),
        ({fields.kind: "planned"}, "positions", "acquisition.no-positions", "extent"),
    ):
        before = {widget: widget.value for widget in values}
        for widget, value in values.items():
            widget.value = value
        with raises(code, fact), marking(fields):
            fields.arguments()
        assert list(problems(fields)) == [field], values
        for widget, value in before.items():
            widget.value = value
    same("entry/y,entry/x")
    fields.mark(None)
    assert problems(fields) == {}
    fields.close()


def test_a_wait_for_a_scan_is_shown_and_cancelled_and_ends_with_the_workbench(
    empty_bench: Workbench, tmp_path: Path
) -> None:
    tab = empty_bench._scan_tab
    panel = tab._listening
    np.save("planned.npy", np.arange(8.0).reshape(4, 2) * 1e-6)
    assert shown(tab._file_row)
    assert not shown(panel)
    tab._kind.chosen = LIVE
    assert [shown(one) for one in (tab._file_row, tab._open_file, panel, panel.fields)] == [False, False, True, True]
    panel.listen.click()
    panel.settle()
    assert list(problems(panel.fields)) == ["source"]
    fields = panel.fields
    fields.source.value, fields.planned.value, fields.folder.value = "never.h5", "planned.npy", "night"
    panel.settle()
    line = "scan = pt.listen('never.h5', plan=pt.Plan(positions=np.load('planned.npy')), folder='night')"
    assert line in fields._line.value.replace("&#x27;", "'")
    assert problems(fields) == {}
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
    fields.source.value = str(tmp_path / "planned.npy")  # no HDF5
    panel.listen.click()
    panel.settle()
    assert list(problems(fields)) == ["source"]
    fields.folder.value = "planned.npy"
    panel.listen.click()
    panel.settle()
    assert list(problems(fields)) == ["folder"]
    fields.source.value, fields.folder.value = "never.h5", "night"
    fields.kind.value, fields.positions.value = FROM_ADDRESS, "panda://127.0.0.1:1?y=A.B&x=C.D"  # nobody is there
    panel.listen.click()
    panel.settle()
    assert list(problems(fields)) == ["positions"]
    fields.kind.value = "planned"
    panel.listen.click()
    until(lambda: shown(panel.cancel))
    empty_bench.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["planned.npy"]


def test_a_file_in_writing_is_offered_as_a_source(empty_bench: Workbench, tmp_path: Path) -> None:
    tab = empty_bench._scan_tab
    subprocess.run([sys.executable, "-c", WRITER], check=True)
    field(empty_bench, "Scan", "File").value = "written.h5"
    click(empty_bench, "Scan", "Load")
    assert "still being written" in empty_bench._message.value
    assert shown(tab._follow)
    tab._follow.click()
    assert (tab._kind.chosen, tab._listening.fields.source.value) == (LIVE, "written.h5")
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=7), "some.h5")
    field(empty_bench, "Scan", "File").value = "some.h5"
    empty_bench._actions.settle()
    assert not shown(tab._follow)


def test_a_live_scan_is_shown_as_it_comes_and_opened_after_its_end(tmp_path: Path, scan: Scan) -> None:
    source = Source(scan, tmp_path / "spool")
    bench = pt.workbench(source.live)
    tab = bench._scan_tab
    try:
        look = tab._inspect
        assert look is not None
        assert [*look.panels] == ["First pictures"], "the others need all patterns"
        assert "need all patterns" in look.note
        assert "<b>0</b> of 36 patterns came" in look.arrivals
        assert (shown(tab._receiving), tab._receiving.stop.disabled, tab._receiving.received.disabled) == (
            True,
            False,
            True,
        )
        source.give([5, 9, 20])
        until(lambda: look.arrivals.get("arrived") == 3 and look.state.index == 20)
        look.settle()
        assert look.pattern_note.startswith(f"{scan.counts(20, 21).sum():,.0f} counts")
        look.choose(7)
        look.settle()
        assert "Pattern 7 has not come yet (3 of 36 have)" in look.pattern_message
        look.choose(5)
        source.give([7])
        until(lambda: look.arrivals.get("arrived") == 4)
        look.settle()
        assert look.state.index == 5, "the one that was chosen stays"
        assert look.pattern_message == ""
        bench._form.preview()
        bench._form.settle()
        assert "being measured" in bench._form.message
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
        assert "The scan has ended" in look.note
        tab._receiving.received.click()
        bench._actions.settle()
        assert bench.scan is not None
        assert (len(bench.scan), bench.scan.acquisition) == (35, None)
        assert not shown(tab._receiving)
        assert tab._inspect is not None
        assert len(tab._inspect.panels) > 1
        assert bench.code.splitlines()[-1] == f"scan = pt.load({str(source.folder / 'scan.h5')!r})"
    finally:
        bench.close()
        source.close()


def test_an_emulated_detector_is_listened_to_reconstructed_and_stopped(empty_bench: Workbench, tmp_path: Path) -> None:
    bench, panel = empty_bench, empty_bench._scan_tab._listening
    path = recorded(tmp_path, patterns=100)
    np.save("planned.npy", Recording(pt.load(path)).positions)
    bench._scan_tab._kind.chosen = LIVE
    with emulator(path, "--as", "stream2", "--rate", 10) as emulated:
        fields = panel.fields
        fields.source.value, fields.planned.value, fields.folder.value = emulated.source, "planned.npy", "night"
        panel.listen.click()
        panel.settle(60)
        assert problems(fields) == {}
        assert bench._message.value == ""
        scan = bench.scan
        assert scan is not None
        assert len(scan) == 100
        line = bench.code.splitlines()[-1]
        assert line == (
            f"scan = pt.listen({emulated.source!r}, plan=pt.Plan(positions=np.load('planned.npy')), folder='night')"
        )
        field(bench, "Run", "Engines").value = 0
        field(bench, "Run", "Epochs").value = 2
        click(bench, "Run", "New run")
        assert bench.recon is not None
        until(lambda: bench._run_tab._run.children[0].arrivals.get("admitted"))
        click(bench, "Scan", "Stop listening")
        assert scan.acquisition.index().ended is None
        click(bench, "Scan", "End the scan")
        assert "stopped on request" in (scan.acquisition.index().ended or "")
        with pytest.warns(pt.PtynbWarning, match="stopped on request"):
            bench.recon.wait(60)
    click(bench, "Scan", "Open received scan")
    assert bench._message.value == ""
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


def test_two_results_are_compared(bench: Workbench) -> None:
    reconstruct(bench, 2)
    click(bench, "Run", "Add to comparison")
    assert bench.recon is not None
    bench.recon.start(2)
    bench.recon.wait()
    click(bench, "Run", "Add to comparison")
    assert list(bench._desk.results) == ["epoch 2", "epoch 4"]
    tab = bench._compare_tab
    assert tab.chosen == ["epoch 2", "epoch 4"]
    bench.recon.save_checkpoint()
    tab.add_branches()
    bench._actions.settle()
    assert tab.results[2:] == ["branch main"]
    tab.show()
    bench._actions.settle()
    shown = tab.comparison
    assert shown is not None
    shown.settle()
    assert list(shown.results) == ["epoch 2", "epoch 4", "branch main"]


def test_checkpoints_selected_in_the_history_are_compared_in_their_tab(bench: Workbench) -> None:
    reconstruct(bench, 2)
    recon = bench.recon
    assert recon is not None
    recon.save_checkpoint()
    recon.start(2)
    recon.wait()
    history = next(one for one in below(bench._run_tab._run.children[0]) if isinstance(one, History))
    history.refresh()
    for _ in range(2):  # a second time each checkpoint is not added again
        history.compare(["now", str(recon.checkpoints[0].path)])
        history.settle()
        bench._actions.settle()
    assert bench._tabs.selected_index == TABS.index("Compare")
    shown = bench._compare_tab.comparison
    assert shown is not None
    shown.settle()
    assert [*shown.results] == ["epoch 2 (main)", "now, epoch 4 (2)"]
    assert [*bench._desk.results] == ["epoch 2 (main)", "now, epoch 4", "now, epoch 4 (2)"]
    assert bench._compare_tab.chosen == [*shown.results]
    names: dict[str, Any] = {"recon": recon}
    told = [line for line in bench.code.splitlines() if line.startswith(("import", "kept"))]
    told.append([line for line in bench.code.splitlines() if line.startswith("view = ")][-1])
    exec("\n".join(told), names)
    assert [*names["view"].results] == [*shown.results]
    np.testing.assert_array_equal(names["kept"]["epoch 2 (main)"].object, shown.results["epoch 2 (main)"].object)
    names["view"].close()


def test_a_film_is_made_with_progress_and_can_be_cancelled(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = bench._run_tab._film
    make, cancel, shown = button(bench, "Run", "Film"), button(bench, "Run", "Cancel film"), panel._progress
    make.click()
    panel._actions.settle()
    assert "There is no reconstruction" in panel._status.value
    reconstruct(bench, 2)
    make.click()
    panel._actions.settle()
    assert "1 epoch; a film needs 2" in panel._status.value or "no checkpoints" in panel._status.value
    field(bench, "Run", "of").value = "thumbnails"
    seen: list[tuple[str | None, float]] = []
    shown.bar.observe(lambda change: seen.append((shown.layout.display, change["new"])), "value")
    make.click()
    panel._actions.settle()
    name = field(bench, "Run", "Result file").value.replace(".result.h5", ".gif")
    assert f"written: {name}" in panel._status.value
    assert seen[-1] == (None, 4)
    assert (shown.layout.display, make.disabled) == ("none", False)
    assert bench.code.splitlines()[-1] == f"pt.film(recon.result, {name!r})"
    Path(name).unlink()
    exec(bench.code.splitlines()[-1], {"pt": pt, "recon": bench.recon})
    assert Path(name).exists()
    field(bench, "Run", "Film file").value = "other.gif"
    shown.bar.unobserve_all()
    shown.bar.observe(lambda _: cancel.click(), "value")
    make.click()
    panel._actions.settle()
    assert "cancelled" in panel._status.value
    assert not [*Path().glob("*other*")]


def faulty(scan: Scan) -> Scan:
    """The scan with a dead pixel and wrong positions."""
    patterns = np.array(scan.frames.read(0, len(scan)))
    patterns[:, 15, 18] = 0
    wrong = np.random.default_rng(0).normal(0, 0.7, scan.positions.shape)
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns), positions=scan.positions + wrong)


def diagnosed(bench: Workbench, text: str = "Diagnose") -> list[str]:
    """Press a button of the page Diagnosis and return the texts of its findings."""
    panel = panel_of(bench)
    button(bench, "Run", text).click()
    panel._actions.settle(120)
    return [next(one.value for one in row.children if hasattr(one, "value")) for row in panel._findings.children]


def panel_of(bench: Workbench) -> DiagnosisPanel:
    return next(one for one in below(bench._tabs.children[TABS.index("Run")]) if isinstance(one, DiagnosisPanel))


def test_faults_of_a_run_are_shown_and_what_helps_is_applied_by_a_click(bench: Workbench) -> None:
    bench._take_scan(faulty(pt.simulate(patterns=49, window=32, seed=2)))
    bench._form.settings = pt.Settings(optimiser="lsqml", momentum=0.5)
    bench._form.settle()
    reconstruct(bench, 40)
    panel, recon = panel_of(bench), bench.recon
    assert recon is not None
    positions, pixels = diagnosed(bench)
    assert "Epoch 40: 2 of" in panel._status.value
    found = pt.diagnose(recon)
    for text, finding in zip((positions, pixels), found, strict=True):
        for part in (finding.name, f"{finding.value:.3g}, threshold {finding.threshold:.3g}", finding.remedy):
            assert html.escape(part) in text
    assert bench.code.splitlines()[-1] == "found = pt.diagnose(recon)"
    assert [one["name"] for one in panel._viewer.frame["pictures"]] == [
        one.name for one in found if marked_place(recon.result, found, one) is not None
    ]
    assert "bad pixels" in {one["name"] for one in panel._viewer.frame["pictures"]}
    # Trials are cancelled, and carried out.
    shown, lines = panel._progress, bench.code
    cancel = button(bench, "Run", "Cancel trials")
    shown.bar.observe(lambda _: cancel.click(), "value")
    assert diagnosed(bench, "Try remedies") == [positions, pixels]
    assert "cancelled" in panel._status.value
    assert (shown.layout.display, bench.code) == ("none", lines)
    shown.bar.unobserve_all()
    assert ". It helps: after 30 epochs" in diagnosed(bench, "Try remedies")[0]
    assert bench.code.splitlines()[-1] == "found = pt.diagnose(recon, trial=True)"
    assert recon.epoch == 40
    # Remedies: of the run, and of the scan of the next one.
    first, second = (row.children[0] for row in panel._findings.children)
    before = len(bench.code.splitlines())
    for apply in (first, second):
        apply.click()
        bench._actions.settle()
    assert recon.settings.positions.learning_rate == 0.5
    assert "press New run" in panel._applied.value
    assert bench.scan is not None
    assert bench.scan.mask is not None
    assert not bench.scan.mask[15, 18]
    names: dict[str, Any] = {"pt": pt, "recon": recon, "found": found}
    exec("\n".join(bench.code.splitlines()[before:]), names)
    np.testing.assert_array_equal(names["scan"].mask, bench.scan.mask)
    click(bench, "Run", "New run")
    assert bench.recon is not recon
    assert not bench.recon.scan.mask[15, 18]


def test_a_run_is_diagnosed_while_it_goes_on_and_without_faults_in_one_sentence(bench: Workbench) -> None:
    reconstruct(bench, 5)
    assert bench.recon is not None
    assert diagnosed(bench) == []
    assert re.search(
        r"None of \d+ known faults was found\. The run has 5 epochs\. Judged", panel_of(bench)._status.value
    )
    bench.recon.start(1_000_000)
    diagnosed(bench)
    assert bench.recon.state == "running"
    bench.recon.stop()
    bench.recon.wait()
    bench._form.settings = pt.Settings(optimiser="lsqml", momentum=0.5)
    bench._form.settle()
    reconstruct(bench, 80)
    assert diagnosed(bench) == []
    assert re.search(r">Epoch 80: None of \d+ known faults was found\.<", panel_of(bench)._status.value)


def test_more_epochs_and_settings_of_the_next_run_are_remedies(bench: Workbench) -> None:
    bench._form.settings = pt.Settings(optimiser="rpie")
    bench._form.settle()
    reconstruct(bench, 8)
    recon = bench.recon
    assert recon is not None
    [text] = diagnosed(bench)
    assert "not converged" in text
    panel_of(bench)._findings.children[0].children[0].click()
    bench._actions.settle()
    recon.wait()
    assert recon.epoch == 18
    assert bench.code.splitlines()[-1] == "recon.start(found['not converged'].epochs)"
    slices = {"slices.count": 2, "slices.thickness": 1e-6}
    found = pt.diagnose(recon)
    finding = dataclasses.replace(found.findings[0], name="too few slices", changes=slices, epochs=0, restart=True)
    panel_of(bench)._apply(finding)
    bench._form.settle()
    assert (bench.settings.slices.count, recon.settings.slices.count) == (2, 1)
    assert bench.code.splitlines()[-1] == "settings = settings.with_values(found['too few slices'].changes)"


def test_a_second_start_takes_the_new_settings_and_ends_the_first_run(bench: Workbench) -> None:
    reconstruct(bench, 1)
    first = bench.recon
    bench._form.settings = pt.Settings(batch=9)
    bench._form.settle()
    reconstruct(bench, 1)
    assert first is not None
    assert first.closed
    assert bench.recon is not None
    assert bench.recon.settings.batch == 9


def test_a_run_that_is_under_way_is_not_ended_by_another(bench: Workbench) -> None:
    reconstruct(bench, 1)
    recon = bench.recon
    assert recon is not None
    recon.start(100_000)
    click(bench, "Run", "New run")
    assert "A run uses the engines" in bench._message.value
    assert "press Stop before" in bench._message.value
    assert bench.recon is recon
    assert recon.state == "running"
    click(bench, "Run", "Stop engines")
    assert "has not started engines" in bench._message.value
    button(bench, "Run", "Stop").click()
    until = time.monotonic() + 60
    while recon.state == "running":
        assert time.monotonic() < until
        time.sleep(0.01)
    click(bench, "Run", "New run")
    assert bench._message.value == ""
    assert recon.closed
    assert bench.recon is not recon


def test_a_cluster_that_was_stopped_meanwhile_is_started_again_and_used(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pt.Cluster(1, device="cpu") as cluster:
        bench = pt.workbench(scan, cluster=cluster)
        try:
            cluster.stop()
            field(bench, "Run", "Epochs").value = 1
            click(bench, "Run", "New run")
            told = "The cluster of this workbench was stopped; call its start() again."
            assert told in bench._message.value
            assert bench.recon is None
            cluster.start()
            click(bench, "Run", "New run")
            assert bench._message.value == ""
            assert bench.recon is not None
            bench.recon.wait()
            assert (bench.recon.epoch, bench.recon.cluster) == (1, cluster)
            bench.recon.close()
        finally:
            bench.close()


def test_a_reconstruction_that_there_is_already_is_put_on_the_bench(scan: Scan) -> None:
    settings = pt.Settings(batch=9)
    with pt.Reconstruction(scan, settings, checkpointing=None) as recon:
        recon.step()
        bench = pt.workbench(recon=recon)
        try:
            assert (bench.scan, bench.settings, bench.recon) == (scan, settings, recon)
            assert bench._tabs.selected_index == TABS.index("Run")
            click(bench, "Run", "Add to comparison")
            assert list(bench._desk.results) == ["epoch 1"]
        finally:
            bench.close()


def test_what_is_edited_in_quick_turns_comes_to_rest(bench: Workbench) -> None:
    for batch in (10, 11, 12, 13):
        bench._form.form.enter("batch", str(batch))
    for form in (bench._form, bench._tuning.form, bench._form, bench._tuning.form):
        form.settle()
    told = len(bench._desk.lines)
    time.sleep(1.0)
    assert len(bench._desk.lines) == told
    assert bench.settings.batch == bench._form.settings.batch == bench._tuning.form.settings.batch == 13


def test_the_best_of_a_study_becomes_the_settings(bench: Workbench) -> None:
    best = pt.Settings(probe=pt.Probe(learning_rate=0.003))
    bench._take_settings(best)
    bench._form.settle()
    assert bench.settings == best
    assert bench._form.settings == best
    assert bench._tuning.form.settings == best
    assert bench.code.count("0.003") == 1


def test_a_closed_workbench_leaves_no_thread_and_the_run_goes_on(scan: Scan) -> None:
    before = set(threading.enumerate())
    bench = pt.workbench(scan)
    reconstruct(bench, 1)
    recon = bench.recon
    assert recon is not None
    recon.start(1)
    bench.close()
    recon.wait()
    assert recon.epoch == 2
    recon.close()
    del recon, bench
    gc.collect()
    ours = [one for one in set(threading.enumerate()) - before if one.name.startswith("ptynb")]
    for thread in ours:
        thread.join(5)
    assert not [thread.name for thread in ours if thread.is_alive()]


def test_results_of_one_name_are_told_apart(scan: Scan) -> None:
    desk = Desk(scan, None, None)
    with pt.Reconstruction(scan, checkpointing=None) as recon:
        recon.step()
        desk.add_result("night", recon.result, "recon.result")
        desk.add_result("night", recon.result, "recon.result")
    assert list(desk.results) == ["night", "night (2)"]
    assert desk.lines[-3:] == ["kept = {}", "kept['night'] = recon.result", "kept['night (2)'] = recon.result"]


@pytest.mark.parametrize(
    "settings",
    [
        pt.Settings(),
        pt.Settings(batch=32, probe=pt.Probe(modes=3, learning_rate=0.02)),
        pt.Settings(optimiser="lsqml"),
        pt.Settings(regularizers=(pt.regularizers.TotalVariation(weight=0.1),)),
        pt.Settings(constraints=(pt.constraints.OrthogonalModes(), pt.constraints.RemovePhaseRamp())),
    ],
    ids=["defaults", "parts", "full steps", "one term", "constraints"],
)
def test_settings_as_python_make_the_same_settings(settings: pt.Settings) -> None:
    assert eval(as_python(settings), {"pt": pt}) == settings
