"""Scans with tilted planes: what keeps them right, and what is refused."""

import numpy as np
import torch

from ptynb import preparation as prepare
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan, Truth
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.physics.tilted_detector import far_field_resampling, tilted_far_field
from tests.parametrization import each
from tests.preparation.scans import exit_waves, smooth_object, smooth_probe
from tests.raising import raises

GEOMETRY = TiltedGeometry(
    wavelength=1e-10,
    detector_steps=((0.0, 50e-6, 0.0), (40e-6, 0.0, 30e-6)),
    detector_centre=(0.6 * 1.5, 0.0, -0.8 * 1.5),
    beam=(0.0, 0.0, 1.0),
)


def modelled(object, probe, positions, geometry, window):
    """Centred patterns by ptynb's own propagation."""
    points = far_field_resampling(window, geometry.planes(window), dtype=torch.complex128, device=torch.device("cpu"))
    waves = torch.from_numpy(np.array([exit_waves(object, probe, position) for position in positions]))
    intensity = tilted_far_field(waves, points).abs().square().sum(1).numpy()
    return np.fft.fftshift(intensity, axes=(-2, -1))


def tilted_scan(window=(48, 45)):
    positions = np.random.default_rng(2).uniform(0, 12, (8, 2)) + np.array([6, 7])
    object, probe = smooth_object((window[0] + 26, window[1] + 29)), smooth_probe(window, 4.0)
    patterns = modelled(object, probe, positions, GEOMETRY, window)
    return Scan(
        frames=ArrayFrames.of(patterns), positions=positions, geometry=GEOMETRY, ground_truth=Truth(object, probe)
    )


@each("window", [(28, 30), (29, 27), (64, 61)])
def test_a_window_about_the_middle_fits_its_truth(window):
    scan = tilted_scan()
    made = prepare.pad(scan, window) if window > scan.pattern_shape else prepare.crop(scan, window)
    counts, mask = made.counts(0, 8), np.ones(window, bool) if made.mask is None else made.mask
    model = modelled(made.ground_truth.object, made.ground_truth.probe, made.positions, GEOMETRY, window)
    assert np.abs((counts - model)[:, mask]).max() / model.max() < 1e-6


REFUSED = {
    "flip": lambda scan: prepare.flip(scan, "y"),
    "transpose": prepare.transpose,
    "transpose_positions": prepare.transpose_positions,
    "rotate_positions": lambda scan: prepare.rotate_positions(scan, 0.1),
    "crop": lambda scan: prepare.crop(scan, 20, (23, 22)),
    "bin": lambda scan: prepare.bin(scan, (2, 3)),
    "resample": lambda scan: prepare.resample(scan, 0.5),
    "centre": prepare.centre,
    "estimate_rotation": prepare.estimate_rotation,
    "bright_field_disc": prepare.bright_field_disc,
    "calibrate_from_disc": lambda scan: prepare.calibrate_from_disc(scan, 0.01, wavelength=1e-10),
}


@each("name", REFUSED)
def test_what_needs_a_detector_that_faces_the_sample_is_refused(name):
    with raises("scan.tilted-geometry"):
        REFUSED[name](tilted_scan())
