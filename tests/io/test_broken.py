"""Broken files of the HDF5 family: one sentence each that says what, where and what to do; never a crash."""

import h5py
import numpy as np
import pytest

from ptynb.io.load import load
from ptynb.simulation.simulated_scan import simulate
from tests.io import layouts
from tests.io.cases import of_case, refused, turns
from tests.raising import raises

WRITERS = {
    "CXI": layouts.cxidb,
    "NXcxi_ptycho": layouts.nxcxi,
    "NeXus": layouts.nexus_motors,
    "plain": layouts.plain,
    "ptyd": layouts.ptyd,
    "Eiger": layouts.eiger,
}
PATTERNS = {
    "CXI": "entry_1/instrument_1/detector_1/data",
    "NXcxi_ptycho": "entry_1/instrument_1/detector_1/data",
    "NeXus": "scan/instrument/merlin/data",
    "plain": "measurement/frames",
    "ptyd": "chunks/0/data",
    "Eiger": "entry/data/data_000001",
}
POSITIONS = {
    "CXI": "entry_1/sample_1/geometry_1/translation",
    "NXcxi_ptycho": "entry_1/instrument_1/detector_1/translation",
    "NeXus": "scan/sample/transformations/x",
    "plain": "scan/positions_um",
    "ptyd": "chunks/0/positions",
}
DISTANCE = {
    "CXI": "entry_1/instrument_1/detector_1/distance",
    "NXcxi_ptycho": "entry_1/instrument_1/detector_1/distance",
    "NeXus": "scan/instrument/merlin/distance",
    "ptyd": "meta/distance",
    "Eiger": "entry/instrument/detector/detector_distance",
}
COUNT, SIDE = 20, 16


@pytest.fixture(scope="module")
def simulated():
    return simulate(COUNT, window=SIDE, seed=2)


def truncated(path, format):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])


def text(path, format):
    path.write_text("theta, counts\n1, 2\n" * 100)


def empty(path, format):
    path.write_bytes(b"")


def replaced(places, make, **how):
    """Puts another dataset in the place of one."""

    def spoil(path, format):
        with h5py.File(path, "r+") as file:
            name = places[format]
            old = file[name]
            values = make(old[()])
            attributes = dict(old.attrs)
            del file[name]
            made = file.create_dataset(name, **(values if isinstance(values, dict) else {"data": values}))
            made.attrs.update(attributes)

    return spoil


def without_patterns(path, format):
    with h5py.File(path, "r+") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if getattr(item, "ndim", 0) > 2 else None)
        for name in names:
            del file[name]
        if format == "Eiger":
            for name in list(file["entry/data"]):
                del file["entry/data"][name]


HUGE = {"shape": (2**30, 2**5, 2**5), "dtype": "u1", "chunks": (1, 32, 32)}
# what is done to the file, codes of the error, facts that it states, formats it is not done to
BROKEN = {
    "truncated": (truncated, "file.damaged", ["scan_master.h5"], ()),
    "text": (text, "file.unknown-format", ["scan_master.h5", "CXI", "zarr"], ()),
    "empty": (empty, "file.unknown-format", ["scan_master.h5"], ()),
    "no patterns": (without_patterns, "file.incomplete", ["scan_master.h5"], ()),
    "patterns of text": (
        replaced(PATTERNS, lambda counts: np.full(counts.shape, b"a")),
        "file.incomplete file.unexpected-content argument.invalid-type",
        [],
        ("Eiger",),
    ),
    "swapped axes": (
        replaced(PATTERNS, lambda counts: np.moveaxis(counts[:, :, :12], 0, -1)),
        "scan.missing-metadata file.count-mismatch array.shape-mismatch",
        ["positions"],
        ("Eiger", "ptyd"),
    ),
    "no pattern": (
        replaced(PATTERNS, lambda counts: counts[:0]),
        "file.incomplete file.count-mismatch array.shape-mismatch",
        [],
        ("Eiger",),
    ),
    "2**40 values, none stored": (
        replaced(PATTERNS, lambda counts: HUGE), "file.too-large", ["1073741824 patterns of 32 x 32"], ("Eiger",)
    ),
    "none stored": (
        replaced(PATTERNS, lambda counts: {"shape": counts.shape, "dtype": "u2", "chunks": (1, 16, 16)}),
        "file.incomplete",
        ["16, 16)", "stored"],
        ("Eiger",),
    ),
    "positions of another length": (
        replaced(POSITIONS, lambda positions: positions[:-1]),
        "scan.missing-metadata file.count-mismatch array.shape-mismatch",
        ["positions"],
        ("Eiger",),
    ),
    "NaN position": (
        replaced(POSITIONS, lambda positions: np.where(np.indices(positions.shape).sum(0) == 5, np.nan, positions)),
        "array.not-finite",
        ["Position ", "nan"],
        ("Eiger",),
    ),
    "a distance of a nanometre": (
        replaced(DISTANCE, lambda distance: np.asarray(distance) * 0.5e-9),
        "scan.implausible-metadata",
        ["1e-09 m", "distance)", "0.0001 to 500 m", "distance= [m]"],
        ("plain",),
    ),
    "a distance in mm taken as m": (
        replaced(DISTANCE, lambda distance: np.asarray(distance) * 1e3),
        "scan.implausible-metadata",
        ["2000 m", "distance)", "millimetres", "distance= [m]"],
        ("plain",),
    ),
    "an infinite distance": (
        replaced(DISTANCE, lambda distance: np.inf), "scan.implausible-metadata", ["distance", "inf m"], ("plain",)
    ),
    "distances that are none": (
        replaced(DISTANCE, lambda distance: b"far"), "scan.missing-metadata", ["the distance to the"], ("plain",)
    ),
}  # fmt: skip
CASES = [
    (case, format)
    for number, (case, (*_, not_for)) in enumerate(BROKEN.items())
    for format in turns(number, [format for format in WRITERS if format not in not_for])
]
"""Each kind of damage in two formats: all formats have their readers of patterns, positions and distances damaged."""


