"""The operations of `physics.operations` and `physics.patches` on CUDA: one kernel of `triton_kernels` each.

Arguments and results of these functions are those of the operations, and described there. Each says which kernel it
runs, by how many programs, what the kernel reads, and what it writes: new arrays, and those `overwritten`. All sizes
come from shapes, so nothing waits for the GPU.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ptynb.kernels.gpu import triton_kernels as kernels

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
    out, tile = spectra.new_empty((len(shifts), *spectra.shape[1:])), _tile(*spectra.shape[1:])
    shared = len(spectra) == 1
    run(kernels.shift_spectra, len(out) * _blocks(tile), spectra, shifts, out, factor, shared=shared, **tile)
    return out


def illuminate(waves: Tensor, object: Tensor, origins: Tensor, adjoint: bool) -> Tensor:
    out, tile = torch.empty_like(waves, memory_format=torch.contiguous_format), _tile(*waves.shape[1:])
    arguments = waves, object, origins, out, object.shape[-1]
    run(kernels.multiply_by_windows, len(waves) * _blocks(tile), *arguments, conjugate=adjoint, **tile)
    return out


def multiply_spectra_(spectra: Tensor, kernel: Tensor, shifts: Tensor | None, factor: float, adjoint: bool) -> None:
    tile = _tile(*spectra.shape[1:])
    arguments, constants = (spectra, kernel, shifts, factor), {"shared": kernel.ndim == 2, "adjoint": adjoint, **tile}
    run(kernels.multiply_spectra, len(spectra) * _blocks(tile), *arguments, overwritten=(spectra,), **constants)


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
    arguments = waves, stored, rows, mask, weights, background, losses, slopes if slopes_wanted else None
    constants = {"loss": loss, "damped": damping > 0, **tile}
    numbers = scale, floor, damping, factor, patterns
    run(kernels.compare, losses.numel(), *arguments, *numbers, overwritten=(waves,), **constants)
    return losses, slopes


def set_object_gradient_(gradient: Tensor, waves: Tensor, change: Tensor, origins: Tensor, factor: float) -> None:
    tile = _tile(*waves.shape[1:])
    arguments = gradient, waves, change, origins, factor, len(waves), *gradient.shape
    programs = _tiles_of_object(gradient, tile["block"])
    run(kernels.set_object_gradient, programs, *arguments, overwritten=(gradient,), row=ROW, **tile)


def gather_probe_gradient(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    patterns, modes, height, width = spectra.shape
    out = spectra.new_empty((modes, height, width))
    constants: dict[str, Any] = {"modes": modes, "height": height, "width": width, "summed": SUMMED}
    block = TILE // SUMMED
    programs = modes * _divided(height * width, block)
    run(kernels.gather_probe_gradient, programs, spectra, shifts, out, factor, patterns, **constants, block=block)
    return out


def shift_gradient(change: Tensor, spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    patterns, modes, height, width = change.shape
    tile = _tile(modes, height, width)
    parts = shifts.new_empty((patterns, _blocks(tile), 2))
    arguments, shared = (change, spectra, shifts, parts, factor / (height * width)), len(spectra) == 1
    run(kernels.shift_gradient, patterns * _blocks(tile), *arguments, shared=shared, **tile)
    return parts.sum(1)  # a second kernel: with one program for each pattern most of the GPU would be idle


def select_places(patterns: Tensor, origins: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor]:
    count, block = len(patterns), 32 * WARPS
    chosen = origins.new_empty((count, 2)), shifts.new_empty((count, 2))
    run(kernels.select_places, _divided(count, block), patterns, origins, shifts, *chosen, count, block=block)
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
    numbers = beta, _logarithm(beta), beta_of_squares, _logarithm(beta_of_squares), epsilon
    arguments = values, gradient, means, squares, steps, rows, rate, *numbers, values[:1].numel()
    overwritten = values, means, squares, steps
    run(kernels.step_rows, len(rows), *arguments, overwritten=overwritten, block=64, warps=1)


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
    numbers = beta, _logarithm(beta), beta_of_squares, _logarithm(beta_of_squares), epsilon
    arguments, count = (values, gradient, means, squares, step, rate, *numbers), values.numel()
    overwritten = values, means, squares
    run(kernels.step_all, _divided(count, TILE), *arguments, count, overwritten=overwritten, block=TILE)


def copy_windows(field: Tensor, window_origins: Tensor, height: int, width: int) -> Tensor:
    out = field.new_empty((len(window_origins), *field.shape[:-2], height, width))
    source = _components(field)
    layers, rows, columns, components = source.shape
    programs = len(window_origins) * layers * _divided(height * width, TILE)
    arguments = source, window_origins, _components(out), layers, rows, columns
    constants: dict[str, Any] = {"components": components, "height": height, "width": width, "block": TILE}
    run(kernels.copy_windows, programs, *arguments, **constants)
    return out


def add_windows_(field: Tensor, window_origins: Tensor, windows: Tensor) -> None:
    sums, (height, width) = field.contiguous(), windows.shape[-2:]
    target = _components(sums)
    layers, rows, columns, components = target.shape
    arguments = target, window_origins, _components(windows.to(field.dtype)), len(windows), layers, rows, columns
    constants: dict[str, Any] = {"components": components, "height": height, "width": width, "row": ROW}
    run(kernels.add_windows, layers * _tiles_of_object(field, TILE), *arguments, **constants, block=TILE)
    if sums is not field:
        field.copy_(sums)


def set_intensity_(sums: Tensor, waves: Tensor, origins: Tensor, weights: Tensor | None) -> None:
    tile = _tile(*waves.shape[1:])
    arguments = sums, waves, origins, weights, len(waves), *sums.shape
    run(kernels.set_intensity, _tiles_of_object(sums, tile["block"]), *arguments, overwritten=(sums,), row=ROW, **tile)


def sum_object_power(object: Tensor, origins: Tensor, weights: Tensor | None, height: int, width: int) -> Tensor:
    out = torch.empty((height, width), dtype=object.real.dtype, device=object.device)
    arguments = object, origins, weights, out, len(origins), *object.shape
    constants: dict[str, Any] = {"height": height, "width": width, "summed": SUMMED, "block": TILE // SUMMED}
    run(kernels.sum_object_power, _divided(height * width, TILE // SUMMED), *arguments, **constants)
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
    arguments = change, waves, steps, before, object, object_step, origins, out, object.shape[-1]
    run(kernels.compare_steps, len(waves) * _blocks(tile), *arguments, **tile)
    return out


def sum_curvatures(field: Tensor, waves: Tensor, origins: Tensor) -> Tensor:
    tile = _tile(*waves.shape[1:])
    out = waves.new_empty((len(waves), _blocks(tile), 3), dtype=torch.float64)
    arguments = field, waves, origins, out, field.shape[-1]
    run(kernels.sum_curvatures, len(waves) * _blocks(tile), *arguments, **tile)
    return out


def fit_steps(products: Tensor) -> Tensor:
    count, block = len(products), 32 * WARPS
    out = products.new_empty((count, 2))
    run(kernels.fit_steps, _divided(count, block), products, out, count, block=block)
    return out


def run(kernel: Any, programs: int, *arguments: Any, overwritten: tuple[Tensor, ...] = (), **constants: Any) -> None:
    """Run programs of a kernel for these arguments, tensors as contiguous numbers: complex ones as pairs (…, 2).

    overwritten: those arguments that the kernel changes; other ones that it writes are contiguous.
    """
    given = [one.resolve_conj().contiguous() if isinstance(one, Tensor) else one for one in arguments]
    launch(kernel, programs, *(_numbers_of(one) if isinstance(one, Tensor) else one for one in given), **constants)
    for argument, contiguous in zip(arguments, given, strict=True):
        if contiguous is not argument and any(argument is one for one in overwritten):
            argument.copy_(contiguous)


def launch(kernel: Any, programs: int, *arguments: Any, warps: int = WARPS, **constants: Any) -> None:
    """Run programs of a kernel on the device of its first argument."""
    if programs:  # CUDA refuses to launch none
        with torch.cuda.device_of(arguments[0]):
            kernel[(programs,)](*arguments, **constants, num_warps=warps)


def _tile(modes: int, height: int, width: int) -> dict[str, Any]:
    """Return the constants of a kernel whose programs have `block` pixels of a window, and `chunk` modes at once."""
    chunk = min(1 << (modes - 1).bit_length(), HELD)
    # All modes of a pixel belong to one thread: sums over them do not pass through shared memory.
    block = max(TILE // chunk, 32 * WARPS)
    return {"modes": modes, "height": height, "width": width, "chunk": chunk, "block": block}


def _blocks(tile: dict[str, Any]) -> int:
    """Return the number of programs that share a window."""
    return _divided(tile["height"] * tile["width"], tile["block"])


def _tiles_of_object(plane: Tensor, block: int) -> int:
    """Return the number of programs for a plane (…, y, x) of the object, each with `block` pixels."""
    return _divided(plane.shape[-2], block // ROW) * _divided(plane.shape[-1], ROW)


def _logarithm(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf


def _divided(number: int, by: int) -> int:
    return -(-number // by)


def _numbers_of(values: Tensor) -> Tensor:
    """Return the numbers of a contiguous tensor: complex ones as pairs, truth values as bytes."""
    if values.is_complex():
        return torch.view_as_real(values)
    return values.view(torch.uint8) if values.dtype == torch.bool else values


def _components(field: Tensor) -> Tensor:
    """Return a field (…, y, x) as contiguous numbers (layer, y, x, component): one component, or two if complex."""
    numbers = _numbers_of(field.reshape(-1, *field.shape[-2:]).resolve_conj().contiguous())
    return numbers if field.is_complex() else numbers[..., None]
