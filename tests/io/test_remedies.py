"""What the errors of readers tell to do is done, with the file as it was, and works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.io.reading import hdf5_reading as stored_patterns
from tests.io import layouts
from tests.io.cases import of_case
from tests.remedy_cases import Case, follow, hdf5

SIMULATED = pt.simulate(patterns=12, window=16, step=2, seed=3)
COUNTS = SIMULATED.counts(0, 12).astype(np.uint16)
METRES = SIMULATED.positions * SIMULATED.pixel_size
GEOMETRY = SIMULATED.geometry
BEAM, DISTANCE, PIXEL = ({name: getattr(GEOMETRY, name)} for name in ("wavelength", "distance", "detector_pixel"))
KNOWN: dict[str, Any] = BEAM | DISTANCE | PIXEL


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


def in_one_chunk(folder: Path, chunks: tuple[int, int, int] = (12, 16, 16)) -> Path:
    with h5py.File(folder / "scan.h5", "w") as file:
        file.create_dataset("data", data=COUNTS, chunks=chunks)
    return folder / "scan.h5"


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


FILES = {
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
