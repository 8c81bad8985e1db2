"""`python -m tests.fuzz`: spoils files and has them read until told to stop; its status is 1 where a reader failed."""

from __future__ import annotations

import argparse
import collections
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.pool import Pool
from tests.fuzz.seeds import SEEDS


def main() -> int:
    """Prints each failure once (by its last lines) as it comes, and the counts at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--only", metavar="WORD", help="seeds whose name has this word in it")
    parser.add_argument("--number", type=int, help="do this number again, of every chosen seed, and nothing else")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where files go that a reader could not bear")
    chosen = parser.parse_args()
    seeds = [name for name in SEEDS if chosen.only is None or chosen.only in name]
    counts: collections.Counter[str] = collections.Counter()
    known: set[str] = set()
    until = time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as folder, Pool(Path(folder)) as pool:
        cases = ((seed, random.randrange(10**9) if chosen.number is None else chosen.number) for seed in _again(seeds))
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


def _again(names: list[str]):
    while True:
        yield from names


if __name__ == "__main__":
    sys.exit(main())
