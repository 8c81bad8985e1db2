"""Zoom into pictures of large arrays, in a real browser: the part that is visible is shown with more pixels."""

import dataclasses
import io
import time

import numpy as np
import pytest
from PIL import Image

import ptynb as pt
from ptynb.data.images import picture, reduce_by
from ptynb.widgets.viewer.viewer import Viewer
from tests.widgets.browser_model import BrowserModel
from tests.widgets.conftest import screenshot
from tests.widgets.test_viewer_browser import colour, hover, place, tool

SIDE, REDUCTION, ZOOM = 1280, 4, 12
LEVELS = np.where(np.arange(SIDE) % 2, 200.0, 100.0) * np.ones((SIDE, 1))
LEVELS[:, 640:] += 40.0
"""Columns of two values in turn, of which a reduced picture has the mean; brighter in the right half."""


def shown_part(viewer, quantity="stripes", values=LEVELS, **how):
    """What the kernel answers to the page's wish."""
    top, bottom, left, right = viewer.region
    part = picture(values[top:bottom, left:right], quantity, limits=(0.0, 255.0), **how)
    viewer.show_region([part], (top, left))


def zoom(model, factor, name="stripes", viewer=None):
    """Zooms in by the wheel, about the middle of the picture, but out no further than to all of it."""
    viewer = viewer or model.widget
    box, scale = place(model, name), max(viewer.view["scale"] * factor, 1.0)
    model.page.locator(f'[data-name="{name}"] .ptynb-pane-stage').focus()
    model.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    while abs(factor - 1) > 1e-6:
        step = min(max(factor, 1 / 1.7), 1.7)
        model.page.mouse.wheel(0, -np.log(step) / 0.002)
        factor /= step
    until(model, lambda: viewer.view["scale"] == pytest.approx(scale, rel=1e-3))
    rest(model, viewer)


def until(model, condition, seconds=30):
    """Wait until it is so, by what the page has told."""
    end = time.monotonic() + seconds
    model.collect()
    while not condition():
        assert time.monotonic() < end
        model.page.wait_for_timeout(20)
        model.collect()


def rest(model, viewer=None):
    """Wait until the page has drawn what it got, and has told what it wants to see."""
    viewer = viewer or model.widget
    model.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    until(model, lambda: attribute(model, "region") == ",".join(map(str, viewer.region)))


def drawn(model, viewer=None):
    """Wait until the newest pictures of a part are drawn."""
    viewer = viewer or model.widget
    until(model, lambda: attribute(model, "part") == str(viewer.region_frame["number"]))


def attribute(model, name):
    """What a viewer says of itself; that of the object's pictures is the first one of a run."""
    return model.page.locator(".ptynb-viewer").first.get_attribute(f"data-{name}")


def column(model, y=100):
    """Grey levels of a row of the screen."""
    width = int(place(model, "stripes")["width"])
    return np.array([colour(model, "stripes", y, x)[0] for x in range(width)])


