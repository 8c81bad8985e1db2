"""Cuts through the slices of a thick object, along the beam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ptynb.analysis.result_comparison import illuminated
from ptynb.data import images
from ptynb.data.cut_pictures import cut_pictures
from ptynb.data.images import Picture, pictures_html
from ptynb.data.record import Array
from ptynb.data.result import Result
from ptynb.exceptions import InvalidValueError, check_choice

CutQuantity = Literal["phase", "amplitude", "complex"]


@dataclass(frozen=True, eq=False)
class OrthogonalCuts:
    """Two cuts through the slices of an object, perpendicular to them, which cross at one pixel.

    Parameters
    ----------
    xz : ndarray
        Values (slice, x) along the row `row`.
    yz : ndarray
        Values (slice, y) along the column `column`.
    x, y : ndarray
        Coordinates (x,) and (y,) of the pixels' centres from the first pixel of the object array [m].
    z : ndarray
        Depth (slice,) of each slice below the first one [m].
    row, column : int
        The pixel of the object array at which the cuts cross.
    quantity : str
        "phase" [rad], "amplitude" or "complex".
    """

    xz: Array
    yz: Array
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    z: NDArray[np.float64]
    row: int
    column: int
    quantity: str

    def pictures(self, limits: tuple[float, float] | None = None) -> tuple[Picture, Picture]:
        """Return the cuts as pictures "xz" and "yz", whose notes state the scale of z, for a `Viewer`.

        Parameters
        ----------
        limits : (float, float), optional
            Values at the ends of the colours, unless they are complex; by default those of these cuts.

        Returns
        -------
        tuple of Picture
            Images in grey levels or colours, in one contrast.
        """
        if self.quantity == "complex":
            limits = None
        elif limits is None:
            limits = images.limits_of(np.concatenate([self.xz, self.yz], axis=1))
        step = tuple(float(axis[1] - axis[0]) if len(axis) > 1 else 1.0 for axis in (self.y, self.x))
        return cut_pictures(
            self.quantity,
            self.xz,
            self.yz,
            at=(self.row, self.column),
            pixel_size=(step[0], step[1]),
            distance=float(self.z[1]),
            limits=limits,
            largest=float(max(np.abs(self.xz).max(), np.abs(self.yz).max())),
            unit="rad" if self.quantity == "phase" else "",
            colours="viridis" if self.quantity == "phase" else "gray",
        )

    def _repr_html_(self) -> str:
        """Return both pictures side by side as HTML, for notebooks."""
        return pictures_html(self.pictures())

    def __repr__(self) -> str:
        return (
            f"<OrthogonalCuts: {self.quantity} at y = {self.row}, x = {self.column}, {len(self.z)} slices over "
            f"{self.z[-1]:.3g} m, {len(self.y)} x {len(self.x)} pixels>"
        )


def orthogonal_cuts(
    result: Result,
    *,
    y: int | None = None,
    x: int | None = None,
    quantity: CutQuantity = "phase",
    mode: int = 0,
    flat: bool = True,
) -> OrthogonalCuts:
    """Cut through the slices of an object along the beam: values over (z, x) at a row y and over (z, y) at a column x.

    The cuts span the illuminated area. The phase of a slice is that of its picture: without its own mean and linear
    ramp over the illuminated area, which diffraction patterns hardly determine, and wrapped to [-π, π].

    Parameters
    ----------
    result : Result
        Result with an object of several slices.
    y, x : int, optional
        Row and column of the object array. None: those in the middle of the illuminated area.
    quantity : {"phase", "amplitude", "complex"}
        What is cut.
    mode : int
        Object mode, 0 for the first.
    flat : bool
        Whether mean and ramp of each slice are removed from phases.

    Returns
    -------
    OrthogonalCuts
        Both cuts, and their axes in metres.

    Raises
    ------
    InvalidValueError
        If the object has one slice, or the pixel is not in the illuminated area ("argument.invalid-value"), or the
        pixel size or the distance of the slices is unknown ("argument.missing").
    """
    check_choice(quantity, "quantity", get_args(CutQuantity))
    modes = result.object if result.object.ndim == 4 else result.slices[None]
    if not 0 <= mode < len(modes):
        raise InvalidValueError(
            f"mode is {mode}, and the object has {len(modes)} modes, counted from 0.", code="argument.invalid-value"
        )
    slices, pixel, thickness = modes[mode], result.pixel_size, slice_distance(result)
    if len(slices) < 2:
        raise InvalidValueError(
            "The object has one slice, and cuts along the beam need several; reconstruct with "
            "Settings(slices=Slices(count=..., thickness=...)).",
            code="argument.invalid-value",
        )
    if pixel is None or thickness is None:
        missing = "pixel size" if pixel is None else "distance of its slices"
        raise InvalidValueError(
            f"The {missing} is unknown, so the cuts have no scale; set it on the result with dataclasses.replace.",
            code="argument.missing",
        )
    area = illuminated(result)
    at = []
    for name, chosen, part in (("y", y, area[0]), ("x", x, area[1])):
        place = (part.start + part.stop) // 2 if chosen is None else int(chosen)
        if not part.start <= place < part.stop:
            raise InvalidValueError(
                f"{name} is {place}; the illuminated area is {part.start} to {part.stop - 1}.",
                code="argument.invalid-value",
            )
        at.append(place)
    row, column = at[0] - area[0].start, at[1] - area[1].start
    across, down = list[Array](), list[Array]()
    for one in slices:
        seen = one[area]
        ramps = flat and quantity != "amplitude"
        down_turn, across_turn = images.flattening(seen) if ramps else map(np.ones, seen.shape)
        across.append(seen[row] * down_turn[row] * across_turn)
        down.append(seen[:, column] * down_turn * across_turn[column])
    lines = [np.stack(across), np.stack(down)]
    if quantity != "complex":
        lines = [np.angle(line) if quantity == "phase" else np.abs(line) for line in lines]
    along_y, along_x = (
        (np.arange(part.start, part.stop, dtype=np.float64) + 0.5) * size
        for part, size in zip(area, pixel, strict=True)
    )
    depth = np.arange(len(slices), dtype=np.float64) * thickness
    return OrthogonalCuts(lines[0], lines[1], along_x, along_y, depth, at[0], at[1], quantity)


def slice_distance(result: Result) -> float | None:
    """Return the distance of two slices of a result [m], as it was refined or set; None if it is unknown."""
    stored = result.parameters.get("slices/thickness")
    if stored is not None:
        return float(np.asarray(stored).reshape(-1)[0])
    part = result.settings.get("slices")
    value = part.get("thickness") if isinstance(part, dict) else None
    return None if value is None else float(value)
