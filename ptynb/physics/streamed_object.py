"""An object in host memory, of which the device holds the rows that the windows of one band of the scan reach.

Batches of a band follow each other (`sampler`, "bands"), so that its rows stay on the device for some updates. Those
of the next band are copied beside these updates into arrays of the same size; where both bands have a row, its values
come from the present ones. Then the contents of both are exchanged, and the old rows are copied back beside the next
updates.

Arrays on the device keep their memory, which a CUDA graph reads.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, final

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


class LateSteps(Protocol):
    """Steps of an optimiser that change pixels without gradient, too; rows in host memory make them when they come."""

    @property
    def number(self) -> int:
        """Number of steps since the last `forget`."""

    def make(self, arrays: Sequence[Tensor], made: int) -> None:
        """Make the steps after the first `made` ones, in place. arrays: contiguous rows of each array, in order."""

    def forget(self) -> None:
        """Forget all steps, which all rows have made."""


@dataclass(eq=False)
class _Together:
    """Arrays (state, slice, y, x, …) or (y, x) that change together: those of a parameter, for example.

    device: the present rows. host: all rows. coming: those of another band. made: number of late steps that rows in
    host memory have made (y,); of those in `coming`: `made_of_coming`.
    """

    device: list[Tensor]
    host: list[Tensor]
    late: LateSteps | None
    made: NDArray[np.int64]
    coming: list[Tensor] = field(default_factory=list)
    made_of_coming: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def steps(self) -> int:
        """Number of late steps up to now."""
        return 0 if self.late is None else self.late.number


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
        self._arrays = dict[str, _Together]()
        self._present: int | None = None
        self._coming: int | None = None
        self._changed = False
        """Whether the device may have other values of the present rows than the host."""
        self.copied_bytes = 0
        """Size of all copies between host and device so far."""
        self._buffer: Tensor | None = None
        """Memory by which arrays exchange their contents."""
        self._in_bands = np.zeros(values.shape[2], dtype=bool)
        for band in range(len(bands.tops)):
            self._in_bands[bands.rows(band)] = True
        for name, parameter in self.whole.named_parameters():
            parameter.requires_grad_(False)
            self.follow(name, [dict(self.present.named_parameters())[name].data], [parameter.data])

    def follow(
        self, name: str, device: Sequence[Tensor], host: Sequence[Tensor], late: LateSteps | None = None
    ) -> None:
        """Keep the rows of further arrays up to date, from now on; arrays of the same name are replaced.

        device, host: present rows and all rows of each array. late: steps of rows in host memory.
        """
        self.write_back()
        for values in host:
            self._copies.lock(values)
        rows = host[0].shape[_axis(host[0])]
        self._arrays[name] = _Together([*device], [*host], late, np.zeros(rows, dtype=np.int64))
        self.reload()

    def reload(self) -> None:
        """Have the present rows as they are in host memory."""
        present = self._present
        self.forget()
        if present is not None:
            self.show(present, changing=True)

    def forget(self) -> None:
        """Take into account that the values in host memory are other ones."""
        self._copies.wait()
        self._present = self._coming = None
        self._changed = False

    def show(self, band: int, following: int | None = None, *, changing: bool = False) -> int:
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
            for host, device in zip(one.host, one.device, strict=True):
                for plane in _planes(host):
                    host[plane][rows].copy_(device[plane])
                self.copied_bytes += device.nbytes
            one.made[rows] = one.steps
        self._changed = False

    def complete(self) -> None:
        """Have all values up to date in host memory: also make the steps that rows there have not made."""
        due = [band for band in range(len(self.bands.tops)) if band != self._present and self._lacks_steps(band)]
        for band, following in zip(due, [*due[1:], None], strict=False):
            self.show(band, following)
        self.write_back()
        for one in self._arrays.values():
            if one.late is not None:
                _make_up(one.late, one.host, np.where(self._in_bands, one.steps, one.made))
                one.late.forget()
                one.made[:] = 0
                self._coming = None

    def _lacks_steps(self, band: int) -> bool:
        """Return whether some rows of a band have not made all late steps."""
        return any((one.made[self.bands.rows(band)] < one.steps).any() for one in self._arrays.values())

    def _replace(self, band: int) -> None:
        if band != self._coming:
            self._request(band)
        self._coming = None  # if an error ends this, the present rows remain
        self._copies.join()
        rows, before = self.bands.rows(band), None if self._present is None else self.bands.rows(self._present)
        both = slice(0, 0) if before is None else slice(max(rows.start, before.start), min(rows.stop, before.stop))
        made_up = False
        for one in self._arrays.values():
            made = one.made_of_coming
            if both.start < both.stop and before is not None:
                there, here = (slice(both.start - side.start, both.stop - side.start) for side in (rows, before))
                for coming, device in zip(one.coming, one.device, strict=True):
                    for plane in _planes(device):
                        coming[plane][there].copy_(device[plane][here])
                made[there] = one.steps
            if one.late is not None:
                made_up = _make_up(one.late, one.coming, made) or made_up
        assert self._buffer is not None
        for one in self._arrays.values():
            for coming, device in zip(one.coming, one.device, strict=True):
                _exchange(coming, device, self._buffer)
        self._present = band
        if before is not None and self._changed:
            with self._copies.beside():
                for one in self._arrays.values():
                    for host, old in zip(one.host, one.coming, strict=True):
                        for plane in _planes(host):
                            host[plane][before].copy_(old[plane], non_blocking=True)
                        self.copied_bytes += old.nbytes
                    one.made[before] = one.steps
        self._changed = made_up

    def _request(self, band: int) -> None:
        """Begin to copy the rows of a band to the device."""
        rows = self.bands.rows(band)
        for one in self._arrays.values():
            if not one.coming:
                one.coming = [self._copies.keep(torch.empty_like(device)) for device in one.device]
                if self._buffer is None:
                    self._buffer = one.coming[0].new_empty(min(EXCHANGED, one.coming[0].numel()))
        with self._copies.beside():
            for one in self._arrays.values():
                for coming, host in zip(one.coming, one.host, strict=True):
                    for plane in _planes(host):
                        coming[plane].copy_(host[plane][rows], non_blocking=True)
                    self.copied_bytes += coming.nbytes
                one.made_of_coming = one.made[rows].copy()
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


def _make_up(late: LateSteps, arrays: list[Tensor], made: NDArray[np.int64]) -> bool:
    """Make the steps that rows of arrays have not made, and return whether there are such rows."""
    edges = [0, *(np.flatnonzero(np.diff(made)) + 1).tolist(), len(made)]
    for first, end in itertools.pairwise(edges):
        if made[first] == late.number:
            continue
        for plane in _planes(arrays[0]):
            late.make([one[plane][first:end] for one in arrays], int(made[first]))
    return bool((made < late.number).any())


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
