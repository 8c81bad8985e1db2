"""Convert a state, and settings, to patterns of another size: coarse to fine, or back.

In the far field a window of n' instead of n detector pixels has object pixels of n / n' times the size. The object is
resampled, the far fields of the probe are cut or padded with 0, so that their counts are conserved, and positions are
scaled, with the shifts that were refined. What parameters are relative to (`Units`) is that of a run that begins with
the new window: counts outside the old one belong to the power of the probe. Optimisers begin anew: the gradients of all
parameters have another scale.

Lengths and frequencies in settings are those of whole patterns (`settings_in_window`). Strengths (learning rates of
object, probe and background, weights of regularizers, steps of denoising) are relative, and stay as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel

from ptynb.data.scan import ObjectFrame, Scan
from ptynb.engine.reconfigure import arrays_of
from ptynb.io.checkpoint_file import Array, ReconstructionState
from ptynb.physics.components.builtin import Affine, Background
from ptynb.physics.model import Model
from ptynb.physics.model_builder import model_window, object_frame
from ptynb.preparation.field_resampling import cosine_series, cut_spectrum, middle_start
from ptynb.settings import BY_EXIT_WAVES, Settings, constraints

Scans = tuple[Scan, Scan]
Window = tuple[int, int]
Chosen = TypeVar("Chosen", bound=BaseModel)


@dataclass(frozen=True)
class Units:
    """What parameters of a model are relative to, and depends on the window of the patterns.

    probe: rms amplitude. power: initial Σ |P|². mean_count: of a pixel. radius: of the scan [object pixels]. tilt: the
    unit (yx) [rad], None for one slice.
    """

    probe: float
    power: float
    mean_count: float
    radius: float
    tilt: Array | None

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return those of a model."""
        affine, background = model.components["affine"], model.components["background"]
        assert isinstance(affine, Affine)
        assert isinstance(background, Background)
        tilt = None if model.slab is None else model.slab.tilt.unit.cpu().numpy()
        return cls(model.probe.unit, model.probe.power, background.mean_count, affine.radius, tilt)


def settings_in_window(settings: Settings, whole: Window, window: Window) -> Settings:
    """Return settings that are meant for whole patterns as they are for patterns cropped to a window.

    Lengths [object pixels] become shorter, and fractions of the detector or of the Nyquist frequency larger. The
    margin of the object stays: it is only room. Not validated: a frequency may be above all that there are.
    """
    if window == whole:
        return settings
    ratios = window[0] / whole[0], window[1] / whole[1]
    length, side = max(ratios), min(window) / min(whole)
    lengths = {"positions": ["max_shift", "search_radius"], "affine": ["learning_rate"]}
    lengths["probe_offset"] = ["learning_rate"]
    if settings.optimiser not in BY_EXIT_WAVES:  # of these it is the factor of a step of least squares
        lengths["positions"].append("learning_rate")
    if settings.tilt.parametrization == "shift":
        lengths["tilt"] = ["learning_rate"]
    parts = {name: _scaled(settings.part(name), dict.fromkeys(fields, length)) for name, fields in lengths.items()}
    factors: dict[type[constraints.Constraint], dict[str, float]] = {
        constraints.GaussianBlur: {"sigma": length},
        constraints.SmoothTilts: {"sigma": length},
        constraints.MissingWedge: {"slope": length},
        constraints.RemoveGridArtifacts: {"period_y": ratios[0], "period_x": ratios[1]},
        constraints.LowPass: {"cutoff": 1 / length, "edge": 1 / length},
        constraints.ProbeAperture: {"radius": 1 / side, "edge": 1 / side},
    }
    imposed = tuple(_scaled(one, factors.get(type(one), {})) for one in settings.constraints)
    return settings.model_copy(update={**parts, "constraints": imposed})


def _scaled(chosen: Chosen, factors: Mapping[str, float]) -> Chosen:
    return chosen.model_copy(update={name: factor * getattr(chosen, name) for name, factor in factors.items()})


