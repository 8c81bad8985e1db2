"""What the errors of readers tell to do is done, with the file as it was, and works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb import preparation
from ptynb.io.reading import hdf5_reading as stored_patterns
from tests.io import layouts
from tests.io.cases import of_case
from tests.raising import raises
from tests.remedy_cases import Case, follow, hdf5

SIMULATED = pt.simulate(patterns=12, window=16, step=2, seed=3)
COUNTS = SIMULATED.counts(0, 12).astype(np.uint16)
METRES = SIMULATED.positions * SIMULATED.pixel_size
GEOMETRY = SIMULATED.geometry
BEAM, DISTANCE, PIXEL = ({name: getattr(GEOMETRY, name)} for name in ("wavelength", "distance", "detector_pixel"))
KNOWN: dict[str, Any] = BEAM | DISTANCE | PIXEL


def npz(folder: Path, **values: Any) -> Path:
    """A whole scan, but for these values."""
    np.savez(folder / "scan.npz", **{"patterns": COUNTS, "positions": METRES, **KNOWN, **values})
    return folder / "scan.npz"


def soft(folder: Path) -> Path:
    """Two names that are links to each other, and the patterns."""
    path = hdf5(folder, real=COUNTS)
    with h5py.File(path, "r+") as file:
        file["one"], file["other"] = h5py.SoftLink("/other"), h5py.SoftLink("/one")
    return path


def motors(folder: Path) -> Path:
    """One of the sample's motors has lost a place."""
    path = layouts.nexus_motors(folder / "scan.nxs", SIMULATED)
    with h5py.File(path, "r+") as file:
        motor = file["scan/sample/transformations/x"]
        values, kept = motor[:-1], dict(motor.attrs)
        del file["scan/sample/transformations/x"]
        file["scan/sample/transformations/x"] = values
        file["scan/sample/transformations/x"].attrs.update(kept)
    return path


def two_pages(folder: Path) -> Path:
    """A folder of files in which the last one has another shape."""
    import tifffile

    (folder / "pages").mkdir(exist_ok=True)
    for number in range(12):
        tifffile.imwrite(folder / "pages" / f"{number:02d}.tif", COUNTS[number])
    tifffile.imwrite(folder / "pages" / "99.tif", COUNTS[0, :8])
    return folder / "pages"


def in_one_chunk(folder: Path, chunks: tuple[int, int, int] = (12, 16, 16)) -> Path:
    with h5py.File(folder / "scan.h5", "w") as file:
        file.create_dataset("data", data=COUNTS, chunks=chunks)
    return folder / "scan.h5"


def in_electronvolts(folder: Path) -> Path:
    """A photon energy that was in keV and is said to be in eV."""
    path = hdf5(folder, data=COUNTS, positions=METRES, energy=GEOMETRY.energy / 1e3)
    with h5py.File(path, "r+") as file:
        file["energy"].attrs["units"] = "eV"
    return path


def read_with_h5py(path: Path) -> pt.Scan:
    with h5py.File(path) as file:
        patterns = file["data"][()].reshape(12, 16, 16)
    return pt.Scan.from_arrays(patterns, SIMULATED.positions, geometry=GEOMETRY)


def like_the_original(scan: pt.Scan) -> None:
    np.testing.assert_array_equal(scan.counts(0, len(scan)), COUNTS)
    moved = scan.positions - scan.positions[0]
    np.testing.assert_allclose(moved, SIMULATED.positions - SIMULATED.positions[0], atol=1e-5)
    assert scan.geometry is not None
    assert scan.geometry.wavelength == pytest.approx(GEOMETRY.wavelength)


UNITS = {
    "a distance of 600 m": ({"distance": 600.0}, "give distance= [m]", (DISTANCE,)),
    "a detector's pixel of 1 nm": ({"detector_pixel": 1e-9}, "give detector_pixel=(y, x) [m]", (PIXEL,)),
    "a detector wider than its distance": (
        {"detector_pixel": 5e-3, "distance": 0.01},
        "give distance= [m] or detector_pixel=(y, x) [m]",
        (DISTANCE | PIXEL,),
    ),
    "positions in millimetres": (
        {"positions": METRES * 1e3},
        "they would fit if they were in millimetres: give positions=array (pattern, yx) [m]",
        ({"positions": METRES}, {"positions": SIMULATED.positions, "units": "pixels"}),
    ),
}


def test_numbers_that_are_given_take_the_place_of_those_in_the_file(tmp_path: Path) -> None:
    for case, (wrong, told, ways) in UNITS.items():
        with of_case(case, tmp_path) as home:
            path = npz(home, **wrong)
            for way in ways:
                follow(
                    Case(
                        lambda _, path=path: pt.load(path),
                        told,
                        lambda *_, path=path, way=way: like_the_original(pt.load(path, **way)),
                    ),
                    home,
                )


