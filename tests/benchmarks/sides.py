"""The two sides, each in a process of its own with the same number of threads: ptynb, and a peer's script.

The peers' scripts, the problem and its scoring lie in the folder that PTYNB_TEST_BENCH names; the peers are found by a
Python interpreter that has them. Each side answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "PTYNB_TEST_BENCH"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all rows share.

    peers: the Python interpreter that has the peers; None: there is none. threads: of every process.
    turns: how often each side is measured. epochs: of a turn. folder: for problems and results.
    said: takes a line about what goes on. options: what single rows can be told. timeout: of a process [s].
    """

    peers: Path | None
    threads: int
    turns: int
    epochs: int
    folder: Path
    said: Callable[[str], None]
    options: Mapping[str, Any]
    timeout: float = 3600.0

    @property
    def scripts(self) -> Path:
        """The folder of the peers' scripts."""
        named = os.environ.get(FOLDER)
        if named is None:
            raise RuntimeError(f"{FOLDER} does not name a folder; CONTRIBUTING.md says what it holds.")
        return Path(named)

    def ours(self, problem: Path, settings: Mapping[str, Any], epochs: int, *more: str) -> dict[str, Any]:
        """ptynb on a problem: "seconds" (median of the epochs after the first), "all" of them, "loss"."""
        text = json.dumps(settings)
        return self.answer([sys.executable, "-m", "tests.benchmarks.ours", problem, text, "--epochs", epochs, *more])

    def peer(self, script: str, problem: Path, epochs: int, *more: str) -> dict[str, Any]:
        """A peer on a problem, "seconds" being the median of its epochs after the first."""
        if self.peers is None:
            raise RuntimeError("The peers' interpreter is missing; give --peers PYTHON.")
        given = self.answer([self.peers, self.scripts / script, problem, "--epochs", epochs, *more])
        return {**given, "seconds": given["s_per_epoch"]}

    def answer(self, command: Sequence[object]) -> dict[str, Any]:
        """Runs a command with this many threads; what its last line of JSON says."""
        threads = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        words = [str(word) for word in command]
        # The peers get an environment of their own: ptynb's packages are not theirs.
        own = {"PYTHONPATH": path} if words[0] == sys.executable else {"PYTHONPATH": ""}
        ran = subprocess.run(
            words,
            cwd=ROOT if words[0] == sys.executable else self.folder,
            env=os.environ | threads | own,
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        if ran.returncode or not lines:
            last = (ran.stderr or ran.stdout).strip().splitlines()[-3:]
            raise RuntimeError(f"{' '.join(words[:4])} ended with {ran.returncode} and said: {' / '.join(last)}")
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer

    def versions(self) -> dict[str, str]:
        """The peers' versions, by name."""
        if self.peers is None:
            return {}
        asked = "import importlib.metadata as m, json; "
        asked += "print(json.dumps({n: m.version(n) for n in ('ptyrad', 'ptychi', 'cdtools-py', 'torch')}))"
        found: dict[str, str] = self.answer([self.peers, "-c", asked])
        return {name if name != "torch" else "their torch": number for name, number in found.items()}
