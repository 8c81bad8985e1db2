"""The way of a batch of patterns to the detector and back, as torch operations, for any device.

    spectra of the probes     F[P_m]                             `Chain.__init__`
    shift                     P_jm = F⁻¹[R_j F[P_m]] √w_j        `shifted`
    slices                    A_k+1 = F⁻¹[H F[O_k A_k]]          `propagate_slice`
    detector                  Ψ_jm = F[ψ_jm], in the near field F⁻¹[R_j* H F[ψ_jm]]
    comparison                Ψ ← 2 (dL/dM) Ψ a                  `compare`
    and back                  the adjoint of each step: `from_detector`, `through_slice`

Symbols are those of `hotpath`. What follows from a batch is computed with the same steps: the gradient of the loss by
`Descent` here, and the corrections of exit waves, which are this gradient times -1/2, by `exit_wave_corrections`. These
are the reference for the compiled steps of a CPU (`kernels.fused_gradient` and `kernels.fused_corrections`, with the
same interfaces), and on a GPU each of `operations` is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import operations


@final
class Chain:
    """The waves of a batch, from the probes to the detector.

    incident: waves A_k incident on each slice (pattern, mode, y, x), if they are kept. detected: those on the detector,
    later their gradient. spectra: F[P_m], not unitary (1 or pattern, mode, y, x).
    """

    def __init__(self, illumination: Illumination, root: Tensor | None = None, *, keep: bool, of_shifts: bool) -> None:
        """root: factor √w of the probes, (pattern, 1, 1, 1); None: 1. of_shifts: whether their gradient follows."""
        self.illumination, self._root = illumination, root
        self.pixels = illumination.probes.shape[-2] * illumination.probes.shape[-1]
        self.spectra = torch.fft.fft2(illumination.probes)
        self.incident = list[Tensor]()
        object, origins, _, shifts, kernel, propagator = illumination
        waves = self.shifted(self.spectra)
        for number, layer in enumerate(object[0]):
            if number:
                waves = propagate_slice(waves, kernel, adjoint=False)
            if keep:
                self.incident.append(waves)
            waves = operations.illuminate(waves, layer, origins, False)
        self.detected = torch.fft.fft2(waves)
        self._unshifted: Tensor | None = None
        """Spectra on a near detector before waves are shifted back, if shifts are optimised."""
        if propagator is None:
            return
        if of_shifts:
            operations.multiply_spectra_(self.detected, propagator, None, 1.0, False)
            self._unshifted = self.detected
            spectra = operations.shift_spectra(self.detected, -shifts, 1 / self.pixels)
        else:
            operations.multiply_spectra_(self.detected, propagator, shifts, 1 / self.pixels, False)
            spectra = self.detected
        self.detected = torch.fft.ifft2(spectra, norm="forward")

    def shifted(self, spectra: Tensor) -> Tensor:
        """Return probes of these spectra (1 or pattern, mode, y, x), shifted, times `root`: (pattern, mode, y, x)."""
        moved = operations.shift_spectra(spectra, self.illumination.shifts, 1 / self.pixels)
        moved = torch.fft.ifft2(moved, norm="forward")
        return moved if self._root is None else moved.mul_(self._root)

    def compare(self, detection: Detection, factor: float, slopes: bool) -> tuple[Tensor, Tensor]:
        """Replace waves on the detector by their gradient times `factor`; return `operations.compare_`.

        slopes: whether dL/dM and M are wanted.
        """
        # The far field is unitary: 1 / √pixels in Ψ, and again in its adjoint.
        scale = 1 / self.pixels if self.illumination.propagator is None else 1.0
        stored, rows, mask, floor, weights, background, damping, loss = detection
        seen = stored, rows, mask, weights, background
        return operations.compare_(self.detected, *seen, scale, floor, damping, loss, factor * scale, slopes)

    def from_detector(self, factor: float) -> tuple[Tensor, Tensor | None]:
        """Return the gradient behind the last slice, and what the shift back on a near detector adds to dL/ds_j.

        factor: of the latter only. Call it once: the waves on the detector are released.
        """
        shifts, propagator, change = self.illumination.shifts, self.illumination.propagator, self.detected
        del self.detected
        if propagator is None:
            return torch.fft.ifft2(change, norm="forward"), None
        spectra, unshifted, self._unshifted = torch.fft.fft2(change), self._unshifted, None
        of_detector = None if unshifted is None else operations.shift_gradient(spectra, unshifted, -shifts, -factor)
        operations.multiply_spectra_(spectra, propagator, shifts, 1 / self.pixels, True)
        return torch.fft.ifft2(spectra, norm="forward"), of_detector

    def through_slice(self, change: Tensor, number: int) -> Tensor:
        """Return the gradient behind the slice before this one, or of the shifted probes, from that behind it."""
        object, origins, *_ = self.illumination
        change = operations.illuminate(change, object[0, number], origins, True)
        return propagate_slice(change, self.illumination.kernel, adjoint=True) if number else change

    def of_shifts(self, spectra: Tensor, of_detector: Tensor | None, factor: float) -> Tensor:
        """Return dL/ds (pattern, yx) times `factor`. spectra: of the gradient of the probes, not unitary."""
        found = operations.shift_gradient(spectra, self.spectra, self.illumination.shifts, factor)
        return found if of_detector is None else found + of_detector

    def of_common_probes(self, spectra: Tensor, factor: float) -> Tensor:
        """Return the gradient of probes (mode, y, x) that all patterns share, times `factor`."""
        summed = operations.gather_probe_gradient(spectra, self.illumination.shifts, factor / self.pixels)
        return torch.fft.ifft2(summed, norm="forward")

    def of_each_probe(self, spectra: Tensor, factor: float) -> Tensor:
        """Return the gradient of the probes of each pattern (pattern, mode, y, x), times `factor`."""
        moved = operations.shift_spectra(spectra, -self.illumination.shifts, factor / self.pixels)
        return torch.fft.ifft2(moved, norm="forward")


def propagate_slice(waves: Tensor, kernel: Tensor | None, adjoint: bool) -> Tensor:
    """Return waves at the next slice, or gradients at the one before if `adjoint`."""
    assert kernel is not None, "several slices need a kernel"
    spectra = torch.fft.fft2(waves)
    operations.multiply_spectra_(spectra, kernel, None, 1 / (waves.shape[-2] * waves.shape[-1]), adjoint)
    return torch.fft.ifft2(spectra, norm="forward")


@final
class Descent:
    """`hotpath.misfit` and its gradients, which can be computed only once."""

    def __init__(self, illumination: Illumination, detection: Detection, required: Sequence[bool]) -> None:
        """required: which gradients of `hotpath.varied` to compute."""
        self._illumination, self._detection = illumination, detection
        self._of_object, self._of_probes, self._of_shifts, self._of_weights, self._of_background = required

    @torch.no_grad()
    def value(self) -> Tensor:
        """Return the loss, a scalar float64."""
        self._chain = Chain(self._illumination, keep=self._of_object, of_shifts=self._of_shifts)
        at_detector = self._of_weights or self._of_background
        losses, self._slopes = self._chain.compare(self._detection, 1.0, at_detector)
        return losses.sum()

    @torch.no_grad()
    def gradients(self, factor: float, probe_factor: float | None = None) -> tuple[Tensor | None, ...]:
        """Return the requested gradients, times `factor`, else None; those of the probes times `probe_factor`."""
        of_object, of_probes, of_shifts, of_weights, of_background = None, None, None, None, None
        if self._of_weights or self._of_background:
            slopes, intensity = self._slopes
            of_weights = (slopes * intensity).sum((1, 2)) * factor if self._of_weights else None
            of_background = slopes.sum(0) * factor if self._of_background else None
        below = self._of_probes or self._of_shifts
        if not (self._of_object or below):
            return None, None, None, of_weights, of_background
        chain, object = self._chain, self._illumination.object
        del self._chain
        change, of_detector = chain.from_detector(factor)
        of_object = torch.empty_like(object) if self._of_object else None
        for number in reversed(range(object.shape[1])):
            if of_object is not None:
                arguments = chain.incident.pop(), change, self._illumination.window_origins, factor
                operations.set_object_gradient_(of_object[0, number], *arguments)
            if number or below:
                change = chain.through_slice(change, number)
        if below:
            spectra = torch.fft.fft2(change)
            of_shifts = chain.of_shifts(spectra, of_detector, factor) if self._of_shifts else None
            of_one = factor if probe_factor is None else probe_factor
            if self._of_probes and len(self._illumination.probes) == 1:
                of_probes = chain.of_common_probes(spectra, of_one)[None]
            elif self._of_probes:
                of_probes = chain.of_each_probe(spectra, of_one)
        return of_object, of_probes, of_shifts, of_weights, of_background
