"""Some of the updates of the view that `tests/benchmarks/endurance.py` makes 100,000 of."""

from playwright.sync_api import Page

from tests.benchmarks.endurance import drawn, refreshed

UPDATES = 120
A_PICTURE = 3000
"""Bytes; the smallest one that is replayed is larger, and one that was kept with each update would be seen."""


def test_a_live_view_keeps_no_picture_of_the_past():
    growth = {one.name: one for one in refreshed(UPDATES)}
    assert growth["kernel, traced"].each < A_PICTURE / 2, growth["kernel, traced"]


def test_a_page_keeps_no_frame_of_the_past(page: Page):
    growth = {one.name: one for one in drawn(page, UPDATES)}
    # A frame's two pictures are 60 kB; what compiled code and Chromium's own records take is some hundred bytes.
    assert growth["page, heap"].each < A_PICTURE, growth["page, heap"]
    assert growth["page, nodes"].each == growth["page, listeners"].each == 0
