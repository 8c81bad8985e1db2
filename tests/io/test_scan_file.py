import dataclasses
import math
import tracemalloc

import h5py
import numpy as np
import pytest

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.io.load import load
from ptynb.io.scan_file import save_scan, write_scan
from ptynb.simulation.simulated_scan import simulate
from tests.io.cases import of_case
from tests.raising import raises

RANDOM = np.random.default_rng(5)
COUNT, WINDOW = 7, (8, 10)
POSITIONS = RANDOM.uniform(0, 6, (COUNT, 2))


def complex_array(*shape):
    return RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)


def full_scan():
    patterns = RANDOM.poisson(9, (COUNT, *WINDOW)).astype(np.int32)
    patterns[0, 3, 3] = -4
    return Scan.from_arrays(
        patterns,
        POSITIONS,
        order="fft",
        probe=complex_array(2, *WINDOW),
        object=complex_array(20, 22).astype(np.complex64),
        mask=RANDOM.uniform(size=WINDOW) > 0.2,
        geometry=Geometry(wavelength=1.1e-10, distance=3.3, detector_pixel=(55e-6, 75e-6)),
        clip_negative=True,
        motion=POSITIONS[::-1] / 3,
        name="all there is",
    )


def same(one, other):
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


def test_every_field_comes_back(tmp_path):
    scan = full_scan()
    save_scan(scan, tmp_path / "scan.h5")
    again = load(tmp_path / "scan.h5")
    assert same(again.frames.read(0, COUNT), scan.frames.read(0, COUNT))
    for name in ("positions", "motion", "mask", "probe", "object"):
        assert same(getattr(again, name), getattr(scan, name)), name
    for name in ("centred", "clip_negative", "geometry", "name", "ground_truth"):
        assert getattr(again, name) == getattr(scan, name), name


def test_simulating_into_a_file_is_simulating_in_memory(tmp_path):
    memory = simulate(9, window=16, modes=2, seed=4)
    file = simulate(9, window=16, modes=2, seed=4, path=tmp_path / "scan.h5")
    assert same(file.frames.read(0, 9), memory.frames.read(0, 9))
    for name in ("positions", "mask", "probe", "object"):
        assert same(getattr(file, name), getattr(memory, name)), name
    assert same(file.ground_truth.object, memory.ground_truth.object)
    assert same(file.ground_truth.probe, memory.ground_truth.probe)
    assert (file.geometry, file.name, file.centred) == (memory.geometry, memory.name, memory.centred)


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_simulated_file_is_streamed(tmp_path):
    whole = 1024 * 128 * 128 * 4
    peak = peak_of(lambda: simulate(1024, window=128, noise=False, path=tmp_path / "scan.h5"))
    assert (tmp_path / "scan.h5").stat().st_size > whole
    # Two chunks of 16.8 MB: the one being written and the one being made. In memory it takes twice the whole.
    assert peak < 0.6 * whole


def planned(*shape):
    return Scan(frames=AbsentFrames(shape, "<f4"), positions=np.zeros((shape[0], 2)))


def test_saving_holds_a_piece_at_a_time(tmp_path):
    scan = planned(1000, 128, 128)
    chunks = (np.full((20, 128, 128), number, np.float32) for number in range(50))
    peak = peak_of(lambda: write_scan(tmp_path / "a.h5", scan, chunks))
    assert peak < 0.1 * (tmp_path / "a.h5").stat().st_size
    scan = load(tmp_path / "a.h5")
    assert [int(scan.counts(n, n + 1).mean()) for n in (0, 19, 20, 999)] == [0, 0, 1, 49]


@pytest.mark.parametrize("name", ["patterns", "truth/probe", "@centred", "@version"])
def test_a_file_without_one_of_its_parts_is_refused(tmp_path, name):
    path = tmp_path / "scan.h5"
    simulate(5, window=16, path=path)
    with h5py.File(path, "r+") as file:
        del (file.attrs if name[0] == "@" else file)[name.removeprefix("@")]
    with raises("file.incomplete", path, name.removeprefix("@")):
        load(path)


def test_another_version_is_refused(tmp_path):
    for version in [2, "1.5"]:
        with of_case(version, tmp_path) as home:
            path = home / "scan.h5"
            save_scan(full_scan(), path)
            with h5py.File(path, "r+") as file:
                file.attrs["version"] = version
            with raises("file.unsupported-version", path, version, 1):
                load(path)


def test_metadata_for_a_file_that_knows_them_is_refused(tmp_path):
    for given, names in [({"energy": 1e4, "distance": 2.0}, "energy, distance"), ({"clip_negative": True}, "clip")]:
        with of_case(names, tmp_path) as home:
            simulate(5, window=16, path=home / "scan.h5")
            with raises("argument.conflict", home / "scan.h5", names):
                load(home / "scan.h5", **given)


def chunks_until_the_disk_is_full():
    yield np.ones((2, *WINDOW), np.float32)
    raise OSError("No space left on device")


def write_and_fail(path):
    write_scan(path, planned(COUNT, *WINDOW), chunks_until_the_disk_is_full())


def test_a_half_written_file_never_replaces_one(tmp_path):
    path = tmp_path / "scan.h5"
    save_scan(full_scan(), path)
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space left"):
        write_and_fail(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_too_few_patterns_are_an_error_and_no_file(tmp_path):
    with pytest.raises(AssertionError, match="fewer patterns"):
        write_scan(tmp_path / "scan.h5", planned(COUNT, *WINDOW), iter([np.ones((2, *WINDOW), np.float32)]))
    assert list(tmp_path.iterdir()) == []


def test_every_geometry_comes_back(tmp_path):
    for geometry in [
        NearField(wavelength=1e-10, focus_to_sample=0.01, sample_to_detector=2.0, detector_pixel=(1e-6, 2e-6)),
        NearField(wavelength=1e-10, focus_to_sample=math.inf, sample_to_detector=2.0, detector_pixel=(1e-6, 2e-6)),
        TiltedGeometry(
            wavelength=1e-9,
            detector_steps=((0.0, 1e-4, 0.0), (1e-4, 0.0, 0.0)),
            detector_centre=(0.0, 0.3, 0.4),
            beam=(0.0, 0.0, 1.0),
        ),
        TiltedGeometry(
            wavelength=1e-9,
            detector_steps=((0.0, 1e-4, 0.0), (1e-4, 0.0, 0.0)),
            detector_centre=(0.0, 0.0, 0.4),
            beam=(0.0, 0.0, 1.0),
            sample_normal=(0.0, 0.6, 0.8),
        ),
    ]:
        with of_case(geometry, tmp_path) as home:
            scan = dataclasses.replace(simulate(4, window=16), geometry=geometry)
            assert save_scan(scan, home / "scan.h5").geometry == geometry
