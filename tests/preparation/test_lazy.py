"""What all transformations have in common: nothing is read before it is needed, and an engine gets its part."""

import dataclasses
import pickle

import numpy as np

from ptynb import preparation as prepare
from ptynb.io.scan_file import save_scan
from tests.parametrization import each
from tests.preparation.scans import FAR, NEAR, smooth_scan, watched

WINDOW = (48, 48)
IMAGE = np.random.default_rng(5).uniform(0.5, 2, WINDOW)
LAZY = {
    "flip": lambda scan: prepare.flip(scan, "y"),
    "transpose": lambda scan: prepare.transpose(scan, positions=True),
    "transpose alone": lambda scan: prepare.transpose(dataclasses.replace(scan, object=None)),
    "transpose_positions": lambda scan: prepare.transpose_positions(dataclasses.replace(scan, object=None)),
    "flip_positions": lambda scan: prepare.flip_positions(scan, "x"),
    "rotate_positions": lambda scan: prepare.rotate_positions(scan, 0.1),
    "select": lambda scan: prepare.select(scan, [1, 7, 6, 0, 2, 3, 4]),
    "crop": lambda scan: prepare.crop(scan, (28, 29)),
    "pad": lambda scan: prepare.pad(scan, 53),
    "bin": lambda scan: prepare.bin(scan, (2, 3)),
    "resample": lambda scan: prepare.resample(scan, 0.8),
    "subtract_dark": lambda scan: prepare.subtract_dark(scan, IMAGE),
    "divide_flat": lambda scan: prepare.divide_flat(scan, IMAGE),
    "remove_negatives": lambda scan: prepare.remove_negatives(scan, 0.5),
    "normalise": lambda scan: prepare.normalise(scan, monitor=np.arange(1, len(scan) + 1)),
    "add_poisson_noise": prepare.add_poisson_noise,
    "blur": lambda scan: prepare.blur(scan, 0.8),
    "mask_pixels": lambda scan: prepare.mask_pixels(scan, IMAGE > 0.6),
    "all of them": lambda scan: prepare.add_poisson_noise(
        prepare.bin(prepare.select(prepare.flip(prepare.crop(scan, 40), "yx"), slice(0, None, 2)), 2), seed=3
    ),
}


@each("name", LAZY)
@each("centred", [True, False])
def test_nothing_is_read_when_a_scan_is_made(name, centred):
    scan = watched(smooth_scan(WINDOW, centred=centred, bad=True))
    made = LAZY[name](scan)
    assert scan.frames.reads == []
    made.counts(1, 2)
    assert len(scan.frames.reads) == 1
    start, stop = scan.frames.reads[0]
    assert stop - start == 1


@each("name", LAZY)
def test_an_engine_reads_the_same_patterns_from_its_part_and_the_scan_given_stays_as_it_was(name):
    scan = smooth_scan(WINDOW, bad=True)
    before = pickle.loads(pickle.dumps(scan))
    made = LAZY[name](scan)
    whole = made.counts(0, len(made))
    for field in ("positions", "mask", "probe", "object"):
        np.testing.assert_array_equal(getattr(scan, field), getattr(before, field))
    np.testing.assert_array_equal(scan.frames.read(0, 8), before.frames.read(0, 8))
    assert (scan.geometry, scan.centred, scan.pattern_shape) == (before.geometry, before.centred, before.pattern_shape)
    sent = pickle.loads(pickle.dumps(made.part(np.array([1, 3]))))
    for pattern in (1, 3):
        np.testing.assert_array_equal(sent.counts(pattern, pattern + 1), whole[pattern : pattern + 1])
    assert sent.counts(2, 2).shape == (0, *made.pattern_shape)
    assert whole.dtype == made.frames.dtype
    assert len(sent) == len(made)
    assert len(pickle.dumps(made.part(np.array([1, 3])).frames)) < 0.7 * len(pickle.dumps(made.frames))


@each("name", LAZY)
def test_patterns_stay_in_their_file(name, tmp_path):
    scan = dataclasses.replace(smooth_scan(WINDOW, bad=True), geometry=None)
    stored = save_scan(scan, tmp_path / "scan.h5")
    made, direct = LAZY[name](stored), LAZY[name](scan)
    assert len(pickle.dumps(made.frames)) < 4 * IMAGE.nbytes
    np.testing.assert_array_equal(made.counts(0, len(made)), direct.counts(0, len(direct)))


@each("name", LAZY)
@each("geometry", [FAR, NEAR])
def test_the_motion_stays_the_way_from_position_to_position(name, geometry):
    """Each position moves to the next one during its exposure, whatever is done to both."""
    scan = smooth_scan(WINDOW, geometry=geometry, bad=True)
    along = dataclasses.replace(scan, motion=np.roll(scan.positions, -1, axis=0) - scan.positions)
    made, plain = LAZY[name](along), LAZY[name](scan)
    np.testing.assert_array_equal(made.positions, plain.positions)
    last = LAZY[name](dataclasses.replace(scan, positions=np.roll(scan.positions, -1, axis=0)))
    corner = made.positions - last.positions  # extended guesses shift all positions alike
    ends = last.positions + (corner + made.motion).mean(0)
    np.testing.assert_allclose(made.positions + made.motion, ends, atol=1e-9)
