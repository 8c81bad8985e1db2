"""HDF5 files that are being written: patterns and positions in SWMR mode, and Eiger's master file with its data files.

A file in writing can be opened in SWMR mode only, one that is closed only without; its superblock says which it is
(HDF5 File Format Specification 3.0, section II.A: file consistency flags), so it is read first. The file need not be
there yet, nor ready to be read. It is opened without locks: whoever reads must not stop the writer.

A pattern is there once its chunk is (`growing_stack`). After its writer has closed the file there will be no more.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ptynb.acquisition.growing_stack import GrowingPositions, GrowingStack
from ptynb.acquisition.messages import (
    MOST_PATTERNS,
    Frame,
    LiveSource,
    MeasuredPositions,
    Message,
    Pace,
    SeriesEnded,
    SeriesStarted,
    positive,
)
from ptynb.data.source_address import Address
from ptynb.exceptions import AcquisitionError, FileError
from ptynb.io.hdf5_file import LinkPolicy, check_texts, has, inside, is_being_written, names_of, opened_checked, reason
from ptynb.io.reading.hdf5_reading import attribute_of, factor, text, units_of
from ptynb.text import natural_order

PAUSES = 0.002, 0.02
"""Time between looks at a file [s]: just after news, and at most, without; a look takes 0.1 to 0.3 ms."""
PATIENCE = 4.0
"""Time for which a file that cannot be read is tried again [s]: a writer may be in between, but less than `SILENCE`."""
MOST_AT_ONCE = 64
TIMES_PACE = 3.0
"""How many times the time between data files may pass without one."""
DATA_FILE = re.compile(r"data_\d+")
ERRORS = (OSError, RuntimeError, KeyError)
"""What h5py raises."""
INSTRUMENT = "entry/instrument/"
LENGTHS = {
    "distance": (f"{INSTRUMENT}detector/detector_distance", f"{INSTRUMENT}detector/distance"),
    "y": (f"{INSTRUMENT}detector/y_pixel_size",),
    "x": (f"{INSTRUMENT}detector/x_pixel_size",),
    "wavelength": (f"{INSTRUMENT}beam/incident_wavelength", f"{INSTRUMENT}beam/wavelength"),
}
"""Names of NXmx, as Eiger's files have them."""


