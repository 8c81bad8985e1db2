"""How a reconstruction scales: the same run on several numbers of engines, by turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import ClusterPlan, Device, plan_for, usable_cores
from ptynb.data.scaling_result import ScalingTest, ScalingTrial
from ptynb.data.scan import Scan
from ptynb.exceptions import SettingsError
from ptynb.optimize.batching import check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory_check import check_room, room_for
from ptynb.planning.memory_model import Workload
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings


def scaling_test(
    scan: Scan,
    settings: Settings | None = None,
    engines: Sequence[int] = (1, 2, 4),
    *,
    trials: int = 3,
    threads: Sequence[int] | None = None,
    epochs: int = 6,
    device: Device = "auto",
    report: Callable[[ScalingTrial], None] | None = None,
) -> ScalingTest:
    """Runs the same reconstruction on each number of engines, several times by turns (1, 2, 4, 1, 2, 4 ...).

    threads: of each engine, to be tried each with each number of engines; None: its share of the cores. epochs: of a
    trial, the first of which warms up and counts for the loss against time only. device: "auto" (GPUs if there are
    some), "cpu" or "cuda". report: called with each trial when it is done.

    Each trial starts engines of its own and stops them, so that none finds memory or caches of another. What can't run
    is refused before the first one starts: ClusterError for engines that can't be had, ValueError for what does not go
    together or does not fit.
    """
    settings = settings or Settings()
    _check_numbers(engines, trials, threads, epochs)
    check_together(scan, settings)
    each = [None] if threads is None else sorted(set(threads))
    plans = [plan_for(count, device, own) for count in sorted(set(engines)) for own in each]
    for plan in plans:
        check_shares(scan, settings, len(plan.engines))
        check_room(scan, Workload(settings, len(plan.engines)), room_for(plan.on_gpu))
    done = []
    for number, plan in itertools.product(range(1, trials + 1), plans):
        done.append(_run(scan, settings, plan, number, epochs, device))
        if report is not None:
            report(done[-1])
    return ScalingTest(
        scan=scan.name,
        patterns=len(scan),
        device=plans[0].engines[0].kind,
        cores=usable_cores(),
        settings=settings.model_dump(mode="json"),
        trials=tuple(done),
    )


def _run(scan: Scan, settings: Settings, plan: ClusterPlan, number: int, epochs: int, device: Device) -> ScalingTrial:
    count, threads = len(plan.engines), plan.engines[0].threads
    with (
        Cluster(count, device=device, threads=threads) as cluster,
        Reconstruction(scan, settings, cluster) as recon,
    ):
        recon.start(epochs)
        recon.wait()
        batch = min(settings.effective_batch(count), len(scan))
        return ScalingTrial(count, threads, number, batch, recon.epochs)


def _check_numbers(engines: Sequence[int], trials: int, threads: Sequence[int] | None, epochs: int) -> None:
    if not engines or min(engines) < 1:
        raise SettingsError(
            f"engines is {[*engines]}; expected numbers of engines, each at least 1.", code="argument.invalid-value"
        )
    if threads is not None and (not threads or min(threads) < 1):
        raise SettingsError(
            f"threads is {[*threads]}; expected numbers of threads, each at least 1, or None.",
            code="argument.invalid-value",
        )
    if trials < 1:
        raise SettingsError(f"trials is {trials}; expected at least 1.", code="argument.invalid-value")
    if epochs < 2:
        raise SettingsError(
            f"epochs is {epochs}; expected at least 2, since the first one only warms up.",
            code="argument.invalid-value",
        )
