"""Self-test of a group of engines: distinct devices, working collectives, and correct sums of gradients.

Every rank runs `examine` at the same time. Errors of the whole group are decided from data gathered from all ranks, so
that all raise the same message and none keeps waiting.
"""
# Without `from __future__ import annotations`: DistributedDataParallel compares a hook's annotations with types.

import json
import os
import platform
import time
import traceback
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ptynb.distributed.group import Group, Membership, join
from ptynb.engine.gpu import gpu_uuid
from ptynb.engine.update_timing import refuse_where_open, time_sums
from ptynb.exceptions import ClusterError
from ptynb.physics.triton_dispatch import check_triton
from ptynb.polling import wait_until

LARGE, SMALL = 2**25, 2**12
"""Sizes of messages [bytes] whose time is determined by the bandwidth, and by the latency."""
BEST_OF, SMALL_ROUNDS = 3, 20
TOLERANCE = 1e-5
"""Tolerated error relative to the largest value: single precision, and another order of summation."""
ROOM = 512
"""Maximum length of a rank's message in `gather` [bytes]."""


@dataclass(frozen=True)
class Findings:
    """Result of the self-test on one rank; all but the times and `slow` are the same on every rank.

    devices: by rank. backend: that which sums gradients, "none" for one engine. bandwidth: of an all-reduce in a ring
    [bytes/s], latency [s]; None for one engine. seconds: duration of the test. slow: why this rank's GPU computes more
    slowly than it could; empty if nothing is known.
    """

    world: int
    backend: str
    devices: tuple[str, ...]
    bandwidth: float | None
    latency: float | None
    seconds: float
    slow: str = ""


def attempt(membership: Membership) -> tuple[Findings | None, str]:
    """Return the result of `examine` and ""; if it fails, None and the error's message with its traceback."""
    try:
        return examine(membership), ""
    except Exception as error:  # noqa: BLE001 - the driver hears of every rank, and finds the cause among them
        return None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"


def examine(membership: Membership) -> Findings:
    """Join the group, check it and leave it. Collective: call it on all ranks, with no reconstruction open.

    Checks the world size and the backend, that devices are the planned ones and distinct, and that gradients of a
    complex parameter, stored as a real view, are summed over ranks in real and imaginary parts. Each engine also checks
    that its device computes a Fourier transform as numpy does.
    Raises ClusterError with one sentence that describes the problem; after the timeout it names missing ranks.
    """
    refuse_where_open()
    started = time.perf_counter()
    group = join(membership)
    try:
        check_device(group.device)  # an error closes the connections, so the other ranks fail at once
        _check_first_sum(group, membership.timeout)
        devices = _check_members(group, membership)
        bandwidth = latency = None
        if group.world > 1:
            _check_gradient(group)
            wire = 2 * (group.world - 1) / group.world * LARGE
            bandwidth = wire / min(time_sums(group, LARGE, BEST_OF, warm_ups=1))
            latency = min(time_sums(group, SMALL, SMALL_ROUNDS, warm_ups=2))
    finally:
        group.close()
    # Without the group: a compilation of some seconds makes no other rank wait.
    slow = check_triton() if group.device.type == "cuda" else ""
    return Findings(group.world, group.backend, devices, bandwidth, latency, time.perf_counter() - started, slow)


def check_device(device: torch.device) -> None:
    """Raise ClusterError if the device does not compute a Fourier transform as numpy does."""
    if device.type == "cuda":
        torch.cuda.init()  # raises CUDA's own error
    generator = np.random.default_rng(0)
    field = (generator.normal(size=(64, 64)) + 1j * generator.normal(size=(64, 64))).astype(np.complex64)
    computed = torch.fft.fft2(torch.from_numpy(field).to(device), norm="ortho").cpu().numpy()
    error = np.abs(computed - np.fft.fft2(field, norm="ortho")).max() / np.abs(field).max()
    if not error < TOLERANCE:
        raise ClusterError(
            f"The device {device} computes a Fourier transform that is off by {error:.2g} of its largest number; "
            "use another device, or install torch again.",
            code="cluster.selftest-failed",
        )


def _check_first_sum(group: Group, timeout: float) -> None:
    """Raise ClusterError if the first sum does not complete in time or is wrong.

    If GPUs cannot reach each other, NCCL hangs in a kernel, and torch ends the process at its own timeout instead of
    raising: therefore this has a shorter timeout, and polls an event instead of synchronizing with the GPU.
    """
    ones = torch.ones(4, device=group.device)
    group.start_sum(ones)()
    if group.device.type == "cuda":
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(group.device))
        if not wait_until(done.query, timeout / 2, 0.001):
            raise ClusterError(
                f"The first sum over {group.world} GPUs by {group.backend} did not end within {timeout / 2:g} s.",
                code="cluster.selftest-failed",
            )
    if ones.tolist() != [group.world] * 4:
        raise ClusterError(
            f"Ones sum up to {ones.tolist()} over {group.world} engines; expected {group.world}.",
            code="cluster.selftest-failed",
        )


