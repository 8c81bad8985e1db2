"""Convert a state to settings of another structure: number of modes, slices or states, batch, optimiser or loss.

Exit waves are preserved as far as the new structure allows: new probe modes are faint and orthogonal to the present
ones, and the product of new slices is that of the old ones. Unchanged parameters keep the optimiser's moments, unless
the optimiser itself changes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ptynb.data.engine_records import Change
from ptynb.data.scan import ObjectFrame, Scan
from ptynb.exceptions import SettingsError
from ptynb.io.checkpoint_file import Array, ReconstructionState
from ptynb.physics.components.builtin import BACKGROUND_START
from ptynb.physics.model_builder import (
    BUILT_IN,
    DETECTOR_EFFECTS,
    STATE_PHASE,
    add_modes,
    further_variations,
    initial_parameters,
    object_frame,
    tilt_unit,
)
from ptynb.settings import BY_EXIT_WAVES, PART_OF_COMPONENT, PROJECTIONS, Settings

NEW_MODE = 1e-3
"""Fraction of the total power in a new probe mode: too little to change the loss much, enough for a gradient."""
LEAST_BACKGROUND = 1e-3
"""Smallest amplitude of a background that is converted [square root of the mean count of a pixel]."""
NEW_ORDER = ("batch", "batch_per", "batch_sampling", "batch_bands", "seed", "optimiser", "loss")
"""Settings that determine the updates of an epoch or its loss: if one changes, an incomplete epoch starts again."""
SAME_PROBLEM = {
    *("batch", "batch_per", "batch_sampling", "batch_bands", "seed", "gradient_accumulation", "pattern_storage"),
    "object.layout",
}
"""Settings whose change leaves a history over all parameters, as that of L-BFGS, valid."""
REFUSED = {
    "precision": "the numbers would be others",
    "detector.oversampling": "the probe would get another window",
    "components": "components of plug-ins are part of the model from the beginning",
}
"""Settings that cannot change, and the reasons."""
DEFAULTS = Settings()
BEGINNING = [name for name, (used, _) in BUILT_IN.items() if name in PART_OF_COMPONENT and not used(DEFAULTS)]
"""Components that a change of the settings adds, inactive until they are first updated."""
POSITIONS_AND_SLAB = ("object", "probe", "positions", "affine", "offset", "tilt", "slices")
BESIDE_EXIT_WAVES = {
    "lsqml": (*POSITIONS_AND_SLAB, "variations", "weights", "background"),
    **dict.fromkeys(PROJECTIONS, POSITIONS_AND_SLAB),
}
"""Components that these optimisers support once they have been active, also those that they do not update."""


def why_not(present: Settings, requested: Settings, active: Mapping[str, bool]) -> str | None:
    """Return why a reconstruction cannot change to these settings; None if it can.

    active: whether each component of the model has been active, by name.
    """
    for name in present.differences(requested):
        if name in REFUSED:
            return (
                f"{name} cannot change in a reconstruction that has begun ({REFUSED[name]}); make a new Reconstruction."
            )
    return _why_not_by_exit_waves(active, requested)


def restructured(state: ReconstructionState, requested: Settings, scan: Scan) -> ReconstructionState:
    """Return the state converted to other settings, with the differences recorded as changes.

    state: with the whole object.
    The object's array never shrinks; it grows if the new settings require a larger padding. Waves of DM and RAAR are
    computed anew from object and probe. Raises SettingsError if the reconstruction cannot change to these settings.
    """
    present, begun = Settings(**state.settings), Settings(**state.begun)
    if problem := why_not(present, requested, state.active):
        raise SettingsError(problem, code="settings.not-reconfigurable")
    changed = present.differences(requested)
    state = with_background_of(state, requested.background.parametrization)
    padding = max(begun.margin, requested.object.padding)
    begins = requested.replace(object={"padding": padding})
    frames = object_frame(scan, begun), object_frame(scan, begins)
    before = arrays_of(state)
    arrays = {name: dict(values) for name, values in before.items()}
    arrays["object"] = _object(arrays["object"], present, begins, frames)
    probe = _complex(arrays["probe"]["parts"])
    if present.probe.modes != requested.probe.modes:
        first_stays, probes = requested.opr.modes > 0, probe.chunk(len(scan.probe_scans))
        probe = torch.cat([with_modes(one, requested.probe.modes, first_stays) for one in probes])
        arrays["probe"] = {"parts": _real(probe)}
    for name in BEGINNING:
        if not BUILT_IN[name][0](requested):
            continue
        if name not in arrays:
            arrays[name] = initial_parameters(name, scan, requested, probe)
        elif name == "aberrations":
            arrays[name] = _aberrations(arrays[name], initial_parameters(name, scan, requested, probe))
        elif name == "variations":
            arrays[name] = _variations(arrays[name], probe, requested.opr.modes)
    arrays |= _depth(arrays.pop("slices", {}), arrays.pop("tilt", {}), present, requested, scan)
    names = [name for name in {**arrays, **BUILT_IN} if name not in BUILT_IN or BUILT_IN[name][0](requested)]
    model = {f"{name}.{key}": one for name in names for key, one in arrays.get(name, {}).items()}
    anew = any(name in changed for name in NEW_ORDER)
    now = time.time()
    changes = (Change(state.epoch, state.update, name, old, new, now) for name, (old, new) in changed.items())
    algorithm, numbers = _moments(state, before, arrays, present, requested)
    return dataclasses.replace(
        state,
        settings=requested.model_dump(mode="json"),
        begun=begins.model_dump(mode="json"),
        update=0 if anew else state.update,
        seconds=0.0 if anew else state.seconds,
        loss_sums=np.zeros_like(state.loss_sums) if anew else state.loss_sums,
        changes=(*state.changes, *changes),
        active={name: state.active.get(name, name not in BEGINNING) for name in names},
        model=model,
        algorithm=algorithm,
        numbers=numbers,
        patterns=state.patterns[:0],
        rows={},
        parts=1,
        token="",
    )


# Conversion of single arrays


def with_background_of(state: ReconstructionState, parametrization: str) -> ReconstructionState:
    """Return the state with the parameter of the background in this parametrization, without its moments.

    The intensities stay the same; where they are 0 the amplitude is `LEAST_BACKGROUND`, since 0 has no gradient.
    """
    if Settings(**state.settings).background.parametrization == parametrization:
        return state
    key = "background.background"
    stored = state.model[key]
    if not state.active["background"]:
        values = np.full_like(stored, BACKGROUND_START if parametrization == "amplitude" else 0.0)
    elif parametrization == "amplitude":
        values = np.sqrt(stored).clip(min=LEAST_BACKGROUND)
    else:
        values = stored**2

    def remains(name: str) -> bool:
        return not name.startswith(("optimiser/background/", "algorithm/"))

    settings, begun = (
        {**one, "background": {**one["background"], "parametrization": parametrization}}
        for one in (state.settings, state.begun)
    )
    return dataclasses.replace(
        state,
        settings=settings,
        begun=begun,
        model={**state.model, key: values},
        algorithm={name: one for name, one in state.algorithm.items() if remains(name)},
        numbers={name: one for name, one in state.numbers.items() if remains(name)},
    )


def _in_other_unit(values: Array, old: Array, new: Array) -> Array:
    return values if np.array_equal(old, new) else (values * (old / new)).astype(values.dtype)


def with_modes(probe: Tensor, modes: int, first_stays: bool = False) -> Tensor:
    """Return the probe (mode, y, x) with `modes` modes and the same total power.

    New modes are orthogonal to the present ones, each with `NEW_MODE` of the power. A reduction retains as much power
    as possible, strongest mode first (singular vectors of all modes); this is possible since any unitary mixture of
    incoherent modes gives the same patterns. first_stays: keep the first mode, which the probe variations refer to.
    """
    if modes >= len(probe):
        return add_modes(probe, modes, NEW_MODE)
    retained, mixed = (probe[:1], probe[1:]) if first_stays else (probe[:0], probe)
    if modes > len(retained):
        _, strengths, vectors = torch.linalg.svd(mixed.flatten(1), full_matrices=False)
        strongest = (strengths[:, None] * vectors).reshape(-1, *probe.shape[1:])
        retained = torch.cat([retained, strongest[: modes - len(retained)]])
    return retained * (probe.abs().square().sum() / retained.abs().square().sum()).sqrt()


def in_slices(amplitude: Tensor, phase: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return amplitude and phase (state, slice, y, x) of `count` slices with the same product.

    Old and new slices divide the same depth evenly: a new slice is the product of the old ones, each to the power of
    the fraction of it inside the new slice. One slice becomes equal ones; several become one, their product.
    """
    old = amplitude.shape[1]
    edges = torch.arange(count + 1, dtype=torch.float64) * old / count
    amplitudes, phases = [], []
    for top, bottom in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        parts = [max(0.0, min(bottom, index + 1) - max(top, index)) for index in range(old)]
        inside = torch.tensor(parts, dtype=amplitude.dtype)[:, None, None]
        amplitudes.append((amplitude**inside).prod(1))
        phases.append((phase * inside).sum(1))
    return torch.stack(amplitudes, 1), torch.stack(phases, 1)


