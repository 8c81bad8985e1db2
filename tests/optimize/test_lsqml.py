"""LSQML against plain numpy, and its step lengths against a least-squares solve."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from ptynb.engine.loop import Loop
from ptynb.optimize.lsqml import DAMPING, step_lengths
from ptynb.settings import Object, Probe, Settings
from tests.cases import a_scan
from tests.engine.reference_model import (
    Array,
    Plain,
    a_loop,
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
    misfit = 0.0
    for batch in loop.order.epoch(1).T:
        patterns = batch[batch >= 0]
        misfit += sum(plain.misfit(j) for j in patterns)
        missing = {j: plain.fitting(plain.product(j), j) - plain.product(j) for j in patterns}
        change, light = plain.object_change(missing.__getitem__, patterns, DAMPING)
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
        plain.object += rates["object"] * step
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
    found = step_lengths(*(torch.from_numpy(waves) for waves in (chi, x, y))).numpy()
    for j in range(4):
        columns = np.stack([np.concatenate([way[j].real.ravel(), way[j].imag.ravel()]) for way in (x, y)], 1)
        expected = np.linalg.lstsq(columns, np.concatenate([chi[j].real.ravel(), chi[j].imag.ravel()]))[0]
        np.testing.assert_allclose(found[j], expected, rtol=1e-5, atol=1e-5)
    alone = step_lengths(*(torch.from_numpy(waves) for waves in (chi, x, 0 * x))).numpy()
    np.testing.assert_allclose(alone[:, 0], (chi.conj() * x).real.sum((1, 2, 3)) / (abs(x) ** 2).sum((1, 2, 3)), 1e-5)
    np.testing.assert_array_equal(alone[:, 1], 0)
    nothing = torch.zeros(2, 1, 3, 3, dtype=torch.complex64)
    assert step_lengths(nothing, nothing, nothing).tolist() == [[0, 0], [0, 0]]


def test_a_smaller_rate_of_lsqml_is_a_smaller_step() -> None:
    starts = object_of(a_loop(a_scan(), Settings()))
    steps = {}
    for rate in (1.0, 0.25):
        loop = a_loop(a_scan(), double("lsqml", object=Object(learning_rate=rate), probe=Probe(learning_rate=1)))
        assert loop.algorithm.rates() == {"object": rate, "probe": 1}
        loop.step()
        steps[rate] = object_of(loop) - starts
    np.testing.assert_allclose(steps[0.25], steps[1.0] / 4, rtol=1e-9, atol=1e-12)
