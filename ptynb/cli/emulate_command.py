"""`ptynb emulate`: send a stored scan as a detector, a file writer or a control system would, with faults."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ptynb.cli.arguments import add_load_options, load_options_of
from ptynb.data.source_address import SOURCES

EMULATORS = {name: kind for kind in SOURCES.values() for name in kind.emulators}
PATTERNS, POSITIONS = (
    [one for one, kind in EMULATORS.items() if kind.role == role] for role in ("source", "positions")
)
FILES = [*SOURCES["file"].emulators]
FAULTS = {
    "drop": (float, "FRACTION", "fraction of the patterns that are not sent"),
    "duplicate": (float, "FRACTION", "fraction that is sent again"),
    "differ": (float, "FRACTION", "fraction that is sent again with other counts"),
    "garbage": (float, "FRACTION", "fraction of patterns after which bytes without a meaning are sent"),
    "shuffle": (int, "N", "how many places late patterns may be sent"),
    "stall": (float, "SECONDS", "time in the middle without patterns"),
    "abort": (float, "FRACTION", "fraction after which the series is ended"),
    "kill": (float, "FRACTION", "fraction after which this process kills itself"),
    "late-positions": (float, "SECONDS", "time after which positions follow their patterns"),
    "stray": (int, "N", "patterns of a previous series that come first"),
    "seed": (int, "N", "seed of the random choices"),
}
"""Options for `Faults`: type, placeholder, description."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    emulate = commands.add_parser("emulate", help="send a stored scan as a detector would, to try ptynb.listen")
    emulate.add_argument("scan", type=Path, metavar="SCAN", help="file with a scan")
    emulate.add_argument("--rate", type=float, default=100.0, metavar="HZ", help="patterns per second; 0: no limit")
    emulate.add_argument(
        "--as", dest="source", choices=PATTERNS, default="stream2", help="what sends them (default stream2)"
    )
    emulate.add_argument(
        "--send-positions",
        choices=["planned", *POSITIONS, "file"],
        default="planned",
        help="what sends positions: nothing (planned, the default), another source, or the file itself",
    )
    emulate.add_argument(
        "--host", default="127.0.0.1", help="address of this machine to listen on (default: this machine only)"
    )
    emulate.add_argument("--port", type=int, default=0, metavar="N", help="port (default: a free one)")
    emulate.add_argument("--file", type=Path, default=Path("emulated.h5"), help=f"file to write ({', '.join(FILES)})")
    for name, (kind, place, description) in FAULTS.items():
        emulate.add_argument(f"--{name}", type=kind, metavar=place, help=description)
    emulate.add_argument("--endless", action="store_true", help="send no end, and stay")
    add_load_options(emulate)
    emulate.set_defaults(run=_emulate)


def _emulate(chosen: argparse.Namespace) -> int:
    from ptynb.acquisition.emulators.playback import Faults, Recording, play
    from ptynb.exceptions import InvalidValueError
    from ptynb.io.load import load

    given = {name.replace("-", "_"): getattr(chosen, name.replace("-", "_")) for name in FAULTS}
    faults = Faults(endless=chosen.endless, **{name: value for name, value in given.items() if value is not None})
    if chosen.send_positions == "file" and chosen.source != "swmr":
        raise InvalidValueError(
            f"--send-positions file needs a file that has them: --as swmr; it is {chosen.source}.",
            code="argument.conflict",
        )
    recording = Recording(load(chosen.scan, **load_options_of(chosen)))
    place = [chosen.file.absolute()] if chosen.source in FILES else [chosen.host, chosen.port]
    player = _player(chosen.source, recording, *place)
    positions = _player(chosen.send_positions, recording, chosen.host) if chosen.send_positions in POSITIONS else None
    where = {"planned": "", "file": ', positions="entry/positions/y,entry/positions/x"'}.get(chosen.send_positions)
    if positions is not None:
        where = f', positions="{positions.address}"'
    print(f'{len(recording)} patterns: ptynb.listen("{player.address}", plan=ptynb.Plan(...){where})', flush=True)
    play(player, len(recording), chosen.rate, faults, positions)
    return 0


def _player(name: str, *given: Any) -> Any:
    """Return a `Player` or `PositionPlayer`."""
    return EMULATORS[name].loaded(EMULATORS[name].emulators[name])(*given)