@pytest.fixture
def shown(page):
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    viewer = Viewer(shows_regions=True)
    model = BrowserModel(page, viewer)
    viewer.show([picture(LEVELS, "stripes", size=SIDE // REDUCTION, limits=(0.0, 255.0))])
    rest(model)
    yield viewer, model
    model.close()
    viewer.close()
    assert wrong == []


def test_a_zoom_asks_for_the_part_that_is_visible_and_shows_it_with_more_pixels(shown):
    viewer, model = shown
    until(model, lambda: viewer.coarse == REDUCTION)
    rest(model)
    assert viewer.region == []  # the picture has a pixel for each of the screen
    zoom(model, ZOOM)
    top, bottom, _, _ = viewer.region
    half = SIDE / ZOOM / 2
    assert 0 < top < 640 - half < 640 + half < bottom < SIDE
    assert (bottom - top) == pytest.approx(1.5 * 2 * half, abs=3)
    assert viewer.coarse == 1
    coarse = column(model)
    assert {*coarse[:140]} <= {149, 150, 151}  # means of two columns
    shown_part(viewer)
    drawn(model)
    fine = column(model)
    assert {*fine[:140]} == {100, 200}  # columns of three screen pixels each
    assert {*fine[-140:]} == {140, 240}
    assert np.flatnonzero(coarse > 170)[0] == pytest.approx(np.flatnonzero(fine == 240)[0], abs=6)  # the same place
    screenshot(model.page, "zoomed-stripes")
    # A move within the margin shows more of it without another wish; beyond, the page asks again.
    before = list(viewer.region)
    model.page.keyboard.press("ArrowRight")
    rest(model)
    assert viewer.region == before
    for _ in range(8):
        model.page.keyboard.press("ArrowRight")
    rest(model)
    assert viewer.region[2] > before[2]
    # Zoomed out, nothing of it is left.
    zoom(model, 1 / 20)
    assert viewer.region == []
    assert len({*column(model)[:140]}) <= 2


def test_a_part_that_comes_after_the_zoom_is_over_is_not_shown(shown):
    viewer, model = shown
    zoom(model, ZOOM)
    region = list(viewer.region)
    zoom(model, 1 / 20)
    part = picture(np.zeros((64, 64)), "stripes", limits=(0.0, 255.0))
    viewer.show_region([part], (region[0], region[2]))
    drawn(model)
    assert 0 not in column(model, y=(region[0] + 32) // REDUCTION)


def test_tools_measure_in_the_picture_of_a_region_where_it_is(shown):
    viewer, model = shown
    zoom(model, ZOOM)
    shown_part(viewer)
    drawn(model)
    left = 640 - SIDE // (2 * ZOOM)
    text = hover(model, 100.5, 2.5, "stripes").inner_text()
    assert f"x {left}: " in text
    assert float(text.split("≈ ")[1]) == pytest.approx(LEVELS[0, left], abs=1)
    viewer.measure = {"kind": "rectangle", "picture": "stripes", "start": [620, 600], "stop": [640, 620], "width": 1}
    rest(model)
    words = model.page.locator('[data-name="stripes"] .ptynb-measure-text')
    assert "mean 150" in words.inner_text()
    assert "standard deviation 50" in words.inner_text()
    # Beyond it the picture of all is measured, which has lost the columns.
    viewer.measure = {**viewer.measure, "start": [0, 600]}
    rest(model)
    assert "standard deviation 0" in words.inner_text()
    viewer.measure = {
        "kind": "profile",
        "picture": "stripes",
        "start": [630.5, 600.5],
        "stop": [630.5, 608.5],
        "width": 1,
    }
    rest(model)
    assert "from 100" in model.page.locator('[data-name="stripes"] .ptynb-plot').get_attribute("aria-label")
    viewer.measure = {}
    tool(model, "Spectrum").click()
    rest(model)
    model.page.mouse.move(0, 0)
    box = place(model, "stripes")
    side = min(box["width"], box["height"])
    # The period of two pixels is at the edge of the spectrum, which that of blocks of four does not reach.
    text = hover(model, box["height"] / 2, box["width"] / 2 - side / 2 + 2, "stripes").inner_text()
    assert float(text.split("Period ")[1].split(" px")[0]) == pytest.approx(2, abs=0.1)


def test_a_part_has_the_colours_of_its_values_whatever_its_limits(shown):
    viewer, model = shown
    zoom(model, ZOOM)
    top, bottom, left, right = viewer.region
    viewer.show_region([picture(LEVELS[top:bottom, left:right], "stripes", limits=(50.0, 250.0))], (top, left))
    drawn(model)
    fine = column(model)[:140]
    assert fine.min() == pytest.approx(100, abs=1)
    assert fine.max() == pytest.approx(200, abs=1)
    viewer.limits = {"stripes": [100.0, 200.0]}
    rest(model)
    fine = column(model)[:140]
    assert (fine.min(), fine.max()) == (0, 255)


def decoded(image):
    with Image.open(io.BytesIO(image)) as opened:
        return np.asarray(opened).astype(float)


@pytest.mark.parametrize("slices", [1, 2])
def test_a_zoom_into_a_run_shows_the_pixels_of_its_object_while_it_goes_on(page, slices):
    scan = pt.simulate(patterns=36, window=64, seed=1)
    settings = pt.Settings(slices=pt.Slices(count=slices, thickness=2e-6)) if slices > 1 else pt.Settings()
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=None) as recon:
        recon.start(10**5)
        view = pt.live(recon, size=24)
        viewer, model = view.object_pictures, BrowserModel(page, view)
        page.set_viewport_size({"width": 1280, "height": 800})

        until(model, lambda: viewer.frame["number"] > 2 and viewer.shown > 1)
        assert viewer.frame["pictures"][0]["reduction"] > 2
        zoom(model, 6, "amplitude", viewer)
        until(model, lambda: viewer.region_frame["pictures"])
        first, frame = viewer.region_frame["number"], viewer.frame["number"]
        assert [one["name"] for one in viewer.region_frame["pictures"]] == ["amplitude", "phase"]
        assert [one["reduction"] for one in viewer.region_frame["pictures"]] == [1, 1]
        for part, whole in zip(viewer.region_frame["pictures"], viewer.frame["pictures"], strict=True):
            assert part["limits"] == whole["limits"]
        # As the run goes on.
        until(model, lambda: viewer.region_frame["number"] > first + 2 and viewer.frame["number"] > frame + 2)
        recon.stop()
        until(model, lambda: recon.state == "ready")
        until(model, lambda: not view.needs_pictures(recon.epoch, recon.last_status().update))
        until(model, lambda: attribute(model, "frame") == str(viewer.frame["number"]))
        drawn(model, viewer)
        rest(model, viewer)
        # A pixel of the array in the middle of what is visible has the level of its value.
        part = viewer.region_frame["pictures"][0]
        top, left = viewer.region_frame["corner"]
        corner = recon.pictures(view.request).corner
        object = recon.snapshot(4096).object[corner[0] :, corner[1] :]
        height, width = part["shape"]
        crop = np.abs(object[top : top + height, left : left + width])
        low, high = part["limits"]
        expected = 255 * np.clip((crop - low) / (high - low), 0, 1)
        assert np.abs(decoded(part["image"]) - expected).mean() < 8  # what JPEG leaves of pixels that all differ
        box, whole = place(model, "amplitude"), viewer.frame["pictures"][0]
        extent = [whole["reduction"] * (side // whole["reduction"]) for side in whole["shape"]]
        scale = min(box["width"] / extent[1], box["height"] / extent[0]) * viewer.view["scale"]
        assert scale > 2
        found, values = [], []
        for row in range(height):
            for col in range(width):
                y = box["height"] / 2 + (top + row + 0.5 - viewer.view["y"] * extent[0]) * scale
                x = box["width"] / 2 + (left + col + 0.5 - viewer.view["x"] * extent[1]) * scale
                if 0 < y < box["height"] - 1 and 0 < x < box["width"] - 1:
                    found.append(colour(model, "amplitude", int(y), int(x))[0])
                    values.append(expected[row, col])
        assert len(found) > 20
        assert np.corrcoef(found, values)[0, 1] > 0.9
        # Which means over blocks of the picture of all have not.
        step = whole["reduction"]
        means = np.repeat(np.repeat(reduce_by(expected, step), step, axis=0), step, axis=1)
        lost = np.abs(means - expected[: means.shape[0], : means.shape[1]]).mean()
        assert np.abs(np.array(found) - values).mean() < lost / 2
        screenshot(page, f"zoomed-run-{slices}")
        value = float(viewer.value_at("amplitude", top + 5, left + 7))
        assert value == pytest.approx(crop[5, 7], abs=2e-3)
        request = dataclasses.replace(view.request, panes=("phase",), contrast=None)
        phase = recon.value_at("phase", top + 5, left + 7, request)
        assert float(viewer.value_at("phase", top + 5, left + 7).removesuffix(" rad")) == pytest.approx(phase, abs=2e-3)
        zoom(model, 1 / 20, "amplitude", viewer)
        until(model, lambda: not viewer.region_frame["pictures"])
        model.close()
        view.close()
