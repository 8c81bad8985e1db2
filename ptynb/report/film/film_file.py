"""Files of films: GIF by pillow, MP4 (H.264) by PyAV, which is optional."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ptynb.exceptions import FileError

Frames = Iterable[NDArray[np.uint8]]


def write_gif(path: Path, frames: Frames, palette_frames: list[NDArray[np.uint8]], rate: float) -> None:
    """Write a GIF that repeats without end. palette_frames: those whose colours make the palette of all frames.

    One palette without dithering: equal values have equal colours in all epochs.
    """
    sample = Image.fromarray(np.concatenate(palette_frames)).quantize(256, Image.Quantize.MEDIANCUT)

    def indexed(frame: NDArray[np.uint8]) -> Image.Image:
        return Image.fromarray(frame).quantize(palette=sample, dither=Image.Dither.NONE)

    pictures = map(indexed, frames)
    first = next(pictures)
    # Times in a GIF are whole hundredths of a second.
    duration = 10 * max(1, round(100 / rate))
    with path.open("wb") as file:  # which pillow would leave open where a frame raises an error
        first.save(file, "GIF", save_all=True, append_images=pictures, duration=duration, loop=0, optimize=False)


def write_mp4(path: Path, frames: Frames, title: str, rate: float) -> None:
    """Write an MP4 in the form that browsers and slides play."""
    av = pyav()
    iterator = iter(frames)
    first = next(iterator)
    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        container.metadata["title"] = title
        stream = container.add_stream("libx264", rate=Fraction(rate).limit_denominator(1000))
        stream.height, stream.width = first.shape[:2]
        stream.pix_fmt, stream.options = "yuv420p", {"crf": "16"}
        for frame in itertools.chain([first], iterator):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))


def pyav() -> Any:
    """Return the module of PyAV. Raise FileError if it is not installed."""
    try:
        import av
    except ImportError:
        raise FileError(
            "PyAV, which writes MP4, is not installed: pip install 'ptynb[film]', or write a .gif.",
            code="package.not-installed",
        ) from None
    return av
