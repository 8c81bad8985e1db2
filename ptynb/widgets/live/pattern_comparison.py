"""The measured diffraction pattern of a chosen position, and the modelled one of the current state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptynb.data import images
from ptynb.data.engine_records import Array, PatternPair, Picture
from ptynb.widgets import elements
from ptynb.widgets.live.controls import Field, checkbox, row, whole_number
from ptynb.widgets.live.protocol import Moment, Watched, moment_of
from ptynb.widgets.viewer.viewer import Viewer

HEIGHT = 200


class PatternViewer:
    """A viewer of both patterns, optionally logarithmic; chosen: called with the number of a pattern entered."""

    def __init__(self, recon: Watched, chosen: Callable[[int], None], changed: Callable[[], None]) -> None:
        self._recon = recon
        self.viewer = Viewer(height=HEIGHT)
        self.viewer.layout.display = "none"
        number = whole_number(
            "Pattern", 0, 0, len(recon.scan) - 1, "170px", "Index of the pattern; a click on the object chooses one."
        )
        self.number = Field(number, chosen)
        self._log = checkbox("Logarithmic", True)
        self._log.observe(lambda _: changed(), "value")
        self._facts = elements.HTML('<span style="opacity:.75">Click on the object to see a pattern.</span>')
        self.widgets = (row(number, self._log, self._facts, grid_gap="2px 16px"), self.viewer)
        self.chosen: int | None = None
        self._shown: tuple[int, int, int, bool, Moment] | None = None

    def choose(self, index: int) -> None:
        """Choose the pattern to show."""
        self.chosen = index
        self.number.show(index)
        self.viewer.layout.display = None

    def update(self, epoch: int, update: int) -> None:
        """Request and show the chosen pattern if it differs from the one that is shown."""
        index = self.chosen
        moment, logarithmic = moment_of(self._recon), self._log.value
        key = (index, epoch, update, logarithmic, moment)
        if index is None or key == self._shown or not self.viewer.ready:
            return
        pair = self._recon.pattern(index)
        self.viewer.show(pictures_of(pair, logarithmic), epoch=pair.epoch, update=pair.update)
        self._shown = (index, pair.epoch, pair.update, logarithmic, moment)
        self._facts.value = (
            f"{pair.measured.sum():,.0f} counts measured, {pair.modelled[pair.mask].sum():,.0f} modelled, "
            f"R-factor {pair.r_factor:.4f}, epoch {pair.epoch}"
        )


def pictures_of(pair: PatternPair, logarithmic: bool) -> tuple[Picture, Picture]:
    """Return pictures of both patterns with the limits of the measured one."""
    measured, modelled = (_scaled(counts, pair.mask, logarithmic) for counts in (pair.measured, pair.modelled))
    limits = (0.0, max(float(measured.max()), 1e-6))
    unit = "log10(1 + counts)" if logarithmic else "counts"
    return (
        images.picture(
            measured, "measured", f"pattern {pair.index}, measured", limits=limits, unit=unit, colours="magma"
        ),
        images.picture(
            modelled, "modelled", f"pattern {pair.index}, modelled", limits=limits, unit=unit, colours="magma"
        ),
    )


def _scaled(counts: Array, mask: Array, logarithmic: bool) -> Array:
    unmasked = np.where(mask, counts, 0.0).clip(0)
    return np.log10(1 + unmasked) if logarithmic else unmasked
