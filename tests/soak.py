"""Random faults for as long as it is told, and what was lost by them: `python -m tests.soak --minutes 30`.

Rounds of one reconstruction each, on two real engines, with a process that stands for the notebook. At random moments
something happens to it (see `FAULTS`); after each the run has to go on from a kept state, with a record that is whole.
At the end of a round losses and object must be those of an undisturbed run, bit for bit (but for rounds in which a rate
was changed), and nothing may be left: processes, folders. The seed decides which faults come, in which order.

The exit status is 1 where anything was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

import ptynb as pt
from ptynb.io.checkpoint_file import load_state, states
from tests.soak_notebook import DISK, TIMEOUT

EPOCHS = 250
FAULTS_A_ROUND = 5
DISK_BYTES = 96 * 2**20
PATIENCE = 60.0
"""Seconds within which a run has to be further than it was, whatever happened."""


class LossError(Exception):
    """Something that must hold did not."""


class Child:
    """The process that stands for the notebook."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.soak_notebook", str(folder)]
        log = (folder / "notebook.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._line("READY")

    def _line(self, first: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(first):
                return line.removeprefix(first).strip()
        raise LossError(f"the notebook's process ended with status {self.process.wait()}")

    def send(self, method: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[str | None, Any]:
        error, value = json.loads(self._line("ANSWER"))
        return error, value

    def call(self, method: str, *arguments: Any) -> Any:
        self.send(method, *arguments)
        error, value = self.answer()
        if error is not None:
            raise LossError(f"{method} raised {error}")
        return value

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Round:
    """One reconstruction and what happens to it."""

    def __init__(self, folder: Path, chance: random.Random, expected: list[float]) -> None:
        self.folder, self.chance, self.expected = folder, chance, expected
        self.states = folder / DISK / "states"
        self.names: set[str] = set()
        self.changed = False
        self.child = Child(folder)
        self.names.add(self.child.call("begin", EPOCHS))

    # What can happen

    def kill_engine(self) -> None:
        os.kill(self.chance.choice(self.child.call("pids")), signal.SIGKILL)

    def kill_engine_and_nanny(self) -> None:
        engine = psutil.Process(self.chance.choice(self.child.call("pids")))
        for process in (*engine.children(recursive=True), engine):
            process.kill()

    def stall_for_a_moment(self) -> None:
        self._stall(0.5 * TIMEOUT)

    def stall_for_good(self) -> None:
        self._stall(2.0 * TIMEOUT)

    def _stall(self, seconds: float) -> None:
        pid = self.chance.choice(self.child.call("pids"))
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGCONT)

    def raise_on_one_rank(self) -> None:
        (self.folder / "raise").touch()
        self._until(lambda look: look["state"] == "failed" or len(look["numbers"]) >= EPOCHS, "it fails")
        if self.child.call("look")["state"] == "failed":
            self.names.add(self.child.call("go_on", EPOCHS))
        (self.folder / "raise").unlink(missing_ok=True)

    def kill_notebook(self) -> None:
        self.child.end()
        time.sleep(self.chance.uniform(0, 3))
        self.child = Child(self.folder)
        try:
            self.child.call("attach")
        except LossError:  # the run was at its end: the engines have kept it, and left
            time.sleep(15)
            self.names.add(self.child.call("go_on", EPOCHS))

    def interrupt(self) -> None:
        self.child.send("wait")
        time.sleep(self.chance.uniform(0.1, 1))
        os.kill(self.child.process.pid, signal.SIGINT)
        if self.chance.random() < 0.5:  # while the first one is being answered, or after it
            time.sleep(self.chance.uniform(0, 0.002))
            os.kill(self.child.process.pid, signal.SIGINT)
        started = time.monotonic()
        self.child.answer()
        if time.monotonic() - started > 1:
            raise LossError(f"the notebook was usable only {time.monotonic() - started:.1f} s after Ctrl-C")

    def pause_and_resume(self) -> None:
        self.child.call("order", "pause")
        time.sleep(self.chance.uniform(0, 1))
        self.child.call("order", "resume")

    def stop_and_start(self) -> None:
        self.child.call("order", "stop")
        done = len(self.child.call("look")["numbers"])
        if done < EPOCHS:
            self.child.call("begin_again", EPOCHS - done)

    def folder_in_the_way(self) -> None:
        kept, aside = self.states, self.states.with_name("aside")
        if kept.exists():
            kept.rename(aside)
            kept.write_text("a file where the folder was")
            time.sleep(self.chance.uniform(1, 5))
            kept.unlink()
            aside.rename(kept)

    def disk_full(self) -> None:
        """Training goes on, the user is told, and the states from before can still be read."""
        if not os.path.ismount(self.states.parent) or not states(self.states):
            return
        before = self.child.call("look")["notices"]
        filler = self.states.parent / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        self._until(lambda look: look["notices"] != before or len(look["numbers"]) >= EPOCHS, "the user is told")
        load_state(states(self.states)[-1])
        filler.unlink()

    def folder_removed(self) -> None:
        shutil.rmtree(self.states, ignore_errors=True)
        self._until(lambda look: bool(states(self.states)) or len(look["numbers"]) >= EPOCHS, "a new state")

    def cluster_stopped_and_state_truncated(self) -> None:
        if len(states(self.states)) < 2:
            return
        self.child.call("stop_cluster")
        newest = states(self.states)[-1]
        newest.write_bytes(newest.read_bytes()[: -self.chance.randrange(1, 2000)])
        self.names.add(self.child.call("go_on", EPOCHS))

    def change_a_rate(self) -> None:
        self.changed = True
        self.child.call("rate", self.chance.uniform(0.002, 0.02))

    # What must hold

    def _until(self, true: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while True:
            look: dict[str, Any] = self.child.call("look")
            if true(look):
                return look
            if time.monotonic() > until:
                raise LossError(f"not within {PATIENCE:g} s: {what}; it is {look['state']}, {look['failure']}")
            time.sleep(0.1)

    def check(self, before: int) -> float:
        """The run gets further than it was, with a record that is whole; seconds that this took."""
        started = time.monotonic()
        goal = min(before + 2, EPOCHS)
        look = self._until(lambda look: len(look["numbers"]) >= goal and look["state"] != "recovering", "it goes on")
        if look["numbers"] != [*range(1, len(look["numbers"]) + 1)]:
            raise LossError(f"the record is not whole: {look['numbers'][:5]} ... {look['numbers'][-5:]}")
        if not self.changed:
            for number, (loss, expected) in enumerate(zip(look["losses"], self.expected, strict=False), 1):
                if loss != expected:
                    raise LossError(f"the loss of epoch {number} is {loss}; undisturbed it is {expected}")
        return time.monotonic() - started

    def finish(self, expected: str) -> None:
        self._until(lambda look: len(look["numbers"]) >= EPOCHS and look["state"] == "ready", "it ends")
        self.check(EPOCHS)
        found = self.child.call("end")
        if not self.changed and found != expected:
            raise LossError("the object is not that of an undisturbed run")
        self.child.end()
        until = time.monotonic() + 20
        while left := [name for name in self.names if _marked(name)]:
            if time.monotonic() > until:
                raise LossError(f"processes of {left} are left: {[_marked(name) for name in left]}")
            time.sleep(0.2)


def _marked(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get("PTYNB_CLUSTER") == name:
                found.append(process)
        except psutil.Error:
            continue
    return found


FAULTS: list[Callable[[Round], None]] = [
    *(Round.kill_engine, Round.kill_engine_and_nanny, Round.stall_for_a_moment, Round.stall_for_good),
    *(Round.raise_on_one_rank, Round.kill_notebook, Round.interrupt, Round.pause_and_resume, Round.stop_and_start),
    *(
        Round.folder_in_the_way,
        Round.folder_removed,
        Round.disk_full,
        Round.cluster_stopped_and_state_truncated,
        Round.change_a_rate,
    ),
]


def undisturbed(folder: Path) -> tuple[list[float], str]:
    """Losses and fingerprint of a run to which nothing happens."""
    child = Child(folder)
    child.call("begin", EPOCHS)
    while child.call("look")["state"] != "ready":
        time.sleep(0.2)
    losses = child.call("look")["losses"]
    fingerprint = child.call("end")
    child.end()
    shutil.rmtree(folder / DISK / "states")
    return losses, fingerprint


def main() -> int:
    """Rounds until the time is over; 1 where anything was lost."""
    parser = argparse.ArgumentParser(description="Random faults, and what was lost by them.")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    base = chosen.folder or Path(tempfile.mkdtemp(prefix="ptynb-soak-"))
    base.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(base / DISK / "states", ignore_errors=True)
    with _small_disk(base / DISK):
        return _soak(base, chosen.seed, 60 * chosen.minutes)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A disk of its own, that can be filled, where this may be mounted; else a folder, and none is ever full."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
    print("states on a small disk" if mounted else "no small disk can be mounted here: none is ever full", flush=True)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _soak(base: Path, seed: int, seconds: float) -> int:
    os.environ.update(JUPYTER_RUNTIME_DIR=str(base / "runtime"), PTYNB_KEPT=str(base / "kept"))
    print(f"seed {seed}, in {base}", flush=True)
    pt.save_scan(pt.simulate(patterns=400, window=96, modes=2, seed=2), base / "scan.h5")
    losses, fingerprint = undisturbed(base)
    chance, until = random.Random(seed), time.monotonic() + seconds
    survived: Counter[str] = Counter()
    lost: list[str] = []
    rounds = 0
    while time.monotonic() < until:
        rounds += 1
        lost += _one_round(base, chance, losses, fingerprint, survived, rounds)
        shutil.rmtree(base / DISK / "states", ignore_errors=True)
    print(f"\n{rounds} rounds, {sum(survived.values())} faults survived: {dict(survived)}")
    print(f"lost: {'nothing' if not lost else ''}")
    for one in lost:
        print(f"  {one}")
    return 1 if lost else 0


def _one_round(
    base: Path, chance: random.Random, losses: list[float], fingerprint: str, survived: Counter[str], number: int
) -> list[str]:
    at_work = Round(base, chance, losses)
    name = ""
    try:
        for _ in range(FAULTS_A_ROUND):
            time.sleep(chance.uniform(0.5, 5))
            before = len(at_work.child.call("look")["numbers"])
            if before >= EPOCHS:
                break
            fault = chance.choice(FAULTS)
            name = fault.__name__
            fault(at_work)
            seconds = at_work.check(before)
            survived[name] += 1
            print(f"round {number}, epoch {before}: {name}; beyond it after {seconds:.1f} s", flush=True)
        name = "the end"
        at_work.finish(fingerprint)
    except LossError as error:
        print(f"round {number}: LOST by {name}: {error}", flush=True)
        at_work.child.end()
        for cluster in at_work.names:
            for process in _marked(cluster):
                process.kill()
        return [f"round {number}, {name}: {error}"]
    return []


if __name__ == "__main__":
    sys.exit(main())
