"""The operations of `physics.operations` and `physics.patches` on CUDA: one kernel of `triton_kernels` each.

Arguments and results of these functions are those of the operations, and described there. All sizes come from shapes,
so nothing waits for the GPU.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ptynb.kernels.gpu import triton_kernels

WARPS = 4
"""Warps of 32 threads of a program."""
TILE = 512
"""Complex numbers that a program has of an array: 4 a thread, which are on their way from memory at the same time. For
16 x 128 x 128 pixels these are 512 programs, about 4 for each multiprocessor of an H100."""
HELD = 8
"""Maximum number of modes that a thread has in registers at the same time."""
ROW = 32
"""Width of a tile of the object: a warp accesses a row of it, 256 bytes. Wider tiles lie less often inside windows."""
SUMMED = 16
"""Patterns that a program reads at the same time where it sums over them. With `TILE` / 16 pixels, 128 x 128 pixels are
512 programs; with one pixel and one pattern a thread, three quarters of the threads of an H100 would have no work."""


def shift_spectra(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    modes, height, width = spectra.shape[1:]
    out = spectra.new_empty((len(shifts), modes, height, width))
    tile = _tile(modes, height, width)
    launch(
        triton_kernels.shift_spectra,
        len(shifts) * _blocks(tile),
        _pairs_of(spectra),
        shifts.contiguous(),
        _pairs_of(out),
        factor,
        shared=len(spectra) == 1,
        **tile,
    )
    return out


def illuminate(waves: Tensor, object: Tensor, origins: Tensor, adjoint: bool) -> Tensor:
    out, tile = torch.empty_like(waves, memory_format=torch.contiguous_format), _tile(*waves.shape[1:])
    launch(
        triton_kernels.multiply_by_windows,
        len(waves) * _blocks(tile),
        _pairs_of(waves),
        _pairs_of(object),
        origins.contiguous(),
        _pairs_of(out),
        object.shape[-1],
        conjugate=adjoint,
        **tile,
    )
    return out


def multiply_spectra_(spectra: Tensor, kernel: Tensor, shifts: Tensor | None, factor: float, adjoint: bool) -> None:
    tile = _tile(*spectra.shape[1:])
    with _overwritten(spectra) as pairs:
        launch(
            triton_kernels.multiply_spectra,
            len(spectra) * _blocks(tile),
            pairs,
            _pairs_of(kernel),
            None if shifts is None else shifts.contiguous(),
            factor,
            shared=kernel.ndim == 2,
            adjoint=adjoint,
            **tile,
        )


def compare_(
    waves: Tensor,
    stored: Tensor,
    rows: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
    background: Tensor | None,
    scale: float,
    floor: float,
    damping: float,
    loss: str,
    factor: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor]:
    patterns, modes, height, width = waves.shape
    tile = _tile(modes, height, width)
    losses = waves.new_empty((patterns, _blocks(tile)), dtype=torch.float64)
    real = torch.float64 if waves.dtype == torch.complex128 else torch.float32
    slopes = waves.new_empty((2, patterns, height, width) if slopes_wanted else 0, dtype=real)
    with _overwritten(waves) as pairs:
        launch(
            triton_kernels.compare,
            losses.numel(),
            pairs,
            *(None if one is None else _numbers_of(one) for one in (stored, rows, mask, weights, background)),
            losses,
            slopes if slopes_wanted else None,
            scale,
            floor,
            damping,
            factor,
            patterns,
            loss=loss,
            damped=damping > 0,
            **tile,
        )
    return losses, slopes


def set_object_gradient_(gradient: Tensor, waves: Tensor, change: Tensor, origins: Tensor, factor: float) -> None:
    tile, (rows, columns) = _tile(*waves.shape[1:]), gradient.shape
    with _overwritten(gradient) as pairs:
        launch(
            triton_kernels.set_object_gradient,
            _divided(rows, tile["block"] // ROW) * _divided(columns, ROW),
            pairs,
            _pairs_of(waves),
            _pairs_of(change),
            origins.contiguous(),
            factor,
            len(waves),
            rows,
            columns,
            row=ROW,
            **tile,
        )


def gather_probe_gradient(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    patterns, modes, height, width = spectra.shape
    out = spectra.new_empty((modes, height, width))
    launch(
        triton_kernels.gather_probe_gradient,
        modes * _divided(height * width, TILE // SUMMED),
        _pairs_of(spectra),
        shifts.contiguous(),
        _pairs_of(out),
        factor,
        patterns,
        modes=modes,
        height=height,
        width=width,
        summed=SUMMED,
        block=TILE // SUMMED,
    )
    return out


def shift_gradient(change: Tensor, spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    patterns, modes, height, width = change.shape
    tile = _tile(modes, height, width)
    parts = shifts.new_empty((patterns, _blocks(tile), 2))
    launch(
        triton_kernels.shift_gradient,
        patterns * _blocks(tile),
        _pairs_of(change),
        _pairs_of(spectra),
        shifts.contiguous(),
        parts,
        factor / (height * width),
        shared=len(spectra) == 1,
        **tile,
    )
    return parts.sum(1)  # a second kernel: with one program for each pattern most of the GPU would be idle


def select_places(patterns: Tensor, origins: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor]:
    chosen = origins.new_empty((len(patterns), 2)), shifts.new_empty((len(patterns), 2))
    launch(
        triton_kernels.select_places,
        _divided(len(patterns), 32 * WARPS),
        patterns.contiguous(),
        origins.contiguous(),
        shifts.contiguous(),
        *chosen,
        len(patterns),
        block=32 * WARPS,
    )
    return chosen


def step_rows_(
    values: Tensor,
    gradient: Tensor,
    means: Tensor,
    squares: Tensor,
    steps: Tensor,
    rows: Tensor,
    rate: Tensor,
    beta: float,
    beta_of_squares: float,
    epsilon: float,
) -> None:
    # A program, of one warp, for each row, which counts its step.
    with (
        _overwritten(values) as own,
        _overwritten(means) as own_means,
        _overwritten(squares) as own_squares,
        _overwritten(steps) as own_steps,
    ):
        launch(
            triton_kernels.step_rows,
            len(rows),
            own,
            gradient.contiguous(),
            own_means,
            own_squares,
            own_steps,
            rows.contiguous(),
            rate,
            beta,
            _logarithm(beta),
            beta_of_squares,
            _logarithm(beta_of_squares),
            epsilon,
            values[0].numel() if len(values) else 0,
            block=64,
            warps=1,
        )


def step_all_(
    values: Tensor,
    gradient: Tensor,
    means: Tensor,
    squares: Tensor,
    step: Tensor,
    rate: Tensor,
    beta: float,
    beta_of_squares: float,
    epsilon: float,
) -> None:
    with _overwritten(values) as own, _overwritten(means) as own_means, _overwritten(squares) as own_squares:
        launch(
            triton_kernels.step_all,
            _divided(values.numel(), TILE),
            own,
            gradient.contiguous(),
            own_means,
            own_squares,
            step,
            rate,
            beta,
            _logarithm(beta),
            beta_of_squares,
            _logarithm(beta_of_squares),
            epsilon,
            values.numel(),
            block=TILE,
        )


def copy_windows(field: Tensor, window_origins: Tensor, height: int, width: int) -> Tensor:
    out = field.new_empty((len(window_origins), *field.shape[:-2], height, width))
    source = _components(field)
    layers, rows, columns, components = source.shape
    launch(
        triton_kernels.copy_windows,
        len(window_origins) * layers * _divided(height * width, TILE),
        source,
        window_origins.contiguous(),
        _components(out),
        layers,
        rows,
        columns,
        components=components,
        height=height,
        width=width,
        block=TILE,
    )
    return out


def add_windows_(field: Tensor, window_origins: Tensor, windows: Tensor) -> None:
    sums = field.contiguous()
    target = _components(sums)
    layers, rows, columns, components = target.shape
    launch(
        triton_kernels.add_windows,
        layers * _divided(rows, TILE // ROW) * _divided(columns, ROW),
        target,
        window_origins.contiguous(),
        _components(windows.to(field.dtype)),
        len(windows),
        layers,
        rows,
        columns,
        components=components,
        height=windows.shape[-2],
        width=windows.shape[-1],
        row=ROW,
        block=TILE,
    )
    if sums is not field:
        field.copy_(sums)


def set_intensity_(sums: Tensor, waves: Tensor, origins: Tensor, weights: Tensor | None) -> None:
    tile, (rows, columns) = _tile(*waves.shape[1:]), sums.shape
    with _overwritten(sums) as numbers:
        launch(
            triton_kernels.set_intensity,
            _divided(rows, tile["block"] // ROW) * _divided(columns, ROW),
            numbers,
            _pairs_of(waves),
            origins.contiguous(),
            None if weights is None else weights.contiguous(),
            len(waves),
            rows,
            columns,
            row=ROW,
            **tile,
        )


def sum_object_power(object: Tensor, origins: Tensor, weights: Tensor | None, height: int, width: int) -> Tensor:
    source = _pairs_of(object)
    out = source.new_empty((height, width))
    launch(
        triton_kernels.sum_object_power,
        _divided(height * width, TILE // SUMMED),
        source,
        origins.contiguous(),
        None if weights is None else weights.contiguous(),
        out,
        len(origins),
        *object.shape,
        height=height,
        width=width,
        summed=SUMMED,
        block=TILE // SUMMED,
    )
    return out


def compare_steps(
    change: Tensor,
    waves: Tensor,
    steps: Tensor,
    before: Tensor | None,
    object: Tensor,
    object_step: Tensor,
    origins: Tensor,
) -> Tensor:
    tile = _tile(*waves.shape[1:])
    out = waves.new_empty((len(waves), _blocks(tile), 5), dtype=torch.float64)
    launch(
        triton_kernels.compare_steps,
        len(waves) * _blocks(tile),
        _pairs_of(change),
        _pairs_of(waves),
        _pairs_of(steps),
        None if before is None else _pairs_of(before),
        _pairs_of(object),
        _pairs_of(object_step),
        origins.contiguous(),
        out,
        object.shape[-1],
        **tile,
    )
    return out


def sum_curvatures(field: Tensor, waves: Tensor, origins: Tensor) -> Tensor:
    tile = _tile(*waves.shape[1:])
    out = waves.new_empty((len(waves), _blocks(tile), 3), dtype=torch.float64)
    launch(
        triton_kernels.sum_curvatures,
        len(waves) * _blocks(tile),
        _pairs_of(field),
        _pairs_of(waves),
        origins.contiguous(),
        out,
        field.shape[-1],
        **tile,
    )
    return out


def fit_steps(products: Tensor) -> Tensor:
    out = products.new_empty((len(products), 2))
    programs = _divided(len(products), 32 * WARPS)
    launch(triton_kernels.fit_steps, programs, products.contiguous(), out, len(products), block=32 * WARPS)
    return out


def launch(kernel: Any, programs: int, *arguments: Any, warps: int = WARPS, **constants: Any) -> None:
    """Run programs of a kernel on the device of its first argument."""
    if programs:  # CUDA refuses to launch none
        with torch.cuda.device_of(arguments[0]):
            kernel[(programs,)](*arguments, **constants, num_warps=warps)


def _tile(modes: int, height: int, width: int) -> dict[str, int]:
    """Return the constants of a kernel whose programs have `block` pixels of a window, and `chunk` modes at once."""
    chunk = min(1 << (modes - 1).bit_length(), HELD)
    # All modes of a pixel belong to one thread: sums over them do not pass through shared memory.
    block = max(TILE // chunk, 32 * WARPS)
    return {"modes": modes, "height": height, "width": width, "chunk": chunk, "block": block}


def _blocks(tile: dict[str, int]) -> int:
    """Return the number of programs that share a window."""
    return _divided(tile["height"] * tile["width"], tile["block"])


def _logarithm(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf


def _divided(number: int, by: int) -> int:
    return -(-number // by)


def _pairs_of(values: Tensor) -> Tensor:
    """Return complex values as contiguous pairs (…, 2)."""
    return torch.view_as_real(values.resolve_conj().contiguous())


def _numbers_of(values: Tensor) -> Tensor:
    """Return real values, contiguous; truth values as bytes."""
    return values.contiguous().view(torch.uint8) if values.dtype == torch.bool else values.contiguous()


def _components(field: Tensor) -> Tensor:
    """Return a field (…, y, x) as contiguous numbers (layer, y, x, component): one component, or two if complex."""
    layers = field.reshape(-1, *field.shape[-2:])
    return _pairs_of(layers) if layers.is_complex() else _numbers_of(layers)[..., None]


@contextlib.contextmanager
def _overwritten(values: Tensor) -> Iterator[Tensor]:
    """Yield values as contiguous numbers, complex ones as pairs, for a kernel that overwrites them."""
    contiguous = values.contiguous()
    yield torch.view_as_real(contiguous) if contiguous.is_complex() else contiguous
    if contiguous is not values:
        values.copy_(contiguous)
