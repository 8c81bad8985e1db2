"""Checks of this machine for a cluster, and of a temporary cluster."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from jupyter_core.paths import jupyter_runtime_dir

from ptynb.cluster.accelerators import Accelerator, find_accelerators
from ptynb.cluster.cluster import Cluster
from ptynb.cluster.cpu_cores import numa_nodes, usable_cores
from ptynb.cluster.devices import ClusterPlan, Device, find_gpus, plan_cluster
from ptynb.cluster.error_explanations import explained
from ptynb.cluster.gpus import GPU
from ptynb.cluster.selftest import run_selftest
from ptynb.exceptions import ClusterError, PtynbError
from ptynb.private_folder import code_folder
from ptynb.settings.base_models import flat
from ptynb.settings.cluster_options import LOCAL_DEVICES
from ptynb.settings.site_file import site
from ptynb.site_values import site_path

PACKAGES = (
    *("ptynb", "torch", "numpy", "numba", "h5py"),
    *("ipyparallel", "ipykernel", "ipywidgets", "anywidget", "jupyterlab"),
)
MEMORY_PER_ENGINE = 2**30
"""Memory of an engine [bytes], for a warning; an engine without patterns uses about 0.4 GB."""


@dataclass(frozen=True)
class Examination:
    """Facts as (name, value), problems with remedies, and notes on speed."""

    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def examine_cluster(n: int | None, device: Device) -> Examination:
    """Start a cluster, run its self-test and stop it; failures are problems with explanations."""
    asked = os.environ.get("NCCL_DEBUG")
    os.environ.setdefault(
        "NCCL_DEBUG", "WARN"
    )  # for the logs of the engines: errors of torch omit most messages of NCCL
    try:
        with Cluster(n, device=device) as cluster:
            found = run_selftest(cluster)
            return Examination(found.facts, (), (*cluster.plan.notes, *found.notes))
    except ClusterError as error:
        return Examination((), (explained(str(error)),))
    finally:
        if asked is None:
            del os.environ["NCCL_DEBUG"]


def examine(n: int | None, device: str) -> Examination:
    """Check this machine for a cluster of `n` engines (None: the default)."""
    problems: list[str] = []
    gpus: tuple[GPU, ...] = ()
    plan: ClusterPlan | None = None
    cores = usable_cores()
    accelerators = find_accelerators()
    try:
        gpus = find_gpus() if device not in ("cpu", *LOCAL_DEVICES) else ()
        plan = plan_cluster(
            n,
            device,
            gpus,
            cores,
            nccl=dist.is_nccl_available(),
            nodes=numa_nodes(),
            accelerators=() if device == "cpu" or gpus else accelerators,
        )
    except ClusterError as error:
        problems.append(str(error))
    free = psutil.virtual_memory().available
    facts = [
        ("Machine", f"{platform.node()}, {platform.system()} {platform.machine()}, Python {platform.python_version()}"),
        ("Cores", f"{cores} usable of {os.cpu_count()}"),
        ("Memory", f"{free / 2**30:.1f} GiB free of {psutil.virtual_memory().total / 2**30:.1f} GiB"),
        ("GPUs", ", ".join(map(_gpu, gpus)) or "none found"),
        ("Accelerators of torch", _accelerators(accelerators)),
        ("Torch", _torch()),
    ]
    if plan is not None:
        engines = "; ".join(f"rank {engine.rank}: {engine.identity}" for engine in plan.engines)
        facts += [("Engines", engines), ("Exchange by", plan.reason)]
    facts += _site(problems)
    facts.append(("Packages", ", ".join(_version(name) for name in PACKAGES)))
    problems += _problems(plan, gpus, free)
    notes = (*(plan.notes if plan is not None else ()), *_triton_notes(gpus))
    return Examination(tuple(facts), tuple(problems), notes)


def _site(problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what the site file says, and where caches are; what is wrong with it is added to the problems."""
    try:
        path, chosen = site_path(), site()
        plain = chosen.model_dump(mode="json", exclude_defaults=True, exclude={"serve": {"database"}})
        values = ", ".join(f"{name} = {value}" for name, value in flat(plain))
        yield "Site file", "none" if path is None else f"{path}: {values or 'no values'}"
        yield "Compiled code in", str(code_folder("NUMBA_CACHE_DIR"))
    except (PtynbError, OSError) as error:
        problems.append(str(error))


def _gpu(gpu: GPU) -> str:
    free = "" if gpu.free is None else f", {gpu.free} MiB free"
    return f"{gpu.name}, {gpu.memory} MiB{free} ({gpu.uuid})"


def _accelerators(others: tuple[Accelerator, ...]) -> str:
    """Name what the installed torch can compute on besides the CPU, and what of it cannot be used."""
    build = [f"CUDA {torch.version.cuda} (cuda)"] if torch.version.cuda else []
    return "; ".join([*build, *map(_accelerator, others)]) or "none"


def _accelerator(one: Accelerator) -> str:
    if one.problem:
        return f"{one.name} ({one.kind}) cannot be used: {one.problem}"
    free, total = torch.get_device_module(one.kind).mem_get_info(one.device)
    return (
        f"{one.name} ({one.kind}), {free // 2**20} of {total // 2**20} MiB free: for one engine; its load and "
        "temperature are not shown"
    )


def _torch() -> str:
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return f"{torch.__version__} ({build}), {torch.get_num_threads()} threads"


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} missing"


def _problems(plan: ClusterPlan | None, gpus: tuple[GPU, ...], free: int) -> Iterator[str]:
    """Yield what would fail, with remedies. plan: None if there is none. free: memory [bytes]."""
    engines = 0 if plan is None else len(plan.engines)
    needed = MEMORY_PER_ENGINE * engines
    if needed > free:
        yield (
            f"{engines} engines need about {needed / 2**30:.0f} GiB without patterns, and {free / 2**30:.1f} GiB are "
            "free; use fewer engines, or end other programs."
        )
    for name in PACKAGES:
        if _version(name).endswith(" missing"):
            yield f"The package {name} is not installed; install ptynb again with pip."
    if gpus and torch.version.cuda is None:
        yield "There are GPUs, and the installed torch is a CPU build; install a CUDA build (pytorch.org)."
    # Control messages use gloo with every backend.
    if engines > 1 and not (dist.is_available() and dist.is_gloo_available()):
        yield f"This torch has no gloo backend for {engines} engines; install another build."
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
    except OSError as error:
        yield f"No port can be opened on 127.0.0.1 ({error}); engines could not connect to the notebook."
    folder = Path(jupyter_runtime_dir())
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        yield f"{existing} is not writable; set JUPYTER_RUNTIME_DIR to a writable folder."
    if sys.platform == "linux" and not Path("/sys/class/net/lo").exists():
        yield "There is no loopback interface 'lo'; engines on this machine could not form a group."


def _triton_notes(gpus: tuple[GPU, ...]) -> tuple[str, ...]:
    """Return whether Triton is missing; whether it works is tested on the engines, by `examine_cluster`."""
    if not gpus or torch.version.cuda is None or find_spec("triton") is not None:
        return ()
    return (
        "Triton is not installed, so updates on a GPU take several times as long: it comes with torch's builds for "
        "CUDA on Linux.",
    )
