"""ptynb: LSQML, Adam, or SGD with momentum."""

from __future__ import annotations

from typing import Any

from recorder import Recorder

import ptynb as pt
import ptynb.session.reconstruction

MORE: dict[str, dict[str, Any]] = {"lsqml": {}, "adam": {}, "sgd": {"momentum": 0.9}}
RATES = {"lsqml": 1.0, "adam": 0.03, "sgd": 0.3}
MOST = 10**5


def main() -> None:
    """Run it epoch by epoch."""
    recorder = Recorder(__doc__, ("ptynb", "torch"), tuple(MORE))
    problem, rate = recorder.problem, recorder.rate or RATES[recorder.algorithm]
    pixel = float(problem["detector_pixel"])
    scan = pt.Scan.from_arrays(
        problem["patterns"],
        problem["positions"],
        probe=recorder.start_probe,
        geometry=pt.Geometry(
            wavelength=float(problem["wavelength"]),
            distance=float(problem["distance"]),
            detector_pixel=(pixel, pixel),
        ),
    )
    settings = pt.Settings(
        optimiser=recorder.algorithm,
        loss="amplitude",  # as the other packages have it
        batch=recorder.batch,
        object={"learning_rate": rate},
        probe={"learning_rate": rate, "modes": recorder.modes},
        **MORE[recorder.algorithm],
    )
    recon = pt.Reconstruction(scan, settings, device=recorder.device, checkpointing=None)
    recorder.begin()
    for _ in recon.run(MOST):
        if recorder.epoch(lambda: recon.result.object, lambda: recon.result.probe):
            break
    recon.close()


if __name__ == "__main__":
    main()
