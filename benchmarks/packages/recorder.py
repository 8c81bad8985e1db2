"""What every package's script shares: its arguments, the problem, and a record of the object over time.

A script runs in the environment of its package, with numpy and this file, as

    PYTHON run_NAME.py PROBLEM.npz FOLDER --algorithm NAME --batch 16 --modes 1 --rate 0.01 --seconds 60 --device cpu

and calls `Recorder.epoch` after each epoch until it returns True. The clock is the wall clock of the epochs as a user
waits for them, the first one included with whatever is compiled then; copying and saving the object is not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
APART = 1.04
"""An object is saved if the time since the beginning has grown by this factor: a time to an error is known to 4%."""
STATUS = Path("/proc/self/status")


class Recorder:
    """The run of one package on one problem, until its time is over."""

    def __init__(
        self, description: str, packages: tuple[str, ...], algorithms: tuple[str, ...], gpu: str = "torch"
    ) -> None:
        """packages: names on PyPI whose versions are recorded, the measured one first. gpu: library of its GPU arrays.

        gpu: "torch" or "cupy".
        """
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("problem", type=Path)
        parser.add_argument("folder", type=Path)
        parser.add_argument("--algorithm", choices=algorithms, default=algorithms[0])
        parser.add_argument("--batch", type=int, default=16)
        parser.add_argument("--modes", type=int, default=1)
        parser.add_argument("--rate", type=float, default=None, help="step size of the object; none: the package's")
        parser.add_argument("--seconds", type=float, default=60.0)
        parser.add_argument("--epochs", type=int, default=2000, help="at most")
        parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
        chosen = parser.parse_args()
        self.algorithm: str = chosen.algorithm
        self.batch: int = chosen.batch
        self.modes: int = chosen.modes
        self.rate: float | None = chosen.rate
        self.device: str = chosen.device
        self.versions = {name: version(name) for name in packages}
        self._gpu = gpu
        self._seconds: float = chosen.seconds
        self._most: int = chosen.epochs
        self._folder: Path = chosen.folder
        self._folder.mkdir(parents=True, exist_ok=True)
        with np.load(chosen.problem) as file:
            self.problem: dict[str, Any] = {name: file[name] for name in file.files}
        self._spent, self._saved, self._epochs = 0.0, 0.0, list[dict[str, float]]()
        self.began = False
        self._since, self._setup = time.perf_counter(), 0.0
        self._at_start = _begin_peak()

    @property
    def start_probe(self) -> Array:
        """The probe (mode, y, x) to begin with: that of the problem, with further modes of little weight as needed.

        It has the mean counts of a pattern, as if the transmission of the object were not known.
        """
        probe = self.problem["start_probe"].astype(np.complex64)
        axis = (np.arange(probe.shape[-1]) - probe.shape[-1] / 2) / probe.shape[-1]
        shapes = (axis[None, :], axis[:, None], axis[:, None] * axis[None, :])
        more = [probe[0] * shape * 2 for shape in shapes[: max(self.modes - len(probe), 0)]]
        modes = np.concatenate([probe, np.array(more, np.complex64).reshape(-1, *probe.shape[1:])])[: self.modes]
        counts = self.problem["patterns"].sum((1, 2), dtype=np.float64).mean()
        return modes * np.float32(np.sqrt(counts / (np.abs(modes) ** 2).sum(dtype=np.float64)))

    @property
    def amplitude(self) -> float:
        """The root-mean-square amplitude of the first mode of the start: the unit of Adam's steps of the probe.

        For packages whose probe is in roots of counts; that of the object is 1.
        """
        return float(np.sqrt((np.abs(self.start_probe[0]) ** 2).mean()))

    def begin(self) -> None:
        """Start the clock: everything is loaded and placed on the device."""
        self._synchronise()
        self._setup = time.perf_counter() - self._since
        self.began, self._since = True, time.perf_counter()

    def epoch(self, object: Callable[[], Array], probe: Callable[[], Array]) -> bool:
        """Record an epoch, and return whether the run is to end.

        object, probe: return a copy (y, x) of the object (of a thick one the product of its slices), and (mode, y, x)
        of the probe.
        """
        self._synchronise()
        self._spent += time.perf_counter() - self._since
        number = len(self._epochs) + 1
        self._epochs.append({"epoch": number, "seconds": self._spent})
        over = self._spent >= self._seconds or number >= self._most
        if over or self._spent >= APART * self._saved:
            self._saved = self._spent
            arrays = {"object": object(), "probe": probe()}
            found = {name: np.asarray(array, np.complex64) for name, array in arrays.items()}
            np.savez(self._folder / f"{number:05d}.npz", **found)
        if over:
            self._write()
        self._since = time.perf_counter()
        return over

    def _write(self) -> None:
        record = {
            "command": sys.argv[1:],
            "versions": self.versions,
            "setup_seconds": self._setup,
            "epochs": self._epochs,
            "peak_bytes": self._peak_bytes(),
            "device": self._device_name(),
        }
        (self._folder / "run.json").write_text(json.dumps(record))

    def _peak_bytes(self) -> int:
        """Of the GPU's memory, if there is one; of the process, above what it had when its libraries were loaded."""
        if self.device == "cpu":
            return _peak() - self._at_start
        if self._gpu == "cupy":
            import cupy

            return int(cupy.get_default_memory_pool().total_bytes())  # during a run it only grows
        import torch

        return int(torch.cuda.max_memory_reserved())

    def _device_name(self) -> str:
        if self.device == "cpu":
            return "cpu"
        if self._gpu == "cupy":
            import cupy

            return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
        import torch

        return torch.cuda.get_device_name(0)

    def _synchronise(self) -> None:
        if self.device == "cpu":
            return
        if self._gpu == "cupy":
            import cupy

            cupy.cuda.Device().synchronize()
        else:
            import torch

            torch.cuda.synchronize()


def _begin_peak() -> int:
    """Forget the peak until now, also that of the process that started this one, and return the bytes in use."""
    if not STATUS.exists():
        return _peak()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return _status("VmHWM")


def _status(name: str) -> int:
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
