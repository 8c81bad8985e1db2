import dataclasses
import io
import json

import h5py
import numpy as np
import pytest
import tifffile
from PIL import Image

from ptynb.data import images
from ptynb.io.export import export, pyramid_export
from ptynb.io.formats.cxi import on_detector
from ptynb.io.reading import large_array
from tests.io.cases import of_case
from tests.io.results import BARE, FULL, complex_array
from tests.raising import raises

FAR = dataclasses.replace(FULL.scan, is_far_field=True, geometry={})
FLAT = dataclasses.replace(FULL, scan=FAR)
THICK = dataclasses.replace(FLAT, object=complex_array(3, 30, 33))


@pytest.fixture(params=[100, images.BAND])
def _band(request, monkeypatch):
    """In several bands of rows, and in one."""
    monkeypatch.setattr(images, "BAND", request.param)


@pytest.mark.usefixtures("_band")
def test_a_tiff_has_amplitude_and_phase_of_every_slice(tmp_path):
    path = export(THICK, tmp_path / "a.tif")
    with tifffile.TiffFile(path) as file:
        assert file.is_imagej
        series = file.series[0]
        assert (series.axes, series.shape) == ("ZCYX", (3, 2, 30, 33))
        pages = series.asarray()
        assert pages.dtype == np.float32
        np.testing.assert_allclose(pages[:, 0], np.abs(THICK.object), rtol=1e-6)
        np.testing.assert_allclose(pages[:, 1], np.angle(THICK.object), rtol=1e-5)
        tags = file.pages[0].tags
        assert tags["ResolutionUnit"].value == tifffile.RESUNIT.CENTIMETER
        for name, size in (("YResolution", 1.25e-8), ("XResolution", 2.5e-8)):
            over, under = tags[name].value
            assert 0.01 * under / over == pytest.approx(size, rel=1e-6)
        about = file.imagej_metadata
        assert about["unit"] == "cm"
        assert about["spacing"] == pytest.approx(2e-7)
        assert about["Labels"][:2] == ["amplitude, slice 1", "phase [rad], slice 1"]
        assert "1.25e-08 m, 2.5e-08 m" in about["Info"]


def test_an_ome_tiff_has_levels_of_block_means(tmp_path, monkeypatch):
    """Odd sides, several tiles a row, and levels that are put together in files as those of large objects are."""
    monkeypatch.setattr(pyramid_export, "TILE", 16)
    monkeypatch.setattr(large_array, "LARGE_BYTES", 0)
    monkeypatch.setattr(images, "BAND", 150)
    large = dataclasses.replace(FLAT, object=complex_array(2, 75, 50), title="分 \0 title")
    path = export(large, tmp_path / "a.ome.tif")
    assert [one.name for one in tmp_path.iterdir()] == ["a.ome.tif"]
    with tifffile.TiffFile(path) as file:
        assert file.is_bigtiff
        assert file.is_ome
        (series,) = file.series
        assert series.axes == "CZYX"
        assert [level.shape for level in series.levels] == [
            (2, 2, 75, 50),
            (2, 2, 37, 25),
            (2, 2, 18, 12),
            (2, 2, 9, 6),
        ]
        for number, level in enumerate(series.levels):
            assert level.keyframe.tile == (16, 16)
            side, (_, _, height, width) = 2**number, level.shape
            blocks = large.object[:, : height * side, : width * side].reshape(2, height, side, width, side)
            means, pages = blocks.mean((2, 4), dtype=np.complex128), level.asarray()
            assert pages.dtype == np.float32
            np.testing.assert_allclose(pages[0], np.abs(means), rtol=1e-4)
            np.testing.assert_allclose(pages[1] * np.abs(means), np.angle(means) * np.abs(means), atol=1e-5)
        about = tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]
    sizes = {axis: about["Pixels"][f"PhysicalSize{axis}"] for axis in "XY"}
    assert sizes == {"X": pytest.approx(25), "Y": pytest.approx(12.5)}
    assert {about["Pixels"][f"PhysicalSize{axis}Unit"] for axis in "XY"} == {"nm"}
    assert [one["Name"] for one in about["Pixels"]["Channel"]] == ["amplitude", "phase [rad]"]
    assert "title" in about["Name"]


