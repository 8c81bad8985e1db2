"""Results of ptypy (.ptyr, `save_run` of kind "minimal" or "dls"; https://github.com/ptycho/ptypy, version 0.9).

    content/probe/<ID>/data             complex (mode, y, x), centred
    content/obj/<ID>/data               complex (mode, y, x)
    content/obj/<ID>/_psize, _origin    (yx) [m]: pixel size, and coordinates of pixel (0, 0)
    content/positions/<ID>              (pattern, yx) [m] of the windows' centres, stored with `record_positions`

A window begins at the pixel of its centre minus n // 2. ptypy multiplies exit waves by exp(iπ r² / (λ z)) before the
far field; in ptynb this phase is part of the probe. ptypy rounds positions to whole pixels; ptynb does not.
"""

from __future__ import annotations

import h5py
import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import inside
from ptynb.io.initial_guess.imported_guess import ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult, as_complex

PROBE, OBJECT = "content/probe", "content/obj"
PAIR = (), (1,), (2,)
"""Shapes of a pair (y, x), or of one number for both."""


def recognises(source: ForeignResult) -> bool:
    """Return whether ptypy wrote this file as a result."""
    return source.has(PROBE, OBJECT)


def read(source: ForeignResult) -> ImportedGuess:
    """Return the guess in a result of ptypy. Raise FileError."""
    path, notes, storages = source.path, [], []
    for name in (PROBE, OBJECT):
        container = inside(source.file, name, path)
        names = list(container) if isinstance(container, h5py.Group) else []
        if len(names) != 1:
            raise FileError(
                f"{path} (ptypy) has {len(names)} storages in {name} ({', '.join(names[:5])}); expected one: results "
                "of several scans or probes are not supported as initial guess of one scan.",
                code="file.unsupported-content",
            )
        storages.append(f"{name}/{names[0]}")
    probe = source.array(f"{storages[0]}/data", 3)
    object = source.array(f"{storages[1]}/data", 3)
    if len(object) > 1:
        notes.append(f"Of {len(object)} modes of the object the first was taken.")
    pixel = np.broadcast_to(source.reals(f"{storages[1]}/_psize", *PAIR), (2,))
    if min(pixel) <= 0:
        raise FileError(
            f"{path} has a pixel size (_psize) of {pixel.tolist()} m; expected two positive lengths.",
            code="file.unexpected-content",
        )
    positions = None
    places = f"content/positions/{storages[1].rpartition('/')[2]}"
    if source.has(places):
        centres = source.reals(places, ("pattern", 2))
        origin = source.reals(f"{storages[1]}/_origin", *PAIR)
        positions = (centres - origin) / pixel - np.array(probe.shape[-2:]) // 2
    else:
        notes.append("The file has no positions; ptypy stores them if record_positions is True.")
    return ImportedGuess(
        package="ptypy",
        path=path,
        object=as_complex(object[0]),
        probe=as_complex(probe),
        positions=positions,
        pixel_size=(float(pixel[0]), float(pixel[1])),
        curved=True,
        notes=tuple(notes),
    )
