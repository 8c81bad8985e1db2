"""Packages for ptychography on the same problems: time to an error, time to a resolution, memory.

usage: python -m benchmarks FOLDER [--packages ptynb ptychi ...] [--problems x-rays ...] [--batches 16 64 256 1024]
       [--device cuda] [--seconds 60] [--results NAME] [--page]

One command makes in FOLDER what is missing (environments of the packages, their versions pinned; the problems), runs
every package on every problem with every size of batch, each for so many seconds and with each of its step sizes, and
adds what it found to `results/NAME.json` and to `RESULTS.md`. What was measured before with the same versions, scripts
and problem is not measured again. `--page` only writes RESULTS.md from all files of `results/`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import page
from benchmarks.problems import PROBLEMS, Problem
from benchmarks.scoring import error_of, fitted, resolved

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BATCHES = (16, 64, 256, 1024)
LEEWAY = 600.0
"""Time for loading and compiling, besides the seconds of a run [s]."""


LSQML = (0.5, 1.0)
RPIE = (0.05, 0.15, 0.5)
ADAM = (0.01, 0.03, 0.1)
STEPS: dict[str, dict[str, tuple[float, ...]]] = {
    "ptynb": {"lsqml": LSQML, "sgd": (0.1, 0.3), "adam": ADAM},
    "ptychi": {"lsqml": LSQML, "rpie": RPIE, "adam": ADAM},
    "ptyrad": {"adam": ADAM, "compiled adam": ADAM},
    "cdtools": {"adam": ADAM},
    "quantem": {"adam": ADAM, "sgd": LSQML},
    "py4dstem": {"gradient descent": LSQML},
    "ptypy": {"dm": (1.0,), "ml": (1.0,)},
}
"""Packages, their algorithms, and the step sizes of the object that each is tried with, in its own unit.

