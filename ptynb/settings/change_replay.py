"""Replay and undo of the recorded changes of settings."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptynb.data.record import Change
from ptynb.settings.base_models import flat, merge, nested
from ptynb.settings.settings import Settings


@dataclass(frozen=True)
class Step:
    """Settings that were changed together.

    epoch, update: completed before. names: of the settings that changed. settings: all of them from then on. when: time
    [s since 1970]; 0: unknown.
    """

    epoch: int
    update: int
    names: tuple[str, ...]
    settings: Settings
    when: float = 0.0


def steps_of(initial: Mapping[str, Any], changes: Sequence[Change]) -> tuple[Step, ...]:
    """Group recorded changes into steps, in order; changes of anything but settings are skipped.

    Those of the stages of a run, which have the time of the entry "stage", are part of the settings of later steps, but
    no steps: the stages repeat them.

    initial: all settings at the start, as plain values. Raises SettingsError if the settings of a step are invalid.
    """
    known = {name for name, _ in flat(Settings(**initial).model_dump())}
    groups: list[list[Change]] = []
    stages = {change.when for change in changes if change.name == "stage"}
    for change in changes:
        if change.name in known:
            by_stage = change.when in stages or (bool(groups) and groups[-1][0].when in stages)
            if groups and (groups[-1][0].when == change.when if by_stage else _belongs_to(groups[-1], change)):
                groups[-1].append(change)
            else:
                groups.append([change])
    present, steps = Settings(**initial), []
    for group in groups:
        values = present.model_dump()
        for change in group:
            values = merge(values, nested({change.name: change.new}))
        present = Settings(**values)
        names = tuple(change.name for change in group)
        if group[0].when in stages:
            continue
        steps.append(Step(group[0].epoch, group[0].update, names, present, group[0].when or 0.0))
    return tuple(steps)


def _belongs_to(group: Sequence[Change], change: Change) -> bool:
    """Whether a change was made together with those of a group.

    All changes of a reconfiguration have the same time. Live settings have a time each; whether they were changed
    together makes no difference.
    """
    first = group[0]
    if (first.epoch, first.update) != (change.epoch, change.update) or change.name in {one.name for one in group}:
        return False
    live = all(Settings.is_live(one.name) for one in (*group, change))
    return live or first.when == change.when


def settings_before(settings: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """Return the settings (plain values) before these changes; changes of anything else are skipped."""
    before = copy.deepcopy(dict(settings))
    known = {name for name, _ in flat(before)}
    for change in reversed(changes):
        if change.name in known:
            *parts, last = change.name.split(".")
            place = before
            for part in parts:
                place = place[part]
            place[last] = copy.deepcopy(change.old)
    return before
