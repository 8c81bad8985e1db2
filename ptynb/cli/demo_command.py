"""`ptynb demo`: a simulated scan, reconstructed from its file, or while an emulated detector sends it."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ptynb.cli.arguments import add_cluster_options
from ptynb.private_folder import make_folder
from ptynb.progress import follow, follow_live
from ptynb.systems import NEW_GROUP

if TYPE_CHECKING:
    from ptynb.data.scan import Scan

DEMO_EPOCHS = 40
LIVE_SECONDS = 20.0
"""Time that the emulated measurement lasts by default [s]."""
FAULTS = ("--drop", "0.02", "--duplicate", "0.02", "--shuffle", "5")
"""What goes wrong with it, as options of `ptynb emulate`."""
START_SECONDS = 60.0
"""Time in which the emulated detector has to begin [s]."""
END_SECONDS = 5.0
"""Time in which it has to end, before it is killed [s]."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    demo = commands.add_parser("demo", help="simulate and reconstruct a scan, write result, figure and report")
    add_cluster_options(demo, "engines", "device", device="auto")
    demo.add_argument(
        "--epochs", type=int, default=DEMO_EPOCHS, metavar="N", help=f"number of epochs (default {DEMO_EPOCHS})"
    )
    demo.add_argument("--folder", type=Path, default=Path("ptynb-demo"), help="folder for result, figure and report")
    demo.add_argument(
        "--live", action="store_true", help="reconstruct while an emulated detector sends the scan; then all epochs"
    )
    demo.add_argument(
        "--rate",
        type=float,
        metavar="HZ",
        help=f"with --live: patterns per second (default: the scan takes {LIVE_SECONDS:g} s)",
    )
    demo.set_defaults(run=_demo)


def _demo(chosen: argparse.Namespace) -> int:
    started = time.perf_counter()
    console = Console()
    import ptynb as pt
    from ptynb.exceptions import InvalidValueError
    from ptynb.figures.figure import compare_with_truth, figure
    from ptynb.report.report_file import report

    if chosen.rate is not None and not (chosen.live and 0 < chosen.rate <= 1e6):
        raise InvalidValueError(
            f"--rate is {chosen.rate:g}; expected 0 to 1e6 patterns per second, and --live.",
            code="argument.invalid-value",
        )
    folder: Path = chosen.folder
    make_folder(folder)
    scan = pt.simulate(patterns=529, window=96, modes=2, seed=1)
    _say(console, f"Scan:    {scan!r}")
    settings = pt.Settings(probe=pt.Probe(modes=2))
    written: dict[str, object] = {}
    with pt.Cluster(chosen.engines, device=chosen.device) as cluster, contextlib.ExitStack() as emulation:
        _say(console, f"Cluster: {cluster!r}")
        measured = scan
        if chosen.live:
            # A new folder each time, as `listen` demands: a scan that was measured is not overwritten.
            received = folder.absolute() / time.strftime("scan-%Y%m%d-%H%M%S")
            path = folder / "simulated.h5"
            pt.save_scan(scan, path)
            measured = emulation.enter_context(_measured(scan, path, received, chosen.rate, console))
            written["Scan"] = received / "scan.h5"
        recon = pt.Reconstruction(measured, settings, cluster)
        (follow_live if chosen.live else follow)(recon, chosen.epochs, console)
        written = {"Result": recon.save(folder / "result.h5"), **written}
        result = recon.result
    assert scan.ground_truth is not None
    figure(result, scan.ground_truth).savefig(folder / "figure.png", dpi=130)
    report(result, folder / "report.html", title="ptynb demo: a simulated scan", ground_truth=scan.ground_truth)
    error = compare_with_truth(result, scan.ground_truth).error
    _say(
        console,
        f"Loss {result.losses[-1]:.5f}, R-factor {result.r_factor:.4f}, error against the ground truth {error:.4f}, "
        f"{time.perf_counter() - started:.0f} s in all.",
    )
    written |= {"Figure": folder / "figure.png", "Report": folder / "report.html", "Next": "ptynb lab"}
    _say(console, "\n".join(f"{name + ':':<8} {path}" for name, path in written.items()))
    return 0


@contextlib.contextmanager
def _measured(scan: Scan, path: Path, folder: Path, rate: float | None, console: Console) -> Iterator[Scan]:
    """Start an emulated detector that sends the scan, which is in the file `path`, and a receiver; end both.

    Yields the scan that is received in `folder`.
    """
    import ptynb as pt
    from ptynb.acquisition.emulators.playback import Recording
    from ptynb.data.arrivals import Acquisition

    rate = len(scan) / LIVE_SECONDS if rate is None else rate
    words = ["emulate", str(path), "--as", "stream2", "--rate", f"{rate:g}", *FAULTS]
    with _detector(words) as address:
        _say(console, f"Source:  {address}, by: ptynb {shlex.join(words)}")
        plan = pt.Plan(positions=Recording(scan).positions, name="demo")
        live = pt.listen(address, plan=plan, folder=folder, timeout=START_SECONDS)
        _say(console, f"Live:    {live!r}")
        try:
            yield live
        finally:
            # A run that was interrupted: nobody waits for the rest of the scan.
            if isinstance(live.acquisition, Acquisition) and live.acquisition.index().ended is None:
                live.acquisition.stop()


@contextlib.contextmanager
def _detector(words: list[str]) -> Iterator[str]:
    """Run `ptynb emulate` as a process of its own, and end it. Yields the address at which it sends patterns."""
    from ptynb.exceptions import AcquisitionError

    # An interrupt at the keyboard is for this process, which ends the other one.
    with subprocess.Popen(
        [sys.executable, "-m", "ptynb.cli.main", *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        creationflags=NEW_GROUP,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.search(r'listen\("([^"]+)"', line)
            if address is None:
                raise AcquisitionError(
                    f"The emulated detector ended with status {process.wait(END_SECONDS)}.", code="acquisition.failed"
                )
            yield address[1]
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            process.kill()


def _say(console: Console, text: str) -> None:
    """Print a text without line breaks in paths."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
