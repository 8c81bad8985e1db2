"""A list that changes while one chooses from it, on a page of a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from ptynb.widgets.choice import Choice
from tests.widgets.browser_model import DARK, LIGHT, BrowserModel
from tests.widgets.conftest import screenshot

STATES = [(f"/kept/{epoch}", f"epoch {epoch}") for epoch in range(1, 5)]


@pytest.fixture
def choice() -> Iterator[Choice]:
    made = Choice("Kept states", STATES, rows=4, head="epoch")
    yield made
    made.close()


def test_what_is_chosen_is_told_by_its_key_though_the_list_was_another_one(choice: Choice, page: Page) -> None:
    model = BrowserModel(page, choice)
    page.get_by_label("Kept states").select_option(index=2)
    offered = [STATES[0], *STATES[2:], ("/kept/5", "epoch 5")]
    another = threading.Thread(target=choice.offer, args=(offered,))  # whose messages the page gets later
    another.start()
    another.join()
    model.collect()
    assert choice.value == "/kept/3"
    model.close()


def test_a_change_of_the_list_leaves_what_is_chosen_and_the_focus(choice: Choice, page: Page) -> None:
    BrowserModel(page, choice)
    choice.value = "/kept/4"
    box = page.get_by_label("Kept states")
    box.focus()
    expect(box).to_have_value("/kept/4")
    choice.offer([*STATES[1:], ("/kept/5", "epoch 5")])
    assert (choice.value, choice.offered[0]) == ("/kept/4", "/kept/2")
    expect(box).to_be_focused()
    expect(box).to_have_value("/kept/4")
    expect(box.locator("option")).to_have_text(["epoch 2", "epoch 3", "epoch 4", "epoch 5"])
    choice.offer(STATES[:2])
    assert choice.value is None
    assert box.evaluate("box => box.selectedIndex") == -1


def test_it_is_driven_by_keys(choice: Choice, page: Page) -> None:
    model = BrowserModel(page, choice)
    choice.value = "/kept/1"
    page.get_by_label("Kept states").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    model.collect()
    assert choice.chosen == ["/kept/3"]


def test_several_are_chosen_and_a_menu_opens(page: Page) -> None:
    several = Choice("Results", STATES, rows=3, several=True)
    model = BrowserModel(page, several)
    page.get_by_label("Results").select_option(["/kept/2", "/kept/4"])
    model.collect()
    assert several.chosen == ["/kept/2", "/kept/4"]
    several.close()
    menu = Choice("On branch", [("main", "main"), ("trial", "trial")])
    model = BrowserModel(page, menu)
    box = page.get_by_label("On branch")
    assert box.evaluate("box => box.type") == "select-one"
    assert box.evaluate("box => box.selectedIndex") == -1  # nothing is chosen before somebody chooses
    box.select_option("trial")
    model.collect()
    assert menu.value == "trial"
    menu.close()


@pytest.mark.parametrize(("name", "theme"), [("light", LIGHT), ("dark", DARK)])
def test_it_is_readable_for_all(choice: Choice, page: Page, name: str, theme: dict[str, str]) -> None:
    BrowserModel(page, choice, theme=theme)
    choice.value = "/kept/2"
    screenshot(page, f"choice-{name}")
    found = Axe().run(
        page, options={"rules": {"region": {"enabled": False}, "page-has-heading-one": {"enabled": False}}}
    )
    assert found.violations_count == 0, found.generate_report()
