"""Tilted geometry: a flat sample at any angle to the beam and to the detector, as in Bragg and reflection geometry.

All vectors are (3,) in one frame of the laboratory, whichever; r = 0 is where the beam meets the sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.data.geometry import energy_from_wavelength
from ptynb.exceptions import InvalidValueError

Reals = NDArray[np.float64]
Vector = tuple[float, float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Tilted:
    """Where beam, sample and detector are.

    wavelength: [m].
    sample_basis: (3, 2) [m], one object pixel along y and along x; `conjugate_basis` makes the one of a detector.
    detector_basis: (3, 2) [m], one detector pixel along y and along x.
    detector_centre: (3,) [m], from the sample to the detector's pixel n // 2, that of zero frequency in FFT order.
    beam: (3,), unit vector, where the incoming beam goes.
    outgoing: (3,), unit vector, where a flat object sends it (mirrored, diffracted, or straight on); None: to
        `detector_centre`.

    Raises ValueError for vectors that span no plane, are no unit vectors, or lie in the sample's plane.
    """

    wavelength: float
    sample_basis: NDArray[np.float64]
    detector_basis: NDArray[np.float64]
    detector_centre: NDArray[np.float64]
    beam: NDArray[np.float64]
    outgoing: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.wavelength) and self.wavelength > 0):
            raise InvalidValueError(
                f"The wavelength is {self.wavelength!r} m; it has to be a positive, finite number.",
                code="argument.invalid-value",
            )
        for name in ("sample_basis", "detector_basis"):
            object.__setattr__(self, name, basis_of(getattr(self, name), name))
        centre = vector_of(self.detector_centre, "detector_centre")
        if not np.linalg.norm(centre) > 0:
            raise InvalidValueError(
                "detector_centre is (0, 0, 0), in the sample; give the vector from it to the detector [m].",
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
                    f"{name} lies in the sample's plane; turn one of them, or mend sample_basis.",
                    code="geometry.degenerate",
                )
            object.__setattr__(self, name, vector / np.linalg.norm(vector))

    @property
    def reference(self) -> Reals:
        """`outgoing`, given or not."""
        assert self.outgoing is not None
        return self.outgoing


def conjugate_basis(
    window: tuple[int, int],
    wavelength: float,
    detector_basis: ArrayLike,
    detector_centre: ArrayLike,
    normal: ArrayLike,
) -> Reals:
    """The sample's basis (3, 2) [m] in the plane of this normal (3,) whose frequencies are the detector's pixels.

    About the centre, one pixel on is one cycle per window more: n_a A_a·∂u/∂p_b = λ δ_ab. Where sample and detector
    face each other this is λ z / (n p); an inclined sample's pixels are longer by the foreshortening.

    Raises ValueError where the detector is seen edge on, or along the sample's plane.
    """
    centre = vector_of(detector_centre, "detector_centre")
    distance = float(np.linalg.norm(centre))
    towards = centre / distance
    steps = steps_of(basis_of(detector_basis, "detector_basis"), towards) / distance
    plane = np.linalg.svd(vector_of(normal, "normal")[None])[2][1:].T
    seen = steps.T @ plane
    if np.linalg.cond(seen) > 1e6:
        raise InvalidValueError(
            "The detector is seen edge on, or along the sample's plane; mend its basis or the normal.",
            code="geometry.degenerate",
        )
    basis: Reals = plane @ np.linalg.solve(seen, np.diag(wavelength / np.array(window)))
    return basis


def mirror_normal(beam: ArrayLike, outgoing: ArrayLike) -> Reals:
    """Unit normal (3,) of the plane that reflects `beam` (3,) into `outgoing` (3,), on the side of the reflected beam.

    Raises ValueError where both have one direction.
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
    """A far-field measurement with tilted planes: what turns metres into object pixels.

    wavelength: of the beam [m].
    detector_steps: one detector pixel along y and along x, two vectors [m].
    detector_centre: vector from the sample to the detector's pixel n // 2 [m].
    beam: unit vector, where the incoming beam goes.
    sample_normal: of the sample's plane; None: that of the mirror that sends the beam to `detector_centre`.

    The object's pixels are those whose frequencies are the detector's pixels; the probe is what shines on the sample's
    plane, seen in its pixels. Where positions have a part across the plane, the probe's further way along the beam is
    neglected: that holds for ways short of its depth of focus.
    """

    wavelength: float
    detector_steps: tuple[Vector, Vector]
    detector_centre: Vector
    beam: Vector
    sample_normal: Vector | None = None

    def __post_init__(self) -> None:
        self.planes((16, 16))

    def planes(self, window: tuple[int, int]) -> Tilted:
        """Sample and detector for patterns of `window` pixels."""
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
        """Length of an object pixel along its (y, x) [m] for patterns of `window` pixels."""
        height, width = np.linalg.norm(self.planes(window).sample_basis, axis=0)
        return float(height), float(width)

    @property
    def energy(self) -> float:
        """Photon energy [eV]."""
        return energy_from_wavelength(self.wavelength)


