"""The viewer in a real browser, on a page without Jupyter."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import ptynb as pt
from ptynb.data.images import Picture, picture
from ptynb.io.export.colour_maps import look_up_table
from ptynb.widgets.viewer.viewer import Viewer
from tests.widgets.browser_model import BrowserModel, violations
from tests.widgets.conftest import screenshot

SIDE = 320
RAMP = np.tile(np.arange(SIDE) * 255.0 / (SIDE - 1), (SIDE, 1))
STAGE = '[data-name="{}"] .ptynb-pane-stage'
COLOUR = """
([name, y, x]) => {
  const canvas = document.querySelector(`[data-name="${name}"] .ptynb-pane-picture`);
  return Array.from(canvas.getContext("2d").getImageData(x, y, 1, 1).data.slice(0, 3));
}
"""
SHOWS = f"([level, ...place]) => ({COLOUR})(place)[0] === level"
MANY_FRAMES = """
async ([first, count]) => {
  window.requestAnimationFrame = (act) => setTimeout(act, 0);
  const { model, update } = window.kernel;
  const frame = model.get("frame");
  const copy = (picture) => ({ ...picture, image: new DataView(picture.image.buffer.slice(0)) });
  for (let number = first; number < first + count; number += 1) {
    update("frame", { ...frame, number, pictures: frame.pictures.map(copy) });
    while (model.get("shown") < number) await new Promise((done) => setTimeout(done, 0));
  }
}
"""


@pytest.fixture
def shown(page):
    """A viewer with two ramps of one screen pixel each array pixel, and what it is on."""
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    viewer = Viewer()
    model = BrowserModel(page, viewer)
    viewer.show([ramp("one"), ramp("two", colours="viridis")])
    settle(model)
    yield viewer, model
    model.close()
    viewer.close()
    assert wrong == []


def ramp(name, values=RAMP, **how):
    return picture(values, name, f"Ramp {name}", **{"limits": (0.0, 255.0), "pixel_size": (1e-9, 1e-9), **how})


def settle(model):
    """Two animation frames, and the time after which the page tells the kernel."""
    model.page.wait_for_function("number => kernel.model.get('shown') >= number", arg=model.widget.frame["number"])
    model.page.wait_for_timeout(180)
    model.collect()


def place(model, name="one"):
    return model.page.locator(STAGE.format(name)).bounding_box()


def colour(model, name, y, x):
    return model.page.evaluate(COLOUR, [name, y, x])


def tool(model, label):
    return model.page.get_by_role("button", name=label)


def drag(model, start, stop, name="one"):
    box = place(model, name)
    model.page.mouse.move(box["x"] + start[1], box["y"] + start[0])
    model.page.mouse.down()
    model.page.mouse.move(box["x"] + stop[1], box["y"] + stop[0], steps=4)
    model.page.mouse.up()
    settle(model)


def hover(model, y, x, name="one"):
    box = place(model, name)
    model.page.mouse.move(box["x"] + x, box["y"] + y)
    return model.page.locator(f'[data-name="{name}"] output')


def test_pictures_have_the_colours_of_their_levels_and_frames_are_confirmed(shown):
    viewer, model = shown
    assert viewer.shown == 1
    for x in (0, 100, 319):
        level = int(RAMP[0, x] * 255.999 / 255)
        assert colour(model, "one", 50, x) == [level] * 3
        assert colour(model, "two", 50, x) == look_up_table("viridis")[level].tolist()
    viewer.percentiles = [25, 75]
    settle(model)
    assert colour(model, "one", 50, 60) == [0, 0, 0]
    assert colour(model, "one", 50, 260) == [255, 255, 255]
    limits = model.page.locator('[data-name="one"] .ptynb-pane-limit').all_inner_texts()
    assert [round(float(limit)) for limit in limits] == pytest.approx([63, 191], abs=2)
    tool(model, "Colour maps and contrast").click()
    model.page.get_by_label("Colour map of Ramp one").select_option("twilight")
    settle(model)
    assert viewer.colours == {"one": "twilight"}
    # Part of a circle of phases must not stand for all of it.
    assert colour(model, "one", 50, 60) == look_up_table("twilight")[int(RAMP[0, 60] * 255.999 / 255)].tolist()
    assert model.page.get_by_role("slider", name="Lower limit of Ramp one").count() == 0


def test_a_page_that_is_not_to_confirm_frames_draws_them_and_says_nothing(page):
    viewer = Viewer(confirms=False)
    model = BrowserModel(page, viewer)
    viewer.show([ramp("one")])
    page.locator("[data-frame='1']").wait_for()
    page.wait_for_timeout(180)
    model.collect()
    assert colour(model, "one", 50, 319) == [255, 255, 255]
    assert viewer.shown == 0
    model.close()
    viewer.close()


def test_zoom_holds_the_point_under_the_mouse_and_both_panes_follow(shown):
    viewer, model = shown
    before = hover(model, 100.5, 60.5).inner_text()
    assert before.startswith("y 100, x 60: ≈ 48")
    model.page.locator(STAGE.format("one")).focus()
    model.page.mouse.wheel(0, -500)
    settle(model)
    assert viewer.view["scale"] == pytest.approx(np.exp(0.6), rel=0.01)
    assert hover(model, 100.5, 60.5).inner_text() == before
    assert hover(model, 100.5, 60.5, "two").inner_text() == before
    assert hover(model, 100, 160, "two").inner_text() != before
    viewer.view = {"y": 0.5, "x": 0.5, "scale": 4.0}
    settle(model)
    assert hover(model, 162, 162).inner_text().startswith("y 160, x 160:")
    model.page.mouse.down()
    box = place(model)
    model.page.mouse.move(box["x"] + 122, box["y"] + 182, steps=3)
    model.page.mouse.up()
    assert hover(model, 182, 122).inner_text().startswith("y 160, x 160:")
    model.page.mouse.dblclick(box["x"] + 50, box["y"] + 50)
    settle(model)
    assert viewer.view == {"y": 0.5, "x": 0.5, "scale": 1.0}


def test_the_wheel_scrolls_the_page_past_a_picture_that_nobody_asked_to_zoom(shown):
    viewer, model = shown
    hover(model, 100, 60)
    model.page.mouse.wheel(0, -500)
    settle(model)
    assert viewer.view["scale"] == 1
    model.page.keyboard.down("Control")
    model.page.mouse.wheel(0, -500)
    model.page.keyboard.up("Control")
    settle(model)
    assert viewer.view["scale"] > 1.5
    model.page.get_by_label("Show the whole picture").click()
    box = place(model)
    model.page.mouse.click(box["x"] + 60, box["y"] + 100)
    model.page.mouse.wheel(0, -500)
    settle(model)
    assert viewer.view["scale"] > 1.5


def test_clicks_give_pixels_of_the_array_behind_a_reduced_picture(page):
    viewer, clicks = Viewer(tools=False), []
    viewer.on_click(lambda *click: clicks.append(click))
    model = BrowserModel(page, viewer)
    viewer.show([ramp("big", np.zeros((640, 640)), size=160)])
    settle(model)
    box = place(model, "big")
    page.mouse.click(box["x"] + 80, box["y"] + 200)
    model.collect()
    assert clicks[-1] == ("big", pytest.approx(400, abs=2), pytest.approx(160, abs=2))
    stage = page.locator(STAGE.format("big"))
    stage.press("+")
    stage.press("+")
    stage.press("Shift+ArrowDown")
    stage.press("Shift+ArrowDown")
    stage.press("Enter")
    settle(model)
    step = round(4 / (0.5 * 1.25**2))
    assert clicks[-1] == ("big", 320.5 + step, 320.5)
    assert len(clicks) == 2
    assert stage.get_attribute("data-lm-suppress-shortcuts") == "true"
    stage.press("ArrowRight")
    settle(model)
    assert viewer.view["x"] > 0.5
    stage.press("0")
    settle(model)
    assert viewer.view["scale"] == 1
    model.close()
    viewer.close()


def test_strokes_arrive_in_pixels_of_the_array(shown):
    viewer, model = shown
    strokes = []
    viewer.on_stroke(lambda *stroke: strokes.append(stroke))
    viewer.paint("one")
    viewer.brush = 5.0
    box = hover(model, 50, 40) and place(model)
    model.page.mouse.down()
    model.page.mouse.move(box["x"] + 90, box["y"] + 70, steps=4)
    model.page.mouse.up()
    model.page.get_by_label("Erase").check()
    hover(model, 20, 20)
    model.page.mouse.down()
    model.page.mouse.up()
    settle(model)
    (name, path, radius, erase), (*_, erased) = strokes
    assert (name, radius, erase, erased) == ("one", 5.0, False, True)
    assert path[0] == pytest.approx([50, 40], abs=1)
    assert path[-1] == pytest.approx([70, 90], abs=1)
    assert viewer.view["scale"] == 1


def test_marks_and_a_scale_bar_of_a_round_length_are_drawn(shown):
    viewer, model = shown
    over = COLOUR.replace("ptynb-pane-picture", "ptynb-pane-overlay")
    assert model.page.evaluate(over, ["one", 100, 50]) == [0, 0, 0]
    viewer.mark("one", np.array([[100.0, 50.0]]), chosen=0)
    settle(model)
    assert model.page.evaluate(over, ["one", 100, 50]) == [255, 176, 0]
    assert model.page.evaluate(over, ["one", 100, 59]) == [255, 255, 255]
    # 100 nm of 1 nm pixels: white from 16 to 116.
    row = [model.page.evaluate(over, ["one", 305, x]) == [255, 255, 255] for x in (14, 18, 114, 118)]
    assert row == [False, True, True, False]


def test_arrows_lead_to_where_points_have_moved_and_a_label_tells_their_scale(shown):
    viewer, model = shown
    over = COLOUR.replace("ptynb-pane-picture", "ptynb-pane-overlay")
    viewer.mark("one", np.array([[100.5, 50.5]]), moved=np.array([[100.5, 90.5]]))
    settle(model)
    light = [[min(model.page.evaluate(over, ["one", y, x])) > 128 for y in (97, 100, 103)] for x in (70, 84)]
    assert light == [[False, True, False], [True, True, True]]  # a line, and the head at its end
    before = model.page.evaluate(over, ["one", 312, 300])
    viewer.labels = {"one": "arrows × 20"}
    settle(model)
    assert before == [0, 0, 0]
    row = [model.page.evaluate(over, ["one", y, x]) for y in range(300, 316) for x in range(240, 316, 3)]
    assert [255, 255, 255] in row


def test_a_crosshair_is_moved_by_clicks_drags_of_its_lines_and_keys(shown):
    viewer, model = shown
    clicks = []
    viewer.on_click(lambda name, y, x: clicks.append(name))
    band = Picture("cut", "A cut", ramp("cut").image, (SIDE, SIDE), 1, (0.0, 255.0), axes=("z", "x"), bands=(40, 1),
                   pixel_size=(1e-10, 1e-9))  # fmt: skip
    viewer.show([ramp("one"), ramp("two", RAMP[:200])])
    viewer.crosshair = {"one": [100.5, 50.5], "two": [9.5, 9.5]}
    settle(model)
    over = COLOUR.replace("ptynb-pane-picture", "ptynb-pane-overlay")
    seen = [model.page.evaluate(over, ["one", y, x]) for y, x in ((100, 200), (10, 50), (100, 50))]
    assert [one == [255, 176, 0] for one in seen] == [True, True, False]
    box = place(model)
    model.page.mouse.click(box["x"] + 80.5, box["y"] + 120.5)
    settle(model)
    assert viewer.crosshair == {"one": [120.5, 80.5], "two": [9.5, 9.5]}  # which has another shape
    drag(model, (120, 200), (150, 230))  # the horizontal line alone
    assert viewer.crosshair["one"] == [150.5, 80.5]
    drag(model, (150, 80), (60, 40))
    assert viewer.crosshair["one"] == [60.5, 40.5]
    assert viewer.view == {"y": 0.5, "x": 0.5, "scale": 1.0}
    stage = model.page.locator(STAGE.format("one"))
    stage.press("Shift+ArrowRight")
    stage.press("Shift+ArrowUp")
    settle(model)
    assert viewer.crosshair["one"] == [56.5, 44.5]
    assert not clicks
    viewer.show([band])
    viewer.crosshair = {"cut": [None, 7.5]}
    settle(model)
    assert model.page.evaluate(over, ["cut", 300, 7]) == [255, 176, 0]
    assert hover(model, 130, 60, "cut").inner_text().startswith("z 3 (12 nm), x 60: ≈ 48")
    box = place(model, "cut")
    model.page.mouse.click(box["x"] + 60.5, box["y"] + 130)
    settle(model)
    assert viewer.crosshair == {"cut": [140.0, 60.5]}  # the middle of a band
    model.page.locator(STAGE.format("cut")).press("Shift+ArrowDown")
    settle(model)
    assert viewer.crosshair == {"cut": [180.0, 60.5]}
    assert violations(model.page, "#widget") == []
    viewer.crosshair = {}
    settle(model)
    model.page.mouse.click(box["x"] + 60.5, box["y"] + 130)
    settle(model)
    assert clicks == ["cut"]


def test_swiping_shows_two_pictures_in_one_pane(shown):
    viewer, model = shown
    viewer.swipe = ["one", "two"]
    settle(model)
    assert model.page.locator('[data-name="two"]').is_hidden()
    assert colour(model, "one", 50, 100)[0] == colour(model, "one", 50, 100)[1]
    assert colour(model, "one", 50, 300) == look_up_table("viridis")[int(RAMP[0, 300] * 255.999 / 255)].tolist()
    slider = model.page.get_by_role("slider", name="Ramp one | Ramp two")
    slider.press("Home")
    settle(model)
    assert viewer.swipe_at == 0
    screenshot(model.page, "viewer-swipe")
    viewer.swipe = []
    settle(model)
    assert model.page.locator('[data-name="two"]').is_visible()


def test_contrast_is_dragged_and_locked_for_later_frames(shown):
    viewer, model = shown
    page = model.page
    tool(model, "Colour maps and contrast").click()
    lower = page.get_by_role("slider", name="Lower limit of Ramp one")
    box = page.locator('[data-name="one"] .ptynb-histogram').bounding_box()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20, steps=5)
    page.mouse.up()
    settle(model)
    assert viewer.limits == {"one": [0.0, pytest.approx(127.5, abs=1)]}  # two is of another kind
    assert colour(model, "one", 50, 170) == [255, 255, 255]
    assert abs(colour(model, "one", 50, 80)[0] - 127) <= 3
    lower.press("PageUp")
    lower.press("ArrowRight")
    settle(model)
    assert viewer.limits["one"][0] == pytest.approx(17 * 255 / 256, abs=0.1)
    assert lower.get_attribute("aria-valuetext") == "17"
    viewer.limits = {"one": [0.0, 100.0]}
    viewer.show([ramp("one", RAMP / 2, limits=(0.0, 127.5)), ramp("two", colours="viridis")])
    settle(model)
    assert abs(colour(model, "one", 50, 160)[0] - 163) <= 2  # 64 of 100
    assert page.locator('[data-name="one"] .ptynb-pane-limit').all_inner_texts() == ["0", "100.0"]
    lock = page.locator('[data-name="one"]').get_by_label("Lock the limits")
    assert lock.get_attribute("aria-pressed") == "true"
    lock.click()
    settle(model)
    assert viewer.limits == {}
    assert abs(colour(model, "one", 50, 160)[0] - 128) <= 2
    tool(model, "Automatic contrast").click()
    settle(model)
    assert viewer.percentiles == [0.5, 99.5]
    assert colour(model, "one", 50, 1) == [0, 0, 0]
    tool(model, "Whole range").click()
    settle(model)
    assert viewer.percentiles == [0, 100]


def test_a_figure_is_asked_for_as_the_pane_is_seen(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = {"one": RAMP, "two": RAMP - 51.0}
    viewer = Viewer(figure_of=lambda name: (arrays[name], f"arrays[{name!r}]"))
    lines = []
    viewer.tell = lines.append
    model = BrowserModel(page, viewer)
    viewer.show([ramp("one"), ramp("two", arrays["two"])])
    viewer.view = {"y": 0.25, "x": 0.5, "scale": 2.0}
    viewer.limits, viewer.colours = {"one": [10.0, 200.0]}, {"one": "magma"}
    settle(model)
    tool(model, "Figure for a paper").click()
    page.get_by_label("Format of the figure").select_option("PNG")
    make = page.get_by_role("button", name="Make a figure of this picture")
    said = page.locator(".ptynb-figure-said")

    def made(name):
        make.click()
        model.collect()
        viewer._drawings.settle()
        model.collect()
        assert said.inner_text() == f"written: {tmp_path / name}"
        image = np.asarray(Image.open(tmp_path / name).convert("RGB")).astype(int)
        eval(lines[-1].replace(name, "again.png"), {"pt": pt, "arrays": arrays})
        assert np.array_equal(image, np.asarray(Image.open(tmp_path / "again.png").convert("RGB")))
        return image

    image = made("Ramp_one.png")
    assert lines[0].startswith(
        "pt.figure(arrays['one'], region=((0, 160), (80, 240)), limits=(10.0, 200.0), colours='magma'"
    )
    # the colours of what is seen at the left and right edges of the part, in the middle of the figure's picture
    row = image[image.shape[0] // 3]
    shades = look_up_table("magma").astype(int)
    for value in (80, 239):
        wanted = shades[round((value * 0.8 - 10) / 190 * 255) if value * 0.8 < 200 else 255]
        assert np.abs(row - wanted).sum(1).min() < 12, value
    viewer.swipe, viewer.pairing = ["one", "two"], "difference"
    settle(model)
    made("Ramp_one_two.png")
    assert "pt.figure(arrays['one'] - arrays['two'], region=" in lines[1]
    limits = [float(one) for one in re.search(r"limits=\((\S+), (\S+)\)", lines[1]).groups()]
    assert limits == pytest.approx([-51, 51], abs=1.5)
    assert "colours='PuOr'" in lines[1]
    viewer.spectrum = True
    settle(model)
    make.click()
    assert "no figure of a spectrum" in page.get_by_role("alert").inner_text()
    assert len(lines) == 2
    model.close()
    viewer.close()


WAVE = np.sin(2 * np.pi * np.arange(SIDE) / 16)[None, :] + np.zeros((SIDE, 1))


def test_measurements_give_values_lengths_and_a_line_of_python(shown):
    viewer, model = shown
    lines = []
    viewer.tell, viewer.expressions = lines.append, {"one": "np.abs(result.object)"}
    text = model.page.locator('[data-name="one"] .ptynb-measure-text')
    tool(model, "Line profile").click()
    drag(model, (100, 40), (100, 240))
    assert viewer.measure["kind"] == "profile"
    assert (viewer.measure["start"], viewer.measure["stop"]) == ([100, 40], [100, 240])
    assert text.inner_text() == "Profile, length 200 nm, 200 px"
    plot = model.page.locator('[data-name="one"] .ptynb-plot')
    words = plot.get_attribute("aria-label").split()
    assert words[:4] == ["Profile", "over", "200", "nm,"]
    assert float(words[5]) == pytest.approx(39.5 * 255 / 319, abs=0.6)
    assert float(words[7]) == pytest.approx(239.5 * 255 / 319, abs=0.6)
    assert viewer.view["scale"] == 1
    called = "pt.analysis.line_profile(np.abs(result.object), (99.5, 39.5), (99.5, 239.5), pixel_size=1e-9)"
    assert lines == [called]
    assert model.page.locator('[data-name="two"] .ptynb-plot').count() == 1
    tool(model, "Ruler").click()
    drag(model, (200, 100), (160, 130), "two")
    assert text.inner_text() == "Length 50 nm, 50 px; angle 53.1°"
    assert lines[-1] == "np.hypot(-40 * 1e-9, 30 * 1e-9)"
    tool(model, "Statistics of a rectangle").click()
    drag(model, (10, 20), (110, 220))
    inside = RAMP[10:110, 20:220]
    said = text.inner_text()
    assert f"mean {inside.mean():.0f}" in said.replace(".00", "")
    assert float(said.split("deviation ")[1].split(",")[0]) == pytest.approx(inside.std(), abs=0.3)
    assert said.endswith("area 0.02 µm² (20000 px)")
    tool(model, "Statistics of an ellipse").click()
    drag(model, (10, 20), (110, 220))
    expect(text).to_contain_text("Ellipse")
    pixels = int(text.inner_text().split("(")[1].split(" ")[0])
    assert pixels == pytest.approx(np.pi * 50 * 100, rel=0.01)
    assert lines[-1].endswith('shape="ellipse", pixel_size=1e-9)')
    model.page.keyboard.press("Delete")
    settle(model)
    assert viewer.measure == {}
    assert text.is_hidden()


def test_an_echo_of_an_earlier_value_does_not_replace_one_that_is_not_sent_yet(shown):
    """A kernel echoes what it gets: the end of a drag is told while the answer to its middle is on the way."""
    viewer, model = shown
    middle = {"kind": "ruler", "picture": "one", "start": [200, 100], "stop": [180, 115], "width": 1}
    tool(model, "Ruler").click()
    model.page.evaluate(
        "middle => addEventListener('pointerup', () => kernel.update('measure', middle), { once: true })", middle
    )
    drag(model, (200, 100), (160, 130))
    assert viewer.measure["stop"] == [160, 130]
    assert model.page.locator('[data-name="one"] .ptynb-measure-text').inner_text().startswith("Length 50 nm")


def test_a_measurement_by_keys_ends_at_the_cross(shown):
    viewer, model = shown
    stage = model.page.locator(STAGE.format("one"))
    stage.press("d")
    stage.press("Shift+ArrowRight")
    stage.press("Enter")
    for _ in range(5):
        stage.press("Shift+ArrowRight")
    stage.press("Enter")
    settle(model)
    assert viewer.tool == "ruler"
    assert (viewer.measure["start"], viewer.measure["stop"]) == ([160.5, 160.5], [160.5, 180.5])
    viewer.tool = "profile"
    viewer.measure = {"kind": "profile", "picture": "one", "start": [5, 5], "stop": [5, 45], "width": 3}
    settle(model)
    assert model.page.get_by_label("Width of the profile [px]").input_value() == "3"
    assert "40 px" in model.page.locator('[data-name="one"] .ptynb-measure-text').inner_text()


def test_the_spectrum_has_the_peaks_of_a_wave_and_the_ring_of_a_period(shown):
    viewer, model = shown
    viewer.show([ramp("one", WAVE, limits=(-1.0, 1.0)), ramp("two", np.exp(0.5j * np.pi * WAVE), limits=None)])
    settle(model)
    tool(model, "Spectrum").click()
    settle(model)
    # 512 pixels of the transform on 320 of the screen; the peak is 32 of them from the middle.
    at = [round(160 + 320 / 512 * offset) for offset in (0, 32, -32)]
    for x in at[1:]:
        assert sum(colour(model, "one", 160, x)) > 500
        assert sum(colour(model, "two", 160, x)) > 400
    assert sum(colour(model, "one", 160 + 32, 160)) < 100
    readout = hover(model, 160.3, at[1] + 0.3)
    assert readout.inner_text().startswith(("Period 16", "Period 15.9", "Period 15.8", "Period 16.1"))
    place_of = place(model)
    model.page.mouse.click(place_of["x"] + at[1] + 0.3, place_of["y"] + 160.3)
    settle(model)
    assert viewer.resolution == pytest.approx(16e-9, rel=0.03)
    lines = []
    viewer.tell = lines.append
    model.page.get_by_role("button", name="Copy the lines of Python of the spectra").click()
    settle(model)
    assert lines == ["pt.analysis.amplitude_spectrum(image[0:320, 0:320], pixel_size=1e-9)"] * 2
    assert viewer.view["scale"] == 1
    tool(model, "Spectrum").click()
    settle(model)
    assert colour(model, "one", 50, 4) == [255, 255, 255]


def test_the_cursor_is_in_all_pictures_of_the_same_shape(shown):
    viewer, model = shown
    viewer.show([ramp("one"), ramp("two", RAMP[::-1].T), ramp("small", RAMP[:64, :64])])
    settle(model)
    hover(model, 100.5, 60.5)
    said = [model.page.locator(f'[data-name="{name}"] output').first.inner_text() for name in ("one", "two", "small")]
    assert said == ["y 100, x 60: ≈ 48", "y 100, x 60: ≈ 80", ""]
    over = COLOUR.replace("ptynb-pane-picture", "ptynb-pane-overlay")
    model.page.wait_for_timeout(60)
    assert model.page.evaluate(over, ["two", 100, 68]) == [255, 255, 255]
    model.page.mouse.move(2, 2)
    settle(model)
    assert model.page.evaluate(over, ["two", 100, 68]) == [0, 0, 0]


ANOTHER = """
() => {
  const place = document.body.appendChild(document.createElement("section"));
  window.removeOther = kernel.show(place);
}
"""


def test_the_cursor_is_in_other_viewers_with_the_same_link(shown):
    viewer, model = shown
    model.page.evaluate(ANOTHER)
    settle(model)
    other = model.page.locator('section [data-name="one"] output')
    box = model.page.locator('main [data-name="two"] .ptynb-pane-stage').bounding_box()
    for link, said in (("", ""), ("results", "y 100, x 60: ≈ 48")):
        viewer.link = link
        model.page.mouse.move(box["x"] + 60.5, box["y"] + 100.5)
        assert other.inner_text() == said
        model.page.mouse.move(2, 2)
    model.page.evaluate("removeOther()")


def test_two_pictures_alternate_or_are_subtracted(shown):
    viewer, model = shown
    viewer.show([ramp("one"), ramp("two", RAMP - 51.0)])
    settle(model)
    tool(model, "Two pictures in one").click()
    model.page.get_by_label("How two pictures are shown").select_option("Flicker")
    settle(model)
    assert (viewer.swipe, viewer.pairing) == (["one", "two"], "flicker")
    assert model.page.locator('[data-name="two"]').is_hidden()
    for level in (160, 109, 160):
        model.page.wait_for_function(SHOWS, arg=[level, "one", 50, 200])
    model.page.get_by_label("How two pictures are shown").select_option("Difference")
    settle(model)
    assert viewer.pairing == "difference"
    told = model.page.locator(".ptynb-swipe").inner_text()
    assert told.startswith("Ramp one − Ramp two: orange −5")
    assert colour(model, "one", 50, 200) == pytest.approx(look_up_table("PuOr")[255].tolist(), abs=6)
    assert min(colour(model, "one", 50, 1)) > 235
    with model.page.expect_download() as waiting:
        tool(model, "Save what is shown").click()
    saved = Image.open(waiting.value.path())
    saved.load()
    assert waiting.value.suggested_filename == "Ramp_one_Ramp_two.png"
    assert saved.text["Description"].startswith("Ramp one − Ramp two; -51")
    assert "colour map PuOr" in saved.text["Description"]
    model.page.get_by_label("How two pictures are shown").select_option("side by side")
    settle(model)
    assert viewer.swipe == []
    assert colour(model, "one", 50, 200)[0] == 160


def test_what_is_shown_is_saved_with_its_range(shown, tmp_path):
    viewer, model = shown
    viewer.limits = {"one": [10.0, 200.0]}
    settle(model)
    with model.page.expect_download() as waiting:
        tool(model, "Save what is shown").click()
    assert waiting.value.suggested_filename == "Ramp_one-Ramp_two.png"
    saved = Image.open(waiting.value.path())
    saved.load()
    first, second = saved.text["Description"].splitlines()
    assert first == "Ramp one; 10 to 200; colour map gray; y 0 to 320, x 0 to 320 px; pixel 1e-9 x 1e-9 m (y, x)"
    assert "viridis" in second
    box, shelf = place(model), model.page.locator(".ptynb-panes").bounding_box()
    left, top = (2 * (box[key] - shelf[key] + 10) for key in ("x", "y"))
    assert saved.getpixel((left + 2 * 300, top + 2 * 50))[:3] == (255, 255, 255)
    assert saved.getpixel((left + 2, top + 2 * 50))[:3] == (0, 0, 0)
    # the scale bar, white within its dark ground
    assert saved.getpixel((left + 2 * 60, top + 2 * 305))[:3] == (255, 255, 255)


def test_the_toolbar_takes_one_tab_stop_and_arrow_keys(shown):
    _, model = shown
    buttons = model.page.get_by_role("toolbar").get_by_role("button")
    assert buttons.evaluate_all("all => all.filter((one) => one.tabIndex === 0).length") == 1
    for one in buttons.all():
        assert one.get_attribute("aria-label") in one.get_attribute("title")
    tool(model, "Colour maps and contrast").focus()
    model.page.keyboard.press("ArrowRight")
    assert model.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Zoom out"
    model.page.keyboard.press("c")
    assert model.page.get_by_role("slider", name="Lower limit of Ramp one").is_visible()


def test_full_screen_fills_the_window_with_pictures(shown):
    _, model = shown
    page = model.page
    before = place(model)
    tool(model, "Full screen").click()
    page.wait_for_function("document.fullscreenElement !== null")
    page.wait_for_timeout(300)
    box = place(model)
    assert box["width"] > 1.7 * before["width"]
    assert page.evaluate("document.fullscreenElement.scrollHeight <= innerHeight")
    tool(model, "Full screen").click()
    page.wait_for_function("document.fullscreenElement === null")
    page.wait_for_timeout(300)
    assert place(model) == before


def test_it_is_accessible_and_fits_the_screen(page):
    page.set_viewport_size({"width": 1280, "height": 720})
    viewer = Viewer(figure_of=lambda name: (RAMP, name))
    model = BrowserModel(page, viewer)
    wave = np.exp(0.02j * np.add.outer(np.arange(128), np.arange(512)))
    viewer.show([ramp("one"), ramp("two", colours="magma", unit="rad"), picture(wave, "wave", "Waves", note="a note")])
    viewer.paint("one")
    viewer.mark("two", np.random.default_rng(1).uniform(0, SIDE, (40, 2)), chosen=4)
    settle(model)
    assert "rad" in hover(model, 30, 30, "wave").inner_text()
    for label in ("Colour maps and contrast", "Two pictures in one", "Figure for a paper", "Keys and mouse"):
        tool(model, label).click()
    viewer.tool = "profile"
    viewer.measure = {"kind": "profile", "picture": "one", "start": [30, 30], "stop": [200, 250]}
    settle(model)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert violations(page, name="viewer") == []
    model.close()
    viewer.close()


def test_hundreds_of_frames_leave_nothing_behind_nor_does_the_view(shown):
    viewer, model = shown
    page = model.page
    viewer.show([ramp("one", RAMP[:64, :64]), ramp("two", RAMP[:64, :64])])
    settle(model)
    session = page.context.new_cdp_session(page)

    def used():
        session.send("HeapProfiler.collectGarbage")
        usage = session.send("Runtime.getHeapUsage")
        return usage["usedSize"] + usage.get("backingStorageSize", 0)

    page.evaluate(MANY_FRAMES, [10, 100])
    before = used()
    page.evaluate(MANY_FRAMES, [200, 300])
    growth = (used() - before) / 300
    assert growth < 1000
    page.evaluate("remove()")
    assert page.evaluate("[...kernel.model.listeners.values()].flat().length") == 0
    assert page.evaluate("document.getElementById('widget').childElementCount") == 0


def test_the_page_tells_how_fine_pictures_have_to_be(page):
    viewer = Viewer(height=200)
    model = BrowserModel(page, viewer)
    viewer.show([picture(np.arange(1000.0 * 900).reshape(1000, 900), "large")])
    settle(model)
    stage = page.locator(STAGE.format("large"))
    box = stage.bounding_box()
    model.collect()
    assert viewer.coarse == 1000 // box["height"] > 2
    stage.focus()
    for _ in range(12):
        page.keyboard.press("+")
    settle(model)
    page.wait_for_timeout(300)
    model.collect()
    assert viewer.view["scale"] > viewer.coarse
    assert viewer.coarse == 1
    page.keyboard.press("0")
    page.wait_for_timeout(300)
    model.collect()
    assert viewer.coarse == 1000 // box["height"]
    model.close()
    viewer.close()


def test_a_page_asks_for_as_many_frames_as_it_draws_in_less_than_a_second(shown):
    _, model = shown
    update = "n => kernel.update('frame', { ...kernel.model.get('frame'), number: n })"
    saves = "kernel.saves()"
    model.page.wait_for_timeout(2000)
    before = model.page.evaluate(saves)
    for number in range(2, 42):
        model.page.evaluate(update, number)
        model.page.wait_for_function("n => kernel.model.get('shown') >= n", arg=number)
        model.page.wait_for_timeout(20)
    granted = model.page.evaluate("kernel.model.get('granted')")
    assert 41 < granted <= 41 + 8
    assert model.page.evaluate(saves) - before <= 20, "not for each of 40 frames"
    for number in range(42, 46):  # a slow page
        model.page.wait_for_timeout(1000)
        model.page.evaluate(update, number)
        model.page.wait_for_function("n => kernel.model.get('shown') >= n", arg=number)
    model.page.evaluate(update, granted)
    model.page.wait_for_function("n => kernel.model.get('shown') >= n", arg=granted)
    assert model.page.evaluate("kernel.model.get('granted')") - granted <= 2


def test_a_pixel_of_the_screen_has_the_colour_of_the_mean_below_it_but_phases_are_averaged_as_colours(page):
    stripes = np.tile([[0.0, 255.0]], (512, 256))
    viewer = Viewer(height=256)
    model = BrowserModel(page, viewer)
    viewer.show([ramp("one", stripes), ramp("two", stripes, colours="twilight")])
    viewer.linked_colours = False
    viewer.limits = {"one": [0.0, 63.0]}
    settle(model)
    assert model.page.locator(STAGE.format("one")).bounding_box()["height"] == 256
    assert colour(model, "one", 128, 100) == [255, 255, 255], "127, the mean, is above 63; that of colours is grey"
    table = look_up_table("twilight").astype(float)
    ends = (table[0] + table[255]) / 2
    assert colour(model, "two", 128, 100) == pytest.approx(ends.tolist(), abs=4)
    assert np.abs(table[127] - ends).max() > 50
    model.close()
    viewer.close()
