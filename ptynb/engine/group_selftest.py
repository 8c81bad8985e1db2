"""Whether the engines of a group are who they should be, and their gradients sum up, before anything relies on it.

Every rank runs `examine` at the same time. What has to fail on all ranks is decided on what all have told each other,
so that they fail with the same sentence and none is left waiting.
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
from ptynb.engine.update_timing import refuse_where_open, time_sums
from ptynb.exceptions import ClusterError

LARGE, SMALL = 2**25, 2**12
"""Messages [bytes]: one that takes its time by its size, and one that does not."""
BEST_OF, SMALL_ROUNDS = 3, 20
TOLERANCE = 1e-5
"""Of a gradient, relative to its largest number: sums in single precision, in another order."""
ROOM = 512
"""Letters for what a rank tells of itself."""


@dataclass(frozen=True)
class Findings:
    """What a rank found; all but its times the same on every rank.

    devices: by rank. backend: that which sums gradients, "none" for one engine. bandwidth: of an all-reduce in a ring
    [bytes/s], latency [s]; None for one engine. seconds: for all of it.
    """

    world: int
    backend: str
    devices: tuple[str, ...]
    bandwidth: float | None
    latency: float | None
    seconds: float


def attempt(membership: Membership) -> tuple[Findings | None, str]:
    """`examine`; where it fails (None, the sentence, and below it where it was raised)."""
    try:
        return examine(membership), ""
    except Exception as error:  # noqa: BLE001 - the driver hears of every rank, and finds the cause among them
        return None, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"


def examine(membership: Membership) -> Findings:
    """Joins the group, checks it and leaves again. For all ranks together, with no reconstruction open.

    Checked: the world's size and the backend, that devices are those planned and distinct, and that gradients of a
    complex parameter, kept as a real view, are summed over ranks, real and imaginary parts. One engine alone checks
    that its device computes a Fourier transform as numpy does.
    Raises ClusterError with one sentence that says what is wrong; ranks that never come are named after the timeout.
    """
    refuse_where_open()
    started = time.perf_counter()
    group = join(membership)
    try:
        check_device(group.device)  # where it raises the others hear of it at once: their connections close
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
    return Findings(group.world, group.backend, devices, bandwidth, latency, time.perf_counter() - started)


def check_device(device: torch.device) -> None:
    """Raises ClusterError where the device does not transform a field as numpy does."""
    if device.type == "cuda":
        torch.cuda.init()  # raises CUDA's own error
    generator = np.random.default_rng(0)
    field = (generator.normal(size=(64, 64)) + 1j * generator.normal(size=(64, 64))).astype(np.complex64)
    found = torch.fft.fft2(torch.from_numpy(field).to(device), norm="ortho").cpu().numpy()
    error = np.abs(found - np.fft.fft2(field, norm="ortho")).max() / np.abs(field).max()
    if not error < TOLERANCE:
        raise ClusterError(
            f"The device {device} computes a Fourier transform that is off by {error:.2g} of its largest number; "
            "use another device, or install torch again.",
            code="cluster.selftest-failed",
        )


def _check_first_sum(group: Group, timeout: float) -> None:
    """Raises ClusterError where the first sum does not end in time or is wrong.

    Where GPUs can't reach each other NCCL hangs with the GPU at work, and torch ends the process at its own timeout
    instead of raising: so this waits less long, and never for the GPU itself.
    """
    ones = torch.ones(4, device=group.device)
    group.start_sum(ones)()
    if group.device.type == "cuda":
        done, until = torch.cuda.Event(), time.monotonic() + timeout / 2
        done.record(torch.cuda.current_stream(group.device))
        while not done.query():
            if time.monotonic() > until:
                raise ClusterError(
                    f"The first sum over {group.world} GPUs by {group.backend} did not end within {timeout / 2:g} s.",
                    code="cluster.selftest-failed",
                )
            time.sleep(0.001)
    if ones.tolist() != [group.world] * 4:
        raise ClusterError(
            f"Ones sum up to {ones.tolist()} over {group.world} engines; expected {group.world}.",
            code="cluster.selftest-failed",
        )


def _check_members(group: Group, membership: Membership) -> tuple[str, ...]:
    """The devices by rank, once they are what was planned, distinct, and every rank sees the same group."""
    world, backend = (
        (dist.get_world_size(), dist.get_backend_config().split(f"{group.device.type}:")[1].split(",")[0])
        if group.world > 1
        else (1, "none")
    )
    own = [world, backend, membership.identity, device_uuid(group.device), platform.node(), os.getpid()]
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


def device_uuid(device: torch.device) -> str:
    """'GPU-...' as the driver's tool writes it; '' on a CPU, and where torch does not tell."""
    if device.type != "cuda":
        return ""
    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    return f"GPU-{uuid}" if uuid else ""


def gather(group: Group, message: Any) -> list[Any]:
    """What every rank says, what JSON can hold, by rank; on every rank."""
    letters = torch.zeros(group.world, ROOM, dtype=torch.uint8)
    text = json.dumps(message).encode()
    assert len(text) <= ROOM, "a few words"
    letters[group.rank, : len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return [json.loads(bytes(row.numpy()).rstrip(b"\0")) for row in group.sum(letters)]


class _Field(nn.Module):
    """A complex parameter as a real view, as the model keeps them, and a loss that differs from rank to rank."""

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
    """Raises ClusterError on every rank where on any the group's gradient is not the sum of all ranks' own.

    The gradient of a mean over all patterns follows by dividing by their number, as updates do. Imaginary parts are
    looked at on their own: a backend that loses them (pytorch #158753) may still have the real ones right.
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
    wrapped = group.wrap(field, hook)  # named: it reduces for as long as it lives
    wrapped().backward()
    assert field.view.grad is not None, "it has just been computed"
    found = field.view.grad.cpu()
    errors = [float((found - expected)[:, part].abs().max() / expected.abs().max()) for part in (0, 1)]
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
