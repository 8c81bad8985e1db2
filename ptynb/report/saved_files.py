"""What can be saved from the page of one result: its arrays, and its pictures with every pixel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptynb.analysis.common_area import Together
from ptynb.data import images
from ptynb.data.snapshot import Array, Result
from ptynb.report.assets import Contents, Shares, npy
from ptynb.report.pixel_values import offer_object, offer_probe
from ptynb.report.result_viewers import area_of

OBJECT, PROBE = "Object, complex", "Probe modes, complex"
PART = 0.8
"""Of the room that is left, for the object: the probe and the pictures need some too."""


@dataclass(frozen=True)
class Saved:
    """Files on a page: (key, what it is, size) of each, and what there was no room for."""

    rows: list[tuple[str, str, str]]
    left_out: list[str]


def save_arrays(contents: Contents, result: Result, shares: Shares) -> Saved:
    """Adds files with the arrays themselves and the pictures with every pixel, as far as there is room.

    Where an array is there in full, the page makes pictures with its values (32-bit TIFF) of it, and reads values under
    the cursor from it. Where it is not, pictures with 65536 grey levels come first, with every pixel or not at all, and
    then the array, by averaging as small as it has to be.
    """
    saved = Saved([], [])
    saved.rows.append(
        _array(contents, "positions", result.positions, "Positions: the windows' top-left corners [pixels]", 1)
    )
    whole = result.object.size * 8 <= PART * (shares.total - contents.taken)
    if not whole:
        _save_full_pictures(contents, result, shares, saved)
    _save_field(contents, "object", result.object, OBJECT, PART * (shares.total - contents.taken), saved)
    if whole:
        saved.rows.extend(offer_object(contents, result))
    in_full = _save_field(contents, "probe", result.probe, PROBE, shares.total - contents.taken, saved)
    if in_full:
        saved.rows.extend(offer_probe(contents, result))
    if whole:
        _save_full_pictures(contents, result, shares, saved)
    return saved


def save_compared(contents: Contents, together: Together, shares: Shares) -> Saved:
    """Adds the objects of several results as they are compared: over the area that all share, moved onto the first."""
    saved = Saved([], [])
    for number, name in enumerate(together.placed, start=1):
        try:
            field = together.covered(name)
            if name != together.first:
                field = together.registered(name, together.first).aligned
        except ValueError:  # the page says why, where it shows them
            continue
        room = (shares.total - contents.taken) / (len(together.placed) + 1 - number)
        what = f"Object of {name} as it is compared, complex"
        _save_field(contents, f"object-{number}", np.nan_to_num(field), what, room, saved)
    return saved


def _save_field(contents: Contents, key: str, array: Array, what: str, room: float, saved: Saved) -> bool:
    """Adds a complex array, reduced to what there is room for. Returns whether it is there in full."""
    reduction, size = 1, array.size * 8
    while size / reduction**2 > room and min(array.shape[-2:]) > 16 * reduction:
        reduction += 1
    if size / reduction**2 > room:
        saved.left_out.append(what)
        return False
    saved.rows.append(_array(contents, key, array.astype(np.complex64), what, reduction))
    return reduction == 1


def _array(contents: Contents, key: str, array: Array, what: str, reduction: int) -> tuple[str, str, str]:
    reduced = images.reduce_by(array, reduction).astype(array.dtype)
    contents.save(key, "npy", "application/octet-stream", npy(reduced))
    smaller = f", means of {reduction} × {reduction} pixels (full=True keeps all)" if reduction > 1 else ""
    shape = " × ".join(str(side) for side in reduced.shape)
    return key, f"{what}{smaller}", f"{shape} {reduced.dtype}, {size_text(reduced.nbytes)}"


def _save_full_pictures(contents: Contents, result: Result, shares: Shares, saved: Saved) -> None:
    """Adds amplitude and phase of the whole object with 65536 grey levels, every pixel."""
    made = []
    seen = np.nan_to_num(result.projection[area_of(result)])
    for key, values, unit in (("amplitude", np.abs(seen), ""), ("phase", images.flat_phase(seen), " rad")):
        low, high = float(values.min()), float(values.max())
        grey = np.rint((values - low) * (65535 / max(high - low, 1e-30))).astype(np.uint16)
        limits = f"0 is {low:.6g}{unit}, 65535 is {high:.6g}{unit}"
        made.append((f"{key}-16bit", f"Object {key}, 16-bit picture: {limits}", grey, images.png(grey, 6)))
    if sum(len(image) for *_, image in made) > shares.total - contents.taken:
        saved.left_out.append("16-bit pictures of the object")
        return
    for key, what, grey, image in made:
        contents.save(key, "png", "image/png", image)
        saved.rows.append((key, what, f"{' × '.join(str(side) for side in grey.shape)}, {size_text(len(image))}"))


def size_text(size: float) -> str:
    """A number of bytes in words."""
    return f"{size / 1e6:.3g} MB" if size >= 1e5 else f"{max(size / 1e3, 0.1):.2g} kB"
