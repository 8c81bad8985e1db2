"""Construction of the initial model of a scan: object and probe, components, propagation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb import plugins
from ptynb.data.arrivals import Acquisition
from ptynb.data.geometry import Geometry, NearField
from ptynb.data.scan import ObjectFrame, Scan, check_scan
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import InvalidTypeError, InvalidValueError, ScanError
from ptynb.physics.components.builtin import (
    Affine,
    Background,
    Object,
    ObjectPart,
    Offset,
    Pixels,
    PointSpread,
    Positions,
    Probe,
    Saturation,
    Slices,
    Tilt,
    Variations,
    Weights,
)
from ptynb.physics.components.component import STEPS, ModelComponent, overrides
from ptynb.physics.components.descan import Descan, ThinObjectDescan
from ptynb.physics.components.fly_scan import FlyScan, NearFieldFlyScan, motion_between
from ptynb.physics.components.probe_aberrations import Aberrations, aberration_basis
from ptynb.physics.losses import Loss
from ptynb.physics.model import FarFieldPropagation, Model, Propagation, Slab, TiltedFarField
from ptynb.physics.model import NearFieldPropagation as NearFieldPropagation
from ptynb.physics.propagation import angular_spectrum_kernel
from ptynb.physics.streamed_object import StreamedObject
from ptynb.physics.tilted_detector import far_field_resampling
from ptynb.plugins import Plugin
from ptynb.preparation.combination import smallest_gap
from ptynb.settings import BY_EXIT_WAVES, WHOLE_PASSES, Settings

LIVE_ORDERS = ("spread", "interleaved")
"""Settings of `batch_sampling` with which a scan can be reconstructed while it is measured, in interleaved strata."""
STATE_PHASE = 0.05
"""Standard deviation of the initial phases of further object modes [rad]; equal modes would remain equal."""

NOTHING_NEW = 1e-6
"""Relative power of a mode's orthogonal part at or below which it is attributed to rounding."""


