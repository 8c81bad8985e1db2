"""A user with a mouse and a keyboard, and nothing else: what is done is counted, and the waiting for the screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import FloatRect, Locator, Page

POINT, PRESS, KEY, HOME, TURN = 1.1, 0.2, 0.28, 0.4, 0.5
"""Seconds of the keystroke-level model (Card, Moran and Newell, Comm. ACM 23, 396, 1980) of an average typist.

To point, to click, to press a key, to move the hand from the mouse to the keys or back; and, which is not of the model,
for a turn of the wheel. The time to think is left out.
"""
WHEEL = 300
"""Pixels of one turn."""
MOST_TURNS = 20
HIT = """
(element) => {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  if (right <= left || top < 0 || bottom > innerHeight) return top < 0 ? -1 : 1;
  const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  if (hit && (element === hit || element.contains(hit) || hit.contains(element))) return 0;
  return (top + bottom) / 2 < innerHeight / 2 ? -1 : 1;
}
"""
"""0: the middle of an element can be clicked; else the direction to scroll in."""


@dataclass
class Effort:
    """What one task took: clicks (a drag is one), characters, turns of the wheel; seconds of the hand and of waiting.

    waited: for the screen; run: for the reconstruction, its engines and its epochs.
    """

    clicks: int = 0
    characters: int = 0
    turns: int = 0
    hand: float = 0.0
    waited: float = 0.0
    run: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.clicks} clicks, {self.characters} characters, {self.turns} turns, {self.hand:.1f} s by hand, "
            f"{self.waited:.1f} s waiting for the screen, {self.run:.1f} s for the run"
        )


class User:
    """Moves the mouse to what is on the screen, turning the wheel where it is not, and presses buttons and keys.

    margin: a point of the page where the wheel scrolls.
    """

    def __init__(self, page: Page, margin: tuple[float, float]) -> None:
        self.page, self._margin = page, margin
        self.effort = Effort()
        self._at_keys = False

    @contextmanager
    def task(self) -> Iterator[Effort]:
        """Counts what is done inside."""
        self.effort = Effort()
        self._at_keys = False
        yield self.effort
        self.effort = Effort()

    def click(self, target: Locator, times: int = 1) -> None:
        """A click in the middle; times: 2 selects a word, 3 all that a field contains."""
        box = self._look(target)
        self._point()
        for count in range(times):
            self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, click_count=count + 1)
        self.effort.clicks += times
        self.effort.hand += PRESS * times

    def drag(self, target: Locator, start: tuple[float, float], stop: tuple[float, float]) -> None:
        """From one point to another, as (x, y) parts of the element's width and height."""
        box = self._look(target)
        ends = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, stop)]
        self._point()
        self.page.mouse.move(*ends[0])
        self.page.mouse.down()
        self.page.mouse.move(*ends[1], steps=8)
        self.page.mouse.up()
        self.effort.clicks += 1
        self.effort.hand += POINT + PRESS

    def choose(self, target: Locator, text: str) -> None:
        """One of a list that opens: a click on it and a click on the choice, which is drawn by the system."""
        self._look(target)
        target.select_option(label=text)
        self.effort.clicks += 2
        self.effort.hand += 2 * (POINT + PRESS)

    def type(self, text: str, key: str = "") -> None:
        """Characters, and a key such as Enter after them."""
        if not self._at_keys:
            self.effort.hand += HOME
        self._at_keys = True
        self.page.keyboard.type(text)
        if key:
            self.page.keyboard.press(key)
        presses = len(text) + bool(key)
        self.effort.characters += presses
        self.effort.hand += presses * KEY

    def wait(self, come: Callable[[], Any], run: bool = False) -> None:
        """Until this call returns; run: what takes its time is the reconstruction."""
        started = time.monotonic()
        come()
        seconds = time.monotonic() - started
        if run:
            self.effort.run += seconds
        else:
            self.effort.waited += seconds

    def _point(self) -> None:
        if self._at_keys:
            self.effort.hand += HOME
        self._at_keys = False
        self.effort.hand += POINT

    def _look(self, target: Locator) -> FloatRect:
        """Where it is on the screen, once the wheel has been turned until it is; it is waited for."""
        self.wait(lambda: target.wait_for(timeout=30_000))
        for _ in range(MOST_TURNS):
            direction = target.evaluate(HIT)
            if direction == 0:
                break
            self.page.mouse.move(*self._margin)
            self.page.mouse.wheel(0, WHEEL * direction)
            self.page.wait_for_timeout(150)
            self.effort.turns += 1
            self.effort.hand += TURN
        # What arrives late from the kernel may still move it, and a click would hit something else.
        box, before = target.bounding_box(), None
        while box != before:
            self.page.wait_for_timeout(100)
            box, before = target.bounding_box(), box
        assert box is not None
        assert target.evaluate(HIT) == 0, f"{target} cannot be reached with the wheel"
        return box
