import dataclasses

import numpy as np

from ptynb import analysis, preparation
from ptynb.data.patterns import ArrayFrames
from ptynb.simulation.simulated_scan import simulate
from tests.parametrization import each
from tests.raising import raises

PLANTED = {"hot": [(10, 40), (30, 31)], "dead": [(33, 30), (27, 36)], "stuck": [(32, 25)], "lost": [(5, 5)]}


def planted(scan):
    patterns = scan.frames.read(0, len(scan)).astype(np.float64)
    for kind, value in (("hot", 9e4), ("dead", 0.0), ("stuck", 777.77)):
        for y, x in PLANTED[kind]:
            patterns[:, y, x] = value
    patterns[7, 5, 5] = np.nan
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns))


@each("photons", [1e3, 1e6])
def test_poisson_noise_makes_no_pixel_bad(photons):
    for seed in range(3):
        scan = simulate(patterns=100, photons=photons, seed=seed)
        assert analysis.find_bad_pixels(scan).mask.all()


def test_planted_pixels_are_found_by_kind_and_no_others():
    scan = planted(simulate(patterns=100, photons=1e6, seed=1))
    found = analysis.find_bad_pixels(scan)
    for kind, pixels in PLANTED.items():
        assert sorted(map(tuple, np.argwhere(getattr(found, kind)).tolist())) == sorted(pixels), kind
    assert repr(found) == "<BadPixels: 2 hot, 2 dead, 1 stuck, 1 not finite>"
    np.testing.assert_array_equal(found.mask, preparation.find_bad_pixels(scan))


def test_part_of_the_patterns_is_enough_and_masked_pixels_are_not_found_again():
    scan = planted(simulate(patterns=400, photons=1e6, seed=1))
    found = analysis.find_bad_pixels(scan, analysis.survey(scan, 120))
    assert {tuple(pixel) for pixel in np.argwhere(found.hot).tolist()} == set(PLANTED["hot"])
    assert {tuple(pixel) for pixel in np.argwhere(found.dead).tolist()} == set(PLANTED["dead"])
    masked = preparation.mask_pixels(scan, analysis.find_bad_pixels(scan).mask)
    assert analysis.find_bad_pixels(masked).mask.all()


def test_other_input_is_refused():
    scan = simulate(patterns=20)
    with raises("argument.invalid-value", "factor is 0.5"):
        analysis.find_bad_pixels(scan, factor=0.5)
    with raises("scan.wrong-survey", "30 patterns of 64 x 64", 20):
        analysis.find_bad_pixels(scan, analysis.survey(simulate(patterns=30)))
