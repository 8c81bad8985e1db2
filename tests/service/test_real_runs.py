"""The service with real runs: what `ptynb run` writes and tells is what the service expects of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

import ptynb as pt
from ptynb.service.job_worker import RUN
from tests.service.running_service import ENDED, RunningService, Start
from tests.waiting import until


@pytest.fixture
def service(start: Start, data: Path) -> RunningService:
    pt.save_scan(pt.simulate(patterns=25, window=32, seed=0), data / "simulated.h5")
    return start(command=RUN, lease=20.0)


def submit(service: RunningService, name: str, **values: object) -> None:
    run = {"scan": "simulated.h5", "cluster": {"kind": "none"}, "checkpointing": {"pictures": 0.2}, **values}
    answer = service.request("POST", "/jobs", json={"run": run, "id": name})
    assert answer.status_code == 201, answer.text


@pytest.mark.timeout(600)
def test_a_real_run_is_stopped_and_restarted_and_has_a_result(service: RunningService, tmp_path: Path):
    submit(service, "a", epochs=100_000)
    until(lambda: (service.queue.find("a").epoch or 0) > 5, 240)
    service.request("POST", "/jobs/a/stop")
    stopped = service.reaches("a", "stopped", seconds=60)
    assert stopped["epochs"] == 100_000
    picture = service.request("GET", "/jobs/a/pictures/phase")
    assert Image.open(io.BytesIO(picture.content)).format == "JPEG"
    service.request("POST", "/jobs/a/restart")
    until(lambda: (service.queue.find("a").epoch or 0) > stopped["epoch"], 240)
    assert service.end() == 0
    assert service.queue.find("a").status == "queued"
    service.queue.stop("a")
    service.start()

    submit(service, "b", epochs=8)
    done = service.reaches("b", *ENDED, seconds=240)
    assert (done["status"], done["epoch"], done["error"]) == ("completed", 8, None)
    (tmp_path / "result.h5").write_bytes(service.request("GET", "/jobs/b/result").content)
    result = pt.load_result(tmp_path / "result.h5")
    assert len(result.epochs) == 8
    assert done["loss"] == pytest.approx(result.epochs[-1].loss)
    events = [line["event"] for line in service.request("GET", "/jobs/b/progress").json()["lines"]]
    assert events[0] == "started"
    assert events[-1] == "completed"
    assert "epoch" in events

    (service.data / "none.h5").write_bytes(b"no scan at all")
    submit(service, "c", scan="none.h5", epochs=3)
    failed = service.reaches("c", *ENDED, seconds=120)
    assert (failed["status"], failed["exit_status"], failed["attempt"]) == ("failed", 65, 1)
    assert failed["error"]["code"].startswith("file.")
    assert "none.h5" in failed["error"]["message"]
