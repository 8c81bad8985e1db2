"""The forward model of a reconstruction: pieces in the order in which light meets them.

    positions  ->  probes  ->  probes x object windows  ->  detector waves  ->  intensity  ->  loss
    move        illuminate  interact, leave             propagate           detect

What takes the time is in `hotpath`, with gradients written out; around it, gradients are recorded piece by piece.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics.components.builtin import Background, Object, Probe, Slices, Tilt, Weights
from ptynb.physics.components.component import STEPS, Batch, ModelComponent, overrides
from ptynb.physics.hotpath import (
    compiled_for,
    exit_waves,
    far_field_descent,
    far_field_intensity,
    far_field_misfit,
    far_field_patterns,
    intensity_of,
    moved_probes,
    varied,
)
from ptynb.physics.losses import AmplitudeLoss, Loss, loss_of
from ptynb.physics.patches import windows_of
from ptynb.physics.propagation import angular_spectrum_kernel, far_field, propagate
from ptynb.physics.regularizers import mean_pattern
from ptynb.physics.resampling import Resampling
from ptynb.physics.tilted_detector import tilted_far_field
from ptynb.physics.torch_steps import shift_ramps


class Propagation(ABC):
    """From the exit waves to the detector.

    fourier: whether the intensity comes in FFT order.
    """

    fourier: bool

    @abstractmethod
    def __call__(self, waves: Tensor) -> Tensor:
        """Waves on the detector (…, y, x), whose squares are intensities."""

    @abstractmethod
    def adjoint(self, waves: Tensor) -> Tensor:
        """The adjoint of the propagation; its inverse too, where no wave is lost on the way."""


@final
class FarFieldPropagation(Propagation):
    """Fraunhofer diffraction: a unitary Fourier transform."""

    fourier = True

    def __call__(self, waves: Tensor) -> Tensor:
        """F[ψ]."""
        return far_field(waves)

    def adjoint(self, waves: Tensor) -> Tensor:
        """The inverse transform."""
        return torch.fft.ifft2(waves, norm="ortho")


@final
class NearFieldPropagation(Propagation):
    """Free space over a distance that is short for the grid: an angular spectrum of plane waves."""

    fourier = False

    def __init__(self, kernel: Tensor) -> None:
        """kernel: (y, x), from `angular_spectrum_kernel`."""
        self.kernel = kernel

    def __call__(self, waves: Tensor) -> Tensor:
        """F⁻¹[H F[ψ]]."""
        return propagate(waves, self.kernel)

    def adjoint(self, waves: Tensor) -> Tensor:
        """The same distance backwards."""
        return propagate(waves, self.kernel.conj())


@final
class TiltedFarField(Propagation):
    """Fraunhofer diffraction between tilted planes: the spectrum where the detector's pixels see it."""

    fourier = True

    def __init__(self, points: Resampling) -> None:
        """points: from `far_field_resampling`."""
        self.points = points

    def __call__(self, waves: Tensor) -> Tensor:
        """Ψ where the pixels are."""
        return tilted_far_field(waves, self.points)

    def adjoint(self, waves: Tensor) -> Tensor:
        """The adjoint of the interpolated spectrum, by automatic differentiation."""
        with torch.enable_grad():
            start = torch.zeros_like(waves).requires_grad_()
            return torch.autograd.grad(self(start), start, waves)[0]


@final
class Slab:
    """What lies between the slices of a thick object: free space, crossed by a beam that may be tilted."""

    def __init__(self, slices: Slices, tilt: Tilt, pixel: tuple[float, float], wavelength: float) -> None:
        """pixel: of the object (y, x) [m]. wavelength: [m]."""
        self.slices, self.tilt = slices, tilt
        self.pixel, self.wavelength = pixel, wavelength
        self._fixed: Tensor | None = None

    @property
    def moving(self) -> bool:
        """Whether the kernel has a gradient."""
        return self.slices.stretch.requires_grad or self.tilt.angles.requires_grad

    def kernel(self, window: tuple[int, int], patterns: Tensor, dtype: torch.dtype) -> Tensor:
        """Propagator from slice to slice, (y, x) or (pattern, y, x), complex of this type."""
        changing = self.moving or self.tilt.each
        if changing or self._fixed is None:
            tilt = self.tilt.of(patterns).double()
            kernel = angular_spectrum_kernel(
                window, self.pixel, self.wavelength, self.slices.thickness, tilt=tilt, device=patterns.device
            ).to(dtype)
            self._fixed = None if changing else kernel.detach()
            return kernel
        return self._fixed


