"""Operations with kernels in Triton against torch's operations in double precision, with random arguments.

The checks compute on torch's default device: by Triton's interpreter on a CPU (`test_triton_kernels`), or with compiled
kernels on a GPU (stage `operations` of `tests.gpu`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import chain, operations, patches
from ptynb.physics.hotpath import varied
from tests.parametrization import all_pairs

SINGLE, DOUBLE = (torch.float32, torch.complex64), (torch.float64, torch.complex128)


OBJECT = 40, 37
"""Sides of the object: some tiles of 16 x 32 pixels are cut."""


PATTERNS = 5


OPERATIONS = (
    operations.shift_spectra,
    operations.illuminate,
    operations.multiply_spectra_,
    operations.compare_,
    operations.set_object_gradient_,
    operations.gather_probe_gradient,
    operations.shift_gradient,
    operations.select_places,
    operations.step_rows_,
    operations.step_all_,
    operations.set_intensity_,
    operations.sum_object_power,
    operations.compare_steps,
    operations.sum_curvatures,
    operations.fit_steps,
    patches.copy_windows,
    patches.add_windows_,
)


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
        parts = operation is operations.compare_ and name == "result" and found.ndim == 2
        if parts or (found.ndim and found.shape != other.shape):
            assert parts or operation in (operations.compare_steps, operations.sum_curvatures)
            found, other = found.sum(1), other.sum(1)
        assert found.shape == other.shape, name
        values, correct = found.resolve_conj().cpu().numpy(), other.cpu().numpy()
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
        self.generator = torch.Generator(torch.get_default_device()).manual_seed(window[0] + modes)
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


CHECKS = (
    "check_probes",
    "check_waves",
    "check_windows",
    "check_object_gradient",
    "check_shift_gradient",
    "check_corrections",
)
"""What `check_all` checks, for each of `PROBLEMS`."""


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
    for adjoint in (False, True):
        compare(operations.illuminate, precise, waves, object, origins, adjoint, other_strides=other_strides)
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
        for loss in ("amplitude", "poisson", "intensity"):
            compare(operations.compare_, precise, problem.waves.clone(), *arguments, damping, loss, 0.7, slopes)


def check_perfect_fit() -> None:
    """Counts and intensities that differ by 1e-3, of which naive sums have 4% wrong, and by 9% and 11%."""
    for apart in (1e-3, 0.09, 0.11, -0.11):
        held = torch.full((1, 6, 7), 100.0)
        waves = torch.full((1, 1, 6, 7), (100 * (1 + apart)) ** 0.5, dtype=torch.complex64)
        options = None, None, None, None, 1.0, 1e-6, 0.0, "poisson", 1.0, False
        found, _ = operations.compare_(waves.clone(), held, *options)
        expected, _ = torch_of(operations.compare_)(double(waves), double(held), *options)
        assert float(found.sum()) == pytest.approx(float(expected.sum()), rel=3e-4 if apart == 1e-3 else 1e-5)


def check_batches() -> None:
    for patterns in (0, 1, 33):
        problem = Problem(SINGLE, (6, 7), 2, patterns)
        held = torch.ones(patterns, 6, 7)
        options = None, None, None, None, 0.3, 0.1, 0.0, "amplitude", 0.7, True
        for check in (check_probes, check_object_gradient, check_shift_gradient):
            check(problem, 1e-6, False)
        check_corrections(problem, 1e-6, False)
        compare(operations.compare_, 1e-6, problem.waves, held, *options)
        compare(patches.copy_windows, 0, problem.object, problem.origins, 6, 7)
        compare(patches.add_windows_, 1e-6, problem.object, problem.origins, problem.waves[:, 0])


def check_large_shifts() -> None:
    shifts = torch.tensor([[0.5, -0.5], [-511.7, 255.3], [256.0, 0.25], [1e-7, 300.01]])
    for side in (64, 63):
        ones = torch.ones(1, 1, side, side, dtype=torch.complex64)
        found = operations.shift_spectra(ones, shifts, 1.0)
        expected = torch_of(operations.shift_spectra)(double(ones), double(shifts), 1.0)
        assert float((found - expected).abs().max()) < 1e-6
        if side % 2 == 0:
            assert not found[:, 0, side // 2, 0].imag.any()


def check_rows() -> None:
    generator = torch.Generator(torch.get_default_device()).manual_seed(1)
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
                compare(operations.step_all_, precise, *state, squares, torch.tensor(3.0), *options[1:])


def check_descent(name: Any) -> None:
    problem = Problem(DOUBLE, (6, 7), 2, 4)
    held = (problem.uniform(4, 6, 7) * 9).floor().to(torch.uint16)
    background, weights = problem.uniform(6, 7) + 0.5, problem.uniform(4) + 0.5
    layers = problem.normal(1, 2, *OBJECT)
    others = problem.normal(6, 7), problem.normal(6, 7)  # propagators between slices, and to a near detector

    def loss(*moving: Tensor) -> chain.Descent:
        object, probes, shifts, weights, background = moving
        illumination = Illumination(object, problem.origins, probes, shifts, *others)
        detection = Detection(held, None, None, 0.1, weights, background, loss=name)
        assert len(varied(illumination, detection)) == len(moving)
        return chain.Descent(illumination, detection, [True] * 5)

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
