import pytest
import torch

from ptynb.compiled import updates
from ptynb.engine.optim import Adam


@pytest.mark.parametrize("shared_from", [1, 10**9], ids=["shared", "alone"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_is_that_of_torch(dtype, shared_from, monkeypatch):
    monkeypatch.setattr(updates, "SHARED_FROM", shared_from)
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(7, 5, dtype=dtype, generator=generator), torch.randn(3, dtype=dtype, generator=generator)]
    slopes = torch.randn(6, 38, dtype=dtype, generator=generator)
    found = []
    for make in (Adam, lambda groups: torch.optim.Adam(groups, eps=0.015)):
        moving = [values.clone().requires_grad_() for values in start]
        optimiser = make([{"params": [values], "lr": rate} for values, rate in zip(moving, (0.1, 0.02), strict=True)])
        for slope in slopes:
            moving[0].grad = slope[:35].view(5, 7).T  # not in order
            moving[1].grad = slope[35:]
            optimiser.step()
        moments = [optimiser.state[values][key] for values in moving for key in ("exp_avg", "exp_avg_sq")]
        found.append([*(values.detach() for values in moving), *moments])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=20 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    assert not torch.equal(found[0][0], start[0])


def test_a_parameter_without_gradient_stays():
    still, moving = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    optimiser = Adam([{"params": [still, moving], "lr": 0.1}])
    moving.grad = torch.ones(3)
    optimiser.step()
    assert torch.equal(still.detach(), torch.ones(3))
    assert bool((moving < 1).all())
