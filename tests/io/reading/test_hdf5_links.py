"""Data in other files: followed in the folder, asked for outside it, named where they are missing, never endless."""

import itertools
import os

import h5py
import numpy as np
import pytest

from ptynb.data.patterns import HDF5Frames, PlacedFrames, StackedFrames
from ptynb.exceptions import FileError, ScanError
from ptynb.io.hdf5_file import Linked
from ptynb.io.load import find, load
from ptynb.io.reading.hdf5_reading import patterns_at
from ptynb.settings.load_options import LoadOptions
from ptynb.simulation.simulated_scan import simulate
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import READERS
from tests.io import layouts
from tests.io.cases import of_case
from tests.raising import raises

SHAPE = (6, 8, 10)
PATTERNS = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(np.uint16)


@pytest.fixture(scope="module")
def simulated():
    return simulate(16, window=16, seed=2)


def source(path, patterns=PATTERNS, name="data", **how):
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=patterns, **how)
    return path


def master(path, links):
    """A file whose datasets are links: name -> link."""
    with h5py.File(path, "w") as file:
        for name, link in links.items():
            file[name] = link
    return path


def virtual(path, shape, *parts, **how):
    """A virtual dataset: (where in it, file, shape there, where there)."""
    layout = h5py.VirtualLayout(shape, np.uint16)
    for place, name, there, part in parts:
        layout[place] = h5py.VirtualSource(name, "data", there)[part]
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("data", layout, **how)
    return path


def read(path, name="data", links="folder"):
    with Linked(path, links) as linked:
        return patterns_at(linked, name).frames


def test_links_are_followed_within_the_folder_and_below_it(tmp_path):
    (tmp_path / "raw").mkdir()
    source(tmp_path / "raw/a.h5")
    links = {
        "data": h5py.SoftLink("/x/y"),
        "x/y": h5py.SoftLink("far"),
        "x/far": h5py.ExternalLink("raw/a.h5", "/data"),
    }
    frames = read(master(tmp_path / "m.h5", links))
    assert frames.path == (tmp_path / "raw/a.h5").resolve()
    np.testing.assert_array_equal(frames.read(0, 6), PATTERNS)
    assert isinstance(frames.local(), PlacedFrames)


OUTSIDE = {
    "an absolute path": lambda outside: str(outside),
    "upwards": lambda outside: f"../{outside.parent.name}/{outside.name}",
    "a symbolic link": lambda outside: "beside.h5",
}


def test_what_leads_out_of_the_folder_is_refused_unless_it_is_allowed(tmp_path):
    for kind, how in itertools.product(["external link", "virtual dataset", "raw file"], OUTSIDE):
        with of_case((kind, how), tmp_path) as home:
            inside, outside = home / "inside", home / "outside" / "other.h5"
            inside.mkdir()
            outside.parent.mkdir()
            source(outside)
            (inside / "beside.h5").symlink_to(outside)
            name = OUTSIDE[how](outside)
            if kind == "external link":
                master(inside / "m.h5", {"data": h5py.ExternalLink(name, "/data")})
            elif kind == "virtual dataset":
                virtual(inside / "m.h5", SHAPE, (np.s_[:], name, SHAPE, np.s_[:]))
            else:
                with h5py.File(inside / "m.h5", "w") as file:
                    file.create_dataset("data", SHAPE, np.uint8, external=[(name, 0, h5py.h5f.UNLIMITED)])
            with raises("file.link-not-allowed", inside, outside.resolve(), "links='anywhere'") as error:
                read(inside / "m.h5")
            assert "\n" not in str(error.value)
            with raises("file.link-not-allowed"):
                load(inside / "m.h5")
            assert read(inside / "m.h5", links="anywhere").shape == SHAPE


def counted(path, names):
    """A virtual dataset of files whose names are counted: one pattern in each."""
    shape, endless = (6, 8, 10), (h5py.h5s.UNLIMITED, 8, 10)
    kept, created = h5py.h5s.create_simple(shape, endless), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    kept.select_hyperslab((0, 0, 0), (h5py.h5s.UNLIMITED, 1, 1), (1, 1, 1), (1, 8, 10))
    created.set_virtual(kept, str(names).encode(), b"/data", h5py.h5s.create_simple((1, 8, 10)))
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_UINT16, h5py.h5s.create_simple(shape, endless), created)
    return path


