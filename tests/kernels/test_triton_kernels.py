"""Kernels in Triton, without a GPU: run by Triton's interpreter against torch's operations, and compiled for GPUs.

Triton chooses between interpreter and compiler when it is imported, so both have processes of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ptynb.engine.loop import agree_on_triton
from ptynb.physics import triton_dispatch
from ptynb.physics.triton_dispatch import run_by_triton
from tests.kernels.triton_checks import (
    CHECKS,
    DOUBLE,
    OPERATIONS,
    SINGLE,
    Problem,
    check_all,
    check_batches,
    check_comparisons,
    check_descent,
    check_large_shifts,
    check_object_gradient,
    check_perfect_fit,
    check_rows,
    check_waves,
)
from tests.parametrization import case, each

CPU = torch.device("cpu")


class Apart:
    """A process with an environment of its own, in which functions of this module run."""

    def __init__(self, start: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, context, start, arguments)
        self.run(os.getpid)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        self._pool.shutdown()


def start_interpreter() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    run_by_triton(*OPERATIONS, device="cpu")
    assert triton_dispatch._works("cpu")


@pytest.fixture(scope="module", autouse=True)
def _tracker() -> None:
    """The process of multiprocessing that all processes started so share is no process that a test leaves behind."""
    resource_tracker.ensure_running()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Apart]:
    process = Apart(start_interpreter)
    yield process
    process.close()


@pytest.mark.parametrize("check", CHECKS)
def test_results_are_those_of_torch(check: str, interpreter: Apart):
    interpreter.run(check_all, check)


def test_comparisons_with_counts_are_those_of_torch(interpreter: Apart):
    interpreter.run(check_comparisons)


def test_the_loss_of_poisson_is_exact_near_a_perfect_fit(interpreter: Apart):
    interpreter.run(check_perfect_fit)


def test_a_batch_may_have_any_number_of_patterns(interpreter: Apart):
    interpreter.run(check_batches)


def test_phases_of_large_shifts_are_exact(interpreter: Apart):
    interpreter.run(check_large_shifts)


def test_rows_and_places_are_those_of_torch(interpreter: Apart):
    interpreter.run(check_rows)


@pytest.mark.parametrize("loss", ["amplitude", "poisson", "intensity"])
def test_gradients_of_the_descent_are_finite_differences(loss: Any, interpreter: Apart):
    interpreter.run(check_descent, loss)


@each("missing", [True, False])
def test_without_triton_the_operations_are_those_of_torch_and_one_sentence_says_why(missing):
    process = Apart(start_without_triton, missing)
    try:
        texts = process.run(check_without_triton)
    finally:
        process.close()
    reason = "import of triton halted" if missing else "0 active drivers"
    assert len(texts) == 1
    assert reason in texts[0]


def start_without_triton(missing: bool) -> None:
    assert "triton" not in sys.modules  # neither ptynb nor the registration of its operations imports it
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # as on a GPU whose driver Triton cannot use
    if missing:
        sys.modules["triton"] = None  # type: ignore[assignment]
    run_by_triton(*OPERATIONS, device="cpu")


def check_without_triton() -> tuple[str, ...]:
    problem = Problem(DOUBLE, (6, 7), 2)
    assert triton_dispatch.found_problems() == ()
    for check in (check_waves, check_object_gradient):
        check(problem, 1e-14, False)
    assert triton_dispatch.check_triton("cpu") == triton_dispatch.found_problems()[0]
    return triton_dispatch.found_problems()


@each(("problem", "without", "used"), [("", 0, True), ("", 1, False), ("no compiler", 1, False)])
def test_triton_is_used_on_all_engines_or_on_none(monkeypatch, problem, without, used):
    """An engine of two; the sum over both says on how many it does not work."""
    group = SimpleNamespace(device=CPU, world=2, sum=lambda own: own + (without - bool(problem)))
    monkeypatch.setattr(triton_dispatch, "_problems", {"cpu": problem} if problem else {})
    monkeypatch.setattr(triton_dispatch, "_avoided", {})
    monkeypatch.setattr(triton_dispatch, "_works", lambda device: not problem)
    agree_on_triton(group)
    assert (triton_dispatch.check_triton("cpu") == "") is used
    if not used:
        (sentence,) = triton_dispatch.found_problems()
        assert (problem or "1 of 2 engines") in sentence
    agree_on_triton(SimpleNamespace(device=CPU, world=1, sum=lambda own: own))
    assert triton_dispatch.check_triton("cpu") == problem  # other engines do not count any more


class UnexpectedError(Exception):
    pass


@each(
    ("error", "advice"), [(AssertionError("libcuda.so cannot found!"), "ldconfig"), (UnexpectedError("x"), "compiler")]
)
def test_whatever_fails_in_triton_torch_takes_its_place(monkeypatch, error, advice):
    def fails(*arguments):
        raise error

    monkeypatch.setattr(triton_dispatch, "_problems", {})
    monkeypatch.setitem(sys.modules, "ptynb.kernels.gpu.launches", SimpleNamespace(gather_probe_gradient=fails))
    assert not triton_dispatch._works.__wrapped__("cpu")
    (sentence,) = triton_dispatch.found_problems()
    assert str(error) in sentence
    assert advice in sentence


def test_an_error_of_the_gpu_itself_is_raised(monkeypatch):
    def fails(*arguments):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setitem(sys.modules, "ptynb.kernels.gpu.launches", SimpleNamespace(gather_probe_gradient=fails))
    with pytest.raises(torch.AcceleratorError):
        triton_dispatch._works.__wrapped__("cpu")


def test_an_operation_needs_no_compiler_of_torch():
    """Its import, by the first call of a `torch.library.custom_op`, takes seconds."""
    line = (
        "import sys, torch; from ptynb.physics import operations; "
        "operations.shift_spectra(torch.ones(1, 1, 4, 4, dtype=torch.complex64), torch.zeros(2, 2), 1.0); "
        "print('torch._dynamo' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "False"


LIMITS = {
    # kernel: registers in single and in double precision, shared memory [bytes], accesses below 8 bytes
    "shift_spectra": (32, 32, 0, 2),
    "multiply_by_windows": (32, 32, 0, 0),
    "multiply_spectra": (32, 32, 0, 2),
    "compare": (48, 48, 2048, 6),
    "set_object_gradient": (72, 48, 0, 0),
    "gather_probe_gradient": (48, 72, 2048, 9),  # 1024 with Triton 3.7
    "shift_gradient": (48, 40, 32, 4),
    "copy_windows": (32, 32, 0, 0),
    "add_windows": (48, 56, 0, 0),
    "select_places": (24, 24, 0, 0),
    "step_rows": (48, 72, 0, 17),
    "step_all": (56, 72, 0, 30),  # lengths that 4 does not divide: numbers one by one
    "set_intensity": (48, 40, 2048, 2),
    "sum_object_power": (40, 48, 1024, 5),
    "compare_steps": (64, 64, 32, 0),
    "sum_curvatures": (40, 40, 32, 0),
    "fit_steps": (40, 40, 0, 0),
}
"""What a thread and a program use at most on an A100 and an H100, for 1, 4 and 12 modes (double precision: 4).

