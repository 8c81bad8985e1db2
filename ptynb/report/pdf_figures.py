"""The figures of `pt.figure` among a page's files: PDF, fit for a paper."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ptynb.data.snapshot import Result
from ptynb.report.assets import Contents, Shares
from ptynb.report.figures.figure import Kind, Page, figure
from ptynb.report.saved_files import Saved, size_text

SHARE = 0.3
"""Of the room that is left, for all of them: the arrays that come after need some too."""
KINDS: tuple[tuple[Kind, str], ...] = (
    ("object", "Figure of the object's amplitude and phase"),
    ("slices", "Figure of the slices' phases"),
    ("probe", "Figure of the probe's modes"),
    ("loss", "Figure of the loss"),
)


def save_figures(contents: Contents, result: Result, shares: Shares) -> Saved:
    """Adds figures, as far as there is room."""
    saved = Saved([], [])
    if not np.isfinite(result.positions).all():
        return saved  # where the object was seen is not known
    room = SHARE * max(shares.total - contents.taken, 0)
    for kind, what in KINDS:
        if (kind == "slices" and len(result.slices) == 1) or (kind == "loss" and not result.epochs):
            continue
        drawn = (
            _drawn(partial(figure, result, kind)) if _pixels(result, kind) < room else None
        )  # a byte a pixel is the least
        if drawn is None or len(drawn) > room:
            saved.left_out.append(what)
            continue
        room -= len(drawn)
        key = f"figure-{kind}"
        contents.save(key, "pdf", "application/pdf", drawn)
        saved.rows.append((key, f"{what}, for a paper", f"PDF, {size_text(len(drawn))}"))
    return saved


def save_compared_figures(
    contents: Contents, results: Mapping[str, Result], pairs: Sequence[tuple[str, str]], shares: Shares
) -> Saved:
    """Adds a figure of each object, and of the Fourier ring correlation of each pair, as far as there is room."""
    saved = Saved([], [])
    room = SHARE * max(shares.total - contents.taken, 0)
    numbers = {name: number for number, name in enumerate(results, start=1)}
    makers: list[tuple[str, str, int, Callable[[], Page]]] = [
        (f"figure-object-{numbers[name]}", f"Figure of the object of {name}", _pixels(result, "object"),
         partial(figure, result, "object"))
        for name, result in results.items()
        if np.isfinite(result.positions).all()
    ]  # fmt: skip
    for one, other in pairs:
        key = f"figure-frc-{numbers[one]}-{numbers[other]}"
        what = f"Figure of the Fourier ring correlation of {one} and {other}"
        makers.append((key, what, 0, partial(figure, results[other], "frc", results[one])))
    for key, what, pixels, make in makers:
        drawn = _drawn(make) if pixels < room else None
        if drawn is None or len(drawn) > room:
            saved.left_out.append(what)
            continue
        room -= len(drawn)
        contents.save(key, "pdf", "application/pdf", drawn)
        saved.rows.append((key, f"{what}, for a paper", f"PDF, {size_text(len(drawn))}"))
    return saved


def _pixels(result: Result, kind: Kind) -> int:
    """Of all pictures in a figure."""
    return {"object": 2 * result.projection.size, "slices": result.slices.size, "probe": result.probe.size}.get(kind, 0)


def _drawn(make: Callable[[], Page]) -> bytes:
    buffer = io.BytesIO()
    make().savefig(buffer, format="pdf")
    return buffer.getvalue()
