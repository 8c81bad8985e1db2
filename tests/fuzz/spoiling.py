"""Random damage to files: bytes of any file, and parts of HDF5, archives, arrays and text.

One generator is the only source of randomness, so a number reproduces its file.
"""

from __future__ import annotations

import io
import os
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

Chance = random.Random
EXTREMES = [0, 1, 2**7, 2**15, 2**16 - 1, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]
WORDS = ["", "nan", "-1", "inf", "1e999", "9" * 30, "0", "abc", "2.5", "null", "[]", "{}", "1e-300", "\x00", "é"]


def spoil(path: Path, chance: Chance) -> str:
    """Spoils a file, or one file of a folder, in one to three ways, and says in which."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    told = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        chosen = chance.choice(files)
        if not chosen.is_file():
            continue  # a link to a pipe or to nothing, by the last way
        way = chance.choice([*_ways(chosen), *([linked] if path.is_dir() else [])])
        try:
            told.append(f"{way.__name__} {way(chosen, chance)}")
        except Exception:  # noqa: BLE001 - whatever a file that is spoilt already does to the next way
            told.append(f"{way.__name__} (spoilt too much already)")
    return "; ".join(told)


def _ways(path: Path) -> list[Callable[[Path, Chance], str]]:
    raw = [flip, truncate, cut, number]
    if path.suffix in (".xml", ".yaml", ".json", ".txt") or path.name in (".zarray", ".zgroup", ".zattrs"):
        return [*raw, word, word, word, word]
    if zipfile.is_zipfile(path):
        return [*raw, member, member, member, member]
    if path.suffix == ".npy":
        return [*raw, header, header, header]
    if h5py.is_hdf5(path):
        inside: list[Callable[[Path, Chance], str]] = [values, kind, shape, gone, link, attribute, unwritten]
        return [*raw, *inside, *inside, *inside]
    return raw


def linked(path: Path, chance: Chance) -> str:
    """One file of a folder elsewhere, or a pipe or nothing, and a link in its place."""
    outside = path.parent.parent / f"outside-{chance.randrange(2**32)}"
    kind = chance.choice(["file", "file", "pipe", "nothing", "itself"])
    if kind == "file":
        path.rename(outside)
    else:
        path.unlink()
    if kind == "pipe":
        os.mkfifo(outside)
    path.symlink_to(path if kind == "itself" else outside)
    return f"a link to {kind}"


def flip(path: Path, chance: Chance) -> str:
    data = bytearray(path.read_bytes())
    places = [chance.randrange(len(data)) for _ in range(chance.choice([1, 1, 4, 32]))] if data else []
    for place in places:
        data[place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return f"bits at {places[:4]}"


def truncate(path: Path, chance: Chance) -> str:
    data = path.read_bytes()
    kept = chance.randrange(len(data) + 1)
    path.write_bytes(data[:kept])
    return f"to {kept}"


def cut(path: Path, chance: Chance) -> str:
    data = path.read_bytes()
    place, count = chance.randrange(len(data) + 1), chance.choice([1, 4, 100, 4096])
    path.write_bytes(data[:place] + data[place + count :])
    return f"{count} bytes out at {place}"


def number(path: Path, chance: Chance) -> str:
    """An extreme number over 2, 4 or 8 bytes, mostly near the beginning, where headers are."""
    data = bytearray(path.read_bytes())
    place = chance.randrange(min(len(data), chance.choice([64, 512, 10**9])) + 1)
    size, order = chance.choice([2, 4, 8]), chance.choice(["little", "big"])
    value = chance.choice(EXTREMES) % 2 ** (8 * size)
    data[place : place + size] = value.to_bytes(size, order)
    path.write_bytes(data)
    return f"{value} at {place}"


def word(path: Path, chance: Chance) -> str:
    """A number or a word of a text, replaced."""
    text = path.read_text(errors="surrogateescape")
    found = list(re.finditer(r"[-+.\w]+", text))
    chosen = chance.choice(found)
    put = chance.choice(WORDS)
    path.write_text(text[: chosen.start()] + put + text[chosen.end() :], errors="surrogateescape")
    return f"{chosen.group()!r} is {put!r}"


def header(path: Path, chance: Chance) -> str:
    """The header of a .npy: its shape, type or order."""
    data = path.read_bytes()
    size = int.from_bytes(data[8:10], "little")
    text = data[10 : 10 + size].decode("latin1")
    old, new = chance.choice(
        [
            (r"\(.*\)", chance.choice(["()", "(0,)", f"({2**40},)", "(-1, 4, 4)", "(1.5,)", "(True, 2, 3)", "('a',)"])),
            (r"'[<>|].*?'", chance.choice(["'|O'", "'<c16'", "'>f2'", "'<U9999'", "'|V7'", "'<M8[s]'", "'?'", "7"])),
            ("False", chance.choice(["True", "None", "9"])),
            (r"'shape'", "'shap'"),
        ]
    )
    changed = re.sub(old, new, text, count=1)[:size].ljust(size)
    path.write_bytes(data[:10] + changed.encode("latin1") + data[10 + size :])
    return f"{new}"


def member(path: Path, chance: Chance) -> str:
    """A member of an archive left out, renamed, replaced by another array, or by one that unpacks to 512 MiB."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(sorted(held))
    how = chance.choice(["gone", "renamed", "another", "bomb", "bytes", "twice"])
    if how == "gone":
        del held[name]
    elif how == "renamed":
        held[chance.choice(["x.npy", "../out.npy", "/abs.npy", "a" * 300, name[:-1]])] = held.pop(name)
    elif how == "another":
        stream = io.BytesIO()
        np.save(stream, _some_array(chance), allow_pickle=True)  # a reader has to refuse it
        held[name] = stream.getvalue()
    elif how == "bytes":
        spoilt = bytearray(held[name])
        spoilt[chance.randrange(len(spoilt))] ^= 255
        held[name] = bytes(spoilt)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, content in held.items():
            if how == "bomb" and one == name:
                with archive.open(one, "w", force_zip64=True) as opened:
                    opened.write(content[:128])
                    for _ in range(32):
                        opened.write(bytes(2**24))
            else:
                archive.writestr(one, content)
        if how == "twice":
            archive.writestr(f"also_{name}", held[name])
    return f"{name} {how}"


