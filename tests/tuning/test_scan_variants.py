"""Studies that vary the scan: options of `load`, preparation, and the user's function; and the choice of the search."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import optuna
import pytest

import ptynb as pt
from ptynb import preparation
from ptynb.data.scan import Scan
from ptynb.settings.ranges import Between
from ptynb.tuning.scan_variants import present_values, variant
from ptynb.tuning.study import Study
from tests.io import layouts
from tests.raising import raises

SIMULATED = pt.simulate(patterns=36, window=32, seed=5)
ENERGY = SIMULATED.geometry.energy  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file whose positions are rotated by 0.3 rad against the detector."""
    turned = preparation.rotate_positions(SIMULATED, -0.3)
    return Path(layouts.cxidb(tmp_path_factory.mktemp("scan") / "scan.cxi", turned))


def tune(scan: Scan, ranges: Any, path: Path, **other: Any) -> Study:
    asked: dict[str, Any] = {"trials": 3, "epochs": 3, "pruner": "none"} | other
    study = pt.tune(scan, pt.Settings(batch=12), ranges, study=path / "study.journal", **asked)
    study.wait()
    return study


def last_loss(scan: Scan, settings: pt.Settings, epochs: int) -> float:
    with pt.Reconstruction(scan, settings, checkpointing=None) as recon:
        return [*recon.run(epochs)][-1].loss


def test_the_right_rotation_is_found_and_its_trial_is_repeated_from_the_record(file: Path, tmp_path: Path) -> None:
    scan = pt.load(file)
    ranges = {"load.rotation": (-0.3, 0.0, 0.15, 0.3, 0.45), "load.distance": (2.0,), "probe.learning_rate": (0.01,)}
    study = tune(scan, ranges, tmp_path, sampler="grid", trials=50, epochs=12)
    assert study.wanted == study.done == 5, "every combination once"
    assert sorted(trial.values["load.rotation"] for trial in study.trials) == [-0.3, 0.0, 0.15, 0.3, 0.45]
    best = study.best
    assert best is not None
    assert best.values["load.rotation"] == 0.3
    moved = study.best_scan.positions - SIMULATED.positions
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-6)
    for trial in study.trials:
        opened = study.scan_of(trial.number)
        assert opened.loaded is not None
        assert opened.loaded.given == {"distance": 2.0, "rotation": trial.values["load.rotation"]}
        assert trial.scan == opened.metadata_digest
    again = last_loss(study.best_scan, study.best_settings, 12)
    assert again == best.score, "to the bit"
    assert study.settings_of(best.number) == study.best_settings
    with raises("argument.invalid-value", "no trial 9", "1 to 5"):
        study.scan_of(9)
    with h5py.File(file, "r+") as opened_again:
        stored = opened_again["entry_1/sample_1/geometry_1/translation"]
        before = stored[...]
        try:
            stored[...] = before * 1.01
            opened_again.flush()
            with raises("scan.other", f"trial {best.number}", "restore them"):
                study.scan_of(best.number)
        finally:
            stored[...] = before


def test_the_first_trial_has_the_values_of_the_scan(file: Path, tmp_path: Path) -> None:
    scan = pt.load(file, energy=ENERGY, clip_negative=True)
    ranges = {
        "load.distance": pt.between(1.5, 2.5),
        "load.energy": pt.between(0.9 * ENERGY, 1.1 * ENERGY),
        "load.detector_pixel": pt.between(1e-5, 1e-3, log=True),
        "prepare.position_scale": pt.between(0.8, 1.2),
        "batch": (8, 12),
    }
    study = tune(scan, ranges, tmp_path, trials=2)
    first, second = study.trials
    assert scan.geometry is not None
    assert first.values == {
        "load.distance": pytest.approx(2.0),
        "load.energy": ENERGY,
        "load.detector_pixel": scan.geometry.detector_pixel[0],  # type: ignore[union-attr]
        "prepare.position_scale": 1.0,
        "batch": 12,
    }
    assert first.score == last_loss(scan, study.settings, 3)
    assert second.values["load.distance"] != first.values["load.distance"]
    opened = study.scan_of(2)
    assert opened.clip_negative, "an option that is not varied stays"
    assert opened.geometry.energy == pytest.approx(second.values["load.energy"])  # type: ignore[union-attr]
    assert opened.geometry.detector_pixel == (second.values["load.detector_pixel"],) * 2  # type: ignore[union-attr]


def test_present_values_of_a_near_field() -> None:
    geometry = pt.NearField(wavelength=1e-10, focus_to_sample=0.01, sample_to_detector=1.0, detector_pixel=(5e-5, 5e-5))
    scan = dataclasses.replace(SIMULATED, geometry=geometry)
    names = ["load.distance", "load.focus_to_sample", "load.geometry", "load.rotation", "prepare.crop"]
    assert present_values(scan, names) == {
        "load.distance": 1.0,
        "load.focus_to_sample": 0.01,
        "load.geometry": "near field",
        "prepare.crop": 32,
    }


