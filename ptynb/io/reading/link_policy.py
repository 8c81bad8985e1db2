"""Which files may be read because another file, or a folder, names them: the one rule for all formats.

A file can name any other one on the machine: by a link inside HDF5, by a symbolic link in a zarr store or in a folder
of TIFFs, by a name in its metadata. What is read is shown, kept and sent on as patterns, so a file from a stranger must
not choose it. Files in the folder of what the user named, and below it, may be read; others where the user says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ptynb.exceptions import FileError
from ptynb.io.hdf5_file import reason

FOLDER, ANYWHERE = "folder", "anywhere"
"""What links may lead to: files in the folder of the file, or below it; or any file."""


@dataclass(frozen=True)
class LinkPolicy:
    """The folders in which, or below which, files may be read, resolved; with `anywhere` all files may."""

    folders: tuple[Path, ...]
    anywhere: bool = False

    @classmethod
    def around(cls, path: Path, links: str = FOLDER) -> Self:
        """For what a user named: of a file its folder, and where that path is a link also the folder it leads to.

        A folder (a zarr store, a folder of pictures) is its own. links: "folder" or "anywhere".
        """
        real = path.resolve()
        folders = (real,) if real.is_dir() else (path.parent.resolve(), real.parent)
        return cls(tuple(dict.fromkeys(folders)), links == ANYWHERE)

    def check(self, target: str | Path, what: str) -> Path:
        """The path of a file with all links followed. Raises FileError where it may not be read.

        what: the first words of the sentence, to which "in <the file>" is added ("scan.h5 keeps entry/data"). Whether
        the file exists is not asked.
        """
        try:
            real = Path(os.path.realpath(target))
        except (OSError, ValueError) as error:
            raise FileError(
                f"{what} in {target}, which can't be found ({reason(error)}); copy that file beside it."
            ) from None
        if self.anywhere or any(real.is_relative_to(folder) for folder in self.folders):
            return real
        named = os.path.abspath(target)
        link = "" if named == str(real) else f" (a link to {real})"
        raise FileError(
            f"{what} in {named}{link}, outside {' and '.join(map(str, self.folders))}; a file elsewhere is read only "
            "where you allow it: load(..., links='anywhere'), or copy it into the folder."
        )
