"""Folders that other users of the machine cannot change, whatever the umask.

Compiled code is read again as machine code and pickles, files of a cluster contain keys and commands, checkpoints and
spools are the user's data. Whoever can write to such a folder, or can put another in its place, decides what is read.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from ptynb.exceptions import FileError
from ptynb.site_values import caches

SYSTEM = (0, 65534)
"""Owners of the system's folders. In a user namespace (Apptainer, rootless Podman) root's belong to 65534, "nobody"."""


def make_folder(path: Path) -> Path:
    """Create a folder and its parents where they are missing, for this user only. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not os.path.lexists(one)]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(exist_ok=True)  # raises an error for a file, or a link to nothing
    return path


def private_folder(path: Path, *, closed: bool = False) -> Path:
    """Return a folder that only this user can change, which is created if it is missing.

    Parameters
    ----------
    path : Path
        A parent that everybody can write to has to be sticky, as /tmp is.
    closed : bool
        Whether others may not even read it, and parents below the home folder may not be replaced by a group or another
        user: for code, keys and commands. Data may lie in a folder that a group shares.

    Raises
    ------
    FileError
        If others can write to the folder or replace it, or it belongs to another user.
    OSError
        If it cannot be created.
    """
    make_folder(path)
    require_private(path, closed=closed)
    return path


def require_private(path: Path, *, closed: bool = False) -> None:
    """Raise FileError if others can change a folder, or replace it; see `private_folder`. It need not exist."""
    if os.name == "nt":  # a mode there says nothing about other users
        return
    found = path.stat() if path.exists() else None
    if found and (not only_own(found) or (closed and found.st_mode & 0o077)):
        expected = "only you can enter (mode 0700)" if closed else "only you can write to"
        remedy = f"remove it with what others may have put there (rm -r {path})" if closed else f"chmod go-w {path}"
        raise _refusal(path, found, f"a folder of yours that {expected}", remedy)
    resolved, home = path.resolve(), Path(os.path.expanduser("~"))
    above_home = {home, *home.parents, home.resolve(), *home.resolve().parents}  # who can replace it has your shell
    for one in _on_the_way(path.absolute()):
        found = one.lstat()
        if one != resolved and _is_replaceable(found, strict=closed and one not in above_home):
            raise _refusal(one, found, f"a place where only you can replace {path}", f"chmod go-w {one}")


def is_private(path: Path) -> bool:
    """Return whether this is a folder, and no link to one, that belongs to this user, and others cannot write to it."""
    try:
        found = path.lstat()
    except OSError:  # removed meanwhile
        return False
    return stat.S_ISDIR(found.st_mode) and only_own(found)


def only_own(found: os.stat_result) -> bool:
    """Return whether a file or folder belongs to this user, and others cannot write to it."""
    return os.name == "nt" or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)


def code_folder(variable: str) -> Path:
    """Return the folder of compiled code, below the one that an environment variable names, else that of all caches.

    Raises FileError if others can change it, SettingsError for a wrong site file, OSError if it cannot be created.
    """
    place = Path(os.environ.get(variable) or caches() or platformdirs.user_cache_path())
    return private_folder(place if place.name == "ptynb" else place / "ptynb", closed=True)


def keep_code_private(variable: str) -> None:
    """Set the environment variable that names a library's folder of compiled code to `code_folder`.

    Where that cannot be created: to a temporary one of this process.
    """
    try:
        folder = code_folder(variable)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="ptynb-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[variable] = str(folder)


def _on_the_way(path: Path) -> Iterator[Path]:
    """Yield the folders and links by which the system finds a path, and the path."""
    reached = Path(path.anchor)
    yield reached
    for part in path.parts[1:]:
        reached /= part
        if not os.path.lexists(reached):
            return
        yield reached
        if reached.is_symlink():
            yield from _on_the_way(reached.parent / reached.readlink())
            reached = reached.resolve()


def _is_replaceable(found: os.stat_result, strict: bool) -> bool:
    """Whether others can replace what lies in a folder, or a link. strict: a group and another owner are others."""
    foreign = found.st_uid not in (os.geteuid(), *SYSTEM)
    if stat.S_ISLNK(found.st_mode):
        return foreign
    if foreign and strict:
        return True
    writers = found.st_mode & (0o022 if strict else 0o002)
    if writers == 0o020 and _is_own_group(found.st_gid):
        return False
    return bool(writers) and not found.st_mode & stat.S_ISVTX


def _is_own_group(group: int) -> bool:
    """Whether it is the group that many systems give each user, of the same name, whose umask is then 002."""
    import grp
    import pwd

    try:
        return grp.getgrgid(group).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False


def _refusal(path: Path, found: os.stat_result, expected: str, remedy: str) -> FileError:
    return FileError(
        f"{path} belongs to user {found.st_uid} and has the mode {stat.S_IMODE(found.st_mode):04o}; expected "
        f"{expected}: {remedy}, or choose another folder.",
        code="file.not-private",
    )
