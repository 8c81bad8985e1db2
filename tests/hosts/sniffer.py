"""Runs on the switch and listens to everything that passes, from READY until told for what to look.

Takes the commands of `hosts.Far`; `seen` tells how many bytes passed since the last time, and whether a text was in
one frame in clear.
"""

from __future__ import annotations

import json
import select
import socket
import sys

ETH_P_ALL = 3


def main() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**24)
        frames: list[bytes] = []
        print("READY", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin.fileno()], [], [])
            if listening in ready:
                frames.append(listening.recv(2**16))
                continue
            line = sys.stdin.buffer.raw.readline()  # type: ignore[attr-defined]
            if not line:
                return
            text = json.loads(line)[1].encode()
            found = any(text in frame for frame in frames)
            print("ANSWER", json.dumps([sum(map(len, frames)), found]), flush=True)
            frames.clear()


if __name__ == "__main__":
    main()
