"""`ptynb run` with several scans as one, and with one that is measured: by the run file, resumed, and repeated."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import ptynb as pt
import ptynb.run
from ptynb.acquisition.emulators.playback import Recording
from ptynb.cli.main import main
from ptynb.data.arrivals import ArrivalIndex
from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.io.result_file import load_result
from ptynb.settings.run_files.run_file import read_run
from tests.acquisition.emulated import emulator, recorded
from tests.parametrization import each

RUN = """\
scan:
  - a.h5
  - file: raw.h5
    load: {load}
    prepare: [{{select: "::2"}}]{shift}
share: {share}
result: {share}.h5
cluster: {{kind: none, device: cpu}}
prepare: [{{crop: 24}}]
settings: {{batch: 8, positions: {{learning_rate: 0.05, max_shift: 2}}}}
stages:
  - {{epochs: 2}}
  - {{epochs: 2, settings: {{positions: {{max_shift: 20}}}}}}
"""
SHIFT = (1.5, -2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two scans, of 16 and 20 patterns, and a run file for each of what they may share."""
    path = tmp_path_factory.mktemp("scans")
    for count, name in ((16, "a"), (20, "b")):
        scan = pt.simulate(patterns=count, window=32, seed=count, step=4)
        pt.save_scan(dataclasses.replace(scan, name=name, probe=None), path / f"{name}.h5")
    with h5py.File(path / "raw.h5", "w") as file:
        file["data"] = scan.counts(0, 20)
    np.save(path / "raw.npy", scan.positions)
    for share, shift in (("probe", ""), ("object", f"\n    shift: {[*SHIFT]}")):
        (path / f"{share}.yaml").write_text(RUN.format(load=json.dumps(raw(scan)), share=share, shift=shift))
    return path


def raw(scan: Scan) -> dict[str, Any]:
    """The options by which the second scan is loaded from a file without metadata."""
    assert isinstance(scan.geometry, Geometry)
    given = {name: getattr(scan.geometry, name) for name in ("wavelength", "distance", "detector_pixel")}
    return {"positions": "raw.npy", "units": "pixels", **given}


@each("share", ["probe", "object"])
def test_a_list_of_scans_is_one_run_that_is_resumed_and_repeated(
    folder: Path, tmp_path: Path, share: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(folder / f"{share}.yaml")]) == 0
    result = load_result(folder / f"{share}.h5")

    options = raw(pt.load(folder / "b.h5")) | {"positions": folder / "raw.npy"}
    second = pt.prepare(pt.load(folder / "raw.h5", **options), [{"crop": 24}, {"select": "::2"}])
    scans = [pt.prepare(pt.load(folder / "a.h5"), [{"crop": 24}]), second]
    assert [len(one.positions) for one in result.split()] == [16, 10]
    recipe = read_run(folder / f"{share}.yaml").recipe.model_copy(update={"prepare": ()})
    apart: dict[str, Any] = (
        {"gap": 2 * recipe.stage_settings[1].margin} if share == "probe" else {"shifts": [(0, 0), SHIFT]}
    )
    scan = pt.preparation.combine(scans, share=share, **apart)
    with pt.Reconstruction(scan, recipe, device="cpu", checkpointing=None) as recon:
        recon.start()
        recon.wait()
        expected = recon.result
    for name in ("object", "probe", "positions", "losses"):
        np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))

    line = ["run", str(folder / f"{share}.yaml"), "--keep", str(tmp_path / share), "--result", str(tmp_path / "r.h5")]
    assert main([*line, "--epochs", "1"]) == 0
    assert main([*line, "--resume"]) == 0
    np.testing.assert_array_equal(load_result(tmp_path / "r.h5").object, result.object)

    capsys.readouterr()
    assert main(["run", str(folder / f"{share}.h5"), "--reproduce", "--device", "cpu"]) == 0
    assert "4 epochs again. Equal to the bit.\n" in capsys.readouterr().out


