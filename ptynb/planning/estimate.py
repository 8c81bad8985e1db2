"""What a reconstruction will take, before it starts: memory of an engine, and seconds for an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import Device, counted, plan_for
from ptynb.data.scan import Scan
from ptynb.loading.placement import Place
from ptynb.optimize.batching import batch_text, check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Item, Room, Workload, memory_of, place_of_patterns, refusal, room_for, totals
from ptynb.planning.performance import cost_of, measure, running
from ptynb.settings import Settings
from ptynb.table import Table, Tabular, duration, gigabytes


@dataclass(frozen=True)
class Estimate(Tabular):
    """What one of `engines` engines takes at its peak, and how long an epoch lasts.

    items: memory of one engine, by what it is for. place: where the patterns are: "device", "host" or "disk".
    room: what there is. problem: a sentence where that does not suffice, with a remedy; None where it fits.
    seconds: of an epoch [s]; None where it was not measured. batch: the effective one.
    """

    engines: int
    device: str
    batch: str
    items: tuple[Item, ...]
    place: Place
    room: Room
    problem: str | None
    seconds: float | None

    @property
    def bytes(self) -> float:
        """Of one engine: on its GPU, or in the host's memory where it has none."""
        return totals(self.items)["host" if self.room.device is None else "device"]

    def table(self) -> Table:
        """Items, their sums and what there is."""
        rows = [(item.name, _where(item.where, self.room), gigabytes(item.bytes)) for item in self.items]
        sums = totals(self.items)
        if self.room.device is not None:
            rows.append(("together, of " + gigabytes(self.room.device), "GPU", gigabytes(sums["device"])))
        host = f"together, of {gigabytes(self.room.host)}" + (" for all engines" if self.engines > 1 else "")
        rows.append((host, "memory", gigabytes(sums["host"])))
        seconds = "" if self.seconds is None else f", about {duration(self.seconds)} an epoch"
        caption = f"Each of {counted(self.engines, 'engine')} on {self.device}, batch {self.batch}{seconds}."
        if self.problem is not None:
            caption = f"{caption} {self.problem}"
        return Table(("at the peak", "where", "bytes"), tuple(rows), caption)


def estimate(
    scan: Scan,
    settings: Settings | None = None,
    engines: int | Cluster = 1,
    *,
    device: Device = "auto",
    measure_time: bool = True,
) -> Estimate:
    """Memory of each engine and seconds of an epoch, before anything is started.

    engines: how many, or a cluster that is idle. device: what they compute on: "auto" (GPUs if there are some), "cpu"
    or "cuda". measure_time: make a few updates with a small part of the scan, on engines of their own that then end (or
    the cluster's); takes some seconds. Where the memory does not suffice nothing is measured.

    The memory is counted (`driver.memory`), the time is that of an undisturbed machine.
    Raises ClusterError where such engines can't be had, ValueError where scan and settings don't go together.
    """
    settings = settings or Settings()
    check_together(scan, settings)
    plan = engines.plan if isinstance(engines, Cluster) else plan_for(engines, device)
    count = len(plan.engines)
    check_shares(scan, settings, count)
    held = engines.held_bytes() if isinstance(engines, Cluster) else 0
    asked, room = Workload(settings, count), room_for(plan.on_gpu, held)
    place = place_of_patterns(scan, asked, room)
    problem = refusal(scan, asked, room)
    seconds = None
    if measure_time and problem is None:
        with running(engines, device) as cluster:
            found = measure(cluster, scan, settings, [count])[count]
        seconds = cost_of(scan, settings, count, found).epoch
    return Estimate(
        engines=count,
        device=plan.engines[0].kind,
        batch=batch_text(settings, count, len(scan)),
        items=memory_of(scan, asked, place, room.device is not None),
        place=place,
        room=room,
        problem=problem,
        seconds=seconds,
    )


def _where(where: str, room: Room) -> str:
    return "GPU" if where == "device" and room.device is not None else "memory"
