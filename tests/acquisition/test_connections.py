"""What a receiver and emulators open on the network, and that bytes from there are data: nothing of them is run."""

import pickle
import socket
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

import ptynb as pt
from ptynb.acquisition.emulators.playback import Recording, Sending
from ptynb.acquisition.emulators.position_players import JsonPlayer
from ptynb.acquisition.emulators.simplon_players import SimplonPlayer, Stream2Player
from tests.acquisition.emulated import emulator, planned, recorded, unplanned, until_ended
from tests.acquisition.test_sources import SOURCES


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("recorded"))


def ports_of(*addresses):
    """The ports that addresses name; none of files."""
    named = [urlsplit(one) for one in addresses if "://" in one]
    servers = [
        parse_qs(one.query).get("server", [f"{one.hostname}:{one.netloc.rpartition(':')[2]}"])[0] for one in named
    ]
    return {int(server.rpartition(":")[2]) for server in servers}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_receiver_connects_to_what_was_named_only_and_emulators_listen_on_the_loopback_interface(
    tmp_path, path, kind
):
    with emulator(path, *SOURCES[kind][0], "--rate", 20, "--file", tmp_path / "written.h5") as emulated:
        plan = (planned if emulated.positions == "planned" else unplanned)(path, geometry=pt.load(path).geometry)
        scan = pt.listen(
            emulated.source, plan=plan, positions=emulated.positions, folder=tmp_path / "received", timeout=30
        )
        receiver = psutil.Process(scan.acquisition.index().receiver)
        opened = receiver.net_connections("inet")
        offered = psutil.Process(emulated.process.pid).net_connections("tcp")
        assert not receiver.children()
        scan.stop_listening()
    named = ports_of(emulated.source, emulated.positions)
    streams = [one for one in opened if one.type == socket.SOCK_STREAM]
    assert {one.status for one in streams} <= {psutil.CONN_ESTABLISHED}
    assert {(one.raddr.ip.removeprefix("::ffff:"), one.raddr.port) for one in streams} == {
        ("127.0.0.1", port) for port in named
    }
    # EPICS searches by datagrams, and takes beacons of servers, also where one is named; nothing else has any.
    assert {one.type for one in opened} - {socket.SOCK_STREAM} <= (
        {socket.SOCK_DGRAM} if kind == "PV Access" else set()
    )
    waiting = [one.laddr for one in offered if one.status == psutil.CONN_LISTEN]
    assert {one.ip for one in waiting} == ({"127.0.0.1"} if named else set())
    assert {one.port for one in waiting} == named


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark):
        self._mark = mark

    def __reduce__(self):
        return Path.touch, (Path(self._mark),)


@pytest.mark.parametrize("make", [SimplonPlayer, Stream2Player])
def test_pickles_are_damaged_messages(tmp_path, path, make):
    recording, bomb = Recording(pt.load(path)), pickle.dumps(Bomb(tmp_path / "unpickled"))
    pickle.loads(bomb)
    (tmp_path / "unpickled").unlink()  # it would work
    player, positions = make(recording), JsonPlayer(recording)

    def send():
        player.start()
        for parts in ([bomb], [b'{"htype": "dimage-1.0", "series": 8, "frame": 0}', bomb, bomb, bomb]):
            player._pushing.send(*parts)
        for number in range(len(recording)):
            player.frame(Sending(number))
        player.end()
        positions._pushing.send(bomb)
        positions.positions(0, len(recording))
        positions.end(len(recording))
        player.close()
        positions.close()

    sender = threading.Thread(target=send)
    sender.start()
    scan = pt.listen(
        player.address, plan=unplanned(path), positions=positions.address, folder=tmp_path / "received", timeout=30
    )
    arrivals = until_ended(scan)
    sender.join()
    assert (arrivals.damaged, arrivals.placed) == (3, len(scan))
    assert not (tmp_path / "unpickled").exists()