def _some_array(chance: Chance) -> np.ndarray:
    return chance.choice(
        [
            np.zeros(0),
            np.array(3.0),
            np.full((24, 2), np.nan),
            np.array([None, "a"], object),
            np.ones((2, 3, 4, 5, 6)),
            np.array(["text"]),
            np.ones((24, 16, 16), complex),
            np.array(-1),
            np.full((24, 2), 1e300),
            np.array(np.inf),
            np.zeros((3, 3), [("a", "i4"), ("b", "U3")]),
        ]
    )


# Inside HDF5


def _datasets(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return sorted(names)


def _replace(path: Path, chance: Chance, change: Callable[[h5py.Group, str, np.ndarray], str]) -> str:
    with h5py.File(path, "r+") as file:
        name = chance.choice(_datasets(file))
        stored = np.asarray(file[name][()])
        group, last = file[name].parent, name.rpartition("/")[2]
        kept = dict(file[name].attrs)
        del group[last]
        told = change(group, last, stored)
        made = group.get(last)
        if isinstance(made, h5py.Dataset):
            for attribute_name, value in kept.items():
                made.attrs[attribute_name] = value
    return f"{name} {told}"


def values(path: Path, chance: Chance) -> str:
    """Some or all numbers of a dataset become extreme."""
    put = chance.choice([np.nan, np.inf, -np.inf, -1, 0, 1e300, -1e300, 1e-320, 2**40])

    def change(group: h5py.Group, name: str, stored: np.ndarray) -> str:
        if stored.dtype.kind not in "biufc" or stored.size == 0:
            group[name] = put
            return f"is {put}"
        made = stored.astype(np.complex128 if stored.dtype.kind == "c" else np.float64)
        if chance.random() < 0.5:
            made[...] = put
        else:
            made.flat[chance.randrange(made.size)] = put
        group[name] = made
        return f"has {put}"

    return _replace(path, chance, change)


def kind(path: Path, chance: Chance) -> str:
    """Another type of numbers, or none."""

    def change(group: h5py.Group, name: str, stored: np.ndarray) -> str:
        chosen = chance.choice(["c16", "?", "i1", "u1", ">f2", "S4", "text", "record", "enum", "empty", "reference"])
        if chosen == "text":
            group.create_dataset(name, data=np.full(stored.shape, "é€", object), dtype=h5py.string_dtype())
        elif chosen == "record":
            group.create_dataset(name, shape=stored.shape, dtype=np.dtype([("real", "f8"), ("imag", "S3")]))
        elif chosen == "enum":
            group.create_dataset(name, shape=stored.shape, dtype=h5py.enum_dtype({"no": 0, "yes": 1}, basetype="i1"))
        elif chosen == "empty":
            group[name] = h5py.Empty("f8")
        elif chosen == "reference":
            group.create_dataset(name, shape=stored.shape, dtype=h5py.ref_dtype)
        else:
            with np.errstate(all="ignore"):
                plain = stored if stored.dtype.kind in "biufc" else np.zeros(stored.shape)
                group[name] = plain.real.astype(chosen)
        return f"of type {chosen}"

    return _replace(path, chance, change)


def shape(path: Path, chance: Chance) -> str:
    """Another shape."""

    def change(group: h5py.Group, name: str, stored: np.ndarray) -> str:
        plain = stored if stored.dtype.kind in "biufcSV" else np.zeros(stored.shape)
        changes = {
            "transposed": lambda: plain.T,
            "flat": lambda: plain.reshape(-1),
            "one axis more": lambda: plain[None],
            "none": lambda: plain.reshape(-1)[:0],
            "the first": lambda: plain.reshape(-1)[:1],
            "without the last": lambda: plain[:-1],
            "half": lambda: plain[..., : plain.shape[-1] // 2],
            "twice": lambda: np.concatenate([plain, plain]),
            "a number": lambda: plain.reshape(-1)[0],
        }
        chosen = chance.choice(sorted(changes))
        group[name] = plain[()] if plain.ndim == 0 and chosen not in ("flat", "none") else changes[chosen]()
        return chosen

    return _replace(path, chance, change)


def unwritten(path: Path, chance: Chance) -> str:
    """A dataset that claims more than anybody has, and holds nothing."""

    def change(group: h5py.Group, name: str, stored: np.ndarray) -> str:
        side = chance.choice([2**20, 2**33, 2**40])
        sides = tuple(side if axis == 0 or chance.random() < 0.3 else n for axis, n in enumerate(stored.shape or (1,)))
        dtype = stored.dtype if stored.dtype.kind in "biufc" else np.dtype("f8")
        group.create_dataset(name, shape=sides, dtype=dtype, chunks=tuple(min(8, max(1, n)) for n in sides))
        return f"claims {sides}"

    return _replace(path, chance, change)


def gone(path: Path, chance: Chance) -> str:
    """A dataset, or a group with all that is in it, left out or renamed."""
    with h5py.File(path, "r+") as file:
        names = list[str]()
        file.visit(names.append)
        name = chance.choice(sorted(names))
        if chance.random() < 0.3:
            file.move(name, f"{name}_else")
            return f"{name} renamed"
        del file[name]
    return f"{name} left out"


def link(path: Path, chance: Chance) -> str:
    """A dataset becomes a group, or a link: nowhere, to itself, to the root, or out of the file."""

    def change(group: h5py.Group, name: str, stored: np.ndarray) -> str:
        chosen = chance.choice(["group", "nowhere", "itself", "root", "outside", "beside", "virtual", "external"])
        if chosen == "group":
            group.create_group(name)
        elif chosen == "virtual":
            layout = h5py.VirtualLayout(stored.shape or (1,), "f8")
            layout[...] = h5py.VirtualSource("gone.h5", "data", shape=stored.shape or (1,))
            group.create_virtual_dataset(name, layout)
        elif chosen == "external":
            group.create_dataset(name, shape=(64,), dtype="u1", external=[("/etc/passwd", 0, 64)])
        else:
            links = {
                "nowhere": h5py.SoftLink("/no/where"),
                "itself": h5py.SoftLink(f"{group.name.rstrip('/')}/{name}"),
                "root": h5py.SoftLink("/"),
                "outside": h5py.ExternalLink("/etc/passwd", "/"),
                "beside": h5py.ExternalLink(path.name, f"{group.name.rstrip('/')}/{name}"),
            }
            group[name] = links[chosen]
        return f"leads to {chosen}"

    return _replace(path, chance, change)


def attribute(path: Path, chance: Chance) -> str:
    """An attribute left out or of another kind."""
    with h5py.File(path, "r+") as file:
        places = [("/", name) for name in file.attrs]
        file.visititems(lambda place, item: places.extend((place, name) for name in item.attrs))
        place, name = chance.choice(sorted(places))
        held = file[place].attrs
        del held[name]
        words = ["", "\N{EURO SIGN}" * 50, b"\xff\xfe"]
        put = chance.choice([None, np.nan, -1, *words, np.zeros((3, 3)), np.zeros(0), 2**62, np.bool_(True)])
        if put is not None:
            held[name] = put
    return f"{name} of {place} is {str(put)[:20]!r}"
