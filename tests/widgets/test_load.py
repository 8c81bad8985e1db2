"""Choosing a file, and the fields for what it lacks: without a browser, and in a real one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from playwright.sync_api import Page, expect

import ptynb as pt
from ptynb.exceptions import InvalidValueError
from ptynb.io.file_info import Fact
from ptynb.io.load import FORMATS, SUFFIXES
from ptynb.widgets.load.file_chooser import FileChooser
from ptynb.widgets.load.load_fields import LoadFields
from ptynb.widgets.load.recent_files import MOST, recent_files, remember
from ptynb.widgets.quantities import fact_text, quantity
from tests.live_source import Source as LiveSource
from tests.raising import raises
from tests.widgets.browser_model import BrowserModel, violations


@pytest.fixture(autouse=True)
def _own_recent_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    here = tmp_path / "night"
    (here / "Older" / "deep").mkdir(parents=True)
    (here / "stack.zarr").mkdir()
    for name in ("b.h5", "A.cxi", "notes.txt", ".hidden.h5"):
        (here / name).write_bytes(b"x" * 1500)
    return here


@pytest.fixture
def chosen() -> list[tuple[str, bool]]:
    return []


@pytest.fixture
def chooser(folder: Path, chosen: list[tuple[str, bool]]) -> FileChooser:
    return FileChooser(lambda path, twice: chosen.append((path.name, twice)), folder)


def names(chooser: FileChooser) -> list[str]:
    return [item[0] for item in chooser.items]


def test_folders_come_first_and_only_what_may_be_a_scan_is_listed(chooser: FileChooser, folder: Path) -> None:
    assert names(chooser) == ["Older", "A.cxi", "b.h5", "stack.zarr"]
    assert [item[1] for item in chooser.items] == ["folder", "scan", "scan", "scan"]
    assert chooser.items[1][2] == "1.5 kB"
    for name in ("run10.h5", "run9.h5"):
        (folder / name).write_bytes(b"")
    chooser.all_files = True
    assert names(chooser) == ["Older", "A.cxi", "b.h5", "notes.txt", "run9.h5", "run10.h5", "stack.zarr"]


def test_every_format_has_names_by_which_its_files_are_listed() -> None:
    assert all(format.suffixes for format in FORMATS)
    assert {".cxi", ".h5", ".nxs", ".ptyd", ".mat", ".npz", ".mib", ".tif", ".zarr"} <= SUFFIXES
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in SUFFIXES)


def test_clicks_go_through_folders_to_a_file(
    chooser: FileChooser, chosen: list[tuple[str, bool]], folder: Path
) -> None:
    chooser.open("Older")
    assert (names(chooser), chooser.folder) == (["deep"], str(folder / "Older"))
    chooser.open("b.h5")  # of the list before, on its way while the folder was opened
    assert chosen == []
    chooser.up()
    chooser.open("b.h5")
    chooser.open("b.h5", twice=True)
    assert chosen == [("b.h5", False), ("b.h5", True)]
    assert chooser.current == str(folder / "b.h5")
    chooser.show(str(folder / "nowhere"))
    assert "nowhere cannot be read: No such file or directory. Choose another folder." in chooser.message
    assert chooser.folder == str(folder), "the last one stays"
    chooser.show()
    assert (chooser.folder, chooser.message) == (str(Path.cwd()), "")


def test_files_that_were_loaded_last_are_offered(
    chooser: FileChooser, chosen: list[tuple[str, bool]], folder: Path
) -> None:
    for name in ("A.cxi", "b.h5", "A.cxi"):
        remember(folder / name)
    chooser.show(str(folder / "Older"))
    assert chooser.recent == []
    chooser.refresh()
    assert chooser.recent == [str(folder / "A.cxi"), str(folder / "b.h5")]
    chooser.recall(str(folder / "b.h5"))
    assert chosen == [("b.h5", False)]
    assert (chooser.folder, chooser.current) == (str(folder), str(folder / "b.h5"))


def test_recent_files_are_few_exist_and_survive_what_is_broken(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "jupyter" / "ptynb" / "recent_files.json"
    assert recent_files() == []
    for number in range(MOST + 3):
        (folder / f"{number}.h5").touch()
        remember(folder / f"{number}.h5")
    assert [path.name for path in recent_files()] == [f"{number}.h5" for number in range(MOST + 2, 2, -1)]
    (folder / f"{MOST + 2}.h5").unlink()
    assert recent_files()[0].name == f"{MOST + 1}.h5"
    assert os.listdir(store.parent) == [store.name], "no temporary file is left"
    for text in ("", "{}", "[1, null]"):
        store.write_text(text)
        assert recent_files() == []
    remember(folder / "b.h5")
    assert json.loads(store.read_text()) == [str(folder / "b.h5")]
    store.unlink()
    store.parent.rmdir()
    store.parent.write_text("a file where a folder is needed")
    remember(folder / "b.h5")
    assert recent_files() == []


def test_quantities_are_shown_in_a_unit_that_reads_easily() -> None:
    assert quantity((5.5e-05, 5.5e-05), "m") == "55 × 55 µm"
    assert quantity((0.99,), "m") == "990 mm"
    assert quantity((0.0,), "m") == "0 m"
    assert fact_text(Fact("positions", "", "m", "", ("16 over ", (1.2e-05, 1e-05)))) == "16 over 12 × 10 µm"
    assert fact_text(Fact("patterns", "", "counts", "", ("9 of ", (4, 6), ", uint16"))) == "9 of 4 × 6, uint16 counts"
    assert fact_text(Fact("mask", "12 of 36 pixels bad")) == "12 of 36 pixels bad"
    assert fact_text(Fact("version", "3 x 4 over 2e-6", "m")) == "3 x 4 over 2e-6 m", "words stay as they are"


# Fields of the options of `load`


def test_options_are_entered_with_units() -> None:
    fields = LoadFields()
    for name, text, unit, value in (
        ("energy", "12", "keV", 12e3), ("energy", "12.4 keV", "eV", 12.4e3), ("distance", "99e-2", "m", 0.99),
        ("step", "55um", "mm", 55e-6), ("step", "1.5 2", "µm", [1.5e-6, 2e-6]), ("distance", "3 miles", "m", "3 miles"),
        ("detector_pixel", "55", "µm", 55e-6), ("raster", "5, 6", None, ["5", "6"]), ("mask", " a.npy ", None, "a.npy"),
        ("distance", "990 mm", "m", 0.99), ("focus_to_sample", "10", None, 0.01), ("probe", " ", None, None),
        ("clip_negative", True, None, True), ("rotation", "180", "°", np.pi), ("geometry", *[None] * 2, "far field"),
    ):  # fmt: skip
        fields.enter(name, text, unit)
        assert fields.entered(name) == value
    fields.enter("geometry", "near field")
    found = fields.arguments
    assert found == {
        "geometry": "near field", "energy": 12.4e3, "distance": 0.99, "detector_pixel": (55e-6, 55e-6),
        "raster": (5, 6), "focus_to_sample": 0.01, "step": (1.5e-6, 2e-6), "mask": "a.npy", "clip_negative": True,
        "rotation": np.pi,
    }  # fmt: skip
    for name, text in (("energy", "bright"), ("raster", "5"), ("detector_pixel", "1 2 3"), ("detector_pixel", "wide")):
        before = fields.text(name)
        fields.enter(name, text)
        with raises("argument.invalid-value", name, text.split()[0]):
            fields.arguments  # noqa: B018 - raises
        fields.enter(name, before)
    lens = {"convergence_angle": 0.0214, "defocus": -1.5e-8, "aberrations": {"C12": (2e-9, 0.5), "C30": 1e-3}}
    for values in (lens, found):
        fields.clear()
        assert fields.arguments == {}
        fields.fill(values)
        assert fields.arguments == values
    assert fields.values["focus_to_sample"] == "10"


def test_fields_that_an_error_is_about_are_marked_and_the_first_one_gets_the_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields, said = LoadFields(), list[Any]()
    monkeypatch.setattr(fields, "send", said.append)
    about = ("rotation", "energy", "none of these")
    fields.mark(InvalidValueError("", code="argument.conflict", fields=about, proposals={"energy": 8300.0}))
    assert {name: one["text"] for name, one in fields.notes.items()} == {
        "energy": "see the message; it proposes 8.3 keV", "rotation": "see the message",
    }  # fmt: skip
    assert said == [{"focus": "energy"}], "which is not folded"
    fields.focus(["raster", "probe"])
    assert said[1:] == [{"focus": "probe"}], "the first on the page"
    fields.clear()
    assert fields.notes == {}


def test_what_a_file_lacks_is_asked_for_first_and_what_it_has_is_said(tmp_path: Path) -> None:
    edits: list[int] = []
    fields = LoadFields(lambda: edits.append(1))

    def shown() -> list[str]:
        return [name for name in fields.options if name not in fields.folded]

    usual = ["geometry", "energy", "distance", "detector_pixel"]
    assert shown() == usual
    np.savez(tmp_path / "bare.npz", patterns=pt.simulate(patterns=25, window=32, seed=7).counts(0, 25))
    fields.show(pt.info(tmp_path / "bare.npz"))
    assert {*shown()} == {*usual, "positions", "raster", "step", "wavelength", "voltage", "angular_pixel"}
    assert fields.notes["distance"] == {"text": "missing in the file", "needed": True}
    assert fields.notes["energy"] == {"text": "or this instead", "needed": True}
    fields.clear()
    assert shown() == usual
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["patterns"] = pt.simulate(patterns=25, window=32, seed=7).counts(0, 25)
        for name, value, unit in (("wavelength", 1e-10, "m"), ("distance", 2.0, "m")):
            file[name] = value
            file[name].attrs["units"] = unit
    fields.show(pt.info(tmp_path / "scan.h5"))
    assert fields.notes["energy"] == {"text": "file: 12.398 keV", "needed": False}
    assert fields.notes["distance"]["text"] == "file: 2 m"
    fields.enter("geometry", "near field")
    assert edits == [1]
    fields.show(pt.info(tmp_path / "scan.h5"))
    assert shown()[:2] == ["geometry", "focus_to_sample"]


# In a browser


def test_files_are_chosen_by_keys_and_by_mouse(
    chooser: FileChooser, chosen: list[tuple[str, bool]], folder: Path, page: Page
) -> None:
    model = BrowserModel(page, chooser)
    page.get_by_role("button", name="Older/").focus()
    page.keyboard.press("Enter")
    model.collect()
    expect(page.locator(".ptynb-files button:focus")).to_contain_text("deep/"), "the focus stays in a list that changes"
    page.keyboard.press("Backspace")
    model.collect()
    page.get_by_role("button", name="A.cxi").dblclick()
    model.collect()
    assert chosen == [("A.cxi", False), ("A.cxi", True)]
    box = page.get_by_role("button", name="Older/").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 8)
    for count in (1, 2):  # after the first click another folder lies there
        page.mouse.down(click_count=count)
        page.mouse.up(click_count=count)
        model.collect()
    assert chooser.folder == str(folder / "Older")


def test_the_tab_is_usable_by_all(folder: Path, monkeypatch: pytest.MonkeyPatch, page: Page) -> None:
    monkeypatch.chdir(folder)
    np.savez(folder / "bare.npz", patterns=pt.simulate(patterns=25, window=32, seed=7).counts(0, 25))
    source = LiveSource(pt.simulate(patterns=36, window=32, seed=2), folder / "spool")
    bench = pt.workbench(source.live)
    tab = bench.scan_tab
    assert tab.inspection is not None
    tab.inspection.close()
    tab.inspection = None  # its own tests look at it
    model = BrowserModel(page, tab)

    def look(what: str) -> None:
        bench.actions.settle()
        model.collect()
        assert violations(page, name=f"load-{what}") == []

    page.get_by_role("button", name="Choose file").click()
    model.collect()
    page.get_by_role("button", name="bare.npz").click()
    model.collect()
    look("file")
    expect(page.get_by_label("Photon energy", exact=True)).to_be_focused(), "the first field that the file lacks"
    expect(page.get_by_role("cell", name="25 of 32 × 32")).to_be_visible()
    page.get_by_role("radio", name="File").press("ArrowRight")
    page.get_by_role("button", name="Listen", exact=True).click()
    page.get_by_role("button", name="Stop listening").click()
    model.collect()
    look("live")
    assert tab.live
    expect(page.get_by_role("alert")).to_contain_text("No source is named")
    expect(page.get_by_role("button", name="End the scan")).to_be_visible()
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_label("Planned positions")).to_have_count(0)
    model.close()
    bench.close()
    source.close()
