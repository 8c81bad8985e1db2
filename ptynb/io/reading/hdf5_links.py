"""HDF5 files whose data may lie elsewhere: soft and external links, virtual datasets, raw files, followed with care.

HDF5 itself opens whatever a link names, gives zeros for the missing parts of a virtual dataset, and takes a name apart
without an end. Here each step is looked at, and `LinkPolicy` says which files may be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

import h5py

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import open_for_reading, reason
from ptynb.io.reading.link_policy import FOLDER, LinkPolicy
from ptynb.io.reading.memory_limit import check_chunks

MOST_HOPS = 64
"""Links that one name may go through."""
MOST_FILES = 200
"""Files that are open at once; systems allow about a thousand."""
MOST_OBJECTS = 20_000
"""Groups and datasets that are looked at in a file."""
DEEPEST = 8
"""Virtual datasets may lie in virtual datasets, as deep as this."""
COUNTED = "%b"
"""In the name of a source of a virtual dataset: the number of the block."""

Item: TypeAlias = h5py.Group | h5py.Dataset
External: TypeAlias = Callable[[h5py.Group, str, h5py.ExternalLink], h5py.Group]
"""What becomes of a link into another file: the root of that file, or an error."""


def followed(start: h5py.Group, name: str, path: Path, external: External) -> Item | None:
    """The group or dataset of this name, from `start`; None where there is none.

    Soft links are followed here rather than by HDF5, which would open other files behind them. path: of the file, for
    sentences. Raises FileError for links in a circle, and what `external` raises.
    """
    here: Item = start.file["/"] if name.startswith("/") else start
    parts, hops = _parts(name), 0
    while parts:
        part = parts.pop(0)
        if not isinstance(here, h5py.Group):
            return None
        link = _link(here, part)
        if link is None:
            return None
        if isinstance(link, h5py.HardLink):
            opened = _opened(here, part, path)
            if opened is None:
                return None
            here = opened
            continue
        hops += 1
        if hops > MOST_HOPS:
            raise FileError(
                f"{path} has {name}, which goes through more than {MOST_HOPS} links; they lead in a circle, "
                "or the file is damaged. Name the dataset itself: patterns='entry/data/data'."
            )
        if isinstance(link, h5py.ExternalLink):
            here = external(here, part, link)
        elif link.path.startswith("/"):
            here = here.file["/"]
        parts = _parts(link.path) + parts
    return here


class _ElsewhereError(Exception):
    """A name that leads into another file."""


def _elsewhere(here: h5py.Group, part: str, link: h5py.ExternalLink) -> h5py.Group:
    raise _ElsewhereError


def has(file: h5py.Group, *names: str) -> bool:
    """Whether a file has something of all these names; one that leads into another file counts, and is not opened."""
    for name in names:
        try:
            if followed(file, name, Path(file.file.filename), _elsewhere) is None:
                return False
        except (_ElsewhereError, FileError):
            continue  # who reads it is told what is wrong with it
    return True


def inside(file: h5py.Group, name: str, path: Path) -> Item | None:
    """The group or dataset of this name in the file itself; None where there is none.

    Raises FileError for a link into another file, a virtual dataset, and one that is kept in raw files.
    """
    try:
        found = followed(file, name, path, _elsewhere)
        if isinstance(found, h5py.Dataset) and (found.is_virtual or found.external):
            raise _ElsewhereError
    except _ElsewhereError:
        raise FileError(
            f"{path} has {name} in another file; a file of this kind has to hold its numbers itself."
        ) from None
    return found


def dataset(file: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """The dataset of this name in the file itself. Raises FileError as `inside`, and where there is none."""
    found = inside(file, name, path)
    if not isinstance(found, h5py.Dataset):
        raise FileError(f"{path} has no dataset {name}; the file is incomplete or of another kind.")
    return found


class Linked:
    """An open HDF5 file, and the files that its links lead to, open as long as it is.

    path: of the file. policy: which other files may be read. left_out: what is wrong with links that were not followed
    where all that is there was looked at.
    """

    def __init__(self, path: Path, links: str | LinkPolicy = FOLDER) -> None:
        self.policy = links if isinstance(links, LinkPolicy) else LinkPolicy.around(path, links)
        self.path = path.resolve()
        self.left_out: list[FileError] = []
        self._stack = ExitStack()
        self._files: dict[Path, h5py.File] = {}

    def __enter__(self) -> Self:
        self._files[self.path] = self._stack.enter_context(open_for_reading(self.path))
        return self

    def __exit__(self, *raised: Any) -> None:
        # What h5py raised becomes a FileError there, which closing alone would not do.
        self._stack.__exit__(*raised)

    @property
    def root(self) -> h5py.Group:
        """The root group of the file itself."""
        return self._files[self.path]["/"]

    def get(self, name: str, start: h5py.Group | None = None) -> Item | None:
        """The group or dataset of this name, from `start` (the root); None where there is none.

        The numbers of a dataset may still lie elsewhere: see `check_sources`. Raises FileError for a link that leads
        out of the folder, to a file that is not there, or in a circle.
        """
        return followed(self.root if start is None else start, name, self.path, self._external)

    def dataset(self, name: str, start: h5py.Group | None = None) -> h5py.Dataset | None:
        """The dataset of this name, to be read as a whole; None where there is none.

        Raises as `get` and `check_sources`.
        """
        found = self.get(name, start)
        if not isinstance(found, h5py.Dataset):
            return None
        self.check_sources(found)
        return found

    def check_sources(self, dataset: h5py.Dataset, depth: int = 0) -> None:
        """Raises FileError where HDF5 would read the numbers of a dataset from files that may not be read.

        They lie elsewhere in virtual datasets, and in raw files. depth: virtual datasets that this one is a part of.
        """
        what = f"{self.path} keeps {dataset.name}"
        for raw, _, _ in dataset.external or ():
            if not Path(raw).is_absolute():
                raise FileError(
                    f"{what} in a raw file {raw}, which HDF5 looks for in the working folder, whatever that is; "
                    "write the dataset into the HDF5 file itself."
                )
            self.allowed(Path(raw), what, dataset.file)
        if not dataset.is_virtual:
            return
        if depth >= DEEPEST:
            raise FileError(f"{self.path} has virtual datasets more than {DEEPEST} deep at {dataset.name}.")
        for source in dataset.virtual_sources():
            for name, inner in self._blocks(dataset, source.file_name, source.dset_name):
                with self.aside() as other:
                    found = other.get(inner, other.source_file(dataset, name, what)["/"])
                    if not isinstance(found, h5py.Dataset):
                        break  # HDF5 reads no further blocks either
                    check_chunks(found, other.path)
                    other.check_sources(found, depth + 1)

    def check_raw_files(self, dataset: h5py.Dataset) -> None:
        """Raises FileError where patterns lie in raw files that may not be read; `HDF5Frames` opens them beside it."""
        for raw, _, _ in dataset.external or ():
            self.allowed(self.beside(dataset.file, raw), f"{self.path} keeps {dataset.name}", dataset.file)

    def source_file(self, dataset: h5py.Dataset, name: str, what: str) -> h5py.File:
        """The open file that a source of a virtual dataset names. Raises as `allowed`, with `what` as there."""
        if name == ".":
            return self.file(Path(dataset.file.filename).resolve())
        return self.file(self.allowed(self.beside(dataset.file, name), what, dataset.file))

    def _blocks(self, dataset: h5py.Dataset, file_name: str, inner: str) -> Iterator[tuple[str, str]]:
        """(file, dataset) that a source of a virtual dataset names; of counted names, those of files that exist."""
        if not is_counted(file_name) and not is_counted(inner):
            yield file_name, inner
            return
        for number in range(max(dataset.shape)):
            name = _numbered(file_name, number)
            if name != "." and not self.beside(dataset.file, name).exists():
                if not Path(name).exists():  # where HDF5 looks next
                    return
                name = str(Path(name).absolute())
            yield name, _numbered(inner, number)

    def group(self, name: str, start: h5py.Group | None = None) -> h5py.Group | None:
        """The group of this name; None where there is none. Raises as `get`."""
        found = self.get(name, start)
        return found if isinstance(found, h5py.Group) else None

    def children(self, group: h5py.Group) -> Iterator[tuple[str, Item]]:
        """(name, group or dataset) of all that is in a group; what can't be followed is in `left_out`."""
        for name in group:
            try:
                found = self.get(name, group) if "/" not in name else None
            except FileError as error:
                self.left_out.append(error)
                continue
            if found is not None:
                yield name, found

    def walk(self, start: h5py.Group | None = None) -> Iterator[tuple[str, Item]]:
        """(name from the root of the file, group or dataset) of all below a group, each once, nearest first."""
        first = self.root if start is None else start
        waiting, seen, count = [(first.name.rstrip("/"), first)], {identity(first)}, 0
        while waiting:
            prefix, group = waiting.pop(0)
            for name, found in self.children(group):
                count += 1
                if count > MOST_OBJECTS:
                    return
                if identity(found) in seen:
                    continue
                seen.add(identity(found))
                yield f"{prefix}/{name}", found
                if isinstance(found, h5py.Group):
                    waiting.append((f"{prefix}/{name}", found))

    def beside(self, file: h5py.File, name: str) -> Path:
        """The file that a name in `file` means, as HDF5 finds it: as it is, else beside the file that names it."""
        folder = Path(file.filename).resolve().parent
        named = Path(name)
        if named.is_absolute():
            return named if named.exists() or not (folder / named.name).exists() else folder / named.name
        return folder / named

    def allowed(self, target: Path, what: str, file: h5py.File) -> Path:
        """The file at `target`, resolved. Raises FileError where it may not be read, or is not there.

        what: the first words of the sentence ("... keeps x"). file: that names it.
        """
        real = self.policy.check(target, what)
        if not real.is_file():
            raise FileError(
                f"{what} in {real}, which is not there; copy that file beside {Path(file.filename).name}, under the "
                "name it had when it was written."
            )
        return real

    def file(self, path: Path) -> h5py.File:
        """The open file at a path that is `allowed`."""
        if path not in self._files:
            if len(self._files) >= MOST_FILES:
                raise FileError(
                    f"{self.path} leads to more than {MOST_FILES} other files by links on the way to one thing; "
                    "expected fewer. Name the dataset itself: patterns='entry/data/data'."
                )
            self._files[path] = self._stack.enter_context(open_for_reading(path))
        return self._files[path]

    @contextmanager
    def aside(self) -> Iterator[Linked]:
        """The same file again, for a look at one of very many others: they are closed afterwards."""
        with Linked(self.path, self.policy) as other:
            yield other

    def _external(self, here: h5py.Group, part: str, link: h5py.ExternalLink) -> h5py.Group:
        what = f"{self.path} keeps {here.name.rstrip('/')}/{part}"
        return self.file(self.allowed(self.beside(here.file, link.filename), what, here.file))["/"]


