"""The pictures of `pt.direct` on one page."""

from __future__ import annotations

from ptynb.analysis.direct.direct_imaging import DirectImages
from ptynb.figures.figure_page import Page
from ptynb.figures.overview import titled_image

COLUMNS = 4


def direct_panels(found: DirectImages) -> Page:
    """Draw all pictures with scale and colour bars, for a screen; the caption says what was found."""
    rows = -(-len(found.pictures) // COLUMNS)
    page = Page(figsize=(3.6 * COLUMNS, 3.3 * rows), layout="constrained")
    for number, (name, values) in enumerate(found.pictures.items(), 1):
        axes = page.add_subplot(rows, COLUMNS, number)
        unit = f" [{found.units[name]}]" if found.units[name] else ""
        titled_image(page, axes, values, f"{name.capitalize()}{unit}", "gray", found.pixel_size)
    page.caption = str(found)
    return page
