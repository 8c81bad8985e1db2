"""Sums over overlapping probe windows, by which object and probe are updated without automatic differentiation.

For exit waves ψ_jm = P_jm O_j, with P_jm the probe's mode m at pattern j and O_j the object's window there, and
corrections χ_jm of these waves, the sums

    object:  Σ_jm P_jm* χ_jm  and  Σ_jm |P_jm|²      probe:  Σ_j S_j⁻¹[O_j* χ_jm]  and  Σ_j |O_j|²

are numerator and denominator of the updates of object and probe. S_j is the subpixel shift of position j. In this
additive form waves that fit already cause no change, whatever the denominator.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ptynb.distributed.group import Group
from ptynb.physics.components.component import Batch
from ptynb.physics.model import Model
from ptynb.physics.operations import set_intensity_, shift_spectra, sum_object_power
from ptynb.physics.patches import add_windows
from ptynb.physics.torch_steps import intensity_of, shift_ramps


def object_sums(model: Model, window_origins: Tensor, probes: Tensor, waves: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_jm P_jm* χ_jm (complex) and Σ_jm |P_jm|², both (y, x) of the object, over this engine's patterns.

    window_origins: (pattern, yx). probes, waves: (pattern, mode, y, x), complex.
    """
    field = model.object.values.detach()[0, 0]
    numerator, denominator = torch.zeros_like(field), torch.zeros_like(field.real)
    if len(window_origins):
        add_windows(numerator, window_origins, (probes.conj() * waves).sum(1))
        add_windows(denominator, window_origins, intensity_of(probes))
    return numerator, denominator


def probe_sums(model: Model, subpixel_shifts: Tensor, windows: Tensor, waves: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_j S_j⁻¹[O_j* χ_jm], complex (mode, y, x), and Σ_j |O_j|², (y, x), over this engine's patterns.

    subpixel_shifts: (pattern, yx) [pixels]. windows: (pattern, y, x). waves: (pattern, mode, y, x).
    """
    if not len(subpixel_shifts):
        return waves.new_zeros(waves.shape[1:]), windows.real.new_zeros(windows.shape[1:])
    ramps = shift_ramps(subpixel_shifts, model.window)
    spectra = torch.fft.fft2(windows.conj()[:, None] * waves).mul_(ramps.conj()[:, None]).sum(0)
    return torch.fft.ifft2(spectra), windows.abs().square().sum(0)


@torch.no_grad()
def illumination_sums(model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return Σ_jm |P_jm|², (y, x) of the object, and Σ_j |O_j|² of the patterns of each probe, (probe, y, x).

    Over these patterns; the second is the mean of all states and slices.
    """
    object, origins, probes, shifts, *_ = model.illumination(batch)
    height, width = model.window
    spectra = shift_spectra(torch.fft.fft2(probes), shifts, 1 / (height * width))
    illumination = probes.real.new_empty(object.shape[-2:])
    set_intensity_(illumination, torch.fft.ifft2(spectra, norm="forward"), origins, None)
    of_pattern, powers, planes = model.probe.of_pattern, list[Tensor](), object.flatten(0, 1)
    for number in range(model.probe.count):
        own = None if of_pattern is None else (of_pattern[batch.patterns] == number).to(illumination.dtype)
        sums = [sum_object_power(plane[None], origins, own, height, width) for plane in planes]
        powers.append(sum(sums[1:], sums[0]) / len(planes))
    return illumination, torch.stack(powers)


def over_engines(group: Group, *tensors: Tensor) -> list[Tensor]:
    """Return real and complex tensors, each summed over all engines, in one message of real numbers."""
    if group.world == 1:
        return [*tensors]
    # Complex ones first: a complex view begins at an even number.
    order = sorted(range(len(tensors)), key=lambda index: not tensors[index].is_complex())
    views = [torch.view_as_real(tensors[index]) if tensors[index].is_complex() else tensors[index] for index in order]
    message = group.sum(torch.cat([view.reshape(-1) for view in views]))
    summed = [*tensors]
    for index, view, part in zip(order, views, message.split([view.numel() for view in views]), strict=True):
        own = part.view(view.shape)
        summed[index] = torch.view_as_complex(own) if tensors[index].is_complex() else own
    return summed
