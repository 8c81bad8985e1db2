"""A record of changes as what there is to do again: these settings, before this update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptynb.data.record import Change
from ptynb.settings.settings import Settings
from ptynb.settings.validation import flat, merge


@dataclass(frozen=True)
class Step:
    """Settings that were taken over at once.

    epoch, update: completed before it. names: of those that changed. settings: all, from then on.
    """

    epoch: int
    update: int
    names: tuple[str, ...]
    settings: Settings


def steps_of(began_with: Mapping[str, Any], changes: Sequence[Change]) -> tuple[Step, ...]:
    """The steps of a record, in order; its lines that are about no setting are passed over.

    began_with: all settings at the start, as plain values. Raises SettingsError where they lead to none that can be.
    """
    known = {name for name, _ in flat(Settings(**began_with).model_dump())}
    groups: list[list[Change]] = []
    for change in changes:
        if change.name in known:
            if groups and _at_once(groups[-1], change):
                groups[-1].append(change)
            else:
                groups.append([change])
    present, steps = Settings(**began_with), []
    for group in groups:
        values = present.model_dump()
        for change in group:
            values = merge(values, _nested(change.name, change.new))
        present = Settings(**values)
        names = tuple(change.name for change in group)
        steps.append(Step(group[0].epoch, group[0].update, names, present))
    return tuple(steps)


def _at_once(group: Sequence[Change], change: Change) -> bool:
    """Whether it was given together with these.

    A restructuring is written down with one time for all its lines. Settings that may change while it runs have one
    each, and whether these were given in one breath or two makes no difference.
    """
    first = group[0]
    if (first.epoch, first.update) != (change.epoch, change.update) or change.name in {one.name for one in group}:
        return False
    live = all(Settings.is_live(one.name) for one in (*group, change))
    return live or first.when == change.when


def _nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return {**value}
