"""Files that are read because another file or a folder names them: one rule for all formats, at loading and later."""

import itertools
import json
import os
import pickle
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import zarr

from ptynb.exceptions import FileError
from ptynb.io.file_info import info
from ptynb.io.hdf5_file import LinkPolicy
from ptynb.io.load import load
from tests.io.cases import of_case
from tests.io.formats import test_empad, test_rosettasciio, test_zarr_store
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, VOLTAGE, oblong
from tests.raising import raises

PLACED = {"raster": (ROWS, COLUMNS), "step": (2e-10, 2e-10), "voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE)}


@dataclass(frozen=True)
class Case:
    """write: makes a scan in a folder. named: what is loaded there. moved: the file or folder that it leads to."""

    write: object
    named: str
    moved: str
    given: dict


@pytest.fixture(scope="module")
def original():
    return oblong(32, photons=2e3)


def store(version=3, **options):
    def write(folder, original):
        metres = np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(original.step)
        test_zarr_store.group(folder / "scan.zarr", original, metres, version, **options)

    return write


def pages(folder, original):
    (folder / "pages").mkdir()
    for number, pattern in enumerate(original.stack):
        tifffile.imwrite(folder / "pages" / f"{number}.tif", pattern)


def fold_slice(folder, original):
    with h5py.File(folder / "roi0_dp.hdf5", "w") as file:
        file["dp"] = original.stack
    with h5py.File(folder / "roi0_para.hdf5", "w") as file:
        file["ppY"], file["ppX"] = np.indices((ROWS, COLUMNS)).reshape(2, -1) * 2e-10


def merlin(folder, original):
    test_rosettasciio.mib(folder / "scan.mib", original)
    (folder / "scan.hdr").write_text(
        "HDR,\t\nFrames per Trigger (Number):\t6\nFrames in Acquisition (Number):\t24\nEnd\t\n"
    )


def tvips(folder, original):
    """A second file of the same scan, which goes on where the first one ends."""
    test_rosettasciio.tvips(folder / "scan_000.tvips", original)
    (folder / "scan_001.tvips").write_bytes((folder / "scan_000.tvips").read_bytes()[256:])


def movie(folder, original):
    """As Direct Electron's cameras write them."""
    test_rosettasciio.mrc(folder / "20240101_00001_movie.mrc", original)
    lines = {
        "Image Size X (pixels)": 32,
        "Image Size Y (pixels)": 32,
        "Scan - Size X": COLUMNS,
        "Scan - Size Y": ROWS,
        "Scan - Repeats": 1,
        "Scan - Type": "Raster",
        "Scan - Enable": "Enable",
        "Scan - Point Repeat": 1,
        "Instrument Project Magnification": 100,
        "Specimen Pixel Size X (nanometers)": 0.2,
        "Specimen Pixel Size Y (nanometers)": 0.2,
    }
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    (folder / "20240101_00001_info.txt").write_text(text)


BEAM = {name: PLACED[name] for name in ("voltage", "angular_pixel")}
CASES = {
    "a chunk of zarr": Case(store(), "scan.zarr", "scan.zarr/scan/patterns/c/2/0/0", {}),
    "a shard of zarr": Case(
        store(shards=(10, 32, 32), chunks=(2, 32, 32)), "scan.zarr", "scan.zarr/scan/patterns/c/1/0/0", {}
    ),
    "a folder of chunks": Case(store(), "scan.zarr", "scan.zarr/scan/patterns/c/2", {}),
    "a group of zarr": Case(store(), "scan.zarr", "scan.zarr/scan", {}),
    "a description of zarr": Case(store(), "scan.zarr", "scan.zarr/scan/patterns/zarr.json", {}),
    "a picture of a folder": Case(pages, "pages", "pages/11.tif", PLACED),
    "patterns of an EMPAD": Case(lambda *a: test_empad.write(a[0], oblong(128)), "scan.xml", "scan_x6_y4.raw", {}),
    "the .xml of an EMPAD": Case(
        lambda *a: test_empad.write(a[0], oblong(128)).rename(a[0] / "scan_x6_y4.xml"),
        "scan_x6_y4.raw",
        "scan_x6_y4.xml",
        {},
    ),
    "positions of fold_slice": Case(fold_slice, "roi0_dp.hdf5", "roi0_para.hdf5", BEAM),
    "the .hdr of a MIB": Case(merlin, "scan.mib", "scan.hdr", PLACED),
    "a further file of TVIPS": Case(tvips, "scan_000.tvips", "scan_001.tvips", PLACED | {"raster": (8, COLUMNS)}),
    "metadata of a movie in MRC": Case(movie, "20240101_00001_movie.mrc", "20240101_00001_info.txt", PLACED),
}


def moved(folder, name, target):
    """Puts a file elsewhere, and a link in its place."""
    target.mkdir(parents=True)
    real = Path(shutil.move(folder / name, target))
    (folder / name).symlink_to(real)
    return real


def scanned(folder, case, **more):
    scan = load(folder / case.named, **case.given, **more)
    # As an engine gets them.
    return pickle.loads(pickle.dumps(scan.frames)).local().read(0, len(scan))


def test_a_link_is_followed_within_the_folder_and_refused_out_of_it_unless_it_is_allowed(tmp_path, original):
    for name, case in CASES.items():
        with of_case(name, tmp_path) as home:
            inside = home / "inside"
            inside.mkdir()
            case.write(inside, original)
            expected = scanned(inside, case)

            def read(folder=inside, case=case, expected=expected, **more):
                np.testing.assert_array_equal(scanned(folder, case, **more), expected)

            # A link in the path that the user named.
            (home / "to the folder").symlink_to(inside)
            read(home / "to the folder")
            # A link that stays in the folder, and one through another link, which leads on to the same.
            within = inside / case.named if (inside / case.named).is_dir() else inside
            real = moved(inside, case.moved, within / "kept")
            read()
            (within / "kept" / "again").symlink_to(real)
            (inside / case.moved).unlink()
            (inside / case.moved).symlink_to(within / "kept" / "again")
            read()
            # The first link leads to the folder, the second one out of it; then one leads out of it directly.
            (within / "kept" / "again").unlink()
            real = moved(inside, real.relative_to(inside), home / "outside")
            (within / "kept" / "again").symlink_to(real)
            with raises("file.link-not-allowed"):
                scanned(inside, case)
            (inside / case.moved).unlink()
            (inside / case.moved).symlink_to(real)
            with raises("file.link-not-allowed", real, "links='anywhere'") as error:
                scanned(inside, case)
            assert "\n" not in str(error.value)
            read(links="anywhere")


def test_a_link_that_was_made_after_loading_is_refused_by_who_reads_it(tmp_path, original):
    for name in ["a chunk of zarr", "a folder of chunks", "a picture of a folder"]:
        with of_case(name, tmp_path) as home:
            case, inside = CASES[name], home / "inside"
            inside.mkdir()
            case.write(inside, original)
            frames = pickle.loads(pickle.dumps(load(inside / case.named, **case.given).frames))
            moved(inside, case.moved, home / "outside")
            assert len(frames.read(0, 4)) == 4
            with raises("file.link-not-allowed"):
                frames.read(0, frames.shape[0])


def test_metadata_that_may_not_be_read_are_a_remark_where_they_may_be_of_another_scan(tmp_path):
    (tmp_path / "inside").mkdir()
    path = test_empad.write(tmp_path / "inside", oblong(128))
    (tmp_path / "other.xml").write_text("<root/>")
    (tmp_path / "inside" / "other.xml").symlink_to(tmp_path / "other.xml")
    found = info(path.with_name("scan_x6_y4.raw"))
    assert found.problem is None
    assert any("other.xml is not looked at" in remark and "outside" in remark for remark in found.notes)


def test_groups_of_zarr_that_link_in_a_circle_are_gone_through_once(tmp_path, original):
    store()(tmp_path, original)
    (tmp_path / "scan.zarr" / "scan" / "again").symlink_to(tmp_path / "scan.zarr")
    assert len(load(tmp_path / "scan.zarr")) == 24


def test_a_pipe_in_a_store_is_not_waited_for(tmp_path, original):
    store()(tmp_path, original)
    part = tmp_path / "scan.zarr/scan/patterns/c/2/0/0"
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(FileError, match="lacks 1 chunks of scan/patterns"):
        load(tmp_path / "scan.zarr")


def test_a_pipe_that_was_made_after_loading_is_refused(tmp_path, original):
    store()(tmp_path, original)
    scan = load(tmp_path / "scan.zarr")
    part = tmp_path / "scan.zarr/scan/patterns/c/2/0/0"
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(FileError, match=r"scan/patterns/c/2/0/0, .*remove it from the store"):
        scan.counts(0, 24)


def test_a_pipe_beside_a_file_is_taken_away_as_the_message_says(tmp_path, original):
    merlin(tmp_path, original)
    (tmp_path / "scan.hdr").unlink()
    os.mkfifo(tmp_path / "scan.hdr")
    with pytest.raises(FileError, match=r"has scan\.hdr beside it, .*remove it"):
        load(tmp_path / "scan.mib", **PLACED)
    (tmp_path / "scan.hdr").unlink()
    np.testing.assert_array_equal(load(tmp_path / "scan.mib", **PLACED).counts(0, 24), original.stack)


UP = ("../../secret", "/secret", "..", "a/../../secret")


def test_a_name_that_leads_upwards_names_nothing(tmp_path, original):
    for name in UP:
        with of_case(name, tmp_path) as home:
            store()(home, original)
            zarr.create_array(home / "secret", shape=(24, 32, 32), dtype="u2")[...] = 1
            with pytest.raises(FileError, match="has no array"):
                load(home / "scan.zarr", patterns=name)
            with h5py.File(home / "scan.h5", "w") as file:
                file["a/data"] = original.stack
            with raises("file.incomplete", name):
                load(home / "scan.h5", patterns=name, **PLACED)


def test_an_xml_names_a_file_beside_it_whatever_path_it_says(tmp_path):
    for raw in ["../scan_x6_y4.raw", "{above}/scan_x6_y4.raw", "C:\\..\\scan_x6_y4.raw"]:
        with of_case(raw, tmp_path) as home:
            (home / "inside").mkdir()
            named = f'<raw_file filename="{raw.format(above=home)}"/>'
            path = test_empad.write(home / "inside", oblong(128), raw=named)
            shutil.move(home / "inside" / "scan_x6_y4.raw", home)
            with pytest.raises(FileError, match=r"names scan_x6_y4\.raw, which is not beside it"):
                load(path)


def ome(path, other):
    """Ten pages by its metadata, of which nine lie in another file."""
    blocks = "".join(
        f'<TiffData FirstT="{t}" FirstC="0" FirstZ="0" IFD="{max(0, t - 1)}" PlaneCount="1"><UUID '
        f'FileName="{path.name if t == 0 else other}">urn:uuid:{0 if t == 0 else 1:032d}</UUID></TiffData>'
        for t in range(10)
    )
    text = (
        '<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" '
        f'UUID="urn:uuid:{0:032d}"><Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" '
        f'SizeX="16" SizeY="16" SizeZ="1" SizeC="1" SizeT="10"><Channel ID="Channel:0:0"/>{blocks}'
        "</Pixels></Image></OME>"
    )
    tifffile.imwrite(path, np.full((4, 16, 16), 3, "u2"), description=text, metadata=None, photometric="minisblack")


def ndtiff(path, other):
    """Four pages, and an index beside them that has ten in another file."""
    words = struct.pack("<5I", 483729, 3, 0, 2355492, 2) + b"{}"
    data = words.ljust(32) + b'{"a": 1}'.ljust(24)
    for number in range(4):
        start = 8 + len(data)
        tags = {256: 16, 257: 16, 258: 16, 259: 1, 262: 1, 273: start + 126 + 4, 277: 1, 278: 16, 279: 512}
        entries = [struct.pack("<2H2I", tag, 4, 1, value) for tag, value in tags.items()]
        entries.append(struct.pack("<2H2I", 51123, 2, 8, 40))
        after = 0 if number == 3 else start + 130 + 512
        data += struct.pack("<H", 10) + b"".join(entries) + struct.pack("<I", after) + bytes(4)
        data += np.full(256, 3, "<u2").tobytes()
    path.write_bytes(b"II*\0" + struct.pack("<I", 64) + data)
    index = b""
    for number in range(10):
        axes = json.dumps({"time": number}).encode()
        index += struct.pack("<I", len(axes)) + axes + struct.pack("<I", len(other)) + other.encode()
        index += struct.pack("<IiiiiIii", 0, 16, 16, 1, 0, 0, 0, 0)
    path.with_name("NDTiff.index").write_bytes(index)


def test_pages_that_a_tiff_has_in_other_files_are_not_read(tmp_path):
    for other, write in itertools.product(["../secret.tif", "{above}/secret.tif", "beside.tif"], [ome, ndtiff]):
        with of_case((other, write), tmp_path) as home:
            (home / "inside").mkdir()
            for secret in (home / "secret.tif", home / "inside" / "beside.tif"):
                tifffile.imwrite(secret, np.full((10, 16, 16), 77, np.uint16), photometric="minisblack")
            path = home / "inside" / "scan.ome.tif"
            write(path, other.format(above=home))
            given = {"positions": np.indices((2, 2)).reshape(2, -1).T * 2e-10, **BEAM}
            np.testing.assert_array_equal(load(path, **given).counts(0, 4), 3)


def test_the_folders_of_a_policy(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "real").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b" / "real")
    assert LinkPolicy.around(tmp_path / "b" / "real").folders == (tmp_path / "b",)
    assert LinkPolicy.around(tmp_path / "a" / "link").folders == (tmp_path / "a", tmp_path / "b")
    assert LinkPolicy.around(tmp_path / "a").folders == (tmp_path / "a",)
    policy = LinkPolicy.around(tmp_path / "a" / "link")
    assert policy.check(tmp_path / "a" / "sub" / "gone", "x") == tmp_path / "a" / "sub" / "gone"
    with raises("file.link-not-allowed", tmp_path / "ab"):
        policy.check(tmp_path / "ab", "x")
