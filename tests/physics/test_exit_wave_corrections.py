"""Corrections of exit waves: against gradients of the hot path, finite differences and plain numpy; both versions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ptynb.kernels.fused_corrections import CompiledCorrections
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics.exit_wave_corrections import Corrections
from ptynb.physics.hotpath import exit_waves, moved_probes, patterns
from ptynb.physics.losses import AmplitudeLoss, loss_of

PATTERNS, WINDOW, OBJECT = 4, (12, 16), (25, 30)
VERSIONS = Corrections, CompiledCorrections


@dataclasses.dataclass(frozen=True)
class Case:
    """What takes part. each: each pattern has probes of its own."""

    slices: int = 1
    modes: int = 2
    each: bool = False
    near: bool = False
    weights: bool = False
    background: bool = False
    mask: bool = False
    still: bool = False


CASES = {
    "far": Case(modes=1),
    "everything": Case(slices=3, each=True, weights=True, background=True, mask=True),
    "near": Case(near=True, weights=True, mask=True),
    "near, slices": Case(slices=2, near=True, background=True, each=True),
    "whole pixels": Case(slices=2, weights=True, still=True),
    "whole pixels, each": Case(each=True, still=True),
}


def inputs(case: Case) -> tuple[Illumination, Detection]:
    torch.manual_seed(0)
    numbers = {"dtype": torch.float64}

    def waves(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.complex128)

    def turning() -> Tensor:
        return torch.polar(torch.ones(WINDOW, **numbers), torch.randn(WINDOW, **numbers))

    illumination = Illumination(
        1 + 0.3 * waves(1, case.slices, *OBJECT),
        torch.randint(0, 13, (PATTERNS, 2)),
        10 * waves(PATTERNS if case.each else 1, case.modes, *WINDOW),
        (0 if case.still else 1) * (torch.rand(PATTERNS, 2, **numbers) - 0.5),
        turning() if case.slices > 1 else None,
        turning() if case.near else None,
    )
    detection = Detection(
        torch.randint(0, 400, (PATTERNS + 2, *WINDOW), dtype=torch.int16),
        torch.arange(PATTERNS) + 1,
        (torch.rand(WINDOW) > 0.2).double() if case.mask else None,
        1e-3,
        torch.rand(PATTERNS, **numbers) + 0.5 if case.weights else None,
        20 * torch.rand(WINDOW, **numbers) if case.background else None,
    )
    return illumination, detection


def made(version: Any, illumination: Illumination, detection: Detection) -> Corrections:
    found: Corrections = version(illumination, detection, shifts=True, first=True)
    return found


def loss(illumination: Illumination, detection: Detection) -> Tensor:
    """By the hot path's own steps and automatic differentiation."""
    intensity = patterns(illumination)
    if detection.weights is not None:
        intensity = detection.weights[:, None, None] * intensity
    if detection.background is not None:
        intensity = intensity + detection.background
    assert detection.rows is not None
    return loss_of(intensity, detection.stored[detection.rows], detection.mask, AmplitudeLoss(detection.floor))