FILES = {
    "a photon energy in keV": Case(
        lambda folder: pt.load(in_electronvolts(folder), positions=METRES, **DISTANCE, **PIXEL),
        "keV taken as eV; give energy=",
        lambda folder, told: pt.load(
            folder / "scan.h5",
            positions=METRES,
            energy=float(re.search(r"give energy=([\d.e+]+) \[eV\], or", told)[1]),
            **DISTANCE,
            **PIXEL,
        ),
    ),
    "a name that is not there": Case(
        lambda folder: pt.load(hdf5(folder, entry__data=COUNTS), patterns="entry/date", positions=METRES, **KNOWN),
        "; name a dataset: patterns='entry/data/data'",
        lambda folder, _: pt.load(folder / "scan.h5", patterns="entry/data", positions=METRES, **KNOWN),
    ),
    "links in a circle": Case(
        lambda folder: pt.load(soft(folder), patterns="one", positions=METRES, **KNOWN),
        "Name the dataset itself: patterns=",
        lambda folder, _: pt.load(soft(folder), patterns="real", positions=METRES, **KNOWN),
    ),
    "no patterns by their shape": Case(
        lambda folder: pt.load(hdf5(folder, note=np.arange(3.0), data=COUNTS.reshape(12, -1))),
        "or read the arrays with h5py and use Scan.from_arrays",
        lambda folder, _: read_with_h5py(folder / "scan.h5"),
    ),
    "a motor without all its places": Case(
        lambda folder: pt.load(motors(folder)),
        "Give positions=array (pattern, yx) [m]",
        lambda folder, _: pt.load(motors(folder), positions=METRES),
    ),
    "positions that are nowhere": Case(
        lambda folder: pt.load(hdf5(folder, data=COUNTS, places=METRES), positions="place", **KNOWN),
        "which is neither a dataset of",
        lambda folder, _: pt.load(folder / "scan.h5", positions="places", **KNOWN),
    ),
    "a page of another shape": Case(
        lambda folder: pt.load(two_pages(folder), positions=METRES, **KNOWN),
        "99.tif has a pattern of shape (8, 16)",
        lambda folder, _: (
            (folder / "pages" / "99.tif").unlink(),
            pt.load(folder / "pages", positions=METRES, **KNOWN),
        )[1],
    ),
}


def test_what_a_reader_says_helps(tmp_path: Path) -> None:
    for case in FILES:
        with of_case(case, tmp_path) as home:
            like_the_original(follow(FILES[case], home))


def test_patterns_are_written_in_chunks_of_a_few_as_the_message_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_patterns, "MOST_CHUNK", 4 * COUNTS[0].nbytes)
    case = Case(
        lambda folder: pt.load(in_one_chunk(folder), positions=METRES, **KNOWN),
        "Write it in chunks of a few patterns",
        lambda folder, _: pt.load(in_one_chunk(folder, (4, 16, 16)), positions=METRES, **KNOWN),
    )
    like_the_original(follow(case, tmp_path))


@pytest.mark.filterwarnings("ignore::ptynb.io.initial_guess.imported_guess.InitialGuessWarning")
def test_a_guess_in_another_window_is_used_as_the_message_says() -> None:
    whole = pt.simulate(patterns=12, window=24, step=2, seed=3)
    truth = whole.ground_truth
    result = pt.Result(truth.object, truth.probe, whole.positions, (0, 0), r_factor=0.1, pixel_size=whole.pixel_size)
    bare = pt.Scan.from_arrays(COUNTS, SIMULATED.positions)
    remedy = "give the scan a geometry, or crop or bin it to that window"
    with raises("guess.window-mismatch", remedy):
        pt.load_initial_guess(bare, result)
    same = pt.Geometry(
        wavelength=GEOMETRY.wavelength,
        distance=GEOMETRY.distance,
        detector_pixel=tuple(GEOMETRY.wavelength * GEOMETRY.distance / (16 * size) for size in whole.pixel_size),
    )
    known = pt.Scan.from_arrays(COUNTS, SIMULATED.positions, geometry=same)
    assert pt.load_initial_guess(known, result).probe.shape[-2:] == (16, 16)
    wide = pt.simulate(patterns=12, window=32, step=2, seed=3)
    unknown = pt.Scan.from_arrays(wide.counts(0, 12), wide.positions)
    with raises("guess.window-mismatch", remedy):
        pt.load_initial_guess(unknown, result)
    assert pt.load_initial_guess(preparation.crop(unknown, 24), result).probe.shape[-2:] == (24, 24)
