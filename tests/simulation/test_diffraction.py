"""Shifts on the detector and motion during the exposure, by closed forms."""

import numpy as np

from ptynb.data.geometry import NearField
from ptynb.simulation.diffraction import simulate_diffraction
from tests.parametrization import each
from tests.raising import raises

RANDOM = np.random.default_rng(3)
OBJECT = np.exp(1j * RANDOM.uniform(-1, 1, (30, 32)))
PROBE = 100 * (RANDOM.standard_normal((2, 16, 18)) + 1j * RANDOM.standard_normal((2, 16, 18)))
POSITIONS = RANDOM.uniform(2, 10, (4, 2))
NEAR = NearField(wavelength=1e-10, focus_to_sample=0.01, sample_to_detector=0.99, detector_pixel=(50e-6, 60e-6))


def counts(**changes):
    scan = simulate_diffraction(OBJECT, PROBE, **{"positions": POSITIONS, "noise": False, **changes})
    return scan.counts(0, len(scan)).astype(float)


@each("oversampling", [1, 2])
def test_descan_by_whole_pixels_moves_the_pattern(oversampling):
    shifts = np.array([[0, 0], [1, 0], [-2, 3], [0, -1]])
    still = counts(oversampling=oversampling)
    expected = [np.roll(one, shift, (0, 1)) for one, shift in zip(still, shifts, strict=True)]
    np.testing.assert_allclose(counts(descan=shifts, oversampling=oversampling), expected, rtol=1e-6)


@each("geometry", [None, NEAR])
def test_a_moving_sample_gives_the_mean_of_its_positions(geometry):
    motion = RANDOM.uniform(-3, 3, (4, 2))
    parts = [counts(positions=POSITIONS + time * motion, geometry=geometry) for time in (-0.375, -0.125, 0.125, 0.375)]
    found = counts(motion=motion, motion_steps=4, geometry=geometry)
    np.testing.assert_allclose(found, np.mean(parts, axis=0), rtol=1e-6)
    scan = simulate_diffraction(OBJECT, PROBE, POSITIONS, motion=motion)
    np.testing.assert_array_equal(scan.motion, motion)


def test_what_does_not_fit_is_refused():
    with raises("array.shape-mismatch", "descan", "(3, 2)", "(4, 2)"):
        counts(descan=np.zeros((3, 2)))
    with raises("scan.near-field", "descan"):
        counts(descan=np.zeros((4, 2)), geometry=NEAR)
