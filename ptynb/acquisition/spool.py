"""Spool: the scan's file and its index, to which a receiver writes patterns as they come.

The file is a scan of ptynb from the first moment, with the patterns that have not come unwritten (a sparse file). Each
pattern is written at its own place without a buffer, then noted in the index, so that engines read it with the usual
`HDF5Frames`; HDF5 itself is not used meanwhile. At the end states, positions and times are written into the file.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptynb.acquisition.complete_plan import CompletePlan
from ptynb.acquisition.plan import Plan
from ptynb.data.arrivals import INDEX_NAME, SCAN_NAME, Acquisition, ArrivalIndex
from ptynb.data.patterns import AbsentFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import AcquisitionError
from ptynb.io.scan_file import REASON_BYTES, write_acquired_scan
from ptynb.table import gigabytes

FLUSH_BEAT = 0.25
"""Time between signs of life while the disk is waited for [s]."""
SPARE = 2**28
"""Bytes that have to be free on the disk beside those of the patterns."""


class Spool:
    """The folder of one scan, created for a complete plan and the type of the counts."""

    def __init__(self, folder: Path, plan: Plan, complete: CompletePlan, dtype: np.dtype[Any], source: str) -> None:
        shape = (complete.count, *complete.window)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        free = shutil.disk_usage(folder).free
        if nbytes + SPARE > free:
            raise AcquisitionError(
                f"{folder} has {gigabytes(free)} free; {complete.count} patterns of {shape[1]} x {shape[2]} pixels "
                f"take {gigabytes(nbytes)}. Choose another folder=, or a smaller window=.",
                code="acquisition.failed",
            )
        scan = Scan(
            frames=AbsentFrames(shape, dtype.str),
            positions=complete.positions,
            mask=complete.mask,
            probe=None if plan.probe is None else np.asarray(plan.probe, dtype=np.complex128),
            object=None if plan.object is None else np.asarray(plan.object, dtype=np.complex128),
            geometry=complete.geometry,
            clip_negative=plan.clip_negative,
            name=plan.name,
        )
        acquisition = Acquisition(folder, complete.count, complete.start_after, plan.positions is not None)
        self.path = folder / SCAN_NAME
        self._places = write_acquired_scan(self.path, scan, acquisition, source=source, series=complete.series)
        self._size = nbytes // complete.count
        self._dtype, self._window = dtype, complete.window
        self._file = self.path.open("r+b", buffering=0)
        try:
            self.index = ArrivalIndex.create(
                folder / INDEX_NAME,
                complete.count,
                series=complete.series,
                positions=complete.positions if complete.planned else None,
            )
        except BaseException:
            self.close()
            self.path.unlink()
            raise

    def write(self, number: int, counts: NDArray[Any], arrival: float) -> None:
        """Write a pattern (y, x) that has not come before, and note it in the index."""
        raw = np.ascontiguousarray(counts, dtype=self._dtype).reshape(-1).view(np.uint8).data
        self._put(raw, self._places["patterns"] + number * self._size)
        self.index.frame(number, arrival)

    def is_same(self, number: int, counts: NDArray[Any]) -> bool:
        """Return whether a pattern that has come equals this one (y, x)."""
        self._file.seek(self._places["patterns"] + number * self._size)
        return self._file.read(self._size) == np.ascontiguousarray(counts, dtype=self._dtype).tobytes()

    def finish(self, reason: str) -> None:
        """Write into the file what has come and why it has ended, and say so in the index.

        On a full disk the index alone says it, from which `load` reads it then.
        """
        index = self.index
        try:
            self._put(index.states(), self._places["arrived"])
            self._put(index.positions(), self._places["positions"])
            self._put(index.arrival_times(), self._places["times"])
            self._flush()  # what is there is on the disk before the file says that it is whole
            text = reason.encode()[: REASON_BYTES - 1].decode(errors="ignore").encode()
            self._put(np.frombuffer(text.ljust(REASON_BYTES, b"\0"), np.uint8), self._places["ended"])
            self._flush()
        finally:
            index.beat()
            index.end(reason)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _put(self, values: Any, place: int) -> None:
        raw = memoryview(values).cast("B")
        try:
            self._file.seek(place)
            while len(raw):
                raw = raw[self._file.write(raw) :]
        except OSError as error:
            raise self._not_written(error) from None

    def _flush(self) -> None:
        """Have everything on the disk. A slow one takes longer for a scan than a receiver may give no sign of life."""
        with ThreadPoolExecutor(1, "ptynb flush") as pool:
            flushed = pool.submit(os.fsync, self._file.fileno())
            while wait([flushed], FLUSH_BEAT).not_done:
                self.index.beat()
        if (error := flushed.exception()) is not None:
            raise self._not_written(error) from None

    def _not_written(self, error: BaseException) -> AcquisitionError:
        return AcquisitionError(
            f"{self.path} cannot be written ({getattr(error, 'strerror', None) or error}); what came before is kept.",
            code="acquisition.failed",
        )
