"""Messages of live sources, to be spoilt: a file holds some, in pieces as they come, and is given to their parser."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cbor2
import h5py
import hdf5plugin
import numpy as np
import zmq

import ptynb as pt
from ptynb.acquisition.complete_plan import completed
from ptynb.acquisition.compression import pack_bslz4, pack_h5lz4, pack_lz4
from ptynb.acquisition.emulators import position_players, simplon_players
from ptynb.acquisition.emulators.file_players import EigerPlayer, SwmrPlayer
from ptynb.acquisition.emulators.playback import Player, Recording, Sending
from ptynb.acquisition.messages import Damaged, Frame, Message, SeriesEnded, SeriesStarted, Stray
from ptynb.acquisition.protocols import connect
from ptynb.acquisition.protocols.panda import PandaParser
from ptynb.acquisition.protocols.pulling import Pulling
from ptynb.acquisition.protocols.pva import NtndarrayParser
from ptynb.acquisition.protocols.simplon_v2 import ARRAY, COMPRESSED
from ptynb.acquisition.protocols.swmr import GrowingFile
from ptynb.acquisition.spool import Spool
from ptynb.data.source_address import Address, pattern_address
from ptynb.exceptions import AcquisitionError

LONGEST_LOOK = 0.5
"""Time for which a file that never ends is followed [s]."""
LONGEST = 600
"""Upper limit of the characters of what is said about a damaged message."""


def recording() -> Recording:
    """Three small patterns."""
    scan = pt.simulate(3, window=16)
    counts = scan.counts(0, 3).astype(np.uint16)
    return Recording(pt.Scan.from_arrays(counts, scan.positions, geometry=scan.geometry, mask=np.ones((16, 16), bool)))


def stored(path: Path, messages: list[list[bytes]]) -> Path:
    """Write messages of parts to a file."""
    octets = [struct.pack("<H", len(parts)) + b"".join(_sized(part) for part in parts) for parts in messages]
    path.write_bytes(b"".join(octets))
    return path


def read(path: Path) -> list[list[bytes]]:
    """Messages of a file; what a damaged one has."""
    octets, at, found = path.read_bytes(), 0, []
    while at + 2 <= len(octets):
        (count,), parts = struct.unpack_from("<H", octets, at), []
        at += 2
        while len(parts) < count and at + 4 <= len(octets):
            (size,) = struct.unpack_from("<I", octets, at)
            parts.append(octets[at + 4 : at + 4 + size])
            at += 4 + size
        found.append(parts or [b""])
    return found


def _sized(part: bytes) -> bytes:
    return struct.pack("<I", len(part)) + part


def played(make: Callable[[Recording], Player]) -> list[list[bytes]]:
    """What an emulator of a detector sends by ZeroMQ."""
    player, sent = make(recording()), list[list[bytes]]()

    def keep(parts: list[zmq.Frame], _: float) -> Message:
        sent.append([part.bytes for part in parts])
        return Stray("kept")

    with contextlib.closing(Pulling(pattern_address(player.address), keep)) as source, contextlib.closing(player):
        player.start()
        for number in range(3):
            player.frame(Sending(number))
        player.end()
        while source.poll(0.5):
            pass
    return sent


def panda() -> list[list[bytes]]:
    """What a PandA answers, in pieces."""
    samples = np.arange(9.0).reshape(3, 3).astype("<f8").tobytes()
    answer = b"OK\n" + position_players.HEADER.encode()
    answer += b"BIN " + struct.pack("<I", 8 + len(samples)) + samples + b"END 3 Ok\n"
    return [[answer[:100]], [answer[100:400]], [answer[400:]]]


def stream2_lz4() -> list[list[bytes]]:
    """A pattern of stream2 by its other compression, which the emulator does not use."""
    sent, octets = played(simplon_players.Stream2Player), pack_h5lz4(recording().counts(0), 100)
    packed = cbor2.CBORTag(COMPRESSED, ["lz4", 2, octets])
    array = cbor2.CBORTag(ARRAY, [[16, 16], cbor2.CBORTag(69, packed)])
    image = {"type": "image", "series_id": simplon_players.SERIES, "image_id": 0}
    return [sent[0], [cbor2.dumps({**image, "data": {simplon_players.CHANNEL: array}})], sent[-1]]


def blosc(counts: np.ndarray[Any, Any]) -> bytes:
    """Counts as HDF5's filter of Blosc stores them."""
    with h5py.File("one", "w", driver="core", backing_store=False) as file:
        stored = file.create_dataset("one", data=counts, chunks=counts.shape, **hdf5plugin.Blosc(cname="lz4"))
        return bytes(stored.id.read_direct_chunk((0,) * counts.ndim)[1])


