"""Corrections of exit waves, their sums over patterns, and the step lengths that fit each pattern best.

The quantities of `optimize.lsqml`, for the patterns of one engine. With P_jm the probe of pattern j, shifted to its
position and multiplied by the square root of its relative intensity w_j, O_k slice k of the object in its window, and
H the propagator between two slices,

    A_1 = P_jm,  A_k+1 = F⁻¹[H F[O_k A_k]],  ψ_jm = O_K A_K       waves incident on each slice, and behind the last
    D_j = Σ_m |Ψ_jm|² + B                                         Ψ on the detector, and the background B
    χ_K = F⁻¹[(√(I_j / D_j) - 1) Ψ_jm]                            correction behind the last slice; 0 at bad pixels,
                                                                  damped where D_j is nearly 0 (`losses.AmplitudeLoss`)
    χ_k = F⁻¹[H* F[O_k+1* χ_k+1]]                                 behind the others, in reverse order
    G_jm = O_1* χ_1                                               correction of the probe

In the near field F⁻¹ includes the adjoint of the propagation and the shift of the detector. Every product with a
correction is that with the gradient of the loss, up to a factor: the sums are exact for any number of slices.

`Corrections` computes them by the steps of `chain`, on any device; `kernels.fused_corrections` has the same interface,
compiled for a CPU.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import final

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import operations
from ptynb.physics.chain import Chain, propagate_slice
from ptynb.physics.hotpath import compiled_for
from ptynb.physics.patches import check_inside


def corrections(illumination: Illumination, detection: Detection, *, shifts: bool, first: bool) -> Corrections:
    """Return the corrections of a batch of at least one pattern. shifts, first: which further products to compute."""
    object, origins, probes, *_ = illumination
    if probes.device.type == "cpu":  # on a GPU it would be waited for
        check_inside(object, origins, (probes.shape[-2], probes.shape[-1]))
    version = _compiled().CompiledCorrections if compiled_for(probes.device) else Corrections
    found: Corrections = version(illumination, detection, shifts=shifts, first=first)
    return found


@final
class Corrections:
    """Corrections of the exit waves of a batch, of at least one pattern, and their sums over these patterns.

    loss: the sum of losses. object: Σ_jm A_k* χ_k (slice, y, x), complex. illumination: Σ_jm |A_k|² (slice, y, x).
    probe: Σ_j √w_j S_j⁻¹[G_jm] (mode, y, x), complex, with S_j the subpixel shift. power: Σ_j w_j Π_k |O_k|² (y, x).
    background: Σ_j (√(I / D) - 1) and Σ_j 1 / D, (2, y, x), if there is a background.
    brightness: Re Σ ψ* χ and Σ |Ψ|² of each pattern, (pattern, 2); there if weights, background or shifts are.
    shifts: Re Σ (dψ/ds)* χ, with s the shift of the position, (pattern, yx); if requested.
    first: √w_j S_j⁻¹[G_j0] of the first mode, (pattern, y, x); if requested.
    """

    def __init__(self, illumination: Illumination, detection: Detection, *, shifts: bool, first: bool) -> None:
        self.background: Tensor | None = None
        self.brightness: Tensor | None = None
        weights = detection.weights
        root = None if weights is None else weights.sqrt()[:, None, None, None]
        self._chain = chain = Chain(illumination, root, keep=True, of_shifts=shifts)
        self._object, self._origins, self._kernel = illumination.object[0], illumination[1], illumination.kernel
        wanted = shifts or weights is not None or detection.background is not None
        # The root of the weights is in the waves; χ is the gradient, 2 dL/dψ*, times -1/2.
        losses, found = chain.compare(detection._replace(weights=None), -0.5, wanted)
        self.loss = losses.sum()
        if wanted:
            slopes, intensity = found
            self._sum_at_detector(slopes, intensity, detection)
        self._change, of_detector = chain.from_detector(1.0)
        self.object, change = torch.empty_like(self._object), self._change
        for number in reversed(range(len(self._object))):
            arguments = chain.incident[number], change, self._origins, 1.0
            operations.set_object_gradient_(self.object[number], *arguments)
            change = chain.through_slice(change, number)
        self.illumination = self.weighted_illumination(None)
        height, width = change.shape[-2:]
        self.power = operations.sum_object_power(self._object, self._origins, weights, height, width)
        spectra = torch.fft.fft2(change if root is None else change.mul_(root))
        del change
        self.shifts = chain.of_shifts(spectra, of_detector, 1.0) if shifts else None
        self.probe = chain.of_common_probes(spectra, 1.0)
        self.first = chain.of_each_probe(spectra[:, :1], 1.0)[:, 0] if first else None
        del chain.spectra

    def products(self, object_step: Tensor, probe_step: Tensor) -> Tensor:
        """Return (pattern, 5): xx, xy, yy, χx, χy, real products of the waves that the steps of object and probe add.

        object_step: (slice, y, x); x is its first-order effect behind the last slice. probe_step: (mode, y, x);
        likewise y. In double precision.
        """
        steps, before = self._chain.shifted(torch.fft.fft2(probe_step)[None]), None
        incident, origins = self._chain.incident, self._origins
        for wave, layer, step in zip(incident[:-1], self._object[:-1], object_step[:-1], strict=True):
            x = operations.illuminate(wave, step, origins, False)
            if before is not None:
                x.add_(operations.illuminate(before, layer, origins, False))
            before = propagate_slice(x, self._kernel, adjoint=False)
            steps = propagate_slice(operations.illuminate(steps, layer, origins, False), self._kernel, adjoint=False)
        last = incident[-1], steps, before, self._object[-1], object_step[-1], origins
        return operations.compare_steps(self._change, *last).sum(1)

    def weighted_illumination(self, weights: Tensor | None) -> Tensor:
        """Return Σ_jm c_j |A_k|² (slice, y, x) for weights c (pattern,); None: 1."""
        sums = torch.empty_like(self._object.real, memory_format=torch.contiguous_format)
        for layer, wave in zip(sums, self._chain.incident, strict=True):
            operations.set_intensity_(layer, wave, self._origins, weights)
        return sums

    def curvatures(self, field: Tensor) -> Tensor:
        """Return Σ_xm |P_jm|² Re(∂_a O* ∂_b O) for ab = yy, yx, xx, (pattern, 3), in double precision.

        field: O (y, x), complex; its derivatives are differences to the next pixel, 0 at the end of a window.
        """
        return operations.sum_curvatures(field, self._chain.incident[0], self._origins).sum(1)

    def release(self) -> None:
        """Release the large arrays; no further call follows."""
        self._chain.incident.clear()
        del self._change

    def _sum_at_detector(self, slopes: Tensor, intensity: Tensor, detection: Detection) -> None:
        """Set `brightness` and `background`. slopes: dL/dM, and intensity: Σ_m |Ψ_jm|², (pattern, y, x)."""
        # The propagation to the detector is unitary, or multiplied by its adjoint: Re Σ ψ* χ is a sum at the detector.
        products = torch.linalg.vecdot(slopes, intensity).sum(1, dtype=torch.float64)
        self.brightness = torch.stack([-products, intensity.sum((1, 2), dtype=torch.float64)], 1)
        if detection.background is None:
            return
        inverse = (intensity + (detection.background + detection.floor)).reciprocal_().sum(0)
        if detection.mask is not None:
            inverse.mul_(detection.mask)
        self.background = torch.stack([-slopes.sum(0), inverse])


@functools.cache
def _compiled() -> ModuleType:
    """Return the module of compiled steps, imported on first use."""
    return importlib.import_module("ptynb.kernels.fused_corrections")
