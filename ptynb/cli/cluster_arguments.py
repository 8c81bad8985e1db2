"""Options of clusters on the command line, with the texts and choices of `ptynb.settings.cluster_options`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, get_args

TYPES = {"cluster": str, "engines": int, "threads": int, "device": str}


def add_cluster_options(parser: argparse.ArgumentParser, *names: str, **defaults: Any) -> None:
    """Add --cluster, --engines, --device or --threads once the command is chosen: `ptynb --help` imports no models.

    defaults: by name, if they are not None.
    """
    parse, missing = parser.parse_known_args, [*names]

    def parse_known_args(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        from ptynb.settings.cluster_options import CLUSTERS, Device, LocalCluster

        kinds = tuple(section.model_fields["kind"].default for section in CLUSTERS)
        choices = {"cluster": kinds, "device": get_args(Device)}
        while missing:
            name = missing.pop(0)
            field = LocalCluster.model_fields.get(name)
            description = (field and field.description) or "Kind of cluster"
            text = f"{description[0].lower()}{description[1:]}".replace("; none:", "; default:")
            values: dict[str, Any] = {"choices": choices[name]} if name in choices else {"metavar": "N"}
            parser.add_argument(f"--{name}", type=TYPES[name], default=defaults.get(name), help=text, **values)
        return parse(args, namespace)

    parser.parse_known_args = parse_known_args  # type: ignore[assignment]
