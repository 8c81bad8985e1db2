"""Files that version 0.1 wrote: run files, settings, results and states mean today what they meant then.

`tests/version_0_1` has them, all of one simulated scan of four patterns, in double precision. Beside them are the
losses of runs that went on without interruption after the state was kept.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import ptynb as pt
from ptynb.cli.main import main
from ptynb.data.record import Change
from ptynb.data.scan import Scan
from ptynb.io.checkpoint_file import load_state, save_state
from ptynb.io.result_file import load_result, save_result
from ptynb.optimize import optimizers
from ptynb.settings import Settings
from ptynb.settings.base_models import flat
from ptynb.settings.run_files.run_file import read_run

FILES = Path(__file__).parents[1] / "version_0_1"
LOSSES = json.loads((FILES / "losses.json").read_text())
TOLERANCE = 1e-9
CHANGES = 15
"""In the record of the run with Adam."""


def unpacked(name: str, folder: Path) -> Path:
    """A copy of a file, to be read and written beside."""
    found = folder / name
    packed = FILES / f"{name}.gz"
    found.write_bytes(gzip.decompress(packed.read_bytes()) if packed.exists() else (FILES / name).read_bytes())
    return found


@pytest.fixture(autouse=True)
def _beta2_of_version_0_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's was 0.999, and is no setting: all else is repeated as it was."""
    monkeypatch.setattr(optimizers, "BETAS", (0.9, 0.999))


@pytest.fixture
def scan(tmp_path: Path) -> Scan:
    return pt.load(unpacked("scan.h5", tmp_path))


@pytest.mark.parametrize("name", ["adam", "rpie", "raar"])
def test_a_run_goes_on_from_its_state_as_it_did_then(name: str, scan: Scan, tmp_path: Path) -> None:
    path, losses = unpacked(f"{name}.state.h5", tmp_path), LOSSES[name]
    with pt.resume(path, scan, device="cpu") as recon:
        recon.run_until(len(losses), 1 if name == "adam" else 0)
        recon.wait()
        found = [epoch.loss for epoch in recon.result.epochs]
    assert len(found) == len(losses)
    np.testing.assert_allclose(found, losses, rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["adam", "rpie", "raar"])
def test_a_state_written_again_is_the_same(name: str, tmp_path: Path) -> None:
    state = load_state(unpacked(f"{name}.state.h5", tmp_path))
    second = load_state(save_state(state, tmp_path / "state-00009.h5"))
    for part in ("settings", "begun", "changes", "active"):
        assert getattr(second, part) == getattr(state, part)
    assert Settings(**second.settings).precision == Settings(**second.begun).precision == "double"


@pytest.mark.parametrize(("name", "changes"), [("adam", CHANGES), ("rpie", 0)])
def test_a_result_opens_and_is_written_again_the_same(name: str, changes: int, tmp_path: Path) -> None:
    result = load_result(unpacked(f"{name}.result.h5", tmp_path))
    np.testing.assert_allclose(result.losses, LOSSES[name], rtol=1e-15)
    assert len(result.changes) == changes
    assert Settings(**result.settings).seed == Settings(**result.initial_settings).seed == 3
    second = load_result(save_result(result, tmp_path / "second.h5"))
    for part in ("settings", "initial_settings", "changes"):
        assert getattr(second, part) == getattr(result, part)
    assert {*second.parameters} == {*result.parameters}


@pytest.mark.parametrize("name", ["adam", "rpie"])
def test_a_run_is_repeated_from_its_result(name: str, scan: Scan, tmp_path: Path) -> None:
    repeat = pt.reproduce(unpacked(f"{name}.result.h5", tmp_path), scan, device="cpu")
    assert repeat.loss is not None
    assert repeat.loss < TOLERANCE
    # `repeat.difference` is unknown for objects as small as these, which cannot be registered.
    for array in ("object", "probe"):
        first, second = getattr(repeat.first, array), getattr(repeat.second, array)
        assert np.linalg.norm(second - first) < TOLERANCE * np.linalg.norm(first)


def test_a_run_file_is_run_as_it_was_then(scan: Scan, tmp_path: Path) -> None:
    path = unpacked("run.yaml", tmp_path)
    assert main(["run", str(path)]) == 0
    np.testing.assert_allclose(load_result(tmp_path / "run.result.h5").losses, LOSSES["run"], rtol=TOLERANCE)
    assert len([*(tmp_path / "kept").glob("state-*.h5")]) == 2


