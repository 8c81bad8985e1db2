"""Pty-Chi's script run with further parts optimised; for its own interpreter, which has no ptynb.

usage: PEERS_PYTHON ptychi_parts.py PARTS peer_ptychi.py PROBLEM.npz [what the script takes]

PARTS: any of positions and intensities, separated by commas; each makes steps of its least squares, with a factor of 1.
"""

import runpy
import sys

import ptychi.api as api
from ptychi.api.task import PtychographyTask

parts = sys.argv[1].split(",")
plain = PtychographyTask.__init__


def with_parts(task, options, *arguments, **named):
    chosen = {"positions": options.probe_position_options, "intensities": options.opr_mode_weight_options}
    for name in parts:
        chosen[name].optimizer = api.Optimizers.SGD
        chosen[name].step_size = 1
    if "positions" in parts:
        options.probe_position_options.optimizable = True
    if "intensities" in parts:
        options.opr_mode_weight_options.optimize_intensity_variation = True
        options.opr_mode_weight_options.optimize_eigenmode_weights = False
        options.opr_mode_weight_options.optimizable = True
    plain(task, options, *arguments, **named)


PtychographyTask.__init__ = with_parts
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
