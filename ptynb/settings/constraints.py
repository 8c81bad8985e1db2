"""What is imposed on the parameters between updates, each kind with its own choices and epochs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ptynb.exceptions import InvalidValueError
from ptynb.settings.validation import MOST_EPOCHS, SettingsModel, check_span

Strength = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Length = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]


class Constraint(SettingsModel):
    """When it is imposed: after the last update of an epoch, or after every update of it."""

    start_epoch: int = Field(default=1, ge=1, le=MOST_EPOCHS, title="First epoch", description="First epoch with it")
    every: int = Field(default=1, ge=1, le=MOST_EPOCHS, title="Every", description="From one time to the next [epochs]")
    end_epoch: int | None = Field(
        default=None, ge=1, le=MOST_EPOCHS, title="Last epoch", description="Last epoch with it; none: to the end"
    )
    after: Literal["epoch", "update"] = Field(
        default="epoch", description="Whether it follows every update of these epochs, or only their end"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_span(self.start_epoch, self.end_epoch)
        return self

    def due(self, epoch: int) -> bool:
        """Whether it is imposed in this epoch (1 for the first)."""
        return self.start_epoch <= epoch <= (self.end_epoch or epoch) and (epoch - self.start_epoch) % self.every == 0


# Of the probe


class OrthogonalModes(Constraint):
    """Probe modes made orthogonal and sorted by power; no pattern changes by it."""

    kind: Literal["orthogonal_modes"] = "orthogonal_modes"


class ProbeSupport(Constraint):
    """The probe is dark outside a disc in its window."""

    kind: Literal["probe_support"] = "probe_support"
    radius: Length = Field(description="Radius of the disc [fraction of the window's shorter side]")
    edge: float = Field(
        default=0.02, ge=0, le=1, description="Width of its soft edge [fraction of the window's shorter side]"
    )


class ProbeAperture(Constraint):
    """The probe's Fourier transform is dark outside a disc: the beam's aperture."""

    kind: Literal["probe_aperture"] = "probe_aperture"
    radius: Length = Field(description="Radius of the disc [fraction of the detector's shorter side]")
    edge: float = Field(
        default=0.02, ge=0, le=1, description="Width of its soft edge [fraction of the detector's shorter side]"
    )


class FixedProbePower(Constraint):
    """The probe keeps its total power, that of the start."""

    kind: Literal["fixed_probe_power"] = "fixed_probe_power"


class CentredProbe(Constraint):
    """The centre of mass of the probe's intensity goes to the window's centre, the object along with it."""

    kind: Literal["centred_probe"] = "centred_probe"


# Of the object


class GaussianBlur(Constraint):
    """The object is smoothed by a Gaussian within its slices."""

    kind: Literal["gaussian_blur"] = "gaussian_blur"
    sigma: Length = Field(description="Standard deviation [object pixels]")


class DepthBlur(Constraint):
    """The object is smoothed by a Gaussian across its slices."""

    kind: Literal["depth_blur"] = "depth_blur"
    sigma: Length = Field(description="Standard deviation [slices]")


class LowPass(Constraint):
    """The object has no spatial frequencies beyond a limit."""

    kind: Literal["low_pass"] = "low_pass"
    cutoff: Annotated[float, Field(gt=0, le=1)] = Field(description="Highest frequency kept [fraction of Nyquist's]")
    edge: float = Field(default=0.0, ge=0, le=1, description="Width of the filter's soft edge [fraction of Nyquist's]")


class MissingWedge(Constraint):
    """Frequencies in depth that the lateral ones can't know are taken away: k_z beyond strength times k_xy."""

    kind: Literal["missing_wedge"] = "missing_wedge"
    slope: Length = Field(default=1.0, description="Steepest ratio of k_z to lateral frequency kept [1/(pixel/slice)]")


class DCTThreshold(Constraint):
    """Small coefficients of the object's cosine transform are set to 0 (sparse in that basis)."""

    kind: Literal["dct_threshold"] = "dct_threshold"
    keep_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Part of the coefficients that is kept, the largest"
    )


