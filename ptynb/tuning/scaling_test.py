"""Scaling tests: the same run on several numbers of engines, alternating between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ptynb.cluster.cluster import Cluster
from ptynb.cluster.devices import ClusterPlan, Device, plan_for, usable_cores
from ptynb.data.scaling_result import ScalingTest, ScalingTrial
from ptynb.data.scan import Scan
from ptynb.exceptions import PtynbError, SettingsError
from ptynb.optimize.batching import check_shares
from ptynb.physics.model_builder import check_together
from ptynb.planning.memory import Workload, check_room, room_for
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Settings, Stop
from ptynb.text import counted
from ptynb.tuning.trial import cause_of


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
    """Run the same reconstruction on several numbers of engines, alternating between them (1, 2, 4, 1, 2, 4 ...).

    Each trial starts and stops its own engines, so that trials do not share memory or caches.

    Parameters
    ----------
    scan : Scan
        Scan to reconstruct.
    settings : Settings, optional
        Settings of the reconstruction.
    engines : Sequence of int, default (1, 2, 4)
        Numbers of engines.
    trials : int, default 3
        Trials of each number.
    threads : Sequence of int, optional
        Numbers of threads per engine, each tried with each number of engines; by default the share of the cores.
    epochs : int, default 6
        Epochs of a trial; the first one is a warm-up and only counts for the loss over time.
    device : {"auto", "cpu", "cuda", "xpu"}, default "auto"
        Device of the engines; "auto" uses GPUs if there are any.
    report : callable, optional
        Function that is called with each finished trial.

    Returns
    -------
    ScalingTest
        All trials, with tables of speed and efficiency.

    Raises
    ------
    ClusterError
        If there are not enough engines, before the first trial starts.
    SettingsError
        If arguments are invalid, or the memory is not sufficient, before the first trial starts.
    """
    settings = (settings or Settings()).replace(stop=Stop())  # all trials have the same number of epochs
    _check_numbers(engines, trials, threads, epochs)
    check_together(scan, settings)
    each = [None] if threads is None else sorted(set(threads))
    plans = [plan_for(count, device, own) for count in sorted(set(engines)) for own in each]
    for plan in plans:
        check_shares(scan, settings, len(plan.engines))
        check_room(scan, Workload(settings, len(plan.engines)), room_for(plan.on_gpu, 0, plan.engines_per_gpu))
    done = []
    for number, plan in itertools.product(range(1, trials + 1), plans):
        try:
            done.append(_run(scan, settings, plan, number, epochs, device))
        except PtynbError as error:
            on = f"{counted(len(plan.engines), 'engine')} of {counted(plan.engines[0].threads, 'thread')} each"
            raise error.retold(type(error), f"Trial {number} on {on} has failed: {cause_of(error)}") from error
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
            f"epochs is {epochs}; expected at least 2, since the first one is a warm-up.",
            code="argument.invalid-value",
        )
