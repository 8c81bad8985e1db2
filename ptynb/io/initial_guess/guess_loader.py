"""`load_initial_guess`: initial guesses from results of ptynb and of other packages."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from ptynb.data.result import Result
from ptynb.data.scan import Scan
from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import open_for_reading
from ptynb.io.initial_guess import (
    cdtools_result,
    nxcxi_result,
    ptychoshelves_result,
    ptypy_result,
    ptyrad_result,
    py4dstem_result,
)
from ptynb.io.initial_guess.apply_guess import apply_guess
from ptynb.io.initial_guess.imported_guess import ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult
from ptynb.io.result_file import is_result, load_result
from ptynb.io.scan_file import FORMAT as SCAN

PACKAGES = (nxcxi_result, ptyrad_result, cdtools_result, ptypy_result, py4dstem_result, ptychoshelves_result)
"""Readers of HDF5 files in the order in which they are tried; the last one accepts the most general names."""
KNOWN = "PtyRAD, PtychoShelves or fold_slice (.mat), ptypy (.ptyr), py4DSTEM, CDTools (.h5), ptynb or its NXcxi_ptycho"


def load_initial_guess(
    scan: Scan,
    result: str | Path | Result,
    *,
    probe: bool = True,
    object: bool = True,
    positions: bool = True,
    resample: bool = False,
) -> Scan:
    """Return the scan with probe, object and positions of another reconstruction as initial guesses.

    Axes, signs and window corners are converted to ptynb's conventions, and the probe is scaled to the measured
    counts. The patterns are not reoriented: a few are modelled, and an `InitialGuessWarning` is issued if they fit no
    better than their mean, or if they would fit mirrored or transposed.

    Parameters
    ----------
    scan : Scan
        Scan that the guesses are for, with patterns oriented as in the other package.
    result : str or Path or Result
        Result, or path of a file of PtyRAD, PtychoShelves or fold_slice (.mat, versions 5 and 7.3), ptypy (.ptyr),
        py4DSTEM, CDTools (.h5) or ptynb, or a result that `ptynb.export` wrote as NXcxi_ptycho (.nxs). The format is
        detected from the content.
    probe, object : bool
        Whether to use the probe and the object.
    positions : bool
        Whether to use the positions. Refined positions belong to their object; with False the scan's own positions
        are shifted as a whole onto the object.
    resample : bool
        Whether probe, object and positions may be interpolated if the object pixels have different sizes.

    Returns
    -------
    Scan
        Copy of the scan with the guesses.

    Raises
    ------
    FileError
        The file is damaged, incomplete, or of another kind ("file.unknown-format").
    ScanError
        The guess does not fit the scan ("guess.count-mismatch", "guess.pixel-size-mismatch", ...).
    """
    guess = _from_result(result) if isinstance(result, Result) else read_guess(result)
    return apply_guess(guess, scan, probe=probe, object=object, positions=positions, resample=resample)


def read_guess(path: str | Path) -> ImportedGuess:
    """Return the guess in a result of ptynb or of another package. Raise FileError."""
    path = Path(path).expanduser()
    content = ""
    if path.is_file() and not h5py.is_hdf5(path):
        with path.open("rb") as file:
            if file.read(128).startswith(ptychoshelves_result.HEADER):
                return ptychoshelves_result.read_version_5(path)
    else:
        with open_for_reading(path) as file:
            if is_result(file):
                return _from_result(load_result(path), path)
            if file.attrs.get("format") == SCAN:
                raise FileError(f"{path} is a ptynb scan, not a result; open it with load.", code="file.unknown-format")
            source = ForeignResult(file, path)
            for package in PACKAGES:
                if package.recognises(source):
                    return package.read(source)
            content = f" (it contains {', '.join(sorted(file)[:8]) or 'nothing'})"
    raise FileError(f"{path} is not a known kind of result{content}; expected {KNOWN}.", code="file.unknown-format")


def _from_result(result: Result, path: Path | None = None) -> ImportedGuess:
    """Return a guess from a result of ptynb, with the first mode of the object. Raise FileError for invalid values."""
    object, notes = result.object, tuple[str, ...]()
    if object.ndim == 4:
        if len(object) > 1:
            notes = (f"Of {len(object)} modes of the object the first was taken.",)
        object = object[0]
    if object.ndim == 3 and len(object) == 1:
        object = object[0]
    thickness = None
    if object.ndim == 3:
        slices, stored = result.settings.get("slices"), result.parameters.get("slices/thickness")
        setting = slices.get("thickness") if isinstance(slices, dict) else None
        if stored is not None and stored.size == 1:
            thickness = float(stored.reshape(-1)[0])
        elif isinstance(setting, int | float):
            thickness = float(setting)
    return ImportedGuess(
        package="ptynb",
        path=path,
        object=object,
        probe=result.probe,
        positions=np.asarray(result.positions, dtype=np.float64),
        pixel_size=result.pixel_size,
        origin=result.origin,
        thickness=thickness,
        notes=notes,
    )