class PositivePhase(Constraint):
    """No negative phase: the object's phase is cut at 0, or first moved to where its smallest parts are 0."""

    kind: Literal["positive_phase"] = "positive_phase"
    strength: Strength = Field(default=1.0, description="1: wholly, 0: not at all")


class AmplitudeLimits(Constraint):
    """The object's amplitude stays between two values."""

    kind: Literal["amplitude_limits"] = "amplitude_limits"
    low: float = Field(default=0.0, ge=0, le=1e6, allow_inf_nan=False, description="Smallest amplitude")
    high: float = Field(default=1.0, gt=0, le=1e6, allow_inf_nan=False, description="Largest amplitude")

    @model_validator(mode="after")
    def _limits_in_order(self) -> Self:
        if self.low > self.high:
            raise InvalidValueError(f"its low limit {self.low:g} is above its high one {self.high:g}; turn them round")
        return self


class AmplitudePhaseCoupling(Constraint):
    """Amplitude follows phase, as in a single material: |O| = exp(-ratio * phase)."""

    kind: Literal["amplitude_phase_coupling"] = "amplitude_phase_coupling"
    ratio: float = Field(ge=0, le=1e6, allow_inf_nan=False, description="Absorption over phase shift, beta / delta")
    strength: Strength = Field(default=1.0, description="1: wholly, 0: not at all")


class Denoise(Constraint):
    """A step towards an object of less total variation, of smaller or fewer deviations from vacuum."""

    kind: Literal["denoise"] = "denoise"
    norm: Literal["tv", "l1", "l2"] = Field(
        default="tv", description="What is made smaller: total variation, or the deviation from vacuum (l1, l2)"
    )
    amount: Length = Field(description="How much [1 = the transmission of vacuum]")


class Smooth(Constraint):
    """A step of diffusion of the object: steep changes between neighbours become smaller."""

    kind: Literal["smooth"] = "smooth"
    strength: Strength = Field(default=0.1, description="1: each pixel becomes the mean of its four neighbours")


class ObjectSupport(Constraint):
    """The object is vacuum outside the area that positions' windows, made smaller by a margin, reach."""

    kind: Literal["object_support"] = "object_support"
    margin: float = Field(default=0.0, ge=0, lt=0.5, description="Rim of each window left out [fraction of its side]")


class RecenterDepth(Constraint):
    """The centre of the object's phase contrast goes to the middle slice, by whole slices."""

    kind: Literal["recenter_depth"] = "recenter_depth"


class RemovePhaseRamp(Constraint):
    """The object's linear phase ramp goes to the probe; no pattern changes by it."""

    kind: Literal["remove_phase_ramp"] = "remove_phase_ramp"


class RemoveGridArtifacts(Constraint):
    """Periods of the scan's own raster are taken out of the object's spectrum."""

    kind: Literal["remove_grid_artifacts"] = "remove_grid_artifacts"
    period_y: Length = Field(description="Step of the raster along y [object pixels]")
    period_x: Length = Field(description="Step of the raster along x [object pixels]")
    width: Length = Field(default=1.5, description="Radius of each notch [samples of the object's spectrum]")


# Of positions and tilts


class ZeroMeanPositions(Constraint):
    """Positions are moved back by the mean of their changes."""

    kind: Literal["zero_mean_positions"] = "zero_mean_positions"


class SmoothTilts(Constraint):
    """Each position's tilt becomes a weighted mean of those around it."""

    kind: Literal["smooth_tilts"] = "smooth_tilts"
    sigma: Length = Field(description="Standard deviation of the weights [object pixels]")


AnyConstraint = Annotated[
    OrthogonalModes
    | ProbeSupport
    | ProbeAperture
    | FixedProbePower
    | CentredProbe
    | GaussianBlur
    | DepthBlur
    | LowPass
    | MissingWedge
    | DCTThreshold
    | PositivePhase
    | AmplitudeLimits
    | AmplitudePhaseCoupling
    | Denoise
    | Smooth
    | ObjectSupport
    | RecenterDepth
    | RemovePhaseRamp
    | RemoveGridArtifacts
    | ZeroMeanPositions
    | SmoothTilts,
    Field(discriminator="kind"),
]
