"""Results of ptypy (.ptyr, `save_run` of kind "minimal" or "dls"; https://github.com/ptycho/ptypy, version 0.9).

    content/probe/<ID>/data             complex (mode, y, x), centred
    content/obj/<ID>/data               complex (mode, y, x)
    content/obj/<ID>/_psize, _origin    (yx) [m]: the pixel, and where pixel (0, 0) lies
    content/positions/<ID>              (pattern, yx) [m] of the windows' centres, kept where `record_positions` is set

A window reaches from its centre's pixel minus n // 2. ptypy multiplies exit waves by exp(iπ r² / (λ z)) on their way to
the far field, which ptynb leaves with the probe. It rounds positions to whole pixels; ptynb takes them as they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import has, inside
from ptynb.io.initial_guess.imported_guess import Start
from ptynb.io.initial_guess.result_arrays import array, as_complex, as_places, first

PROBE, OBJECT, POSITIONS = "content/probe", "content/obj", "content/positions"


def recognises(file: h5py.File) -> bool:
    """Whether ptypy wrote this file as a result."""
    return has(file, PROBE, OBJECT)


def read(file: h5py.File, path: Path) -> Start:
    """What ptypy found. Raises FileError."""
    remarks = []
    probe = array(file, f"{_only(file, PROBE, path)}/data", path, (3,))
    storage = _only(file, OBJECT, path)
    object = array(file, f"{storage}/data", path, (3,))
    if len(object) > 1:
        remarks.append(f"Of {len(object)} modes of the object the first was taken.")
    pixel = _pair(file, f"{storage}/_psize", path)
    if min(pixel) <= 0:
        raise FileError(f"{path} has a pixel size (_psize) of {pixel.tolist()} m; expected two positive lengths.")
    positions = None
    places = f"{POSITIONS}/{storage.rpartition('/')[2]}"
    if has(file, places):
        centres = as_places(array(file, places, path, (2,)), places, path)
        positions = (centres - _pair(file, f"{storage}/_origin", path)) / pixel - np.array(probe.shape[-2:]) // 2
    else:
        remarks.append("The file has no positions; ptypy keeps them where record_positions is True.")
    return Start(
        package="ptypy",
        path=path,
        object=as_complex(first(object, "the object", path), "the object", path),
        probe=as_complex(probe, "the probe", path),
        positions=positions,
        pixel_size=(float(pixel[0]), float(pixel[1])),
        curved=True,
        notes=tuple(remarks),
    )


def _only(file: h5py.File, name: str, path: Path) -> str:
    """The name of the one storage of a container."""
    container = inside(file, name, path)
    names = list(container) if isinstance(container, h5py.Group) else []
    if len(names) != 1:
        raise FileError(
            f"{path} (ptypy) has {len(names)} storages in {name} ({', '.join(names[:5])}); expected one: "
            "a result of several scans or probes can't be a start for one."
        )
    return f"{name}/{names[0]}"


def _pair(file: h5py.File, name: str, path: Path) -> NDArray[Any]:
    values = array(file, name, path, (0, 1))
    if values.dtype.kind == "c" or values.size not in (1, 2) or not np.isfinite(values).all():
        raise FileError(f"{path} has {name} of shape {values.shape}; expected two finite numbers (y, x) [m].")
    return np.broadcast_to(values.astype(np.float64).reshape(-1), (2,))
