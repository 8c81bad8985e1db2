"""What a learning rate moves: its unit, and that a scan in other units of counts or length moves alike."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

import ptynb as pt
from ptynb.data.patterns import ArrayFrames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.components.builtin import BACKGROUND_START
from ptynb.physics.components.probe_aberrations import BESIDE, orthonormal_terms
from ptynb.physics.model_builder import lens_basis
from ptynb.settings import (
    OPR,
    Aberrations,
    Affine,
    Background,
    Descan,
    Object,
    PatternIntensities,
    Positions,
    Probe,
    ProbeOffset,
    Settings,
    Slices,
    Tilt,
)
from tests.cases import a_scan

Arrays = dict[str, NDArray[Any]]
RATE, PADDING = 0.02, 9
THICK = Slices(count=3, thickness=2.0)
GEOMETRY = pt.Geometry(wavelength=1.5e-10, distance=200.0, detector_pixel=(75e-6, 50e-6))
PARTS: dict[str, dict[str, Any]] = {
    "positions": {"positions": Positions(learning_rate=RATE)},
    "affine": {"affine": Affine(learning_rate=RATE)},
    "offset": {"probe_offset": ProbeOffset(learning_rate=RATE)},
    "aberrations": {"aberrations": Aberrations(order=1, learning_rate=RATE), "probe": Probe(learning_rate=0)},
    "variations": {"opr": OPR(modes=1, learning_rate=RATE)},
    "weights": {"pattern_intensities": PatternIntensities(learning_rate=RATE)},
    "background": {"background": Background(learning_rate=RATE)},
    "descan": {"descan": Descan(start="zero", learning_rate=RATE)},
    "slices": {"slices": THICK.model_copy(update={"learning_rate": RATE})},
    "tilt": {"slices": THICK, "tilt": Tilt(learning_rate=RATE)},
    "tilt of each": {"slices": THICK, "tilt": Tilt(per_position=True, learning_rate=RATE)},
}
"""Settings that move a component beside object and probe."""


def mottled(shape: tuple[int, ...], seed: int) -> NDArray[np.complex128]:
    wave = ndimage.gaussian_filter(np.random.default_rng(seed).standard_normal((2, *shape)), (0, 1.5, 1.5))
    return np.exp(0.5 * (1j * wave[0] - abs(wave[1])) / wave.std())


@functools.cache
def the_scan() -> Scan:
    """With an object that no part is blind to, and patterns of another one, every second of which is brighter."""
    scan = a_scan(16)
    frames = np.array(scan.frames.read(0, len(scan)))
    frames[::2] *= 4
    frame = scan.object_frame(PADDING, scan.pattern_shape, (0, 0))
    return dataclasses.replace(
        scan, frames=ArrayFrames.of(frames), object=mottled(frame.shape, 0), geometry=GEOMETRY, ground_truth=None
    )


def after(updates: int, scan: Scan, **settings: Any) -> Arrays:
    """Arrays of a result after some updates, all patterns in each."""
    values = {"object": Object(padding=PADDING), "batch": len(scan), "precision": "double", **settings}
    loop = Loop(scan, Settings(**values), SingleGroup(torch.device("cpu")))
    for _ in range(updates):
        loop.step()
    found = {name: tensor.numpy().copy() for name, tensor in (loop.arrays() | loop.parameters()).items()}
    found["probe scale"] = np.asarray(loop.model.probe.scale)
    loop.disconnect()
    return found


def terms_of(found: Arrays, scan: Scan) -> NDArray[np.float64]:
    """Root-mean-square phases of the terms: coefficients in metres times the inverse of the mixture."""
    assert scan.probe is not None
    settings = Settings(probe=Probe(learning_rate=0), aberrations=Aberrations(order=1))
    mixture = orthonormal_terms(scan.probe, lens_basis(scan, settings))[BESIDE:]
    return np.linalg.solve(mixture, np.hstack([found["aberrations/C10"], found["aberrations/C12"]]))


def test_the_first_step_of_each_part_has_the_size_of_its_learning_rate_in_the_unit_of_its_description() -> None:
    """Adam's first step is the rate; of parts of all patterns a little less, by the ratio of a gradient and 0.015."""
    scan = the_scan()
    found = {part: after(1, scan, **settings) for part, settings in PARTS.items()}
    radius = np.linalg.norm(scan.positions - scan.positions.mean(0), axis=1).max()
    one_pixel = np.array(GEOMETRY.object_pixel(scan.pattern_shape)) / (2 * THICK.thickness)
    varied = np.abs(found["variations"]["variations/coefficients"]) / math.sqrt(scan.pattern_shape[0] ** 2)
    weights, shifts = found["weights"]["weights/weights"], found["descan"]["descan/shifts"]
    background = found["background"]["background/background"] / scan.frames.read(0, len(scan)).mean()
    steps = {
        "positions": found["positions"]["positions"] - found["positions"]["positions/start"],
        "affine": radius * (found["affine"]["affine/matrix"] - np.eye(2)),
        "offset": found["offset"]["offset/shift"],
        "aberrations": terms_of(found["aberrations"], scan),
        # Both parts of the coefficient move.
        "variations": varied / found["variations"]["probe scale"] / math.sqrt(2),
        # Up and down; the mean is 1 again, or 0.
        "weights": np.ptp(weights) / (weights.max() + weights.min()),
        "descan": np.ptp(shifts, axis=0) / 2,
        "background": np.sqrt(background) - BACKGROUND_START,
        "slices": found["slices"]["slices/thickness"] / THICK.thickness - 1,
        "tilt": found["tilt"]["tilt/angles"] / one_pixel,
        "tilt of each": found["tilt of each"]["tilt/angles"] / one_pixel,
    }
    assert {*steps} == {*PARTS}
    for part, step in steps.items():
        size = np.abs(step)
        if part in ("affine", "offset", "aberrations", "background", "slices", "tilt"):
            assert 0.95 * RATE < size.max() < RATE, part
        else:
            np.testing.assert_allclose(size, RATE, rtol=1e-4, err_msg=part)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_moves_alike_in_brighter_patterns_and_with_other_lengths(part: str) -> None:
    """Paraxially, pixels of twice the size and slices four times as far apart give the same patterns."""
    scan, settings = the_scan(), PARTS[part]
    assert scan.probe is not None
    frames = ArrayFrames.of(16 * np.array(scan.frames.read(0, len(scan))))
    brighter = dataclasses.replace(scan, frames=frames, probe=4 * scan.probe)
    larger = dataclasses.replace(scan, geometry=dataclasses.replace(GEOMETRY, distance=2 * GEOMETRY.distance))
    deeper = settings
    if "slices" in settings:
        thickness = 4 * settings["slices"].thickness
        deeper = settings | {"slices": settings["slices"].model_copy(update={"thickness": thickness})}
    first = after(3, scan, **settings)
    in_counts = {"probe": 4, "probe scale": 4, "variations/coefficients": 4, "background/background": 16}
    in_metres = {"slices/thickness": 4, "tilt/angles": 1 / 2, "aberrations/C10": 4, "aberrations/C12": 4}
    for second, units in ((after(3, brighter, **settings), in_counts), (after(3, larger, **deeper), in_metres)):
        for name, values in first.items():
            tolerance = 1e-6 * np.abs(values).max()
            np.testing.assert_allclose(second[name] / units.get(name, 1), values, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("part", ["slices", "tilt of each"])
def test_thickness_and_tilt_move_alike_however_many_slices_there_are(part: str) -> None:
    """The same two layers, with and without slices of vacuum between them."""
    scan, found = the_scan(), []
    assert scan.object is not None
    layers = np.array([scan.object, mottled(scan.object.shape, 1)])
    for count in (2, 4):
        object = np.ones((count, *scan.object.shape), dtype=complex)
        object[[0, -1]] = layers
        settings = {name: values for name, values in PARTS[part].items() if name != "slices"}
        thickness = {"count": count, "thickness": 2 * THICK.thickness / (count - 1)}
        settings["slices"] = PARTS[part]["slices"].model_copy(update=thickness)
        still = Object(padding=PADDING, learning_rate=0)
        found.append(after(4, dataclasses.replace(scan, object=object), object=still, **settings))
    two, four = found
    np.testing.assert_allclose(3 * four["slices/thickness"], two["slices/thickness"], rtol=1e-9)
    np.testing.assert_allclose(four["tilt/angles"], two["tilt/angles"], rtol=0, atol=1e-9 * THICK.thickness)
    assert (np.abs(two["tilt/angles"]).max() > 0) == (part == "tilt of each")


def test_a_tilt_along_y_moves_as_one_along_x_does_in_the_transposed_scan() -> None:
    """Pixels that are not square have units of their own along y and x."""
    scan = the_scan()
    assert scan.object is not None
    assert scan.probe is not None
    turned = dataclasses.replace(
        scan,
        frames=ArrayFrames.of(np.array(scan.frames.read(0, len(scan))).swapaxes(1, 2)),
        positions=scan.positions[:, ::-1],
        object=scan.object.T,
        probe=scan.probe.swapaxes(1, 2),
        geometry=dataclasses.replace(GEOMETRY, detector_pixel=GEOMETRY.detector_pixel[::-1]),
    )
    first, second = (after(3, one, **PARTS["tilt of each"]) for one in (scan, turned))
    angles = first["tilt/angles"]
    np.testing.assert_allclose(second["tilt/angles"][:, ::-1], angles, rtol=0, atol=1e-6 * np.abs(angles).max())
