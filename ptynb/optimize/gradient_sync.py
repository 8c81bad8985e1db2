"""Gradient synchronisation: sums of gradients over engines, for the object only of the region that windows cover.

All engines know the patterns of a batch and their windows, so they agree on the region without communication. Outside
it the gradient of the losses is exactly 0 on every engine. Regularizers act everywhere: of a whole object each engine
adds all of their gradient after the sum, of an object in tiles that of its own pixels before it (`Gradient.update`).

Bytes: an all-reduce over P engines moves 2 (P - 1) / P times the message through every engine's link.
"""
# Without `from __future__ import annotations`: DistributedDataParallel compares a hook's annotations with types.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import Tensor

from ptynb.distributed.group import Group
from ptynb.optimize.covered_region import Region
from ptynb.optimize.object_tiles import ObjectTile
from ptynb.physics.model import Model


@dataclass(frozen=True, eq=False)
class _Packed:
    """The parts of a bucket's gradients that are sent: of the object those in the region, of others everything."""

    region: Region | None
    parts: int
    gradients: list[Tensor]
    of_object: list[bool]
    numbers: Tensor

    def pack(self) -> None:
        for gradient, of_object, message in self._split():
            if of_object and self.region is not None:
                self.region.pack(gradient, self.parts, message)
            else:
                message.copy_(gradient.view(-1))

    def unpack(self) -> None:
        for gradient, of_object, message in self._split():
            if of_object and self.region is not None:
                self.region.unpack(message, gradient, self.parts)
            else:
                gradient.view(-1).copy_(message)

    def _split(self) -> list[tuple[Tensor, bool, Tensor]]:
        messages = self.numbers.split(sizes(self.region, self.gradients, self.of_object))
        return list(zip(self.gradients, self.of_object, messages, strict=True))


@final
class Exchange:
    """The communication hook of a wrapped model.

    A bucket is sent as soon as its gradients are complete, while those of other buckets are still computed. The last
    bucket's hook waits for all of them, in the thread of `backward`: a callback on a future would run in one of gloo's
    threads, where Python objects can cause a deadlock (see `TorchGroup`).
    """

    def __init__(self, group: Group, model: Model, tile: ObjectTile | None = None) -> None:
        self.region: Region | None = None
        """Region outside which the object's gradient is 0 in the next update; None: the whole object."""
        self.reduced_bytes = 0
        """Size of all messages of all-reduces so far."""
        self._group, self._tile, self._parts = group, tile, 1 if model.object.polar else 2
        self._object = {id(parameter) for parameter in model.object.parameters()}
        self._buffers = dict[int, Tensor]()
        self._under_way = list[tuple[Callable[[], None], _Packed | None]]()

    @property
    def sent_bytes(self) -> int:
        """Size of all messages so far, of all-reduces and of those between tiles."""
        return self.reduced_bytes + (0 if self._tile is None else self._tile.sent_bytes)

    def hook(self, state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        """Start to sum the bucket over engines; all sums are complete after the hook of the last bucket."""
        packed = self._pack(bucket)
        numbers = bucket.buffer() if packed is None else packed.numbers
        self.reduced_bytes += numbers.nbytes
        self._under_way.append((self._group.start_sum(numbers), packed))
        if bucket.is_last():
            for wait, sent in self._under_way:
                wait()
                if sent is not None:
                    sent.unpack()
            self._under_way.clear()
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients of these parameters over engines; all engines have gradients of the same ones.

        The object's region and all others are one message; a whole object is one of its own, without a copy.
        """
        moving = [parameter for parameter in parameters if parameter.grad is not None]
        gradients, of_object = [], []
        for parameter in moving:
            assert parameter.grad is not None
            parameter.grad = parameter.grad.contiguous()
            gradients.append(parameter.grad)
            of_object.append(id(parameter) in self._object)
        under_way, packed = list[Callable[[], None]](), list(zip(gradients, of_object, strict=True))
        if self._tile is not None:
            # What other tiles need is on its way while the rest is summed.
            under_way = [self._tile.start_sum(*(gradient for gradient, of in packed if of))]
            packed = [(gradient, of) for gradient, of in packed if not of]
        elif self.region is None:  # a whole object needs no copy
            under_way = [self._group.start_sum(gradient) for gradient, of in packed if of]
            self.reduced_bytes += sum(gradient.nbytes for gradient, of in packed if of)
            packed = [(gradient, of) for gradient, of in packed if not of]
        if packed:
            gradients, of_object = [gradient for gradient, _ in packed], [of for _, of in packed]
            numbers = gradients[0].new_empty(sum(sizes(self.region, gradients, of_object)))
            message = _Packed(self.region, self._parts, gradients, of_object, numbers)
            message.pack()
            self.reduced_bytes += numbers.nbytes
            self._group.start_sum(numbers)()
            message.unpack()
        for wait in under_way:
            wait()

    def sum(self, illumination: Tensor) -> Tensor:
        """Return a real plane (y, x) of the object, 0 outside the region, summed over engines."""
        if self._tile is not None:
            self._tile.sum(illumination[None, None])
            return illumination
        if self.region is None:
            self.reduced_bytes += illumination.nbytes
            return self._group.sum(illumination)
        message = illumination.new_empty(self.region.numbers(illumination))
        self.region.pack(illumination, 1, message)
        self.reduced_bytes += message.nbytes
        self.region.unpack(self._group.sum(message), illumination, 1)
        return illumination

    def _pack(self, bucket: dist.GradBucket) -> _Packed | None:  # type: ignore[name-defined]
        """Pack the bucket; return None if the whole bucket is sent, which needs no copy."""
        of_object = [id(parameter) in self._object for parameter in bucket.parameters()]
        if self.region is None or not any(of_object):
            return None
        gradients = bucket.gradients()
        count = sum(sizes(self.region, gradients, of_object))
        packed = _Packed(self.region, self._parts, gradients, of_object, self._buffer(bucket, count))
        packed.pack()
        return packed

    def _buffer(self, bucket: dist.GradBucket, count: int) -> Tensor:  # type: ignore[name-defined]
        """Return a buffer of this size, reused by later updates."""
        buffer = self._buffers.get(bucket.index())
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[bucket.index()] = bucket.buffer().new_empty(count)
        return buffer[:count]


def sizes(region: Region | None, tensors: list[Tensor], of_object: list[bool]) -> list[int]:
    """Return how many numbers of each tensor are sent."""
    return [
        region.numbers(tensor) if of and region is not None else tensor.numel()
        for tensor, of in zip(tensors, of_object, strict=True)
    ]
