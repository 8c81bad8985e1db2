"""A preview is what the engines start with."""

import base64
import dataclasses
import io
import re

import numpy as np
import pytest
from PIL import Image

import ptynb as pt
from ptynb.session.preview import PATTERNS
from tests.cases import a_scan
from tests.raising import raises


@pytest.mark.parametrize("kind", ["far", "near", "masked"])
@pytest.mark.parametrize("guess", [True, False])
def test_it_is_what_a_reconstruction_starts_with(kind, guess):
    scan = a_scan(kind=kind) if guess else dataclasses.replace(a_scan(kind=kind), probe=None)
    settings = pt.Settings(probe={"modes": 3}, object={"modes": 2, "padding": 7})
    found = pt.preview(scan, settings)
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as recon:
        result = recon.result
    np.testing.assert_allclose(found.object.squeeze(1), result.object.reshape(found.object.squeeze(1).shape), atol=1e-6)
    np.testing.assert_allclose(found.probe, result.probe, rtol=1e-4, atol=1e-5 * np.abs(result.probe).max())
    np.testing.assert_allclose(found.positions, result.positions)
    assert found.origin == result.origin
    assert found.pixel_size == result.pixel_size


def test_a_large_scan_is_looked_at_here_and_there_only(monkeypatch):
    scan = pt.simulate(patterns=3 * PATTERNS, window=16)
    read, counts = [], type(scan).counts

    def counting(self, start, stop):
        read.extend(range(start, stop))
        return counts(self, start, stop)

    monkeypatch.setattr(type(scan), "counts", counting)
    found = pt.preview(scan)
    assert len(read) == PATTERNS
    assert (read[0], read[-1]) == (0, len(scan) - 1)
    assert "256" in found.note


def test_a_flat_object_is_grey_not_black():
    found = pt.preview(a_scan())
    assert np.ptp(np.abs(found.object)) == 0
    low, high = found.pictures()[1].limits
    assert (np.abs(found.object).mean() - low) / (high - low) == pytest.approx(0.5)


def test_what_can_not_be_started_is_refused():
    scan = a_scan()
    with pytest.raises(pt.ScanError, match="has no geometry"):
        pt.preview(dataclasses.replace(scan, geometry=None), pt.Settings(slices={"count": 2, "thickness": 1e-9}))
    with pytest.warns(pt.PtynbWarning, match="are zero"):
        dark = pt.Scan.from_arrays(np.zeros((4, 16, 16)), np.zeros((4, 2)))
    with raises("scan.empty", "4 of 4"):
        pt.preview(dark)


def test_in_a_notebook_it_is_its_pictures():
    found = pt.preview(pt.simulate(patterns=16, window=32), pt.Settings(probe={"modes": 2}))
    shown = found._repr_html_()
    images = re.findall(r'alt="([^"]+)" src="data:image/png;base64,([^"]+)"', shown)
    assert [name for name, _ in images] == ["Illumination", "Object", "Probe, mode 1", "Probe, mode 2"]
    sides = [Image.open(io.BytesIO(base64.b64decode(image))).size for _, image in images]
    assert sides == [found.object.shape[:-3:-1]] * 2 + [found.probe.shape[:-3:-1]] * 2
    assert found.note in shown
