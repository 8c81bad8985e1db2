"""What a reconstruction has changed in the positions: lengths, the affine part, and what is left without it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from ptynb.data.cut_pictures import length_text
from ptynb.data.result import Result
from ptynb.exceptions import InvalidValueError

FACTORS = tuple(base * 10**power for power in range(8) for base in (1, 2, 5))
ROUNDING = 1e-9
"""Moves below it are rounding errors [object pixels]."""
ARROWS = 0.9
"""Length of long arrows (95th percentile) relative to the distance of neighbours, at most."""


@dataclass(frozen=True, eq=False)
class PositionRefinement:
    """The measured positions of a scan and the refined ones.

    A common shift is that of the object, and not part of `moves`. The affine part is the linear map that is nearest to
    the moves, about the centre of the scan: errors of the scan's scale, rotation and angle, which all positions share.

    Parameters
    ----------
    measured, refined : ndarray
        float64 (pattern, yx): positions before and after the refinement [object pixels].
    pixel_size : tuple of float or None
        Size (y, x) of an object pixel [m]; None: lengths are in object pixels.
    moves : ndarray
        float64 (pattern, yx): refined minus measured positions, without their mean [m, or object pixels].
    matrix : ndarray
        float64 (yx, yx): the linear map of lengths, the identity for none.
    residual : ndarray
        float64 (pattern, yx): `moves` without the affine part.
    """

    measured: NDArray[np.float64]
    refined: NDArray[np.float64]
    pixel_size: tuple[float, float] | None
    moves: NDArray[np.float64]
    matrix: NDArray[np.float64]
    residual: NDArray[np.float64]

    @property
    def rms(self) -> float:
        """Root-mean-square length of the moves [m, or object pixels]."""
        return _rms(self.moves)

    @property
    def largest(self) -> float:
        """Length of the longest move [m, or object pixels]."""
        return _largest(self.moves)

    @property
    def residual_rms(self) -> float:
        """Root-mean-square length of the moves without their affine part [m, or object pixels]."""
        return _rms(self.residual)

    @property
    def residual_largest(self) -> float:
        """Length of the longest move without its affine part [m, or object pixels]."""
        return _largest(self.residual)

    @property
    def affine(self) -> dict[str, float]:
        """The affine part as arguments of `ptynb.preparation.affine_matrix`, with angles in rad."""
        determinant = float(np.linalg.det(self.matrix))
        if determinant <= 0:
            return dict.fromkeys(("scale", "asymmetry", "rotation", "shear"), math.nan)
        (_, above), (below, last) = self.matrix.tolist()
        rotation = math.asin(max(-1.0, min(1.0, 2 * above * last / determinant))) / 2
        across = last / math.cos(rotation)
        down = determinant / across
        shear = math.atan((below + across * math.sin(rotation)) / last)
        return {
            "scale": (down + across) / 2,
            "asymmetry": 2 * (down - across) / (down + across),
            "rotation": rotation,
            "shear": shear,
        }

    def exaggeration(self, *, affine: bool = True) -> float:
        """Return a factor 1, 2, 5, 10, ... by which the moves are legible as arrows.

        Parameters
        ----------
        affine : bool
            Whether the arrows contain the affine part.

        Returns
        -------
        float
            The largest factor for which 95% of the arrows are shorter than the distance of neighbouring positions.
        """
        lengths = np.hypot(*(self.moves if affine else self.residual).T)
        long = float(np.percentile(lengths, 95)) if len(lengths) else 0.0
        places = self.measured * _pixel(self.pixel_size)
        if len(places) < 2 or long <= 0:
            return 1.0
        distance = float(np.median(cKDTree(places).query(places, k=2)[0][:, 1]))
        fitting = [factor for factor in FACTORS if factor * long <= ARROWS * distance]
        return float(fitting[-1]) if fitting else 1.0

    def arrows(self, factor: float | None = None, *, affine: bool = True) -> NDArray[np.float64]:
        """Return the ends of arrows from the measured positions.

        Parameters
        ----------
        factor : float, optional
            Factor by which the arrows are longer than the moves. None: `exaggeration`.
        affine : bool
            Whether they contain the affine part.

        Returns
        -------
        ndarray of float64
            Ends (pattern, yx) [object pixels].
        """
        factor = self.exaggeration(affine=affine) if factor is None else factor
        moves = (self.moves if affine else self.residual) / _pixel(self.pixel_size)
        return self.measured + factor * moves

    def length_text(self, length: float) -> str:
        """Return a length of the moves with its unit.

        Parameters
        ----------
        length : float
            Length [m, or object pixels].

        Returns
        -------
        str
            Such as "2.5 nm".
        """
        return f"{length:.3g} pixels" if self.pixel_size is None else length_text(length)

    def __repr__(self) -> str:
        rms, largest, residual = map(self.length_text, (self.rms, self.largest, self.residual_rms))
        return (
            f"<PositionRefinement: {len(self.moves)} positions moved by {rms} rms, at most {largest}; without scale, "
            f"rotation and shear {residual} rms>"
        )


def position_refinement(result: Result) -> PositionRefinement:
    """Compare the positions of a result with those that the refinement began with.

    Parameters
    ----------
    result : Result
        Result of a reconstruction. If its positions were not refined, all moves are 0.

    Returns
    -------
    PositionRefinement
        Positions, moves, their affine part and the residual.
    """
    start = result.parameters.get("positions/start")
    return moved_positions(result.positions if start is None else start, result.positions, result.pixel_size)


def moved_positions(
    measured: ArrayLike, refined: ArrayLike, pixel_size: tuple[float, float] | None = None
) -> PositionRefinement:
    """Compare refined positions with measured ones, both (pattern, yx) [object pixels], as `position_refinement`.

    Raises InvalidValueError if their shapes differ.
    """
    before, after = (np.asarray(places, dtype=np.float64) for places in (measured, refined))
    if before.shape != after.shape or before.ndim != 2 or before.shape[1] != 2:
        raise InvalidValueError(
            f"The positions have shapes {before.shape} and {after.shape}; expected (pattern, 2) for both.",
            code="array.shape-mismatch",
        )
    pixel = _pixel(pixel_size)
    moves = (after - before) * pixel
    places = before * pixel
    if len(before):
        moves, places = moves - moves.mean(0), places - places.mean(0)
        moves[np.abs(moves) < ROUNDING * pixel] = 0
    # Scaled, so that directions in which the scan has no extent are recognised as such, and stay as they are.
    extent = float(np.abs(places).max(initial=0.0)) or 1.0
    linear: NDArray[np.float64] = np.zeros((2, 2))
    if len(before) and np.isfinite(moves).all() and np.isfinite(places).all():
        linear = np.linalg.lstsq(places / extent, moves / extent, rcond=1e-6)[0].T.astype(np.float64)
    return PositionRefinement(before, after, pixel_size, moves, np.eye(2) + linear, moves - places @ linear.T)


def _pixel(pixel_size: tuple[float, float] | None) -> NDArray[np.float64]:
    return np.array((1.0, 1.0) if pixel_size is None else pixel_size)


def _rms(moves: NDArray[np.float64]) -> float:
    return float(np.sqrt((moves**2).sum(1).mean())) if len(moves) else 0.0


def _largest(moves: NDArray[np.float64]) -> float:
    return float(np.hypot(*moves.T).max(initial=0.0))
