"""L-BFGS: steps that lower the loss, no pass too many, and starting anew where the problem changes."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.optimize.lbfgs import CURVATURE, DECREASE, LBFGS, flat, line_search
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.regularizers import object_terms
from ptynb.settings import Object, Probe
from ptynb.settings.regularizers import TotalVariation
from tests.cases import a_scan
from tests.engine.reference_model import (
    MODES,
    a_loop,
    after,
    difference,
    double,
    object_of,
    probe_of,
)


def test_lbfgs_lowers_the_loss_with_every_step_and_below_that_of_adam_with_a_constant_small_rate() -> None:
    scan = pt.simulate(patterns=49, window=32)
    loop = after(scan, double("lbfgs"), 40)
    losses = [epoch.loss for epoch in loop.epochs]
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))
    slow = {"learning_rate": 0.01}
    adam = double("adam").replace(object=slow, probe=slow, schedule={"kind": "constant"})
    assert after(scan, adam, algorithm_of(loop).passes).epochs[-1].loss > losses[-1]


def test_lbfgs_does_not_evaluate_twice_where_it_is() -> None:
    """An update whose first trial is taken costs one pass over the patterns."""
    loop = after(a_scan(), double("lbfgs", probe=MODES), 10)
    algorithm, taken = algorithm_of(loop), []
    for _ in range(20):
        before = algorithm.passes
        loop.step()
        taken.append(algorithm.passes - before)
    assert min(taken) == 1
    assert np.mean(taken) < 1.5


def test_the_loss_of_an_lbfgs_epoch_is_that_before_its_update() -> None:
    settings = double("lbfgs", probe=MODES, regularizers=(TotalVariation(weight=0.1),))
    loop = a_loop(a_scan(), settings)
    for epoch in range(3):
        batch = loop.shard.batch(np.arange(37), 37)
        with torch.no_grad():
            term = object_terms(settings.regularizers, loop.model.object.values)
            expected = float(loop.model(batch)) / loop.problem.normaliser + float(term)
        loop.step()
        assert loop.epochs[epoch].loss == pytest.approx(expected, rel=1e-12)


def test_what_constraints_change_counts_as_a_part_of_the_lbfgs_step() -> None:
    """The curvature of the last step is between the gradients at its ends, wherever a constraint has moved them."""
    loop = after(a_scan(), double("lbfgs", probe=MODES, regularizers=(TotalVariation(weight=0.1),)), 3)
    algorithm = algorithm_of(loop)
    before, before_gradient = flat(algorithm._moving), gradient_of(loop)
    loop.step()
    loop.model.object.set(0.9 * loop.model.object.values.detach())
    here, gradient = flat(algorithm._moving), gradient_of(loop)
    loop.step()
    step, change = algorithm._history[-1]
    torch.testing.assert_close(step, here - before, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(change, gradient - before_gradient, rtol=1e-6, atol=1e-9)


def test_lbfgs_starts_anew_where_something_else_moves_or_is_minimised() -> None:
    settings = double("lbfgs", probe=Probe(modes=2, start_epoch=3))
    loop = a_loop(a_scan(), settings)
    algorithm, start = algorithm_of(loop), probe_of(loop)
    while loop.epoch < 2:
        assert len(algorithm._history) == max(loop.epoch - 1, 0)
        loop.step()
    np.testing.assert_array_equal(probe_of(loop), start)
    assert len(algorithm._history) == 0
    loop.step()
    loop.step()
    assert difference(start, probe_of(loop)) > 1e-6
    assert len(algorithm._history) == 1
    loop.change(settings.replace(object={"learning_rate": 0.5}))
    assert len(algorithm._history) == 1, "the size of a rate does not matter"
    loop.change(settings.replace(regularizers=[{"kind": "total_variation", "weight": 1.0}]))
    assert len(algorithm._history) == 0
    passes = algorithm.passes
    loop.step()
    assert algorithm.passes > passes + 1, "the loss is another one at the same place"


def test_lbfgs_rests_while_nothing_moves() -> None:
    settings = double(
        "lbfgs", object=Object(start_epoch=3, learning_rate=1), probe=Probe(start_epoch=3, learning_rate=1)
    )
    loop = after(a_scan(), settings, 2)
    np.testing.assert_array_equal(object_of(a_loop(a_scan(), settings)), object_of(loop))
    assert loop.epochs[0].loss == loop.epochs[1].loss > 0
    loop.step()
    assert loop.epochs[2].loss == pytest.approx(loop.epochs[0].loss, rel=1e-12)
    loop.step()
    assert loop.epochs[3].loss < loop.epochs[2].loss


def test_lbfgs_moves_other_parts_too() -> None:
    """Positions that are wrong by half a pixel are found together with object and probe."""
    scan = pt.simulate(patterns=64, window=32, noise=False, step=3)
    wrong = np.random.default_rng(0).normal(0, 0.5, scan.positions.shape)
    moved = dataclasses.replace(scan, positions=scan.positions + wrong)
    fixed = after(moved, double("lbfgs"), 60)
    loop = after(moved, double("lbfgs", positions={"learning_rate": 1.0}), 60)
    assert loop.epochs[-1].loss < 0.1 * fixed.epochs[-1].loss
    rest = loop.parameters()["positions"].numpy() + loop.frame.origin - scan.positions
    rest -= rest.mean(0)
    assert np.sqrt((rest**2).mean()) < 0.4 * np.sqrt((wrong**2).mean())


@pytest.mark.parametrize("amplitude_rate", [0.0, None])
def test_lbfgs_moves_amplitude_and_phase_or_the_phase_alone(amplitude_rate: float | None) -> None:
    settings = double("lbfgs", object=Object(parametrization="amplitude_phase", amplitude_learning_rate=amplitude_rate))
    loop = after(a_scan(), settings, 3)
    amplitude, phase = (loop.model.object.amplitude.detach(), loop.model.object.phase.detach())
    assert float(phase.abs().max()) > 1e-2
    assert (float((amplitude - 1).abs().max()) > 1e-2) == (amplitude_rate is None)
    before = amplitude.clone()
    loop.change(settings.replace(object={"amplitude_learning_rate": 0.0 if amplitude_rate is None else None}))
    loop.step()
    assert torch.equal(before, amplitude) == (amplitude_rate is None)


FUNCTIONS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "quadratic": (lambda t: (t - 1) ** 2, lambda t: 2 * (t - 1)),
    "far away": (lambda t: (t / 1e4 - 1) ** 2, lambda t: 2e-4 * (t / 1e4 - 1)),
    "near": (lambda t: (1e5 * t - 1) ** 2, lambda t: 2e5 * (1e5 * t - 1)),
    "wavy": (lambda t: math.cos(3 * t) / 5 - t / 10, lambda t: -0.6 * math.sin(3 * t) - 0.1),
    "not convex": (lambda t: -t / (t * t + 2), lambda t: (t * t - 2) / (t * t + 2) ** 2),
    "a wall": (lambda t: (t - 1) ** 2 if t < 2 else math.nan, lambda t: 2 * (t - 1) if t < 2 else math.nan),
    "an edge": (lambda t: -t if t < 0.3 else 100 * t - 30.3, lambda t: -1.0 if t < 0.3 else 100.0),
}
"""Losses along a direction, and their slopes. The one that is not convex: Moré and Thuente, ACM TOMS 20, 286 (1994)."""


def test_a_line_search_ends_where_the_wolfe_conditions_hold() -> None:
    for name, first in itertools.product(FUNCTIONS, (1e-3, 1.0, 30.0)):
        the_wolfe_conditions_hold(name, first)


def the_wolfe_conditions_hold(name: str, first: float) -> None:
    loss, slope = FUNCTIONS[name]
    case = f"{name}, first {first}"
    tried: list[float] = []

    def evaluate(length: float) -> tuple[float, float]:
        tried.append(length)
        return loss(length), slope(length)

    found = line_search(evaluate, loss(0.0), slope(0.0), first, shortest=1e-12, noise=0.0)
    assert tried[0] == first, case
    assert (found.loss, found.slope) == (loss(found.length), slope(found.length)), case
    assert found.loss <= loss(0.0) + DECREASE * found.length * slope(0.0), case
    if name != "an edge":  # where the slope jumps over all that would do
        assert abs(found.slope) <= CURVATURE * abs(slope(0.0)), case
        assert tried[-1] == found.length, f"{case}: what was evaluated last has to be evaluated again"
        assert len(tried) <= 12, case


def test_a_line_search_without_a_lower_loss_ends_where_it_began() -> None:
    found = line_search(lambda t: (1.0 + t, 1.0), 1.0, -1.0, 1.0, shortest=1e-6, noise=0.0)
    assert (found.length, found.loss) == (0.0, 1.0)


def test_a_line_search_takes_a_loss_that_is_higher_by_its_rounding_only() -> None:
    """At the bottom of a valley slopes still tell where it goes down, while losses are all rounding."""

    def evaluate(length: float) -> tuple[float, float]:
        return 5.0 + 1e-7, 1e-9 * (length - 1)

    assert line_search(evaluate, 5.0, -1e-9, 0.5, shortest=1e-12, noise=5 * 1.2e-7).length == 0.5
    assert line_search(evaluate, 5.0, -1e-9, 0.5, shortest=1e-12, noise=0.0).length == 0.0


class Dimmer(ModelComponent):
    name = "dimmer"
    rate = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.share = torch.nn.Parameter(torch.ones((), dtype=torch.float64))

    def detect(self, intensity: torch.Tensor, batch: Batch) -> torch.Tensor:
        return intensity * self.share


def test_lbfgs_moves_a_piece_of_the_users() -> None:
    piece = Dimmer()
    loop = Loop(a_scan(), double("lbfgs", probe=Probe(learning_rate=0)), SingleGroup(torch.device("cpu")), [piece])
    assert loop.algorithm.rates()["dimmer"] == 0.1
    while loop.epoch < 3:
        loop.step()
    assert abs(float(piece.share.detach()) - 1) > 1e-3


def algorithm_of(loop: Loop) -> LBFGS:
    assert isinstance(loop.algorithm, LBFGS)
    return loop.algorithm


def gradient_of(loop: Loop) -> torch.Tensor:
    """Of the whole loss in the optimiser's units, by automatic differentiation in one go."""
    algorithm = algorithm_of(loop)
    value = loop.model(loop.shard.batch(np.arange(37), 37)) * loop.problem.scale / 37
    value = value + 32 * 32 * object_terms(loop.settings.regularizers, loop.model.object.values)
    found = torch.autograd.grad(value, algorithm._moving)
    return torch.cat([part.reshape(-1) for part in found])
