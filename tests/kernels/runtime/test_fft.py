import numpy as np
import pytest

from ptynb.kernels.runtime import fft
from ptynb.kernels.runtime.compiler import compiled
from ptynb.kernels.runtime.radices import radices
from ptynb.kernels.window_sides import slow_window
from tests.parametrization import each

SHAPES = [(8, 8), (1, 5), (9, 7), (7, 12), (30, 26), (64, 96), (11, 130), (169, 3), (4, 1024), (17, 19), (23, 29)]
SHAPES += [(127, 31), (129, 2), (1, 257), (3, 514), (83, 4), (2, 37 * 41)]
"""With all radices, sides below and above the lanes of a vector, and with something left over along y, x, both.

Prime factors above the largest radix, by convolutions of one to three radices (37, 127, 257), zero-padded (83), in the
last and in another pass (1517).
"""


@compiled
def forwards(plans, waves, others, into, first, last):
    """Transforms the waves in place, and the others into an array."""
    fft.forward(plans, waves, first, last)
    fft.forward_into(plans, others, into, first, last)


@compiled
def backwards(plans, waves, first, last):
    """Transforms the waves back, in place."""
    fft.backward(plans, waves, first, last)


def planes(shape, kind):
    """Of two modes of four patterns, in memory that starts where no vector would."""
    generator = np.random.default_rng(3)
    numbers = generator.normal(size=(2, 1 + 8 * np.prod(shape))).astype(kind)
    return (numbers[0] + kind(1j) * numbers[1])[1:].reshape(4, 2, *shape)


@each("kind", [np.complex64, np.complex128])
@each("shape", SHAPES)
def test_planes_are_transformed_without_factors(shape, kind):
    waves = planes(shape, kind)
    plans, tolerance = fft.plans(*shape, waves.dtype), 8 * np.finfo(kind).eps * np.prod(shape) ** 0.5
    expected = np.fft.fft2(waves[1:3].astype(np.complex128))
    found, into = waves.copy(), np.zeros_like(waves)
    forwards(plans, found, waves, into, 1, 3)
    for transformed in (found, into):
        np.testing.assert_allclose(transformed[1:3], expected, atol=tolerance)
    assert np.array_equal(found[::3], waves[::3])
    assert not into[::3].any()
    backwards(plans, found, 1, 3)
    np.testing.assert_allclose(found[1:3] / np.prod(shape), waves[1:3], atol=tolerance)


def test_loops_within_loops_refuse_calls_from_python():
    with pytest.raises(TypeError):
        fft.forward(fft.plans(8, 8, np.dtype(np.complex64)), planes((8, 8), np.complex64), 0, 1)


def test_real_planes_are_refused():
    with pytest.raises(ValueError, match="float32; expected complex64"):
        fft.plans(8, 8, np.dtype(np.float32))


def test_windows_are_slow_where_a_convolution_is_longer_than_its_prime():
    for side in range(2, 600):
        primes = [radix for radix in radices(side) if radix > fft.RADICES[-1]]
        assert any(len(fft.convolution(prime).factors) >= prime for prime in primes) == bool(slow_window((side, 128)))
    (remark,) = slow_window((128, 166))
    assert all(text in remark for text in ("128 x 166", "factor 83", "to 128 x 165", "to 128 x 168"))
