"""Runs every check: `python tests/run.py`, with the Python of a virtual environment.

Installs into that environment what the tests need, and Debian's packages of programs that are missing where this may be
done (root, apt-get). Then: formatting, lint, types, imports, checks of `frontend`, the tests, and those parts of the
system tests whose files have changed since they passed (`system_parts.py`). `--all` runs every part, `--part NAME` one
alone, `--touched` what depends most closely on the files of a change; other arguments are pytest's and choose tests by
themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.import_graph import nearest  # noqa: E402
from tests.system_parts import PARTS, due, part_of, record  # noqa: E402 - found from the checkout, with nothing installed

PACKAGES = (
    (("chromium", "chromium-browser", "google-chrome"), ("chromium", "fonts-dejavu-core")),
    (("slurmctld",), ("slurm-wlm", "munge")),
    (("sshd",), ("openssh-server",)),
    (("ssh",), ("openssh-client",)),
    (("ip",), ("iproute2",)),
    (("pg_lsclusters",), ("postgresql",)),
    (("openssl",), ("openssl",)),
    (("npm",), ("nodejs", "npm")),
)
"""Programs, of which the tests need one, and the packages of Debian that have it."""
WAITING = (
    "tests/app",
    "tests/batch",
    "tests/cli",
    "tests/cluster",
    "tests/planning",
    "tests/session",
    "tests/tuning",
    "tests/widgets",
    "tests/test_notebooks.py",
)
"""Tests that start clusters and browsers, and wait for them most of the time: file by file, two at once."""
CHECKS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
    # names that Windows does not have, used where nothing asks whether they are there
    ("mypy", "--platform", "win32", "--no-warn-unreachable", "--cache-dir", ".mypy_cache/win32"),
    ("lint-imports",),
)
OLDER_KERNEL = "ipykernel==7.2.0"
"""The oldest kernel that ptynb is shown to work on; in a folder of its own, which tests put before the newest."""
BESIDE = "2"
"""How many processes share the tests, where they may."""
MOST_TOUCHED = 40
"""Test files of `--touched`: some four minutes on two cores."""


def told(*command: str) -> int:
    """Runs one check, says how long it took, and returns its exit status; 128 + n if signal n ended it, as in a shell.

    subprocess has -n for that, which is less than the 0 of another check that passed.
    """
    print(f"\n$ {' '.join(command)}", flush=True)
    started = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"[{time.monotonic() - started:.0f} s]", flush=True)
    if status < 0:
        print(f"It was ended by signal {-status}.", flush=True)
        return 128 - status
    return status


def run(*command: str) -> None:
    """Runs one check; a failing one ends everything."""
    if (status := told(*command)) != 0:
        sys.exit(status)


@contextlib.contextmanager
def beside(*command: str) -> Iterator[None]:
    """Runs a command while the checks inside run, which take one core; a failure of either ends everything."""
    print(f"\n$ {' '.join(command)} &", flush=True)
    started = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            sys.exit(process.returncode)
    print(f"[{command[0]} ended after {time.monotonic() - started:.0f} s]", flush=True)


def install() -> None:
    """What the tests need, into this environment and, for the browser, this machine."""
    if sys.prefix == sys.base_prefix:
        sys.exit("tests/run.py installs packages: run it with the Python of a virtual environment.")
    pip = (sys.executable, "-m", "pip", "install", "--quiet")
    run(*pip, "-c", "constraints.txt", "-e", ".[test]")
    older = Path(sys.prefix) / "ipykernel-7.2"
    if not older.exists():
        run(*pip, "--no-deps", "--target", str(older), OLDER_KERNEL)
    search = f"{os.environ['PATH']}:/usr/sbin"
    missing = [
        package
        for programs, packages in PACKAGES
        if not any(shutil.which(program, path=search) for program in programs)
        for package in packages
    ]
    if missing:
        install_programs(missing)


def install_programs(missing: list[str]) -> None:
    """Packages of Debian, where this may be done."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit(
            f"The tests need {', '.join(missing)}, which can't be had from here: install that, then run this again."
        )
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-qq", "--no-install-recommends", *missing)