def with_states(object: Tensor, states: int, seed: int) -> Tensor:
    """Return the object (state, slice, y, x) with `states` states; new ones are copies with small random phases."""
    if states <= len(object):
        return object[:states]
    copies = object[torch.arange(len(object), states) % len(object)]
    random = torch.Generator().manual_seed(seed)
    phases = STATE_PHASE * torch.randn(copies.shape, generator=random, dtype=torch.float64)
    return torch.cat([object, copies * torch.polar(torch.ones_like(phases), phases).to(object.dtype)])


def in_frame(values: Tensor, old: ObjectFrame, new: ObjectFrame, outside: float) -> Tensor:
    """Return the array (…, y, x) of the old frame embedded in the new one, filled with `outside`."""
    placed = values.new_full((*values.shape[:-2], *new.shape), outside)
    top, left = (before - now for before, now in zip(old.origin, new.origin, strict=True))
    assert min(top, left) >= 0, "frames only grow"
    placed[..., top : top + old.shape[0], left : left + old.shape[1]] = values
    return placed


# Components of a state


def arrays_of(state: ReconstructionState) -> dict[str, dict[str, Array]]:
    """Return the model's arrays by component and name; of components without parameters none."""
    arrays: dict[str, dict[str, Array]] = {name: {} for name in state.active}
    for key, values in state.model.items():
        component, _, name = key.partition(".")
        arrays[component][name] = values
    return arrays


