"""What a film shows: object and probe after some epochs, from checkpoints or from the thumbnails of a result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptynb.analysis.registration import Area
from ptynb.analysis.result_comparison import illuminated
from ptynb.data.engine_records import Array, Result, Thumbnail
from ptynb.exceptions import FileError, InvalidTypeError, InvalidValueError
from ptynb.io.checkpoint_branches import described, last_line, lineage
from ptynb.io.checkpoint_result import checkpoint_result
from ptynb.io.result_file import load_result

PixelSize = tuple[float, float] | None
FEWEST = 2


@dataclass(frozen=True, eq=False)
class FilmState:
    """The state after an epoch.

    object: complex (y, x), the product of the slices of the first mode in the illuminated area. probe: complex (y, x),
    the first mode. loss: of the epoch; None: unknown. pixel_size, probe_pixel: of their pixels (y, x) [m].
    """

    epoch: int
    update: int
    loss: float | None
    object: Array
    probe: Array
    pixel_size: PixelSize
    probe_pixel: PixelSize


@dataclass(frozen=True)
class FilmSource:
    """name: of the scan. states: functions that read the states, the earliest first."""

    name: str
    states: Sequence[Callable[[], FilmState]]


def film_source(source: Any) -> FilmSource:
    """Return the states of a result, a result file, a folder of checkpoints or a reconstruction; see `film`."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        return _of_folder(path) if path.is_dir() else _of_result(load_result(path))
    if isinstance(source, Result):
        return _of_result(source)
    # A Reconstruction, whose class is not imported here because that would import torch.
    if isinstance(inspect.getattr_static(source, "checkpoints", None), property):
        own = [one.path for one in source.checkpoints if one.branch == source.branch_name]
        if not own:
            raise InvalidValueError(
                "The reconstruction has no checkpoints on its branch; run some epochs with checkpoints, or make a film "
                "of the thumbnails in its result: pt.film(recon.result, path).",
                code="film.too-few-epochs",
            )
        return _of_checkpoints(own[-1].parent)
    raise InvalidTypeError(
        f"A film of a {type(source).__name__} is not supported; expected a Reconstruction, a Result, the path of a "
        "result file, or a folder of checkpoints.",
        code="argument.invalid-type",
    )


def _of_result(result: Result) -> FilmSource:
    losses = {epoch.number: epoch.loss for epoch in result.epochs}

    def made(thumbnail: Thumbnail) -> FilmState:
        size, loss = result.pixel_size, losses.get(thumbnail.epoch)
        pixels = [
            None if size is None else (size[0] * reduction, size[1] * reduction)
            for reduction in (thumbnail.reduction, thumbnail.probe_reduction)
        ]
        return FilmState(thumbnail.epoch, 0, loss, thumbnail.object, thumbnail.probe, pixels[0], pixels[1])

    kept = sorted(result.history, key=lambda one: one.epoch)
    _check_count(
        len(kept),
        "thumbnails",
        "They are kept of epochs 1, 2, 5, 10, 20 and so on: run longer, or make a film of its checkpoints.",
    )
    return FilmSource(result.metadata.get("scan", ""), [lambda one=one: made(one) for one in kept])  # type: ignore[misc]


def _of_folder(folder: Path) -> FilmSource:
    line = last_line(folder)
    if line is None:
        raise FileError(
            f"There is no checkpoint (state-00120.h5 and the like) in {folder}; name the folder of a reconstruction's "
            "checkpoints.",
            code="checkpoint.not-found",
        )
    return _of_checkpoints(line)


def _of_checkpoints(line: Path) -> FilmSource:
    """line: folder of the branch, whose earlier checkpoints are those of the branch that it was left from."""
    paths = {}
    for path in lineage(line):  # of two with the same progress the later one, after going back
        found = described(path)
        paths[found.epoch, found.update] = path
    ordered = [paths[key] for key in sorted(paths)]
    _check_count(
        len(ordered), "checkpoints", "Write more of them, Checkpointing(epochs=5, max_to_keep=100), and run longer."
    )
    last = checkpoint_result(ordered[-1])
    place = illuminated(last)
    return FilmSource(last.metadata.get("scan", ""), [lambda path=path: _read(path, last, place) for path in ordered])  # type: ignore[misc]


def _read(path: Path, last: Result, place: Area) -> FilmState:
    result = checkpoint_result(path)
    loss = result.epochs[-1].loss if result.epochs else None
    seen = result.projection[_same_area(result, last, place)]
    epoch = len(result.epochs)
    return FilmState(epoch, result.update, loss, seen, result.probe[0], result.pixel_size, result.pixel_size)


def _same_area(result: Result, last: Result, place: Area) -> Area:
    """Return the part of a result's object that shows the illuminated area of the last one, as far as it has it.

    The own illuminated area would move by a pixel now and then while positions are refined.
    """
    own_size, size = result.pixel_size, last.pixel_size
    scale = [1.0, 1.0] if own_size is None or size is None else [size[0] / own_size[0], size[1] / own_size[1]]
    parts = []
    for part, start, own, by, side in zip(
        place, last.origin, result.origin, scale, result.object.shape[-2:], strict=True
    ):
        low, high = (round((edge + start) * by) - own for edge in (part.start, part.stop))
        parts.append(slice(min(max(low, 0), side - 1), max(min(high, side), 1)))
    return parts[0], parts[1]


def _check_count(count: int, what: str, remedy: str) -> None:
    if count < FEWEST:
        raise InvalidValueError(
            f"There are {what} of {count} epoch{'' if count == 1 else 's'}; a film needs {FEWEST} or more. {remedy}",
            code="film.too-few-epochs",
        )
