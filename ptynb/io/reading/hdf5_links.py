"""Names in HDF5 files, and the other files that they lead to.

- HDF5 itself opens any file that a link names, reads zeros for missing parts of a virtual dataset, and resolves cyclic
  links. `Linked` follows each link itself.
- A file can name any other one on the machine: by a link inside HDF5, by a symbolic link in a zarr store or in a folder
  of TIFF files, by a name in its metadata. What is read is shown, saved and sent on as patterns, so an
  untrusted file must not choose it: `LinkPolicy` is the rule for all formats.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import h5py

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import Item, check_attributes, check_chunks, opened_both
from ptynb.io.reading.reading_errors import reason

MOST_HOPS = 64
"""Maximum number of links in the path of one name."""
MOST_FILES = 200
"""Maximum number of files open at once; systems allow about a thousand."""
MOST_OBJECTS = 20_000
"""Maximum number of groups and datasets of a file that are listed."""
DEEPEST = 8
"""Maximum nesting of virtual datasets."""
COUNTED = "%b"
"""In the name of a source of a virtual dataset: the number of the block."""
FOLDER, ANYWHERE = "folder", "anywhere"
"""Where linked files may be: in the folder of the file and below, or anywhere."""

External: TypeAlias = Callable[[h5py.Group, str, h5py.ExternalLink], h5py.Group]
"""Return the root of the file that a link leads to, or raise an error."""


@dataclass(frozen=True)
class LinkPolicy:
    """The resolved folders in and below which files may be read; with `anywhere`, all files may be read."""

    folders: tuple[Path, ...]
    anywhere: bool = False

    @classmethod
    def around(cls, path: Path, links: str = FOLDER) -> Self:
        """Return the policy for a user's path: the folder of the file and, if it is a link, that of its target.

        A folder (a zarr store, a folder of TIFF files) is its own. links: "folder" or "anywhere".
        """
        real = path.resolve()
        folders = (real,) if real.is_dir() else (path.parent.resolve(), real.parent)
        return cls(tuple(dict.fromkeys(folders)), links == ANYWHERE)

    def check(self, target: str | Path, what: str) -> Path:
        """Return the path of a file, which need not exist, with all links resolved; FileError if it may not be read.

        what: start of the message, followed by "in <the file>" ("scan.h5 stores entry/data").
        """
        try:
            real = Path(os.path.realpath(target))
        except (OSError, ValueError) as error:
            raise FileError(
                f"{what} in {target}, which can't be found ({reason(error)}); copy that file beside it.",
                code="file.not-found",
            ) from None
        if self.anywhere or any(real.is_relative_to(folder) for folder in self.folders):
            return real
        named = os.path.abspath(target)
        link = "" if named == str(real) else f" (a link to {real})"
        raise FileError(
            f"{what} in {named}{link}, outside {' and '.join(map(str, self.folders))}; a file elsewhere is read only "
            "where you allow it: load(..., links='anywhere'), or copy it into the folder.",
            code="file.link-not-allowed",
            fields=("links",),
        )


def followed(start: h5py.Group, name: str, path: Path, external: External) -> Item | None:
    """Return the group or dataset of this name, from `start`; None if there is none.

    Soft links are followed here rather than by HDF5, which would open other files behind them. path: of the file, for
    messages. Raise FileError for links in a circle, and what `external` raises.
    """
    here: Item = start.file["/"] if name.startswith("/") else start
    parts, hops = _parts(name), 0
    while parts:
        part = parts.pop(0)
        if not isinstance(here, h5py.Group):
            return None
        try:
            link = here.get(part, getlink=True)
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            return None
        if link is None:
            return None
        if isinstance(link, h5py.HardLink):
            try:
                here = here[part]
            except (KeyError, RuntimeError, OSError, ValueError) as error:
                raise FileError(
                    f"{path} is damaged at {here.name.rstrip('/')}/{part} ({reason(error)}); copy the file again.",
                    code="file.damaged",
                ) from None
            if not isinstance(here, h5py.Group | h5py.Dataset):
                return None
            continue
        hops += 1
        if hops > MOST_HOPS:
            raise FileError(
                f"{path} has {name}, which goes through more than {MOST_HOPS} links; they form a circle, "
                "or the file is damaged. Name the dataset itself: patterns='entry/data/data'.",
                code="file.too-many-links",
                fields=("patterns",),
            )
        if isinstance(link, h5py.ExternalLink):
            here = external(here, part, link)
        elif link.path.startswith("/"):
            here = here.file["/"]
        parts = _parts(link.path) + parts
    return here


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


class _ElsewhereError(Exception):
    """A name refers to another file."""


def _elsewhere(here: h5py.Group, part: str, link: h5py.ExternalLink) -> h5py.Group:
    raise _ElsewhereError


def has(file: h5py.Group, *names: str) -> bool:
    """Return whether a file has objects of all these names; links into other files count and are not opened."""
    for name in names:
        try:
            if followed(file, name, Path(file.file.filename), _elsewhere) is None:
                return False
        except (_ElsewhereError, FileError):
            continue  # reading it raises the error
    return True


def inside(file: h5py.Group, name: str, path: Path) -> Item | None:
    """Return the group or dataset of this name in the file itself; None if there is none.

    Raise FileError for a link into another file, a virtual dataset, and one that is stored in raw files.
    """
    try:
        found = followed(file, name, path, _elsewhere)
        if isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
            raise _ElsewhereError
    except _ElsewhereError:
        raise FileError(
            f"{path} has {name} in another file; a file of this kind has to contain its numbers itself.",
            code="file.link-not-allowed",
        ) from None
    return found


def dataset(file: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """Return the dataset of this name in the file itself. Raise FileError as `inside`, and if there is none."""
    found = inside(file, name, path)
    if not isinstance(found, h5py.Dataset):
        raise FileError(
            f"{path} has no dataset {name}; the file is incomplete or of another kind.", code="file.incomplete"
        )
    return found


class Linked:
    """An open HDF5 file, and the files that its links lead to, which are closed with it.

    policy: which other files may be read. left_out: errors of links that were not followed while listing a group.
    """

    def __init__(self, path: Path, links: str | LinkPolicy = FOLDER) -> None:
        self.policy = links if isinstance(links, LinkPolicy) else LinkPolicy.around(path, links)
        self.path = path.resolve()
        self.left_out: list[FileError] = []
        self._stack = ExitStack()
        self._files: dict[Path, tuple[h5py.File, h5py.File]] = {}
        """As `open_for_reading` opens them, and as HDF5 itself does, which finds the sources of virtual datasets."""

    def __enter__(self) -> Self:
        self._file(self.path)
        return self

    def __exit__(self, *raised: Any) -> None:
        # `open_for_reading` converts errors of h5py, which closing alone would not do.
        self._stack.__exit__(*raised)

    @property
    def root(self) -> h5py.Group:
        """The root group of the file itself."""
        return self._file(self.path)["/"]

    def get(self, name: str, start: h5py.Group | None = None) -> Item | None:
        """Return the group or dataset of this name, from `start` (the root); None if there is none.

        The data of a dataset may still be in other files: see `check_sources`. Raise FileError for a link that leads
        out of the folder, to a missing file, or in a circle, and for a virtual dataset of texts.
        """
        found = followed(self.root if start is None else start, name, self.path, self._external)
        if not isinstance(found, h5py.Dataset) or not found.is_virtual:
            return found
        if found.dtype.hasobject:
            raise FileError(
                f"{self.path} has texts in a virtual dataset, {found.name}; expected numbers. Write them into the file "
                "itself.",
                code="file.unsupported-content",
            )
        check_attributes(found)
        return self._files[Path(found.file.filename)][1][found.name]

    def dataset(self, name: str, start: h5py.Group | None = None) -> h5py.Dataset | None:
        """Return the dataset of this name, safe to be read as a whole; None if there is none."""
        found = self.get(name, start)
        if not isinstance(found, h5py.Dataset):
            return None
        self.check_sources(found)
        return found

    def check_sources(self, dataset: h5py.Dataset, depth: int = 0) -> None:
        """Raise FileError if HDF5 would read the data of a dataset from files that may not be read.

        Data of virtual datasets and raw files are in other files. depth: number of virtual datasets around this one.
        """
        what = f"{self.path} stores {dataset.name}"
        for raw, _, _ in dataset.external or ():
            if not Path(raw).is_absolute():
                raise FileError(
                    f"{what} in a raw file {raw}, which HDF5 looks for in the working folder; write the dataset into "
                    "the HDF5 file itself.",
                    code="file.link-not-allowed",
                )
            self.allowed(Path(raw), what, dataset.file)
        if not dataset.is_virtual:
            return
        if depth >= DEEPEST:
            raise FileError(
                f"{self.path} has virtual datasets more than {DEEPEST} deep at {dataset.name}.",
                code="file.too-many-links",
            )
        for source in dataset.virtual_sources():
            for name, inner in self._blocks(dataset, source.file_name, source.dset_name):
                with self.aside() as other:
                    found = other.get(inner, other.source_file(dataset, name, what)["/"])
                    if not isinstance(found, h5py.Dataset):
                        break  # HDF5 reads no further blocks either
                    check_chunks(found, other.path)
                    other.check_sources(found, depth + 1)

    def check_raw_files(self, dataset: h5py.Dataset) -> None:
        """Raise FileError if patterns are in raw files that may not be read; `HDF5Frames` opens them separately."""
        for raw, _, _ in dataset.external or ():
            self.allowed(self._beside(dataset.file, raw), f"{self.path} stores {dataset.name}", dataset.file)

    def source_file(self, dataset: h5py.Dataset, name: str, what: str) -> h5py.File:
        """Return the open file that a source of a virtual dataset names. Raise as `allowed`, with `what` as there."""
        if name == ".":
            return self._file(Path(dataset.file.filename).resolve())
        return self._file(self.allowed(self._beside(dataset.file, name), what, dataset.file))

    def _blocks(self, dataset: h5py.Dataset, file_name: str, inner: str) -> Iterator[tuple[str, str]]:
        """Yield (file, dataset) of a virtual dataset's source; with block numbers, those of existing files."""
        if not is_counted(file_name) and not is_counted(inner):
            yield file_name, inner
            return
        for number in range(max(dataset.shape)):
            name = _numbered(file_name, number)
            if name != "." and not self._beside(dataset.file, name).exists():
                if not Path(name).exists():  # where HDF5 searches next
                    return
                name = str(Path(name).absolute())
            yield name, _numbered(inner, number)

    def group(self, name: str, start: h5py.Group | None = None) -> h5py.Group | None:
        """Return the group of this name; None if there is none. Raise as `get`."""
        found = self.get(name, start)
        return found if isinstance(found, h5py.Group) else None

    def children(self, group: h5py.Group) -> Iterator[tuple[str, Item]]:
        """Yield (name, group or dataset) of everything in a group; errors of links are collected in `left_out`."""
        for name in names_of(group):
            try:
                found = self.get(name, group) if "/" not in name else None
            except FileError as error:
                self.left_out.append(error)
                continue
            if found is not None:
                yield name, found

    def walk(self, start: h5py.Group | None = None) -> Iterator[tuple[str, Item]]:
        """Yield (name from the root, group or dataset) of everything below a group, each once, breadth first."""
        first = self.root if start is None else start
        waiting, visited, count = [(first.name.rstrip("/"), first)], {identity(first)}, 0
        while waiting:
            prefix, group = waiting.pop(0)
            for name, found in self.children(group):
                count += 1
                if count > MOST_OBJECTS:
                    return
                if identity(found) in visited:
                    continue
                visited.add(identity(found))
                yield f"{prefix}/{name}", found
                if isinstance(found, h5py.Group):
                    waiting.append((f"{prefix}/{name}", found))

    @contextmanager
    def aside(self) -> Iterator[Linked]:
        """Yield the same file opened again, to read one of many other files, which are closed afterwards."""
        with Linked(self.path, self.policy) as other:
            yield other

    def allowed(self, target: Path, what: str, file: h5py.File) -> Path:
        """Return the resolved path of `target`. Raise FileError if it may not be read, or does not exist.

        what: start of the message ("... stores x"). file: the one that names it.
        """
        real = self.policy.check(target, what)
        if not real.is_file():
            raise FileError(
                f"{what} in {real}, which is missing; copy that file beside {Path(file.filename).name}, under the "
                "name it had when it was written.",
                code="file.not-found",
            )
        return real

    def _beside(self, file: h5py.File, name: str) -> Path:
        """Return the file that HDF5 takes a name in `file` for: as it is, else beside the file that names it."""
        folder = Path(file.filename).resolve().parent
        named = Path(name)
        if named.is_absolute():
            return named if named.exists() or not (folder / named.name).exists() else folder / named.name
        return folder / named

    def _file(self, path: Path) -> h5py.File:
        """Return the open file at a path that is `allowed`."""
        if path not in self._files:
            if len(self._files) >= MOST_FILES:
                raise FileError(
                    f"{self.path} leads to more than {MOST_FILES} other files by links on the way to one dataset; "
                    "expected fewer. Name the dataset itself: patterns='entry/data/data'.",
                    code="file.too-many-links",
                    fields=("patterns",),
                )
            self._files[path] = self._stack.enter_context(opened_both(path))
        return self._files[path][0]

    def _external(self, here: h5py.Group, part: str, link: h5py.ExternalLink) -> h5py.Group:
        what = f"{self.path} stores {here.name.rstrip('/')}/{part}"
        return self._file(self.allowed(self._beside(here.file, link.filename), what, here.file))["/"]


def own(file: h5py.Group) -> Iterator[tuple[str, Item]]:
    """Yield (name, group or dataset) of what is in a group itself, without what is in other files."""
    for name in names_of(file):
        try:
            item = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            continue
        if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external):
            continue
        if isinstance(item, h5py.Group | h5py.Dataset):
            yield name, item


def names_of(group: h5py.Group) -> list[str]:
    """Return the names in a group that are texts; h5py returns others, which are in no UTF-8, as bytes."""
    return [name for name in group if isinstance(name, str)]


def identity(item: Item) -> tuple[int, int]:
    """Return a key that is the same for one object under any of its names."""
    about = h5py.h5o.get_info(item.id)
    return int(about.fileno), int(about.addr)


def is_counted(name: str) -> bool:
    """Return whether the name of a source of a virtual dataset contains a block number and refers to many files."""
    return COUNTED in name.replace("%%", "")


def _numbered(name: str, number: int) -> str:
    return "%".join(part.replace(COUNTED, str(number)) for part in name.split("%%")) if is_counted(name) else name