def positions_on_sample(geometry: Tilted, positions: ArrayLike) -> tuple[Reals, Reals]:
    """Where the probe is on the sample, (pattern, yx) [object pixels], and how far it went to there, (pattern,) [m].

    positions: (pattern, 3) [m], where the probe's middle is in the sample's frame (minus the sample's own movement). A
    beam through r meets the sample at A m = r + z b; so the probe on the sample moves by m pixels, and `tilted_kernel`
    carries it on by z. A scan within the sample's plane has z = 0.

    Raises ValueError where positions are not (pattern, 3).
    """
    places = np.asarray(positions, dtype=np.float64)
    if places.ndim != 2 or places.shape[1] != 3:
        raise InvalidValueError(
            f"Positions have the shape {places.shape}; give (pattern, 3) [m] in the laboratory's frame.",
            code="array.shape-mismatch",
        )
    plane_and_beam = np.column_stack([geometry.sample_basis, -geometry.beam])
    solved: Reals = np.asarray(np.linalg.solve(plane_and_beam, places.T), dtype=np.float64)
    return solved[:2].T, solved[2]


def steps_of(basis: Reals, direction: Reals) -> Reals:
    """What a detector's steps (3, 2) add across a direction (3,)."""
    return basis - np.outer(direction, direction @ basis)


def cross_of(basis: Reals) -> Reals:
    """Cross product (3,) of the two columns of a basis (3, 2)."""
    return np.cross(basis[:, 0], basis[:, 1])


def normal_of(basis: Reals, side: Reals | None = None) -> Reals:
    """Unit normal of the plane, on the side to which `side` points."""
    normal = cross_of(basis) / np.linalg.norm(cross_of(basis))
    return -normal if side is not None and side @ normal < 0 else normal


def vector_of(values: Any, name: str) -> Reals:
    """Three finite numbers. Raises ValueError for anything else."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (3,) or not np.isfinite(vector).all():
        raise InvalidValueError(f"{name} is {values!r}; give three finite numbers.", code="array.shape-mismatch")
    return vector


def basis_of(values: Any, name: str) -> Reals:
    """A basis (3, 2) of a plane. Raises ValueError for anything else."""
    basis = np.asarray(values, dtype=np.float64)
    if basis.shape != (3, 2) or not np.isfinite(basis).all():
        raise InvalidValueError(
            f"{name} has the shape {basis.shape}; give (3, 2) finite numbers [m], columns y and x.",
            code="array.shape-mismatch",
        )
    lengths = np.linalg.norm(basis, axis=0)
    if not np.linalg.norm(cross_of(basis)) > 1e-6 * lengths.prod():
        raise InvalidValueError(
            f"The columns of {name} span no plane; give the step along y and the step along x [m].",
            code="geometry.degenerate",
        )
    return basis
