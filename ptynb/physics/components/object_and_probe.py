"""Object and probe as parameters, and the slab between a thick object's slices."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from ptynb.physics.components.component import ModelComponent


@final
class Object(ModelComponent):
    """The object (state, slice, y, x), complex: as real and imaginary part, or as amplitude and phase.

    Parameters: `parts` (state, slice, y, x, 2), or `amplitude` and `phase` (state, slice, y, x).
    """

    name = "object"

    def __init__(self, values: Tensor, polar: bool = False) -> None:
        super().__init__()
        self.polar = polar
        self.states = len(values)
        if polar:
            self.amplitude = nn.Parameter(values.abs())
            self.phase = nn.Parameter(values.angle())
        else:
            self.parts = nn.Parameter(torch.view_as_real(values).clone())

    @property
    def values(self) -> Tensor:
        """The object (state, slice, y, x), complex, differentiable in the parameters."""
        return torch.polar(self.amplitude, self.phase) if self.polar else torch.view_as_complex(self.parts)

    def covered(self, state: int, area: tuple[slice, slice]) -> Tensor:
        """A part (slice, y, x) of the object in one state; costs no more than that part."""
        here = (state, slice(None), *area)
        if self.polar:
            return torch.polar(self.amplitude[here], self.phase[here])
        return torch.view_as_complex(self.parts[here])

    @torch.no_grad()
    def set(self, values: Tensor) -> None:
        """Takes over other values (state, slice, y, x)."""
        if self.polar:
            # The phase turns by what it takes to get there, so that one beyond π stays there.
            turned = (values * torch.polar(torch.ones_like(self.phase), -self.phase)).angle()
            self.phase.add_(turned)
            self.amplitude.copy_(values.abs())
        else:
            self.parts.copy_(torch.view_as_real(values))

    def arrays(self) -> dict[str, Tensor]:
        """Nothing: the result has its own place for it."""
        return {}


@final
class Probe(ModelComponent):
    """The probe's modes (mode, y, x), complex; parameter `parts` (mode, y, x, 2).

    It is kept in units of its root-mean-square amplitude at the start, `scale`, so that one step size means the same
    for any number of counts.
    """

    name = "probe"

    def __init__(self, values: Tensor) -> None:
        super().__init__()
        # A plain attribute, not a buffer: it never changes, and DistributedDataParallel would send it every time.
        self.scale = values.abs().square().sum(0).mean().sqrt()
        self.power = float(values.abs().square().sum())
        """Counts behind a pattern at the start, Σ |P|²."""
        self.parts = nn.Parameter(torch.view_as_real(values / self.scale).clone())

    @property
    def values(self) -> Tensor:
        """The probe (mode, y, x) in square roots of counts, differentiable in the parameter."""
        return torch.view_as_complex(self.parts) * self.scale

    @torch.no_grad()
    def set(self, values: Tensor) -> None:
        """Takes over other values (mode, y, x)."""
        self.parts.copy_(torch.view_as_real(values / self.scale))

    def arrays(self) -> dict[str, Tensor]:
        """Nothing: the result has its own place for it."""
        return {}


@final
class Slices(ModelComponent):
    """The distance between slices; parameter `stretch` () [its value at the start]."""

    name = "slices"

    def __init__(self, thickness: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.start = thickness
        self.stretch = nn.Parameter(torch.ones((), dtype=dtype))

    @property
    def thickness(self) -> Tensor:
        """Distance between two slices [m], float64."""
        return self.stretch.double() * self.start

    def update_done(self) -> None:
        """Slices stay in order."""
        self.stretch.clamp_(min=1e-3)

    def arrays(self) -> dict[str, Tensor]:
        """`thickness` () [m]."""
        return {"thickness": self.thickness.detach()}


@final
class Tilt(ModelComponent):
    """The beam's tilt to the slices' normal; parameter `angles` (1 or pattern, yx) [mrad]."""

    name = "tilt"

    def __init__(self, angles: Tensor, each: bool) -> None:
        """angles: (1 or pattern, yx) [rad]. each: whether every pattern has its own."""
        super().__init__()
        self.each = each
        if each:
            self.rows = frozenset({"angles"})
        self.angles = nn.Parameter(1e3 * angles)

    def of(self, patterns: Tensor) -> Tensor:
        """Tilts [rad] of these patterns, (pattern, yx), or (yx) where all have one."""
        return 1e-3 * (self.angles[patterns] if self.each else self.angles[0])

    def update_done(self) -> None:
        """No beam lies flat."""
        self.angles.clamp_(-1500, 1500)

    def arrays(self) -> dict[str, Tensor]:
        """`angles` (1 or pattern, yx) [rad]."""
        return {"angles": 1e-3 * self.angles.detach()}
