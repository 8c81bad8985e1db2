"""Constraints: projections of object, probe, positions or tilts between updates."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ptynb.exceptions import InvalidValueError
from ptynb.settings.base_models import MOST_EPOCHS, SettingsModel, check_span
from ptynb.settings.field_docs import models_in
from ptynb.settings.plugin_entries import PluginEntries, kinds_of

Strength = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Length = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
TV_STEPS = 20
"""Steps of the dual problem by which the total variation is reduced."""


class Constraint(SettingsModel):
    """Base class of the constraints: in which epochs, and after which updates, it is imposed."""

    start_epoch: int = Field(
        default=1, ge=1, le=MOST_EPOCHS, title="First epoch", description="First epoch in which it is imposed"
    )
    every: int = Field(
        default=1, ge=1, le=MOST_EPOCHS, title="Interval", description="Interval between two times [epochs]"
    )
    end_epoch: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EPOCHS,
        title="Last epoch",
        description="Last epoch in which it is imposed; none: no limit",
    )
    after: Literal["epoch", "update"] = Field(
        default="epoch",
        title="Imposed after",
        description="Whether it is imposed at the end of these epochs, or after each of their updates",
    )

    @property
    def reach(self) -> int | None:
        """Distance of pixels of the object on which one depends afterwards [object pixels]; None: it depends on all."""
        return 0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        check_span(self.start_epoch, self.end_epoch)
        return self

    def due(self, epoch: int) -> bool:
        """Whether the constraint is imposed in an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, 1 for the first.

        Returns
        -------
        bool
            True if it is imposed.
        """
        return self.start_epoch <= epoch <= (self.end_epoch or epoch) and (epoch - self.start_epoch) % self.every == 0


# Of the probe


class OrthogonalModes(Constraint):
    """Make the probe modes orthogonal and sort them by power; the modelled patterns do not change."""

    kind: Literal["orthogonal_modes"] = "orthogonal_modes"


class ProbeSupport(Constraint):
    """Set the probe to 0 outside a disc in its window."""

    kind: Literal["probe_support"] = "probe_support"
    radius: Length = Field(description="Radius of the disc [fraction of the window's shorter side]")
    edge: float = Field(
        default=0.02, ge=0, le=1, description="Width of the soft edge [fraction of the window's shorter side]"
    )


class ProbeAperture(Constraint):
    """Set the Fourier transform of the probe to 0 outside a disc, the aperture of the beam."""

    kind: Literal["probe_aperture"] = "probe_aperture"
    radius: Length = Field(description="Radius of the disc [fraction of the detector's shorter side]")
    edge: float = Field(
        default=0.02, ge=0, le=1, description="Width of the soft edge [fraction of the detector's shorter side]"
    )


class FixedProbePower(Constraint):
    """Scale the probe to its total power at the start."""

    kind: Literal["fixed_probe_power"] = "fixed_probe_power"


class CentredProbe(Constraint):
    """Shift the centre of mass of the probe's intensity to the centre of its window, and the object with it."""

    kind: Literal["centred_probe"] = "centred_probe"

    @property
    def reach(self) -> int | None:
        """All pixels."""
        return None


# Of the object


class GaussianBlur(Constraint):
    """Smooth the slices of the object by a Gaussian."""

    kind: Literal["gaussian_blur"] = "gaussian_blur"
    sigma: Length = Field(title="Standard deviation", description="Standard deviation [object pixels]")

    @property
    def reach(self) -> int | None:
        """Six standard deviations."""
        return math.ceil(6 * self.sigma)


class DepthBlur(Constraint):
    """Smooth the object by a Gaussian across its slices."""

    kind: Literal["depth_blur"] = "depth_blur"
    sigma: Length = Field(title="Standard deviation", description="Standard deviation [slices]")


class LowPass(Constraint):
    """Remove spatial frequencies of the object above a limit."""

    kind: Literal["low_pass"] = "low_pass"
    cutoff: Annotated[float, Field(gt=0, le=1)] = Field(
        title="Highest frequency", description="Highest frequency that is kept [fraction of the Nyquist frequency]"
    )
    edge: float = Field(
        default=0.0, ge=0, le=1, description="Width of the soft edge of the filter [fraction of the Nyquist frequency]"
    )

    @property
    def reach(self) -> int | None:
        """All pixels."""
        return None


class MissingWedge(Constraint):
    """Remove frequencies along depth that cannot be measured: k_z above slope times k_xy."""

    kind: Literal["missing_wedge"] = "missing_wedge"
    slope: Length = Field(
        default=1.0, description="Largest ratio of k_z to lateral frequency that is kept [1/(pixel/slice)]"
    )

    @property
    def reach(self) -> int | None:
        """All pixels."""
        return None


class DCTThreshold(Constraint):
    """Set the small coefficients of the object's discrete cosine transform to 0."""

    kind: Literal["dct_threshold"] = "dct_threshold"
    keep_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        title="Fraction kept", description="Fraction of the coefficients, the largest ones, that is kept"
    )

    @property
    def reach(self) -> int | None:
        """All pixels."""
        return None


