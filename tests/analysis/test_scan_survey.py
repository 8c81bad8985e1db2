import dataclasses
import tracemalloc

import h5py
import numpy as np
import pytest

from ptynb import analysis, preparation
from ptynb.analysis import scan_survey as module
from ptynb.analysis.scan_survey import SAMPLE, Surveyor, bright_radius, survey
from ptynb.data.patterns import ArrayFrames, HDF5Frames
from ptynb.data.scan import Scan
from ptynb.simulation.simulated_scan import simulate
from tests.analysis.scans import made
from tests.parametrization import each
from tests.raising import raises

SCAN = simulate(patterns=60, window=32, seed=2)
COUNTS = SCAN.counts(0, len(SCAN)).astype(np.float64)
MASK = np.ones(SCAN.pattern_shape, bool)
MASK[3:9, 20:24] = False


@pytest.fixture
def small_portions(monkeypatch):
    monkeypatch.setattr(module, "PORTION", 7 * 32 * 32)


@pytest.mark.usefixtures("small_portions")
@each("mask", [None, MASK])
@each("order", ["centred", "fft"])
def test_portions_add_up_to_what_numpy_finds_in_all_patterns(mask, order):
    turned = (lambda field: np.fft.ifftshift(field, axes=(-2, -1))) if order == "fft" else (lambda field: field)
    scan = Scan.from_arrays(turned(COUNTS), SCAN.positions, order=order, mask=None if mask is None else turned(mask))
    seen = survey(scan)
    assert seen.complete
    assert seen.patterns == 60
    np.testing.assert_allclose(seen.mean, turned(COUNTS).mean(0), rtol=1e-12)
    np.testing.assert_allclose(seen.variance, turned(COUNTS).var(0), rtol=1e-9)
    np.testing.assert_array_equal(seen.maximum, turned(COUNTS).max(0))
    good = COUNTS if mask is None else np.where(mask, COUNTS, 0)
    np.testing.assert_allclose(seen.sums, good.sum((1, 2)))
    np.testing.assert_array_equal(seen.brightest, good.max((1, 2)))
    np.testing.assert_array_equal(seen.at_brightest, (good == good.max((1, 2), keepdims=True)).sum((1, 2)))
    np.testing.assert_allclose(seen.moments, preparation.centre_of_mass(scan), atol=1e-12)
    # Rings are about the first patterns' centre of mass, which every pixel has some distance from.
    np.testing.assert_allclose(seen.annulus(), seen.sums, rtol=1e-6)
    y, x = np.meshgrid(*(np.arange(32) - 16.0,) * 2, indexing="ij")
    inside = np.hypot(y - seen.centre[0], x - seen.centre[1]) < 5 * seen.ring_width
    np.testing.assert_allclose(seen.annulus(0, 5 * seen.ring_width), good[:, inside].sum(1), rtol=1e-6)
    np.testing.assert_allclose(seen.annulus(5 * seen.ring_width), good[:, ~inside].sum(1), rtol=1e-5, atol=1e-3)


@pytest.mark.usefixtures("small_portions")
def test_the_histogram_counts_octaves():
    values = np.zeros((3, 32, 32), np.uint16)
    values[0, 0, :6] = [1, 2, 3, 4, 7, 8]
    values[2, 5, 5] = 65535
    octaves = survey(Scan.from_arrays(values, SCAN.positions[:3])).octaves
    assert octaves[0] == values.size - 7
    # From 2^-20: [1, 2) is the 21st.
    assert octaves[21:25].tolist() == [1, 2, 2, 1]
    assert octaves[36] == 1
    assert octaves.sum() == values.size


def test_the_first_portions_are_a_sample_of_the_whole_scan():
    scan = made(20_000)
    surveyor = Surveyor(scan)
    while surveyor.in_sample:
        surveyor.advance()
    seen = surveyor.survey()
    assert seen.patterns == SAMPLE == sum(scan.frames.reads)
    where = np.flatnonzero(seen.covered)
    assert np.diff(where).max() < 2.1 * 20_000 / SAMPLE
    assert where[0] == 0
    assert where[-1] == 19_999
    assert survey(scan, 40).patterns == 40
    # Every pattern is read once at last.
    before = sum(scan.frames.reads)
    while surveyor.advance():
        pass
    assert surveyor.survey().complete
    assert sum(scan.frames.reads) - before == 20_000 - SAMPLE + 40 - 40
    assert max(scan.frames.reads) <= module.PORTION // 32**2


def test_later_portions_are_spread_as_well():
    surveyor = Surveyor(made(20_000), sample=8)
    for _ in range(5):
        surveyor.advance()
    # Four portions of ten, beside the sample: in every third of the scan there is one.
    thirds = np.array_split(surveyor.survey().covered, 3)
    assert min(int(third.sum()) for third in thirds) > 1000


def test_a_survey_of_a_huge_file_needs_little_memory(tmp_path):
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as file:
        # Unwritten chunks take no room, and are read as zeros.
        patterns = file.create_dataset("patterns", (200_000, 256, 256), np.uint16, chunks=(1, 256, 256))
        patterns[1234] = 3
        frames = HDF5Frames.of(patterns)
    side = np.arange(200_000.0)
    scan = Scan(frames=frames, positions=np.stack(np.divmod(side, 448), axis=1))
    tracemalloc.start()
    seen = survey(scan, 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen.patterns == 64
    assert peak < 300e6  # 26 GB of patterns; 48 rings of 200,000 patterns twice, and a portion
    assert path.stat().st_size < 5e6


def test_patterns_stored_together_are_read_together(tmp_path):
    with h5py.File(tmp_path / "chunks.h5", "w") as file:
        frames = HDF5Frames.of(file.create_dataset("p", data=np.zeros((1000, 16, 16)), chunks=(20, 16, 16)))
    surveyor = Surveyor(Scan(frames=frames, positions=np.stack(np.divmod(np.arange(1000.0), 32), axis=1)), sample=100)
    while surveyor.in_sample:
        surveyor.advance()
    chunks = surveyor.survey().covered.reshape(-1, 20)
    assert (chunks.all(1) == chunks.any(1)).all()
    assert chunks.any(1).sum() == 8


def test_counts_that_are_no_counts_are_noted_and_no_error():
    patterns = COUNTS.copy()
    patterns[4, 2, 2] = np.nan
    patterns[9, 5, 5] = -3
    scan = dataclasses.replace(SCAN, frames=ArrayFrames.of(patterns))
    seen = survey(scan)
    assert np.flatnonzero(seen.infinite).tolist() == [4]
    assert np.flatnonzero(seen.negative).tolist() == [9]
    assert np.argwhere(~seen.finite).tolist() == [[2, 2]]
    assert all(np.isfinite(field).all() for field in (seen.mean, seen.variance, seen.maximum, seen.sums))


def test_the_bright_field_is_told_from_the_dark():
    patterns = np.full((20, 64, 64), 2.0)
    y, x = np.meshgrid(*(np.arange(64) - 32.0,) * 2, indexing="ij")
    patterns[:, np.hypot(y, x) < 11] = 100
    seen = survey(Scan.from_arrays(patterns, SCAN.positions[:20]))
    assert abs(bright_radius(seen) - 11) <= seen.ring_width


def test_what_can_not_be_surveyed_is_refused():
    with raises("argument.invalid-value", "patterns is 0"):
        analysis.survey(SCAN, 0)
    with raises("argument.invalid-value", "from 5 to 5"):
        survey(SCAN).annulus(5, 5)
