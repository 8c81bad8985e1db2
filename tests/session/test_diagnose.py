"""`pt.diagnose` on reconstructions, and trials of its remedies."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis.faults import diagnosis
from ptynb.data.scan import Scan
from ptynb.session.diagnose import confirm
from tests.raising import raises

SETTINGS = pt.Settings(optimiser="lsqml", momentum=0.5)


def reconstructed(scan: Scan, epochs: int) -> pt.Result:
    with pt.Reconstruction(scan, SETTINGS, device="cpu", checkpointing=None) as recon:
        list(recon.run(epochs))
        assert pt.diagnose(recon).values == pytest.approx(pt.diagnose(recon.result, scan).values, rel=1e-6, abs=1e-9)
        return recon.result


def test_a_trial_confirms_what_helps_and_what_does_not(scan: Scan, tmp_path: Path) -> None:
    wrong = np.random.default_rng(0).normal(0, 1.0, scan.positions.shape)
    displaced = dataclasses.replace(scan, positions=scan.positions + wrong)
    result = reconstructed(displaced, 20)
    found = pt.diagnose(result, displaced, trial=True, epochs=10, device="cpu")
    trial = found[diagnosis.POSITIONS].confirmation
    assert trial is not None
    assert trial.improved
    assert trial.r_factor_with < 0.9 * trial.r_factor_without
    assert trial.value_with < 0.8 * trial.value_without
    # The same remedy for positions that are right is of no use.
    good = reconstructed(scan, 20)
    unfounded = dataclasses.replace(found, findings=(found[diagnosis.POSITIONS],), values=found.values)
    [finding] = confirm(unfounded, good, scan, epochs=5, device="cpu")
    assert not finding.confirmation.improved
    page = pt.report(result, tmp_path / "report.html", diagnosis=found)
    text = page.read_text(encoding="utf-8")
    assert diagnosis.POSITIONS in text
    assert "the measure is" in text


def test_another_scan_and_a_trial_without_one_are_refused(scan: Scan) -> None:
    result = reconstructed(scan, 3)
    with raises("argument.missing"):
        pt.diagnose(result, trial=True)
    with raises("array.shape-mismatch", len(scan)):
        pt.diagnose(result, pt.simulate(patterns=9, window=32))
    with raises("argument.invalid-type"):
        pt.diagnose(scan)  # type: ignore[arg-type]
