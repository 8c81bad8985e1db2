"""What `listen` refuses, each with one sentence, and leaves nothing of."""

import importlib
import shutil
import signal
import socket
import sys
import threading
import time

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.acquisition.protocols import connect, swmr
from ptynb.data.source_address import SOURCES, Address, pattern_address, position_address
from tests.acquisition.emulated import emulator, planned, recorded, unplanned, until_ended
from tests.raising import raises


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("recorded"))


def test_addresses():
    assert pattern_address("stream2://det") == Address("stream2", "det", 31001, {})
    assert pattern_address("simplon://[::1]:7") == Address("simplon", "[::1]", 7, {})
    assert pattern_address("stream2://d?channel=threshold_2").options == {"channel": "threshold_2"}
    assert pattern_address("pva://A:B:Image?first=3") == Address("pva", "A:B:Image", 0, {"first": "3"})
    assert pattern_address("/a/b c.h5?patterns=e/d") == Address("file", "/a/b c.h5", 0, {"patterns": "e/d"})
    assert position_address("panda://p?y=A.B&x=C.D") == Address("panda", "p", 8889, {"y": "A.B", "x": "C.D"})
    assert position_address("zmq+json://p:5?pattern=sub").options == {"pattern": "sub"}
    for text in (
        "tcp://a:1",
        "stream2://",
        "stream2://a:99999",
        "stream2://a/b",
        "stream2://u@a",
        "pva://",
        "pva://A?first=x",
    ):
        with raises("argument.invalid-value", text):
            pattern_address(text)
    for text in ("stream2://a", "zmq+json://a?pattern=pub", "http://a"):
        with raises("argument.invalid-value", text):
            position_address(text)
    with raises("argument.unknown", "chanel", "channel"):
        pattern_address("stream2://a?chanel=1")


@pytest.mark.parametrize("name", SOURCES)
def test_each_kind_of_source_is_found_by_its_example_and_has_all_that_its_entry_names(name):
    kind = SOURCES[name]
    assert (pattern_address if kind.role == "source" else position_address)(kind.example).kind == name
    assert kind.example in pt.listen.__doc__
    assert all(callable(kind.loaded(one)) for one in (kind.opens, *kind.emulators.values()))


def test_arguments_are_checked_before_anything_is_started(tmp_path, path):
    with raises("argument.invalid-type", "None"):
        pt.listen("stream2://127.0.0.1")
    with raises("acquisition.no-positions", "panda://"):
        pt.listen("stream2://127.0.0.1", plan=unplanned(path), folder=tmp_path / "no")
    for positions in ("entry/y", "a,b,c"):
        with raises("argument.invalid-value", positions):
            pt.listen("stream2://127.0.0.1", plan=unplanned(path), positions=positions, folder=tmp_path / "no")
    (tmp_path / "file").write_text("")
    with raises("file.not-writable", tmp_path / "file"):
        pt.listen("stream2://127.0.0.1", plan=planned(path), folder=tmp_path / "file" / "scan")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def refused(tmp_path, code, *facts, source, plan, **more):
    with raises(code, *facts):
        pt.listen(source, plan=plan, folder=tmp_path / "refused", timeout=20, **more)
    assert not (tmp_path / "refused").exists()


def test_errors_of_the_receiver_come_to_the_notebook(tmp_path, path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    where = f"127.0.0.1:{port}"
    positions = f"panda://{where}"
    refused(
        tmp_path,
        "acquisition.source-lost",
        where,
        source="stream2://127.0.0.1:9",
        plan=unplanned(path),
        positions=positions,
    )
    with h5py.File(tmp_path / "none.h5", "w") as file:
        file["a"] = np.zeros(3)
    refused(tmp_path, "acquisition.failed", "none.h5", source=tmp_path / "none.h5", plan=planned(path))
    with emulator(path, "--as", "simplon", "--rate", 100) as emulated:
        small = planned(path, window=(512, 512))
        refused(tmp_path, "argument.invalid-value", "512", source=emulated.source, plan=small)


def test_the_receiver_has_the_standard_library_before_the_folder_of_the_package(tmp_path, path, monkeypatch):
    """That is site-packages, mostly, which may contain what was written for a Python without such a module."""
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "dataclasses.py").write_text("raise ImportError('this is for Python 3.6')")
    monkeypatch.setattr(importlib.import_module("ptynb.acquisition.listen"), "PACKAGE", tmp_path / "packages")
    with h5py.File(tmp_path / "none.h5", "w") as file:
        file["a"] = np.zeros(3)
    refused(tmp_path, "acquisition.failed", "none.h5", source=tmp_path / "none.h5", plan=planned(path))


def refusal(code, *facts, source):
    """A file that cannot be followed, as the receiver is told; another process for each would only take time."""
    opened = connect(pattern_address(source))
    with raises(code, *facts):
        until = time.monotonic() + 5
        while time.monotonic() < until:
            assert not opened.poll(0.01)
    opened.close()


def test_files_that_cannot_be_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(swmr, "PATIENCE", 0.3)
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a/frames"], file["b/frames"] = np.zeros((3, 8, 8)), np.zeros((3, 8, 8))
    refusal("acquisition.failed", "/a/frames", source=tmp_path / "two.h5")
    refusal("acquisition.failed", "c/frames", source=f"{tmp_path}/two.h5?patterns=c/frames")
    (tmp_path / "text.h5").write_text("no HDF5")
    refusal("acquisition.failed", "text.h5", source=tmp_path / "text.h5")


