"""Export of named pictures, as of `pt.direct`: HDF5 with a default plot for viewers, or npz."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ptynb.io.hdf5_file import replacing
from ptynb.io.nxdata_plots import write_plot

FORMAT = "ptynb pictures"


@runtime_checkable
class NamedPictures(Protocol):
    """Pictures on a common grid, and what was found with them."""

    @property
    def pictures(self) -> dict[str, NDArray[np.float64]]:
        """Pictures (y, x) by name."""
        ...

    @property
    def units(self) -> dict[str, str]:
        """Unit of each picture."""
        ...

    @property
    def y(self) -> NDArray[np.float64]:
        """Coordinates of the rows [m], or [object pixels] without `pixel_size`."""
        ...

    @property
    def x(self) -> NDArray[np.float64]:
        """Coordinates of the columns."""
        ...

    @property
    def pixel_size(self) -> tuple[float, float] | None:
        """Size (y, x) of the pixels [m]."""
        ...

    def to_plain(self) -> dict[str, Any]:
        """Return what was found as JSON types."""
        ...


def write_pictures_hdf5(found: NamedPictures, path: Path) -> None:
    """Write each picture as a group with axes, NXdata, and what was found as JSON in the dataset `found`."""
    unit = "m" if found.pixel_size else "pixel"
    with replacing(path) as file:
        file.attrs.update(format=FORMAT, NX_class="NXroot", default="entry")
        entry = file.create_group("entry")
        entry.attrs.update(NX_class="NXentry", default=[*found.pictures][-1])
        entry["found"] = json.dumps(found.to_plain())
        for name, values in found.pictures.items():
            axes = {"y": (found.y, unit), "x": (found.x, unit)}
            title = f"{name} [{found.units[name]}]" if found.units[name] else name
            write_plot(entry, name, values, title, found.units[name], axes)


def write_pictures_npz(found: NamedPictures, path: Path) -> None:
    """Write pictures by name, the axes y and x, and what was found as JSON."""
    arrays = {**found.pictures, "y": found.y, "x": found.x, "found": np.array(json.dumps(found.to_plain()))}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
