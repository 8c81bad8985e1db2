"""The layout of a view in a real browser, on a page without Jupyter: divider, arrangement of pictures, drawer."""

from __future__ import annotations

import numpy as np
import pytest

from ptynb.data import images
from ptynb.data.arrivals import Arrivals
from ptynb.data.engine_records import PANES, Epoch
from ptynb.widgets.arrival_facts import arrival_facts
from ptynb.widgets.live import Live
from ptynb.widgets.live.live_facts import record, summary
from tests.widgets.browser_model import BrowserModel, violations
from tests.widgets.test_live import ARRIVALS, Recon

SIZES = """
() => {
  const size = (selector) => [...document.querySelectorAll(selector)].map((one) => {
    const { left, top, width, height } = one.getBoundingClientRect();
    return { left, top, width, height };
  });
  return {
    view: size(".ptynb-live")[0], split: size(".ptynb-split")[0], main: size(".ptynb-main .ptynb-pane-stage"),
    controls: size(".ptynb-split-controls"), pictures: size(".ptynb-split-pictures")[0],
    curve: size(".ptynb-curve")[0], strip: document.querySelector(".ptynb-split-pictures").dataset.strip,
  };
}
"""


def pictures(names, aspect):
    shape = (round(240 / aspect**0.5), round(240 * aspect**0.5))
    return [images.picture(np.zeros(shape), name) for name in names]


@pytest.fixture
def shown(page):
    """Shows a live view of so many pictures of an aspect, and returns the model of its page."""
    opened = []

    def show(count=2, aspect=1.0, width=1280, height=720):
        page.set_viewport_size({"width": width, "height": height})
        recon = Recon()
        recon.state = None  # so that it has no pictures but these
        view = Live(recon)
        model = BrowserModel(page, view)
        opened.append(model)
        page.add_style_tag(content="body { margin: 0 !important; }")
        view.object_pictures.show(pictures(PANES[:count], aspect))
        view.probe_pictures.show(pictures(("probe 1", "probe 2"), 1.0))
        page.locator(".ptynb-aside canvas").nth(1).wait_for()
        page.wait_for_timeout(300)
        return model

    yield show
    for model in opened:
        model.close()
        model.widget.close()


def sizes(model):
    model.page.wait_for_timeout(200)
    return model.page.evaluate(SIZES)


def test_the_pictures_have_the_height_of_the_window_and_the_curve_the_size_of_its_place(shown):
    model, before = shown(), None
    for width, height in ((1280, 720), (1920, 1080)):
        model.page.set_viewport_size({"width": width, "height": height})
        seen = sizes(model)
        bottom = seen["view"]["top"] + seen["view"]["height"]
        assert height - 30 < bottom <= height
        assert len(seen["main"]) == 2
        assert all(stage["top"] + stage["height"] <= height for stage in seen["main"])
        assert seen["curve"]["top"] + seen["curve"]["height"] <= height
        assert seen["main"][0]["height"] > 0.4 * height
        assert before is None or seen["main"][0]["width"] > before["main"][0]["width"]
        before, curve, drawn = seen, seen["curve"], model.page.locator(".ptynb-curve-stage svg").first
        size = pytest.approx((curve["width"], curve["height"]), abs=2)
        assert (drawn.bounding_box()["width"], drawn.bounding_box()["height"]) == size
        assert tuple(float(side) for side in drawn.get_attribute("viewBox").split()[2:]) == size


@pytest.mark.parametrize("aspect", [1.0, 4.0])
def test_a_picture_that_is_measured_keeps_its_size_and_place(shown, aspect):
    model = shown(aspect=aspect)
    before = sizes(model)
    line = {"kind": "profile", "picture": "amplitude", "start": [10.0, 10.0], "stop": [60.0, 60.0]}
    model.widget.object_pictures.measure = line
    after = sizes(model)
    assert [stage["height"] for stage in after["main"]] == pytest.approx(
        [one["height"] for one in before["main"]], abs=2
    )
    assert after["main"][0] == pytest.approx(before["main"][0], abs=2)
    assert after["split"]["height"] > before["split"]["height"] + 100
    model.widget.object_pictures.measure = {}
    assert sizes(model) == before


