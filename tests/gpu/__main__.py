"""The GPU path on a real GPU, stage by stage: prints a line for each check, then PASS and FAIL counts.

usage: python -m tests.gpu [STAGE ...] [--device cuda | xpu | cpu] [--budget 540]

facts:   versions, device, Fourier transform, identity as nvidia-smi has it
same:    every part of the model, optimiser and constraint against the CPU, restored, looked at
operations: every operation with a kernel in Triton against torch's operations
graphs:  updates recorded as CUDA graphs against those without, equal bit by bit
frames:  patterns of every type on the device, on the host and in a file against the CPU
repeat:  the same settings several times, equal bit by bit
faults:  memory that runs short, on the GPU and pinned
group:   a process group of one rank: NCCL, DistributedDataParallel, sums, closing
cluster: real engines, also two on one GPU, looked at and changed while they run
pace:    time of updates, launches, busy share, waits, share of the bandwidth limit
kernels: the kernels that take most of it

Without names all stages run, as far as the budget suffices. It needs no notebook, and for all stages but `cluster` no
ipyparallel. The exit status is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch

from tests.gpu import agreement, hardware, pace
from tests.gpu.report import Report

STAGES: dict[str, Callable[[Report], None]] = {
    "facts": hardware.facts,
    "same": agreement.same,
    "operations": agreement.operations,
    "graphs": agreement.graphs,
    "frames": agreement.frames,
    "repeat": agreement.repeat,
    "faults": hardware.faults,
    "group": agreement.group,
    "cluster": agreement.cluster,
    "pace": pace.pace,
    "kernels": pace.kernels,
}
BUDGET = 540.0
"""Less than ten minutes, the limit of a command on many shared machines [s]."""


def main(arguments: list[str] | None = None) -> int:
    """Run the chosen stages and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; none: all of them")
    parser.add_argument("--device", default="cuda", choices=("cuda", "xpu", "cpu"))
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds after which nothing else is begun")
    chosen = parser.parse_args(arguments)
    if unknown := [name for name in chosen.stages if name not in STAGES]:
        parser.error(f"there is no stage {', '.join(unknown)}; expected some of {', '.join(STAGES)}")
    if chosen.device != "cpu" and not torch.get_device_module(chosen.device).is_available():
        parser.error(f"torch finds no GPU ({chosen.device}); give --device cpu to try the stages themselves")
    device = torch.device("cpu" if chosen.device == "cpu" else f"{chosen.device}:0")
    return run_stages(chosen.stages or [*STAGES], Report(device, time.monotonic() + chosen.budget))


def run_stages(names: list[str], report: Report) -> int:
    """Run stages in this order, print the table, and return the exit status."""
    for name in names:
        if report.out_of_time:
            report.left_out(name, "whole stage", "the budget is spent")
            continue
        began = time.perf_counter()
        with report.attempt(name, "whole stage"):
            STAGES[name](report)
        print(f"--- {name}: {time.perf_counter() - began:.1f} s", flush=True)
    print(f"\n{report.table()}\n")
    for failure in report.failures:
        print(failure)
    passed = sum(outcome.verdict == "pass" for outcome in report.outcomes)
    print(
        f"PASS {passed}, FAIL {len(report.failures)}, left out {len(report.outcomes) - passed - len(report.failures)}"
    )
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
