"""py4DSTEM: gradient descent with the step of ePIE, of one probe or of mixed states."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from py4DSTEM import DataCube
from py4DSTEM.process.phase import MixedstatePtychography, SingleslicePtychography
from recorder import Recorder

MOST = 10**5
MARGIN = 16
"""Pixels of the object around the windows."""


class OverError(Exception):
    """The time of the run is over."""


def main() -> None:
    """Run it, and record after each of its iterations."""
    recorder = Recorder(__doc__, ("py4DSTEM", "numpy"), ("gradient descent",), gpu="cupy")
    patterns, positions = recorder.problem["patterns"], recorder.problem["positions"]
    size = patterns.shape[-1]
    # Its Fourier transform is not normalised: the counts are the square of the amplitudes times the pixels.
    start = np.fft.ifftshift(recorder.start_probe, axes=(-2, -1)) / size
    base = SingleslicePtychography if recorder.modes == 1 else MixedstatePtychography

    class Recorded(base):  # type: ignore[misc, valid-type]
        """With a record at the end of each iteration, where it applies its constraints."""

        def _constraints(self, *arguments: Any, **named: Any) -> Any:
            found = super()._constraints(*arguments, **named)
            object, probe = found[0], found[1]
            if recorder.epoch(lambda: self._asnumpy(object).copy(), lambda: centred(self._asnumpy(probe))):
                raise OverError
            return found

    def centred(probe: np.ndarray) -> np.ndarray:
        return np.fft.fftshift(probe.reshape(-1, size, size), axes=(-2, -1)) * size

    model = Recorded(
        energy=80e3,  # of one slice, only pixels matter: they are made 1 angstrom long
        datacube=DataCube(patterns[None]),
        initial_probe_guess=start[0] if recorder.modes == 1 else start,
        initial_scan_positions=positions - positions.min(0),
        object_padding_px=(size // 2 + MARGIN,) * 2,
        device="cpu" if recorder.device == "cpu" else "gpu",
        verbose=False,
    )
    model.preprocess(
        force_scan_sampling=1.0,
        force_reciprocal_sampling=1 / size,
        force_com_shifts=np.full((2, 1, len(patterns)), size // 2),
        force_com_rotation=0.0,
        force_com_transpose=False,
        shifting_interpolation_order=1,
        center_positions_in_fov=False,
        object_fov_mask=True,
        plot_center_of_mass=False,
        plot_rotation=False,
        plot_probe_overlaps=False,
    )
    options: dict[str, Any] = {} if recorder.modes == 1 else {"orthogonalize_probe": False}
    recorder.begin()
    with contextlib.suppress(OverError):
        model.reconstruct(
            num_iter=MOST,
            reconstruction_method="gradient-descent",
            max_batch_size=recorder.batch,
            step_size=recorder.rate if recorder.rate is not None else 1.0,
            seed_random=0,
            fix_probe_com=False,
            progress_bar=False,
            **options,
        )


if __name__ == "__main__":
    main()
