"""ptypy: difference map, or maximum likelihood by conjugate gradients; an iteration uses all patterns at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from ptypy.core import Ptycho
from ptypy.core.data import PtyScan
from ptypy.experiment import register
from ptypy.utils import Param
from recorder import Recorder

ENGINES: dict[str, dict[str, Any]] = {
    "dm": {"name": "DM", "compute_log_likelihood": False},
    # After 30 iterations of 64 patterns the error is 0.046; it is 0.11 without the preconditioner of wave fields.
    "ml": {"name": "ML", "ML_type": "Gaussian", "scale_precond": True, "wavefield_precond": True},
}
MOST = 10**6
MARGIN = 20
"""Pixels of the object around the middles of the windows that are recorded."""
HC = 1.23984193e-9
"""Photon energy times wavelength, as ptypy has it [keV m]."""
loaded: dict[str, Any] = {}
"""The problem, for the class that ptypy makes by its name."""


@register()
class Arrays(PtyScan):
    """A scan in memory.

    Defaults:

    [name]
    default = Arrays
    type = str
    help = A scan in memory
    """

    def load_positions(self) -> np.ndarray:
        """Return positions (pattern, yx) [m]."""
        return loaded["positions"]

    def load(self, indices: list[int]) -> tuple[dict[int, np.ndarray], dict[int, Any], dict[int, Any]]:
        """Return patterns by their index; positions and weights are those of all patterns."""
        return {index: loaded["patterns"][index] for index in indices}, {}, {}


def main() -> None:
    """Run it, and record after each of its iterations."""
    recorder = Recorder(__doc__, ("ptypy", "numpy"), tuple(ENGINES))
    if recorder.device != "cpu":
        raise SystemExit("its engines of numpy run on the processor; those of cupy are not measured")
    problem, probe = recorder.problem, recorder.start_probe
    patterns, size = problem["patterns"], problem["patterns"].shape[-1]
    wavelength, distance = float(problem["wavelength"]), float(problem["distance"])
    pixel = wavelength * distance / (size * float(problem["detector_pixel"]))
    loaded.update(patterns=patterns, positions=problem["positions"] * pixel)
    scan = {
        "name": "Full",
        "data": {
            "name": "Arrays",
            "num_frames": len(patterns),
            "shape": size,
            "psize": float(problem["detector_pixel"]),
            "distance": distance,
            "energy": HC / wavelength,
            "auto_center": False,
        },
        "coherence": {"num_probe_modes": recorder.modes},
        "illumination": {
            "model": probe,
            "photons": float((np.abs(probe) ** 2).sum()),
            "aperture": None,
            "propagation": None,
            "diversity": None,
        },
        "sample": {"model": None, "fill": 1.0, "process": None, "diversity": None},
    }
    options = {**ENGINES[recorder.algorithm], "numiter": MOST, "probe_support": None}
    off = {"active": False}
    parameters = Param()
    parameters.update(
        {
            "verbose_level": "ERROR",
            "io": {"rfile": None, "autosave": off, "autoplot": off, "interaction": off},
            "scans": {"scan": scan},
            "engines": {"engine": options},
        },
        Convert=True,
    )
    model = Ptycho(parameters, level=4)
    engine = model.engines["engine"]
    iterate = engine.iterate

    # Further outside, where there is almost no light, it is large and has no meaning.
    inside = slice(size // 2 - MARGIN, MARGIN - size // 2)

    def read(container: Any) -> np.ndarray:
        (storage,) = container.storages.values()
        return storage.data.copy()

    def recorded(*arguments: Any) -> None:
        if not recorder.began:
            recorder.begin()
        iterate(*arguments)
        engine.finished = recorder.epoch(lambda: read(model.obj)[0, inside, inside], lambda: read(model.probe))

    engine.iterate = recorded
    model.run(engine=engine)


if __name__ == "__main__":
    main()
