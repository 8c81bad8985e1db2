"""The scan that the files of most formats are written from, and what a user gives where a file says nothing."""

import numpy as np
import pytest

from tests.io.rectangular_scan import ANGLE, COLUMNS, ROWS, VOLTAGE, oblong


@pytest.fixture(scope="module")
def original():
    return oblong(32)


@pytest.fixture(scope="module")
def metres(original):
    """(pattern, yx) [m]."""
    return np.indices((ROWS, COLUMNS)).reshape(2, -1).T * np.array(original.step)


@pytest.fixture
def given(original):
    return {"voltage": VOLTAGE, "angular_pixel": (ANGLE, ANGLE), "raster": (ROWS, COLUMNS), "step": original.step}
