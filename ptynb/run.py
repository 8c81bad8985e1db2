"""A reconstruction on processes of another launcher: `torchrun --nproc-per-node 4 -m ptynb.run FILE`.

Each process is a rank, given by torchrun or Kubernetes in RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR
and MASTER_PORT. Without them there is one rank. The file and the options are those of `ptynb run`; of its cluster
section only device and threads are used. The result is that of a cluster with as many engines. Ranks cannot ask for
confirmation: a file with a `checkpointing.transfer` that was not confirmed to `ptynb run` needs `--trust`. A scan
that is received while it is measured (`listen`) is for `ptynb run` only.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

# torch is imported after the environment variables are set that it reads when it is loaded.
from ptynb.cli.run_command import add_options, check_plan, job_of, plan_of, print_example

if TYPE_CHECKING:
    from ptynb.batch.rank_env import Place
    from ptynb.batch.run_job import RunJob


def main(arguments: list[str] | None = None) -> int:
    """Run this rank and return the exit status, one of `ptynb.batch.exit_statuses`."""
    parser = argparse.ArgumentParser(
        prog="python -m ptynb.run", description="Ptychographic reconstruction on ranks that torchrun or a pod starts."
    )
    add_options(parser)
    chosen = parser.parse_args(arguments)
    if chosen.example:
        print_example()
        return 0
    from ptynb.batch.exit_statuses import told
    from ptynb.batch.rank_env import Place
    from ptynb.batch.signals import signals_raise, status_of_end

    place = Place()
    with signals_raise(ends_process=arguments is None):
        try:
            place = Place.of(os.environ)
            job = job_of(chosen, "python -m ptynb.run", leads=place.rank == 0)
            with job:
                _perform(chosen, place, job)
        except (ValueError, RuntimeError, OSError, MemoryError, KeyboardInterrupt) as error:
            if place.rank == 0:  # the others would print the same
                is_signal = isinstance(error, KeyboardInterrupt)
                print(f"ptynb: {'interrupted' if is_signal else told(error)}", file=sys.stderr)
            return status_of_end(error)
        return job.exit_status


def _perform(chosen: argparse.Namespace, place: Place, job: RunJob) -> None:
    """Run the rank."""
    from ptynb.batch.rank_env import take_seat
    from ptynb.exceptions import SettingsError

    plan = job.plan(plan_of(chosen))
    check_plan(plan, chosen, on_ranks=True)
    if plan.listen is not None:  # nothing distributes its patterns among hosts
        raise SettingsError(
            "The run file has a section 'listen', and ranks that torchrun or a pod starts receive no scan; use "
            "'ptynb run', which starts engines on this machine, or give the scan that was received: --scan and no "
            "'listen'.",
            code="argument.conflict",
        )
    if chosen.resume and job.is_completed(plan):
        return
    seat = take_seat(place, plan.cluster.device, plan.cluster.threads)
    from ptynb.batch import torchrun

    torchrun.run(plan, place, seat, chosen.resume, job)


if __name__ == "__main__":
    sys.exit(main())
