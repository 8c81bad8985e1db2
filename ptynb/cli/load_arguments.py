"""What the user says of a scan's file, as options of a command: the words of `ptynb.load`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ptynb.exceptions import InvalidValueError

WORDS = (
    "patterns",
    "positions",
    "mask",
    "units",
    "raster",
    "step",
    "rotation",
    "wavelength",
    "energy",
    "voltage",
    "distance",
    "detector_pixel",
    "angular_pixel",
    "clip_negative",
    "links",
)
PAIRS = "step", "detector_pixel", "angular_pixel"


def add_given(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    group = parser.add_argument_group("what the scan's file lacks or has wrong")
    group.add_argument("--patterns", metavar="NAME", help="dataset of the patterns, where there are several")
    group.add_argument("--positions", metavar="NAME", help="dataset of the positions, or a file (.npy, text)")
    group.add_argument("--mask", metavar="NAME", help="dataset of the mask, or a file; True where the detector works")
    group.add_argument("--units", choices=["metres", "pixels"], help="of --positions (default metres)")
    group.add_argument("--raster", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), help="of a scan line by line")
    group.add_argument("--step", type=float, nargs="+", metavar="METRES", help="of a raster: one, or y and x")
    group.add_argument("--rotation", type=float, metavar="RADIANS", help="of the scan against the detector, x to y")
    group.add_argument("--wavelength", type=float, metavar="METRES", help="of the beam")
    group.add_argument("--energy", type=float, metavar="EV", help="of photons")
    group.add_argument("--voltage", type=float, metavar="VOLTS", help="of electrons")
    group.add_argument("--distance", type=float, metavar="METRES", help="from the sample to the detector")
    group.add_argument("--detector-pixel", type=float, nargs="+", metavar="METRES", help="one, or y and x")
    group.add_argument("--angular-pixel", type=float, nargs="+", metavar="RADIANS", help="one, or y and x")
    group.add_argument("--clip-negative", action="store_true", default=None, help="negative counts become 0")
    group.add_argument("--links", choices=["folder", "anywhere"], help="where the file's links may lead")


def given_words(chosen: argparse.Namespace) -> dict[str, Any]:
    """The words that were given, as `ptynb.load` takes them. Raises ValueError for a size of more than two sides."""
    words = {name: getattr(chosen, name) for name in WORDS if getattr(chosen, name, None) is not None}
    for name in PAIRS:
        if name in words:
            sides = words[name]
            if len(sides) > 2:
                raise InvalidValueError(
                    f"--{name.replace('_', '-')} has {len(sides)} numbers; expected one, or y and x."
                )
            words[name] = (sides[0], sides[-1])
    if "raster" in words:
        words["raster"] = tuple(words["raster"])
    return words


def as_options(chosen: argparse.Namespace) -> list[str]:
    """The same on a command line."""
    line: list[str] = []
    for name, value in given_words(chosen).items():
        line.append(f"--{name.replace('_', '-')}")
        if isinstance(value, tuple):
            line += map(str, value)
        elif value is not True:
            line.append(str(value))
    return line


def in_folder(words: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The words with files named from `folder`; names that are no files there are the scan's datasets."""
    placed = dict(words)
    for name in ("positions", "mask"):
        if name in placed and (folder / placed[name]).is_file():
            placed[name] = str((folder / placed[name]).absolute())
    return placed
