"""What the compiled steps get of arrays that are missing."""

from __future__ import annotations

import numpy as np
import torch

from ptynb.kernels.cpu_steps import GUARD, Array, seen
from tests.parametrization import each


def guard_of(missing: Array) -> tuple[int, int]:
    """The first and last address of the numbers behind an empty array that nothing else has."""
    whole = missing
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    begin = whole.ctypes.data
    assert begin <= missing.ctypes.data
    return begin, begin + whole.nbytes


@each("kind", [np.float32, np.float64])
def test_a_loss_has_the_same_last_digits_wherever_missing_arrays_would_lie(kind: type[np.floating]) -> None:
    """A compiled loop sums in another order where rows of its arrays may overlap, the rows of empty ones too."""
    side = 256
    detected = seen(torch.ones(2, side, side), np.arange(2), None, None, None, np.dtype(kind))
    reach = 2 * side * np.dtype(kind).itemsize
    reads, writes = (detected.mask, detected.background), detected.of_background
    assert writes.shape[1:] == (0, 0)
    for missing in (*reads, writes):
        begin, end = guard_of(missing)
        assert end - begin == GUARD * np.dtype(kind).itemsize
        assert missing.ctypes.data + reach < end
    begin, end = guard_of(writes)
    for missing in reads:
        assert guard_of(missing)[1] <= begin or end <= guard_of(missing)[0]
