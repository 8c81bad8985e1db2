"""The pieces that ptynb brings: positions, weights, background, varying probes, and what the detector does."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from ptynb.physics.components.component import Batch, ModelComponent


@final
class Positions(ModelComponent):
    """Each position moves by itself, at most `limit` along y and x; parameter `moves` (pattern, yx) [object pixels]."""

    name = "positions"
    rows = frozenset({"moves"})

    def __init__(self, patterns: int, limit: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.limit = limit
        self.moves = nn.Parameter(torch.zeros((patterns, 2), dtype=dtype))

    def shift_positions(self, places: Tensor, batch: Batch) -> Tensor:
        """r_j + m_j."""
        return places + self.moves[batch.patterns]

    def update_done(self) -> None:
        """Cuts the moves at the limit."""
        self.moves.clamp_(-self.limit, self.limit)

    def arrays(self) -> dict[str, Tensor]:
        """Nothing: the result's positions hold the moves."""
        return {}


@final
class Affine(ModelComponent):
    """All positions are mapped linearly about their centre: r = c + (1 + A) (r₀ - c).

    Parameter `map` (yx, yx): A times the radius of the scan [object pixels], so that a step means the same for any.
    """

    name = "affine"

    def __init__(self, places: Tensor, dtype: torch.dtype) -> None:
        """places: all positions (pattern, yx) as given, float64; dtype: of the parameter."""
        super().__init__()
        self.centre = places.mean(0)
        self.radius = max(1.0, float((places - self.centre).norm(dim=1).max()))
        self.map = nn.Parameter(torch.zeros((2, 2), dtype=dtype))

    def shift_positions(self, places: Tensor, batch: Batch) -> Tensor:
        """r + A (r - c)."""
        return places + (places - self.centre) @ self.map.T.to(places.dtype) / self.radius

    def arrays(self) -> dict[str, Tensor]:
        """The matrix 1 + A, (yx, yx)."""
        return {"matrix": torch.eye(2, dtype=self.map.dtype) + self.map.detach().cpu() / self.radius}


@final
class Offset(ModelComponent):
    """The probe lies beside all positions by one `shift` (yx) [object pixels]."""

    name = "offset"

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(2, dtype=dtype))

    def shift_positions(self, places: Tensor, batch: Batch) -> Tensor:
        """r_j + s."""
        return places + self.shift


@final
class Variations(ModelComponent):
    """Orthogonal probe relaxation: P_j0 = P_0 + Σ_r c_jr V_r, a first mode from a space of low rank.

    Odstrcil et al., Opt. Express 24, 8360 (2016). The rank is kept by writing the varying part as a product instead of
    cutting a singular value decomposition of all probes after every epoch; `arrays` gives that decomposition.

    Parameters: `ways` (rank, y, x, 2) [the probe's unit], `coefficients` (pattern, rank, 2).
    """

    name = "variations"
    rows = frozenset({"coefficients"})

    def __init__(self, patterns: int, ways: Tensor, scale: Tensor) -> None:
        """ways: complex (rank, y, x), where the variations start, in units of the probe's root-mean-square `scale`."""
        super().__init__()
        self.scale = scale
        self.ways = nn.Parameter(torch.view_as_real(ways).clone())
        self.coefficients = nn.Parameter(torch.zeros((patterns, len(ways), 2), dtype=self.ways.dtype))

    def illuminate(self, probes: Tensor, batch: Batch) -> Tensor:
        """Adds the pattern's own variation to the first mode."""
        own = torch.view_as_complex(self.coefficients[batch.patterns])
        varied = torch.einsum("pr,ryx->pyx", own, torch.view_as_complex(self.ways)) * self.scale
        others = probes[:, 1:].expand(len(varied), -1, -1, -1)
        return torch.cat([probes[:, :1] + varied[:, None], others], dim=1)

    def arrays(self) -> dict[str, Tensor]:
        """Orthonormal `ways` (rank, y, x) and `coefficients` (pattern, rank) of the varying parts, strongest first."""
        ways = (torch.view_as_complex(self.ways.detach()) * self.scale).flatten(1)
        coefficients = torch.view_as_complex(self.coefficients.detach())
        _, triangle = torch.linalg.qr(coefficients)
        left, strengths, right = torch.linalg.svd(triangle @ ways, full_matrices=False)
        inner, _ = torch.linalg.qr(coefficients)
        return {
            "ways": right.reshape(-1, *self.ways.shape[1:3]),
            "coefficients": inner @ (left * strengths),
        }


