"""CDTools: FancyPtycho with Adam."""

from __future__ import annotations

import cdtools
import numpy as np
import torch
from recorder import Recorder

MOST = 10**6


def main() -> None:
    """Run it epoch by epoch."""
    recorder = Recorder(__doc__, ("cdtools-py", "torch"), ("adam",))
    problem = recorder.problem
    patterns, positions, size = problem["patterns"], problem["positions"], problem["patterns"].shape[-1]
    side, distance = float(problem["detector_pixel"]), float(problem["distance"])
    wavelength = float(problem["wavelength"])
    pixel = wavelength * distance / (size * side)
    translations = np.zeros((len(positions), 3))
    translations[:, :2] = -positions[:, ::-1] * pixel
    dataset = cdtools.datasets.Ptycho2DDataset(
        torch.as_tensor(translations, dtype=torch.float32),
        torch.as_tensor(patterns),
        wavelength=wavelength,
        detector_geometry={"distance": distance, "basis": torch.tensor([[0, -side], [-side, 0], [0, 0]])},
        mask=torch.ones(size, size, dtype=torch.bool),
    )
    torch.manual_seed(0)
    model = cdtools.models.FancyPtycho.from_dataset(dataset, n_modes=recorder.modes, obj_padding=16)
    start = torch.as_tensor(recorder.start_probe)
    with torch.no_grad():
        # Its parameter is the probe over its largest amplitude, so that it learns as fast as the object.
        model.probe_norm.fill_(start[0].abs().max())
        model.probe.data[:] = start / model.probe_norm
        model.background.data.zero_()
    for part in (model.translation_offsets, model.weights, model.background):
        part.requires_grad = False
    model.to(device=recorder.device)
    dataset.get_as(device=recorder.device)
    reconstructor = cdtools.reconstructors.AdamReconstructor(model, dataset)

    def read(parameter: torch.Tensor) -> np.ndarray:
        return parameter.detach().cpu().numpy()

    recorder.begin()
    options = {"lr": recorder.rate or 0.01, "batch_size": recorder.batch}
    # A thread is for plots; in pieces of 10 patterns, its default, a batch needs less memory, and a GPU more time.
    if recorder.device == "cuda":
        options["calculation_width"] = recorder.batch
    for _ in reconstructor.optimize(MOST, thread=False, **options):
        if recorder.epoch(lambda: read(model.obj).squeeze(), lambda: read(model.probe)):
            break


if __name__ == "__main__":
    main()
