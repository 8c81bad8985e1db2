"""Tilted geometry: a flat sample at any angle to the beam and to the detector, as in Bragg and reflection geometry.

All vectors are (3,) in one frame of the laboratory; the origin is the point where the beam meets the sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import energy_from_wavelength
from ptynb.exceptions import InvalidValueError, check_positive

Reals = NDArray[np.float64]
Vector = tuple[float, float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Tilted:
    """Sample and detector planes of a tilted geometry.

    wavelength: [m]. sample_basis: (3, 2) [m], one object pixel along y and along x, from `conjugate_basis`.
    detector_basis: (3, 2) [m], one detector pixel along y and along x. detector_centre: (3,) [m], from the sample to
    pixel n // 2 of the detector, that of zero frequency in FFT order. beam: (3,), unit vector of the incoming beam.
    outgoing: (3,), unit vector of the beam behind a flat object (mirrored, diffracted or transmitted); None: towards
    `detector_centre`.

    Raises InvalidValueError for vectors that do not span a plane, are not unit vectors, or lie in the sample plane.
    """

    wavelength: float
    sample_basis: NDArray[np.float64]
    detector_basis: NDArray[np.float64]
    detector_centre: NDArray[np.float64]
    beam: NDArray[np.float64]
    outgoing: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        check_positive(self.wavelength, "wavelength", "m")
        for name in ("sample_basis", "detector_basis"):
            object.__setattr__(self, name, basis_of(getattr(self, name), name))
        centre = vector_of(self.detector_centre, "detector_centre")
        if not np.linalg.norm(centre) > 0:
            raise InvalidValueError(
                "detector_centre is (0, 0, 0); give the vector from the sample to the detector [m].",
                code="geometry.degenerate",
            )
        object.__setattr__(self, "detector_centre", centre)
        outgoing = centre / np.linalg.norm(centre) if self.outgoing is None else self.outgoing
        normal = normal_of(self.sample_basis)
        for name, direction in (("beam", self.beam), ("outgoing", outgoing)):
            vector = vector_of(direction, name)
            if abs(np.linalg.norm(vector) - 1) > 1e-6:
                raise InvalidValueError(
                    f"{name} is a vector of length {np.linalg.norm(vector):.6g}; give a unit vector.",
                    code="argument.invalid-value",
                )
            if abs(vector @ normal) < 1e-6:
                raise InvalidValueError(
                    f"{name} lies in the sample plane; change it or sample_basis.",
                    code="geometry.degenerate",
                )
            object.__setattr__(self, name, vector / np.linalg.norm(vector))

    @property
    def reference(self) -> Reals:
        """`outgoing`, or its default."""
        assert self.outgoing is not None
        return self.outgoing


def conjugate_basis(
    window: tuple[int, int],
    wavelength: float,
    detector_basis: ArrayLike,
    detector_centre: ArrayLike,
    normal: ArrayLike,
) -> Reals:
    """Return the basis (3, 2) [m] of a sample plane, by its normal (3,): its frequencies are the detector pixels.

    One detector pixel is one cycle per window about the centre: n_a A_a·∂u/∂p_b = λ δ_ab. If sample and detector face
    each other this is λ z / (n p); the pixels of an inclined sample are longer by the foreshortening.

    Raises InvalidValueError if the detector is seen edge on, or along the sample plane.
    """
    centre = vector_of(detector_centre, "detector_centre")
    distance = float(np.linalg.norm(centre))
    towards = centre / distance
    steps = steps_of(basis_of(detector_basis, "detector_basis"), towards) / distance
    plane = np.linalg.svd(vector_of(normal, "normal")[None])[2][1:].T
    seen = steps.T @ plane
    if np.linalg.cond(seen) > 1e6:
        raise InvalidValueError(
            "The detector is seen edge on, or along the sample plane; change its basis or the normal.",
            code="geometry.degenerate",
        )
    return plane @ np.linalg.solve(seen, np.diag(wavelength / np.array(window)))


def mirror_normal(beam: ArrayLike, outgoing: ArrayLike) -> Reals:
    """Return the unit normal (3,) of the plane that reflects `beam` (3,) into `outgoing` (3,), towards the latter.

    Raises InvalidValueError if both are parallel.
    """
    difference = vector_of(outgoing, "outgoing") - vector_of(beam, "beam")
    length = float(np.linalg.norm(difference))
    if length < 1e-9:
        raise InvalidValueError(
            "beam and outgoing are parallel, which no mirror reflects; give the normal of the sample (sample_normal).",
            code="geometry.degenerate",
        )
    return difference / length


@dataclass(frozen=True, kw_only=True)
class TiltedGeometry:
    """Geometry of a far-field measurement with tilted planes.

    Object pixels are those whose frequencies are the detector pixels. The probe is the illumination of the sample plane
    in these pixels. Position components across the plane move the probe along the beam, which is neglected: this is
    valid within its depth of focus.

    Parameters
    ----------
    wavelength : float
        Wavelength of the beam [m].
    detector_steps : ((float, float, float), (float, float, float))
        Vectors of one detector pixel along y and along x [m].
    detector_centre : (float, float, float)
        Vector from the sample to pixel n // 2 of the detector [m].
    beam : (float, float, float)
        Unit vector of the incoming beam.
    sample_normal : (float, float, float), optional
        Normal of the sample plane; by default that of the mirror that reflects the beam to `detector_centre`.
    """

    wavelength: float
    detector_steps: tuple[Vector, Vector]
    detector_centre: Vector
    beam: Vector
    sample_normal: Vector | None = None

    def __post_init__(self) -> None:
        self.planes((16, 16))

    def planes(self, window: tuple[int, int]) -> Tilted:
        """Return the planes of sample and detector.

        Parameters
        ----------
        window : (int, int)
            Size (y, x) of the patterns [pixels].

        Returns
        -------
        Tilted
            Bases and directions.
        """
        centre = vector_of(self.detector_centre, "detector_centre")
        towards = centre / max(float(np.linalg.norm(centre)), 1e-300)
        normal = mirror_normal(self.beam, towards) if self.sample_normal is None else self.sample_normal
        detector = np.array(self.detector_steps, dtype=np.float64).T
        return Tilted(
            wavelength=self.wavelength,
            sample_basis=conjugate_basis(window, self.wavelength, detector, centre, normal),
            detector_basis=detector,
            detector_centre=centre,
            beam=np.array(self.beam, dtype=np.float64),
        )

    def object_pixel(self, window: tuple[int, int]) -> tuple[float, float]:
        """Return the size of an object pixel along its axes.

        Parameters
        ----------
        window : (int, int)
            Size (y, x) of the patterns [pixels].

        Returns
        -------
        (float, float)
            Size (y, x) [m].
        """
        height, width = np.linalg.norm(self.planes(window).sample_basis, axis=0)
        return float(height), float(width)

    @property
    def energy(self) -> float:
        """Photon energy [eV]."""
        return energy_from_wavelength(self.wavelength)


def positions_on_sample(geometry: Tilted, positions: ArrayLike) -> tuple[Reals, Reals]:
    """Return positions on the sample (pattern, yx) [object pixels], and paths along the beam (pattern,) [m].

    positions: (pattern, 3) [m], of the probe centre relative to the sample (minus the movement of the sample). A beam
    through r meets the sample at A m = r + z b; so the probe moves by m pixels, and `tilted_kernel` propagates it by z.
    A scan within the sample plane has z = 0.

    Raises InvalidValueError if positions are not (pattern, 3).
    """
    places = np.asarray(positions, dtype=np.float64)
    if places.ndim != 2 or places.shape[1] != 3:
        raise InvalidValueError(
            f"positions has shape {places.shape}; give (pattern, 3) [m] in the frame of the laboratory.",
            code="array.shape-mismatch",
        )
    plane_and_beam = np.column_stack([geometry.sample_basis, -geometry.beam])
    solved: Reals = np.asarray(np.linalg.solve(plane_and_beam, places.T), dtype=np.float64)
    return solved[:2].T, solved[2]


def steps_of(basis: Reals, direction: Reals) -> Reals:
    """Return the components of the detector's steps (3, 2) across a direction (3,)."""
    return basis - np.outer(direction, direction @ basis)


