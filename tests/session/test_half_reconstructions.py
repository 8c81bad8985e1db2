"""Reconstructions of both halves of a scan: at the same time on engines, one after the other in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis import error_map, split_scan
from ptynb.data.scan import Scan


@pytest.fixture(scope="module")
def alone(scan: Scan) -> pt.analysis.ErrorMap:
    return pt.error_map(scan, pt.Settings(seed=4), epochs=5, device="cpu")


def test_it_is_that_of_two_results_with_seeds_of_their_own(scan: Scan, alone: pt.analysis.ErrorMap) -> None:
    results = []
    for half, seed in zip(split_scan(scan), (4, 5), strict=True):
        with pt.Reconstruction(half, pt.Settings(seed=seed), device="cpu", checkpointing=None) as recon:
            list(recon.run(5))
            results.append(recon.result)
    expected = error_map(*results)
    np.testing.assert_allclose(alone.standard_error, expected.standard_error, rtol=1e-4)
    assert alone.origin == expected.origin
    assert alone.pixel_size == scan.pixel_size


def test_halves_on_engines_at_the_same_time_give_the_same_map(
    scan: Scan, alone: pt.analysis.ErrorMap, cluster: pt.Cluster
) -> None:
    found = pt.error_map(scan, pt.Settings(seed=4), cluster, epochs=5)
    np.testing.assert_allclose(found.standard_error, alone.standard_error, rtol=1e-2)
    with pt.Reconstruction(scan, cluster=cluster, checkpointing=None) as recon:  # the engines are free again
        assert recon.step().number == 1


def test_a_result_with_it_is_saved_and_reported(scan: Scan, alone: pt.analysis.ErrorMap, tmp_path: Path) -> None:
    with pt.Reconstruction(scan, device="cpu", checkpointing=None) as recon:
        recon.step()
        result = recon.result
    assert result.error_map is None
    path = pt.save_result(result.with_error_map(alone), tmp_path / "with.h5")
    stored = pt.load_result(path).error_map
    assert stored is not None
    for name in ("object", "standard_error", "amplitude_error", "phase_error"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(alone, name))
    assert (stored.origin, stored.smoothing, stored.pixel_size) == (alone.origin, alone.smoothing, alone.pixel_size)
    page = pt.report(path, tmp_path / "with.html").read_text()
    assert "Errors that both halves have in common do not show" in page
    assert "Standard error of the phase" in page
    assert "Standard error of the phase" not in pt.report(result, tmp_path / "without.html").read_text()
