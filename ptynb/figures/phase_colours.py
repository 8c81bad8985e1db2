"""Complex values as colours: the lightness depends on the amplitude only, not on the phase.

Hues go around a circle of the OKLab space (B. Ottosson, "A perceptual color space for image processing", 2020), which
is perceptually uniform; the amplitude is the distance from black.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data import images

Array = NDArray[Any]
LIGHTNESS, CHROMA = 0.75, 0.125
"""OKLab lightness and chroma of full amplitude: about the largest that sRGB has at every hue."""
STEPS = 1024
_TO_CONES = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def _circle() -> NDArray[np.float64]:
    """(step, rgb): linear light, 0 to 1, of the phases 2π step / STEPS at full amplitude."""
    phase = 2 * np.pi * np.arange(STEPS) / STEPS
    lab = np.stack([np.full(STEPS, LIGHTNESS), CHROMA * np.cos(phase), CHROMA * np.sin(phase)], axis=-1)
    return np.clip((lab @ _TO_CONES.T) ** 3 @ _TO_LINEAR.T, 0, 1)


CIRCLE = _circle()


def complex_colours(field: Array, largest: float | None = None) -> NDArray[np.uint8]:
    """(y, x) complex -> (y, x, rgb): phase as hue, amplitude over `largest` as lightness; not finite: black."""
    field = np.asarray(field)
    top = images.largest_amplitude(field[None]) if largest is None else largest
    colours = np.empty((*field.shape, 3), np.uint8)
    for rows in images.bands(field.shape):  # numbers of double precision take sixteen times as much as the colours
        colours[rows] = _colours(np.nan_to_num(field[rows], nan=0.0, posinf=0.0, neginf=0.0), top)
    return colours


def _colours(field: Array, top: float) -> NDArray[np.float64]:
    amplitude = np.clip(np.abs(field) / max(top, 1e-30), 0, 1)
    place = np.rint(np.angle(field) * (STEPS / (2 * np.pi))).astype(np.int64) % STEPS
    # OKLab is a cube root of light, so light is proportional to the third power of lightness.
    light = CIRCLE[place] * (amplitude**3)[..., None]
    screen = np.where(light <= 0.0031308, 12.92 * light, 1.055 * np.maximum(light, 1e-12) ** (1 / 2.4) - 0.055)
    return np.rint(255 * screen)


def wheel(pixels: int = 256) -> NDArray[np.uint8]:
    """(y, x, rgba): the disc of all complex numbers up to 1 in these colours, phase 0 to the right, π / 2 upwards."""
    line = (np.arange(pixels) - (pixels - 1) / 2) / (pixels / 2)
    field = line[None, :] - 1j * line[:, None]
    size = np.abs(field)
    edge = np.clip((1 - size) * pixels / 2, 0, 1)  # one pixel of transition
    colours = complex_colours(np.where(size > 1, field / np.maximum(size, 1e-30), field), 1.0)
    return np.concatenate([colours, np.rint(255 * edge).astype(np.uint8)[..., None]], axis=-1)
