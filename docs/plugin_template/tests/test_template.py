"""Each plug-in where users meet it; run with the package installed."""

import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from ptynb_plugin_template.gain_drift import GainDrift
from ptynb_plugin_template.huber import HuberLoss

import ptynb as pt
from ptynb.cli.main import main
from ptynb.plugin_api import Batch, InvalidValueError
from ptynb.settings.run_files.run_file import read_run
from ptynb.widgets.form.form_contents import schema
from ptynb.widgets.form.form_view import SettingsForm

DISTRIBUTION = "ptynb-plugin-template"
CHOSEN = {
    "loss": "huber",
    "components": [{"kind": "gain_drift", "learning_rate": 0.02, "start": 0.1}],
    "constraints": [{"kind": "phase_limits", "low": -1.5, "high": 1.5}],
}


@pytest.fixture(scope="module")
def scan():
    return pt.simulate(patterns=37, window=32, photons=1e5, seed=3)


@pytest.fixture(scope="module")
def csv(scan, tmp_path_factory):
    """The scan as a file of the format "counts-csv"."""
    path, pixel, geometry = tmp_path_factory.mktemp("csv") / "scan.csv", scan.pixel_size, scan.geometry
    rows = zip(scan.positions * pixel, scan.counts(0, len(scan)), strict=True)
    lines = [",".join([*map(repr, place.tolist()), *(f"{one:.0f}" for one in counts.flat)]) for place, counts in rows]
    head = ["counts-csv", "window = 32 32", f"energy = {1.2398419843e-6 / geometry.wavelength}"]
    head += [f"distance = {geometry.distance}", f"pixel = {geometry.detector_pixel[0]}"]
    path.write_text("\n".join([*(f"# {one}" for one in head), *lines]) + "\n")
    return path


def finished(scan, settings, epochs=3, cluster=None, **options):
    with pt.Reconstruction(scan, settings, cluster, checkpointing=None, **options) as recon:
        recon.start(epochs=epochs)
        recon.wait()
        return recon.result


def used(result):
    return {(one.kind, one.name) for one in result.plugins if one.distribution == DISTRIBUTION and one.version}


def test_all_are_listed_and_work(capsys):
    assert main(["info", "--plugins", "--json"]) == 0
    listed = [one for one in json.loads(capsys.readouterr().out) if one["distribution"] == DISTRIBUTION]
    assert {one["kind"] for one in listed} == {
        *("formats", "live_sources", "components", "losses", "constraints", "launchers", "exporters", "colour_maps")
    }
    assert {one["problem"] for one in listed} == {""}


def test_settings_are_validated_and_stored():
    settings = pt.Settings(**CHOSEN)
    assert pt.Settings.from_yaml(settings.to_yaml()) == settings
    assert eval(pt.settings.schema.as_python(settings), {"pt": pt}) == settings  # the line that reports show
    for wrong, field in [
        ({"components": [{"kind": "gain_drift", "start": 5}]}, "components.0.gain_drift.start"),
        ({"constraints": [{"kind": "phase_limits", "high": -5}]}, "constraints.0.phase_limits.high"),
    ]:
        with pytest.raises(pt.SettingsError) as caught:
            pt.Settings(**wrong)
        assert caught.value.fields == (field,)
    with pytest.raises(pt.SettingsError, match=r"no setting .*stat.*did you mean 'start'.*learning_rate, start"):
        pt.Settings(components=[{"kind": "gain_drift", "stat": 0.1}])
    for stages, told in [
        ([{"epochs": 2}, {"epochs": 2, "settings": {"components": []}}], "stage 2 changes the components"),
        ([{"epochs": 2, "pattern_size": 16}, {"epochs": 2}], "'gain_drift' of a plug-in cannot be resampled"),
    ]:
        with pytest.raises(pt.SettingsError, match=told):
            pt.Recipe(settings=settings, stages=stages)
    with pytest.raises(pt.SettingsError, match=r"low is 1 and high is -1"):
        pt.Settings(constraints=[{"kind": "phase_limits", "low": 1, "high": -1}])


def test_forms_show_them():
    groups = {group["name"]: group for group in schema()["groups"]}
    assert "gain_drift" in {kind["kind"] for kind in groups["components"]["kinds"]}
    assert "phase_limits" in {kind["kind"] for kind in groups["constraints"]["kinds"]}
    [loss] = [one for one in groups["Algorithm"]["fields"] if one["name"] == "loss"]
    assert "huber" in [choice for choice, _ in loss["choices"]]
    form = SettingsForm(pt.Settings())
    try:
        form.add("components", "gain_drift")
        [entry] = form.entries["components"]
        form.enter(f"{entry['name']}.start", "0.25")
        assert form.settings.components[0].start == 0.25
        form.enter(f"{entry['name']}.start", "25")
        assert form.problems
    finally:
        form.close()


def test_the_slope_of_the_loss_is_its_derivative():
    loss, random = HuberLoss(floor=1e-3), np.random.default_rng(0)
    counts = torch.from_numpy(random.poisson(20, (2, 8, 8)).astype(float))
    model = torch.from_numpy(random.uniform(0.5, 80, (2, 8, 8)))
    mask = torch.from_numpy((random.random((8, 8)) > 0.2).astype(float))
    _, slope = loss.value_and_slope(model, counts, mask)
    step, way = 1e-5, torch.from_numpy(random.normal(size=(2, 8, 8)))
    ends = [loss.value_and_slope(model + sign * step * way, counts, mask)[0] for sign in (1, -1)]
    assert float((ends[0] - ends[1]) / (2 * step)) == pytest.approx(float((slope * way).sum()), rel=1e-6)


