"""An exporter: the phase along the middle row of the object, as a table in text."""

from pathlib import Path

import numpy as np

from ptynb.plugin_api import Exporter, Result


def write_profile(result: Result, path: Path) -> None:
    """Write position [m, or pixels without a pixel size] and phase [rad] of the middle row."""
    layers = result.object.reshape(-1, *result.object.shape[-2:])
    phase = np.angle(layers.prod(0))[layers.shape[-2] // 2]
    step = 1.0 if result.pixel_size is None else result.pixel_size[1]
    columns = np.column_stack([np.arange(phase.size) * step, phase])
    np.savetxt(path, columns, delimiter=",", header="x,phase", comments="")


EXPORTER = Exporter(title="phase along the middle row, as text", endings=(".csv",), write=write_profile)
