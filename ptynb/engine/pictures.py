"""What a screen wants to see, made on the engine so that little has to travel."""

from __future__ import annotations

import numpy as np

from ptynb import render
from ptynb.snapshot import Array, PictureRequest, Pictures, Snapshot


def make_snapshot(object: Array, probe: Array, epoch: int, update: int, size: int) -> Snapshot:
    """A preview whose object has at most `size` pixels a side."""
    reduction = render.reduction_for(object.shape, size)
    return Snapshot(epoch, update, render.reduce_by(object, reduction), probe, reduction)


def make_pictures(
    object: Array,
    probe: Array,
    area: tuple[slice, slice],
    epoch: int,
    update: int,
    request: PictureRequest,
) -> Pictures:
    """JPEG pictures of the object's scanned area and of the probe's modes."""
    seen = object[area]
    seen = render.reduce_by(seen, render.reduction_for(seen.shape, request.size))
    limits, pictures = {}, {}
    for name, values in (("amplitude", np.abs(seen)), ("phase", render.flat_phase(seen))):
        limits[name] = render.limits_of(values)
        colours = request.colours.get(name, render.GREY)
        pictures[name] = render.jpeg(render.coloured(values, limits[name], colours), request.quality)
    powers = (np.abs(probe) ** 2).sum((1, 2))
    modes = probe[: request.modes]
    modes = render.reduce_by(modes, render.reduction_for(modes.shape, request.size // 2))
    row = render.side_by_side([render.complex_colours(mode) for mode in modes])
    limits["probe"] = (0.0, float(np.abs(probe[0]).max()))
    return Pictures(
        epoch,
        update,
        pictures["amplitude"],
        pictures["phase"],
        render.jpeg(row, request.quality),
        limits,
        tuple(float(power) for power in powers / powers.sum()),
    )
