"""A flow of Prefect: reconstruct every scan of a folder that has no result yet, and export the results as NeXus.

`python prefect_flow.py SCANS RUN_FILE RESULTS` runs it once; `night.serve(cron="0 20 * * *")` every evening. A task
that is retried continues from its last checkpoint.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prefect import flow, task

COMMAND = sys.executable, "-P", "-m", "ptynb.cli.main"


@task(retries=3, retry_delay_seconds=10, task_run_name="reconstruct {scan.stem}")
def reconstruct(scan: Path, run_file: Path, results: Path) -> Path:
    """Run `ptynb run` and return the path of the result."""
    result = results / f"{scan.stem}.result.h5"
    options = ["--scan", scan, "--result", result, "--keep", results / f"{scan.stem}.checkpoints", "--resume"]
    subprocess.run([*COMMAND, "run", run_file, *options], check=True)
    return result


@task
def export(result: Path) -> Path:
    """Export a result as NXcxi_ptycho."""
    written = result.with_name(result.name.replace(".result.h5", ".nxs"))
    subprocess.run([*COMMAND, "export", result, written], check=True)
    return written


@flow(name="ptynb")
def night(scans: Path, run_file: Path, results: Path) -> list[Path]:
    """Reconstruct one scan after the other, each on all GPUs, by a run file without a scan.

    One that fails does not stop the others, but the flow has failed.
    """
    results.mkdir(parents=True, exist_ok=True)
    written, failed = list[Path](), list[str]()
    for scan in sorted(scans.glob("*.h5")):
        if (results / f"{scan.stem}.nxs").exists():
            continue
        result = reconstruct(scan, run_file, results, return_state=True)
        exported = export(result.result(), return_state=True) if result.is_completed() else result
        if exported.is_completed():
            written.append(exported.result())
        else:
            failed.append(scan.name)
    if failed:
        raise RuntimeError(f"{len(written)} scans have results; {', '.join(failed)} have failed, see their tasks.")
    return written


if __name__ == "__main__":
    night(*(Path(one) for one in sys.argv[1:4]))
