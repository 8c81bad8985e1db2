"""Data that ptypy prepared (.ptyd; https://ptycho.github.io/ptypy, ptypy.core.data and ptypy.io.h5rw).

    meta/               energy [keV], distance [m], psize (y, x) [m], center, shape
    chunks/0, 1, ...    data (pattern, y, x), positions (pattern, yx) [m] of the probe, indices,
                        weights (pattern, y, x), 0 where a pixel is bad; also in other files, by links
    info/               parameters of the preparation: weight2d (y, x), propagation

Before they are written, patterns are cropped about their centre and oriented as positions are counted. In the near
field (propagation is "nearfield") ptypy propagates a parallel beam over the distance, so that distance and psize are
the effective ones where a beam from a focus was used, and no distance of the focus is stored.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import StackedFrames
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import Linked, check_chunks, names_of
from ptynb.io.reading.hdf5_reading import (
    MOST_BYTES,
    Notes,
    PatternSource,
    array,
    attribute_of,
    is_real,
    patterns_at,
    quantity,
    real,
    text,
    where,
)
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.settings.load_options import LoadOptions

LOOKED_AT = 64
"""Number of patterns whose weights are read; weights of all patterns are usually the same."""


def recognises(head: Head) -> bool:
    """Return whether the file has the groups that ptypy writes: chunks, and meta or info."""
    names = set() if head.file is None else set(names_of(head.file))
    return "chunks" in names and bool(names & {"meta", "info"})


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of a .ptyd file."""
    with Linked(path, options.links) as linked:
        notes = Notes()
        chunks = linked.group("chunks")
        known = () if chunks is None else names_of(chunks)
        names = sorted((name for name in known if name.isdecimal() and len(name) < 10), key=int)
        if not names:
            raise FileError(
                f"{path} has no chunks of data; expected chunks/0/data. Was its preparation completed?",
                code="file.incomplete",
            )
        parts = [patterns_at(linked, f"chunks/{name}/data") for name in names]
        try:
            frames = StackedFrames.of([part.frames for part in parts])
        except ValueError as error:
            raise FileError(f"{path}: {error}", code="file.unexpected-content") from None
        notes.at("patterns", f"chunks/{names[0]}/data" if len(names) == 1 else f"chunks/{names[0]} to {names[-1]}/data")
        energy = quantity(_stored(linked, ("meta/energy", "info/energy")), "energy", "keV")
        propagation = _stored(linked, ("info/propagation", "meta/propagation"))
        return FileRecord(
            format=FORMAT.name,
            frames=frames,
            positions=_positions(linked, names, parts, notes),
            energy=notes.number("energy", energy),
            distance=notes.number(
                "distance", quantity(_stored(linked, ("meta/distance", "info/distance")), "length", "m")
            ),
            detector_pixel=_pixel(linked, notes),
            near_field=where(propagation) if propagation is not None and text(propagation) == "nearfield" else "",
            mask=_mask(linked, names, frames.shape[1:], notes),
            places=notes.places,
            notes=(*notes.sentences, *_centre(linked, frames.shape[1:])),
        )


FORMAT = Format("ptypy .ptyd", recognises, read, (".ptyd",))


def _stored(linked: Linked, names: tuple[str, ...]) -> h5py.Dataset | None:
    """Return the first of these datasets that exists; stored None and pickled objects of ptypy are skipped."""
    for name in names:
        found = linked.dataset(name)
        if found is not None and attribute_of(found, "type") not in ("None", "pickle", "record_array"):
            return found
    return None