def test_a_file_that_is_removed_while_it_is_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(swmr, "PATIENCE", 0.3)
    with h5py.File(tmp_path / "written.h5", "w", libver="latest") as file:
        file.create_dataset("data", (0, 8, 8), "u2", maxshape=(None, 8, 8), chunks=(1, 8, 8))
        file.swmr_mode = True
        shutil.copy(tmp_path / "written.h5", tmp_path / "gone.h5")  # as a writer that was killed leaves it
    source = connect(pattern_address(tmp_path / "gone.h5"))
    assert len(source.poll(1)) == 1
    (tmp_path / "gone.h5").unlink()
    with raises("acquisition.source-lost", tmp_path / "gone.h5"):
        for _ in range(100):
            assert not source.poll(0.01)
    source.close()


def test_a_link_out_of_the_folder_is_not_followed(tmp_path, path):
    (tmp_path / "in").mkdir()
    with h5py.File(tmp_path / "outside.h5", "w") as file:
        file["data"] = np.zeros((3, 8, 8), np.uint16)
    with h5py.File(tmp_path / "in" / "x_master.h5", "w") as file:
        file["entry/data/data_000001"] = h5py.ExternalLink("../outside.h5", "data")
        file["entry/linked"] = h5py.ExternalLink("../outside.h5", "data")
    source = tmp_path / "in" / "x_master.h5"
    refused(tmp_path, "file.link-not-allowed", "outside.h5", source=source, plan=planned(path))
    refusal("file.link-not-allowed", source=f"{source}?patterns=entry/linked")


def test_a_closed_file_is_received_whole(tmp_path, path):
    """As if it had been written before anybody listened; positions are an array."""
    whole = pt.load(path)
    with h5py.File(tmp_path / "closed.h5", "w") as file:
        file["entry/data/data"] = whole.frames.read(0, len(whole))
    scan = pt.listen(
        tmp_path / "closed.h5",
        plan=pt.Plan(extent=((0, 1), (0, 1)), geometry=whole.geometry),
        positions=whole.positions * np.asarray(whole.pixel_size),
        folder=tmp_path / "received",
        timeout=30,
    )
    assert until_ended(scan).ended == f"complete: {len(whole)} of {len(whole)}"
    saved = pt.load(tmp_path / "received" / "scan.h5")
    np.testing.assert_array_equal(saved.frames.read(0, len(whole)), whole.frames.read(0, len(whole)))


def test_an_interrupt_ends_the_wait_and_the_receiver(tmp_path, path):
    timer = threading.Timer(1.5, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pt.listen(tmp_path / "never.h5", plan=planned(path), folder=tmp_path / "received")
    timer.join()
    assert list(tmp_path.iterdir()) == []


def test_a_cancelled_wait_leaves_nothing(tmp_path, path):
    asked = []

    def cancelled():
        asked.append(time.monotonic())
        return len(asked) > 5

    with raises("acquisition.cancelled", "cancelled"):
        pt.listen(tmp_path / "never.h5", plan=planned(path), folder=tmp_path / "received", cancelled=cancelled)
    assert list(tmp_path.iterdir()) == []
    assert max(np.diff(asked)) < 1
    from ptynb.acquisition.listen import _remove  # the scan began while the receiver was being ended

    (tmp_path / "received").mkdir()
    for name in ("scan.h5", "arrivals.index", "arrivals.log", "stop"):
        (tmp_path / "received" / name).touch()
    _remove(tmp_path / "received", made=True)
    assert list(tmp_path.iterdir()) == []


def test_a_source_without_its_package_is_an_error_that_names_it(path, monkeypatch, capsys):
    from ptynb.cli.main import main

    for name in ("protocols.pva", "emulators.pva_player"):
        monkeypatch.delitem(sys.modules, f"ptynb.acquisition.{name}", raising=False)
    for name in ("p4p", "p4p.client.thread"):
        monkeypatch.setitem(sys.modules, name, None)
    with raises("package.not-installed", "ptynb[pva]"):
        connect(pattern_address("pva://A:B"))
    assert main(["emulate", str(path), "--as", "pva"]) == 69
    assert "ptynb[pva]" in capsys.readouterr().err


def test_an_emulator_says_how_to_listen_and_an_interrupt_ends_it(path):
    with emulator(path, "--as", "stream2", "--send-positions", "panda") as emulated:
        assert emulated.source.startswith("stream2://127.0.0.1:")
        assert emulated.positions.startswith("panda://127.0.0.1:")
        for source, kind in (
            (pattern_address(emulated.source), "stream2"),
            (position_address(emulated.positions), "panda"),
        ):
            assert source.kind == kind
        time.sleep(1)  # then it waits for somebody who listens
        emulated.process.send_signal(signal.SIGINT)
        assert emulated.process.wait(10) == 130


def test_an_emulator_refuses_what_cannot_be_sent(tmp_path, path, capsys):
    from ptynb.cli.main import main

    assert main(["emulate", str(path), "--as", "stream2", "--send-positions", "file"]) == 64
    assert "--as swmr" in capsys.readouterr().err
    assert main(["emulate", str(path), "--drop", "1.5"]) == 64
    assert "1.5" in capsys.readouterr().err
    pt.save_scan(pt.Scan.from_arrays(np.ones((4, 8, 8)), np.indices((2, 2)).reshape(2, -1).T), tmp_path / "pixels.h5")
    assert main(["emulate", str(tmp_path / "pixels.h5")]) == 65
    assert "no geometry" in capsys.readouterr().err
