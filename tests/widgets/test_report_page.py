"""Reports in a real browser without a network: they ask for nothing, run nothing of others, and react."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tifffile
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect
from pypdf import PdfReader

import ptynb as pt
from ptynb.data import images
from ptynb.report.result_viewers import area_of
from tests.report.results import field, result
from tests.report.test_page import HOSTILE
from tests.widgets.conftest import screenshot

GUARD = """
window.violations = [];
document.addEventListener("securitypolicyviolation", ({ violatedDirective }) => violations.push(violatedDirective));
"""
PIXELS = "(canvas) => canvas.toDataURL().split(',')[1]"
SIZES = {
    "small": (1280, 720, "light"),
    "dark": (1280, 720, "dark"),
    "large": (1920, 1080, "light"),
    "phone": (390, 844, "light"),
}
Open = Callable[..., "Opened"]


class Opened:
    """A report on a page of a browser without a network, and what it did that a report must not."""

    def __init__(
        self, browser: Browser, path: Path, width: int = 1280, height: int = 720, scheme: str = "light"
    ) -> None:
        given = {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "accept_downloads": True}
        self.context = browser.new_context(**given)
        self.context.set_offline(True)
        self.wrong: list[str] = []
        self.page = self.context.new_page()
        self.page.add_init_script(GUARD)
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("console", lambda message: self.wrong.append(f"console {message.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        address = path.as_uri()
        self.page.on("request", lambda asked: asked.url == address or self.wrong.append(f"request {asked.url}"))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")
        self.settle()

    def settle(self) -> None:
        """Until every viewer has drawn the frame that it was asked for last."""
        boards = self.page.locator(".ptynb-viewer")
        for index in range(boards.count()):
            expect(boards.nth(index)).to_have_attribute("data-frame", re.compile(r"[1-9]"))
        self.page.evaluate("() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def pixels(self, viewer: str, name: str) -> np.ndarray:
        canvas = self.page.locator(f'[data-viewer="{viewer}"] [data-name="{name}"] .ptynb-pane-picture')
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(canvas.evaluate(PIXELS)))).convert("RGB")).astype(int)

    def check(self) -> None:
        assert self.wrong == []
        assert self.page.evaluate("violations") == []


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Writes a report and opens it; at the end it has asked for nothing, said nothing and broken no rule."""
    opened: list[Opened] = []

    def show(source: object, size: str = "small", **given: object) -> Opened:
        path = pt.report(source, tmp_path / "scan.html", **given)
        width, height, scheme = SIZES[size]
        opened.append(Opened(browser, path, width, height, scheme))
        return opened[-1]

    yield show
    for one in opened:
        one.check()
        one.context.close()


def thick() -> pt.Result:
    slices = np.stack([field((96, 96), 1), np.roll(field((96, 96), 2), 9, 1), field((96, 96), 3)])
    return result(object=slices)


def drag(page: Page, place: Locator, start: float, end: float) -> None:
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + start * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()


def test_the_sliders_show_slices_and_kept_epochs(shown: Open) -> None:
    one = shown(thick())
    whole = one.pixels("object", "phase")
    colours = one.pixels("object", "complex")
    assert np.ptp(colours, axis=(0, 1)).max() > 20
    epochs = one.page.get_by_label("Epoch", exact=True)
    for label, key, value in (("Slice", "ArrowRight", "slice 1 of 3"), ("Epoch", "ArrowLeft", "epoch 6")):
        slider = one.page.get_by_label(label, exact=True)
        slider.focus()
        one.page.keyboard.press(key)
        expect(slider).to_have_attribute("aria-valuetext", value)
        expect(one.page.locator('[data-viewer="object"] .ptynb-viewer')).to_have_attribute(
            "data-frame", "2" if label == "Slice" else "3"
        )
        assert (one.pixels("object", "phase") != whole).mean() > 0.05
        assert (one.pixels("object", "complex") != colours).mean() > 0.05
    expect(one.page.get_by_label("Slice", exact=True)).to_have_attribute("aria-valuetext", "product of all")
    expect(one.page.get_by_text("After epoch 6, stored with a reduction of 2 × 2")).to_be_visible()
    epochs.focus()
    one.page.keyboard.press("End")
    expect(epochs).to_have_attribute("aria-valuetext", "epoch 12, the result")
    expect(one.page.locator('[data-viewer="object"] .ptynb-viewer')).to_have_attribute("data-frame", "4")
    np.testing.assert_array_equal(one.pixels("object", "phase"), whole)


