"""The built-in components: object, probe, thick objects, positions, probe variations (OPR), intensities, detector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, final

import torch
from torch import Tensor, nn

from ptynb.physics.components.component import Batch, ModelComponent

BACKGROUND_START = 0.1
"""Initial amplitude of a background [square root of the mean count of a pixel]; at 0 its gradient would be 0."""
BAND, DEVICE_BAND = 2**20, 2**24
"""Pixels that are averaged at a time: on a CPU what fits its cache, on a GPU few launches."""


@final
class Object(ModelComponent):
    """The object (state, slice, y, x), complex, parametrised by real and imaginary part or by amplitude and phase.

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
        """Object (state, slice, y, x), complex, differentiable with respect to the parameters."""
        return torch.polar(self.amplitude, self.phase) if self.polar else torch.view_as_complex(self.parts)

    def covered(self, state: int, area: tuple[slice, slice]) -> Tensor:
        """Return an area (slice, y, x) of one object mode, without computing the rest."""
        here = (state, slice(None), *area)
        if self.polar:
            return torch.polar(self.amplitude[here], self.phase[here])
        return torch.view_as_complex(self.parts[here])

    @torch.no_grad()
    def set(self, values: Tensor) -> None:
        """Set the values (state, slice, y, x)."""
        if self.polar:
            # Phases are changed by the wrapped difference, so that a phase beyond π stays beyond π.
            turned = (values * torch.polar(torch.ones_like(self.phase), -self.phase)).angle()
            self.phase.add_(turned)
            self.amplitude.copy_(values.abs())
        else:
            self.parts.copy_(torch.view_as_real(values))

    def arrays(self) -> dict[str, Tensor]:
        """Return an empty dict: the result stores the object separately."""
        return {}


