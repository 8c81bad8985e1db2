"""From a scan and its settings to a model: where everything starts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.geometry import NearField
from ptynb.data.scan import ObjectFrame, Scan, check_scan
from ptynb.data.tilted_geometry import TiltedGeometry
from ptynb.exceptions import InvalidTypeError, ScanError
from ptynb.physics.components.component import ModelComponent
from ptynb.physics.components.object_and_probe import Object, Probe, Slices, Tilt
from ptynb.physics.components.positions_to_detector import (
    Affine,
    Background,
    Offset,
    Pixels,
    PointSpread,
    Positions,
    Saturation,
    Variations,
    Weights,
)
from ptynb.physics.initialization import (
    add_modes,
    centred_in,
    flat_object,
    object_states,
    probe_from_mean_pattern,
    scale_to_counts,
    split_in_depth,
)
from ptynb.physics.losses import Loss
from ptynb.physics.model import FarFieldPropagation, Model, Propagation, Slab, TiltedFarField
from ptynb.physics.model import NearFieldPropagation as NearFieldPropagation
from ptynb.physics.propagation import angular_spectrum_kernel
from ptynb.physics.tilted_detector import far_field_resampling
from ptynb.settings import THIN_ONLY, Settings


def check_together(scan: Scan, settings: Settings) -> None:
    """Raises ScanError, with one sentence, where this scan can't be reconstructed with these settings.

    Raises TypeError where one of them is something else.
    """
    check_scan(scan)
    if not isinstance(settings, Settings):
        raise InvalidTypeError(f"The settings are a {type(settings).__name__}; expected ptynb.Settings.")
    geometry, window = scan.geometry, model_window(scan, settings)
    if settings.slices.count > 1 and geometry is None:
        raise ScanError(
            f"slices.count is {settings.slices.count}, and the scan has no geometry: the waves between slices need a "
            "wavelength and a pixel size; give the scan geometry=Geometry(...)."
        )
    if isinstance(geometry, TiltedGeometry) and (settings.slices.count > 1 or settings.detector.oversampling > 1):
        raise ScanError(
            "With tilted planes the object is one thin slice seen by single detector samples; "
            "leave slices.count and detector.oversampling at 1."
        )
    if isinstance(geometry, TiltedGeometry) and settings.optimiser in THIN_ONLY:
        raise ScanError(
            f"The optimiser '{settings.optimiser}' needs the way back from detector to sample, which with tilted "
            "planes is not known in one step; use 'adam'."
        )
    if isinstance(geometry, NearField) and settings.detector.oversampling > 1:
        raise ScanError(
            f"detector.oversampling is {settings.detector.oversampling}, and in the near field a finer grid changes "
            "the object's pixel; leave it at 1."
        )
    if scan.object is not None and scan.object.ndim == 3 and len(scan.object) not in (1, settings.slices.count):
        raise ScanError(
            f"The object guess has {len(scan.object)} slices, and slices.count is {settings.slices.count}; "
            "make them equal, or give a guess of one slice."
        )
    if window[0] > 8192 or window[1] > 8192:
        raise ScanError(
            f"With detector.oversampling {settings.detector.oversampling} the probe has {window[0]} x {window[1]} "
            "pixels; expected at most 8192. Lower it."
        )


def model_window(scan: Scan, settings: Settings) -> tuple[int, int]:
    """Pixels (y, x) of the probe's window: the patterns', times the oversampling."""
    k = settings.detector.oversampling
    return k * scan.pattern_shape[0], k * scan.pattern_shape[1]


def corner_shift(scan: Scan, settings: Settings) -> tuple[int, int]:
    """How much earlier (y, x) the model's window begins than the patterns' one, so that both have one centre."""
    window = model_window(scan, settings)
    return window[0] // 2 - scan.pattern_shape[0] // 2, window[1] // 2 - scan.pattern_shape[1] // 2


def object_frame(scan: Scan, settings: Settings) -> ObjectFrame:
    """The array that holds the object, for windows of the model's size."""
    return scan.object_frame(settings.margin, model_window(scan, settings), corner_shift(scan, settings))


def window_places(scan: Scan, settings: Settings) -> NDArray[np.float64]:
    """Top-left corners of the model's windows (pattern, yx) [pixels of the object's array] at the start."""
    return scan.positions - np.array(object_frame(scan, settings).origin) - np.array(corner_shift(scan, settings))


