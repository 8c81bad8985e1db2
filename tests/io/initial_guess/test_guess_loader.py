import dataclasses

import h5py
import numpy as np
import pytest

import ptynb as pt
from tests.io.cases import of_case
from tests.io.initial_guess import problem as problems
from tests.raising import raises

SQUARE = {"window": (34, 34), "pixel": (4e-8, 4e-8)}
WRITERS = {
    "NXcxi_ptycho": (problems.write_nxcxi, {}, {}),
    "NXcxi_ptycho, slices": (problems.write_nxcxi, {"slices": 2}, {}),
    "PtyRAD": (problems.write_ptyrad, SQUARE, {}),
    "PtyRAD, slices": (problems.write_ptyrad, {**SQUARE, "slices": 2}, {}),
    "CDTools": (problems.write_cdtools, {}, {}),
    "CDTools, in Fourier space": (problems.write_cdtools, {}, {"fourier_probe": True}),
    "CDTools, an exponent": (problems.write_cdtools, {}, {"exponentiate_obj": True}),
    "CDTools, variations": (problems.write_cdtools, {}, {"weights": np.tile(np.eye(2), (21, 1, 1))}),
    "ptypy": (problems.write_ptypy, {}, {}),
    "py4DSTEM": (problems.write_py4dstem, {}, {}),
    "py4DSTEM, transposed": (problems.write_py4dstem, {}, {"transposed": True}),
    "py4DSTEM, slices": (problems.write_py4dstem, {"slices": 2}, {}),
    "PtychoShelves, version 7.3": (problems.write_mat73, {}, {}),
    "PtychoShelves, electrons and slices": (problems.write_mat73, {"slices": 2}, {"electrons": True}),
    "PtychoShelves, of its CPU engine": (problems.write_recons, {}, {"engine": "DM"}),
    "PtychoShelves, of its GPU engine": (problems.write_recons, {}, {"engine": "GPU"}),
}
QUIET = "ignore::ptynb.io.initial_guess.imported_guess.InitialGuessWarning"


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


@pytest.mark.filterwarnings(QUIET)
def test_a_guess_fits_as_well_as_the_truth(made, tmp_path):
    for name, (write, kind, more) in WRITERS.items():
        with of_case(name, tmp_path) as home:
            problem, best = made(**kind)
            started = pt.load_initial_guess(problems.unknown(problem), write(home / "result.h5", problem, **more))
            assert problems.r_factor(started) < best + 1e-4
            np.testing.assert_allclose(started.probe, problem.probe, atol=1e-3 * np.abs(problem.probe).max())


def test_a_near_field_model_is_not_supported(made, tmp_path):
    problem, best = made()
    path = problems.write_cdtools(tmp_path / "near.h5", problem)
    with h5py.File(path, "r+") as file:
        file["state_dict/near_field"][()] = True
    scan = problems.unknown(problem)
    with raises("file.unsupported-content", path, "near-field"):
        pt.load_initial_guess(scan, path)
    another = pt.load_initial_guess(scan, problems.write_cdtools(tmp_path / "far.h5", problem))
    assert problems.r_factor(another) < best + 1e-4


