"""The viewer in a real browser, on a page without Jupyter."""

from __future__ import annotations

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from ptynb.data.images import picture
from ptynb.widgets.colour_maps import look_up_table
from ptynb.widgets.viewer.viewer import Viewer
from tests.widgets.browser_model import DARK, LIGHT, BrowserModel
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
    model.page.get_by_label("Colours of Ramp one").select_option("twilight")
    settle(model)
    assert viewer.colours == {"one": "twilight"}
    # Part of a circle of phases must not stand for all of it.
    assert colour(model, "one", 50, 60) == look_up_table("twilight")[int(RAMP[0, 60] * 255.999 / 255)].tolist()
    model.page.get_by_label("Contrast from [%]").fill("80")
    model.page.get_by_label("Contrast from [%]").press("Enter")
    assert "two percentages" in model.page.get_by_role("alert").inner_text()
    assert viewer.percentiles == [25, 75]


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


def test_the_titles_of_two_pictures_in_one_pane_are_whole(shown):
    viewer, model = shown
    long = "Phase, after registration, of the night of the second"
    viewer.show([picture(RAMP, "one", f"{long} beamtime"), picture(RAMP, "two", f"{long} beamtime, other rates")])
    viewer.swipe = ["one", "two"]
    settle(model)
    titles = model.page.locator('[data-name="one"] .ptynb-pane-title')
    assert titles.count() == 2
    for width, scroll in titles.evaluate_all("all => all.map((one) => [one.clientWidth, one.scrollWidth])"):
        assert 0 < scroll <= width
    assert titles.nth(1).get_attribute("title") == f"{long} beamtime, other rates"
    screenshot(model.page, "viewer-swipe-titles")


@pytest.mark.parametrize(("name", "theme"), [("light", LIGHT), ("dark", DARK)])
def test_it_is_accessible_and_fits_the_screen(page, name, theme):
    page.set_viewport_size({"width": 1280, "height": 720})
    viewer = Viewer()
    model = BrowserModel(page, viewer, theme=theme)
    wave = np.exp(0.02j * np.add.outer(np.arange(128), np.arange(512)))
    viewer.show([ramp("one"), ramp("two", colours="magma", unit="rad"), picture(wave, "wave", "Waves", note="a note")])
    viewer.paint("one")
    viewer.mark("two", np.random.default_rng(1).uniform(0, SIDE, (40, 2)), chosen=4)
    settle(model)
    assert "rad" in hover(model, 30, 30, "wave").inner_text()
    screenshot(page, f"viewer-{name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    found = Axe().run(
        page, options={"rules": {"region": {"enabled": False}, "page-has-heading-one": {"enabled": False}}}
    )
    assert found.violations_count == 0, found.generate_report()
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
    assert page.evaluate("[...kernel.listeners.values()].flat().length") == 0
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
