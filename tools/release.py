"""Makes a release, up to the one command that publishes it, which a person types: `python -m tools.release 0.1.0`.

Each step ends everything when it fails; `--step` runs some of them alone.

check     the tree is clean, CHANGELOG.md has the version with a date, the tag is free, repeated metadata is in step
build     wheel and sdist into dist/, and the recipe for conda-forge with the checksum of the sdist
contents  `twine check --strict`, and both have what git has
install   a wheel house of the tested versions (constraints.txt) is filled; from it alone, without a network, the wheel
          is installed into an empty environment, where `ptynb demo` and the tests of `tools.portable` run
oldest    the same with the oldest versions that pyproject.toml allows, as uv resolves them

The programs come by `pip install --group release`. Another Python: `--python`; the newest versions: `--newest`. torch
takes several gigabytes from PyPI on Linux; `PIP_FIND_LINKS` may name a folder with a build for CPUs. The whole suite
(`.ci/run`) passes before a release and is not repeated here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import metadata_files
from tools.distributions import ROOT, Distributions, build, git, project
from tools.portable import run_portable

TEST_PACKAGES = ("pytest>=8.2", "pytest-timeout>=2.3", "hypothesis>=6.100", "pyyaml")
PRETEND = "SETUPTOOLS_SCM_PRETEND_VERSION"
"""Environment variable with the version of a build, which has to come before the tag."""


class Release:
    """One version on its way, in the folder `dist` of the checkout."""

    def __init__(self, version: str, python: str, newest: bool) -> None:
        self.version, self.tag = version, f"v{version}"
        self.python, self.newest = python, newest
        self.folder = ROOT / "dist"

    def check(self) -> None:
        """Check what has to hold before anything is built."""
        if changed := git("status", "--porcelain"):
            _fail(f"The tree has changes that are not committed:\n{changed}")
        if git("tag", "--list", self.tag):
            _fail(f"The tag {self.tag} exists already; a version is released once.")
        if problem := changelog_problem((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), self.version):
            _fail(problem)
        stale = [path.name for path, text in metadata_files.contents().items() if path.read_text("utf-8") != text]
        if stale:
            _fail(f"{', '.join(stale)} are not those of pyproject.toml; run python -m tools.metadata_files.")

    def build(self) -> None:
        """Build wheel, sdist, and the recipe of the sdist."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.environ[PRETEND] = self.version
        built = build(self.folder)
        (self.folder / "recipe.yaml").write_text(
            recipe(metadata_files.RECIPE.read_text(encoding="utf-8"), self.version, built.sdist), encoding="utf-8"
        )

    def contents(self) -> None:
        """Check the two files."""
        built = self._built()
        _run(sys.executable, "-m", "twine", "check", "--strict", str(built.wheel), str(built.sdist))
        if problems := built.problems():
            _fail("\n".join(problems))

    def install(self) -> None:
        """Install the wheel with the tested versions, or the newest ones, and use it."""
        self._try([] if self.newest else ["--constraint", str(ROOT / "constraints.txt")])

    def oldest(self) -> None:
        """Install the wheel with the oldest versions, and use it."""
        with tempfile.TemporaryDirectory() as folder:
            pins = Path(folder) / "oldest.txt"
            python = subprocess.run(
                (self.python, "-c", "import platform; print(platform.python_version())"),
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            resolve = (sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct")
            _run(*resolve, "--python-version", python, "--output-file", str(pins), "pyproject.toml")
            self._try(["--constraint", str(pins)])

    def _built(self) -> Distributions:
        stem = self.folder / f"ptynb-{self.version}"
        return Distributions(wheel=Path(f"{stem}-py3-none-any.whl"), sdist=Path(f"{stem}.tar.gz"))

    def _try(self, constraint: Sequence[str]) -> None:
        """Fill a wheel house, and install and use what is in it in an empty environment."""
        with tempfile.TemporaryDirectory(prefix="ptynb-release-") as name:
            folder = Path(name)
            house, environment, work = folder / "house", folder / "environment", folder / "work"
            wheel = str(self._built().wheel)
            _run(self.python, "-m", "venv", str(environment))
            own = str(environment / ("Scripts" if os.name == "nt" else "bin") / "python")
            _run(own, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(house), *constraint, wheel, *TEST_PACKAGES)
            offline = ("--no-index", "--find-links", str(house))
            _run(own, "-m", "pip", "install", "--quiet", *offline, f"ptynb=={self.version}", *TEST_PACKAGES)
            work.mkdir()
            _run(own, "-c", f"import ptynb; assert ptynb.__version__ == {self.version!r}, ptynb.__file__", cwd=work)
            _run(own, "-m", "pip", "check")
            _run(own, "-m", "ptynb.cli.main", "demo", "--folder", str(work / "demo"), cwd=work)
            if run_portable(own):
                _fail("tests of the installed package failed.")


def changelog_problem(text: str, version: str) -> str:
    """Return what is wrong with the changelog for this version; empty if nothing is."""
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        return f'CHANGELOG.md has no line "## [{version}] - YYYY-MM-DD"; set the day of the release there.'
    waiting = re.search(r"^## \[Unreleased\]$(.*?)^## \[", text, re.MULTILINE | re.DOTALL)
    if waiting is None or waiting[1].strip():
        return f"CHANGELOG.md must have an empty section [Unreleased]; move its lines into the one of {version}."
    return ""


def recipe(text: str, version: str, sdist: Path) -> str:
    """Return the recipe for conda-forge: of this sdist on PyPI, not of a checkout."""
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    source = "https://pypi.org/packages/source/p/ptynb/ptynb-${{ version }}.tar.gz"
    for line, new in (
        (r"^#.*\n", ""),
        (r"^  version: \$\{\{ env.*$", f'  version: "{version}"'),
        (r"^  path: \.\.$", f"  url: {source}\n  sha256: {digest}"),
    ):
        text, count = re.subn(line, lambda _, new=new: new, text, flags=re.MULTILINE)
        assert count, line
    return text


def _run(*command: str, cwd: Path = ROOT) -> None:
    """Run a command; a failing one ends everything."""
    print(f"$ {' '.join(command)}", flush=True)
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, cwd=cwd, check=False, env=without)
    if ended.returncode:
        sys.exit(ended.returncode)


def _fail(problem: str) -> None:
    sys.exit(f"No release: {problem}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the steps, and print how to publish."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__.splitlines()[0])
    parser.add_argument("version", help="such as 0.1.0")
    steps = ("check", "build", "contents", "install", "oldest")
    parser.add_argument("--step", action="append", choices=steps, help="this one only; repeatable (default: all)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--newest", action="store_true", help="install with the newest versions, not the tested ones")
    chosen = parser.parse_args(arguments)
    release = Release(chosen.version, chosen.python, chosen.newest)
    of_steps: dict[str, Callable[[], None]] = {name: getattr(release, name) for name in steps}
    for name in chosen.step or steps:
        print(f"\n== {name}", flush=True)
        of_steps[name]()
    if not chosen.step:
        source = project()["urls"]["Source"]
        print(f"\nAll steps passed. To publish {release.version} (the workflow of {source} uploads it), type:\n")
        print(f"git tag -a {release.tag} -m 'ptynb {release.version}' && git push origin {release.tag}\n")
        print(
            f"By hand instead: twine upload dist/ptynb-{release.version}*; then dist/recipe.yaml goes to the feedstock."
        )


if __name__ == "__main__":
    main()
