import dataclasses
import threading

import numpy as np
from scipy import ndimage

from ptynb import preparation as prepare
from ptynb.data.patterns import ArrayFrames, Frames
from ptynb.preparation import shared_transforms
from ptynb.preparation.center_of_mass import pattern_moments
from tests.parametrization import all_pairs, each
from tests.preparation.scans import NEAR, guess_misfit, misfit, modelled, smooth_scan
from tests.raising import raises

# A ramp carries the end of the probe's spectrum, 1e-9 of it, over the Nyquist frequency, where a shift is a cosine.
EXACT = 1e-8


def test_the_mean_pattern_is_in_the_order_of_the_patterns():
    scan = smooth_scan((48, 45), centred=False, bad=True)
    expected = np.where(scan.mask, scan.frames.array, 0).mean(0)
    for mean in (prepare.mean_pattern(scan), pattern_moments(scan).mean):
        np.testing.assert_allclose(mean, expected, rtol=1e-12)


@each("window", [(48, 45), (45, 48)])
@each("centred", [True, False])
def test_the_centre_of_mass_of_a_phase_ramp_is_its_slope(window, centred):
    """A slope of g [rad / pixel] in the object moves the far field by n g / 2π detector pixels."""
    scan = smooth_scan(window, centred=True, guesses=False)
    slope = np.array([0.3, -0.2])
    y, x = np.mgrid[: scan.ground_truth.object.shape[0], : scan.ground_truth.object.shape[1]]
    flat, ramp = (
        modelled(object, scan.ground_truth.probe, scan.positions[:2], scan.geometry)
        for object in (np.ones(y.shape), np.exp(1j * (slope[0] * y + slope[1] * x)))
    )
    both = np.concatenate([flat, ramp])
    if not centred:
        both = np.fft.ifftshift(both, axes=(-2, -1))
    scan = dataclasses.replace(
        scan, frames=ArrayFrames.of(both), positions=scan.positions[:4], centred=centred, ground_truth=None
    )
    found = prepare.centre_of_mass(scan)
    np.testing.assert_allclose(found[2:] - found[:2], np.tile(slope * window / (2 * np.pi), (2, 1)), atol=1e-6)


def test_centre_of_mass_agrees_with_scipy_and_leaves_out_bad_pixels():
    scan = smooth_scan((48, 45), bad=True)
    patterns = scan.counts(0, 8)
    expected = [np.array(ndimage.center_of_mass(pattern)) - (24, 22) for pattern in patterns]
    np.testing.assert_allclose(prepare.centre_of_mass(scan), expected, atol=1e-9)
    patterns = scan.frames.array.copy()
    patterns[3] = 0
    dark = prepare.centre_of_mass(dataclasses.replace(scan, frames=ArrayFrames.of(patterns)))
    assert np.isnan(dark[3]).all()
    np.testing.assert_allclose(np.delete(dark, 3, 0), np.delete(expected, 3, 0), atol=1e-9)


@each(("window", "centred", "shift"), all_pairs([(48, 45), (45, 48)], [True, False], [(5, -4), (-3, 6), (0, 2)]))
def test_patterns_are_moved_back_to_the_centre_with_their_probe(window, centred, shift):
    scan = prepare.centre(smooth_scan(window, sigma=5.0, bad=True))
    mean = ndimage.center_of_mass(prepare.mean_pattern(scan))
    assert np.abs(np.array(mean) - np.array(window) // 2).max() <= 0.5
    # The scan as if the detector stood elsewhere: what leaves on one side comes in on the other, as in the model.
    y, x = (np.arange(side) - side // 2 for side in window)
    ramp = np.exp(2j * np.pi * (shift[0] * y[:, None] / window[0] + shift[1] * x[None, :] / window[1]))
    moved = dataclasses.replace(
        scan,
        frames=ArrayFrames.of(np.roll(np.nan_to_num(scan.counts(0, 8)), shift, axis=(1, 2))),
        mask=np.roll(scan.mask, shift, axis=(0, 1)),
        probe=scan.probe * ramp,
        ground_truth=dataclasses.replace(scan.ground_truth, probe=scan.ground_truth.probe * ramp),
    )
    assert misfit(moved) < EXACT
    if not centred:
        moved = dataclasses.replace(
            moved,
            frames=ArrayFrames.of(np.fft.ifftshift(moved.frames.array, axes=(1, 2))),
            mask=np.fft.ifftshift(moved.mask),
            centred=False,
        )
    made = prepare.centre(moved)
    assert misfit(made) < EXACT
    assert guess_misfit(made) < EXACT
    inside = made.mask
    np.testing.assert_array_equal(made.counts(0, 8)[:, inside], scan.counts(0, 8)[:, inside])
    lost = window[0] * window[1] - (window[0] - abs(shift[0])) * (window[1] - abs(shift[1]))
    assert lost <= (~inside).sum() <= lost + 3
    np.testing.assert_allclose(made.probe, scan.probe, atol=1e-12)
    still = prepare.centre(moved, move_probe=False)
    np.testing.assert_array_equal(still.probe, moved.probe)
    assert misfit(still) < EXACT


def test_a_scan_without_centre_is_refused():
    with raises("scan.near-field"):
        prepare.centre(smooth_scan(geometry=NEAR))
    empty = dataclasses.replace(smooth_scan(), frames=ArrayFrames.of(np.zeros((8, 48, 45))))
    with raises("scan.empty"):
        prepare.centre(empty)


@each("centred", [True, False])
def test_a_mean_that_is_known_saves_the_reading(centred):
    scan = smooth_scan((48, 45), bad=True)
    patterns = np.roll(scan.counts(0, len(scan)), (3, -2), (1, 2))
    if not centred:
        patterns = np.fft.ifftshift(patterns, axes=(1, 2))
    moved = dataclasses.replace(scan, frames=ArrayFrames.of(patterns), centred=centred, mask=None)
    expected = prepare.centre(moved)
    found = prepare.centre(moved, mean=patterns[:5].mean(0))
    np.testing.assert_array_equal(found.counts(0, 3), expected.counts(0, 3))
    np.testing.assert_array_equal(found.mask, expected.mask)
    with raises("array.shape-mismatch", (4, 4)):
        prepare.centre(moved, mean=np.ones((4, 4)))


def test_the_next_part_is_read_while_one_is_summed(monkeypatch):
    monkeypatch.setattr(shared_transforms, "PIECE", 48 * 45 * 2)
    scan = smooth_scan((48, 45), bad=True)
    second = threading.Event()

    class Announced(Frames):
        shape, dtype = scan.frames.shape, scan.frames.dtype

        def read(self, start, stop):
            if start == 2:
                second.set()
            return scan.frames.read(start, stop)

    taken = shared_transforms.pieces(dataclasses.replace(scan, frames=Announced()))
    part, counts = next(taken)
    assert second.wait(30)
    np.testing.assert_array_equal(counts, scan.counts(part.start, part.stop))
    for part, counts in taken:
        np.testing.assert_array_equal(counts, scan.counts(part.start, part.stop))
    assert part.stop == len(scan)