def test_a_broken_file_is_refused_with_one_sentence(tmp_path, simulated):
    for case, format in CASES:
        with of_case((case, format), tmp_path) as home:
            path = WRITERS[format](home / "scan_master.h5", simulated)
            given = {"raster": (4, 5), "step": (1.25e-7, 1.25e-7)} if format == "Eiger" else {}
            if format == "plain":
                with h5py.File(path, "r+") as file:
                    del file["measurement/dark"]
            load(path, **given)
            spoil, codes, facts, _ = BROKEN[case]
            spoil(path, format)
            refused(path, codes, *facts, **given)


def change(path, name, value, units=None):
    with h5py.File(path, "r+") as file:
        if name in file:
            del file[name]
        layouts.put(file, name, value, units)
    return path


DETECTOR, SOURCE = "entry_1/instrument_1/detector_1", "entry_1/instrument_1/source_1"
TRANSLATION = "entry_1/sample_1/geometry_1/translation"
# the dataset, how it is spoiled, facts that the error states, what puts it right
ABSURD = {
    "a wavelength in angstrom": (
        f"{SOURCE}/wavelength",
        lambda scan: scan.geometry.wavelength * 1e10,
        ["of 1.5 m", "micrometres or nanometres"],
        "wavelength",
    ),
    "keV stated as eV": (
        f"{SOURCE}/energy",
        lambda scan: (scan.geometry.energy / 1e3, "eV"),
        ["8.26561 eV", "source_1/energy)", "8.26561 keV", "energy=8265.61"],
        "energy",
    ),
    "positions in um": (
        TRANSLATION,
        lambda scan: layouts.of_sample(layouts.truth(scan)[1]) * 1e6,
        ["translation)", "16 x 16", "in micrometres"],
        "positions",
    ),
    "positions in pixels": (
        TRANSLATION,
        lambda scan: layouts.of_sample(scan.positions),
        ["object pixels apart", "units='pixels'"],
        "pixels",
    ),
}


def test_what_no_experiment_has_is_refused_and_the_remedy_named_works(tmp_path, simulated):
    for case, (name, spoil, facts, remedy) in ABSURD.items():
        with of_case(case, tmp_path) as home:
            path = layouts.cxidb(home / "scan.cxi", simulated)
            value = spoil(simulated)
            change(path, name, *(value if isinstance(value, tuple) else (value,)))
            refused(path, "scan.implausible-metadata", *facts)
            geometry = simulated.geometry
            remedies = {
                "wavelength": {"wavelength": geometry.wavelength},
                "energy": {"energy": geometry.energy},
                "detector_pixel": {"detector_pixel": geometry.detector_pixel},
                "positions": {"positions": layouts.truth(simulated)[1]},
                "pixels": {"positions": simulated.positions, "units": "pixels"},
            }
            np.testing.assert_allclose(load(path, **remedies[remedy]).positions, simulated.positions, atol=1e-9)


def test_a_number_in_a_unit_nobody_knows_is_asked_for(tmp_path, simulated):
    path = layouts.cxidb(tmp_path / "scan.cxi", simulated)
    change(path, f"{DETECTOR}/distance", 3.0, "furlong")
    with raises("scan.missing-metadata", "the distance to the detector", "load(..., distance="):
        load(path)
    assert load(path, distance=2.0).geometry.distance == 2.0


def test_several_datasets_that_may_be_the_patterns_are_named_and_one_can_be_chosen(tmp_path, simulated):
    path = layouts.plain(tmp_path / "scan.h5", simulated)
    with h5py.File(path, "r+") as file:
        file["other/frames"] = file["measurement/frames"][:12]
    with raises("file.several-choices", "measurement/frames 20 x 16 x 16", "other/frames 12 x 16 x 16", "patterns="):
        load(path)
    assert len(load(path, patterns="measurement/frames")) == 20
    with raises("file.incomplete", "nowhere", "patterns="):
        load(path, patterns="nowhere")


def test_energies_without_a_unit_are_guessed_and_told(tmp_path, simulated):
    path = layouts.plain(tmp_path / "scan.h5", simulated)
    for value, unit in ((8265.613, "eV"), (8.265613, "keV"), (8265.613 * 1.602176634e-19, "J")):
        change(path, "setup/photon_energy", value)
        assert load(path).geometry.energy == pytest.approx(8265.613, rel=1e-6)
        from ptynb.io.file_info import info

        assert any(f"without a unit; it is taken as {unit}" in remark for remark in info(path).notes)
