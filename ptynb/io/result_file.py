"""Result files: the stored record of a reconstruction, in HDF5; `ptynb/result_file.md` describes the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from ptynb.data.result import Result
from ptynb.exceptions import FileError
from ptynb.io.checkpoint_result import checkpoint_result, is_checkpoint
from ptynb.io.hdf5_file import open_for_reading, replacing
from ptynb.io.nxdata_plots import write_plots
from ptynb.io.reading.reading_errors import reading
from ptynb.io.reading.safe_reading import Checked
from ptynb.io.record_mapper import read_record, write_record, write_text

FORMAT = "ptynb result"
VERSION = 3
BACKGROUND = "background/background"
CENTRED = "centred"
"""The zero frequency of a far field is at index n // 2, as in patterns."""


def save_result(result: Result, path: str | Path) -> Path:
    """Write a result to an HDF5 file; an existing file is replaced once the new one is complete.

    Parameters
    ----------
    result : Result
        The result.
    path : str or Path
        File to write.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    FileError
        If the folder does not exist or the file cannot be written ("file.not-writable").
    """
    path = Path(path).expanduser()
    with replacing(path) as file:
        _write_head(file, result)
        write_record(file, result)
        _describe_arrays(file, result)
        for thumbnail in file["moments"].values():
            for one in thumbnail.values():
                one.attrs["axes"] = ["y", "x"]
        write_plots(file["entry"], result)
    return path


def _write_head(file: h5py.File, result: Result) -> None:
    file.attrs.update(
        format=FORMAT,
        version=VERSION,
        NX_class="NXroot",
        default="entry",
        creator=f"ptynb {result.software.ptynb}".strip(),
    )
    entry = file.create_group("entry")
    entry.attrs["NX_class"] = "NXentry"
    note = entry.create_group("comments")
    note.attrs["NX_class"] = "NXnote"
    write_text(note, "type", "text/markdown")


def _describe_arrays(file: h5py.File, result: Result) -> None:
    axes = ("state", "slice", "y", "x")[-result.object.ndim :]
    file["object"].attrs.update(axes=[*axes], long_name="Object", units="", origin_unit="pixel")
    file["probe"].attrs.update(axes=["mode", "y", "x"], long_name="Probe", units="sqrt(counts)")
    file["positions"].attrs.update(axes=["pattern", "yx"], long_name="Top-left corners of the probe", units="pixel")
    if result.pixel_size is not None:
        for name in ("object", "probe"):
            file[name].attrs.update(pixel_size=result.pixel_size, pixel_size_unit="m")
    if BACKGROUND in result.parameters:
        file[f"optimised/{BACKGROUND}"].attrs.update(axes=["y", "x"], units="counts", order=CENTRED)


def load_result(path: str | Path) -> Result:
    """Read a result from a file of this version, or object and probe of a checkpoint.

    Parameters
    ----------
    path : str or Path
        File written by `save_result`, or a checkpoint (``recon.checkpoints[0].path``). The result at a checkpoint has
        an R-factor if one was measured at its epoch, and no other parameters of the model (``pt.resume`` has all).

    Returns
    -------
    Result
        The result. An object of more than 256 MB (2^28 bytes) is a read-only `numpy.memmap` of the file: of it only
        what is used is read. While it is in use, no program may overwrite the file in place: where it has become
        shorter, the system ends the process that reads it (SIGBUS). To replace it by another file, as `save_result`
        does, is safe.

    Raises
    ------
    FileError
        If the file is missing ("file.not-found"), no result ("file.unknown-format"), of another version
        ("file.unsupported-version"), incomplete ("file.incomplete") or damaged ("file.damaged").
    """
    path = Path(path).expanduser()
    if is_checkpoint(path):
        return checkpoint_result(path)
    with reading(path), open_for_reading(path) as file:
        return _read(Checked(file, path))


def _read(source: Checked) -> Result:
    if not is_result(source.file):
        raise FileError(f"{source.path} is not a result of ptynb; open scans with load.", code="file.unknown-format")
    version = source.file.attrs.get("version")
    if version != VERSION:
        raise FileError(
            f"{source.path} is a ptynb result of version {version}; this ptynb reads version {VERSION}. Read it with "
            "the ptynb that wrote it.",
            code="file.unsupported-version",
        )
    return read_record(source, Result, **_arrays(source))


def _arrays(source: Checked) -> dict[str, Any]:
    """Return the values that are in no record."""
    object = source.dataset("object")
    origin = source.numbers(object, "origin", 2)
    pixel = source.numbers(object, "pixel_size", 2) if "pixel_size" in object.attrs else None
    return {
        "object": source.array("object", "c", 2, 3, 4, may_be_large=True),
        "probe": source.array("probe", "c", 3),
        "positions": source.array("positions", "f", 2, last=2),
        "origin": (int(origin[0]), int(origin[1])),
        "pixel_size": None if pixel is None else (pixel[0], pixel[1]),
        "parameters": _datasets(source) if source.has("optimised") else {},
        "r_factor": source.real(source.file, "r_factor"),
    }


def _datasets(source: Checked) -> dict[str, NDArray[Any]]:
    names: list[str] = []

    def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            names.append(name)

    source.group("optimised").visititems(take)
    return {name: source.read(name, source.dataset(f"optimised/{name}")) for name in names}


def is_result(file: h5py.File) -> bool:
    """Return whether this file is a result written by ptynb."""
    return bool(file.attrs.get("format") == FORMAT)
