"""The forward model of every piece: gradients by finite differences, and the fused step against the composed one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ptynb.data.result import OF_PATTERNS
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.components.builtin import PointSpread
from ptynb.physics.regularizers import object_terms
from ptynb.settings import PART_OF_COMPONENT, PARTS, Settings
from tests.cases import CASES, a_scan
from tests.parametrization import each


def a_loop(scan: Scan, settings: Settings) -> Loop:
    """In float64, with parameters moved a little from where they start: nothing is flat, zero or symmetric."""
    loop = Loop(scan, settings.replace(precision="double", batch=5), SingleGroup(torch.device("cpu")))
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, piece in loop.model.components.items():
            size = {"positions": 0.3, "affine": 0.3, "offset": 0.2, "background": 0.0}.get(name, 0.05)
            for parameter in piece.parameters():
                parameter += size * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
                if name == "background":
                    parameter += torch.rand(parameter.shape, generator=random, dtype=parameter.dtype)
    return loop


def value_of(loop: Loop) -> torch.Tensor:
    batch = loop.shard.batch(np.arange(5), 5)
    value: torch.Tensor = loop.model(batch)
    extra = object_terms(loop.settings.regularizers, loop.model.object.values)
    return value + extra * loop.problem.normaliser


@pytest.mark.parametrize("case", CASES)
@each("loss", ["amplitude", "poisson", "intensity"])
def test_gradients_are_those_of_finite_differences(case: str, loss: str) -> None:
    kind, settings, moved = CASES[case]
    loop = a_loop(a_scan(9, 16, kind), settings.replace(loss=loss))
    value_of(loop).backward()
    random = torch.Generator().manual_seed(1)
    seen = set()
    for name, piece in loop.model.components.items():
        for parameter in piece.parameters():
            if not parameter.requires_grad:
                continue
            assert parameter.grad is not None, f"{case}: no gradient for {name}"
            direction = torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
            expected = float((parameter.grad * direction).sum())
            assert slope(loop, parameter, direction) == pytest.approx(expected, rel=2e-6), name
            seen.add(name)
    assert moved <= seen


@pytest.mark.parametrize("case", CASES)
@each("frozen", [(), ("object",), ("probe",)])
def test_a_descent_adds_what_backward_would(case: str, frozen: tuple[str, ...]) -> None:
    kind, settings, _ = CASES[case]
    loop = a_loop(a_scan(9, 16, kind), settings)
    for name in frozen:
        loop.model.components[name].requires_grad_(False)
    batches = [loop.shard.batch(np.array(patterns), 5) for patterns in ([0, 3, 5], [1, 2])]
    found, factor = [], 0.3
    for descend in (True, False):
        loop.model.zero_grad()
        values = []
        for batch in batches:
            value = loop.model.descend(batch, factor) if descend else loop.model(batch)
            if not descend and value.requires_grad:
                (factor * value).backward()
            values.append(float(value.detach()))
        found.append((values, [parameter.grad for parameter in loop.model.parameters()]))
    (values, gradients), (expected, of_backward) = found
    assert values == pytest.approx(expected, rel=1e-12)
    for gradient, other in zip(gradients, of_backward, strict=True):
        assert (gradient is None) == (other is None)
        if gradient is not None and other is not None:
            torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-12 * float(other.abs().max()))


def slope(loop: Loop, parameter: torch.Tensor, direction: torch.Tensor) -> float:
    """Derivative along a direction by differences of fourth order."""
    values = []
    step = 1e-5 * float(parameter.detach().abs().mean() + 1e-2) / float(direction.abs().mean())
    with torch.no_grad():
        start = parameter.clone()
        for times in (-2, -1, 1, 2):
            parameter.copy_(start + times * step * direction)
            values.append(float(value_of(loop)))
        parameter.copy_(start)
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)


def test_a_point_spread_keeps_the_relative_precision_of_dark_pixels() -> None:
    loop, size = a_loop(a_scan(), CASES["plain"][1]), (24, 33)
    counts = torch.zeros(size, dtype=torch.float64)
    counts[3, 5], counts[20, 30] = 1e6, 1e-6
    single, double = (
        PointSpread(size, 0.7, kind, counts.device).detect(counts.to(kind), loop.shard.batch(np.arange(5), 5))
        for kind in (torch.float32, torch.float64)
    )
    y, x = (np.minimum(np.arange(side), side - np.arange(side)) for side in size)
    spread = np.exp(-(y[:, None] ** 2 + x**2) / 0.7**2 / 2)
    expected = (1e6 * np.roll(spread, (3, 5), (0, 1)) + 1e-6 * np.roll(spread, (20, 30), (0, 1))) / spread.sum()
    np.testing.assert_allclose(double, expected, rtol=1e-12, atol=1e-100)
    np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-30)


def test_parameters_are_known_wherever_they_are_treated_by_name() -> None:
    kind, settings, _ = CASES["everything"]
    changes = {"descan": {"start": "zero"}, "aberrations": {"order": 2}, "probe": {"learning_rate": 0}}
    settings = settings.replace(**changes)
    found = dict[str, set[str]]()
    for name, component in a_loop(a_scan(kind=kind), settings).model.components.items():
        if [*component.parameters()]:
            assert name in PART_OF_COMPONENT, f"no part of the settings moves {name}"
            found[name] = {f"{name}/{row}" for row in component.rows}
    assert {"descan", "aberrations", "variations", "weights"} <= found.keys()
    del found["tilt"]  # of each pattern in some settings only
    by_pattern = {name for name, part in PART_OF_COMPONENT.items() if PARTS[part].by_pattern}
    assert {name for name, rows in found.items() if rows} == by_pattern
    # A result has the positions themselves instead of their moves.
    assert set().union(*found.values()) - {"positions/moves"} <= {*OF_PATTERNS}
