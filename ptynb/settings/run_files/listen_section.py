"""Section `listen` of a run file: a scan that is measured while it is reconstructed, in place of `scan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ptynb.data.geometry import Geometry, NearField
from ptynb.data.source_address import addresses, example, live_addresses
from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings.base_models import ADDRESS, MOST_SECONDS, TRUST, FileSection
from ptynb.settings.load_options import ONE_OR_TWO, LoadOptions, Positive

Number = Annotated[int, Field(ge=1, le=10**8)]
Pixels = Annotated[int, Field(ge=4, le=2**16)]
Pixel = Annotated[int, Field(ge=0, le=2**16)]
Side = Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
GEOMETRY = ("wavelength", "energy", "voltage", "distance", "detector_pixel", "angular_pixel", "focus_to_sample")
"""Fields of a plan that describe the geometry, and options of `ptynb.load`."""
FILES = ("positions", "mask", "probe", "object")
"""Fields of a plan that are files with arrays."""


def expanded(path: Path) -> Path:
    """Return a path without '~'. Raises SettingsError if that home folder is not known."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise SettingsError(
            f"The home folder in {str(path)!r} is not known; write out the whole path.", code="file.not-found"
        ) from None


def _as_for_load(name: str) -> Any:
    """Return the field of an option of `ptynb.load`."""
    return LoadOptions.model_fields[name]


class PlanSection(FileSection):
    """What is known of a scan before it is measured, as `ptynb.Plan` has it, with arrays in files."""

    positions: str | None = Field(
        default=None, description="File (.npy, text) with the planned positions (pattern, yx), in `units`"
    )
    count: Number | None = Field(
        default=None, description="Number of patterns; none: that of the positions, or of the detector's header"
    )
    extent: tuple[tuple[Side, Side], tuple[Side, Side]] | None = Field(
        default=None,
        description="In place of positions: smallest and largest y, and x, of those to come, [[y0, y1], [x0, x1]]",
    )
    units: Literal["metres", "pixels"] = Field(
        default="metres",
        description="Unit of positions and extent, also of measured positions: metres or object pixels",
    )
    wavelength: Positive | None = _as_for_load("wavelength")
    energy: Positive | None = _as_for_load("energy")
    voltage: Positive | None = _as_for_load("voltage")
    distance: Positive | None = _as_for_load("distance")
    detector_pixel: Annotated[tuple[Positive, Positive] | None, ONE_OR_TWO] = _as_for_load("detector_pixel")
    angular_pixel: Annotated[tuple[Positive, Positive] | None, ONE_OR_TWO] = _as_for_load("angular_pixel")
    geometry: Literal["far field", "near field"] = _as_for_load("geometry")
    focus_to_sample: Positive | None = _as_for_load("focus_to_sample")
    window: Annotated[tuple[Pixels, Pixels] | None, ONE_OR_TWO] = Field(
        default=None,
        description="Size (y, x), or one number for both, to which patterns are cropped; none: whole [pixels]",
    )
    centre: tuple[Pixel, Pixel] | None = Field(
        default=None, description="Pixel (y, x) in the middle of the window; none: that of the detector [pixels]"
    )
    mask: str | None = Field(
        default=None,
        description="File (.npy, .h5, text) with the mask (y, x), true where the detector works; none: the detector's",
    )
    probe: str | None = Field(
        default=None,
        description="Initial probe: file (.npy, complex), or a result of ptynb with the same geometry; none: made from "
        "the first patterns",
    )
    object: str | None = Field(
        default=None, description="File (.npy, complex) with the initial object, in whose pixels positions are given"
    )
    clip_negative: bool = _as_for_load("clip_negative")
    margin: float = Field(
        default=4.0,
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="How far outside of the planned positions measured ones may lie [object pixels]",
    )
    line: Number | None = Field(default=None, description="Number of patterns of a line of the scan")
    start_after: Number | None = Field(
        default=None,
        description="Number of patterns after which the reconstruction begins; none: two lines, or a thirtieth of the "
        "scan, 32 to 300",
    )
    silence: float | None = Field(
        default=None,
        ge=0.1,
        le=1e6,
        allow_inf_nan=False,
        description="Time without a pattern after which the scan has ended; none: 5, or 20 times that between patterns "
        "[s]",
    )
    name: str = Field(default="live", description="Name of the scan")

    @field_validator("extent")
    @classmethod
    def _ascending(cls, extent: Any) -> Any:
        if extent is not None and not all(first < last for first, last in extent):
            raise InvalidValueError(
                "expected [[y0, y1], [x0, x1]] with y0 < y1 and x0 < x1", code="settings.wrong-order"
            )
        return extent

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.positions is None) == (self.extent is None):
            raise InvalidValueError(
                f"{'neither positions nor' if self.positions is None else 'both positions and'} extent were given; "
                "expected positions, a file with the planned ones, or extent, [[y0, y1], [x0, x1]], if they are not "
                "known before",
                code="argument.missing" if self.positions is None else "argument.conflict",
            )
        try:
            options = self._options
        except SettingsError as error:
            causes = [problem.get("ctx", {}).get("error") for problem in error.problems]
            raise causes[0] or error from None
        missing = [name for name, value in options.geometry_parts.items() if value is None]
        given = [name for name in GEOMETRY if getattr(self, name) is not None]
        if missing and (given or options.is_near_field):
            named = " and ".join(given) or "geometry: near field"
            raise InvalidValueError(
                f"{named} came without {' and '.join(missing)}; give all, or none if the header of the detector has "
                "them",
                code="argument.missing",
            )
        return self

    @property
    def _options(self) -> LoadOptions:
        return LoadOptions(**{name: getattr(self, name) for name in (*GEOMETRY, "geometry")})

    @property
    def measured_geometry(self) -> Geometry | NearField | None:
        """The geometry; None: that of the detector's header."""
        return self._options.whole_geometry

    def resolved(self, folder: Path) -> Self:
        """Return the plan with files relative to `folder` as absolute paths."""
        files = {name: getattr(self, name) for name in FILES if getattr(self, name) is not None}
        return self.model_copy(
            update={name: str((folder / expanded(Path(value))).absolute()) for name, value in files.items()}
        )


