"""`pt.film`: a run as a film, GIF by pillow, MP4 (H.264) by PyAV, which is optional."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ptynb.exceptions import FileError, InvalidValueError
from ptynb.figures.figure_page import known
from ptynb.io.export.colour_maps import names_with
from ptynb.io.new_files import replacing_file, writable
from ptynb.report.film.film_frames import FilmPainter, FilmQuantity, measured
from ptynb.report.film.film_source import film_source

SUFFIXES = (".gif", ".mp4")
FASTEST = {".gif": 50.0, ".mp4": 120.0}
"""Most frames per second; programs show GIFs of more at 10 per second."""
LEAST_SIZE, MOST_SIZE = 64, 4096
Frames = Iterable[NDArray[np.uint8]]


def film(
    source: Any,
    path: str | Path,
    *,
    quantities: Sequence[FilmQuantity] = ("phase", "amplitude", "probe"),
    rate: float = 4.0,
    size: int = 1024,
    phase_colours: str = "viridis",
    amplitude_colours: str = "gray",
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a film of a run: object and probe side by side after each epoch that was kept.

    Each frame has the epoch and its loss, a scale bar in each picture, and colour bars; contrast and colours are the
    same in all frames. Phases are shown without mean and ramp. An existing file is replaced when the new one is
    complete.

    Parameters
    ----------
    source : Reconstruction, Result, str or Path
        A reconstruction (checkpoints of its current branch), a folder of checkpoints (of its branch that was used
        last), or a result or its file (thumbnails, of up to 8 epochs and 256 pixels). Checkpoints are as many as
        `Checkpointing` keeps: ``Checkpointing(epochs=5, max_to_keep=100)``.
    path : str or Path
        File to write: ``run.gif``, or ``run.mp4`` (H.264), which requires PyAV: ``pip install 'ptynb[film]'``.
    quantities : sequence of {"phase", "amplitude", "probe"}, optional
        The pictures, from left to right.
    rate : float, optional
        Frames per second; up to 50 in a GIF.
    size : int, optional
        Longest side of the pictures [pixels], 64 to 4096; larger objects are averaged down to it.
    phase_colours, amplitude_colours : str, optional
        Colour maps of matplotlib.
    progress : callable, optional
        Called with (steps done, steps in total); an exception that it raises ends the film, and no file is written.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    InvalidValueError
        For another suffix or option, or fewer than two epochs (code "film.too-few-epochs").
    InvalidTypeError
        For another type of source.
    FileError
        If a file cannot be read or written, or PyAV is not installed (code "package.not-installed"), for an MP4.
    """
    target = Path(path).expanduser()
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidValueError(
            f"{target.name} has the suffix {suffix!r}; expected {' or '.join(SUFFIXES)}.", code="argument.invalid-value"
        )
    _check(quantities, rate, size, FASTEST[suffix])
    colours = {"phase": phase_colours, "amplitude": amplitude_colours}
    for name, value in colours.items():
        known(value, names_with(value), f"{name}_colours")
    if suffix == ".mp4":
        _pyav()  # before minutes of reading
    found = film_source(source)
    done, total = 0, 2 * len(found.states)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    contrast = measured(found, step)
    painter = FilmPainter(found.name, contrast, quantities, size, colours)
    with writable(target), replacing_file(target) as beside:
        frames = painter.frames(found, step)
        if suffix == ".mp4":
            _write_mp4(beside, frames, found.name, rate)
        else:
            ends = [found.states[0], found.states[len(found.states) // 2], found.states[-1]]
            _write_gif(beside, frames, [painter.frame(read()) for read in ends], rate)
    return target


def _check(quantities: Sequence[str], rate: float, size: int, fastest: float) -> None:
    if isinstance(quantities, str) or not quantities or len({*quantities}) < len(quantities):
        raise InvalidValueError(
            f"quantities is {quantities!r}; expected a list of different ones of {', '.join(get_args(FilmQuantity))}.",
            code="argument.invalid-value",
        )
    for quantity in quantities:
        known(quantity, get_args(FilmQuantity), "quantities")
    if not 0.1 <= rate <= fastest:
        raise InvalidValueError(
            f"rate is {rate!r} frames per second; expected 0.1 to {fastest:g}.", code="argument.invalid-value"
        )
    if not LEAST_SIZE <= size <= MOST_SIZE:
        raise InvalidValueError(
            f"size is {size!r} pixels; expected {LEAST_SIZE} to {MOST_SIZE}.", code="argument.invalid-value"
        )


def _write_gif(path: Path, frames: Frames, palette_frames: list[NDArray[np.uint8]], rate: float) -> None:
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


def _write_mp4(path: Path, frames: Frames, title: str, rate: float) -> None:
    """Write an MP4 in the form that browsers and slides play."""
    av = _pyav()
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


def _pyav() -> Any:
    """Return the module of PyAV. Raise FileError if it is not installed."""
    try:
        import av
    except ImportError:
        raise FileError(
            "PyAV, which writes MP4, is not installed: pip install 'ptynb[film]', or write a .gif.",
            code="package.not-installed",
        ) from None
    return av
