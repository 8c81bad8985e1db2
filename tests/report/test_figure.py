import dataclasses
import io
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from ptynb.data.engine_records import Change, Epoch, Result
from ptynb.figures.figure import compare_with_truth, figure
from ptynb.figures.scale_marks import metric, round_length
from ptynb.simulation.simulated_scan import simulate
from tests.parametrization import each

SCAN = simulate(patterns=64, window=32, step=3, modes=2, seed=2)
TRUTH = SCAN.ground_truth
RESULT = Result(
    object=TRUTH.object,
    probe=TRUTH.probe,
    positions=SCAN.positions,
    origin=(0, 0),
    epochs=tuple(Epoch(number, 1 / number, 0.1, 640.0) for number in range(1, 11)),
    r_factor=0.0321,
    settings={},
    changes=(Change(4, 0, "probe.learning_rate", 0.01, 0.02),),
    pixel_size=SCAN.pixel_size,
    metadata={"scan": "made up"},
)


def texts(page):
    return [text.get_text() for text in page.findobj(Text) if text.get_text()]


def picture(page):
    """What a notebook would show, decoded."""
    return Image.open(io.BytesIO(page._repr_png_()))


def test_a_result_alone_has_object_probe_and_loss():
    page = figure(RESULT)
    assert isinstance(page, Figure)
    shown = texts(page)
    for title in ("Object amplitude", "Object phase [rad]", "Probe modes (hue: phase)", "Loss", "epoch"):
        assert title in shown
    assert "made up   ·   10 epochs   ·   R-factor 0.0321" in shown
    assert not [text for text in shown if "truth" in text.lower()]
    powers = (np.abs(RESULT.probe) ** 2).sum((1, 2))
    assert {f"{power:.1%}" for power in powers / powers.sum()} <= set(shown)


def test_a_known_truth_adds_the_difference_and_its_size():
    broken = dataclasses.replace(
        RESULT, object=RESULT.object * (1 + 0.1 * (np.indices(RESULT.object.shape).sum(0) % 2))
    )
    error = compare_with_truth(broken, TRUTH).error
    assert error == pytest.approx(0.05 / 1.05, rel=0.05)
    shown = texts(figure(broken, TRUTH))
    assert f"|Error against the truth|, rms {error:.4f}" in shown
    assert "True phase [rad]" in shown
    assert any(text.endswith(f"error against the truth {error:.4f}") for text in shown)


def test_a_notebook_shows_it_as_a_png_and_a_file_holds_the_same(tmp_path):
    page = figure(RESULT, TRUTH)
    image = picture(page)
    assert image.format == "PNG"
    assert image.size == (int(4 * 3.6 * 90), 7 * 90)
    assert len(np.unique(np.asarray(image))) > 50
    figure(RESULT, TRUTH).savefig(tmp_path / "page.png", dpi=90)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "page.png")), np.asarray(image))


def test_the_loss_is_drawn_over_the_epochs_with_a_line_at_each_change():
    axes = next(axes for axes in figure(RESULT).axes if axes.get_title() == "Loss")
    curve, change = axes.lines
    np.testing.assert_array_equal(curve.get_xdata(), range(1, 11))
    np.testing.assert_array_equal(curve.get_ydata(), RESULT.losses)
    assert axes.get_yscale() == "log"
    assert set(change.get_xdata()) == {5}


@each("count", [1, 4, 6])
def test_hidden_probe_modes_are_counted(count):
    probe = np.repeat(RESULT.probe[:1], count, axis=0)
    page = figure(dataclasses.replace(RESULT, probe=probe))
    title = "Probe modes (hue: phase)" + (", 2 more not shown" if count == 6 else "")
    assert title in texts(page)
    assert texts(page).count(f"{1 / count:.1%}") == min(count, 4)


@each(
    "change",
    [
        {"pixel_size": None, "r_factor": float("nan"), "metadata": {}, "epochs": RESULT.epochs[:1]},
        {"epochs": (), "changes": (), "metadata": {"scan": "costs $_$"}},
    ],
)
def test_an_unusual_result_still_has_a_figure(change):
    assert picture(figure(dataclasses.replace(RESULT, **change))).size == (972, 630)


def test_scale_bars_are_as_long_as_they_say():
    pixel = 2.5e-8
    for size, unit in ((None, 1.0), ((1e-9, pixel), pixel)):
        axes = figure(dataclasses.replace(RESULT, pixel_size=size)).axes[0]
        (bar,) = (patch for patch in axes.patches if isinstance(patch, Rectangle))
        (label,) = (text.get_text() for text in axes.texts)
        width = axes.images[0].get_array().shape[1]
        assert bar.get_width() * unit == pytest.approx(round_length(width * unit / 5))
        assert label == (f"{bar.get_width():g} px" if size is None else metric(bar.get_width() * unit))


@each(("length", "expected"), [(1.99, 1), (2, 2), (4.9, 2), (5, 5), (10, 10), (3.1e-7, 2e-7), (1e-6, 1e-6)])
def test_round_lengths_are_1_2_5_times_a_power_of_ten(length, expected):
    assert round_length(length) == pytest.approx(expected, rel=1e-12)


@each(("length", "expected"), [(2e-7, "200 nm"), (1e-6, "1 µm"), (1e-3, "1 mm"), (2.0, "2 m"), (5e-10, "500 pm")])
def test_lengths_have_the_unit_that_suits_them(length, expected):
    assert metric(length) == expected


def test_a_scan_without_an_area_to_compare_is_refused_in_a_sentence():
    """One line of positions: no pixel lies between the outermost probe centres."""
    line = SCAN.positions[:2] * [0, 1] + [5.25, 0]
    with pytest.raises(ValueError, match="area"):
        figure(dataclasses.replace(RESULT, positions=line), TRUTH)


def test_the_truth_itself_has_no_error():
    crop = (3, 2)
    object = np.exp(0.7j) * TRUTH.object[crop[0] :, crop[1] :]
    result = dataclasses.replace(RESULT, object=object, positions=SCAN.positions - crop, origin=crop)
    comparison = compare_with_truth(result, TRUTH)
    assert comparison.error < 1e-5
    extent = np.ptp(SCAN.positions, axis=0)
    assert ((extent - comparison.ground_truth.shape >= 0) & (extent - comparison.ground_truth.shape < 2)).all()


def test_no_window_and_no_state_of_pyplot_is_touched():
    program = (
        "import sys; from tests.report import test_figure as t; t.picture(t.figure(t.RESULT, t.TRUTH)); "
        "assert 'matplotlib.figure' in sys.modules; sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stderr


def test_a_thick_object_shows_its_product_and_each_slice():
    factors = np.exp(1j * np.linspace(0, 1, 9))[:, None, None]
    thick = dataclasses.replace(RESULT, object=TRUTH.object[None] ** (1 / 9) * factors)
    shown = texts(figure(thick))
    assert [text for text in shown if text.startswith("Slice")] == [
        f"Slice {number} of 9, phase [rad]" for number in (1, 3, 4, 6, 7, 9)
    ]
    np.testing.assert_allclose(np.abs(thick.projection), np.abs(TRUTH.object), rtol=1e-5)
    assert not [text for text in texts(figure(RESULT)) if text.startswith("Slice")]


def test_a_thick_result_is_compared_with_a_thick_truth_by_their_products():
    thick = dataclasses.replace(RESULT, object=np.stack([TRUTH.object, np.ones_like(TRUTH.object)]))
    two = dataclasses.replace(TRUTH, object=np.stack([np.ones_like(TRUTH.object), TRUTH.object]))
    assert compare_with_truth(thick, two).error < 1e-3
