import dataclasses
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

import ptynb
from ptynb.data.provenance import ScanIdentity
from ptynb.data.record import Change, Epoch
from ptynb.data.result import Result
from ptynb.exceptions import FileError
from ptynb.io.reading import large_array
from ptynb.io.result_file import load_result, save_result
from ptynb.simulation.simulated_scan import simulate
from tests.io.cases import of_case
from tests.io.results import BARE, FULL, complex_array
from tests.raising import raises

ARRAYS = ("object", "probe", "positions")
PAGE = Path(ptynb.__file__).parent / "result_file.md"


def assert_same(one, other):
    """Every field, to the last bit and of the same type; NaN is equal to itself."""
    for field in dataclasses.fields(Result):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name in ARRAYS:
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)
        elif field.name == "parameters":
            assert mine.keys() == theirs.keys()
            for name in mine:
                np.testing.assert_array_equal(mine[name], theirs[name])
        elif field.name == "admissions" and mine is not None:
            for part in dataclasses.fields(type(mine)):
                values, others = getattr(mine, part.name), getattr(theirs, part.name)
                np.testing.assert_array_equal(values, others)
                assert getattr(values, "dtype", type(values)) == getattr(others, "dtype", type(others))
        elif field.name == "history":
            assert len(mine) == len(theirs)
            for ours, others in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(ours.object, others.object)
                np.testing.assert_array_equal(ours.probe, others.probe)
                plain = ("epoch", "reduction", "probe_reduction", "corner")
                assert [getattr(ours, name) for name in plain] == [getattr(others, name) for name in plain]
        else:
            assert repr(mine) == repr(theirs), field.name


HOSTILE = {
    "a loss that is not a number": {"epochs": (Epoch(1, float("nan"), float("inf"), 0.0),), "r_factor": float("inf")},
    "nothing done yet": {"epochs": (), "changes": (), "history": (), "r_factors": ()},
    "long comments": {"comments": "ß" * 200_000},
    "other alphabets": {"title": "分 \u202e עברית 🔬", "comments": "</script><img src=x onerror=alert(1)>"},
    "lines in a name": {"scan": ScanIdentity("a\nb\tc", path="/tmp/\n.h5", given={"patterns": "a/\u0000b"})},
    "odd names of parts": {"parameters": {"my piece/it's β": np.ones(2), "a/b/c": np.ones((1, 2), np.complex64)}},
    "values of all kinds": {"changes": (Change(0, 0, "x", [1, [2.5, None]], {"ü": True}), Change(9, 0, "y", "", 0))},
    "double precision": {"object": complex_array(5, 6).astype(np.complex128)},
}


def test_a_result_comes_back(tmp_path):
    for result in [FULL, BARE]:
        with of_case(result, tmp_path) as home:
            assert_same(load_result(save_result(result, home / "result.h5")), result)


def test_a_large_object_stays_in_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(large_array, "LARGE_BYTES", FULL.object.nbytes - 1)
    path = save_result(FULL, tmp_path / "result.h5")
    large = load_result(path)
    assert isinstance(large.object, np.memmap)
    assert type(large.probe) is np.ndarray
    assert_same(load_result(save_result(large, path)), FULL)
    path.unlink()
    np.testing.assert_array_equal(large.object, FULL.object)
    with pytest.raises(ValueError, match="read-only"):
        large.object[0, 0] = 0
    monkeypatch.setattr(large_array, "LARGE_BYTES", FULL.object.nbytes)
    assert type(load_result(save_result(FULL, path)).object) is np.ndarray


def test_a_compressed_object_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(large_array, "LARGE_BYTES", 0)
    path = save_result(FULL, tmp_path / "result.h5")
    with h5py.File(path, "r+") as file:
        attributes = dict(file["object"].attrs)
        del file["object"]
        file.create_dataset("object", data=FULL.object, compression="gzip").attrs.update(attributes)
    found = load_result(path)
    assert type(found.object) is np.ndarray
    assert_same(found, FULL)


def test_hostile_values_come_back(tmp_path):
    for name in HOSTILE:
        with of_case(name, tmp_path) as home:
            result = dataclasses.replace(FULL, **HOSTILE[name])
            assert_same(load_result(save_result(result, home / "result.h5")), result)


def test_what_hdf5_can_not_hold_is_written_visibly(tmp_path):
    result = dataclasses.replace(FULL, comments="a\0b", title="\udcff", changes=(Change(1, 1, "a", "\udcff\0", 0),))
    again = load_result(save_result(result, tmp_path / "result.h5"))
    assert (again.comments, again.title, again.changes[0].old) == ("a␀b", "\\udcff", "\udcff\0")


UNWRITABLE = {
    "positions": dataclasses.replace(FULL, positions=np.array([object()])),
    "settings": dataclasses.replace(FULL, settings={"batch": object()}),
    "changes": dataclasses.replace(FULL, changes=(Change(1, 1, "batch", 1, object()),)),
}


