import numpy as np
import pytest

import ptynb as pt
from ptynb.frames import PlacedFrames
from tests.io.oblong import ANGLE, COLUMNS, ROWS, VOLTAGE, losses, oblong


def test_two_engines_read_their_own_patterns_of_an_empad_file(cluster, tmp_path):
    original = oblong(128)
    words = np.full((ROWS * COLUMNS, 130, 128), np.nan, "<f4")
    words[:, :128] = original.stack
    words.tofile(tmp_path / "scan_x6_y4.raw")
    scan = pt.load(tmp_path / "scan_x6_y4.raw", step=original.step, voltage=VOLTAGE, angular_pixel=(ANGLE, ANGLE))
    assert isinstance(scan.frames, PlacedFrames)
    with pt.Reconstruction(scan, pt.Settings(seed=2, batch=8), cluster) as recon:
        found = [epoch.loss for epoch in recon.run(3)]
    assert found == pytest.approx(losses(original.scan), rel=1e-4)
