"""zarr stores, versions 2 and 3, in a folder or a .zip: arrays named as in `ptynb.io.reading.named_arrays`.

zarr is optional (`pip install 'ptynb[formats]'`) and imported when needed; each engine opens the store itself. Numbers
may be arrays of one value, or attributes of the group that contains the arrays. The metadata of arrays are checked
before zarr opens them: codecs that could run code (pickle) and unknown ones are errors.

Orientation: rows down and columns right, as zarr's own axes.
Source: https://zarr-specs.readthedocs.io, versions 2 and 3.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.data.patterns import FileFrames, Frames
from ptynb.data.patterns.frames import rectangles
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import LinkPolicy, packed_at_most, reason
from ptynb.io.reading.named_arrays import Raster, StoredArray, found_in
from ptynb.io.reading.reader_interface import FileRecord, Format, Head
from ptynb.io.reading.reading_errors import reading, require
from ptynb.io.reading.safe_reading import check_packing, check_room, size
from ptynb.io.reading.stack_axes import check_counts, native, stacked
from ptynb.settings.load_options import LoadOptions

PACKAGE = "zarr"
FILES = "ptynb.io.formats.zarr_files"
"""Name of the module that imports zarr."""
ROOTS = ("zarr.json", ".zarray", ".zgroup")
DESCRIPTIONS = (*ROOTS, ".zattrs")
CODECS = {
    "bytes", "transpose", "crc32c", "gzip", "zstd", "blosc", "sharding_indexed", "lz4", "zlib", "bz2", "lzma",
    "shuffle", "delta", "fixedscaleoffset", "astype", "bitround", "quantize", "packbits", "crc32", "adler32",
    "fletcher32", "jenkins_lookup3",
}  # fmt: skip
"""Permitted codecs of numeric arrays; none of them runs code."""
LONGEST = 2**22
"""Maximum size of a metadata file [bytes]."""
MOST = 1000
"""Limit of arrays and groups that are visited in a store."""


def recognises(head: Head) -> bool:
    """Return whether this is a folder or an archive with a metadata file of zarr."""
    if head.path.is_dir():
        return any((head.path / name).is_file() for name in ROOTS)
    if not head.start.startswith(b"PK"):
        return False
    try:
        with zipfile.ZipFile(head.path) as archive:
            return any(name.rsplit("/", 1)[-1] in ROOTS for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return head.path.name.lower().endswith(".zarr.zip")


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return the content of the store."""
    require("zarr", PACKAGE, path)
    arrays: dict[str, StoredArray] = {}
    policy = LinkPolicy.around(path, options.links)
    try:
        described = list(_in_archive(path) if path.is_file() else _in_folder(path, policy))
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, zlib.error) as error:
        raise FileError(
            f"{path} is not a readable archive of zarr ({reason(error)}); copy it again.", code="file.damaged"
        ) from None
    for name, metadata in described:
        kind = metadata.get("node_type") or ("array" if "shape" in metadata else "group")
        if kind == "array":
            arrays[name] = _stored(path, name, metadata, policy)
        elif isinstance(metadata.get("attributes"), dict):
            arrays |= _numbers(name, metadata["attributes"])
    return found_in(FORMAT.name, arrays, options, path)


FORMAT = Format("zarr", recognises, read, (".zarr",))


