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

import numpy as np
import pytest
import torch
from torch import Tensor

from ptynb.engine.loop import agree_on_triton
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import gpu_gradient, patches, triton_dispatch
from ptynb.physics import gpu_line_operations as line_operations
from ptynb.physics import gpu_operations as operations
from ptynb.physics.hotpath import varied
from ptynb.physics.triton_dispatch import run_by_triton
from tests.parametrization import all_pairs, case, each

SINGLE, DOUBLE = (torch.float32, torch.complex64), (torch.float64, torch.complex128)
OBJECT = 40, 37
"""Sides of the object: some tiles of 16 x 32 pixels are cut."""
PATTERNS = 5
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


def start_interpreter_of_lines() -> None:
    """Other operations, of which these are made, run by torch."""
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    run_by_triton(*LINE_OPERATIONS, module="line_launches", device="cpu")


@pytest.fixture(scope="module", autouse=True)
def _tracker() -> None:
    """The process of multiprocessing that all processes started so share is no process that a test leaves behind."""
    resource_tracker.ensure_running()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Apart]:
    process = Apart(start_interpreter)
    yield process
    process.close()


@pytest.fixture(scope="module")
def interpreter_of_lines() -> Iterator[Apart]:
    process = Apart(start_interpreter_of_lines)
    yield process
    process.close()


OPERATIONS = (
    operations.shift_spectra,
    operations.illuminate,
    operations.multiply_spectra_,
    operations.compare_,
    operations.set_object_gradient_,
    operations.return_to_probe_,
    operations.gather_probe_gradient,
    operations.shift_gradient,
    operations.select_places,
    operations.step_rows_,
    operations.return_to_probe,
    operations.set_intensity_,
    operations.sum_object_power,
    operations.compare_steps,
    operations.sum_curvatures,
    operations.fit_steps,
    operations.compare_counts_,
    patches.copy_windows,
    patches.add_windows_,
)

LINE_OPERATIONS = (
    line_operations.columns_ramp,
    line_operations.rows_multiply_,
    line_operations.columns_propagate_,
    line_operations.lines_compare_,
    line_operations.columns_gather,
)
COMPARING = operations.compare_, operations.compare_counts_, line_operations.lines_compare_


def torch_of(operation: Any) -> Callable[..., Any]:
    """The operation by torch, also where it is registered to run by Triton."""
    return operation.by_torch


def double(value: Any) -> Any:
    """A copy of a tensor in double precision, contiguous; of anything else, itself."""
    if not isinstance(value, Tensor):
        return value
    precise = {torch.complex64: torch.complex128, torch.float32: torch.float64}
    return value.to(precise.get(value.dtype, value.dtype)).resolve_conj().contiguous().clone()


def strided(value: Tensor) -> Tensor:
    """The same numbers with other strides."""
    return value.mT.contiguous().mT if value.ndim > 1 else value.repeat_interleave(2)[::2]


def compare(operation: Any, precise: float, *arguments: Any, other_strides: bool = False) -> None:
    """Results and overwritten arguments of an operation are those of torch's operations in double precision."""
    expected = [double(argument) for argument in arguments]
    if other_strides:
        arguments = tuple(strided(one) if isinstance(one, Tensor) else one for one in arguments)
    results, wanted = operation(*arguments), torch_of(operation)(*expected)
    outputs = [("argument", *pair) for pair in zip(arguments, expected, strict=True) if isinstance(pair[0], Tensor)]
    if results is not None:
        results, wanted = (one if isinstance(one, tuple) else (one,) for one in (results, wanted))
        outputs += [("result", *pair) for pair in zip(results, wanted, strict=True)]
    for name, found, other in outputs:
        # The loss of parts of a pattern, which may be other ones, also of the same number.
        parts = operation in COMPARING and name == "result" and found.ndim == 2
        if parts or (found.ndim and found.shape != other.shape):
            assert parts or operation in (operations.compare_steps, operations.sum_curvatures)
            found, other = found.sum(1), other.sum(1)
        assert found.shape == other.shape, name
        values, correct = found.resolve_conj().numpy(), other.numpy()
        largest = np.abs(correct).max(initial=0)
        np.testing.assert_allclose(values, correct, rtol=precise, atol=precise * largest, err_msg=name)


