"""Updates that a GPU must do without waits, by the same operations each time, and with few launches and bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import get_args

import ptynb as pt
from ptynb.data.scan import Scan
from ptynb.settings import (
    OPR,
    Affine,
    Object,
    Positions,
    Probe,
    ProbeOffset,
    Settings,
    Slices,
)
from ptynb.settings.constraints import AnyConstraint
from ptynb.settings.regularizers import PACBED, Similarity, Sparsity, TotalVariation
from tests.cases import INTENSITIES, LIGHT, MODES, PLACES, a_scan
from tests.gpu.problems import ARGUMENTS

EPOCHS = 2
"""Epochs before an update is looked at: RAdam, for example, begins with five others."""
BRIGHTNESS = {"pattern_intensities": INTENSITIES, "background": LIGHT}
THICK = Slices(count=8, thickness=2e-6)


@functools.cache
def far(window: int = 32) -> Scan:
    """64 patterns of the far field: four updates of 16 in an epoch."""
    return pt.simulate(patterns=64, window=window, seed=0)


@functools.cache
def near() -> Scan:
    """The same number of the near field."""
    return a_scan(patterns=64, kind="near")


def shared() -> Scan:
    """Patterns of two scans with one object, and a probe each."""
    return a_scan(patterns=64, kind="shared object")


def _settings(**choices: object) -> Settings:
    return Settings(**({"batch": 16} | choices))  # type: ignore[arg-type]


# name -> (scan, settings)
UPDATES: dict[str, tuple[Callable[[], Scan], Settings]] = {
    "one mode": (far, _settings()),
    "modes": (far, _settings(probe=MODES)),
    "slices": (far, _settings(probe=MODES, slices=THICK)),
    "object modes": (far, _settings(object=Object(modes=2))),
    "polar": (far, _settings(object=Object(parametrization="amplitude_phase"))),
    "positions": (far, _settings(positions=PLACES)),
    "positions, intensities, background": (far, _settings(positions=PLACES, **BRIGHTNESS)),
    "opr": (far, _settings(probe=MODES, opr=OPR(modes=2))),
    "affine, offset": (
        far,
        _settings(affine=Affine(learning_rate=0.1), probe_offset=ProbeOffset(learning_rate=0.1)),
    ),
    "poisson": (far, _settings(loss="poisson")),
    "intensity": (far, _settings(loss="intensity")),
    "near field": (near, _settings(probe=MODES, positions=PLACES)),
    "accumulated": (far, _settings(gradient_accumulation=2)),
    "rpie": (far, _settings(optimiser="rpie", probe=MODES)),
    "rpie, accumulated": (far, _settings(optimiser="rpie", gradient_accumulation=2)),
    "rpie, two probes": (shared, _settings(optimiser="rpie", probe=MODES)),
    "lsqml": (far, _settings(optimiser="lsqml", probe=MODES)),
    "lsqml, everything": (
        far,
        _settings(
            optimiser="lsqml",
            momentum=0.5,
            probe=MODES,
            slices=Slices(count=2, thickness=2e-6),
            positions=Positions(learning_rate=0.5, momentum=0.5),
            opr=OPR(modes=2),
            **BRIGHTNESS,
        ),
    ),
    "lsqml, near field": (near, _settings(optimiser="lsqml", positions=Positions(learning_rate=0.5))),
    "sgd": (far, _settings(optimiser="sgd", momentum=0.5)),
    **{name: (far, _settings(optimiser=name)) for name in ("adamw", "nadam", "radam", "rmsprop")},
    "regularizers": (
        far,
        _settings(
            object=Object(modes=2),
            regularizers=(
                PACBED(weight=0.1),
                TotalVariation(weight=0.01),
                Sparsity(weight=0.01),
                Similarity(weight=0.01),
            ),
        ),
    ),
    "whole steps": (far, _settings(optimiser="lbfgs", probe=MODES)),
    **{
        f"constraint {kind.model_fields['kind'].default}": (
            far,
            _settings(
                probe=MODES,
                slices=Slices(count=2, thickness=2e-6),
                positions=PLACES,
                tilt={"per_position": True, "learning_rate": 0.01},
                constraints=[kind(after="update", **ARGUMENTS.get(kind.model_fields["kind"].default, {}))],
            ),
        )
        for kind in get_args(get_args(AnyConstraint)[0])
    },
}

WAITING: dict[str, int] = {"constraint orthogonal_modes": 1, "constraint dct_threshold": 2}
"""Updates that wait: for eigenvalues of a small matrix, and for a cosine transform, which is computed on the host."""
COPYING: dict[str, int] = {"accumulated": 2, "rpie, accumulated": 2}
"""Updates with more than one copy to the device, which is not waited for: one for each portion."""
VARYING = {"whole steps"}
"""Updates whose operations depend on numbers that the host reads."""

# name -> (scan, settings, most launches, most bytes per pixel, mode and slice)
COUNTED: dict[str, tuple[Callable[[], Scan], Settings, int, float]] = {
    "A": (functools.partial(far, 128), _settings(), 25, 234),
    "4 modes": (functools.partial(far, 64), _settings(probe=Probe(modes=4)), 25, 222),
    "8 slices": (functools.partial(far, 64), _settings(slices=THICK), 116, 224),
    "positions": (functools.partial(far, 64), _settings(positions=PLACES), 39, 246),
    "positions, intensities, background": (
        functools.partial(far, 64),
        _settings(positions=PLACES, **BRIGHTNESS),
        58,
        280,
    ),
    "sgd": (functools.partial(far, 64), _settings(optimiser="sgd"), 24, 229),
    "poisson": (functools.partial(far, 64), _settings(loss="poisson"), 25, 235),
    "polar": (functools.partial(far, 64), _settings(object=Object(parametrization="amplitude_phase")), 35, 259),
    "rpie": (functools.partial(far, 64), _settings(optimiser="rpie"), 56, 300),
    "lsqml": (functools.partial(far, 64), _settings(optimiser="lsqml"), 56, 332),
}
"""Limits are what was counted, with a little room: whoever makes an update cheaper lowers them."""
