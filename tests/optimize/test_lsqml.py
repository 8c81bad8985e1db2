"""LSQML against plain numpy: its directions, step lengths and the steps of every part; momentum; slices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.engine.loop import Loop
from ptynb.optimize.lsqml import DAMPING, MEMORY, illumination_of_all, step_lengths
from ptynb.optimize.lsqml_parts import FARTHEST, FLATTEST, position_steps
from ptynb.settings import OPR, Object, Positions, Probe, Settings
from tests.cases import a_scan
from tests.engine.reference_model import (
    MODES,
    Array,
    Plain,
    a_loop,
    after,
    difference,
    double,
    object_of,
    probe_of,
)


@pytest.mark.parametrize("frozen", ["", "object", "probe"])
@pytest.mark.parametrize("kind", ["far", "masked"])
def test_lsqml_is_that_of_plain_numpy(kind: str, frozen: str) -> None:
    """One epoch in batches, step lengths by numpy's least squares."""
    rates = {"object": 0.7, "probe": 0.4} | ({frozen: 0.0} if frozen else {})
    scan = a_scan(12, kind=kind)
    settings = double(
        "lsqml",
        batch=5,
        object=Object(learning_rate=rates["object"]),
        probe=Probe(modes=2, learning_rate=rates["probe"]),
    )
    loop = a_loop(scan, settings)
    plain = Plain.of(loop, scan)
    misfit, of_all = 0.0, plain.light_of_all()
    for batch in loop.order.epoch(1).T:
        patterns = batch[batch >= 0]
        misfit += sum(plain.misfit(j) for j in patterns)
        missing = {j: plain.fitting(plain.product(j), j) - plain.product(j) for j in patterns}
        change, light = plain.object_change(missing.__getitem__, patterns, DAMPING, of_all)
        probe_change = plain.probe_change(missing.__getitem__, patterns, DAMPING)
        weighted, lengths = np.zeros_like(light), []
        for j in patterns:
            probe = plain.moved(plain.probe, j)
            ways = [plain.window(j, change) * probe, plain.moved(probe_change, j) * plain.window(j)]
            ways = [way for way, part in zip(ways, rates, strict=True) if rates[part] > 0]
            columns = np.stack([np.concatenate([way.real.ravel(), way.imag.ravel()]) for way in ways], 1)
            found = np.linalg.lstsq(columns, np.concatenate([missing[j].real.ravel(), missing[j].imag.ravel()]))[0]
            length = dict(zip([part for part in rates if rates[part] > 0], found, strict=True))
            plain.window(j, weighted)[...] += length.get("object", 0) * (np.abs(probe) ** 2).sum(0)
            lengths.append(length.get("probe", 0))
        lit = light > 1e-6 * light.max()
        step = np.divide(weighted, light, out=np.zeros_like(light), where=lit) * change
        plain.object += rates["object"] * step * len(patterns) / (len(patterns) + MEMORY * len(scan))
        plain.probe += rates["probe"] * np.mean(lengths) * probe_change
    for _ in range(loop.updates):
        loop.step()
    # The engine's least squares have a millionth more on their diagonal.
    plain.agrees(loop, 1e-5)
    assert loop.epochs[0].loss == pytest.approx(misfit / plain.counts.sum(), rel=1e-5)
    if frozen:
        start = a_loop(scan, settings)
        parts: dict[str, Callable[[Loop], Array]] = {"object": object_of, "probe": probe_of}
        np.testing.assert_array_equal(parts[frozen](start), parts[frozen](loop))


def test_step_lengths_are_those_of_numpys_least_squares() -> None:
    random = np.random.default_rng(0)
    chi, x, y = random.standard_normal((3, 4, 2, 8, 9, 2)) @ [1, 1j]
    y = y + 0.8 * x

    def lengths(chi: Array, x: Array, y: Array) -> Array:
        pairs = (x, x), (x, y), (y, y), (chi, x), (chi, y)
        products = [(one.conj() * other).real.sum((1, 2, 3)) for one, other in pairs]
        found: Array = step_lengths(torch.from_numpy(np.stack(products, 1))).numpy()
        return found

    found = lengths(chi, x, y)
    for j in range(4):
        columns = np.stack([np.concatenate([way[j].real.ravel(), way[j].imag.ravel()]) for way in (x, y)], 1)
        expected = np.linalg.lstsq(columns, np.concatenate([chi[j].real.ravel(), chi[j].imag.ravel()]))[0]
        np.testing.assert_allclose(found[j], expected, rtol=1e-5, atol=1e-5)
    alone = lengths(chi, x, 0 * x)
    np.testing.assert_allclose(alone[:, 0], (chi.conj() * x).real.sum((1, 2, 3)) / (abs(x) ** 2).sum((1, 2, 3)), 1e-5)
    np.testing.assert_array_equal(alone[:, 1], 0)
    assert lengths(0 * chi, 0 * x, 0 * x).tolist() == [[0, 0]] * 4