Those of ptypy have no step size to choose.
"""
WHOLE = {("ptypy", "dm"), ("ptypy", "ml")}
"""Algorithms without batches: they are measured once, under the largest of the chosen sizes."""
COMMON = "requirements.txt"
REQUIREMENTS = {"py4dstem": "requirements-numpy.txt", "ptypy": "requirements-numpy.txt"}
"""Of packages that are not in the common environment: py4DSTEM needs numpy below 2."""
OLDER_PYTHON = ("{lr_iters['niter'][-1]}", '{lr_iters["niter"][-1]}')
"""In a file of PtyRAD 1.0.0, which needs Python 3.12 for this alone."""


@dataclass(frozen=True)
class Run:
    """One package on one problem."""

    problem: str
    package: str
    algorithm: str
    batch: int
    rate: float

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.problem}, {self.package} {self.algorithm}, batch {self.batch}, step {self.rate:g}"


def main() -> None:
    """Measure what is missing, and write the page."""
    chosen = _arguments()
    if not chosen.page:
        if chosen.folder is None:
            sys.exit("FOLDER is missing; expected one for environment and problems: 'python -m benchmarks FOLDER'.")
        _measure(chosen)
    (HERE / "RESULTS.md").write_text(
        page.written([json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))])
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="for environments and problems")
    parser.add_argument("--packages", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES), metavar="N")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a run, without loading (default 60)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of a run (default: all cores)")
    parser.add_argument("--results", metavar="NAME", help="file in results/ (default: named after the device)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments (default: this one)")
    parser.add_argument(
        "--installed", action="store_true", help="the chosen packages are installed in --python; make no environment"
    )
    parser.add_argument("--page", action="store_true", help="only write RESULTS.md")
    return parser.parse_args()


def _measure(chosen: argparse.Namespace) -> None:
    machine = _machine(chosen.device, chosen.threads)
    file = RESULTS / f"{chosen.results or _file_name(machine)}.json"
    record = json.loads(file.read_text()) if file.exists() else {"machine": machine, "runs": []}
    record["machine"] = machine
    RESULTS.mkdir(exist_ok=True)
    python = _environment(chosen, COMMON)
    pythons = {name: _environment(chosen, REQUIREMENTS.get(name, COMMON)) for name in chosen.packages}
    for name in chosen.problems:
        path = _made(chosen, python, name)
        digests = {package: _digest(package, path) for package in chosen.packages}
        warm = set[tuple[str, str, int]]()
        for run in _runs(chosen, name):
            python, digest = pythons[run.package], digests[run.package]
            known = [one for one in record["runs"] if _described(one) == _described(vars(run))]
            if known and _is_valid(known[0], python, digest) and known[0]["seconds"] >= chosen.seconds:
                continue
            print(f"{run.name}: ", end="", flush=True)
            code = (run.package, run.algorithm, run.batch)
            found = {**_ran(chosen, run, python, path, code in warm), "digest": digest}
            warm.add(code)
            record["runs"] = [one for one in record["runs"] if one not in known] + [found]
            file.write_text(json.dumps(record, indent=1) + "\n")
            print(found.get("failed") or _summary(found), flush=True)


def _runs(chosen: argparse.Namespace, problem: str) -> Iterator[Run]:
    for package, batch in itertools.product(chosen.packages, chosen.batches):
        for algorithm, steps in STEPS[package].items():
            if (package, algorithm) in WHOLE and batch < max(chosen.batches):
                continue
            for step in steps:
                yield Run(problem, package, algorithm, batch, step)


def _described(one: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(one[key] for key in ("problem", "package", "algorithm", "batch", "rate"))


def _is_valid(one: dict[str, Any], python: Path, digest: str) -> bool:
    """Return whether a run succeeded with the versions and files of today."""
    same = one.get("digest") == digest and one["versions"] == _versions(python, tuple(one["versions"]))
    return same and "failed" not in one


def _digest(package: str, problem: Path) -> str:
    """Return the SHA-256 of what decides a package's runs beside the versions: scripts, problem, and ptynb's source."""
    files = [HERE / "packages" / f"run_{package}.py", HERE / "packages" / "recorder.py", problem]
    if package == "ptynb":
        files += sorted((HERE.parent / "ptynb").rglob("*.py"))
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


def _ran(chosen: argparse.Namespace, run: Run, python: Path, problem: Path, warm: bool) -> dict[str, Any]:
    """Run a package's script in a process of its own, and judge what it saved. warm: its code was compiled already."""
    kind = PROBLEMS[run.problem]
    described = {
        **vars(run),
        "seconds": chosen.seconds,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    with tempfile.TemporaryDirectory(dir=chosen.folder) as temporary:
        folder = Path(temporary)
        # An epoch before, whose compiled code stays in this machine's caches, as that of a user's earlier runs does.
        failed = "" if warm else _script(chosen, run, python, problem, folder, 0.0)
        failed = failed or _script(chosen, run, python, problem, folder, chosen.seconds)
        return (
            {**described, "versions": {}, "failed": failed}
            if failed
            else {**described, **_judged(folder, kind, problem)}
        )


def _script(chosen: argparse.Namespace, run: Run, python: Path, problem: Path, folder: Path, seconds: float) -> str:
    """Run a package's script for a time, into an emptied folder, and return why it failed, if it did."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    options = {
        "algorithm": run.algorithm,
        "batch": run.batch,
        "modes": PROBLEMS[run.problem].modes,
        "rate": run.rate,
        "seconds": seconds,
        "device": chosen.device,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    threads = {name: str(chosen.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    try:
        ended = subprocess.run(
            [python, HERE / "packages" / f"run_{run.package}.py", problem, folder / "run", *words],
            cwd=folder,
            env={**os.environ, **threads},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + LEEWAY,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {seconds + LEEWAY:.0f} s"
    return " / ".join((ended.stderr or ended.stdout).strip().splitlines()[-2:])[-300:] if ended.returncode else ""


def _judged(folder: Path, kind: Problem, problem: Path) -> dict[str, Any]:
    """Return time and quality of what a script saved."""
    folder = folder / "run"
    record = json.loads((folder / "run.json").read_text())
    spent = {one["epoch"]: one["seconds"] for one in record["epochs"]}
    with np.load(problem) as file:
        content = {name: file[name] for name in file.files}
    curve = []
    for saved in sorted(folder.glob("*.npz")):
        with np.load(saved) as arrays:
            object = arrays["object"]
        number = int(saved.stem)
        found = fitted(object, content) if "object" in content and np.isfinite(object).all() else None
        error, frequency = (None, None) if found is None else (error_of(*found), resolved(*found))
        curve.append({"epoch": number, "seconds": spent[number], "error": error, "frequency": frequency})
    times = np.diff([0.0, *spent.values()])
    return {
        "versions": record["versions"],
        "epochs": len(spent),
        "epoch_seconds": float(np.median(times[1:] if len(times) > 1 else times)),
        "first_epoch_seconds": float(times[0]),
        "setup_seconds": record["setup_seconds"],
        "peak_bytes": record["peak_bytes"],
        "error": _best(curve, "error", min),
        "frequency": _best(curve, "frequency", max),
        "time_to_error": _first(curve, lambda one: one["error"] is not None and one["error"] <= kind.error),
        "time_to_frequency": _first(
            curve, lambda one: one["frequency"] is not None and one["frequency"] >= kind.frequency
        ),
        "curve": curve,
    }


def _best(curve: list[dict[str, Any]], name: str, of: Any) -> float | None:
    values = [one[name] for one in curve if one[name] is not None]
    return of(values) if values else None


def _first(curve: list[dict[str, Any]], reached: Any) -> float | None:
    return next((one["seconds"] for one in curve if reached(one)), None)


def _summary(found: dict[str, Any]) -> str:
    texts = [f"{found['epoch_seconds']:.3g} s an epoch"]
    if found["error"] is not None:
        reached = found["time_to_error"]
        texts.append(
            f"error {found['error']:.4f}, the aim " + ("not reached" if reached is None else f"after {reached:.3g} s")
        )
        texts.append(f"resolved to {found['frequency']:.2f} of Nyquist")
    return ", ".join(texts)


def _environment(chosen: argparse.Namespace, requirements: str) -> Path:
    """Return the interpreter of the environment with these requirements, which is made if it is missing."""
    if chosen.installed:
        return Path(chosen.python)
    name = Path(requirements).stem.replace("requirements", "environment")
    python = chosen.folder.absolute() / name / "bin" / "python"
    if not python.exists():
        print(f"Installing {requirements} ...", flush=True)
        subprocess.run([chosen.python, "-m", "venv", python.parent.parent], check=True)
        ours = ["-e", str(HERE.parent)] if requirements == COMMON else []
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", HERE / requirements, *ours], check=True)
        for file in python.parent.parent.glob("lib/python*/site-packages/ptyrad/plotting/basic.py"):
            file.write_text(file.read_text().replace(*OLDER_PYTHON))
    return python


def _made(chosen: argparse.Namespace, python: Path, name: str) -> Path:
    """Return the file of a problem, which is made if it is missing."""
    file = chosen.folder.absolute() / "problems" / f"{name}.npz"
    if not file.exists():
        subprocess.run([python, HERE / "problems.py", name, file], check=True)
    return file


def _versions(python: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the installed versions of packages in an environment."""
    asked = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {names!r}}}))"
    ended = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    return {} if ended.returncode else json.loads(ended.stdout)


def _machine(device: str, threads: int) -> dict[str, Any]:
    described = {
        "processor": _processor(),
        "threads": threads,
        "device": "cpu",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[1], 1),
    }
    if device == "cuda":
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        described["device"] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return described


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*:\s*(.+)", information.read_text()) if information.exists() else []
    return names[0] if names else platform.processor()


def _file_name(machine: dict[str, Any]) -> str:
    text = machine["device"] if machine["device"] != "cpu" else f"{machine['processor']} {machine['threads']} threads"
    return re.sub(r"[^a-z0-9]+", "-", text.split(",")[0].lower()).strip("-")


if __name__ == "__main__":
    main()
