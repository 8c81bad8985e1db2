"""`ptynb recommend`: preparation and settings for a scan, and a run file with them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ptynb.cli.arguments import add_cluster_options, add_load_options, load_options_of

if TYPE_CHECKING:
    from ptynb.tuning.recommendation import Recommendation


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    recommend = commands.add_parser("recommend", help="find settings for a scan by short trials, with reasons")
    recommend.add_argument("scan", type=Path, metavar="SCAN", help="file with a scan")
    recommend.add_argument(
        "--epochs", type=int, default=100, metavar="N", help="epochs of the recommended run (default 100)"
    )
    recommend.add_argument(
        "--seconds", type=float, default=120.0, metavar="SECONDS", help="time for the trials (default 120)"
    )
    recommend.add_argument(
        "--output", type=Path, metavar="FILE", help="write a run file for 'ptynb run'; an existing file is kept"
    )
    add_cluster_options(recommend, "engines", "device", device="auto")
    recommend.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_load_options(recommend)
    recommend.set_defaults(run=_recommend)


def _recommend(chosen: argparse.Namespace) -> int:
    import ptynb as pt
    from ptynb.exceptions import FileError

    output: Path | None = chosen.output
    if output is not None and output.exists():
        raise FileError(f"{output} exists; give another name with --output.", code="file.not-writable")
    options = load_options_of(chosen)
    scan = pt.load(chosen.scan, **options)
    progress = Console(stderr=True)
    with pt.Cluster(chosen.engines, device=chosen.device) as cluster:
        found = pt.recommend(
            scan,
            cluster,
            epochs=chosen.epochs,
            seconds=chosen.seconds,
            report=lambda line: progress.print(f"{line} ...", markup=False, highlight=False),
        )
    print(json.dumps(found.to_plain()) if chosen.json else found)
    if output is not None:
        output.write_text(_run_file(chosen.scan, options, found), encoding="utf-8")
        progress.print(f"Written: {output}; ptynb run {output} runs it.", markup=False, highlight=False)
    return 0


def _run_file(scan: Path, options: dict[str, object], found: Recommendation) -> str:
    """Return a run file with the recommendation; the path of the scan is absolute, as the file may be moved."""
    reasons = [f"# {choice.name} = {choice.value}: {choice.reason}" for choice in found.choices]
    head = "\n".join([f"# {line}" for line in found.table().caption.splitlines()] + reasons)
    result = f"{scan.name.split('.')[0]}.result.h5"
    # JSON is YAML, too.
    lines = [
        f"{name}: {json.dumps(value)}"
        for name, value in (("scan", str(scan.absolute())), ("load", options), ("result", result))
    ]
    return "\n".join([head, *lines, found.recipe.to_yaml()])