def test_preparation_is_that_of_its_functions(tmp_path: Path) -> None:
    values = {"prepare.crop": 24, "prepare.bin": 2, "prepare.position_rotation": 0.1, "probe.modes": 2}
    expected = preparation.rotate_positions(preparation.bin(preparation.crop(SIMULATED, 24), 2), 0.1)
    made = variant(SIMULATED, values, None)
    assert made.metadata_digest == expected.metadata_digest
    np.testing.assert_array_equal(made.counts(0, 36), expected.counts(0, 36))
    scaled = variant(SIMULATED, {"prepare.position_scale": 1.5}, None)
    centre = SIMULATED.positions.mean(0)
    np.testing.assert_allclose(scaled.positions - scaled.positions.mean(0), 1.5 * (SIMULATED.positions - centre))
    assert variant(SIMULATED, {"probe.modes": 2}, None) is SIMULATED
    ranges = {"prepare.position_rotation": (-0.2, 0.0, 0.2)}
    study = tune(SIMULATED, ranges, tmp_path, sampler="grid", epochs=12)
    assert study.best is not None
    assert study.best.values == {"prepare.position_rotation": 0.0}


def test_a_defocus_is_found_by_a_function_of_the_user(tmp_path: Path) -> None:
    """The initial probe of an electron microscope, whose defocus is not known well."""
    wavelength, window = pt.electrons.electron_wavelength(200e3), (32, 32)
    geometry = pt.Geometry(wavelength=wavelength, distance=1.0, detector_pixel=(0.06 / 32,) * 2)

    def probe(defocus: float) -> Any:
        pixel = geometry.object_pixel(window)
        return pt.illumination.electron_probe(window, pixel, wavelength, 0.02, {"C10": defocus})[None]

    def with_probe(scan: Scan, *, defocus: float) -> Scan:
        return dataclasses.replace(scan, probe=probe(defocus).astype(np.complex64))

    index = np.arange(36)
    positions = np.stack([index // 6, index % 6], 1) * 3.0 + 2
    rng = np.random.default_rng(1)
    sample = np.exp(0.5j * rng.random((56, 56)))
    scan = pt.simulate_diffraction(sample, 1e3 * probe(12e-9), positions, geometry=geometry, seed=1)
    ranges = {"scan.defocus": (-12e-9, 0.0, 6e-9, 12e-9)}
    study = tune(scan, ranges, tmp_path, sampler="grid", trials=4, epochs=4, scan_function=with_probe)
    assert study.best is not None
    assert study.best.values == {"scan.defocus": 12e-9}
    np.testing.assert_array_equal(study.best_scan.probe, probe(12e-9).astype(np.complex64))
    assert last_loss(study.best_scan, study.best_settings, 4) == study.best.score
    with raises("tuning.different-study", "scan function", "another"):

        def another(scan: Scan, *, defocus: float) -> Scan:
            return with_probe(scan, defocus=defocus)

        tune(scan, ranges, tmp_path, sampler="grid", epochs=4, scan_function=another)


def test_a_scan_that_cannot_be_opened_again_is_refused(file: Path, tmp_path: Path) -> None:
    ranges = {"load.distance": pt.between(1.5, 2.5)}
    cropped = preparation.crop(pt.load(file), 24)
    with_mask = pt.load(file, mask=np.ones((32, 32), bool))
    for scan, fact in (
        (SIMULATED, "was not opened by load"),
        (cropped, "was changed after it was loaded"),
        (with_mask, "was opened with mask as arrays"),
    ):
        with raises("scan.not-in-file", fact, "change it in scan_function"):
            tune(scan, ranges, tmp_path)
    study = tune(pt.load(file), ranges, tmp_path, trials=1, scan_function=lambda scan: preparation.crop(scan, 24))
    assert study.scan_of(1).metadata_digest == cropped.metadata_digest


@pytest.mark.parametrize(
    ("wrong", "code", "facts"),
    [
        ({"ranges": {"load.dist": (1, 2)}}, "settings.unknown-name", ("load.dist", "load.distance")),
        ({"ranges": {"prepare.flip": (1, 2)}}, "settings.unknown-name", ("prepare.flip", "prepare.crop")),
        ({"ranges": {"load.distance": pt.between(-1, 1)}}, "settings.invalid-value", ("load.distance", -1)),
        ({"ranges": {"prepare.bin": pt.between(0.5, 2)}}, "settings.invalid-value", ("prepare.bin", 0.5)),
        ({"ranges": {"load.links": pt.between(1, 2)}}, "settings.invalid-value", ("load.links",)),
        ({"ranges": {"load.focus_to_sample": (0.1, 0.2)}}, "argument.conflict", ("focus_to_sample", "near field")),
        ({"ranges": {"scan.defocus": (0.1, 0.2)}}, "argument.missing", ("give scan_function",)),
        ({"ranges": {"prepare.crop": (16, 32)}}, "argument.conflict", ("prepare.crop", "use a function")),
        ({"sampler": "best"}, "argument.invalid-value", ("'best'", "'tpe'")),
        (
            {"sampler": optuna.samplers.GridSampler({"batch": (8, 12)})},
            "argument.conflict",
            ("GridSampler", "use the sampler 'grid'"),
        ),
        ({"pruner": True}, "argument.invalid-value", ("True", "'auto'")),
        ({"sampler": "grid", "ranges": {"load.distance": pt.between(1, 2)}}, "argument.conflict", ("load.distance",)),
    ],
)
def test_invalid_arguments_leave_no_file(
    file: Path, tmp_path: Path, wrong: dict[str, Any], code: str, facts: tuple[Any, ...]
) -> None:
    with raises(code, *facts):
        tune(pt.load(file), **{"ranges": {"batch": (8, 12)}, "path": tmp_path, **wrong})
    assert not [*tmp_path.iterdir()]


def test_crops_are_scored_by_a_function(tmp_path: Path) -> None:
    ranges = {"prepare.crop": pt.between(16, 32), "prepare.bin": (1, 2)}
    study = tune(SIMULATED, ranges, tmp_path, metric=lambda result: result.r_factor, pruner="median", epochs=1)
    assert study.ranges["prepare.crop"] == Between(16, 32)
    assert isinstance(study._pruner, optuna.pruners.NopPruner), "losses of different patterns are not compared"
    first, second, _ = study.trials
    assert first.values == {"prepare.crop": 32, "prepare.bin": 1}
    window = second.values["prepare.crop"] // second.values["prepare.bin"]
    assert (second.state == "failed" and second.values["prepare.crop"] % 2) or study.scan_of(2).pattern_shape == (
        window,
        window,
    )


def test_samplers_suggest_as_they_are_named(tmp_path: Path) -> None:
    ranges = {"probe.learning_rate": pt.between(1e-3, 1e-1, log=True)}
    kinds = {
        "tpe": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "gp": optuna.samplers.GPSampler,
    }
    for name, kind in kinds.items():
        study = tune(SIMULATED, ranges, tmp_path / name, sampler=name, trials=2, epochs=1)
        file = study._open_file()
        assert type(file._study.sampler) is kind
        file.close()
        assert len({trial.values["probe.learning_rate"] for trial in study.trials}) == 2
    own = optuna.samplers.NSGAIISampler(seed=1)
    study = tune(SIMULATED, ranges, tmp_path / "random", sampler=own, trials=3, epochs=1)
    assert study.done == 3, "a study may be continued with another sampler"


def test_pruners_stop_as_they_are_named(tmp_path: Path) -> None:
    kinds = {
        "median": optuna.pruners.MedianPruner,
        "halving": optuna.pruners.SuccessiveHalvingPruner,
        "hyperband": optuna.pruners.HyperbandPruner,
    }
    ranges = {"object.learning_rate": (0.1, 1e-6)}
    chosen: dict[str, Any] = {"sampler": "random", "trials": 6, "epochs": 5, "seed": 1}
    for pruner in (*kinds, optuna.pruners.ThresholdPruner(upper=1e-9)):
        study = tune(SIMULATED, ranges, tmp_path / str(pruner), pruner=pruner, **chosen)
        assert type(study._pruner) is kinds.get(pruner, type(pruner))
        pruned = [trial for trial in study.trials if trial.state == "pruned"]
        assert pruned, pruner
        assert all(len(trial.losses) < 5 for trial in pruned)
    study = tune(SIMULATED, ranges, tmp_path / "none", pruner="none", **chosen)
    assert {trial.state for trial in study.trials} == {"complete"}


def test_a_grid_is_finished_when_the_study_is_continued(tmp_path: Path) -> None:
    ranges = {"probe.learning_rate": (0.003, 0.01, 0.03), "batch": (8, 12)}
    assert tune(SIMULATED, ranges, tmp_path, sampler="grid", trials=2, epochs=1).wanted == 2
    study = tune(SIMULATED, ranges, tmp_path, sampler="grid", trials=100, epochs=1, seed=7)
    assert study.done == 6
    assert len({tuple(sorted(trial.values.items())) for trial in study.trials}) == 6


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises("package.not-installed", "pip install cmaes", "use the sampler 'tpe'"):
        tune(SIMULATED, {"probe.learning_rate": pt.between(1e-3, 1e-1)}, tmp_path, sampler="cmaes")
    assert tune(SIMULATED, {"batch": (8, 12)}, tmp_path, sampler="tpe", trials=1, epochs=1).done == 1


def test_engines_read_the_scans_of_their_trials(file: Path, tmp_path: Path, cluster: pt.Cluster) -> None:
    ranges = {"load.rotation": (0.0, 0.3)}
    study = pt.tune(
        pt.load(file),
        pt.Settings(batch=12, object={"learning_rate": 0.01}, probe={"learning_rate": 0.01}),
        ranges,
        cluster,
        sampler="grid",
        epochs=3,
        pruner="none",
        study=tmp_path / "study.journal",
    )
    study.wait()
    assert {trial.ranks for trial in study.trials} == {(0,), (1,)}
    assert [trial.reason for trial in study.trials] == ["", ""]
    for trial in study.trials:
        scan, settings = study.scan_of(trial.number), study.settings_of(trial.number)
        assert trial.score == pytest.approx(last_loss(scan, settings, 3), rel=1e-5)