class ListenSection(FileSection):
    """A scan that is received while it is measured, as `ptynb.listen` does it."""

    source: str = Field(
        description=f"Where patterns come from: {addresses('source')}",
        json_schema_extra={TRUST: "is the source of patterns that this machine connects to", ADDRESS: True},
    )
    positions: str = Field(
        default="planned",
        description=f"Where positions come from: planned, {addresses('positions')}, or datasets of the source's file, "
        "such as entry/y,entry/x",
        json_schema_extra={TRUST: "is the source of positions that this machine connects to", ADDRESS: True},
    )
    folder: Path | None = Field(
        default=None, description="New folder for the scan that is received; none: one named after the result"
    )
    timeout: float | None = Field(
        default=None,
        gt=0,
        le=MOST_SECONDS,
        allow_inf_nan=False,
        description="Time in which the scan has to begin; none: no limit [s]",
    )
    plan: PlanSection = Field(description="What is known of the scan before it is measured")

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        live_addresses(self.source, self.positions)
        if self.positions == "planned" and self.plan.positions is None:
            raise InvalidValueError(
                "positions is 'planned', and plan.positions is missing; expected where they come from, such as "
                f"{example('positions')}",
                code="acquisition.no-positions",
            )
        return self

    def resolved(self, folder: Path, result: Path) -> Self:
        """Return the section with paths relative to `folder`, and a folder for the scan, named after the result."""
        chosen = self.folder or result.with_name(f"{result.stem}.live")
        source = self.source if "://" in self.source else str((folder / expanded(Path(self.source))).absolute())
        return self.model_copy(
            update={
                "source": source,
                "folder": (folder / expanded(chosen)).absolute(),
                "plan": self.plan.resolved(folder),
            }
        )
