"""A complete scan, prepared to be reconstructed as it was while it was measured, from the record of that run."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np

from ptynb.data.admissions import Admission, Admissions, RecordedArrivals, with_another
from ptynb.data.arrivals import INDEX_NAME
from ptynb.data.patterns import SelectedFrames
from ptynb.data.scan import Scan
from ptynb.exceptions import SettingsError
from ptynb.io.load import load
from ptynb.io.scan_file import as_planned


def with_recorded_arrivals(scan: Scan, admissions: Admissions) -> Scan:
    """Return a complete scan with the numbers and positions of the plan, whose patterns are admitted as recorded.

    scan: with all planned patterns, or with the admitted ones only, in the order of their numbers.
    Raises SettingsError if it has another number of patterns than either.
    """
    planned, numbers = len(admissions.planned), np.sort(admissions.patterns)
    if len(scan) not in (planned, len(numbers)):
        raise SettingsError(
            f"The scan has {len(scan)} patterns, and the record of the run {planned} planned ones, of which "
            f"{len(numbers)} were used; expected the scan of the run, as one or the other.",
            code="argument.conflict",
        )
    frames = scan.frames
    if len(scan) != planned:
        # Those that never came are never read; the first stands for them.
        index = np.zeros(planned, dtype=np.int64)
        index[numbers] = np.arange(len(numbers))
        frames = SelectedFrames.of(frames, index)
    return dataclasses.replace(
        scan,
        frames=frames,
        positions=admissions.planned,
        motion=None if len(scan) != planned else scan.motion,
        ground_truth=None,
        acquisition=RecordedArrivals(admissions),
    )


def measured_again(path: Path, admissions: Admissions) -> Scan:
    """Return the scan of a run that was interrupted while patterns came, to continue with all that have come since.

    path: of the scan's file. admissions: those before the interruption.
    """
    if (path.parent / INDEX_NAME).exists():
        return as_planned(path)
    scan = load(path)  # the file alone, after the end of the scan
    if admissions.ended or len(scan) != len(admissions.planned):
        return with_recorded_arrivals(scan, admissions)
    rest = np.setdiff1d(np.arange(len(scan)), admissions.patterns)
    times = np.full(len(rest), time.time())
    last = Admission(rest, scan.positions[rest], times, f"all {len(scan)} patterns are in the file")
    return with_recorded_arrivals(scan, with_another(admissions, last, int(admissions.updates[-1])))
