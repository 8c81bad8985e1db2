"""Pictures of the effects of settings, each from two or three short reconstructions of a simulated scan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt

Phases = dict[str, NDArray[np.float64]]


def draw(folder: Path) -> dict[str, str]:
    """Draw all pictures into a folder, and return section of the settings -> Markdown of its picture."""
    shown = {}
    for section, text, phases in effects():
        figure, axes = plt.subplots(1, len(phases), figsize=(2.6 * len(phases), 2.8), layout="constrained")
        for ax, (title, picture) in zip(axes, phases.items(), strict=True):
            low, high = np.percentile([*phases.values()][-1], [0.5, 99.5])
            ax.imshow(picture, vmin=low, vmax=high, cmap="gray", interpolation="nearest")
            ax.set_title(title, fontsize=9)
            ax.set_axis_off()
        figure.savefig(folder / f"effect_{section}.png", dpi=110)
        plt.close(figure)
        shown[section] = f"![{text}](../pictures/effect_{section}.png)\n\n*{text}*"
    return shown


def effects() -> Iterator[tuple[str, str, Phases]]:
    """Yield (section, text, phases of the object by title, the truth at last)."""
    coherent = pt.simulate(patterns=144, window=64, seed=1)
    truth, probe = coherent.ground_truth.object, coherent.ground_truth.probe

    def measured(**effect: Any) -> pt.Scan:
        known = {"geometry": coherent.geometry, "guess": coherent.probe, **effect}
        return pt.simulate_diffraction(truth, probe, coherent.positions, **known)

    partial = pt.simulate(patterns=144, window=64, modes=3, seed=1)
    yield (
        "probe",
        "A beam of three incoherent modes, reconstructed with one mode and with three.",
        compared(partial, {"one mode": {}, "probe.modes = 3": {"probe": {"modes": 3}}}),
    )
    wrong = np.random.default_rng(0).normal(0, 2 / np.sqrt(2), coherent.positions.shape)
    yield (
        "positions",
        "Positions that are wrong by two pixels, as they are and refined with the object.",
        compared(
            dataclasses.replace(coherent, positions=coherent.positions + wrong),
            {
                "as given": {},
                "positions.learning_rate = 0.1": {"positions": {"learning_rate": 0.1, "start_epoch": 3}, "batch": 8},
            },
            epochs=120,
        ),
    )
    rows, columns = np.mgrid[:64, :64]
    yield (
        "background",
        "Scattered intensity that is the same in all patterns, ignored and modelled.",
        compared(
            measured(background=150 * np.exp(-((rows - 30) ** 2 + (columns - 40) ** 2) / 300) + 20),
            {"ignored": {}, "background.learning_rate = 0.1": {"background": {"learning_rate": 0.1}}},
            epochs=80,
        ),
    )
    faint = pt.simulate(patterns=196, window=64, photons=150, seed=1)
    still = {
        "probe": {"learning_rate": 0},
        "loss": "poisson",
        "object": {"learning_rate": 0.01},
        "schedule": {"kind": "constant"},
    }
    smooth = [{"kind": "amplitude_limits", "high": 1}, {"kind": "denoise", "norm": "tv", "amount": 0.02}]
    yield (
        "constraints",
        "150 photons a pattern: without constraints, and with a limited amplitude and a reduced total variation.",
        compared(
            dataclasses.replace(faint, probe=faint.ground_truth.probe),
            {"free": still, "AmplitudeLimits, Denoise": {**still, "constraints": smooth}},
        ),
    )
    thickness = 80 * coherent.pixel_size[0] ** 2 / coherent.geometry.wavelength
    layers = np.stack([mottled(truth.shape, seed) for seed in (0, 1)])
    thick = pt.simulate_diffraction(
        layers, probe, coherent.positions, geometry=coherent.geometry, thickness=thickness, guess=coherent.probe
    )
    yield (
        "slices",
        "A thick object of two layers, reconstructed as thin and with two slices (both shown as a projection).",
        compared(
            thick,
            {"one slice": {}, "slices.count = 2": {"slices": {"count": 2, "thickness": thickness}}},
            truth=layers.prod(0),
        ),
    )


def compared(scan: pt.Scan, choices: Mapping[str, Mapping[str, Any]], *, epochs: int = 60, truth: Any = None) -> Phases:
    """Return the phases of reconstructions by title, with their errors, and that of the truth."""
    truth = scan.ground_truth.object if truth is None else truth
    middle = np.array(scan.pattern_shape) / 2
    low, high = np.ceil(scan.positions.min(0) + middle), np.floor(scan.positions.max(0) + middle)
    area = slice(int(low[0]), int(high[0])), slice(int(low[1]), int(high[1]))
    phases = {}
    for title, chosen in choices.items():
        with pt.Reconstruction(scan, pt.Settings().replace(**chosen), device="cpu", checkpointing=None) as recon:
            recon.warns = False  # short on purpose
            for _ in recon.run(epochs):
                pass
            result = recon.result
        comparison = pt.analysis.compare(result.projection, truth, area, result.origin)
        phases[f"{title}\nerror {comparison.error:.3f}"] = np.angle(comparison.aligned)
    phases["truth\n"] = np.angle(comparison.ground_truth)
    return phases


def mottled(shape: tuple[int, ...], seed: int) -> NDArray[np.complex128]:
    """Return a random smooth object."""
    field = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal(shape), 2)
    return np.exp((0.8j - 0.1) * (field - field.min()) / np.ptp(field))
