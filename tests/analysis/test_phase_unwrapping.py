import numpy as np

from ptynb.analysis import unwrapped_phase, without_ramp
from tests.parametrization import each
from tests.raising import raises

SHAPE = (60, 71)
Y, X = np.mgrid[:60, :71].astype(float)
BUMP = np.exp(-((Y - 22) ** 2) / 200 - (X - 40) ** 2 / 300)


def ramp(steps, constant=0.0):
    return np.exp(1j * (steps[0] * Y + steps[1] * X + constant))


def plane_of(phase, power):
    """The plane that fits a phase without wraps best, by a system of equations, one for each pixel."""
    columns = np.stack([np.ones(Y.size), Y.ravel(), X.ravel()], 1)
    root = np.sqrt(power).ravel()
    return (columns @ np.linalg.lstsq(columns * root[:, None], phase.ravel() * root, rcond=None)[0]).reshape(SHAPE)


@each("steps", [(0.0, 0.0), (0.3, -0.2), (2.2, -1.4)])
def test_what_is_left_is_the_phase_less_its_plane(steps):
    amplitude = 1 - 0.6 * BUMP
    phase = 1.5 * BUMP + 0.3 * np.sin(X / 5)
    result = without_ramp(amplitude * np.exp(1j * phase) * ramp(steps, 2.0))
    np.testing.assert_allclose(np.angle(result), phase - plane_of(phase, amplitude**2), atol=1e-8)
    np.testing.assert_allclose(np.abs(result), amplitude, rtol=1e-12)


def test_area_and_weight_say_what_counts():
    phase = 2.5 * BUMP
    object = np.exp(1j * phase) * ramp((0.1, -0.25), 1.0)
    area = (slice(45, 60), slice(0, 30))
    counted = np.zeros(SHAPE)
    counted[area] = 1
    np.testing.assert_allclose(np.angle(without_ramp(object, area)), phase - plane_of(phase, counted), atol=1e-8)
    weight = np.random.default_rng(0).random(SHAPE) * (BUMP < 0.01)
    np.testing.assert_allclose(
        np.angle(without_ramp(object, weight=weight)), phase - plane_of(phase, weight), atol=1e-8
    )
    both = without_ramp(object, area, weight)
    np.testing.assert_allclose(np.angle(both), phase - plane_of(phase, weight * counted), atol=1e-8)


def test_each_layer_has_its_own_ramp_and_scale():
    layers = np.stack([2 * ramp((0.2, 0.1)), 0.5 * ramp((-1.0, 0.4), 3)]).reshape(2, 1, *SHAPE)
    np.testing.assert_allclose(without_ramp(layers), np.abs(layers), atol=1e-9)
    np.testing.assert_allclose(without_ramp(layers, scale=True), np.ones_like(layers), atol=1e-9)
    amplitude = np.where(Y < 30, 1.0, 3.0)
    scaled = without_ramp(amplitude * ramp((0.2, 0.1)), (slice(0, 60), slice(0, 10)), scale=True)
    np.testing.assert_allclose(scaled, amplitude / np.sqrt(5), atol=1e-9)
    assert without_ramp(layers.astype(np.complex64)).dtype == np.complex64


def test_noise_does_not_turn_the_ramp():
    """The slope fitted to N phases of variance noise²/2 at places of variance v has the variance noise² / 2Nv."""
    random = np.random.default_rng(1)
    noise = 0.3
    tilts = []
    for _ in range(20):
        added = noise * (random.standard_normal(SHAPE) + 1j * random.standard_normal(SHAPE)) / np.sqrt(2)
        left = without_ramp((1 + added) * ramp((0.7, -0.9)))
        tilts.append(np.angle((left / (1 + added))[-1, 0] / (left / (1 + added))[0, 0]) / 59)
    assert np.sqrt(np.mean(np.square(tilts))) < 1.5 * noise / np.sqrt(2 * Y.size * Y.var())


