"""The number by which engines find out, after each epoch, whether their parameters are equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ptynb.engine.loop import CHECKSUM_MODULUS, _checksum

KINDS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@KINDS
def test_no_order_of_summation_has_an_effect(dtype: torch.dtype) -> None:
    """Sums of floating-point numbers have another value in nearly every order."""
    torch.manual_seed(0)
    values = torch.randn(5000, dtype=dtype)
    orders = [values[torch.randperm(5000)] for _ in range(10)]
    assert len({_checksum([one, torch.ones(())]) for one in orders}) == 1
    assert len({float(one.sum()) for one in orders}) > 1


@KINDS
def test_every_bit_has_an_effect(dtype: torch.dtype) -> None:
    whole = torch.int32 if dtype == torch.float32 else torch.int64
    values = torch.linspace(0.5, 2, 9, dtype=dtype)
    plain, finite = _checksum([values])
    assert finite
    for bit in range(8 * values.element_size()):
        other = values.clone()
        other.view(whole)[4] ^= (
            int(np.array(1, np.uint64) << np.uint64(bit))
            - (2**64 if bit == 63 else 0)
            - (2**32 if bit == 31 and whole == torch.int32 else 0)
        )
        assert _checksum([other])[0] != plain, bit


def test_it_is_exact_as_a_float() -> None:
    torch.manual_seed(0)
    for _ in range(20):
        found, _ = _checksum([torch.randn(1000, dtype=torch.float64)])
        assert found == int(found)
        assert 0 <= found < CHECKSUM_MODULUS < 2**53


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_found(value: float) -> None:
    values = torch.ones(100)
    values[70] = value
    assert not _checksum([torch.zeros(3), values])[1]
