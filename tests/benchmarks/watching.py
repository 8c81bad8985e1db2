"""What watching costs: epoch times with the live view's pictures pulled, over those without, in turn, in one run.

usage: python tests/benchmarks/watching.py [--engines 2] [--rate 10] [--rounds 6] [--epochs 8] [--step 42] [--threads N]

Problem: 484 patterns of 128 x 128, one mode, batch 16, as large as the packages' common problem A; with 42 pixels from
one position to the next the object has about 1024 x 1024 pixels, with 8 it is that of problem A (300 x 300). No browser
runs; what a view asks of engines and kernel (the record, and pictures encoded on rank 0) is asked the same way.
"""

from __future__ import annotations

import argparse
import statistics

import ptynb as pt
from ptynb.widgets.live import Live


def main() -> None:
    """Prints the ratio of the medians, and both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--step", type=float, default=42.0)
    parser.add_argument("--threads", type=int, default=None, help="of an engine; leave a core to the one who looks")
    chosen = parser.parse_args()
    scan = pt.simulate(patterns=484, window=128, step=chosen.step, seed=0)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with pt.Cluster(chosen.engines, device="cpu", threads=chosen.threads) as cluster:
        recon = pt.Reconstruction(scan, pt.Settings(), cluster)
        recon.start(3)
        recon.wait()
        for turn in range(2 * chosen.rounds):
            watched = turn % 2 == 1
            view = Live(recon, rate=chosen.rate) if watched else None
            if view is not None:
                confirm(view)
            before = len(recon.epochs)
            recon.start(chosen.epochs)
            recon.wait()
            # The first epoch of a turn still meets what the other turn left behind.
            seconds[watched] += [epoch.seconds for epoch in recon.epochs[before + 1 :]]
            if view is not None:
                frames, took = view._panes.object.frame["number"], sum(e.seconds for e in recon.epochs[before:])
                height, width = view._panes.object.frame["pictures"][0]["shape"]
                print(
                    f"turn {turn}: {frames} frames of {height} x {width} in {took:.1f} s, {frames / took:.1f} a second"
                )
                view.close()
    plain, watching = (statistics.median(seconds[watched]) for watched in (False, True))
    print(
        f"{chosen.engines} engines: {plain:.4f} s an epoch, {watching:.4f} s watched {chosen.rate:g} times a second, "
    )
    print(f"ratio {watching / plain:.3f}")


def confirm(view: Live) -> None:
    """Confirms each frame at once, as a browser that keeps up does."""
    for viewer in (view._panes.object, view._panes.probe):
        viewer.observe(lambda change: setattr(change["owner"], "shown", change["new"]["number"]), "frame")


if __name__ == "__main__":
    main()