def initial_arrays(scan: Scan, settings: Settings, mean_pattern: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Object (state, slice, y, x) and probe (mode, y, x) at the start, complex of this type, on the CPU.

    mean_pattern: (y, x) [counts], in the order of the detector's pixels inside.
    """
    if scan.object is not None:
        given = torch.from_numpy(scan.object).to(dtype)
        slices = given if given.ndim == 3 and len(given) == settings.slices.count else None
        slices = split_in_depth(given.reshape(given.shape[-2:]), settings.slices.count) if slices is None else slices
    else:
        slices = flat_object((settings.slices.count, *object_frame(scan, settings).shape), dtype)
    object = object_states(slices, settings.object.modes, settings.seed)
    if scan.probe is not None:
        guess = torch.from_numpy(scan.probe).to(dtype)
    elif scan.is_far_field:
        guess = probe_from_mean_pattern(mean_pattern, dtype)
    else:
        guess = mean_pattern.clamp(min=0).sqrt().to(dtype)[None]
    guess = centred_in(guess, model_window(scan, settings))
    if scan.object is None or scan.probe is None:
        guess = scale_to_counts(guess, float(mean_pattern.sum()))
    return object, add_modes(guess, settings.probe.modes)


def make_model(
    scan: Scan,
    settings: Settings,
    object: Tensor,
    probe: Tensor,
    loss: Loss,
    *,
    mean_count: float,
    mask: Tensor | None = None,
    extensions: Sequence[ModelComponent] = (),
) -> Model:
    """The model of this scan; object (state, slice, y, x) and probe (mode, y, x), complex, on the model's device.

    mean_count: of a pixel [counts]. mask: (y, x) 0 or 1, on the device. extensions: pieces of the user's, which come
    after ptynb's own in each step.
    """
    dtype, device, patterns = probe.real.dtype, probe.device, len(scan)
    places = torch.from_numpy(window_places(scan, settings))
    probe_part = Probe(probe)
    pieces: list[ModelComponent] = [
        Affine(places.to(device), dtype),
        Positions(patterns, settings.positions.max_shift, dtype),
        Offset(dtype),
        Weights(patterns, dtype),
    ]
    if settings.opr.modes:
        ways = add_modes(probe[:1].cpu(), settings.opr.modes + 1)[1:]
        ways = ways / ways.abs().square().mean((1, 2), keepdim=True).sqrt()
        pieces.append(Variations(patterns, ways.to(device), probe_part.scale))
    pieces += _detector_pieces(scan, settings, mean_count, dtype, device)
    for piece in pieces:
        piece.active = not [*piece.parameters()]
    propagation = make_propagation(scan, device, probe.dtype)
    if isinstance(propagation, TiltedFarField):
        seen = propagation.points.covered.to(device, dtype)
        mask = seen if mask is None else mask * seen
    return Model(
        Object(object, settings.object.parametrization == "amplitude_phase"),
        probe_part,
        [piece.to(device) for piece in (*pieces, *extensions)],
        places=places,
        propagation=propagation,
        loss=loss,
        mask=mask,
        slab=_make_slab(scan, settings, dtype, device),
    )


def make_propagation(scan: Scan, device: torch.device, dtype: torch.dtype) -> Propagation:
    """What carries the waves of this scan to the detector."""
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


def _detector_pieces(
    scan: Scan, settings: Settings, mean_count: float, dtype: torch.dtype, device: torch.device
) -> list[ModelComponent]:
    detector, found = settings.detector, list[ModelComponent]()
    if detector.oversampling > 1:
        found.append(Pixels(detector.oversampling, fourier=scan.is_far_field))
    if detector.psf_sigma > 0:
        found.append(PointSpread(scan.pattern_shape, detector.psf_sigma, dtype, device))
    found.append(Background(scan.pattern_shape, mean_count, dtype, scan.is_far_field))
    if detector.saturation is not None:
        found.append(Saturation(detector.saturation))
    return found


def _make_slab(scan: Scan, settings: Settings, dtype: torch.dtype, device: torch.device) -> Slab | None:
    if settings.slices.count == 1:
        return None
    geometry, thickness = scan.geometry, settings.slices.thickness
    assert geometry is not None, "checked by check_together"
    assert thickness is not None, "checked by the settings"
    angles = torch.tensor([[settings.tilt.y, settings.tilt.x]], dtype=dtype)
    if settings.tilt.per_position:
        angles = angles.repeat(len(scan), 1)
    slices, tilt = Slices(thickness, dtype).to(device), Tilt(angles, settings.tilt.per_position).to(device)
    return Slab(slices, tilt, geometry.object_pixel(scan.pattern_shape), geometry.wavelength)
