"""Plans: what they need, what a header adds to them, and their way to the receiver."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.complete_plan import completed, plan_from_json, plan_to_json
from ptynb.acquisition.compression import Packed
from ptynb.acquisition.messages import SeriesStarted
from tests.raising import raises

GEOMETRY = pt.Geometry(wavelength=1e-10, distance=2.0, detector_pixel=(75e-6, 75e-6))
POSITIONS = np.random.default_rng(0).uniform(0, 2e-6, (40, 2))
STARTED = SeriesStarted(series="3", count=50)


def test_planned_positions_are_converted_by_the_window_that_is_kept():
    plan = pt.Plan(positions=POSITIONS, geometry=GEOMETRY, window=(32, 16), centre=(20, 10), margin=2)
    whole = completed(plan, STARTED, (64, 48))
    assert (whole.count, whole.window, whole.planned, whole.start_after) == (40, (32, 16), True, 32)
    assert whole.crop == (slice(4, 36), slice(2, 18))
    pixel = GEOMETRY.object_pixel((32, 16))
    np.testing.assert_allclose(whole.positions, POSITIONS / pixel)
    np.testing.assert_allclose(whole.limits[:, 0], whole.positions.min(0) - 2)
    np.testing.assert_allclose(whole.limits[:, 1], whole.positions.max(0) + 2)
    assert not completed(plan, STARTED, (64, 48), measured=True).planned


def test_an_extent_is_covered_by_placeholders_from_corner_to_corner():
    plan = pt.Plan(extent=((-1e-6, 1e-6), (0, 4e-6)), geometry=GEOMETRY)
    whole = completed(plan, STARTED, (64, 64), measured=True)
    pixel = np.asarray(GEOMETRY.object_pixel((64, 64)))
    assert whole.count == 50  # of the header
    np.testing.assert_allclose(whole.positions.min(0) * pixel, (-1e-6, 0), atol=1e-12)
    np.testing.assert_allclose(whole.positions.max(0) * pixel, (1e-6, 4e-6), atol=1e-12)
    np.testing.assert_allclose(whole.limits * pixel[:, None], plan.extent, atol=1e-12)
    for count in (1, 2, 3, 7):
        few = completed(pt.Plan(extent=plan.extent, geometry=GEOMETRY, count=count), STARTED, (64, 64), measured=True)
        assert few.positions.shape == (count, 2)
        assert np.isfinite(few.positions).all()


def test_a_header_gives_geometry_count_and_mask_where_the_plan_does_not():
    bad = np.zeros((64, 64), np.uint32)
    bad[30, 31] = 4
    told = SeriesStarted(
        series="3", count=40, energy=GEOMETRY.energy, distance=2.0, detector_pixel=(75e-6, 75e-6),
        bad_pixels=Packed(bad.tobytes(), (64, 64), bad.dtype),
    )  # fmt: skip
    whole = completed(pt.Plan(positions=POSITIONS, window=(16, 16)), told, (64, 64))
    assert whole.geometry.wavelength == pytest.approx(GEOMETRY.wavelength)
    assert np.argwhere(~whole.mask).tolist() == [[6, 7]]
    electrons = replace(told, energy=300e3, detector="Dectris ARINA Si")
    geometry = completed(pt.Plan(positions=POSITIONS), electrons, (64, 64)).geometry
    assert geometry.wavelength == pytest.approx(1.9687e-12, rel=1e-4)
    unset = replace(electrons, energy=8041.0)  # the detector's default
    with raises("scan.no-geometry", "8041 eV", "Dectris ARINA Si"):
        completed(pt.Plan(positions=POSITIONS), unset, (64, 64))
    own = completed(pt.Plan(positions=POSITIONS, geometry=GEOMETRY, mask=np.eye(64) == 0), told, (64, 64))
    assert own.geometry == GEOMETRY
    np.testing.assert_array_equal(own.mask, np.eye(64) == 0)
    with raises("scan.no-geometry", "units='pixels'"):
        completed(pt.Plan(positions=POSITIONS), STARTED, (64, 64))
    in_pixels = completed(pt.Plan(positions=POSITIONS, units="pixels"), STARTED, (64, 64))
    np.testing.assert_array_equal(in_pixels.positions, POSITIONS)
    with raises("acquisition.no-count", "count=1024"):
        completed(pt.Plan(extent=((0, 1), (0, 1)), units="pixels"), SeriesStarted(series="3"), (64, 64))
    with raises("array.shape-mismatch", "(63, 64)"):
        completed(pt.Plan(positions=POSITIONS, units="pixels", mask=np.ones((63, 64))), STARTED, (64, 64))
    with raises("argument.invalid-value", "64 x 64", "(10, 10)"):
        completed(pt.Plan(positions=POSITIONS, units="pixels", window=(64, 64), centre=(10, 10)), STARTED, (64, 64))


def test_the_mask_of_a_header_is_unpacked_only_if_it_has_the_shape_of_the_patterns():
    """2^27 zeros of 32 bits come as 3 MB, and take 0.5 GB."""

    class Large(Packed):
        def counts(self):
            raise AssertionError("it is unpacked")

    plan = pt.Plan(positions=POSITIONS, geometry=GEOMETRY)
    large = dataclasses.replace(STARTED, bad_pixels=Large(b"", (2**13, 2**14), np.dtype("<u4"), "h5bslz4"))
    with raises("array.shape-mismatch", "series 3", "(8192, 16384)", "(64, 64)", "mask="):
        completed(plan, large, (64, 64))
    damaged = dataclasses.replace(STARTED, bad_pixels=Packed(b"123", (64, 64), np.dtype("<u4"), "h5bslz4"))
    with raises("acquisition.damaged-message", "series 3", "3 bytes", "mask="):
        completed(plan, damaged, (64, 64))
    own = dataclasses.replace(plan, mask=np.eye(64) == 0)
    for one in (large, damaged):
        np.testing.assert_array_equal(completed(own, one, (64, 64)).mask, own.mask)


@pytest.mark.parametrize(
    ("values", "first"),
    [({}, 32), ({"count": 30_000}, 300), ({"count": 3000}, 100), ({"line": 40}, 80), ({"start_after": 7}, 7),
     ({"count": 5}, 5), ({"start_after": 900, "count": 60}, 60)],
)  # fmt: skip
def test_when_a_reconstruction_begins(values, first):
    plan = pt.Plan(extent=((0, 9), (0, 9)), units="pixels", **{"count": 500, **values})
    assert completed(plan, STARTED, (64, 64), measured=True).start_after == first


def test_a_plan_goes_to_the_receiver_as_text():
    plan = pt.Plan(
        positions=POSITIONS, geometry=GEOMETRY, window=(32, 16), centre=(20, 10), mask=np.eye(64) == 0,
        probe=np.ones((32, 16), complex), margin=2.5, silence=3.0, line=8, name="a β scan",
    )  # fmt: skip
    same = plan_from_json(plan_to_json(plan))
    for name in ("positions", "mask", "probe"):
        np.testing.assert_array_equal(getattr(same, name), getattr(plan, name))
    for name in ("geometry", "window", "centre", "margin", "silence", "line", "name", "object", "extent", "count"):
        assert getattr(same, name) == getattr(plan, name)
    area = pt.Plan(extent=((0, 1), (0, 2)), units="pixels", geometry=pt.NearField(
        wavelength=1e-10, focus_to_sample=0.1, sample_to_detector=1.0, detector_pixel=(1e-6, 1e-6)
    ))  # fmt: skip
    assert plan_from_json(plan_to_json(area)).geometry == area.geometry
    assert completed(plan_from_json(plan_to_json(area)), STARTED, (8, 8), measured=True).count == 50


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, "argument.missing"),
        ({"positions": POSITIONS, "extent": ((0, 1), (0, 1))}, "argument.conflict"),
        ({"positions": POSITIONS.T}, "array.shape-mismatch"),
        ({"positions": ["a"]}, "array.shape-mismatch"),
        ({"positions": np.full((3, 2), np.nan)}, "array.not-finite"),
        ({"positions": POSITIONS, "count": 41}, "argument.invalid-value"),
        ({"positions": POSITIONS, "units": "mm"}, "argument.invalid-value"),
        ({"positions": POSITIONS, "window": (3, 16)}, "argument.invalid-value"),
        ({"positions": POSITIONS, "margin": -1}, "argument.invalid-value"),
        ({"positions": POSITIONS, "silence": 0}, "argument.invalid-value"),
        ({"positions": POSITIONS, "line": 0}, "argument.invalid-value"),
        ({"extent": ((1, 0), (0, 1))}, "argument.invalid-value"),
        ({"extent": (0, 1)}, "argument.invalid-value"),
    ],
)
def test_impossible_plans_are_refused(values, code):
    with raises(code):
        pt.Plan(**values)
