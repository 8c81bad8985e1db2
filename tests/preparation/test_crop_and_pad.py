import dataclasses

import numpy as np

from ptynb import preparation as prepare
from ptynb.data.geometry import NearField
from tests.parametrization import all_pairs, each
from tests.preparation.scans import FAR, NEAR, guess_misfit, misfit, smooth_scan
from tests.raising import raises

# What the smooth scan has beyond the windows to crop to, in its patterns and in its probe's spectrum.
CLOSE = 1e-6


def metres(scan):
    return (scan.positions + np.array(scan.pattern_shape) // 2) * scan.pixel_size


@each(
    ("window", "geometry", "centred"),
    all_pairs([(28, 30), (29, 27), (30, 29), (48, 45), (28, 45)], [FAR, None], [True, False]),
)
def test_a_cropped_scan_fits_its_cropped_truth(window, geometry, centred):
    scan = smooth_scan((48, 45), geometry=geometry, centred=centred, bad=True)
    made = prepare.crop(scan, window)
    assert made.pattern_shape == window
    assert misfit(made) < CLOSE
    assert guess_misfit(made) < CLOSE
    if geometry is not None:
        np.testing.assert_allclose(made.pixel_size, np.array(scan.pixel_size) * scan.pattern_shape / window)
        without = prepare.crop(dataclasses.replace(scan, object=None), window)
        np.testing.assert_allclose(metres(without), metres(scan), rtol=1e-12)


@each(("centre", "window"), [((26, 20), (28, 29)), ((22, 23), (29, 28))])
@each("centred", [True, False])
def test_a_crop_beside_the_middle_moves_the_probe_in_fourier_space(centre, window, centred):
    scan = smooth_scan((48, 45), centred=centred, bad=True, sigma=5.0)
    made = prepare.crop(scan, window, centre)
    counts = np.fft.fftshift(scan.counts(0, 8), axes=(-2, -1)) if not centred else scan.counts(0, 8)
    np.testing.assert_array_equal(made.counts(0, 8)[:, window[0] // 2, window[1] // 2], counts[:, centre[0], centre[1]])
    assert misfit(made) < 3e-5
    assert guess_misfit(made) < 3e-5
    still = prepare.crop(scan, window, centre, move_probe=False)
    np.testing.assert_allclose(still.probe, prepare.crop(scan, window).probe)
    assert misfit(still) < 3e-5


@each(
    ("window", "geometry", "centred", "measured", "bad"),
    all_pairs([(64, 61), (61, 60), (49, 45)], [FAR, None], *[[True, False]] * 3),
)
def test_a_padded_scan_fits_its_padded_truth(window, geometry, centred, measured, bad):
    scan = smooth_scan((48, 45), geometry=geometry, centred=centred, bad=bad)
    made = prepare.pad(scan, window, measured=measured)
    assert made.pattern_shape == window
    assert misfit(made) < CLOSE
    assert guess_misfit(made) < CLOSE
    y, x = window[0] // 2 - 24, window[1] // 2 - 22
    inside = np.zeros(window, bool)
    inside[y : y + 48, x : x + 45] = True
    mask = np.ones(window, bool) if made.mask is None else made.mask
    assert mask[~inside].all() if measured else not mask[~inside].any()
    assert mask[inside].sum() == 48 * 45 - 3 * bad
    assert not made.counts(0, 8)[:, ~inside].any()
    if geometry is not None:
        without = prepare.pad(dataclasses.replace(scan, object=None), window)
        np.testing.assert_allclose(metres(without), metres(scan), rtol=1e-12)


def test_padding_and_cropping_back_is_as_before():
    scan = smooth_scan((48, 45), bad=True)
    back = prepare.crop(prepare.pad(scan, (60, 64)), (48, 45))
    np.testing.assert_array_equal(back.counts(0, 8), scan.counts(0, 8))
    np.testing.assert_array_equal(back.mask, scan.mask)
    np.testing.assert_allclose(back.probe, scan.probe, atol=1e-12)
    np.testing.assert_allclose(back.positions, scan.positions, rtol=1e-12)
    height, width = scan.object.shape
    np.testing.assert_allclose(back.object[:height, :width], scan.object, atol=1e-9)


@each("window", [(40, 39), (41, 42), (56, 57)])
def test_a_near_field_window_is_cut_out_of_the_shadow(window):
    scan = smooth_scan((48, 45), geometry=NEAR, sigma=3.0, bad=True)
    made = prepare.pad(scan, window) if window > scan.pattern_shape else prepare.crop(scan, window)
    assert isinstance(made.geometry, NearField)
    assert made.pixel_size == scan.pixel_size
    assert misfit(made) < 1e-4
    assert guess_misfit(made) < 1e-4


def test_types_stay():
    scan = smooth_scan()
    scan = dataclasses.replace(scan, probe=scan.probe.astype(np.complex64), object=scan.object.astype(np.complex64))
    made = prepare.crop(scan, 28)
    assert (made.probe.dtype, made.object.dtype) == (np.complex64, np.complex64)
    assert made.ground_truth.object.dtype == np.complex128


REFUSED = {
    "larger": (lambda scan: prepare.crop(scan, (49, 45)), "49 x 45", "(24, 22)"),
    "beside": (lambda scan: prepare.crop(scan, 40, (18, 22)), "(18, 22)", "48 x 45"),
    "tiny": (lambda scan: prepare.crop(scan, 3), "window is 3 x 3", "4 x 4"),
    "fractions": (lambda scan: prepare.crop(scan, 20.5), "window is 20.5"),
    "smaller": (lambda scan: prepare.pad(scan, (48, 44)), "window is 48 x 44", "48 x 45"),
}


@each("name", REFUSED)
def test_other_windows_are_refused(name):
    change, *facts = REFUSED[name]
    with raises("argument.invalid-value", *facts):
        change(smooth_scan((48, 45)))
