"""The first pictures of a scan as initial guesses of a reconstruction: positions, probe and object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ptynb.data.scan import Scan
from ptynb.preparation.field_resampling import cut
from ptynb.preparation.rotation_fit import ScanRotation
from ptynb.preparation.shared_transforms import carried_truth, middle_of, pixel_of

Array = NDArray[np.float64]
MARGIN = 2
"""Margin of the object around the windows [object pixels]."""


def guessed(
    scan: Scan,
    correction: ScanRotation | None,
    lens: tuple[float, Mapping[str, float | Sequence[float]]] | None,
    picture: tuple[Array, Array, Array] | None,
) -> Scan:
    """Return the scan with corrected positions, the probe of a lens, and an object with the phase of a picture.

    lens: convergence angle [rad] and aberrations. picture: the phase (y, x) [rad], NaN where it is unknown, and the
    coordinates of its rows and columns, those of the centre of the probe in the scan as it is [m, or object pixels].
    """
    changed = scan if correction is None or not correction.needed else correction.apply(scan)
    if lens is not None:
        changed = changed.with_probe(convergence_angle=lens[0], aberrations=lens[1])
    return changed if picture is None else _with_object(scan, changed, *picture)


def _with_object(scan: Scan, changed: Scan, phase: Array, rows: Array, columns: Array) -> Scan:
    frame = dataclasses.replace(changed, object=None).object_frame(MARGIN)
    # The correction of the positions is affine: its inverse is exact by least squares.
    design = np.column_stack([changed.positions, np.ones(len(scan))])
    back = np.linalg.lstsq(design, scan.positions, rcond=None)[0]
    inner = np.stack(np.meshgrid(*map(np.arange, frame.shape), indexing="ij"), -1) + frame.origin
    places = (inner - middle_of(scan)) @ back[:2] + back[2] + middle_of(scan)
    if scan.geometry is not None:
        places = places * pixel_of(scan)
    first, step = (rows[0], columns[0]), (rows[1] - rows[0], columns[1] - columns[0])
    known = np.nan_to_num(phase)
    on_object = ndimage.map_coordinates(known, np.moveaxis((places - first) / step, -1, 0), order=3, mode="constant")
    truth = carried_truth(changed.ground_truth, object=lambda one: cut(one - 1, frame.origin, frame.shape) + 1)
    return dataclasses.replace(
        changed, positions=changed.positions - frame.origin, object=np.exp(1j * on_object), ground_truth=truth
    )
