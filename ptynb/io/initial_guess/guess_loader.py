"""`load_initial_guess`: first guesses out of a result, whoever made it."""

from __future__ import annotations

from pathlib import Path

import h5py

from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import open_for_reading
from ptynb.io.initial_guess import cdtools_result, ptychoshelves_result, ptypy_result, ptyrad_result, py4dstem_result
from ptynb.io.initial_guess.apply import onto
from ptynb.io.initial_guess.imported_guess import Start
from ptynb.io.initial_guess.ptynb_result import start_of
from ptynb.io.result_file import is_result, load_result
from ptynb.io.scan_file import is_native

PACKAGES = (ptyrad_result, cdtools_result, ptypy_result, py4dstem_result, ptychoshelves_result)
"""Whose HDF5 can be read, in the order in which a file is asked; the last has the most common names."""
KNOWN = "PtyRAD, PtychoShelves or fold_slice (.mat), ptypy (.ptyr), py4DSTEM, CDTools (.h5) or ptynb"


def load_initial_guess(
    scan: Scan,
    result: str | Path | Result,
    *,
    probe: bool = True,
    object: bool = True,
    positions: bool = True,
    resample: bool = False,
) -> Scan:
    """The scan with another reconstruction's probe, object and positions as its first guesses.

    result: a file of PtyRAD, PtychoShelves or fold_slice (.mat, versions 5 and 7.3), ptypy (.ptyr), py4DSTEM, CDTools
        (.h5) or ptynb, told apart by what is in it; or a `Result`.
    probe, object, positions: which of them to take. Refined positions belong to their object, so they are taken
        unless told otherwise; with False the scan's own are put on the object as a whole.
    resample: whether probe, object and positions may be interpolated where the package's object pixel is another.

    Axes, signs and corners are turned into ptynb's conventions, and the probe is scaled to the measured counts. The
    patterns have to lie as the package saw them: a few are modelled, and an InitialGuessWarning says where they fit no
    better than their mean, or would fit if they were mirrored or transposed. Nothing is turned round silently.

    Raises FileError for a file that is none of these or is broken, and ScanError where it does not fit the scan.
    """
    start = start_of(result) if isinstance(result, Result) else read_start(result)
    return onto(start, scan, probe=probe, object=object, positions=positions, resample=resample)


def read_start(path: str | Path) -> Start:
    """What a file of another package, or of ptynb, found. Raises FileError."""
    path = Path(path).expanduser()
    if path.is_file() and not h5py.is_hdf5(path):
        with path.open("rb") as file:
            beginning = file.read(128)
        if beginning.startswith(ptychoshelves_result.HEADER):
            return ptychoshelves_result.read_version_5(path)
        raise FileError(f"{path} is no result that is known; expected one of {KNOWN}.")
    with open_for_reading(path) as file:
        if is_result(file):
            return start_of(load_result(path), path)
        if is_native(file):
            raise FileError(f"{path} is a ptynb scan, not a result; open it with load.")
        package = next((package for package in PACKAGES if package.recognises(file)), None)
        if package is not None:
            return package.read(file, path)
        held = ", ".join(sorted(file)[:8]) or "nothing"
    raise FileError(f"{path} is no result that is known (it holds {held}); expected one of {KNOWN}.")
