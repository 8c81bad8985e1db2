"""The parts of a model that can be optimised, each with its own learning rate and epochs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ptynb.settings.validation import LIVE, SIMPLE, Part, Rate, SettingsModel


class Object(Part):
    """How the object is started and updated."""

    learning_rate: Rate = Field(
        default=0.01,
        description="Step size of the object's updates (1 = the transmission of vacuum); 0 freezes it",
        json_schema_extra=LIVE | SIMPLE,
    )
    padding: int = Field(
        default=4, ge=0, le=4096, description="Pixels added on each side of the scanned area [object pixels]"
    )
    modes: int = Field(default=1, ge=1, le=64, description="Number of incoherent modes of the object")
    parametrization: Literal["complex", "amplitude_phase"] = Field(
        default="complex", description="What is optimised: real and imaginary part, or amplitude and phase"
    )
    amplitude_learning_rate: Rate | None = Field(
        default=None,
        description="Step size of the amplitude, with amplitude_phase; none: that of the phase, 0: a pure phase object",
        json_schema_extra=LIVE,
    )


class Probe(Part):
    """How the probe is started and updated."""

    modes: int = Field(default=1, ge=1, le=64, description="Number of incoherent probe modes", json_schema_extra=SIMPLE)
    learning_rate: Rate = Field(
        default=0.01,
        description="Step size of updates (1 = the probe's root-mean-square amplitude over the window); 0 freezes it",
        json_schema_extra=LIVE | SIMPLE,
    )


class Slices(Part):
    """A thick object: slices with free space between them. The learning rate is that of the thickness."""

    count: int = Field(default=1, ge=1, le=512, description="Number of slices of the object", json_schema_extra=SIMPLE)
    thickness: float | None = Field(
        default=None,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="Distance between two slices [m]",
        json_schema_extra=SIMPLE,
    )
    learning_rate: Rate = Field(
        default=0.0, description="Step size of the thickness (1 = its value at the start); 0 keeps it as it is"
    )


class Tilt(Part):
    """The beam's inclination to the slices' normal: it moves by thickness times tan(tilt) from slice to slice."""

    y: float = Field(default=0.0, gt=-1.5, lt=1.5, title="Towards y", description="Tilt towards y at the start [rad]")
    x: float = Field(default=0.0, gt=-1.5, lt=1.5, title="Towards x", description="Tilt towards x at the start [rad]")
    per_position: bool = Field(
        default=False, title="For each position", description="Whether each position has its own tilt, or all have one"
    )
    learning_rate: Rate = Field(default=0.0, description="Step size of the tilt [mrad]; 0 keeps it as it is")


class Positions(Part):
    """Scan positions that are found together with the object."""

    learning_rate: Rate = Field(
        default=0.0,
        description="Step size of each position [object pixels]; 0 keeps them as they are",
        json_schema_extra=LIVE | SIMPLE,
    )
    max_shift: float = Field(
        default=8.0,
        ge=0,
        le=1024,
        allow_inf_nan=False,
        description="Farthest a position may get from where it was given, along y and x [object pixels]",
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="How much of its last step a position keeps", json_schema_extra=LIVE
    )


class Affine(Part):
    """One linear map (scale, shear, rotation) of all positions about their centre."""

    learning_rate: Rate = Field(
        default=0.0, description="Step size at the rim of the scan [object pixels]; 0 keeps the positions as they are"
    )


class ProbeOffset(Part):
    """One shift of the probe against all positions."""

    learning_rate: Rate = Field(
        default=0.0, description="Step size of the probe's offset [object pixels]; 0 keeps it as it is"
    )


class OPR(Part):
    """Orthogonal probe relaxation: the first probe mode varies from pattern to pattern, in a few ways."""

    modes: int = Field(default=0, ge=0, le=64, description="Number of modes in which the probe varies; 0: it does not")
    learning_rate: Rate = Field(
        default=0.03, description="Step size of the variations (1 = the probe's root-mean-square amplitude)"
    )


class PatternIntensities(Part):
    """How bright the beam was behind each pattern, 1 on average."""

    learning_rate: Rate = Field(default=0.0, description="Step size of each pattern's intensity; 0 keeps them at 1")


class Background(Part):
    """Intensity that does not depend on the position, the same in all patterns, at least 0."""

    learning_rate: Rate = Field(default=0.0, description="Step size of the background (1 = the mean count of a pixel)")


class Detector(SettingsModel):
    """What the detector does to the intensity."""

    oversampling: int = Field(
        default=1, ge=1, le=8, description="Samples behind a detector pixel along y and x; the probe's window grows so"
    )
    psf_sigma: float = Field(
        default=0.0, ge=0, le=64, description="Standard deviation of the detector's point spread [detector pixels]"
    )
    saturation: float | None = Field(
        default=None, gt=0, le=1e12, allow_inf_nan=False, description="Highest count a pixel can show; none: no limit"
    )


PARTS = (
    "object",
    "probe",
    "slices",
    "tilt",
    "positions",
    "affine",
    "probe_offset",
    "opr",
    "pattern_intensities",
    "background",
)
"""Names of the parts in `Settings`, in the order in which they are shown."""
OTHER_COMPONENTS = {"probe_offset": "offset", "opr": "variations", "pattern_intensities": "weights"}
"""Parts whose component of the model has another name, in results and checkpoints."""
PART_OF_COMPONENT = {OTHER_COMPONENTS.get(part, part): part for part in PARTS}
"""Name of a component -> name of the part with its settings."""
