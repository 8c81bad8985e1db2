"""Translation of the names that settings had in earlier versions, applied when files are read.

A rename is a line here: model (a base class includes its subclasses), earlier name, present name, and earlier values
if they have changed, too. Results and checkpoints have a version: each table below increases it by one, and only the
tables after the version of a file are applied to it. Run files and settings have none: an earlier name is accepted if
the present one is not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from ptynb.exceptions import SettingsError
from ptynb.settings.field_docs import models_in

Values = Mapping[str, str]
Table = Mapping[str, Mapping[str, str | tuple[str, Values]]]

_VERSION_0_1: Table = {
    "Part": {"rate": "learning_rate", "first": "start_epoch", "last": "end_epoch"},
    "Object": {
        "states": "modes",
        "form": ("parametrization", {"polar": "amplitude_phase"}),
        "amplitude_rate": "amplitude_learning_rate",
    },
    "OPR": {"rank": "modes"},
    "Tilt": {"each": "per_position"},
    "Positions": {"limit": "max_shift"},
    "Detector": {"blur": "psf_sigma"},
    "Schedule": {"final": "end_factor"},
    "Constraint": {
        "first": "start_epoch",
        "last": "end_epoch",
        "kind": (
            "kind",
            {
                "fixed_power": "fixed_probe_power",
                "blur": "gaussian_blur",
                "threshold": "dct_threshold",
                "tied_amplitude": "amplitude_phase_coupling",
                "centred_depth": "recenter_depth",
                "no_ramp": "remove_phase_ramp",
                "no_grid": "remove_grid_artifacts",
            },
        ),
    },
    "DCTThreshold": {"kept": "keep_fraction"},
    "Regularizer": {"kind": ("kind", {"mean_pattern": "pacbed"})},
    "Settings": {
        "offset": "probe_offset",
        "variations": "opr",
        "weights": "pattern_intensities",
        "terms": "regularizers",
        "regularisation": "rpie_alpha",
        "relaxation": "beta",
        "accumulate": "gradient_accumulation",
        "batches": "batch_sampling",
        "frames": "pattern_storage",
        "exchange": ("gradient_sync", {"touched": "sparse", "whole": "dense"}),
        "exchange_every": "sync_every",
    },
    "Checkpointing": {"last": "max_to_keep"},
    "RunFile": {"keep": "checkpointing"},
    "LocalCluster": {"lease": "detached_timeout"},
    "SlurmCluster": {"lease": "detached_timeout"},
    "SshCluster": {"lease": "detached_timeout"},
}
TABLES: tuple[Table, ...] = (_VERSION_0_1,)
"""From the earliest; models have their present names."""
_NONE: Values = {}


def translated(values: Mapping[Any, Any], model: type[BaseModel], since: int = 0, below: str = "") -> dict[Any, Any]:
    """Return plain values of a model with the present names; unknown names do not change.

    since: number of tables that the file already includes. Raises SettingsError if a value is given under an earlier
    and the present name.
    """
    result: dict[Any, Any] = {}
    for name, value in values.items():
        new, value = _renamed(name, value, [model], since, below)
        if new in result or (new != name and new in values):
            raise SettingsError(
                f"'{below}{name}' is the earlier name of '{below}{new}'; give only '{below}{new}'.",
                code="settings.given-twice",
            )
        result[new] = value
    return result


def renamed(name: str, value: Any, model: type[BaseModel], since: int = 0) -> tuple[str, Any]:
    """Return the present dotted name and value of a field of a model; those of anything else do not change."""
    models = [model]
    names: list[str] = []
    *parts, last = name.split(".")
    for part in parts:
        names.append(_renamed(part, None, models, since)[0])
        models = _models_of(names[-1], models)
    name, value = _renamed(last, value, models, since)
    return ".".join((*names, name)), value


def _renamed(name: Any, value: Any, models: list[type[BaseModel]], since: int, below: str = "") -> tuple[Any, Any]:
    """Translate a field and its content."""
    for table in TABLES[since:]:
        # Of one class and its bases only one has the field.
        for kind in (base.__name__ for model in models for base in model.__mro__):
            if (entry := table.get(kind, {}).get(name)) is not None:
                name, known = (entry, _NONE) if isinstance(entry, str) else entry
                value = known.get(value, value) if isinstance(value, str) else value
                break
    return name, _inside(value, _models_of(name, models), since, f"{below}{name}.")


def _inside(value: Any, models: list[type[BaseModel]], since: int, below: str) -> Any:
    if models and isinstance(value, Mapping):
        return translated(value, _kind_of(value, models, since), since, below)
    if models and isinstance(value, list | tuple):
        kinds = ((one, _kind_of(one, models, since) if isinstance(one, Mapping) else None) for one in value)
        return [one if kind is None else translated(one, kind, since, below) for one, kind in kinds]
    return value


def _kind_of(values: Mapping[Any, Any], models: list[type[BaseModel]], since: int) -> type[BaseModel]:
    """Return the model whose kind these values name, or the first one."""
    kind = values.get("kind")
    for table in TABLES[since:]:
        for base in models[0].__mro__:
            entry = table.get(base.__name__, {}).get("kind")
            if isinstance(entry, tuple) and isinstance(kind, str):
                kind = entry[1].get(kind, kind)
    named = (model for model in models if "kind" in model.model_fields and model.model_fields["kind"].default == kind)
    return next(named, models[0])


def _models_of(name: Any, models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """Return the models in a field; none for single values."""
    fields = (model.model_fields[name] for model in models if name in model.model_fields)
    return [inner for field in fields for inner in models_in(field.annotation)]
