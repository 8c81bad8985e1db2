import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import psutil
import pytest

from ptynb.cluster.lifetime import watchdog
from tests.waiting import until

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
STUBBORN_FAMILY = ["sh", "-c", "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & echo $!; wait"]


@pytest.fixture
def start():
    """Starts processes and ends them after the test, whatever became of them."""
    started = []

    def begin(command, **options):
        process = subprocess.Popen(command, **options)
        started.append((process, psutil.Process(process.pid).create_time()))
        return started[-1]

    yield begin
    for process, _ in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(watchdog, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(watchdog, "POLL_SECONDS", 0.02)


def listed(folder, *entries):
    folder.mkdir(exist_ok=True)
    listing = {"engines": [(process.pid, at) for process, at in entries], "others": [], "end": []}
    (folder / "processes.json").write_text(json.dumps(listing))
    return folder


def held(folder, pid, start, lease=0.0):
    (folder / "holder.json").write_text(json.dumps({"pid": pid, "start": start, "lease": lease}))
    return folder


def test_alive_is_the_same_id_begun_at_the_same_time():
    begun = psutil.Process().create_time()
    assert watchdog.is_alive(os.getpid(), begun)
    assert not watchdog.is_alive(os.getpid(), begun - 5)
    assert not watchdog.is_alive(os.getpid(), begun + 5)


def test_a_process_that_ended_is_not_alive_even_before_it_is_reaped(start):
    process, begun = start(SLEEPER)
    process.kill()
    until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert not watchdog.is_alive(process.pid, begun)
    process.wait()
    assert not watchdog.is_alive(process.pid, begun)


def test_a_listed_process_and_its_child_are_ended_even_if_they_ignore_term(start, tmp_path):
    shell, begun = start(STUBBORN_FAMILY, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(shell.stdout.readline()))
    its_begin = child.create_time()
    try:
        watchdog.end_processes(listed(tmp_path, (shell, begun)))
        assert not watchdog.is_alive(shell.pid, begun)
        until(lambda: not watchdog.is_alive(child.pid, its_begin), 2)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def test_a_process_with_another_start_time_is_left_alone(start, tmp_path):
    spared, begun = start(SLEEPER)
    doomed, its_begin = start(SLEEPER)
    watchdog.end_processes(tmp_path)  # there is no list yet
    watchdog.end_processes(listed(tmp_path, (spared, begun - 100), (doomed, its_begin)))
    assert watchdog.is_alive(spared.pid, begun)
    assert not watchdog.is_alive(doomed.pid, its_begin)


def test_it_leaves_when_the_folder_is_gone_and_touches_nothing(start, tmp_path):
    spared, begun = start(SLEEPER)
    folder = held(listed(tmp_path / "cluster", (spared, begun)), os.getpid(), psutil.Process().create_time())

    def remove():
        shutil.rmtree(folder)

    timer = threading.Timer(0.2, remove)
    timer.start()
    at = time.monotonic()
    watchdog.main(folder)
    assert 0.15 < time.monotonic() - at < 2
    timer.join()
    assert watchdog.is_alive(spared.pid, begun)


def test_as_a_script_it_cleans_up_when_the_notebook_dies(start, tmp_path):
    kernel, kernel_begun = start(SLEEPER)
    engine, engine_begun = start(SLEEPER)
    folder = held(listed(tmp_path / "cluster", (engine, engine_begun)), kernel.pid, kernel_begun)
    watcher, _ = start([sys.executable, watchdog.__file__, str(folder)])
    time.sleep(0.7)
    assert watcher.poll() is None
    assert watchdog.is_alive(engine.pid, engine_begun)
    kernel.kill()
    assert watcher.wait(10) == 0
    assert not watchdog.is_alive(engine.pid, engine_begun)
    assert not folder.exists()


def test_for_the_time_of_the_lease_engines_go_on_alone(start, tmp_path):
    engine, begun = start(SLEEPER)
    folder = held(listed(tmp_path / "cluster", (engine, begun)), 2**22 + 1, 0.0, lease=0.5)
    at = time.monotonic()
    watchdog.main(folder)
    assert 0.5 < time.monotonic() - at < 5
    assert not watchdog.is_alive(engine.pid, begun)
    assert not folder.exists()


def test_when_the_engines_have_left_it_waits_no_longer(start, tmp_path):
    engine, begun = start(SLEEPER)
    rest, rest_begun = start(SLEEPER)
    folder = held(listed(tmp_path / "cluster", (engine, begun)), 2**22 + 1, 0.0, lease=1000.0)
    content = json.loads((folder / "processes.json").read_text())
    content["others"] = [(rest.pid, rest_begun)]
    (folder / "processes.json").write_text(json.dumps(content))
    timer = threading.Timer(0.3, engine.kill)
    timer.start()
    watchdog.main(folder)
    timer.join()
    assert not watchdog.is_alive(rest.pid, rest_begun)


def test_a_new_holder_takes_over(start, tmp_path):
    engine, begun = start(SLEEPER)
    folder = held(listed(tmp_path / "cluster", (engine, begun)), 2**22 + 1, 0.0, lease=2.0)
    watcher = threading.Thread(target=watchdog.main, args=(folder,))
    watcher.start()
    time.sleep(0.1)
    held(folder, os.getpid(), psutil.Process().create_time())
    time.sleep(2.5)
    assert watcher.is_alive()
    assert watchdog.is_alive(engine.pid, begun)
    shutil.rmtree(folder)
    watcher.join(5)
    assert not watcher.is_alive()


def test_commands_that_end_something_elsewhere_are_run(tmp_path):
    folder = held(tmp_path, 2**22 + 1, 0.0)
    done = tmp_path.parent / "done"
    broken = ["no such command of ptynb"]
    (folder / "processes.json").write_text(json.dumps({"end": [broken, ["touch", str(done)]]}))
    watchdog.main(folder)
    assert done.exists()


def test_the_script_imports_nothing_of_ptynb():
    program = f"import runpy, sys; runpy.run_path({watchdog.__file__!r}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not [name for name in loaded.stdout.split() if name.split(".")[0] in ("ptynb", "numpy", "torch")]