def test_earlier_names_are_translated_in_records_and_nothing_else_is(tmp_path: Path) -> None:
    result = load_result(unpacked("adam.result.h5", tmp_path))
    state = load_state(unpacked("adam.state.h5", tmp_path))
    names = {change.name for change in result.changes}
    assert {"probe.learning_rate", "probe.start_epoch", "pattern_intensities.learning_rate", "regularizers"} < names
    assert {"gradient_sync", "sync_every", "gradient_accumulation", "batch_sampling", "opr.end_epoch"} < names
    first = next(change for change in result.changes if change.name == "regularizers")
    assert [entry["kind"] for entry in first.old] == ["pacbed", "similarity", "sparsity"]
    sync = next(change for change in result.changes if change.name == "gradient_sync")
    assert (sync.old, sync.new) == ("dense", "sparse")
    assert state.changes == result.changes
    present = dict(flat(Settings(**result.settings).model_dump(mode="json")))
    assert dict(flat(result.settings)).items() <= present.items()  # settings that came later have defaults
    assert result.initial_settings["object"]["parametrization"] == "amplitude_phase"
    assert {"weights/weights", "variations/ways"} <= {*result.parameters}  # components keep their names
    assert {"weights", "variations", "offset"} <= {*state.active}


def test_a_file_of_today_is_not_translated(tmp_path: Path) -> None:
    result = load_result(unpacked("rpie.result.h5", tmp_path))
    change = Change(1, 0, "weights.rate", 0.1, 0.2)  # what a component of a user's own may have as a name
    again = load_result(save_result(dataclasses.replace(result, changes=(change,)), tmp_path / "second.h5"))
    assert again.changes == (change,)


def test_a_run_goes_on_with_the_present_parametrization_of_the_tilt(scan: Scan, tmp_path: Path) -> None:
    """It begins with the tilts of the state, which moves them in another unit."""
    path = unpacked("adam.state.h5", tmp_path)
    settings = Settings(**load_state(path).settings)
    with pt.resume(path, scan, settings=settings, device="cpu") as recon:
        before = recon.result.parameters["tilt/angles"]
    present = settings.replace(tilt={"parametrization": "shift"})
    with pt.resume(path, scan, settings=present, device="cpu") as recon:
        np.testing.assert_allclose(recon.result.parameters["tilt/angles"], before, rtol=1e-12)
        recon.step()
        assert np.abs(recon.result.parameters["tilt/angles"] - before).max() > 1e-9


def test_records_of_then_have_the_parametrizations_of_then_and_run_files_the_present_default(tmp_path: Path) -> None:
    result, state = load_result(unpacked("adam.result.h5", tmp_path)), load_state(unpacked("adam.state.h5", tmp_path))
    for values in (result.settings, result.initial_settings, state.settings, state.begun):
        assert Settings(**values).background.parametrization == "intensity"
        assert Settings(**values).tilt.parametrization == "angle"
    assert Settings.from_yaml("background: {rate: 0.1}").background.parametrization == "amplitude"
    assert Settings.from_yaml("tilt: {each: true}").tilt.parametrization == "shift"
    assert all(epoch.object_change is None for epoch in (*result.epochs, *state.epochs))


def test_an_earlier_name_beside_the_present_one_is_refused(tmp_path: Path) -> None:
    text = "probe: {rate: 0.1, learning_rate: 0.2}"
    with pytest.raises(
        pt.SettingsError, match=r"'probe\.rate' is the earlier name of 'probe\.learning_rate'; give only"
    ):
        Settings.from_yaml(text)
    path = tmp_path / "run.yaml"
    path.write_text(f"scan: a.h5\nepochs: 1\nresult: b.h5\nsettings: {{{text}}}\n")
    with pytest.raises(pt.SettingsError, match=r"run\.yaml: 'settings\.probe\.rate' is the earlier name"):
        read_run(path)


@pytest.mark.parametrize("name", ["form.yaml", "settings.yaml"])
def test_settings_are_read_and_written_again_the_same(name: str) -> None:
    settings = Settings.from_yaml(FILES / name)
    given = yaml.safe_load((FILES / name).read_text())
    assert (settings.optimiser, settings.seed) == (given["optimiser"], given["seed"])
    assert Settings.from_yaml(settings.to_yaml()) == settings
