"""Emulators of sources of positions: PandA's data port, and JSON by ZeroMQ."""

from __future__ import annotations

import contextlib
import json
import socket
import struct

import numpy as np

from ptynb.acquisition.emulators.playback import PositionPlayer, Recording
from ptynb.acquisition.emulators.pushing import Pushing

HEADER = """<header>
<data arm_time="2026-01-01T00:00:00.000Z" missed="0" process="Scaled" format="Framed" sample_bytes="24" />
<fields>
<field name="COUNTER1.OUT" type="double" capture="Value" scale="1" offset="0" units="" />
<field name="INENC1.VAL" type="double" capture="Mean" scale="1" offset="0" units="um" />
<field name="INENC2.VAL" type="double" capture="Mean" scale="1" offset="0" units="um" />
</fields>
</header>

"""
CONNECTING = 60.0
"""Time in which somebody has to connect [s]."""


class PandaPlayer(PositionPlayer):
    """A PandA that captures two encoders (y and x, in micrometres) and a counter of the patterns.

    unequal: number of samples at the end of each frame that lack their second encoder (NaN).
    """

    def __init__(self, recording: Recording, host: str = "127.0.0.1", port: int = 0, unequal: int = 0) -> None:
        self._recording, self._unequal = recording, unequal
        self._server = socket.create_server((host, port))
        self._server.settimeout(CONNECTING)
        self._client: socket.socket | None = None
        bound = self._server.getsockname()
        self.address = f"panda://{bound[0]}:{bound[1]}?y=INENC1.VAL&x=INENC2.VAL.Mean"

    def start(self) -> None:
        """Wait for who connects, and send the header."""
        self._client, _ = self._server.accept()
        with self._client.makefile("rb") as asked:
            asked.readline()
        self._client.sendall(b"OK\n" + HEADER.encode())

    def positions(self, first: int, last: int) -> None:
        samples = np.empty((last - first, 3))
        samples[:, 0] = np.arange(first, last)
        samples[:, 1:] = self._recording.positions[first:last] * 1e6
        if self._unequal:
            samples[-self._unequal :, 2] = np.nan
        raw = samples.astype("<f8").tobytes()
        self._send(b"BIN " + struct.pack("<I", 8 + len(raw)) + raw)

    def end(self, sent: int) -> None:
        self._send(f"END {sent} Ok\n".encode())

    def close(self) -> None:
        for one in (self._client, self._server):
            if one is not None:
                one.close()

    def _send(self, raw: bytes) -> None:
        assert self._client is not None
        with contextlib.suppress(OSError):  # whoever listened has ended
            self._client.sendall(raw)


class JsonPlayer(PositionPlayer):
    """Positions as JSON, pushed by ZeroMQ."""

    def __init__(self, recording: Recording, host: str = "127.0.0.1", port: int = 0) -> None:
        self._recording = recording
        self._pushing = Pushing(host, port)
        self.address = f"zmq+json://{self._pushing.place}"

    def start(self) -> None:
        """Do nothing: sending waits for who listens."""

    def positions(self, first: int, last: int) -> None:
        values = self._recording.positions[first:last].tolist()
        self._pushing.send(json.dumps({"first": first, "positions": values}).encode())

    def end(self, sent: int) -> None:
        self._pushing.send_last(b'{"end": true}')

    def close(self) -> None:
        self._pushing.close()