def raw(path, name, patterns=PATTERNS):
    with h5py.File(path, "w") as file:
        file.create_dataset("data", patterns.shape, patterns.dtype, external=[(str(name), 0, h5py.h5f.UNLIMITED)])
    return path


def of_raw_files(inside, outside):
    """A virtual dataset of a file in the folder, which has its numbers in a raw file outside it."""
    PATTERNS.tofile(outside / "numbers.bin")
    raw(inside / "part.h5", outside / "numbers.bin")
    return virtual(inside / "m.h5", SHAPE, (np.s_[:], "part.h5", SHAPE, np.s_[:]))


def of_virtual_halves(inside, outside):
    """Halves of patterns, which HDF5 reads itself, in a virtual dataset of a virtual dataset."""
    half = (6, 8, 5)
    source(outside / "right.h5", PATTERNS[:, :, 5:])
    source(inside / "left.h5", PATTERNS[:, :, :5])
    virtual(inside / "between.h5", half, (np.s_[:], str(outside / "right.h5"), half, np.s_[:]))
    halves = [(np.s_[:, :, :5], "left.h5", half, np.s_[:]), (np.s_[:, :, 5:], "between.h5", half, np.s_[:])]
    return virtual(inside / "m.h5", SHAPE, *halves)


def counted_outside(inside, outside):
    for number, pattern in enumerate(PATTERNS):
        source(outside / f"part_{number}.h5", pattern[None])
    return counted(inside / "m.h5", outside / "part_%b.h5")


def counted_by_links(inside, outside):
    """The last of the files in the folder is a link out of it."""
    for number, pattern in enumerate(PATTERNS):
        source((inside, outside)[number == 5] / f"part_{number}.h5", pattern[None])
    (inside / "part_5.h5").symlink_to(outside / "part_5.h5")
    return counted(inside / "m.h5", "part_%b.h5")


def counted_where_the_user_works(inside, outside):
    """Names without a folder, which HDF5 looks for in the working folder where they are not beside the file."""
    counted_outside(inside, outside)
    os.chdir(outside)
    return counted(inside / "m.h5", "part_%b.h5")


INDIRECT = {
    "a virtual dataset of raw files": of_raw_files,
    "a virtual dataset of virtual datasets": of_virtual_halves,
    "files that are counted": counted_outside,
    "a counted file that is a link": counted_by_links,
    "counted files in the working folder": counted_where_the_user_works,
}


def test_what_leads_out_of_the_folder_by_a_detour_is_refused_unless_it_is_allowed(tmp_path, monkeypatch):
    for case in INDIRECT:
        with of_case(case, tmp_path) as home, monkeypatch.context() as patched:
            patched.chdir(home)
            inside, outside = home / "inside", home / "outside"
            inside.mkdir()
            outside.mkdir()
            path = INDIRECT[case](inside, outside)
            with raises("file.link-not-allowed", inside, outside, "links='anywhere'"):
                read(path)
            np.testing.assert_array_equal(read(path, links="anywhere").read(0, 6), PATTERNS)


def test_a_raw_file_lies_beside_the_file_that_names_it_whatever_is_in_the_working_folder(tmp_path, monkeypatch):
    """HDF5 itself looks for it in the working folder, which is another one in an engine."""
    for folder, patterns in (("scan", PATTERNS), ("work", PATTERNS + 1)):
        (tmp_path / folder).mkdir()
        patterns.tofile(tmp_path / folder / "numbers.bin")
    path = raw(tmp_path / "scan" / "m.h5", "numbers.bin")
    for folder in ("work", "."):
        monkeypatch.chdir(tmp_path / folder)
        np.testing.assert_array_equal(read(path).read(0, 6), PATTERNS)


def test_small_things_from_outside_the_folder_are_refused_unless_they_are_allowed(tmp_path, simulated):
    """In a virtual dataset, that is: HDF5 opens its sources by itself."""
    for name in ["positions", "mask", "energy"]:
        with of_case(name, tmp_path) as home:
            values = {
                "positions": simulated.positions * simulated.pixel_size,
                "mask": np.eye(16) == 0,
                "energy": np.array([simulated.geometry.energy]),
            }
            (home / "inside").mkdir()
            with h5py.File(home / "outside.h5", "w") as other:
                other[name] = values[name]
            with h5py.File(home / "inside" / "scan.h5", "w") as file:
                file["data"] = simulated.counts(0, 16)
                file.update({one: value for one, value in values.items() if one != name})
                layout = h5py.VirtualLayout(values[name].shape, values[name].dtype)
                layout[:] = h5py.VirtualSource(str(home / "outside.h5"), name, values[name].shape)
                file.create_virtual_dataset(name, layout)
            given = {"distance": simulated.geometry.distance, "detector_pixel": simulated.geometry.detector_pixel}
            with raises("file.link-not-allowed", f"/{name}", home / "outside.h5"):
                load(home / "inside" / "scan.h5", **given)
            found = load(home / "inside" / "scan.h5", links="anywhere", **given)
            np.testing.assert_allclose(
                found.positions[1] - found.positions[0], simulated.positions[1] - simulated.positions[0]
            )


