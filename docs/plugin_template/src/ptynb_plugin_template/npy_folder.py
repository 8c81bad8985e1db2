"""A live source: a folder into which a detector writes one .npy file for each pattern."""

import time
from pathlib import Path

import numpy as np

from ptynb.plugin_api import Address, Frame, LiveSource, Message, Packed, SeriesEnded, SeriesStarted, SourceKind

INTERVAL = 0.05
"""Time between two looks into the folder [s]."""


class NpyFolder(LiveSource):
    """Patterns 000000.npy, 000001.npy, ..., and a file "end" after the last one."""

    def __init__(self, address: Address) -> None:
        self.folder, self.series, self.next, self.ended = Path("/", address.place), address.place, 0, False

    def poll(self, timeout: float) -> list[Message]:
        """Return what has come; wait up to `timeout` seconds."""
        last = time.monotonic() + timeout
        while not (found := self._look()) and time.monotonic() < last:
            time.sleep(INTERVAL)
        return found

    def _look(self) -> list[Message]:
        found: list[Message] = []
        ended = (self.folder / "end").exists()  # looked at first: then all patterns are there
        while (file := self.folder / f"{self.next:06}.npy").exists():
            counts = np.load(file, allow_pickle=False)
            packed = Packed(counts.tobytes(), counts.shape, counts.dtype)
            if self.next == 0:
                found.append(SeriesStarted(series=self.series, shape=packed.shape, dtype=packed.dtype))
            found.append(Frame(series=self.series, number=self.next, arrival=time.time(), packed=packed))
            self.next += 1
        if ended and not self.ended:
            self.ended = True
            found.append(SeriesEnded(series=self.series, expected=self.next))
        return found

    def close(self) -> None:
        """Close nothing: no file stays open."""


KIND = SourceKind(
    role="source",
    title="a folder of .npy files, one for each pattern",
    example="npy+folder:///tmp/scan",
    opens="ptynb_plugin_template.npy_folder:NpyFolder",
    emulators={},
)
