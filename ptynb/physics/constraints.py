"""Constraints: functions on tensors, and their application to a model for each kind of constraint in the settings.

All are deterministic and use arrays that are equal on all engines, so the results are equal, too. The moments of an
optimiser are not adjusted: after a constraint that moves or mixes parameters (orthogonal modes, centring) a few updates
have slightly wrong directions.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import singledispatch
from typing import Literal

import scipy
import torch
from torch import Tensor

from ptynb import plugins
from ptynb.exceptions import InvalidTypeError
from ptynb.physics.components.builtin import ObjectPart, Positions, Tilt
from ptynb.physics.components.component import ModelComponent, copied_to
from ptynb.physics.model import Model
from ptynb.physics.torch_steps import product_of_slices
from ptynb.settings import constraints as settings


class CustomConstraint(ABC):
    """Base class of user-defined constraints, which are applied to the model after updates.

    They are called on all engines, without gradients, and have to be deterministic and equal on all engines.

    Attributes
    ----------
    after : {"epoch", "update"}
        When the constraint is applied.
    reach : int or None
        Distance of the pixels of the object on which one depends afterwards: 0 if each pixel is changed by itself, or
        only other parameters are. None: it may depend on all. With an object in tiles it has to be 0 or 1:
        `model.object` is the engine's tile then, while positions are those in the whole object.
    """

    after: Literal["epoch", "update"] = "epoch"
    reach: int | None = None

    def due(self, epoch: int) -> bool:
        """Return whether the constraint is applied in an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, 1 for the first.

        Returns
        -------
        bool
            True, unless overridden.
        """
        return True

    @abstractmethod
    def impose(self, model: Model) -> None:
        """Change the parameters of the model in place: `model.object.set(...)`, `model.probe.set(...)`.

        Parameters
        ----------
        model : Model
            The model, with its object, probe and components.
        """


Extension = ModelComponent | CustomConstraint
"""Extensions that users can add to a reconstruction."""

# Functions on tensors


def orthogonal_modes(probe: Tensor) -> Tensor:
    """Return orthogonal modes (mode, y, x), strongest first; Σ_m P_m(r) P_m*(r') and all patterns are unchanged.

    The singular value decomposition U S V of the modes gives S V. Each has the phase of the most similar input mode.
    Thibault and Menzel, Nature 494, 68 (2013).
    """
    flat = probe.flatten(1)
    _, vectors = torch.linalg.eigh(flat @ flat.conj().T)
    rotated = vectors.flip(1).conj().T @ flat
    overlaps = rotated @ flat.conj().T
    largest = overlaps.gather(1, overlaps.abs().argmax(1, keepdim=True))
    return (rotated * torch.polar(torch.ones_like(largest.abs()), -largest.angle())).reshape(probe.shape)


def disc(window: tuple[int, int], radius: float, edge: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return 1 inside a disc about index n // 2 and 0 outside, (y, x), with a cosine edge.

    radius, edge: fractions of the shorter side of the window.
    """
    y, x = (torch.arange(side, device=device, dtype=dtype) - side // 2 for side in window)
    distance = torch.hypot(y[:, None], x[None, :]) / min(window)
    if edge == 0:
        return (distance <= radius).to(dtype)
    return (1 + torch.cos(torch.pi * ((distance - radius) / edge + 0.5).clamp(0, 1))) / 2


def filtered(field: Tensor, transfer: Tensor) -> Tensor:
    """Return fields (…, y, x) whose spectra are multiplied by `transfer` (y, x), in FFT order."""
    return torch.fft.ifft2(torch.fft.fft2(field) * transfer)


def radii(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Return the radial spatial frequency (y, x) [cycles per pixel], in FFT order."""
    y, x = (torch.fft.fftfreq(side, device=like.device, dtype=like.real.dtype) for side in shape[-2:])
    return torch.hypot(y[:, None], x[None, :])


def gaussian_along(field: Tensor, sigma: float, axis: int) -> Tensor:
    """Apply a Gaussian filter along one axis, repeating the last values beyond the ends. sigma: in samples."""
    moved = field.movedim(axis, -1)
    matrix = _gaussian_matrix(field.shape[axis], sigma, field.real.dtype, field.device)
    return (moved @ matrix.T.to(moved.dtype)).movedim(-1, axis)


@functools.lru_cache(maxsize=3)
def _gaussian_matrix(side: int, sigma: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the matrix of a Gaussian filter (sample, sample), cached since it is the same after each update.

    It is made on the host: on a GPU the order of additions at its ends, where places repeat, would differ from engine
    to engine.
    """
    index = torch.arange(side, dtype=dtype)
    reach = math.ceil(6 * sigma)
    offsets = torch.arange(-reach, reach + 1, dtype=dtype)
    weights = torch.exp(-((offsets / sigma) ** 2) / 2)
    weights = weights / weights.sum()
    taken = (index[:, None] + offsets[None, :]).clamp(0, side - 1).long()
    matrix = torch.zeros((side, side), dtype=dtype)
    matrix.scatter_add_(1, taken, weights.expand(side, -1).contiguous())
    return copied_to(matrix, device)


def total_variation_step(field: Tensor, amount: float, iterations: int = settings.TV_STEPS) -> Tensor:
    """Return argmin_u ½ Σ|u - f|² + amount Σ|∇u| of fields (…, y, x), by projected gradient steps of the dual problem.

    Chambolle, J. Math. Imaging Vis. 20, 89 (2004), with step 1/8; real and imaginary part share one gradient norm.
    """
    dual_y, dual_x = torch.zeros_like(field), torch.zeros_like(field)
    for _ in range(iterations):
        down, right = _gradient(_divergence(dual_y, dual_x) - field / amount)
        norm = 1 + (down.abs().square() + right.abs().square()).sqrt() / 8
        dual_y, dual_x = (dual_y + down / 8) / norm, (dual_x + right / 8) / norm
    return field - amount * _divergence(dual_y, dual_x)


def _gradient(field: Tensor) -> tuple[Tensor, Tensor]:
    down, right = torch.zeros_like(field), torch.zeros_like(field)
    down[..., :-1, :] = field[..., 1:, :] - field[..., :-1, :]
    right[..., :, :-1] = field[..., :, 1:] - field[..., :, :-1]
    return down, right


def _divergence(y: Tensor, x: Tensor) -> Tensor:
    """Return the divergence, the negative adjoint of the gradient."""
    result = torch.zeros_like(y)
    result[..., :-1, :] += y[..., :-1, :]
    result[..., 1:, :] -= y[..., :-1, :]
    result[..., :, :-1] += x[..., :, :-1]
    result[..., :, 1:] -= x[..., :, :-1]
    return result


def shrunk(values: Tensor, amount: float) -> Tensor:
    """Return the soft thresholding by `amount`, the proximal step of the l1 norm."""
    size = values.abs()
    return values * ((size - amount).clamp(min=0) / size.clamp(min=1e-30))


def neighbours_mean(field: Tensor) -> Tensor:
    """Return the mean of the four neighbours of each pixel (…, y, x); beyond the edges the pixel itself is used."""
    padded = torch.cat([field[..., :1, :], field, field[..., -1:, :]], dim=-2)
    total = padded[..., :-2, :] + padded[..., 2:, :]
    padded = torch.cat([field[..., :, :1], field, field[..., :, -1:]], dim=-1)
    return (total + padded[..., :, :-2] + padded[..., :, 2:]) / 4


def largest_coefficients(field: Tensor, kept: float) -> Tensor:
    """Return fields (…, y, x) with only the largest cosine coefficients, a fraction `kept` over all fields together."""
    values = field.cpu().numpy()
    spectrum = scipy.fft.dctn(values.real, axes=(-2, -1), norm="ortho") + 1j * scipy.fft.dctn(
        values.imag, axes=(-2, -1), norm="ortho"
    )
    coefficients = torch.from_numpy(spectrum)
    number = max(1, math.ceil(kept * coefficients.numel()))
    least = coefficients.abs().flatten().topk(number).values[-1]
    coefficients[coefficients.abs() < least] = 0
    sparse = coefficients.numpy()
    back = scipy.fft.idctn(sparse.real, axes=(-2, -1), norm="ortho") + 1j * scipy.fft.idctn(
        sparse.imag, axes=(-2, -1), norm="ortho"
    )
    return torch.from_numpy(back).to(field)


def rolled(values: Tensor, shift: Tensor, axis: int) -> Tensor:
    """Return `values.roll` along an axis by a whole number (), of any type, that only the device knows."""
    places = torch.arange(values.shape[axis], device=values.device) - shift.to(torch.int64)
    return values.index_select(axis, places.remainder(values.shape[axis]))


def ramp_of(field: Tensor, weight: Tensor, part: ObjectPart) -> Tensor:
    """Return the phase ramp (yx) [rad/pixel] of a field (y, x): its mean phase step, weighted by `weight` (y, x).

    part: the pixels of the field that are this engine's own; a step belongs to the second of its pixels.
    """
    down, across = torch.zeros_like(field), torch.zeros_like(field)
    down[1:] = field[1:] * field[:-1].conj() * weight[1:]
    across[:, 1:] = field[:, 1:] * field[:, :-1].conj() * weight[:, 1:]
    steps = part.total(torch.view_as_real(torch.stack([part.of(down).sum(), part.of(across).sum()])).contiguous())
    return torch.view_as_complex(steps).angle()


def plane_wave(shape: tuple[int, ...], slope: Tensor, part: ObjectPart | None = None) -> Tensor:
    """Return exp(i slope·r) (y, x), r relative to the middle pixel n // 2; part: where the array is in the field."""
    origin, whole = ((0, 0), shape[-2:]) if part is None else (part.origin, part.shape)
    y, x = (
        torch.arange(first, first + side, device=slope.device, dtype=slope.dtype) - length // 2
        for first, side, length in zip(origin, shape[-2:], whole, strict=True)
    )
    phase = slope[0] * y[:, None] + slope[1] * x[None, :]
    return torch.polar(torch.ones_like(phase), phase)


# Application of each kind of constraint


@singledispatch
def impose(constraint: settings.Constraint, model: Model) -> None:
    """Apply a constraint to the parameters of the model, in place, without gradients."""
    raise InvalidTypeError(
        f"{type(constraint).__name__} has no implementation; expected a constraint of pt.constraints.",
        code="argument.invalid-type",
    )


@impose.register
def _(constraint: settings.ConstraintPlugin, model: Model) -> None:
    with plugins.guarded(plugins.used("constraints", constraint.kind)):
        constraint.impose(model)


@impose.register
@torch.no_grad()
def _(constraint: settings.OrthogonalModes, model: Model) -> None:
    probes = model.probe.values.chunk(model.probe.count)
    model.probe.set(torch.cat([orthogonal_modes(probe) for probe in probes]))


@impose.register
@torch.no_grad()
def _(constraint: settings.ProbeSupport, model: Model) -> None:
    probe = model.probe.values
    mask = disc(model.window, constraint.radius, constraint.edge, probe.device, probe.real.dtype)
    model.probe.set(probe * mask)


@impose.register
@torch.no_grad()
def _(constraint: settings.ProbeAperture, model: Model) -> None:
    probe = model.probe.values
    mask = disc(model.window, constraint.radius, constraint.edge, probe.device, probe.real.dtype)
    model.probe.set(filtered(probe, torch.fft.ifftshift(mask)))


@impose.register
@torch.no_grad()
def _(constraint: settings.FixedProbePower, model: Model) -> None:
    probe = model.probe.values
    model.probe.set(probe * (model.probe.power / probe.abs().square().sum()).sqrt())


@impose.register
@torch.no_grad()
def _(constraint: settings.CentredProbe, model: Model) -> None:
    """Shift object and probe by whole pixels: a fractional shift of the object would wrap around its edges."""
    probe, object = model.probe.values, model.object.values
    light = probe.abs().square().sum(0).double()
    centre = list[Tensor]()
    for axis, side in enumerate(light.shape):
        along = torch.arange(side, device=light.device, dtype=light.dtype) - side // 2
        centre.append((light.sum(1 - axis) * along).sum() / light.sum())
    if light.device.type != "cpu":  # the shifts stay on the device: to know them, the host would wait
        for parameter in (model.probe.parts, *model.object.parameters()):
            axis = parameter.ndim - (3 if parameter is model.probe.parts or not model.object.polar else 2)
            parameter.copy_(rolled(rolled(parameter, -centre[0].round(), axis), -centre[1].round(), axis + 1))
        return
    shifts = [-round(float(one)) for one in centre]
    if any(shifts):
        model.probe.set(probe.roll(tuple(shifts), (-2, -1)))
        model.object.set(object.roll(tuple(shifts), (-2, -1)))


@impose.register
@torch.no_grad()
def _(constraint: settings.GaussianBlur, model: Model) -> None:
    object = gaussian_along(model.object.values, constraint.sigma, -2)
    model.object.set(gaussian_along(object, constraint.sigma, -1))


@impose.register
@torch.no_grad()
def _(constraint: settings.DepthBlur, model: Model) -> None:
    model.object.set(gaussian_along(model.object.values, constraint.sigma, 1))


@impose.register
@torch.no_grad()
def _(constraint: settings.LowPass, model: Model) -> None:
    object = model.object.values
    radius, edge = 2 * radii(object.shape, object), constraint.edge
    if edge > 0:
        transfer = (1 + torch.cos(torch.pi * ((radius - constraint.cutoff) / edge + 0.5).clamp(0, 1))) / 2
    else:
        transfer = (radius <= constraint.cutoff).to(radius)
    model.object.set(filtered(object, transfer))


@impose.register
@torch.no_grad()
def _(constraint: settings.MissingWedge, model: Model) -> None:
    object = model.object.values
    depth = torch.fft.fftfreq(object.shape[1], device=object.device, dtype=object.real.dtype).abs()
    allowed = depth[:, None, None] <= constraint.slope * radii(object.shape, object)
    allowed[0] = True
    model.object.set(torch.fft.ifftn(torch.fft.fftn(object, dim=(1, 2, 3)) * allowed, dim=(1, 2, 3)))


@impose.register
@torch.no_grad()
def _(constraint: settings.DCTThreshold, model: Model) -> None:
    """Apply it to the difference from vacuum."""
    model.object.set(1 + largest_coefficients(model.object.values - 1, constraint.keep_fraction))


@impose.register
@torch.no_grad()
def _(constraint: settings.PositivePhase, model: Model) -> None:
    object = model.object.values
    phase = object.angle()
    new_phase = phase - constraint.strength * phase.clamp(max=0)
    model.object.set(torch.polar(object.abs(), new_phase))


@impose.register
@torch.no_grad()
def _(constraint: settings.AmplitudeLimits, model: Model) -> None:
    object = model.object.values
    model.object.set(torch.polar(object.abs().clamp(constraint.low, constraint.high), object.angle()))


@impose.register
@torch.no_grad()
def _(constraint: settings.AmplitudePhaseCoupling, model: Model) -> None:
    object = model.object.values
    amplitude, phase = object.abs(), object.angle()
    coupled = torch.exp(-constraint.ratio * phase)
    model.object.set(torch.polar(amplitude + constraint.strength * (coupled - amplitude), phase))


@impose.register
@torch.no_grad()
def _(constraint: settings.Denoise, model: Model) -> None:
    object = model.object.values
    match constraint.norm:
        case "tv":
            denoised = total_variation_step(object, constraint.amount)
        case "l1":
            denoised = 1 + shrunk(object - 1, constraint.amount)
        case "l2":
            denoised = 1 + (object - 1) / (1 + constraint.amount)
    model.object.set(denoised)


@impose.register
@torch.no_grad()
def _(constraint: settings.Smooth, model: Model) -> None:
    object = model.object.values
    model.object.set(object + constraint.strength * (neighbours_mean(object) - object))


@impose.register
@torch.no_grad()
def _(constraint: settings.ObjectSupport, model: Model) -> None:
    object = model.object.values
    rims = [round(constraint.margin * side) for side in model.window]
    model.object.set(torch.where(_inside_windows(model, rims), object, torch.ones_like(object)))


@impose.register
@torch.no_grad()
def _(constraint: settings.RecenterDepth, model: Model) -> None:
    """Centre Σ|O - 1|² in depth; slices shifted in at an end are vacuum."""
    object = model.object.values
    contrast = model.part.total((model.part.of(object) - 1).abs().square().sum((0, 2, 3)).double())
    index = torch.arange(len(contrast), device=contrast.device, dtype=contrast.dtype)
    distance = (len(contrast) - 1) / 2 - (contrast * index).sum() / contrast.sum()
    if object.device.type != "cpu":  # the shift stays on the device: to know it, the host would wait
        distance = distance.nan_to_num().round()  # without contrast it is not a number
        source = index - distance
        inside = ((source >= 0) & (source < len(contrast)))[:, None, None]
        model.object.set(torch.where(inside, rolled(object, distance, 1), 1))
        return
    if not contrast.any():
        return
    if shift := round(float(distance)):
        moved = object.roll(shift, 1)
        empty = slice(None, shift) if shift > 0 else slice(shift, None)
        moved[:, empty] = 1
        model.object.set(moved)


@impose.register
@torch.no_grad()
def _(constraint: settings.RemovePhaseRamp, model: Model) -> None:
    """O(r) = O'(r) exp(ik·r) is equivalent at r_j to O' with P exp(ik·r), up to a constant phase of each pattern.

    From each slice of a thick object an equal share of the ramp of their product is removed. The inclined beam crosses
    the slices at another angle; except for this, patterns are unchanged.
    """
    object, probe = model.object.values, model.probe.values
    product = product_of_slices(object[0])
    lit = _inside_windows(model, [side // 4 for side in model.window])
    slope = ramp_of(product, lit.to(product.real), model.part)
    model.object.set(object * plane_wave(object.shape, -slope / object.shape[1], model.part))
    model.probe.set(probe * plane_wave(probe.shape, slope))


@impose.register
@torch.no_grad()
def _(constraint: settings.RemoveGridArtifacts, model: Model) -> None:
    object = model.object.values
    height, width = object.shape[-2:]
    y = torch.fft.fftfreq(height, 1 / height, device=object.device, dtype=object.real.dtype)
    x = torch.fft.fftfreq(width, 1 / width, device=object.device, dtype=object.real.dtype)

    def from_harmonic(index: Tensor, side: int, period: float) -> tuple[Tensor, Tensor]:
        order = torch.round(index * period / side)
        return index - order * side / period, order

    (off_y, order_y), (off_x, order_x) = (
        from_harmonic(y, height, constraint.period_y),
        from_harmonic(x, width, constraint.period_x),
    )
    near = torch.hypot(off_y[:, None], off_x[None, :]) <= constraint.width
    centre = (order_y[:, None] == 0) & (order_x[None, :] == 0)
    model.object.set(filtered(object, (~near | centre).to(object.real.dtype)))


@impose.register
@torch.no_grad()
def _(constraint: settings.ZeroMeanPositions, model: Model) -> None:
    positions = model.components["positions"]
    assert isinstance(positions, Positions)
    if model.admitted is None:
        positions.moves.sub_(positions.moves.mean(0))
    else:
        own = positions.moves[model.admitted]
        positions.moves[model.admitted] = own - own.mean(0)


@impose.register
@torch.no_grad()
def _(constraint: settings.SmoothTilts, model: Model) -> None:
    tilt = model.components.get("tilt")
    if isinstance(tilt, Tilt) and tilt.each:
        batch = model.admitted_patterns()
        positions, angles = model.positions_of(batch).to(tilt.angles), tilt.angles[batch.patterns]
        smooth = torch.empty_like(angles)
        for start in range(0, len(positions), 1024):  # all pairs at once would exceed the memory for long scans
            part = slice(start, start + 1024)
            weights = torch.exp(-((torch.cdist(positions[part], positions) / constraint.sigma) ** 2) / 2)
            smooth[part] = weights @ angles / weights.sum(1, keepdim=True)
        tilt.angles[batch.patterns] = smooth


def _inside_windows(model: Model, rims: Sequence[int]) -> Tensor:
    """Return True in pixels of the object (y, x) inside some probe window reduced by `rims` (y, x) [pixels]."""
    shape = model.object.values.shape[-2:]
    window = model.window[0] - 2 * rims[0], model.window[1] - 2 * rims[1]
    origins = model.window_origins(model.admitted_patterns())
    firsts = [one + rim for one, rim in zip(origins.unbind(1), rims, strict=True)]
    return covered((shape[0], shape[1]), torch.stack(firsts, 1), window)


def covered(shape: tuple[int, int], window_origins: Tensor, window: tuple[int, int]) -> Tensor:
    """Return True in pixels of an array (y, x) of this shape that lie in some window at `window_origins` (window, yx).

    Each window is ±1 at its four corners. The sums along both axes count the windows at each pixel, in integers, so
    that the order is without effect; the windows themselves would take 12 bytes a pixel on a GPU. Windows may reach
    beyond the array, as those of other engines do beyond a tile.
    """
    width, corner = shape[1] + 1, window_origins.unbind(1)
    count = torch.zeros((shape[0] + 1) * width, dtype=torch.int32, device=window_origins.device)
    tops, lefts = (first.clamp(0, side) for first, side in zip(corner, shape, strict=True))
    bottoms, rights = (
        (first + length).clamp(0, side) for first, length, side in zip(corner, window, shape, strict=True)
    )
    for rows, columns, sign in ((tops, lefts, 1), (tops, rights, -1), (bottoms, lefts, -1), (bottoms, rights, 1)):
        corners = rows * width + columns
        count.index_add_(0, corners, torch.full_like(corners, sign, dtype=torch.int32))
    return count.view(-1, width).cumsum(0, dtype=torch.int32).cumsum(1, dtype=torch.int32)[:-1, :-1] > 0
