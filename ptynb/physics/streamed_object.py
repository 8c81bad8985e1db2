"""An object in host memory, of which the device holds the rows that the windows of one band of the scan reach.

Batches of a band follow each other (`sampler`, "bands"), so that its rows stay on the device for some updates. Those
of the next band are copied beside these updates into arrays of the same size; where both bands have a row, its values
come from the present ones. Then the contents of both are exchanged, and the old rows are copied back beside the next
updates.

Arrays on the device keep their memory, which a CUDA graph reads.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.physics.components.builtin import Object

EXCHANGED = 2**22
"""Numbers that are exchanged between two arrays at a time."""


class Bands(NamedTuple):
    """The bands of a scan, and the rows of the object that the device holds for each.

    of_pattern: band of each pattern (pattern,). tops: first row for each band, and height: number of rows for each.
    margin: by which windows may move [pixels].
    """

    of_pattern: NDArray[np.int64]
    tops: tuple[int, ...]
    height: int
    margin: int

    def rows(self, band: int) -> slice:
        """Return the rows of the object for a band."""
        return slice(self.tops[band], self.tops[band] + self.height)


@dataclass(eq=False)
class _Array:
    """An array (state, slice, y, x, …) or (y, x). device: the present rows. host: all rows. coming: those of a band."""

    device: Tensor
    host: Tensor
    coming: Tensor | None = None


@final
class StreamedObject:
    """The whole object in host memory, and its present rows on the device."""

    def __init__(self, values: Tensor, polar: bool, bands: Bands, device: torch.device) -> None:
        """values: (state, slice, y, x), complex, in host memory."""
        self.whole = Object(values, polar)
        """All rows; those on the device are not up to date: see `write_back`."""
        self.present = Object(values[:, :, : bands.height].to(device), polar)
        self.bands = bands
        self._copies = _Copies(device)
        self._arrays = dict[str, _Array]()
        self._present: int | None = None
        self._coming: int | None = None
        self._changed = False
        """Whether the device may have other values of the present rows than the host."""
        self._buffer: Tensor | None = None
        """Memory by which arrays exchange their contents."""
        for name, parameter in self.whole.named_parameters():
            parameter.requires_grad_(False)
            self.follow(name, self.present.get_parameter(name).data, parameter.data)

    def follow(self, name: str, device: Tensor, host: Tensor) -> None:
        """Keep the rows of a further array up to date, from now on; one of the same name is replaced.

        device, host: its present rows, and all rows.
        """
        self.write_back()
        self._copies.lock(host)
        self._arrays[name] = _Array(device, host)
        self.reload()

    def reload(self) -> None:
        """Have the present rows as they are in host memory."""
        present = self._present
        self.invalidate()
        if present is not None:
            self.load(present, changing=True)

    def invalidate(self) -> None:
        """Take into account that the values in host memory are other ones than those on the device."""
        self._copies.wait()
        self._present = self._coming = None
        self._changed = False

    def load(self, band: int, following: int | None = None, *, changing: bool = False) -> int:
        """Have the rows of a band on the device, and return the first.

        following: the band that is expected next, whose rows are copied meanwhile. changing: whether they may change on
        the device from now on.
        """
        if band != self._present:
            self._replace(band)
        self._changed = self._changed or changing
        if following is not None and following not in (band, self._coming):
            self._request(following)
        return self.bands.tops[band]

    def write_back(self) -> None:
        """Copy the present rows to host memory, and wait for it."""
        self._copies.wait()
        if self._present is None or not self._changed:
            return
        rows = self.bands.rows(self._present)
        for one in self._arrays.values():
            for plane in _planes(one.host):
                one.host[plane][rows].copy_(one.device[plane])
        self._changed = False

    def _replace(self, band: int) -> None:
        if band != self._coming:
            self._request(band)
        self._coming = None  # if an error ends this, the present rows remain
        self._copies.join()
        rows, before = self.bands.rows(band), None if self._present is None else self.bands.rows(self._present)
        arrays = [(one.device, one.host, one.coming) for one in self._arrays.values() if one.coming is not None]
        if before is not None:
            both = slice(max(rows.start, before.start), max(rows.start, before.start, min(rows.stop, before.stop)))
            there, here = (slice(both.start - side.start, both.stop - side.start) for side in (rows, before))
            for device, _, coming in arrays:
                for plane in _planes(device):
                    coming[plane][there].copy_(device[plane][here])
        assert self._buffer is not None
        for device, _, coming in arrays:
            _exchange(device, coming, self._buffer)
        self._present = band
        if before is not None and self._changed:
            with self._copies.beside():
                for _, host, old in arrays:
                    for plane in _planes(host):
                        host[plane][before].copy_(old[plane], non_blocking=True)
        self._changed = False

    def _request(self, band: int) -> None:
        """Begin to copy the rows of a band to the device."""
        rows = self.bands.rows(band)
        for one in self._arrays.values():
            if one.coming is None:
                one.coming = self._copies.keep(torch.empty_like(one.device))
                if self._buffer is None:
                    self._buffer = one.coming.new_empty(min(EXCHANGED, one.coming.numel()))
        with self._copies.beside():
            for one in self._arrays.values():
                assert one.coming is not None
                for plane in _planes(one.host):
                    one.coming[plane].copy_(one.host[plane][rows], non_blocking=True)
        self._coming = band


class _Copies:
    """The copies between host and device, on a GPU in a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._backend = torch.get_device_module(device) if device.type in ("cuda", "xpu") else None
        self._side: Any = None if self._backend is None else self._backend.Stream(device)
        self._locked = dict[int, Tensor]()
        weakref.finalize(self, _unlock, self._locked, self._side).atexit = False

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Let the copies inside follow what has been computed up to now, and run beside what comes."""
        if self._backend is None:
            yield
            return
        self._side.wait_stream(self._backend.current_stream(self._device))
        with self._backend.stream(self._side):
            yield

    def join(self) -> None:
        """Let what is computed from now on follow all copies."""
        if self._backend is not None:
            self._backend.current_stream(self._device).wait_stream(self._side)

    def keep(self, values: Tensor) -> Tensor:
        """Keep the memory of an array, if it is released, until its copies have ended; return the array."""
        if self._side is not None:
            values.record_stream(self._side)
        return values

    def wait(self) -> None:
        """Let the host wait for all copies."""
        if self._side is not None:
            self._side.synchronize()

    def lock(self, values: Tensor) -> None:
        """Lock the memory of an array of the host to its pages, without which copies wait for the host.

        torch would allocate page-locked memory in powers of two. Where memory cannot be locked, copies are slower.
        """
        if self._device.type != "cuda" or values.data_ptr() in self._locked:
            return
        if int(torch.cuda.cudart().cudaHostRegister(values.data_ptr(), values.nbytes, 0)) == 0:
            self._locked[values.data_ptr()] = values
        else:
            with contextlib.suppress(RuntimeError):  # CUDA reports the error again at the next kernel
                torch.zeros((), device=self._device)


def _unlock(arrays: dict[int, Tensor], stream: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the GPU is lost
        for address in arrays:
            stream.synchronize()
            torch.cuda.cudart().cudaHostUnregister(address)


def _exchange(one: Tensor, other: Tensor, buffer: Tensor) -> None:
    """Exchange the contents of two contiguous arrays, without allocating memory, which could fail halfway."""
    for here, there in zip(one.view(-1).split(len(buffer)), other.view(-1).split(len(buffer)), strict=True):
        kept = buffer[: len(here)]
        kept.copy_(here)
        here.copy_(there)
        there.copy_(kept)


def _axis(array: Tensor) -> int:
    """Return the axis of y of an array (state, slice, y, x, …) or (y, x)."""
    return 0 if array.ndim < 4 else 2


def _planes(array: Tensor) -> list[tuple[int, ...]]:
    """Return the indices before (y, x, …)."""
    return [*np.ndindex(array.shape[: _axis(array)])]
