"""A model component: the gain of the detector drifts linearly during the scan."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ptynb.plugin_api import Batch, ComponentPlugin, ModelComponent, Scan


class GainDrift(ModelComponent):
    """Multiplies the intensity of the n-th of N patterns by 1 + drift (n / N - 1/2)."""

    def __init__(self, drift: float, patterns: int) -> None:
        super().__init__()
        self.patterns = patterns
        self.drift = torch.nn.Parameter(torch.tensor(float(drift)))

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        """Return the intensity (pattern, y, x) that the detector records [counts]."""
        time = batch.patterns.to(intensity.dtype) / self.patterns - 0.5
        return intensity * (1 + self.drift * time)[:, None, None]

    def update_done(self) -> None:
        """Keep the gain positive."""
        self.drift.clamp_(-1.9, 1.9)


class GainDriftSettings(ComponentPlugin):
    """Gain of the detector that drifts during the scan."""

    kind: Literal["gain_drift"] = "gain_drift"
    start: float = Field(default=0.0, ge=-1.9, le=1.9, description="Relative drift of the gain over the scan at first")

    def component(self, scan: Scan) -> GainDrift:
        """Return the component for a scan."""
        return GainDrift(self.start, len(scan))
