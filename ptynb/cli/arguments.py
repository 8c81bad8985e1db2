"""Options of commands that are generated: those of `ptynb.load`, and of clusters, with the texts of their models."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

NEGATIVE = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$")
"""Numbers that argparse takes for options if it does not know better: -1.5e-08."""
UNITS = {"m": "METRES", "rad": "RADIANS", "eV": "EV", "V": "VOLTS"}
TYPES = {"cluster": str, "engines": int, "threads": int, "device": str}
GROUP = "what the scan's file lacks or has wrong"


def add_cluster_options(parser: argparse.ArgumentParser, *names: str, **defaults: Any) -> None:
    """Add --cluster, --engines, --device or --threads. defaults: by name, if they are not None."""

    def add() -> None:
        from ptynb.plugins import of_kind
        from ptynb.settings.cluster_options import SECTIONS, Device, LocalCluster

        kinds = (*SECTIONS, *(one.name for one in of_kind("launchers")))
        choices = {"cluster": kinds, "device": get_args(Device)}
        for name in names:
            field = LocalCluster.model_fields.get(name)
            description = (field and field.description) or "Kind of cluster"
            text = f"{description[0].lower()}{description[1:]}".replace("; none:", "; default:")
            values: dict[str, Any] = {"choices": choices[name]} if name in choices else {"metavar": "N"}
            parser.add_argument(f"--{name}", type=TYPES[name], default=defaults.get(name), help=text, **values)

    _once_chosen(parser, add)


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ptynb.load`."""
    parser._negative_number_matcher = NEGATIVE

    def add() -> None:
        from ptynb.settings.load_options import LoadOptions

        group = parser.add_argument_group(GROUP)
        for name, field in LoadOptions.model_fields.items():
            group.add_argument(f"--{name.replace('_', '-')}", **_how(field))

    _once_chosen(parser, add)


def _once_chosen(parser: argparse.ArgumentParser, add: Callable[[], None]) -> None:
    """Add options once the command is chosen: `ptynb --help` does not import the models, which takes 0.4 s."""
    parse, missing = parser.parse_known_args, [add]

    def parse_known_args(
        args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        while missing:
            missing.pop()()
        return parse(args, namespace)

    parser.parse_known_args = parse_known_args  # type: ignore[method-assign, assignment]


def _how(field: FieldInfo) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an option."""
    from ptynb.settings.load_options import ONE_OR_TWO

    text = (field.description or "").replace("%", "%%")
    if field.annotation is bool:
        return {"action": "store_true", "default": None, "help": text}
    if get_origin(field.annotation) is Literal:
        return {"choices": get_args(field.annotation), "help": f"{text} (default {field.default})"}
    unit = re.search(r"\[(\w+)\]$", text)
    if any(get_origin(kind) is Mapping for kind in get_args(field.annotation)):
        return {"metavar": "NAME=METRES[@RADIANS],…", "help": text}
    metavar = UNITS[unit[1]] if unit else "NAME"
    if ONE_OR_TWO in field.metadata:
        return {"type": float, "nargs": "+", "metavar": metavar, "help": f"{text}: one number, or y and x"}
    if any(get_origin(kind) is tuple for kind in get_args(field.annotation)):
        return {"type": int, "nargs": 2, "metavar": ("ROWS", "COLUMNS"), "help": text}
    return {"type": float if unit else str, "metavar": metavar, "help": text}


def load_options_of(chosen: argparse.Namespace, folder: Path | None = None) -> dict[str, Any]:
    """Return the given options as keyword arguments of `ptynb.load`, with files relative to `folder` resolved."""
    from ptynb.settings.load_options import LoadOptions

    given = {name: getattr(chosen, name, None) for name in LoadOptions.model_fields}
    given = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in given.items()
        if value is not None
    }
    options = LoadOptions.from_arguments(given)
    options = options if folder is None else options.resolved(folder)
    return {name: getattr(options, name) for name in given}


def load_options_as_text(chosen: argparse.Namespace) -> list[str]:
    """Return the given options as arguments of a command line."""
    from ptynb.settings.load_options import aberrations_as_text

    line: list[str] = []
    for name, value in load_options_of(chosen).items():
        line.append(f"--{name.replace('_', '-')}")
        if isinstance(value, tuple):
            line += map(str, value)
        elif isinstance(value, Mapping):
            line.append(aberrations_as_text(value))
        elif value is not True:
            line.append(str(value))
    return line
