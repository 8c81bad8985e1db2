"""Results for reports, made without a reconstruction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptynb.data.record import Change, Epoch, Thumbnail
from ptynb.data.result import Machines, Result, ScanIdentity, Software
from ptynb.settings import Settings

PIXEL = (20e-9, 20e-9)


def field(shape: tuple[int, ...], seed: int = 0, noise: float = 0.02) -> np.ndarray:
    """A complex object (…, y, x): a star of phases and amplitudes, with noise that no picture compresses."""
    random = np.random.default_rng(seed)
    y, x = np.meshgrid(*(np.linspace(-1, 1, side) for side in shape[-2:]), indexing="ij")
    star = (np.sin(12 * np.arctan2(y, x)) > 0).astype(np.float32)
    shaped = np.broadcast_to(star, shape)
    amplitude = 1 - 0.3 * shaped + noise * random.standard_normal(shape, dtype=np.float32)
    phase = 0.8 * shaped + noise * random.standard_normal(shape, dtype=np.float32)
    return (amplitude * np.exp(1j * phase)).astype(np.complex64)


def probe(modes: int, side: int) -> np.ndarray:
    y, x = np.meshgrid(*(np.linspace(-3, 3, side),) * 2, indexing="ij")
    one = np.exp(-(x**2) - y**2) * np.exp(0.5j * (x**2 + y**2))
    return np.stack([one * x**order / (order + 1) for order in range(modes)]).astype(np.complex64)


def result(shape: tuple[int, ...] = (96, 96), *, modes: int = 2, window: int = 24, **given: Any) -> Result:
    """A whole result, with one change, two moments, an R-factor record and moved positions."""
    random = np.random.default_rng(1)
    object = given.pop("object", None)
    object = field(shape) if object is None else object
    sides = np.array(object.shape[-2:]) - window
    positions = random.uniform(0, 1, (50, 2)) * sides
    positions[0], positions[1] = 0, sides
    whole = {
        "object": object,
        "probe": probe(modes, window),
        "positions": positions,
        "origin": (0, 0),
        "epochs": tuple(Epoch(n, 0.5 / n, 2.0, 25.0, None, 0.1 / n, 0.2 / n) for n in range(1, 13)),
        "r_factor": 0.0421,
        "r_factors": tuple((n, 0.6 / n) for n in (4, 8, 12)),
        "settings": Settings(probe={"modes": modes}).model_dump(mode="json"),
        "changes": (Change(5, 0, "probe.learning_rate", 0.01, 0.005, 1.7e9),),
        "pixel_size": PIXEL,
        "parameters": {"positions/start": positions + random.normal(0, 0.5, positions.shape)},
        "history": tuple(Thumbnail(n, field((48, 48), n, 0.5 / n), probe(1, window)[0], 2) for n in (2, 6)),
        "scan": ScanIdentity("star-17", 50, (window, window), "/data/star-17.cxi", 12345, 1.7e9, {"energy": 8000.0}),
        "software": Software("0.1.0", "2.13", "2.1", "3.14", "3.11", "Linux"),
        "machines": Machines(2, 1, ("cpu", "cpu"), "2 engines on CPU", "gloo", "host", "16"),
        "ended": "2026-05-01T12:30:00.000Z",
        "metadata": {"scan": "star-17"},
        "title": "Star, run 17",
        "comments": "Realigned *before* this run.",
    }
    return Result(**{**whole, **given})
