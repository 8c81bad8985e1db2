"""Runs every check: `python tests/run.py`, with the Python of a virtual environment.

Installs into that environment what the tests need, and Chromium from Debian's packages where it is missing and this
may be done (root, apt-get). Then: formatting, lint, types, import arrows, and all tests; arguments go on to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def run(*command: str) -> None:
    """Runs one check; a failing one ends everything."""
    print(f"\n$ {' '.join(command)}", flush=True)
    started = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"[{time.monotonic() - started:.0f} s]", flush=True)
    if status != 0:
        sys.exit(status)


def install() -> None:
    """What the tests need, into this environment and, for the browser, this machine."""
    if sys.prefix == sys.base_prefix:
        sys.exit("tests/run.py installs packages: run it with the Python of a virtual environment.")
    run(sys.executable, "-m", "pip", "install", "--quiet", "-c", "constraints.txt", "-e", ".[test]")
    if any(shutil.which(name) for name in BROWSERS):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit(
            "The browser tests need Chromium, and it can't be installed from here: install it, then run this again."
        )
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def main() -> None:
    """All checks, the quick ones first."""
    install()
    scripts = Path(sys.executable).parent
    run(str(scripts / "ruff"), "format", "--check", ".")
    run(str(scripts / "ruff"), "check", ".")
    run(str(scripts / "mypy"))
    run(str(scripts / "lint-imports"))
    run(sys.executable, "-m", "pytest", *sys.argv[1:])


if __name__ == "__main__":
    main()
