"""A result and its report hold the initial positions where positions may move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ptynb as pt


@pytest.mark.parametrize("part", ["positions", "affine", "probe_offset"])
def test_a_result_tells_where_its_positions_began(part: str) -> None:
    scan = pt.simulate(patterns=36, window=32, seed=4)
    with pt.Reconstruction(scan, pt.Settings(**{part: {"learning_rate": 0.1}}), device="cpu") as recon:
        for _ in recon.run(2):
            pass
        result = recon.result
    np.testing.assert_allclose(result.parameters["positions/start"] + result.origin, scan.positions, rtol=1e-12)
    assert np.abs(result.positions - result.parameters["positions/start"]).max() > 1e-3


def test_positions_that_may_not_move_began_where_they_are(tmp_path: Path) -> None:
    scan = pt.simulate(patterns=36, window=32, seed=4)
    with pt.Reconstruction(scan, device="cpu") as recon:
        recon.start(2)
        page = pt.report(recon, tmp_path / "a.html", ground_truth=scan.ground_truth)  # while it may still run
        recon.wait()
        assert "positions/start" not in recon.result.parameters
    assert "They were not refined." in page.read_text(encoding="utf-8")