def resampled_state(
    state: ReconstructionState, scans: Scans, settings: Settings, units: tuple[Units, Units]
) -> ReconstructionState:
    """Return the state for other windows of the same patterns.

    scans, units: with the present and the new window. settings: with which both models are created.
    """
    ratios, (old, new) = _ratios(scans), units
    windows = model_window(scans[0], settings), model_window(scans[1], settings)
    arrays = arrays_of(state)

    def resampled_probe(parts: Array) -> Array:
        field = cut_spectrum(_complex(parts), middle_start(*windows), windows[1]) * (old.probe / new.probe)
        return _real(field, parts.dtype)

    arrays["probe"]["parts"] = resampled_probe(arrays["probe"]["parts"])
    if "variations" in arrays:
        arrays["variations"]["ways"] = resampled_probe(arrays["variations"]["ways"])
    frames = object_frame(scans[0], settings), object_frame(scans[1], settings)
    starts = np.array(frames[0].origin), np.array(frames[1].origin) - _offset(scans)
    for name, values in arrays["object"].items():
        if name == "parts":
            arrays["object"][name] = _real(resampled_object(_complex(values), frames, starts, ratios), values.dtype)
        else:
            arrays["object"][name] = resampled_object(values, frames, starts, ratios).astype(values.dtype)
    for component, name in (("positions", "moves"), ("offset", "shift")):
        values = arrays[component][name]
        arrays[component][name] = (values * np.array(ratios)).astype(values.dtype)
    affine, scale = arrays["affine"]["map"], np.array(ratios)
    affine = affine / old.radius * scale[:, None] / scale[None, :] * new.radius
    arrays["affine"]["map"] = affine.astype(arrays["affine"]["map"].dtype)
    if old.tilt is not None and new.tilt is not None:
        angles = arrays["tilt"]["angles"]
        arrays["tilt"]["angles"] = (angles * (old.tilt / new.tilt)).astype(angles.dtype)
    background = arrays["background"]["background"]
    unit_of_intensity = old.mean_count / new.mean_count if state.active["background"] else 1.0
    factor = math.sqrt(unit_of_intensity) if settings.background.parametrization == "amplitude" else unit_of_intensity
    arrays["background"]["background"] = (_windowed(background, scans[1].pattern_shape) * factor).astype(
        background.dtype
    )
    model = {f"{name}.{key}": one for name, values in arrays.items() for key, one in values.items()}
    return dataclasses.replace(
        state,
        model=model,
        scale=np.asarray(new.probe, dtype=state.scale.dtype),
        power=new.power,
        algorithm={},
        numbers={},
    )


def resampled_object(
    field: NDArray[Any],
    frames: tuple[ObjectFrame, ObjectFrame],
    starts: tuple[Array, Array],
    ratios: tuple[float, float],
) -> NDArray[Any]:
    """Return an object (…, y, x) on the grid of another frame, `ratios` (y, x) times as fine.

    starts: distance (y, x) of the first pixel of each frame from a point that both have in common [own pixels]. Each
    axis is a cosine series, without the frequencies that the new grid does not have; beyond the present frame the
    object continues as a mirror image.
    """
    _, new = frames
    for axis, ratio in enumerate(ratios):
        places = (np.arange(new.shape[axis]) + starts[1][axis]) / ratio - starts[0][axis]
        field = cosine_series(field, axis - 2, places, ratio)
    return field


def _ratios(scans: Scans) -> tuple[float, float]:
    (y, x), (new_y, new_x) = (scan.pattern_shape for scan in scans)
    return new_y / y, new_x / x


def _offset(scans: Scans) -> Array:
    """Return d (y, x) of the map u' = ratio * u + d between the pixels in which both scans have their positions."""
    centres = [scan.positions.mean(0) + np.array(scan.pattern_shape) // 2 for scan in scans]
    offset: Array = centres[1] - np.array(_ratios(scans)) * centres[0]
    return offset


def _windowed(values: Array, window: tuple[int, int]) -> Array:
    """Return a window of an image (y, x) in FFT order; pixels outside it have the value of the nearest one."""
    centred = np.fft.fftshift(values)
    starts = middle_start((values.shape[0], values.shape[1]), window)
    rows, columns = (
        np.clip(np.arange(side) + start, 0, whole - 1)
        for side, start, whole in zip(window, starts, values.shape, strict=True)
    )
    return np.fft.ifftshift(centred[rows][:, columns])


def _complex(parts: Array) -> Array:
    return torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(parts))).numpy()


def _real(field: Array, kind: np.dtype[Any]) -> Array:
    return np.stack([field.real, field.imag], -1).astype(kind)
