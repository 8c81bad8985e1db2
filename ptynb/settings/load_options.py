"""What a run says of its scan's file: the words of `ptynb.load`, as far as a file of settings can hold them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from ptynb.settings.validation import SettingsModel

Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
"""What no experiment has, such as keV taken for eV, `load` itself refuses."""
Finite = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Pair = BeforeValidator(lambda size: (size, size) if isinstance(size, int | float) else size)
"""One number for y and x, as `load` takes it."""
Rows = Annotated[int, Field(ge=1, le=10**9)]


class Load(SettingsModel):
    """What the scan's file lacks or has wrong."""

    patterns: str | None = Field(default=None, description="Dataset of the patterns, where there are several")
    positions: str | None = Field(default=None, description="Dataset of the positions, or a file (.npy, text)")
    mask: str | None = Field(default=None, description="Dataset of the mask, or a file; true where the detector works")
    units: Literal["metres", "pixels"] | None = Field(default=None, description="Of positions; none: metres")
    raster: tuple[Rows, Rows] | None = Field(default=None, description="Rows and columns of a scan line by line")
    step: Annotated[tuple[Finite, Finite] | None, Pair] = Field(default=None, description="Of a raster (y, x) [m]")
    rotation: Finite | None = Field(default=None, description="Of the scan against the detector, from x to y [rad]")
    wavelength: Positive | None = Field(default=None, description="Of the beam [m]")
    energy: Positive | None = Field(default=None, description="Of photons [eV]")
    voltage: Positive | None = Field(default=None, description="Of electrons [V]")
    distance: Positive | None = Field(default=None, description="From the sample to the detector [m]")
    detector_pixel: Annotated[tuple[Positive, Positive] | None, Pair] = Field(
        default=None, description="Its size (y, x) [m]"
    )
    angular_pixel: Annotated[tuple[Positive, Positive] | None, Pair] = Field(
        default=None, description="A detector pixel (y, x) seen from the sample [rad]"
    )
    clip_negative: bool | None = Field(default=None, description="Negative counts become 0; none: they are an error")
    links: Literal["folder", "anywhere"] | None = Field(
        default=None, description="Where links in the file may lead; none: into its folder"
    )

    @property
    def words(self) -> dict[str, Any]:
        """Those that are given, as `ptynb.load` takes them."""
        return self.model_dump(exclude_none=True)

    def placed(self, folder: Path) -> Self:
        """The same with files named from `folder`; names that are no files there are datasets of the scan."""
        files = {name: getattr(self, name) for name in ("positions", "mask") if getattr(self, name) is not None}
        # Not pathlib's, which raises an error for a dataset with a name too long for a file.
        found = {name: str(folder / value) for name, value in files.items() if os.path.isfile(folder / value)}
        return self.model_copy(update=found)
