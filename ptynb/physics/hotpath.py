"""The hot path: what every pattern of every update goes through, with gradients written out.

For pattern j at position r_j = c_j + s_j (whole pixels + a rest in [-½, ½]) and probe mode m

    P_jm = F⁻¹[R_j F[P_m]],  R_j = exp(-2πi k·s_j)    `moved_probes`: exactly, for a periodic window
    ψ_jm = P_jm · O[c_j : c_j + n]                    `exit_waves`: through one slice of the object, or several
    Ψ_jm = F[ψ_jm],  M_j = Σ_m |Ψ_jm|²                `far_field_intensity`
    L    = Σ_j loss(M_j, I_j)                         `losses.loss_of`

F is the unitary discrete Fourier transform ("ortho"). All arrays on the detector are in FFT order, zero frequency at
index 0: no fftshift is ever needed, since a shift of the window by n/2 only multiplies Ψ by a phase.

Backwards, with g = F⁻¹[(dL/dM) Ψ], the derivative of L with respect to ψ*,

    dL/dO*   = Σ_jm  P_jm* g_jm  added at c_j
    dL/dP_m* = F⁻¹[ Σ_j R_j* Q_jm ],  Q_jm = F[O_j* g_jm]
    dL/ds_j  = 2 Re Σ_km  Q_jm* (dR_j/ds) F[P_m]

PyTorch's gradient of a complex number z is 2 dL/dz*. Thibault and Guizar-Sicairos, New J. Phys. 14, 063004 (2012).

So a pattern costs four Fourier transforms a mode, and four more for each further slice (on a CPU two less, where all
rests are 0). Of the passes over memory around them, one that overwrites its array takes a third of the time of one that
fills a new one. So these functions own what they keep for the gradient, and overwrite it there: gradients can be taken
once. Everything around them is recorded by automatic differentiation, so that a new piece of the model is a few lines.

Each step is written twice: by torch's operations in `steps`, for any device, and compiled for a CPU in
`ptynb.kernels.cpu_steps`, for windows whose sides have no prime factor above 13. Where nothing of the model stands
between two steps, `far_field_patterns` and `far_field_misfit` do several at once.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptynb.exceptions import InvalidValueError
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import torch_steps
from ptynb.physics.patches import check_inside, windows_of


def moved_probes(probes: Tensor, shifts: Tensor) -> Tensor:
    """Modes (mode, y, x) or (pattern, mode, y, x) moved by `shifts` (pattern, yx) [pixels]: (pattern, mode, y, x).

    Differentiable in both. Raises ValueError where their shapes do not fit together.
    """
    probes = probes if probes.ndim == 4 else probes[None]
    if shifts.shape != (len(shifts), 2) or len(probes) not in (1, len(shifts)):
        raise InvalidValueError(
            f"Probes {_named(probes)} can't be moved by shifts {_named(shifts)}: expected are "
            "(pattern or 1, mode, y, x) and (pattern, 2)."
        )
    # Whether they are 0 is asked on a CPU only: a GPU would have to be waited for.
    if shifts.device.type == "cpu" and not shifts.requires_grad and not shifts.any():
        return probes.expand(len(shifts), -1, -1, -1).clone()
    moved: Tensor = _implementation(torch_steps.MovedProbes, probes).apply(probes, shifts)
    return moved


def exit_waves(object: Tensor, window_origins: Tensor, probes: Tensor, kernel: Tensor | None = None) -> Tensor:
    """Waves right behind the object, (pattern, state, mode, y, x).

    ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]: each slice multiplies, free space lies between two slices, and none follows
    the last one. Cowley and Moodie, Acta Cryst. 10, 609 (1957).

    object: (state, slice, y, x). window_origins: (pattern, yx) int64, of the windows, on the CPU.
    probes: (pattern or 1, mode, y, x).
    kernel: (y, x) or (pattern, y, x), from `propagate.angular_spectrum_kernel`; needed for more than one slice.

    Differentiable in object, probes and kernel. `probes` may be used up: taking the gradient overwrites it.
    Raises ValueError where a window leaves the object, or shapes do not fit together.
    """
    window = _window(object, window_origins, probes, kernel)
    probes = probes.expand(len(window_origins), -1, -1, -1)
    if compiled_for(probes.device, window, kernel):
        waves: Tensor = compiled_steps().CompiledExitWaves.apply(object, window_origins, probes, kernel)
    else:
        waves = torch_steps.ExitWaves.apply(windows_of(object, window_origins, window), probes.contiguous(), kernel)
    return waves


def far_field_patterns(given: Illumination) -> Tensor:
    """`moved_probes`, `exit_waves` and `far_field_intensity` in one: intensities (pattern, y, x) on the detector.

    Raises as `exit_waves`.
    """
    object, corners, probes, shifts, kernel = given
    window = _window(object, corners, probes, kernel, shifts)
    if compiled_for(probes.device, window, kernel):
        patterns: Tensor = compiled_steps().CompiledPatterns.apply(object, probes, shifts, given)
        return patterns
    return far_field_intensity(exit_waves(object, corners, moved_probes(probes, shifts), kernel))


def far_field_misfit(given: Illumination, detection: Detection) -> Tensor:
    """`losses.Amplitude` of w_j M_j + B, M from `far_field_patterns`, a sum (scalar), where `compiled_for` says so.

    A pattern goes there and back while it is in the cache. Differentiable in object, probes, shifts, weights and
    background. Raises ValueError where shapes do not fit together, or a window leaves the object.
    """
    _check(given, detection)
    value: Tensor = compiled_descent().Misfit.apply(*varied(given, detection), given, detection)
    return value


def far_field_descent(
    given: Illumination, detection: Detection, factor: float
) -> tuple[float, *tuple[Tensor | None, ...]]:
    """The value of `far_field_misfit`, and `factor` times its gradients by what is `varied`, where they are wanted.

    Wanted are those of tensors that require a gradient, which is left to the caller to put there.
    """
    _check(given, detection)
    wanted = [tensor is not None and tensor.requires_grad for tensor in varied(given, detection)]
    descent = compiled_descent().Descent(given, detection, wanted)
    value: float = descent.value()
    return value, *descent.gradients(factor)


def varied(given: Illumination, detection: Detection) -> tuple[Tensor | None, ...]:
    """What the misfit has gradients for: object, probes, shifts, weights and background."""
    return given.object, given.probes, given.shifts, detection.weights, detection.background


def _check(given: Illumination, detection: Detection) -> None:
    """Refuses what does not fit together, or is not compiled."""
    object, corners, probes, shifts, kernel = given
    held, rows, mask, _, weights, background, _ = detection
    window = _window(object, corners, probes, kernel, shifts)
    numbers = np.arange(len(held)) if rows is None else rows.numpy()
    if (
        held.shape[1:] != window
        or len(numbers) != len(corners)
        or (len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(held))
        or (mask is not None and mask.shape != window)
    ):
        raise InvalidValueError(
            f"The frames' shape is {tuple(held.shape)}, their mask's {None if mask is None else tuple(mask.shape)}, "
            f"their rows {numbers.tolist()}; there are {len(corners)} windows of {window[0]} x {window[1]} pixels."
        )
    for name, own, shape in (("weights", weights, corners.shape[:1]), ("background", background, held.shape[1:])):
        if own is not None and (own.shape != shape or own.dtype != probes.real.dtype):
            raise InvalidValueError(f"The {name} are {_named(own)}; expected {tuple(shape)} {probes.real.dtype}.")
    if not compiled_for(probes.device, window, kernel):
        raise InvalidValueError(
            f"This is done in one step on a CPU only, without prime factors above 13 in the window of {window[0]} x "
            f"{window[1]} pixels, and with a kernel that does not move."
        )


def far_field_intensity(waves: Tensor) -> Tensor:
    """Σ |F[ψ]|² (pattern, y, x) over states and modes of exit waves (pattern, state, mode, y, x); differentiable."""
    intensity: Tensor = _implementation(torch_steps.FarFieldIntensity, waves).apply(waves)
    return intensity


def intensity_of(waves: Tensor) -> Tensor:
    """Σ |Ψ|² (pattern, y, x) over states, modes, or both, of waves (pattern, …, y, x); differentiable."""
    intensity: Tensor = _implementation(torch_steps.SummedIntensity, waves).apply(waves)
    return intensity


def _window(
    object: Tensor, window_origins: Tensor, probes: Tensor, kernel: Tensor | None, shifts: Tensor | None = None
) -> tuple[int, int]:
    """The probes' window (y, x). Compiled loops look at no index again, so what does not fit is refused here."""
    tensors = object, window_origins, probes, kernel, shifts
    shapes = tuple(None if tensor is None else tensor.shape for tensor in tensors)
    window, fitting = (probes.shape[-2], probes.shape[-1]), _fit(*shapes)
    kinds = {tensor.dtype for tensor in (object, probes, kernel) if tensor is not None}
    if not fitting or len(kinds) > 1 or not probes.is_complex() or window_origins.dtype != torch.int64:
        raise InvalidValueError(
            f"Object {_named(object)}, probes {_named(probes)}, kernel {_named(kernel)} and shifts {_named(shifts)} do "
            f"not fit {len(window_origins)} patterns: expected are one type, (state, slice, y, x), (pattern or 1, "
            "mode, y, x), (y, x) or (pattern, y, x) for several slices, (pattern, 2), and corners (pattern, 2) of "
            "whole numbers."
        )
    check_inside(object, window_origins, window)
    return window


