"""PtyRAD: Adam by automatic differentiation, as it is or compiled by torch.compile."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import ptyrad.solver.reconstruction as reconstruction
from ptyrad.params.ptyrad_params import PtyRADParams
from ptyrad.solver import PtyRADSolver
from recorder import Recorder

MOST = 10**6
PIXEL = 0.1
"""Of the object [angstrom]; of one slice, only its number of pixels matters."""
BORDER = 4
"""Pixels of the object before the first window: it makes the object as large as the windows need, and some more."""


class OverError(Exception):
    """The time of the run is over."""


def main() -> None:
    """Run it, and record after each of its iterations."""
    recorder = Recorder(__doc__, ("ptyrad", "torch"), ("adam", "compiled adam"))
    problem, rate = recorder.problem, recorder.rate or 5e-4
    patterns, positions = problem["patterns"], problem["positions"]
    side = round(len(patterns) ** 0.5)
    rows = side if side**2 == len(patterns) else 1
    options: dict[str, Any] = {
        "init_params": {
            "probe_kv": 300,
            "probe_conv_angle": 20.0,
            "meas_Npix": patterns.shape[-1],
            "pos_N_scan_slow": rows,
            "pos_N_scan_fast": len(patterns) // rows,
            "pos_N_scans": len(patterns),
            "pos_scan_step_size": 0.6,
            "pos_scan_rand_std": None,
            "probe_pmode_max": recorder.modes,
            "obj_Nlayer": 1,
            "obj_slice_thickness": 1.0,
            "meas_calibration": {"mode": "dx", "value": PIXEL},
            "meas_source": "custom",
            "meas_params": patterns,
            "probe_source": "custom",
            "probe_params": recorder.start_probe,
            "pos_source": "custom",
            "pos_params": positions - np.floor(positions.min(0)) + BORDER,
        },
        "model_params": {
            "update_params": {
                "obja": {"start_iter": 1, "lr": rate},
                "objp": {"start_iter": 1, "lr": rate},
                "probe": {"start_iter": 1, "lr": rate / 5},
                "probe_pos_shifts": {"start_iter": None, "lr": 0},
            }
        },
        # On by default, off in the parameter files that come with it.
        "constraint_params": {"obj_rblur": {"start_iter": None}, "obj_zblur": {"start_iter": None}},
        "recon_params": {
            "NITER": MOST,
            "BATCH_SIZE": {"size": min(recorder.batch, len(patterns)), "grad_accumulation": 1},
            "GROUP_MODE": "random",
            "SAVE_ITERS": None,
            "compiler_configs": {"enable": recorder.algorithm == "compiled adam"},
        },
    }
    parameters = PtyRADParams(**options).model_dump()
    parameters["params_path"] = None
    solver = PtyRADSolver(parameters, device=recorder.device, seed=0, acc=None)
    step = reconstruction.recon_step

    def recorded(batches: Any, accumulation: Any, model: Any, *arguments: Any, **named: Any) -> Any:
        if not recorder.began:  # what PtyRAD loads before its first iteration is not counted
            recorder.begin()
        losses = step(batches, accumulation, model, *arguments, **named)

        def object() -> np.ndarray:
            amplitude, phase = (part.detach().cpu().numpy()[0] for part in (model.opt_obja, model.opt_objp))
            return amplitude.prod(0) * np.exp(1j * phase.sum(0))

        def probe() -> np.ndarray:
            return model.get_complex_probe_view().detach().cpu().numpy()

        if recorder.epoch(object, probe):
            raise OverError
        return losses

    reconstruction.recon_step = recorded
    with contextlib.suppress(OverError):
        solver.run()


if __name__ == "__main__":
    main()
