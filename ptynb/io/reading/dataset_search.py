"""Which dataset of an HDF5 file has the patterns, where no convention says so."""

from __future__ import annotations

import math
from pathlib import Path

import h5py

from ptynb.exceptions import FileError
from ptynb.io.reading.hdf5_links import Item, Linked, identity
from ptynb.io.reading.hdf5_patterns import looks_like_patterns, numbered

MUCH_SMALLER = 8
"""Times smaller than the largest: dark frames and the like, not patterns."""


def candidates(linked: Linked, start: h5py.Group | None = None) -> dict[str, Item]:
    """Datasets that look like patterns, and groups with many of them one after another, by name."""
    first = linked.root if start is None else start
    found = {
        name: item
        for name, item in ((first.name, first), *linked.walk(start))
        if looks_like_patterns(item) or (isinstance(item, h5py.Group) and _stack(linked, item))
    }
    return without_doubles(linked, found)


def without_doubles(linked: Linked, found: dict[str, Item]) -> dict[str, Item]:
    """The same without what is there twice: parts of a stack or of a virtual dataset, and a stack beside it."""
    virtual = {name: item for name, item in found.items() if isinstance(item, h5py.Dataset) and item.is_virtual}
    inside: set[str] = set()
    places = {name: _place(item.file.filename, item.name) for name, item in found.items()}
    for name, item in virtual.items():
        own = item.file.filename
        sources = {
            _place(own if source.file_name == "." else source.file_name, source.dset_name)
            for source in item.virtual_sources()[:1000]
        }
        doubles = [other for other, place in places.items() if place in sources and other != name]
        # A raster of its own is worth more than a virtual list of it.
        inside.update([name] if any(found[other].ndim == 4 for other in doubles) else doubles)
    for name, item in found.items():
        if isinstance(item, h5py.Group):
            if any(other.rpartition("/")[0] == name for other in virtual if other not in inside):
                inside.add(name)
            else:
                inside.update(f"{name.rstrip('/')}/{one}" for one in numbered(item))
    kept: dict[tuple[int, int], str] = {}
    for name, item in found.items():
        if name not in inside:
            kept.setdefault(identity(item), name)
    return {name: found[name] for name in kept.values()}


def choose(found: dict[str, Item], path: Path, linked: Linked) -> tuple[str, tuple[str, ...]] | None:
    """(name of the patterns, remarks): the one that is by far the largest; None where there is none.

    Raises FileError that names them where several fit.
    """
    sizes = {name: _size(item, linked) for name, item in found.items()}
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    if not ordered:
        return None
    near = [name for name in ordered if sizes[name] * MUCH_SMALLER > sizes[ordered[0]]]
    if len(near) > 1:
        listed = ", ".join(f"{name.strip('/')} {_shape(found[name])}" for name in near[:6])
        raise FileError(
            f"{path} has {len(near)} datasets that may be the patterns ({listed}); say which: "
            f"load(..., patterns='{near[0].strip('/')}')."
        )
    name = ordered[0].strip("/")
    rest = ", ".join(other.strip("/") for other in ordered[1:4])
    others = f"; {rest} is smaller, and not read" if rest else ""
    return name, (f"{name} is taken as the patterns, by its shape {_shape(found[ordered[0]])}{others}.",)


def _place(file: str, name: str) -> tuple[str, str]:
    return Path(file).name, name.strip("/")


def _stack(linked: Linked, group: h5py.Group) -> bool:
    names = numbered(group)
    if not names:
        return False
    try:
        first = linked.get(names[0], group)
    except FileError:
        return True  # what is wrong with it is said when it is read
    return first is not None and looks_like_patterns(first)


def _size(item: Item, linked: Linked) -> int:
    if isinstance(item, h5py.Dataset):
        return int(item.size)
    names = numbered(item)
    try:
        first = linked.get(names[0], item)
    except FileError:
        return 1
    return len(names) * int(first.size) if isinstance(first, h5py.Dataset) else 1


def _shape(item: Item) -> str:
    if isinstance(item, h5py.Dataset):
        return " x ".join(str(side) for side in item.shape) if math.prod(item.shape) else "empty"
    return f"of {len(numbered(item))} parts"
