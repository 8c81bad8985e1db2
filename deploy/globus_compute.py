"""A reconstruction on an endpoint of Globus Compute, where ptynb is installed and the files are.

`python globus_compute.py ENDPOINT RUN_FILE RESULT`, with paths as the endpoint sees them. Submitted again after an
interruption, it continues from the last checkpoint.
"""

from __future__ import annotations

import argparse


def reconstruct(run_file: str, result: str) -> dict[str, object]:
    """Run a run file on the endpoint's worker, and return where its result is and how good it is.

    It imports all that it needs, as it is sent as text.
    """
    import subprocess
    import sys

    import ptynb

    options = ["--result", result, "--keep", f"{result}.checkpoints", "--resume"]
    run = subprocess.run(
        [sys.executable, "-P", "-m", "ptynb.cli.main", "run", run_file, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"ptynb run ended with status {run.returncode}: {run.stderr[-2000:]}")
    found = ptynb.load_result(result)
    return {"result": result, "epochs": len(found.epochs), "r_factor": found.r_factor}


def main() -> None:
    """Submit a run and wait for it."""
    from globus_compute_sdk import Executor
    from globus_compute_sdk.serialize import ComputeSerializer, PureSourceTextInspect

    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("endpoint", "run_file", "result"):
        parser.add_argument(name)
    chosen = parser.parse_args()
    # as text: the endpoint has no module of this name
    serializer = ComputeSerializer(strategy_code=PureSourceTextInspect())
    with Executor(endpoint_id=chosen.endpoint, serializer=serializer) as executor:
        print(executor.submit(reconstruct, chosen.run_file, chosen.result).result())


if __name__ == "__main__":
    main()
