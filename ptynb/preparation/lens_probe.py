"""The probe of a lens as a step of preparation."""

from __future__ import annotations

from ptynb.data.optics.aberrations import Aberrations
from ptynb.data.scan import Scan
from ptynb.preparation.recorded_steps import recorded


@recorded
def lens_probe(
    scan: Scan, convergence_angle: float, *, defocus: float = 0.0, aberrations: Aberrations | None = None
) -> Scan:
    """Begin with the probe of a round aperture and a lens, as `Scan.with_probe`.

    Parameters
    ----------
    scan : Scan
        Scan, which does not change.
    convergence_angle : float
        Convergence semi-angle [rad].
    defocus : float, default 0
        Distance from the focus to the sample [m], positive downstream: the aberration C10.
    aberrations : mapping, optional
        Further aberrations, {"C12": (magnitude [m], azimuth [rad]), "C30": Cs}, in the axes of the detector.

    Returns
    -------
    Scan
        The new scan.

    Raises
    ------
    InvalidValueError, ScanError
        As raised by `Scan.with_probe`.
    """
    return scan.with_probe(convergence_angle=convergence_angle, defocus=defocus, aberrations=aberrations)
