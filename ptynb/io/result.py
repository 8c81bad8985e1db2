"""Result files: everything worth keeping of a reconstruction, in HDF5.

/                 attributes: format = "ptynb result", version = 1, r_factor, settings (JSON), about (JSON)
/object           complex (y, x), (slice, y, x) or (state, slice, y, x); attributes: pixel_size (y, x) [m] where known,
                  origin (y, x) [pixels]
/probe            complex (mode, y, x) [square root of counts]
/positions        (pattern, yx) float64 [pixels of /object]
/optimised/*/*    what else was found, by part and name (optional)
/epochs           one row an epoch: number, loss, seconds, patterns_per_second
/changes          JSON: what was changed while it ran
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.io.hdf5 import FileError, attribute, dataset, open_for_reading, replacing
from ptynb.snapshot import Change, Epoch, Result, as_plain

FORMAT = "ptynb result"
VERSION = 1
EPOCH_FIELDS = ("loss", "seconds", "patterns_per_second")
EPOCH_TYPE = np.dtype([("number", "i8"), *((name, "f8") for name in EPOCH_FIELDS)])


def save_result(result: Result, path: str | Path) -> Path:
    """Writes the result; an existing file is replaced only once the new one is whole."""
    path = Path(path).expanduser()
    with replacing(path) as file:
        file.attrs.update(
            format=FORMAT,
            version=VERSION,
            r_factor=result.r_factor,
            settings=json.dumps(result.settings),
            about=json.dumps(result.about),
        )
        file["object"] = result.object
        file["object"].attrs["origin"] = result.origin
        if result.pixel_size is not None:
            file["object"].attrs["pixel_size"] = result.pixel_size
            file["object"].attrs["pixel_size_unit"] = "m"
        file["probe"] = result.probe
        file["positions"] = result.positions
        for name, values in result.optimised.items():
            file[f"optimised/{name}"] = values
        rows = [(e.number, e.loss, e.seconds, e.patterns_per_second) for e in result.epochs]
        file["epochs"] = np.array(rows, dtype=EPOCH_TYPE)
        file["changes"] = json.dumps([as_plain(change) for change in result.changes])
    return path


def load_result(path: str | Path) -> Result:
    """The result in a file that `save_result` wrote. Raises FileError where it is not one."""
    path = Path(path).expanduser()
    with open_for_reading(path) as file:
        if not is_result(file):
            raise FileError(f"{path} is not a result of ptynb; scans are opened with load.")
        if file.attrs.get("version") != VERSION:
            raise FileError(
                f"{path} is a ptynb result of version {file.attrs.get('version')}; "
                f"this ptynb reads version {VERSION}. Update ptynb."
            )
        stored = dataset(file, "object", path)
        origin, pixel = attribute(stored, "origin", path), stored.attrs.get("pixel_size")
        return Result(
            object=stored[()],
            probe=dataset(file, "probe", path)[()],
            positions=dataset(file, "positions", path)[()],
            origin=(int(origin[0]), int(origin[1])),
            pixel_size=None if pixel is None else (float(pixel[0]), float(pixel[1])),
            epochs=tuple(
                Epoch(int(row["number"]), *(float(row[name]) for name in EPOCH_FIELDS))
                for row in dataset(file, "epochs", path)[()]
            ),
            r_factor=float(attribute(file, "r_factor", path)),
            settings=json.loads(attribute(file, "settings", path)),
            changes=tuple(Change(**change) for change in json.loads(dataset(file, "changes", path)[()])),
            about=json.loads(attribute(file, "about", path)),
            optimised=_datasets(file["optimised"]) if "optimised" in file else {},
        )


def _datasets(group: h5py.Group) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}

    def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    group.visititems(take)
    return found


def is_result(file: h5py.File) -> bool:
    """Whether ptynb wrote this file as a result."""
    return bool(file.attrs.get("format") == FORMAT)
