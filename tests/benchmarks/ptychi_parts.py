"""Pty-Chi's script run with further parts and options; for its own interpreter, which has no ptynb.

usage: PEERS_PYTHON ptychi_parts.py OPTIONS_AS_JSON peer_ptychi.py PROBLEM.npz [what the script takes]

Options: positions and intensities (true: whole steps of least squares), opr (number of modes of the probe's variation),
slices (their count and distance [m]), momentum (gain), compact (true: batches of neighbours). Of a thick object all
slices are saved.
"""

import json
import runpy
import sys

import numpy as np
import ptychi.api as api
import torch
from ptychi.api.task import PtychographyTask
from ptychi.utils import add_additional_opr_probe_modes_to_probe, generate_initial_opr_mode_weights

chosen = json.loads(sys.argv[1])
plain = PtychographyTask.__init__
plain_data = PtychographyTask.get_data_to_cpu


def with_parts(task, options, *arguments, **named):
    of_weights, of_run = options.opr_mode_weight_options, options.reconstructor_options
    with np.load(sys.argv[1]) as problem:
        width = problem["patterns"].shape[-1] * float(problem["det_pixel"])
        options.data_options.wavelength_m = float(problem["wavelength"])
        options.object_options.pixel_size_m = options.data_options.wavelength_m * float(problem["det_distance"]) / width
    if chosen.get("positions"):
        part = options.probe_position_options
        part.optimizable, part.optimizer, part.step_size = True, api.Optimizers.SGD, 1
    if chosen.get("intensities") or chosen.get("opr"):
        of_weights.optimize_intensity_variation = bool(chosen.get("intensities"))
        of_weights.optimize_eigenmode_weights = bool(chosen.get("opr"))
        of_weights.optimizer, of_weights.step_size = api.Optimizers.SGD, 1
        of_weights.optimizable = True
    if modes := chosen.get("opr"):
        torch.manual_seed(0)
        named["probe_data"] = add_additional_opr_probe_modes_to_probe(torch.as_tensor(named["probe_data"]), modes)
        named["opr_mode_weights_data"] = generate_initial_opr_mode_weights(len(named["diffraction_data"]), modes + 1)
    if slices := chosen.get("slices"):
        options.object_options.slice_spacings_m = [slices["thickness"]] * (slices["count"] - 1)
        named["object_data"] = named["object_data"].repeat(slices["count"], 1, 1)
    if "momentum" in chosen:
        of_run.momentum_acceleration_gain = chosen["momentum"]
    if chosen.get("compact"):
        of_run.batching_mode = api.BatchingModes.COMPACT
    plain(task, options, *arguments, **named)


def all_slices(task, name, *arguments, **named):
    """The script saves the first slice of what it gets."""
    data = plain_data(task, name, *arguments, **named)
    return data[None] if name == "object" and chosen.get("slices") else data


PtychographyTask.__init__ = with_parts
PtychographyTask.get_data_to_cpu = all_slices
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
