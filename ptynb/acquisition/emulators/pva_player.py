"""Emulator of a detector's NTNDArray by PV Access. Requires p4p."""

from __future__ import annotations

import time
from typing import Any, Literal

import numpy as np
from p4p import Value
from p4p.nt import NTNDArray
from p4p.server import Server
from p4p.server.thread import SharedPV

from ptynb.acquisition.compression import pack_lz4
from ptynb.acquisition.emulators.playback import Player, Recording, Sending
from ptynb.acquisition.protocols.pva import SCALAR_TYPES

PV = "PTYNB:Pva1:Image"
NAMES = {
    "u1": "ubyteValue", "u2": "ushortValue", "u4": "uintValue", "u8": "ulongValue", "i1": "byteValue",
    "i2": "shortValue", "i4": "intValue", "i8": "longValue", "f4": "floatValue", "f8": "doubleValue",
}  # fmt: skip
LOOPBACK = {
    "EPICS_PVAS_AUTO_BEACON_ADDR_LIST": "NO",
    "EPICS_PVAS_SERVER_PORT": "0",
    "EPICS_PVAS_BROADCAST_PORT": "0",
}


class PvaPlayer(Player):
    """A server with one PV. first: uniqueId of the first pattern."""

    def __init__(
        self,
        recording: Recording,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        codec: Literal["", "lz4", "bslz4"] = "",
        first: int = 1,
    ) -> None:
        self._recording, self._codec, self._first = recording, codec, first
        kind = NTNDArray.buildType()
        self._value = lambda content: Value(kind, content)
        self._watched = 0
        self._pv = SharedPV(initial=self._value({}), handler=_Watching(self))
        places = {"EPICS_PVAS_INTF_ADDR_LIST": host, "EPICS_PVAS_BEACON_ADDR_LIST": host}
        configuration = {**LOOPBACK, **places, "EPICS_PVAS_SERVER_PORT": str(port)}
        self._server = Server(providers=[{PV: self._pv}], conf=configuration, useenv=False)
        self.address = f"pva://{PV}?server={host}:{self._server.conf()['EPICS_PVAS_SERVER_PORT']}&first={first}"

    def watched(self) -> None:
        """Note that somebody has connected."""
        self._watched += 1

    def start(self) -> None:
        """Wait until somebody has connected."""
        while not self._watched:
            time.sleep(0.02)
        time.sleep(0.5)  # the monitor follows the connection

    def stray(self, number: int) -> None:
        """Have the last pattern of an earlier series as the present value."""
        self._post(number, self._recording.counts(number), 10**6)

    def frame(self, step: Sending) -> None:
        if step.number >= 0:
            self._post(step.number, self._recording.counts(step.number, step.changed), self._first + step.number)

    def end(self) -> None:
        """Do nothing: PV Access has no end of a series."""

    def close(self) -> None:
        """Stop the server, after the last pattern had time to be sent."""
        time.sleep(1.0)
        self._server.stop()

    def _post(self, number: int, counts: Any, unique: int) -> None:
        y, x = counts.shape
        kind = counts.dtype.str[1:]
        content: dict[str, Any] = {
            "value": (NAMES[kind], counts.reshape(-1)),
            "dimension": [{"size": n, "offset": 0, "fullSize": n, "binning": 1, "reverse": False} for n in (x, y)],
            "uniqueId": unique,
            "uncompressedSize": counts.nbytes,
            "compressedSize": counts.nbytes,
            "timeStamp": {"secondsPastEpoch": int(time.time()), "nanoseconds": 0},
        }
        if self._codec:
            packed = pack_lz4(counts) if self._codec == "lz4" else self._recording.packed(number)[12:]
            content["value"] = ("ubyteValue", np.frombuffer(packed, np.uint8))
            content["compressedSize"] = len(packed)
            content["codec"] = {
                "name": self._codec,
                "parameters": ("i", next(number for number, name in SCALAR_TYPES.items() if name == kind)),
            }
        self._pv.post(self._value(content))


class _Watching:
    """Tells a player that somebody has connected."""

    def __init__(self, player: PvaPlayer) -> None:
        self._player = player

    def onFirstConnect(self, pv: Any) -> None:  # noqa: N802, p4p's name
        self._player.watched()
