"""Corrections of exit waves on a GPU: `gpu_operations` with torch's transforms between them.

The counterpart of `kernels.fused_corrections` on a CPU, with the interface and the equations of
`physics.exit_wave_corrections`. Of the waves, those incident on each slice and the correction behind the last are kept.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import gpu_operations as operations


@final
class GPUCorrections:
    """`physics.exit_wave_corrections.Corrections` by few operations, none of which waits for the GPU.

    `brightness` is computed if there are weights or a background, or shifts are requested; else it is None.
    """

    def __init__(self, illumination: Illumination, detection: Detection, *, shifts: bool, first: bool) -> None:
        self.background: Tensor | None = None
        self.brightness: Tensor | None = None
        self.shifts: Tensor | None = None
        self.first: Tensor | None = None
        object, self._origins, probes, self._subpixel, self._kernel, propagator = illumination
        self._object = object[0]
        self._pixels = probes.shape[-2] * probes.shape[-1]
        weights = detection.weights
        self._root = None if weights is None else weights.sqrt()[:, None, None, None]
        spectra = torch.fft.fft2(probes)
        self._incident = [self._moved(spectra)]
        for layer in self._object[:-1]:
            self._incident.append(
                operations.propagate_slice(
                    operations.illuminate(self._incident[-1], layer, self._origins), self._kernel, False
                )
            )
        waves = torch.fft.fft2(operations.illuminate(self._incident[-1], self._object[-1], self._origins))
        self._change, of_detector = self._compare(waves, detection, propagator, shifts)
        returned = self._sum_over_slices()
        if self._root is not None:
            returned.mul_(self._root)
        height, width = probes.shape[-2:]
        self.power = operations.sum_object_power(self._object, self._origins, weights, height, width)
        of_probes = torch.fft.fft2(returned)
        del returned
        if shifts:
            found = operations.shift_gradient(of_probes, spectra, self._subpixel, 1.0)
            self.shifts = found if of_detector is None else found + of_detector
        summed = operations.gather_probe_gradient(of_probes, self._subpixel, 1 / self._pixels)
        self.probe = torch.fft.ifft2(summed, norm="forward")
        if first:
            of_first = operations.shift_spectra(of_probes[:, :1], -self._subpixel, 1 / self._pixels)
            self.first = torch.fft.ifft2(of_first, norm="forward")[:, 0]

    def products(self, object_step: Tensor, probe_step: Tensor) -> Tensor:
        """Return `Corrections.products`."""
        steps, before = self._moved(torch.fft.fft2(probe_step)[None]), None
        for wave, layer, step in zip(self._incident[:-1], self._object[:-1], object_step[:-1], strict=True):
            x = operations.illuminate(wave, step, self._origins)
            if before is not None:
                x.add_(operations.illuminate(before, layer, self._origins))
            before = operations.propagate_slice(x, self._kernel, False)
            steps = operations.propagate_slice(operations.illuminate(steps, layer, self._origins), self._kernel, False)
        last = self._incident[-1], steps, before, self._object[-1], object_step[-1], self._origins
        return operations.compare_steps(self._change, *last).sum(1)

    def weighted_illumination(self, weights: Tensor) -> Tensor:
        """Return `Corrections.weighted_illumination`."""
        return self._illumination(weights)

    def curvatures(self, field: Tensor) -> Tensor:
        """Return `Corrections.curvatures`."""
        return operations.sum_curvatures(field, self._incident[0], self._origins).sum(1)

    def release(self) -> None:
        """Release the large arrays."""
        self._incident.clear()
        del self._change

    def _moved(self, spectra: Tensor) -> Tensor:
        """Return probes of these spectra (1 or pattern, mode, y, x), shifted, times the root of the weight."""
        moved = operations.shift_spectra(spectra, self._subpixel, 1 / self._pixels)
        moved = torch.fft.ifft2(moved, norm="forward")
        return moved if self._root is None else moved.mul_(self._root)

    def _compare(
        self, waves: Tensor, detection: Detection, propagator: Tensor | None, shifts: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return χ behind the last slice, and what the shift of the detector contributes to `shifts`.

        waves: spectra behind the last slice, not unitary; overwritten. Sets `loss`, `brightness` and `background`.
        """
        unshifted = None
        scale = 1 / self._pixels  # the far field is unitary: 1 / √pixels in Ψ, and again in its adjoint
        if propagator is not None:
            scale = 1.0
            waves, unshifted = operations.propagate_to_near_detector(waves, propagator, self._subpixel, shifts)
        wanted = shifts or detection.weights is not None or detection.background is not None
        losses, found = operations.compare_(
            waves,
            detection.stored,
            detection.rows,
            detection.mask,
            None,  # the root of the weights is in the waves
            detection.background,
            scale,
            detection.floor,
            detection.damping,
            -scale / 2,
            wanted,
        )
        self.loss = losses.sum()
        if wanted:
            slopes, intensity = found
            self._sum_at_detector(slopes, intensity, detection)
        if propagator is None:
            return torch.fft.ifft2(waves, norm="forward"), None
        return operations.return_from_near_detector(waves, propagator, self._subpixel, unshifted, 1.0)

    def _sum_at_detector(self, slopes: Tensor, intensity: Tensor, detection: Detection) -> None:
        """Set `brightness` and `background`. slopes: dL/dM, and intensity: Σ_m |Ψ_m|², (pattern, y, x)."""
        # The propagation to the detector is unitary, or multiplied by its adjoint: Re Σ ψ* χ is a sum at the detector.
        products = torch.linalg.vecdot(slopes, intensity).sum(1, dtype=torch.float64)
        self.brightness = torch.stack([-products, intensity.sum((1, 2), dtype=torch.float64)], 1)
        if detection.background is None:
            return
        inverse = (intensity + (detection.background + detection.floor)).reciprocal_().sum(0)
        if detection.mask is not None:
            inverse.mul_(detection.mask)
        self.background = torch.stack([-slopes.sum(0), inverse])

    def _sum_over_slices(self) -> Tensor:
        """Set `object` and `illumination`; return the correction of the probes of all patterns."""
        self.object = torch.empty_like(self._object)
        change = self._change
        for number in reversed(range(len(self._object))):
            operations.set_object_gradient_(self.object[number], self._incident[number], change, self._origins, 1.0)
            change = operations.return_to_probe(change, self._object[number], self._origins)
            if number:
                change = operations.propagate_slice(change, self._kernel, True)
        self.illumination = self._illumination(None)
        return change

    def _illumination(self, weights: Tensor | None) -> Tensor:
        """Return Σ_jm a_j |A_k|² (slice, y, x). weights: a (pattern,); None: 1."""
        sums = torch.empty_like(self._object.real, memory_format=torch.contiguous_format)
        for layer, wave in zip(sums, self._incident, strict=True):
            operations.set_intensity_(layer, wave, self._origins, weights)
        return sums
