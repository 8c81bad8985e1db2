"""HDF5 files whose data may lie elsewhere: soft and external links, virtual datasets, raw files, followed with care.

HDF5 itself opens whatever a link names, gives zeros for the missing parts of a virtual dataset, and takes a name apart
without an end. Here each step is looked at: what lies in the folder of the file, or below it, may be read; the rest
when the user says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

import h5py

from ptynb.io.hdf5 import FileError, open_for_reading, reason

FOLDER, ANYWHERE = "folder", "anywhere"
"""What links may lead to: files in the folder of the file, or below it; or any file."""
MOST_HOPS = 64
"""Links that one name may go through."""
MOST_FILES = 200
"""Files that are open at once; systems allow about a thousand."""
MOST_OBJECTS = 20_000
"""Groups and datasets that are looked at in a file."""

Item: TypeAlias = h5py.Group | h5py.Dataset


class Linked:
    """An open HDF5 file, and the files that its links lead to, open as long as it is.

    path: of the file. links: "folder" or "anywhere".
    """

    def __init__(self, path: Path, links: str = FOLDER) -> None:
        self.path, self.links = path.resolve(), links
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

        Raises FileError for a link that leads out of the folder, to a file that is not there, or in a circle.
        """
        here: Item = self.root if start is None else start
        if name.startswith("/"):
            here = here.file["/"]
        parts, hops = _parts(name), 0
        while parts:
            part = parts.pop(0)
            if not isinstance(here, h5py.Group):
                return None
            link = self._link(here, part)
            if link is None:
                return None
            if isinstance(link, h5py.HardLink):
                opened = self._opened(here, part)
                if opened is None:
                    return None
                here = opened
                continue
            hops += 1
            if hops > MOST_HOPS:
                raise FileError(
                    f"{self.path} has {name}, which goes through more than {MOST_HOPS} links; they lead in a circle, "
                    "or the file is damaged. Name the dataset itself: patterns='entry/data/data'."
                )
            if isinstance(link, h5py.ExternalLink):
                here = self._external(here, part, link)
                parts = _parts(link.path) + parts
            else:
                if link.path.startswith("/"):
                    here = here.file["/"]
                parts = _parts(link.path) + parts
        return here

    def dataset(self, name: str, start: h5py.Group | None = None) -> h5py.Dataset | None:
        """The dataset of this name; None where there is none. Raises as `get`, and for raw files outside the folder."""
        found = self.get(name, start)
        if not isinstance(found, h5py.Dataset):
            return None
        for raw, _, _ in found.external or ():
            self.allowed(self.beside(found.file, raw), f"{self.path} keeps {found.name}", found.file)
        return found

    def group(self, name: str, start: h5py.Group | None = None) -> h5py.Group | None:
        """The group of this name; None where there is none. Raises as `get`."""
        found = self.get(name, start)
        return found if isinstance(found, h5py.Group) else None

    def children(self, group: h5py.Group) -> Iterator[tuple[str, Item]]:
        """(name, group or dataset) of all that is in a group; what can't be followed is left out."""
        for name in group:
            try:
                found = self.get(name, group) if "/" not in name else None
            except FileError:
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

        what: the first words of the sentence ("... has a link x"). file: that names it.
        """
        try:
            real = target.resolve()
        except (OSError, RuntimeError) as error:
            raise FileError(
                f"{what} in {target}, which can't be found ({reason(error)}); copy that file beside it."
            ) from None
        if self.links != ANYWHERE and not real.is_relative_to(self.path.parent):
            raise FileError(
                f"{what} in {real}, outside the folder of the file; links that lead out are followed only where you "
                "say so: load(..., links='anywhere'), or copy that file beside it."
            )
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
        with Linked(self.path, self.links) as other:
            yield other

    def _external(self, here: h5py.Group, part: str, link: h5py.ExternalLink) -> h5py.Group:
        what = f"{self.path} keeps {here.name.rstrip('/')}/{part}"
        return self.file(self.allowed(self.beside(here.file, link.filename), what, here.file))["/"]

    def _link(self, here: h5py.Group, part: str) -> h5py.HardLink | h5py.SoftLink | h5py.ExternalLink | None:
        try:
            return here.get(part, getlink=True)
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            return None

    def _opened(self, here: h5py.Group, part: str) -> Item | None:
        try:
            found = here[part]
        except (KeyError, RuntimeError, OSError, ValueError) as error:
            raise FileError(
                f"{self.path} is damaged at {here.name.rstrip('/')}/{part} ({reason(error)}); copy the file again."
            ) from None
        return found if isinstance(found, h5py.Group | h5py.Dataset) else None


def own(file: h5py.Group) -> Iterator[tuple[str, Item]]:
    """(name, group or dataset) of what is in a group itself, without what its links lead to."""
    for name in file:
        try:
            item = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            continue
        if isinstance(item, h5py.Group | h5py.Dataset):
            yield name, item


def identity(item: Item) -> tuple[int, int]:
    """The same for one object by whatever name it was reached."""
    about = h5py.h5o.get_info(item.id)
    return int(about.fileno), int(about.addr)


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]