def check_together(scan: Scan, settings: Settings) -> None:
    """Raise ScanError if this scan cannot be reconstructed with these settings, InvalidTypeError for other types."""
    check_scan(scan)
    if not isinstance(settings, Settings):
        raise InvalidTypeError(
            f"settings is of type {type(settings).__name__}; expected ptynb.Settings.", code="argument.invalid-type"
        )
    geometry, window = scan.geometry, model_window(scan, settings)
    if scan.acquisition is not None:
        listening = scan.acquisition
        check_live(settings, isinstance(listening, Acquisition) and not listening.positions_planned)
    if settings.slices.count > 1 and geometry is None:
        raise ScanError(
            f"slices.count is {settings.slices.count} and the scan has no geometry; propagation between slices "
            "requires a wavelength and a pixel size: give the scan geometry=Geometry(...).",
            code="scan.no-geometry",
        )
    if settings.aberrations.order > 0 and geometry is None:
        raise ScanError(
            f"aberrations.order is {settings.aberrations.order} and the scan has no geometry; the angles of a lens "
            "require a wavelength and a pixel size: give the scan geometry=Geometry(...).",
            code="scan.no-geometry",
        )
    if isinstance(geometry, TiltedGeometry) and (settings.slices.count > 1 or settings.detector.oversampling > 1):
        raise ScanError(
            f"slices.count is {settings.slices.count} and detector.oversampling is {settings.detector.oversampling}; a "
            "tilted geometry supports neither: leave slices.count and detector.oversampling at 1.",
            code="scan.tilted-geometry",
        )
    if isinstance(geometry, TiltedGeometry) and settings.optimiser in BY_EXIT_WAVES:
        raise ScanError(
            f"optimiser is '{settings.optimiser}', which requires an invertible propagation; with a tilted geometry it "
            "is not: use 'adam'.",
            code="scan.tilted-geometry",
        )
    if settings.descan.start != "none" and not isinstance(geometry, Geometry | None):
        near = isinstance(geometry, NearField)
        raise ScanError(
            f"descan.start is '{settings.descan.start}' and the scan has a {'near-field' if near else 'tilted'} "
            "geometry, in which a shift of a pattern is not a phase ramp on its exit wave; set descan.start to 'none'.",
            code="scan.near-field" if near else "scan.tilted-geometry",
        )
    shortest = min(span.stop - span.start for span in scan.spans)
    if settings.fly_scan.steps > 1 and scan.motion is None and shortest == 1:
        raise ScanError(
            f"fly_scan.steps is {settings.fly_scan.steps} and the scan has one position, from which no motion follows; "
            "give the scan motion=... (pattern, yx) [object pixels], or set fly_scan.steps to 1.",
            code="argument.missing",
        )
    if settings.fly_scan.steps > 1:
        farthest = np.abs(_motion(scan, settings)).max(0)
        if (farthest > np.array(scan.pattern_shape) / 2).any():
            raise ScanError(
                f"The sample moves by up to {farthest[0]:.4g} x {farthest[1]:.4g} object pixels during an exposure; "
                "expected at most half a probe window. Give the scan motion=... (pattern, yx), where consecutive "
                "positions are not neighbours, or set fly_scan.steps to 1.",
                code="scan.implausible-metadata",
            )
    if isinstance(geometry, NearField) and settings.detector.oversampling > 1:
        raise ScanError(
            f"detector.oversampling is {settings.detector.oversampling}; in the near field a finer grid would change "
            "the pixel size of the object: leave it at 1.",
            code="scan.near-field",
        )
    if scan.object is not None and scan.object.ndim == 3 and len(scan.object) not in (1, settings.slices.count):
        raise ScanError(
            f"The initial object has {len(scan.object)} slices and slices.count is {settings.slices.count}; "
            "make them equal, or give an initial object of one slice.",
            code="scan.invalid-guess",
        )
    _check_combination(scan, settings, window)
    if window[0] > 8192 or window[1] > 8192:
        raise ScanError(
            f"detector.oversampling is {settings.detector.oversampling}, so the probe has {window[0]} x {window[1]} "
            "pixels; expected at most 8192: use a lower oversampling.",
            code="settings.unsupported-combination",
        )


def check_live(settings: Settings, extent_only: bool = False) -> None:
    """Raise ScanError for settings with which a scan cannot be reconstructed while it is measured."""
    if settings.fly_scan.steps > 1 and extent_only:
        raise ScanError(
            f"fly_scan.steps is {settings.fly_scan.steps}, and the plan of the scan has an extent only, from which the "
            "motion during an exposure does not follow; give Plan(positions=...), or set fly_scan.steps to 1 until the "
            "scan is complete.",
            code="scan.live",
        )
    refused = {
        "object.layout": (settings.object.layout != "whole", settings.object.layout, "'whole'"),
        "optimiser": (settings.optimiser in WHOLE_PASSES, settings.optimiser, "one that updates by batches: 'adam'"),
        "batch_sampling": (settings.batch_sampling not in LIVE_ORDERS, settings.batch_sampling, "'spread'"),
        "descan.start": (settings.descan.start == "plane", "plane", "'zero' or 'none'"),
    }
    for name, (is_refused, value, expected) in refused.items():
        if is_refused:
            raise ScanError(
                f"{name} is '{value}', which requires all patterns, and the scan is being measured; expected "
                f"{expected}, or a scan that is complete.",
                code="scan.live",
            )


def _check_combination(scan: Scan, settings: Settings, window: tuple[int, int]) -> None:
    combination = scan.combination
    if combination is None:
        return
    needed = smallest_gap(settings, scan.pattern_shape)
    if combination.share == "probe" and combination.gap < needed:
        raise ScanError(
            f"The objects of the scans are {combination.gap} pixels apart, and with these settings windows may move "
            f"by {settings.margin} pixels and have {window[0]} x {window[1]} pixels; expected a distance of {needed}: "
            f"preparation.combine(scans, share='probe', gap={needed}).",
            code="scan.combined",
        )


