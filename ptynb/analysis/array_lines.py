"""The arrays behind pictures of an object, and the Python of them, for the lines that measure in them."""

from __future__ import annotations

import numpy as np

from ptynb.data import images
from ptynb.data.engine_records import Array, Result


def field_line(result: str, slice: int | None = None, mode: int = 0, modes: int = 1) -> str:
    """Return the Python of an object (y, x) of a result: the product of its slices or one of them, in one mode."""
    if modes > 1:
        return f"{result}.object[{mode}].prod(0)" if slice is None else f"{result}.object[{mode}, {slice}]"
    return f"{result}.projection" if slice is None else f"{result}.slices[{slice}]"


def quantity_lines(field: str, corner: tuple[int, int], shape: tuple[int, int], *, flat: bool = True) -> dict[str, str]:
    """Return the Python of amplitude and phase of an area of a field (y, x), and of the area itself.

    corner, shape: (y, x) of the area that the pictures show. flat: whether the phase is shown without mean and ramp.
    """
    area = ", ".join(f"{start}:{start + side}" for start, side in zip(corner, shape, strict=True))
    seen = f"{field}[{area}]"
    phase = f"pt.analysis.flat_phase({seen})" if flat else f"np.angle({seen})"
    return {"amplitude": f"np.abs({seen})", "phase": phase, "complex": seen}


def field_of(result: Result, slice: int | None = None, mode: int = 0) -> Array:
    """Return the array of `field_line`."""
    stack = result.object if result.object.ndim == 4 else result.slices[None]
    return stack[mode].prod(0) if slice is None else stack[mode, slice]


def quantity_of(field: Array, quantity: str, corner: tuple[int, int], shape: tuple[int, int], *, flat: bool) -> Array:
    """Return the array of a line of `quantity_lines`."""
    seen: Array = field[corner[0] : corner[0] + shape[0], corner[1] : corner[1] + shape[1]]
    if quantity == "amplitude":
        return np.abs(seen)
    if quantity == "complex":
        return seen
    return images.flat_phase(seen) if flat else np.angle(seen)
