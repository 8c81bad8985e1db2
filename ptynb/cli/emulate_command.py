"""`ptynb emulate`: send a stored scan as a detector, a file writer or a control system would, with faults."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from ptynb.acquisition.emulators.faults import Faults
from ptynb.cli.arguments import add_load_options, load_options_of
from ptynb.data.source_address import SOURCES

EMULATORS = {name: kind for kind in SOURCES.values() for name in kind.emulators}
PATTERNS, POSITIONS = (
    [one for one, kind in EMULATORS.items() if kind.role == role] for role in ("source", "positions")
)
FILES = [*SOURCES["file"].emulators]


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
    for one in fields(Faults):
        emulate.add_argument(f"--{one.name.replace('_', '-')}", default=one.default, **one.metadata)
    add_load_options(emulate)
    emulate.set_defaults(run=_emulate)


def _emulate(chosen: argparse.Namespace) -> int:
    from ptynb.acquisition.emulators.playback import Recording, play
    from ptynb.exceptions import InvalidValueError
    from ptynb.io.load import load

    faults = Faults(**{one.name: getattr(chosen, one.name) for one in fields(Faults)})
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