def test_the_illumination_of_all_is_the_sum_of_the_probes_at_the_positions() -> None:
    """Where positions have moved too, and of two scans with a probe each."""
    scan = a_scan(12)
    loop = a_loop(scan, double("lsqml", probe=MODES, positions=Positions(learning_rate=1)))
    loop.algorithm.prepare()
    with torch.no_grad():
        part(loop, "positions").moves[:6] += 1.3
    plain = Plain.of(loop, scan)
    plain.corners = np.rint(loop.model.all_positions().numpy()).astype(int)
    assert (plain.corners != np.rint(scan.positions - loop.frame.origin)).any()
    np.testing.assert_allclose(illumination_of_all(loop.model), plain.light_of_all(), atol=1e-9 * plain.probe.size)

    pair = pt.preparation.combine([scan, scan], share="object")
    loop = a_loop(pair, double("lsqml", probe=MODES))
    with torch.no_grad():
        loop.model.probe.parts[2:] *= 2  # of the second scan
    plain = Plain.of(loop, pair)
    first, second = np.split(plain.probe, 2)
    expected = np.zeros(plain.object.shape)
    for j in range(24):
        plain.window(j, expected)[...] += (np.abs(first if j < 12 else second) ** 2).sum(0)
    np.testing.assert_allclose(illumination_of_all(loop.model), expected, rtol=1e-7, atol=1e-9 * expected.max())


def test_a_run_resumed_within_an_epoch_has_the_illumination_of_its_beginning() -> None:
    scan, settings = a_scan(12), double("lsqml", batch=4, probe=MODES)
    loop, resumed = a_loop(scan, settings), a_loop(scan, settings)
    loop.step()
    resumed.restore(loop.state(loop.loss_sums()))
    for one in (loop, resumed):
        one.step()
    np.testing.assert_array_equal(object_of(loop), object_of(resumed))


def test_a_smaller_rate_of_lsqml_is_a_smaller_step() -> None:
    starts = object_of(a_loop(a_scan(), Settings()))
    steps = {}
    for rate in (1.0, 0.25):
        loop = a_loop(a_scan(), double("lsqml", object=Object(learning_rate=rate), probe=Probe(learning_rate=1)))
        assert loop.algorithm.rates() == {"object": rate, "probe": 1}
        loop.step()
        steps[rate] = object_of(loop) - starts
    np.testing.assert_allclose(steps[0.25], steps[1.0] / 4, rtol=1e-9, atol=1e-12)


# The other parts

RATES = {"positions": 0.6, "opr": 0.7, "pattern_intensities": 0.8, "background": 0.9}


def part(loop: Loop, name: str) -> Any:
    return loop.model.components[name]


