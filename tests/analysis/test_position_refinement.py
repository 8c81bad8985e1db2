"""Moves of positions: their lengths, and an affine part that is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ptynb.analysis import position_refinement
from ptynb.analysis.position_refinement import moved_positions
from ptynb.preparation import affine_matrix
from tests.raising import raises
from tests.report.results import result

PARTS = {"scale": 1.01, "asymmetry": 0.004, "rotation": 0.02, "shear": -0.015}
PIXEL = (2e-9, 1e-9)


def a_grid(step: float = 10.0, side: int = 9) -> np.ndarray:
    y, x = np.mgrid[:side, :side] * step
    return np.stack([y.ravel(), x.ravel()], axis=1)


def test_the_affine_part_is_separated_from_what_is_left() -> None:
    measured = a_grid()
    rest = np.random.default_rng(0).normal(0, 0.3, measured.shape)
    centre, pixel = measured.mean(0), np.array(PIXEL)
    lengths = (measured - centre) * pixel
    # Without what a linear map or a shift could explain.
    rest -= rest.mean(0)
    rest -= (lengths @ np.linalg.lstsq(lengths, rest * pixel, rcond=None)[0]) / pixel
    refined = (lengths @ affine_matrix(**PARTS).T) / pixel + centre + rest + (7.0, -3.0)
    found = moved_positions(measured, refined, PIXEL)
    assert found.affine == pytest.approx(PARTS, abs=1e-9)
    np.testing.assert_allclose(found.residual, rest * pixel, atol=1e-16)
    lengths = np.hypot(*(rest * pixel).T)
    assert found.residual_rms == pytest.approx(np.sqrt((lengths**2).mean()))
    assert found.residual_largest == pytest.approx(lengths.max())
    assert found.rms > 3 * found.residual_rms
    np.testing.assert_allclose(found.moves.mean(0), 0, atol=1e-22)  # the shift is the object's
    np.testing.assert_allclose(found.arrows(1.0), refined - (7.0, -3.0), atol=1e-9)
    np.testing.assert_allclose(found.arrows(50.0, affine=False), measured + 50 * rest, atol=1e-9)


@pytest.mark.parametrize(("length", "factor"), [(0.1, 50), (0.4, 20), (4.0, 2), (30.0, 1)])
def test_arrows_are_as_long_as_is_legible(length: float, factor: float) -> None:
    measured = a_grid()
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, len(measured))
    refined = measured + length * np.stack([np.sin(angles), np.cos(angles)], 1)
    assert moved_positions(measured, refined).exaggeration() == factor


def test_positions_that_were_not_refined_or_lie_on_a_line_have_no_map() -> None:
    measured = a_grid()
    still = moved_positions(measured, measured + 5)
    assert (still.rms, still.largest, still.exaggeration()) == pytest.approx((0, 0, 1))
    np.testing.assert_allclose(still.matrix, np.eye(2), atol=1e-12)
    row = measured[:9]
    stretched = moved_positions(row, row * (1, 1.02))
    np.testing.assert_allclose(stretched.matrix, [[1, 0], [0, 1.02]], atol=1e-9)
    assert stretched.residual_largest < 1e-9
    assert moved_positions(measured[:0], measured[:0]).rms == 0
    assert moved_positions(measured[:1], measured[:1] + 3).largest == 0


def test_a_result_has_the_positions_that_it_began_with() -> None:
    moved = result()
    found = position_refinement(moved)
    np.testing.assert_array_equal(found.measured, moved.parameters["positions/start"])
    moves = (moved.positions - found.measured) * moved.pixel_size
    moves -= moves.mean(0)
    assert found.largest == pytest.approx(np.hypot(*moves.T).max())
    assert found.length_text(found.rms) in repr(found)
    assert repr(found).count("nm") == 3
    assert position_refinement(dataclasses.replace(moved, parameters={})).largest == 0
    unknown = position_refinement(dataclasses.replace(moved, pixel_size=None))
    assert unknown.rms == pytest.approx(found.rms / 20e-9)
    assert "pixels" in repr(unknown)
    with raises("array.shape-mismatch", "(50, 2)", "(49, 2)"):
        moved_positions(moved.positions, moved.positions[:-1])