COMPILE = """
import ptynb as pt
from tests.cases import ALGORITHMS, CASES, a_scan
for modes in (1, 2):
    scan, settings = pt.simulate(9, window=16, seed=0), pt.Settings(probe=pt.Probe(modes=modes))
    with pt.Reconstruction(scan, settings, device="cpu") as recon:
        list(recon.run(1))
for name in ("plain", "everything", "lsqml, everything"):
    for precision in ("single", "double"):
        kind, settings, _ = {**CASES, **ALGORITHMS}[name]
        with pt.Reconstruction(a_scan(kind=kind), settings.replace(precision=precision), device="cpu") as recon:
            list(recon.run(1))
"""
"""What a reconstruction is made of is compiled once, not by each process of the tests at the same time.

Three ranks that compiled for double precision, beside another process, took longer than a test gives them.
"""


def parse() -> tuple[argparse.Namespace, list[str]]:
    """What is to be run; arguments that are not ours go to pytest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every part of the system tests, too")
    which.add_argument(
        "--touched",
        nargs="?",
        const="main",
        metavar="BRANCH",
        help="quick checks of what differs from this branch (main): the tests that depend on it most closely",
    )
    which.add_argument("--part", choices=list(PARTS), action="append", help="this part of the system tests alone")
    return parser.parse_known_args()


def touched(base: str) -> list[str]:
    """The test files that depend most closely on what was changed since this branch was left, committed or not."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(
            ("git", *command), cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    [left] = lines("merge-base", base, "HEAD")
    names = lines("diff", "--name-only", left) + lines("ls-files", "--others", "--exclude-standard")
    changed = {ROOT / name for name in names if (ROOT / name).exists()}
    tests = [file for file in (ROOT / "tests").rglob("test_*.py") if part_of(file.relative_to(ROOT).as_posix()) is None]
    found = nearest(changed, tests)
    print(f"{len(changed)} changed files, {len(found)} test files depend on them; run: the nearest {MOST_TOUCHED}.")
    return [str(file.relative_to(ROOT)) for file in found[:MOST_TOUCHED]]


def run_part(part: str) -> int:
    """Runs one part of the system tests with nothing beside it, and records that it passed."""
    selected = PARTS[part].tests or ("tests",)
    started = time.monotonic()
    status = told(sys.executable, "-m", "pytest", "--system", part, *selected)
    if status == 0:
        record(part, time.monotonic() - started)
    return status


def main() -> None:
    """All checks, the quick ones first; then the parts of the system tests whose files changed since they passed."""
    # A shell or nohup ignores these in what it starts in the background; processes that the tests send them inherit it.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    chosen, others = parse()
    if chosen.touched is None:
        install()
    pytest = (sys.executable, "-m", "pytest")
    whole = chosen.touched is None and not others
    with beside(sys.executable, "-c", COMPILE) if whole else contextlib.nullcontext():
        scripts = Path(sys.executable).parent
        for check in CHECKS:
            run(str(scripts / check[0]), *check[1:])
        if whole and not chosen.part:
            quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error")
            run("npm", "ci", "--prefix", "frontend", *quiet)
            run("npm", "run", "--silent", "check", "--prefix", "frontend")
    if chosen.touched is not None:
        if files := touched(chosen.touched):
            run(*pytest, "--system", "none", "--numprocesses", BESIDE, "--dist", "loadfile", *files, *others)
        return
    if others:
        run(*pytest, *others)
        return
    statuses = []
    if not chosen.part:
        shared = (*pytest, "--system", "none", "--numprocesses", BESIDE, "--durations=20")
        statuses.append(told(*shared, *(f"--ignore={path}" for path in WAITING)))
        statuses.append(told(*shared, "--dist", "loadfile", *WAITING))
    parts = chosen.part or (list(PARTS) if chosen.all else due())
    print(f"\nSystem tests: {', '.join(parts) or 'none, since no file that they protect has changed'}.", flush=True)
    statuses.extend(run_part(part) for part in parts)
    sys.exit(max(statuses))  # one run shows all failures


if __name__ == "__main__":
    main()
