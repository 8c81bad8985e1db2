"""Pty-Chi: LSQML, rPIE, or Adam by automatic differentiation."""

from __future__ import annotations

import numpy as np
import ptychi.api as api
import torch
from ptychi.api.task import PtychographyTask
from ptychi.utils import get_suggested_object_size, rescale_probe
from recorder import Recorder

OPTIONS = {"lsqml": api.LSQMLOptions, "rpie": api.RPIEOptions, "adam": api.AutodiffPtychographyOptions}
MOST = 10**6
"""Epochs that its schedules are told of; the recorder ends the run."""


def main() -> None:
    """Run it epoch by epoch."""
    recorder = Recorder(__doc__, ("ptychi", "torch"), tuple(OPTIONS))
    if recorder.device == "cpu":
        torch.set_default_device("cpu")
    patterns, positions = recorder.problem["patterns"], recorder.problem["positions"]
    size = patterns.shape[-1]
    # Its Fourier transform is not normalised: the probe is smaller than that of a unitary one.
    start = rescale_probe(recorder.start_probe, patterns)
    # Its origin is the middle of the positions.
    centred = positions - (positions.max(0) + positions.min(0)) / 2
    options = OPTIONS[recorder.algorithm]()
    adam = recorder.algorithm == "adam"
    rate = recorder.rate if recorder.rate is not None else 0.01 if adam else 1.0
    for part in (options.object_options, options.probe_options):
        part.optimizable = True
        part.optimizer = api.Optimizers.ADAM if adam else api.Optimizers.SGD
    options.data_options.save_data_on_device = recorder.device != "cpu"
    if recorder.algorithm == "lsqml":  # the probe has its scale, and the first epoch would only find it
        options.reconstructor_options.rescale_probe_intensity_in_first_epoch = False
    options.object_options.step_size = rate
    # rPIE sums the steps of the object over a batch, and takes the mean of those of the probe.
    steps = {"lsqml": rate, "rpie": 1.0, "adam": rate * recorder.amplitude / size}
    options.probe_options.step_size = steps[recorder.algorithm]
    options.object_options.pixel_size_m = 1e-8
    options.probe_position_options.optimizable = False
    options.reconstructor_options.batch_size = recorder.batch
    options.reconstructor_options.num_epochs = MOST
    options.reconstructor_options.default_device = api.Devices.CPU if recorder.device == "cpu" else api.Devices.GPU
    shape = get_suggested_object_size(centred, (size, size), extra=16)
    task = PtychographyTask(
        options,
        diffraction_data=patterns,
        object_data=torch.ones([1, *shape], dtype=torch.complex64),
        probe_data=start[None],
        probe_position_x_px=centred[:, 1],
        probe_position_y_px=centred[:, 0],
    )

    def read(name: str) -> np.ndarray:
        return np.array(task.get_data_to_cpu(name, as_numpy=True)[0])

    recorder.begin()
    over = False
    while not over:
        task.run(1)
        over = recorder.epoch(lambda: read("object"), lambda: read("probe") * size)


if __name__ == "__main__":
    main()
