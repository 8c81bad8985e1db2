"""What a user waits for beside the updates: the wall clock of the public calls over the engine's own clock.

usage: python -m tests.benchmarks.waiting [--rounds 3] [--where process cluster stub] [--device cpu]

Runs of 484 patterns of 128 x 128 (batch 16) and of 100 patterns of 64 x 64 in this process and on a cluster of one
engine; an engine whose epochs take 2.2 ms and no processor, as on a GPU; the time until a command is applied, and this
process knows it. To be run on a quiet machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import ptynb as pt
from ptynb.data.engine_records import Epoch
from ptynb.data.scan import Scan
from ptynb.engine.loop import Loop
from ptynb.settings.cluster_options import Device

STUB_SECONDS = 2.2e-3


def main() -> None:
    """Prints medians over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--where", nargs="*", default=["process", "cluster", "stub"])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    chosen = parser.parse_args()
    device: Device = chosen.device
    warnings.simplefilter("ignore", pt.PtynbWarning)
    small, large = pt.simulate(patterns=100, window=64, seed=1), pt.simulate(patterns=484, window=128, seed=1)
    if "process" in chosen.where:
        loops("process, 64 x 64", small, pt.Settings(), device, chosen.rounds)
        loops("process, 128 x 128", large, pt.Settings(batch=16), device, chosen.rounds)
    if "cluster" in chosen.where:
        began = time.perf_counter()
        with pt.Cluster(1, device=device) as cluster:
            print(f"cluster of one engine: started in {time.perf_counter() - began:.2f} s")
            loops("cluster, 64 x 64", small, pt.Settings(), cluster, chosen.rounds)
            loops("cluster, 128 x 128", large, pt.Settings(batch=16), cluster, chosen.rounds)
            commands(small, cluster)
    if "stub" in chosen.where:
        Loop.step = stub  # type: ignore[method-assign]
        loops("process, a GPU's epochs of 2.2 ms", small, pt.Settings(), "cpu", chosen.rounds)


def loops(name: str, scan: Scan, settings: pt.Settings, place: pt.Cluster | Device, rounds: int) -> None:
    """Time `for epoch in recon.run(...)`, and `start` with `wait`, for each epoch, in runs of about a second."""
    looped, started, of_engine = (list[float]() for _ in range(3))
    where: dict[str, Any] = {"device": place} if isinstance(place, str) else {"cluster": place}
    with pt.Reconstruction(scan, settings, checkpointing=None, **where) as recon:
        list(recon.run(5))
        epochs = max(10, round(1 / recon.epochs[-1].seconds))
        for _ in range(rounds):
            began = time.perf_counter()
            list(recon.run(epochs))
            looped.append((time.perf_counter() - began) / epochs)
            began = time.perf_counter()
            recon.start(epochs)
            recon.wait()
            started.append((time.perf_counter() - began) / epochs)
            of_engine.append(statistics.mean(epoch.seconds for epoch in recon.epochs[-epochs:]))
    more = statistics.median(a - b for a, b in zip(looped, started, strict=True))
    ratio = statistics.median(a / b for a, b in zip(started, of_engine, strict=True))
    print(
        f"{name}: run {1e3 * statistics.median(looped):.2f} ms an epoch, {1e3 * more:.2f} ms more than start and wait, "
        f"which takes {ratio:.3f} times the engine's clock"
    )


def commands(scan: Scan, cluster: pt.Cluster) -> None:
    """Time commands during a run, until the call returns: then they are applied and known here."""
    with pt.Reconstruction(scan, pt.Settings(), cluster) as recon:
        recon.start(100_000)
        rates = iter(range(1000))

        def change() -> None:
            recon.settings = recon.settings.replace(probe={"learning_rate": 0.1 + 1e-6 * next(rates)})

        for name, call in {
            "settings": change,
            "pause": recon.pause,
            "resume": recon.resume,
            "checkpoint": recon.save_checkpoint,
        }.items():
            print(f"{name}: {1e3 * median_of(call):.1f} ms")
        print(f"an update: {1e3 * recon.epochs[-1].seconds / recon.status()[0].updates_per_epoch:.1f} ms")
        recon.stop()


def median_of(call: Callable[[], Any], times: int = 15) -> float:
    """Return the median time of a call [s]."""
    seconds = []
    for _ in range(times):
        time.sleep(0.05)
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def stub(loop: Loop) -> None:
    """Take the time of an epoch on a GPU."""
    time.sleep(STUB_SECONDS)
    loop.epoch += 1
    loop.epochs.append(Epoch(loop.epoch, 1.0, STUB_SECONDS, 1.0, time.time()))


if __name__ == "__main__":
    main()
