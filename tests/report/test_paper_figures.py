"""Figures for a paper, by what is in the files that they are saved to."""

import base64
import dataclasses
import io
import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from ptynb.analysis.result_comparison import illuminated
from ptynb.data import images
from ptynb.data.engine_records import Change
from ptynb.data.standard_error import ErrorMap
from ptynb.figures import field_panels
from ptynb.figures.curve_figures import correlated
from ptynb.figures.field_panels import by_power
from ptynb.figures.figure import KINDS, figure
from ptynb.figures.figure_page import COLUMNS, INCH
from ptynb.figures.phase_colours import CIRCLE, complex_colours, wheel
from ptynb.figures.scale_marks import metric
from tests.parametrization import each
from tests.raising import raises
from tests.report.test_figure import RESULT, TRUTH

PAPER = [kind for kind in KINDS if kind != "overview"]
RNG = np.random.default_rng(3)
ERRORS = ErrorMap(TRUTH.object, *RNG.random((3, *TRUTH.object.shape), np.float32), (0, 0), 4.0, RESULT.pixel_size)
THICK = dataclasses.replace(
    RESULT, object=np.stack([TRUTH.object ** (1 / 5)] * 5), r_factors=((5, 0.1), (10, 0.05)), error_map=ERRORS
)
MOVED = dataclasses.replace(RESULT, positions=RESULT.positions + RNG.normal(0, 0.5, RESULT.positions.shape))
SHORTER = dataclasses.replace(RESULT, positions=RESULT.positions[:-3])
SVG = "{http://www.w3.org/2000/svg}"


def shown_in(page):
    """The array that the first picture of a page has, and its limits and colour map."""
    image = page.axes[0].images[0]
    return np.asarray(image.get_array()), image.get_clim(), image.get_cmap().name


def test_a_part_of_the_object_has_the_values_limits_and_colours_asked_for():
    whole, *_ = shown_in(figure(RESULT, "phase"))
    area = illuminated(RESULT)
    top, left = area[0].start + 5, area[1].start + 7
    region = ((top, top + 20), (left + 0.4, left + 29.5))
    page = figure(RESULT, "phase", region=region, limits=(-0.25, 0.5), colours="magma", ticks=True)
    values, limits, colours = shown_in(page)
    np.testing.assert_array_equal(values, whole[5:25, 7:37])
    assert (limits, colours) == ((-0.25, 0.5), "magma")
    axes = page.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [nm]", "y [nm]") or axes.get_xlabel() == "x [µm]"
    unit = 1e-9 if "nm" in axes.get_xlabel() else 1e-6
    pixel = RESULT.pixel_size[1] / unit
    for tick, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        assert (tick + 0.5 + left) * pixel == pytest.approx(float(text.get_text()), rel=1e-4)
    assert len(axes.get_xticks()) >= 3
    assert not list(figure(RESULT, "phase").axes[0].get_xticks())
    amplitude, *_ = shown_in(figure(RESULT, "amplitude", region=region))
    np.testing.assert_array_equal(amplitude, np.abs(RESULT.projection[top : top + 20, left : left + 30]))
    both = figure(RESULT, "object", region=region, ticks=True)
    assert [one.images[0].get_array().shape for one in both.axes[:2]] == [(20, 30)] * 2
    part = shown_in(figure(RESULT, "complex", region=region))[0]
    np.testing.assert_array_equal(part, shown_in(figure(RESULT, "complex"))[0][5:25, 7:37])


