"""`python -m tests.fuzz`: damages files and reads them; exit status 1 if a reader failed."""

from __future__ import annotations

import argparse
import collections
import itertools
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.pool import Pool
from tests.fuzz.seeds import SEEDS


def main() -> int:
    """Print each failure once (by its last lines), and the counts at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--only", metavar="WORD", help="only seeds whose name contains this word")
    parser.add_argument("--number", type=int, help="repeat only this number, for every selected seed")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="folder for files that a reader failed on")
    chosen = parser.parse_args()
    seeds = [name for name in SEEDS if chosen.only is None or chosen.only in name]
    counts: collections.Counter[str] = collections.Counter()
    known: set[str] = set()
    until = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as folder, Pool(Path(folder)) as pool:
        cases = (
            (seed, random.randrange(10**9) if chosen.number is None else chosen.number)
            for seed in itertools.cycle(seeds)
        )
        for done, (seed, number) in enumerate(cases):
            if time.monotonic() > until or (chosen.number is not None and done == len(seeds)):
                break
            outcome = pool.read(seed, number)
            counts[outcome.answer if outcome.fine else "failed"] += 1
            reason = f"{seed} {' '.join(outcome.answer.splitlines()[-3:])}"
            if not outcome.fine and reason not in known:
                known.add(reason)
                print(f"{outcome}\n", flush=True)
                if chosen.keep is not None:
                    shutil.copytree(Path(folder) / "spoilt", chosen.keep / f"{seed} {number}", dirs_exist_ok=True)
    print(f"{dict(counts)}, {len(known)} kinds of failure")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
