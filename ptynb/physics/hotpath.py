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
`ptynb.compiled.steps`, for windows whose sides have no prime factor above 13. Where nothing of the model stands between
two steps, `far_field_patterns` and `far_field_misfit` do several at once.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from ptynb.physics import steps
from ptynb.physics.windows import check_inside, windows_of


def moved_probes(probes: Tensor, shifts: Tensor) -> Tensor:
    """Modes (mode, y, x) or (pattern, mode, y, x) moved by `shifts` (pattern, yx) [pixels]: (pattern, mode, y, x).

    Differentiable in both. Raises ValueError where their shapes do not fit together.
    """
    probes = probes if probes.ndim == 4 else probes[None]
    if shifts.shape != (len(shifts), 2) or len(probes) not in (1, len(shifts)):
        raise ValueError(
            f"Probes {_named(probes)} can't be moved by shifts {_named(shifts)}: expected are "
            "(pattern or 1, mode, y, x) and (pattern, 2)."
        )
    # Whether they are 0 is asked on a CPU only: a GPU would have to be waited for.
    if shifts.device.type == "cpu" and not shifts.requires_grad and not shifts.any():
        return probes.expand(len(shifts), -1, -1, -1).clone()
    moved: Tensor = _steps(probes).MovedProbes.apply(probes, shifts)
    return moved


def exit_waves(object: Tensor, corners: Tensor, probes: Tensor, kernel: Tensor | None = None) -> Tensor:
    """Waves right behind the object, (pattern, state, mode, y, x).

    ψ₁ = P O₁ and ψ_k = O_k F⁻¹[H F[ψ_k-1]]: each slice multiplies, free space lies between two slices, and none follows
    the last one. Cowley and Moodie, Acta Cryst. 10, 609 (1957).

    object: (state, slice, y, x). corners: (pattern, yx) int64, of the windows, on the CPU.
    probes: (pattern or 1, mode, y, x).
    kernel: (y, x) or (pattern, y, x), from `propagate.angular_spectrum_kernel`; needed for more than one slice.

    Differentiable in object, probes and kernel. `probes` may be used up: taking the gradient overwrites it.
    Raises ValueError where a window leaves the object, or shapes do not fit together.
    """
    window = _window(object, corners, probes, kernel)
    probes = probes.expand(len(corners), -1, -1, -1)
    if compiled_for(probes.device, window, kernel):
        waves: Tensor = compiled_steps().ExitWaves.apply(object, corners, probes, kernel)
    else:
        waves = steps.ExitWaves.apply(windows_of(object, corners, window), probes.contiguous(), kernel)
    return waves


def far_field_patterns(
    object: Tensor, corners: Tensor, probes: Tensor, shifts: Tensor, kernel: Tensor | None = None
) -> Tensor:
    """`moved_probes`, `exit_waves` and `far_field_intensity` in one: intensities (pattern, y, x) on the detector.

    object: (state, slice, y, x). corners: (pattern, yx) int64, on the CPU. probes: (pattern or 1, mode, y, x).
    shifts: (pattern, yx) [pixels]. kernel: as for `exit_waves`.

    Raises as `exit_waves`.
    """
    window = _window(object, corners, probes, kernel, shifts)
    if compiled_for(probes.device, window, kernel):
        patterns: Tensor = compiled_steps().Patterns.apply(object, corners, probes, shifts, kernel)
        return patterns
    return far_field_intensity(exit_waves(object, corners, moved_probes(probes, shifts), kernel))


def far_field_misfit(
    object: Tensor,
    corners: Tensor,
    probes: Tensor,
    shifts: Tensor,
    kernel: Tensor | None,
    held: Tensor,
    rows: Tensor | None,
    mask: Tensor | None,
    floor: float,
    weights: Tensor | None = None,
    background: Tensor | None = None,
) -> Tensor:
    """`losses.Amplitude` of w_j M_j + B, M from `far_field_patterns`, a sum (scalar), where `compiled_for` says so.

    A pattern goes there and back while it is in the cache. held, rows: as of a `Batch`. mask: (y, x) or None. floor: ε.
    weights: w (pattern,) or None, 1; background: B (y, x) or None, 0. Differentiable in both, too.
    Raises ValueError where shapes do not fit together, or a window leaves the object.
    """
    rows = _rows(object, corners, probes, shifts, kernel, held, rows, mask)
    for name, given, shape in (("weights", weights, corners.shape[:1]), ("background", background, held.shape[1:])):
        if given is not None and (given.shape != shape or given.dtype != probes.real.dtype):
            raise ValueError(f"The {name} are {_named(given)}; expected {tuple(shape)} {probes.real.dtype}.")
    value: Tensor = compiled_steps().Misfit.apply(
        object, corners, probes, shifts, kernel, held, rows, mask, floor, weights, background
    )
    return value