def test_the_command_line_names_several_scans_and_a_cluster_reconstructs_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.yaml").write_text("batch: 8\n")
    scans = [word for name in "ab" for word in ("--scan", str(folder / f"{name}.h5"))]
    path = tmp_path / "r.h5"
    line = ["run", str(tmp_path / "settings.yaml"), *scans, "--epochs", "2", "--result", str(path), "--device", "cpu"]
    assert main(line) == 78
    assert "'share: object' (--share)" in " ".join(capsys.readouterr().err.split())
    assert main([*line, "--share", "probe", "--engines", "1"]) == 0
    result = load_result(path)
    assert [one.scan.name for one in result.split()] == ["a", "b"]
    assert "a + b: 1 engine on CPU" in capsys.readouterr().out
    assert main(["run", str(path), "--reproduce", *scans]) == 64
    assert "--scan is given 2 times" in " ".join(capsys.readouterr().err.split())


def test_scans_that_cannot_be_one_are_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text.h5").write_text("not HDF5")
    pt.save_scan(dataclasses.replace(pt.simulate(patterns=4, window=40, step=4), name="wide"), folder / "wide.h5")
    for entry, facts in (
        ("wide.h5", ["'a' and 'wide'", "32 x 32 and 40 x 40"]),
        ("{file: b.h5, prepare: [{crop: 99}]}", ["b.h5: Step 1 of the preparation, crop", "99 x 99"]),
        ("{file: b.h5, start: a.h5}", ["a.h5", "not a result"]),
        ("text.h5", ["text.h5"]),
    ):
        text = f"scan: [a.h5, {entry}]\nshare: probe\nepochs: 1\nresult: wrong.h5\ncluster: {{kind: none}}\n"
        (folder / "wrong.yaml").write_text(text)
        assert main(["run", str(folder / "wrong.yaml")]) in (64, 65, 66, 78)
        said = " ".join(capsys.readouterr().err.split())
        assert "Traceback" not in said
        for fact in facts:
            assert fact in said, said


def test_each_scan_begins_with_a_guess_of_its_own(folder: Path, tmp_path: Path) -> None:
    with pt.Reconstruction(pt.load(folder / "b.h5"), device="cpu", checkpointing=None) as recon:
        [*recon.run(5)]
        start = recon.save(tmp_path / "b.result.h5")
        begun = recon.result
    (tmp_path / "run.yaml").write_text(
        f"scan: [{folder / 'a.h5'}, {{file: {folder / 'b.h5'}, start: {start.name}}}]\nshare: object\n"
        "epochs: 1\nresult: r.h5\ncluster: {kind: none, device: cpu}\n"
        "settings: {object: {learning_rate: 0}, probe: {start_epoch: 9}}\n"
    )
    assert main(["run", str(tmp_path / "run.yaml")]) == 0
    guessed = load_result(tmp_path / "r.h5").split()[1].probe
    overlap = abs(np.vdot(guessed, begun.probe)) / np.linalg.norm(guessed) / np.linalg.norm(begun.probe)
    assert overlap == pytest.approx(1, abs=1e-6), "but for its scale, which follows the counts"


LIVE = """\
listen:
  source: {source}
  plan: {{positions: planned.npy, silence: 60}}
epochs: 4
result: live.h5
cluster: {{engines: 1, device: cpu, threads: 1}}
settings: {{batch: 8}}
"""


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    last = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < last
        time.sleep(0.005)


def used(folder: Path) -> int:
    path = folder / "arrivals.index"
    return ArrivalIndex.open(path).summary().arrived if path.exists() else 0


