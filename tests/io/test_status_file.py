import json
import os
import time

from ptynb.io import status_file
from ptynb.io.status_file import Folder, ago, read_status
from tests.io.cases import of_case

WHOLE = {
    "format": "ptynb status",
    "version": 1,
    "name": "night",
    "scan": "siemens",
    "state": "running",
    "epoch": 3,
    "target": 200,
    "update": 4,
    "updates_per_epoch": 7,
    "losses": [0.5, 0.25, 0.125],
    "seconds": [0.5, 0.5, 0.5],
    "changes": [[2, "probe.learning_rate"]],
    "engines": "2 engines on CPU, gloo",
    "written": "2026-11-21T10:00:00+00:00",
    "picture": {"epoch": 3, "update": 4, "limits": {"amplitude": [0, 1], "phase": [-1, 1]}, "powers": [0.75, 0.25]},
    "kept": "state-00003.h5",
}
JPEG = b"\xff\xd8 picture \xff\xd9"


def put(folder, **changes):
    folder.mkdir(exist_ok=True)
    (folder / "status.json").write_text(json.dumps({**WHOLE, **changes}))


def test_a_status_is_taken_over_when_it_changes(tmp_path):
    folder = Folder(tmp_path / "later")
    assert not folder.look()
    assert (folder.shown, folder.age) == (None, None)
    assert folder.problem.startswith("waiting for a run to show itself in ")
    put(tmp_path / "later")
    assert folder.look()
    assert folder.problem == ""
    assert folder.shown.title == "siemens (night)"
    assert folder.shown.facts == (
        "epoch 3 of 200 + 4/7 updates",
        "loss 0.125",
        "0.5 s an epoch",
        "2 engines on CPU, gloo",
        "checkpoint: state-00003.h5",
    )
    assert folder.shown.changes == ((2, "probe.learning_rate"),)
    assert folder.shown.limits == {"amplitude": (0, 1), "phase": (-1, 1)}
    assert not folder.look()
    put(tmp_path / "later", state="ready", update=0, changes=[[3, "stopped"]])
    assert folder.look()
    assert folder.shown.facts[:2] == ("epoch 3 of 200", "stopped, since it made no more progress")
    put(tmp_path / "later", epoch=4, losses=[0.5, 0.25, 0.125, None])
    assert folder.look()
    assert (folder.shown.epoch, folder.shown.losses) == (4, (0.5, 0.25, 0.125, None))


def test_half_copied_files_leave_what_was_read_before(tmp_path):
    put(tmp_path)
    (tmp_path / "phase.jpg").write_bytes(JPEG)
    folder = Folder(tmp_path)
    folder.look()
    (tmp_path / "status.json").write_text(json.dumps(WHOLE)[:-30])
    (tmp_path / "phase.jpg").write_bytes(JPEG[:-1])
    (tmp_path / "probe.jpg").write_bytes(b"GIF89a")
    assert not folder.look()
    assert (folder.shown.epoch, folder.pictures, folder.problem) == (3, {"phase": JPEG}, "")
    put(tmp_path, epoch=5)
    (tmp_path / "phase.jpg").write_bytes(JPEG + b"\0")
    assert folder.look()
    assert (folder.shown.epoch, folder.pictures) == (5, {"phase": JPEG + b"\0"})


def test_no_link_is_followed_and_no_pipe_or_giant_is_read(tmp_path, monkeypatch):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    put(outside)
    (outside / "phase.jpg").write_bytes(JPEG)
    inside.mkdir()
    (inside / "status.json").symlink_to(outside / "status.json")
    (inside / "phase.jpg").symlink_to(outside / "phase.jpg")
    os.mkfifo(inside / "probe.jpg")
    pipe = os.open(inside / "probe.jpg", os.O_RDWR)
    os.write(pipe, JPEG)
    folder = Folder(inside)
    assert not folder.look()
    assert (folder.shown, folder.pictures) == (None, {})
    os.close(pipe)
    monkeypatch.setattr(status_file, "MOST_BYTES", 100)
    assert (outside / "phase.jpg").stat().st_size < 100 < (outside / "status.json").stat().st_size
    folder = Folder(outside)
    folder.look()
    assert (folder.shown, folder.pictures) == (None, {"phase": JPEG})


def test_what_is_no_status_is_refused():
    for content, problem in [
        (b"[" * 100_000, "not whole"),
        (b"\xff\xfe", "not whole"),
        (b'"text"', "none of ptynb's"),
        (b'{"format": "other"}', "none of ptynb's"),
        (b'{"format": "ptynb status", "version": 2}', "has version 2; this ptynb reads version 1"),
    ]:
        with of_case((content, problem)):
            shown, told = read_status(content)
            assert shown is None
            assert problem in told


def test_hostile_values_become_harmless_ones():
    hostile = {key: {"a": ["<script>"]} for key in WHOLE} | {"format": "ptynb status", "version": 1}
    shown, _ = read_status(json.dumps(hostile).encode())
    assert (shown.state, shown.epoch, shown.losses, shown.changes, shown.powers) == ("unknown", 0, (), (), ())
    text = '{"format": "ptynb status", "version": 1, "losses": [NaN, 1e999, -Infinity, true, "1", 1e400, 2], '
    text += f'"epoch": -5, "target": 1{"0" * 400}, "name": "{"x" * 9000}\\n\\ud800", "changes": [[1], [1, null], 7]}}'
    shown, _ = read_status(text.encode())
    assert shown.losses == (None, None, None, None, None, None, 2.0)
    assert (shown.epoch, shown.target, len(shown.name)) == (0, 0, status_file.MOST_LETTERS)
    assert shown.changes == ((1, ""),)


def test_how_long_ago_it_was_written_and_whether_it_stands_still(tmp_path):
    put(tmp_path)
    os.utime(tmp_path / "status.json", (time.time() - 200, time.time() - 200))
    folder = Folder(tmp_path)
    folder.look()
    assert folder.written == "last written 3 minutes ago; nothing new since"
    put(tmp_path, epoch=4)
    os.utime(tmp_path / "status.json", (0, 0))  # a copy may have any time; that it changed is seen here
    folder.look()
    assert (folder.written, folder.still) == ("last written just now", False)
    for changes, still in (({"state": "ready"}, False), ({"seconds": [100.0]}, False), ({}, True)):
        put(tmp_path, **changes)
        os.utime(tmp_path / "status.json", (time.time() - 200, time.time() - 200))
        again = Folder(tmp_path)
        again.look()
        assert again.still is still
    assert [ago(seconds) for seconds in (3, 12, 61, 7200, 1e6)] == [
        "just now",
        "12 seconds ago",
        "1 minute ago",
        "2 hours ago",
        "11 days ago",
    ]
