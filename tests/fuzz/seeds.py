"""Small whole files of every kind that is read, to be spoilt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import tifffile

import ptynb as pt
from ptynb.acquisition.emulators.simplon_players import SimplonPlayer
from ptynb.data.source_address import SOURCES
from ptynb.io.checkpoint_file import file_name, save_state
from tests.fuzz import messages
from tests.io import layouts, test_checkpoint_file
from tests.io.formats import test_cxi, test_emd, test_empad, test_matlab, test_rosettasciio, test_seq, test_zarr_store
from tests.io.initial_guess import problem as problems
from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, oblong
from tests.io.results import FULL

PIXELS = (4e-8, 4e-8)
GIVEN = {"energy": 8e3, "distance": 2.0, "detector_pixel": (5e-5, 5e-5)}
PLACED = {**GIVEN, "raster": (4, 6), "step": (2e-8, 2e-8)}


@dataclass(frozen=True)
class Seed:
    """write: makes it in a folder and says which path is read. reader: one of `worker.READERS`. given: words for it."""

    write: Callable[[Path], Path]
    reader: str = "load"
    given: dict[str, Any] = field(default_factory=dict)


def _native(folder):
    scan = pt.simulate(6, window=16)
    pt.save_scan(
        dataclasses.replace(scan, mask=np.ones((16, 16), bool), object=scan.ground_truth.object), folder / "scan.h5"
    )
    return folder / "scan.h5"


def _result(folder):
    return pt.save_result(dataclasses.replace(FULL, comments="# Notes"), folder / "result.h5")


def _state(folder):
    return save_state(test_checkpoint_file.a_state(), folder / file_name(3, 0))


def _settings(folder):
    path = folder / "settings.yaml"
    path.write_text(pt.Settings().to_yaml())
    return path


def _run_file(folder):
    path = folder / "run.yaml"
    scans = "scan: [a.h5, {file: b.h5, load: {energy: 8e3}, shift: [3, 4]}]\nshare: object\n"
    path.write_text(f"{scans}epochs: 3\nresult: c.h5\ncluster: {{kind: local, engines: 2}}\nsettings:\n  batch: 8\n")
    return path


def _mask(name):
    return lambda folder: pt.save_mask(np.eye(16) == 0, folder / name)


def _own(folder):
    problem = problems.problem(window=(8, 8), pixel=PIXELS)
    result = pt.load_result(_result(folder))
    parts = {"object": problem.object, "probe": problem.probe, "positions": problem.positions}
    return pt.save_result(dataclasses.replace(result, **parts, pixel_size=PIXELS), folder / "result.h5")


def _guess(write, name):
    return lambda folder: write(folder / name, problems.problem(window=(8, 8), pixel=PIXELS))


def _cxi(folder):
    return test_cxi.write(folder / "scan.cxi", pt.simulate(test_cxi.SHAPE[0], window=test_cxi.SHAPE[1], seed=3))


def _layout(write, name="scan.h5"):
    return lambda folder: write(folder / name, pt.simulate(9, window=16))


def _empad(folder):
    return test_empad.write(folder, oblong(128))


def _emd(folder):
    return test_emd.write(folder / "scan.h5", oblong(32, step=(3, 3)))


def _named():
    original = oblong(32)
    metres = np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(original.step)
    return {
        "patterns": original.patterns,
        "positions": metres,
        "voltage": 300.0,
        "angular_pixel_mrad": ANGLE * 1e3,
        "mask": np.ones((32, 32), bool),
    }


def _npz(folder):
    np.savez_compressed(folder / "scan.npz", **_named())
    return folder / "scan.npz"


def _npy(folder):
    np.save(folder / "scan.npy", oblong(32).stack)
    return folder / "scan.npy"


def _mat5(compressed):
    def write(folder):
        scipy.io.savemat(folder / "scan.mat", _matlab(), do_compression=compressed)
        return folder / "scan.mat"

    return write


def _matlab():
    return {**_named(), "patterns": oblong(32).stack.transpose(1, 2, 0)}


def _mat73(folder):
    test_matlab.version_73(folder / "scan.mat", _matlab())
    return folder / "scan.mat"


def _tiff(**options):
    def write(folder):
        tifffile.imwrite(folder / "scan.tif", oblong(32).stack.astype(np.uint16), photometric="minisblack", **options)
        return folder / "scan.tif"

    return write


def _zarr(version):
    def write(folder):
        original = oblong(32)
        metres = np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(original.step)
        test_zarr_store.group(folder / "scan.zarr", original, metres, version)
        return folder / "scan.zarr"

    return write


def _microscope(case):
    """One of the formats that RosettaSciIO reads, with what it has to be given."""
    name, write, known = test_rosettasciio.FILES[case]
    original = oblong(32, photons=2e3)
    all_given = {"voltage": 3e5, "angular_pixel": (ANGLE, ANGLE), "raster": (ROWS, COLUMNS), "step": original.step}

    def written(folder):
        write(folder / name, original)
        return folder / name

    return Seed(written, given={word: value for word, value in all_given.items() if word not in known})


def _messages(kind, sent):
    return Seed(lambda folder: messages.stored(folder / "sent.messages", sent()), "messages", {"kind": kind})


def _with_lz4(recording):
    return SimplonPlayer(recording, encoding="lz4", detail="basic")


PLACES = {"positions": "entry/positions/y,entry/positions/x"}
SEEDS: dict[str, Seed] = {
    "ptynb's own": Seed(_native),
    "CXI": Seed(_cxi),
    "CXI of CXIDB": Seed(_layout(layouts.cxidb)),
    "NXcxi_ptycho": Seed(_layout(layouts.nxcxi)),
    "NeXus with motors": Seed(_layout(layouts.nexus_motors)),
    "HDF5": Seed(_layout(layouts.plain), given={"patterns": "measurement/frames"}),
    "ptyd": Seed(_layout(layouts.ptyd, "scan.ptyd")),
    "ptyd in parts": Seed(lambda folder: layouts.ptyd(folder / "scan.ptyd", pt.simulate(9, window=16), link=True)),
    "Eiger": Seed(_layout(layouts.eiger, "scan_master.h5"), given={"raster": (3, 3), "step": (1e-6, 1e-6)}),
    "EMPAD": Seed(_empad),
    "EMD of py4DSTEM": Seed(_emd, given={"voltage": 300e3}),
    "npz": Seed(_npz),
    "npy": Seed(_npy, given=PLACED),
    "mat 5": Seed(_mat5(True)),
    "mat 6": Seed(_mat5(False)),
    "mat 7.3": Seed(_mat73),
    "TIFF": Seed(_tiff(), given=PLACED),
    "TIFF, compressed": Seed(_tiff(compression="zlib"), given=PLACED),
    "SEQ": Seed(
        lambda folder: test_seq.write(folder / "scan.seq", oblong(32)),
        given={"voltage": 3e5, "angular_pixel": (ANGLE, ANGLE), "raster": (ROWS, COLUMNS), "step": (1e-10, 1e-10)},
    ),
    "zarr 2": Seed(_zarr(2)),
    "zarr 3": Seed(_zarr(3)),
    **{name: _microscope(name) for name in ("MIB", "BLO", "TVIPS", "MRC", "DM4", "EMD of Velox")},
    "a result": Seed(_result, "result"),
    "a mask": Seed(_mask("mask.h5"), "mask"),
    "a mask, npy": Seed(_mask("mask.npy"), "mask"),
    "a state": Seed(_state, "state"),
    "settings": Seed(_settings, "settings"),
    "a run file": Seed(_run_file, "run file"),
    "a guess as NXcxi_ptycho": Seed(_guess(problems.write_nxcxi, "start.nxs"), "guess"),
    "a guess of PtyRAD": Seed(_guess(problems.write_ptyrad, "start.h5"), "guess"),
    "a guess of CDTools": Seed(_guess(problems.write_cdtools, "start.h5"), "guess"),
    "a guess of ptypy": Seed(_guess(problems.write_ptypy, "start.ptyr"), "guess"),
    "a guess of py4DSTEM": Seed(_guess(problems.write_py4dstem, "start.h5"), "guess"),
    "a guess of PtychoShelves 5": Seed(_guess(problems.write_mat5, "start.mat"), "guess"),
    "a guess of PtychoShelves 7.3": Seed(_guess(problems.write_mat73, "start.mat"), "guess"),
    "a guess of ptynb": Seed(_own, "guess"),
    "a received scan": Seed(messages.received),
    **{
        f"messages of {kind}": _messages(kind, partial(messages.played, one.loaded(*one.emulators.values())))
        for kind, one in SOURCES.items()
        if one.role == "source" and one.port
    },
    "messages of simplon, LZ4": _messages("simplon", lambda: messages.played(_with_lz4)),
    "messages of stream2, LZ4": _messages("stream2", messages.stream2_lz4),
    "messages of PandA": _messages("panda", messages.panda),
    "messages of JSON": _messages("zmq+json", lambda: messages.JSON),
    "messages of PV Access": _messages("pva", lambda: messages.NTNDARRAY),
    "a file in writing": Seed(lambda folder: messages.written(folder, "growing"), "follow", PLACES),
    "a file in writing, uid": Seed(lambda folder: messages.written(folder, "uid"), "follow", {"uid": "entry/uid"}),
    "a file in writing, chunks": Seed(lambda folder: messages.written(folder, "chunks"), "follow"),
    "a file in writing, Eiger": Seed(lambda folder: messages.written(folder, "eiger"), "follow"),
}
