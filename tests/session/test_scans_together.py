"""Several scans in one reconstruction: in result files, resumed, repeated, and split into one result for each."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.io.result_file import load_result, save_result
from ptynb.report.result_facts import environment_rows, lines_of
from tests.parametrization import each
from tests.raising import raises

SETTINGS = pt.Settings(
    batch=8,
    probe=pt.Probe(modes=2),
    positions=pt.Positions(learning_rate=0.05, max_shift=3),
    probe_offset=pt.ProbeOffset(learning_rate=0.02),
    pattern_intensities=pt.PatternIntensities(learning_rate=0.01),
)


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> list[Scan]:
    """Two scans in files, of 16 and 25 patterns."""
    folder = tmp_path_factory.mktemp("scans")
    for count, name in ((16, "a"), (25, "b")):
        scan = pt.simulate(patterns=count, window=32, seed=count, step=4)
        pt.save_scan(dataclasses.replace(scan, name=name, probe=None), folder / f"{name}.h5")
    return [pt.load(folder / f"{name}.h5") for name in "ab"]


def finished(scans: list[Scan], share: Any, folder: Path, cluster: pt.Cluster | None = None) -> pt.Result:
    """The result of three epochs and a half, the checkpoint of which remains in the folder."""
    checkpointing = pt.Checkpointing(folder=folder, epochs=None, seconds=None)
    device = "auto" if cluster else "cpu"
    with pt.Reconstruction(scans, SETTINGS, cluster, device=device, share=share, checkpointing=checkpointing) as recon:
        recon.run_until(2, 1)
        recon.wait()
        recon.save_checkpoint()
        recon.run_until(3, 2)
        recon.wait()
        return recon.result


@each("share", ["probe", "object"])
def test_a_run_of_two_scans_is_saved_split_resumed_and_repeated(scans: list[Scan], share: Any, tmp_path: Path) -> None:
    result = finished(scans, share, tmp_path / share)
    path = save_result(result, tmp_path / "result.h5")
    again = load_result(path)
    assert again.scan == result.scan
    assert [one["name"] for one in again.scan.combination["scans"]] == ["a", "b"]

    for number, (one, scan) in enumerate(zip(again.split(), scans, strict=True)):
        rows = slice(0, 16) if number == 0 else slice(16, 41)
        assert (one.scan.name, one.scan.path, len(one.positions)) == (scan.name, str(scan.loaded.path), len(scan))  # type: ignore[union-attr]
        np.testing.assert_allclose(one.parameters["positions/start"] + one.origin, scan.positions)
        np.testing.assert_array_equal(one.parameters["weights/weights"], result.parameters["weights/weights"][rows])
        assert one.probe.shape == (2, 32, 32)
        assert np.abs(one.positions - one.parameters["positions/start"]).max() > 1e-3
        corners = np.rint(one.positions).astype(int)
        assert corners.min() >= 0
        assert (corners + 32 <= one.object.shape[-2:]).all()
        if share == "object":
            np.testing.assert_array_equal(one.object, result.object)
            np.testing.assert_array_equal(one.probe, result.probe[2 * number : 2 * number + 2])
            assert one.parameters["offset/shift"].shape == (2,)
        else:
            np.testing.assert_array_equal(one.probe, result.probe)
            # The windows of a pattern show the same pixels in the part and in the whole.
            y, x = np.rint(result.positions[rows][-1]).astype(int)
            top, left = corners[-1]
            whole, part = result.object[y : y + 32, x : x + 32], one.object[top : top + 32, left : left + 32]
            np.testing.assert_array_equal(part, whole)
            assert np.abs(whole - 1).max() > 0.01
        assert result.scan_r_factors is not None
        assert (one.r_factor, one.scan_r_factors) == (result.scan_r_factors[number], None)
        with raises("scan.combined", f"'{scan.name}'", "'a + b'"):
            pt.reproduce(save_result(one, tmp_path / f"{number}.h5"), device="cpu")

    with pt.resume(tmp_path / share, device="cpu") as resumed:
        assert resumed.scan.name == "a + b"
        resumed.run_until(3, 2)
        resumed.wait()
        np.testing.assert_array_equal(resumed.result.object, result.object)
        np.testing.assert_array_equal(resumed.result.probe, result.probe)
        branch = resumed.branch_result("main")
        assert branch.probe.shape == result.probe.shape
        assert [np.isnan(one.r_factor) for one in branch.split()] == [True, True], "no engine measured it"

    page = (pt.report(again, tmp_path / "report.html")).read_text()
    for one in again.split():
        assert f"R-factor of {one.scan.name}" in page
        assert f"{one.r_factor:.5f}" in page

    lines = lines_of(again)
    assert [f"pt.load({scan.loaded.path!r})" in lines for scan in scans] == [True, True]  # type: ignore[union-attr]
    assert f"pt.preparation.combine([scan_1, scan_2], share={share!r}, " in lines
    assert ("Scans", f"a (16 patterns), b (25 patterns), with a common {share}") in environment_rows(again)

    repeated = pt.reproduce(path, device="cpu")
    assert repeated.equal
    assert repeated.notes == ()


@each("share", ["probe", "object"])
def test_the_r_factor_of_each_scan_is_that_of_its_patterns(scans: list[Scan], share: Any) -> None:
    """By numpy, from the parts of the result alone, at positions of whole pixels."""
    whole = [dataclasses.replace(scan, positions=np.rint(scan.positions)) for scan in scans]
    settings = pt.Settings(batch=8, probe=pt.Probe(modes=2), precision="double")
    with pt.Reconstruction(whole, settings, device="cpu", share=share, checkpointing=None) as recon:
        [*recon.run(2)]
        result = recon.result
    sums = []
    for one, scan in zip(result.split(), whole, strict=True):
        windows = np.stack([one.object[y : y + 32, x : x + 32] for y, x in np.rint(one.positions).astype(int)])
        waves = np.fft.fft2(one.probe * windows[:, None], norm="ortho")
        modelled = np.fft.fftshift(np.sqrt((np.abs(waves) ** 2).sum(1)), (1, 2))
        measured = np.sqrt(scan.counts(0, len(scan)).astype(float))
        sums.append((np.abs(measured - modelled).sum(), measured.sum()))
        assert one.r_factor == pytest.approx(sums[-1][0] / sums[-1][1], rel=1e-9)
    residual, total = np.sum(sums, 0)
    assert result.r_factor == pytest.approx(residual / total, rel=1e-9)
    assert result.scan_r_factors is not None
    assert abs(result.scan_r_factors[0] - result.scan_r_factors[1]) > 1e-5


def test_on_two_engines_a_common_object_is_that_of_one_engine(
    scans: list[Scan], cluster: pt.Cluster, tmp_path: Path
) -> None:
    """Each engine reads its own patterns of each file."""
    alone, both = (finished(scans, "object", tmp_path / str(at), at) for at in (None, cluster))
    assert np.linalg.norm(alone.object - both.object) < 1e-3 * np.linalg.norm(alone.object)
    np.testing.assert_allclose(both.losses, alone.losses, rtol=1e-4)
    assert both.scan_r_factors is not None
    assert both.scan_r_factors == pytest.approx(alone.scan_r_factors, rel=1e-4)


def test_a_run_of_one_scan_is_not_split(scans: list[Scan]) -> None:
    with pt.Reconstruction(scans[0], device="cpu", checkpointing=None) as recon:
        result = recon.result
    assert result.split() == (result,)
    assert result.scan.combination == {}


def test_more_modes_are_given_to_each_probe(scans: list[Scan], tmp_path: Path) -> None:
    with pt.Reconstruction(
        scans, SETTINGS, device="cpu", share="object", checkpointing=pt.Checkpointing(folder=tmp_path)
    ) as recon:
        [*recon.run(2)]
        before = recon.result
        recon.reconfigure(recon.settings.replace(probe={"modes": 3}))
        after = recon.result
    assert after.probe.shape == (6, 32, 32)
    for old, new in zip(before.split(), after.split(), strict=True):
        power = (np.abs(new.probe) ** 2).sum((1, 2))
        assert power.sum() == pytest.approx((np.abs(old.probe) ** 2).sum(), rel=1e-5)
        assert power[2] < 0.01 * power.sum()
        np.testing.assert_allclose(new.probe[:2], old.probe, atol=2e-3 * np.abs(old.probe).max())
    assert after.r_factor == pytest.approx(before.r_factor, rel=0.02)


def test_the_power_of_a_mode_stays_in_its_probe(scans: list[Scan]) -> None:
    settings = SETTINGS.replace(
        positions={"learning_rate": 0}, constraints=(pt.constraints.OrthogonalModes(), pt.constraints.FixedProbePower())
    )
    with pt.Reconstruction(scans, settings, device="cpu", share="object", checkpointing=None) as recon:
        start = recon.result.split()
        [*recon.run(2)]
        ended = recon.result.split()
    total = sum((np.abs(one.probe) ** 2).sum() for one in start)
    assert sum((np.abs(one.probe) ** 2).sum() for one in ended) == pytest.approx(total, rel=1e-5)
    for one in ended:
        first, second = one.probe.reshape(2, -1)
        assert abs(np.vdot(first, second)) < 1e-4 * np.linalg.norm(first) * np.linalg.norm(second)


def test_what_scans_share_has_to_be_said(scans: list[Scan]) -> None:
    with raises("argument.missing", "2 scans", "share='probe'"):
        pt.Reconstruction(scans, device="cpu")
    with raises("argument.conflict", "'probe'", "[a, b]"):
        pt.Reconstruction(scans[0], device="cpu", share="probe")
    with raises("argument.invalid-type", "str"):
        pt.Reconstruction([scans[0], "b.h5"], device="cpu", share="probe")  # type: ignore[list-item]
    with raises("argument.invalid-value", "1 scans"):
        pt.Reconstruction(scans[:1], device="cpu", share="probe")


def test_objects_are_as_far_apart_as_the_settings_need(scans: list[Scan]) -> None:
    settings = pt.Settings(positions=pt.Positions(learning_rate=0.1, max_shift=40))
    with pt.Reconstruction(scans, settings, device="cpu", share="probe", checkpointing=None) as recon:
        assert recon.scan.combination is not None
        assert recon.scan.combination.gap == 2 * settings.margin


def test_two_scans_are_not_written_to_one_file(scans: list[Scan], tmp_path: Path) -> None:
    with raises("scan.combined", "'a + b'", "2 scans"):
        pt.save_scan(pt.preparation.combine(scans, share="probe"), tmp_path / "scan.h5")
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_does_not_say_how_scans_were_combined_is_refused(scans: list[Scan], tmp_path: Path) -> None:
    with pt.Reconstruction(scans, device="cpu", share="probe", checkpointing=None) as recon:
        result = recon.result
    plain = json.loads(json.dumps(result.scan.combination))
    del plain["gap"]
    broken = dataclasses.replace(result, scan=dataclasses.replace(result.scan, combination=plain))
    with raises("file.damaged", "gap"):
        pt.reproduce(save_result(broken, tmp_path / "result.h5"), device="cpu")