A multiprocessor has 65536 registers, so programs of 128 threads with 32, 48 and 72 registers fill all, two thirds and
seven sixteenths of its 2048 threads. Accesses below 8 bytes are counted in single precision: those of shifts, arrays of
real numbers, and sums that a program writes once.
"""


@pytest.mark.parametrize("capability", [80, 90])
def test_compiled_kernels_access_pairs_without_atomics_and_spills(capability: int, tmp_path: Path):
    process = Apart(start_compiler, capability, str(tmp_path))
    try:
        used = process.run(compile_all)
    finally:
        process.close()
    for name, _, registers, *_, accesses in used:
        print(name, registers, dict(accesses))
    assert {name for name, *_ in used} == set(LIMITS)
    for name, single, registers, local, shared, atomics, accesses in used:
        with case(name, registers, shared, accesses):
            most, most_in_double, most_shared, most_narrow = LIMITS[name]
            assert local == 0
            assert atomics == []
            assert registers <= (most if single else most_in_double)
            assert shared <= most_shared
            if single:
                assert sum(accesses[one] for one in accesses if re.search(r"global\.b(8|16|32)$", one)) <= most_narrow


class Driver:
    """What Triton asks a driver for when it compiles: a GPU that is not there."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._capability, 32)


def start_compiler(capability: int, folder: str) -> None:
    os.environ["TRITON_CACHE_DIR"] = folder
    import triton

    triton.runtime.driver.set_active(Driver(capability))


