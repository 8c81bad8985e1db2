"""How many engines, and what they tell each other: measured for some seconds, then foreseen, before the user waits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import Device, counted, plan_for
from ptynb.data.scan import Scan
from ptynb.data.snapshot import as_plain
from ptynb.exceptions import SettingsError
from ptynb.optimize.batching import can_share
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Workload, check_room, lacks, room_for
from ptynb.planning.performance import Cost, Measured, cost_of, measure, running
from ptynb.settings import THIN_ONLY, Settings
from ptynb.table import Table, Tabular, duration, gigabytes

EVERY = 8
"""Updates between two averages that are looked at, where the settings ask for none."""
WORTH = 1.05
"""More engines, and another exchange, are advised where they are faster by this factor."""


@dataclass(frozen=True)
class Option:
    """One way to run, and what it would take. exchange, every: `Settings.gradient_sync` and `Settings.sync_every`."""

    engines: int
    exchange: str
    every: int
    cost: Cost

    @property
    def same(self) -> bool:
        """Whether the answer is that of one engine with the same batch."""
        return self.every == 1 or self.engines == 1

    @property
    def words(self) -> str:
        """'4 engines that exchange what windows touch'."""
        if self.engines == 1:
            return "1 engine"
        what = "what windows touch" if self.exchange == "sparse" else "the whole object"
        when = "" if self.every == 1 else f" every {self.every} updates"
        return f"{self.engines} engines that exchange {what}{when}"


@dataclass(frozen=True)
class Advice(Tabular):
    """What would be fastest for this scan, with all that was looked at and all that was measured.

    settings: as plain values. measured: by number of engines.
    """

    scan: str
    device: str
    settings: dict[str, Any]
    options: tuple[Option, ...]
    measured: dict[int, Measured]

    @property
    def best(self) -> Option:
        """The fastest with the answer of one engine; of those that hardly differ, the one with fewest engines."""
        return _best([option for option in self.options if option.same])

    @property
    def sentence(self) -> str:
        """The advice in words, with its figures."""
        best, alone = self.best, next((option for option in self.options if option.engines == 1), self.options[0])
        text = f"Fastest for {self.scan} on {self.device}: {best.words}, {duration(best.cost.epoch)} an epoch"
        if best.engines > 1 and alone.engines == 1:
            text += (
                f", {alone.cost.epoch / best.cost.epoch:.2g} times as fast as 1 engine ({duration(alone.cost.epoch)})"
            )
        slower = [option for option in self.options if option.same and option.engines > best.engines]
        if slower:
            other = min(slower, key=lambda option: option.cost.epoch)
            text += f"; {counted(other.engines, 'engine')} would take {duration(other.cost.epoch)}"
        own_ways = [option for option in self.options if not option.same]
        if own_ways and (loose := _best(own_ways)).cost.epoch * WORTH < best.cost.epoch:
            text += (
                f"; {loose.words} would take {duration(loose.cost.epoch)}, "
                "but their answer is not that of one engine (sync_every)"
            )
        return f"{text}."

    def table(self) -> Table:
        """All options."""
        rows = tuple(
            (
                option.words + ("  ←" if option == self.best else ""),
                gigabytes(option.cost.wire) if option.engines > 1 else "-",
                duration(option.cost.computing),
                duration(option.cost.exchanging) if option.engines > 1 else "-",
                duration(option.cost.epoch),
                "yes" if option.same else "no",
            )
            for option in self.options
        )
        heads = ("", "sent an update", "computing", "exchanging", "epoch", "one engine's answer")
        return Table(heads, rows, self.sentence)

    def to_plain(self) -> dict[str, Any]:
        """All of it as what JSON can hold, the advice in words among it."""
        return super().to_plain() | {"advice": self.sentence, "best": as_plain(self.best)}


def advise(
    scan: Scan,
    settings: Settings | None = None,
    engines: int | Cluster | None = None,
    *,
    device: Device = "auto",
) -> Advice:
    """How many engines and which exchange between them would be fastest for this scan, from a few seconds' measuring.

    engines: at most this many (None: one a GPU, or 2 on the CPU), which are started and stopped again; or a cluster
    that is idle. device: what they compute on.

    Measured are updates with a small part of the scan, on 1, 2, 4 ... engines at the same time, and sums of messages
    between them; the rest follows from the model of `driver.cost`. What would overlap is counted in full, and reading
    the patterns not at all. Raises ClusterError where such engines can't be had or are at work, ValueError where scan
    and settings don't go together or can't fit on any number of engines.
    """
    settings = settings or Settings()
    check_together(scan, settings)
    plan, held = (
        (engines.plan, engines.held_bytes()) if isinstance(engines, Cluster) else (plan_for(engines, device), 0)
    )
    counts = [count for count in counts_to(len(plan.engines)) if can_share(scan, settings, count)]
    room = room_for(plan.on_gpu, held)
    fitting = [count for count in counts if lacks(scan, Workload(settings, count), room) is None]
    check_room(scan, Workload(settings, (fitting or counts)[0]), room)
    with running(engines, device) as cluster:
        measured = measure(cluster, scan, settings, fitting)
    return Advice(
        scan=scan.name,
        device=plan.engines[0].kind,
        settings=settings.model_dump(mode="json"),
        options=options_of(scan, settings, measured),
        measured=measured,
    )


def counts_to(most: int) -> list[int]:
    """1, 2, 4 ... and `most`."""
    return sorted({*(2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most), most})


def options_of(scan: Scan, settings: Settings, measured: Mapping[int, Measured]) -> tuple[Option, ...]:
    """Every number of engines with every exchange that these settings allow, and what each would take."""
    every = settings.sync_every if settings.sync_every > 1 else EVERY
    ways = [settings.replace(gradient_sync="dense", sync_every=1)]
    if settings.optimiser not in ("lbfgs", *THIN_ONLY):
        ways.append(ways[0].replace(gradient_sync="sparse"))
    with contextlib.suppress(SettingsError):  # steps that follow from sums over all engines
        ways.append(settings.replace(gradient_sync="sparse", sync_every=every))
    return tuple(
        Option(count, way.gradient_sync, way.sync_every, cost_of(scan, way, count, found))
        for count, found in sorted(measured.items())
        for way in (ways if count > 1 else ways[:1])
    )


def _best(options: list[Option]) -> Option:
    """The fastest; others come before it where they are as fast within `WORTH` and simpler."""
    fastest = min(option.cost.epoch for option in options)
    near = [option for option in options if option.cost.epoch <= WORTH * fastest]
    return min(near, key=lambda option: (option.engines, option.cost.epoch))
