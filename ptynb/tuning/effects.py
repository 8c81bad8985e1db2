"""Effects that may be in the patterns of a scan, with the settings that model them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ptynb.data.geometry import Geometry
from ptynb.data.scan import Scan
from ptynb.settings.presets import RATE_OF_SLICES, SLICE_DISTANCES

MARGIN = 9
"""Margin of the object [object pixels], for positions that move."""
RATE_OF_BACKGROUND = 0.01
"""Learning rate of the background.

Object errors after 100 epochs with 0.003, 0.01 and 0.03: of a near-field scan with wrong positions, intensities and
background, in batches of 2, 0.0160, 0.0126 and 0.0365; of two far-field scans with a background, in batches of 8,
0.0333, 0.0330 and 0.0341, and 0.0333, 0.0330 and 0.0332. In shorter trials 0.03 fits sooner.
"""


@dataclass(frozen=True, eq=False)
class Effect:
    """An effect that may be in the data, with the settings that model it; several variants are tried."""

    name: str
    variants: tuple[dict[str, Any], ...]
    reason: str


@dataclass(frozen=True, eq=False)
class Candidate:
    """A variant of an effect."""

    effect: Effect
    changes: dict[str, Any]


def effects_of(scan: Scan) -> list[Effect]:
    """Return the effects that may be in the patterns of this scan, the simplest first."""
    effects = [
        Effect(
            "wrong positions",
            tuple({"positions": {"learning_rate": rate, "max_shift": MARGIN - 1.0}} for rate in (0.1, 0.3)),
            "the positions are not those of the file",
        ),
        Effect(
            "beam intensity",
            tuple({"pattern_intensities": {"learning_rate": rate}} for rate in (0.01, 0.03)),
            "the intensity of the beam varies from pattern to pattern",
        ),
        Effect(
            "background",
            ({"background": {"learning_rate": RATE_OF_BACKGROUND}},),
            "there are counts that are the same in all patterns",
        ),
        Effect(
            "partial coherence",
            tuple({"probe": {"modes": modes}} for modes in (2, 4)),
            "the beam is partially coherent",
        ),
    ]
    if scan.is_far_field:
        effects.append(
            Effect(
                "descan",
                ({"descan": {"start": "zero", "learning_rate": 0.05}},),
                "patterns are shifted on the detector",
            )
        )
    if isinstance(scan.geometry, Geometry) and scan.pixel_size is not None:
        depth = scan.pixel_size[0] * scan.pixel_size[1] / scan.geometry.wavelength
        effects.append(
            Effect(
                "several slices",
                tuple(
                    {
                        "slices": {"count": 2, "thickness": factor * depth, "learning_rate": 0.005},
                        "object": {"learning_rate": RATE_OF_SLICES},
                        "probe": {"learning_rate": RATE_OF_SLICES},
                    }
                    for factor in SLICE_DISTANCES
                ),
                "the object is thicker than one slice describes",
            )
        )
    effects.append(
        Effect(
            "beam shape",
            tuple({"opr": {"modes": 3, "learning_rate": rate}} for rate in (0.03, 0.1)),
            "the probe varies from pattern to pattern",
        )
    )
    return effects
