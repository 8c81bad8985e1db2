"""`load`: from a path to a scan, by the file's content."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
from numpy.typing import ArrayLike

from ptynb.data.scan import Scan
from ptynb.exceptions import FileError, PtynbWarning
from ptynb.io.formats import cxi, emd, empad, matlab, nexus, npy, plain_hdf5, ptyd, rosettasciio, seq, tiff, zarr_store
from ptynb.io.hdf5_file import open_for_reading, reason
from ptynb.io.reading.records import FileRecord, Format, Given, Head, pairs
from ptynb.io.reading.sanity_checks import look_at
from ptynb.io.reading.scan_assembly import assemble
from ptynb.io.result_file import is_result
from ptynb.io.scan_file import is_native, read_scan
from ptynb.io.scan_identity import opened

FORMATS: tuple[Format, ...] = (
    nexus.FORMAT,
    cxi.FORMAT,
    ptyd.FORMAT,
    emd.FORMAT,
    empad.FORMAT,
    matlab.FORMAT,
    npy.NPY,
    npy.NPZ,
    zarr_store.FORMAT,
    tiff.FORMAT,
    seq.FORMAT,
    rosettasciio.FORMAT,
    plain_hdf5.FORMAT,  # takes any HDF5: after all others
)
"""What can be read, in the order in which a file is asked: the first that recognises it reads it."""
DAMAGED = (OSError, RuntimeError, KeyError, ValueError)
"""What h5py raises wherever it meets something in a file that can't be."""
START = 4096
"""Bytes of a file by which it is recognised."""


def load(
    path: str | Path,
    *,
    patterns: str | None = None,
    positions: str | Path | ArrayLike | None = None,
    mask: str | Path | ArrayLike | None = None,
    units: str = "metres",
    raster: tuple[int, int] | None = None,
    step: float | tuple[float, float] | None = None,
    rotation: float | None = None,
    wavelength: float | None = None,
    energy: float | None = None,
    voltage: float | None = None,
    distance: float | None = None,
    detector_pixel: float | tuple[float, float] | None = None,
    angular_pixel: float | tuple[float, float] | None = None,
    clip_negative: bool = False,
    links: str = "folder",
) -> Scan:
    """Opens a scan of any format that it recognises, by content. Reads metadata now and patterns when they are needed.

    What the file lacks or has wrong can be given:

    patterns: name of the dataset of the patterns in a file that has several ("entry/data/data").
    positions: (pattern, yx) of the probe on the sample, in `units` ("metres", or "pixels" of the object): an array, the
        name of a dataset of the file, or a file (.npy, or text in columns).
    mask: (y, x), True where the detector works: an array, a dataset's name, or a file (of `save_mask`, .npy or text).
    raster, step: rows and columns of a scan line by line, and its steps (y, x) [m].
    rotation: of the scan against the detector, from x towards y [rad].
    wavelength [m], or energy of photons [eV], or voltage of electrons [V].
    distance to the detector [m] and detector_pixel (y, x) [m]; or angular_pixel (y, x) [rad], a detector pixel as it is
        seen from the sample. One number of step, detector_pixel or angular_pixel stands for y and x.
    clip_negative: negative counts become 0 (else they are an error).
    links: other files that the file names, by links of HDF5, symbolic links in a folder or names in its metadata, may
        lie in the "folder" of the file (a zarr store or a folder of pictures is its own) and below it, or "anywhere".

    Raises FileError or ScanError, both ValueErrors, that say what was found, what was expected and what to do. The
    first and the last pattern are looked at now, the others when an engine reads them. A PtynbWarning says where
    patterns are unpacked into much memory, where they seem to be empty, and where they are far larger than their file.
    """
    path = Path(path).expanduser()
    given = Given(
        patterns=patterns,
        positions=positions,
        mask=mask,
        units=units,
        rotation=rotation,
        wavelength=wavelength,
        energy=energy,
        voltage=voltage,
        distance=distance,
        clip_negative=clip_negative,
        links=links,
        **pairs(raster=raster, step=step, detector_pixel=detector_pixel, angular_pixel=angular_pixel),
    )
    with looked_at(path) as head:
        native = head.file is not None and is_native(head.file)
    if not native:
        scan = assemble(find(path, given), given, path)
    elif given.names:
        raise FileError(f"{path} is a ptynb scan and knows its own geometry; leave out {', '.join(given.names)}.")
    else:
        scan = read_scan(path)
    for sentence in look_at(scan):
        warnings.warn(f"{path}: {sentence}", PtynbWarning, stacklevel=2)
    return replace(scan, loaded=opened(path, given, scan))


def find(path: Path, given: Given) -> FileRecord:
    """What a file says, as the format reads it that recognises it. Raises FileError where none does."""
    try:
        with looked_at(path) as head:
            chosen = None if is_ours(head) else next((kind for kind in FORMATS if kind.recognises(head)), None)
            if chosen is None:
                raise FileError(_unknown(head))
        return chosen.read(path, given)
    except FileError:
        raise
    except DAMAGED as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> FileError:
    return FileError(f"{path} is damaged ({reason(error)}); copy it again from where it was made.")


def is_ours(head: Head) -> bool:
    """Whether ptynb wrote this HDF5 file: a result or a state may look like what it was made from."""
    return head.file is not None and str(head.file.attrs.get("format", "")).startswith("ptynb")


@contextmanager
def looked_at(path: Path) -> Iterator[Head]:
    """What a file is recognised by. Raises FileError where there is none, or one that is broken from the start."""
    if not path.exists():
        raise FileError(f"There is no file {path}. Working folder: {Path.cwd()}.")
    start = b""
    if path.is_file():
        with path.open("rb") as opened:
            start = opened.read(START)
    # HDF5 may begin after a block of the user's, as version 7.3 of .mat does.
    if path.is_file() and h5py.is_hdf5(path):
        with open_for_reading(path) as file:
            try:
                yield Head(path, start, file)
            except FileError:
                raise
            except DAMAGED as error:
                raise _damaged(path, error) from None
    else:
        yield Head(path, start, None)


def _unknown(head: Head) -> str:
    if head.file is None:
        kind = "a folder" if head.path.is_dir() else "not a readable HDF5 file, and of no other format that is known"
        return f"{head.path} is {kind}; expected a scan: {', '.join(kind.name for kind in FORMATS)}, or ptynb's own."
    if is_result(head.file):
        return f"{head.path} is a result of ptynb, not a scan; open it with load_result."
    return f"{head.path} was written by ptynb ({head.file.attrs.get('format')}), and is no scan."
