"""Distribution of a batch over engines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ptynb.data.scan import Scan
from ptynb.exceptions import SettingsError
from ptynb.optimize.sampler import planned_order
from ptynb.settings import WHOLE_PASSES, Settings


def patterns_of(scan: Scan, settings: Sequence[Settings], rank: int, world: int) -> NDArray[np.int64]:
    """Return the patterns that an engine needs with any of these settings, ascending; those of different stages."""
    owned = [planned_order(scan, one, world).owned(rank, world) for one in settings]
    return np.unique(np.concatenate(owned))


def batch_text(settings: Settings, engines: int, patterns: int) -> str:
    """Return the effective batch as text: '16', '64 (16 on each of 4 engines)', '13 (all patterns)'."""
    batch = settings.effective_batch(engines)
    if batch >= patterns or settings.optimiser in WHOLE_PASSES:
        return f"{patterns} (all patterns)"
    each = engines > 1 and settings.batch_per == "engine"
    return f"{batch} ({settings.batch} on each of {engines} engines)" if each else str(batch)


def can_share(scan: Scan, settings: Settings, engines: int) -> bool:
    """Return whether each engine has at least one pattern of a batch; several can't share a streamed object."""
    if settings.object.layout == "streamed" and engines > 1:
        return False
    return settings.effective_batch(engines) >= engines <= len(scan)


def check_shares(scan: Scan, settings: Settings, engines: int) -> None:
    """Raise SettingsError if some engine would have no pattern of a batch, or several a streamed object."""
    if settings.object.layout == "streamed" and engines > 1:
        raise SettingsError(
            f"object.layout is 'streamed' and there are {engines} engines; use one engine, or divide the object over "
            "them: object.layout='tiles', batch_sampling='cells'.",
            code="settings.unsupported-combination",
            fields=("object.layout",),
        )
    if not can_share(scan, settings, engines):
        raise SettingsError(
            f"{engines} engines can't share {len(scan)} patterns in batches of {settings.effective_batch(engines)}; "
            f"each needs at least one: use a batch of at least {engines}, or fewer engines.",
            code="settings.batch-too-small",
        )
