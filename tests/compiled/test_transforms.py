import subprocess
import sys

import numpy as np
import pytest

from ptynb.compiled import transforms

SHAPES = [(8, 8), (9, 7), (7, 12), (30, 31), (64, 96)]


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("shape", SHAPES)
def test_planes_are_transformed_without_factors(shape, kind):
    """Odd planes in single precision do not all start where FFTW's fast plans have them."""
    generator = np.random.default_rng(3)
    waves = (generator.normal(size=(4, 2, 3, *shape)) + 1j * generator.normal(size=(4, 2, 3, *shape))).astype(kind)
    plans, tolerance = transforms.plans(*shape, waves.dtype), 40 * np.finfo(kind).eps * np.prod(shape) ** 0.5
    expected = np.fft.fft2(waves[1:3])
    found, into = waves.copy(), np.zeros_like(waves)
    transforms.forward(plans, found, 1, 3)
    transforms.forward_into(plans, waves, into, 1, 3)
    for transformed in (found, into):
        np.testing.assert_allclose(transformed[1:3], expected, atol=tolerance)
    assert np.array_equal(found[::3], waves[::3])
    assert not into[::3].any()
    transforms.backward(plans, found, 1, 3)
    np.testing.assert_allclose(found[1:3] / np.prod(shape), waves[1:3], atol=tolerance)


WITHOUT = """
import sys
sys.modules["pyfftw"] = None
from ptynb.compiled import transforms
from ptynb.physics import hotpath, steps
assert not transforms.available()
assert hotpath.compiled_steps() is steps
"""


def test_without_fftw_torch_does_the_steps():
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, timeout=120)
