"""Ptychographic reconstructions saved by py4DSTEM (EMD 1.0, version 0.14; https://github.com/py4dstem/py4DSTEM).

    <root>/<name>/_object_emd/data                  complex, or a potential [rad]: (y, x) or (slice, y, x)
    <root>/<name>/_probe_emd/data                   complex (y, x) or (mode, y, x), its centre at index (0, 0)
    <root>/<name>/metadatabundle/preprocess_metadata/
        positions_px                                (pattern, yx) of the windows' centres [object pixels]
        sampling                                    (yx) [Å];   data_transpose: whether patterns were transposed
    .../instantiation_metadata/object_type, slice_thicknesses [Å]

Axes x and y of py4DSTEM are rows and columns of ptynb. Windows begin at the centre minus n // 2; the far field is
F[P·O]. Patterns are first shifted to their common centre of mass and divided by their mean.
"""

from __future__ import annotations

import h5py
import numpy as np

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import has, names_of
from ptynb.io.initial_guess.imported_guess import ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult, as_complex

ANGSTROM = 1e-10
OBJECT, PROBE = "_object_emd/data", "_probe_emd/data"
PREPROCESS = "metadatabundle/preprocess_metadata"


def recognises(source: ForeignResult) -> bool:
    """Return whether py4DSTEM wrote this file, with a ptychographic reconstruction in it."""
    return bool(_reconstructions(source.file))


def read(source: ForeignResult) -> ImportedGuess:
    """Return the guess in a result of py4DSTEM. Raise FileError."""
    path, names = source.path, _reconstructions(source.file)
    if len(names) != 1:
        raise FileError(
            f"{path} has {len(names)} reconstructions ({', '.join(names)}); expected a file with one.",
            code="file.unsupported-content",
        )
    metadata = f"{names[0]}/{PREPROCESS}"
    object = source.array(f"{names[0]}/{OBJECT}", 2, 3)
    if object.dtype.kind != "c":
        object = np.exp(1j * object.astype(np.float64))
    probe = source.array(f"{names[0]}/{PROBE}", 2, 3)
    probe = np.fft.fftshift(probe if probe.ndim == 3 else probe[None], axes=(-2, -1))
    positions = source.reals(f"{metadata}/positions_px", ("pattern", 2)) - np.array(probe.shape[-2:]) // 2
    pixel = None
    if source.has(f"{metadata}/sampling"):
        height, width = source.reals(f"{metadata}/sampling", (2,)) * ANGSTROM
        pixel = float(height), float(width)
    if source.number(f"{metadata}/data_transpose"):
        object, probe = np.swapaxes(object, -1, -2), np.swapaxes(probe, -1, -2)
        positions, pixel = positions[:, ::-1].copy(), pixel and pixel[::-1]
    thickness, name = None, f"{names[0]}/metadatabundle/instantiation_metadata/slice_thicknesses"
    if object.ndim == 3 and source.has(name):
        values = source.reals(name, (), ("slice",)).reshape(-1)
        if not np.allclose(values, values[0]):
            raise FileError(
                f"{path} has slices of unequal thickness {values[:6].tolist()} Å; ptynb supports equal ones only.",
                code="file.unsupported-content",
            )
        thickness = float(values[0]) * ANGSTROM
    return ImportedGuess(
        package="py4DSTEM",
        path=path,
        object=as_complex(object),
        probe=as_complex(probe),
        positions=positions,
        pixel_size=pixel,
        thickness=thickness,
    )


def _reconstructions(file: h5py.File) -> list[str]:
    """Return names of groups on the second level (root/name) that contain an object, a probe and their metadata."""
    found = []
    for root in names_of(file):
        group = file.get(root) if isinstance(file.get(root, getlink=True), h5py.HardLink) else None
        if not isinstance(group, h5py.Group):
            continue
        for name in names_of(group):
            one = group.get(name) if isinstance(group.get(name, getlink=True), h5py.HardLink) else None
            if isinstance(one, h5py.Group) and has(one, OBJECT, PROBE, PREPROCESS):
                found.append(f"{root}/{name}")
    return found
