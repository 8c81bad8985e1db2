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

All implementations have the same interface: torch operations for any device, `kernels.fused_corrections`, compiled for
a CPU, and `gpu_corrections`, few operations for a GPU.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Protocol, final

import torch
from torch import Tensor

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics.components.component import selected
from ptynb.physics.gpu_corrections import GPUCorrections
from ptynb.physics.hotpath import compiled_for, intensity_of, moved_probes
from ptynb.physics.losses import AmplitudeLoss
from ptynb.physics.patches import add_windows, check_inside, read_windows
from ptynb.physics.torch_steps import shift_ramps, slopes_of_shifts


class Corrections(Protocol):
    """Corrections of the exit waves of a batch, of at least one pattern, and their sums over these patterns.

    loss: the sum of losses. object: Σ_jm A_k* χ_k (slice, y, x), complex. illumination: Σ_jm |A_k|² (slice, y, x).
    probe: Σ_j √w_j S_j⁻¹[G_jm] (mode, y, x), complex, with S_j the subpixel shift. power: Σ_j w_j Π_k |O_k|² (y, x).
    background: Σ_j (√(I / D) - 1) and Σ_j 1 / D, (2, y, x), if there is a background.
    brightness: Re Σ ψ* χ and Σ |Ψ|² of each pattern, (pattern, 2); there if weights, background or shifts are.
    shifts: Re Σ (dψ/ds)* χ, with s the shift of the position, (pattern, yx); if requested.
    first: √w_j S_j⁻¹[G_j0] of the first mode, (pattern, y, x); if requested.
    """

    loss: Tensor
    object: Tensor
    illumination: Tensor
    probe: Tensor
    power: Tensor
    brightness: Tensor | None
    background: Tensor | None
    shifts: Tensor | None
    first: Tensor | None

    def products(self, object_step: Tensor, probe_step: Tensor) -> Tensor:
        """Return (pattern, 5): xx, xy, yy, χx, χy, real products of the waves that the steps of object and probe add.

        object_step: (slice, y, x); x is its first-order effect behind the last slice. probe_step: (mode, y, x);
        likewise y. In double precision.
        """

    def weighted_illumination(self, weights: Tensor) -> Tensor:
        """Return Σ_jm c_j |A_k|² (slice, y, x) for weights c (pattern,)."""

    def curvatures(self, field: Tensor) -> Tensor:
        """Return Σ_xm |P_jm|² Re(∂_a O* ∂_b O) for ab = yy, yx, xx, (pattern, 3), in double precision.

        field: O (y, x), complex; its derivatives are differences to the next pixel, 0 at the end of a window.
        """

    def release(self) -> None:
        """Release the large arrays; no further call follows."""


def corrections(illumination: Illumination, detection: Detection, *, shifts: bool, first: bool) -> Corrections:
    """Return the corrections of a batch of at least one pattern. shifts, first: which further products to compute."""
    object, origins, probes, *_ = illumination
    if probes.device.type != "cpu":
        return GPUCorrections(illumination, detection, shifts=shifts, first=first)
    check_inside(object, origins, (probes.shape[-2], probes.shape[-1]))
    if compiled_for(probes.device):
        found: Corrections = _compiled().CompiledCorrections(illumination, detection, shifts=shifts, first=first)
        return found
    return TorchCorrections(illumination, detection, shifts=shifts, first=first)


