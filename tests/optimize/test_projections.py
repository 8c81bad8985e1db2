"""DM and RAAR against plain numpy, written from the papers."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from ptynb.optimize import projections
from ptynb.physics.model import FarFieldPropagation
from ptynb.settings import Object, Optimiser, Probe, Settings
from tests.cases import a_scan
from tests.engine.reference_model import (
    MODES,
    Plain,
    a_loop,
    after,
    double,
    object_of,
)


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("kind", ["far", "masked"])
@pytest.mark.parametrize("name", ["dm", "raar"])
def test_dm_and_raar_are_those_of_plain_numpy(
    name: Optimiser, kind: str, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three epochs, and after the first one a change from outside, as by a constraint, that the waves don't follow."""
    monkeypatch.setattr(projections, "TURNS", turns)
    scan = a_scan(12, kind=kind)
    beta = 0.8
    loop = a_loop(scan, double(name, beta=beta, probe=MODES, batch=5))
    plain = Plain.of(loop, scan)
    everyone, waves = np.arange(12), [plain.product(j) for j in range(12)]
    for epoch in range(3):
        loss = sum(plain.misfit(j) for j in everyone)
        if name == "dm":
            for j in everyone:
                overlap = plain.product(j)
                waves[j] = waves[j] + beta * (plain.fitting(2 * overlap - waves[j], j) - overlap)
            sought = waves
        else:
            sought = [2 * plain.fitting(waves[j], j) - waves[j] for j in everyone]
        missing = functools.partial(lambda sought, j: sought[j] - plain.product(j), sought)
        for _ in range(turns):
            plain.object += plain.object_change(missing, everyone, projections.INERTIA)[0]
            plain.probe += plain.probe_change(missing, everyone, projections.INERTIA)
        loop.step()
        plain.agrees(loop, 1e-11)
        assert loop.epochs[-1].loss == pytest.approx(loss / plain.counts.sum(), rel=1e-9)
        if epoch == 0:
            plain.object *= 0.97
            loop.model.object.set(0.97 * loop.model.object.values.detach())
        if name == "raar":  # Luke's eq. 22 as it is written: β/2 (R_o R_a + 1) ψ + (1 - β) π_a ψ
            for j in everyone:
                mirrored = 2 * plain.product(j) - sought[j]
                fitting = plain.fitting(waves[j], j)
                waves[j] = beta / 2 * (mirrored + waves[j]) + (1 - beta) * fitting


def test_waves_rest_while_object_and_probe_do() -> None:
    settings = Settings(optimiser="dm", object=Object(start_epoch=3), probe=Probe(start_epoch=3))
    late, early = after(a_scan(), settings, 4), after(a_scan(), Settings(optimiser="dm"), 2)
    np.testing.assert_array_equal(object_of(late), object_of(early))
    assert [epoch.loss for epoch in late.epochs][2:] == [epoch.loss for epoch in early.epochs]


@pytest.mark.parametrize("kind", ["far", "parallel"])
def test_the_adjoint_of_the_propagation_is_its_adjoint_and_inverse(kind: str) -> None:
    propagation = a_loop(a_scan(9, 16, kind), double("adam")).model.propagation
    assert isinstance(propagation, FarFieldPropagation) == (kind == "far")
    random = torch.Generator().manual_seed(0)
    one, other = (torch.randn((16, 16), generator=random, dtype=torch.complex128) for _ in range(2))
    forward, back = torch.sum(propagation(one).conj() * other), torch.sum(one.conj() * propagation.adjoint(other))
    assert complex(forward) == pytest.approx(complex(back), rel=1e-12)
    torch.testing.assert_close(propagation.adjoint(propagation(one)), one)