def cross_of(basis: Reals) -> Reals:
    """Return the cross product (3,) of the two columns of a basis (3, 2)."""
    return np.cross(basis[:, 0], basis[:, 1])


def normal_of(basis: Reals, side: Reals | None = None) -> Reals:
    """Return the unit normal of the plane, on the side of `side`."""
    normal = cross_of(basis) / np.linalg.norm(cross_of(basis))
    return -normal if side is not None and side @ normal < 0 else normal


def vector_of(values: Any, name: str) -> Reals:
    """Return three finite numbers; raises InvalidValueError for anything else."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise InvalidValueError(f"{name} is {values!r}; give three finite numbers.", code="array.shape-mismatch")
    return vector


def basis_of(values: Any, name: str) -> Reals:
    """Return a basis (3, 2) of a plane; raises InvalidValueError for anything else."""
    basis = np.asarray(values, dtype=np.float64)
    if basis.shape != (3, 2) or not np.isfinite(basis).all():
        raise InvalidValueError(
            f"{name} has shape {basis.shape}; give (3, 2) finite numbers [m], columns y and x.",
            code="array.shape-mismatch",
        )
    lengths = np.linalg.norm(basis, axis=0)
    if not np.linalg.norm(cross_of(basis)) > 1e-6 * lengths.prod():
        raise InvalidValueError(
            f"The columns of {name} are parallel; give the step along y and the step along x [m].",
            code="geometry.degenerate",
        )
    return basis