def _positions(
    linked: Linked, names: list[str], parts: list[PatternSource], notes: Notes
) -> NDArray[np.float64] | None:
    """Return positions (pattern, yx) [m]: of each chunk, else of the whole scan, by the patterns' indices."""
    found: list[NDArray[np.float64]] = []
    for name, part in zip(names, parts, strict=True):
        stored = _stored(linked, (f"chunks/{name}/positions",))
        if stored is None or not is_real(stored.dtype) or stored.ndim != 2:
            found = []
            break
        values = real(stored, "positions")
        if len(values) != part.frames.shape[0]:
            raise FileError(
                f"{linked.path} has {len(values)} positions and {part.frames.shape[0]} patterns in chunks/{name}; "
                "expected equal numbers. Prepare the data again, or give positions=array (pattern, yx) [m].",
                code="file.count-mismatch",
                fields=("positions",),
            )
        found.append(values)
    if found:
        axes = {values.shape[1] for values in found}
        if len(axes) > 1:
            raise FileError(
                f"{linked.path} has positions of {' and '.join(map(str, sorted(axes)))} coordinates in its chunks; "
                "expected 2 (y, x). Prepare the data again, or give positions=array (pattern, yx) [m].",
                code="file.unexpected-content",
                fields=("positions",),
            )
        notes.at("positions", "chunks/*/positions")
        return np.concatenate(found)
    whole = _stored(linked, ("info/positions_scan", "info/positions_theory", "common/positions_scan"))
    if whole is None or not is_real(whole.dtype):
        return None
    notes.at("positions", where(whole))
    values = real(whole, "positions")
    indices = [_stored(linked, (f"chunks/{name}/indices",)) for name in names]
    if all(one is not None for one in indices):
        chosen = np.concatenate([real(one, "indices").astype(np.int64) for one in indices if one is not None])
        if len(chosen) and chosen.min() >= 0 and chosen.max() < len(values):
            return np.asarray(values[chosen])
    return values


def _pixel(linked: Linked, notes: Notes) -> tuple[float, float] | None:
    stored = _stored(linked, ("meta/psize", "info/psize"))
    if stored is None or not is_real(stored.dtype):
        return None
    values = real(stored, "pixel sizes").ravel()
    if values.size not in (1, 2):
        return None
    notes.at("detector_pixel", where(stored))
    return float(values[0]), float(values[-1])


def _mask(linked: Linked, names: list[str], window: tuple[int, ...], notes: Notes) -> NDArray[np.bool_] | None:
    """Return a mask (y, x) of pixels with a positive weight in all patterns that are read; None if unknown."""
    good: NDArray[np.bool_] | None = None
    for name in names:
        stored = _stored(linked, (f"chunks/{name}/weights",))
        if stored is None or not stored.size or stored.ndim > 3 or stored.shape[-2:] != window:
            continue
        weights = _has_weight(stored, LOOKED_AT)
        alike = np.asarray(weights.all(0))
        if (weights.any(0) != alike).any() or (good is not None and (good != alike).any()):
            notes.add("The weights of patterns differ; pixels that are bad in any of those read are masked.")
        good = alike if good is None else np.asarray(good & alike)
        notes.at("mask", "chunks/*/weights")
    if good is not None:
        return good
    whole = _stored(linked, ("info/weight2d", "meta/weight2d"))
    if whole is None or whole.shape != window:
        return None
    notes.at("mask", where(whole))
    return _has_weight(whole, 1)[0]


def _has_weight(stored: h5py.Dataset, most: int) -> NDArray[np.bool_]:
    """Return (pattern, y, x) bool: whether weights are positive, in up to `most` patterns spread over the dataset."""
    if stored.dtype.kind not in "biuf":
        raise FileError(
            f"{stored.file.filename} has weights of type {stored.dtype} at {where(stored)}; expected real numbers.",
            code="file.unexpected-content",
        )
    check_chunks(stored, Path(stored.file.filename))
    if stored.ndim == 2:
        return np.asarray(array(stored, "weights") > 0)[None]
    one = stored.shape[1] * stored.shape[2] * stored.dtype.itemsize
    most = max(1, min(most, MOST_BYTES // max(1, one)))
    return np.array([stored[index] > 0 for index in np.unique(np.linspace(0, len(stored) - 1, most).astype(int))])


def _centre(linked: Linked, window: tuple[int, ...]) -> tuple[str, ...]:
    stored = _stored(linked, ("meta/center",))
    if stored is None or not is_real(stored.dtype) or stored.size != 2:
        return ()
    centre = real(stored, "centre").ravel()
    if not centre.any() or np.abs(centre - np.array(window) // 2).max() <= 0.5:  # zeros: not set
        return ()
    return (
        f"The file has the centre of the patterns at {centre.tolist()}, and ptynb takes "
        f"{[side // 2 for side in window]}; crop them about the centre (ptynb.preparation) if necessary.",
    )
