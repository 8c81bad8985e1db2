"""Recipe of a reconstruction: preparation of the scan, settings, and stages, one after the other."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_serializer, model_validator

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings.base_models import MOST_EPOCHS, FileSection, SettingsModel, check_names, closest
from ptynb.settings.load_options import ONE_OR_TWO
from ptynb.settings.settings import FOLLOWING, Settings
from ptynb.settings.yaml_reader import read_mapping
from ptynb.text import quoted

PREPARATIONS: dict[str, tuple[str, ...]] = {
    "add_poisson_noise": ("dose", "seed"),
    "affine_positions": ("matrix",),
    "bin": ("factor",),
    "blur": ("sigma",),
    "calibrate_from_disc": ("convergence_angle", "wavelength"),
    "centre": ("move_probe", "mean", "patterns"),
    "crop": ("window", "centre", "move_probe"),
    "divide_flat": ("flat",),
    "flip": ("axes", "positions"),
    "flip_positions": ("axes",),
    "lens_probe": ("convergence_angle", "defocus", "aberrations"),
    "mask_bad_pixels": ("factor", "sigmas"),
    "mask_pixels": ("mask",),
    "normalise": ("counts", "monitor"),
    "pad": ("window", "measured"),
    "remove_negatives": ("threshold",),
    "resample": ("factor",),
    "rotate_positions": ("angle",),
    "select": ("which",),
    "subtract_dark": ("dark",),
    "transpose": ("positions",),
    "transpose_positions": (),
}
"""The functions of `ptynb.preparation` that return a scan, and their arguments; a test compares them."""
ARRAYS = ("dark", "flat", "mask", "matrix", "mean", "monitor", "which")
"""The arguments among them that are arrays."""
KEYWORDS = ("centre", "normalise", "transpose")
"""The functions whose arguments are all keywords."""
RANGE = re.compile(r"-?\d*:-?\d*(?::-?\d*)?")
"""A slice, as in '::2'."""
PatternSize = Annotated[int, Field(ge=4, le=2**16)]


class PrepareStep(SettingsModel):
    """A step of preparation: a function of `ptynb.preparation` and its arguments.

    In files, and in `Recipe(prepare=[...])`, a step is written as `transpose`, `{flip: y}` (the first argument), or
    `{crop: {window: 128, centre: [60, 64]}}`.
    """

    function: str = Field(description="Name of the function")
    arguments: dict[str, Any] = Field(
        default={},
        description="Its arguments besides the scan, as plain values; an array is the name of its file, or a list",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, values: Any) -> Any:
        """Accept a name, and a mapping from one name to the arguments, or to the first argument."""
        if isinstance(values, str):
            return {"function": values}
        if not isinstance(values, Mapping) or "function" in values:
            return values
        if len(values) != 1:
            raise InvalidValueError(
                f"a step of preparation has {len(values)} names; expected one function, such as 'crop: 128'",
                code="settings.invalid-value",
            )
        [(name, value)] = values.items()
        names = PREPARATIONS.get(name, ())
        if value is None:
            value = {}
        elif not isinstance(value, Mapping):
            value = {names[0] if names else "": value}
        return {"function": name, "arguments": value}

    @field_validator("function")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in PREPARATIONS:
            raise InvalidValueError(
                f"there is no such step of preparation{closest(name, PREPARATIONS)}; expected one of "
                f"{', '.join(PREPARATIONS)}",
                code="settings.unknown-name",
            )
        return name

    @model_validator(mode="after")
    def _known_arguments(self) -> Self:
        names = PREPARATIONS[self.function]
        for name in self.arguments:
            if name not in names:
                raise InvalidValueError(
                    f"'{self.function}' has no argument {quoted(name)}{closest(name, names)}; expected "
                    f"{', '.join(names) or 'none'}",
                    code="settings.unknown-name",
                )
        return self

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the arguments that are arrays in files."""
        given = {name: value for name, value in self.arguments.items() if name in ARRAYS}
        return tuple(name for name, value in given.items() if isinstance(value, str) and not RANGE.fullmatch(value))

    @property
    def ranges(self) -> dict[str, tuple[int | None, ...]]:
        """Arguments that are slices, as (start, stop) or (start, stop, step)."""
        texts = {name: value for name, value in self.arguments.items() if name in ARRAYS and isinstance(value, str)}
        return {
            name: tuple(int(one) if one else None for one in text.split(":"))
            for name, text in texts.items()
            if RANGE.fullmatch(text)
        }

    @property
    def as_python(self) -> str:
        """The step as a call: 'pt.preparation.crop(scan, 128)'; an array in a file as 'pt.prepare(scan, [...])'."""
        if self.files or self.ranges:
            return f"pt.prepare(scan, [{self.model_dump()!r}])"
        alone = "" if self.function in KEYWORDS else next(iter(PREPARATIONS[self.function]), "")
        ordered = sorted(self.arguments.items(), key=lambda argument: argument[0] != alone)
        given = [f"{value!r}" if name == alone else f"{name}={value!r}" for name, value in ordered]
        return f"pt.preparation.{self.function}({', '.join(['scan', *given])})"

    def resolved(self, folder: Path) -> Self:
        """Return the step with files relative to a folder as absolute paths.

        Parameters
        ----------
        folder : Path
            The folder.

        Returns
        -------
        PrepareStep
            The step.
        """
        paths = {name: str((folder / Path(self.arguments[name]).expanduser()).absolute()) for name in self.files}
        return self.model_copy(update={"arguments": {**self.arguments, **paths}})

    @model_serializer
    def _in_files(self) -> Any:
        return {self.function: self.arguments} if self.arguments else self.function


