"""Options of clusters on the command line, with the texts and choices of `ptynb.settings.cluster_options`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, get_args

KINDS = {"engines": int, "threads": int, "device": str}


def add_cluster_options(parser: argparse.ArgumentParser, *names: str, **defaults: Any) -> None:
    """Add --engines, --device or --threads once the command is chosen: `ptynb --help` imports no models.

    defaults: by name, if they are not None.
    """
    parse, missing = parser.parse_known_args, [*names]

    def parse_known_args(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        from ptynb.settings.cluster_options import Device, LocalCluster

        while missing:
            name = missing.pop(0)
            about = (LocalCluster.model_fields[name].description or "").replace("; none:", "; default:")
            values: dict[str, Any] = {"choices": get_args(Device)} if name == "device" else {"metavar": "N"}
            text = f"{about[0].lower()}{about[1:]}"
            parser.add_argument(f"--{name}", type=KINDS[name], default=defaults.get(name), help=text, **values)
        return parse(args, namespace)

    parser.parse_known_args = parse_known_args  # type: ignore[assignment]
