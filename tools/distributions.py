"""Wheel and sdist: how they are built, and what has to be in them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = "notebooks/"
"""Folder whose files a wheel has inside the package, where `ptynb lab` finds them."""


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """The two files of a release."""

    wheel: Path
    sdist: Path

    def problems(self) -> list[str]:
        """Return a sentence for each file too many or missing; none if both have what git has."""
        known = git_files()
        in_wheel = {name if name.startswith("ptynb/") else f"ptynb/{name}" for name in known if _is_installed(name)}
        left_out = tuple(_pyproject()["tool"]["hatch"]["build"]["targets"]["sdist"]["exclude"])
        in_sdist = {name for name in known if not name.startswith(left_out)} | {"PKG-INFO"}
        with zipfile.ZipFile(self.wheel) as archive:
            wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
        with tarfile.open(self.sdist) as archive:
            sdist = {one.name.partition("/")[2] for one in archive.getmembers() if not one.isdir()}
        return [
            f"{file.name} {fault} {name}"
            for file, found, expected in ((self.wheel, wheel, in_wheel), (self.sdist, sdist, in_sdist))
            for fault, names in (("lacks", expected - found), ("should not have", found - expected))
            for name in sorted(names)
        ]


def build(folder: Path) -> Distributions:
    """Build wheel and sdist into an empty folder, with this Python's hatchling: nothing is downloaded."""
    subprocess.run((sys.executable, "-m", "hatchling", "build", "--directory", str(folder)), cwd=ROOT, check=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Distributions(wheel=wheel, sdist=sdist)


def git_files() -> set[str]:
    """Return the files of the checkout that git has or would take; a release is built of a clean tree only."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    return {name for name in listed if (ROOT / name).is_file()}


def git(*arguments: str) -> str:
    """Return what git prints. Raises CalledProcessError."""
    return subprocess.run(("git", *arguments), cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def project() -> dict[str, Any]:
    """Return the metadata of pyproject.toml."""
    return dict(_pyproject()["project"])


def build_requirements() -> list[str]:
    """Return what builds the package."""
    return list(_pyproject()["build-system"]["requires"])


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _is_installed(name: str) -> bool:
    return name.startswith(("ptynb/", NOTEBOOKS))