def model_window(scan: Scan, settings: Settings) -> tuple[int, int]:
    """Return the size (y, x) of the model's probe window [pixels]: that of a pattern, times the oversampling."""
    k = settings.detector.oversampling
    return k * scan.pattern_shape[0], k * scan.pattern_shape[1]


def corner_shift(scan: Scan, settings: Settings) -> tuple[int, int]:
    """Return the offset (y, x) of a pattern-sized window in the model's window with the same centre."""
    window = model_window(scan, settings)
    return window[0] // 2 - scan.pattern_shape[0] // 2, window[1] // 2 - scan.pattern_shape[1] // 2


def object_frame(scan: Scan, settings: Settings) -> ObjectFrame:
    """Return the frame of the object array, for windows of the model's size."""
    return scan.object_frame(settings.margin, model_window(scan, settings), corner_shift(scan, settings))


def window_positions(scan: Scan, settings: Settings) -> NDArray[np.float64]:
    """Return the initial positions of the model's windows (pattern, yx) [pixels of the object array]."""
    return scan.positions - np.array(object_frame(scan, settings).origin) - np.array(corner_shift(scan, settings))


def initial_arrays(
    scan: Scan,
    settings: Settings,
    mean_pattern: Tensor,
    dtype: torch.dtype,
    found: Mapping[int, NDArray[np.complexfloating[Any, Any]]] = MappingProxyType({}),
    object_guess: NDArray[np.complexfloating[Any, Any]] | None = None,
    area: tuple[slice, slice] = (slice(None), slice(None)),
) -> tuple[Tensor, Tensor]:
    """Return the initial object (state, slice, y, x) and probe (mode, y, x) of this complex type, on the CPU.

    area: slices (y, x) of the object's array that are returned.

    mean_pattern: (y, x) [counts], in the pixel order of `Batch`; of scans with a probe each also (scan, y, x). found:
    probes (mode, y, x) of those of `scan.probe_scans` that have none; without one it is guessed from the mean pattern.
    object_guess: (y, x), of a scan without one, found together with a probe that has the mean counts; None: flat.
    """
    guess, whole = scan.object if object_guess is None else object_guess, object_frame(scan, settings).shape
    if guess is not None:
        array = torch.tensor(guess[(..., *area)], dtype=dtype)  # a copy: it may be mapped, and read-only
        slices = array if array.ndim == 3 and len(array) == settings.slices.count else None
        slices = split_in_depth(array.reshape(array.shape[-2:]), settings.slices.count) if slices is None else slices
    else:
        sides = [len(range(side)[part]) for part, side in zip(area, whole, strict=True)]
        slices = flat_object((settings.slices.count, *sides), dtype)
    object = object_states(slices, settings.object.modes, settings.seed, area[0].start or 0, area[1], whole[1])
    means = mean_pattern.expand(len(scan.probe_scans), *scan.pattern_shape)
    probes = [
        _initial_probe(scan, found.get(number, one.probe if scan.probe is None else scan.probe), settings, mean, dtype)
        for number, (one, mean) in enumerate(zip(scan.probe_scans, means, strict=True))
    ]
    return object, torch.cat(probes)