class Problem:
    """Random arguments of the operations, with windows at the edges and corners of the object that overlap."""

    def __init__(
        self,
        dtypes: tuple[torch.dtype, torch.dtype],
        window: tuple[int, int],
        modes: int,
        patterns: int = PATTERNS,
        object: tuple[int, int] = OBJECT,
    ) -> None:
        self.real, self.complex = dtypes
        self.generator = torch.Generator().manual_seed(window[0] + modes)
        self.window, self.patterns = window, patterns
        self.object, self.probes = self.normal(*object), self.normal(1, modes, *window)
        self.waves, self.change = self.normal(patterns, modes, *window), self.normal(patterns, modes, *window)
        self.last = torch.tensor([object[0] - window[0], object[1] - window[1]])
        self.origins = (self.uniform(patterns, 2) * (self.last + 1)).long()
        self.origins[:3] = torch.stack([self.last * 0, self.last, torch.tensor([0, 1]) * self.last])[:patterns]
        self.shifts = self.uniform(patterns, 2) - 0.5

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.complex, generator=self.generator)

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, dtype=self.real, generator=self.generator)


PROBLEMS = all_pairs((SINGLE, DOUBLE), ((13, 20), (16, 16), (6, 7)), (1, 3, 9), (False, True))


@pytest.mark.parametrize(
    "check",
    [
        "check_probes",
        "check_waves",
        "check_windows",
        "check_object_gradient",
        "check_shift_gradient",
        "check_corrections",
    ],
)
def test_results_are_those_of_torch(check: str, interpreter: Apart):
    interpreter.run(check_all, check)


def check_all(check: str) -> None:
    for dtypes, window, modes, other_strides in PROBLEMS:
        precise = 1e-6 if dtypes is SINGLE else 1e-14
        globals()[check](Problem(dtypes, window, modes), precise, other_strides)


def check_probes(problem: Problem, precise: float, other_strides: bool) -> None:
    shifts, waves = problem.shifts, problem.waves
    compare(operations.shift_spectra, precise, problem.probes, shifts, 0.7, other_strides=other_strides)
    compare(operations.shift_spectra, precise, waves, shifts, 0.7, other_strides=other_strides)
    compare(operations.gather_probe_gradient, precise, waves, shifts, 0.7, other_strides=other_strides)


def check_waves(problem: Problem, precise: float, other_strides: bool) -> None:
    waves, object, origins = problem.waves, problem.object, problem.origins
    compare(operations.illuminate, precise, waves, object, origins, other_strides=other_strides)
    compare(operations.return_to_probe_, precise, waves.clone(), object, origins, other_strides=other_strides)
    one, several = problem.normal(*problem.window), problem.normal(problem.patterns, *problem.window)
    for kernel, shifts, adjoint in ((one, problem.shifts, True), (several, None, False)):
        # The conjugate of a tensor is the same tensor with a flag, which the numbers of a kernel do not have.
        arguments = waves.clone(), kernel.conj(), shifts, 0.7, adjoint
        compare(operations.multiply_spectra_, precise, *arguments, other_strides=other_strides)


def check_windows(problem: Problem, precise: float, other_strides: bool) -> None:
    layers = torch.stack([problem.object, problem.normal(*OBJECT)])
    fields = [problem.object, layers.imag]
    if problem.window == (6, 7):
        fields += [problem.object.real, layers, layers.real.long(), layers.real > 0]
    for field in fields:
        compare(patches.copy_windows, 0, field, problem.origins, *problem.window, other_strides=other_strides)
        if field.dtype != torch.bool:
            windows = problem.normal(problem.patterns, *field.shape[:-2], *problem.window)
            windows = (windows if field.is_complex() else windows.real).to(field.dtype)
            arguments = field.clone(), problem.origins, windows
            compare(patches.add_windows_, precise, *arguments, other_strides=other_strides)


