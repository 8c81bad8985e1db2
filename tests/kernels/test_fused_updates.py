import pytest
import torch

from ptynb.kernels.runtime import thread_pool
from ptynb.optimize.optimizers import BETAS, ROW_EPSILON, SGD, Adam, RowAdam
from ptynb.physics.operations import step_rows_
from tests.parametrization import each


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adam_is_that_of_torch(dtype, threads, monkeypatch):
    monkeypatch.setattr(thread_pool.thread_count, "count", lambda: threads)
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(7, 5, dtype=dtype, generator=generator), torch.randn(3, dtype=dtype, generator=generator)]
    slopes = torch.randn(6, 38, dtype=dtype, generator=generator)
    found = []
    for make in (Adam, lambda groups: torch.optim.Adam(groups, betas=BETAS, eps=0.015)):
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


@each("momentum", [0.0, 0.7])
def test_sgd_is_that_of_torch(momentum):
    generator = torch.Generator().manual_seed(1)
    start, *slopes = torch.randn(6, 7, 5, generator=generator)
    found = []
    for make in (SGD, torch.optim.SGD):
        moving = start.clone().requires_grad_()
        optimiser = make([{"params": [moving], "lr": 0.1}], momentum=momentum)
        for slope in slopes:
            moving.grad = slope.clone()
            optimiser.step()
        found.append(moving.detach())
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)
    assert not torch.equal(found[0], start)


def test_a_parameter_without_gradient_stays():
    still, moving = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    optimiser = Adam([{"params": [still, moving], "lr": 0.1}])
    moving.grad = torch.ones(3)
    optimiser.step()
    assert torch.equal(still.detach(), torch.ones(3))
    assert bool((moving < 1).all())


@each("dtype", [torch.float32, torch.float64])
def test_rows_count_their_own_steps(dtype):
    """Each row alone is Adam with its own steps; rows that no batch had stay. torch's operations do the same."""
    generator = torch.Generator().manual_seed(1)
    start, slopes = (torch.randn(*shape, dtype=dtype, generator=generator) for shape in ((6, 2, 3), (7, 6, 2, 3)))
    batches = [torch.tensor(rows) for rows in ([0, 2], [2], [5, 0, 3], [], [2, 3], [0], [3, 5])]
    found = []
    for compiled in (True, False):
        moving = start.clone().requires_grad_()
        optimiser = RowAdam([{"params": [moving], "lr": 0.1, "momentum": 0.8}])
        for number, (batch, slope) in enumerate(zip(batches, slopes, strict=True)):
            optimiser.batch, moving.grad = batch.long(), slope
            if number == 0 or compiled:
                optimiser.step()
            else:
                state = [optimiser.state[moving][key] for key in ("mean", "square", "steps")]
                rate = torch.tensor(0.1, dtype=dtype)
                step_rows_(moving.data, slope, *state, batch.long(), rate, 0.8, BETAS[1], ROW_EPSILON)
        found.append(moving.detach())
    # In single precision torch rounds 1 - β^t, of which a β near 1 leaves few digits; ours is in double precision.
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-13, "atol": 1e-15}
    torch.testing.assert_close(found[0], found[1], **close)
    for row in range(6):
        alone = start[row].clone().requires_grad_()
        plain = torch.optim.Adam([alone], lr=0.1, betas=(0.8, BETAS[1]), eps=1e-8)
        for batch, slope in zip(batches, slopes, strict=True):
            if row in batch:
                alone.grad = slope[row]
                plain.step()
        torch.testing.assert_close(found[0][row], alone.detach(), **close)
    assert torch.equal(found[0][1], start[1])
