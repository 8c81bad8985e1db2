"""Looking at a scan before reconstructing it: positions, single patterns, the mean pattern."""

from __future__ import annotations

import html

import ipywidgets
import numpy as np

from ptynb import render
from ptynb.scan import Scan
from ptynb.snapshot import Array
from ptynb.widgets.colours import look_up_table

MEAN_PATTERNS = 64
"""Patterns behind the mean picture at most: enough to see the aperture, quick for any scan."""
SIDE = 260


class Inspect(ipywidgets.VBox):
    """A scan's facts, its positions with the chosen one marked, that pattern and the mean pattern; see `inspect`."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._map = ipywidgets.HTML()
        self._pattern = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width=f"{SIDE}px"))
        self._note = ipywidgets.HTML()
        self._chosen = ipywidgets.IntSlider(
            0, 0, max(len(scan) - 1, 1), description="Pattern", layout=ipywidgets.Layout(width="420px")
        )
        self._scale = ipywidgets.ToggleButtons(options=["log", "linear"], tooltips=["logarithm of counts", "counts"])
        self._scale.style.button_width = "60px"
        self._mean = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width=f"{SIDE}px"))
        some = np.unique(np.linspace(0, len(scan) - 1, MEAN_PATTERNS).astype(int))
        self._mean_counts = np.mean([_centred(scan, index) for index in some.tolist()], axis=0)
        for control in (self._chosen, self._scale):
            control.observe(lambda _: self._draw(), "value")
        columns = [
            _titled("Positions [pixels]", self._map),
            _titled("Pattern", self._pattern, self._note),
            _titled(f"Mean of {len(some)} patterns", self._mean),
        ]
        super().__init__(
            [
                ipywidgets.HTML(facts(scan)),
                ipywidgets.HBox([self._chosen, self._scale], layout=ipywidgets.Layout(flex_flow="row wrap")),
                ipywidgets.HBox(columns, layout=ipywidgets.Layout(flex_flow="row wrap")),
            ]
        )
        self._draw()

    def _draw(self) -> None:
        index = min(self._chosen.value, len(self._scan) - 1)
        logarithmic = self._scale.value == "log"
        counts = _centred(self._scan, index)
        self._pattern.value = _png(counts, self._scan.mask, self._scan.centred, logarithmic)
        self._mean.value = _png(self._mean_counts, self._scan.mask, self._scan.centred, logarithmic)
        y, x = self._scan.positions[index]
        self._note.value = f"{counts.sum():,.0f} counts, brightest {counts.max():,.0f}; at ({y:.2f}, {x:.2f})"
        self._map.value = position_map(self._scan, index)


def inspect(scan: Scan) -> Inspect:
    """A look at a scan in the notebook: its facts, positions, single patterns and the mean pattern."""
    return Inspect(scan)


def facts(scan: Scan) -> str:
    """The scan's facts as a line of HTML."""
    height, width = scan.object_frame(0).shape
    entries = [
        f"<b>{html.escape(scan.name)}</b>",
        f"{len(scan)} patterns of {scan.window[0]} × {scan.window[1]}, {scan.frames.dtype}",
        f"scanned area {height} × {width} pixels",
    ]
    pixel = scan.pixel_size
    if scan.geometry is not None and pixel is not None:
        entries.append(
            f"{scan.geometry.energy / 1e3:.4g} keV, object pixel {pixel[0] * 1e9:.4g} × {pixel[1] * 1e9:.4g} nm"
        )
    if scan.mask is not None:
        entries.append(f"{int((~scan.mask).sum())} bad pixels masked")
    if scan.probe is not None:
        entries.append(f"first guess of {len(scan.probe)} probe mode(s)")
    return '<div style="line-height:1.8">' + " &nbsp;·&nbsp; ".join(entries) + "</div>"


def position_map(scan: Scan, chosen: int) -> str:
    """SVG of the positions, y down as in the object's array, the chosen one marked. At most 4000 points are drawn."""
    positions = scan.positions
    low, extent = positions.min(0), max(float(np.ptp(positions, axis=0).max()), 1.0)
    scaled = (positions - low) / extent * (SIDE - 24) + 12
    step = -(-len(scaled) // 4000)
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for y, x in scaled[::step])
    y, x = scaled[chosen]
    return (
        f'<svg width="{SIDE}" height="{SIDE}" role="img" aria-label="scan positions" '
        'style="color:var(--jp-ui-font-color1,#333);border:1px solid var(--jp-border-color2,#ccc)">'
        f'<path d="{dots}" stroke="currentColor" stroke-width="3" stroke-linecap="round" opacity="0.55"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="none" stroke="#d9822b" stroke-width="3"/></svg>'
    )


def _titled(title: str, *widgets: ipywidgets.Widget) -> ipywidgets.VBox:
    layout = ipywidgets.Layout(margin="0 16px 0 0")
    return ipywidgets.VBox([ipywidgets.HTML(f"<b>{title}</b>"), *widgets], layout=layout)


def _centred(scan: Scan, index: int) -> Array:
    counts = scan.counts(index, index + 1)[0].astype(np.float64)
    return counts if scan.centred else np.fft.fftshift(counts)


def _png(counts: Array, mask: Array | None, centred: bool, logarithmic: bool) -> bytes:
    values = np.log10(counts + 1) if logarithmic else counts
    limits = (0.0, max(float(values.max()), 1e-9))
    picture = render.coloured(values, limits, look_up_table("magma"))
    if mask is not None:
        picture[~(mask if centred else np.fft.fftshift(mask))] = (90, 110, 130)
    return render.png(picture)
