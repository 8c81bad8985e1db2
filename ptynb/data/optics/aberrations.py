"""Lens aberrations: the deviation of the wave in the pupil from a sphere around the focus.

    χ(α, φ) = (2π / λ) Σ_nm C_nm α^(n+1) / (n+1) cos(m (φ - φ_nm))        [rad]

with α the angle to the axis and φ the azimuth in the pupil, from x (φ = 0) to y (φ = π/2; y is down, so φ turns
clockwise on the screen). The lens multiplies the wave in the pupil by exp(-iχ). Krivanek, Dellby and Lupini,
Ultramicroscopy 78, 1 (1999), whose C_nma and C_nmb are C_nm cos(m φ_nm) and C_nm sin(m φ_nm).

Signs. In the convention of waves exp(+2πi k·r) (see `ptynb/conventions.md`) the ray of angle α arrives at the position
(λ / 2π) dχ/dα. So C10 > 0 is a sample downstream of the focus, by C10 (overfocus), as a step of free space is positive
downstream; and C10 = -Δf, where Δf is the microscopist's defocus, which is positive for underfocus. C30 > 0 is the
spherical aberration of a round lens, which underfocus balances.

Haider's names denote the same terms with other factors, since there

    χ = (2π / λ) Re{½ ωω̄ C1 + ½ ω̄² A1 + ω²ω̄ B2 + ⅓ ω̄³ A2 + ¼ (ωω̄)² C3 + ω³ω̄ S3 + ¼ ω̄⁴ A3 + ω³ω̄² B4 + ω⁴ω̄ D4
                    + ⅕ ω̄⁵ A4 + ⅙ (ωω̄)³ C5 + ω⁴ω̄² S5 + ω⁵ω̄ R5 + ⅙ ω̄⁶ A5},        ω = α exp(iφ)

(Uhlemann and Haider, Ultramicroscopy 72, 109 (1998); Haider, Uhlemann and Zach, Ultramicroscopy 81, 163 (2000)); so
C21 = 3 B2, C32 = 4 S3, C41 = 5 B4, C43 = 5 D4, C52 = 6 S5, C54 = 6 R5 (also called D5), and the others are equal. These
coefficients are complex there. Here each has a magnitude and an azimuth, the rotation of the figure, the same φ_nm in
both families: the argument is m φ_nm for A1 to A5, and -m φ_nm for B2, S3, B4, D4, S5 and R5, where ω has the larger
power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptynb.exceptions import InvalidValueError, check_positive

Aberrations: TypeAlias = Mapping[str, float | Sequence[float]]
"""Aberrations by Krivanek's or Haider's names: (magnitude [m], azimuth [rad]), or the magnitude alone for azimuth 0."""

_FAMILIES = (
    ("C10", "C1", 1),
    ("C12", "A1", 1),
    ("C21", "B2", 3),
    ("C23", "A2", 1),
    ("C30", "C3", 1),
    ("C32", "S3", 4),
    ("C34", "A3", 1),
    ("C41", "B4", 5),
    ("C43", "D4", 5),
    ("C45", "A4", 1),
    ("C50", "C5", 1),
    ("C52", "S5", 6),
    ("C54", "R5", 6),
    ("C56", "A5", 1),
)
"""Krivanek's name, Haider's name, and the ratio of Krivanek's to Haider's coefficient."""

_KRIVANEK = {name: (krivanek, factor) for krivanek, name, factor in _FAMILIES}
_KRIVANEK |= {"D5": _KRIVANEK["R5"]} | {krivanek: (krivanek, 1) for krivanek, _, _ in _FAMILIES}
_HAIDER = {krivanek: name for krivanek, name, _ in _FAMILIES}


def aberrations_up_to(order: int) -> tuple[str, ...]:
    """Return Krivanek's names of the aberrations up to an order, 1 to 5: C10, C12, C21, C23, C30, …."""
    return tuple(name for name, _, _ in _FAMILIES if int(name[1]) <= order)


def krivanek_aberrations(aberrations: Aberrations) -> dict[str, tuple[float, float]]:
    """Convert aberrations to Krivanek's names (C10, C12, …, C56), each with magnitude [m] and azimuth [rad].

    Raises ValueError for an unknown name, an aberration given twice (as C12 and A1), values that are not finite, or
    an azimuth of a round aberration.
    """
    converted: dict[str, tuple[float, float]] = {}
    for name, value in aberrations.items():
        if name not in _KRIVANEK:
            known = ", ".join(f"{krivanek} ({haider})" for krivanek, haider, _ in _FAMILIES)
            raise InvalidValueError(
                f"There is no aberration {name!r}; expected one of {known}; give a defocus as C10, which is positive "
                "for a sample downstream of the focus.",
                code="argument.invalid-value",
            )
        krivanek, factor = _KRIVANEK[name]
        if krivanek in converted:
            raise InvalidValueError(
                f"The aberration {krivanek} ({_HAIDER[krivanek]}) is given twice; use one of the two names.",
                code="argument.conflict",
            )
        try:
            magnitude, azimuth = value if isinstance(value, tuple | list) else (value, 0.0)
            usable = math.isfinite(magnitude) and math.isfinite(azimuth)
        except (TypeError, ValueError):
            usable = False
        if not usable:
            raise InvalidValueError(
                f"The aberration {name} is {value!r}; expected a finite magnitude [m], or (magnitude [m], azimuth "
                "[rad]).",
                code="argument.invalid-value",
            )
        if krivanek.endswith("0") and azimuth != 0:
            raise InvalidValueError(
                f"The aberration {name} is rotationally symmetric and has the azimuth {azimuth!r} rad; give its "
                "magnitude alone.",
                code="argument.invalid-value",
            )
        converted[krivanek] = (factor * magnitude, azimuth)
    return converted


def aberration_phase(
    angles_y: ArrayLike, angles_x: ArrayLike, wavelength: float, aberrations: Aberrations
) -> NDArray[np.float64]:
    """Return χ [rad] at angles (y, x) [rad] of the pupil, which broadcast; the wave there is multiplied by exp(-iχ).

    An angle is λ times a spatial frequency, as usual: of free-space propagation, C10 is then the paraxial part.

    wavelength: [m]. aberrations: see `Aberrations`.

    Raises ValueError as `krivanek_aberrations` does, and for a wavelength that is not positive.
    """
    check_positive(wavelength, "wavelength", "m")
    y, x = np.broadcast_arrays(np.asarray(angles_y, np.float64), np.asarray(angles_x, np.float64))
    angle, square = x + 1j * y, y**2 + x**2
    path = np.zeros_like(square)
    for name, (magnitude, azimuth) in krivanek_aberrations(aberrations).items():
        order, fold = int(name[1]), int(name[2])
        # α^(n+1) cos(m (φ - φ_nm)) without an arctangent: n + 1 - m is even.
        figure = (angle**fold * np.exp(-1j * fold * azimuth)).real
        path += magnitude / (order + 1) * square ** ((order + 1 - fold) // 2) * figure
    return 2 * np.pi / wavelength * path
