"""Every constraint of the settings on a real model: what it imposes, and what it leaves alone."""

from __future__ import annotations

import functools
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import fft, ndimage

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.constraints import covered, impose, neighbours_mean, total_variation_step
from ptynb.physics.model import Model
from ptynb.settings import constraints as kinds
from tests.parametrization import each
from tests.planning.live_storages import LiveStorages
from tests.raising import raises

RANDOM = np.random.default_rng(0)
GEOMETRY = pt.Geometry(wavelength=1e-10, distance=1.0, detector_pixel=(5e-5, 5e-5))
THICK = {"slices": pt.Slices(count=4, thickness=1e-5), "tilt": pt.Tilt(per_position=True, learning_rate=0.1)}

# One of each kind, with settings that it needs.
SOME: dict[str, tuple[kinds.Constraint, dict[str, Any]]] = {
    "orthogonal_modes": (kinds.OrthogonalModes(), {}),
    "probe_support": (kinds.ProbeSupport(radius=0.3, edge=0.1), {}),
    "probe_aperture": (kinds.ProbeAperture(radius=0.2, edge=0.05), {}),
    "fixed_probe_power": (kinds.FixedProbePower(), {}),
    "centred_probe": (kinds.CentredProbe(), {}),
    "gaussian_blur": (kinds.GaussianBlur(sigma=1.5), {}),
    "depth_blur": (kinds.DepthBlur(sigma=0.8), THICK),
    "low_pass": (kinds.LowPass(cutoff=0.5), {}),
    "missing_wedge": (kinds.MissingWedge(slope=2.0), THICK),
    "dct_threshold": (kinds.DCTThreshold(keep_fraction=0.2), {}),
    "positive_phase": (kinds.PositivePhase(), {}),
    "amplitude_limits": (kinds.AmplitudeLimits(low=0.5, high=1.0), {}),
    "amplitude_phase_coupling": (kinds.AmplitudePhaseCoupling(ratio=0.2), {}),
    "denoise": (kinds.Denoise(amount=0.1), {}),
    "smooth": (kinds.Smooth(strength=0.5), {}),
    "object_support": (kinds.ObjectSupport(margin=0.2), {}),
    "recenter_depth": (kinds.RecenterDepth(), THICK),
    "remove_phase_ramp": (kinds.RemovePhaseRamp(), {}),
    "remove_grid_artifacts": (kinds.RemoveGridArtifacts(period_y=4.0, period_x=4.0), {}),
    "zero_mean_positions": (kinds.ZeroMeanPositions(), {"positions": pt.Positions(learning_rate=0.1)}),
    "smooth_tilts": (kinds.SmoothTilts(sigma=5.0), THICK),
}
IDEMPOTENT = {
    "orthogonal_modes",
    "fixed_probe_power",
    "centred_probe",
    "low_pass",
    "missing_wedge",
    "dct_threshold",
    "positive_phase",
    "amplitude_limits",
    "amplitude_phase_coupling",
    "object_support",
    "recenter_depth",
    "remove_grid_artifacts",
    "zero_mean_positions",
}
UNSEEN = {"orthogonal_modes", "centred_probe", "remove_phase_ramp"}
"""No pattern changes by these."""


