"""Branches: lines of states of one reconstruction, each in a folder of its own.

    folder/                 the states of the line "main": state-00120.h5 and so on
        branch.json         what is to be known of the line, see `Note`
        branches/NAME/      the states of another line, with the same files

Going back and branching make hard links and renames only, so they cost neither time nor room, and no state is ever
without a name. Engines thin out the line that they work on (`Checkpointing.max_to_keep`), never what a note
says is to stay.
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

from ptynb.data.snapshot import Branch, Checkpoint
from ptynb.exceptions import FileError, InvalidTypeError, InvalidValueError
from ptynb.io.checkpoint_file import header_of, newest_state, newest_written, put, states
from ptynb.io.hdf5_file import open_for_reading, reason
from ptynb.io.reading.safe_reading import Checked

MAIN = "main"
FOLDER = "branches"
NOTE = "branch.json"
MOST_BYTES = 2**24
"""Of a note, which names states: thousands of them are some hundred thousand bytes."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Note:
    """What branch.json says of a line.

    stays: names of states that are never thinned out. used: when somebody last chose to work there [ns since 1970].
    origin: the line that it came from; epoch: completed where it left it.
    """

    stays: tuple[str, ...] = ()
    used: int = 0
    origin: str = ""
    epoch: int | None = None


def root_of(folder: Path) -> Path:
    """The folder of the whole reconstruction to which a line's folder belongs."""
    return folder.parent.parent if folder.parent.name == FOLDER else folder


def name_of(folder: Path) -> str:
    """The name of the line in this folder."""
    return folder.name if folder.parent.name == FOLDER else MAIN


def folder_of(root: Path, name: str) -> Path:
    """Where the line of this name is, or would be. Raises ValueError where it can't be a name."""
    if name == MAIN:
        return root
    if not NAME.fullmatch(name):
        raise InvalidValueError(
            f"{name!r} is not a valid name of a branch; expected letters, digits, '-', '_' and '.', at most 64, the "
            "first a letter or digit.",
            code="branch.invalid-name",
        )
    return root / FOLDER / name


def free_name(root: Path, wanted: str) -> str:
    """A name that no line has yet: the one wanted, or with a number behind it."""
    tries = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, 10_000))
    return next(name for name in tries if not folder_of(root, name).exists())


def lines(root: Path) -> list[Path]:
    """The folders of all lines that have states, "main" first, the others by name."""
    inner = root / FOLDER
    others = sorted(path for path in inner.iterdir() if NAME.fullmatch(path.name)) if inner.is_dir() else []
    return [path for path in (root, *others) if states(path)]


def newest(folder: str | Path) -> Path:
    """The newest state of the line that was worked on last, found whole; of a branch's own folder, that line's.

    Raises FileError as `ptynb.io.checkpoint_file.newest_state` does.
    """
    folder = Path(folder).expanduser()
    return newest_state(last_line(folder) or folder)


def last_line(root: Path) -> Path | None:
    """The folder of the line that was worked on last; None where there is no state."""
    return max(lines(root), key=lambda line: max(read_note(line).used, newest_written(line)), default=None)


# Notes


def read_note(folder: Path) -> Note:
    """What is known of a line; nothing where there is no note.

    Raises OSError where it can't be read just now, FileError where it is damaged: nothing is removed or written over
    then that may be to stay.
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


def _note(said: Any) -> Note:
    """Raises ValueError, TypeError or KeyError where it is none."""
    note = Note(**{**said, "stays": tuple(said["stays"])})
    right = isinstance(note.used, int) and isinstance(note.origin, str) and isinstance(note.epoch, int | None)
    if not right or not all(isinstance(name, str) for name in note.stays):
        raise InvalidTypeError("values of other types than a note has", code="file.damaged")
    return note


def write_note(folder: Path, note: Note) -> None:
    """Writes the note of a line. Raises OSError."""
    put(folder / NOTE, memoryview(json.dumps(dataclasses.asdict(note)).encode()))


def stay(path: Path) -> None:
    """Keeps a state from being thinned out. Raises FileError where it is gone already."""
    note = read_note(path.parent)
    write_note(path.parent, dataclasses.replace(note, stays=tuple(sorted({*note.stays, path.name}))))
    if not path.exists():
        raise FileError(f"{path} has been removed; choose another checkpoint.", code="checkpoint.not-found")


def use(folder: Path) -> None:
    """Notes that this line is worked on from now on, so that `newest` finds it."""
    known = max((newest_written(line) for line in lines(root_of(folder))), default=0)
    write_note(folder, dataclasses.replace(read_note(folder), used=max(time.time_ns(), known + 1)))


# Moving states


def parts_of(path: Path) -> list[Path]:
    """The files of a state: its own, and those with the rows of other ranks."""
    return [path, *sorted(path.parent.glob(f"{path.stem}.rank*.h5"))]


def copy_into(path: Path, folder: Path) -> Path:
    """The same state in another line's folder; a hard link where the disk has them. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in reversed(parts_of(path)):  # its own file last: it is what makes it a state
        target = folder / part.name
        beside = folder / f".{part.name}.part"
        beside.unlink(missing_ok=True)
        try:
            os.link(part, beside)
        except OSError:
            shutil.copy2(part, beside)
        beside.replace(target)
        beside.unlink(missing_ok=True)  # renaming a link to what is there already leaves it
    return folder / path.name


