"""HDF5 files: opening, following links, and writing, protected against damaged and malicious files.

- HDF5 itself opens any file that a link names, reads zeros for missing parts of a virtual dataset, and resolves cyclic
  links. `Linked` follows each link itself.
- A file can name any other one on the machine: by a link inside HDF5, by a symbolic link in a zarr store or in a folder
  of TIFF files, by a name in its metadata. What is read is shown, saved and sent on as patterns, so an
  untrusted file must not choose it: `LinkPolicy` is the rule for all formats.
- libhdf5 2.0 hangs, out of reach of Ctrl-C, in a damaged global heap ("GCOL": HDF5 File Format Specification 3.0,
  section III.E), in which texts of variable length and the sources of virtual datasets are stored. `_Source` checks
  each heap when HDF5 reads it, so that nothing has to be searched for.
- A chunk whose packed size is damaged is unpacked to any size: `check_chunks`.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeAlias

import h5py
from numpy.typing import NDArray

from ptynb.exceptions import FileError, PtynbError
from ptynb.io.new_files import replacing_file
from ptynb.io.reading.reading_errors import library_of, unreadable
from ptynb.io.reading.reading_errors import reason as reason
from ptynb.table import gigabytes
from ptynb.text import in_one_line as in_one_line

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
HEAP_SIGNATURE = b"GCOL"
MOST_IN_HEAP = 2**16
"""Maximum number of objects of a heap: their numbers have two bytes."""
MOST_TEXTS = 10**6
"""Maximum number of texts of a dataset that `check_texts` reads."""
SUPERBLOCK = b"\x89HDF\r\n\x1a\n"
CONSISTENCY_FLAGS = 11
"""Place of the byte of a superblock of version 3 whose first bit says that the file is open for writing."""
FOLDER, ANYWHERE = "folder", "anywhere"
"""Where linked files may be: in the folder of the file and below, or anywhere."""

Item: TypeAlias = h5py.Group | h5py.Dataset
External: TypeAlias = Callable[[h5py.Group, str, h5py.ExternalLink], h5py.Group]
"""Return the root of the file that a link leads to, or raise an error."""


def is_being_written(path: Path) -> bool:
    """Return whether an HDF5 file is marked as open for writing; its writer may have ended without closing it.

    HDF5 marks files in the newest format only, which SWMR requires.
    """
    with path.open("rb") as file:
        block = file.read(CONSISTENCY_FLAGS + 1)
    return block.startswith(SUPERBLOCK) and len(block) > CONSISTENCY_FLAGS and block[8] == 3 and block[-1] & 1 == 1


class _Source(FileIO):
    """A file as h5py's driver for Python's files reads it, which checks a global heap before HDF5 decodes it."""

    length_bytes = 8

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, beyond the end of the file with zeros. Raise FileError for a damaged heap."""
        place, wanted, done = self.tell(), memoryview(buffer), 0
        while done < len(wanted) and (count := super().readinto(wanted[done:])):
            done += count
        wanted[done:] = bytes(len(wanted) - done)
        if wanted[: len(HEAP_SIGNATURE)] == HEAP_SIGNATURE and not self._is_sound(place):
            raise FileError(
                f"{os.fsdecode(self.name)} is damaged (the texts at byte {place} have wrong lengths); copy it again "
                "from where it was made.",
                code="file.damaged",
            )
        return len(wanted)

    def _number(self, count: int, place: int) -> int:
        self.seek(place)
        return int.from_bytes(self.read(count), "little")

    def _is_sound(self, place: int) -> bool:
        """Return whether the objects of this heap follow each other up to its end."""
        at = header = -(-(8 + self.length_bytes) // 8) * 8  # of the heap, and of each object
        size = self._number(self.length_bytes, place + 8)
        for _ in range(MOST_IN_HEAP):
            if at + header > size:  # what is shorter than an object's header is free space
                return True
            length = self._number(self.length_bytes, place + at + 8)
            # Object 0 is free space, whose length includes its header.
            needed = header + -(-length // 8) * 8 if self._number(2, place + at) else length
            if needed < header or at + needed > size:
                return False
            at += needed
        return False


_checked: dict[int, h5py.File] = {}


@atexit.register
def _close_checked() -> None:
    """Close what is still open: after Python's end HDF5 would do it, and crash, as the driver is Python's."""
    for file in [*_checked.values()]:
        file.close()


@contextmanager
def opened_checked(path: Path) -> Iterator[h5py.File]:
    """Yield the file opened so that heaps are checked; HDF5 reads no other files through it, but zeros for them."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    with _Source(path) as source:
        access.set_fileobj_driver(h5py.h5fd.fileobj_driver, source)
        with h5py.File(h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDONLY, access)) as file:
            source.length_bytes = file.id.get_create_plist().get_sizes()[1]
            _checked[id(file)] = file
            try:
                yield file
            finally:
                del _checked[id(file)]


def _check_attributes(item: Item) -> None:
    """Raise FileError if texts among the attributes are damaged."""
    for name in item.attrs:
        try:
            item.attrs[name]
        except FileError:
            raise
        except (KeyError, TypeError, RuntimeError, OSError, ValueError):
            continue  # h5py refuses its type or content


def check_texts(file: h5py.File) -> None:
    """Raise FileError if texts of a file are damaged, which is opened next by something else, and would hang it."""

    def check(_: str, item: Item) -> None:
        _check_attributes(item)
        if isinstance(item, h5py.Dataset) and item.dtype.hasobject and not item.is_virtual:
            if (item.size or 0) > MOST_TEXTS:
                raise FileError(
                    f"{file.filename} claims {item.size} texts for {item.name}; expected {MOST_TEXTS} at most. It is "
                    "damaged, copy it again.",
                    code="file.damaged",
                )
            item[()]

    _check_attributes(file)
    file.visititems(check)


@contextmanager
def open_for_reading(path: Path) -> Iterator[h5py.File]:
    """Yield the open file. Raise FileError if it is no readable HDF5 file.

    HDF5 does not find the sources of a virtual dataset of this file (it reads zeros), but of the ones that `Linked`
    returns.
    """
    with _opened_both(path) as (file, _):
        yield file


@contextmanager
def _opened_both(path: Path) -> Iterator[tuple[h5py.File, h5py.File]]:
    """Yield the open file as `open_for_reading` does, and as HDF5 opens it itself."""
    if not path.exists():
        raise FileError(f"There is no file {path}. Working folder: {Path.cwd()}.", code="file.not-found")
    if not path.is_file():
        raise FileError(
            f"{path} is a folder, so it is not a readable HDF5 file; name the file in it.", code="file.not-found"
        )
    stack = ExitStack()
    try:
        own = stack.enter_context(h5py.File(path, "r"))
        file = stack.enter_context(opened_checked(path))
    except OSError as error:
        stack.close()
        if is_being_written(path):
            raise FileError(
                f"{path} is still being written, or was when its writer ended. While it is written, ptynb.listen "
                f"follows it: listen('{path.name}', plan=Plan(...)); after the end of its writer, h5clear -s makes it "
                "readable.",
                code="file.being-written",
            ) from None
        if isinstance(error, BlockingIOError):
            raise FileError(
                f"{path} is locked by another program, which has it open for writing; load it when that has closed it.",
                code="file.being-written",
            ) from None
        if isinstance(error, PermissionError):
            raise unreadable(path, error) from None
        raise FileError(
            f"{path} is not a readable HDF5 file ({reason(error)}); expected a whole one; "
            "copy it again from where it was made.",
            code="file.damaged",
        ) from None
    with stack, _keep_interrupts():
        try:
            yield file, own
        except Exception as error:
            # Its errors have many types for damaged files; those of others pass.
            if isinstance(error, PtynbError) or library_of(error) != "h5py":
                raise
            raise unreadable(path, error) from None


@contextmanager
def replacing(path: Path) -> Iterator[h5py.File]:
    """Yield a new file that replaces `path` once it is complete and on the disk; until then the old one stays."""
    with replacing_file(path) as beside, _keep_interrupts(), h5py.File(beside, "w") as file:
        yield file


class _Interrupts:
    """A handler of SIGINT that records which KeyboardInterrupt the previous handler raised."""

    def __init__(self, before: Callable[[int, FrameType | None], Any]) -> None:
        self._before = before
        self.raised: type[KeyboardInterrupt] | None = None  # the type only, without references to frames

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before(number, frame)
        except KeyboardInterrupt as error:
            self.raised = type(error)
            raise


@contextmanager
def _keep_interrupts() -> Iterator[None]:
    """Raise a KeyboardInterrupt at the end of a block in which it was raised and lost.

    h5py keeps its identifiers in a WeakValueDictionary, and Python ignores what is raised in the callback that removes
    a dead one. Writing a result's file takes several hundred of them.
    """
    before = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()  # only there does Python call handlers
    if not main or not callable(before) or isinstance(before, _Interrupts):
        yield
        return
    interrupts = _Interrupts(before)
    signal.signal(signal.SIGINT, interrupts)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts.raised is not None:
        raise interrupts.raised


def values_text(values: NDArray[Any]) -> str:
    """Return up to six numbers as text, of more only the shape, for a message."""
    return f"{values.tolist()}" if values.size <= 6 else f"of shape {values.shape}"


def read_all(dataset: h5py.Dataset) -> Any:
    """Return all values of a dataset. Raise FileError if the columns of its type overlap."""
    check_columns(dataset)
    return dataset[()]


def check_columns(dataset: h5py.Dataset) -> None:
    """Raise FileError if the columns of a dataset's type overlap.

    They overlap where the description of a number in a compound type is damaged: h5py takes it for a longer number, and
    HDF5 then writes beyond the array's memory (seen with h5py 3.16 and HDF5 2.0; the process aborts when it ends).
    """
    columns = (dataset.dtype.fields or {}).values()
    if columns and sum(kind.itemsize for kind, *_ in columns) > dataset.dtype.itemsize:
        raise FileError(
            f"{dataset.file.filename} is damaged at {dataset.name}, whose columns overlap "
            f"({in_one_line(dataset.dtype)}); copy it again from where it was made.",
            code="file.damaged",
        )


def packed_at_most(nbytes: int) -> int:
    """Return the maximum packed size of so many bytes: packing hardly enlarges numbers, so longer data are damaged."""
    return nbytes + nbytes // 4 + 2**14


def check_chunks(dataset: h5py.Dataset, path: Path) -> None:
    """Raise FileError for a chunk that is longer packed than its numbers are: HDF5 would unpack it to any size."""
    if not dataset.chunks or dataset.is_virtual:
        return
    numbers = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
    most = packed_at_most(numbers)
    too_long = dataset.id.chunk_iter(lambda chunk: chunk if chunk.size > most else None)
    if too_long is not None:
        raise FileError(
            f"{path} has {gigabytes(too_long.size)} for the chunk at {too_long.chunk_offset} of {dataset.name}, whose "
            f"numbers take {gigabytes(numbers)}; the file is damaged, copy it again.",
            code="file.damaged",
        )


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
        _check_attributes(found)
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
            self._files[path] = self._stack.enter_context(_opened_both(path))
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