WHOLE = {
    "ptynb's own": "patterns",
    "a result": "object",
    "a guess of ptynb": "object",
    "a guess of CDTools": "obj",
    "a guess of PtychoShelves 7.3": "object",
}
"""What holds all of itself, and something in it."""


def test_files_that_hold_all_of_themselves_are_not_read_from_others(tmp_path):
    for softly, seed in itertools.product([False, True], WHOLE):
        with of_case((softly, seed), tmp_path) as home:
            path, name = SEEDS[seed].write(home), WHOLE[seed]
            with h5py.File(path, "r+") as file, h5py.File(home / "other.h5", "w") as other:
                file.copy(name, other, "taken")
                del file[name]
                file["link" if softly else name] = h5py.ExternalLink("other.h5", "/taken")
                if softly:
                    file[name] = h5py.SoftLink("/link")
            with pytest.raises(FileError, match=f"{name} in another file"):  # checkpoints have a code of their own
                READERS[SEEDS[seed].reader](path, SEEDS[seed].given)


@pytest.mark.timeout(60)
def test_a_file_is_recognised_without_opening_what_it_links_to(tmp_path):
    """A pipe, which HDF5 would wait at for ever."""
    for reader, names in itertools.product(
        ["load", "guess"],
        [
            ("cxi_version",),
            ("chunks", "meta"),
            ("Version", "Data/Image"),
            ("cdtools_version",),
            ("optimizable_tensors/objp",),
            ("content/probe", "content/obj"),
            ("object", "probe", "p"),
        ],
    ):
        with of_case((reader, names), tmp_path) as home:
            os.mkfifo(home / "pipe")
            path = master(home / "m.h5", {name: h5py.ExternalLink("pipe", "/x") for name in names})
            with pytest.raises(FileError):
                READERS[reader](path, {})


def test_a_link_to_an_absolute_path_that_is_gone_is_found_beside_the_file(tmp_path):
    source(tmp_path / "a.h5")
    path = master(tmp_path / "m.h5", {"data": h5py.ExternalLink("/beamline/of/last/year/a.h5", "/data")})
    np.testing.assert_array_equal(read(path).read(2, 3), PATTERNS[2:3])


def test_a_missing_file_is_named_also_where_hdf5_would_read_zeros(tmp_path, simulated):
    for virtually in [False, True]:
        with of_case(virtually, tmp_path) as home:
            path = layouts.eiger(home / "scan_master.h5", simulated, virtual=virtually)
            given = {"raster": (4, 4), "step": (1e-7, 1e-7)}
            scan = load(path, **given)
            (home / "scan_data_000002.h5").rename(home / "away.h5")
            with raises("file.not-found", "scan_data_000002.h5", "scan_master.h5"):
                load(path, **given)
            with raises("scan.patterns-unreadable", "scan_data_000002.h5"):
                scan.counts(0, 16)
            (home / "away.h5").rename(home / "scan_data_000002.h5")
            np.testing.assert_array_equal(load(path, **given).counts(0, 16), simulated.counts(0, 16))


def test_a_virtual_dataset_of_pieces_of_patterns_is_read_and_its_files_are_watched(tmp_path):
    """Two halves of a detector in two files: no pattern is whole in one of them."""
    half = (6, 8, 5)
    source(tmp_path / "left.h5", PATTERNS[:, :, :5])
    source(tmp_path / "right.h5", PATTERNS[:, :, 5:])
    halves = [(np.s_[:, :, :5], "left.h5", half, np.s_[:]), (np.s_[:, :, 5:], "right.h5", half, np.s_[:])]
    frames = read(virtual(tmp_path / "m.h5", SHAPE, *halves))
    assert isinstance(frames, HDF5Frames)
    np.testing.assert_array_equal(frames.read(0, 6), PATTERNS)
    (tmp_path / "right.h5").unlink()
    with raises("scan.patterns-unreadable", "right.h5"):
        frames.read(0, 1)