def test_pictures_zoom_together_and_tell_values(shown: Open) -> None:
    tame = result()
    one = shown(tame)
    stage = one.page.locator('[data-viewer="object"] [data-name="phase"] .ptynb-pane-stage')
    stage.click(position={"x": 100, "y": 100})
    before = one.pixels("object", "amplitude")
    one.page.keyboard.press("+")
    one.page.wait_for_timeout(100)
    assert (one.pixels("object", "amplitude") != before).mean() > 0.05
    said = one.page.locator('[data-viewer="object"] [data-name="phase"] .ptynb-pane-readout').inner_text()
    assert said.startswith("y ")
    assert said.endswith(" rad")
    viewer = one.page.locator('[data-viewer="object"]')
    viewer.get_by_role("button", name="Colour maps and contrast").click()
    bar = one.page.locator('[data-viewer="object"] [data-name="phase"] .ptynb-pane-limit').first
    limit = bar.inner_text()
    viewer.get_by_role("slider", name="Lower limit of Object phase").press("PageUp")
    expect(bar).not_to_have_text(limit)
    viewer.get_by_role("button", name="Ruler").click()
    drag(one.page, stage, 0.2, 0.6)
    expect(viewer.locator('[data-name="phase"] .ptynb-measure-text')).to_contain_text("nm")
    viewer.get_by_role("button", name="Spectrum").click()
    viewer.get_by_role("button", name="Save what is shown").click()


def test_the_curve_zooms_and_tells_values_by_mouse_and_keys(shown: Open) -> None:
    one = shown(result())
    curve = one.page.locator('[data-curve="loss"]')
    stage, said = curve.locator(".ptynb-curve-stage"), curve.locator(".ptynb-curve-readout")
    line = curve.locator("polyline").first
    whole = line.get_attribute("points")
    drag(one.page, stage, 0.5, 0.9)
    zoomed = line.get_attribute("points")
    assert zoomed is not None
    assert whole is not None
    assert 2 < len(zoomed.split()) < len(whole.split())
    stage.press("0")
    assert line.get_attribute("points") == whole
    stage.press("Home")
    expect(said).to_have_text("epoch 1 · loss 0.5 · R-factor 0.15 (at 4)")
    stage.press("End")
    expect(said).to_have_text("epoch 12 · loss 0.041667 · R-factor 0.05")
    curve.get_by_label("over").select_option("seconds")
    stage.press("Home")
    stage.press("ArrowRight")
    expect(said).to_contain_text("seconds 4 · loss 0.25")
    curve.get_by_label("logarithmic").uncheck()
    assert line.get_attribute("points") != whole
    assert curve.locator(".ptynb-curve-mark").count() == 1


