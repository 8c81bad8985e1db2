"""The hot path: computations that run for every pattern of every update, with explicit gradients.

For pattern j at position r_j = c_j + s_j (whole pixels + a remainder in [-½, ½]) and probe mode m

    P_jm = F⁻¹[R_j F[P_m]],  R_j = exp(-2πi k·s_j)    `moved_probes`: exact for a periodic window
    ψ_jm = P_jm · O[c_j : c_j + n]                    `exit_waves`: through one or several slices of the object
    Ψ_jm = F[ψ_jm],  M_j = Σ_m |Ψ_jm|²                `far_field_intensity`; in the near field F⁻¹[R_j* H F[ψ_jm]]
    L    = Σ_j loss(M_j, I_j)                         `losses.loss_of`

F is the unitary discrete Fourier transform ("ortho"). All arrays on the detector are in FFT order, zero frequency at
index 0: no fftshift is ever needed, since a shift of the window by n/2 only multiplies Ψ by a phase.

Backwards, with g = F⁻¹[(dL/dM) Ψ], the derivative of L with respect to ψ*,

    dL/dO*   = Σ_jm  P_jm* g_jm  added at c_j
    dL/dP_m* = F⁻¹[ Σ_j R_j* Q_jm ],  Q_jm = F[O_j* g_jm]
    dL/ds_j  = 2 Re Σ_km  Q_jm* (dR_j/ds) F[P_m]

PyTorch's gradient of a complex number z is 2 dL/dz*. Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012).

So a pattern costs four Fourier transforms per mode, and four more for each further slice (on a CPU two less, if all
subpixel shifts are 0). A pass over memory that overwrites its array takes a third of the time of one that fills a new
array. So these functions own the arrays saved for the gradient, and overwrite them: gradients can be computed only
once. The rest of the model uses automatic differentiation, so that an addition to it takes a few lines.

If no component acts between the steps, `misfit` and `descent` run all of them, with their gradients: `chain` by torch
operations, for any device, and `ptynb.kernels.fused_gradient` compiled for a CPU. Otherwise each step is a function
with a gradient: in `torch_steps`, and compiled in `ptynb.kernels.cpu_steps`.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ptynb.exceptions import InvalidValueError
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import chain, torch_steps
from ptynb.physics.patches import check_inside, windows_of
from ptynb.physics.torch_steps import intensity_of

COMPILED = "cpu"
"""The type of device whose steps are compiled."""


def moved_probes(probes: Tensor, shifts: Tensor) -> Tensor:
    """Shift modes (mode, y, x) or (pattern, mode, y, x) by `shifts` (pattern, yx) [pixels]: (pattern, mode, y, x).

    Differentiable with respect to both. Raises ValueError if their shapes do not match.
    """
    probes = probes if probes.ndim == 4 else probes[None]
    if shifts.shape != (len(shifts), 2) or len(probes) not in (1, len(shifts)):
        raise InvalidValueError(
            f"probes is {_text(probes)} and shifts {_text(shifts)}; expected (pattern or 1, mode, y, x) and "
            "(pattern, 2).",
            code="array.shape-mismatch",
        )
    # Zero shifts are detected on a CPU only: on a GPU this would synchronise.
    if shifts.device.type == "cpu" and not shifts.requires_grad and not shifts.any():
        return probes.expand(len(shifts), -1, -1, -1).clone()
    moved: Tensor = _implementation(torch_steps.MovedProbes, probes).apply(probes, shifts)
    return moved


def exit_waves(object: Tensor, window_origins: Tensor, probes: Tensor, kernel: Tensor | None = None) -> Tensor:
    """Return the waves right behind the object, (pattern, state, mode, y, x).

    ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]: each slice multiplies the wave, with free space between two slices and none
    behind the last one. Cowley and Moodie, Acta Cryst. 10, 609 (1957).

    object: (state, slice, y, x). window_origins: (pattern, yx) int64.
    probes: (pattern or 1, mode, y, x).
    kernel: (y, x) or (pattern, y, x), from `angular_spectrum_kernel`; needed for more than one slice.

    Differentiable with respect to object, probes and kernel. Computing the gradient may overwrite `probes`.
    Raises ValueError if a window exceeds the object, or shapes do not match.
    """
    window = _window(object, window_origins, probes, kernel)
    probes = probes.expand(len(window_origins), -1, -1, -1)
    if compiled_for(probes.device, kernel):
        waves: Tensor = compiled_steps().CompiledExitWaves.apply(object, window_origins, probes, kernel)
    else:
        waves = torch_steps.ExitWaves.apply(windows_of(object, window_origins, window), probes.contiguous(), kernel)
    return waves


def patterns(illumination: Illumination) -> Tensor:
    """Return the intensities (pattern, y, x) on the detector: `moved_probes`, `exit_waves` and the propagation.

    In the near field the detector is fixed to the probe: waves are shifted back by the shifts of the probe. In the far
    field this would be a phase without effect. Raises ValueError as `exit_waves` does.
    """
    object, corners, probes, shifts, kernel, propagator = illumination
    window = _window(object, corners, probes, kernel, shifts, propagator)
    if compiled_for(probes.device, kernel):
        found: Tensor = compiled_steps().CompiledPatterns.apply(object, probes, shifts, illumination)
        return found
    waves = exit_waves(object, corners, moved_probes(probes, shifts), kernel)
    if propagator is None:
        return far_field_intensity(waves)
    back = torch_steps.shift_ramps(shifts, window).conj()[:, None, None]
    return intensity_of(torch.fft.ifft2(torch.fft.fft2(waves) * (propagator * back)))


def misfit(illumination: Illumination, detection: Detection) -> Tensor:
    """Return the loss of w_j M_j + B, with M from `patterns`, a sum (scalar float64).

    On a CPU, loss and gradients of a pattern are computed while it is in the cache, "intensity" excepted.
    Differentiable once, with respect to object, probes, shifts, weights and background. Raises ValueError if shapes do
    not match, a window exceeds the object, or the kernel has a gradient.
    """
    _check(illumination, detection)
    value: Tensor = _Misfit.apply(*varied(illumination, detection), illumination, detection)
    return value


class _Misfit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        """given: `varied`, followed by the two records that contain them."""
        *_, illumination, detection = given
        ctx.descent = _descent_class(illumination)(illumination, detection, ctx.needs_input_grad[:-2])
        value: Tensor = ctx.descent.value()
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        descent = ctx.descent
        del ctx.descent
        # The value of a tensor on a GPU would be waited for.
        factor = float(outer[0]) if outer[0].device.type == "cpu" else 1.0
        found = descent.gradients(factor)
        if outer[0].device.type != "cpu":
            found = tuple(None if one is None else one * outer[0] for one in found)
        return *found, None, None


def descent(
    illumination: Illumination, detection: Detection, factor: float, probe_factor: float | None = None
) -> tuple[Tensor, *tuple[Tensor | None, ...]]:
    """Return the value of `misfit`, and `factor` times its gradients with respect to the tensors of `varied`.

    Gradients are computed for tensors that require them, else None; the caller has to accumulate them. probe_factor:
    that of the gradient of the probes; None: `factor`.
    """
    _check(illumination, detection)
    required = [tensor is not None and tensor.requires_grad for tensor in varied(illumination, detection)]
    computed = _descent_class(illumination)(illumination, detection, required)
    return computed.value(), *computed.gradients(factor, probe_factor)


def _descent_class(illumination: Illumination) -> type[chain.Descent]:
    if not compiled_for(illumination.probes.device):
        return chain.Descent
    found: type[chain.Descent] = importlib.import_module("ptynb.kernels.fused_gradient").Descent
    return found


def varied(illumination: Illumination, detection: Detection) -> tuple[Tensor | None, ...]:
    """Return the tensors for which the misfit has gradients: object, probes, shifts, weights and background."""
    return illumination.object, illumination.probes, illumination.shifts, detection.weights, detection.background


def _check(illumination: Illumination, detection: Detection) -> None:
    """Raise ValueError if shapes do not match, or the kernel has a gradient."""
    object, corners, probes, shifts, kernel, propagator = illumination
    stored, rows, mask, _, weights, background, *_ = detection
    window = _window(object, corners, probes, kernel, shifts, propagator)
    count = len(stored) if rows is None else len(rows)
    # On a GPU the values of indices are not looked at: this would wait for it.
    known = rows if rows is not None and rows.device.type == "cpu" and count > 0 else None
    if (
        stored.shape[1:] != window
        or count != len(corners)
        or (known is not None and not 0 <= int(known.min()) <= int(known.max()) < len(stored))
        or (mask is not None and mask.shape != window)
    ):
        raise InvalidValueError(
            f"stored has shape {tuple(stored.shape)}, mask {None if mask is None else tuple(mask.shape)}, and rows is "
            f"{None if rows is None else rows.tolist()}; expected those of {len(corners)} windows of {window[0]} x "
            f"{window[1]} pixels.",
            code="array.shape-mismatch",
        )
    for name, tensor, shape in (("weights", weights, corners.shape[:1]), ("background", background, stored.shape[1:])):
        if tensor is not None and (tensor.shape != shape or tensor.dtype != probes.real.dtype):
            raise InvalidValueError(
                f"{name} is {_text(tensor)}; expected {tuple(shape)} {probes.real.dtype}.", code="array.shape-mismatch"
            )
    if kernel is not None and kernel.requires_grad:
        raise InvalidValueError(
            "The fused misfit does not exist for a kernel with gradient; expected a kernel without gradient.",
            code="kernel.unsupported",
        )


def far_field_intensity(waves: Tensor) -> Tensor:
    """Return Σ |F[ψ]|² (pattern, y, x) over states and modes of waves (pattern, state, mode, y, x); differentiable."""
    intensity: Tensor = _implementation(torch_steps.FarFieldIntensity, waves).apply(waves)
    return intensity


def _window(
    object: Tensor,
    window_origins: Tensor,
    probes: Tensor,
    kernel: Tensor | None,
    shifts: Tensor | None = None,
    propagator: Tensor | None = None,
) -> tuple[int, int]:
    """Return the probe window (y, x). Raise ValueError for invalid shapes: compiled loops do not check indices."""
    tensors = object, window_origins, probes, kernel, shifts, propagator
    shapes = tuple(None if tensor is None else tensor.shape for tensor in tensors)
    window, fitting = (probes.shape[-2], probes.shape[-1]), _fit(*shapes)
    dtypes = {tensor.dtype for tensor in (object, probes, kernel, propagator) if tensor is not None}
    if not fitting or len(dtypes) > 1 or not probes.is_complex() or window_origins.dtype != torch.int64:
        raise InvalidValueError(
            f"object is {_text(object)}, probes {_text(probes)}, kernel {_text(kernel)}, shifts {_text(shifts)} and "
            f"propagator {_text(propagator)} for {len(window_origins)} patterns; expected one complex type, (state, "
            "slice, y, x), (pattern or 1, mode, y, x), (y, x) or (pattern, y, x) for several slices, (pattern, 2), "
            "(y, x), and window_origins (pattern, 2) int64.",
            code="array.shape-mismatch",
        )
    check_inside(object, window_origins, window)
    return window


_Shape = tuple[int, ...]


@functools.lru_cache(maxsize=64)
def _fit(
    object: _Shape,
    window_origins: _Shape,
    probes: _Shape,
    kernel: _Shape | None,
    shifts: _Shape | None,
    propagator: _Shape | None,
) -> bool:
    """Whether these shapes match; cached, since it is called at every update."""
    patterns = window_origins[0]
    return (
        len(object) == len(probes) == 4
        and window_origins == (patterns, 2)
        and probes[0] in (1, patterns)
        and shifts in (None, (patterns, 2))
        and propagator in (None, probes[-2:])
        and (object[1] == 1 if kernel is None else kernel in (probes[-2:], (patterns, *probes[-2:])))
    )


def _text(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def compiled_for(device: torch.device, kernel: Tensor | None = None) -> bool:
    """Whether compiled steps exist: on a CPU, and for a kernel without gradient."""
    return device.type == COMPILED and (kernel is None or not kernel.requires_grad)


def _implementation(step: type[torch.autograd.Function], waves: Tensor) -> Any:
    """Return this step, compiled if possible."""
    if compiled_for(waves.device):
        return getattr(compiled_steps(), f"Compiled{step.__name__}")
    return step


@functools.cache
def compiled_steps() -> ModuleType:
    """Return the module of compiled steps, imported on first use."""
    return importlib.import_module("ptynb.kernels.cpu_steps")
