"""What is typed into the fields of a plan, as values and as Python."""

from __future__ import annotations

import math

from ptynb.data.geometry import Geometry, NearField
from ptynb.exceptions import InvalidValueError, ScanError
from ptynb.settings.load_options import LoadOptions
from ptynb.widgets.load.load_fields import title_of
from ptynb.widgets.option_fields import SEPARATORS


def whole_numbers(text: str, count: int, title: str) -> tuple[int, ...]:
    """Return whole numbers in a text; a single one stands for both of a pair."""
    parts = SEPARATORS.split(text)
    parts = parts * count if len(parts) == 1 else parts
    if len(parts) != count or not all(part.isdecimal() for part in parts):
        raise InvalidValueError(
            f"{title} is {text!r:.50}; expected {'a whole number' if count == 1 else 'two whole numbers (y, x)'}.",
            code="argument.invalid-value",
        )
    return tuple(int(part) for part in parts)


def reading_line(path: str) -> str:
    """Return Python that reads an array as `read_array` does."""
    if path.endswith(".npy"):
        return f"np.load({path!r})"
    return f"np.loadtxt({path!r}{', delimiter=' + repr(',') if path.endswith('.csv') else ''}, ndmin=2)"


def geometry_of(given: LoadOptions) -> Geometry | NearField | None:
    """Return the geometry of the options; None if they have none. Raises ScanError for a part of one."""
    distance, pixel, beam = given.distance, given.detector_pixel, given.beam
    if given.angular_pixel is not None:
        distance, pixel = 1.0, given.angular_pixel  # an angle equals the size of a pixel at a distance of one metre
    parts = {"energy": beam, "distance": distance, "detector_pixel": pixel}
    lacking = tuple(name for name, value in parts.items() if value is None)
    if len(lacking) == len(parts) and not given.is_near_field:
        return None
    if beam is None or distance is None or pixel is None:
        raise ScanError(
            f"The geometry lacks {' and '.join(map(title_of, lacking))}; enter all of it, or nothing where the "
            "detector's header has it.",
            code="scan.no-geometry",
            fields=lacking,
        )
    if given.is_near_field:
        focus = math.inf if given.focus_to_sample is None else given.focus_to_sample
        return NearField(wavelength=beam, focus_to_sample=focus, sample_to_detector=distance, detector_pixel=pixel)
    return Geometry(wavelength=beam, distance=distance, detector_pixel=pixel)