def _initial_probe(
    scan: Scan,
    given: NDArray[np.complexfloating[Any, Any]] | None,
    settings: Settings,
    mean: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return the probe (mode, y, x) from the given one, or from a mean pattern (y, x)."""
    if given is not None:
        guess = torch.from_numpy(given).to(dtype)
    elif scan.is_far_field:
        guess = probe_from_mean_pattern(mean, dtype)
    else:
        guess = mean.clamp(min=0).sqrt().to(dtype)[None]
    guess = centred_in(guess, model_window(scan, settings))
    if scan.object is None or given is None:
        guess = scale_to_counts(guess, float(mean.sum()))
    return add_modes(guess, settings.probe.modes)


def make_model(
    scan: Scan,
    settings: Settings,
    object: Tensor,
    probe: Tensor,
    loss: Loss,
    *,
    mean_count: float,
    mask: Tensor | None = None,
    descan: Tensor | None = None,
    extensions: Sequence[ModelComponent] = (),
    part: ObjectPart | None = None,
    streamed: StreamedObject | None = None,
) -> Model:
    """Return the model of this scan.

    object, probe: (state, slice, y, x) and (mode, y, x), complex, on the model's device. mean_count: mean count of a
    pixel. mask: (y, x) 0 or 1, on the device. descan: initial shifts of the patterns (pattern, yx) [detector pixels],
    0 if missing. extensions: custom components, which follow the built-in ones in each step. part: this engine's own
    pixels, if `object` is a tile. streamed: the whole object, if `object` has some of its rows only.
    """
    dtype, device = probe.real.dtype, probe.device
    positions = torch.from_numpy(window_positions(scan, settings))
    of_pattern = None if scan.probe_of_pattern is None else torch.from_numpy(scan.probe_of_pattern).to(device)
    start = _Start(scan, settings, positions.to(device), probe, Probe(probe, of_pattern), mean_count, descan)
    built_in = {name: make(start).to(device) for name, (used, make) in BUILT_IN.items() if used(settings)}
    for name, component in built_in.items():
        # Shifts from the patterns are right before they are refined.
        component.active = not [*component.parameters()] or (name == "descan" and descan is not None)
    motion = built_in.pop("fly_scan", None)  # last: components of the user change the probe, and not that of each step
    propagation = make_propagation(scan, device, probe.dtype)
    if isinstance(propagation, TiltedFarField):
        covered = propagation.points.covered.to(device, dtype)
        mask = covered if mask is None else mask * covered
    return Model(
        Object(object, settings.object.parametrization == "amplitude_phase") if streamed is None else streamed.present,
        start.probe_part,
        [*built_in.values(), *(one.to(device) for one in extensions), *([] if motion is None else [motion])],
        positions=positions,
        propagation=propagation,
        loss=loss,
        mask=mask,
        slab=_make_slab(scan, settings, dtype, device),
        part=part,
        streamed=streamed,
    )


def components_of_plugins(scan: Scan, settings: Settings) -> list[ModelComponent]:
    """Return the components of plug-ins that are in the settings, whose steps name the plug-in where they fail.

    Raises PluginError.
    """
    components = []
    for chosen in settings.components:
        plugin = plugins.used("components", chosen.kind)
        with plugins.guarded(plugin):
            component = chosen.component(scan)
        if not isinstance(component, ModelComponent):
            raise plugins.unfit(plugin, f"made a {type(component).__name__}; expected a ModelComponent")
        component.name, component.rate = chosen.kind, chosen.learning_rate
        for step in (*STEPS, "update_done"):
            if overrides(component, step):
                setattr(component, step, partial(_guarded_step, plugin, getattr(component, step)))
        components.append(component)
    return components


def _guarded_step(plugin: Plugin, step: Callable[..., Any], *arguments: Any) -> Any:
    with plugins.guarded(plugin):
        return step(*arguments)


@dataclass(frozen=True)
class _Start:
    """What components are made of. positions: of the windows (pattern, yx). Others as in `make_model`."""

    scan: Scan
    settings: Settings
    positions: Tensor
    probe: Tensor
    probe_part: Probe
    mean_count: float
    descan: Tensor | None

    @property
    def dtype(self) -> torch.dtype:
        return self.probe.real.dtype

    @property
    def device(self) -> torch.device:
        return self.probe.device


def further_variations(probe: Tensor, count: int) -> Tensor:
    """Return modes (mode, y, x) of probe variations, orthogonal to the first mode of a probe, rms amplitude 1."""
    variations = add_modes(probe[:1], count + 1)[1:]
    return variations / variations.abs().square().mean((1, 2), keepdim=True).sqrt()


def _make_variations(start: _Start) -> Variations:
    variations = further_variations(start.probe.cpu(), start.settings.opr.modes)
    return Variations(len(start.scan), variations.to(start.device), start.probe_part.scale)


def _make_descan(start: _Start) -> ModelComponent:
    scan, settings = start.scan, start.settings
    shifts = torch.zeros((len(scan), 2)) if start.descan is None else start.descan
    kind = Descan if settings.slices.count > 1 else ThinObjectDescan
    return kind(shifts.to(start.device, start.dtype), model_window(scan, settings), scan.pattern_shape)


def _make_background(start: _Start) -> Background:
    scan, as_amplitude = start.scan, start.settings.background.parametrization == "amplitude"
    return Background(scan.pattern_shape, start.mean_count, start.dtype, scan.is_far_field, as_amplitude)


def _make_fly_scan(start: _Start) -> ModelComponent:
    scan, settings = start.scan, start.settings
    kind = FlyScan if scan.is_far_field else NearFieldFlyScan
    return kind(torch.from_numpy(_motion(scan, settings)).to(start.device, start.dtype), settings.fly_scan.steps)


BUILT_IN: Mapping[str, tuple[Callable[[Settings], bool], Callable[[_Start], ModelComponent]]] = {
    "affine": (
        lambda settings: True,
        lambda start: Affine(
            start.positions, start.dtype, start.scan.spans if start.probe_part.of_pattern is None else (slice(None),)
        ),
    ),
    "positions": (
        lambda settings: True,
        lambda start: Positions(len(start.scan), start.settings.positions.max_shift, start.dtype),
    ),
    "offset": (lambda settings: True, lambda start: Offset(start.dtype, start.probe_part.of_pattern)),
    "weights": (lambda settings: True, lambda start: Weights(len(start.scan), start.dtype)),
    # Before the variations, which are not of the pixels that it changes.
    "aberrations": (
        lambda settings: settings.aberrations.order > 0,
        lambda start: Aberrations(
            start.probe_part, lens_basis(start.scan, start.settings), start.settings.aberrations.order
        ),
    ),
    "variations": (lambda settings: settings.opr.modes > 0, _make_variations),
    "descan": (lambda settings: settings.descan.start != "none", _make_descan),
    "pixels": (
        lambda settings: settings.detector.oversampling > 1,
        lambda start: Pixels(start.settings.detector.oversampling, fourier=start.scan.is_far_field),
    ),
    "point spread": (
        lambda settings: settings.detector.psf_sigma > 0,
        lambda start: PointSpread(
            start.scan.pattern_shape, start.settings.detector.psf_sigma, start.dtype, start.device
        ),
    ),
    "background": (lambda settings: True, _make_background),
    "saturation": (
        lambda settings: settings.detector.saturation is not None,
        lambda start: Saturation(cast("float", start.settings.detector.saturation)),
    ),
    "fly_scan": (lambda settings: settings.fly_scan.steps > 1, _make_fly_scan),
}
"""Built-in components beside object, probe, slices and tilt, in the order of each step: when one is part, and it."""
DETECTOR_EFFECTS = ("pixels", "point spread", "saturation")
"""Those that act on the intensity and have no parameters."""


def detector_effects(settings: Settings) -> list[str]:
    """Return the names of the detector effects that are part of the model with these settings."""
    return [name for name in DETECTOR_EFFECTS if BUILT_IN[name][0](settings)]


def initial_parameters(name: str, scan: Scan, settings: Settings, probe: Tensor) -> dict[str, NDArray[Any]]:
    """Return the arrays with which a built-in component begins in a run with this probe (mode, y, x), by name."""
    positions = torch.from_numpy(window_positions(scan, settings))
    start = _Start(scan, settings, positions, probe, Probe(probe), mean_count=1.0, descan=None)
    return {key: values.numpy() for key, values in BUILT_IN[name][1](start).state_dict().items()}


def lens_basis(scan: Scan, settings: Settings) -> NDArray[np.float64]:
    """Return the basis (function, y, x) of the aberrations that are refined, in the model's window."""
    assert scan.geometry is not None, "see `check_together`"
    assert scan.pixel_size is not None
    window, wavelength = model_window(scan, settings), scan.geometry.wavelength
    return aberration_basis(window, scan.pixel_size, wavelength, settings.aberrations.order)


def make_propagation(scan: Scan, device: torch.device, dtype: torch.dtype) -> Propagation:
    """Return the propagation from the exit wave to the detector for the geometry of this scan."""
    geometry = scan.geometry
    if isinstance(geometry, NearField):
        kernel = angular_spectrum_kernel(
            scan.pattern_shape,
            geometry.object_pixel(scan.pattern_shape),
            geometry.wavelength,
            geometry.effective_distance,
        )
        return NearFieldPropagation(kernel.to(device, dtype))
    if isinstance(geometry, TiltedGeometry):
        return TiltedFarField(
            far_field_resampling(scan.pattern_shape, geometry.planes(scan.pattern_shape), dtype=dtype, device=device)
        )
    return FarFieldPropagation()


def _motion(scan: Scan, settings: Settings) -> NDArray[np.float64]:
    """Return the motion during the exposures (pattern, yx) [object pixels]."""
    if scan.motion is not None:
        return scan.motion
    fraction = settings.fly_scan.exposure_fraction
    return np.concatenate([motion_between(scan.positions[span], fraction) for span in scan.spans])


def _make_slab(scan: Scan, settings: Settings, dtype: torch.dtype, device: torch.device) -> Slab | None:
    if settings.slices.count == 1:
        return None
    geometry, thickness = scan.geometry, settings.slices.thickness
    assert geometry is not None, "checked by check_together"
    assert thickness is not None, "checked by the settings"
    angles = torch.tensor([[settings.tilt.y, settings.tilt.x]], dtype=dtype, device=device)
    if settings.tilt.per_position:
        angles = angles.repeat(len(scan), 1)
    tilt = Tilt(angles, settings.tilt.per_position, torch.from_numpy(tilt_unit(scan, settings)))
    slices = Slices(thickness, dtype).to(device)
    return Slab(slices, tilt, geometry.object_pixel(scan.pattern_shape), geometry.wavelength)


def tilt_unit(scan: Scan, settings: Settings) -> NDArray[np.float64]:
    """Return the unit (yx) of the tilt's parameter [rad], for several slices.

    It is 1 mrad, or the small angle that shifts the beam by one object pixel from the first to the last slice.
    """
    if settings.tilt.parametrization == "angle":
        return np.full(2, 1e-3)
    geometry, slices = scan.geometry, settings.slices
    assert geometry is not None, "checked by check_together"
    assert slices.thickness is not None, "checked by the settings"
    return np.array(geometry.object_pixel(scan.pattern_shape)) / (slices.thickness * (slices.count - 1))


def flat_object(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return an object (slice, y, x) of transmission 1."""
    return torch.ones(shape, dtype=dtype)


def split_in_depth(object: Tensor, slices: int) -> Tensor:
    """Split an object (y, x) into equal slices (slice, y, x) with this product; phases beyond ±π are not unwrapped."""
    root = torch.polar(object.abs() ** (1 / slices), object.angle() / slices)
    return root.expand(slices, *object.shape).clone() if slices > 1 else object[None]


def object_states(
    slices: Tensor, states: int, seed: int, top: int = 0, columns: slice = slice(None), width: int | None = None
) -> Tensor:
    """Return object modes (state, slice, y, x) from one (slice, y, x); all but the first get small random phases.

    top, columns: first row, and the columns, of the slices in an object of this width, whose rows have random numbers
    of their own: each tile of an object gets those of the whole.
    """
    if states == 1:
        return slices[None]
    phases = torch.zeros((states, *slices.shape), dtype=torch.float64)
    for state, number, row in np.ndindex(states, *slices.shape[:2]):
        if state:
            random = np.random.default_rng([seed, state, number, top + row])
            values = random.standard_normal(slices.shape[2] if width is None else width)[columns]
            phases[state, number, row] = STATE_PHASE * torch.from_numpy(values)
    return slices * torch.polar(torch.ones_like(phases), phases).to(slices.dtype)


def centred_in(probe: Tensor, window: tuple[int, int]) -> Tensor:
    """Pad the probe (mode, y, x) with zeros to a window of the same centre."""
    larger = probe.new_zeros((len(probe), *window))
    top, left = (outer // 2 - inner // 2 for outer, inner in zip(window, probe.shape[-2:], strict=True))
    larger[:, top : top + probe.shape[-2], left : left + probe.shape[-1]] = probe
    return larger


def probe_from_mean_pattern(mean_pattern: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the probe (1, y, x), centred, whose far field is the square root of the mean pattern (y, x) in FFT order.

    Its phase on the detector is flat: a focused probe.
    """
    amplitude = mean_pattern.clamp(min=0).sqrt().to(dtype)
    return torch.fft.fftshift(torch.fft.ifft2(amplitude, norm="ortho"), dim=(-2, -1))[None]


def scale_to_counts(probe: Tensor, counts: float) -> Tensor:
    """Scale the probe (mode, y, x) to Σ |P|² = counts: the sum of a pattern if the object is transparent."""
    power = probe.abs().square().sum()
    return probe * (counts / power).sqrt()


def add_modes(probe: Tensor, modes: int, fraction: float = 0.05) -> Tensor:
    """Extend the probe (mode, y, x) to `modes` modes, or drop surplus modes.

    A new mode is the first one times a product of Hermite polynomials of its width, orthogonalised to the previous
    modes, with `fraction` of the total power, which is preserved. Horizontal ones come first, since sources are mostly
    wider than high. Products that depend linearly on existing modes are skipped.

    Raises InvalidValueError if the probe is nonzero in too few pixels.
    """
    total = probe.abs().square().sum()
    given = probe[:modes]
    result = list(given)
    height, width = probe.shape[-2:]
    weight = probe[0].abs().square()
    weight = weight / weight.sum()
    y, x = (_standardised(side, weight.sum(1 - axis)) for axis, side in enumerate((height, width)))
    orders = ((k, n - k) for n in range(1, modes + 2) for k in range(n + 1))
    # The input modes need not be orthogonal; a vector orthogonal to this basis is orthogonal to all of them.
    basis = list(torch.linalg.qr(given.flatten(1).T)[0].T.reshape(given.shape))
    while len(result) < modes:
        order_y, order_x = next(orders, (None, None))
        if order_y is None or order_x is None:
            raise InvalidValueError(
                f"The initial probe is nonzero in too few pixels for {modes} independent modes; use fewer modes.",
                code="probe.too-few-pixels",
            )
        mode = probe[0] * (_hermite(order_y, y)[:, None] * _hermite(order_x, x)[None, :])
        whole = mode.abs().square().sum()
        for other in basis:
            mode = mode - other * torch.vdot(other.flatten(), mode.flatten())
        power = mode.abs().square().sum()
        if power <= NOTHING_NEW * whole:
            continue
        result.append(mode * (fraction * total / power).sqrt())
        basis.append(mode / power.sqrt())
    extended = torch.stack(result)
    kept = 1 - fraction * (len(result) - len(given))
    extended[: len(given)] *= math.sqrt(max(kept, fraction))
    return extended * (total / extended.abs().square().sum()).sqrt()


def _standardised(side: int, weight: Tensor) -> Tensor:
    """Return coordinates with mean 0 and variance 1 under `weight`."""
    coordinate = torch.arange(side, dtype=weight.dtype)
    mean = (coordinate * weight).sum()
    variance = ((coordinate - mean).square() * weight).sum()
    return (coordinate - mean) / variance.clamp(min=1e-12).sqrt()


def _hermite(order: int, x: Tensor) -> Tensor:
    """Return the probabilists' Hermite polynomial He_n(x), by the recurrence He_n = x He_{n-1} - (n - 1) He_{n-2}."""
    before, here = torch.zeros_like(x), torch.ones_like(x)
    for n in range(order):
        before, here = here, x * here - n * before
    return here
