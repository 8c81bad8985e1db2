"""Picture: an encoded picture for display, with what its pixels mean."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture for display: grey levels of values, or colours.

    name: unique name among the pictures shown together ("amplitude"); title: the same for display.
    image: a PNG or JPEG file, of `shape` divided by `reduction` pixels.
    shape: (y, x) of the source array; reduction: array pixels per side of a picture pixel.
    limits: values of grey 0 and grey 255; None: the image is in colours (hue for phase, brightness for amplitude).
    unit: of the values. pixel_size: (y, x) of a pixel of the array [m]; None: unknown. colours: initial colour map.
    note: a caption. quantity: what the values are ("phase"): pictures of one quantity share a colour map and contrast.
    axes: names of the axes of the array. bands: pixels (y, x) of `shape` that are one element of it, by which a coarse
    axis is as long as it is in the sample.
    """

    name: str
    title: str
    image: bytes
    shape: tuple[int, int]
    reduction: int = 1
    limits: tuple[float, float] | None = None
    unit: str = ""
    pixel_size: tuple[float, float] | None = None
    colours: str = "gray"
    note: str = ""
    axes: tuple[str, str] = ("y", "x")
    bands: tuple[int, int] = (1, 1)
    quantity: str = ""


def pictures_html(pictures: Iterable[Picture]) -> str:
    """Return PNG pictures side by side, with titles and notes, as HTML for notebooks."""
    shown = "".join(
        f'<figure style="margin:0"><figcaption><b>{html.escape(one.title)}</b></figcaption>'
        f'<img alt="{html.escape(one.title)}" src="data:image/png;base64,{base64.b64encode(one.image).decode()}"'
        ' style="height:180px;max-width:100%;image-rendering:pixelated;display:block">'
        f"<small>{html.escape(one.note)}</small></figure>"
        for one in pictures
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:14px">{shown}</div>'
