"""Settings that ptynb has recorded: every reader of a result, a checkpoint or a study gets them from here.

They come back with their present names (`ptynb.settings.renamed`), and with what earlier versions did where a field did
not exist yet. What users write (run files, recipes, settings in YAML) is only translated: a missing field is a default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from ptynb.data.record import Change, RunRecord
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.ranges import PreparationValues
from ptynb.settings.recipe import Stage
from ptynb.settings.renamed import renamed, translated
from ptynb.settings.settings import Settings

R = TypeVar("R", bound=RunRecord)
EARLIER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "background": {"parametrization": "intensity"},
    "tilt": {"parametrization": "angle"},
}
"""Fields that came later, with the value that describes what earlier versions did, where it is not the default."""
SETTINGS = ("settings", "initial_settings", "begun")
"""Fields of records with all settings of a run."""
OF_SCANS: Mapping[str, type[BaseModel]] = {"load": LoadOptions, "prepare": PreparationValues}
"""First parts of the names of values that a study tries and that are no settings, with their models."""


def recorded_settings(values: Mapping[Any, Any], since: int) -> dict[Any, Any]:
    """Return all settings of a run; missing fields are those of `EARLIER_DEFAULTS`, else left to `Settings`.

    since: number of tables of `renamed.TABLES` that whoever wrote them had. Raises SettingsError as `translated`.
    """
    present = translated(values, Settings, since)
    for name, earlier in EARLIER_DEFAULTS.items():
        if isinstance(present.get(name), Mapping):
            present[name] = {**present[name], **{one: earlier[one] for one in earlier if one not in present[name]}}
    return present


def recorded_value(name: str, value: Any, since: int) -> tuple[str, Any]:
    """Return the dotted name and the value of one setting, or of a value of the scan in a study ("load.energy")."""
    group, _, rest = name.partition(".")
    if group not in OF_SCANS:
        return renamed(name, value, Settings, since)
    rest, value = renamed(rest, value, OF_SCANS[group], since)
    return f"{group}.{rest}", value


def recorded_run(record: R, since: int) -> R:
    """Return the record of a run, a result or a checkpoint, with all its settings as they are now."""
    known = {one.name for one in dataclasses.fields(record)}
    settings: dict[str, Any] = {
        name: recorded_settings(getattr(record, name), since) for name in SETTINGS if name in known
    }
    return dataclasses.replace(
        record,
        **settings,
        stages=tuple(_stage(stage, since) for stage in record.stages),
        changes=tuple(_change(change, since) for change in record.changes),
    )


def _stage(stage: Mapping[str, Any], since: int) -> dict[str, Any]:
    present = translated(stage, Stage, since)
    return {**present, "settings": translated(present.get("settings") or {}, Settings, since)}


def _change(change: Change, since: int) -> Change:
    name, old = renamed(change.name, change.old, Settings, since)
    return dataclasses.replace(change, name=name, old=old, new=renamed(change.name, change.new, Settings, since)[1])
