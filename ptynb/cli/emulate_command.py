"""`ptynb emulate`: send a stored scan as a detector, a file writer or a control system would, with faults."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ptynb.cli.arguments import add_load_options, load_options_of

if TYPE_CHECKING:
    from ptynb.acquisition.emulators.playback import Player, PositionPlayer, Recording

SOURCES = ("stream2", "simplon", "swmr", "eiger", "pva")
POSITIONS = ("planned", "panda", "json", "file")
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
        "--as", dest="source", choices=SOURCES, default="stream2", help="what sends them (default stream2)"
    )
    emulate.add_argument(
        "--send-positions",
        choices=POSITIONS,
        default="planned",
        help="what sends positions: nothing, a PandA, JSON by ZeroMQ, or the file itself (default: nothing)",
    )
    emulate.add_argument(
        "--host", default="127.0.0.1", help="address of this machine to listen on (default: this machine only)"
    )
    emulate.add_argument("--port", type=int, default=0, metavar="N", help="port (default: a free one)")
    emulate.add_argument("--file", type=Path, default=Path("emulated.h5"), help="file to write (swmr, eiger)")
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
    player, positions = _player(chosen, recording, faults.late_positions), _positions(chosen, recording)
    where = {"planned": "", "file": ', positions="entry/positions/y,entry/positions/x"'}.get(chosen.send_positions)
    if positions is not None:
        where = f', positions="{positions.address}"'
    print(f'{len(recording)} patterns: ptynb.listen("{player.address}", plan=ptynb.Plan(...){where})', flush=True)
    play(player, len(recording), chosen.rate, faults, positions)
    return 0


def _player(chosen: argparse.Namespace, recording: Recording, late: float) -> Player:
    # Inside: each needs a package of its own.
    if chosen.source == "pva":
        from ptynb.acquisition.emulators.pva_player import PvaPlayer

        return PvaPlayer(recording, chosen.host, chosen.port)
    if chosen.source in ("swmr", "eiger"):
        from ptynb.acquisition.emulators.file_players import EigerPlayer, SwmrPlayer

        path = chosen.file.absolute()
        return SwmrPlayer(recording, path, late=late) if chosen.source == "swmr" else EigerPlayer(recording, path)
    from ptynb.acquisition.emulators.simplon_players import SimplonPlayer, Stream2Player

    return (Stream2Player if chosen.source == "stream2" else SimplonPlayer)(recording, chosen.host, chosen.port)


def _positions(chosen: argparse.Namespace, recording: Recording) -> PositionPlayer | None:
    from ptynb.acquisition.emulators.position_players import JsonPlayer, PandaPlayer

    if chosen.send_positions in ("planned", "file"):
        return None
    return (PandaPlayer if chosen.send_positions == "panda" else JsonPlayer)(recording, chosen.host)