@final
class Weights(ModelComponent):
    """Each pattern has its own brightness; parameter `weights` (pattern,), mean 1."""

    name = "weights"
    rows = frozenset({"weights"})

    def __init__(self, patterns: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(patterns, dtype=dtype))

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """w_j M_j."""
        return intensity * self.of(batch)[:, None, None]

    def of(self, batch: Batch) -> Tensor:
        """w_j (pattern,) of these patterns."""
        return self.weights[batch.patterns]

    def update_done(self) -> None:
        """No pattern is darker than a thousandth; the mean is 1, since the probe takes up any other."""
        self.weights.clamp_(min=1e-3)
        self.weights.div_(self.weights.mean())


@final
class Background(ModelComponent):
    """The same intensity in every pattern; parameter `background` (y, x) [mean count of a pixel], at least 0."""

    name = "background"

    def __init__(self, window: tuple[int, int], mean_count: float, dtype: torch.dtype, fourier: bool) -> None:
        """fourier: whether intensities are in FFT order."""
        super().__init__()
        self.mean_count, self.fourier = mean_count, fourier
        self.background = nn.Parameter(torch.zeros(window, dtype=dtype))

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """M_j + B."""
        return intensity + self.counts

    @property
    def counts(self) -> Tensor:
        """B (y, x) [counts], differentiable in the parameter."""
        return self.background * self.mean_count

    def update_done(self) -> None:
        """Cuts at 0."""
        self.background.clamp_(min=0)

    def arrays(self) -> dict[str, Tensor]:
        """The background (y, x) [counts], with the zero frequency at index n // 2 as on a detector."""
        counts = self.counts.detach()
        return {"background": torch.fft.fftshift(counts) if self.fourier else counts}


@final
class Pixels(ModelComponent):
    """Detector pixels of a finite size: `oversampling` samples along y and x are added up."""

    name = "pixels"

    def __init__(self, oversampling: int, fourier: bool) -> None:
        """fourier: whether intensities are in FFT order, where the pixel at index 0 reaches across the edge."""
        super().__init__()
        self.oversampling, self.fourier = oversampling, fourier

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """(pattern, k y, k x) -> (pattern, y, x)."""
        k = self.oversampling
        height, width = (side // k for side in intensity.shape[-2:])
        if self.fourier:
            intensity = intensity.roll((k // 2, k // 2), (-2, -1))
        return intensity.reshape(-1, height, k, width, k).sum((2, 4))


@final
class PointSpread(ModelComponent):
    """A detector that spreads each count by a Gaussian of `sigma` [detector pixels], around the edges too."""

    name = "point spread"

    def __init__(self, window: tuple[int, int], sigma: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        # Sampled among the pixels, where it is positive: sampled among frequencies it would ring below 0.
        y, x = (
            torch.exp(-((torch.fft.fftfreq(side, 1 / side, dtype=dtype, device=device) / sigma) ** 2) / 2)
            for side in window
        )
        spread = y[:, None] * x[None, :]
        self.transfer = torch.fft.rfft2(spread / spread.sum())
        self.window = window

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """M convolved with the spread."""
        spread = torch.fft.irfft2(torch.fft.rfft2(intensity) * self.transfer, s=self.window)
        # Rounding alone goes below 0. Cut there, a dark pixel would lose its gradient, the steepest of all.
        return spread + (spread.clamp(min=0) - spread).detach()


@final
class Saturation(ModelComponent):
    """A detector that shows no more than `most` counts."""

    name = "saturation"

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """min(M, most); pixels the model too finds saturated say nothing."""
        return intensity.clamp(max=self.most)
