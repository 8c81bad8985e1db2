import itertools
import struct
import zlib

import h5py
import numpy as np
import pytest
import scipy.io

from ptynb.data.electrons import electron_voltage
from ptynb.io.load import find, load
from ptynb.settings.load_options import LoadOptions
from tests.io.cases import of_case, refused
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, VOLTAGE, agrees

BEAM = {"voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE)}
COUNT = ROWS * COLUMNS


def version_5(path, variables, compressed=True):
    scipy.io.savemat(path, variables, do_compression=compressed)


def version_73(path, variables):
    """As MATLAB writes: 512 bytes in front, axes in reverse, complex numbers as pairs, scalars 1 x 1, classes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        fill(file, variables)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + struct.pack("<HH", 0x0200, 0x4D49))


def fill(group, variables):
    for name, value in variables.items():
        if isinstance(value, dict):
            fill(group.create_group(name), value)
            continue
        reverse = np.atleast_2d(value).T
        if np.iscomplexobj(reverse):
            pairs = np.empty(reverse.shape, [("real", "f8"), ("imag", "f8")])
            pairs["real"], pairs["imag"] = reverse.real, reverse.imag
            reverse = pairs
        chunks = (1, *reverse.shape[1:]) if reverse.ndim > 2 else None
        stored = group.create_dataset(name, data=reverse, chunks=chunks, compression="gzip" if chunks else None)
        stored.attrs["MATLAB_class"] = np.bytes_({"f4": "single", "u2": "uint16"}.get(reverse.dtype.str[1:], "double"))


def version_6(path, variables):
    version_5(path, variables, compressed=False)


WRITERS = {"5": version_6, "7": version_5, "7.3": version_73}
LAYOUTS = {
    "a stack": ("dp", lambda patterns: patterns.reshape(COUNT, 32, 32).transpose(1, 2, 0)),
    "a raster": ("cbed", lambda patterns: patterns.transpose(2, 3, 0, 1)),
    "a stack from Python": ("dp", lambda patterns: patterns.reshape(COUNT, 32, 32)),
    "an array of any name": ("x", lambda patterns: patterns.transpose(2, 3, 0, 1)),
}


def test_patterns_and_positions_are_those_of_the_original(tmp_path, original):
    for version, layout in itertools.product(WRITERS, LAYOUTS):
        with of_case((version, layout), tmp_path) as home:
            name, turned = LAYOUTS[layout]
            WRITERS[version](home / "scan.mat", {name: turned(original.patterns), "ADU": 151.0})
            raster = {} if "raster" in layout or "any" in layout else {"raster": (ROWS, COLUMNS)}
            scan = load(home / "scan.mat", step=original.step, **BEAM, **raster)
            agrees(scan, original.scan)
            assert scan.frames.in_file == (version != "7" and layout != "a stack from Python")


def ptychoshelves(original, metres):
    """The fields of p that describe a scan, of electrons."""
    wavelength, distance = 1.5e-12, 0.05
    pixel = original.scan.pixel_size[0]
    p = {
        "z": distance,
        "ds": wavelength * distance / (32 * pixel),
        "positions_real": metres,
        "energy": electron_voltage(1.5e-12) / 1e3,
    }
    return {"dp": original.stack.transpose(1, 2, 0), "p": p}


def test_the_struct_p_describes_the_scan(tmp_path, original, metres):
    for version, beam in itertools.product(WRITERS, ["energy", "lambda"]):
        with of_case((version, beam), tmp_path) as home:
            variables = ptychoshelves(original, metres)
            if beam == "lambda":
                variables["p"] = {name: value for name, value in variables["p"].items() if name != "energy"} | {
                    "lambda": 1.5e-12
                }
            WRITERS[version](home / "scan.mat", variables)
            scan = load(home / "scan.mat")
            agrees(scan, original.scan)
            assert scan.geometry.wavelength == pytest.approx(1.5e-12, rel=1e-9)
            assert find(home / "scan.mat", LoadOptions()).places["positions"] == "p/positions_real"


def test_the_stage_moves_the_other_way_than_the_probe(tmp_path, original, metres):
    for version in WRITERS:
        with of_case(version, tmp_path) as home:
            stage = {"ppY": -metres[:, 0], "ppX": -metres[:, 1]}
            WRITERS[version](home / "scan.mat", {"dp": original.stack.transpose(1, 2, 0), **stage})
            agrees(load(home / "scan.mat", **BEAM), original.scan)


def test_positions_lie_beside_the_patterns_of_fold_slice(tmp_path, original, metres):
    with h5py.File(tmp_path / "data_roi0_dp.hdf5", "w") as file:
        file["dp"] = original.stack
    with h5py.File(tmp_path / "data_roi0_para.hdf5", "w") as file:
        file["ppY"], file["ppX"], file["lambda"] = -metres[:, 0], -metres[:, 1], 1.5e-10
    found = find(tmp_path / "data_roi0_dp.hdf5", LoadOptions())
    np.testing.assert_array_equal(found.positions, metres)
    assert found.wavelength == 1.5e-10
    agrees(load(tmp_path / "data_roi0_dp.hdf5", **BEAM), original.scan)


def test_a_probe_and_a_mask_are_found(tmp_path, original):
    for version in WRITERS:
        with of_case(version, tmp_path) as home:
            probe = np.arange(32 * 32).reshape(32, 32) * (1 + 2j)
            mask = np.ones((32, 32), np.uint8)
            mask[3, 5] = 0
            variables = {"dp": original.stack.transpose(1, 2, 0), "probe": probe, "mask": mask}
            WRITERS[version](home / "scan.mat", variables)
            scan = load(home / "scan.mat", raster=(ROWS, COLUMNS), step=original.step, **BEAM)
            np.testing.assert_array_equal(scan.probe, probe[None].astype(np.complex64))
            np.testing.assert_array_equal(scan.mask, mask == 1)


def test_an_oblong_pattern_is_told_by_the_number_of_positions(tmp_path, original, metres):
    patterns = original.stack[:, :, :24]
    for name, stored in {"python": patterns[:23], "matlab": patterns[:23].transpose(1, 2, 0)}.items():
        version_5(tmp_path / f"{name}.mat", {"dp": stored, "positions": metres[:23]})
        np.testing.assert_array_equal(load(tmp_path / f"{name}.mat", **BEAM).counts(0, 23), patterns[:23])


def element(name, shape, kind=7, data=b"", announced=None):
    """A variable of version 5, single precision."""

    def part(number, content):
        return struct.pack("<2I", number, len(content)) + content + bytes(-len(content) % 8)

    dimensions = struct.pack(f"<{len(shape)}i", *shape)
    inner = part(6, struct.pack("<2I", kind, 0)) + part(5, dimensions) + part(1, name) + part(7, data)
    return struct.pack("<2I", 14, len(inner) if announced is None else announced) + inner


def file_5(content):
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49) + content


def bomb():
    content = zlib.compress(element(b"dp", (2**14, 2**14, 4), announced=2**32 - 8))
    return file_5(struct.pack("<2I", 15, len(content)) + content)


def octets(made):
    return lambda path, variables: path.write_bytes(made)


def saved(writer=version_5, removed=(), **changed):
    def spoil(path, variables):
        kept = {name: value for name, value in variables.items() if name not in removed}
        writer(path, kept | changed)

    return spoil


def cut(writer):
    def spoil(path, variables):
        writer(path, variables)
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])

    return spoil


def damaged(path, variables):
    version_5(path, variables)
    content = bytearray(path.read_bytes())
    content[400:800] = bytes(400)
    path.write_bytes(content)


def far(path, variables):
    version_73(path, {"p": variables["p"]})
    with h5py.File(path, "r+") as file:
        file["dp"] = h5py.ExternalLink("/etc/gone.h5", "/dp")


def virtual(path, variables):
    """Patterns that lie in another file, by a virtual dataset."""
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["dp"] = variables["dp"].T
    version_73(path, {"p": variables["p"]})
    layout = h5py.VirtualLayout(variables["dp"].T.shape, "f4")
    layout[...] = h5py.VirtualSource("other.h5", "dp", variables["dp"].T.shape)
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("dp", layout)


BROKEN = {
    "patterns in another file": (virtual, "scan.missing-metadata"),
    "version 5 cut short": (cut(version_6), "file.damaged"),
    "version 7 cut short": (cut(version_5), "file.damaged"),
    "damaged": (damaged, "file.damaged"),
    "a bomb": (lambda path, variables: path.write_bytes(bomb()), "file.damaged"),
    "a header of 2**40": (octets(file_5(element(b"dp", (2**14, 2**14, 2**10)))), "file.damaged"),
    "negative sides": (octets(file_5(element(b"dp", (-4, 8, 8)))), "file.damaged"),
    "no patterns": (saved(removed=["dp"]), "scan.missing-metadata"),
    "two arrays": (
        saved(removed=["dp"], a=np.ones((8, 8, 3)), b=np.ones((8, 8, 3))),
        "file.several-choices",
        "patterns='a'",
    ),
    "complex of 7.3": (saved(version_73, dp=np.ones((32, 32, 24), complex)), "file.unexpected-content", "complex128"),
    "words": (saved(removed=["dp"], dp="patterns"), "scan.missing-metadata"),
    "cells": (saved(removed=["dp"], dp=np.array([np.ones(3), "a"], object)), "scan.missing-metadata"),
    "a stage of two lengths": (saved(removed=["p"], ppX=np.ones(24), ppY=np.ones(23)), "file.count-mismatch", "23"),
    "energy in eV": (saved(p={"energy": 0.01}), "scan.implausible-metadata", "10"),
    "patterns far away": (far, "scan.missing-metadata"),
}


def test_a_damaged_file_is_an_error_of_one_line(tmp_path, original, metres):
    for case, (spoil, *expected) in BROKEN.items():
        with of_case(case, tmp_path) as home:
            spoil(home / "scan.mat", ptychoshelves(original, metres))
            refused(home / "scan.mat", *expected)