def check_object_gradient(problem: Problem, precise: float, other_strides: bool) -> None:
    # What the gradient holds before, even NaN, has no effect.
    gradient = torch.full_like(problem.object, torch.nan)
    arguments = gradient, problem.waves, problem.change, problem.origins, 0.7
    compare(operations.set_object_gradient_, precise, *arguments, other_strides=other_strides)


def check_shift_gradient(problem: Problem, precise: float, other_strides: bool) -> None:
    for spectra in (problem.probes, problem.change):
        arguments = problem.waves, spectra, problem.shifts, 0.7
        compare(operations.shift_gradient, precise, *arguments, other_strides=other_strides)


def check_corrections(problem: Problem, precise: float, other_strides: bool) -> None:
    waves, change, object, origins = problem.waves, problem.change, problem.object, problem.origins
    compare(operations.return_to_probe, precise, change, object, origins, other_strides=other_strides)
    weights, layers = problem.uniform(problem.patterns), torch.stack([object, problem.normal(*OBJECT)])
    sums = torch.full_like(object.real, torch.nan)  # what it holds before has no effect
    for factors in (None, weights):
        compare(operations.set_intensity_, precise, sums.clone(), waves, origins, factors, other_strides=other_strides)
        for field in (layers, layers[:1]):
            arguments = field, origins, factors, *problem.window
            compare(operations.sum_object_power, precise, *arguments, other_strides=other_strides)
    steps, before = problem.normal(*waves.shape), problem.normal(*waves.shape)
    for wave in (None, before):
        arguments = change, waves, steps, wave, *layers, origins
        compare(operations.compare_steps, precise, *arguments, other_strides=other_strides)
    compare(operations.sum_curvatures, precise, object, waves, origins, other_strides=other_strides)
    products = torch.rand(150, 5, dtype=torch.float64, generator=problem.generator) + torch.tensor([1, 0, 1, 0, 0])
    products[::7, :] = 0
    compare(operations.fit_steps, 1e-14, products.to(torch.float64), other_strides=other_strides)


COMPARISONS = all_pairs(
    (SINGLE, DOUBLE),
    ((13, 20), (16, 16)),
    (1, 3, 9),
    (torch.uint8, torch.uint16, torch.int32, torch.float32, torch.float64),
    (False, True),
    ("none", "mask", "empty mask", "truth values"),
    (False, True),
    (False, True),
    (0.0, 2.0),
    (False, True),
)


def test_comparisons_with_counts_are_those_of_torch(interpreter: Apart):
    interpreter.run(check_comparisons)


def check_comparisons() -> None:
    for dtypes, window, modes, stored, by_rows, masked, weighted, lit, damping, slopes in COMPARISONS:
        problem = Problem(dtypes, window, modes, 3)
        most = {torch.uint8: 255, torch.uint16: 65535}.get(stored, 70000)
        held = (problem.uniform(6, *window) * 6).floor()
        held[:, 3, 4] = most  # of uint16, negative if it were read as int16
        mask = (problem.uniform(*window) > 0.3).to(problem.real)
        precise = 1e-6 if dtypes is SINGLE else 1e-13
        arguments = (
            held.to(stored) if by_rows else held[:3].to(stored),
            torch.tensor([5, 0, 3]) if by_rows else None,
            {"none": None, "mask": mask, "empty mask": mask * 0, "truth values": mask > 0}[masked],
            problem.uniform(3) + 0.5 if weighted else None,
            problem.uniform(*window) if lit else None,
            0.3,
            0.1,
        )
        compare(operations.compare_, precise, problem.waves.clone(), *arguments, damping, 0.7, slopes)
        for loss in ("poisson", "intensity"):
            compare(operations.compare_counts_, precise, problem.waves.clone(), *arguments, loss, 0.7, slopes)


def test_the_loss_of_poisson_is_exact_near_a_perfect_fit(interpreter: Apart):
    interpreter.run(check_perfect_fit)