def _in_folder(path: Path, policy: LinkPolicy) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, metadata) of all arrays and groups; folders of chunks are not visited."""
    waiting, seen, known = [path], 0, set()
    while waiting and seen < MOST:
        here = waiting.pop(0)
        real = policy.check(here, f"{path} stores {here.relative_to(path)}")
        if real in known:
            continue  # a link to a parent group
        known.add(real)
        texts = {name: here / name for name in DESCRIPTIONS if (here / name).is_file()}
        metadata: dict[str, Any] = {}
        for text in texts.values():
            if text.stat().st_size > LONGEST:
                raise FileError(
                    f"{text} has {text.stat().st_size} bytes; expected a description of a few thousand.",
                    code="file.damaged",
                )
        for name, text in texts.items():
            policy.check(text, f"{path} stores {text.relative_to(path)}")
            metadata |= _description(text.read_bytes(), name, text)
        if not metadata and here != path:
            continue
        seen += 1
        yield here.relative_to(path).as_posix().removeprefix("."), metadata
        if "shape" not in metadata:
            with os.scandir(here) as inside:
                waiting += sorted(Path(one.path) for one in inside if one.is_dir())


def _in_archive(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, dict[str, Any]] = {}
        for member in archive.infolist():
            folder, _, name = member.filename.rpartition("/")
            if name not in DESCRIPTIONS or len(found) > MOST:
                continue
            if member.file_size > LONGEST:
                raise FileError(
                    f"{path} has {member.file_size} bytes for {member.filename}; expected a few thousand.",
                    code="file.damaged",
                )
            check_packing(member, path)
            found.setdefault(folder, {}).update(_description(archive.read(member), name, path))
        yield from found.items()


def _description(text: bytes, name: str, where: Path) -> dict[str, Any]:
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(
            f"{where} has a description ({name}) that is not JSON ({type(error).__name__}); copy it again.",
            code="file.damaged",
        ) from None
    if not isinstance(metadata, dict):
        raise FileError(
            f"{where} has a description ({name}) that is not a JSON object; copy it again.", code="file.damaged"
        )
    return {"attributes": metadata} if name == ".zattrs" else metadata


def _stored(path: Path, name: str, metadata: dict[str, Any], policy: LinkPolicy) -> StoredArray:
    """Return an array after checking its metadata, so that zarr may open it."""
    shape, dtype = metadata.get("shape"), metadata.get("data_type", metadata.get("dtype"))
    chunks = metadata.get("chunks", metadata.get("chunk_grid"))
    if isinstance(chunks, dict):
        chunks = chunks.get("configuration", {}).get("chunk_shape")
    for sides in (shape, chunks):
        if not (isinstance(sides, list) and all(isinstance(side, int) and side >= 0 for side in sides)):
            raise FileError(
                f"{path} has the shape {str(sides)[:60]} at {name}; expected whole numbers of at least 0.",
                code="file.unexpected-content",
            )
    assert isinstance(shape, list)
    assert isinstance(chunks, list)
    if not isinstance(dtype, str) or "O" in dtype:
        dtype = "O"
    try:
        kind = np.dtype("?" if dtype == "bool" else dtype)
    except TypeError:
        kind = np.dtype("O")
    if kind.hasobject:  # text or Python objects: not opened
        return StoredArray(tuple(shape), kind, partial(_refuse, path, name), partial(_refuse, path, name))
    unknown = sorted(set(_codecs([metadata.get(key) for key in ("codecs", "compressor", "filters")])) - CODECS)
    if unknown:
        raise FileError(
            f"{path} packs {name} with {', '.join(unknown)[:80]}, which is not supported; write it with zstd or blosc.",
            code="file.unsupported-content",
        )
    packed = size(tuple(chunks), kind)
    check_room(packed, f"one chunk of {name}", path)
    sides, location = tuple(shape), ArrayLocation(path.resolve(), name, policy, packed_at_most(packed))
    return StoredArray(sides, kind, partial(_whole, location), partial(_frames, location, sides, kind, tuple(chunks)))


def _refuse(path: Path, name: str) -> Any:
    raise FileError(f"{path} has no numbers in {name}; expected integers or floats.", code="file.unexpected-content")


def _codecs(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs, also of nested ones."""
    if isinstance(metadata, list):
        for one in metadata:
            yield from _codecs(one)
    elif isinstance(metadata, dict):
        name = metadata.get("name", metadata.get("id"))
        if name is not None:
            yield str(name).removeprefix("numcodecs.")
        configuration = metadata.get("configuration")
        if isinstance(configuration, dict):
            yield from _codecs([configuration.get("codecs"), configuration.get("index_codecs")])
    elif isinstance(metadata, str):
        yield metadata


def _numbers(group: str, attributes: dict[str, Any]) -> dict[str, StoredArray]:
    """Return attributes that are numbers, or lists of up to three numbers, as arrays."""
    found: dict[str, StoredArray] = {}
    for key, value in list(attributes.items())[:MOST]:
        several = value if isinstance(value, list) and 0 < len(value) <= 3 else [value]
        if all(isinstance(one, int | float) for one in several) and "/" not in key:
            array = np.asarray(value, dtype=np.float64)
            name = f"{group}/{key}".lstrip("/")
            found[name] = StoredArray(array.shape, array.dtype, array.copy, partial(_refuse, Path(group), key))
    return found


@dataclass(frozen=True)
class ArrayLocation:
    """Location of an array. name: in the store at `path`. most: upper limit of the bytes of a chunk's file."""

    path: Path
    name: str
    policy: LinkPolicy
    most: int


@contextmanager
def _opened(location: ArrayLocation) -> Iterator[Any]:
    """Yield the open zarr array, whose files are checked when they are read."""
    with reading(location.path):
        array = importlib.import_module(FILES).open_array(location)
        try:
            yield array
        finally:
            array.store.close()


def _whole(location: ArrayLocation) -> NDArray[Any]:
    with _opened(location) as array:
        return np.asarray(array[...])


def _frames(
    location: ArrayLocation, shape: tuple[int, ...], dtype: np.dtype[Any], chunks: tuple[int, ...]
) -> tuple[Frames, Raster | None]:
    path, name = location.path, location.name
    stack, raster = stacked(shape, path, name)
    check_counts(dtype, path, name)
    with _opened(location) as array:
        missing, stored = importlib.import_module(FILES).survey(array, location)
        if missing:
            raise FileError(
                f"{path} lacks {missing} chunks of {name}, which would be read as {array.fill_value}; "
                "copy it again, or write it with config={'write_empty_chunks': True} if patterns are empty.",
                code="file.incomplete",
            )
    together = math.prod(chunks[:-2]) if len(shape) == 3 else chunks[1]
    frames = ZarrFrames(location, shape[:-2], stack, dtype.str, max(1, min(together, stack[0])), stored)
    return native(frames), raster


@dataclass(frozen=True)
class ZarrFrames(FileFrames):
    """Patterns in an array of zarr; each process opens the store itself.

    grid: lengths of the axes before (y, x). chunk: number of patterns that are stored together. stored: size on the
    disk [bytes]; None if unknown.
    """

    location: ArrayLocation
    grid: tuple[int, ...]
    file_shape: tuple[int, int, int]
    file_dtype: str
    chunk: int = 1
    stored: int | None = None

    @property
    def stored_bytes(self) -> int | None:
        return self.stored

    @property
    def path(self) -> Path:
        return self.location.path

    @property
    def stored_together(self) -> int:
        return self.chunk

    def read(self, start: int, stop: int) -> NDArray[Any]:
        patterns = np.empty((stop - start, *self.shape[1:]), self.dtype)
        with _opened(self.location) as array:
            for selection, _, place in rectangles(self.grid, start, stop):
                patterns[place] = array[selection].reshape(-1, *self.shape[1:])
        return patterns
