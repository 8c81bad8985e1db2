"""Settings as they were before what was changed on the way."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ptynb.data.record import Change
from ptynb.settings.validation import flat


def settings_before(settings: Mapping[str, Any], changes: Sequence[Change]) -> dict[str, Any]:
    """The settings (plain values) before these changes of theirs; other lines of the record are passed over."""
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