def compile_all() -> list[Any]:
    """Registers, bytes of local memory (spills), shared memory, atomic instructions and global accesses of kernels."""
    from ptynb.kernels.gpu import launches

    used = []

    def compile_only(
        kernel: Any, programs: int, *arguments: Any, warps: int = launches.WARPS, **constants: Any
    ) -> None:
        compiled = kernel.run(*arguments, grid=(programs,), warmup=True, num_warps=warps, **constants)
        ptx, single = compiled.asm["ptx"], dtypes is SINGLE
        registers, stack, local = resources(compiled.asm["cubin"])
        atomics = re.findall(r"(?<![\w.])(?:atom|red)\.\S+", ptx)
        accesses = Counter(re.findall(r"\b(?:ld|st)\.global[.\w]*", ptx))
        used.append((kernel.__name__, single, registers, stack + local, compiled.metadata.shared, atomics, accesses))

    launches.launch = compile_only
    for dtypes, window, modes in ((SINGLE, 128, 1), (SINGLE, 128, 4), (SINGLE, 101, 12), (DOUBLE, 128, 4)):
        problem = Problem(dtypes, (window, window), modes, 3, (300, 301))
        shifts, origins, waves = problem.shifts, problem.origins, problem.waves
        real, kernel = problem.uniform(window, window), problem.normal(window, window)
        launches.shift_spectra(problem.probes, shifts, 0.7)
        for adjoint in (False, True):
            launches.illuminate(waves, problem.object, origins, adjoint)
        launches.multiply_spectra_(waves, kernel, shifts, 0.7, True)
        launches.multiply_spectra_(waves, kernel, None, 0.7, False)
        counts, rows = torch.zeros(3, window, window, dtype=torch.uint16), torch.arange(3)
        seen = rows, real, shifts[:, 0], real
        for loss, damping in (("amplitude", 0.1), ("amplitude", 0.0), ("poisson", 0.0), ("intensity", 0.0)):
            launches.compare_(waves, counts, *seen, 0.3, 0.1, damping, loss, 0.7, True)
            launches.compare_(waves, counts, None, None, None, None, 0.3, 0.1, damping, loss, 0.7, False)
        launches.set_object_gradient_(problem.object, waves, problem.change, origins, 0.7)
        launches.gather_probe_gradient(waves, shifts, 0.7)
        launches.shift_gradient(waves, problem.probes, shifts, 0.7)
        launches.copy_windows(problem.object, origins, window, window)
        launches.add_windows_(problem.object, origins, waves[:, 0])
        launches.select_places(rows, origins, shifts)
        launches.set_intensity_(real, waves, origins, shifts[:, 0])
        launches.sum_object_power(problem.object[None], origins, shifts[:, 0], window, window)
        launches.compare_steps(problem.change, waves, waves, waves, problem.object, problem.object, origins)
        launches.sum_curvatures(problem.object, waves, origins)
        launches.fit_steps(torch.ones(3, 5, dtype=torch.float64))
        launches.step_all_(*(real.clone() for _ in range(4)), real[0, 0], real[0, 1], 0.9, 0.999, 1e-8)
        launches.step_rows_(*(shifts.clone() for _ in range(4)), torch.zeros(3), rows, real[0, 0], 0.9, 0.999, 1e-8)
    return used


def resources(cubin: bytes) -> tuple[int, ...]:
    """Registers, stack and local memory of a kernel, from the CUDA tools that Triton brings."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    assert found, text
    return tuple(int(number) for number in found.groups())