def test_what_is_saved_from_the_page_is_what_was_reconstructed(shown: Open) -> None:
    tame = result()
    one = shown(tame)

    def saved(name: str) -> bytes:
        with one.page.expect_download() as waiting:
            one.page.get_by_label(f"Save {name}", exact=True).click()
        assert waiting.value.suggested_filename == name
        return waiting.value.path().read_bytes()

    for key in ("object", "probe", "positions"):
        loaded = np.load(io.BytesIO(saved(f"scan-{key}.npy")), allow_pickle=False)
        np.testing.assert_array_equal(loaded, getattr(tame, key))
    seen = tame.object[area_of(tame)]
    for name, values, margin in (
        ("object-amplitude", np.abs(seen)[None], 1e-6),
        ("object-phase", images.flat_phase(seen.astype(np.complex128))[None], 1e-5),
        ("probe-amplitude", np.abs(tame.probe), 1e-6),
        ("probe-phase", np.angle(tame.probe), 1e-5),
    ):
        with tifffile.TiffFile(io.BytesIO(saved(f"scan-{name}.tif"))) as file:
            pages = np.stack([page.asarray() for page in file.pages])
            x, y = (file.pages.first.tags[tag].value for tag in ("XResolution", "YResolution"))
        assert pages.dtype == np.float32
        np.testing.assert_allclose(pages, values, atol=margin)
        assert 0.01 * x[1] / x[0] == pytest.approx(20e-9)
        assert 0.01 * y[1] / y[0] == pytest.approx(20e-9)
    amplitude = Image.open(io.BytesIO(saved("scan-amplitude-16bit.png")))
    assert amplitude.mode.startswith("I")
    assert np.asarray(amplitude).max() == 65535
    with one.page.expect_download() as waiting:
        one.page.locator('[data-curve="loss"]').get_by_text("Save values").click()
    rows = waiting.value.path().read_text().splitlines()
    assert rows[0] == '"curve","epoch","seconds","value"'
    assert rows[1] == '"loss",1,2,0.5'
    with one.page.expect_download() as waiting:
        one.page.locator('[data-viewer="probe"]').get_by_text("Save pictures").click()
    assert Image.open(io.BytesIO(waiting.value.path().read_bytes())).size == (24, 24)


def test_values_under_the_cursor_are_those_of_the_array(shown: Open) -> None:
    """At a pixel of slices, their product and of a probe's mode, the words are the array's number, not a grey level."""
    deep = thick()
    one = shown(deep)
    area = area_of(deep)

    def said(viewer: str, name: str) -> tuple[tuple[int, int], str]:
        pane = one.page.locator(f'[data-viewer="{viewer}"] [data-name="{name}"]')
        pane.locator(".ptynb-pane-stage").click(position={"x": 101, "y": 67})
        found = re.fullmatch(r"y (\d+), x (\d+): (.*)", pane.locator(".ptynb-pane-readout").inner_text())
        assert found is not None
        return (int(found[1]), int(found[2])), found[3].replace("−", "-")

    def holds(field: np.ndarray) -> None:
        at, text = said("object", "amplitude")
        assert text == f"{abs(field[at]):.6g}".ljust(len(text), "0")
        at, text = said("object", "phase")
        assert float(text.removesuffix(" rad")) == pytest.approx(images.flat_phase(field.astype(complex))[at], abs=2e-5)

    holds(deep.projection[area])
    slider = one.page.get_by_label("Slice", exact=True)
    slider.fill("2")
    one.settle()
    holds(deep.slices[1][area])
    at, text = said("probe", "mode 2")
    amplitude, phase = text.removesuffix(" rad").split(", phase ")
    assert float(amplitude) * np.exp(1j * float(phase)) == pytest.approx(deep.probe[1][at], rel=2e-5, abs=1e-6)
    assert "those of the array; every pixel is among the files" in one.page.locator("#object").inner_text()


def test_two_results_side_by_side_with_a_slider_between(shown: Open) -> None:
    other = result(object=np.roll(field((96, 96), 7), 1, 0), settings=pt.Settings(batch=8).model_dump(mode="json"))
    one = shown({"first": result(), "second": other})
    panes = one.page.locator('[data-viewer="object"] .ptynb-pane')
    expect(panes).to_have_count(3)
    before = one.pixels("object", "first")
    one.page.get_by_label("Show", exact=True).select_option("complex")
    expect(one.page.locator('[data-viewer="object"] [data-name="first"] .ptynb-complex')).to_be_visible()
    assert (one.pixels("object", "first") != before).mean() > 0.05
    one.page.get_by_label("Slider between").select_option("first | second")
    swipe = one.page.locator(".ptynb-swipe input")
    swipe.fill("0.25")
    expect(panes.locator("visible=true")).to_have_count(2)
    one.page.get_by_label("Difference", exact=True).select_option("none")
    expect(panes.locator("visible=true")).to_have_count(1)
    screenshot(one.page, "report-comparison")


