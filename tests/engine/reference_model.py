"""Helpers for tests of algorithms: loops in this process, and a numpy reference model, pattern by pattern."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptynb.analysis import compare
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.losses import FLOOR, SLOPE_DAMPING
from ptynb.settings import Optimiser, Probe, Settings

Array = NDArray[Any]
MODES = Probe(modes=2)


def difference(one: Array, other: Array) -> float:
    return float(np.linalg.norm(one - other) / (np.linalg.norm(one) + 1e-12))


def a_loop(scan: Scan, settings: Settings) -> Loop:
    return Loop(scan, settings, SingleGroup(torch.device("cpu")))


def after(scan: Scan, settings: Settings, epochs: int) -> Loop:
    loop = a_loop(scan, settings)
    while loop.epoch < epochs:
        loop.step()
    return loop


def object_of(loop: Loop) -> Array:
    values: Array = loop.arrays()["object"].numpy().copy()
    return values


def probe_of(loop: Loop) -> Array:
    values: Array = loop.arrays()["probe"].numpy().copy()
    return values


def double(name: Optimiser, **choices: Any) -> Settings:
    return Settings(optimiser=name, precision="double", **choices)


def simulated_by_the_model(scan: Scan) -> Scan:
    """The same scan with patterns that two modes and an object fit exactly; both are its guesses."""
    frame = scan.object_frame(4)
    random = np.random.default_rng(1)
    coarse = random.uniform(-0.8, 0.8, (8, 8))
    phase = np.kron(coarse, np.ones([-(-side // 8) for side in frame.shape]))[: frame.shape[0], : frame.shape[1]]
    scan = dataclasses.replace(scan, object=np.exp(1j * phase), positions=scan.positions - frame.origin)
    loop = a_loop(scan, double("adam", probe=MODES))
    with torch.no_grad():
        patterns = loop.model.intensities(loop.shard.batch(np.arange(len(scan)), len(scan))).numpy()
    patterns = np.fft.fftshift(patterns, axes=(1, 2)) if scan.is_far_field else patterns
    return dataclasses.replace(scan, frames=ArrayFrames.of(patterns), probe=probe_of(loop))


@dataclasses.dataclass
class Plain:
    """A reconstruction in numpy. counts in FFT order; corners and rests of the positions in the object's array."""

    counts: Array
    good: Array
    corners: Array
    rests: Array
    object: Array
    probe: Array
    floor: float
    damping: float

    @classmethod
    def of(cls, loop: Loop, scan: Scan) -> Plain:
        good = np.ones(scan.pattern_shape, bool) if scan.mask is None else scan.mask
        counts = np.where(good, scan.frames.read(0, len(scan)), 0).astype(np.float64)
        places = scan.positions - loop.frame.origin
        whole = np.rint(places)
        return cls(
            np.fft.ifftshift(counts, axes=(1, 2)),
            np.fft.ifftshift(good),
            whole.astype(int),
            places - whole,
            object_of(loop),
            probe_of(loop),
            FLOOR * float(counts.mean()),
            SLOPE_DAMPING * float(counts.mean()),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def moved(self, field: Array, j: int, sign: int = 1) -> Array:
        """The field (…, y, x) moved by the rest of position j, or back."""
        spectrum = np.fft.fft2(field)
        for axis, rest in ((-2, self.rests[j, 0]), (-1, self.rests[j, 1])):
            side = field.shape[axis]
            ramp = np.exp(-2j * np.pi * np.fft.fftfreq(side) * sign * rest)
            if side % 2 == 0:
                ramp[side // 2] = np.cos(np.pi * rest)
            spectrum = spectrum * np.moveaxis(ramp.reshape(-1, *[1] * (field.ndim - 1)), 0, axis)
        moved: Array = np.fft.ifft2(spectrum)
        return moved

    def window(self, j: int, field: Array | None = None) -> Array:
        """The part of the object (or of another field) that pattern j sees; a view."""
        y, x = self.corners[j]
        height, width = self.counts.shape[1:]
        seen: Array = (self.object if field is None else field)[y : y + height, x : x + width]
        return seen

    def product(self, j: int) -> Array:
        return self.moved(self.probe, j) * self.window(j)

    def fitting(self, waves: Array, j: int) -> Array:
        """The waves (mode, y, x) with the measured modulus; where theirs is nearly 0, as it is."""
        far = np.fft.fft2(waves, norm="ortho")
        intensity = (np.abs(far) ** 2).sum(0) + self.floor
        change = (np.sqrt((self.counts[j] + self.floor) / intensity) - 1) * intensity / (intensity + self.damping)
        fitting: Array = np.fft.ifft2((1 + np.where(self.good, change, 0)) * far, norm="ortho")
        return fitting

    def misfit(self, j: int) -> float:
        modulus = np.sqrt((np.abs(np.fft.fft2(self.product(j), norm="ortho")) ** 2).sum(0) + self.floor)
        return float(((modulus - np.sqrt(self.counts[j] + self.floor)) ** 2)[self.good].sum())

    def object_change(
        self, waves: Callable[[int], Array], patterns: Array, damping: float, of_all: Array | None = None
    ) -> tuple[Array, Array]:
        """Σ P* χ / (Σ |P|² + damping max), and Σ |P|². of_all: in the place of the divisor's Σ |P|²."""
        above, light = np.zeros_like(self.object), np.zeros(self.object.shape)
        for j in patterns:
            probe = self.moved(self.probe, j)
            self.window(j, above)[...] += (probe.conj() * waves(j)).sum(0)
            self.window(j, light)[...] += (np.abs(probe) ** 2).sum(0)
        divisor = light if of_all is None else of_all
        return above / (divisor + damping * divisor.max()), light

    def light_of_all(self) -> Array:
        """Σ |P|² of all patterns, at whole pixels."""
        light = np.zeros(self.object.shape)
        for j in range(len(self)):
            self.window(j, light)[...] += (np.abs(self.probe) ** 2).sum(0)
        return light

    def probe_change(self, waves: Callable[[int], Array], patterns: Array, damping: float) -> Array:
        above = sum(self.moved(self.window(j).conj() * waves(j), j, -1) for j in patterns)
        seen = sum(np.abs(self.window(j)) ** 2 for j in patterns)
        change: Array = above / (seen + damping * seen.max())
        return change

    def agrees(self, loop: Loop, most: float) -> None:
        assert difference(self.object, object_of(loop)) < most
        assert difference(self.probe, probe_of(loop)) < most


def error_of(loop: Loop, scan: Scan) -> float:
    """As a figure of the result shows it."""
    assert scan.ground_truth is not None
    places = loop.model.all_positions().numpy()
    middle = np.array(scan.pattern_shape) / 2
    low = np.ceil(places.min(0) + middle).astype(int) + loop.frame.origin
    high = np.floor(places.max(0) + middle).astype(int) + loop.frame.origin
    area = (slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1])))
    return compare(loop.projection().numpy(), scan.ground_truth.object, area, loop.frame.origin).error