def test_of_a_large_object_a_panel_has_means(monkeypatch):
    """Their places and sizes are those of the object's pixels."""
    area = y, x = illuminated(RESULT)
    seen = RESULT.projection[area]
    turned = seen * np.multiply.outer(*images.flattening(seen))
    region = ((y.start + 5, y.start + 25), (x.start + 7, x.start + 37))
    monkeypatch.setattr(field_panels, "FINEST", 10)
    scale = images.reduction_for(seen.shape, 10)
    for kind, measure in (("amplitude", np.abs), ("phase", np.angle)):
        values, *_ = shown_in(figure(RESULT, kind))
        np.testing.assert_allclose(values, measure(images.reduce_by(turned, scale)), atol=1e-4)
        page = figure(RESULT, kind, region=region, ticks=True)
        part, *_ = shown_in(page)
        np.testing.assert_allclose(part, measure(images.reduce_by(turned[5:25, 7:37], 3)), atol=1e-4)
        axes = page.axes[0]
        pixel = RESULT.pixel_size[1] / (1e-9 if "nm" in axes.get_xlabel() else 1e-6)
        for tick, text in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
            assert ((tick + 0.5) * 3 + region[1][0]) * pixel == pytest.approx(float(text.get_text()), rel=1e-4)
        assert len(axes.get_xticks()) >= 2
    largest = float(np.abs(seen).max())
    for of, place, blocks in ({}, np.s_[:, :], scale), ({"region": region}, np.s_[5:25, 7:37], 3):
        colours, *_ = shown_in(figure(RESULT, "complex", **of))
        wanted = complex_colours(images.reduce_by(turned[place], blocks), largest)
        np.testing.assert_allclose(colours.astype(int), wanted, atol=1)


def test_an_array_has_its_values_label_and_pixels():
    values = RNG.normal(size=(40, 60))
    page = figure(values, region=((0, 40), (10, 30)), limits=(-1, 1), colours="PuOr", label="Height [nm]", ticks=True)
    found, limits, colours = shown_in(page)
    np.testing.assert_array_equal(found, values[:, 10:30])
    assert (limits, colours) == ((-1, 1), "PuOr")
    texts = [text.get_text() for text in page.findobj(Text)]
    assert {"Height [nm]", "x [pixel]", "y [pixel]", "5 px"} <= {*texts}
    turn = figure(RNG.uniform(-np.pi, np.pi, (20, 20)), limits=(-np.pi, np.pi), label="Phase [rad]")
    assert "−π/2" in [text.get_text() for text in turn.findobj(Text)]
    field = RNG.normal(size=(20, 30)) + 1j
    np.testing.assert_array_equal(shown_in(figure(field, region=((0, 9), (0, 8))))[0], complex_colours(field)[:9, :8])
    for kwargs, facts in (
        ({"kind": "phase"}, "name the quantity of an array by label"),
        ({"region": ((0, 10), (70, 80))}, "0 to 40, 0 to 60"),
        ({"region": ((0, 10),)}, "region"),
        ({"region": ((10, 0), (0, 5))}, "top < bottom"),
        ({"limits": (1, 1)}, "low < high"),
        ({"limits": "all"}, "'all'"),
        ({"colours": "blue-ish"}, "colours"),
    ):
        with pytest.raises(ValueError, match=re.escape(facts)):
            figure(values, **kwargs)
    for wrong, kwargs in ((values[0], {}), (np.array([["a"]]), {}), (field, {"limits": (0, 1)})):
        with pytest.raises(ValueError, match=r"expected numbers|real arrays"):
            figure(wrong, **kwargs)
    with raises("argument.conflict", "'loss'", "amplitude, phase"):
        figure(RESULT, "loss", ticks=True)
    with raises("argument.conflict", "'object'"):
        figure(RESULT, "object", limits=(0, 1))
    with raises("argument.conflict", "pixel_size"):
        figure(RESULT, "phase", pixel_size=(1e-9, 1e-9))


def made(kind, **options):
    against = {"frc": TRUTH, "positions": options.pop("against", None)}.get(kind)
    return figure(THICK, kind, against, **options)


def svg(page):
    buffer = io.BytesIO()
    page.savefig(buffer, format="svg")
    return ElementTree.fromstring(buffer.getvalue())


def pixels(page, dpi):
    buffer = io.BytesIO()
    page.savefig(buffer, format="png", dpi=dpi)
    return np.asarray(Image.open(buffer).convert("RGB"))