class ObjectPart(NamedTuple):
    """The pixels of an object array that are an engine's own, of an object of which others have other tiles.

    What is summed or averaged over the object is summed over an engine's own pixels, and then over all engines.

    shape: (y, x) of the whole object. origin: its pixel (y, x) that is the first of the array. total: collective call
    that sums a tensor over all engines.
    """

    rows: slice
    columns: slice
    shape: tuple[int, int]
    origin: tuple[int, int] = (0, 0)
    total: Callable[[Tensor], Tensor] = lambda tensor: tensor

    @classmethod
    def whole(cls, values: Tensor) -> Self:
        """Return that of an engine that has the whole object (…, y, x)."""
        height, width = values.shape[-2:]
        return cls(slice(0, height), slice(0, width), (height, width))

    @property
    def is_whole(self) -> bool:
        """Whether the engine has the whole object."""
        return (self.rows.stop - self.rows.start, self.columns.stop - self.columns.start) == self.shape

    def of(self, values: Tensor) -> Tensor:
        """Return the own pixels of an array (…, y, x)."""
        return values[..., self.rows, self.columns]

    def within(self, area: tuple[slice, slice]) -> tuple[slice, slice]:
        """Return slices (y, x) of the array for those own pixels that are in an area of the whole object."""
        sides = []
        for own, wanted, first in zip((self.rows, self.columns), area, self.origin, strict=True):
            start = max(own.start, wanted.start - first)
            sides.append(slice(start, max(start, min(own.stop, wanted.stop - first))))
        return sides[0], sides[1]

    def mean(self, values: Tensor, less: int = 0) -> Tensor:
        """Return this engine's share of the mean over the whole object, whose sides have `less` values fewer."""
        number = values[..., 0, 0].numel() * (self.shape[0] - less) * (self.shape[1] - less)
        return self.of(values).sum() / number

    def reduced(self, seen: Callable[[tuple[slice, slice]], Tensor], area: tuple[slice, slice], block: int) -> Tensor:
        """Return means over blocks of `block` x `block` pixels of an area of the whole object (y, x), on all engines.

        seen: returns the complex values (y, x) of these rows and columns of the array. Blocks that are not whole are
        cut off, but a side of the area that is shorter than a block is one.
        """
        rows, columns = self.within(area)
        steps = [max(1, min(block, side.stop - side.start)) for side in area]
        height, width = ((side.stop - side.start) // step for side, step in zip(area, steps, strict=True))
        means = seen((slice(0, 0), slice(0, 0))).new_zeros(height, width)
        columns_seen = columns.stop - columns.start
        left = columns.start + self.origin[1] - area[1].start
        most = BAND if means.device.type == "cpu" else DEVICE_BAND
        band = -(-most // max(1, columns_seen * steps[0])) * steps[0]
        for start in range(rows.start, rows.stop if columns_seen else rows.start, band):
            top = start + self.origin[0] - area[0].start
            values = seen((slice(start, min(start + band, rows.stop)), columns))
            y, x = top // steps[0], left // steps[1]
            sums = _block_sums(values, steps, (top % steps[0], left % steps[1]))[: height - y, : width - x]
            means[y : y + sums.shape[0], x : x + sums.shape[1]] += sums
        means /= steps[0] * steps[1]
        return torch.view_as_complex(self.total(torch.view_as_real(means)))


def _block_sums(values: Tensor, steps: Sequence[int], first: Sequence[int]) -> Tensor:
    """Return sums over blocks of this size (y, x) of values (y, x), whose first pixel has this place in its block."""
    # Rows first, then columns, by slices: a sum over small axes takes five times as long.
    for axis, (step, start) in enumerate(zip(steps, first, strict=True)):
        if step == 1:
            continue
        shape = [*values.shape]
        shape[axis] = -(-(start + shape[axis]) // step)
        sums = values.new_zeros(shape)
        for place in range(min(step, values.shape[axis])):
            part = values[place::step] if axis == 0 else values[:, place::step]
            sums.narrow(axis, (start + place) // step, part.shape[axis]).add_(part)
        values = sums
    return values


@final
class Probe(ModelComponent):
    """The probe modes (mode, y, x), complex; parameter `parts` (mode, y, x, 2).

    The unit of `parts` is the initial root-mean-square amplitude, `scale`, so that step sizes do not depend on counts.
    Several scans of one object have a probe each: their modes follow each other along the first axis.
    """

    name = "probe"

    def __init__(self, values: Tensor, of_pattern: Tensor | None = None) -> None:
        """of_pattern: index (pattern,) of the probe that illuminates a pattern, if there are several."""
        super().__init__()
        self.of_pattern = of_pattern
        self.count = 1 if of_pattern is None else int(of_pattern.max()) + 1
        """Number of probes, each of len(values) / count modes."""
        # A plain attribute, not a buffer: it never changes, and DistributedDataParallel would send it every time.
        self.scale = (values.abs().square().sum(0).mean() / self.count).sqrt()
        self.unit = float(self.scale)
        """`scale` as a number of Python."""
        self.power = float(values.abs().square().sum())
        """Initial total power Σ |P|², the counts of a pattern without absorption."""
        self.parts = nn.Parameter(torch.view_as_real(values / self.scale).clone())

    @property
    def values(self) -> Tensor:
        """Probe (mode, y, x) [square roots of counts], differentiable with respect to the parameter."""
        return torch.view_as_complex(self.parts) * self.scale

    def illuminating(self, patterns: Tensor) -> Tensor:
        """Return the modes (1 or pattern, mode, y, x) that illuminate these patterns, given by their indices."""
        if self.of_pattern is None:
            return self.values[None]
        return torch.stack(self.values.chunk(self.count))[self.of_pattern[patterns]]

    @torch.no_grad()
    def set(self, values: Tensor) -> None:
        """Set the values (mode, y, x)."""
        self.parts.copy_(torch.view_as_real(values / self.scale))

    def set_scale(self, scale: Tensor) -> None:
        """Set the unit of the parameter, a scalar on any device; the parameter keeps its numbers."""
        self.scale.copy_(scale)
        self.unit = float(scale)

    def arrays(self) -> dict[str, Tensor]:
        """Return an empty dict: the result stores the probe separately."""
        return {}


@final
class Slices(ModelComponent):
    """The distance between slices; parameter `stretch` (), relative to the initial distance."""

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
        """Keep the distance positive."""
        self.stretch.clamp_(min=1e-3)

    def arrays(self) -> dict[str, Tensor]:
        """Return `thickness` () [m]."""
        return {"thickness": self.thickness.detach()}


@final
class Tilt(ModelComponent):
    """The tilt of the beam to the normal of the slices; parameter `angles` (1 or pattern, yx) [unit].

    What a tilt changes in the patterns is the shift of the slices against each other: for a shift of one object pixel
    from the first to the last slice, a beam needs 7 mrad through 4 nm of atoms, and 0.02 mrad through 4 mm at an X-ray
    microscope. So this shift is the unit (`model_builder.tilt_unit`).
    """

    name = "tilt"

    def __init__(self, angles: Tensor, each: bool, unit: Tensor) -> None:
        """angles: (1 or pattern, yx) [rad]. each: whether each pattern has its own tilt. unit: (yx) [rad]."""
        super().__init__()
        self.each = each
        if each:
            self.rows = frozenset({"angles"})
        self.unit = unit.to(angles)  # not a buffer, as that of the probe
        self.angles = nn.Parameter(angles / self.unit)

    def of(self, patterns: Tensor) -> Tensor:
        """Return the tilts [rad] of these patterns, (pattern, yx), or (yx) if all patterns have the same."""
        return self.unit * (self.angles[patterns] if self.each else self.angles[0])

    def update_done(self) -> None:
        """Limit tilts to 1.5 rad."""
        self.angles.clamp_(-1.5 / self.unit, 1.5 / self.unit)

    def arrays(self) -> dict[str, Tensor]:
        """Return `angles` (1 or pattern, yx) [rad]."""
        return {"angles": self.unit * self.angles.detach()}


@final
class Positions(ModelComponent):
    """Position shifts, at most `limit` along y and x; parameter `moves` (pattern, yx) [object pixels]."""

    name = "positions"
    rows = frozenset({"moves"})

    def __init__(self, patterns: int, limit: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.limit = limit
        self.moves = nn.Parameter(torch.zeros((patterns, 2), dtype=dtype))

    def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
        """Return r_j + m_j."""
        return positions + self.moves[batch.patterns]

    def update_done(self) -> None:
        """Clamp shifts to the limit."""
        self.moves.clamp_(-self.limit, self.limit)

    def arrays(self) -> dict[str, Tensor]:
        """Return an empty dict: the positions of the result include the shifts."""
        return {}


@final
class Affine(ModelComponent):
    """Linear transformation of all positions about their centre: r = c + (1 + A) (r₀ - c).

    Parameter `map` (yx, yx): A times the radius of the scan [object pixels], so that step sizes do not depend on it.
    """

    name = "affine"

    def __init__(self, positions: Tensor, dtype: torch.dtype, spans: Sequence[slice] = (slice(None),)) -> None:
        """positions: initial positions (pattern, yx), float64. dtype: of the parameter. spans: with a centre each."""
        super().__init__()
        self.centres = torch.cat([positions[span].mean(0).expand(len(positions[span]), 2) for span in spans])
        self.radius = max(1.0, float((positions - self.centres).norm(dim=1).max()))
        self.map = nn.Parameter(torch.zeros((2, 2), dtype=dtype))

    def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
        """Return r + A (r - c)."""
        own = positions - self.centres[batch.patterns]
        return positions + own @ self.map.T.to(positions.dtype) / self.radius

    def arrays(self) -> dict[str, Tensor]:
        """Return `matrix`, 1 + A, (yx, yx)."""
        return {"matrix": torch.eye(2, dtype=self.map.dtype) + self.map.detach().cpu() / self.radius}


@final
class Offset(ModelComponent):
    """A common shift of all positions, parameter `shift` (yx) [object pixels]; or one (scan, yx) for each probe."""

    name = "offset"

    def __init__(self, dtype: torch.dtype, of_pattern: Tensor | None = None) -> None:
        """of_pattern: index (pattern,) of the probe that illuminates a pattern, if there are several."""
        super().__init__()
        self.of_pattern = of_pattern
        shape = (2,) if of_pattern is None else (int(of_pattern.max()) + 1, 2)
        self.shift = nn.Parameter(torch.zeros(shape, dtype=dtype))

    def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
        """Return r_j + s."""
        return positions + (self.shift if self.of_pattern is None else self.shift[self.of_pattern[batch.patterns]])


@final
class Variations(ModelComponent):
    """Orthogonal probe relaxation (OPR): P_j0 = P_0 + Σ_r c_jr V_r, the first mode varies in a low-rank subspace.

    Odstrcil et al., Opt. Express 24, 8360 (2016). The rank is limited by factorising the varying part instead of
    truncating a singular value decomposition of all probes after every epoch; `arrays` returns that decomposition.

    Parameters: `ways`, the variations V (rank, y, x, 2) [unit of the probe], and `coefficients` c (pattern, rank, 2).
    """

    name = "variations"
    rows = frozenset({"coefficients"})

    def __init__(self, patterns: int, ways: Tensor, scale: Tensor) -> None:
        """ways: initial variations (rank, y, x), complex, in units of `scale`, the probe's rms amplitude."""
        super().__init__()
        self.scale = scale
        self.ways = nn.Parameter(torch.view_as_real(ways).clone())
        self.coefficients = nn.Parameter(torch.zeros((patterns, len(ways), 2), dtype=self.ways.dtype))

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """Add the variation of each pattern to the first mode."""
        own = torch.view_as_complex(self.coefficients[batch.patterns])
        varied = torch.einsum("pr,ryx->pyx", own, torch.view_as_complex(self.ways)) * self.scale
        others = probes[:, 1:].expand(len(varied), -1, -1, -1)
        return torch.cat([probes[:, :1] + varied[:, None], others], dim=1)

    def arrays(self) -> dict[str, Tensor]:
        """Return orthonormal `ways` (rank, y, x) and their `coefficients` (pattern, rank), strongest first.

        Each has the phase of the most similar of the parameter `ways`: a decomposition leaves it open, and those of a
        CPU and a GPU differ.
        """
        ways = (torch.view_as_complex(self.ways.detach()) * self.scale).flatten(1)
        inner, triangle = torch.linalg.qr(torch.view_as_complex(self.coefficients.detach()))
        left, strengths, right = torch.linalg.svd(triangle @ ways, full_matrices=False)
        overlaps = right @ ways.conj().T
        angles = overlaps.gather(1, overlaps.abs().argmax(1, keepdim=True)).angle()
        phases = torch.polar(torch.ones_like(angles), angles)
        return {
            "ways": (right * phases.conj()).reshape(-1, *self.ways.shape[1:3]),
            "coefficients": inner @ (left * strengths * phases[:, 0]),
        }


@final
class Weights(ModelComponent):
    """Relative intensity of each pattern; parameter `weights` (pattern,), mean 1."""

    name = "weights"
    rows = frozenset({"weights"})

    def __init__(self, patterns: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(patterns, dtype=dtype))

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Return w_j M_j."""
        return intensity * self.of(batch)[:, None, None]

    def of(self, batch: Batch) -> Tensor:
        """Return w_j (pattern,) of these patterns."""
        return self.weights[batch.patterns]

    def update_done(self) -> None:
        """Clamp to at least 0.001 and normalise the mean to 1: a common factor belongs to the probe.

        Patterns that are not there yet keep the weight 1.
        """
        self.weights.clamp_(min=1e-3)
        if self.admitted is None:
            self.weights.div_(self.weights.mean())
        else:
            own = self.weights[self.admitted]
            self.weights[self.admitted] = own / own.mean()


@final
class Background(ModelComponent):
    """An intensity common to all patterns; parameter `background` (y, x).

    It is an amplitude b [square root of the mean count of a pixel], B = b², or B itself [mean count], at least 0. A
    step of Adam changes a parameter by about the learning rate r, whatever the size of the gradient: B itself by r, so
    that a background below r is lost in the steps, but by 2 r √B with the amplitude, which reaches 0.3 in 0.5 / r
    updates.

    Object errors after 30 epochs of a far-field scan of 100 patterns in batches of 4, with a background of 0, 0.01 and
    0.1 of the mean count: 0.026, 0.059 and 0.132 without this component; 0.024, 0.035 and 0.084 with B at the rate
    0.01; 0.021, 0.032 and 0.054 with the amplitude.
    """

    name = "background"

    def __init__(
        self, window: tuple[int, int], mean_count: float, dtype: torch.dtype, fourier: bool, as_amplitude: bool
    ) -> None:
        """fourier: whether intensities are in FFT order. as_amplitude: whether the parameter is b."""
        super().__init__()
        self.mean_count, self.fourier, self.as_amplitude = mean_count, fourier, as_amplitude
        start = BACKGROUND_START if as_amplitude else 0.0
        self.background = nn.Parameter(torch.full(window, start, dtype=dtype))

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Return M_j + B."""
        return intensity + self.counts

    @property
    def counts(self) -> Tensor:
        """B (y, x) [counts], differentiable with respect to the parameter."""
        relative = self.background.square() if self.as_amplitude else self.background
        return relative * self.mean_count

    @torch.no_grad()
    def set(self, counts: Tensor) -> None:
        """Set B (y, x) [counts], at least 0."""
        relative = (counts / self.mean_count).clamp(min=0)
        self.background.copy_(relative.sqrt() if self.as_amplitude else relative)

    def update_done(self) -> None:
        """Clamp to at least 0, where it is not a square."""
        if not self.as_amplitude:
            self.background.clamp_(min=0)

    def arrays(self) -> dict[str, Tensor]:
        """Return the background (y, x) [counts], with the zero frequency at index n // 2 as on a detector."""
        counts = self.counts.detach()
        return {"background": torch.fft.fftshift(counts) if self.fourier else counts}


@final
class Pixels(ModelComponent):
    """Finite detector pixels: sums of `oversampling` samples along y and x."""

    name = "pixels"

    def __init__(self, oversampling: int, fourier: bool) -> None:
        """fourier: whether intensities are in FFT order, in which the pixel at index 0 wraps around the edge."""
        super().__init__()
        self.oversampling, self.fourier = oversampling, fourier

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Sum (pattern, k y, k x) to (pattern, y, x)."""
        k = self.oversampling
        height, width = (side // k for side in intensity.shape[-2:])
        if self.fourier:
            intensity = intensity.roll((k // 2, k // 2), (-2, -1))
        return intensity.reshape(-1, height, k, width, k).sum((2, 4))


@final
class PointSpread(ModelComponent):
    """Gaussian point spread function of the detector, `sigma` [detector pixels], periodic at the edges."""

    name = "point spread"

    def __init__(self, window: tuple[int, int], sigma: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        # Two matrix products with positive numbers: a dark pixel beside bright ones keeps its relative precision, which
        # a transform of the pattern would not leave it.
        self.along_y, self.along_x = (_spread(side, sigma, dtype, device) for side in window)

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Return M convolved with the point spread function."""
        return self.along_y @ (intensity @ self.along_x)


def _spread(side: int, sigma: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the matrix (pixel, pixel) that convolves an axis with a Gaussian; it is symmetric."""
    pixels = torch.arange(side, dtype=dtype, device=device)
    distance = (pixels[:, None] - pixels).abs()
    spread = torch.exp(-((torch.minimum(distance, side - distance) / sigma) ** 2) / 2)
    return spread / spread.sum(0)


@final
class Saturation(ModelComponent):
    """Saturation of the detector at `most` counts."""

    name = "saturation"

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Return min(M, most); the gradient is 0 in pixels that are saturated in the model, too."""
        return intensity.clamp(max=self.most)