def _stage_settings(values: Any) -> Any:
    """Return the settings of a stage as plain values; models among them are whole parts."""
    plain = {} if values is None else _plain(values)
    if isinstance(values, Mapping):
        for part, _, field in (name.partition(".") for name in FOLLOWING):
            model = values.get(part)
            if isinstance(model, BaseModel) and field not in model.model_fields_set:
                del plain[part][field]
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


class Stage(SettingsModel):
    """A part of a run: some epochs with changed settings, or with patterns cropped to a window (coarse to fine)."""

    epochs: int = Field(ge=1, le=MOST_EPOCHS, description="Number of epochs of this stage")
    settings: Annotated[dict[str, Any], BeforeValidator(_stage_settings)] = Field(
        default={},
        description="Changes of settings relative to the stage before, as {'probe': {'modes': 3}}, or all Settings; "
        "with another optimiser, learning rates become its defaults unless they are given",
    )
    pattern_size: Annotated[tuple[PatternSize, PatternSize] | None, ONE_OR_TWO] = Field(
        default=None,
        description="Size (y, x), or one number for both, of the window about the zero frequency to which patterns are "
        "cropped in this stage [pixels]; none: whole patterns; settings in object pixels, or relative to the detector "
        "or to the Nyquist frequency, remain those of whole patterns",
    )
    reason: str = Field(default="", description="Why, as text for reports")

    def applied_to(self, before: Settings) -> Settings:
        """Return the settings of this stage.

        Parameters
        ----------
        before : Settings
            Settings of the stage before.

        Returns
        -------
        Settings
            The settings, validated.

        Raises
        ------
        SettingsError
            If names are unknown, or values are invalid or not supported together.
        """
        check_names(self.settings)
        return before.replace(**self.settings)


