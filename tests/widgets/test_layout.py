"""The layout of a view in a real browser, on a page without Jupyter: divider, arrangement of pictures, drawer."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from ptynb.widgets.layout.divider import Divider

from ptynb.widgets import elements
from ptynb.widgets.layout.drawer import Drawer
from ptynb.widgets.layout.segments import Segments
from tests.widgets.browser_model import BrowserModel

VIEW = """
([count, aspect]) => {
  const element = (className, ...children) => {
    const made = document.createElement("div");
    made.className = className;
    made.append(...children);
    return made;
  };
  const viewer = (name, many, ratio) => element(name, element("ptynb-viewer", element("ptynb-panes",
    ...Array.from({ length: many }, () => {
      const pane = element("ptynb-pane", element("ptynb-pane-head"), element("ptynb-pane-stage"));
      pane.style.setProperty("--ptynb-aspect", String(ratio));
      return pane;
    }))));
  const controls = element("ptynb-split-controls");
  controls.innerHTML = "<button type=button>Pause</button>";
  const widget = document.getElementById("widget");
  const here = widget.firstElementChild; // the divider
  document.body.style.margin = "0";
  const place = document.createElement("div");
  const pictures = element("ptynb-split-pictures",
    viewer("ptynb-main", count, aspect), viewer("ptynb-aside", 2, 1), element("ptynb-curve"),
    viewer("ptynb-cuts", 0, 1));
  widget.replaceWith(place);
  place.append(element("ptynb-live", element("ptynb-live-head", "running"),
    element("ptynb-split", pictures, here, controls)));
}
"""
SIZES = """
() => {
  const size = (selector) => [...document.querySelectorAll(selector)].map((one) => {
    const { left, top, width, height } = one.getBoundingClientRect();
    return { left, top, width, height };
  });
  return {
    split: size(".ptynb-split")[0], main: size(".ptynb-main .ptynb-pane-stage"),
    controls: size(".ptynb-split-controls"), pictures: size(".ptynb-split-pictures")[0],
    curve: size(".ptynb-curve")[0], strip: document.querySelector(".ptynb-split-pictures").dataset.strip,
  };
}
"""


@pytest.fixture
def shown(page):
    """Shows a view of so many pictures of an aspect beside a divider, and returns its sizes and the divider's model."""
    opened = []

    def show(count=2, aspect=1.0, width=1280, height=720):
        page.set_viewport_size({"width": width, "height": height})
        model = BrowserModel(page, Divider())
        opened.append(model)
        page.evaluate(VIEW, [count, aspect])
        page.wait_for_timeout(300)
        return model

    yield show
    for model in opened:
        model.close()
        model.widget.close()


def sizes(model):
    model.page.wait_for_timeout(200)
    return model.page.evaluate(SIZES)


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
def test_the_pictures_have_the_height_of_the_window(shown, width, height):
    seen = sizes(shown(width=width, height=height))
    bottom = seen["split"]["top"] + seen["split"]["height"]
    assert height - 30 < bottom <= height
    assert len(seen["main"]) == 2
    assert all(stage["top"] + stage["height"] <= height for stage in seen["main"])
    assert seen["curve"]["top"] + seen["curve"]["height"] <= height
    assert seen["main"][0]["height"] > 0.4 * height


def test_a_larger_window_shows_larger_pictures_at_once(shown):
    model = shown()
    before = sizes(model)["main"][0]
    model.page.set_viewport_size({"width": 1920, "height": 1080})
    after = sizes(model)["main"][0]
    assert after["width"] > before["width"]
    assert after["height"] > 1.4 * before["height"]


MEASURE = """
() => {
  for (const pane of document.querySelectorAll(".ptynb-main .ptynb-pane")) {
    const box = document.createElement("div");
    box.className = "ptynb-measure";
    box.innerHTML = "<div style='height: 120px'>Profile</div>";
    pane.append(box);
  }
}
"""


@pytest.mark.parametrize("aspect", [1.0, 4.0])
def test_a_picture_that_is_measured_keeps_its_size_and_place(shown, aspect):
    model = shown(aspect=aspect)
    before = sizes(model)
    model.page.evaluate(MEASURE)
    after = sizes(model)
    assert [stage["height"] for stage in after["main"]] == pytest.approx(
        [one["height"] for one in before["main"]], abs=2
    )
    assert after["main"][0] == pytest.approx(before["main"][0], abs=2)
    assert after["split"]["height"] > before["split"]["height"] + 100
    model.page.evaluate("document.querySelectorAll('.ptynb-measure').forEach((box) => { box.hidden = true; })")
    assert sizes(model) == before


def test_oblong_objects_are_stacked_and_square_ones_stand_side_by_side(shown):
    square = sizes(shown())["main"]
    assert square[0]["top"] == square[1]["top"]
    long = sizes(shown(aspect=4.0))["main"]
    assert long[0]["left"] == long[1]["left"]
    assert long[0]["top"] < long[1]["top"]
    high = sizes(shown(aspect=0.4))
    assert high["strip"] == "beside"  # their height is what counts


