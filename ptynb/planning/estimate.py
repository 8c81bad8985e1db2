"""Memory of an engine and time of an epoch, estimated before a reconstruction."""

from __future__ import annotations

from dataclasses import dataclass

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import Device, plan_for
from ptynb.data.scan import Scan
from ptynb.loading.engine_patterns import Storage
from ptynb.optimize.batching import batch_text, check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Item, Room, Workload, memory_of, place_of_patterns, refusal, room_for, totals
from ptynb.planning.performance import cost_of, measure, running
from ptynb.settings import Settings
from ptynb.table import Table, Tabular, duration, gigabytes
from ptynb.text import counted


@dataclass(frozen=True)
class Estimate(Tabular):
    """Peak memory of an engine and time of an epoch.

    Parameters
    ----------
    engines : int
        Number of engines.
    device : str
        "CPU" or the name of the GPU.
    batch : str
        Effective batch size, as text.
    items : tuple of Item
        Memory of one engine by purpose [bytes].
    place : {"device", "host", "disk"}
        Storage of the patterns.
    room : Room
        Available memory [bytes].
    problem : str or None
        What does not fit, with a remedy; None if everything fits.
    seconds : float or None
        Time of an epoch [s]; None without a measurement.
    """

    engines: int
    device: str
    batch: str
    items: tuple[Item, ...]
    place: Storage
    room: Room
    problem: str | None
    seconds: float | None

    @property
    def bytes(self) -> float:
        """Memory of one engine on its GPU, or of the host without a GPU [bytes]."""
        return totals(self.items)["host" if self.room.device is None else "device"]

    def table(self) -> Table:
        """Return items, their sums and the available memory.

        Returns
        -------
        Table
            One row per item and sum.
        """
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
    """Estimate memory of each engine and time of an epoch, before a reconstruction.

    The memory is counted; the time holds for a machine without other load.

    Parameters
    ----------
    scan : Scan
        The data set.
    settings : Settings, optional
        Settings of the reconstruction. None: the defaults.
    engines : int or Cluster, default 1
        Number of engines, or an idle cluster.
    device : {"auto", "cpu", "cuda", "xpu"}, default "auto"
        Device of the engines.
    measure_time : bool, default True
        Whether to measure some updates with a small part of the scan, for some seconds, on temporary engines or those
        of the cluster. Nothing is measured if the memory does not suffice.

    Returns
    -------
    Estimate
        Memory by purpose, available memory, and time of an epoch.

    Raises
    ------
    ClusterError
        The engines cannot be started or are in use.
    SettingsError
        Scan and settings are incompatible.
    """
    settings = settings or Settings()
    check_together(scan, settings)
    plan = engines.plan if isinstance(engines, Cluster) else plan_for(engines, device)
    count = len(plan.engines)
    check_shares(scan, settings, count)
    held = engines.held_bytes() if isinstance(engines, Cluster) else 0
    workload, room = Workload(settings, count), room_for(plan.on_gpu, held, plan.engines_per_gpu)
    place = place_of_patterns(scan, workload, room)
    problem = refusal(scan, workload, room)
    seconds = None
    if measure_time and problem is None:
        with running(engines, device) as cluster:
            found = measure(cluster, scan, settings, [count])[count]
        seconds = cost_of(scan, settings, count, found).epoch
    return Estimate(
        engines=count,
        device=plan.engines[0].kind,
        batch=batch_text(settings, count, len(scan)),
        items=memory_of(scan, workload, place, room.device is not None),
        place=place,
        room=room,
        problem=problem,
        seconds=seconds,
    )


def _where(where: str, room: Room) -> str:
    return "GPU" if where == "device" and room.device is not None else "memory"