def far_field_descent(
    object: Tensor,
    corners: Tensor,
    probes: Tensor,
    shifts: Tensor,
    kernel: Tensor | None,
    held: Tensor,
    rows: Tensor | None,
    mask: Tensor | None,
    floor: float,
    factor: float,
    wanted: tuple[bool, bool],
) -> tuple[float, Tensor | None, Tensor | None]:
    """`far_field_misfit`, and `factor` times its gradients by object and probes, where they are wanted.

    The same without automatic differentiation: for small batches that takes a tenth of an update.
    """
    rows = _rows(object, corners, probes, shifts, kernel, held, rows, mask)
    descent = compiled_steps().Descent(object, corners, probes, shifts, kernel, (*wanted, False))
    value: float = descent.value(held, rows, mask, floor)
    of_object, of_probes, _ = descent.gradients(factor)
    return value, of_object, of_probes


def _rows(
    object: Tensor,
    corners: Tensor,
    probes: Tensor,
    shifts: Tensor,
    kernel: Tensor | None,
    held: Tensor,
    rows: Tensor | None,
    mask: Tensor | None,
) -> Tensor:
    """The rows of patterns that are held, if all fits together."""
    window = _window(object, corners, probes, kernel, shifts)
    if rows is None:
        rows = torch.arange(len(held))
    if (
        held.shape[1:] != window
        or rows.shape != (len(corners),)
        or (len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(held))
        or (mask is not None and mask.shape != window)
    ):
        raise ValueError(
            f"The frames' shape is {tuple(held.shape)}, their mask's {None if mask is None else tuple(mask.shape)}, "
            f"their rows {rows.tolist()}; there are {len(corners)} windows of {window[0]} x {window[1]} pixels."
        )
    if not compiled_for(probes.device, window, kernel):
        raise ValueError(
            f"This is done in one step on a CPU only, without prime factors above 13 in the window of {window[0]} x "
            f"{window[1]} pixels, and with a kernel that does not move."
        )
    return rows


def far_field_intensity(waves: Tensor) -> Tensor:
    """Σ |F[ψ]|² (pattern, y, x) over states and modes of exit waves (pattern, state, mode, y, x); differentiable."""
    intensity: Tensor = _steps(waves).FarFieldIntensity.apply(waves)
    return intensity


def intensity_of(waves: Tensor) -> Tensor:
    """Σ |Ψ|² (pattern, y, x) over states, modes, or both, of waves (pattern, …, y, x); differentiable."""
    intensity: Tensor = _steps(waves).Intensity.apply(waves)
    return intensity


def _window(
    object: Tensor, corners: Tensor, probes: Tensor, kernel: Tensor | None, shifts: Tensor | None = None
) -> tuple[int, int]:
    """The probes' window (y, x). Compiled loops look at no index again, so what does not fit is refused here."""
    window, patterns = (probes.shape[-2], probes.shape[-1]), len(corners)
    kinds = {tensor.dtype for tensor in (object, probes, kernel) if tensor is not None}
    if (
        probes.ndim != 4
        or object.ndim != 4
        or not probes.is_complex()
        or corners.shape != (patterns, 2)
        or corners.dtype != torch.int64
        or len(kinds) > 1
        or len(probes) not in (1, patterns)
        or (shifts is not None and shifts.shape != (patterns, 2))
        or (kernel is None and object.shape[1] > 1)
        or (kernel is not None and (kernel.shape[-2:] != window or kernel.shape[:-2] not in ((), (patterns,))))
    ):
        raise ValueError(
            f"Object {_named(object)}, probes {_named(probes)}, kernel {_named(kernel)} and shifts {_named(shifts)} do "
            f"not fit {patterns} patterns: expected are one type, (state, slice, y, x), (pattern or 1, mode, y, x), "
            "(y, x) or (pattern, y, x) for several slices, (pattern, 2), and corners (pattern, 2) of whole numbers."
        )
    check_inside(object, corners, window)
    return window


def _named(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


def compiled_for(device: torch.device, window: Sequence[int], kernel: Tensor | None = None) -> bool:
    """Whether there are compiled steps: on a CPU, for sides that can be transformed, and a kernel without gradient."""
    return device.type == "cpu" and not (kernel is not None and kernel.requires_grad) and _transformable(*window)


def _transformable(height: int, width: int) -> bool:
    possible: bool = compiled_steps().transforms.possible(height, width)
    return possible


def _steps(waves: Tensor) -> ModuleType:
    return compiled_steps() if compiled_for(waves.device, waves.shape[-2:]) else steps


@functools.cache
def compiled_steps() -> ModuleType:
    """Those for a CPU, loaded where they are first needed."""
    return importlib.import_module("ptynb.compiled.steps")
