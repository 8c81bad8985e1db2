"""Stands for `ptynb run`: does what that promises to whoever starts it, and computes nothing.

    python -m tests.service.child_run FILE --output DIR --id ID --progress json --resume

An epoch takes 20 ms. DIR/ID/journal.txt tells of each attempt, and of the end. What goes wrong is in
DIR/ID.faults.json: {"status": 69, "times": 2, "code": "memory.insufficient"}, or
{"ends_by_signal": true} for a signal that comes when all is done, {"early": 130} for the exit status after a signal of
which nothing is recorded, {"leaves": true} for a process that goes on with the pipes of the run (left.txt has its id).
A file DIR/ID.enough ends the run after its present epoch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import filelock
import yaml

EPOCH = 0.02


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--progress", choices=["json"], required=True)
    parser.add_argument("--resume", action="store_true", required=True)
    parser.add_argument("--trust", action="store_true")
    chosen = parser.parse_args()
    folder = chosen.output / chosen.id
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with filelock.FileLock(folder / "lock", timeout=0):
            return run(chosen.id, folder, yaml.safe_load(chosen.file.read_text()), came)
    except filelock.Timeout:
        print("Another process works in the folder.", file=sys.stderr)
        return 75


def run(name: str, folder: Path, plan: dict, came: list[int]) -> int:
    outcome = folder / "outcome.json"
    if outcome.exists() and json.loads(outcome.read_text())["status"] == "completed":
        return 0
    faults = read(folder.with_name(f"{name}.faults.json"))
    note(folder, "begin")
    tell(folder, event="started", id=name, epochs=plan["epochs"])
    if faults.get("leaves"):
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(999)"])
        (folder / "left.txt").write_text(str(left.pid))
    begun = read(folder / "checkpoint.json").get("epoch", 0)
    for epoch in range(begun + 1, plan["epochs"] + 1):
        time.sleep(EPOCH)
        tell(folder, event="epoch", epoch=epoch, epochs=plan["epochs"], loss=1 / epoch, seconds=EPOCH)
        if faults.get("times", 0) > 0:
            whole(folder.with_name(f"{name}.faults.json"), {**faults, "times": faults["times"] - 1})
            error = {"code": faults["code"], "message": "It went wrong."}
            tell(folder, event="failed", error=error)
            whole(outcome, {"id": name, "status": "failed", "exit_status": faults["status"], "error": error})
            return faults["status"]
        if folder.with_name(f"{name}.enough").exists():
            break
        if came and faults.get("early"):
            return faults["early"]
        if came:
            whole(folder / "checkpoint.json", {"epoch": epoch})
            tell(folder, event="interrupted")
            return 75
    (folder / "result.h5").write_bytes(b"\x89HDF" + bytes(range(250)))
    note(folder, "end")
    whole(outcome, {"id": name, "status": "completed", "exit_status": 0, "error": None})
    tell(folder, event="completed")
    if faults.get("ends_by_signal"):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    return 0


def read(path: Path) -> dict:
    with contextlib.suppress(FileNotFoundError):
        return json.loads(path.read_text())
    return {}


def whole(path: Path, values: dict) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(values))
    part.replace(path)


def note(folder: Path, line: str) -> None:
    with (folder / "journal.txt").open("a") as file:
        file.write(f"{line}\n")


def tell(folder: Path, **values: object) -> None:
    line = json.dumps({**values, "time": datetime.now(UTC).isoformat()})
    with (folder / "progress.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with contextlib.suppress(BrokenPipeError):  # whoever started it is gone
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