def moved_a_little(loop: Loop) -> None:
    """Parameters of all parts away from their start, so that none of them is left out by being 0 or 1."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, scale in (("weights", 0.1), ("positions", 0.3), ("variations", 0.05), ("background", 0.1)):
            for key, parameter in part(loop, name).named_parameters():
                if key != "ways":
                    parameter.add_(scale * torch.rand(parameter.shape, generator=random, dtype=parameter.dtype))
        loop.model.object.parts.add_(
            0.1 * torch.rand(loop.model.object.parts.shape, generator=random, dtype=torch.float64)
        )


def test_the_step_of_each_part_is_that_of_plain_numpy() -> None:
    """The first update, from parameters that are all in use; bad pixels, two modes of the probe, subpixel shifts."""
    scan = a_scan(12, kind="masked")
    loop = a_loop(
        scan,
        double(
            "lsqml",
            batch=5,
            probe=MODES,
            **{n: {"learning_rate": r} for n, r in RATES.items() if n != "opr"},
            opr=OPR(modes=2, learning_rate=RATES["opr"]),
        ),
    )
    moved_a_little(loop)
    weights, moves = part(loop, "weights").weights.detach().numpy().copy(), part(loop, "positions").moves.detach()
    variations = part(loop, "variations")
    modes = (torch.view_as_complex(variations.ways.detach()) * variations.scale).numpy().copy()
    coefficients = torch.view_as_complex(variations.coefficients.detach()).numpy().copy()
    background = part(loop, "background").counts.detach().numpy().copy()
    plain = Plain.of(loop, dataclasses.replace(scan, positions=scan.positions + moves.numpy()))
    start = {
        name: {k: v.detach().clone() for k, v in part(loop, name).named_parameters()} for name in loop.model.components
    }
    patterns = loop.order.epoch(1)[:, 0]
    patterns = patterns[patterns >= 0]
    loop.step()

    brighter, steps, changes, directions, lit = {}, {}, {}, np.zeros_like(modes), np.zeros((32, 32))
    slopes, inverses = np.zeros((32, 32)), np.zeros((32, 32))
    for j in patterns:
        root, window = np.sqrt(weights[j]), plain.window(j)
        own = plain.probe.copy()
        own[0] += np.tensordot(coefficients[j], modes, 1)
        probes = root * plain.moved(own, j)
        far = np.fft.fft2(probes * window, norm="ortho")
        bare = (np.abs(far) ** 2).sum(0)
        modelled = bare + background + plain.floor
        change = (np.sqrt((plain.counts[j] + plain.floor) / modelled) - 1) * modelled / (modelled + plain.damping)
        change = np.where(plain.good, change, 0)
        slopes += change
        inverses += plain.good / modelled
        chi = np.fft.ifft2(change * far, norm="ortho")
        brighter[j] = (np.conj(probes * window) * chi).real.sum() / bare.sum()
        derivatives = []
        for axis, shape in enumerate(((-1, 1), (1, -1))):
            ramp = -2j * np.pi * np.fft.fftfreq(32)
            ramp[16] = -np.pi * np.tan(np.pi * plain.rests[j, axis])  # of a cosine, as the shift is there
            derivatives.append(window * np.fft.ifft2(ramp.reshape(shape) * np.fft.fft2(probes)))
        gradient = [(along.conj() * chi).real.sum() for along in derivatives]
        along = [np.diff(window, axis=axis, append=np.take(window, [-1], axis)) for axis in (0, 1)]
        light = (np.abs(probes) ** 2).sum(0)
        curvature = np.array([[(light * (a.conj() * b).real).sum() for a in along] for b in along])
        curvature += FLATTEST * bare.sum() * np.eye(2)
        steps[j] = np.linalg.solve(curvature, gradient)
        unmoved = root * plain.moved(window.conj() * chi, j, -1)[0]
        power = weights[j] * np.abs(window) ** 2
        matrix = [[(power * one.conj() * other).real.sum() for other in modes] for one in modes]
        changes[j] = np.linalg.solve(matrix, [(one.conj() * unmoved).real.sum() for one in modes])
        directions += coefficients[j].conj()[:, None, None] * unmoved
        lit += power
    lit += DAMPING * lit.max()
    squares = (np.abs(coefficients) ** 2).mean(0)[:, None, None]

    expected = weights.copy()
    for j in patterns:
        expected[j] *= (1 + RATES["pattern_intensities"] * brighter[j]) ** 2
    np.testing.assert_allclose(part(loop, "weights").weights.detach(), expected / expected.mean(), rtol=1e-9)
    others = np.setdiff1d(np.arange(12), patterns)
    moved = (part(loop, "positions").moves.detach() - start["positions"]["moves"]).numpy()
    np.testing.assert_allclose(moved[patterns], [RATES["positions"] * steps[j] for j in patterns], rtol=1e-9)
    assert np.abs(moved[patterns]).min() > 1e-4
    assert (moved[others] == 0).all()
    found = torch.view_as_complex(variations.coefficients.detach()).numpy() - coefficients
    np.testing.assert_allclose(found[patterns], [RATES["opr"] * changes[j] for j in patterns], rtol=1e-4)
    assert (found[others] == 0).all()
    found = (torch.view_as_complex(variations.ways.detach()) * variations.scale).numpy() - modes
    np.testing.assert_allclose(
        found, RATES["opr"] * np.sqrt(len(patterns) / 12) * directions / (squares * lit), rtol=1e-8
    )
    step = 2 * RATES["background"] * len(patterns) / 12 * slopes / np.where(inverses > 0, inverses, 1)
    np.testing.assert_allclose(
        part(loop, "background").counts.detach(), np.maximum(background + step, 0), rtol=1e-9, atol=1e-9
    )
    assert np.abs(step).max() > 1e-3 * background.max()


def test_position_steps_are_solutions_with_a_limit() -> None:
    slopes = torch.tensor([[1.0, 2.0], [4.0, 1.0], [0.0, 0.0]])
    curvatures = torch.tensor([[4.0, 1.0, 8.0], [2.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    found = position_steps(slopes, curvatures, torch.zeros(3)).numpy()
    np.testing.assert_allclose(found[0], np.linalg.solve([[4, 1], [1, 8]], [1, 2]))
    np.testing.assert_allclose(found[1], [FARTHEST, 0.25])
    np.testing.assert_array_equal(found[2], 0)


def test_positions_below_a_flat_object_stay() -> None:
    """Every position fits as well, so that only rounding could move them."""
    loop = a_loop(a_scan(), Settings(optimiser="lsqml", batch=8, positions={"learning_rate": 1}))
    loop.step()
    assert float(part(loop, "positions").moves.detach().abs().max()) < 1e-3
    loop = after(a_scan(), Settings(optimiser="lsqml", batch=8, positions={"learning_rate": 1}), 2)
    assert float(part(loop, "positions").moves.detach().abs().max()) > 1e-2


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_the_momentum_of_positions_adds_a_fraction_of_the_last_step(momentum: float) -> None:
    """With object and probe nearly fixed each step of an epoch is nearly the last one, plus that fraction of it."""
    settings = double(
        "lsqml",
        batch=37,
        object=Object(learning_rate=1),
        positions={"learning_rate": 1e-6, "momentum": momentum, "start_epoch": 2},
    )
    loop = after(a_scan(), settings, 1)
    loop.change(loop.settings.replace(object={"learning_rate": 1e-9}, probe={"learning_rate": 0}))
    moves = [part(loop, "positions").moves.detach().clone()]
    for _ in range(2):
        loop.step()
        moves.append(part(loop, "positions").moves.detach().clone())
    first, second = moves[1] - moves[0], moves[2] - moves[1]
    np.testing.assert_allclose(second, (1 + momentum) * first, rtol=1e-3)


def test_momentum_adds_a_fraction_of_the_last_epoch() -> None:
    """From equal starts an epoch makes the same change u; then O = start + m v + u."""
    scan, plain = a_scan(), double("lsqml", batch=8, probe=MODES)
    loop = a_loop(scan, plain.replace(momentum=0.5))
    starts = [loop.model.object.parts.detach().clone()]
    for _ in range(2):
        beside = a_loop(scan, plain)
        beside.restore(
            dataclasses.replace(
                loop.state(loop.loss_sums()),
                algorithm={},
                begun=beside.begun.model_dump(mode="json"),
                settings=plain.model_dump(mode="json"),
            )
        )
        for _ in range(loop.updates):
            loop.step()
            beside.step()
        starts.append(loop.model.object.parts.detach().clone())
        without = beside.model.object.parts.detach()
    change = without - starts[1]
    last = starts[1] - starts[0]
    together = float((last * change).sum()) > 0
    assert together, "the second epoch of this scan continues the first"
    np.testing.assert_allclose(starts[2], starts[1] + 0.5 * last + change, atol=1e-12)
    assert difference(without.numpy(), starts[2].numpy()) > 1e-3


SMALL = pt.simulate(patterns=100, window=32, seed=1)


def test_two_slices_are_resolved() -> None:
    assert SMALL.ground_truth is not None
    assert SMALL.pixel_size is not None
    random = np.random.default_rng(0)
    coarse = random.uniform(0, 0.8, (2, 12, 12))
    shape = SMALL.ground_truth.object.shape
    slices = np.exp(1j * np.kron(coarse, np.ones([-(-side // 12) for side in shape]))[:, : shape[0], : shape[1]])
    thickness = 60 * SMALL.pixel_size[0] ** 2 / 1.5e-10
    scan = pt.simulate_diffraction(
        slices,
        SMALL.ground_truth.probe,
        SMALL.positions,
        geometry=SMALL.geometry,
        thickness=thickness,
        guess=SMALL.probe,
    )
    plan = {"count": 2, "thickness": thickness}
    thin = after(scan, Settings(optimiser="lsqml", batch=8), 40)
    thick, faster = (
        after(scan, Settings(optimiser="lsqml", batch=8, slices=plan, momentum=momentum), 40) for momentum in (0.0, 0.5)
    )
    losses = [loop.epochs[-1].loss for loop in (thin, thick, faster)]
    print("one slice, two, with momentum:", np.round(losses, 6))
    assert losses[1] < losses[0] / 3
    assert losses[2] < losses[1]
