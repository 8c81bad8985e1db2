"""The site file as plain values: what an administrator chose for all users of a machine.

What the values mean, and their defaults, is in `ptynb.settings.site_file`; here they are read for the folder of caches,
which is needed below the settings.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from ptynb.exceptions import FileError, SettingsError

VARIABLE = "PTYNB_SITE"
"""Environment variable that names the site file."""
CACHES = ("PTYNB_CACHE", "PTYNB_SITE_FOLDERS__CACHES")
"""Environment variables that name the folder of all caches; the second is the general form of `Site`."""


def site_path() -> Path | None:
    """Return the site file: that of PTYNB_SITE, else the machine's if it exists. Raises FileError."""
    if named := os.environ.get(VARIABLE):
        path = Path(os.path.expanduser(named))
        if not path.exists():
            raise FileError(
                f"{VARIABLE} names the site file {path}, which does not exist; correct the variable, or unset it.",
                code="file.not-found",
            )
        return path
    on_unix = os.name == "posix" and sys.platform != "darwin"
    path = Path("/etc/ptynb") if on_unix else platformdirs.site_config_path("ptynb", appauthor=False)
    return path / "site.toml" if (path / "site.toml").is_file() else None


def site_values() -> dict[str, Any]:
    """Return the values of the site file by section; none without a file. Raises FileError, SettingsError."""
    path = site_path()
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise FileError(f"The site file {path} cannot be read: {error.strerror}.", code="file.not-readable") from None
    except UnicodeDecodeError as error:
        raise _not_toml(path, f"byte {error.start} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, str(error)) from None


def caches() -> Path | None:
    """Return the folder that holds all caches, by a variable of `CACHES` or the site file; None: the usual places."""
    for name in CACHES:
        if named := os.environ.get(name):
            return expanded_folder(named, name)
    section = site_values().get("folders")
    named = section.get("caches") if isinstance(section, dict) else None
    if not isinstance(named, str) or not named:  # another type is reported where all values are read
        return None
    path = site_path()
    assert path is not None, "its values were read"
    return path.parent / expanded_folder(named, f"folders.caches of {path}")


def expanded_folder(named: str, source: str) -> Path:
    """Return a folder with '~' and variables ('/scratch/$USER') replaced. Raises SettingsError if one is not set."""
    path = os.path.expandvars(os.path.expanduser(named))
    if "$" in path or path.startswith("~"):
        raise SettingsError(
            f"{source} is {named!r}, and not all its variables are set here; expected a folder such as "
            "/scratch/$USER/ptynb.",
            code="settings.invalid-value",
        )
    return Path(path)


def _not_toml(path: Path, problem: str) -> SettingsError:
    return SettingsError(
        f'The site file {path} is not valid TOML: {problem}; expected lines such as account = "p1234" below [cluster].',
        code="settings.invalid-toml",
    )
