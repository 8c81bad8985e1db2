"""Version 5 of MATLAB's .mat: numbers by dotted names, through scipy. Nothing in it is executed.

The format: MathWorks, MAT-File Format (R2023b); scipy.io.loadmat.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from numpy.typing import NDArray

from ptynb.io.hdf5 import FileError
from ptynb.io.starts.reading import COMPRESSION, SMALL, as_numbers

HEADER = b"MATLAB 5.0 MAT-file"
WANTED = ["object", "probe", "outputs", "p"]


def recognises(start: bytes) -> bool:
    """Whether a file that begins so is version 5 (or 6, or 7) of .mat."""
    return start.startswith(HEADER)


class Mat5:
    """The variables of a reconstruction in a .mat file. Raises FileError for one that can't be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of duplicate names and of classes that are not read
                self._check_sizes()
                self._found: dict[str, Any] = scipy.io.loadmat(path, variable_names=WANTED)
        except FileError:
            raise
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            EOFError,
            OverflowError,
            MemoryError,
            NotImplementedError,
            RecursionError,
            UnicodeError,
            struct.error,
            zlib.error,
            scipy.io.matlab.MatReadError,
        ) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FileError(f"{path} is not a whole .mat file ({reason}); save it again, or as version 7.3.") from None

    def _check_sizes(self) -> None:
        limit = max(SMALL, COMPRESSION * self._path.stat().st_size)
        for name, shape, _ in scipy.io.whosmat(self._path):
            if name in WANTED and int(np.prod(shape, dtype=object)) > limit:
                raise FileError(f"{self._path} claims {name} of shape {shape}, which it does not hold; it is broken.")

    def value(self, name: str) -> NDArray[Any] | None:
        """The numbers at a dotted name, in MATLAB's order of axes; None where there is nothing."""
        first, *rest = name.split(".")
        here = self._found.get(first)
        for part in rest:
            if not isinstance(here, np.ndarray) or here.dtype.names is None or part not in here.dtype.names:
                return None
            if here.size != 1:
                return None
            here = here[part].reshape(-1)[0]
        if not isinstance(here, np.ndarray) or here.size == 0:
            return None
        return as_numbers(here, name, self._path)

    def last_engine(self) -> str:
        """The name of the engine that ran last, as p.engines has it; empty where it does not say."""
        try:
            engine = self._found["p"]["engines"].reshape(-1)[0].reshape(-1)[-1]
            return str(engine["name"].reshape(-1)[0].reshape(-1)[0])
        except (KeyError, ValueError, IndexError, TypeError, AttributeError):
            return ""
