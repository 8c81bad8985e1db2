"""Files on two engines, each of which reads its own patterns, with the losses that their scan has in one.

One format of each kind of frames, and of each way from its arrays to them; the others are read in `tests/io`.
"""

import functools

import hdf5plugin
import numpy as np
import pytest

import ptynb as pt
from ptynb.data.patterns import PlacedFrames, StackedFrames
from tests.io import layouts
from tests.io.formats import test_empad, test_matlab, test_rosettasciio, test_tiff, test_zarr_store
from tests.io.formats.test_npy import named
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, SETTINGS, VOLTAGE, losses, oblong

BEAM = {"voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE)}


@functools.cache
def original():
    """Of few electrons, which fit into eight bits."""
    return oblong(32, photons=2e3)


def metres():
    return np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(original().step)


def of_matlab(version):
    return lambda path: test_matlab.WRITERS[version](path, {"cbed": original().patterns.transpose(2, 3, 0, 1)})


RASTER = ("raster", "step", "voltage", "angular_pixel")
"""What all of a file's lacks are."""
FORMATS = {
    "MATLAB 5": ("scan.mat", of_matlab("5"), ("step", "voltage", "angular_pixel")),
    "MATLAB 7": ("scan.mat", of_matlab("7"), ("step", "voltage", "angular_pixel")),
    "npy": ("scan.npy", lambda path: np.save(path, original().stack), RASTER),
    "npz, compressed": ("scan.npz", lambda path: np.savez_compressed(path, **named(original(), metres())), ()),
    "TIFF, compressed": ("scan.tif", lambda path: test_tiff.pages(path, original(), compression="zlib"), RASTER),
    "TIFF, a folder": ("scan", lambda path: test_tiff.folder(path, original()), RASTER),
    "zarr, an archive": ("scan.zarr.zip", lambda path: test_zarr_store.group(path, original(), metres()), ()),
    "MIB": ("scan.mib", lambda path: test_rosettasciio.mib(path, original()), RASTER),
    "DM4": ("scan.dm4", lambda path: test_rosettasciio.dm4(path, original()), RASTER),
}
"""Name of the file, who writes it, and what the user has to give."""
LAYOUTS = {
    "CXI": (layouts.cxidb, {}),
    "NXcxi_ptycho": (layouts.nxcxi, {}),
    "ptyd in many files": (layouts.ptyd, {"link": True}),
}


@pytest.fixture(scope="module")
def expected():
    return losses(original().scan)


@pytest.fixture(scope="module")
def simulated():
    return pt.simulate(patterns=36, window=32, seed=5)


@pytest.fixture(scope="module")
def expected_of_simulated(simulated):
    with pt.Reconstruction(plain(simulated), SETTINGS, device="cpu") as recon:
        return [epoch.loss for epoch in recon.run(3)]


def plain(simulated):
    """The patterns and positions alone, without a guess."""
    return pt.Scan.from_arrays(
        simulated.counts(0, len(simulated)), simulated.positions, geometry=simulated.geometry, name="arrays"
    )


def losses_on(cluster, scan):
    with pt.Reconstruction(scan, SETTINGS, cluster) as recon:
        return [epoch.loss for epoch in recon.run(3)]


@pytest.mark.parametrize("case", FORMATS)
def test_two_engines_reconstruct_from_the_file_what_one_does_from_arrays(cluster, tmp_path, expected, case):
    name, write, lacks = FORMATS[case]
    write(tmp_path / name)
    words = {**BEAM, "raster": (ROWS, COLUMNS), "step": original().step}
    scan = pt.load(tmp_path / name, **{word: words[word] for word in lacks})
    assert losses_on(cluster, scan) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("case", LAYOUTS)
def test_two_engines_reconstruct_from_layouts_of_hdf5(cluster, tmp_path, simulated, expected_of_simulated, case):
    write, how = LAYOUTS[case]
    scan = pt.load(write(tmp_path / "scan.h5", simulated, **how))
    assert losses_on(cluster, scan) == pytest.approx(expected_of_simulated, rel=1e-3 if scan.mask is not None else 1e-4)


def test_two_engines_read_their_own_patterns_of_an_empad_file(cluster, tmp_path):
    large = oblong(128)
    scan = pt.load(test_empad.write(tmp_path, large), step=large.step)
    assert isinstance(scan.frames, PlacedFrames)
    assert losses_on(cluster, scan) == pytest.approx(losses(large.scan), rel=1e-4)


def test_two_engines_read_their_own_patterns_through_the_links_of_an_eiger_file(
    cluster, tmp_path, simulated, expected_of_simulated
):
    path = layouts.eiger(tmp_path / "scan_master.h5", simulated, files=5, how=hdf5plugin.Bitshuffle())
    scan = pt.load(path, positions=layouts.truth(simulated)[1])
    assert isinstance(scan.frames, StackedFrames)
    assert losses_on(cluster, scan) == pytest.approx(expected_of_simulated, rel=1e-4)
