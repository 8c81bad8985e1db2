"""quantem: Adam by automatic differentiation, or gradient descent with the step of ePIE, its gradient by hand."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from quantem.core.datastructures import Dataset4dstem
from quantem.diffractive_imaging.dataset_models import PtychographyDatasetRaster
from quantem.diffractive_imaging.detector_models import DetectorPixelated
from quantem.diffractive_imaging.object_models import ObjectPixelated
from quantem.diffractive_imaging.probe_models import ProbePixelated
from quantem.diffractive_imaging.ptychography import Ptychography
from recorder import Recorder

RATES = {"adam": 0.01, "sgd": 1.0}
MOST = 10**6
MARGIN = 16
"""Pixels of the object around the windows."""


class OverError(Exception):
    """The time of the run is over."""


def main() -> None:
    """Run it, and record after each of its iterations."""
    recorder = Recorder(__doc__, ("quantem", "torch"), tuple(RATES))
    patterns, positions = recorder.problem["patterns"], recorder.problem["positions"]
    size, probe = patterns.shape[-1], recorder.start_probe
    # One row of patterns, its steps of length zero: the object is the padding alone, and positions are set below.
    scan = Dataset4dstem.from_array(
        patterns[None], sampling=[0, 0, 1 / size, 1 / size], units=["A", "A", "A^-1", "A^-1"]
    )
    dataset = PtychographyDatasetRaster.from_dataset4dstem(
        scan, verbose=0, learn_descan=False, learn_scan_positions=False
    )
    dataset.preprocess(
        com_fit_function="no_shift",
        force_com_rotation=0.0,
        force_com_transpose=False,
        plot_rotation=False,
        plot_com=False,
    )
    model = Ptychography.from_models(
        dset=dataset,
        obj_model=ObjectPixelated.from_uniform(obj_type="complex"),
        probe_model=ProbePixelated.from_array(np.fft.ifftshift(probe, axes=(-2, -1))),
        detector_model=DetectorPixelated(),
        device=recorder.device,
        verbose=0,
        rng=0,
    )
    padding = np.ceil((np.ptp(positions, axis=0) + size) / 2).astype(int) + MARGIN
    model.preprocess(obj_padding_px=tuple(padding))
    # Its positions are those of the middle of the window.
    dataset.scan_positions_px = positions - positions.min(0) + size // 2 + MARGIN
    # As its own start it would give the modes other weights, and tilt them at random.
    model.probe_model.probe = np.fft.ifftshift(probe, axes=(-2, -1))

    def read_object() -> np.ndarray:
        return model.obj[0].copy()

    def read_probe() -> np.ndarray:
        return np.fft.fftshift(model.probe_model.probe.detach().cpu().numpy(), axes=(-2, -1))

    reset, record = model._reset_iter_constraints, model._record_iter

    def began() -> None:
        if not recorder.began:  # what it loads before its first iteration is not counted
            recorder.begin()
        reset()

    def recorded(*arguments: Any) -> None:
        record(*arguments)
        if recorder.epoch(read_object, read_probe):
            raise OverError

    model._reset_iter_constraints, model._record_iter = began, recorded
    rate = recorder.rate if recorder.rate is not None else RATES[recorder.algorithm]
    adam = recorder.algorithm == "adam"
    rates = {"object": rate, "probe": rate * recorder.amplitude if adam else rate}
    with contextlib.suppress(OverError):
        model.reconstruct(
            MOST,
            optimizer_params={name: {"name": recorder.algorithm, "lr": value} for name, value in rates.items()},
            constraints={"probe": {"orthogonalize_probe": False}},
            batch_size=recorder.batch,
            autograd=adam,
        )


if __name__ == "__main__":
    main()
