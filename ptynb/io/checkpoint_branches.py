"""Branches: sequences of checkpoints of one reconstruction, each in its own folder.

    folder/                 the checkpoints of the branch "main": state-00120.h5 and so on
        branch.json         properties of the branch, see `Note`
        branches/NAME/      the checkpoints of another branch, with the same files

Restoring and branching only make hard links and renames, so they take neither time nor disk space, and every checkpoint
always has a file name. Engines remove old checkpoints of the branch that they work on (`Checkpointing.max_to_keep`),
never those that a note protects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptynb.data.engine_records import Branch, Checkpoint
from ptynb.exceptions import FileError, InvalidTypeError, InvalidValueError
from ptynb.io.checkpoint_file import header_of, newest_state, newest_written, precedes, put, states
from ptynb.io.hdf5_file import open_for_reading, reason
from ptynb.io.reading.safe_reading import Checked
from ptynb.private_folder import private_folder
from ptynb.text import natural_order

MAIN = "main"
FOLDER = "branches"
NOTE = "branch.json"
MOST_BYTES = 2**24
"""Maximum size of a note [bytes]; it lists checkpoints: thousands of them take some hundred thousand bytes."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Note:
    """Content of branch.json.

    stays: names of checkpoints that are never removed. used: when the branch was last selected [ns since 1970].
    origin: the parent branch; epoch: number of completed epochs at which it was left.
    """

    stays: tuple[str, ...] = ()
    used: int = 0
    origin: str = ""
    epoch: int | None = None


def root_of(folder: Path) -> Path:
    """Return the folder of the whole reconstruction that contains a branch's folder."""
    return folder.parent.parent if folder.parent.name == FOLDER else folder


def name_of(folder: Path) -> str:
    """Return the name of the branch in this folder."""
    return folder.name if folder.parent.name == FOLDER else MAIN


def folder_of(root: Path, name: str) -> Path:
    """Return the folder of this branch, which need not exist. Raise InvalidValueError for an invalid name."""
    if name == MAIN:
        return root
    if not NAME.fullmatch(name):
        raise InvalidValueError(
            f"{name!r} is not a valid name of a branch; expected letters, digits, '-', '_' and '.', at most 64, the "
            "first a letter or digit.",
            code="branch.invalid-name",
        )
    return root / FOLDER / name


def free_name(root: Path, requested: str) -> str:
    """Return an unused branch name: the requested one, or the same with a number appended."""
    tries = (requested if number == 1 else f"{requested}-{number}" for number in range(1, 10_000))
    return next(name for name in tries if not folder_of(root, name).exists())


def lines(root: Path) -> list[Path]:
    """Return the folders of all branches that have checkpoints, "main" first, the others by name."""
    inner = root / FOLDER
    others = [path.name for path in inner.iterdir() if NAME.fullmatch(path.name)] if inner.is_dir() else []
    return [path for path in (root, *(inner / name for name in sorted(others, key=natural_order))) if states(path)]


def newest(folder: str | Path) -> Path:
    """Return the newest complete checkpoint of the branch used last, or of the branch whose own folder is given.

    Raise FileError as `ptynb.io.checkpoint_file.newest_state` does.
    """
    folder = Path(folder).expanduser()
    return newest_state(last_line(folder) or folder)


def last_line(root: Path) -> Path | None:
    """Return the folder of the branch used last; None if there is no checkpoint."""
    return max(lines(root), key=lambda line: max(read_note(line).used, newest_written(line)), default=None)


def lineage(line: Path) -> list[Path]:
    """Return the checkpoints that lead to the newest one of a branch: those before it was left from another, too."""
    own, root, found = line, root_of(line), states(line)
    visited = {line}
    while (note := _note_to_show(own)).origin and note.epoch is not None:
        own = folder_of(root, note.origin)
        if own in visited:
            break
        visited.add(own)
        found = [path for path in states(own) if precedes(path, note.epoch, 0)] + found
    return found


# Notes


