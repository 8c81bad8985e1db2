"""Settings of the parts of a model that can be optimised, each with a learning rate and epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from ptynb.settings.base_models import (
    LIVE,
    MOST_EPOCHS,
    SIMPLE,
    Part,
    PartSwitch,
    Rate,
    SettingsModel,
    check_span,
    rate_switch,
)


class Object(Part):
    """Size, modes and updates of the object."""

    switch = None

    learning_rate: Rate = Field(
        default=0.1,
        description="Learning rate of the object (1 = the transmission of vacuum); 0 keeps it fixed",
        json_schema_extra=LIVE | SIMPLE,
    )
    padding: int = Field(
        default=4,
        ge=0,
        le=4096,
        title="Margin",
        description="Width of the margin around the scanned area [object pixels]",
    )
    modes: int = Field(default=1, ge=1, le=64, description="Number of incoherent modes of the object")
    parametrization: Literal["complex", "amplitude_phase"] = Field(
        default="complex",
        title="Parameters",
        description="Parameters that are optimised: real and imaginary part, or amplitude and phase",
    )
    layout: Literal["whole", "tiles", "streamed"] = Field(
        default="whole",
        title="Part on each engine",
        description="What each engine holds of the object: all of it; the tile that the windows of its patterns "
        "reach, which needs batches from cells; or, with one engine, the rows that a band of the scan reaches, while "
        "the object is stored in host memory, which needs batches from bands",
    )
    amplitude_learning_rate: Rate | None = Field(
        default=None,
        description="Learning rate of the amplitude, if amplitude and phase are optimised; none: that of the phase, 0: "
        "fixed",
        json_schema_extra=LIVE,
    )


class Probe(Part):
    """Modes and updates of the probe."""

    switch = None

    modes: int = Field(default=1, ge=1, le=64, description="Number of incoherent probe modes", json_schema_extra=SIMPLE)
    learning_rate: Rate = Field(
        default=0.1,
        description="Learning rate of the probe (1 = its root-mean-square amplitude over the window); 0 keeps it fixed",
        json_schema_extra=LIVE | SIMPLE,
    )
    start: Literal["reconstruction", "mean pattern"] = Field(
        default="reconstruction",
        title="Initial probe",
        description="Initial probe of a far-field scan without one: from a short reconstruction of up to 128 "
        "neighbouring patterns, or the transform of the mean pattern",
    )


class Slices(Part):
    """Slices of a thick object, with free space between them; the learning rate is that of the thickness."""

    # Two slices need their distance, for which no value is a good guess: its field asks for it.
    switch = PartSwitch({"count": 1, "learning_rate": 0.0}, {"count": 2}, {"thickness": None})

    count: int = Field(
        default=1,
        ge=1,
        le=512,
        title="Number of slices",
        description="Number of slices of the object",
        json_schema_extra=SIMPLE,
    )
    thickness: float | None = Field(
        default=None,
        gt=0,
        le=10,
        allow_inf_nan=False,
        title="Slice distance",
        description="Distance between two slices [m]",
        json_schema_extra=SIMPLE,
    )
    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of the thickness (1 = its initial value; 0.01 is a good start); 0 keeps it fixed",
    )


class Tilt(Part):
    """Tilt of the beam against the normal of the slices: it shifts by thickness times tan(tilt) per slice."""

    switch = PartSwitch({"y": 0.0, "x": 0.0, "learning_rate": 0.0}, {"learning_rate": 0.1})

    y: float = Field(default=0.0, gt=-1.5, lt=1.5, title="Towards y", description="Initial tilt towards y [rad]")
    x: float = Field(default=0.0, gt=-1.5, lt=1.5, title="Towards x", description="Initial tilt towards x [rad]")
    per_position: bool = Field(
        default=False, title="For each position", description="Whether each position has a tilt of its own"
    )
    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of the tilt (1 = a shift of one object pixel from the first to the last slice; 0.1 "
        "is a good start), or of its angle (1 = 1 mrad); 0 keeps it fixed",
        json_schema_extra=LIVE | SIMPLE,
    )
    parametrization: Literal["shift", "angle"] = Field(
        default="shift",
        title="Parameter",
        description="Parameter that is optimised: the shift of the beam from the first to the last slice, so that one "
        "learning rate serves all lengths, or the angle",
    )


class Positions(Part):
    """Refinement of the scan positions, by gradients and, for errors of many pixels, by a search."""

    by_pattern = True
    switch = PartSwitch({"learning_rate": 0.0, "search_trials": 0}, {"learning_rate": 0.1})

    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of each position [object pixels], 0.1 is a good start; with LSQML the factor of its "
        "least-squares step; 0 keeps them fixed",
        json_schema_extra=LIVE | SIMPLE,
    )
    max_shift: float = Field(
        default=8.0,
        ge=0,
        le=1024,
        allow_inf_nan=False,
        title="Largest position shift",
        description="Largest distance of a position from its initial value, along y and x [object pixels]",
    )
    momentum: float = Field(
        default=0.9,
        ge=0,
        lt=1,
        description="Fraction of the last step that is added to the next one (LSQML: 0 by default)",
        json_schema_extra=LIVE,
    )
    search_trials: int = Field(
        default=0,
        ge=0,
        le=1000,
        title="Trial shifts of a position",
        description="Random shifts of each position that are tried after an epoch (12 are a good number), each at the "
        "cost of the forward model; 0: no search",
    )
    search_radius: float = Field(
        default=8.0,
        gt=0,
        le=1024,
        allow_inf_nan=False,
        title="Radius of the position search",
        description="Largest trial shift along y and x, 1.5 to 2 times the expected error; half of the trials shrink "
        "to 1 pixel until the object restarts or the search ends [object pixels]",
    )
    search_start_epoch: int = Field(
        default=2,
        ge=1,
        le=MOST_EPOCHS,
        title="First epoch of the position search",
        description="First epoch after which shifts are tried",
        json_schema_extra=LIVE,
    )
    search_end_epoch: int = Field(
        default=120,
        ge=1,
        le=MOST_EPOCHS,
        title="Last epoch of the position search",
        description="Last epoch after which shifts are tried",
        json_schema_extra=LIVE,
    )
    search_restarts: int = Field(
        default=2,
        ge=0,
        le=100,
        title="Object restarts in the position search",
        description="How often the object starts again from its initial values during the search, at equal intervals: "
        "one that has adapted to wrong positions holds them there",
    )

    @model_validator(mode="after")
    def _search_in_order(self) -> Self:
        check_span(self.search_start_epoch, self.search_end_epoch, "search_")
        return self

    def searches(self, epoch: int) -> bool:
        """Whether shifts are tried after an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, 1 for the first.

        Returns
        -------
        bool
            True if they are.
        """
        return self.search_trials > 0 and self.search_start_epoch <= epoch <= self.search_end_epoch

    def search_progress(self, epoch: int) -> float:
        """Return the part of the search since the last restart of the object that is done after an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch.

        Returns
        -------
        float
            0 after the first epoch of the search or after a restart, 1 after the last epoch before the next one.
        """
        first, last = self._round(epoch)
        return (epoch - first) / max(last - first, 1)

    def restarts_object(self, epoch: int) -> bool:
        """Whether the object restarts after an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch.

        Returns
        -------
        bool
            True `search_restarts` times, or less often if the search has fewer epochs.
        """
        return self.searches(epoch) and epoch < self.search_end_epoch and epoch == self._round(epoch)[1]

    def _round(self, epoch: int) -> tuple[int, int]:
        """Return the first and last epoch of the part of the search that an epoch belongs to."""
        start, rounds = self.search_start_epoch, self.search_restarts + 1
        epochs = self.search_end_epoch + 1 - start
        number = (epoch - start) * rounds // epochs
        return start + -(-number * epochs // rounds), start + -(-(number + 1) * epochs // rounds) - 1


class Affine(Part):
    """Refinement of one linear map (scale, shear, rotation) of all positions about their centre."""

    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate, as a shift at the edge of the scan [object pixels], 0.1 is a good start; 0 keeps "
        "the map fixed",
        json_schema_extra=LIVE | SIMPLE,
    )


class ProbeOffset(Part):
    """Refinement of one shift of the probe against all positions; of scans that share an object, one for each."""

    component = "offset"
    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of the offset [object pixels], 0.1 is a good start; 0 keeps it fixed",
        json_schema_extra=LIVE | SIMPLE,
    )


class OPR(Part):
    """Orthogonal probe relaxation: the first probe mode varies from pattern to pattern, in a few modes."""

    component = "variations"
    by_pattern = True
    switch = PartSwitch({"modes": 0}, {"modes": 3})

    modes: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Number of modes of the variation; 0: the probe does not vary",
        json_schema_extra=SIMPLE,
    )
    learning_rate: Rate = Field(
        default=0.03,
        description="Learning rate of the variation (1 = the probe's root-mean-square amplitude), with LSQML the "
        "factor of its least-squares step",
        json_schema_extra=LIVE | SIMPLE,
    )


class Aberrations(Part):
    """Aberrations of the lens that forms the probe, common to all modes and positions; changes since the start.

    Meanwhile the pixels of the probe are fixed but for these changes: its learning rate is 0, or it begins later.
    """

    switch = PartSwitch({"order": 0}, {"order": 2})

    order: int = Field(
        default=0,
        ge=0,
        le=3,
        description="Highest order of the aberrations that are refined: 1: defocus and astigmatism, 2: also coma and "
        "threefold astigmatism, 3: also spherical aberration and those of its order; 0: none",
        json_schema_extra=SIMPLE,
    )
    learning_rate: Rate = Field(
        default=0.01,
        description="Learning rate of each aberration (1 = a phase of 1 rad, root mean square over the probe's "
        "spectrum); 0.03 if the defocus may have the wrong sign, 0 keeps them fixed",
        json_schema_extra=LIVE | SIMPLE,
    )


class PatternIntensities(Part):
    """Relative intensity of the beam for each pattern, 1 on average."""

    component = "weights"
    by_pattern = True
    switch = rate_switch(0.01)

    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of the intensities, with LSQML the factor of their least-squares step; 0 keeps them "
        "at 1",
        json_schema_extra=LIVE | SIMPLE,
    )


class Background(Part):
    """Background intensity, the same in all patterns and at least 0."""

    switch = rate_switch(0.01)

    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of the background's amplitude (1 = the square root of the mean count of a pixel), "
        "or of its intensity (1 = the mean count), with LSQML the factor of its least-squares step; 0 keeps it fixed",
        json_schema_extra=LIVE | SIMPLE,
    )
    parametrization: Literal["amplitude", "intensity"] = Field(
        default="amplitude",
        title="Parameter",
        description="Parameter that is optimised: the square root of the background, so that one learning rate serves "
        "weak and strong ones, or the background itself",
    )


class Descan(Part):
    """A shift of each pattern on the detector: imperfect descan of a scanned beam, drift of beam or detector.

    In a run that has already begun, the shifts begin at zero.
    """

    by_pattern = True
    switch = PartSwitch({"start": "none", "learning_rate": 0.0}, {"start": "plane", "learning_rate": 0.1})

    start: Literal["none", "zero", "plane"] = Field(
        default="none",
        title="Initial shifts",
        description="Initial shifts: none (patterns are not shifted), zero, or a plane over the scan that is fitted to "
        "the centres of mass of the patterns",
        json_schema_extra=SIMPLE,
    )
    learning_rate: Rate = Field(
        default=0.0,
        description="Learning rate of each shift [detector pixels], 0.1 is a good start; 0 keeps the initial shifts",
        json_schema_extra=LIVE | SIMPLE,
    )


class FlyScan(SettingsModel):
    """Motion of the sample during the exposure: a pattern is the incoherent sum over positions along the motion."""

    switch = PartSwitch({"steps": 1}, {"steps": 4})

    steps: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Number of positions along the motion; 1: the sample does not move",
        json_schema_extra=SIMPLE,
    )
    exposure_fraction: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Part of the way to the next position that is exposed; not used if the scan contains its motion",
    )


class Detector(SettingsModel):
    """Model of the detector: sampling, point spread, saturation."""

    oversampling: int = Field(
        default=1,
        ge=1,
        le=8,
        description="Samples per detector pixel along y and x; the probe window grows by the same factor",
    )
    psf_sigma: float = Field(
        default=0.0,
        ge=0,
        le=64,
        title="Point spread",
        description="Standard deviation of the Gaussian point spread function [detector pixels]",
    )
    saturation: float | None = Field(
        default=None,
        gt=0,
        le=1e12,
        allow_inf_nan=False,
        description="Highest count of a pixel [counts]; none: no limit",
    )


PARTS: Mapping[str, type[Part]] = {
    "object": Object,
    "probe": Probe,
    "slices": Slices,
    "tilt": Tilt,
    "positions": Positions,
    "affine": Affine,
    "probe_offset": ProbeOffset,
    "aberrations": Aberrations,
    "opr": OPR,
    "pattern_intensities": PatternIntensities,
    "background": Background,
    "descan": Descan,
}
"""The parts by their names in `Settings`, in the order in which they are shown."""
PART_OF_COMPONENT = {part.component or name: name for name, part in PARTS.items()}
"""Name of a component -> name of the part with its settings."""
