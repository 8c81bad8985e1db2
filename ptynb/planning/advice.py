"""Number of engines and exchange between them: predicted from a short measurement."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import Device, plan_for, usable_cores
from ptynb.data.scan import Scan
from ptynb.exceptions import SettingsError
from ptynb.optimize.batching import can_share
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import IN_TILES, Workload, check_room, lacks, room_for
from ptynb.planning.performance import Cost, Measured, cost_of, measure, running
from ptynb.settings import GLOBAL_STEPS, Settings
from ptynb.table import Table, Tabular, duration, gigabytes
from ptynb.text import counted

WORTH = 1.05
"""Factor of speed from which more engines or another exchange are advised."""
UNEQUAL = 1.5
"""Factor between the times of engines from which they are called unequal: others' load alone makes 1.2."""
WAYS = {
    "dense": "that exchange the whole object",
    "sparse": "that exchange touched blocks",
    "tiles": "with the object in tiles, from cells",
}


@dataclass(frozen=True)
class Option:
    """A number of engines with an exchange (`gradient_sync`, or "tiles"), and its cost."""

    engines: int
    exchange: str
    cost: Cost

    @property
    def words(self) -> str:
        """Return for example '4 engines that exchange touched blocks'."""
        if self.engines == 1:
            return "1 engine"
        return f"{self.engines} engines {WAYS[self.exchange]}"


@dataclass(frozen=True)
class Advice(Tabular):
    """Predicted times of several numbers of engines and exchanges.

    Parameters
    ----------
    scan : str
        Name of the scan.
    device : str
        "CPU" or the name of the GPU.
    settings : dict
        Settings as plain values.
    options : tuple of Option
        All considered options with their costs.
    measured : dict of int to Measured
        Measurements by number of engines.
    """

    scan: str
    device: str
    settings: dict[str, Any]
    options: tuple[Option, ...]
    measured: dict[int, Measured]

    @property
    def best(self) -> Option:
        """The fastest option, or a simpler one within the factor `WORTH`: of fewer engines, with the whole object."""
        fastest = min(option.cost.epoch for option in self.options)
        near = [option for option in self.options if option.cost.epoch <= WORTH * fastest]
        return min(near, key=lambda option: (option.engines, option.exchange == "tiles", option.cost.epoch))

    @property
    def sentence(self) -> str:
        """The advice as text."""
        best, alone = self.best, next((option for option in self.options if option.engines == 1), self.options[0])
        text = f"Fastest for {self.scan} on {self.device}: {best.words}, {duration(best.cost.epoch)} an epoch"
        if best.engines > 1 and alone.engines == 1:
            text += (
                f", {alone.cost.epoch / best.cost.epoch:.2g} times as fast as 1 engine ({duration(alone.cost.epoch)})"
            )
        slower = [option for option in self.options if option.engines > best.engines]
        if slower:
            other = min(slower, key=lambda option: option.cost.epoch)
            text += f"; {counted(other.engines, 'engine')} would take {duration(other.cost.epoch)}"
        if (unequal := self.measured[best.engines].unequal) > UNEQUAL:
            text += (
                f". The slowest engine, for which each update waits, takes {unequal:.2g} times as long as the fastest"
            )
        return f"{text}."

    def table(self) -> Table:
        """Return all options as a table.

        Returns
        -------
        Table
            One row per option.
        """
        rows = tuple(
            (
                option.words + ("  ←" if option == self.best else ""),
                gigabytes(option.cost.wire) if option.engines > 1 else "-",
                duration(option.cost.computing),
                duration(option.cost.exchanging) if option.engines > 1 else "-",
                duration(option.cost.epoch),
            )
            for option in self.options
        )
        heads = ("", "sent an update", "computing", "exchanging", "epoch")
        return Table(heads, rows, self.sentence)

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON, with the advice as text.

        Returns
        -------
        dict
            The attributes, "advice" and "best".
        """
        return super().to_plain() | {"advice": self.sentence, "best": dataclasses.asdict(self.best)}


def advise(
    scan: Scan,
    settings: Settings | None = None,
    engines: int | Cluster | None = None,
    *,
    device: Device = "auto",
) -> Advice:
    """Find the fastest number of engines and exchange for a scan by a measurement of a few seconds.

    Updates with a small part of the scan are measured on 1, 2, 4 ... engines at the same time, and all-reduces between
    them; the rest follows from the model in `ptynb.planning.performance`. Overlap of computing and exchange, and the
    time to read patterns, are not considered.

    Parameters
    ----------
    scan : Scan
        The data set.
    settings : Settings, optional
        Settings of the reconstruction. None: the defaults.
    engines : int or Cluster, optional
        Largest number of engines, which are started and stopped, or an idle cluster. None: one per GPU; on the CPU two
        per NUMA node.
    device : {"auto", "cpu", "cuda", "xpu"}, default "auto"
        Device of the engines.

    Returns
    -------
    Advice
        Predicted times of all options, and the fastest.

    Raises
    ------
    ClusterError
        The engines cannot be started or are in use.
    SettingsError
        Scan and settings are incompatible, or do not fit on any number of engines.
    """
    settings = settings or Settings()
    check_together(scan, settings)
    if engines is None and not (default := plan_for(None, device)).on_gpu:
        engines = min(2 * len(default.engines), usable_cores())
    plan, held = (
        (engines.plan, engines.held_bytes()) if isinstance(engines, Cluster) else (plan_for(engines, device), 0)
    )
    counts = [count for count in counts_to(len(plan.engines)) if can_share(scan, settings, count)]
    room = room_for(plan.on_gpu, held, plan.engines_per_gpu)
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
    """Return 1, 2, 4 ... and `most`."""
    return sorted({*(2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most), most})


def options_of(scan: Scan, settings: Settings, measured: Mapping[int, Measured]) -> tuple[Option, ...]:
    """Return every number of engines with every exchange that the settings allow."""
    ways = dict[str, Settings]()
    if settings.object.layout == "streamed":
        ways["streamed"] = settings
    elif settings.object.layout == "whole":
        for way in ("dense",) if settings.optimiser in GLOBAL_STEPS else ("dense", "sparse"):
            ways[way] = settings.replace(gradient_sync=way)
    with contextlib.suppress(SettingsError):  # another setting needs the whole object
        if scan.acquisition is None:
            ways["tiles"] = settings.replace(**IN_TILES)
    return tuple(
        Option(count, way, cost_of(scan, own, count, found))
        for count, found in sorted(measured.items())
        for way, own in list(ways.items())[: None if count > 1 else 1]
    )