def own(file: h5py.Group) -> Iterator[tuple[str, Item]]:
    """(name, group or dataset) of what is in a group itself, without what lies in other files."""
    for name in file:
        try:
            item = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            continue
        if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external):
            continue
        if isinstance(item, h5py.Group | h5py.Dataset):
            yield name, item


def identity(item: Item) -> tuple[int, int]:
    """The same for one object by whatever name it was reached."""
    about = h5py.h5o.get_info(item.id)
    return int(about.fileno), int(about.addr)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def is_counted(name: str) -> bool:
    """Whether the name of a source of a virtual dataset stands for many, by the number of the block in it."""
    return COUNTED in name.replace("%%", "")


def _numbered(name: str, number: int) -> str:
    return "%".join(part.replace(COUNTED, str(number)) for part in name.split("%%")) if is_counted(name) else name


def _link(here: h5py.Group, part: str) -> h5py.HardLink | h5py.SoftLink | h5py.ExternalLink | None:
    try:
        return here.get(part, getlink=True)
    except (KeyError, TypeError, RuntimeError, OSError, ValueError):
        return None


def _opened(here: h5py.Group, part: str, path: Path) -> Item | None:
    try:
        found = here[part]
    except (KeyError, RuntimeError, OSError, ValueError) as error:
        raise FileError(
            f"{path} is damaged at {here.name.rstrip('/')}/{part} ({reason(error)}); copy the file again."
        ) from None
    return found if isinstance(found, h5py.Group | h5py.Dataset) else None
