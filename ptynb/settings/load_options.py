"""Options of `ptynb.load`, defined once for Python, run files and the command line.

To add an option, add a field here, and use it where scans are created (`ptynb.io.load`) or files are read
(`ptynb.io.formats`).
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, model_validator
from pydantic.config import JsonDict

from ptynb.data.electrons import electron_wavelength
from ptynb.data.geometry import Geometry, NearField, wavelength_from_energy
from ptynb.data.optics.lens import lens_aberrations
from ptynb.exceptions import InvalidTypeError, InvalidValueError, SettingsError, about
from ptynb.settings.base_models import FileSection, cause_of
from ptynb.settings.field_docs import DOCUMENTED_TYPE, documented_by
from ptynb.text import quoted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    FileOrArray = str | Path | ArrayLike | None
else:
    FileOrArray = Any  # pydantic has no type for array-like objects

P = ParamSpec("P")
R = TypeVar("R")


def _pair(value: Any) -> Any:
    """Convert a number to a pair of equal numbers (y, x), and an array to a tuple."""
    if isinstance(value, int | float | np.number):
        return (value, value)
    return tuple(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else value


Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Finite = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**9)]
FILE_OR_ARRAY: JsonDict = {DOCUMENTED_TYPE: "str, Path or array_like"}
ONE_OR_TWO = BeforeValidator(_pair)
"""Validator of a pair (y, x), for which a single number is accepted."""


def _named_numbers(value: Any) -> Any:
    """Convert 'C12=2e-9@0.5, C30=1e-3', as it is typed, to {"C12": ("2e-9", "0.5"), "C30": "1e-3"}."""
    if not isinstance(value, str):
        return value
    named: dict[str, Any] = {}
    for part in filter(None, map(str.strip, value.split(","))):
        name, equals, numbers = map(str.strip, part.partition("="))
        if not equals:
            raise InvalidValueError(
                f"{quoted(part)} is no aberration; expected text such as 'C12=2e-9@0.5, C30=1e-3': magnitudes [m], "
                "and after an @ the azimuth [rad]",
                code="argument.invalid-value",
            )
        magnitude, at, azimuth = numbers.partition("@")
        named[name] = (magnitude, azimuth) if at else magnitude
    return named


def aberrations_as_text(aberrations: Mapping[str, Any]) -> str:
    """Return aberrations as they are typed: 'C12=2e-09@0.5,C30=0.001'."""
    pairs = ((name, value if isinstance(value, tuple | list) else (value,)) for name, value in aberrations.items())
    return ",".join(f"{name}={'@'.join(str(one) for one in value)}" for name, value in pairs)


MAY_BE_ARRAYS = ("positions", "motion", "mask", "probe")
"""Options that are arrays, or names of datasets or files."""


class LoadOptions(FileSection):
    """What a scan's file lacks or has wrong. These values take precedence over those in the file."""

    patterns: str | None = Field(
        title="Dataset of the patterns",
        default=None,
        description="Name of the dataset of patterns, such as 'entry/data/data', if there are several",
    )
    positions: FileOrArray = Field(
        title="Positions from",
        default=None,
        description="Positions (pattern, yx) of the probe on the sample: name of a dataset, or file (.npy, text)",
        json_schema_extra=FILE_OR_ARRAY,
    )
    motion: FileOrArray = Field(
        title="Motion from",
        default=None,
        description="Displacement (pattern, yx) of each position during its exposure, for fly scans: name of a "
        "dataset, or file (.npy, text)",
        json_schema_extra=FILE_OR_ARRAY,
    )
    mask: FileOrArray = Field(
        title="Mask from",
        default=None,
        description="Mask (y, x), true where the detector works: name of a dataset, or file (.npy, .h5, text)",
        json_schema_extra=FILE_OR_ARRAY,
    )
    probe: FileOrArray = Field(
        title="Probe from",
        default=None,
        description="First guess (y, x) or (mode, y, x) of the probe, complex: name of a dataset, or file (.npy)",
        json_schema_extra=FILE_OR_ARRAY,
    )
    convergence_angle: Annotated[float, Field(gt=0, lt=1.5, allow_inf_nan=False)] | None = Field(
        title="Convergence angle",
        default=None,
        description="Semi-angle of the beam: the first guess of the probe is that of a round aperture and a lens [rad]",
    )
    defocus: Finite = Field(
        title="Defocus",
        default=0.0,
        description="Distance from the focus to the sample, positive downstream (overfocus): the aberration C10 [m]",
    )
    aberrations: Annotated[Mapping[str, float | tuple[float, float]] | None, BeforeValidator(_named_numbers)] = Field(
        title="Aberrations",
        default=None,
        description="Further aberrations of the lens by Krivanek's or Haider's names, each a magnitude in m, or a pair "
        "with its azimuth in rad, in the axes of the detector; as text `C12=2e-9@0.5, C30=1e-3`",
    )
    units: Literal["metres", "pixels"] = Field(
        title="Positions are in",
        default="metres",
        description="Unit of the given positions and motion: metres, or pixels of the object",
    )
    raster: tuple[Count, Count] | None = Field(
        title="Raster", default=None, description="Rows and columns of a raster scan"
    )
    step: Annotated[tuple[Finite, Finite] | None, ONE_OR_TWO] = Field(
        title="Raster step", default=None, description="Step of a raster scan (y, x), or one number for both [m]"
    )
    rotation: Finite | None = Field(
        title="Scan rotation",
        default=None,
        description="Rotation of the scan relative to the detector, from x towards y [rad]",
    )
    wavelength: Positive | None = Field(title="Wavelength", default=None, description="Wavelength of the beam [m]")
    energy: Positive | None = Field(title="Photon energy", default=None, description="Photon energy [eV]")
    voltage: Positive | None = Field(
        title="Electron voltage", default=None, description="Acceleration voltage of electrons [V]"
    )
    distance: Positive | None = Field(
        title="Detector distance", default=None, description="Distance from the sample to the detector [m]"
    )
    detector_pixel: Annotated[tuple[Positive, Positive] | None, ONE_OR_TWO] = Field(
        title="Detector pixel size",
        default=None,
        description="Size of a detector pixel (y, x), or one number for both [m]",
    )
    angular_pixel: Annotated[tuple[Positive, Positive] | None, ONE_OR_TWO] = Field(
        title="Pixel angle",
        default=None,
        description="Angle of a detector pixel seen from the sample (y, x), or one number for both [rad]",
    )
    geometry: Literal["far field", "near field"] = Field(
        title="Geometry",
        default="far field",
        description="Far field (diffraction patterns), or near field (shadows of the sample)",
    )
    focus_to_sample: Positive | None = Field(
        title="Focus to sample",
        default=None,
        description="Distance from the focus to the sample in the near field, whose beam is parallel without it [m]",
    )
    clip_negative: bool = Field(
        title="Negative counts to 0", default=False, description="Set negative counts to 0; otherwise they are an error"
    )
    links: Literal["folder", "anywhere"] = Field(
        title="Linked files",
        default="folder",
        description="Where other files that the file refers to may be: in its folder and below, or anywhere",
    )

    @model_validator(mode="after")
    def _without_conflicts(self) -> Self:
        beams = tuple(name for name in ("wavelength", "energy", "voltage") if name in self.names)
        if len(beams) > 1:
            given = " and ".join(f"{name}={getattr(self, name)}" for name in beams)
            raise InvalidValueError(
                f"{given} were given, and each of them defines the wavelength; give one of them",
                code="argument.conflict",
                fields=beams,
            )
        if self.angular_pixel is not None and (self.distance is not None or self.detector_pixel is not None):
            raise InvalidValueError(
                "angular_pixel was given beside distance or detector_pixel; give the angle, or both lengths",
                code="argument.conflict",
                fields=("angular_pixel", "distance", "detector_pixel"),
            )
        if self.is_near_field and self.angular_pixel is not None:
            raise InvalidValueError(
                f"angular_pixel={self.angular_pixel} was given and geometry is 'near field', in which an object pixel "
                "is a detector pixel divided by the magnification; give detector_pixel=(y, x) [m] instead",
                code="argument.conflict",
                fields=("angular_pixel", "geometry", "detector_pixel"),
            )
        if not self.is_near_field and self.focus_to_sample is not None:
            raise InvalidValueError(
                f"focus_to_sample={self.focus_to_sample} was given and geometry is 'far field', which does not depend "
                "on it; give geometry='near field' too, or leave it out",
                code="argument.conflict",
                fields=("focus_to_sample", "geometry"),
                proposals={"geometry": "near field"},
            )
        lens = tuple(name for name in ("defocus", "aberrations") if name in self.names)
        if self.convergence_angle is None and lens:
            raise InvalidValueError(
                f"{' and '.join(lens)} of a lens without its convergence angle; give convergence_angle= [rad] too",
                code="argument.conflict",
                fields=(*lens, "convergence_angle"),
            )
        if self.convergence_angle is not None and (self.probe is not None or self.is_near_field):
            other = "geometry is 'near field'" if self.is_near_field else "a probe was given"
            raise InvalidValueError(
                f"convergence_angle={self.convergence_angle} was given and {other}; the probe of a lens is the first "
                "guess of a far-field scan without another one: leave one of them out",
                code="argument.conflict",
                fields=("convergence_angle", "geometry" if self.is_near_field else "probe"),
            )
        with about("aberrations"):
            lens_aberrations(self.defocus, self.aberrations)
        return self

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any]) -> Self:
        """Return the options of a call. Raises InvalidTypeError for unknown names, InvalidValueError for values."""
        if not arguments:
            return cls.model_construct()
        unknown = [name for name in arguments if name not in cls.model_fields]
        if unknown:
            raise InvalidTypeError(
                f"load has no option {quoted(unknown[0])}; its options are {', '.join(cls.model_fields)}.",
                code="argument.unknown",
            )
        try:
            return cls(**arguments)
        except SettingsError as error:
            codes = [cause.code for problem in error.problems if (cause := cause_of(problem)) is not None]
            error.code = codes[0] if codes else "argument.invalid-value"
            raise error.retold(InvalidValueError, str(error)) from None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the options that differ from their defaults."""
        return tuple(self.arguments)

    @property
    def arguments(self) -> dict[str, Any]:
        """Options that differ from their defaults, as keyword arguments of `ptynb.load`."""
        return {
            name: value
            for name, value in self
            if value is not None and not (isinstance(value, str | bool | float) and value == _default(name))
        }

    @property
    def is_near_field(self) -> bool:
        """Whether the patterns are read as shadows in the near field."""
        return self.geometry == "near field"

    @property
    def beam(self) -> float | None:
        """Wavelength [m], from the wavelength, energy or voltage; None if none of them is set."""
        if self.energy is not None:
            return wavelength_from_energy(self.energy)
        return self.wavelength if self.voltage is None else electron_wavelength(self.voltage)

    @property
    def geometry_parts(self) -> dict[str, Any]:
        """What a whole geometry consists of, by the names of options; None for what is not given."""
        distance, pixel = self.distance, self.detector_pixel
        if self.angular_pixel is not None:
            distance, pixel = 1.0, self.angular_pixel  # an angle equals the size of a pixel at a distance of one metre
        return {"energy": self.beam, "distance": distance, "detector_pixel": pixel}

    @property
    def whole_geometry(self) -> Geometry | NearField | None:
        """The geometry; None if a part of it is not given."""
        beam, distance, pixel = self.geometry_parts.values()
        if beam is None or distance is None or pixel is None:
            return None
        if not self.is_near_field:
            return Geometry(wavelength=beam, distance=distance, detector_pixel=pixel)
        focus = math.inf if self.focus_to_sample is None else self.focus_to_sample
        return NearField(wavelength=beam, focus_to_sample=focus, sample_to_detector=distance, detector_pixel=pixel)

    def resolved(self, folder: Path) -> Self:
        """Return options with paths of files relative to `folder` resolved; other names are datasets of the scan."""
        names = {name: getattr(self, name) for name in MAY_BE_ARRAYS if isinstance(getattr(self, name), str)}
        # Not pathlib's is_file, which raises an error for a dataset with a name too long for a file.
        files = {
            name: str((folder / value).absolute()) for name, value in names.items() if os.path.isfile(folder / value)
        }
        return self.model_copy(update=files)


def _default(name: str) -> Any:
    return LoadOptions.model_fields[name].default


def without_arrays(options: LoadOptions) -> LoadOptions:
    """Return the options for a run file. Raises InvalidValueError for arrays, which must be stored in files."""
    for name in MAY_BE_ARRAYS:
        if not isinstance(getattr(options, name), str | None):
            raise InvalidValueError(
                f"{name} is {quoted(getattr(options, name))}; expected the name of a dataset or a file",
                code="argument.invalid-type",
                fields=(name,),
            )
    return options


def takes_load_options(
    options: Callable[P, LoadOptions],
) -> Callable[[Callable[[str | Path, LoadOptions], R]], Callable[Concatenate[str | Path, P], R]]:
    """Return a decorator that replaces the parameter `options` of a function (path, options) by keyword arguments.

    They are added to its signature, and their descriptions replace `{options}` in its docstring.
    """

    def decorate(function: Callable[[str | Path, LoadOptions], R]) -> Callable[Concatenate[str | Path, P], R]:
        @functools.wraps(function)
        def call(path: str | Path, *not_named: Any, **arguments: Any) -> R:
            if not_named:
                raise InvalidTypeError(
                    f"{function.__name__} was called with {1 + len(not_named)} arguments without a name; expected the "
                    "path only: name the others, such as energy=8e3.",
                    code="argument.invalid-type",
                )
            return function(path, LoadOptions.from_arguments(arguments))

        return documented_by(LoadOptions)(call)  # type: ignore[return-value]

    return decorate