def _check_members(group: Group, membership: Membership) -> tuple[str, ...]:
    """Return the devices by rank. Raise ClusterError if they are not the planned ones or not distinct.

    Also checks that every rank sees the planned world size and backend.
    """
    world, backend = (
        (dist.get_world_size(), dist.get_backend_config().split(f"{group.device.type}:")[1].split(",")[0])
        if group.world > 1
        else (1, "none")
    )
    own = [world, backend, membership.identity, gpu_uuid(group.device), platform.node(), os.getpid()]
    answers = gather(group, own)
    for rank, (found_world, found_backend, identity, uuid, _, _) in enumerate(answers):
        if (found_world, found_backend) != (membership.world, membership.backend):
            raise ClusterError(
                f"Rank {rank} is in a group of {found_world} by {found_backend}; "
                f"expected {membership.world} by {membership.backend}.",
                code="cluster.selftest-failed",
            )
        if uuid and "MIG-" not in identity and uuid not in identity:
            raise ClusterError(
                f"Rank {rank} computes on the GPU {uuid}; expected {identity}.", code="cluster.selftest-failed"
            )
    identities = [entry[2] for entry in answers]
    for rank, identity in enumerate(identities):
        first = identities.index(identity)
        if first < rank:
            raise ClusterError(
                f"Ranks {first} and {rank} hold the same device, {identity}, and each needs its own; "
                "start fewer engines, or CPU engines.",
                code="cluster.selftest-failed",
            )
    return tuple(identities)


def gather(group: Group, message: Any) -> list[Any]:
    """Return the messages of all ranks, by rank, on every rank; each must be serializable as JSON."""
    letters = torch.zeros(group.world, ROOM, dtype=torch.uint8)
    text = json.dumps(message).encode()
    assert len(text) <= ROOM, "a few words"
    letters[group.rank, : len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return [json.loads(bytes(row.numpy()).rstrip(b"\0")) for row in group.sum(letters)]


class _Field(nn.Module):
    """A complex parameter as a real view, as in the model, and a loss that differs between ranks."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.view = nn.Parameter(_random(0))
        self._data, self._target = (torch.view_as_complex(_random(100 * kind + rank + 1)) for kind in (1, 2))

    def to_device(self, device: torch.device) -> Self:
        self._data, self._target = self._data.to(device), self._target.to(device)
        return self.to(device)

    def forward(self) -> Tensor:
        residual = torch.view_as_complex(self.view) * self._data - self._target
        return (residual * residual.conj()).real.sum()


def _random(seed: int) -> Tensor:
    return torch.randn(64, 2, generator=torch.Generator().manual_seed(seed))


def _check_gradient(group: Group) -> None:
    """Raise ClusterError on every rank if on any of them the group's gradient is not the sum of all ranks' gradients.

    Updates divide this sum by the number of patterns to get a mean. Imaginary parts are checked separately: a backend
    that loses them (pytorch #158753) may still have correct real ones.
    """

    def hook(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        group.start_sum(bucket.buffer())()
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    field = _Field(group.rank).to_device(group.device)
    (own,) = torch.autograd.grad(field(), field.view)
    rows = torch.zeros(group.world, *own.shape)
    rows[group.rank] = own.cpu()
    expected = group.sum(rows).sum(0)
    wrapped = group.wrap(field, hook)  # a variable, since gradients are reduced only while the wrapper exists
    wrapped().backward()
    assert field.view.grad is not None, "it has just been computed"
    reduced = field.view.grad.cpu()
    errors = [float((reduced - expected)[:, part].abs().max() / expected.abs().max()) for part in (0, 1)]
    answers = gather(group, errors)
    for part, name in enumerate(("real", "imaginary")):
        wrong = [rank for rank, entry in enumerate(answers) if not entry[part] < TOLERANCE]
        if wrong:
            worst = max(entry[part] for entry in answers)
            raise ClusterError(
                f"The {name} part of the group's gradient is not the sum of the engines' own on ranks {wrong}: "
                f"off by {worst:.2g} of its largest number with the backend {group.backend}.",
                code="cluster.selftest-failed",
            )
