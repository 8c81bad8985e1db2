"""Pty-Chi's script run so that the object after every epoch is kept; for its own interpreter, which has no ptynb.

usage: PEERS_PYTHON watched.py FOLDER peer_ptychi.py PROBLEM.npz [what the script takes]
"""

import runpy
import sys
from pathlib import Path

import numpy as np
from ptychi.api.task import PtychographyTask

folder, script = Path(sys.argv[1]), sys.argv[2]
folder.mkdir(parents=True, exist_ok=True)
plain = PtychographyTask.run


def run_and_keep(task, *arguments, **named):
    given = plain(task, *arguments, **named)
    number = len(list(folder.iterdir())) + 1
    np.savez(folder / f"{number}.npz", object=task.get_data_to_cpu("object", as_numpy=True)[0])
    return given


PtychographyTask.run = run_and_keep
sys.argv = sys.argv[2:]
runpy.run_path(script, run_name="__main__")