class PositivePhase(Constraint):
    """Raise negative phases of the object to 0."""

    kind: Literal["positive_phase"] = "positive_phase"
    strength: Strength = Field(default=1.0, description="Strength, from 0 (no effect) to 1 (full projection)")


class AmplitudeLimits(Constraint):
    """Clip the amplitude of the object to an interval."""

    kind: Literal["amplitude_limits"] = "amplitude_limits"
    low: float = Field(
        default=0.0, ge=0, le=1e6, allow_inf_nan=False, title="Smallest amplitude", description="Smallest amplitude"
    )
    high: float = Field(
        default=1.0, gt=0, le=1e6, allow_inf_nan=False, title="Largest amplitude", description="Largest amplitude"
    )

    @model_validator(mode="after")
    def _limits_in_order(self) -> Self:
        if self.low > self.high:
            raise InvalidValueError(
                f"low is {self.low:g} and high is {self.high:g}; exchange them",
                code="settings.wrong-order",
                fields=("low", "high"),
            )
        return self


class AmplitudePhaseCoupling(Constraint):
    """Set the amplitude of the object from its phase, as for a single material: |O| = exp(-ratio * phase)."""

    kind: Literal["amplitude_phase_coupling"] = "amplitude_phase_coupling"
    ratio: float = Field(
        ge=0, le=1e6, allow_inf_nan=False, description="Ratio of absorption to phase shift, beta / delta"
    )
    strength: Strength = Field(default=1.0, description="Strength, from 0 (no effect) to 1 (full projection)")


class Denoise(Constraint):
    """Reduce the total variation of the object, or its deviation from vacuum, by a proximal step."""

    kind: Literal["denoise"] = "denoise"
    norm: Literal["tv", "l1", "l2"] = Field(
        default="tv", description="What is reduced: total variation, or the L1 or L2 norm of the deviation from vacuum"
    )
    amount: Length = Field(description="Size of the step [1 = the transmission of vacuum]")

    @property
    def reach(self) -> int | None:
        """One pixel in each step of the dual problem, and one in the last difference."""
        return TV_STEPS + 1 if self.norm == "tv" else 0


class Smooth(Constraint):
    """Smooth the object by a step of diffusion."""

    kind: Literal["smooth"] = "smooth"
    strength: Strength = Field(
        default=0.1, description="Strength; at 1 each pixel is replaced by the mean of its four neighbours"
    )

    @property
    def reach(self) -> int | None:
        """The next neighbours."""
        return 1


class ObjectSupport(Constraint):
    """Set the object to vacuum outside the area covered by the probe windows, each reduced by a margin."""

    kind: Literal["object_support"] = "object_support"
    margin: float = Field(
        default=0.0, ge=0, lt=0.5, description="Margin of each window that is left out [fraction of its side]"
    )


class RecenterDepth(Constraint):
    """Shift the object by whole slices so that its phase contrast is centred in the middle slice."""

    kind: Literal["recenter_depth"] = "recenter_depth"


class RemovePhaseRamp(Constraint):
    """Move the linear phase ramp of the object to the probe; the modelled patterns do not change."""

    kind: Literal["remove_phase_ramp"] = "remove_phase_ramp"


class RemoveGridArtifacts(Constraint):
    """Remove the periods of the scan raster from the spectrum of the object."""

    kind: Literal["remove_grid_artifacts"] = "remove_grid_artifacts"
    period_y: Length = Field(title="Period along y", description="Step of the raster along y [object pixels]")
    period_x: Length = Field(title="Period along x", description="Step of the raster along x [object pixels]")
    width: Length = Field(default=1.5, description="Radius of each notch [samples of the object's spectrum]")

    @property
    def reach(self) -> int | None:
        """All pixels."""
        return None


# Of positions and tilts


class ZeroMeanPositions(Constraint):
    """Subtract the mean of the position changes from all positions."""

    kind: Literal["zero_mean_positions"] = "zero_mean_positions"


class SmoothTilts(Constraint):
    """Replace the tilt of each position by a weighted mean of those around it."""

    kind: Literal["smooth_tilts"] = "smooth_tilts"
    sigma: Length = Field(title="Standard deviation", description="Standard deviation of the weights [object pixels]")


class ConstraintPlugin(Constraint):
    """Base class of constraints of plug-ins: the settings of one, and what it does.

    A subclass has its name as `kind: Literal["name"] = "name"`, further fields with descriptions, from which forms and
    docstrings are made, and `impose`. With an object in tiles `reach` has to be a number; with a streamed one
    constraints of plug-ins are not supported.
    """

    kind: str

    @property
    def reach(self) -> int | None:
        """All pixels, unless a subclass says less."""
        return None

    @abstractmethod
    def impose(self, model: Any) -> None:
        """Change the parameters of the model in place: `model.object.set(...)`, `model.probe.set(...)`.

        It is called on all engines, without gradients, and has to be deterministic and equal on all of them.

        Parameters
        ----------
        model : Model
            The model, with its object, probe and components.
        """


BuiltInConstraint = Annotated[
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
CONSTRAINTS = PluginEntries("constraints", ConstraintPlugin, kinds_of(models_in(BuiltInConstraint)))  # type: ignore[type-abstract]
AnyConstraint = Annotated[BuiltInConstraint, CONSTRAINTS]
