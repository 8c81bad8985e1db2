"""Options of clusters on the command line, with the texts and choices of `ptynb.settings.cluster_options`."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from ptynb.settings.cluster_options import Device, LocalCluster

KINDS = {"engines": int, "threads": int, "device": str}


def add_cluster_options(parser: argparse.ArgumentParser, *names: str, **defaults: Any) -> None:
    """Adds --engines, --device or --threads; defaults: by name, where they differ from None."""
    for name in names:
        about = (LocalCluster.model_fields[name].description or "").replace("; none:", "; default:")
        values = {"choices": get_args(Device)} if name == "device" else {"metavar": "N"}
        parser.add_argument(
            f"--{name}", type=KINDS[name], default=defaults.get(name), help=f"{about[0].lower()}{about[1:]}", **values
        )
