"""Damaged results of each package: errors of one line, with codes."""

import h5py
import numpy as np
import pytest
import scipy.io

import ptynb as pt
from ptynb.io.initial_guess.guess_loader import read_guess
from tests.io.cases import of_case, turns
from tests.io.initial_guess import problem as problems

WRITERS = {
    "PtyRAD": problems.write_ptyrad,
    "CDTools": problems.write_cdtools,
    "ptypy": problems.write_ptypy,
    "py4DSTEM": problems.write_py4dstem,
    "PtychoShelves 7.3": problems.write_mat73,
    "PtychoShelves 5": problems.write_mat5,
}
SIMPLE = {"window": (8, 8), "pixel": (4e-8, 4e-8)}
PLACES = {
    "PtyRAD": ("optimizable_tensors/probe", "optimizable_tensors/objp", "model_attributes/crop_pos"),
    "CDTools": ("probe", "obj", "translations"),
    "ptypy": ("content/probe/SMFG00/data", "content/obj/SMFG00/data", "content/positions/SMFG00"),
    "py4DSTEM": tuple(
        f"root/ptychographic_reconstruction/{name}"
        for name in ("_probe_emd/data", "_object_emd/data", "metadatabundle/preprocess_metadata/positions_px")
    ),
    "PtychoShelves 7.3": ("probe", "object", "outputs/probe_positions"),
}
PROBE, OBJECT, POSITIONS = range(3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole file of each package, as bytes."""
    folder = tmp_path_factory.mktemp("whole")
    problem = problems.problem(**SIMPLE)
    return {name: write(folder / f"{name}.h5", problem).read_bytes() for name, write in WRITERS.items()}


@pytest.fixture
def file(whole, tmp_path):
    def write(name):
        path = tmp_path / "result.h5"
        path.write_bytes(whole[name])
        return path

    return write


def refused(path, codes, *facts):
    """One of these codes (separated by spaces), and a message of one line."""
    with pytest.raises(pt.FileError) as caught:
        read_guess(path)
    message = str(caught.value)
    assert caught.value.code in codes.split(), f"{caught.value.code}: {message}"
    assert all(fact in message for fact in facts), message
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_truncated_file(file):
    for name, part in zip(WRITERS, (0.02, 0.5, 0.98) * 2, strict=True):
        with of_case((name, part)):
            path = file(name)
            held = path.read_bytes()
            path.write_bytes(held[: int(part * len(held))])
            refused(path, "file.damaged file.unknown-format file.incomplete")


def test_text(file):
    for name in WRITERS:
        with of_case(name):
            path = file(name)
            path.write_text("object, probe\n1, 2\n" * 50)
            refused(path, "file.unknown-format", "PtyRAD, PtychoShelves")


def test_nothing_at_all(tmp_path):
    (tmp_path / "empty.h5").write_bytes(b"")
    refused(tmp_path / "empty.h5", "file.unknown-format")
    refused(tmp_path / "gone.h5", "file.not-found")
    refused(tmp_path, "file.not-found", "folder")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["measured"] = np.ones(3)
    refused(tmp_path / "other.h5", "file.unknown-format", "measured")


def as_written(values):
    return lambda group, name, stored: group.create_dataset(name, data=values(stored) if callable(values) else values)


def first_nan(stored):
    changed = stored.copy()
    if changed.dtype.names:
        changed["real"].flat[0] = np.nan
    else:
        changed = changed.astype(np.result_type(changed, np.float32))
        changed.flat[0] = np.nan
    return changed


def claimed(group, name, stored):
    """2**40 pixels on a side of which none was written."""
    group.create_dataset(name, shape=(2**40, 2**20, *stored.shape[2:]), dtype="f4", chunks=(64, 64, *stored.shape[2:]))


SHAPE = "file.unexpected-content"
BROKEN = {
    "a probe of one axis": (PROBE, as_written(np.ones(8)), SHAPE, "(8,)"),
    "a probe of nothing": (PROBE, as_written(lambda stored: np.zeros_like(stored)), "file.unexpected-content"),
    "a probe without pixels": (PROBE, as_written(lambda stored: stored[..., :0]), "file.incomplete"),
    "an object of NaN": (OBJECT, as_written(first_nan), "array.not-finite"),
    "an object of records": (
        OBJECT,
        as_written(np.zeros((4, 4, 4), [("a", "i4"), ("b", "f4")])),
        f"file.unexpected-content {SHAPE}",
    ),
    "no positions": (
        POSITIONS,
        as_written(lambda stored: stored[:0] if len(stored) > 2 else stored[:, :0]),
        "file.incomplete",
    ),
    "an object that was never written": (OBJECT, claimed, f"file.damaged {SHAPE}"),
    "an object in another file": (
        OBJECT,
        lambda group, name, stored: group.__setitem__(name, h5py.ExternalLink("/etc/other.h5", "/data")),
        "file.link-not-allowed",
    ),
    "positions of three": (POSITIONS, as_written(np.zeros((21, 4))), SHAPE, "4"),
    "positions of NaN": (POSITIONS, as_written(lambda stored: np.full(stored.shape, np.nan)), "array.not-finite"),
}


def test_a_broken_dataset(file):
    pairs = [(case, name) for number, case in enumerate(BROKEN) for name in turns(number, [*PLACES])]
    own = [("a probe without pixels", "CDTools"), ("a probe of one axis", "PtychoShelves 7.3")]
    for case, name in pairs + own:
        with of_case((case, name)):
            part, spoil, *expected = BROKEN[case]
            path, place = file(name), PLACES[name][part]
            with h5py.File(path, "r+") as opened:
                stored = opened[place][()]
                group, _, last = place.rpartition("/")
                del opened[place]
                spoil(opened[group or "/"], last, stored)
            refused(path, *expected)


MATLAB = {
    "no object": (lambda held: held.pop("object"), "file.incomplete"),
    "a probe in cells": (lambda held: held.update(probe=np.array([["a", 1]], object)), "file.incomplete"),
    "an object of five axes": (lambda held: held.update(object=np.ones((2,) * 5)), SHAPE, "(2, 2, 2, 2, 2)"),
    "a pixel of -1": (lambda held: held["p"].update(dx_spec=np.array([[-1.0, 1]])), "file.unexpected-content", "-1.0"),
}


def test_a_broken_mat_file(tmp_path):
    for case, (spoil, *expected) in MATLAB.items():
        with of_case(case, tmp_path) as home:
            held = problems.matlab(problems.problem(**SIMPLE))
            spoil(held)
            scipy.io.savemat(home / "broken.mat", held)
            refused(home / "broken.mat", *expected)