def a_loop(settings: dict[str, Any]) -> Loop:
    scan = pt.simulate(patterns=12, window=16, modes=2, photons=1e4, step=3, seed=2)
    chosen = pt.Settings(precision="double", probe=pt.Probe(modes=2), **settings)
    loop = Loop(scan, chosen, SingleGroup(torch.device("cpu")))
    with torch.no_grad():
        shape = loop.model.object.values.shape
        size, phase = 1 + 0.2 * RANDOM.standard_normal(shape), 0.5 * RANDOM.standard_normal(shape)
        loop.model.object.set(torch.from_numpy(size * np.exp(1j * phase)))
        loop.model.probe.parts += 0.3 * torch.randn(
            loop.model.probe.parts.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        for name in ("positions", "tilt"):
            for parameter in loop.model.components[name].parameters() if name in loop.model.components else ():
                parameter += torch.from_numpy(RANDOM.uniform(0, 1, parameter.shape))
    return loop


def object_of(model: Model) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = model.object.values.detach().numpy().copy()
    return values


def probe_of(model: Model) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = model.probe.values.detach().numpy().copy()
    return values


def imposed(kind: str, **changes: Any) -> tuple[Loop, dict[str, Any], dict[str, Any]]:
    """A loop, with arrays before and after the constraint of this kind."""
    constraint, settings = SOME[kind]
    constraint = constraint.model_copy(update=changes)
    loop = a_loop(settings)
    before = state(loop)
    impose(constraint, loop.model)
    return loop, before, state(loop)


def state(loop: Loop) -> dict[str, Any]:
    batch = loop.shard.batch(np.arange(12), 12)
    with torch.no_grad():
        patterns = loop.model.intensities(batch).numpy()
    parameters = {name: values.detach().numpy().copy() for name, values in loop.model.arrays().items()}
    return {"object": object_of(loop.model), "probe": probe_of(loop.model), "patterns": patterns, **parameters}


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if not np.allclose(before[name], after[name], rtol=1e-9, atol=1e-9)}


def test_every_kind_is_there() -> None:
    known = {kind.model_fields["kind"].default for kind in get_args(get_args(kinds.AnyConstraint)[0])}
    assert known == set(SOME)
    for constraint, _ in SOME.values():
        assert impose.dispatch(type(constraint)) is not impose.dispatch(object)


def test_what_is_no_constraint_is_refused() -> None:
    with raises("argument.invalid-type", "Constraint"):
        impose(kinds.Constraint(), a_loop({}).model)


@each("kind", sorted(set(SOME) - {"centred_probe", "recenter_depth"}))  # these have nothing to move
def test_each_changes_its_own_and_nothing_else(kind: str) -> None:
    _, before, after = imposed(kind)
    found = changed(before, after) & {"object", "probe"} | {
        name for name in changed(before, after) if "moves" in name or "angles" in name
    }
    expected = {
        "remove_phase_ramp": {"object", "probe"},
        "zero_mean_positions": {"positions.moves"},
        "smooth_tilts": {"tilt.angles"},
    }
    of_probe = {"orthogonal_modes", "probe_support", "probe_aperture", "fixed_probe_power"}
    assert found == expected.get(kind, {"probe"} if kind in of_probe else {"object"})


@each("kind", sorted(IDEMPOTENT))
def test_a_second_time_changes_nothing(kind: str) -> None:
    loop, _, after = imposed(kind)
    impose(SOME[kind][0], loop.model)
    for name, values in state(loop).items():
        np.testing.assert_allclose(values, after[name], rtol=1e-9, atol=1e-8, err_msg=name)


@each("kind", sorted(UNSEEN))
def test_patterns_stay_as_they_are(kind: str) -> None:
    """Of a probe that is dark at its window's rim: what goes over one edge would come in over the other."""
    loop = a_loop({"object": pt.Object(padding=8)})
    y, x = np.mgrid[:16, :16]
    spots = [np.exp(-((y - 9.7) ** 2 + (x - 6.2) ** 2) / 2.4), 0.3 * np.exp(-((y - 9) ** 2 + (x - 6) ** 2) / 2.4)]
    loop.model.probe.set(torch.from_numpy(np.array(spots).astype(complex)))
    before = state(loop)
    impose(SOME[kind][0], loop.model)
    after = state(loop)
    assert changed(before, after) & {"probe"}
    np.testing.assert_allclose(after["patterns"], before["patterns"], rtol=0, atol=3e-4 * before["patterns"].max())
    if kind == "centred_probe":
        light = (np.abs(after["probe"]) ** 2).sum(0)
        middle = [(light * (axis - 8)).sum() / light.sum() for axis in (y, x)]
        np.testing.assert_allclose(middle, 0, atol=0.5)


def test_modes_are_orthogonal_sorted_and_hold_the_same_light() -> None:
    _, before, after = imposed("orthogonal_modes")
    flat = after["probe"].reshape(2, -1)
    gram = flat @ flat.conj().T
    assert gram[0, 0].real > gram[1, 1].real
    assert abs(gram[0, 1]) < 1e-9 * gram[0, 0].real
    expected = np.linalg.svd(before["probe"].reshape(2, -1), compute_uv=False) ** 2
    np.testing.assert_allclose(gram.diagonal().real, expected, rtol=1e-10)
    np.testing.assert_allclose((np.abs(after["probe"]) ** 2).sum(0), (np.abs(before["probe"]) ** 2).sum(0), rtol=1e-8)