class GrowingFile(LiveSource):
    """A file, with names of datasets as options "patterns", "uid" and "positions" (one or two)."""

    def __init__(self, address: Address) -> None:
        options, self._path = address.options, Path(address.place)
        self._name, self._uid_name = options.get("patterns"), options.get("uid")
        self._position_names = options["positions"].split(",") if "positions" in options else []
        self._policy = LinkPolicy.around(self._path)
        self._file: h5py.File | None = None
        self._in_writing = True
        self._stacks: dict[str, GrowingStack] = {}
        self._linked: h5py.Group | None = None
        self._linked_files: dict[str, h5py.File] = {}
        self._uid: h5py.Dataset | None = None
        self._positions: GrowingPositions | None = None
        self._first_of_next = 0
        self._trouble: float | None = None
        self._latest_file: float | None = None
        self._pace: Pace | None = None
        self._ended = self._has_started = False

    def poll(self, timeout: float) -> list[Message]:
        """Return what was added to the file."""
        until, pause = time.monotonic() + timeout, PAUSES[0]
        while True:
            try:
                found = [] if self._ended else self._look()
                self._trouble = None
            except ERRORS as error:
                if isinstance(error, AcquisitionError | FileError):
                    raise
                found = self._note_trouble(error)
            if found or time.monotonic() > until:
                return found
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    def close(self) -> None:
        """Close the file, and those that it leads to."""
        for file in (*self._linked_files.values(), *([self._file] if self._file is not None else [])):
            with contextlib.suppress(*ERRORS):
                file.close()
        self._stacks, self._linked_files, self._file, self._linked = {}, {}, None, None
        self._uid = self._positions = None

    def _note_trouble(self, error: Exception) -> list[Message]:
        """Wait if a file cannot be read; raise an error if it could not for long."""
        now = time.monotonic()
        self._trouble = self._trouble or now
        if now - self._trouble > PATIENCE and (self._has_started or self._is_idle()):
            raise AcquisitionError(
                f"{self._path} cannot be read{' any more' if self._has_started else ''} ({reason(error)}); expected an "
                "HDF5 file that is, or was, written in SWMR mode.",
                code="acquisition.source-lost" if self._has_started else "acquisition.failed",
            ) from None
        if self._file is not None and not self._has_started:
            self.close()
        return []

    def _is_idle(self) -> bool:
        """Return whether nobody seems to write the file; True if it is gone."""
        try:
            return time.time() - self._path.stat().st_mtime > PATIENCE and not is_being_written(self._path)
        except OSError:
            return True

    def _look(self) -> list[Message]:
        if self._file is None:
            return self._open()
        # Asked before the last look: what was written until then is seen.
        if self._in_writing and not is_being_written(self._path):
            # What is seen without opening it again, which takes a while, does not wait for that.
            found = self._news()
            if found:
                return found
            self._reopen()
        over = not self._in_writing and self._has_all_links()
        found = self._news()
        if not found and over:
            self._ended = True
            return [SeriesEnded()]
        return found

    def _has_all_links(self) -> bool:
        """Return whether the data files of a master file are all there, and closed; True for other files."""
        if self._linked is None:
            return True
        return len(_links(self._linked)) == len(self._stacks) and not any(
            is_being_written(Path(file.filename)) for file in self._linked_files.values()
        )

    def _open(self) -> list[Message]:
        if not self._path.is_file() or self._path.stat().st_size == 0:
            return []
        self._in_writing = is_being_written(self._path)
        self._file = self._opened(self._path)
        group = self._find()
        self._open_positions()
        if group is not None:
            self._linked = group
            self._open_linked()
        if not self._stacks:
            if self._in_writing or self._linked is not None:
                self.close()  # the writer is not that far
                return []
            raise AcquisitionError(
                f"{self._path} has no dataset (pattern, y, x) of real numbers; name it: "
                "listen('scan.h5?patterns=entry/data/data').",
                code="acquisition.failed",
            )
        started = self._started()
        self._has_started = True
        return [started]

    def _opened(self, path: Path) -> h5py.File:
        with opened_checked(path) as file:
            check_texts(file)
        # Without a lock, which would keep the writer from opening it.
        return h5py.File(path, "r", libver="latest", swmr=is_being_written(path), locking=False)

    def _reopen(self) -> None:
        """Open a file again that its writer has closed."""
        kept = {name: stack.seen for name, stack in self._stacks.items()}
        sent = self._positions.sent if self._positions is not None else 0
        self.close()
        self._in_writing, self._first_of_next = False, 0
        self._file = self._opened(self._path)
        self._linked = self._find()
        self._open_positions()
        if self._linked is not None:
            self._open_linked()
        for name, stack in self._stacks.items():
            stack.seen |= kept.get(name, set())
        if self._positions is not None:
            self._positions.sent = sent

    def _find(self) -> h5py.Group | None:
        """Find the patterns: note the dataset, or return the group with links to data files."""
        assert self._file is not None
        if self._name is not None:
            found = inside(self._file, self._name, self._path)
            if isinstance(found, h5py.Group) and _links(found):
                return found
            if not isinstance(found, h5py.Dataset):
                if self._in_writing:
                    return None
                raise AcquisitionError(f"{self._path} has no dataset {self._name}.", code="acquisition.failed")
            self._add(self._name, found)
            return None
        groups, stacks = [], []  # type: list[h5py.Group], list[h5py.Dataset]

        def note(name: str, item: Any) -> None:
            if isinstance(item, h5py.Group) and _links(item):
                groups.append(item)
            elif isinstance(item, h5py.Dataset) and item.ndim == 3 and item.dtype.kind in "iuf":
                stacks.append(item)

        self._file.visititems(note)
        if groups:
            return groups[0]
        large = [item for item in stacks if min(item.shape[1:]) >= 4]
        if len(large) > 1:
            named = [item for item in large if item.name.rpartition("/")[2] == "data"]
            large = named if len(named) == 1 else large
        if len(large) > 1:
            raise AcquisitionError(
                f"{self._path} has several datasets of patterns: {', '.join(item.name for item in large[:6])}; name "
                f"one: listen('{self._path.name}?patterns={large[0].name.strip('/')}').",
                code="acquisition.failed",
            )
        if large:
            self._add(large[0].name, large[0])
        return None

    def _add(self, name: str, dataset: h5py.Dataset, first: int = 0, in_writing: bool | None = None) -> None:
        if self._uid_name is not None:
            assert self._file is not None
            uid = inside(self._file, self._uid_name, self._path)
            if not isinstance(uid, h5py.Dataset) or uid.dtype.kind not in "iu" or uid.ndim != 1:
                raise AcquisitionError(
                    f"{self._path} has no dataset {self._uid_name} of whole numbers (pattern,).",
                    code="acquisition.failed",
                )
            self._uid = uid
        in_writing = self._in_writing if in_writing is None else in_writing
        self._stacks[name] = GrowingStack(dataset, first, self._path, in_writing=in_writing, uid=self._uid)

    def _open_linked(self) -> None:
        """Open data files of a master file that have come."""
        assert self._linked is not None
        for name in sorted(_links(self._linked), key=natural_order):
            if name in self._stacks:
                continue
            link = self._linked.get(name, getlink=True)
            target = self._policy.check(self._path.parent / link.filename, f"{self._path} stores {name}")
            if not target.is_file():
                return  # they come in order
            file = self._linked_files.get(name) or self._opened_data(target)
            if file is None:
                return
            if name not in self._linked_files:
                self._note_pace(target)
            self._linked_files[name] = file
            found = inside(file, link.path, target)
            if not isinstance(found, h5py.Dataset) or found.ndim != 3:
                raise AcquisitionError(
                    f"{target} has no patterns (pattern, y, x) at {link.path}.", code="acquisition.failed"
                )
            low = attribute_of(found, "image_nr_low")
            counted = isinstance(low, int | np.integer) and 0 < low < MOST_PATTERNS
            first = int(low) - 1 if counted else self._first_of_next
            self._first_of_next = first + len(found)
            self._add(name, found, first, in_writing=is_being_written(target))

    def _opened_data(self, target: Path) -> h5py.File | None:
        """Open a data file; None if it is still being copied."""
        try:
            return self._opened(target)
        except OSError:
            if time.time() - target.stat().st_mtime > PATIENCE:
                raise
            return None

    def _note_pace(self, target: Path) -> None:
        """Note how long a data file took to come, after the one before or the master file."""
        came = target.stat().st_mtime
        before = self._path.stat().st_mtime if self._latest_file is None else self._latest_file
        self._latest_file = max(came, before)
        self._pace = Pace(TIMES_PACE * max(0.0, came - before))

    def _open_positions(self) -> None:
        if not self._position_names:
            return
        assert self._file is not None
        found = [inside(self._file, name, self._path) for name in self._position_names]
        absent = [n for n, item in zip(self._position_names, found, strict=True) if not isinstance(item, h5py.Dataset)]
        if absent:
            if self._in_writing and not self._has_started:
                raise OSError(f"there is no {absent[0]} yet")
            raise AcquisitionError(f"{self._path} has no dataset {absent[0]}.", code="acquisition.no-positions")
        scales = [factor(units_of(item), "length") or 1.0 for item in found]
        self._positions = GrowingPositions(found, scales, self._path, in_writing=self._in_writing)

    def _started(self) -> SeriesStarted:
        first = next(iter(self._stacks.values()))
        lengths = {name: self._number(places) for name, places in LENGTHS.items()}
        y, x, wavelength = lengths["y"], lengths["x"], lengths["wavelength"]
        return SeriesStarted(
            series=self._path.name,
            count=self._count(),
            shape=first.window,
            dtype=first.dtype,
            wavelength=wavelength,
            detector=self._description(),
            distance=lengths["distance"],
            detector_pixel=None if y is None or x is None else (y, x),
        )

    def _count(self) -> int | None:
        """Return the number of patterns, if the file says so."""
        assert self._file is not None
        if self._linked is not None:
            numbers = [
                self._number((f"{INSTRUMENT}detector/detectorSpecific/{one}",)) for one in ("nimages", "ntrigger")
            ]
            return None if numbers[0] is None else int(numbers[0] * (numbers[1] or 1))
        dataset = next(iter(self._stacks.values())).dataset
        growing = dataset.maxshape[0] is None and self._in_writing
        return None if growing else int(dataset.maxshape[0] or dataset.shape[0])

    def _description(self) -> str:
        assert self._file is not None
        place = f"{INSTRUMENT}detector/description"
        found = inside(self._file, place, self._path) if has(self._file, place) else None
        return text(found)

    def _number(self, places: tuple[str, ...]) -> float | None:
        """Return a positive number (a length in metres) from the first of these datasets in the file itself."""
        assert self._file is not None
        for place in places:
            item = inside(self._file, place, self._path) if has(self._file, place) else None
            if isinstance(item, h5py.Dataset) and item.size == 1 and item.dtype.kind in "iuf":
                scale = factor(units_of(item), "length")
                if scale is None:
                    scale = 1e-10 if "wavelength" in place else 1.0
                return positive(float(np.asarray(item[()]).ravel()[0]) * scale)
        return None

    def _news(self) -> list[Message]:
        found: list[Message] = []
        if self._positions is not None:
            first, values = self._positions.news()
            if len(values):
                found.append(MeasuredPositions(first, values))
        if self._linked is not None:
            self._open_linked()
        if self._pace is not None:
            found.append(self._pace)
            self._pace = None
        for number, packed in self._fresh():
            found.append(Frame(series=self._path.name, number=number, arrival=time.time(), packed=packed))
            if len(found) >= MOST_AT_ONCE:
                break
        return found

    def _fresh(self) -> Iterator[tuple[int, Any]]:
        for stack in self._stacks.values():
            if not stack.is_complete:
                yield from stack.news()


def _links(group: h5py.Group) -> list[str]:
    """Return the names of links to data files in a group of a master file."""
    return [
        name
        for name in names_of(group)
        if DATA_FILE.fullmatch(name) and isinstance(group.get(name, getlink=True), h5py.ExternalLink)
    ]