def check_perfect_fit() -> None:
    """Counts and intensities that differ by 1e-3, of which naive sums have 4% wrong, and by 9% and 11%."""
    for apart in (1e-3, 0.09, 0.11, -0.11):
        held = torch.full((1, 6, 7), 100.0)
        waves = torch.full((1, 1, 6, 7), (100 * (1 + apart)) ** 0.5, dtype=torch.complex64)
        options = None, None, None, None, 1.0, 1e-6, "poisson", 1.0, False
        found, _ = operations.compare_counts_(waves.clone(), held, *options)
        expected, _ = torch_of(operations.compare_counts_)(double(waves), double(held), *options)
        assert float(found.sum()) == pytest.approx(float(expected.sum()), rel=3e-4 if apart == 1e-3 else 1e-5)


def test_a_batch_may_have_any_number_of_patterns(interpreter: Apart):
    interpreter.run(check_batches)


def check_batches() -> None:
    for patterns in (0, 1, 33):
        problem = Problem(SINGLE, (6, 7), 2, patterns)
        held = torch.ones(patterns, 6, 7)
        options = None, None, None, None, 0.3, 0.1, 0.0, 0.7, True
        for check in (check_probes, check_object_gradient, check_shift_gradient):
            check(problem, 1e-6, False)
        check_corrections(problem, 1e-6, False)
        compare(operations.compare_, 1e-6, problem.waves, held, *options)
        compare(patches.copy_windows, 0, problem.object, problem.origins, 6, 7)
        compare(patches.add_windows_, 1e-6, problem.object, problem.origins, problem.waves[:, 0])


def test_phases_of_large_shifts_are_exact(interpreter: Apart):
    interpreter.run(check_large_shifts)


