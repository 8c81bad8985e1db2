import numpy as np
import torch

from ptynb.physics.patches import _flat_indices, add_windows, read_windows
from tests.parametrization import each
from tests.raising import raises

CORNERS = torch.tensor([[0, 0], [2, 3], [2, 3], [5, 9], [1, 4]])
WINDOW = (4, 5)
FIELD = (9, 14)


def complex_normal(seed, *shape):
    return torch.complex(*torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


def test_windows_are_slices():
    field = complex_normal(0, *FIELD)
    windows = read_windows(field, CORNERS, WINDOW)
    for window, (y, x) in zip(windows, CORNERS.tolist(), strict=True):
        np.testing.assert_array_equal(window.numpy(), field.numpy()[y : y + 4, x : x + 5])


def test_adding_is_the_adjoint_of_reading():
    field, windows = complex_normal(0, *FIELD), complex_normal(1, len(CORNERS), *WINDOW)
    added = add_windows(torch.zeros_like(field), CORNERS, windows)
    one = torch.vdot(read_windows(field, CORNERS, WINDOW).flatten(), windows.flatten())
    other = torch.vdot(field.flatten(), added.flatten())
    torch.testing.assert_close(one, other, rtol=1e-13, atol=0)


def test_adding_keeps_what_was_there_also_where_windows_overlap():
    field = complex_normal(0, *FIELD)
    windows, expected, before = complex_normal(1, len(CORNERS), *WINDOW), field.numpy().copy(), field.clone()
    for window, (y, x) in zip(windows.numpy(), CORNERS.tolist(), strict=True):
        expected[y : y + 4, x : x + 5] += window
    read_windows(field, CORNERS, WINDOW).zero_()
    assert torch.equal(field, before), "windows are copies"
    np.testing.assert_allclose(add_windows(field, CORNERS, windows).numpy(), expected, rtol=1e-14, atol=1e-14)


def test_no_windows():
    field = complex_normal(0, *FIELD)
    assert read_windows(field, CORNERS[:0], WINDOW).shape == (0, 4, 5)
    assert torch.equal(add_windows(field.clone(), CORNERS[:0], torch.empty(0, *WINDOW, dtype=field.dtype)), field)


def test_the_indices_read_the_same_windows():
    field = complex_normal(0, *FIELD)
    indexed = field.reshape(-1)[_flat_indices(field, CORNERS, WINDOW)]
    assert torch.equal(indexed, read_windows(field, CORNERS, WINDOW))


def test_the_indices_add_the_same_windows():
    windows = complex_normal(1, len(CORNERS), *WINDOW)
    expected = add_windows(torch.zeros(FIELD, dtype=torch.complex128), CORNERS, windows)
    flat = torch.zeros(FIELD[0] * FIELD[1], dtype=torch.complex128)
    flat.index_add_(0, _flat_indices(expected, CORNERS, WINDOW).reshape(-1), windows.reshape(-1))
    torch.testing.assert_close(flat.reshape(FIELD), expected, rtol=1e-14, atol=1e-14)


@each("corner", [(6, 0), (0, 10), (-1, 0)])
def test_a_window_outside_the_field_is_an_error(corner):
    with raises("scan.position-outside", "9 x 14", [*corner]):
        read_windows(torch.zeros(FIELD), torch.tensor([corner]), WINDOW)