def test_whole_patterns_of_a_virtual_dataset_are_read_from_their_own_files(tmp_path):
    source(tmp_path / "a.h5", PATTERNS[3:], chunks=(2, 8, 10), compression="gzip")
    source(tmp_path / "b.h5", PATTERNS[:4])
    parts = [(np.s_[2:5], "a.h5", (3, 8, 10), np.s_[:]), (np.s_[0:2], "b.h5", (4, 8, 10), np.s_[1:3])]
    frames = read(virtual(tmp_path / "m.h5", (5, 8, 10), *parts))
    assert isinstance(frames, StackedFrames)
    np.testing.assert_array_equal(frames.read(0, 5), PATTERNS[1:6])
    np.testing.assert_array_equal(frames.local().read(1, 4), PATTERNS[2:5])


def test_what_a_virtual_dataset_leaves_out_is_a_remark(tmp_path):
    source(tmp_path / "a.h5", PATTERNS[:2])
    virtual(tmp_path / "m.h5", SHAPE, (np.s_[0:2], "a.h5", (2, 8, 10), np.s_[:]), fillvalue=7)
    found = find(tmp_path / "m.h5", LoadOptions())
    assert any("leaves 320 of its 480 values to no file; they are read as 7" in remark for remark in found.notes)


def loop(file):
    file["a"] = h5py.SoftLink("/b")
    file["b"] = h5py.SoftLink("/a")
    file["data"] = h5py.SoftLink("/a")


def chain(file):
    for number in range(100):
        file[f"l{number}"] = h5py.SoftLink(f"/l{number + 1}")
    file["l100"] = PATTERNS
    file["data"] = h5py.SoftLink("/l0")


def hard_loop(file):
    group = file.create_group("g")
    group["again"] = group
    group["up"] = file["/"]


def add_virtual(file, name, source, inside, shape=SHAPE):
    layout = h5py.VirtualLayout(shape, np.uint16)
    layout[:] = h5py.VirtualSource(source, inside, shape)
    file.create_virtual_dataset(name, layout)


def own_source(file):
    add_virtual(file, "data", ".", "data")


def cut_short(file):
    add_virtual(file, "data", "a.h5", "data")


def of_nothing(file):
    add_virtual(file, "data", "a.h5", "gone")


ENDLESS = {
    "soft links in a circle": (loop, "file.too-many-links", 64),
    "links 100 deep": (chain, "file.too-many-links", 64),
    "groups inside themselves": (hard_loop, "file.incomplete", "data"),
    "a virtual dataset of itself": (own_source, "file.too-many-links", "data"),
    "a source cut short": (cut_short, "file.damaged", "a.h5", "data", (2, 8, 10), 480),
    "a source without its dataset": (of_nothing, "file.incomplete", "a.h5", "gone"),
}


def test_links_that_lead_nowhere_are_refused(tmp_path):
    for case, (make, code, *facts) in ENDLESS.items():
        with of_case(case, tmp_path) as home:
            source(home / "a.h5", PATTERNS[:2])
            with h5py.File(home / "m.h5", "w") as file:
                make(file)
            with raises(code, *facts) as error:
                read(home / "m.h5")
            assert "\n" not in str(error.value)
            with pytest.raises((FileError, ScanError)):
                load(home / "m.h5")


def test_of_a_scan_in_many_files_only_those_are_opened_that_are_read(tmp_path, monkeypatch):
    names = [source(tmp_path / f"a{number}.h5", PATTERNS[:1] + number).name for number in range(60)]
    links = {f"data/data_{number:06d}": h5py.ExternalLink(name, "/data") for number, name in enumerate(names, 1)}
    frames = read(master(tmp_path / "m.h5", links))
    assert frames.shape == (60, 8, 10)
    opened, original = [], h5py.File

    def noted(path, *rest, **more):
        opened.append(os.path.basename(path))
        return original(path, *rest, **more)

    monkeypatch.setattr(h5py, "File", noted)
    np.testing.assert_array_equal(frames.read(40, 42), np.concatenate([PATTERNS[:1] + 40, PATTERNS[:1] + 41]))
    assert opened == ["a40.h5", "a41.h5"]