class Recipe(FileSection):
    """What a run does: preparation of the scan, settings, and stages that change them after some epochs.

    It is given in place of settings: `recon = pt.Reconstruction(scan, recipe, cluster)` prepares the scan, and
    `recon.start()` runs the epochs of all stages, on the engines, without waiting. Results contain the recipe, and
    `ptynb.reproduce` repeats it.

    Raises `SettingsError` if names are unknown, or the settings of a stage are invalid.
    """

    prepare: tuple[PrepareStep, ...] = Field(
        default=(), description="Steps of preparation of the scan, in this order: functions of ptynb.preparation"
    )
    settings: Settings = Field(default=Settings(), description="Settings of the reconstruction")
    stages: tuple[Stage, ...] = Field(
        default=(), description="Stages of the run, one after the other; none: all epochs with these settings"
    )

    @model_validator(mode="after")
    def _valid_stages(self) -> Self:
        check_stages(self.settings, self.stages)
        return self

    @property
    def epochs(self) -> int:
        """Number of epochs of all stages; 0 without stages."""
        return sum(stage.epochs for stage in self.stages)

    @property
    def stage_settings(self) -> tuple[Settings, ...]:
        """Settings of each stage; those of the recipe without stages."""
        if not self.stages:
            return (self.settings,)
        return StagePlan(self.stages).settings_from(self.stages[0].applied_to(self.settings))

    def in_file(self, section: str) -> str:
        """Return a section, "prepare" or "stages", as YAML for a run file.

        Parameters
        ----------
        section : str
            Name of the section.

        Returns
        -------
        str
            YAML text.
        """
        plain = self.model_dump(mode="json", include={section}, exclude_defaults=True)
        return yaml.safe_dump(plain, sort_keys=False)

    def to_yaml(self) -> str:
        """Return the recipe as YAML, which `from_yaml` reads.

        Returns
        -------
        str
            YAML text.
        """
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    @classmethod
    def from_yaml(cls, text_or_path: str | Path) -> Self:
        """Read a recipe from YAML or JSON.

        Parameters
        ----------
        text_or_path : str or Path
            The text itself (str), or the file (Path).

        Returns
        -------
        Recipe
            The recipe; defaults for fields that are missing.

        Raises
        ------
        SettingsError
            If the text is not valid YAML, names are unknown, or values are invalid.
        """
        values = read_mapping(text_or_path, "recipe", "prepare:")
        check_names(values)
        return cls(**values)


@dataclass(frozen=True)
class StagePlan:
    """The stages of a run, and the index of the present one."""

    stages: tuple[Stage, ...] = ()
    number: int = 0

    @classmethod
    def of(cls, stages: Sequence[Any], number: int) -> StagePlan:
        """Return the plan from plain values."""
        return cls(tuple(Stage(**stage) for stage in stages), number)

    @functools.cached_property
    def plain(self) -> tuple[dict[str, Any], ...]:
        """The stages as plain values."""
        return tuple(stage.model_dump(mode="json", exclude_defaults=True) for stage in self.stages)

    def to_yaml(self) -> str:
        """Return the stages as YAML, as they stand in the section of a recipe; empty if there are none."""
        return yaml.safe_dump([*self.plain], sort_keys=False) if self.stages else ""

    @property
    def end(self) -> int | None:
        """Number of epochs after which the next stage begins; None if there is none."""
        if self.number + 1 >= len(self.stages):
            return None
        return sum(stage.epochs for stage in self.stages[: self.number + 1])

    @property
    def epochs(self) -> int:
        """Number of epochs of all stages."""
        return sum(stage.epochs for stage in self.stages)

    @property
    def pattern_size(self) -> tuple[int, int] | None:
        """Size of the patterns in the present stage; None: whole patterns."""
        return self.stages[self.number].pattern_size if self.stages else None

    @property
    def following(self) -> StagePlan:
        """The plan in the next stage."""
        return replace(self, number=self.number + 1)

    def settings_from(self, settings: Settings) -> tuple[Settings, ...]:
        """Return the settings of the present and of the later stages. settings: the present ones."""
        found = [settings]
        for stage in self.stages[self.number + 1 :]:
            found.append(stage.applied_to(found[-1]))
        return tuple(found)


WITHOUT_STAGES = StagePlan()


def check_stages(settings: Settings, stages: tuple[Stage, ...]) -> None:
    """Raise InvalidValueError if the settings of a stage are invalid, or there are more epochs than a run can have."""
    for number, stage in enumerate(stages, 1):
        before = settings.components
        try:
            settings = stage.applied_to(settings)
        except SettingsError as error:
            raise error.retold(InvalidValueError, f"in the settings of stage {number}: {error}") from None
        if number > 1 and settings.components != before:
            raise InvalidValueError(
                f"stage {number} changes the components of plug-ins, which are part of the model from the beginning; "
                "give them in the settings of all stages",
                code="settings.unsupported-combination",
            )
    if settings.components and len({stage.pattern_size for stage in stages}) > 1:
        raise InvalidValueError(
            f"the stages have different pattern_size, and the component '{settings.components[0].kind}' of a plug-in "
            "cannot be resampled; use one pattern_size, or leave the component out",
            code="settings.unsupported-combination",
        )
    if sum(stage.epochs for stage in stages) > MOST_EPOCHS:
        raise InvalidValueError(
            f"the stages have more than {MOST_EPOCHS} epochs together; give fewer", code="settings.invalid-value"
        )