def test_cuts_have_a_column_beside_all_others_while_there_are_any(shown):
    model = shown()
    before = sizes(model)
    stages = "[...document.querySelectorAll('.ptynb-cuts .ptynb-pane-stage')]"
    place = f"{stages}.map((one) => one.getBoundingClientRect().toJSON())"
    model.widget.cut_pictures.show([*pictures(("phase xz",), 3), *pictures(("phase yz",), 0.3)])
    after, cuts = sizes(model), model.page.evaluate(place)
    whole, right = after["pictures"], after["pictures"]["left"] + after["pictures"]["width"]
    assert len(cuts) == 2
    for cut in cuts:
        assert cut["width"] > 140
        assert cut["left"] > max(one["left"] + one["width"] for one in (*after["main"], after["curve"]))
        assert cut["right"] <= right
        assert cut["bottom"] <= whole["top"] + whole["height"]
    assert after["main"][0]["width"] < before["main"][0]["width"]
    assert after["split"] == before["split"]
    model.widget.cut_pictures.show([])
    assert sizes(model) == before


def test_the_divider_follows_mouse_and_keys_and_the_controls_fold_away_and_come_back(shown):
    model = shown()
    before = sizes(model)["controls"][0]["width"]
    line = model.page.get_by_role("separator")
    box = line.bounding_box()
    model.page.mouse.move(box["x"] + 6, 300)
    model.page.mouse.down()
    model.page.mouse.move(box["x"] + 6 - 120, 320, steps=4)
    model.page.mouse.up()
    assert sizes(model)["controls"][0]["width"] == pytest.approx(before + 120, abs=10)
    line.press("ArrowRight")
    assert sizes(model)["controls"][0]["width"] == pytest.approx(before + 100, abs=10)
    before = sizes(model)
    assert line.get_attribute("aria-valuenow") == str(round(before["controls"][0]["width"]))
    model.page.get_by_role("button", name="Hide the controls").focus()
    model.page.keyboard.press("Enter")
    folded = sizes(model)
    assert folded["controls"][0]["width"] == 0
    assert folded["pictures"]["width"] == pytest.approx(before["pictures"]["width"] + before["controls"][0]["width"])
    model.page.get_by_role("button", name="Show the controls").click()
    assert sizes(model) == before


def test_the_live_view_and_its_pages_can_be_used_by_everyone(shown):
    model = shown()
    view, recon = model.widget, Recon()
    epochs = [Epoch(number, 1 / number, 1.0, 1.0, None, 0.5, 0.25) for number in (1, 2, 3)]
    view.summary = summary(recon, recon.last_status(), "paused")
    view.arrivals = arrival_facts(Arrivals(**ARRIVALS))
    view.record, view.marks = record(epochs, [(2, 0.25)]), [2]
    view.changes, view.health = [["2", "Probe", "probe", "0.1", "0.2"]], [["0", *"abcdef", "running"]]
    view.refinement = {"moved": True, "moves": ["1 nm", "2 nm"], "residual": ["1 nm", "2 nm"], "affine": "Scale 1"}
    view.messages, view.notices = ["It failed.\ndetails"], ["A state was not kept."]
    for name in ("More", "Pattern", "Positions", "Errors", "Convergence", "Engines", "Changes"):
        model.page.get_by_role("button", name=name, exact=True).click()
        model.page.wait_for_timeout(100)
        part = ".ptynb-live" if name == "More" else ".ptynb-drawer-page:not([hidden])"
        assert violations(model.page, part) == [], name


def test_a_page_that_opens_below_the_window_is_scrolled_into_sight_and_shut_by_the_same_button(shown):
    page = shown().page
    button, content = page.get_by_role("button", name="Engines"), page.get_by_role("region", name="Engines")
    assert not content.is_visible()
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    box = content.bounding_box()
    assert box["y"] + box["height"] <= 720
    page.get_by_role("button", name="Positions").click()
    assert (content.is_visible(), page.get_by_role("region", name="Positions").is_visible()) == (False, True)
    page.get_by_role("button", name="Positions").click()
    assert not page.get_by_role("region").locator("visible=true").count()