def close(found: Tensor | None, expected: Tensor, most: float = 1e-10) -> None:
    assert found is not None
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=most * float(expected.abs().max()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_gradients_of_the_loss(name: str, version: Any) -> None:
    """-2 times each: torch's gradient is 2 dL/dz*, and the step of χ along it lowers the loss."""
    illumination, detection = inputs(CASES[name])
    found = made(version, illumination, detection)
    object, probes = illumination.object.requires_grad_(), illumination.probes.requires_grad_()
    shifts = illumination.shifts.requires_grad_()
    others = [one.requires_grad_() for one in (detection.weights, detection.background) if one is not None]
    value = loss(illumination, detection)
    of_object, of_probes, of_shifts, *of_others = torch.autograd.grad(value, [object, probes, shifts, *others])
    assert float(found.loss) == pytest.approx(value.item(), rel=1e-12)
    close(found.object, -of_object[0] / 2)
    close(found.probe, -of_probes.sum(0) / 2)
    close(found.shifts, -of_shifts / 2)
    if CASES[name].each:
        close(found.first, -of_probes[:, 0] / 2)
    if detection.weights is not None:
        close(found.brightness[:, 0], -of_others.pop(0) * detection.weights.detach())
    if detection.background is not None:
        assert found.background is not None
        close(found.background[0], -of_others.pop(0))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_powers_are_those_of_the_waves(name: str, version: Any) -> None:
    illumination, detection = inputs(CASES[name])
    object, origins, probes, shifts, kernel, _ = illumination
    found = made(version, illumination, detection)
    weights = torch.ones(PATTERNS, dtype=torch.float64) if detection.weights is None else detection.weights
    chosen = torch.rand(PATTERNS, dtype=torch.float64)
    lit, weighted, power = torch.zeros_like(object[0].real), torch.zeros_like(object[0].real), torch.zeros(WINDOW)
    arriving = moved_probes(probes, shifts) * weights.sqrt()[:, None, None, None]
    windows = torch.stack([object[0, :, y : y + WINDOW[0], x : x + WINDOW[1]] for y, x in origins.tolist()])
    curvatures = []
    for j, (y, x) in enumerate(origins.tolist()):
        place = slice(y, y + WINDOW[0]), slice(x, x + WINDOW[1])
        wave = arriving[j]
        for layer in range(len(object[0])):
            square = wave.abs().square().sum(0)
            lit[(layer, *place)] += square
            weighted[(layer, *place)] += chosen[j] * square
            wave = wave * windows[j, layer]
            if layer < len(object[0]) - 1:
                assert kernel is not None
                wave = torch.fft.ifft2(torch.fft.fft2(wave) * kernel)
        power = power + weights[j] * windows[j].abs().square().prod(0)
        thin = windows[j].prod(0).numpy()
        along = [np.diff(thin, axis=axis, append=np.take(thin, [-1], axis)) for axis in (0, 1)]
        square = arriving[j].abs().square().sum(0).numpy()
        curvatures.append([(square * (along[a].conj() * along[b]).real).sum() for a, b in ((0, 0), (0, 1), (1, 1))])
    close(found.illumination, lit)
    close(found.weighted_illumination(chosen), weighted)
    close(found.power, power)
    close(found.brightness[:, 1], weights * patterns(illumination).sum((1, 2)))
    close(found.curvatures(object[0].prod(0)), torch.tensor(np.array(curvatures)))
    if detection.background is not None:
        assert found.background is not None
        modelled = weights[:, None, None] * patterns(illumination) + detection.background
        inverse = (1 / (modelled + detection.floor)).sum(0)
        close(found.background[1], inverse if detection.mask is None else inverse * detection.mask)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_changes_of_the_waves(name: str, version: Any) -> None:
    """x and y by central differences of the exit waves, χx and χy by those of each pattern's loss."""
    illumination, detection = inputs(CASES[name])
    object, origins, probes, shifts, kernel, _ = illumination
    steps = torch.randn_like(object[0]), torch.randn_like(probes[0])
    root = 1 if detection.weights is None else detection.weights.sqrt()[:, None, None, None, None]
    size = 1e-4

    def along(part: int, distance: float) -> Illumination:
        if part == 0:
            return illumination._replace(object=object + distance * steps[0])
        return illumination._replace(probes=probes + distance * steps[1])

    def waves(lighting: Illumination) -> Tensor:
        moved = moved_probes(lighting.probes, shifts)
        return root * exit_waves(lighting.object, origins, moved, kernel)

    def losses(lighting: Illumination) -> Tensor:
        assert detection.rows is not None
        return torch.stack(
            [
                loss(
                    lighting._replace(
                        window_origins=origins[j : j + 1],
                        shifts=shifts[j : j + 1],
                        probes=lighting.probes[j : j + 1] if CASES[name].each else lighting.probes,
                    ),
                    detection._replace(
                        rows=detection.rows[j : j + 1],
                        weights=None if detection.weights is None else detection.weights[j : j + 1],
                    ),
                )
                for j in range(PATTERNS)
            ]
        )

    x, y = ((waves(along(part, size)) - waves(along(part, -size))) / (2 * size) for part in (0, 1))
    products = [(one.conj() * other).real.sum((1, 2, 3, 4)) for one, other in ((x, x), (x, y), (y, y))]
    slopes = [(losses(along(part, size)) - losses(along(part, -size))) / (2 * size) for part in (0, 1)]
    found = made(version, illumination, detection).products(*steps)
    close(found[:, :3], torch.stack(products, 1), 1e-6)
    close(found[:, 3:], -torch.stack(slopes, 1) / 2, 1e-6)


def test_a_damped_slope_and_released_memory() -> None:
    """With the damping of LSQML both versions agree, and the next batch may have the memory of the last."""
    illumination, detection = inputs(CASES["everything"])
    detection = detection._replace(damping=30.0)
    expected = made(Corrections, illumination, detection)
    for _ in range(2):
        found = made(CompiledCorrections, illumination, detection)
        close(found.object, expected.object)
        close(found.probe, expected.probe)
        close(found.first, expected.first if expected.first is not None else torch.zeros(1))
        found.release()
    undamped = made(Corrections, illumination, detection._replace(damping=0.0))
    assert not torch.allclose(expected.object, undamped.object)


def test_sides_with_large_prime_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled transforms of such windows are convolutions."""
    monkeypatch.setitem(globals(), "WINDOW", (41, 47))
    monkeypatch.setitem(globals(), "OBJECT", (54, 61))
    illumination, detection = inputs(CASES["everything"])
    expected, found = (made(version, illumination, detection) for version in (Corrections, CompiledCorrections))
    for name in ("object", "illumination", "probe", "power", "brightness", "background", "shifts"):
        close(getattr(found, name), getattr(expected, name), 1e-11)
