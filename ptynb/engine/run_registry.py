"""The reconstructions that are open in an engine's process, and the functions that the kernel calls there."""

from __future__ import annotations

import json
import os
import pickle
import platform
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ptynb.data.engine_records import Status
from ptynb.data.scan import Scan
from ptynb.distributed.group import Membership
from ptynb.distributed.process_end import end_process
from ptynb.engine import precompilation
from ptynb.engine.gpu import gpu_identity
from ptynb.engine.status_publisher import Deliver
from ptynb.engine.worker import Worker
from ptynb.exceptions import PluginError, PtynbError
from ptynb.plugins import Plugin, check_installed
from ptynb.settings import Checkpointing, Settings

_workers: dict[str, Worker] = {}
_specs: dict[str, Any] = {}


class EngineCallError(Exception):
    """Brings an error to the kernel as JSON, [code, fields, message]: ipyparallel sends names and messages only."""


def open_worker(
    name: str,
    spec: Any,
    scan: Scan,
    settings: Settings,
    extensions: bytes,
    membership: Membership,
    checkpointing: Checkpointing | None = None,
    start: Path | None = None,
    note: tuple[str, str, str] | None = None,
) -> tuple[str, str, tuple[str, ...]] | None:
    """Make the worker of the reconstruction `name`; no other one may be open in this process.

    spec: the session's RunSpec, remembered for `attach`. extensions: the user's components and constraints, pickled
    (cloudpickle), from the kernel over its signed messages. The others: as for `Worker`.

    Returns None, or message, code and fields of the error with which it was refused.
    """
    assert not _workers, "the kernel closes the present one first, on all of its ranks"
    try:
        _workers[name] = Worker(
            scan, settings, membership, pickle.loads(extensions), checkpointing, start, note, spec.plan, end_process
        )
    except ValueError as error:
        return str(error), getattr(error, "code", "") or "argument.invalid-value", getattr(error, "fields", ())
    _specs[name] = spec
    return None


def check_plugins(used: tuple[Plugin, ...]) -> tuple[str, str] | None:
    """Return message and code of the error if a plug-in is missing here, or another version; None: all are there."""
    try:
        check_installed(used)
    except PluginError as error:
        return str(error), error.code
    return None


def joinable() -> list[tuple[str, Any, Settings, Status]]:
    """Return the reconstructions that are open on this engine: name, RunSpec, present settings, status."""
    return [(name, _specs[name], worker.settings, worker.status(10**9)) for name, worker in _workers.items()]


def open_names() -> list[str]:
    """Return the names of the reconstructions that are open on this engine."""
    return [*_workers]


def call_worker(name: str, method: str, *arguments: Any) -> Any:
    """Call a method of the worker of the reconstruction `name`. Raises EngineCallError for an error of ptynb."""
    try:
        return getattr(_workers[name], method)(*arguments)
    except PtynbError as error:
        raise EngineCallError(json.dumps([error.code, error.fields, f"{type(error).__name__}: {error}"])) from error


def follow_worker(name: str, known: int, deliver: Deliver) -> None:
    """Deliver the status of the worker after each change, first with the records after `known` epochs."""
    _workers[name].follow(deliver, known)


def close_worker(name: str) -> None:
    """End the worker and free its memory; to be called on all ranks at the same time.

    Raises TimeoutError if it does not end; it stays open then.
    """
    worker = _workers.get(name)
    if worker is not None:
        worker.close()
        worker.release()
    _workers.pop(name, None)
    _specs.pop(name, None)


def abandon_worker(name: str, seconds: float) -> None:
    """End the worker of a reconstruction that lost an engine, if there is one; may be called on one rank alone.

    Raises TimeoutError if it does not end.
    """
    worker = _workers.get(name)
    if worker is not None:
        worker.abandon(seconds)
        close_worker(name)


def stacks() -> str:
    """Return the stacks of the training threads of this process."""
    frames = sys._current_frames()
    training = [thread for thread in threading.enumerate() if thread.name == "ptynb training"]
    return "\n".join(
        "".join(traceback.format_stack(frames[thread.ident])) for thread in training if thread.ident in frames
    )


def at_work() -> bool:
    """Return whether a run is under way on this engine, or paused."""
    return any(worker.status().state in ("running", "paused", "loading") for worker in _workers.values())


def leave(seconds: float) -> None:
    """Write a checkpoint of what is open and end it; for an engine about to end. Waits so many seconds at most.

    Rank 0 broadcasts the command, so all ranks end at the same time.
    """
    for worker in _workers.values():
        worker.leave(seconds)


def own_device() -> torch.device:
    """Return the device of this engine: the GPU of Intel that its plan names, else the only visible one of NVIDIA."""
    return torch.device(os.environ.get("PTYNB_DEVICE") or ("cuda:0" if torch.cuda.is_available() else "cpu"))


def describe() -> dict[str, Any]:
    """Describe this engine process, for the cluster's plan and status, and the doctor; start `precompilation`."""
    device = own_device()
    precompilation.start(device)
    on_gpu, backend = device.type != "cpu", torch.get_device_module(device)
    return {
        "pid": os.getpid(),
        "rank": int(os.environ.get("PTYNB_RANK", "0")),
        "host": platform.node(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "nccl": dist.is_nccl_available(),
        "device": backend.get_device_name(device) if on_gpu else "CPU",
        "identity": gpu_identity(device) if on_gpu else "CPU",
        "memory": backend.get_device_properties(device).total_memory if on_gpu else None,
        "open": open_names(),
    }