def visible(page):
    """Every text that is drawn, with its place [pixels of the page]."""
    drawn = []
    draw = Text.draw

    def watched(text, renderer, *options):
        drawn.append(text)
        draw(text, renderer, *options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", watched)  # an axis has labels that lie beyond its ends, and leaves them out
        page.draw_without_rendering()
    with page.styled():
        found = {id(text): text for text in drawn if text.get_visible() and text.get_text().strip()}
        return [(text.get_text(), text.get_window_extent()) for text in found.values()]


@each("kind", PAPER)
@each(("width", "letters"), [("single", 6.0), ("double", 9.0)])
def test_no_text_leaves_the_page_or_lies_on_another(kind, width, letters):
    page = made(kind, width=width, letters=letters, panels=True)
    texts = visible(page)
    assert texts
    for name, box in texts:
        rest = box.x0 - page.bbox.x0, page.bbox.x1 - box.x1, box.y0 - page.bbox.y0, page.bbox.y1 - box.y1
        assert min(rest) > -1, name
    for (one, first), (other, second) in itertools.combinations(texts, 2):
        apart = min(first.x1, second.x1) - max(first.x0, second.x0), min(first.y1, second.y1) - max(first.y0, second.y0)
        assert min(apart) < 2, f"{one!r} lies on {other!r}"


@each("width", ["single", 0.12])
def test_a_page_is_as_wide_as_it_was_asked_to_be_and_has_little_white(width):
    page = made("phase", width=width)
    metres = COLUMNS.get(width, width)
    root = svg(page)
    assert float(root.get("width").removesuffix("pt")) / 72 * INCH == pytest.approx(metres, rel=1e-3)
    image = pixels(page, 150)
    rows = np.flatnonzero((image < 250).any((1, 2)))
    columns = np.flatnonzero((image < 250).any((0, 2)))
    assert rows[0] < 15
    assert image.shape[0] - rows[-1] < 15
    assert columns[0] < 20
    assert image.shape[1] - columns[-1] < 20


def test_text_in_svg_is_text_of_the_sizes_asked_for():
    root = svg(made("phase", letters=8))
    texts = {"".join(text.itertext()).strip(): text.get("style", "") for text in root.iter(f"{SVG}text")}
    assert "Phase [rad]" in texts
    sizes = {float(size) for style in texts.values() for size in re.findall(r"([\d.]+)px", style)}
    assert sizes == {8.0, 7.0}  # letters, and numbers along the bar
    assert "1 µm" in texts or "500 nm" in texts


def test_pictures_in_svg_and_pdf_have_all_their_pixels():
    page = made("phase")
    shape = page.axes[0].images[0].get_array().shape
    links = [image.get("{http://www.w3.org/1999/xlink}href") for image in svg(page).iter(f"{SVG}image")]
    sizes = [Image.open(io.BytesIO(base64.b64decode(link.partition(",")[2]))).size for link in links]
    assert (shape[1], shape[0]) in sizes
    buffer = io.BytesIO()
    page.savefig(buffer, format="pdf")
    written = buffer.getvalue()
    assert re.search(rb"/Height %d\b" % shape[0], written)
    assert re.search(rb"/Width %d\b" % shape[1], written)
    assert b"/TrueType" in written or b"/CIDFontType2" in written
    assert b"/Type3" not in written


def test_a_scale_bar_is_as_long_as_it_says_to_the_pixel():
    page = made("phase")
    dpi = 600
    image = pixels(page, dpi)
    page.draw_without_rendering()
    axes = page.axes[0]
    (bar,) = axes.patches
    (label,) = (text.get_text() for text in axes.texts)
    number, unit = label.split()
    metres = float(number) * {"nm": 1e-9, "µm": 1e-6}[unit]
    box = axes.get_window_extent()
    expected = metres / RESULT.pixel_size[1] / axes.images[0].get_array().shape[1] * box.width * dpi / page.dpi
    middle = bar.get_window_extent()
    row = image[image.shape[0] - round((middle.y0 + middle.y1) / 2 * dpi / page.dpi)]
    black = np.flatnonzero((row[: round(box.x1 * dpi / page.dpi)] == 0).all(-1))
    lines = np.split(black, np.flatnonzero(np.diff(black) > 1) + 1)
    assert len(lines) == 4  # the colour map has no black: frame, both edges of the bar, frame
    assert lines[2].mean() - lines[1].mean() == pytest.approx(expected, abs=1.5)


def test_pixels_that_are_no_squares_keep_their_shape():
    flat = dataclasses.replace(RESULT, pixel_size=(2e-8, 4e-8))
    page = figure(flat, "phase")
    page.draw_without_rendering()
    box = page.axes[0].get_window_extent()
    rows, columns = page.axes[0].images[0].get_array().shape
    assert box.width / box.height == pytest.approx(2 * columns / rows, rel=0.01)


def test_modes_are_in_the_order_of_their_power():
    probe = RESULT.probe[:1] * np.array([0.5, 2.0, 1.0])[:, None, None]
    modes, powers = by_power(probe)
    np.testing.assert_allclose(powers, np.array([4, 1, 0.25]) / 5.25, rtol=1e-6)
    np.testing.assert_array_equal(modes[0], probe[1])
    page = figure(dataclasses.replace(RESULT, probe=probe), "probe")
    assert [axes.get_title(loc="right") for axes in page.axes if axes.images and axes.get_title(loc="right")] == [
        "mode 1: 76.2%",
        "mode 2: 19.0%",
        "mode 3: 4.8%",
    ]


def test_the_wheel_says_what_its_radius_is():
    for kind in ("probe", "complex"):
        assert {"0", "π", "π/2", "−π/2", "amplitude"} <= {name for name, _ in visible(figure(RESULT, kind))}


def test_a_flat_object_is_shown_in_the_middle_of_its_colours():
    flat = dataclasses.replace(RESULT, object=np.ones_like(RESULT.object))
    amplitude, phase = (axes.images[0] for axes in figure(flat, "object").axes[:2])
    assert amplitude.get_clim() == pytest.approx((0.5, 1.5))
    assert phase.get_clim() == pytest.approx((-0.5, 0.5), abs=1e-6)


def test_wrapped_phases_have_colours_that_close():
    rows, columns = np.indices(RESULT.object.shape)
    turns = np.exp(1j * np.pi * np.sin(rows / 3) * np.cos(columns / 4) * 1.5)
    image = figure(dataclasses.replace(RESULT, object=turns), "phase").axes[0].images[0]
    assert image.get_cmap().name == "twilight"
    assert image.get_clim() == pytest.approx((-np.pi, np.pi))
    assert figure(RESULT, "phase").axes[0].images[0].get_cmap().name == "viridis"
    assert figure(RESULT, "phase", colours="cividis").axes[0].images[0].get_cmap().name == "cividis"


def test_the_correlation_has_its_crossings_and_says_what_it_means():
    noise = 0.15 * RNG.normal(size=(*TRUTH.object.shape, 2)) @ [1, 1j]
    noisy = dataclasses.replace(RESULT, object=TRUTH.object + noise)
    page = figure(noisy, "frc", TRUTH)
    correlation, _ = correlated(noisy, TRUTH)
    half_bit = correlation.crossing()
    marks = [line for line in page.axes[0].lines if len(line.get_xdata()) == 1]
    assert marks[0].get_xdata()[0] == pytest.approx(half_bit * 1e-6)
    assert page.axes[0].get_xlabel() == "Spatial frequency [1/µm]"
    assert f"½ bit: {metric(1 / half_bit)}" in page.axes[0].get_legend_handles_labels()[1]
    assert "full periods" in page.caption
    other = figure(RESULT, "frc", noisy)
    assert "share their noise" in other.caption
    exact = figure(RESULT, "frc", RESULT).axes[0].get_legend_handles_labels()[1]
    assert all("not reached, below" in label for label in exact)


def test_positions_are_where_the_probe_was_and_arrows_where_they_moved():
    page = figure(RESULT, "positions")
    x, y = page.axes[0].collections[0].get_offsets().T
    centres = RESULT.positions * RESULT.pixel_size
    np.testing.assert_allclose(np.stack([y, x], -1) * 1e-6, centres - centres.mean(0), atol=1e-12)
    assert page.axes[0].yaxis_inverted()
    rms = np.sqrt(((MOVED.positions - RESULT.positions) - (MOVED.positions - RESULT.positions).mean(0)) ** 2)
    told = figure(MOVED, "positions", RESULT).caption
    expected = np.sqrt((rms**2).sum(1).mean()) * RESULT.pixel_size[0]
    assert float(re.search(r"([\d.]+) nm rms", told)[1]) == pytest.approx(expected * 1e9, rel=0.01)
    refined = dataclasses.replace(MOVED, parameters={"positions/start": RESULT.positions})
    page = figure(refined, "positions")
    factor = float(re.search(r"([\d.]+) times as long", page.caption)[1])
    assert float(re.search(r"([\d.]+) nm rms", page.caption)[1]) == pytest.approx(expected * 1e9, rel=0.01)
    arrows = page.axes[0].collections[1]
    moves = (MOVED.positions - RESULT.positions) - (MOVED.positions - RESULT.positions).mean(0)
    drawn = np.stack([arrows.V, arrows.U], -1) * 1e-6
    np.testing.assert_allclose(drawn, factor * moves * RESULT.pixel_size, atol=1e-12)
    ends = arrows.XY[:, ::-1] * 1e-6 - (centres - centres.mean(0))
    from_start = (RESULT.positions - MOVED.positions) * RESULT.pixel_size
    np.testing.assert_allclose(ends - ends.mean(0), from_start - from_start.mean(0), atol=1e-6)


UNUSUAL = {
    "no pixel size": ({"pixel_size": None}, ["complex", "positions"]),
    "no epoch": ({"epochs": (), "changes": ()}, ["loss"]),
    "no R": ({"r_factors": ((5, float("nan")), (9, float("nan")))}, ["loss"]),
    "no numbers": ({"object": np.full_like(RESULT.object, np.nan)}, ["object", "complex"]),
    "dark": ({"object": np.zeros_like(RESULT.object)}, ["object", "complex"]),
    "no probe": ({"probe": np.zeros_like(RESULT.probe)}, ["probe"]),
    "one place": ({"positions": np.broadcast_to(RESULT.positions[:1], (3, 2))}, ["phase", "positions"]),
    "odd name": ({"changes": (Change(3, 0, "$weird$", 1, 2),)}, ["loss"]),
}


@each(("change", "kinds"), UNUSUAL.values())
def test_an_unusual_result_has_its_figures_too(change, kinds):
    for kind in kinds:
        assert pixels(figure(dataclasses.replace(RESULT, **change), kind), 50).size


@each(
    ("given", "code", "facts"),
    [
        ({"kind": "phse"}, "argument.invalid-value", ["kind", "'phse'", "'phase'"]),
        ({"kind": "phase", "width": "tripple"}, "argument.invalid-value", ["'tripple'", "'single', 'double'"]),
        ({"kind": "phase", "letters": 12}, "argument.invalid-value", ["letters is 12", "6 to 9"]),
        ({"kind": "phase", "colours": "viridi"}, "argument.invalid-value", ["'viridi'", "'viridis'"]),
        ({"kind": "frc"}, "argument.missing", ["against", "scan.ground_truth"]),
        ({"kind": "errors"}, "argument.missing", ["no error map", "with_error_map"]),
        ({"kind": "positions", "against": TRUTH}, "argument.conflict", ["positions"]),
        ({"kind": "overview", "against": RESULT}, "argument.conflict", ["pt.figure(result, 'frc', other)"]),
        ({"kind": "positions", "against": SHORTER}, "array.shape-mismatch", [64, 61]),
    ],
)
def test_an_unsupported_option_is_an_error_that_lists_the_supported_ones(given, code, facts):
    with raises(code, *facts):
        figure(RESULT, **given)


def test_colours_are_all_of_one_lightness_and_say_the_phase():
    light = CIRCLE @ [0.2126, 0.7152, 0.0722]
    assert np.ptp(light) < 0.1 * light.mean() + 0.05  # luminance is nearly lightness
    assert CIRCLE.min() > 0
    assert CIRCLE.max() < 1
    ring = complex_colours(np.exp(1j * np.linspace(-np.pi, np.pi, 90, endpoint=False))[None])
    assert len(np.unique(ring[0], axis=0)) == 90
    assert (complex_colours(np.zeros((2, 2), complex)) == 0).all()
    assert (complex_colours(np.array([[np.nan, 1]])) == complex_colours(np.array([[0, 1]]))).all()
    disc = wheel(65)
    np.testing.assert_array_equal(disc[32, 64 - 2, :3] > 0, True)
    assert disc[0, 0, 3] == 0
    assert disc[32, 32, 3] == 255