def test_an_ome_tiff_of_one_thing(tmp_path):
    modes = tifffile.imread(export(FLAT, tmp_path / "a.ome.tiff", of="probe", what="amplitude"))
    np.testing.assert_allclose(modes.squeeze(), np.abs(FLAT.probe), rtol=1e-6)
    assert tifffile.imread(export(BARE, tmp_path / "b.OME.TIF", what="phase")).shape[-2:] == (30, 33)


def test_a_tiff_of_one_thing_opens_as_a_plain_picture(tmp_path):
    path = export(FLAT, tmp_path / "a.tiff", what="phase")
    np.testing.assert_allclose(tifffile.imread(path), np.angle(FLAT.object), rtol=1e-5)
    np.testing.assert_allclose(np.array(Image.open(path)), np.angle(FLAT.object), rtol=1e-5)
    modes = tifffile.imread(export(FLAT, tmp_path / "b.tif", of="probe", what="amplitude"))
    np.testing.assert_allclose(modes, np.abs(FLAT.probe), rtol=1e-6)
    assert tifffile.imread(export(BARE, tmp_path / "c.tif")).shape == (2, 30, 33)


@pytest.mark.usefixtures("_band")
def test_a_png_says_what_its_greys_stand_for(tmp_path):
    for bits, top in ((8, 255), (16, 65535)):
        with Image.open(export(FLAT, tmp_path / "a.png", what="amplitude", bits=bits)) as picture:
            pixels, about = np.array(picture).astype(float), json.loads(picture.text["values"])
            assert picture.size == (33, 30)
            assert picture.info["dpi"] == pytest.approx((0.0254 / 2.5e-8, 0.0254 / 1.25e-8), rel=1e-6)
        values = about["black"] + pixels / top * (about["white"] - about["black"])
        wanted = np.clip(np.abs(FLAT.object), about["black"], about["white"])
        np.testing.assert_allclose(values, wanted, atol=1.01 * (about["white"] - about["black"]) / top)


@pytest.mark.usefixtures("_band")
def test_a_png_of_the_phase_is_without_its_ramp(tmp_path):
    y, x = np.mgrid[:40, :50]
    flat = dataclasses.replace(FLAT, object=np.exp(1j * (0.03 * x - 0.05 * y + 0.1 * np.sin(x))).astype(np.complex64))
    with Image.open(export(flat, tmp_path / "a.png", bits=16)) as picture:
        about, pixels = json.loads(picture.text["values"]), np.array(picture)
    assert -0.15 < about["black"] < -0.05
    assert 0.05 < about["white"] < 0.15
    assert about["unit"] == "rad"
    phases, (low, high) = images.flat_phase(flat.object), (about["black"], about["white"])
    assert (low, high) == pytest.approx(images.limits_of(phases, 0.1, 99.9), abs=1e-5)
    np.testing.assert_allclose(low + pixels / 65535 * (high - low), np.clip(phases, low, high), atol=1e-4)


@pytest.mark.usefixtures("_band")
def test_a_png_in_colours(tmp_path):
    with Image.open(export(FLAT, tmp_path / "a.png", what="complex", of="probe", slice=1)) as picture:
        np.testing.assert_array_equal(np.array(picture), images.complex_colours(FLAT.probe[1]))
    with Image.open(export(THICK, tmp_path / "b.png", what="complex")) as picture:
        np.testing.assert_array_equal(np.array(picture), images.complex_colours(THICK.object.prod(0)))
    with Image.open(export(FLAT, tmp_path / "c.png", colours="viridis")) as picture:
        assert np.array(picture).shape == (30, 33, 3)


def test_a_npz_needs_no_pickle(tmp_path):
    with np.load(export(FULL, tmp_path / "a.npz"), allow_pickle=False) as file:
        for name in ("object", "probe", "positions", "losses"):
            np.testing.assert_array_equal(file[name], getattr(FULL, name))
        assert file["pixel_size"].tolist() == [1.25e-8, 2.5e-8]
        np.testing.assert_array_equal(file["optimised/weights/weights"], np.arange(3.0))
        record = json.loads(str(file["record"]))
        assert record["settings"] == FULL.settings
        assert record["scan"]["name"] == FULL.scan.name
        assert record["comments"] == FULL.comments
    with np.load(export(BARE, tmp_path / "b.npz"), allow_pickle=False) as file:
        assert np.isnan(file["pixel_size"]).all()