def check_large_shifts() -> None:
    shifts = torch.tensor([[0.5, -0.5], [-511.7, 255.3], [256.0, 0.25], [1e-7, 300.01]])
    for side in (64, 63):
        ones = torch.ones(1, 1, side, side, dtype=torch.complex64)
        found = operations.shift_spectra(ones, shifts, 1.0)
        expected = torch_of(operations.shift_spectra)(double(ones), double(shifts), 1.0)
        assert float((found - expected).abs().max()) < 1e-6
        if side % 2 == 0:
            assert not found[:, 0, side // 2, 0].imag.any()


LINES = ((32, 64), 2, False), ((64, 32), 1, True)
"""Windows (y, x), modes, and whether arrays have other strides."""
LONG = 128, 256, 512
"""The other lengths of lines."""


@pytest.mark.parametrize("check", ["check_columns", "check_rows_of_waves", "check_lines_at_detector"])
def test_transforms_inside_of_kernels_are_those_of_torch(check: str, interpreter_of_lines: Apart):
    interpreter_of_lines.run(check_lines, check)


def check_lines(check: str) -> None:
    for window, modes, other_strides in LINES:
        globals()[check](Problem(SINGLE, window, modes, 2, (80, 81)), other_strides)


def test_transforms_of_long_lines_are_those_of_torch(interpreter_of_lines: Apart):
    interpreter_of_lines.run(check_long_lines)


def check_long_lines() -> None:
    for side in LONG:
        columns, rows = (Problem(SINGLE, window, 1, 1, (530, 530)) for window in ((side, 32), (32, side)))
        compare(line_operations.columns_ramp, 1e-6, columns.waves, columns.shifts * 300, 0.7)
        compare(line_operations.rows_multiply_, 1e-6, rows.waves, rows.object, rows.origins, True, True)


def check_columns(problem: Problem, other_strides: bool) -> None:
    shifts, waves = problem.shifts * 300, problem.waves
    compare(line_operations.columns_ramp, 1e-6, problem.probes, shifts, 0.7, other_strides=other_strides)
    one, several = problem.normal(*problem.window), problem.normal(problem.patterns, *problem.window)
    for kernel, by, adjoint, spectra_wanted in (
        (one, shifts, True, True),
        (several, None, False, False),
        (None, shifts, False, False),
    ):
        arguments = waves.clone(), kernel, by, 0.7, adjoint, spectra_wanted
        compare(line_operations.columns_propagate_, 1e-6, *arguments, other_strides=other_strides)
    for part, spectra_wanted in ((1, False), (2, True)):
        arguments = waves, shifts, 0.7, part, spectra_wanted
        compare(line_operations.columns_gather, 1e-6, *arguments, other_strides=other_strides)


def check_rows_of_waves(problem: Problem, other_strides: bool) -> None:
    for conjugate, waves_wanted in ((False, True), (True, False)):
        arguments = problem.waves.clone(), problem.object, problem.origins, conjugate, waves_wanted
        compare(line_operations.rows_multiply_, 1e-6, *arguments, other_strides=other_strides)


def check_lines_at_detector(problem: Problem, other_strides: bool) -> None:
    window, patterns = problem.window, problem.patterns
    held = (problem.uniform(6, *window) * 6).floor()
    mask = problem.uniform(*window) > 0.3
    scale = 1 / (window[0] * window[1])
    for columns, counts, options in (
        (True, held.to(torch.uint16), (torch.tensor([5, 0])[:patterns], mask, problem.uniform(patterns) + 0.5)),
        (False, held[:patterns], (None, None, None)),
    ):
        background = problem.uniform(*window) if columns else None
        numbers = scale, 0.3, 2.0 if columns else 0.0, 0.7, columns
        arguments = problem.waves.clone(), columns, counts, *options, background, *numbers
        compare(line_operations.lines_compare_, 2e-6, *arguments, other_strides=other_strides)


def test_rows_and_places_are_those_of_torch(interpreter: Apart):
    interpreter.run(check_rows)


def check_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    places, shifts = torch.randint(0, 99, (200, 2), generator=generator), torch.rand(200, 2, generator=generator)
    for count in (0, 7, 150):
        chosen = torch.randperm(200, generator=generator)[:count]
        compare(operations.select_places, 0, chosen, places, shifts)
    for dtype, precise in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
        for shape in ((9,), (9, 2), (9, 5, 17)):
            for beta in (0.9, 0.0):
                state = [torch.randn(shape, dtype=dtype, generator=generator) for _ in range(3)]
                squares = torch.rand(shape, dtype=dtype, generator=generator)
                rows, rate = torch.tensor([8, 0, 5]), torch.tensor(0.1, dtype=dtype)
                options = rows, rate, beta, 0.999, 1e-8
                compare(operations.step_rows_, precise, *state, squares, torch.arange(9.0), *options)


@pytest.mark.parametrize("loss", ["amplitude", "poisson", "intensity"])
def test_gradients_of_the_descent_are_finite_differences(loss: Any, interpreter: Apart):
    interpreter.run(check_descent, loss)


def check_descent(name: Any) -> None:
    problem = Problem(DOUBLE, (6, 7), 2, 4)
    held = (problem.uniform(4, 6, 7) * 9).floor().to(torch.uint16)
    background, weights = problem.uniform(6, 7) + 0.5, problem.uniform(4) + 0.5
    layers = problem.normal(1, 2, *OBJECT)
    others = problem.normal(6, 7), problem.normal(6, 7)  # propagators between slices, and to a near detector

    def loss(*moving: Tensor) -> gpu_gradient.GPUDescent:
        object, probes, shifts, weights, background = moving
        illumination = Illumination(object, problem.origins, probes, shifts, *others)
        detection = Detection(held, None, None, 0.1, weights, background, loss=name)
        assert len(varied(illumination, detection)) == len(moving)
        return gpu_gradient.PlaneDescent(illumination, detection, [True] * 5)

    moving = [layers, problem.probes, problem.shifts, weights, background]
    descent = loss(*moving)
    descent.value()
    gradients = descent.gradients(1.0)
    for number, gradient in enumerate(gradients):
        direction = torch.randn(moving[number].shape, dtype=moving[number].dtype, generator=problem.generator)
        step = 1e-6 * direction
        ends = [
            loss(*(one + sign * step if other == number else one for other, one in enumerate(moving))).value()
            for sign in (1, -1)
        ]
        assert gradient is not None
        expected = float((gradient.conj() * direction).real.sum())
        assert float(ends[0] - ends[1]) / 2e-6 == pytest.approx(expected, rel=1e-6), number


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
        "import sys, torch; from ptynb.physics import gpu_operations; "
        "gpu_operations.shift_spectra(torch.ones(1, 1, 4, 4, dtype=torch.complex64), torch.zeros(2, 2), 1.0); "
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
    "step_rows": (40, 64, 0, 17),
    "compare_counts": (48, 40, 2048, 6),
    "set_intensity": (48, 40, 2048, 2),
    "sum_object_power": (40, 48, 1024, 5),
    "compare_steps": (64, 64, 32, 0),
    "sum_curvatures": (40, 40, 32, 0),
    "fit_steps": (40, 40, 0, 0),
    "columns_ramp": (64, 0, 16384, 2),
    "rows_multiply": (80, 0, 16384, 0),
    "columns_propagate": (104, 0, 16384, 2),
    "lines_compare": (96, 0, 16384, 41),
    "columns_gather": (224, 0, 16384, 2),
}
"""What a thread and a program use at most on an A100 and an H100, for 1, 4 and 12 modes (double precision: 4).

A multiprocessor has 65536 registers, so programs of 128 threads with 32, 48 and 72 registers fill all, two thirds and
seven sixteenths of its 2048 threads. Accesses below 8 bytes are counted in single precision: those of shifts, arrays of
real numbers, and sums that a program writes once.
"""
COMPILED_LINES = (64, 4), (128, 1)
"""Windows and modes for which kernels with transforms inside are compiled."""


