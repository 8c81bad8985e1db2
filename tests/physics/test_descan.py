"""Descan: closed forms, the ambiguity with phases of probe and object, and the initial plane."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.components.descan import ThinObjectDescan, plane_through
from ptynb.physics.model_builder import check_together
from ptynb.settings import Descan, Settings
from tests.cases import THICK, a_scan
from tests.parametrization import each
from tests.raising import raises


def a_loop(scan: Scan, settings: Settings) -> Loop:
    return Loop(scan, settings.replace(precision="double"), SingleGroup(torch.device("cpu")))


@torch.no_grad()
def patterns(loop: Loop, shifts: torch.Tensor | None = None) -> np.ndarray:
    if shifts is not None:
        loop.model.components["descan"].shifts.copy_(shifts)  # type: ignore[union-attr,operator]
    loop.model.components["descan"].active = True
    own = np.arange(len(loop.shard))
    return loop.model.intensities(loop.shard.batch(own, len(own))).numpy()


@each("more", [{}, {"slices": THICK}, {"detector": {"oversampling": 2}}, {"opr": {"modes": 1}}])
def test_a_shift_by_whole_pixels_moves_the_pattern(more: dict[str, object]) -> None:
    scan = a_scan(5, 16)
    scan = dataclasses.replace(scan, positions=np.rint(scan.positions))
    loop = a_loop(scan, Settings(descan=Descan(start="zero"), **more))
    whole = torch.tensor([[0, 0], [1, 0], [0, -2], [-3, 2], [5, 7]])
    still = patterns(loop)
    for one, other, shift in zip(patterns(loop, whole.double()), still, whole.tolist(), strict=True):
        np.testing.assert_allclose(one, np.roll(other, shift, (0, 1)), rtol=1e-9, atol=1e-9 * still.max())


def test_patterns_that_have_not_come_are_not_shifted() -> None:
    loop = a_loop(a_scan(4, 16), Settings(descan=Descan(start="zero")))
    descan = loop.model.components["descan"]
    assert isinstance(descan, ThinObjectDescan)
    loop.model.set_admitted(torch.tensor([0, 2]))
    with torch.no_grad():
        descan.shifts[0] = torch.tensor([1.0, -2.0])
        descan.update_done()
    np.testing.assert_array_equal(descan.shifts.detach(), [[0.5, -1], [0, 0], [-0.5, 1], [0, 0]])


def test_constant_and_symmetric_linear_shifts_are_phases_of_probe_and_object() -> None:
    scan = a_scan(9, 16)
    scan = dataclasses.replace(scan, positions=np.rint(scan.positions))
    loop = a_loop(scan, Settings(descan=Descan(start="zero")))
    still, model = patterns(loop), loop.model
    ramp, curvature = np.array([0.05, -0.03]), np.array([[0.004, 0.002], [0.002, -0.003]])

    def phase(shape: tuple[int, ...]) -> torch.Tensor:
        """exp(i(a·r + r·B r)), with r from the centre of the first window."""
        y, x = np.meshgrid(*(np.arange(side) - 8.0 for side in shape), indexing="ij")
        r = np.stack([y, x], -1)
        return torch.from_numpy(np.exp(1j * (r @ ramp + ((r @ curvature) * r).sum(-1))))

    # The ramp of the object shifts all patterns, that of the probe by nothing: their difference is what is left.
    model.object.set(model.object.values.detach() * phase(model.object.values.shape[-2:]))
    model.probe.set(model.probe.values.detach() * phase((16, 16)).conj())
    corners = model.initial_positions.numpy()
    found = patterns(loop, torch.from_numpy(-2 * corners @ curvature * 16 / (2 * np.pi)))
    np.testing.assert_allclose(found, still, rtol=1e-9, atol=1e-9 * still.max())
    model.probe.set(model.probe.values.detach() * torch.from_numpy(np.exp(1j * ramp[0] * np.arange(16.0)))[:, None])
    constant = torch.tensor([-ramp[0] * 16 / (2 * np.pi), 0.0])
    found = patterns(loop, torch.from_numpy(-2 * corners @ curvature * 16 / (2 * np.pi)) + constant)
    np.testing.assert_allclose(found, still, rtol=1e-9, atol=1e-9 * still.max())


def test_the_mean_of_the_shifts_stays_zero() -> None:
    loop = a_loop(a_scan(9, 16), Settings(descan=Descan(start="plane", learning_rate=0.3), batch=3))
    start = patterns(loop), loop.model.components["descan"].arrays()["shifts"].clone()
    for _ in range(loop.updates):
        loop.step()
    shifts = loop.model.components["descan"].arrays()["shifts"]
    assert (shifts - start[1]).abs().max() > 0.1
    assert shifts.mean(0).abs().max() < 1e-12


def test_the_plane_is_that_of_the_centres_of_mass() -> None:
    positions = np.random.default_rng(1).uniform(0, 50, (30, 2))
    slopes = np.array([[0.1, -0.03], [0.02, 0.2]])
    centres = positions @ slopes.T + [3.0, -7.0]
    centres[4] = np.nan  # without counts
    expected = (positions - positions.mean(0)) @ slopes.T
    np.testing.assert_allclose(plane_through(centres, positions), expected, atol=1e-12)


@each("centred", [True, False])
def test_centres_of_mass_are_found_on_the_engine(centred: bool) -> None:
    scan = a_scan(9, 16, "masked")
    if not centred:
        counts = np.fft.ifftshift(scan.frames.read(0, 9), axes=(-2, -1))
        scan = Scan.from_arrays(counts, scan.positions, order="fft", mask=np.fft.ifftshift(scan.mask))  # type: ignore[arg-type]
    loop = a_loop(scan, Settings())
    np.testing.assert_allclose(
        loop.shard.centres_of_mass(9), pt.preparation.centre_of_mass(scan), rtol=1e-12, atol=1e-12
    )


def test_shifts_from_the_patterns_take_part_at_once_and_zeros_do_not() -> None:
    scan = a_scan(9, 16, "masked")
    plane = a_loop(scan, Settings(descan=Descan(start="plane"))).model.components["descan"]
    expected = plane_through(pt.preparation.centre_of_mass(scan), scan.positions)
    np.testing.assert_allclose(plane.arrays()["shifts"], expected, rtol=1e-12, atol=1e-12)
    assert plane.active
    assert not a_loop(scan, Settings(descan=Descan(start="zero"))).model.components["descan"].active


def test_other_geometries_are_refused() -> None:
    settings = Settings(descan=Descan(start="zero"))
    check_together(a_scan(9, 16), settings)
    with raises("scan.near-field", "descan.start is 'zero'", "set descan.start to 'none'"):
        check_together(a_scan(9, 16, "near"), settings)
