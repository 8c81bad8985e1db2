import dataclasses
import warnings

import numpy as np
import pytest

import ptynb as pt
from ptynb.io.starts.start_from import read_start
from tests.io.starts import problem as problems

SQUARE = {"window": (34, 34), "pixel": (4e-8, 4e-8)}
WRITERS = {
    "PtyRAD": (problems.write_ptyrad, SQUARE, {}),
    "PtyRAD, slices": (problems.write_ptyrad, {**SQUARE, "slices": 2}, {}),
    "ptypy": (problems.write_ptypy, {}, {}),
    "py4DSTEM": (problems.write_py4dstem, {}, {}),
    "py4DSTEM, transposed": (problems.write_py4dstem, {}, {"transposed": True}),
    "py4DSTEM, one mode": (problems.write_py4dstem, {"modes": 1}, {}),
    "py4DSTEM, slices": (problems.write_py4dstem, {"slices": 2}, {}),
    "PtychoShelves, version 5": (problems.write_mat5, {}, {}),
    "PtychoShelves, version 7.3": (problems.write_mat73, {}, {}),
    "PtychoShelves, electrons and slices": (problems.write_mat73, {"slices": 2}, {"electrons": True}),
    "PtychoShelves, of its CPU engine": (problems.write_recons, {}, {"engine": "DM"}),
    "PtychoShelves, of its GPU engine": (problems.write_recons, {}, {"engine": "GPU"}),
}
QUIET = "ignore::ptynb.io.starts.start.StartWarning"


@pytest.fixture(scope="module")
def made():
    """Problems by what they are made with, and what their truth is worth, each once."""
    known = {}

    def make(**kind):
        key = tuple(sorted(kind.items()))
        if key not in known:
            problem = problems.problem(**kind)
            known[key] = problem, problems.r_factor(problems.truth(problem))
        return known[key]

    return make


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.filterwarnings(QUIET)
def test_a_start_fits_as_well_as_the_truth(made, tmp_path, name):
    write, kind, more = WRITERS[name]
    problem, best = made(**kind)
    started = pt.start_from(problems.unknown(problem), write(tmp_path / "result.h5", problem, **more))
    assert problems.r_factor(started) < best + 1e-4
    np.testing.assert_allclose(started.probe, problem.probe, atol=1e-3 * np.abs(problem.probe).max())


WRONG = {
    "object mirrored along y": {"object": lambda field: field[::-1]},
    "object mirrored along x": {"object": lambda field: field[:, ::-1]},
    "object conjugated": {"object": np.conj},
    "probe conjugated": {"probe": np.conj},
    "both conjugated": {"object": np.conj, "probe": np.conj},
    "probe mirrored": {"probe": lambda field: np.roll(field[:, ::-1, ::-1], 1, (1, 2))},
    "probe moved by a pixel": {"probe": lambda field: np.roll(field, 1, 1)},
    "positions a pixel off along x": {"positions": lambda places: places + (0, 1)},
    "positions exchanged": {"positions": lambda places: places[:, ::-1].clip(0, 8)},
    "positions rounded": {"positions": np.rint},
}


@pytest.mark.parametrize("turn", WRONG)
def test_the_problem_tells_a_wrong_turn(made, turn):
    problem, best = made()
    scan = problems.truth(problem)
    changed = {name: np.ascontiguousarray(change(getattr(scan, name))) for name, change in WRONG[turn].items()}
    assert problems.r_factor(dataclasses.replace(scan, **changed)) > 0.04 > 20 * best