@final
class Model(nn.Module):
    """All parameters of a reconstruction, and how a batch's loss follows from them."""

    def __init__(
        self,
        object: Object,
        probe: Probe,
        pieces: Sequence[ModelComponent],
        *,
        positions: Tensor,
        propagation: Propagation,
        loss: Loss,
        mask: Tensor | None = None,
        slab: Slab | None = None,
    ) -> None:
        """positions: top-left corners of all probe windows (pattern, yx) in the object's array, float64, on the CPU.

        mask: (y, x) 0 or 1 in the detector's order inside, on the device; None: 1 everywhere.
        """
        super().__init__()
        self.object, self.probe = object, probe
        self.pieces = nn.ModuleList(pieces)
        self._taking = {step: tuple(piece for piece in pieces if overrides(piece, step)) for step in STEPS}
        self.slab_parts = nn.ModuleList([] if slab is None else [slab.slices, slab.tilt])
        self.slab, self.propagation, self.loss, self.mask = slab, propagation, loss, mask
        self.mean_pattern_weight = 0.0
        self.window = probe.parts.shape[-3], probe.parts.shape[-2]
        """Pixels (y, x) of the probe's window."""
        self._device = device = probe.parts.device
        self.initial_positions = positions.to(device)
        sides = torch.tensor(object.values.shape[-2:]) - torch.tensor(self.window)
        self._limits = torch.zeros(2, dtype=positions.dtype, device=device), sides.to(self.initial_positions)
        whole = torch.round(positions)
        self._window_origins = whole.to(torch.int64)
        self._subpixel_shifts = (positions - whole).to(device, probe.parts.dtype)
        self.parts = {piece.name: piece for piece in self.modules() if isinstance(piece, ModelComponent)}
        """Every piece by its name, the object and the probe among them."""

    def forward(self, batch: Batch) -> Tensor:
        """The loss of these patterns, a sum (scalar). To be called on all engines, with an empty batch too."""
        if len(batch) and self._bare:
            return far_field_misfit(self._illumination(batch), self._detection(batch))
        model = self.intensities(batch) if len(batch) else self._nothing(batch)
        value = loss_of(model, batch.frames, self.mask, self.loss)
        if self.mean_pattern_weight:
            value = value + self.mean_pattern_weight * mean_pattern(model, batch.counts, self.mask, batch)
        return value

    def descend(self, batch: Batch, factor: float) -> Tensor:
        """The loss of these patterns, a sum (scalar) without gradient: `factor` times that is added to `.grad`.

        What calling the model and `backward` do. Where one step computes it all, object and probe get their gradients
        without being recorded, which takes a fifth of an update of a small batch.
        """
        if not (len(batch) and self._bare):
            value = self(batch)
            if value.requires_grad:
                torch.autograd.backward(value, torch.full_like(value, factor))
            return value.detach()
        given, detection = self._illumination(batch), self._detection(batch)
        sum_of_losses, *gradients = far_field_descent(given, detection, factor)
        found = [
            (tensor, gradient)
            for tensor, gradient in zip(varied(given, detection), gradients, strict=True)
            if tensor is not None and gradient is not None
        ]
        recorded = [pair for pair in found if not self._add_gradient(*pair, given)]
        if recorded:
            torch.autograd.backward([tensor for tensor, _ in recorded], [gradient for _, gradient in recorded])
        return self.probe.parts.new_tensor(sum_of_losses)

    @torch.no_grad()
    def _add_gradient(self, tensor: Tensor, gradient: Tensor, given: Illumination) -> bool:
        """Adds the gradient of the object or the probes to that of their parameter, if there is nothing in between."""
        if tensor is given.object and not self.object.polar:
            parameter = self.object.parts
        elif tensor is given.probes and not self._taking_part("illuminate"):
            parameter, gradient = self.probe.parts, gradient[0].mul_(self.probe.scale)
        else:
            return False
        own = torch.view_as_real(gradient)
        parameter.grad = own if parameter.grad is None else parameter.grad + own
        return True

    @property
    def compiled(self) -> bool:
        """Whether most of an update is compiled, with threads that are not torch's."""
        still = self.slab is None or not self.slab.moving
        return isinstance(self.propagation, FarFieldPropagation) and still and compiled_for(self._device, self.window)

    @property
    def _bare(self) -> bool:
        """Whether only weights and a background stand between exit waves and their loss: one step computes it all."""
        return (
            isinstance(self.loss, AmplitudeLoss)
            and self.object.states == 1
            and not (self.mean_pattern_weight or self._taking_part("exit_wave"))
            and all(isinstance(piece, Weights | Background) for piece in self._taking_part("detect"))
            and self.compiled
        )

    def _detection(self, batch: Batch) -> Detection:
        """What the detector saw, with weights and a background where there are any."""
        weights, background = None, None
        for piece in self._taking_part("detect"):
            if isinstance(piece, Weights):
                weights = piece.of(batch)
            elif isinstance(piece, Background):
                background = piece.counts
        loss = self.loss
        assert isinstance(loss, AmplitudeLoss)
        return Detection(batch.stored, batch.rows, self.mask, loss.floor, weights, background, loss.damping)

    def intensities(self, batch: Batch) -> Tensor:
        """Modelled patterns [counts], (pattern, y, x) in the detector's order inside."""
        states = self.object.values.shape[0]
        if isinstance(self.propagation, FarFieldPropagation) and not self._taking_part("exit_wave"):
            intensity = far_field_patterns(self._illumination(batch))
        elif isinstance(self.propagation, FarFieldPropagation):
            intensity = far_field_intensity(self.leaving(batch))
        else:
            intensity = intensity_of(self.to_detector(self.leaving(batch), batch))
        if states > 1:
            intensity = intensity / states
        for piece in self._taking_part("detect"):
            intensity = piece.detect(intensity, batch)
        return intensity

    def leaving(self, batch: Batch) -> Tensor:
        """Waves that leave for the detector (pattern, state, mode, y, x)."""
        object, corners, probes, rests, kernel = self._illumination(batch)
        waves = exit_waves(object, corners, moved_probes(probes, rests), kernel)
        for piece in self._taking_part("exit_wave"):
            waves = piece.exit_wave(waves, batch)
        return waves

    def to_detector(self, waves: Tensor, batch: Batch) -> Tensor:
        """Exit waves (pattern, …, y, x) -> waves on the detector.

        Inside, windows lie at whole pixels and the probe is moved by the rest. A near-field detector stands still with
        the probe, so its waves are moved back; in the far field that would be a phase which nobody sees.
        """
        if isinstance(self.propagation, NearFieldPropagation):
            waves = self._shifted_by_subpixels(waves, batch, back=True)
        return self.propagation(waves)

    def from_detector(self, waves: Tensor, batch: Batch) -> Tensor:
        """The adjoint of `to_detector`."""
        waves = self.propagation.adjoint(waves)
        return (
            self._shifted_by_subpixels(waves, batch, back=False)
            if isinstance(self.propagation, NearFieldPropagation)
            else waves
        )

    def _shifted_by_subpixels(self, waves: Tensor, batch: Batch, back: bool) -> Tensor:
        ramps = shift_ramps(self.window_origins_and_shifts(batch)[1], self.window)
        spread = (len(ramps),) + (1,) * (waves.ndim - 3) + ramps.shape[-2:]
        return torch.fft.ifft2(torch.fft.fft2(waves) * (ramps.conj() if back else ramps).reshape(spread))

    def illuminated(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Each pattern's probe (pattern, mode, y, x) and window of the object (pattern, state, slice, y, x)."""
        object, corners, probes, rests, _ = self._illumination(batch)
        return moved_probes(probes, rests), windows_of(object, corners, self.window)

    def _illumination(self, batch: Batch) -> Illumination:
        """What shines on the windows before it is moved, and their rests, which move it."""
        corners, rests = self.window_origins_and_shifts(batch)
        probes = self.probe.values[None]
        for piece in self._taking_part("illuminate"):
            probes = piece.illuminate(probes, batch)
        kernel = None if self.slab is None else self.slab.kernel(self.window, batch.patterns, probes.dtype)
        return Illumination(self.object.values, corners, probes, rests, kernel)

    def window_origins_and_shifts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Window origins (pattern, yx), int64, on the CPU, and subpixel shifts (pattern, yx), differentiable."""
        if not self.movers:
            return self._window_origins[batch.patterns.cpu()], self._subpixel_shifts[batch.patterns]
        positions = self.positions_of(batch)
        whole = positions.detach().round().clamp(*self._limits)
        return whole.to("cpu", torch.int64), (positions - whole).to(self.probe.parts.dtype)

    @property
    def movers(self) -> list[ModelComponent]:
        """The pieces that move windows now."""
        return self._taking_part("shift_positions")

    def positions_of(self, batch: Batch) -> Tensor:
        """Where the probe windows lie now, (pattern, yx) [pixels of the object's array], float64."""
        positions = self.initial_positions[batch.patterns]
        for piece in self._taking_part("shift_positions"):
            positions = piece.shift_positions(positions, batch)
        return positions

    def all_positions(self) -> Tensor:
        """Where all probe windows lie now, (pattern, yx), float64, on the CPU."""
        patterns = torch.arange(len(self.initial_positions), device=self.initial_positions.device)
        with torch.no_grad():
            return (
                self.positions_of(
                    Batch(patterns, self._subpixel_shifts[:0], len(patterns), self._subpixel_shifts.dtype)
                )
                .double()
                .cpu()
            )

    def start_arrays(self) -> dict[str, Tensor]:
        """What the optimised positions began as, on the CPU: "positions/start" (pattern, yx), where they may move."""
        return (
            {"positions/start": self.initial_positions.double().cpu().clone()}
            if self._taking_part("shift_positions")
            else {}
        )

    def _taking_part(self, step: str) -> list[ModelComponent]:
        """Pieces that are awake and override this step."""
        return [piece for piece in self._taking[step] if piece.active]

    def _nothing(self, batch: Batch) -> Tensor:
        """No patterns (0, y, x), and yet gradients, all 0, for every parameter: other engines wait for them."""
        zero = sum((parameter.sum() * 0 for parameter in self.parameters() if parameter.requires_grad), torch.zeros(()))
        return batch.counts + zero.to(batch.counts)
