"""The process that reads damaged files with limited memory, one line in, one out. `python -m tests.fuzz.worker`."""

from __future__ import annotations

import json
import resource
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ptynb.data.geometry import Geometry
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError
from ptynb.io.checkpoint_file import load_state
from ptynb.io.initial_guess.guess_loader import load_initial_guess
from ptynb.io.load import load
from ptynb.io.mask_file import load_mask
from ptynb.io.reading.checkpoint_object import load_object
from ptynb.io.result_file import load_result
from ptynb.settings.run_files.run_file import read_run
from ptynb.settings.settings import Settings
from tests.fuzz import messages

ROOM = 3 * 2**30
"""Bytes of address space that reading damaged files may take in addition to those at the start.

Libraries that are loaded on the way, and their threads, take about one of the three; no file here needs a megabyte.
"""
LONGEST = 1500
"""Upper limit of the characters of an error message, paths included."""


def _load(path: Path, given: dict[str, Any]) -> None:
    scan = load(path, **given)
    repr(scan)
    # As an engine does next; a bad pattern raises ScanError here too.
    scan.counts(0, min(len(scan), 3))


def _guess(path: Path, given: dict[str, Any]) -> None:
    rows, columns = np.indices((3, 7)).reshape(2, -1)
    scan = Scan(
        frames=ArrayFrames.of(np.ones((21, 8, 8), np.float32)),
        positions=np.column_stack([rows * 5.0, columns * 4.0]),
        geometry=Geometry(wavelength=1.5e-10, distance=1.2, detector_pixel=(1.5e-10 * 1.2 / (8 * 4e-8),) * 2),
    )
    repr(load_initial_guess(scan, path))


READERS: dict[str, Callable[[Path, dict[str, Any]], object]] = {
    "load": _load,
    "guess": _guess,
    "mask": lambda path, _: load_mask(path),
    "result": lambda path, _: repr(load_result(path)),
    "state": lambda path, _: load_object(path, load_state(path, with_object=False)),
    "settings": lambda path, _: Settings.from_yaml(path),
    "run file": lambda path, _: read_run(path),
    "messages": messages.parse,
    "follow": messages.follow,
}


def answer(reader: str, path: Path, given: dict[str, Any]) -> str:
    """ "read", "refused", or what is wrong with the answer."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            READERS[reader](path, given)
    except PtynbError as error:
        if error.code == "file.reader-failed":
            return traceback.format_exc()
        words = str(error)
        if "\n" in words or len(words) > LONGEST or not words.strip():
            return f"not an error of one line: {words!r}"
        return "refused"
    except BaseException:  # noqa: BLE001 - any other error is a finding
        return traceback.format_exc()
    return "read"


def main() -> None:
    """Answer lines of JSON."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in case["given"].items()}
        print(json.dumps(answer(case["reader"], Path(case["path"]), given)), flush=True)


if __name__ == "__main__":
    main()
