"""The steps of an update on a GPU with Fourier transforms of lines inside of them: operations of one kernel each.

A two-dimensional transform is one of all rows and one of all columns, and between any two steps of an update along one
axis stand transforms along the other. An operation does all that happens while rows, or columns, are on the chip:

    columns_ramp        F_y⁻¹[R_j F[P_m] a]                 rows_multiply_      F_x[A_jm O_k[c_j]], with A = F_x⁻¹[…]
    columns_propagate_  F_y⁻¹[R_j* H F_y[…] a]              lines_compare_      loss, and F⁻¹[(dL/dM) F[…]]
    columns_gather      Σ_j R_j* F_y[…] a

Between them are *hybrids*, spectra along x of waves along y. Transforms along y have the order of `torch.fft`, none has
a factor. Symbols and rules are those of `gpu_operations`. An update of one mode is 18 launches and 132 bytes per pixel
(counted), by cuFFT's transforms 25 and 215.

Each operation is defined here with torch's operations, for every device, and in `kernels.gpu.line_kernels` for CUDA, in
float32 and for windows whose sides are in `SIDES`.

Which transforms a GPU uses depends on the window alone, so that a repeated update is equal to the bit: those inside of
kernels for the windows in `MEASURED`. The environment variable PTYNB_GPU_TRANSFORMS overrides this: "cufft" for all
windows, or "triton" for all for which there are kernels; others, and double precision, use cuFFT.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

from ptynb.exceptions import InvalidValueError
from ptynb.physics.gpu_operations import compare_, multiply_spectra_, shift_spectra
from ptynb.physics.patches import read_windows
from ptynb.physics.torch_steps import shift_ramps
from ptynb.physics.triton_dispatch import check_triton, operation, run_by_triton

SIDES = (32, 64, 128, 256, 512)
"""Sides [pixels] of windows for which there are kernels."""
MEASURED: frozenset[tuple[int, int]] = frozenset()
"""Windows (y, x) for which kernels with transforms took less time than cuFFT when they were measured; none were yet."""
VARIABLE = "PTYNB_GPU_TRANSFORMS"
CHOICES = ("", "cufft", "triton")
"""Values of the environment variable; empty or missing: by `MEASURED`."""


def chosen_for(waves: Tensor) -> bool:
    """Whether updates with such waves (…, y, x) use the operations of this module instead of cuFFT.

    Raises ValueError if the environment variable has another value than those of `CHOICES`.
    """
    wanted, window = os.environ.get(VARIABLE, ""), (waves.shape[-2], waves.shape[-1])
    if wanted not in CHOICES:
        raise InvalidValueError(
            f'{VARIABLE} is "{wanted}" in the environment; expected "cufft", "triton", or no such variable, which '
            "chooses by the size of the window.",
            code="environment.invalid",
        )
    if wanted == "cufft" or (wanted == "" and window not in MEASURED):
        return False
    return has_kernels(waves.device, waves.dtype, window)


def has_kernels(device: torch.device, dtype: torch.dtype, window: tuple[int, int]) -> bool:
    """Whether the operations of this module exist for waves like these: on CUDA as kernels, elsewhere by torch."""
    if device.type != "cuda":
        return True
    return dtype == torch.complex64 and all(side in SIDES for side in window) and not check_triton()


@operation()
def columns_ramp(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    """Return F_y⁻¹[R_j F[P_m]] times `factor`, hybrids (pattern, mode, y, x).

    spectra: (1 or pattern, mode, y, x). shifts: (pattern, yx) [pixels].
    """
    return _inverse(shift_spectra(spectra, shifts, factor), -2)


@operation(mutates_args=("hybrid",))
def rows_multiply_(hybrid: Tensor, object: Tensor, origins: Tensor, conjugate: bool, waves_wanted: bool) -> Tensor:
    """Replace F_x[A_jm] by F_x[A_jm O[c_j]], or by F_x[A_jm O[c_j]*] if `conjugate`.

    hybrid: (pattern, mode, y, x). object: (y, x). origins: c (pattern, yx), int64.

    Returns
    -------
    waves : Tensor
        A (pattern, mode, y, x) if `waves_wanted`, else empty.
    """
    waves = _inverse(hybrid, -1)
    windows = read_windows(object, origins, (hybrid.shape[-2], hybrid.shape[-1]))[:, None]
    hybrid.copy_(torch.fft.fft(waves * (windows.conj() if conjugate else windows)))
    return waves if waves_wanted else waves.new_empty(0)


@operation(mutates_args=("hybrid",))
def columns_propagate_(
    hybrid: Tensor,
    kernel: Tensor | None,
    shifts: Tensor | None,
    factor: float,
    adjoint: bool,
    spectra_wanted: bool,
) -> Tensor:
    """Multiply spectra along y of hybrids (pattern, mode, y, x) by R_j* H `factor`, or its conjugate if `adjoint`.

    kernel: H (y, x) or (pattern, y, x); None: 1. shifts: those of R_j (pattern, yx) [pixels]; None: 0.

    Returns
    -------
    spectra : Tensor
        Spectra before the multiplication, (pattern, mode, y, x), if `spectra_wanted`; else empty.
    """
    spectra = torch.fft.fft(hybrid, dim=-2)
    factors = spectra.new_ones(spectra.shape[-2:]) if kernel is None else kernel
    changed = spectra.clone()
    multiply_spectra_(changed, factors, shifts, factor, adjoint)
    hybrid.copy_(_inverse(changed, -2))
    return spectra if spectra_wanted else spectra.new_empty(0)


@operation(mutates_args=("lines",))
def lines_compare_(
    lines: Tensor,
    columns: bool,
    stored: Tensor,
    rows: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
    background: Tensor | None,
    scale: float,
    floor: float,
    damping: float,
    factor: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor]:
    """Do `gpu_operations.compare_` to the waves on the detector, which one more transform makes of `lines`.

    lines: hybrids (pattern, mode, y, x), replaced by those of the gradient. columns: the waves are F_y[…], in the far
    field; else F_x⁻¹[…]. The other arguments, and what is returned, are those of `compare_`.
    """
    waves = torch.fft.fft(lines, dim=-2) if columns else _inverse(lines, -1)
    compared = compare_(waves, stored, rows, mask, weights, background, scale, floor, damping, factor, slopes_wanted)
    lines.copy_(_inverse(waves, -2) if columns else torch.fft.fft(waves))
    return compared


def choose_patterns_per_sum(hybrid: Tensor) -> int:
    """Return the number of patterns over which each sum of `columns_gather` is to be taken.

    As many as leave two programs of 16 columns for each of the 132 multiprocessors of an H100, at most 8: then the sums
    are an eighth of what is read.
    """
    patterns, modes, _, width = hybrid.shape
    return max(1, min(8, patterns * modes * width // (2 * 132 * 16)))


@operation()
def columns_gather(
    hybrid: Tensor, shifts: Tensor, factor: float, patterns_per_sum: int, spectra_wanted: bool
) -> tuple[Tensor, Tensor]:
    """Sum R_j* Q_jm times `factor` over patterns, with the spectra Q = F_y[…] of hybrids (pattern, mode, y, x).

    shifts: (pattern, yx) [pixels]. patterns_per_sum: by `choose_patterns_per_sum`.

    Returns
    -------
    sums : Tensor
        Sums over so many patterns each, (sum, mode, y, x).
    spectra : Tensor
        Q (pattern, mode, y, x) if `spectra_wanted`, else empty.
    """
    spectra = torch.fft.fft(hybrid, dim=-2)
    ramps = shift_ramps(shifts, (hybrid.shape[-2], hybrid.shape[-1])).conj() * factor
    sums = [some.sum(0) for some in (spectra * ramps[:, None]).split(patterns_per_sum)]
    return torch.stack(sums), spectra if spectra_wanted else spectra.new_empty(0)


run_by_triton(columns_ramp, rows_multiply_, columns_propagate_, lines_compare_, columns_gather, module="line_launches")


def _inverse(values: Tensor, dim: int) -> Tensor:
    """Return the inverse transform along one axis, without a factor."""
    return torch.fft.ifft(values, dim=dim, norm="forward")
