"""Runs on any host: tries to use a cluster by each of some connection files; says how far it came."""

from __future__ import annotations

import json
import sys

import ipyparallel

WAIT_SECONDS = 2


def attempt(file: str) -> int | str:
    """What an engine answers, or the name of the error."""
    try:
        client = ipyparallel.Client(file, timeout=WAIT_SECONDS)
    except Exception as error:  # noqa: BLE001 - the test judges it
        return type(error).__name__
    try:
        answer: int = client[client.ids[0]].apply_async(len, "four").get(WAIT_SECONDS)
        return answer
    except Exception as error:  # noqa: BLE001
        return type(error).__name__
    finally:
        client.close()


if __name__ == "__main__":
    print(json.dumps([attempt(file) for file in sys.argv[1:]]))