@pytest.mark.system("triton")
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
    from ptynb.kernels.gpu import launches, line_launches

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
        launches.illuminate(waves, problem.object, origins)
        launches.return_to_probe_(waves, problem.object, origins)
        launches.multiply_spectra_(waves, kernel, shifts, 0.7, True)
        launches.multiply_spectra_(waves, kernel, None, 0.7, False)
        counts, rows = torch.zeros(3, window, window, dtype=torch.uint16), torch.arange(3)
        launches.compare_(waves, counts, rows, real, shifts[:, 0], real, 0.3, 0.1, 0.1, 0.7, True)
        launches.compare_(waves, counts, None, None, None, None, 0.3, 0.1, 0.0, 0.7, False)
        launches.compare_counts_(waves, counts, rows, real, shifts[:, 0], real, 0.3, 0.1, "poisson", 0.7, True)
        launches.compare_counts_(waves, counts, None, None, None, None, 0.3, 0.1, "intensity", 0.7, False)
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
        launches.step_rows_(*(shifts.clone() for _ in range(4)), torch.zeros(3), rows, real[0, 0], 0.9, 0.999, 1e-8)
    dtypes = SINGLE
    for window, modes in COMPILED_LINES:
        problem = Problem(dtypes, (window, window), modes, 3, (window + 100, window + 101))
        shifts, origins, waves = problem.shifts, problem.origins, problem.waves
        real, kernel = problem.uniform(window, window), problem.normal(window, window)
        counts, rows = torch.zeros(3, window, window, dtype=torch.uint16), torch.arange(3)
        line_launches.columns_ramp(problem.probes, shifts, 0.7)
        line_launches.rows_multiply_(waves, problem.object, origins, False, True)
        line_launches.rows_multiply_(waves, problem.object, origins, True, False)
        line_launches.columns_propagate_(waves, kernel, shifts, 0.7, True, True)
        line_launches.columns_propagate_(waves, kernel, None, 0.7, False, False)
        line_launches.lines_compare_(waves, True, counts, rows, real, shifts[:, 0], real, 0.3, 0.1, 0.1, 0.7, True)
        line_launches.lines_compare_(waves, False, counts, None, None, None, None, 0.3, 0.1, 0.0, 0.7, False)
        for spectra_wanted in (False, True):
            line_launches.columns_gather(waves, shifts, 0.7, 2, spectra_wanted)
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
