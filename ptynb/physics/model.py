"""The forward model of a reconstruction, from positions to loss. The methods below run one step each:

    positions        ->  probes      ->  exit waves  ->  detector waves  ->  intensity  ->  loss
    shift_positions      illuminate      exit_wave       propagate           detect

The time-critical steps are in `hotpath`, with explicit gradients; the others use automatic differentiation.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.exceptions import InvalidValueError
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics.components.builtin import Background, Object, ObjectPart, Probe, Slices, Tilt, Weights
from ptynb.physics.components.component import STEPS, Batch, ModelComponent, overrides
from ptynb.physics.hotpath import (
    compiled_for,
    descent,
    exit_waves,
    far_field_intensity,
    misfit,
    moved_probes,
    patterns,
    varied,
)
from ptynb.physics.losses import AmplitudeLoss, IntensityLoss, Loss, PoissonLoss, loss_of
from ptynb.physics.operations import places_of, select_places
from ptynb.physics.patches import windows_of
from ptynb.physics.propagation import angular_spectrum_kernel, far_field, propagate
from ptynb.physics.regularizers import mean_pattern
from ptynb.physics.resampling import Resampling
from ptynb.physics.streamed_object import StreamedObject
from ptynb.physics.tilted_detector import tilted_far_field
from ptynb.physics.torch_steps import intensity_of, shift_ramps

FUSED_LOSSES = AmplitudeLoss, PoissonLoss, IntensityLoss
"""Losses that a step computes together with their gradients on a GPU."""
COMPILED_LOSSES = AmplitudeLoss, PoissonLoss
"""Those on a CPU."""


class Propagation(ABC):
    """Propagation of exit waves to the detector. `fourier`: whether intensities are in FFT order."""

    fourier: bool

    @abstractmethod
    def __call__(self, waves: Tensor) -> Tensor:
        """Return the waves on the detector (…, y, x), whose squared moduli are intensities."""

    @abstractmethod
    def adjoint(self, waves: Tensor) -> Tensor:
        """Apply the adjoint of the propagation, which is its inverse if it is unitary."""


@final
class FarFieldPropagation(Propagation):
    """Fraunhofer diffraction: a unitary Fourier transform."""

    fourier = True

    def __call__(self, waves: Tensor) -> Tensor:
        """Return F[ψ]."""
        return far_field(waves)

    def adjoint(self, waves: Tensor) -> Tensor:
        """Return F⁻¹[Ψ]."""
        return torch.fft.ifft2(waves, norm="ortho")


@final
class NearFieldPropagation(Propagation):
    """Near-field propagation by the angular spectrum."""

    fourier = False

    def __init__(self, kernel: Tensor) -> None:
        """kernel: (y, x), from `angular_spectrum_kernel`."""
        self.kernel = kernel

    def __call__(self, waves: Tensor) -> Tensor:
        """Return F⁻¹[H F[ψ]]."""
        return propagate(waves, self.kernel)

    def adjoint(self, waves: Tensor) -> Tensor:
        """Propagate over the negative distance."""
        return propagate(waves, self.kernel.conj())


@final
class TiltedFarField(Propagation):
    """Fraunhofer diffraction between tilted planes: the spectrum at the frequencies of the detector pixels."""

    fourier = True

    def __init__(self, points: Resampling) -> None:
        """points: frequencies of the detector pixels, from `far_field_resampling`."""
        self.points = points

    def __call__(self, waves: Tensor) -> Tensor:
        """Return Ψ at the frequencies of the detector pixels."""
        return tilted_far_field(waves, self.points)

    def adjoint(self, waves: Tensor) -> Tensor:
        """Return the adjoint of the interpolated spectrum, computed by automatic differentiation."""
        with torch.enable_grad():
            start = torch.zeros_like(waves).requires_grad_()
            return torch.autograd.grad(self(start), start, waves)[0]


@final
class Slab:
    """Free space between the slices of a thick object, with an optional tilt of the beam."""

    def __init__(self, slices: Slices, tilt: Tilt, pixel: tuple[float, float], wavelength: float) -> None:
        """pixel: size (y, x) of an object pixel [m]. wavelength: [m]."""
        self.slices, self.tilt = slices, tilt
        self.pixel, self.wavelength = pixel, wavelength
        self._fixed: Tensor | None = None

    @property
    def moving(self) -> bool:
        """Whether the kernel requires a gradient."""
        return self.slices.stretch.requires_grad or self.tilt.angles.requires_grad

    def kernel(self, window: tuple[int, int], patterns: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the propagator from slice to slice, (y, x) or (pattern, y, x), complex; cached if fixed."""
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
    """All parameters of a reconstruction. Calling it returns the loss of a batch."""

    def __init__(
        self,
        object: Object,
        probe: Probe,
        components: Sequence[ModelComponent],
        *,
        positions: Tensor,
        propagation: Propagation,
        loss: Loss,
        mask: Tensor | None = None,
        slab: Slab | None = None,
        part: ObjectPart | None = None,
        streamed: StreamedObject | None = None,
    ) -> None:
        """positions: top-left corners of the probe windows (pattern, yx) in the object array, float64, on the CPU.

        mask: (y, x), 1 at valid pixels, 0 elsewhere, in the pixel order of `Batch`, on the device; None: all are valid.
        part: the pixels of the object that are this engine's own, if it has a tile. streamed: the whole object in host
        memory, if `object` has some of its rows only.
        """
        super().__init__()
        self.object, self.probe = object, probe
        self.part = ObjectPart.whole(object.values) if part is None else part
        self.streamed = streamed
        others = [*components, *([] if slab is None else [slab.slices, slab.tilt])]
        self._others = nn.ModuleList(others)
        self.components: dict[str, ModelComponent] = {}
        """All components by name, including object and probe."""
        for component in (object, probe, *others):
            if component.name in self.components or "." in component.name:
                raise InvalidValueError(
                    f"A component has the name {component.name!r}; expected one without a dot that no other component "
                    "has: change its attribute `name`.",
                    code="argument.invalid-value",
                )
            self.components[component.name] = component
        self._by_step = {
            step: tuple(component for component in components if overrides(component, step)) for step in STEPS
        }
        self.slab, self.propagation, self.loss, self.mask = slab, propagation, loss, mask
        self.mean_pattern_weight = 0.0
        self.window = probe.parts.shape[-3], probe.parts.shape[-2]
        """Size (y, x) of the probe window [pixels]."""
        self._device = device = probe.parts.device
        self.initial_positions = positions.to(device)
        self.admitted: Tensor | None = None
        """Indices (pattern,) of the patterns that are there, if not all are; on the device."""
        self.top, held_shape = self.part.origin[0], (*object.values.shape[-2:],)
        self._divided = held_shape != tuple(self.part.shape)
        """Whether the array of `object` is a part of the whole object only."""
        self._origin = torch.tensor(self.part.origin).to(self.initial_positions)
        window = torch.tensor(self.window).to(self.initial_positions)
        held = torch.tensor(held_shape).to(window)
        self._limits = self._origin, self._origin + held - window
        self._whole_limits = torch.zeros_like(window), torch.tensor(self.part.shape).to(window) - window
        whole = torch.round(positions)
        self._window_origins = self._in_array(whole.to(device)).to(torch.int64)
        self._subpixel_shifts = (positions - whole).to(device, probe.parts.dtype)

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss of these patterns, summed (scalar). Call it on all engines, also with an empty batch."""
        if len(batch) and self._in_one_step:
            return misfit(self.illumination(batch), self.detection(batch))
        model = self.intensities(batch) if len(batch) else self._nothing(batch)
        value = loss_of(model, batch.frames, self.mask, self.loss)
        if self.mean_pattern_weight:
            value = value + self.mean_pattern_weight * mean_pattern(model, batch.counts, self.mask, batch)
        return value

    def descend(self, batch: Batch, factor: float) -> Tensor:
        """Return the loss of these patterns, summed (scalar), and add `factor` times its gradient to `.grad`.

        Equivalent to calling the model and `backward`. If one fused step computes everything, object and probe
        receive their gradients without autograd, whose recording takes a fifth of an update of a small batch.
        """
        if not (len(batch) and self._in_one_step):
            value = self(batch)
            if value.requires_grad:
                torch.autograd.backward(value, torch.full_like(value, factor))
            return value.detach()
        illumination, detection = self.illumination(batch), self.detection(batch)
        of_parameter = self._device.type != "cpu" and self._probe_alone
        of_probes = factor * self.probe.unit if of_parameter else factor
        sum_of_losses, *gradients = descent(illumination, detection, factor, of_probes)
        pairs = [
            (tensor, gradient)
            for tensor, gradient in zip(varied(illumination, detection), gradients, strict=True)
            if tensor is not None and gradient is not None
        ]
        recorded = [pair for pair in pairs if not self._add_gradient(*pair, illumination)]
        if recorded:
            torch.autograd.backward([tensor for tensor, _ in recorded], [gradient for _, gradient in recorded])
        return sum_of_losses

    @torch.no_grad()
    def _add_gradient(self, tensor: Tensor, gradient: Tensor, illumination: Illumination) -> bool:
        """Add a gradient to that of the object or probe parameter; return False if other operations are in between."""
        if tensor is illumination.object and not self.object.polar:
            parameter = self.object.parts
        elif tensor is illumination.probes and self._probe_alone:
            parameter, gradient = self.probe.parts, gradient[0]
            if self._device.type == "cpu":
                gradient = gradient.mul_(self.probe.scale)
        else:
            return False
        own = torch.view_as_real(gradient)
        parameter.grad = own if parameter.grad is None else parameter.grad + own
        return True

    @property
    def _probe_alone(self) -> bool:
        """Whether the probe illuminates all patterns as it is, so that a gradient is that of its parameter."""
        return self.probe.count == 1 and not self._active("illuminate")

    @property
    def compiled(self) -> bool:
        """Whether most of an update runs in compiled code, in the threads of `kernels`."""
        return self._unextended and compiled_for(self._device)

    @property
    def _unextended(self) -> bool:
        """Whether the propagation is none of those that only torch's operations compute."""
        still = self.slab is None or not self.slab.moving
        return still and not isinstance(self.propagation, TiltedFarField)

    @property
    def _in_one_step(self) -> bool:
        """Whether one fused step computes the loss: only weights and a background follow the exit waves."""
        return (
            isinstance(self.loss, FUSED_LOSSES if self._device.type != "cpu" else COMPILED_LOSSES)
            and self.object.states == 1
            and not (self.mean_pattern_weight or self._active("exit_wave"))
            and all(isinstance(component, Weights | Background) for component in self._active("detect"))
            and self._unextended
        )

    def detection(self, batch: Batch) -> Detection:
        """Return the measured counts, with weights and background of active components."""
        weights, background = None, None
        for component in self._active("detect"):
            if isinstance(component, Weights):
                weights = component.of(batch)
            elif isinstance(component, Background):
                background = component.counts
        loss = self.loss
        assert isinstance(loss, FUSED_LOSSES)
        damping = loss.damping if isinstance(loss, AmplitudeLoss) else 0.0
        return Detection(batch.stored, batch.rows, self.mask, loss.floor, weights, background, damping, loss.name)

    def intensities(self, batch: Batch) -> Tensor:
        """Return the modelled patterns [counts], (pattern, y, x) in the pixel order of `Batch`."""
        states = self.object.values.shape[0]
        if not (isinstance(self.propagation, TiltedFarField) or self._active("exit_wave")):
            intensity = patterns(self.illumination(batch))
        elif isinstance(self.propagation, FarFieldPropagation):
            intensity = far_field_intensity(self.exit_waves_of(batch))
        else:
            intensity = intensity_of(self.to_detector(self.exit_waves_of(batch), batch))
        if states > 1:
            intensity = intensity / states
        for component in self._active("detect"):
            intensity = component.detect(intensity, batch)
        return intensity

    def exit_waves_of(self, batch: Batch) -> Tensor:
        """Return the exit waves (pattern, object mode, probe mode, y, x)."""
        object, origins, probes, shifts, kernel, _ = self.illumination(batch)
        waves = exit_waves(object, origins, moved_probes(probes, shifts), kernel)
        for component in self._active("exit_wave"):
            waves = component.exit_wave(waves, batch)
        return waves

    def to_detector(self, waves: Tensor, batch: Batch) -> Tensor:
        """Propagate exit waves (pattern, …, y, x) to the detector.

        Windows are at whole pixels and the probe is shifted by the subpixel part. In the near field the detector is
        fixed to the probe, so waves are shifted back; in the far field this would be a phase without effect.
        """
        if isinstance(self.propagation, NearFieldPropagation):
            waves = self._shifted_by_subpixels(waves, batch, back=True)
        return self.propagation(waves)

    def from_detector(self, waves: Tensor, batch: Batch) -> Tensor:
        """Apply the adjoint of `to_detector`."""
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
        """Return each pattern's probe (pattern, mode, y, x) and object window (pattern, state, slice, y, x)."""
        object, origins, probes, shifts, *_ = self.illumination(batch)
        return moved_probes(probes, shifts), windows_of(object, origins, self.window)

    def illumination(self, batch: Batch) -> Illumination:
        """Return object, window origins, probes before their subpixel shifts, and these shifts."""
        origins, shifts = self.window_origins_and_shifts(batch)
        probes = self.probe.illuminating(batch.patterns)
        for component in self._active("illuminate"):
            probes = component.illuminate(probes, batch)
        kernel = None if self.slab is None else self.slab.kernel(self.window, batch.patterns, probes.dtype)
        propagator = self.propagation.kernel if isinstance(self.propagation, NearFieldPropagation) else None
        return Illumination(self.object.values, origins, probes, shifts, kernel, propagator)

    def window_origins_and_shifts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return window origins (pattern, yx), int64, and subpixel shifts (pattern, yx), differentiable."""
        if not self.movers:
            select = places_of if self._device.type == "cpu" else select_places
            return select(batch.patterns, self._window_origins, self._subpixel_shifts)
        positions = self.positions_of(batch)
        whole = positions.detach().round().clamp(*self._limits)
        return self._in_array(whole).to(torch.int64), (positions - whole).to(self.probe.parts.dtype)

    def window_origins(self, batch: Batch) -> Tensor:
        """Return window origins (pattern, yx), int64, of any patterns, which may lie beyond a tile."""
        if not self.movers:
            return self._window_origins[batch.patterns]
        whole = self.positions_of(batch).detach().round().clamp(*self._whole_limits)
        return self._in_array(whole).to(torch.int64)

    def _in_array(self, whole: Tensor) -> Tensor:
        """Return pixels (…, yx) of the whole object as pixels of the array."""
        return whole - self._origin if self._divided else whole

    def load_band(self, band: int, following: int | None = None, *, changing: bool = False) -> None:
        """Let `object` have the rows of a band of the scan, if it is streamed; see `StreamedObject.load`."""
        if self.streamed is not None:
            self.begin_at(self.streamed.load(band, following, changing=changing))

    def begin_at(self, top: int) -> None:
        """Let the array of `object` begin at this row of the whole object, in the memory that graphs read."""
        if top != self.top:
            self._window_origins[:, 0] -= top - self.top
            for limit in self._limits:  # the first is the origin
                limit[0] += top - self.top
            self.top = top

    @property
    def whole_object(self) -> Object:
        """The object with all its pixels (of a tile: those of the tile), in host memory if it is streamed."""
        if self.streamed is None:
            return self.object
        self.streamed.write_back()
        return self.streamed.whole

    def in_host_memory(self) -> Self:
        """Return a copy whose `object` is the whole one of a streamed object, which forgets the rows on the device.

        For what changes each pixel of the object by itself.
        """
        assert self.streamed is not None
        other = copy.copy(self)
        other._modules = self._modules | {"object": self.whole_object}
        self.streamed.invalidate()
        return other

    @property
    def movers(self) -> list[ModelComponent]:
        """Active components that shift positions."""
        return self._active("shift_positions")

    def positions_of(self, batch: Batch) -> Tensor:
        """Return the current positions (pattern, yx) [pixels of the whole object], float64."""
        positions = self.initial_positions[batch.patterns]
        for component in self._active("shift_positions"):
            positions = component.shift_positions(positions, batch)
        return positions

    def start_positions(self) -> Tensor:
        """Return the initial positions of all patterns (pattern, yx), as `all_positions`."""
        return self.initial_positions.double().cpu().clone()

    def all_positions(self) -> Tensor:
        """Return the positions of all patterns (pattern, yx) [pixels of the whole object], float64, on the CPU."""
        with torch.no_grad():
            return self.positions_of(self.all_patterns()).double().cpu()

    @torch.no_grad()
    def place(self, patterns: Tensor, positions: Tensor) -> None:
        """Set the initial positions (pattern, yx) of these patterns, float64; in the memory that graphs read."""
        device, whole = self._device, torch.round(positions)
        patterns = patterns.to(device)
        self.initial_positions[patterns] = positions.to(device)
        self._window_origins[patterns] = self._in_array(whole.to(device)).to(torch.int64)
        self._subpixel_shifts[patterns] = (positions - whole).to(device, self._subpixel_shifts.dtype)

    def set_admitted(self, patterns: Tensor | None) -> None:
        """Set the patterns that are there (pattern,); None: all are."""
        self.admitted = None if patterns is None else patterns.to(self._device)
        for component in self.components.values():
            component.admitted = self.admitted

    def all_patterns(self) -> Batch:
        """Return all patterns of the scan, as a batch without counts, by which to ask for their positions."""
        return self._without_counts(torch.arange(len(self.initial_positions), device=self._device))

    def admitted_patterns(self) -> Batch:
        """Return those of all patterns that are there."""
        return self.all_patterns() if self.admitted is None else self._without_counts(self.admitted)

    def _without_counts(self, patterns: Tensor) -> Batch:
        return Batch(patterns, self._subpixel_shifts[:0], len(patterns), self._subpixel_shifts.dtype)

    def arrays(self) -> dict[str, Tensor]:
        """Return parameters and buffers by "component.name", which a checkpoint stores."""
        components = self.components | {"object": self.whole_object}
        return {
            f"{name}.{key}": values
            for name, component in components.items()
            for key, values in component.state_dict().items()
            if isinstance(values, Tensor)
        }

    @torch.no_grad()
    def set_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set parameters and buffers, in place."""
        for name, values in self.arrays().items():
            values.copy_(torch.from_numpy(arrays[name]))
        if self.streamed is not None:
            self.streamed.invalidate()

    @torch.no_grad()
    def optimised_arrays(self) -> dict[str, Tensor]:
        """Return copies of the parameters of all active components, by "component/name", on the CPU.

        If positions are optimised, also the initial ones as "positions/start" (pattern, yx).
        """
        arrays = dict[str, Tensor]()
        if self._active("shift_positions"):
            arrays["positions/start"] = self.start_positions()
        for name, component in self.components.items():
            if component.active:
                arrays |= {f"{name}/{key}": values for key, values in component.arrays().items()}
        return {name: values.cpu().clone() for name, values in arrays.items()}

    def _active(self, step: str) -> list[ModelComponent]:
        """Return the active components that override this step."""
        return [component for component in self._by_step[step] if component.active]

    def _nothing(self, batch: Batch) -> Tensor:
        """Return patterns (0, y, x) with zero gradients for every parameter, which the other engines wait for."""
        zero = sum((parameter.sum() * 0 for parameter in self.parameters() if parameter.requires_grad), torch.zeros(()))
        return batch.counts + zero.to(batch.counts)
