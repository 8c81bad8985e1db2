import io

import numpy as np
import pytest
from PIL import Image

from ptynb.data import images
from ptynb.data.images import (
    GREY,
    coloured,
    complex_colours,
    flat_means,
    flat_phase,
    flattening,
    jpeg,
    levels,
    limits_of,
    png,
    reduce_by,
    reduction_for,
    side_by_side,
)
from tests.parametrization import each

HOT = np.stack([np.arange(256), 255 - np.arange(256), np.full(256, 7)], axis=1).astype(np.uint8)


@each(
    ("shape", "size", "expected"), [((100, 100), 100, 1), ((101, 20), 100, 2), ((3, 20, 300), 100, 3), ((8, 8), 99, 1)]
)
def test_reduction_brings_the_longest_side_within_the_size(shape, size, expected):
    assert reduction_for(shape, size) == expected


def test_reduce_by_leaves_out_the_rest_and_keeps_leading_axes():
    field = np.random.default_rng(0).standard_normal((2, 7, 8))
    reduced = reduce_by(field, 3)
    assert reduced.shape == (2, 2, 2)
    assert reduced[1, 1, 0] == pytest.approx(field[1, 3:6, 0:3].mean())


@each("band", [1, 100, 10**6])
def test_bands_give_the_means_of_the_whole(band, monkeypatch):
    """Of a product of layers without its ramp, and of a field as it is; bands are not as many rows as blocks."""
    random = np.random.default_rng(0)
    y = np.arange(50)[:, None]
    layers = (1 + 0.3 * random.standard_normal((2, 50, 41))) * np.exp(1j * (0.3 * random.random((50, 41)) + 0.7 * y))
    layers[0, 3, 4] = np.nan
    field = np.nan_to_num(layers.prod(0))
    whole, turned = reduce_by(field, 3), field * np.multiply.outer(*flattening(field))
    monkeypatch.setattr(images, "BAND", band)
    np.testing.assert_array_equal(reduce_by(field, 3), whole)
    np.testing.assert_allclose(flat_means(layers, 3), reduce_by(turned, 3), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(flat_means(layers, 100), reduce_by(turned, 100), rtol=1e-9, atol=1e-12)
    area = slice(7, 40), slice(5, 30)
    np.testing.assert_allclose(flat_means(layers, 4, area), reduce_by(turned[area], 4), rtol=1e-9, atol=1e-12)


def test_a_long_thin_object_still_has_a_picture():
    thin = np.ones((4, 5000))
    reduced = reduce_by(thin, reduction_for(thin.shape, 512))
    assert min(reduced.shape) >= 1
    np.testing.assert_array_equal(reduced, 1)


@each("slopes", [(0.0, 0.0), (0.02, -0.03), (2.9, -1.7), (-3.0, 3.0)])
@each("offset", [0.0, 3.0])
def test_flat_phase_removes_a_ramp_and_an_offset_exactly(slopes, offset):
    y, x = np.mgrid[:33, :40]
    field = 1.7 * np.exp(1j * (slopes[0] * y + slopes[1] * x + offset))
    np.testing.assert_allclose(flat_phase(field), 0, atol=1e-12)


def test_flat_phase_keeps_what_is_no_ramp():
    y, x = np.mgrid[-16:17, -20:21]
    bump = 0.8 * np.exp(-(y**2 + x**2) / 20.0)  # even, so it has neither a mean step along y nor along x
    phase = flat_phase(np.exp(1j * (bump + 1.1 * y - 2.3 * x + 0.4)))
    np.testing.assert_allclose(phase - phase[0, 0], bump - bump[0, 0], atol=1e-12)


def test_flat_phase_of_a_single_row():
    np.testing.assert_allclose(flat_phase(np.exp(0.9j * np.arange(12))[None]), 0, atol=1e-12)


def test_limits_are_the_percentiles_of_finite_values():
    values = np.concatenate([np.arange(101.0), [np.nan, np.inf, -np.inf]])
    assert limits_of(values) == (1.0, 99.0)
    assert limits_of(values, 0, 50) == (0.0, 50.0)


@each("value", [0.0, 5.0, -1e8])
def test_one_value_is_in_the_middle_of_its_limits_and_grey(value):
    flat = np.full((3, 3), value)
    low, high = limits_of(flat)
    assert low < value < high
    assert set(np.unique(levels(flat, (low, high)))) <= {126, 127, 128}


def test_colours_at_the_ends_and_beyond():
    values = np.array([[-9.0, 2.0, 3.0, 4.0, 99.0]])
    rgb = coloured(values, (2.0, 4.0), HOT)
    assert rgb.dtype == np.uint8
    np.testing.assert_array_equal(rgb[0], HOT[[0, 0, 127, 255, 255]])


def test_colours_of_what_is_not_finite():
    values = np.array([[np.nan, -np.inf, np.inf]])
    np.testing.assert_array_equal(coloured(values, (2.0, 4.0))[0], GREY[[0, 0, 255]])


@each(
    ("phase", "rgb"),
    [
        (0, (255, 0, 0)),
        (np.pi / 3, (255, 255, 0)),
        (2 * np.pi / 3, (0, 255, 0)),
        (np.pi, (0, 255, 255)),
        (-2 * np.pi / 3, (0, 0, 255)),
        (-np.pi / 3, (255, 0, 255)),
    ],
)
def test_phase_is_hue(phase, rgb):
    found = complex_colours(np.full((2, 2), 3 * np.exp(1j * phase)))
    assert np.abs(found.astype(int) - rgb).max() <= 1


def test_amplitude_is_brightness():
    rgb = complex_colours(np.array([[4.0, 2.0, 0.0]], complex))
    np.testing.assert_array_equal(rgb[0], [(255, 0, 0), (127, 0, 0), (0, 0, 0)])


def test_jpeg_decodes_to_the_same_picture():
    y, x = np.mgrid[:30, :50]
    rgb = np.stack([4 * x, 5 * y, 100 + 0 * x], axis=-1).astype(np.uint8)
    with Image.open(io.BytesIO(jpeg(rgb, quality=95))) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (50, 30)
        assert np.abs(np.asarray(picture).astype(int) - rgb).mean() < 3


def test_png_keeps_every_pixel():
    rgb = np.random.default_rng(0).integers(0, 256, (7, 11, 3)).astype(np.uint8)
    with Image.open(io.BytesIO(png(rgb))) as picture:
        assert picture.format == "PNG"
        np.testing.assert_array_equal(np.asarray(picture), rgb)


def test_side_by_side_puts_white_between():
    black = np.zeros((4, 3, 3), np.uint8)
    row = side_by_side([black, black, black], gap=2)
    assert row.shape == (4, 13, 3)
    np.testing.assert_array_equal(row[0, :, 0], [0, 0, 0, 255, 255, 0, 0, 0, 255, 255, 0, 0, 0])
