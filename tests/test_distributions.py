"""Wheel and sdist have what git has, and a version; how they install is seen by `python -m tools.release`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.version import Version

from tools.distributions import Distributions, build, project
from tools.release import PRETEND


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Distributions:
    return build(tmp_path_factory.mktemp("dist"))


def _metadata(built: Distributions):
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def test_wheel_and_sdist_have_what_git_has(built):
    assert built.problems() == []
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
    assert {
        "ptynb/py.typed",
        "ptynb/__init__.pyi",
        "ptynb/conventions.md",
        "ptynb/result_file.md",
        "ptynb/widgets/static/ptynb.js",
        "ptynb/report/page.html",
        "ptynb/notebooks/01_first_reconstruction.ipynb",
    } <= names


def test_a_file_that_git_ignores_is_noticed(built, tmp_path):
    wheel = Path(shutil.copy(built.wheel, tmp_path))
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("ptynb/node_modules/left/index.js", "")
    problems = Distributions(wheel=wheel, sdist=built.sdist).problems()
    assert problems == [f"{wheel.name} should not have ptynb/node_modules/left/index.js"]


def test_the_metadata_names_version_links_and_bounds(built):
    metadata = _metadata(built)
    assert str(Version(metadata["Version"])) == metadata["Version"]
    assert metadata["Author"] == "the ptynb developers"
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL")} == set(project()["urls"])
    assert metadata["License-Expression"] == "BSD-3-Clause"


def test_an_sdist_without_git_builds_a_wheel_of_the_same_version(built, tmp_path):
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist"))
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name == built.wheel.name
    (source / "PKG-INFO").unlink()  # as an archive of the files alone, which has no version
    assert _version_in(source, os.environ) == "0.1.0.dev0"
    assert _version_in(source, {**os.environ, PRETEND: "1.2.3"}) == "1.2.3"  # of a release, before its tag


def _version_in(source: Path, environment: Mapping[str, str]) -> str:
    command = (sys.executable, "-m", "hatchling", "version")
    told = subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True, text=True)
    return told.stdout.strip()