def test_probe_is_dark_outside_its_support_and_untouched_inside() -> None:
    _, before, after = imposed("probe_support")
    y, x = np.mgrid[:16, :16] - 8
    distance = np.hypot(y, x) / 16
    assert np.abs(after["probe"][:, distance > 0.35]).max() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(after["probe"][:, distance < 0.25], before["probe"][:, distance < 0.25])


def test_probe_has_no_frequencies_outside_its_aperture() -> None:
    _, before, after = imposed("probe_aperture")
    spectra = [np.fft.fftshift(np.fft.fft2(values["probe"]), axes=(1, 2)) for values in (before, after)]
    y, x = np.mgrid[:16, :16] - 8
    distance = np.hypot(y, x) / 16
    assert np.abs(spectra[1][:, distance > 0.225]).max() < 1e-9 * np.abs(spectra[0]).max()
    np.testing.assert_allclose(spectra[1][:, distance < 0.17], spectra[0][:, distance < 0.17], rtol=1e-8)


def test_power_goes_back_to_that_of_the_start() -> None:
    loop, before, after = imposed("fixed_probe_power")
    assert (np.abs(after["probe"]) ** 2).sum() == pytest.approx(loop.model.probe.power, rel=1e-9)
    assert (np.abs(before["probe"]) ** 2).sum() != pytest.approx(loop.model.probe.power, rel=1e-2)


def test_blur_is_a_gaussian_filter() -> None:
    for kind, axes, sigma in (("gaussian_blur", (2, 3), 1.5), ("depth_blur", (1,), 0.8)):
        _, before, after = imposed(kind)
        expected = before["object"]
        for axis in axes:
            expected = ndimage.gaussian_filter1d(expected, sigma, axis=axis, mode="nearest", truncate=8)
        np.testing.assert_allclose(after["object"], expected, atol=1e-6)


def test_low_pass_leaves_nothing_beyond_its_cutoff() -> None:
    _, before, after = imposed("low_pass")
    spectra = [np.fft.fft2(values["object"][0, 0]) for values in (before, after)]
    y, x = (np.fft.fftfreq(side) for side in spectra[0].shape)
    beyond = np.hypot(y[:, None], x[None, :]) > 0.25
    assert np.abs(spectra[1][beyond]).max() < 1e-9
    np.testing.assert_allclose(spectra[1][~beyond], spectra[0][~beyond], rtol=1e-9, atol=1e-9)


def test_missing_wedge_is_empty_and_the_mean_of_the_slices_stays() -> None:
    _, before, after = imposed("missing_wedge")
    spectrum = np.fft.fftn(after["object"], axes=(1, 2, 3))[0]
    depth = np.abs(np.fft.fftfreq(4))[:, None, None]
    y, x = (np.fft.fftfreq(side) for side in spectrum.shape[1:])
    wedge = depth > 2.0 * np.hypot(y[:, None], x[None, :])
    assert wedge[1:].any()
    assert np.abs(spectrum[wedge]).max() < 1e-9
    np.testing.assert_allclose(after["object"].mean(1), before["object"].mean(1), atol=1e-12)


def test_threshold_keeps_the_largest_coefficients() -> None:
    _, before, after = imposed("dct_threshold")
    dct = functools.partial(fft.dctn, axes=(-2, -1), norm="ortho")
    both = [dct((values["object"] - 1).real) + 1j * dct((values["object"] - 1).imag) for values in (before, after)]
    kept = np.abs(both[1]) > 1e-9
    assert kept.mean() == pytest.approx(0.2, abs=0.002)
    np.testing.assert_allclose(both[1][kept], both[0][kept])
    assert np.abs(both[0][~kept]).max() <= np.abs(both[0][kept]).min()


