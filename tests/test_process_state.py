"""What a reconstruction in this process leaves as the user had it: see `ptynb.process_state`."""

from __future__ import annotations

import ast
import faulthandler
import gc
import locale
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import tifffile
import torch

import ptynb as pt
from ptynb.cluster.gpus import cuda_numbers
from ptynb.engine.worker import SWITCH_SECONDS
from ptynb.figures.figure_page import paper_page
from ptynb.io.formats.tiff import _opened
from ptynb.process_state import ProcessState, switch_interval
from tests.cases import a_scan

PYTHON = "sys.executable"
LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


def umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def state() -> dict[str, Any]:
    """Everything of this process that a library could change for its user."""
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        "switch interval": sys.getswitchinterval(),
        "signal handlers": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "environment": {**os.environ},
        "working folder": os.getcwd(),
        "umask": umask(),
        "cores": os.sched_getaffinity(0),
        "resource limits": {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS},
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "locale": locale.setlocale(locale.LC_ALL),
        "search path": [*sys.path],
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "hooks": (sys.excepthook, sys.displayhook, sys.unraisablehook, threading.excepthook, sys.gettrace()),
        "recursion": (sys.getrecursionlimit(), threading.stack_size()),
        "faulthandler": faulthandler.is_enabled(),
        "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_debug(), [*gc.callbacks]),
        "filters of warnings": [*warnings.filters],
        "loggers": {
            name: (one.level, one.propagate, one.disabled, [*one.handlers])
            for name, one in loggers.items()
            if isinstance(one, logging.Logger)
        },
        "numpy": (np.geterr(), np.geterrcall(), np.get_printoptions()),
        "random numbers": (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()),  # noqa: NPY002
        "torch": (
            torch.get_num_threads(),
            torch.get_num_interop_threads(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.multiprocessing.get_sharing_strategy(),
        ),
        "matplotlib": {**mpl.rcParams},
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What differs, by its name; of dictionaries, only the entries that were there or are not those of new modules."""
    found = {}
    for name, old in before.items():
        new = after[name]
        if name == "loggers":  # a module that was imported meanwhile has made its own
            new = {key: value for key, value in new.items() if key in old}
        if new != old:
            found[name] = (old, new)
    return found


def wait_for_interval(seconds: float) -> None:
    until = time.monotonic() + 20
    while sys.getswitchinterval() != seconds:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def _of_a_user() -> Iterator[None]:
    """A state that nothing has by default, whose interval changes if it is only read and written."""
    interval, matplotlib = sys.getswitchinterval(), {**mpl.rcParams}
    sys.setswitchinterval(0.0003)
    assert sys.getswitchinterval() != 0.005
    with mpl.rc_context({"font.size": 13.5}), np.errstate(under="raise"):
        yield
    sys.setswitchinterval(interval + 5e-7)
    assert {**mpl.rcParams} == matplotlib


@pytest.mark.usefixtures("_of_a_user")
def test_a_reconstruction_leaves_the_state_of_its_process(tmp_path: Path) -> None:
    pt.Reconstruction(a_scan(), pt.Settings(batch=8), checkpointing=None).close()  # modules are imported
    before = state()
    tifffile.imwrite(tmp_path / "stack.tif", np.ones((4, 8, 8), np.uint16), photometric="minisblack")
    with _opened(tmp_path / "stack.tif") as tiff:
        assert len(tiff.pages) == 4
    checkpointing = pt.Checkpointing(folder=tmp_path / "checkpoints", pictures=0.01)
    recon = pt.Reconstruction(a_scan(), pt.Settings(batch=8), checkpointing=checkpointing)
    recon.start(2)
    recon.wait()
    wait_for_interval(before["switch interval"])  # its last turn ends a moment after the run
    assert differences(before, state()) == {}, "of an open reconstruction that waits"
    recon.save(tmp_path / "one.result.h5")
    pt.figure(recon.result).savefig(tmp_path / "one.svg")
    pt.report(recon, tmp_path / "one.html")
    recon.close()
    assert differences(before, state()) == {}


@pytest.mark.usefixtures("_of_a_user")
def test_threads_are_switched_quickly_during_a_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptynb.engine.loop import Loop

    seen, step = set[float](), Loop.step

    def watched(loop: Loop) -> None:
        seen.add(sys.getswitchinterval())
        step(loop)

    monkeypatch.setattr(Loop, "step", watched)
    usual = sys.getswitchinterval()
    recon = pt.Reconstruction(a_scan(), pt.Settings(batch=8), checkpointing=None)
    recon.start(10_000)
    while recon.epoch < 2:
        time.sleep(0.01)
    assert [*seen] == pytest.approx([SWITCH_SECONDS])
    recon.pause()
    wait_for_interval(usual)
    recon.close(result=False)
    assert sys.getswitchinterval() == usual


def overlapping(context: Callable[[], Any], watch: Callable[[], object]) -> tuple[object, object]:
    """What `watch` sees while a second thread is inside the context that a first one has left, and after both."""
    inside, left = threading.Barrier(2, timeout=20), threading.Event()

    def second() -> object:
        inside.wait()
        with context():
            inside.wait()
            assert left.wait(20)
            return watch()

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(second)
        with context():
            inside.wait()
            inside.wait()
        left.set()
        return answer.result(), watch()


@pytest.mark.usefixtures("_of_a_user")
def test_a_state_that_two_threads_change_is_restored_by_the_last(tmp_path: Path) -> None:
    usual, quickly = sys.getswitchinterval(), ProcessState(lambda: switch_interval(0.0001))
    assert overlapping(lambda: quickly, sys.getswitchinterval) == (pytest.approx(0.0001), usual)
    tifffile.imwrite(tmp_path / "one.tif", np.ones((8, 8), np.uint16))
    logger = logging.getLogger("tifffile")
    assert overlapping(lambda: _opened(tmp_path / "one.tif"), lambda: logger.propagate) == (False, True)


@pytest.mark.usefixtures("_of_a_user")
def test_pages_drawn_at_the_same_time_leave_the_style_and_what_the_user_set_meanwhile() -> None:
    pages = [paper_page("single", letters) for letters in (7.0, 8.0)]
    entered, go = threading.Event(), threading.Event()

    def draw(page: Any) -> None:
        with page.styled():
            entered.set()
            assert go.wait(20)

    with ThreadPoolExecutor(2) as pool:
        drawn = [pool.submit(draw, page) for page in pages]
        assert entered.wait(20)
        mpl.rcParams["image.cmap"] = "magma"
        go.set()
        for one in drawn:
            one.result()
    assert (mpl.rcParams["font.size"], mpl.rcParams["image.cmap"]) == (13.5, "magma")


WITH_WORKING_FOLDER = {"ptynb.cluster.engine_main", "ptynb.cli.main"}
"""Engines import modules of the user, as the notebook does; the command's processes have PYTHONSAFEPATH."""


def test_programs_of_ptynb_search_neither_the_working_folder_nor_their_own_before_the_standard_library() -> None:
    """A queue.py or psutil.py beside a scan is not to be run instead of the module."""
    package, found, unsafe = Path(pt.__file__).parent, 0, []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.List | ast.Tuple) or not node.elts or ast.unparse(node.elts[0]) != PYTHON:
                continue
            found += 1
            words = [one.value if isinstance(one, ast.Constant) else None for one in node.elts[1:]]
            if words[:1] != ["-P"] and not WITH_WORKING_FOLDER & {*words}:
                unsafe.append(f"{path.relative_to(package)}:{node.lineno}: {ast.unparse(node)}")
    assert found >= 8
    assert unsafe == []


def test_what_lies_beside_a_scan_is_not_run_to_list_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ctypes.py").write_text("open('was run', 'w')")
    monkeypatch.chdir(tmp_path)
    cuda_numbers()
    assert [path.name for path in tmp_path.iterdir()] == ["ctypes.py"]


@pytest.mark.parametrize("own", [None, "ACTIVE"])
def test_programs_that_the_user_starts_do_not_inherit_how_threads_of_openmp_wait(own: str | None) -> None:
    program = (
        "import os, ptynb as pt; first = os.environ.get('OMP_WAIT_POLICY'); pt.Reconstruction\n"
        "print(first, os.environ.get('OMP_WAIT_POLICY'))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if own is None else {"OMP_WAIT_POLICY": own}
    command = [sys.executable, "-c", program]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == (["PASSIVE", "None"] if own is None else [own, own])