def test_a_crash_while_writing_leaves_the_old_file(tmp_path):
    for part in UNWRITABLE:
        with of_case(part, tmp_path) as home:
            path = home / "result.h5"
            with pytest.raises(TypeError):
                save_result(UNWRITABLE[part], path)
            assert list(home.iterdir()) == []
            save_result(FULL, path)
            before = path.read_bytes()
            with pytest.raises(TypeError):
                save_result(UNWRITABLE[part], path)
            assert path.read_bytes() == before
            assert list(home.iterdir()) == [path]


def test_a_scan_is_no_result(tmp_path):
    simulate(4, window=16, path=tmp_path / "scan.h5")
    with raises("file.unknown-format", "scan.h5", "load"):
        load_result(tmp_path / "scan.h5")
    with raises("file.not-found", "nowhere.h5"):
        load_result(tmp_path / "nowhere.h5")


def test_a_result_of_another_version_is_refused(tmp_path):
    path = save_result(FULL, tmp_path / "result.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["version"] = 4
    with raises("file.unsupported-version", path, 4, "version 3"):
        load_result(path)


# The page that describes the file


def described():
    """Pattern of a place -> whether it may be missing, from the page's tables."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = line.strip("| ").split(" | ")
        for place in re.findall(r"`(/[^`]*)`", cells[0]) if line.startswith("| `") else ():
            found[place] = "optional" in cells[-1]
    return found


def written(path):
    """Every dataset and attribute of a file."""
    places = []
    with h5py.File(path, "r") as file:

        def take(name, item):
            if isinstance(item, h5py.Dataset):
                places.append(f"/{name}")
            places.extend(f"/{name}@{key}" for key in item.attrs)

        file.visititems(take)
        return [*places, *(f"/@{key}" for key in file.attrs)]


def matches(pattern, place):
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/@]+"), place)


def test_all_that_is_written_is_on_the_page_and_the_other_way_round(tmp_path):
    page = described()
    assert len(page) > 60
    thick = dataclasses.replace(FULL, object=complex_array(2, 30, 33))
    full, bare = (written(save_result(one, tmp_path / "a.h5")) for one in (thick, BARE))
    for place in full:
        assert any(matches(pattern, place) for pattern in page), f"{place} is not on the page"
    for pattern, optional in page.items():
        assert any(matches(pattern, place) for place in full), f"{pattern} is on the page only"
        assert optional or any(matches(pattern, place) for place in bare), f"{pattern} is missing in a bare result"


def test_viewers_find_a_plot_with_axes_of_the_right_length(tmp_path):
    """The rules of NXdata: https://manual.nexusformat.org/classes/base_classes/NXdata.html"""
    thick = dataclasses.replace(FULL, object=complex_array(2, 1300, 500))
    for result, shape in ((FULL, (30, 33)), (thick, (2, 433, 166))):
        with h5py.File(save_result(result, tmp_path / "result.h5"), "r") as file:
            first = file[file.attrs["default"]]
            first = first[first.attrs["default"]]
            assert first["data"].shape == shape
            np.testing.assert_allclose(
                first["data"][()], np.angle(result.object), atol=1e-6
            ) if result is FULL else None
            plots = [one for one in file["entry"].values() if one.attrs.get("NX_class") == "NXdata"]
            assert len(plots) == 5
            for plot in plots:
                data = plot[plot.attrs["signal"]]
                assert data.dtype.kind == "f"
                assert data.attrs["interpretation"] == ("image" if data.ndim > 1 else "spectrum")
                assert len(plot.attrs["axes"]) == data.ndim
                for axis, side in zip(plot.attrs["axes"], data.shape, strict=True):
                    assert plot[axis].shape == (side,)


def test_axes_are_in_metres_of_the_scan(tmp_path):
    with h5py.File(save_result(FULL, tmp_path / "result.h5"), "r") as file:
        y, x = file["entry/phase/y"], file["entry/phase/x"]
        np.testing.assert_allclose([y[0], y[1], x[0]], [-4 * 1.25e-8, -3 * 1.25e-8, 7 * 2.5e-8])
        assert y.attrs["units"] == "m"
        assert file["entry/probe/y"][4] == file["entry/probe/x"][5] == 0
        assert file["object"].attrs["pixel_size"].tolist() == [1.25e-8, 2.5e-8]
        assert file["object"].attrs["pixel_size_unit"] == "m"
    with h5py.File(save_result(BARE, tmp_path / "bare.h5"), "r") as file:
        assert file["entry/phase/y"].attrs["units"] == "pixel"


# Broken files


def put(name, value, **more):
    """Something else in the place of a dataset."""

    def do(file, folder):
        attributes = dict(file[name].attrs) if name in file else {}
        if name in file:
            del file[name]
        file.create_dataset(name, data=value, **more)
        file[name].attrs.update(attributes)

    return do


def note(place, name, value):
    def do(file, folder):
        file[place].attrs[name] = value

    return do


def unwritten(file, folder):
    attributes = dict(file["object"].attrs)
    del file["object"]
    file.create_dataset("object", (2**20, 2**20), "c8", chunks=(64, 64))
    file["object"].attrs.update(attributes)


def in_another_file(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["probe"] = np.ones((1, 8, 8), np.complex64)
    del file["probe"]
    file["probe"] = h5py.ExternalLink(str(folder / "other.h5"), "probe")


def in_itself(file, folder):
    del file["probe"]
    file["probe"] = h5py.SoftLink("/probe")


def overlapping_columns(file, folder):
    """The exponent of a column of floats is damaged, so that h5py takes them for longer ones."""
    stored = file["epochs"].id
    damaged = h5py.h5t.create(h5py.h5t.COMPOUND, stored.get_type().get_size())
    for name, (kind, offset) in file["epochs"].dtype.fields.items():
        column = h5py.h5t.py_create(kind).copy()
        if name == "loss":
            column.set_ebias(column.get_ebias() - 4)
        damaged.insert(name.encode(), offset, column)
    space, attributes = stored.get_space().copy(), dict(file["epochs"].attrs)
    del file["epochs"]
    h5py.h5d.create(file.id, b"epochs", damaged, space)
    file["epochs"].attrs.update(attributes)


BROKEN = {
    "no object": (lambda file, folder: file.pop("object"), "has no dataset object"),
    "a group as the probe": (lambda file, folder: (file.pop("probe"), file.create_group("probe")), "no dataset probe"),
    "a real object": (put("object", np.ones((5, 6))), "object as float64 of shape (5, 6); expected complex numbers"),
    "positions in three dimensions": (put("positions", np.ones((9, 3))), "expected real numbers along 2 axes, 2 in"),
    "epochs of texts": (put("epochs", np.zeros(2, [("number", "i8"), ("loss", "S3")])), "expected rows with number"),
    "epochs whose columns overlap": (overlapping_columns, "at /epochs, whose columns overlap"),
    "settings that are no JSON": (put("settings/at_end", "{batch"), "settings/at_end, which is no JSON"),
    "settings too deep": (put("settings/at_start", "[" * 100_000), "settings/at_start, which is no JSON"),
    "no UTF-8": (put("entry/title", np.bytes_(b"\xff\xfe")), "entry/title in no UTF-8"),
    "a huge number": (put("about", "1" * 10_000), "about, which is no JSON"),
    "an object of 8 TB": (unwritten, "claims 8.8e+12 bytes for object"),
    "a probe in another file": (in_another_file, "has probe in another file"),
    "a probe that links to itself": (in_itself, "probe"),
    "an origin of three": (note("object", "origin", [1, 2, 3]), "as attribute origin at /object; expected 2 finite"),
    "an endless pixel": (note("object", "pixel_size", [np.inf, 1.0]), "expected 2 finite numbers"),
    "an R-factor in words": (note("/", "r_factor", "good"), "as attribute r_factor at /; expected a number"),
    "no number of updates": (lambda file, folder: file["epochs"].attrs.pop("update"), "has no attribute update"),
    "a window of one": (put("scan/window", [3]), "scan/window as int64 of shape (1,); expected whole numbers"),
    "a moment without a number": (
        lambda file, folder: file.move("moments/000001", "moments/x"),
        "a group 'x' in moments",
    ),
}


def test_a_broken_result_is_refused_with_one_sentence(tmp_path):
    whole = save_result(FULL, tmp_path / "whole.h5").read_bytes()
    for name, (breaks, words) in BROKEN.items():
        with of_case(name, tmp_path) as home:
            path = home / "result.h5"
            path.write_bytes(whole)
            with h5py.File(path, "r+") as file:
                breaks(file, home)
            with pytest.raises(FileError) as caught:
                load_result(path)
            assert words in str(caught.value)
            assert "\n" not in str(caught.value)
            assert str(path) in str(caught.value)


def test_a_truncated_result_is_refused_with_one_sentence(tmp_path):
    for part in [0.1, 0.999]:
        with of_case(part, tmp_path) as home:
            path = save_result(FULL, home / "result.h5")
            whole = path.read_bytes()
            path.write_bytes(whole[: int(part * len(whole))])
            with raises("file.damaged", path):
                load_result(path)


def test_bytes_turned_over_are_refused_or_read_never_worse(tmp_path):
    """Half of the file is numbers, which no format can check; the other half has to be met with a sentence."""
    small = dataclasses.replace(FULL, comments="a", object=FULL.object[:4, :4])
    path = save_result(small, tmp_path / "result.h5")
    whole, random = path.read_bytes(), np.random.default_rng(1)
    for _ in range(40):
        broken = bytearray(whole)
        for place in random.integers(0, len(whole), 20):
            broken[place] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(broken)
        assert "\n" not in complaint(path)


def complaint(path):
    try:
        load_result(path)
    except FileError as error:
        return str(error)
    return ""
