"""A writer of one of the layouts of files, in a process of its own: `python -m tests.acquisition.writing PATH ...`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import ptynb as pt
from ptynb.acquisition.emulators.faults import Faults
from ptynb.acquisition.emulators.file_players import SwmrPlayer
from ptynb.acquisition.emulators.playback import Recording, play


@contextlib.contextmanager
def writer(path: Path, written: Path, layout: str, faults: Faults, rate: float = 300.0) -> Iterator[str]:
    """Write the recording at `path` to `written`; yields the address for `ptynb.listen`."""
    words = [str(path), str(written), layout, json.dumps(asdict(faults)), str(rate)]
    process = subprocess.Popen([sys.executable, "-m", "tests.acquisition.writing", *words])
    try:
        yield f"{written}?uid=entry/uid" if layout == "uid" else str(written)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    path, written, layout, faults, rate = sys.argv[1:]
    recording = Recording(pt.load(path))
    play(SwmrPlayer(recording, Path(written), layout), len(recording), float(rate), Faults(**json.loads(faults)))


if __name__ == "__main__":
    main()
