"""Loss and gradients of a batch on a GPU: `gpu_operations` with torch's transforms between them.

The counterpart of `kernels.fused_gradient` on a CPU, with the same interface. The order of the steps is that of
`hotpath`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import gpu_operations as operations


@final
class GPUDescent:
    """`hotpath.misfit` and its gradients, which can be computed only once."""

    def __init__(self, illumination: Illumination, detection: Detection, required: Sequence[bool]) -> None:
        """required: which gradients of `hotpath.varied` to compute."""
        self._illumination, self._detection = illumination, detection
        self._of_object, self._of_probes, self._of_shifts, self._of_weights, self._of_background = required
        self._pixels = illumination.probes.shape[-2] * illumination.probes.shape[-1]
        self._incident = list[Tensor]()
        """Waves incident on each slice (pattern, mode, y, x), if the object is optimised."""
        self._unshifted: Tensor | None = None
        """Spectra on a near detector before waves are shifted back, if shifts are optimised."""

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the loss, a scalar float64."""
        object, origins, probes, shifts, kernel, propagator = self._illumination
        self._spectra = torch.fft.fft2(probes)
        waves = torch.fft.ifft2(operations.shift_spectra(self._spectra, shifts, 1 / self._pixels), norm="forward")
        for number in range(object.shape[1]):
            if number:
                waves = operations.propagate_slice(waves, kernel, adjoint=False)
            if self._of_object:
                self._incident.append(waves)
            waves = operations.illuminate(waves, object[0, number], origins)
        self._detected = torch.fft.fft2(waves)
        if propagator is not None:
            self._detected, self._unshifted = operations.propagate_to_near_detector(
                self._detected, propagator, shifts, self._of_shifts
            )
        return self._compare().sum()

    @torch.no_grad()
    def gradients(self, factor: float, probe_factor: float | None = None) -> tuple[Tensor | None, ...]:
        """Return the requested gradients, times `factor`, else None; those of the probes times `probe_factor`."""
        object, origins, _, shifts, kernel, _ = self._illumination
        of_weights, of_background = self._gradients_at_detector(factor)
        if not (self._of_object or self._of_probes or self._of_shifts):
            return None, None, None, of_weights, of_background
        change, of_detector = self._return_from_detector(factor)
        gradient = torch.empty_like(object) if self._of_object else None
        for number in reversed(range(object.shape[1])):
            if gradient is not None:
                operations.set_object_gradient_(gradient[0, number], self._incident.pop(), change, origins, factor)
            if number or self._of_probes or self._of_shifts:
                operations.return_to_probe_(change, object[0, number], origins)
            if number:
                change = operations.propagate_slice(change, kernel, adjoint=True)
        of_probes, of_shifts = None, None
        if self._of_probes or self._of_shifts:
            spectra = torch.fft.fft2(change)
            if self._of_probes:
                of_probes = self._gradient_of_probes(spectra, factor if probe_factor is None else probe_factor)
            if self._of_shifts:
                of_shifts = operations.shift_gradient(spectra, self._spectra, shifts, factor)
                of_shifts = of_shifts if of_detector is None else of_shifts + of_detector
        return gradient, of_probes, of_shifts, of_weights, of_background

    def _compare(self) -> Tensor:
        """Replace waves on the detector by their gradients, and return the loss of parts of each pattern."""
        stored, rows, mask, floor, weights, background, damping, loss = self._detection
        # The far field is unitary: 1 / √pixels in Ψ, and again in its adjoint.
        scale = 1 / self._pixels if self._illumination.propagator is None else 1.0
        compared = self._detected, stored, rows, mask, weights, background, scale, floor
        options = scale, self._of_weights or self._of_background
        if loss == "amplitude":
            losses, self._slopes = operations.compare_(*compared, damping, *options)
        else:
            losses, self._slopes = operations.compare_counts_(*compared, loss, *options)
        return losses

    def _gradients_at_detector(self, factor: float) -> tuple[Tensor | None, Tensor | None]:
        if not (self._of_weights or self._of_background):
            return None, None
        slopes, intensity = self._slopes
        weights = (slopes * intensity).sum((1, 2)) * factor if self._of_weights else None
        return weights, slopes.sum(0) * factor if self._of_background else None

    def _return_from_detector(self, factor: float) -> tuple[Tensor, Tensor | None]:
        """Return gradients behind the last slice, and what the shift back on a near detector adds to dL/ds_j."""
        shifts, propagator = self._illumination.shifts, self._illumination.propagator
        change = self._detected
        del self._detected
        if propagator is None:
            return torch.fft.ifft2(change, norm="forward"), None
        return operations.return_from_near_detector(change, propagator, shifts, self._unshifted, factor)

    def _gradient_of_probes(self, spectra: Tensor, factor: float) -> Tensor:
        """Return the gradient of the probes. spectra: of gradients in front of the object, not unitary."""
        shifts, factor = self._illumination.shifts, factor / self._pixels
        if len(self._illumination.probes) == 1:
            summed = operations.gather_probe_gradient(spectra, shifts, factor)[None]
        else:
            summed = operations.shift_spectra(spectra, -shifts, factor)
        return torch.fft.ifft2(summed, norm="forward")


class GPUMisfit(torch.autograd.Function):
    """`GPUDescent` as an autograd function."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """inputs: `hotpath.varied`, followed by the two records that contain them."""
        *_, illumination, detection = inputs
        ctx.descent = GPUDescent(illumination, detection, ctx.needs_input_grad[:-2])
        return ctx.descent.value()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients; call only once."""
        descent = ctx.descent
        del ctx.descent
        found = descent.gradients(1.0)
        return *(None if one is None else one * outer[0] for one in found), None, None