def test_the_gradient_of_the_component_is_right():
    component = GainDrift(0.3, 5).double()
    batch = Batch(torch.arange(5), torch.zeros(5, 4, 4), 5, torch.float64)
    intensity = torch.rand(5, 4, 4, dtype=torch.float64, requires_grad=True)

    def recorded(drift, intensity):
        return torch.func.functional_call(_Detect(component), {"inner.drift": drift}, (intensity, batch))

    assert torch.autograd.gradcheck(recorded, (component.drift, intensity))


class _Detect(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, intensity, batch):
        return self.inner.detect(intensity, batch)


def test_the_component_finds_a_drift_and_the_constraint_holds(scan):
    time_of = np.arange(len(scan)) / len(scan) - 0.5
    counts = scan.counts(0, len(scan)) * (1 + 0.4 * time_of)[:, None, None]
    drifting = pt.Scan.from_arrays(counts, scan.positions, probe=scan.ground_truth.probe, geometry=scan.geometry)
    found = finished(
        drifting, pt.Settings(**CHOSEN).replace(components=[{"kind": "gain_drift", "learning_rate": 0.05}]), 20
    )
    assert float(found.parameters["gain_drift/drift"]) == pytest.approx(
        0.4, abs=0.15
    )  # a part of it looks like an object
    assert np.abs(np.angle(found.object)).max() <= 1.5 + 1e-5


def test_two_engines_give_the_answer_of_one_and_the_record_has_all_plugins(csv, tmp_path):
    settings = pt.Settings(**CHOSEN, optimiser="sgd", batch=8, precision="double")
    scan = pt.load(csv)
    one = finished(scan, settings)
    with pt.Cluster(2, launcher="wrapped", device="cpu", command="nice -n 1") as cluster:
        two = finished(scan, settings, cluster=cluster, timeout=300.0)  # also where other programs run
    assert np.abs(two.object - one.object).max() < 1e-9
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-9)
    model = {("formats", "counts_csv"), ("losses", "huber"), ("components", "gain_drift")}
    model |= {("constraints", "phase_limits")}
    assert used(one) == model
    assert used(two) == model | {("launchers", "wrapped")}
    path = pt.save_result(two, tmp_path / "scan.result.h5")
    assert used(pt.load_result(path)) == used(two)
    assert pt.reproduce(pt.save_result(one, tmp_path / "one.h5")).equal


def test_a_run_file_uses_them_and_its_command_is_confirmed(csv, tmp_path, capsys):
    file = tmp_path / "run.yaml"
    plan = {"scan": str(csv), "epochs": 2, "result": str(tmp_path / "out.h5"), "settings": CHOSEN}
    file.write_text(yaml.safe_dump({**plan, "cluster": {"kind": "none"}}))
    assert main(["run", str(file)]) == 0
    assert ("losses", "huber") in used(pt.load_result(tmp_path / "out.h5"))
    assert main(["export", str(tmp_path / "out.h5"), str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text().startswith("x,phase\n")
    file.write_text(yaml.safe_dump({**plan, "cluster": {"kind": "wrapped", "engines": 2, "command": "nice -n 3"}}))
    assert read_run(file).cluster.command == "nice -n 3"
    assert main(["run", str(file)]) != 0  # it runs a program that nobody confirmed
    assert "cluster.command" in capsys.readouterr().err
    file.write_text(yaml.safe_dump({**plan, "cluster": {"kind": "wrapped", "command": 3}}))
    with pytest.raises(pt.SettingsError, match=r"cluster\.command is 3"):
        read_run(file)


def test_a_folder_is_received_live(scan, tmp_path):
    folder, counts = tmp_path / "detector", scan.counts(0, len(scan)).astype(np.uint32)
    folder.mkdir()

    def measure():
        for number, one in enumerate(counts):
            np.save(folder / "new.npy", one)
            (folder / "new.npy").rename(folder / f"{number:06}.npy")
        (folder / "end").touch()

    detector = threading.Thread(target=measure)
    detector.start()
    plan = pt.Plan(positions=scan.positions * scan.pixel_size, geometry=scan.geometry)
    live = pt.listen(f"npy+folder://{folder}", plan=plan, folder=tmp_path / "spool")
    detector.join()
    until = time.monotonic() + 60
    while live.acquisition.index().summary().arrived < len(scan) and time.monotonic() < until:
        time.sleep(0.05)
    live.stop_listening()
    assert [one.name for one in live.loaded.plugins] == ["npy+folder"]
    np.testing.assert_array_equal(pt.load(tmp_path / "spool" / "scan.h5").counts(0, len(scan)), counts)


def test_the_colour_map_is_known_to_viewers_and_figures(scan, tmp_path):
    from ptynb.io.export.colour_maps import look_up_table, offered

    assert "dusk" in offered()
    lightness = look_up_table("dusk").astype(float) @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) >= -1).all()
    result = finished(scan, pt.Settings(), epochs=1)
    assert Path(pt.export(result, tmp_path / "a.png", colours="dusk")).stat().st_size > 0
    pt.figure(result, kind="phase", colours="dusk")
    with pytest.raises(InvalidValueError, match="of a plug-in: 'dusk'"):
        look_up_table("dask")
