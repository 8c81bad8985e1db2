"""All that is said about speed and memory, measured in one run: prints a table, writes JSON, and fills in RESULTS.md.

usage: PTYNB_TEST_BENCH=FOLDER python -m tests.benchmarks.run [--peers PYTHON] [--subjects cpu memory loading gpu ...]
       [--threads 2] [--turns 3] [--epochs 5] [--json FILE] [--results RESULTS.md]

--peers: the Python interpreter of the environment that setup_peers.sh made. Each side of a row runs in a process of its
own with the same number of threads, the sides in turn; a ratio is that of the medians, and beside it stand the smallest
and the largest of a turn. Figures of two runs, or of two machines, are not to be compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import cpu, gpu, loading, memory
from tests.benchmarks.harness import ROOT, Bench, Measured, Missing, described, machine, table

SUBJECTS: dict[str, Callable[[Bench], list[Measured]]] = {
    "cpu": cpu.rows,
    "memory": memory.rows,
    "loading": loading.rows,
    "gpu": gpu.rows,
}
OWN_SCRIPTS = ("waiting", "clicking", "receiving", "tiles")
"""Subjects with a script of their own, whose text goes into the record as it is."""
BEGIN, END = "<!-- measured -->", "<!-- end measured -->"


def main() -> None:
    """Runs the chosen subjects, one after the other."""
    chosen = arguments()
    with tempfile.TemporaryDirectory(prefix="ptynb-benchmarks-") as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(
            peers=chosen.peers,
            threads=chosen.threads,
            turns=chosen.turns,
            epochs=chosen.epochs,
            folder=folder.resolve(),
            said=lambda line: print(line, file=sys.stderr, flush=True),
            options={"patterns": chosen.patterns, "peer_epochs": chosen.peer_epochs},
        )
        found = [row for subject in chosen.subjects if subject in SUBJECTS for row in rows_of(bench, subject)]
        texts = {name: own_script(bench, name) for name in chosen.subjects if name in OWN_SCRIPTS}
    record = machine(chosen.threads, bench.versions())
    print(report := "\n\n".join([described(record), table(found), *fenced(texts)]))
    if chosen.json is not None:
        everything = {"machine": record, "rows": [row.record() for row in found], "scripts": texts}
        chosen.json.write_text(json.dumps(everything, indent=1) + "\n")
    if chosen.results is not None:
        fill_in(chosen.results, report)


def arguments() -> argparse.Namespace:
    """What to measure, and how thoroughly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=lambda text: Path(text).absolute(), help="Python interpreter of the peers")
    parser.add_argument("--subjects", nargs="+", choices=[*SUBJECTS, *OWN_SCRIPTS], default=[*SUBJECTS, *OWN_SCRIPTS])
    parser.add_argument("--threads", type=int, default=2, help="of every process")
    parser.add_argument("--turns", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--epochs", type=int, default=5, help="of a turn; the first one is left out")
    parser.add_argument("--patterns", type=int, default=20_000, help="of 256 x 256 in the file that is loaded")
    parser.add_argument("--peer-epochs", type=int, help="epochs the peer needs to the error, where that is known")
    parser.add_argument("--folder", type=Path, help="where problems are kept for another run; else they are removed")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    parser.add_argument("--results", type=Path, help="write the table between this file's marks")
    return parser.parse_args()


def rows_of(bench: Bench, subject: str) -> list[Measured]:
    """A subject's rows; one that fails does not take the others with it, and is not hidden either."""
    try:
        return SUBJECTS[subject](bench)
    except (RuntimeError, subprocess.SubprocessError) as error:
        return [Missing(subject, subject, f"failed: {error}")]


def own_script(bench: Bench, name: str) -> str:
    """What a subject's own script prints, with its defaults."""
    bench.said(name)
    command = [sys.executable, "-m", f"tests.benchmarks.{name}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (ran.stdout if ran.returncode == 0 else f"failed: {ran.stderr.strip()[-400:]}").strip()


def fenced(texts: dict[str, str]) -> list[str]:
    """The scripts' texts under their names, as Markdown."""
    return [f"`{name}.py`:\n\n```\n{text}\n```" for name, text in texts.items()]


def fill_in(path: Path, report: str) -> None:
    """Puts the report between the marks of a Markdown file, in the place of an older one."""
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{path} has no lines {BEGIN!r} and {END!r}; the report goes between them.")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n\n{report}\n\n{END}{after}")


if __name__ == "__main__":
    main()