def test_a_scan_is_received_during_a_run_that_is_interrupted_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The detector stands still in the middle, until the run was interrupted."""
    path, run, live = recorded(tmp_path, 100), tmp_path / "live.yaml", tmp_path / "live.live"
    np.save(tmp_path / "planned.npy", Recording(pt.load(path)).positions)
    with emulator(path, "--rate", 50, "--drop", 0.04, "--duplicate", 0.03) as emulated:
        run.write_text(LIVE.format(source=emulated.source))
        assert main(["run", str(run)]) == 78
        assert f"listen.source: '{emulated.source}'" in " ".join(capsys.readouterr().err.split())
        assert not live.exists()
        line = [sys.executable, "-m", "ptynb.cli.main", "run", str(run), "--trust"]
        output = tmp_path / "output"
        with output.open("w") as file, subprocess.Popen(line, stdout=file, stderr=subprocess.STDOUT) as process:
            until(lambda: used(live) > 45)
            emulated.process.send_signal(signal.SIGSTOP)
            came = used(live)
            until(lambda: f" {used(live)} used" in output.read_text() and "; epoch" in output.read_text())
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        said = output.read_text()
        assert 45 < came <= used(live) < 90
        assert "of 100 patterns came, " in said
        assert f"Waiting for a scan from {emulated.source}, which is written to {live}.\n" in said
        assert f"The scan is still being received in {live}, until it ends.\n" in said
        assert f"Continue with: ptynb run {run} --trust --resume\n" in said
        assert main([*line[3:], "--keep", str(tmp_path / "other")]) == 73
        said = "".join(capsys.readouterr().err.split())  # lines are broken within long paths
        assert f"{live}hasascanthatwasreceivedbefore" in said
        emulated.process.send_signal(signal.SIGCONT)
        assert main([*line[3:], "--resume"]) == 0
    said, result, scan = capsys.readouterr().out, load_result(tmp_path / "live.h5"), pt.load(live / "scan.h5")
    record = result.admissions
    assert record is not None
    assert 90 < len(scan) == len(record.patterns) < 100
    assert f"{len(scan)} of 100 patterns came, {len(scan)} used, {100 - len(scan)} missing, " in said
    assert len(result.epochs) == record.epochs + 4
    assert f"epoch {len(result.epochs)}/{len(result.epochs)} loss" in said
    assert "elsewhere" not in said
    assert main(["run", str(tmp_path / "live.h5"), "--reproduce", "--engines", "1"]) == 0
    assert "Equal to the bit." in capsys.readouterr().out


def test_a_live_run_needs_no_cluster_and_ends_before_the_detector_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = recorded(tmp_path, 100), tmp_path / "live.yaml"
    np.save(tmp_path / "planned.npy", Recording(pt.load(path)).positions)
    text = LIVE.replace("engines: 1", "kind: none")
    line = ["run", str(run), "--trust"]
    for source, change, facts in (
        ("tcp://a:1", ("", ""), ["live.yaml: in listen, source is 'tcp://a:1'", "stream2://"]),
        ("stream2://127.0.0.1:9", ("silence: 60", "silence: 60, mask: none.npy"), ["none.npy", "the mask"]),
        ("stream2://127.0.0.1:9", ("silence: 60}", "silence: 60}\n  timeout: 0.3"), ["within 0.3 s"]),
    ):
        run.write_text(text.format(source=source).replace(*change) if change[0] else text.format(source=source))
        assert main(line) in (64, 65, 66, 69, 78)
        said = "".join(capsys.readouterr().err.split())  # lines are broken within long paths
        for fact in facts:
            assert "".join(fact.split()) in said, said
        assert not (tmp_path / "live.live").exists()
    assert ptynb.run.main(line[1:]) == 64
    assert "use 'ptynb run'" in " ".join(capsys.readouterr().err.split())
    with emulator(path, "--rate", 0) as emulated:
        run.write_text(text.format(source=emulated.source))
        assert main(line) == 0
    result = load_result(tmp_path / "live.h5")
    assert result.admissions is not None
    assert len(result.admissions.patterns) == 100
    assert "100 of 100 patterns came, 100 used" in capsys.readouterr().out
