"""The Python of arrays behind pictures gives these arrays."""

from types import SimpleNamespace

import numpy as np
import pytest

import ptynb as pt
from ptynb.analysis.array_lines import field_line, quantity_lines
from ptynb.data import images
from tests.raising import raises


def given(line, result):
    return eval(line, {"result": result, "np": np, "pt": pt})


@pytest.fixture
def thick():
    random = np.random.default_rng(3)
    slices = random.normal(size=(2, 3, 12, 14)) + 1j * random.normal(size=(2, 3, 12, 14))
    return SimpleNamespace(object=slices, slices=slices[0], projection=slices[0].prod(0))


def test_lines_give_slices_products_and_modes(thick):
    np.testing.assert_array_equal(given(field_line("result"), thick), thick.slices.prod(0))
    np.testing.assert_array_equal(given(field_line("result", 2), thick), thick.slices[2])
    np.testing.assert_array_equal(given(field_line("result", None, 1, 2), thick), thick.object[1].prod(0))
    np.testing.assert_array_equal(given(field_line("result", 1, 1, 2), thick), thick.object[1, 1])


def test_amplitude_and_phase_are_those_of_the_pictures():
    y, x = np.mgrid[:40, :50]
    field = (1 + 0.1 * np.sin(x / 5)) * np.exp(1j * (0.3 * np.cos(y / 4) + 0.02 * x + 1))
    result = SimpleNamespace(projection=field)
    lines = quantity_lines("result.projection", (4, 6), (30, 35))
    area = np.s_[4:34, 6:41]
    np.testing.assert_array_equal(given(lines["amplitude"], result), np.abs(field[area]))
    np.testing.assert_array_equal(given(lines["complex"], result), field[area])
    np.testing.assert_array_equal(given(lines["phase"], result), images.flat_phase(field[area]))
    plain = quantity_lines("result.projection", (4, 6), (30, 35), flat=False)["phase"]
    np.testing.assert_array_equal(given(plain, result), np.angle(field[area]))
    with raises("array.shape-mismatch", "(40, 50)"):
        pt.analysis.flat_phase(np.abs(field))