def test_a_smooth_phase_of_many_turns_is_unwrapped():
    phase = 25 * BUMP - 0.1 * Y
    result = unwrapped_phase(0.3 * np.exp(1j * phase))
    turns = np.round((result - phase).mean() / (2 * np.pi))
    np.testing.assert_allclose(result, phase + 2 * np.pi * turns, atol=1e-9)
    assert np.ptp(result) > 6 * np.pi
    assert abs(result.mean()) <= np.pi


def test_only_what_the_mask_trusts_is_unwrapped():
    phase = 15 * BUMP
    mask = np.hypot(Y - 10, X - 12) > 8
    object = np.where(mask, np.exp(1j * phase), np.exp(1j * np.random.default_rng(0).uniform(0, 6, SHAPE)))
    result = unwrapped_phase(object, mask)
    assert np.isnan(result[~mask]).all()
    turns = np.round((result[mask] - phase[mask]).mean() / (2 * np.pi))
    np.testing.assert_allclose(result[mask], phase[mask] + 2 * np.pi * turns, atol=1e-9)


def test_what_is_not_trusted_does_not_lead_across():
    """A steep rise by one turn; above it, where the mask is False, the same wrapped phase without any rise."""
    phase = 2 * np.pi * np.clip((X - 34) / 3, 0, 1)
    mask = Y > 8
    result = unwrapped_phase(np.where(mask, np.exp(1j * phase), 1), mask)
    np.testing.assert_allclose(np.diff(result[mask.all(1)], axis=1), np.diff(phase[mask.all(1)], axis=1), atol=1e-9)


def test_layers_are_unwrapped_by_themselves_and_always_equally():
    phases = np.stack([15 * BUMP, -9 * BUMP + 0.05 * X])
    result = unwrapped_phase(np.exp(1j * phases))
    for layer, phase in zip(result, phases, strict=True):
        np.testing.assert_array_equal(layer, unwrapped_phase(np.exp(1j * phase)))
        np.testing.assert_allclose(np.diff(layer, axis=0), np.diff(phase, axis=0), atol=1e-9)
    noise = np.exp(1j * np.random.default_rng(3).uniform(0, 6.28, (50, 6)))
    first = unwrapped_phase(noise)
    for _ in range(20):
        np.testing.assert_array_equal(unwrapped_phase(noise), first)


FLAT = np.ones(SHAPE, complex)
REFUSED = {
    "real values": (lambda: without_ramp(FLAT.real), "array.shape-mismatch", "float64"),
    "one axis": (lambda: without_ramp(FLAT[0]), "array.shape-mismatch", (71,)),
    "another weight": (lambda: without_ramp(FLAT, weight=np.ones(3)), "array.shape-mismatch", (3,), (60, 71)),
    "a negative weight": (lambda: without_ramp(FLAT, weight=-np.ones(SHAPE)), "array.shape-mismatch", ">= 0"),
    "nothing counts": (lambda: without_ramp(FLAT, weight=np.zeros(SHAPE)), "comparison.nothing-to-fit"),
    "an empty area": (lambda: without_ramp(FLAT, (slice(3, 3), slice(0, 9))), "comparison.nothing-to-fit"),
    "a dark object": (lambda: without_ramp(0 * FLAT), "comparison.nothing-to-fit"),
    "a line": (lambda: unwrapped_phase(FLAT[:2]), "array.shape-mismatch", (2, 71), "3 x 3"),
    "another mask": (lambda: unwrapped_phase(FLAT, np.ones((2, 2))), "array.shape-mismatch", (2, 2)),
    "a mask that trusts nothing": (lambda: unwrapped_phase(FLAT, np.zeros(SHAPE)), "array.shape-mismatch", "0 pixels"),
}


@each("case", REFUSED)
def test_what_has_no_phase_is_refused(case):
    call, *expected = REFUSED[case]
    with raises(*expected):
        call()
