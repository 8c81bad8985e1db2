"""Loss and gradients of a batch on a GPU, by the operations of `gpu_operations` or `gpu_line_operations`.

The counterpart of `kernels.fused_gradient` on a CPU, with the same interface. The order of the steps is that of
`hotpath`. Fourier transforms are kernels of their own, cuFFT's, between two steps, or take place inside the kernels of
the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import gpu_line_operations as line_operations
from ptynb.physics import gpu_operations as operations


def descent_of(illumination: Illumination, detection: Detection, required: Sequence[bool]) -> GPUDescent:
    """Return the descent of a batch, by the transforms that are chosen for its window.

    required: which gradients of `hotpath.varied` to compute. Raises ValueError as `gpu_line_operations.chosen_for`.
    """
    by_lines = detection.loss == "amplitude" and line_operations.chosen_for(illumination.probes)
    descent = LineDescent if by_lines else PlaneDescent
    return descent(illumination, detection, required)


class GPUDescent(ABC):
    """`hotpath.misfit` and its gradients, which can be computed only once.

    Waves on their way to the detector, and gradients on their way back, are an array (pattern, mode, y, x). What it
    holds between two steps is up to the subclass, which has the steps and the Fourier transforms between them.
    """

    def __init__(self, illumination: Illumination, detection: Detection, required: Sequence[bool]) -> None:
        """required: which gradients of `hotpath.varied` to compute."""
        self._illumination, self._detection = illumination, detection
        self._of_object, self._of_probes, self._of_shifts, self._of_weights, self._of_background = required
        self._pixels = illumination.probes.shape[-2] * illumination.probes.shape[-1]
        self._incident = list[Tensor]()
        """Waves incident on each slice."""
        self._unshifted: Tensor | None = None
        """Spectra on a near detector before waves are shifted back, if shifts are optimised."""

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the loss, a scalar float64."""
        object, _, probes, *_ = self._illumination
        self._spectra = torch.fft.fft2(probes)
        waves = self._moved_probes()
        for number in range(object.shape[1]):
            if number:
                waves = self._propagate(waves, adjoint=False)
            waves = self._illuminate(waves, number)
        self._detected, losses = self._detect(waves)
        return losses.sum()

    @torch.no_grad()
    def gradients(self, factor: float, probe_factor: float | None = None) -> tuple[Tensor | None, ...]:
        """Return the requested gradients, times `factor`, else None; those of the probes times `probe_factor`."""
        object, *_ = self._illumination
        of_weights, of_background = self._gradients_at_detector(factor)
        if not (self._of_object or self._of_probes or self._of_shifts):
            return None, None, None, of_weights, of_background
        change, of_detector = self._return_from_detector(factor)
        gradient = torch.empty_like(object) if self._of_object else None
        for number in reversed(range(object.shape[1])):
            change = self._return_through(change, number, gradient, factor)
            if number:
                change = self._propagate(change, adjoint=True)
        of_probes, of_shifts = None, None
        if self._of_probes or self._of_shifts:
            spectra, of_probes = self._return_to_probes(change, factor if probe_factor is None else probe_factor)
            if self._of_shifts:
                of_shifts = operations.shift_gradient(spectra, self._spectra, self._illumination.shifts, factor)
                of_shifts = of_shifts if of_detector is None else of_shifts + of_detector
        return gradient, of_probes, of_shifts, of_weights, of_background

    @abstractmethod
    def _moved_probes(self) -> Tensor:
        """Return P_jm."""

    @abstractmethod
    def _illuminate(self, waves: Tensor, number: int) -> Tensor:
        """Return waves behind a slice, and keep those incident on it where its gradient needs them."""

    @abstractmethod
    def _propagate(self, waves: Tensor, adjoint: bool) -> Tensor:
        """Return waves at the next slice, or gradients at the one before if `adjoint`; `waves` may be overwritten."""

    @abstractmethod
    def _detect(self, waves: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients on the detector, and the loss of parts of each pattern; `waves` may be overwritten."""

    @abstractmethod
    def _return_from_detector(self, factor: float) -> tuple[Tensor, Tensor | None]:
        """Return gradients behind the last slice, and what the shift back on a near detector adds to dL/ds_j."""

    @abstractmethod
    def _return_through(self, change: Tensor, number: int, gradient: Tensor | None, factor: float) -> Tensor:
        """Set the gradient of a slice, and return the gradients in front of it, in the place of those behind it."""

    @abstractmethod
    def _return_to_probes(self, change: Tensor, factor: float) -> tuple[Tensor, Tensor | None]:
        """Return the spectra of gradients in front of the object, if shifts move, and the gradient of the probes."""

    def _set_object_gradient(self, gradient: Tensor | None, number: int, change: Tensor, factor: float) -> None:
        """Set the gradient of a slice from the waves in front of it and the gradients behind it."""
        if gradient is not None:
            waves, origins = self._incident.pop(), self._illumination.window_origins
            operations.set_object_gradient_(gradient[0, number], waves, change, origins, factor)

    def _compare(self, compare_: Callable[..., tuple[Tensor, Tensor]], *waves: Any) -> Tensor:
        """Compare waves on the detector with counts; return the loss of parts of each pattern.

        compare_: the operation for the amplitude loss.
        """
        stored, rows, mask, floor, weights, background, damping, loss = self._detection
        # The far field is unitary: 1 / √pixels in Ψ, and again in its adjoint.
        scale = 1 / self._pixels if self._illumination.propagator is None else 1.0
        form: float | str = damping
        if loss != "amplitude":
            compare_, form = operations.compare_counts_, loss
        options = scale, floor, form, scale, self._of_weights or self._of_background
        losses, self._slopes = compare_(*waves, stored, rows, mask, weights, background, *options)
        return losses

    def _gradients_at_detector(self, factor: float) -> tuple[Tensor | None, Tensor | None]:
        if not (self._of_weights or self._of_background):
            return None, None
        slopes, intensity = self._slopes
        weights = (slopes * intensity).sum((1, 2)) * factor if self._of_weights else None
        return weights, slopes.sum(0) * factor if self._of_background else None


@final
class PlaneDescent(GPUDescent):
    """By torch's transforms of planes (cuFFT): between steps are waves."""

    def _moved_probes(self) -> Tensor:
        moved = operations.shift_spectra(self._spectra, self._illumination.shifts, 1 / self._pixels)
        return torch.fft.ifft2(moved, norm="forward")

    def _illuminate(self, waves: Tensor, number: int) -> Tensor:
        if self._of_object:
            self._incident.append(waves)
        return operations.illuminate(waves, self._illumination.object[0, number], self._illumination.window_origins)

    def _propagate(self, waves: Tensor, adjoint: bool) -> Tensor:
        return operations.propagate_slice(waves, self._illumination.kernel, adjoint)

    def _detect(self, waves: Tensor) -> tuple[Tensor, Tensor]:
        shifts, propagator = self._illumination.shifts, self._illumination.propagator
        detected = torch.fft.fft2(waves)
        if propagator is not None:
            detected, self._unshifted = operations.propagate_to_near_detector(
                detected, propagator, shifts, self._of_shifts
            )
        return detected, self._compare(operations.compare_, detected)

    def _return_from_detector(self, factor: float) -> tuple[Tensor, Tensor | None]:
        shifts, propagator = self._illumination.shifts, self._illumination.propagator
        change = self._detected
        del self._detected
        if propagator is None:
            return torch.fft.ifft2(change, norm="forward"), None
        return operations.return_from_near_detector(change, propagator, shifts, self._unshifted, factor)

    def _return_through(self, change: Tensor, number: int, gradient: Tensor | None, factor: float) -> Tensor:
        self._set_object_gradient(gradient, number, change, factor)
        if number or self._of_probes or self._of_shifts:
            layer, origins = self._illumination.object[0, number], self._illumination.window_origins
            operations.return_to_probe_(change, layer, origins)
        return change

    def _return_to_probes(self, change: Tensor, factor: float) -> tuple[Tensor, Tensor | None]:
        shifts, spectra = self._illumination.shifts, torch.fft.fft2(change)
        if not self._of_probes:
            return spectra, None
        if len(self._illumination.probes) == 1:
            summed = operations.gather_probe_gradient(spectra, shifts, factor / self._pixels)[None]
        else:
            summed = operations.shift_spectra(spectra, -shifts, factor / self._pixels)
        return spectra, torch.fft.ifft2(summed, norm="forward")


@final
class LineDescent(GPUDescent):
    """By transforms of lines inside the operations: between steps are hybrids, spectra along x of waves along y."""

    def _moved_probes(self) -> Tensor:
        return line_operations.columns_ramp(self._spectra, self._illumination.shifts, 1 / self._pixels)

    def _illuminate(self, waves: Tensor, number: int) -> Tensor:
        incident = self._through(waves, number, adjoint=False)
        if self._of_object:
            self._incident.append(incident)
        return waves

    def _propagate(self, waves: Tensor, adjoint: bool) -> Tensor:
        kernel = self._illumination.kernel
        assert kernel is not None, "several slices need a kernel"
        line_operations.columns_propagate_(waves, kernel, None, 1 / self._pixels, adjoint, False)
        return waves

    def _detect(self, waves: Tensor) -> tuple[Tensor, Tensor]:
        propagator = self._illumination.propagator
        if propagator is not None:
            spectra = self._to_or_from_detector(waves, adjoint=False)
            if self._of_shifts:
                operations.multiply_spectra_(spectra, propagator, None, 1.0, adjoint=False)
                self._unshifted = spectra
        return waves, self._compare(line_operations.lines_compare_, waves, propagator is None)

    def _return_from_detector(self, factor: float) -> tuple[Tensor, Tensor | None]:
        change, of_detector = self._detected, None
        if self._illumination.propagator is not None:
            spectra = self._to_or_from_detector(change, adjoint=True)
            if self._unshifted is not None:
                shifts = self._illumination.shifts
                of_detector = operations.shift_gradient(spectra, self._unshifted, -shifts, -factor)
        return change, of_detector

    def _return_through(self, change: Tensor, number: int, gradient: Tensor | None, factor: float) -> Tensor:
        self._set_object_gradient(gradient, number, self._through(change, number, adjoint=True), factor)
        return change

    def _return_to_probes(self, change: Tensor, factor: float) -> tuple[Tensor, Tensor | None]:
        shifts, factor = self._illumination.shifts, factor / self._pixels
        if len(self._illumination.probes) == 1:
            number = line_operations.choose_patterns_per_sum(change)
            sums, spectra = line_operations.columns_gather(change, shifts, factor, number, self._of_shifts)
            return spectra, torch.fft.ifft2(sums.sum(0, keepdim=True), norm="forward") if self._of_probes else None
        spectra = line_operations.columns_propagate_(change, None, shifts, factor, False, self._of_shifts)
        return spectra, torch.fft.ifft(change, norm="forward") if self._of_probes else None

    def _through(self, hybrid: Tensor, number: int, adjoint: bool) -> Tensor:
        """Take hybrids through a slice, in place; return what they are in front of it, if the object moves."""
        layer, origins = self._illumination.object[0, number], self._illumination.window_origins
        return line_operations.rows_multiply_(hybrid, layer, origins, adjoint, self._of_object)

    def _to_or_from_detector(self, hybrid: Tensor, adjoint: bool) -> Tensor:
        """Take hybrids to a near detector or back, in place; return their spectra before, if shifts move."""
        _, _, _, shifts, _, propagator = self._illumination
        return line_operations.columns_propagate_(
            hybrid, propagator, shifts, 1 / self._pixels, adjoint, self._of_shifts
        )


class GPUMisfit(torch.autograd.Function):
    """A `GPUDescent` as an autograd function."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """inputs: `hotpath.varied`, followed by the two records that contain them."""
        *_, illumination, detection = inputs
        ctx.descent = descent_of(illumination, detection, ctx.needs_input_grad[:-2])
        return ctx.descent.value()

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients; call only once."""
        descent = ctx.descent
        del ctx.descent
        found = descent.gradients(1.0)
        return *(None if one is None else one * outer[0] for one in found), None, None
