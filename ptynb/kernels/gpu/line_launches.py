"""The operations of `physics.gpu_line_operations` on CUDA: one kernel of `line_kernels` each.

Arguments and results of these functions are those of the operations, and described there. All sizes come from shapes,
so nothing waits for the GPU.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ptynb.kernels.gpu import launches, line_kernels
from ptynb.kernels.gpu.launches import numbers_of, overwritten, pairs_of


class Tile(NamedTuple):
    """The lines of a program: their `parts` and `steps` (see `line_transforms`), their number, and its warps."""

    parts: int
    steps: int
    lines: int
    warps: int


TILES = {
    32: Tile(8, 4, 16, 2),
    64: Tile(8, 8, 16, 4),
    128: Tile(16, 8, 16, 4),
    256: Tile(16, 16, 8, 4),
    512: Tile(16, 32, 8, 4),
}
"""Tiles for lines of these lengths: 8 pixels a thread, 16 for 128 and 256, and 32 for 512."""


def columns_ramp(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    hybrid = spectra.new_empty((len(shifts), *spectra.shape[1:]))
    _launch(
        line_kernels.columns_ramp,
        hybrid,
        True,
        (pairs_of(spectra), shifts.contiguous(), pairs_of(hybrid)),
        (factor,),
        shared=len(spectra) == 1,
    )
    return hybrid


def rows_multiply_(hybrid: Tensor, object: Tensor, origins: Tensor, conjugate: bool, waves_wanted: bool) -> Tensor:
    waves = hybrid.new_empty(hybrid.shape if waves_wanted else 0)
    with overwritten(hybrid) as numbers:
        _launch(
            line_kernels.rows_multiply,
            hybrid,
            False,
            (numbers, pairs_of(object), origins.contiguous(), pairs_of(waves) if waves_wanted else None),
            (object.shape[-1],),
            conjugate=conjugate,
        )
    return waves


def columns_propagate_(
    hybrid: Tensor,
    kernel: Tensor | None,
    shifts: Tensor | None,
    factor: float,
    adjoint: bool,
    spectra_wanted: bool,
) -> Tensor:
    spectra = hybrid.new_empty(hybrid.shape if spectra_wanted else 0)
    with overwritten(hybrid) as numbers:
        _launch(
            line_kernels.columns_propagate,
            hybrid,
            True,
            (
                numbers,
                None if kernel is None else pairs_of(kernel),
                None if shifts is None else shifts.contiguous(),
                pairs_of(spectra) if spectra_wanted else None,
            ),
            (factor,),
            shared=kernel is not None and kernel.ndim == 2,
            adjoint=adjoint,
        )
    return spectra


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
    patterns, _, height, width = lines.shape
    side, across = (height, width) if columns else (width, height)
    losses = lines.new_empty((patterns, across // TILES[side].lines), dtype=torch.float64)
    slopes = lines.new_empty((2, patterns, height, width) if slopes_wanted else 0, dtype=torch.float32)
    optional = (None if one is None else numbers_of(one) for one in (rows, mask, weights, background))
    with overwritten(lines) as numbers:
        _launch(
            line_kernels.lines_compare,
            lines,
            columns,
            (numbers, numbers_of(stored), *optional, losses, slopes if slopes_wanted else None),
            (scale, floor, damping, factor, patterns),
            images=patterns,
            damped=damping > 0,
            columns=columns,
        )
    return losses, slopes


def columns_gather(
    hybrid: Tensor, shifts: Tensor, factor: float, patterns_per_sum: int, spectra_wanted: bool
) -> tuple[Tensor, Tensor]:
    patterns, modes, height, width = hybrid.shape
    sums = hybrid.new_empty((-(-patterns // patterns_per_sum), modes, height, width))
    spectra = hybrid.new_empty(hybrid.shape if spectra_wanted else 0)
    _launch(
        line_kernels.columns_gather,
        hybrid,
        True,
        (pairs_of(hybrid), shifts.contiguous(), pairs_of(sums), pairs_of(spectra) if spectra_wanted else None),
        (factor, patterns, patterns_per_sum),
        images=len(sums) * modes,
    )
    return sums, spectra


def _launch(
    kernel: Any,
    waves: Tensor,
    along_y: bool,
    arrays: tuple[Tensor | None, ...],
    numbers: tuple[float, ...],
    images: int | None = None,
    **constants: bool,
) -> None:
    """Run a kernel with a program for each tile of columns, or rows, of waves (pattern, mode, y, x)."""
    patterns, modes, height, width = waves.shape
    side, across = (height, width) if along_y else (width, height)
    tile = TILES[side]
    programs = (patterns * modes if images is None else images) * (across // tile.lines)
    launches.launch(
        kernel,
        programs,
        *arrays,
        _table(side, waves.device),
        *numbers,
        **constants,
        modes=modes,
        height=height,
        width=width,
        parts=tile.parts,
        steps=tile.steps,
        lines=tile.lines,
        warps=tile.warps,
    )


@functools.cache
def _table(side: int, device: torch.device) -> Tensor:
    """Return e^(2πi n / side), (n, 2), on this device."""
    turns = torch.arange(side, dtype=torch.float64) / side
    return torch.view_as_real(torch.polar(torch.ones_like(turns), 2 * torch.pi * turns).to(device, torch.complex64))