def begin(root: Path, name: str, state: Path) -> Path:
    """Makes a line that begins at this state, which stays in it; returns the state there.

    Raises ValueError where the name is taken or can't be one, OSError where nothing can be written.
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
            remove(folder)  # nothing half made, whose name would be taken
        raise
    return found


def set_aside(later: list[Path], name: str, epoch: int) -> Path:
    """Moves states of one line, those after `epoch`, into a line of their own; returns its folder. Raises OSError."""
    source = later[0].parent
    folder = folder_of(root_of(source), name)
    folder.mkdir(mode=0o700, parents=True)
    note, names = read_note(source), {path.name for path in later}
    stays = tuple(one for one in note.stays if one in names)
    write_note(folder, Note(stays=stays, origin=name_of(source), epoch=epoch))
    for path in later:
        for part in reversed(parts_of(path)):
            part.replace(folder / part.name)
    write_note(source, dataclasses.replace(note, stays=tuple(one for one in note.stays if one not in names)))
    return folder


def put_back(folder: Path, into: Path) -> None:
    """Undoes `set_aside`."""
    aside, note = read_note(folder), read_note(into)
    for path in states(folder):
        for part in reversed(parts_of(path)):
            part.replace(into / part.name)
    write_note(into, dataclasses.replace(note, stays=tuple(sorted({*note.stays, *aside.stays}))))
    remove(folder)


def remove(folder: Path) -> None:
    """Removes a line, never "main", with its states; files of others stay, and their folder."""
    assert folder.parent.name == FOLDER, "only branches are removed"
    for path in [part for state in states(folder) for part in parts_of(state)]:
        path.unlink(missing_ok=True)
    # Rows without their state are of one that was not copied to its end.
    for left in (folder / NOTE, *folder.glob("state-*.rank*.h5"), *folder.glob(".*.part")):
        left.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


# Listing


def all_states(root: Path) -> tuple[Checkpoint, ...]:
    """All states of all lines, in the order in which they were written; what can't be read is left out."""
    found = []
    for line in lines(root):
        stays = _note_to_show(line).stays
        for path in states(line):
            with contextlib.suppress(OSError, FileError, ValueError, KeyError):
                found.append(_described(path, path.name in stays))
    return tuple(sorted(found, key=lambda one: (one.written, str(one.path))))


def all_branches(root: Path, present: str) -> tuple[Branch, ...]:
    """All lines, "main" first. present: the one that is worked on."""
    kept = all_states(root)
    made = []
    for line in lines(root):
        own, note = [one for one in kept if one.branch == name_of(line)], _note_to_show(line)
        if own:
            size = sum(one.size for one in own)
            present_line = name_of(line) == present
            made.append(Branch(name_of(line), line, own[-1], len(own), size, note.origin, note.epoch, present_line))
    return tuple(made)


def _note_to_show(line: Path) -> Note:
    """For lists: they are shown without it where it can't be read."""
    try:
        return read_note(line)
    except (OSError, FileError):
        return Note()


def _described(path: Path, stays: bool) -> Checkpoint:
    header = header_of(path)
    written = path.stat().st_mtime_ns if header is None else header.written
    size = sum(part.stat().st_size for part in parts_of(path))
    epoch, update, loss = _summary(path)
    return Checkpoint(path, name_of(path.parent), epoch, update, loss, written / 1e9, size, stays)


def _summary(path: Path) -> tuple[int, int, float | None]:
    """Epoch, update, and the loss of the last epoch."""
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