def test_phase_amplitude_and_their_tie() -> None:
    _, before, after = imposed("positive_phase")
    np.testing.assert_allclose(np.angle(after["object"]), np.angle(before["object"]).clip(min=0), atol=1e-12)
    np.testing.assert_allclose(np.abs(after["object"]), np.abs(before["object"]))
    _, before, after = imposed("positive_phase", strength=0.5)
    lower = np.angle(before["object"]) < 0
    np.testing.assert_allclose(np.angle(after["object"])[lower], np.angle(before["object"])[lower] / 2)
    _, before, after = imposed("amplitude_limits")
    np.testing.assert_allclose(np.abs(after["object"]), np.abs(before["object"]).clip(0.5, 1.0))
    np.testing.assert_allclose(np.angle(after["object"]), np.angle(before["object"]))
    _, before, after = imposed("amplitude_phase_coupling")
    np.testing.assert_allclose(np.abs(after["object"]), np.exp(-0.2 * np.angle(before["object"])))
    np.testing.assert_allclose(np.angle(after["object"]), np.angle(before["object"]))


def test_l1_and_l2_draw_the_object_to_vacuum() -> None:
    _, before, after = imposed("denoise", norm="l1")
    off = before["object"] - 1
    expected = off * np.maximum(np.abs(off) - 0.1, 0) / np.abs(off)
    np.testing.assert_allclose(after["object"] - 1, expected, atol=1e-12)
    _, before, after = imposed("denoise", norm="l2")
    np.testing.assert_allclose(after["object"] - 1, (before["object"] - 1) / 1.1, atol=1e-12)


def test_a_total_variation_step_lowers_its_own_functional_to_the_minimum() -> None:
    """A step edge in one dimension: each side moves towards the other by amount / length, an exact solution."""
    field = torch.zeros((40, 4), dtype=torch.complex128)
    field[20:] = 1
    found = total_variation_step(field, 0.5, iterations=4000)
    torch.testing.assert_close(found[:20], torch.full((20, 4), 0.5 / 20, dtype=torch.complex128), atol=2e-3, rtol=0)
    torch.testing.assert_close(found[20:], torch.full((20, 4), 1 - 0.5 / 20, dtype=torch.complex128), atol=2e-3, rtol=0)


def test_smooth_moves_towards_the_neighbours() -> None:
    _, before, after = imposed("smooth")
    kernel = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 4
    mean = ndimage.convolve(before["object"], kernel[None, None], mode="nearest")
    np.testing.assert_allclose(after["object"], (before["object"] + mean) / 2, atol=1e-12)
    np.testing.assert_allclose(neighbours_mean(torch.from_numpy(before["object"])).numpy(), mean, atol=1e-12)


def test_support_is_what_the_windows_reach() -> None:
    loop, before, after = imposed("object_support")
    lit = np.zeros(before["object"].shape[-2:], bool)
    for y, x in loop.model.all_positions().numpy().round().astype(int):
        lit[y + 3 : y + 13, x + 3 : x + 13] = True
    assert 0.1 < lit.mean() < 0.9
    np.testing.assert_array_equal(after["object"][..., lit], before["object"][..., lit])
    assert (after["object"][..., ~lit] == 1).all()


def test_contrast_goes_to_the_middle_slice() -> None:
    loop = a_loop(THICK)
    object = np.ones(loop.model.object.values.shape, complex)
    object[:, 0] = 0.5
    loop.model.object.set(torch.from_numpy(object))
    impose(kinds.RecenterDepth(), loop.model)
    contrast = np.abs(object_of(loop.model) - 1).sum((0, 2, 3))
    assert contrast.argmax() in (1, 2)
    assert (contrast > 0).sum() == 1


def test_a_ramp_goes_from_the_object_to_the_probe() -> None:
    loop = a_loop({})
    height, width = loop.model.object.values.shape[-2:]
    ramp = np.exp(1j * (0.05 * np.arange(height)[:, None] - 0.03 * np.arange(width)[None, :]))
    loop.model.object.set(torch.from_numpy(ramp[None, None]))
    impose(kinds.RemovePhaseRamp(), loop.model)
    phase = np.angle(object_of(loop.model))
    assert np.ptp(phase) < 1e-9


