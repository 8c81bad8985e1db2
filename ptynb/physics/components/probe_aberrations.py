"""Aberrations of the lens that forms the probe, refined as a few coefficients."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ptynb.data.optics.aberrations import aberration_phase, aberrations_up_to
from ptynb.data.optics.pupil import frequencies
from ptynb.exceptions import InvalidValueError
from ptynb.physics.components.builtin import Probe
from ptynb.physics.components.component import Batch, ModelComponent

BESIDE = 3
"""Functions of the basis that are no aberrations: a constant, and the tilts that shift the probe along y and x."""
INDEPENDENT = 1e-6
"""Least part of an aberration that is not a combination of those of lower order, over the probe's spectrum."""


@final
class Aberrations(ModelComponent):
    """Changes of the probe by aberrations up to an order: P → F⁻¹[exp(-iχ) F[P]], χ of `data.optics.aberrations`.

    Parameter `step` (term): the change in one update, which `update_done` applies to the pixels of the probe and sets
    to 0 again. So the probe is always the whole one, with its pixels fixed (learning rate 0) that of a lens, and every
    other operation on the probe needs to know nothing of aberrations.

    The unit of a step is a phase of 1 rad (root mean square over the power spectrum of the probe), and terms are
    orthogonal there to each other, to a constant and to shifts of the probe: of a term of higher order that part is
    moved which lower ones do not describe, as in Zernike's polynomials. Otherwise, defocus and spherical aberration
    would move against each other.

    Buffers: `mixture` (function, term), coefficients [m, rad/rad, rad] of the basis in each term; `total` (term) [m].
    """

    name = "aberrations"

    def __init__(self, probe: Probe, basis: NDArray[np.float64], order: int) -> None:
        """basis: of `aberration_basis`, for this order."""
        super().__init__()
        parts = probe.parts
        self._probe = (probe,)  # in a tuple: its parameters are not those of this component
        self.order = order
        mixture = orthonormal_terms(torch.view_as_complex(parts.detach()).cpu().numpy(), basis)
        # A plain attribute: it follows from the scan.
        self._basis = torch.from_numpy(basis).to(parts)
        self.step = nn.Parameter(parts.new_zeros(mixture.shape[1]))
        self.register_buffer("mixture", torch.from_numpy(mixture).to(parts))
        self.register_buffer("total", torch.zeros_like(self.step.data))
        self.mixture: Tensor
        self.total: Tensor

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """Apply the step, which is 0 but for its gradient."""
        return self._changed(probes) if self.step.requires_grad else probes

    @torch.no_grad()
    def update_done(self) -> None:
        """Apply the step to the probe, and add it to the total."""
        probe = self._probe[0]
        probe.set(self._changed(probe.values))
        self.total += self.mixture[BESIDE:] @ self.step
        self.step.zero_()

    def _changed(self, probes: Tensor) -> Tensor:
        phase = torch.einsum("f,fyx->yx", self.mixture @ self.step, self._basis)
        return torch.fft.ifft2(torch.fft.fft2(probes) * torch.polar(torch.ones_like(phase), -phase))

    def arrays(self) -> dict[str, Tensor]:
        """Return how each aberration has changed since the start, by name: C_n0 (), or C_nma and C_nmb (2) [m]."""
        names = aberrations_up_to(self.order)
        numbers = self.total.double().split([1 if name.endswith("0") else 2 for name in names])
        return {name: own.squeeze(0) if len(own) == 1 else own for name, own in zip(names, numbers, strict=True)}


def aberration_basis(
    window: tuple[int, int], pixel: tuple[float, float], wavelength: float, order: int
) -> NDArray[np.float64]:
    """Return the basis (function, y, x), in FFT order: 1, the angles y and x [rad], and χ [rad] of aberrations of 1 m.

    Those that are not round have two terms: at the azimuth 0, and where the cosine becomes a sine.
    """
    y, x = np.broadcast_arrays(*(wavelength * along for along in frequencies(window, pixel)))
    basis = [np.ones_like(y), y, x]
    for name in aberrations_up_to(order):
        fold = int(name[2])
        azimuths = (0.0, np.pi / 2 / fold) if fold else (0.0,)
        basis += [aberration_phase(y, x, wavelength, {name: (1.0, azimuth)}) for azimuth in azimuths]
    return np.stack(basis)


def orthonormal_terms(probe: NDArray[np.complexfloating], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coefficients (function, term) of terms that are orthonormal over the spectrum of a probe (mode, y, x).

    Raises InvalidValueError if the spectrum has too few pixels for them.
    """
    power = (np.abs(np.fft.fft2(probe.astype(np.complex128))) ** 2).sum(0)
    weighted = np.sqrt(power / power.sum()).reshape(-1, 1) * basis.reshape(len(basis), -1).T
    sizes = np.linalg.norm(weighted, axis=0)
    triangle = np.linalg.qr(weighted / np.where(sizes > 0, sizes, 1), mode="r")
    if (np.abs(np.diag(triangle)) < INDEPENDENT).any():
        raise InvalidValueError(
            "The initial probe passes too few pixels of the detector to distinguish its aberrations; use a lower "
            "aberrations.order, or 0.",
            code="probe.too-few-pixels",
            fields=("aberrations.order",),
        )
    triangle *= np.sign(np.diag(triangle))[:, None]  # Q R = (Q S) (S R): terms have the sign of their aberration
    inverse: NDArray[np.float64] = np.linalg.inv(triangle) / sizes[:, None]
    return inverse[:, BESIDE:]
