"""Faults that are put into a perfect result or its scan are found by their own measures; without them none is."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis.faults import diagnosis
from ptynb.analysis.faults.fault_measures import poisson_roots
from ptynb.data.patterns import ArrayFrames
from ptynb.data.record import Epoch, RunSpan, Thumbnail
from ptynb.data.result import Result, ScanIdentity
from ptynb.data.scan import Scan
from ptynb.io.scan_identity import plain_geometry
from ptynb.simulation.model_residuals import model_residuals
from tests.preparation.test_rotation_fit import phase_scan
from tests.raising import raises

PATTERNS = 100


def perfect(scan: Scan, **changes) -> Result:
    """The ground truth of a simulated scan as a result."""
    truth = scan.ground_truth
    identity = ScanIdentity(
        scan.name,
        len(scan),
        scan.pattern_shape,
        is_far_field=scan.is_far_field,
        geometry=plain_geometry(scan.geometry),
    )
    losses = 0.1 / np.arange(1, 41) ** 3 + 0.01
    epochs = tuple(Epoch(number, float(loss), 1.0, 1.0) for number, loss in enumerate(losses, 1))
    values = {
        "object": truth.object.astype(np.complex64),
        "probe": truth.probe.astype(np.complex64),
        "positions": scan.positions,
        "origin": (0, 0),
        "r_factor": 0.08,
        "epochs": epochs,
        "settings": pt.Settings().model_dump(mode="json"),
        "pixel_size": scan.pixel_size,
        "scan": identity,
    }
    return Result(**{**values, **changes})


def with_patterns(scan: Scan, change) -> Scan:
    return dataclasses.replace(scan, frames=ArrayFrames.of(change(np.array(scan.frames.read(0, len(scan))))))


def found(result: Result, scan: Scan) -> pt.Diagnosis:
    return diagnosis.findings_of(result, scan, model_residuals(result, scan, np.arange(0, len(scan), 2)))


def names(result: Result, scan: Scan) -> list[str]:
    return [one.name for one in found(result, scan)]


def with_losses(scan: Scan, losses) -> Result:
    return perfect(scan, epochs=tuple(Epoch(n, float(loss), 1.0, 1.0) for n, loss in enumerate(losses, 1)))


def test_a_perfect_result_has_no_finding(scan: Scan) -> None:
    clean = found(perfect(scan), scan)
    assert not len(clean), clean
    assert {diagnosis.POSITIONS, diagnosis.FEW_SLICES, diagnosis.BAD_PIXELS, diagnosis.NOT_CONVERGED} <= {*clean.values}
    assert clean.values[diagnosis.POSITIONS] == 0


def test_roots_of_counts_are_those_of_random_numbers() -> None:
    random = np.random.default_rng(0)
    for mean in (0.05, 0.7, 4.0, 250.0, 5000.0):
        roots = np.sqrt(random.poisson(mean, 400_000))
        expected, variance = poisson_roots(np.array([mean]))
        np.testing.assert_allclose(expected, roots.mean(), rtol=6e-3 if mean < 1 else 5e-4)
        np.testing.assert_allclose(variance, roots.var(), rtol=2e-2)


def test_a_pattern_of_the_raster_in_the_object_is_found(scan: Scan) -> None:
    y, x = (axis.ravel() for axis in np.mgrid[:10, :10] * 8.0 + 6)
    raster = dataclasses.replace(scan, positions=np.stack([y, x], axis=1))
    good = perfect(raster)
    rows, columns = np.indices(good.object.shape)
    with_lattice = good.object * (1 + 0.3 * np.cos(2 * np.pi * rows / 8) * np.cos(2 * np.pi * columns / 8))
    bad = diagnosis.findings_of(dataclasses.replace(good, object=with_lattice.astype(np.complex64)))
    assert diagnosis.GRID not in diagnosis.findings_of(good)
    [notches] = bad[diagnosis.GRID].changes["constraints"]
    assert notches["kind"] == "remove_grid_artifacts"
    assert notches["period_y"] == pytest.approx(8, rel=0.05)
    assert notches["period_x"] == pytest.approx(8, rel=0.05)
    # The same pattern in a scan without periods is the sample's.
    assert diagnosis.GRID not in diagnosis.findings_of(perfect(scan, object=with_lattice.astype(np.complex64)))


def test_wrong_positions_are_found_and_modes_that_describe_them(scan: Scan) -> None:
    wrong = scan.positions + np.random.default_rng(0).normal(0, 0.7, scan.positions.shape)
    bad = found(perfect(scan, positions=wrong), scan)
    assert bad[diagnosis.POSITIONS].value == pytest.approx(1.0, rel=0.3)
    assert bad[diagnosis.POSITIONS].changes == {"positions.learning_rate": 0.1}
    probe = scan.ground_truth.probe[0]
    moved = np.stack([probe, 0.5 * np.gradient(probe, axis=0), 0.5 * np.gradient(probe, axis=1)]).astype(np.complex64)
    assert diagnosis.MOTION in found(perfect(scan, positions=wrong, probe=moved), scan)
    assert diagnosis.MOTION not in found(perfect(scan, probe=moved), scan)  # a partially coherent beam


def test_a_few_wrong_positions_are_outliers(scan: Scan) -> None:
    wrong = scan.positions.copy()
    middle = wrong.mean(0)
    wrong[[10, 40]] += 6 * np.sign(middle - wrong[[10, 40]])
    bad = found(perfect(scan, positions=wrong), scan)
    assert bad[diagnosis.OUTLIERS].patterns.tolist() == [10, 40]
    assert bad[diagnosis.OUTLIERS].changes["positions.search_trials"] > 0


def test_a_smooth_drift_is_told_from_independent_moves(scan: Scan) -> None:
    time = np.linspace(0, 1, len(scan))
    drift = 3 * np.stack([np.sin(3 * time), time**2], axis=1)
    independent = np.random.default_rng(0).normal(0, 1.5, drift.shape)
    for moves, expected in ((drift, True), (independent, False)):
        result = perfect(scan, parameters={"positions/start": scan.positions + moves})
        assert (diagnosis.DRIFT in diagnosis.findings_of(result)) == expected


def test_modes_without_power_and_modes_of_the_object_are_found(scan: Scan) -> None:
    probe = scan.ground_truth.probe[0]
    noise = np.random.default_rng(0).standard_normal(probe.shape) * np.abs(probe)
    empty = diagnosis.findings_of(perfect(scan, probe=np.stack([probe, 0.05 * noise]).astype(np.complex64)))
    assert empty[diagnosis.EMPTY_MODES].changes == {"probe.modes": 1}
    strong = diagnosis.findings_of(perfect(scan, probe=np.stack([probe, 0.5 * noise]).astype(np.complex64)))
    assert diagnosis.EMPTY_MODES not in strong
    assert diagnosis.OBJECT_IN_MODES not in strong
    patch = scan.ground_truth.object[20:84, 25:89]
    repeated = diagnosis.findings_of(perfect(scan, probe=np.stack([probe, 0.5 * probe * patch]).astype(np.complex64)))
    assert repeated[diagnosis.OBJECT_IN_MODES].where[20:84, 25:89].any()


def test_equal_slices_are_too_many(scan: Scan) -> None:
    root = np.sqrt(np.abs(scan.ground_truth.object)) * np.exp(0.5j * np.angle(scan.ground_truth.object))
    other = np.random.default_rng(0).permutation(root.ravel()).reshape(root.shape)
    equal = diagnosis.findings_of(perfect(scan, object=np.stack([root, root]).astype(np.complex64)))
    assert equal[diagnosis.MANY_SLICES].changes == {"slices.count": 1}
    different = perfect(scan, object=np.stack([root, other]).astype(np.complex64))
    assert diagnosis.MANY_SLICES not in diagnosis.findings_of(different)


def test_a_thick_object_needs_more_slices(scan: Scan) -> None:
    """The patterns are those of two different slices, and the result their product."""
    truth = scan.ground_truth.object
    slices = np.stack([truth, np.roll(truth[::-1], 7, 1)])
    thickness = 30 * scan.pixel_size[0] ** 2 / scan.geometry.wavelength
    thick = pt.simulate_diffraction(
        slices, scan.ground_truth.probe, scan.positions, geometry=scan.geometry, thickness=thickness
    )
    bad = found(perfect(scan, object=slices.prod(0).astype(np.complex64)), thick)
    assert bad[diagnosis.FEW_SLICES].changes["slices.count"] == 2
    assert diagnosis.POSITIONS not in bad


def test_vortices_and_a_ramp_of_the_phase_are_found(scan: Scan) -> None:
    good = perfect(scan)
    y, x = np.indices(good.object.shape) - np.array(good.object.shape)[:, None, None] / 2 + 0.25
    vortex = good.object * np.exp(1j * np.arctan2(y, x))
    bad = diagnosis.findings_of(dataclasses.replace(good, object=vortex.astype(np.complex64)))[diagnosis.VORTICES]
    assert bad.where[good.object.shape[0] // 2, good.object.shape[1] // 2]
    assert bad.where.sum() < 100
    assert bad.changes["object.parametrization"] == "amplitude_phase"
    turns = good.object * np.exp(2j * np.pi * 4 * x / x.shape[1])
    assert diagnosis.RAMP in diagnosis.findings_of(dataclasses.replace(good, object=turns.astype(np.complex64)))


def test_windows_that_are_too_small_are_found(scan: Scan) -> None:
    wide = np.full_like(scan.ground_truth.probe, 15)
    bad = diagnosis.findings_of(perfect(scan, probe=wide))
    assert bad[diagnosis.CLIPPED_PROBE].changes["detector.oversampling"] == 2
    frame = np.ones(scan.pattern_shape, bool)
    frame[4:-4, 4:-4] = False
    mean = float(np.mean(scan.frames.read(0, len(scan))))
    scattered = with_patterns(scan, lambda patterns: patterns + np.where(frame, np.float32(0.1 * mean), 0))
    clipped = found(perfect(scan), scattered)[diagnosis.CLIPPED_PATTERNS]
    assert clipped.remedy == "pad(window=[96, 96]) (from the beginning)"
    [step] = clipped.prepare
    assert pt.prepare(scattered, [step]).pattern_shape == (96, 96)


def test_bad_and_saturated_pixels_are_found_where_they_are(scan: Scan) -> None:
    def damaged(patterns):
        patterns[:, 30, 34] = 0
        return patterns

    broken = with_patterns(scan, damaged)
    bad = found(perfect(scan), broken)[diagnosis.BAD_PIXELS]
    assert np.argwhere(bad.where).tolist() == [[30, 34]]
    assert not pt.prepare(broken, list(bad.prepare)).mask[30, 34]
    top = float(np.quantile(scan.frames.read(0, len(scan)), 0.998))
    saturated = found(perfect(scan), with_patterns(scan, lambda patterns: np.minimum(patterns, round(top))))
    assert saturated[diagnosis.SATURATED].changes["detector.saturation"] == round(top)


def test_patterns_that_are_transposed_are_found() -> None:
    for transposed in (False, True):
        turned, _ = phase_scan(None, 0.0, transposed)
        positions = turned.positions - turned.positions.min(0) + 4
        size = np.ceil(positions.max(0)).astype(int) + np.array(turned.pattern_shape) + 4
        flat = perfect(
            dataclasses.replace(pt.simulate(patterns=4, window=24), positions=positions[:4]),
            object=np.ones(size, np.complex64),
            probe=np.ones((1, *turned.pattern_shape), np.complex64),
            positions=positions,
        )
        bad = diagnosis.findings_of(flat, turned, model_residuals(flat, turned, np.arange(0, len(turned), 5)))
        assert (diagnosis.ORIENTATION in bad) == transposed
    assert bad[diagnosis.ORIENTATION].prepare[0] == "transpose_positions"


def test_the_record_of_the_losses_tells_how_the_run_went_on(scan: Scan) -> None:
    epochs = np.arange(1, 61)
    cases = {
        diagnosis.NOT_CONVERGED: 1 / epochs,
        diagnosis.DIVERGING: 0.01 + 0.001 * np.maximum(epochs - 20, 0),
        diagnosis.OSCILLATING: 0.01 * (1 + 0.2 * (-1.0) ** epochs),
    }
    for name, losses in cases.items():
        assert [one.name for one in diagnosis.findings_of(with_losses(scan, losses))] == [name]
    assert diagnosis.findings_of(with_losses(scan, 1 / epochs))[diagnosis.NOT_CONVERGED].epochs == 60
    # With the small rates at the end of a schedule, the loss of an unfinished run falls little.
    slowly = with_losses(scan, np.exp(-0.003 * epochs))
    assert diagnosis.NOT_CONVERGED not in diagnosis.findings_of(slowly)
    assert diagnosis.NOT_CONVERGED in diagnosis.findings_of(
        dataclasses.replace(slowly, runs=(RunSpan(0, 0, 0, 60, 0.0),))
    )


def test_what_residuals_tell_is_judged_once_the_loss_has_settled(scan: Scan) -> None:
    """A run of 20 epochs of a scan without a fault has residuals as of a thick object, until it has converged."""
    few = pt.simulate(patterns=64, window=64, seed=5)
    truth = few.ground_truth
    rough = truth.object * np.exp(0.6j * np.random.default_rng(0).standard_normal(truth.object.shape))
    scattering = pt.simulate_diffraction(rough, truth.probe, few.positions, geometry=few.geometry)
    for simulated, settings in (
        (dataclasses.replace(scattering, probe=few.probe), pt.Settings()),  # whose learning rates have fallen
        (pt.simulate(patterns=64, window=96, seed=1), pt.Settings(optimiser="rpie")),
    ):
        with pt.Reconstruction(simulated, settings, device="cpu", checkpointing=None) as recon:
            list(recon.run(20))
            early = pt.diagnose(recon)
        assert early.values[diagnosis.FEW_SLICES] > 2 * diagnosis.CRITERIA[diagnosis.FEW_SLICES].threshold
        assert [one.name for one in early] == [diagnosis.NOT_CONVERGED]
        assert {diagnosis.FEW_SLICES, diagnosis.POSITIONS, diagnosis.CLIPPED_PATTERNS} < {*early.deferred}
        assert "Judged once it has converged: wrong positions" in str(early)
    # Also of few epochs, of a loss that does not settle, and while the learning rates are still high.
    wrong = scan.positions + np.random.default_rng(0).normal(0, 1.0, scan.positions.shape)
    displaced = perfect(scan, positions=wrong)
    with_schedule = pt.Settings(schedule={"epochs": 100}).model_dump(mode="json")
    runs, flat = (RunSpan(0, 0, 0, 100, 0.0),), with_losses(scan, np.full(40, 0.01)).epochs
    for changes, why in (
        ({"epochs": displaced.epochs[:5]}, "The run has 5 epochs"),
        ({"epochs": with_losses(scan, 0.01 * (1 + 0.2 * (-1.0) ** np.arange(1, 61))).epochs}, "is oscillating"),
        ({"runs": runs, "epochs": flat}, "rates are still 68%"),
        ({"settings": with_schedule, "epochs": flat}, "rates are still 68%"),
    ):
        later = found(dataclasses.replace(displaced, **changes), scan)
        assert diagnosis.POSITIONS not in later
        assert why in str(later)
    for changes in ({}, {"epochs": ()}, {"runs": (RunSpan(0, 0, 0, 40, 0.0),), "epochs": flat}):
        assert diagnosis.POSITIONS in found(dataclasses.replace(displaced, **changes), scan)

    # Bad pixels that the patterns alone show have nothing to do with the run.
    def damaged(patterns):
        patterns[:, 30, 34] = 0
        patterns[:, 20, 20] *= 5  # unlike the model only
        return patterns

    broken = with_patterns(scan, damaged)
    for number, places in ((40, [[20, 20], [30, 34]]), (5, [[30, 34]])):
        bad = found(dataclasses.replace(perfect(scan), epochs=displaced.epochs[:number]), broken)
        assert np.argwhere(bad[diagnosis.BAD_PIXELS].where).tolist() == places
    assert bad[diagnosis.BAD_PIXELS].explanation.endswith("in all patterns: 1 pixel.")


def test_a_phase_that_still_grows_is_not_converged_though_the_loss_shows_it_not(scan: Scan) -> None:
    field = perfect(scan).object
    for scale, found in ((0.7, True), (0.99, False)):
        early = Thumbnail(30, np.abs(field) * np.exp(1j * scale * np.angle(field)), np.ones((2, 2)))
        result = dataclasses.replace(with_losses(scan, np.full(60, 0.01)), history=(early,))
        assert (diagnosis.NOT_CONVERGED in diagnosis.findings_of(result)) == found
        if found:
            assert "phase grew by" in diagnosis.findings_of(result)[diagnosis.NOT_CONVERGED].explanation


def test_few_counts_bias_a_model_of_amplitudes() -> None:
    weak = pt.simulate(patterns=PATTERNS, window=64, seed=5, photons=2e3)
    good = perfect(weak)
    assert diagnosis.FEW_COUNTS not in found(good, weak)
    bad = found(dataclasses.replace(good, probe=0.97 * good.probe), weak)[diagnosis.FEW_COUNTS]
    assert bad.value == pytest.approx(1 - 0.97**2, abs=0.02)
    assert bad.recipe(pt.Settings()).settings.loss == "poisson"


def test_a_remedy_has_an_optimiser_that_supports_it_and_each_threshold_has_a_rate(scan: Scan) -> None:
    assert all(0 < criterion.false_alarm < 0.5 for criterion in diagnosis.CRITERIA.values())
    wide = np.full_like(scan.ground_truth.probe, 15)
    lsqml = pt.Settings(optimiser="lsqml", momentum=0.5)
    result = perfect(scan, probe=wide, settings=lsqml.model_dump(mode="json"))
    finding = diagnosis.findings_of(result)[diagnosis.CLIPPED_PROBE]
    assert finding.recipe(lsqml).settings.optimiser == "adam"  # LSQML has no oversampling


def test_findings_are_sorted_and_shown(scan: Scan) -> None:
    wrong = scan.positions + np.random.default_rng(0).normal(0, 1.0, scan.positions.shape)
    bad = found(perfect(scan, positions=wrong), scan)
    excess = [one.value / one.threshold for one in bad]
    assert all(one >= other for one, other in pairwise(excess))
    assert diagnosis.POSITIONS in str(bad)
    assert bad.to_plain()["findings"][0]["name"] == bad.findings[0].name


def test_results_that_cannot_be_examined_are_refused(scan: Scan) -> None:
    good = perfect(scan)
    with raises("array.not-finite"):
        diagnosis.findings_of(dataclasses.replace(good, object=good.object * np.nan))
    together = dataclasses.replace(good, scan=dataclasses.replace(good.scan, combination={"scans": []}))
    with raises("argument.invalid-value", "split"):
        diagnosis.findings_of(together)
