import dataclasses

import numpy as np
import pytest

from ptynb.analysis import Together, facts_of, settings_that_differ
from ptynb.analysis.result_comparison import independence, placed
from ptynb.data.engine_records import Epoch, Result
from ptynb.settings import Settings
from tests.parametrization import each
from tests.raising import raises

WINDOW = (32, 32)
PIXEL = (2e-9, 2e-9)


def sample(y, x):
    """A smooth complex sample, known everywhere [metres]."""
    random = np.random.default_rng(0)
    places, heights = random.uniform(-100e-9, 400e-9, (250, 2)), 0.25 * random.standard_normal((250, 2))
    down = np.exp(-((y - places[:, :1]) ** 2) / (2 * (8e-9) ** 2))
    across = np.exp(-((x - places[:, 1:]) ** 2) / (2 * (8e-9) ** 2))
    return np.exp(np.einsum("i,iy,ix->yx", heights[:, 0] + 1j * heights[:, 1], down, across))


def result(shape=(120, 130), origin=(0, 0), shift=(0.0, 0.0), ramp=(0.0, 0.0), factor=1.0, pixel=PIXEL, **given):
    """A result whose object is the sample, `shift` [pixels] too far, with a ramp [rad/pixel] and a factor."""
    y, x = ((np.arange(side) + at) for side, at in zip(shape, origin, strict=True))
    field = sample((y - shift[0]) * pixel[0], (x - shift[1]) * pixel[1])
    field = field * factor * np.exp(1j * (ramp[0] * y[:, None] + ramp[1] * x[None, :]))
    corners = np.array([[0.0, 0.0], [shape[0] - WINDOW[0], shape[1] - WINDOW[1]]])
    fields = {
        "object": field,
        "probe": np.ones((1, *WINDOW), complex),
        "positions": corners,
        "origin": origin,
        "epochs": (Epoch(1, 0.5, 2.0, 100.0), Epoch(2, 0.25, 1.0, 200.0)),
        "r_factor": 0.1,
        "settings": Settings().model_dump(mode="json"),
        "pixel_size": pixel,
        "metadata": {"scan": "dots", "engines": "1 CPU engine"},
    }
    return Result(**{**fields, **given})


def test_shift_ramp_factor_and_scale_are_taken_off():
    planted = result(shift=(1.3, -0.6), ramp=(0.02, -0.03), factor=0.4 * np.exp(2j))
    together = Together({"one": planted, "two": result()})
    found = together.difference("one", "two")
    assert found.registered.shift == pytest.approx((-1.3, 0.6), abs=0.01)  # the borders ring
    assert found.registered.ramp == pytest.approx((-0.02, 0.03), abs=1e-4)
    assert abs(found.registered.factor) == pytest.approx(1 / 0.4, rel=2e-3)
    for difference in (found.relative, found.amplitude, found.phase):
        assert np.abs(difference).max() < 0.02
    assert found.correlation.correlation[:20].min() > 0.99  # smooth spots have nothing beyond
    assert together.registered("one", "two") is found.registered


def test_what_is_left_is_the_planted_difference():
    base = result()
    spot = np.zeros(base.object.shape)
    spot[60:64, 70:74] = 1
    other = dataclasses.replace(base, object=base.object * (1 + 0.1 * spot) * np.exp(0.2j * spot))
    together = Together({"changed": other, "base": base})
    found = together.difference("changed", "base")
    y, x = together.area
    where = spot[y, x] > 0
    level = np.sqrt(np.mean(np.abs(base.object[y, x]) ** 2))
    np.testing.assert_allclose(found.phase[where], 0.2, atol=0.01)
    np.testing.assert_allclose(found.amplitude[where], 0.1 * np.abs(base.object[y, x][where]) / level, atol=0.01)
    planted = base.object[y, x] * (1.1 * np.exp(0.2j) - 1) / level
    np.testing.assert_allclose(found.relative[where], planted[where], atol=0.02)
    assert np.abs(found.relative[~where]).max() < 0.02


def test_objects_of_other_shape_and_origin_are_cut_to_the_common_area():
    together = Together({"one": result(), "two": result((100, 140), (17, -9)), "three": result((90, 90), (20, 20))})
    assert not together.left_out
    # an object is lit from a quarter of the window inside its borders
    assert together.area == (slice(28, 102), slice(28, 102))
    one, two, three = (together.covered(name) for name in ("one", "two", "three"))
    np.testing.assert_allclose(one, two)
    np.testing.assert_allclose(one, three)
    assert together.registered("three", "two").shift == pytest.approx((0, 0), abs=1e-6)