def test_the_rasters_periods_leave_the_spectrum() -> None:
    loop = a_loop({})
    height, width = loop.model.object.values.shape[-2:]
    grid = 1 + 0.1 * np.cos(2 * np.pi * np.arange(height) / 4)[:, None] * np.ones(width)
    detail = 0.05 * np.cos(2 * np.pi * 5 * np.arange(width) / width)[None, :]
    loop.model.object.set(torch.from_numpy((grid + detail).astype(complex)[None, None]))
    impose(kinds.RemoveGridArtifacts(period_y=4.0, period_x=4.0, width=2.5), loop.model)
    rows = object_of(loop.model)[0, 0]
    spectrum = np.abs(np.fft.fft(rows[:, width // 2])) / height
    at = round(height / 4)
    assert spectrum[at - 1 : at + 2].max() < 0.006
    np.testing.assert_allclose(rows.mean(), (grid + detail).mean(), atol=1e-12)


def test_positions_have_no_common_move() -> None:
    _, before, after = imposed("zero_mean_positions")
    moves = after["positions.moves"]
    np.testing.assert_allclose(moves.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(moves - moves[0], before["positions.moves"] - before["positions.moves"][0])


def test_tilts_become_weighted_means_of_those_around() -> None:
    loop, before, after = imposed("smooth_tilts")
    places = loop.model.all_positions().numpy()
    weights = np.exp(-((places[:, None] - places[None]) ** 2).sum(-1) / 50)
    expected = weights @ before["tilt.angles"] / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(after["tilt.angles"], expected, rtol=1e-9)
    come = np.array([0, 3, 4])
    loop.model.set_admitted(torch.from_numpy(come))
    impose(SOME["smooth_tilts"][0], loop.model)
    weights, now = weights[np.ix_(come, come)], after["tilt.angles"].copy()
    now[come] = weights @ now[come] / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(state(loop)["tilt.angles"], now, rtol=1e-9)


def test_when_it_is_due() -> None:
    constraint = kinds.FixedProbePower(start_epoch=3, every=2, end_epoch=8)
    assert [epoch for epoch in range(1, 12) if constraint.due(epoch)] == [3, 5, 7]
    assert [epoch for epoch in range(1, 4) if kinds.FixedProbePower().due(epoch)] == [1, 2, 3]


@each("window", [(5, 9), (1, 1), (24, 40)])
def test_covered_pixels_are_those_of_the_windows(window: tuple[int, int]) -> None:
    shape = 24, 40
    origins = RANDOM.integers(0, np.array(shape) - window, (6, 2), endpoint=True)
    expected = np.zeros(shape, bool)
    for y, x in origins:
        expected[y : y + window[0], x : x + window[1]] = True
    np.testing.assert_array_equal(covered(shape, torch.from_numpy(origins), window).numpy(), expected)
    assert not covered(shape, torch.from_numpy(origins), (0, window[1])).any()


@each("kind", ["object_support", "remove_phase_ramp"])
def test_memory_does_not_grow_with_patterns_times_pixels(kind: str) -> None:
    """400 patterns of 64 x 64 would be 6.6 MB as windows of single precision."""
    frames = np.ones((400, 64, 64), np.uint8)
    scan = pt.Scan.from_arrays(frames, np.indices((20, 20)).reshape(2, -1).T * 2.0, geometry=GEOMETRY)
    model = Loop(scan, pt.Settings(), SingleGroup(torch.device("cpu"))).model
    with LiveStorages() as memory:
        impose(SOME[kind][0], model)
    assert memory.peak < 20 * model.object.parts.nbytes < 2e6


def test_windows_that_moved_over_the_edge_cover_what_the_model_reads() -> None:
    loop = a_loop({"positions": pt.Positions(learning_rate=0.1)})
    positions = loop.model.components["positions"]
    positions.active = True
    with torch.no_grad():
        positions.moves.fill_(-100)  # type: ignore[operator, union-attr]
    loop.model.object.set(loop.model.object.values.detach() + 1)
    impose(kinds.ObjectSupport(), loop.model)
    read = np.zeros(loop.model.object.values.shape[-2:], bool)
    for y, x in loop.model.window_origins_and_shifts(loop.shard.batch(np.arange(12), 12))[0].tolist():
        read[y : y + 16, x : x + 16] = True
    np.testing.assert_array_equal((object_of(loop.model) != 1)[0, 0], read)