def test_cuts_have_a_column_beside_all_others_while_there_are_any(shown):
    model = shown()
    before = sizes(model)
    add = """
    (aspects) => document.querySelector(".ptynb-cuts .ptynb-panes").replaceChildren(...aspects.map((aspect) => {
      const pane = document.querySelector(".ptynb-pane").cloneNode(true);
      pane.style.setProperty("--ptynb-aspect", String(aspect));
      return pane;
    }))
    """
    stages = "[...document.querySelectorAll('.ptynb-cuts .ptynb-pane-stage')]"
    place = f"{stages}.map((one) => one.getBoundingClientRect().toJSON())"
    model.page.evaluate(add, [3, 0.3])
    after, cuts = sizes(model), model.page.evaluate(place)
    pictures, right = after["pictures"], after["pictures"]["left"] + after["pictures"]["width"]
    assert len(cuts) == 2
    for cut in cuts:
        assert cut["width"] > 140
        assert cut["left"] > max(one["left"] + one["width"] for one in (*after["main"], after["curve"]))
        assert cut["right"] <= right
        assert cut["bottom"] <= pictures["top"] + pictures["height"]
    assert after["main"][0]["width"] < before["main"][0]["width"]
    assert after["split"] == before["split"]
    model.page.evaluate(add, [])
    assert sizes(model) == before


def test_the_divider_follows_mouse_and_keys_and_is_remembered(shown):
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
    assert line.get_attribute("aria-valuenow") == str(round(sizes(model)["controls"][0]["width"]))


def test_the_controls_fold_away_and_come_back(shown):
    model = shown()
    before = sizes(model)
    model.page.get_by_role("button", name="Hide the controls").focus()
    model.page.keyboard.press("Enter")
    folded = sizes(model)
    assert folded["controls"][0]["width"] == 0
    assert folded["pictures"]["width"] == pytest.approx(before["pictures"]["width"] + before["controls"][0]["width"])
    model.page.get_by_role("button", name="Show the controls").click()
    assert sizes(model) == before


def test_the_place_of_the_curve_is_told_to_the_kernel(shown):
    model = shown()
    curve = sizes(model)["curve"]
    model.collect()
    assert model.widget.room == pytest.approx([curve["width"], curve["height"]], abs=10)


def test_divider_and_controls_can_be_used_by_everyone(shown):
    model = shown()
    found = Axe().run(model.page, context=".ptynb-live")
    assert [one["id"] for one in found.response["violations"]] == []


def test_a_drawer_shows_a_page_at_a_time_and_is_shut_by_the_same_button(page):
    contents = {"Pattern": elements.HTML("page 1"), "Engines": elements.HTML("page 2")}
    drawer = Drawer(contents, "Below the pictures", icons={"Pattern": "grid-3x3"})
    model = BrowserModel(page, drawer)
    pages = [page.get_by_text("page 1"), page.get_by_text("page 2")]
    pattern = page.get_by_role("button", name="Pattern")
    assert [one.is_visible() for one in pages] == [False, False]
    pattern.focus()
    page.keyboard.press("Enter")
    assert [one.is_visible() for one in pages] == [True, False]
    assert pattern.get_attribute("aria-expanded") == "true"
    page.get_by_role("button", name="Engines").click()
    assert [one.is_visible() for one in pages] == [False, True]
    model.collect()
    assert drawer.shown == "Engines"
    assert [one["id"] for one in Axe().run(page, context=".ptynb-drawer").response["violations"]] == []
    page.get_by_role("button", name="Engines").click()
    assert [one.is_visible() for one in pages] == [False, False]
    drawer.shown = "Pattern"  # as the kernel does when a pattern is chosen
    page.wait_for_timeout(50)
    assert pages[0].is_visible()
    model.close()
    drawer.close()


def test_icons_of_buttons_are_seen_and_not_read(page):
    """Of segments and of a drawer; a button without an icon has its text alone."""
    for widget, role in (
        (Segments("Scan from", ["File", "Live source"], ["file"]), "radio"),
        (
            Drawer({"File": elements.HTML(), "Live source": elements.HTML()}, "Scan from", icons={"File": "file"}),
            "button",
        ),
    ):
        model = BrowserModel(page, widget)
        first, second = (page.get_by_role(role, name=name, exact=True) for name in ("File", "Live source"))
        assert first.locator(".ptynb-button-icon[aria-hidden=true] > svg").count() == 1
        assert (first.inner_text().strip(), second.inner_html()) == ("File", "Live source")
        for button in (first, second):
            assert button.get_attribute("type") == "button"
        found = Axe().run(page, context="main", options={"rules": {"region": {"enabled": False}}})
        assert [one["id"] for one in found.response["violations"]] == []
        model.close()
        widget.close()


def test_a_page_that_opens_below_the_window_is_scrolled_into_sight(page):
    page.set_viewport_size({"width": 1280, "height": 720})
    space = elements.HTML(layout=elements.Layout(height="660px"))
    content = elements.HTML("page", layout=elements.Layout(height="200px"))
    view = elements.VBox([space, Drawer({"Pattern": content}, "Below")], layout=elements.Layout(overflow="visible"))
    model = BrowserModel(page, view)
    page.get_by_role("button", name="Pattern").click()
    page.wait_for_timeout(200)
    box = page.locator(".ptynb-drawer-page").bounding_box()
    assert box["y"] + box["height"] <= 720
    model.close()
    view.close()


def test_a_drawer_is_closed_with_its_pages():
    page = elements.HTML("page")
    drawer = Drawer({"Page": page}, "Pages")
    drawer.shown = "Page"
    assert (drawer.titles, drawer.pages) == (["Page"], [page])
    drawer.shown = None
    assert drawer.shown is None
    drawer.close()
    assert page.closed
