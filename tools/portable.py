"""Tests that need no cluster, browser or program of Linux, of the installed package: `python -m tools.portable`.

They run where the whole suite does not: on macOS and Windows, with other Pythons, and with the oldest versions of other
packages. They need pytest, pytest-timeout and hypothesis beside the package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.distributions import ROOT

PORTABLE = (
    "tests/data/test_geometry.py",
    "tests/data/test_scan.py",
    "tests/settings/test_settings.py",
    "tests/settings/test_yaml_reader.py",
    "tests/preparation/test_crop_and_pad.py",
    "tests/physics/test_propagation.py",
    "tests/physics/test_losses.py",
    "tests/io/test_result_file.py",
    "tests/io/test_scan_file.py",
    "tests/test_systems.py",
)


def run_portable(python: str = sys.executable) -> int:
    """Run them with this interpreter, away from the checkout, whose package it would import; return the status."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory(prefix="ptynb-portable-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        command = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PORTABLE)
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(run_portable())