def test_hostile_words_do_nothing(shown: Open) -> None:
    """All at once, in every place that a file or a user can put words into; alone and in a comparison."""
    tame = result()
    words = " ".join(HOSTILE.values())
    hostile = dataclasses.replace(
        tame,
        title=words,
        comments="\n\n".join([*HOSTILE.values(), *(f"# {one}" for one in HOSTILE.values())]),
        scan=dataclasses.replace(tame.scan, name=words, path=words, given={words: words}),
        machines=dataclasses.replace(tame.machines, kind=words),
        settings={**tame.settings, words: words},
        changes=(dataclasses.replace(tame.changes[0], name=words, old=words, new=words),),
        metadata={words: words, "scan": words},
    )
    for source in (hostile, {words: hostile, f"{words} 2": tame}):
        one = shown(source)
        assert one.page.evaluate("document.scripts.length") == 2
        assert one.page.locator("img, iframe, object, embed, a:not([href^='#']), [onerror], [onload]").count() == 0
        expect(one.page.locator("h1")).to_contain_text("<script>alert(1)</script>")
        assert "\u202e" not in one.page.locator("body").inner_text()


@pytest.mark.parametrize("size", SIZES)
def test_it_is_accessible_and_fits_the_screen(shown: Open, size: str) -> None:
    one = shown(thick(), size, comments="# Sample\n\nGold on *silicon nitride*.\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    one.page.locator("#settings summary").click()
    if size in ("small", "dark"):  # the others have the same elements
        found = Axe().run(one.page).response["violations"]
        wrong = [(rule["id"], [node["html"][:200] for node in rule["nodes"]][:3]) for rule in found]
        assert not wrong
    assert one.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    one.page.evaluate("scrollTo(0, 0)")
    screenshot(one.page, f"report-{size}")
    folder = Path(os.environ.get("PTYNB_TEST_ARTIFACTS", "test-artifacts"))
    one.page.screenshot(path=folder / f"report-{size}-whole.png", full_page=True)


def test_on_paper_everything_is_there(shown: Open) -> None:
    one = shown(thick(), "dark")
    folder = Path(os.environ.get("PTYNB_TEST_ARTIFACTS", "test-artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    one.page.pdf(path=folder / "report.pdf", format="A4")
    reader = PdfReader(folder / "report.pdf")
    text = " ".join(page.extract_text() for page in reader.pages)
    for words in ("Star, run 17", "0.0421", "Realigned", "probe.learning_rate", "rpie_alpha", "--reproduce", "gloo"):
        assert words in text, words
    assert "Save" not in text
    assert len(reader.pages) < 12


def test_the_pictures_are_those_of_the_arrays(shown: Open) -> None:
    """What the page made of its text, against the array: levels to values to colours, and back."""
    tame = result()
    one = shown(tame)
    data = json.loads(one.page.locator("#report-data").text_content() or "")
    phase = data["pictures"]["whole phase"]
    levels = np.asarray(Image.open(io.BytesIO(base64.b64decode(phase["image"])))).astype(float)
    low, high = phase["limits"]
    shown_values = low + (high - low) * (levels + 0.5) / 256
    true = images.flat_phase(tame.object[area_of(tame)].astype(np.complex128))
    inside = (true > low) & (true < high)
    assert np.abs(shown_values - true)[inside].max() < (high - low) / 200
    assert inside.mean() > 0.9
