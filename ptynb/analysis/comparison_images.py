"""Pictures of results side by side over the common area, and of the difference of two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ptynb.analysis.probe_modes import mode_powers
from ptynb.analysis.result_comparison import Difference, Together
from ptynb.data import images
from ptynb.data.engine_records import Array, Picture, Result

Quantity = Literal["phase", "amplitude", "complex", "probe"]
QUANTITIES: tuple[Quantity, ...] = ("phase", "amplitude", "complex", "probe")
MODES = 4
"""Largest number of probe modes shown."""
SIDE = 1024
"""Longest side of a picture [pixels]."""
DIFFERENCE = "difference"


@dataclass(frozen=True, eq=False)
class ComparisonPictures:
    """Pictures, their arrays (y, x) by name, and notes about results that could not be shown."""

    pictures: tuple[Picture, ...]
    values: dict[str, Array]
    notes: tuple[str, ...]


def objects(
    together: Together, quantity: Quantity, registered: bool, pair: tuple[str, str] | None
) -> ComparisonPictures:
    """Return pictures of the objects, and of the difference of a pair (first minus second) after registration."""
    fields, problems = _fields(together, registered)
    # Registered objects have the phase, the ramp and the limits of the first one.
    flatten = images.flattening(fields[together.first])
    measures: dict[str, Callable[[Array], Array]] = {"phase": np.angle, "amplitude": np.abs}
    measure = measures.get(quantity, np.asarray)
    values = {}
    for name, field in fields.items():
        same = registered and name in together.placed
        down, across = flatten if same else images.flattening(field)
        values[name] = measure(field * down[:, None] * across[None, :])
    limits = None if quantity == "complex" else images.limits_of(values[together.first])
    pictures = []
    for name, shown in values.items():
        apart = not registered or name in together.left_out
        pixel = together.results[name].pixel_size if name in together.left_out else together.pixel_size
        pictures.append(_picture(shown, name, name, quantity, None if apart else limits, pixel))
    if pair is not None:
        try:
            difference = _difference(together.difference(*pair), quantity)
        except ValueError as error:
            problems.append(str(error))
        else:
            values[DIFFERENCE] = difference
            pictures.append(_difference_picture(difference, pair, quantity, together.pixel_size))
    return ComparisonPictures(tuple(pictures), values, tuple(dict.fromkeys([*together.left_out.values(), *problems])))


def probes(results: dict[str, Result]) -> ComparisonPictures:
    """Return pictures of the probe modes, one row per result, with the phases of the first result."""
    values: dict[str, Array] = {}
    pictures = []
    first = next(iter(results.values())).probe
    for name, result in results.items():
        modes = []
        for number, mode in enumerate(result.probe[:MODES]):
            same = number < len(first) and first[number].shape == mode.shape
            overlap = np.vdot(mode, first[number]) if same else 1.0
            modes.append(mode * np.exp(1j * np.angle(overlap)))
        powers = ", ".join(f"{power:.1%}" for power in mode_powers(result.probe)[:MODES])
        values[name] = np.concatenate(modes, axis=1)
        note = f"power of the modes {powers}" + (f", of {len(result.probe)}" if len(result.probe) > MODES else "")
        pictures.append(_picture(values[name], name, name, "complex", None, result.pixel_size, note))
    return ComparisonPictures(tuple(pictures), values, ())


def value_text(value: Any) -> str:
    """Return the value under the cursor as text."""
    return f"{abs(value):.4g}, {np.angle(value):.3f} rad" if np.iscomplexobj(value) else f"{value:.5g}"


def _fields(together: Together, registered: bool) -> tuple[dict[str, Array], list[str]]:
    """Return the objects over the common area (y, x), registered to the first one if possible."""
    fields, problems = {}, []
    for name in together.results:
        fields[name] = together.covered(name)
        if registered and name in together.placed and name != together.first:
            try:
                fields[name] = together.registered(name, together.first).aligned
            except ValueError as error:
                problems.append(str(error))
    return fields, problems


def _difference(difference: Difference, quantity: Quantity) -> Array:
    if quantity == "phase":
        return difference.phase
    return difference.amplitude if quantity == "amplitude" else np.abs(difference.relative)


def _picture(
    values: Array,
    name: str,
    title: str,
    quantity: Quantity,
    limits: tuple[float, float] | None,
    pixel_size: tuple[float, float] | None,
    note: str = "",
) -> Picture:
    colours = "viridis" if quantity == "phase" else "gray"
    unit = "rad" if quantity == "phase" else ""
    return images.picture(
        values, name, title, size=SIDE, limits=limits, unit=unit, pixel_size=pixel_size, colours=colours, note=note,
        quantity=quantity,
    )  # fmt: skip


def _difference_picture(
    values: Array, pair: tuple[str, str], quantity: Quantity, pixel_size: tuple[float, float] | None
) -> Picture:
    title = f"{pair[0]} − {pair[1]}"
    if quantity == "complex":
        limits, colours, note = (0.0, images.limits_of(values)[1]), "magma", "magnitude of the complex difference"
    else:
        largest = max(abs(limit) for limit in images.limits_of(values))
        limits, colours, note = (-largest, largest), "PuOr", f"difference of the {quantity}s"
    unit, scale = ("rad", "") if quantity == "phase" else ("", "; 1 is the root mean square of the amplitude")
    return images.picture(
        values, DIFFERENCE, title, size=SIDE, limits=limits, unit=unit, pixel_size=pixel_size, colours=colours,
        note=f"{note}, after registration{scale}", quantity=f"difference of {quantity}",
    )  # fmt: skip