def test_each_part_can_be_left_out(made, tmp_path):
    problem, best = made()
    path = problems.write_cdtools(tmp_path / "result.h5", problem)
    scan = problems.unknown(problem)
    probe_only = pt.load_initial_guess(scan, path, object=False, positions=False)
    assert probe_only.object is None
    np.testing.assert_array_equal(probe_only.positions, scan.positions)
    places_only = pt.load_initial_guess(scan, path, object=False, probe=False)
    assert places_only.probe is None
    moved = places_only.positions - problem.positions
    np.testing.assert_allclose(moved - moved.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(places_only.positions.mean(0), scan.positions.mean(0))
    own_places = pt.load_initial_guess(scan, path, positions=False)
    moved = own_places.positions - scan.positions
    np.testing.assert_allclose(moved - moved.mean(0), 0, atol=1e-9)
    assert best < problems.r_factor(own_places) < 0.15
    with raises("guess.nothing-selected", path):
        pt.load_initial_guess(scan, path, probe=False, object=False, positions=False)


def test_a_result_of_ptynb_starts_another_from_memory_and_from_its_file(made, tmp_path):
    problem, best = made()
    with pt.Reconstruction(problems.truth(problem), pt.Settings(probe=pt.Probe(modes=2)), device="cpu") as recon:
        result = recon.result
    assert result.r_factor < 2e-3, "the model of the problem is that of a reconstruction"
    path = pt.save_result(result, tmp_path / "result.h5")
    scan = problems.unknown(problem)
    for given in (result, path):
        assert problems.r_factor(pt.load_initial_guess(scan, given)) < best + 1e-4
    known = dataclasses.replace(scan, positions=problem.positions)
    assert problems.r_factor(pt.load_initial_guess(known, path, positions=False)) < best + 1e-4


def test_another_orientation_is_reported_and_not_corrected(made, tmp_path):
    for turn, words in [
        (lambda scan: pt.preparation.flip(scan, "y"), "mirrored along y"),
        (lambda scan: pt.preparation.flip(scan, "yx"), "mirrored along y and x"),
        (lambda scan: pt.preparation.transpose(scan), "transposed"),
    ]:
        with of_case((turn, words), tmp_path) as home:
            problem, best = made(**SQUARE)
            path = problems.write_ptyrad(home / "result.h5", problem)
            turned = turn(problem.scan)
            with pytest.warns(pt.PtynbWarning, match=rf"would with 0\.0\d+ if they were {words}: "):
                started = pt.load_initial_guess(turned, path)
            assert problems.r_factor(started) > 0.1
            assert problems.r_factor(pt.load_initial_guess(turn(turned), path)) < best + 1e-4  # the remedy


def test_a_result_of_another_scan_is_reported(made, tmp_path):
    problem, _ = made(**SQUARE)
    other, _ = made(**SQUARE, seed=6)
    path = problems.write_ptyrad(tmp_path / "result.h5", other)
    with pytest.warns(pt.InitialGuessWarning, match=r"no better than their mean"):
        pt.load_initial_guess(problem.scan, path)


def test_positions_that_are_not_a_refinement_are_reported(made, tmp_path):
    problem, _ = made(**SQUARE)
    path = problems.write_ptyrad(tmp_path / "result.h5", problem)
    turned = dataclasses.replace(problem.scan, positions=problem.positions[:, ::-1].copy())
    with pytest.warns(pt.InitialGuessWarning, match=r"differ from the scan's by \d+\.\d pixels"):
        pt.load_initial_guess(turned, path)


def test_another_pixel_size_is_an_error_or_resampled(made, tmp_path):
    problem, _ = made(**SQUARE)
    path = problems.write_ptyrad(tmp_path / "result.h5", problem)
    cropped = pt.preparation.crop(problem.scan, 26)
    with raises("guess.pixel-size-mismatch", "4e-08 x 4e-08 m", "5.231e-08", "resample=True"):
        pt.load_initial_guess(cropped, path)
    started = pt.load_initial_guess(cropped, path, resample=True)
    assert problems.r_factor(started) < 0.1
    assert problems.r_factor(dataclasses.replace(started, object=np.ones_like(started.object))) > 0.2


@pytest.mark.filterwarnings(QUIET)
def test_binned_patterns_cut_the_probe_and_keep_its_centre(made, tmp_path):
    problem, _ = made(window=(68, 68), pixel=(4e-8, 4e-8))
    path = problems.write_ptyrad(tmp_path / "result.h5", problem)
    started = pt.load_initial_guess(pt.preparation.bin(problem.scan, 2), path)
    middle = problem.probe[:, 17:51, 17:51]
    np.testing.assert_allclose(started.probe / started.probe[0, 17, 17], middle / middle[0, 17, 17], rtol=1e-3)
    np.testing.assert_allclose(started.positions, problem.positions + 17, atol=1e-5)


def test_a_count_that_differs_is_refused_and_the_remedies_work(made, tmp_path):
    problem, _ = made(**SQUARE)
    path = problems.write_ptyrad(tmp_path / "result.h5", problem)
    fewer = pt.preparation.select(problem.scan, np.arange(20))
    with raises("guess.count-mismatch", "21 positions", "20 patterns"):
        pt.load_initial_guess(fewer, path)
    assert pt.load_initial_guess(fewer, path, positions=False, object=False).probe.shape == (2, 34, 34)


def test_a_ptypy_file_without_positions_gives_its_probe(made, tmp_path):
    problem, _ = made()
    path = problems.write_ptypy(tmp_path / "result.ptyr", problem, recorded=False)
    with pytest.warns(pt.InitialGuessWarning) as told:
        started = pt.load_initial_guess(problem.scan, path)
    assert "record_positions" in str(told[0].message)
    assert started.object is None


def test_a_potential_is_a_phase(made, tmp_path):
    problem, _ = made()
    pure = dataclasses.replace(problem, object=np.exp(1j * np.angle(problem.object)))
    started = pt.load_initial_guess(problem.scan, problems.write_py4dstem(tmp_path / "r.h5", pure, potential=True))
    np.testing.assert_allclose(started.object, pure.object, atol=1e-5)


def test_the_truth_moves_with_the_positions(made, tmp_path):
    problem, _ = made()
    truth = pt.simulate(4, window=16).ground_truth
    known = dataclasses.replace(truth, object=problem.object)
    scan = dataclasses.replace(problems.unknown(problem), ground_truth=known)
    moved = pt.load_initial_guess(scan, problems.write_ptypy(tmp_path / "result.ptyr", problem))
    by = np.rint((moved.positions - scan.positions).mean(0)).astype(int)
    assert by.tolist() == [-11, 3]
    np.testing.assert_array_equal(moved.ground_truth.object[: 50 - 11, 3:], problem.object[11:50])