@each("factor", [0.5, 1.37, 2.0])
def test_other_pixels_are_brought_to_those_of_the_first(factor):
    pixel = (factor * PIXEL[0], factor * PIXEL[1])
    sides = (round(120 / factor), round(130 / factor))
    origin = (round(-4 / factor), round(6 / factor))
    other = result(sides, origin, pixel=pixel)
    together = Together({"one": result(), "other": other})
    assert together.placed["other"].resampled
    assert not together.placed["one"].resampled
    one, two = together.covered("one"), together.covered("other")
    assert one.shape == two.shape
    assert np.abs(one - two).max() < (0.08 if factor < 1 else 0.05)
    assert together.registered("other", "one").shift == pytest.approx((0, 0), abs=0.02)


def test_a_pixel_size_that_is_hardly_another_changes_nothing():
    base = result()
    near = dataclasses.replace(base, pixel_size=(PIXEL[0] * (1 + 1e-6), PIXEL[1]))
    assert placed(near, PIXEL).field is not None
    assert not placed(near, PIXEL).resampled
    assert not placed(dataclasses.replace(base, pixel_size=None), PIXEL).resampled
    assert not placed(base, None).resampled


def test_what_lies_elsewhere_is_left_out_with_a_sentence_and_the_rest_is_compared():
    together = Together({"one": result(), "far": result(origin=(500, 0)), "two": result(shift=(0.5, 0.0))})
    assert together.left_out["far"].startswith("far is not compared: it shares with those before 0 x ")
    assert together.covered("far").shape == (104, 114)
    assert together.difference("two", "one").registered.shift == pytest.approx((-0.5, 0), abs=1e-3)
    with raises("comparison.not-comparable", "far"):
        together.difference("far", "one")


def test_slices_are_chosen_and_those_without_it_left_out():
    base = result()
    thick = dataclasses.replace(base, object=np.stack([base.object, base.object**0.5]))
    whole = Together({"thin": base, "thick": thick})
    y, x = whole.area
    np.testing.assert_allclose(whole.covered("thick"), (base.object**1.0 * base.object**0.5)[y, x])
    second = Together({"thick": thick, "thin": base}, slice=1)
    np.testing.assert_allclose(second.covered("thick"), (base.object**0.5)[y, x])
    assert "no slice 1" in second.left_out["thin"]


def test_objects_that_do_not_fit_say_so():
    base = result()
    nothing = dataclasses.replace(base, object=np.zeros_like(base.object))
    with raises("comparison.registration-failed", "two", "one", "The object is 0"):
        Together({"one": base, "two": nothing}).difference("two", "one")


SCANS = {
    "agreement, not the resolution": ("dots", "dots"),
    "the resolution of a half": ("dots, half 2 of 2", "dots, half 1 of 2"),
    "different scans": ("dots", "lines"),
    "different  scans": ("dots, half 1 of 2", "lines, half 2 of 2"),
    "are not known": ("dots", ""),
}


@each("meaning", SCANS)
def test_what_a_ring_correlation_means_is_told_by_the_scans(meaning):
    one, other = (result(metadata={"scan": scan}) for scan in SCANS[meaning])
    words = {"agreement, not the resolution": "not the resolution"}.get(meaning, meaning.replace("  ", " "))
    assert words in independence(one, other)


def test_only_settings_that_differ_are_told():
    one = Settings()
    two = one.replace(probe={"modes": 3}, object={"learning_rate": 0.125})
    results = {name: result(settings=settings.model_dump(mode="json")) for name, settings in (("a", one), ("b", two))}
    rows = settings_that_differ(results)
    assert rows["probe.modes"] == (one.probe.modes, 3)
    assert rows["object.learning_rate"] == (one.object.learning_rate, 0.125)
    assert len(rows) == 2
    assert settings_that_differ({"a": results["a"]}) == {}


def test_terms_of_a_list_are_told_by_their_kind():
    one = result(settings={"losses": [{"kind": "amplitude", "weight": 1.0}]})
    two = result(settings={"losses": [{"kind": "amplitude", "weight": 2.0}, {"kind": "smooth", "weight": 3.0}]})
    assert settings_that_differ({"one": one, "two": two}) == {
        "losses.amplitude.weight": (1.0, 2.0),
        "losses.smooth.kind": (None, "smooth"),
        "losses.smooth.weight": (None, 3.0),
    }


def test_facts_are_those_of_the_record():
    facts = facts_of(result())
    assert facts["seconds"] == 3.0
    assert facts["patterns/s"] == pytest.approx(400 / 3)
    assert facts["loss"] == 0.25
    assert facts["pixel [nm]"] == pytest.approx((2.0, 2.0))
    assert facts["engines"] == "1 CPU engine"
    assert facts_of(result(epochs=()))["loss"] is None