def read_note(folder: Path) -> Note:
    """Return the note of a branch; an empty one if there is none.

    Raise OSError if it cannot be read at present, FileError if it is damaged, so that nothing protected is removed or
    overwritten.
    """
    try:
        with (folder / NOTE).open("rb") as file:
            text = file.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return Note()
    try:
        return _note(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FileError(
            f"{folder / NOTE}, which lists the checkpoints to keep, is damaged; if you remove it, none of them is kept "
            "for good.",
            code="file.damaged",
        ) from None


def _note(values: Any) -> Note:
    """Return a note from plain values. Raise InvalidTypeError, TypeError or KeyError if it is invalid."""
    note = Note(**{**values, "stays": tuple(values["stays"])})
    right = isinstance(note.used, int) and isinstance(note.origin, str) and isinstance(note.epoch, int | None)
    if not right or not all(isinstance(name, str) for name in note.stays):
        raise InvalidTypeError("values of other types than a note has", code="file.damaged")
    return note


def write_note(folder: Path, note: Note) -> None:
    """Write the note of a branch. Raise OSError."""
    put(folder / NOTE, memoryview(json.dumps(dataclasses.asdict(note)).encode()))


def stay(path: Path) -> None:
    """Protect a checkpoint from removal. Raise FileError if it no longer exists."""
    note = read_note(path.parent)
    write_note(path.parent, dataclasses.replace(note, stays=tuple(sorted({*note.stays, path.name}))))
    if not path.exists():
        raise FileError(f"{path} has been removed; choose another checkpoint.", code="checkpoint.not-found")


def use(folder: Path) -> None:
    """Record that this branch is in use from now on, so that `newest` finds it."""
    known = max((newest_written(line) for line in lines(root_of(folder))), default=0)
    write_note(folder, dataclasses.replace(read_note(folder), used=max(time.time_ns(), known + 1)))


# Moving checkpoints


def parts_of(path: Path) -> list[Path]:
    """Return the files of a checkpoint: the main one, and those with the rows of other ranks."""
    return [path, *sorted(path.parent.glob(f"{path.stem}.rank*.h5"))]


def copy_into(path: Path, folder: Path) -> Path:
    """Copy a checkpoint into another branch's folder; a hard link if the file system supports it. Raise OSError."""
    private_folder(folder)
    for part in reversed(parts_of(path)):  # the main file last: it makes the checkpoint valid
        target = folder / part.name
        beside = folder / f".{part.name}.part"
        beside.unlink(missing_ok=True)
        try:
            os.link(part, beside)
        except OSError:
            shutil.copy2(part, beside)
        beside.replace(target)
        beside.unlink(missing_ok=True)  # renaming a link to the same file does not remove it
    return folder / path.name


def begin(root: Path, name: str, state: Path) -> Path:
    """Create a branch that begins with this checkpoint, which is protected in it; return the checkpoint there.

    Raise InvalidValueError if the name is in use or invalid, OSError if nothing can be written.
    """
    folder = folder_of(root, name)
    if folder.exists():
        raise InvalidValueError(
            f"There is a branch {name!r} already; choose another name, or switch to it.", code="branch.exists"
        )
    try:
        found = copy_into(state, folder)
        epoch = _summary(found)[0]
        write_note(folder, Note(stays=(found.name,), origin=name_of(state.parent), epoch=epoch))
    except Exception:
        with contextlib.suppress(OSError):
            remove(folder)  # an incomplete branch would occupy the name
        raise
    return found


def set_aside(later: list[Path], name: str, epoch: int) -> Path:
    """Move checkpoints of a branch, those after `epoch`, to a new branch; return its folder. Raise OSError."""
    source = later[0].parent
    folder = folder_of(root_of(source), name)
    private_folder(folder.parent)
    folder.mkdir(mode=0o700)
    note, names = read_note(source), {path.name for path in later}
    stays = tuple(one for one in note.stays if one in names)
    write_note(folder, Note(stays=stays, origin=name_of(source), epoch=epoch))
    for path in later:
        for part in reversed(parts_of(path)):
            part.replace(folder / part.name)
    write_note(source, dataclasses.replace(note, stays=tuple(one for one in note.stays if one not in names)))
    return folder


def put_back(folder: Path, into: Path) -> None:
    """Undo `set_aside`."""
    aside, note = read_note(folder), read_note(into)
    for path in states(folder):
        for part in reversed(parts_of(path)):
            part.replace(into / part.name)
    write_note(into, dataclasses.replace(note, stays=tuple(sorted({*note.stays, *aside.stays}))))
    remove(folder)


def remove(folder: Path) -> None:
    """Remove a branch other than "main" with its checkpoints; unrelated files stay, and then the folder too."""
    assert folder.parent.name == FOLDER, "only branches are removed"
    for path in [part for state in states(folder) for part in parts_of(state)]:
        path.unlink(missing_ok=True)
    # Row files without a main file belong to a checkpoint whose copy is incomplete.
    for left in (folder / NOTE, *folder.glob("state-*.rank*.h5"), *folder.glob(".*.part")):
        left.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


# Listing


def all_states(root: Path) -> tuple[Checkpoint, ...]:
    """Return all checkpoints of all branches in the order of writing; unreadable ones are omitted."""
    found = []
    for line in lines(root):
        stays = _note_to_show(line).stays
        for path in states(line):
            with contextlib.suppress(OSError, FileError, ValueError, KeyError):
                found.append(described(path, path.name in stays))
    return tuple(sorted(found, key=lambda one: (one.written, natural_order(str(one.path)))))


def all_branches(root: Path, present: str) -> tuple[Branch, ...]:
    """Return all branches, "main" first. present: the one in use."""
    checkpoints = all_states(root)
    made = []
    for line in lines(root):
        own, note = [one for one in checkpoints if one.branch == name_of(line)], _note_to_show(line)
        if own:
            size = sum(one.size for one in own)
            present_line = name_of(line) == present
            made.append(Branch(name_of(line), line, own[-1], len(own), size, note.origin, note.epoch, present_line))
    return tuple(made)


def _note_to_show(line: Path) -> Note:
    """Return the note for a list; an empty one if it cannot be read."""
    try:
        return read_note(line)
    except (OSError, FileError):
        return Note()


def described(path: Path, stays: bool = False) -> Checkpoint:
    """Return what a list shows of a checkpoint file. Raise OSError or FileError if it cannot be read."""
    header = header_of(path)
    written = path.stat().st_mtime_ns if header is None else header.written
    size = sum(part.stat().st_size for part in parts_of(path))
    epoch, update, loss = _summary(path)
    return Checkpoint(path, name_of(path.parent), epoch, update, loss, written / 1e9, size, stays)


def _summary(path: Path) -> tuple[int, int, float | None]:
    """Return the epoch, the update, and the loss of the last epoch."""
    stat = path.stat()
    return _summary_of(path, stat.st_ino, stat.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _summary_of(path: Path, node: int, age: int) -> tuple[int, int, float | None]:
    with open_for_reading(path) as file:
        checked = Checked(file, path)
        text = checked.read("record", checked.dataset("record")).tobytes()
    try:
        record = json.loads(text)
        epochs = record["epochs"]
        return int(record["epoch"]), int(record["update"]), float(epochs[-1]["loss"]) if epochs else None
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise FileError(
            f"{path} is damaged ({reason(error)}): its record lacks epoch, update or losses.", code="file.damaged"
        ) from None
