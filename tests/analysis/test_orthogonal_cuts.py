"""Cuts through the slices of an object: their values, axes and pictures."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ptynb.analysis import flat_phase, orthogonal_cuts
from ptynb.data.cut_pictures import stretch_of
from ptynb.data.images import hues
from ptynb.data.result import Result
from tests.raising import raises

WINDOW, PIXEL, DISTANCE = 8, (2e-9, 1e-9), 4e-9


def thick(slices: int = 3, modes: int = 1, **given: Any) -> Result:
    """An object with its own phases and amplitudes in each slice, illuminated in rows 4 to 27 and columns 6 to 37."""
    random = np.random.default_rng(0)
    shape = (modes, slices, 32, 44)
    object = (1 + random.uniform(0, 0.3, shape)) * np.exp(1j * random.uniform(-0.5, 0.5, shape))
    object = object[0] if modes == 1 else object
    positions = np.array([[2.0, 4.0], [22.0, 32.0]])
    whole = {"r_factor": 0.1, "pixel_size": PIXEL, "parameters": {"slices/thickness": np.array(DISTANCE)}}
    return Result(object.astype(np.complex64), np.ones((1, WINDOW, WINDOW)), positions, (0, 0), **whole | given)


def test_they_have_the_values_of_the_slices_pictures_and_their_axes_are_lengths() -> None:
    result = thick(modes=2)
    area = (slice(4, 28), slice(6, 38))
    cuts = orthogonal_cuts(result, y=10, x=20, mode=1)
    for number, one in enumerate(result.object[1]):
        phase = flat_phase(one[area])
        np.testing.assert_allclose(cuts.xz[number], phase[10 - 4], atol=1e-5)
        np.testing.assert_allclose(cuts.yz[number], phase[:, 20 - 6], atol=1e-5)
    np.testing.assert_allclose(cuts.z, [0, 4e-9, 8e-9])
    assert (cuts.x[0], cuts.x[-1]) == pytest.approx((6.5e-9, 37.5e-9))
    assert (cuts.y[0], cuts.y[-1]) == pytest.approx((9e-9, 55e-9))
    plain = orthogonal_cuts(result, y=10, x=20, quantity="complex")
    np.testing.assert_array_equal(plain.xz[:, 14], plain.yz[:, 6])  # they cross
    raw = orthogonal_cuts(result, y=10, x=20, flat=False)
    np.testing.assert_allclose(raw.xz, np.angle(result.object[0, :, 10, 6:38]), atol=1e-6)
    amplitude = orthogonal_cuts(result, quantity="amplitude")
    assert (amplitude.row, amplitude.column) == (16, 22)  # the middle
    np.testing.assert_allclose(amplitude.yz, np.abs(result.object[0, :, 4:28, 22]))


def test_pictures_are_true_to_scale_and_state_where_they_are_not() -> None:
    xz, yz = orthogonal_cuts(thick(), y=10, x=20, quantity="amplitude").pictures()
    assert (xz.name, yz.name) == ("amplitude xz", "amplitude yz")
    # 3 slices of 4 nm are a quarter of the longer side, 48 nm: bands of 4 pixels of 1 nm, and of 2 pixels of 2 nm.
    assert (xz.shape, xz.bands, xz.axes) == ((12, 32), (4, 1), ("z", "x"))
    assert (yz.shape, yz.bands, yz.axes) == ((24, 6), (1, 2), ("y", "z"))
    assert xz.pixel_size == pytest.approx((1e-9, 1e-9))
    assert yz.pixel_size == pytest.approx((2e-9, 2e-9))
    assert xz.note == "3 slices, 4 nm apart"
    assert xz.limits == yz.limits
    cuts = orthogonal_cuts(thick(), y=10, x=20, quantity="amplitude")
    assert xz.limits is not None
    low, high = xz.limits
    with Image.open(io.BytesIO(yz.image)) as opened:
        shown = low + np.asarray(opened) / 255 * (high - low)
    np.testing.assert_allclose(shown, np.repeat(cuts.yz, 2, axis=0).T.clip(low, high), atol=(high - low) / 200)
    thin = dataclasses.replace(thick(), parameters={"slices/thickness": np.array(4e-11)})
    flat, _ = orthogonal_cuts(thin).pictures()
    assert flat.note == "3 slices, 40 pm apart, z × 100"
    assert flat.pixel_size == pytest.approx((1e-11, 1e-9))
    coloured, _ = orthogonal_cuts(thick(), quantity="complex").pictures()
    assert coloured.limits is None
    assert orthogonal_cuts(thick())._repr_html_().count("<img") == 2


@pytest.mark.parametrize(
    ("depth", "width", "factor"), [(1, 1, 1), (0.2, 1, 1), (0.15, 1, 2), (0.001, 1, 200), (1.6, 1, 0.5), (140, 1, 0.01)]
)
def test_the_scale_of_depth_is_a_round_factor_of_that_of_width(depth: float, width: float, factor: float) -> None:
    assert stretch_of(depth, width) == pytest.approx(factor)


def test_brightness_is_relative_to_the_largest_amplitude_given() -> None:
    phase, amplitude = np.zeros((1, 2)), np.array([[0.5, 1.0]])
    assert hues(phase, amplitude)[0, :, 0].tolist() == [127, 255]
    assert hues(phase, amplitude, 2.0)[0, :, 0].tolist() == [63, 127]
    assert hues(phase, amplitude, 0.5)[0, :, 0].tolist() == [255, 255]


def test_what_cannot_be_cut_is_refused_with_what_to_do() -> None:
    with raises("argument.invalid-value", "one slice", "Settings(slices=Slices(count=..., thickness=...))"):
        orthogonal_cuts(thick(slices=1))
    with raises("argument.invalid-value", "y is 3", "4 to 27"):
        orthogonal_cuts(thick(), y=3)
    with raises("argument.invalid-value", "mode is 1", "1 modes"):
        orthogonal_cuts(thick(), mode=1)
    with raises("argument.invalid-value", "'power'", "'amplitude'"):
        orthogonal_cuts(thick(), quantity="power")  # type: ignore[arg-type]
    with raises("argument.missing", "pixel size"):
        orthogonal_cuts(thick(pixel_size=None))
    with raises("argument.missing", "distance of its slices"):
        orthogonal_cuts(thick(parameters={}))
    settings = {"slices": {"count": 3, "thickness": 5e-9}}
    assert orthogonal_cuts(thick(parameters={}, settings=settings)).z[-1] == pytest.approx(1e-8)
