"""A file format: counts as comma-separated numbers, with a head that describes the scan.

# counts-csv
# window = 32 32
# energy = 8000
# distance = 2.0
# pixel = 55e-6
y, x, count, count, ...        one line for each pattern; y and x in metres
"""

from pathlib import Path

import numpy as np

from ptynb.plugin_api import FileError, FileRecord, Format, Head, LoadOptions, frames_of

MARK = b"# counts-csv"


def recognises(head: Head) -> bool:
    """Whether a file is of this format, by its first bytes."""
    return head.start.startswith(MARK)


def read(path: Path, options: LoadOptions) -> FileRecord:
    """Return what the file contains; `load` checks the numbers, and adds what the user gives as options."""
    described = dict[str, list[float]]()
    with path.open() as file:
        for line in file:
            if not line.startswith("#"):
                break
            name, equals, value = line[1:].partition("=")
            if equals:
                described[name.strip()] = [float(one) for one in value.split()]
    try:
        table = np.loadtxt(path, delimiter=",", ndmin=2)
        height, width = (round(side) for side in described["window"])
        counts = table[:, 2:].reshape(len(table), height, width).astype(np.uint32)
    except (KeyError, ValueError) as error:
        raise FileError(f"{path} is damaged: {error}; write it again.", code="file.damaged") from None

    def given(name: str) -> float | None:
        return described[name][0] if name in described else None

    pixel = given("pixel")
    return FileRecord(
        format=FORMAT.name,
        frames=frames_of(counts),
        positions=table[:, :2],
        energy=given("energy"),
        distance=given("distance"),
        detector_pixel=None if pixel is None else (pixel, pixel),
    )


FORMAT = Format("counts-csv", recognises, read, suffixes=(".csv",))
