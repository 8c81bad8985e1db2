"""Settings in files of earlier versions, of each kind: with fields that were renamed since, and without a new one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.settings import renamed
from ptynb.settings.base_models import flat
from ptynb.settings.run_files.run_file import read_run
from tests.raising import raises

SETTINGS = pt.Settings(batch=8, probe=pt.Probe(modes=2))
RENAMED = {
    "Settings": {"pile": "batch"},
    "Part": {"speed": "learning_rate"},
    "Stage": {"rounds": "epochs"},
    "LoadOptions": {"photon_energy": "energy"},
}
"""Earlier names of this test's own."""
EARLIER = {"batch": "pile", "learning_rate": "speed", "epochs": "rounds", "energy": "photon_energy"}
NEW = "seed"
"""A field that files of earlier versions lack."""


def rename(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on fields have other names: the files that were written before are of an earlier version."""
    monkeypatch.setattr(renamed, "TABLES", (*renamed.TABLES, RENAMED))


def as_earlier(values: Any, only: tuple[str, ...] = tuple(EARLIER)) -> Any:
    """Plain values with the earlier names, and without the field that is new."""
    if isinstance(values, dict):
        return {EARLIER[k] if k in only else k: as_earlier(v, only) for k, v in values.items() if k != NEW}
    return [as_earlier(one, only) for one in values] if isinstance(values, list) else values


def text_as_earlier(text: str) -> str:
    return json.dumps(as_earlier(json.loads(text), ("batch", "learning_rate")))


@pytest.fixture(scope="module")
def scan() -> pt.Scan:
    return pt.simulate(patterns=16, window=16, seed=3)


def a_run(scan: pt.Scan, folder: Path) -> pt.Reconstruction:
    recipe = pt.Recipe(settings=SETTINGS, stages=(pt.Stage(epochs=1), pt.Stage(epochs=1, settings={"batch": 4})))
    return pt.Reconstruction(scan, recipe, device="cpu", checkpointing=pt.Checkpointing(folder=folder, epochs=1))


def as_now(record: Any) -> None:
    """The settings of a record are those that were written."""
    assert record.settings["batch"] == 4
    assert "pile" not in record.settings
    assert pt.Settings(**record.settings) == SETTINGS.replace(batch=4)
    assert [pt.Stage(**one).settings for one in record.stages] == [{}, {"batch": 4}]
    changes = {change.name: (change.old, change.new) for change in record.changes}
    assert changes["batch"] == (8, 4)


def test_a_result(tmp_path: Path, scan: pt.Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_run(scan, tmp_path / "kept") as recon:
        recon.start()
        recon.wait()
        path = recon.save(tmp_path / "run.result.h5")
    with h5py.File(path, "r+") as file:
        for name in ("settings/at_end", "settings/at_start"):
            values = text_as_earlier(file[name][()].decode())
            del file[name]
            file[name] = values
        stages = json.dumps(as_earlier(json.loads(file["settings/stages"][()].decode()), ("batch", "epochs")))
        del file["settings/stages"]
        file["settings/stages"] = stages
        changes = file["changes"][()]
        changes["name"] = [b"pile" if one == b"batch" else one for one in changes["name"]]
        file["changes"][...] = changes
    rename(monkeypatch)
    result = pt.load_result(path)
    as_now(result)
    assert pt.Settings(**result.initial_settings) == SETTINGS
    assert pt.reproduce(path, scan, device="cpu").equal


def test_a_checkpoint(tmp_path: Path, scan: pt.Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_run(scan, tmp_path / "kept") as recon:
        recon.start()
        recon.wait()
        path = recon.save_checkpoint()
    with h5py.File(path, "r+") as file:
        record = json.loads(file["record"][()].tobytes())
        for name in ("settings", "begun"):
            record[name] = as_earlier(record[name], ("batch", "learning_rate"))
        record["stages"] = as_earlier(record["stages"], ("batch", "epochs"))
        record["changes"] = json.loads(json.dumps(record["changes"]).replace("batch", "pile"))
        octets = np.frombuffer(json.dumps(record).encode(), np.uint8)
        del file["record"]
        file["record"] = octets
        file["record"].attrs["shape"] = octets.shape
    rename(monkeypatch)
    as_now(pt.load_result(path))
    with pt.resume(path, scan, device="cpu") as recon:
        assert recon.settings == SETTINGS.replace(batch=4)
        recon.run_until(3)
        recon.wait()


@pytest.mark.parametrize("written", ["by this version", "with earlier names", "when all was in one place"])
def test_a_study(tmp_path: Path, scan: pt.Scan, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    ranges = {"probe.learning_rate": pt.between(1e-3, 1e-1, log=True), "batch": (8, 16)}

    def tune(settings: pt.Settings, trials: int = 2) -> pt.Study:
        study = pt.tune(
            scan, settings=settings, ranges=ranges, trials=trials, epochs=1, pruner="none", study=tmp_path / "s.journal"
        )
        study.wait()
        return study

    def facts(study: pt.Study) -> list[Any]:
        return [(trial.number, trial.state, trial.values, trial.score, trial.losses) for trial in study.trials]

    path = tmp_path / "s.journal"
    before = facts(tune(SETTINGS))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines if written != "by this version" else []:
        (record,) = (line.get("user_attr") or {}).values() or ({},)
        if "tables" in record:
            record["settings"] = as_earlier(record["settings"], ("batch", "learning_rate"))
            record["ranges"] = {"probe.speed": record["ranges"]["probe.learning_rate"], "pile": [8, 16]}
            if written != "with earlier names":
                ranges_then = {
                    f"range of {name}": repr(tuple(one)) if isinstance(one, list) else one
                    for name, one in record["ranges"].items()
                }
                settings = {name: value for name, value in flat(record["settings"]) if name not in record["ranges"]}
                line["user_attr"] = {"ptynb": record["about"] | ranges_then | settings}
        text = json.dumps(line)
        for name, earlier in {"probe.learning_rate": "probe.speed", "batch": "pile"}.items():
            text = re.sub(rf'"{re.escape(name)}"', f'"{earlier}"', text)
        line.clear()
        line.update(json.loads(text))
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    rename(monkeypatch)
    study = tune(SETTINGS, trials=3)
    assert facts(study)[:2] == before
    assert len(study.trials) == 3
    assert {*study.trials[0].values} == {*study.trials[2].values} == set(ranges)
    assert facts(tune(SETTINGS, trials=3)) == facts(study), "lines of both versions are in the file"
    with raises("tuning.different-study", f"{NEW} is 0", "1"):
        tune(SETTINGS.replace(seed=1))


def test_run_files_and_recipes_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename(monkeypatch)
    plain = as_earlier(SETTINGS.model_dump(mode="json"), ("batch", "learning_rate"))
    stage = {"rounds": 2, "settings": {"pile": 4}}
    path = tmp_path / "file.yaml"
    path.write_text(json.dumps(plain))
    assert pt.Settings.from_yaml(path) == SETTINGS
    path.write_text(json.dumps({"settings": plain, "stages": [stage]}))
    recipe = pt.Recipe.from_yaml(path)
    assert [one.batch for one in recipe.stage_settings] == [4]
    run = {"scan": "a.h5", "result": "b.h5", "settings": plain, "stages": [stage], "load": {"photon_energy": 8e3}}
    path.write_text(json.dumps(run))
    found = read_run(path)
    assert (found.load.energy, found.settings) == (8e3, SETTINGS)
    assert [one.applied_to(found.settings).batch for one in found.stages] == [4]


def test_the_package_can_be_imported_without_locks_of_unix() -> None:
    """As on Windows."""
    line = "import sys; sys.modules['fcntl'] = None; import ptynb.tuning.study, ptynb.tuning.trial_storage"
    subprocess.run([sys.executable, "-c", line], check=True)
