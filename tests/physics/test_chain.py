"""The steps of a batch as torch operations, and the gradients that they are combined to, on a CPU."""

import numpy as np
import pytest
import torch

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics.chain import Descent
from ptynb.physics.hotpath import patterns, varied
from ptynb.physics.losses import AmplitudeLoss, IntensityLoss, PoissonLoss, loss_of
from ptynb.physics.patches import _add_as_integers, add_windows
from tests.parametrization import all_pairs, each

LOSSES = {"poisson": PoissonLoss, "intensity": IntensityLoss}
NAMES = ("object", "probes", "shifts", "weights", "background")


def complex_normal(generator, *shape):
    return torch.complex(*torch.randn(2, *shape, dtype=torch.float64, generator=generator))


@each(
    ("wanted", "window", "slices", "modes", "near", "shared", "masked", "kernels", "stored", "loss"),
    all_pairs(
        (NAMES, NAMES[:1], NAMES[1:2], NAMES[2:3], NAMES[3:4], ("background", "shifts"), ("object", "shifts")),
        ((8, 7), (6, 10)),
        (1, 3),
        (1, 3),
        (False, True),
        (True, False),
        (False, True),
        ("one", "each"),
        ("rows", "all"),
        ("amplitude", "poisson", "intensity"),
    ),
)
def test_loss_and_gradients_are_those_of_automatic_differentiation(
    wanted, window, slices, modes, near, shared, masked, kernels, stored, loss
):
    generator, count = torch.Generator().manual_seed(slices + 10 * modes), 5
    origins = torch.stack([torch.arange(count) * 2 % 9, torch.arange(count) * 3 % 8], 1)
    kernel = complex_normal(generator, *((count,) if kernels == "each" else ()), *window) if slices > 1 else None
    illumination = Illumination(
        complex_normal(generator, 1, slices, 20, 21),
        origins,
        complex_normal(generator, 1 if shared else count, modes, *window),
        torch.rand(count, 2, dtype=torch.float64, generator=generator) - 0.5,
        kernel,
        complex_normal(generator, *window) if near else None,
    )
    held = torch.poisson(torch.full((9, *window), 3.0), generator=generator).to(torch.uint16)
    rows = torch.tensor([7, 0, 3, 3, 8]) if stored == "rows" else None
    mask = (torch.rand(window, generator=generator) > 0.2).double() if masked else None
    weights = 0.5 + torch.rand(count, dtype=torch.float64, generator=generator) if "weights" in wanted else None
    background = torch.rand(window, dtype=torch.float64, generator=generator) if "background" in wanted else None
    damping = 2.0 if loss == "amplitude" and near else 0.0
    counts = held if rows is not None else held[:count]
    detection = Detection(counts, rows, mask, 0.1, weights, background, damping, loss)
    leaves = varied(illumination, detection)
    for name, leaf in zip(NAMES, leaves, strict=True):
        if leaf is not None:
            leaf.requires_grad_(name in wanted)
    required = [leaf is not None and leaf.requires_grad for leaf in leaves]
    descent = Descent(illumination, detection, required)
    value, gradients = descent.value(), descent.gradients(-1.7)

    modelled = patterns(illumination)
    modelled = modelled if weights is None else modelled * weights[:, None, None]
    modelled = modelled if background is None else modelled + background
    expected = loss_of(
        modelled,
        counts if rows is None else held.int()[rows],
        mask,
        AmplitudeLoss(0.1, damping) if loss == "amplitude" else LOSSES[loss](0.1),
    )
    (-1.7 * expected).backward()
    assert float(value) == pytest.approx(expected.item(), rel=1e-12)
    close = {"intensity": 1e-9 * float(expected.detach())}.get(loss, 1e-9)
    for name, gradient, leaf in zip(NAMES, gradients, leaves, strict=True):
        assert (gradient is not None) == (name in wanted), name
        if gradient is not None:
            np.testing.assert_allclose(gradient.numpy(), leaf.grad.numpy(), rtol=1e-9, atol=close, err_msg=name)


@each("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_sums_of_windows_as_integers_do_not_depend_on_their_order(dtype):
    generator = torch.Generator().manual_seed(1)
    windows = (torch.randn(40, 3, 6, 7, dtype=torch.float64, generator=generator) * 1e3).to(dtype)
    windows[:20] *= 1e-6
    origins = torch.randint(0, 9, (40, 2), generator=generator)
    order = torch.randperm(40, generator=generator)
    field = torch.randn(3, 20, 21, dtype=torch.float64, generator=generator).to(dtype)
    expected, one, other = add_windows(field.clone(), origins, windows), field.clone(), field.clone()
    _add_as_integers(one, origins, windows)
    _add_as_integers(other, origins[order], windows[order])
    assert torch.equal(one, other)
    assert not torch.equal(add_windows(field.clone(), origins[order], windows[order]), expected)
    precise = 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-13
    torch.testing.assert_close(one, expected, rtol=precise, atol=1e3 * precise)