@final
class TorchCorrections:
    """`Corrections` by torch operations."""

    def __init__(self, illumination: Illumination, detection: Detection, *, shifts: bool, first: bool) -> None:
        self.background: Tensor | None = None
        self.brightness: Tensor | None = None
        self.shifts: Tensor | None = None
        self.first: Tensor | None = None
        object, self._origins, probes, self._subpixel, self._kernel, propagator = illumination
        self._window = probes.shape[-2], probes.shape[-1]
        self._field = object[0]
        # (pattern, slice, y, x)
        self._windows = read_windows(object[0], self._origins, self._window)
        weights = detection.weights
        self._root = probes.real.new_ones(()) if weights is None else weights.sqrt()[:, None, None, None]
        self._probes = moved_probes(probes, self._subpixel) * self._root
        self._arriving = [self._probes]
        for layer in range(1, self._windows.shape[1]):
            self._arriving.append(self._between(self._arriving[-1] * self._windows[:, layer - 1, None]))
        waves = self._arriving[-1] * self._windows[:, -1, None]
        ramps = shift_ramps(self._subpixel, self._window)[:, None]
        if propagator is None:
            far = torch.fft.fft2(waves, norm="ortho")
        else:
            spectra = torch.fft.fft2(waves) * propagator
            far = torch.fft.ifft2(spectra * ramps.conj())
        intensity = intensity_of(far)
        modelled = intensity if detection.background is None else intensity + detection.background
        rows = detection.stored if detection.rows is None else selected(detection.stored, detection.rows)
        loss = AmplitudeLoss(detection.floor, detection.damping)
        self.loss, slope = loss.value_and_slope(modelled, rows, detection.mask)
        if detection.background is not None:
            inverse = 1 / (modelled + detection.floor)
            if detection.mask is not None:
                inverse = inverse * detection.mask
            self.background = torch.stack([-slope.sum(0), inverse.sum(0)])
        far = far * -slope[:, None]
        of_detector: Tensor | None = None
        if propagator is None:
            change = torch.fft.ifft2(far, norm="ortho")
        else:
            of_waves = torch.fft.fft2(far)
            if shifts:
                of_detector = -slopes_of_shifts(of_waves, spectra, -self._subpixel)
            change = torch.fft.ifft2(of_waves * (ramps * propagator.conj()))
        self._changes = [change]
        for layer in reversed(range(1, self._windows.shape[1])):
            self._changes.insert(0, self._back(self._windows[:, layer, None].conj() * self._changes[0]))
        pairs = [*zip(self._arriving, self._changes, strict=True)]
        self.object = torch.stack([self._added((wave.conj() * change).sum(1)) for wave, change in pairs])
        self.illumination = torch.stack([self._added(intensity_of(wave)) for wave in self._arriving])
        of_probes = self._windows[:, 0, None].conj() * self._changes[0]
        brightness = (self._probes.conj() * of_probes).real.sum((1, 2, 3), dtype=torch.float64)
        self.brightness = torch.stack([brightness, intensity.sum((1, 2), dtype=torch.float64)], 1)
        squares = self._windows.abs().square().prod(1)
        self.power = squares.sum(0) if weights is None else (weights[:, None, None] * squares).sum(0)
        spectra = torch.fft.fft2(of_probes * self._root)
        if shifts:
            found = slopes_of_shifts(spectra, torch.fft.fft2(probes), self._subpixel)
            self.shifts = found if of_detector is None else found + of_detector
        spectra = spectra * ramps.conj()
        self.probe = torch.fft.ifft2(spectra.sum(0))
        if first:
            self.first = torch.fft.ifft2(spectra[:, 0])

    def products(self, object_step: Tensor, probe_step: Tensor) -> Tensor:
        """Return `Corrections.products`."""
        steps = read_windows(object_step, self._origins, self._window)
        x = steps[:, 0, None] * self._arriving[0]
        y = moved_probes(probe_step, self._subpixel) * self._root * self._windows[:, 0, None]
        for layer in range(1, self._windows.shape[1]):
            window = self._windows[:, layer, None]
            x = window * self._between(x) + steps[:, layer, None] * self._arriving[layer]
            y = window * self._between(y)
        chi, x, y = (torch.view_as_real(waves).flatten(3).flatten(1, 2) for waves in (self._changes[-1], x, y))
        # Products of rows in their own precision, in one pass, and their sums in double.
        pairs = (x, x), (x, y), (y, y), (chi, x), (chi, y)
        return torch.stack([torch.linalg.vecdot(*pair).sum(1, dtype=torch.float64) for pair in pairs], 1)

    def weighted_illumination(self, weights: Tensor) -> Tensor:
        """Return `Corrections.weighted_illumination`."""
        along = weights[:, None, None]
        return torch.stack([self._added(along * intensity_of(wave)) for wave in self._arriving])

    def curvatures(self, field: Tensor) -> Tensor:
        """Return `Corrections.curvatures`."""
        windows = read_windows(field, self._origins, self._window)
        y, x = (torch.nn.functional.pad(windows.diff(dim=axis), pad) for axis, pad in ((1, (0, 0, 0, 1)), (2, (0, 1))))
        products = torch.stack([y * y.conj(), y * x.conj(), x * x.conj()], 1).real
        return (products * intensity_of(self._probes)[:, None]).sum((2, 3), dtype=torch.float64)

    def release(self) -> None:
        """Release the large arrays."""
        self._arriving.clear()
        self._changes.clear()

    def _between(self, waves: Tensor) -> Tensor:
        return torch.fft.ifft2(torch.fft.fft2(waves) * self._for_waves())

    def _back(self, waves: Tensor) -> Tensor:
        return torch.fft.ifft2(torch.fft.fft2(waves) * self._for_waves().conj())

    def _for_waves(self) -> Tensor:
        """Return the propagator, for waves (pattern, mode, y, x)."""
        assert self._kernel is not None, "several slices need a kernel"
        return self._kernel[:, None] if self._kernel.ndim == 3 else self._kernel

    def _added(self, windows: Tensor) -> Tensor:
        """Return windows (pattern, y, x), added at their places in an array of the size of the object."""
        return add_windows(windows.new_zeros(self._field.shape[-2:]), self._origins, windows)


@functools.cache
def _compiled() -> ModuleType:
    """Return the module of compiled steps, imported on first use."""
    return importlib.import_module("ptynb.kernels.fused_corrections")
