"""The probe of a round aperture and a lens with aberrations."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptynb.data.optics.aberrations import Aberrations, aberration_phase, krivanek_aberrations
from ptynb.data.optics.pupil import (
    check_finite,
    check_grid,
    check_not_negative,
    check_pupil,
    disc,
    frequencies,
    probe_from_pupil,
    steps_of,
)
from ptynb.exceptions import InvalidValueError, check_positive


def electron_probe(
    window: tuple[int, int],
    pixel: tuple[float, float],
    wavelength: float,
    convergence_angle: float,
    aberrations: Aberrations | None = None,
    *,
    edge: float = 0.0,
) -> NDArray[np.complex128]:
    """Return the probe of a round aperture and a lens with aberrations: F⁻¹[A exp(-iχ)].

    Parameters
    ----------
    window : tuple of int
        Pixels (y, x) of the probe.
    pixel : tuple of float
        Pixel size (y, x) of the object [m].
    wavelength : float
        Wavelength [m]; for electrons see `ptynb.electrons`.
    convergence_angle : float
        Convergence semi-angle [rad].
    aberrations : mapping, optional
        Aberrations by name, see `ptynb.data.optics.aberrations`. {"C10": z} is a sample at the distance z downstream of
        the focus; z = -Δf for a defocus Δf that is positive for underfocus.
    edge : float
        Width [rad] of the aperture's edge, over which the amplitude falls to 0; at least a step of the grid.

    Returns
    -------
    ndarray
        Probe (y, x), complex128.

    Raises
    ------
    InvalidValueError
        A value is out of range ("argument.invalid-value"), or the probe needs a larger window
        ("probe.window-too-small") or smaller pixels ("probe.pixels-too-large").

    References
    ----------
    Kirkland, Advanced Computing in Electron Microscopy (2020), 3.4.
    """
    check_grid(window, pixel, wavelength)
    check_positive(convergence_angle, "convergence angle", "rad")
    check_not_negative(edge, "width of the aperture's edge", "rad")
    y, x = frequencies(window, pixel)
    reach, softness = convergence_angle / wavelength, edge / wavelength
    check_pupil(window, pixel, wavelength, (reach, reach), softness)
    aperture = disc(y, x, reach, steps_of(window, pixel), softness)
    phase = aberration_phase(wavelength * y, wavelength * x, wavelength, aberrations or {})
    return probe_from_pupil(aperture, phase, "aberrations")


def lens_aberrations(defocus: float = 0.0, aberrations: Aberrations | None = None) -> dict[str, float | list[float]]:
    """Return aberrations by Krivanek's names as plain numbers, with the defocus as C10.

    defocus: [m], positive for a sample downstream of the focus; 0 leaves C10 to the aberrations. A round aberration is
    a number [m], another one [magnitude [m], azimuth [rad]].

    Raises InvalidValueError as `krivanek_aberrations` does, and if the defocus is given twice.
    """
    check_finite(defocus, "defocus", "m")
    known = krivanek_aberrations(aberrations or {})
    if defocus and "C10" in known:
        raise InvalidValueError(
            f"defocus is {defocus!r} m and the aberrations have C10 = {known['C10'][0]!r} m, which is the same; give "
            "one of them.",
            code="argument.conflict",
            fields=("defocus", "aberrations"),
        )
    if defocus:
        known["C10"] = (defocus, 0.0)
    return {name: pair[0] if name.endswith("0") else [*pair] for name, pair in known.items()}
