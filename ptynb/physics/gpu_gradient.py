"""Loss and gradients of a batch on a GPU: `gpu_operations` with torch's transforms between them.

The counterpart of `kernels.fused_gradient` on a CPU, with the same interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import gpu_operations as operations


class GPUDescent:
    """`hotpath.misfit` and its gradients, which can be computed only once."""

    def __init__(self, illumination: Illumination, detection: Detection, required: Sequence[bool]) -> None:
        """required: which gradients of `hotpath.varied` to compute."""
        self._illumination, self._detection = illumination, detection
        self._of_object, self._of_probes, self._of_shifts, self._of_weights, self._of_background = required
        self._pixels = illumination.probes.shape[-2] * illumination.probes.shape[-1]

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the loss, a scalar float64."""
        object, origins, probes, shifts, kernel, propagator = self._illumination
        pixels, detection = self._pixels, self._detection
        self._spectra = torch.fft.fft2(probes)
        moved = torch.fft.ifft2(operations.shift_spectra(self._spectra, shifts, 1 / pixels), norm="forward")
        self._incident = [moved]
        waves = operations.illuminate(moved, object[0, 0], origins)
        for layer in object[0, 1:]:
            assert kernel is not None, "several slices need a kernel"
            spectra = torch.fft.fft2(waves)
            operations.multiply_spectra_(spectra, kernel, None, 1 / pixels, adjoint=False)
            self._incident.append(torch.fft.ifft2(spectra, norm="forward"))
            waves = operations.illuminate(self._incident[-1], layer, origins)
        self._detected = torch.fft.fft2(waves)
        self._unshifted: Tensor | None = None
        scale = 1 / pixels  # the far field is unitary: 1 / √pixels in Ψ, and again in its adjoint
        if propagator is not None:
            scale = 1.0
            if self._of_shifts:
                self._unshifted = self._detected
                operations.multiply_spectra_(self._unshifted, propagator, None, 1.0, adjoint=False)
                self._detected = operations.shift_spectra(self._unshifted, -shifts, 1 / pixels)
            else:
                operations.multiply_spectra_(self._detected, propagator, shifts, 1 / pixels, adjoint=False)
            self._detected = torch.fft.ifft2(self._detected, norm="forward")
        waves, others = self._detected, (scale, self._of_weights or self._of_background)
        stored, rows, mask, floor, weights, background, damping, loss = detection
        counts = stored, rows, mask, weights, background
        losses, self._slopes = (
            operations.compare_(waves, *counts, scale, floor, damping, *others)
            if loss == "amplitude"
            else operations.compare_counts_(waves, *counts, scale, floor, loss, *others)
        )
        return losses.sum()

    @torch.no_grad()
    def gradients(self, factor: float, probe_factor: float | None = None) -> tuple[Tensor | None, ...]:
        """Return the requested gradients, times `factor`, else None; those of the probes times `probe_factor`."""
        object, origins, _, shifts, kernel, propagator = self._illumination
        of_weights, of_background = self._gradients_at_detector(factor)
        if not (self._of_object or self._of_probes or self._of_shifts):
            return None, None, None, of_weights, of_background
        change, pixels, of_detector = self._detected, self._pixels, None
        if propagator is None:
            change = torch.fft.ifft2(change, norm="forward")
        else:
            spectra = torch.fft.fft2(change)
            if self._unshifted is not None:
                of_detector = operations.shift_gradient(spectra, self._unshifted, -shifts, -factor)
            operations.multiply_spectra_(spectra, propagator, shifts, 1 / pixels, adjoint=True)
            change = torch.fft.ifft2(spectra, norm="forward")
        del self._detected
        gradient = torch.empty_like(object) if self._of_object else None
        for number in reversed(range(object.shape[1])):
            if gradient is not None:
                waves = self._incident[number]
                operations.set_object_gradient_(gradient[0, number], waves, change, origins, factor)
            self._incident.pop()
            if number == 0 and not (self._of_probes or self._of_shifts):
                break
            operations.return_to_probe_(change, object[0, number], origins)
            if number:
                assert kernel is not None
                spectra = torch.fft.fft2(change)
                operations.multiply_spectra_(spectra, kernel, None, 1 / pixels, adjoint=True)
                change = torch.fft.ifft2(spectra, norm="forward")
        probe_factor = factor if probe_factor is None else probe_factor
        of_probe = self._gradients_of_probe(change, factor, probe_factor, of_detector)
        return gradient, *of_probe, of_weights, of_background

    def _gradients_of_probe(
        self, change: Tensor, factor: float, probe_factor: float, of_detector: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        _, _, probes, shifts, *_ = self._illumination
        if not (self._of_probes or self._of_shifts):
            return None, None
        spectra, of_probes, of_shifts = torch.fft.fft2(change), None, None
        if self._of_shifts:
            of_shifts = operations.shift_gradient(spectra, self._spectra, shifts, factor)
            of_shifts = of_shifts if of_detector is None else of_shifts + of_detector
        if self._of_probes:
            if len(probes) == 1:
                summed = operations.gather_probe_gradient(spectra, shifts, probe_factor / self._pixels)[None]
            else:
                summed = operations.shift_spectra(spectra, -shifts, probe_factor / self._pixels)
            of_probes = torch.fft.ifft2(summed, norm="forward")
        return of_probes, of_shifts

    def _gradients_at_detector(self, factor: float) -> tuple[Tensor | None, Tensor | None]:
        if not (self._of_weights or self._of_background):
            return None, None
        slopes, intensity = self._slopes
        weights = (slopes * intensity).sum((1, 2)) * factor if self._of_weights else None
        return weights, slopes.sum(0) * factor if self._of_background else None


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