def test_a_cxi_has_images_and_geometry_in_si_units(tmp_path):
    with h5py.File(export(FLAT, tmp_path / "a.cxi"), "r") as file:
        assert file["cxi_version"][()] == 150
        entry = file["entry_1"]
        np.testing.assert_array_equal(entry["image_1/data"][()], FLAT.object)
        np.testing.assert_array_equal(entry["image_2/data"][()], FLAT.probe)
        np.testing.assert_allclose(entry["image_1/image_size"][()], [33 * 2.5e-8, 30 * 1.25e-8, 0])
        np.testing.assert_array_equal(entry["data_1/data"][()], FLAT.object)
        # hc / λ in joules, from the exact constants of the SI
        assert entry["instrument_1/source_1/energy"][()] == pytest.approx(6.62607015e-34 * 299792458 / 1.5e-10)
        detector = entry["instrument_1/detector_1"]
        assert [detector[name][()] for name in ("distance", "y_pixel_size", "x_pixel_size")] == [2.0, 75e-6, 55e-6]
        back = on_detector(entry["sample_1/geometry_1/translation"][()], detector["basis_vectors"][()])
        np.testing.assert_allclose(back, FLAT.positions * FLAT.pixel_size, rtol=1e-12)
    electrons = dataclasses.replace(FLAT, scan=dataclasses.replace(FAR, wavelength=2e-12))
    with h5py.File(export(electrons, tmp_path / "b.cxi"), "r") as file:
        assert [*file["entry_1/instrument_1/source_1"]] == ["wavelength"]
    with h5py.File(export(BARE, tmp_path / "c.cxi"), "r") as file:
        assert "sample_1" not in file["entry_1"]


VALUE = "argument.invalid-value"
INVALID = {
    "another ending": ({"path": "a.jpg"}, "file.unknown-format", "'.jpg'", ".cxi"),
    "no folder": ({"path": "none/a.tif"}, "file.not-writable", "none"),
    "a missing slice": ({"path": "a.tif", "slice": 3}, VALUE, "slice is 3", "object has 3"),
    "a complex OME-TIFF": ({"path": "a.ome.tif", "what": "complex"}, "argument.conflict", "'amplitude'"),
    "a complex TIFF": ({"path": "a.tif", "what": "complex"}, "argument.conflict", "'amplitude'"),
    "something else": ({"path": "a.png", "of": "sample"}, VALUE, "'sample'", "'probe'"),
    "16 bits in colours": ({"path": "a.png", "bits": 16, "colours": "viridis"}, "argument.conflict", "16", "viridis"),
}


def test_invalid_arguments_are_errors_and_leave_no_file(tmp_path):
    for name, (arguments, code, *facts) in INVALID.items():
        with of_case(name, tmp_path) as home:
            others = {key: value for key, value in arguments.items() if key != "path"}
            with raises(code, *facts) as caught:
                export(THICK, home / arguments["path"], **others)
            assert "\n" not in str(caught.value)
            assert list(home.iterdir()) == []


def test_more_than_a_tiff_can_hold_is_an_error(tmp_path):
    huge = dataclasses.replace(THICK, object=np.broadcast_to(np.complex64(1), (40, 4096, 4096)))
    with raises("export.too-large", "4 GB", "5 GB"):
        export(huge, tmp_path / "a.tif")


def test_hostile_words_are_exported_too(tmp_path):
    odd = dataclasses.replace(FLAT, title="\0\udcff </script> 🔬", scan=dataclasses.replace(FAR, name="a\nb\0\udcff"))
    for ending in (".cxi", ".tif", ".ome.tif", ".png", ".npz"):
        assert export(odd, tmp_path / f"a{ending}").stat().st_size > 1000


def test_an_old_file_stays_where_writing_fails(tmp_path):
    path = export(FLAT, tmp_path / "a.npz")
    before = path.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        export(dataclasses.replace(FLAT, settings={"a": object()}), path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]
    assert io.BytesIO(before).read(2) == b"PK"