_Shape = tuple[int, ...]


@functools.lru_cache(maxsize=64)
def _fit(object: _Shape, window_origins: _Shape, probes: _Shape, kernel: _Shape | None, shifts: _Shape | None) -> bool:
    """Whether these shapes fit together; asked at every update, and answered from memory."""
    patterns = window_origins[0]
    return (
        len(object) == len(probes) == 4
        and window_origins == (patterns, 2)
        and probes[0] in (1, patterns)
        and shifts in (None, (patterns, 2))
        and (object[1] == 1 if kernel is None else kernel in (probes[-2:], (patterns, *probes[-2:])))
    )


def _named(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def compiled_for(device: torch.device, window: Sequence[int], kernel: Tensor | None = None) -> bool:
    """Whether there are compiled steps: on a CPU, for sides that can be transformed, and a kernel without gradient."""
    return device.type == "cpu" and not (kernel is not None and kernel.requires_grad) and _transformable(*window)


def _transformable(height: int, width: int) -> bool:
    possible: bool = compiled_steps().fft.possible(height, width)
    return possible


def _implementation(step: type[torch.autograd.Function], waves: Tensor) -> Any:
    """This step, compiled where that is possible."""
    if compiled_for(waves.device, waves.shape[-2:]):
        return getattr(compiled_steps(), f"Compiled{step.__name__}")
    return step


@functools.cache
def compiled_steps() -> ModuleType:
    """Those for a CPU, loaded where they are first needed."""
    return importlib.import_module("ptynb.kernels.cpu_steps")


@functools.cache
def compiled_descent() -> ModuleType:
    """All of them in one."""
    return importlib.import_module("ptynb.kernels.fused_gradient")