JSON = [
    [b'{"first": 0, "positions": [[1e-6, 2e-6], [null, 3]]}'],
    [b'{"number": 2, "y": 1, "x": 2}'],
    [b'{"end": true}'],
]
NTNDARRAY = [
    [b"4,4", b"3", b"", b"\x01\x00" * 16],
    [b"4,4", b"4", b"lz4", pack_lz4(np.arange(16, dtype=np.uint16))],
    [b"4,4", b"5", b"bslz4", pack_bslz4(np.arange(16, dtype=np.uint16))[12:]],
    [b"32,32", b"6", b"blosc", blosc(np.arange(1024, dtype=np.uint16) // 7)],
]


def _ntndarray(parser: NtndarrayParser, parts: list[bytes]) -> list[Message]:
    sides, unique, codec, octets = (*parts, b"", b"", b"", b"")[:4]
    numbers = np.frombuffer(octets, np.uint8)
    value = SimpleNamespace(
        dimension=[SimpleNamespace(size=one) for one in sides.split(b",")[:2]],
        uniqueId=unique,
        codec=SimpleNamespace(name=codec.decode(errors="replace"), parameters=6),
        value=numbers if codec else numbers[: len(numbers) // 2 * 2].view(np.uint16),
        compressedSize=len(octets),
    )
    return parser.parse(value, 0.0)


@contextlib.contextmanager
def _parser(kind: str) -> Iterator[Callable[[list[bytes]], list[Message]]]:
    """What a source of this kind makes of the parts of a message."""
    if kind == "panda":
        panda_ = PandaParser({"y": "INENC1.VAL", "x": "INENC2.VAL"})
        yield lambda parts: panda_.parse(parts[0])
    elif kind == "pva":
        array = NtndarrayParser()
        _ntndarray(array, [])  # the value from before
        yield lambda parts: _ntndarray(array, parts)
    else:
        with contextlib.closing(connect(Address(kind, "127.0.0.1", 9, {}))) as source:
            assert isinstance(source, Pulling)
            yield lambda parts: [source.parse([zmq.Frame(part) for part in parts], 0.0)]


def parse(path: Path, given: dict[str, Any]) -> None:
    """Parse all messages of a file, and unpack the patterns; raise AcquisitionError for the first damaged one."""
    damaged: AcquisitionError | None = None
    with _parser(given["kind"]) as parser:
        for parts in read(path):
            for message in parser(parts):
                if isinstance(message, Frame):
                    try:
                        message.packed.counts()
                    except AcquisitionError as error:
                        damaged = damaged or error
                elif isinstance(message, Damaged):
                    assert "\n" not in message.reason, message.reason
                    assert 0 < len(message.reason) <= LONGEST, message.reason
                    damaged = damaged or AcquisitionError(message.reason, code="acquisition.damaged-message")
    if damaged is not None:
        raise damaged


def follow(path: Path, given: dict[str, Any]) -> None:
    """Follow a file as one that may be in writing, for a moment."""
    source = GrowingFile(Address("file", str(path), 0, given))
    until = time.monotonic() + LONGEST_LOOK
    try:
        while time.monotonic() < until:
            for message in source.poll(0.05):
                if isinstance(message, Frame):
                    message.packed.counts()
                if isinstance(message, SeriesEnded):
                    return
    finally:
        source.close()


def written(folder: Path, kind: str) -> Path:
    """A file that a writer has closed."""
    path = folder / "scan.h5"
    player: Player = EigerPlayer(recording(), path, 2) if kind == "eiger" else SwmrPlayer(recording(), path, kind)  # type: ignore[arg-type]
    player.start()
    for number in range(3):
        player.frame(Sending(number))
    player.end()
    return Path(player.address.partition("?")[0])


def received(folder: Path) -> Path:
    """The folder of a scan of which two of three patterns came."""
    three, plan = recording(), pt.Plan(positions=recording().positions, geometry=recording().scan.geometry)
    complete = completed(plan, SeriesStarted(series="1"), (16, 16))
    spool = Spool(folder, plan, complete, three.dtype, "nowhere")
    for number in (0, 2):
        spool.write(number, three.counts(number), time.time())
    spool.finish("ended early: 2 of 3")
    spool.close()
    return folder / "scan.h5"
