"""Reconstructions of both halves of a scan: at the same time on engines, one after the other in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis import error_map, registration, split_scan
from ptynb.data.engine_records import Snapshot
from ptynb.data.scan import Scan
from tests.raising import raises


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


def test_of_an_area_only_what_is_around_it_leaves_the_engines(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pt.Settings(seed=4, batch_sampling="cells")
    tiles = whole.replace(object={"layout": "tiles"})
    complete = pt.error_map(scan, whole, epochs=5, device="cpu")
    area = tuple(slice(first + 5, first + 25) for first in complete.origin)
    shapes, take = [], pt.Reconstruction.snapshot

    def snapshot(*arguments: object) -> Snapshot:
        found: Snapshot = take(*arguments)  # type: ignore[arg-type]
        shapes.append(found.object.shape)
        return found

    monkeypatch.setattr(pt.Reconstruction, "result", property(lambda _: pytest.fail("the object was gathered")))
    monkeypatch.setattr(pt.Reconstruction, "snapshot", snapshot)
    monkeypatch.setattr(registration, "AROUND", 4)
    with pt.Reconstruction(scan, whole, device="cpu", checkpointing=None) as recon:
        one = recon.error_map(5, area=(area[0], area[1]))
    with pt.Cluster(4, device="cpu") as engines:
        other = pt.error_map(scan, tiles, engines, epochs=5, area=(area[0], area[1]))
    assert shapes == [(30, 30)] * 4  # a quarter of the area on each side
    for found in (one, other):
        assert found.origin == tuple(side.start for side in area)
        assert found.pixel_size == scan.pixel_size
    for name in ("object", "standard_error", "amplitude_error", "phase_error"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-2)
    # Registered by its own area, of which the second half moves by another fraction of a pixel.
    at = (slice(5, 25), slice(5, 25)), (slice(6, 26), slice(5, 25))
    there, beside = (np.median(np.abs(np.abs(one.object / complete.object[place]) - 1)) for place in at)
    assert there < 0.02 < 0.05 < beside


def test_an_area_that_cannot_be_mapped_is_refused_before_the_reconstructions(scan: Scan) -> None:
    with raises("comparison.area-too-small", "half 1 of 2", "rows", "columns", "choose another area"):
        pt.error_map(scan, epochs=10**6, area=(slice(900, 950), slice(0, 50)), device="cpu")
    with raises("argument.invalid-value", "a start and a stop"):
        pt.error_map(scan, epochs=10**6, area=(slice(None, 50), slice(0, 50)), device="cpu")


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