def _object(
    old: Mapping[str, Array], present: Settings, requested: Settings, frames: tuple[ObjectFrame, ObjectFrame]
) -> dict[str, Array]:
    """Return the object's parameters in the new structure; the same arrays if nothing of it changed."""
    polar, count, states = (
        requested.object.parametrization == "amplitude_phase",
        requested.slices.count,
        requested.object.modes,
    )
    same_form, same_depth = polar == ("phase" in old), count == present.slices.count
    if same_form and same_depth and states == present.object.modes and frames[0] == frames[1]:
        return dict(old)
    if "phase" in old:
        amplitude, phase = (torch.from_numpy(old[name]) for name in ("amplitude", "phase"))
        phase = torch.where(amplitude < 0, phase + torch.pi, phase)
        amplitude = amplitude.abs()
    else:
        values = _complex(old["parts"])
        amplitude, phase = values.abs(), values.angle()
    if not same_depth:
        amplitude, phase = in_slices(amplitude, phase, count)
    amplitude, phase = in_frame(amplitude, *frames, 1.0), in_frame(phase, *frames, 0.0)
    whole = with_states(torch.polar(amplitude, phase), states, requested.seed)
    if not polar:
        return {"parts": _real(whole)}
    phase = torch.cat([phase[:states], whole[len(phase) :].angle()])
    return {"amplitude": whole.abs().numpy(), "phase": phase.numpy()}


def _aberrations(old: Mapping[str, Array], fresh: dict[str, Array]) -> dict[str, Array]:
    """Return the aberrations up to another order, fresh from the same probe, with the totals of those that stay."""
    if old["mixture"].shape == fresh["mixture"].shape:
        return dict(old)
    both = min(len(fresh["total"]), len(old["total"]))
    fresh["total"][:both] = old["total"][:both]
    return fresh


