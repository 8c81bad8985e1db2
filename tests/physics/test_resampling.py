"""Spectra between the frequencies of a Fourier transform, against sums written out."""

import math

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ptynb.physics.resampling import resampling, spectrum_at
from tests.parametrization import each
from tests.raising import raises

WINDOWS = [(16, 16), (15, 12), (8, 13), (5, 4)]


def spectrum_by_hand(field, frequencies):
    """N^(-1/2) Σ ψ exp(-2πi f·j/n), one frequency (y, x) after the other."""
    height, width = field.shape[-2:]
    y, x = np.arange(height)[:, None] / height, np.arange(width)[None, :] / width
    values = [(field * np.exp(-2j * np.pi * (fy * y + fx * x))).sum((-2, -1)) for fy, fx in frequencies.reshape(-1, 2)]
    return np.stack(values, -1).reshape(*field.shape[:-2], *frequencies.shape[:-1]) / math.sqrt(height * width)


def a_problem(window, *batch):
    random = np.random.default_rng(5)
    frequencies = (random.random((6, 9, 2)) - 0.5) * np.array(window)
    scale = 0.5 + random.random((6, 9))
    field = random.normal(size=(*batch, *window)) + 1j * random.normal(size=(*batch, *window))
    return field, frequencies, scale


@each("batch", [(), (3,), (2, 3)])
@each("window", WINDOWS)
def test_the_spectrum_anywhere_is_the_sum_written_out(window, batch):
    field, frequencies, scale = a_problem(window, *batch)
    points = resampling(window, frequencies, scale, dtype=torch.complex128)
    found = spectrum_at(torch.from_numpy(field), points).numpy()
    expected = spectrum_by_hand(field, frequencies) * scale
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()
    assert points.covered.all()


@each("window", WINDOWS)
def test_at_its_own_frequencies_it_is_the_transform(window):
    field, _, _ = a_problem(window, 2)
    whole = np.stack(np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in window), indexing="ij"), -1)
    points = resampling(window, whole, np.ones(window), dtype=torch.complex128)
    found = spectrum_at(torch.from_numpy(field), points).numpy()
    expected = np.fft.fft2(field, norm="ortho")
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


def test_what_the_grid_does_not_hold_is_not_seen():
    frequencies = np.array([[-4.0, 4.5], [4.0, -4.5], [4.1, 0.0], [0.0, -4.6], [np.inf, 0.0], [np.nan, 1.0]])
    points = resampling((8, 9), frequencies, np.ones(6), dtype=torch.complex128)
    assert points.covered.tolist() == [True, True, False, False, False, False]
    values = spectrum_at(torch.ones(8, 9, dtype=torch.complex128).cumsum(0).cumsum(1), points)
    assert (values[:2] != 0).all()
    assert (values[2:] == 0).all()


def test_gradients_and_single_precision():
    field, frequencies, scale = a_problem((5, 6), 2)
    points = resampling((5, 6), frequencies, scale, dtype=torch.complex128)
    exact = torch.from_numpy(field).requires_grad_()
    assert torch.autograd.gradcheck(lambda field: spectrum_at(field, points), (exact,), fast_mode=True)
    single = spectrum_at(exact.detach().to(torch.complex64), resampling((5, 6), frequencies, scale))
    assert single.dtype == torch.complex64
    torch.testing.assert_close(single.to(torch.complex128), spectrum_at(exact.detach(), points), rtol=1e-5, atol=1e-5)


class Sparse(TorchDispatchMode):
    """Whether sparse matrices that operations get are coalesced; torch sorts others, and waits for a GPU meanwhile."""

    def __init__(self):
        super().__init__()
        self.coalesced = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.coalesced += [one.is_coalesced() for one in args if isinstance(one, torch.Tensor) and one.is_sparse]
        return operation(*args, **(kwargs or {}))


def test_no_matrix_is_sorted_again_for_a_gradient():
    field, frequencies, scale = a_problem((5, 6), 2)
    points = resampling((5, 6), frequencies, scale, dtype=torch.complex128)
    exact = torch.from_numpy(field).requires_grad_()
    with Sparse() as found:
        spectrum_at(exact, points).abs().square().sum().backward()
    assert found.coalesced == [True, True]  # one product forward, one backward


@each(
    ("frequencies", "scale"),
    [(np.zeros((4, 3)), np.ones(4)), (np.zeros(2), np.ones(())), (np.zeros((4, 2)), np.ones(3))],
)
def test_shapes_that_do_not_fit_are_refused_with_a_sentence(frequencies, scale):
    with raises("array.shape-mismatch", frequencies.shape, scale.shape):
        resampling((8, 8), frequencies, scale)
