"""Results as NXcxi_ptycho, of `ptynb.export`; the layout is in `ptynb.io.export.nexus_export`.

entry_1/result_1/data                   complex ([mode,] slice, y, x); origin, x_pixel_size, y_pixel_size [m],
                                        slice_distance [m]
entry_1/result_2/data                   complex (mode, y, x), centred
entry_1/.../detector_1/translation      (pattern, xyz) [m], of the sample
"""

from __future__ import annotations

from ptynb.exceptions import FileError
from ptynb.io.formats.cxi import UPRIGHT, on_detector
from ptynb.io.initial_guess.imported_guess import ImportedGuess
from ptynb.io.initial_guess.result_arrays import ForeignResult, as_complex

OBJECT, PROBE = "entry_1/result_1", "entry_1/result_2"
TRANSLATION = "entry_1/instrument_1/detector_1/translation"


def recognises(source: ForeignResult) -> bool:
    """Return whether this file is a result as NXcxi_ptycho."""
    return source.has(f"{OBJECT}/data", f"{PROBE}/data", "entry_1/definition", TRANSLATION)


def read(source: ForeignResult) -> ImportedGuess:
    """Return the guess in a result as NXcxi_ptycho. Raise FileError."""
    object, notes = source.array(f"{OBJECT}/data", 3, 4), tuple[str, ...]()
    if object.ndim == 4:
        if len(object) > 1:
            notes = (f"Of {len(object)} modes of the object the first was taken.",)
        object = object[0]
    height, width = (source.number(f"{OBJECT}/{axis}_pixel_size") for axis in "yx")
    if height is None or width is None or min(height, width) <= 0:
        raise FileError(
            f"{source.path} has object pixels of {height} x {width} m; expected two positive lengths in {OBJECT}.",
            code="file.unexpected-content",
        )
    y, x = source.reals(f"{OBJECT}/origin", (2,))
    return ImportedGuess(
        package="NXcxi_ptycho",
        path=source.path,
        object=as_complex(object[0] if len(object) == 1 else object),
        probe=as_complex(source.array(f"{PROBE}/data", 3)),
        positions=on_detector(source.reals(TRANSLATION, ("pattern", 3)), UPRIGHT) / (height, width),
        pixel_size=(height, width),
        origin=(round(y), round(x)),
        thickness=source.number(f"{OBJECT}/slice_distance"),
        notes=notes,
    )
