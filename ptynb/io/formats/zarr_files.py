"""The files of a zarr store, each checked before it is read; imported if zarr is installed.

zarr reads chunks lazily, also in engines, so each file is checked at that time: links out of the store are errors
unless `LinkPolicy` allows them, pipes are not opened, and files far larger than a chunk are not decompressed.
"""

from __future__ import annotations

import itertools
import math
import os
import stat
import zipfile
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import zarr
from zarr.storage import LocalStore, WrapperStore, ZipStore

from ptynb.exceptions import FileError
from ptynb.io.formats.zarr_store import DESCRIPTIONS, LONGEST, ArrayLocation
from ptynb.io.reading.safe_reading import check_packing
from ptynb.table import gigabytes

MOST_CHUNKS = 10**6
"""Missing chunks are counted only in arrays of at most this number of chunks."""


def open_array(location: ArrayLocation) -> Any:
    """Return the open zarr array; the caller closes its store."""
    if location.path.is_file():
        archive = ZipStore(location.path, mode="r")
        archive._sync_open()
        return zarr.open_array(_Archive(archive, location), path=location.name, mode="r")
    folder = LocalStore(location.path, read_only=True)
    return zarr.open_array(_Folder(folder, location), path=location.name, mode="r")


class _Checked(WrapperStore[Any]):
    """A store that checks each file before it is read."""

    def __init__(self, store: Any, location: ArrayLocation) -> None:
        super().__init__(store)
        self._location = location

    def _check(self, key: str) -> None:
        raise NotImplementedError

    def _check_length(self, key: str, length: int) -> None:
        """Raise FileError for a file that is too long."""
        most = LONGEST if key.rsplit("/", 1)[-1] in DESCRIPTIONS else self._location.most
        if length > most:
            raise FileError(
                f"{self._location.path} has {gigabytes(length)} in {key}; expected at most {gigabytes(most)}, by the "
                "shape of its chunks: the store is damaged, copy it again.",
                code="file.damaged",
            )

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        self._check(key)
        return await super().get(key, prototype, byte_range)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]) -> list[Any]:
        requests = list(key_ranges)
        for key, _ in requests:
            self._check(key)
        return await super().get_partial_values(prototype, requests)

    async def _get_many(self, requests: Iterable[tuple[str, Any, Any]]) -> AsyncGenerator[tuple[str, Any], None]:
        for key, prototype, byte_range in requests:
            yield key, await self.get(key, prototype, byte_range)


class _Folder(_Checked):
    def _check(self, key: str) -> None:
        try:
            found = self._status(key)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
            raise FileError(
                f"{self._location.path} has {key}, which is not a regular file; remove it from the store.",
                code="file.unsupported-content",
            )
        self._check_length(key, found.st_size)

    def _status(self, key: str) -> os.stat_result:
        """Return the status of a permitted file. Checking path components for links takes 10 µs, resolving it 30."""
        location, here = self._location, str(self._location.path)
        for part in key.split("/"):
            here = f"{here}/{part}"
            found = os.lstat(here)
            if stat.S_ISLNK(found.st_mode) or part == "..":
                what = f"{location.path} stores a part of {location.name or 'its array'}"
                return os.stat(location.policy.check(location.path / key, what))
        return found


class _Archive(_Checked):
    def _check(self, key: str) -> None:
        try:
            member = self._store._zf.getinfo(key)
        except KeyError:
            return
        check_packing(member, self._location.path)
        self._check_length(key, member.file_size)


def survey(array: Any, location: ArrayLocation) -> tuple[int, int | None]:
    """Return (number of missing chunks or shards, bytes of the others); (0, None) if there are very many."""
    parts = array.shards or array.chunks
    numbers = [range(-(-side // part)) for side, part in zip(array.shape, parts, strict=True)]
    if math.prod(map(len, numbers)) > MOST_CHUNKS:
        return 0, None
    keys = map(array.metadata.encode_chunk_key, itertools.product(*numbers))
    prefix = f"{location.name}/" if location.name else ""
    if location.path.is_file():
        with zipfile.ZipFile(location.path) as archive:
            known = {member.filename: member.compress_size for member in archive.infolist()}
        sizes = [known.get(f"{prefix}{key}", -1) for key in keys]
    else:
        # The count of zarr itself walks all folders: 100 s for 100,000 chunks; this takes 0.5 s.
        sizes = [_size(f"{location.path}/{prefix}{key}") for key in keys]
    return sizes.count(-1), sum(size for size in sizes if size > 0)


def _size(path: str) -> int:
    """Return the size of a regular file [bytes]; -1 if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1
