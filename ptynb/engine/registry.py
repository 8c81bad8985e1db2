"""The reconstructions that are open in an engine's process, and what the kernel calls there."""

from __future__ import annotations

import os
import pickle
import platform
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import torch

from ptynb.data.scan import Scan
from ptynb.data.snapshot import Status
from ptynb.distributed.group import Membership
from ptynb.engine.worker import Worker
from ptynb.settings import Checkpointing, Settings

_workers: dict[str, Worker] = {}
_openings: dict[str, Any] = {}


def open_worker(
    name: str,
    opening: Any,
    scan: Scan,
    settings: Settings,
    extensions: bytes,
    membership: Membership,
    keep: Checkpointing | None = None,
    start: Path | None = None,
    note: tuple[str, str, str] | None = None,
) -> str:
    """Makes the worker of the reconstruction `name` in this process, where there is none at the time.

    Returns the sentence with which it was refused; empty where it was made.

    opening: what this engine is to remember for who joins it later. extensions: pieces and constraints of the user's,
    by value (cloudpickle), from the kernel over its signed messages. The others: as for `Worker`.
    """
    assert not _workers, "the kernel ends what is open here first, on all of its ranks"
    try:
        _workers[name] = Worker(scan, settings, membership, pickle.loads(extensions), keep, start, note)
    except ValueError as error:
        return str(error)
    _openings[name] = opening
    return ""


def joinable() -> list[tuple[str, Any, Settings, Status]]:
    """The reconstructions that are open on this engine: name, what was remembered, present settings, where it is."""
    return [(name, _openings[name], worker.settings, worker.status(10**9)) for name, worker in _workers.items()]


def open_names() -> list[str]:
    """The reconstructions that are open on this engine."""
    return [*_workers]


def call_worker(name: str, method: str, *arguments: Any) -> Any:
    """Calls a method of the worker of the reconstruction `name`."""
    return getattr(_workers[name], method)(*arguments)


def close_worker(name: str) -> None:
    """Ends the worker and frees its memory. To be called on all ranks at the same time.

    Raises TimeoutError where it does not end; it is still known here then.
    """
    worker = _workers.get(name)
    if worker is not None:
        worker.close()
    _workers.pop(name, None)
    _openings.pop(name, None)


def abandon_worker(name: str, seconds: float) -> None:
    """Ends the worker of a reconstruction that lost an engine, if there is one; raises TimeoutError if it does not.

    Unlike `close_worker` it asks nobody else, and may be called on one rank alone.
    """
    worker = _workers.get(name)
    if worker is not None:
        worker.abandon(seconds)
        close_worker(name)


def stacks() -> str:
    """Where the training threads of this process are in the code, for who wonders what they wait for."""
    frames = sys._current_frames()
    training = [thread for thread in threading.enumerate() if thread.name == "ptynb training"]
    found = [traceback.format_stack(frames[thread.ident]) for thread in training if thread.ident in frames]
    return "\n".join("".join(lines) for lines in found)


def at_work() -> bool:
    """Whether a run is under way on this engine, or held by a pause."""
    return any(worker.status().state in ("running", "paused", "loading") for worker in _workers.values())


def leave(seconds: float) -> None:
    """Ends what is open here, its state kept; for an engine about to end. Waits for it so many seconds at most.

    Rank 0 tells the others, who wait for its word: all of them are ended at the same time.
    """
    for worker in _workers.values():
        worker.leave(seconds)


def describe() -> dict[str, Any]:
    """What this engine process is: for the cluster's plan and status, and the doctor."""
    cuda = torch.cuda.is_available()
    return {
        "pid": os.getpid(),
        "rank": int(os.environ.get("PTYNB_RANK", "0")),
        "host": platform.node(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(0) if cuda else "CPU",
        "identity": f"{torch.cuda.get_device_name(0)} {torch.cuda.get_device_properties(0).uuid}" if cuda else "CPU",
        "memory": torch.cuda.get_device_properties(0).total_memory if cuda else None,
        "open": open_names(),
    }