def _variations(old: Mapping[str, Array], probe: Tensor, rank: int) -> dict[str, Array]:
    """Return the modes of the probe variations: the strongest ones, or additional ones with coefficients 0."""
    ways, coefficients = _complex(old["ways"]), _complex(old["coefficients"])
    if rank == len(ways):
        return dict(old)
    if rank < len(ways):
        inner, triangle = torch.linalg.qr(coefficients)
        left, strengths, right = torch.linalg.svd(triangle @ ways.flatten(1), full_matrices=False)
        unit = right.shape[1] ** 0.5  # ways have a root-mean-square amplitude of 1
        ways = (right[:rank] * unit).reshape(-1, *ways.shape[1:])
        coefficients = inner @ (left[:, :rank] * strengths[:rank]) / unit
    else:
        more = further_variations(probe, rank)[len(ways) :]
        ways = torch.cat([ways, more])
        coefficients = torch.cat([coefficients, probe.new_zeros((len(coefficients), len(more)))], 1)
    return {"ways": _real(ways), "coefficients": _real(coefficients)}


def _depth(
    slices: Mapping[str, Array], tilt: Mapping[str, Array], present: Settings, requested: Settings, scan: Scan
) -> dict[str, dict[str, Array]]:
    """Return stretch and tilt of the slab: the optimised values, unless the settings of their start changed."""
    if requested.slices.count == 1:
        return {}
    kind = "float64" if requested.precision == "double" else "float32"
    same = slices and (requested.slices.thickness, requested.slices.count) == (
        present.slices.thickness,
        present.slices.count,
    )
    stretch = slices["stretch"] if same else np.ones((), dtype=kind)
    initial_tilt = requested.tilt.y, requested.tilt.x
    if tilt and initial_tilt == (present.tilt.y, present.tilt.x):
        angles = _in_other_unit(tilt["angles"], tilt_unit(scan, present), tilt_unit(scan, requested))
        angles = angles.mean(0, keepdims=True) if len(angles) > 1 and not requested.tilt.per_position else angles
    else:
        angles = (np.array([initial_tilt]) / tilt_unit(scan, requested)).astype(kind)
    if requested.tilt.per_position and len(angles) == 1:
        angles = angles.repeat(len(scan), 0)
    return {"slices": {"stretch": stretch}, "tilt": {"angles": angles}}


def _moments(
    state: ReconstructionState,
    before: Mapping[str, Mapping[str, Array]],
    after: Mapping[str, Mapping[str, Array]],
    present: Settings,
    requested: Settings,
) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the part of the optimiser's state that remains valid.

    Moments remain for unchanged components, a history over all parameters only if the whole problem is unchanged.
    """
    if present.optimiser != requested.optimiser:
        return {}, {}
    same = {
        name
        for name, arrays in after.items()
        if name in before
        and set(before[name]) == set(arrays)
        and all(before[name][key] is arrays[key] for key in arrays)
    }
    all_same = same == set(before) == set(after) and set(present.differences(requested)) <= SAME_PROBLEM

    def remains_valid(name: str) -> bool:
        kind, component, *_ = name.split("/")
        return component in same if kind == "optimiser" else all_same

    return (
        {name: one for name, one in state.algorithm.items() if remains_valid(name)},
        {name: one for name, one in state.numbers.items() if remains_valid(name)},
    )


def _why_not_by_exit_waves(active: Mapping[str, bool], requested: Settings) -> str | None:
    if requested.optimiser not in BY_EXIT_WAVES:
        return None
    supported = (*BESIDE_EXIT_WAVES[requested.optimiser], *DETECTOR_EFFECTS)
    unsupported = [name for name, took_part in active.items() if took_part and name not in supported]
    if not unsupported:
        return None
    return (
        f"optimiser='{requested.optimiser}' supports only some components, and {', '.join(unsupported)} has been "
        "active; use another one, or make a new Reconstruction."
    )


def _complex(parts: Any) -> Tensor:
    return torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(parts)))


def _real(values: Tensor) -> Array:
    array: Array = torch.view_as_real(values.contiguous().resolve_conj()).numpy()
    return array
