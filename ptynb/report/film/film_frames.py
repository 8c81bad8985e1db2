"""Frames of a film: pictures side by side with one contrast for all epochs, and text around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.font_manager import findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ptynb.data import images
from ptynb.data.engine_records import Array
from ptynb.figures.field_panels import AMPLITUDE_COLOURS, PHASE_COLOURS
from ptynb.figures.phase_colours import complex_colours
from ptynb.figures.scale_marks import metric, round_length
from ptynb.io.checkpoint_result import progress_text
from ptynb.io.export.colour_maps import look_up_table
from ptynb.report.film.film_source import FilmSource, FilmState, PixelSize

FilmQuantity = Literal["phase", "amplitude", "probe"]
SMALLEST = 256
"""Longest side below which pictures are enlarged by a whole factor [pixels of the film]."""
MARGIN, BAR = 12, 8
"""Margin around pictures and height of a colour bar [pixels of the film]."""
INK, PAPER = (28, 32, 36), (255, 255, 255)
TITLES = {"phase": "Phase of the object [rad]", "amplitude": "Amplitude of the object", "probe": "Probe"}
PROBE_LEGEND = "hue: phase, lightness: amplitude"


@dataclass(frozen=True, eq=False)
class FilmContrast:
    """What all frames have in common.

    limits: (low, high) of phase [rad] and amplitude. largest: amplitude of the probe that has full lightness.
    probe: the last probe (y, x), to whose phase the others are turned. sides: (y, x) of the last object [its pixels].
    pixels: pixel sizes of object and probe at the end.
    """

    limits: dict[str, tuple[float, float]]
    largest: float
    probe: Array
    sides: tuple[int, int]
    pixels: tuple[PixelSize, PixelSize]


def measured(source: FilmSource, step: Callable[[], None]) -> FilmContrast:
    """Return limits over all states, which are read once for it; step: called after each."""
    samples: dict[str, list[Array]] = {"phase": [], "amplitude": []}
    largest, state = 0.0, None
    for read in source.states:
        state = read()
        for name, values in (("phase", _flat(state.object)), ("amplitude", np.abs(state.object))):
            flat = values.ravel()
            samples[name].append(flat[:: max(1, flat.size // images.SAMPLE)])
        largest = max(largest, float(np.abs(np.nan_to_num(state.probe)).max()))
        step()
    assert state is not None
    limits = {name: images.limits_of(np.concatenate(parts)) for name, parts in samples.items()}
    height, width = state.object.shape
    return FilmContrast(limits, largest, state.probe, (height, width), (state.pixel_size, state.probe_pixel))


class FilmPainter:
    """Draws the frames of a film, all of one size.

    quantities: in order. size: longest side of a picture of the object [pixels of the film].
    """

    def __init__(
        self, name: str, contrast: FilmContrast, quantities: Sequence[FilmQuantity], size: int, colours: dict[str, str]
    ) -> None:
        self._name, self._contrast, self._quantities = name, contrast, quantities
        self._colours = {"phase": PHASE_COLOURS, "amplitude": AMPLITUDE_COLOURS, **colours}
        self._letters = ImageFont.truetype(findfont("DejaVu Sans"), 15)
        self._small = ImageFont.truetype(findfont("DejaVu Sans"), 12)
        height, width = _fitted(contrast.sides, size)
        # The probe has the height of the object; without one beside it, a size of its own.
        side = height if len({*quantities} - {"probe"}) else max(_fitted(contrast.probe.shape, size))
        probe_width = max(1, round(side * contrast.probe.shape[1] / contrast.probe.shape[0]))
        self._boxes: dict[str, tuple[int, int]] = {
            name: (probe_width if name == "probe" else width, side) for name in quantities
        }
        texts = [max(self._small.getlength(text) for text in (TITLES[name], PROBE_LEGEND)) for name in quantities]
        self._widths = [max(box[0], int(text)) for box, text in zip(self._boxes.values(), texts, strict=True)]
        line = 22
        self._top = MARGIN + line + 20
        across = sum(self._widths) + MARGIN * (len(quantities) + 1)
        down = self._top + side + BAR + line + MARGIN
        self.shape = down + down % 2, across + across % 2  # H.264 needs even sides

    def frames(self, source: FilmSource, step: Callable[[], None]) -> Iterator[NDArray[np.uint8]]:
        """Yield the frames (y, x, rgb), reading one state after the other; step: called after each."""
        for read in source.states:
            yield self.frame(read())
            step()

    def frame(self, state: FilmState) -> NDArray[np.uint8]:
        """Return one frame (y, x, rgb)."""
        down, across = self.shape
        page = Image.new("RGB", (across, down), PAPER)
        draw = ImageDraw.Draw(page)
        epoch = f"epoch {progress_text(state.epoch, state.update)}"
        loss = "" if state.loss is None else f"   loss {state.loss:.4g}"
        draw.text((MARGIN, MARGIN), f"{epoch}{loss}", INK, self._letters)
        written = self._letters.getlength(f"{epoch}{loss}   ")
        if written + self._small.getlength(self._name) < across - 2 * MARGIN:
            draw.text((across - MARGIN, MARGIN + 2), self._name, INK, self._small, anchor="ra")
        left = MARGIN
        for name, width in zip(self._quantities, self._widths, strict=True):
            self._panel(page, draw, name, state, left)
            left += width + MARGIN
        return np.asarray(page)

    def _panel(self, page: Image.Image, draw: ImageDraw.ImageDraw, name: str, state: FilmState, left: int) -> None:
        width, height = self._boxes[name]
        draw.text((left, self._top - 5), TITLES[name], INK, self._small, anchor="ls")
        rgb = self._picture(name, state)
        enlarged = rgb.shape[0] <= height
        how = Image.Resampling.NEAREST if enlarged else Image.Resampling.BOX
        page.paste(Image.fromarray(rgb).resize((width, height), how), (left, self._top))
        own = state.probe_pixel if name == "probe" else state.pixel_size
        self._scale_bar(draw, left, width / rgb.shape[1], width, own)
        foot = self._top + height + 5
        if name == "probe":
            draw.text((left, foot), PROBE_LEGEND, INK, self._small)
            return
        low, high = (f"{value:.3g}".replace("-", "−") for value in self._contrast.limits[name])
        bar = np.tile(look_up_table(self._colours[name])[None], (BAR, 1, 1))
        page.paste(Image.fromarray(bar).resize((width, BAR)), (left, foot))
        draw.text((left, foot + BAR + 2), low, INK, self._small)
        draw.text((left + width, foot + BAR + 2), high, INK, self._small, anchor="ra")

    def _picture(self, name: str, state: FilmState) -> NDArray[np.uint8]:
        if name == "probe":
            last = self._contrast.probe
            alike = np.vdot(state.probe, last) if state.probe.shape == last.shape else 1.0
            return complex_colours(state.probe * np.exp(1j * np.angle(alike)), self._contrast.largest)
        values = _flat(state.object) if name == "phase" else np.abs(state.object)
        # Averaged here rather than in colours, which a colour map does not order.
        reduction = max(1, -(-max(values.shape) // max(self._boxes[name])))
        return images.coloured(
            images.reduce_by(values, reduction), self._contrast.limits[name], look_up_table(self._colours[name])
        )

    def _scale_bar(self, draw: ImageDraw.ImageDraw, left: int, scale: float, width: int, pixel: PixelSize) -> None:
        """scale: pixels of the film per pixel of the picture, which may be reduced itself."""
        across = 1.0 if pixel is None else pixel[1]
        length = round_length(0.3 * width / scale * across)
        label = f"{length:g} px" if pixel is None else metric(length)
        long = length / across * scale
        bottom = self._top + next(iter(self._boxes.values()))[1] - 8
        box = (left + 6, bottom - 24, left + 18 + max(long, self._small.getlength(label)), bottom + 4)
        draw.rectangle(box, (0, 0, 0))
        draw.rectangle((left + 12, bottom - 3, left + 12 + long, bottom), (255, 255, 255))
        draw.text((left + 12, bottom - 21), label, (255, 255, 255), self._small)


def _flat(field: Array) -> NDArray[Any]:
    return images.flat_phase(np.nan_to_num(field))


def _fitted(sides: tuple[int, ...], size: int) -> tuple[int, int]:
    """Return the height and width of a picture: reduced to `size`, small ones enlarged by a whole factor."""
    longest = max(sides)
    scale = min(1.0, size / longest) if longest > SMALLEST else float(max(1, SMALLEST // longest))
    return max(1, round(sides[0] * scale)), max(1, round(sides[1] * scale))
