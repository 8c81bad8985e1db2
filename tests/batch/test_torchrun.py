"""Runs without a notebook, as users start them: processes of their own, by torchrun, by hand, and on a cluster."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest

import ptynb as pt
from ptynb.batch import torchrun as ranks
from ptynb.batch.rank_env import Place, Seat
from ptynb.batch.run_job import RunJob
from ptynb.batch.signals import SIGNALS, signals_raise, status_of
from ptynb.cli.main import main
from ptynb.io.checkpoint_file import states
from ptynb.settings.run_files.run_file import read_run

SECONDS = 120
MANY = 10**6


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    pt.save_scan(pt.simulate(patterns=36, window=32, seed=3), folder / "scan.h5")
    (folder / "settings.yaml").write_text("batch: 12\nschedule: {kind: constant}\n")
    return folder


@pytest.fixture
def plan(work, tmp_path):
    """A run file beside the scan of `work`; its text."""

    def plan(epochs, cluster="{engines: 2, device: cpu, threads: 1}", **more):
        settings = "{batch: 12, schedule: {kind: constant}}"  # runs are ended anywhere, and compared
        text = f"scan: {work / 'scan.h5'}\nepochs: {epochs}\nresult: out.h5\ncluster: {cluster}\nsettings: {settings}\n"
        path = tmp_path / "run.yaml"
        path.write_text(text + "".join(f"{name}: {value}\n" for name, value in more.items()))
        return path

    return plan


def start(*arguments, **environment):
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    """(status, output, errors) once it has ended."""
    out, errors = process.communicate(timeout=SECONDS)
    return process.returncode, out, errors


def torchrun(*arguments):
    return start("torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "ptynb.run", *arguments)


def two_pods(*arguments):
    """Two ranks without torchrun, of which rank 0 keeps the store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    there = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [start("ptynb.run", *arguments, RANK=str(rank), **there) for rank in (0, 1)]


def first_epoch(process):
    """Waits for the first line of an epoch."""
    for line in process.stdout:
        if " epoch " in line:
            return line
    raise AssertionError(process.stderr.read())


def test_what_a_signal_ends_goes_on_and_ranks_of_torchrun_find_what_a_cluster_finds(plan, tmp_path):
    run = plan(MANY, checkpointing="{seconds: null, epochs: 1000000}")
    elsewhere = ("--result", tmp_path / "cluster.h5")
    begun = (
        torchrun(run),
        start("ptynb.cli.main", "run", run, *elsewhere),
    )  # at the same time: both wait more than they work
    commands = f"python -m ptynb.run {run} --resume", f"ptynb run {run} --result {elsewhere[1]} --resume"
    for process in begun:
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d epoch \d+/1000000 loss 0\.\d+ [\d.e-]+ s \(\d+ patterns/s\)\n",
            first_epoch(process),
        )
        process.terminate()
    done = []
    for process, name, command in zip(begun, ("out", "cluster"), commands, strict=True):
        status, out, errors = ended(process)
        assert status == 75 if process is begun[1] else status != 0, errors  # torchrun has a status of its own
        [kept] = states(tmp_path / f"{name}.states")
        found = re.search(r"The checkpoint of epoch (\d+) is in (\S+)\. Continue with: (.*)\n", out)
        assert found.groups()[1:] == (str(kept), command)
        assert not (tmp_path / f"{name}.h5").exists()
        done.append((int(found[1]), kept))

    last = max(epoch for epoch, _ in done) + 2
    more = ("--resume", "--epochs", last)
    resumed = torchrun(run, *more), start("ptynb.cli.main", "run", run, *elsewhere, *more)
    for process, (_, kept) in zip(resumed, done, strict=True):
        status, out, errors = ended(process)
        assert status == 0, errors
        assert f"Continuing from {kept}." in out
        assert f" epoch {last}/{last} loss " in out

    of_ranks, of_cluster = pt.load_result(tmp_path / "out.h5"), pt.load_result(tmp_path / "cluster.h5")
    assert len(of_ranks.epochs) == last
    for name in ("object", "probe", "positions", "losses"):
        np.testing.assert_array_equal(getattr(of_ranks, name), getattr(of_cluster, name))
    for name in ("r_factor", "settings", "pixel_size", "origin"):
        assert getattr(of_ranks, name) == getattr(of_cluster, name)
    assert len(of_ranks.machines.devices) == len(set(of_ranks.machines.devices)) == 2
    assert all(device.startswith("CPU") for device in of_ranks.machines.devices)
    for name in ("engines", "backend", "batch", "scan"):
        assert of_ranks.metadata[name] == of_cluster.metadata[name]


def test_pods_find_each_other_and_one_that_fails_ends_all_with_its_traceback_once(work, plan, tmp_path):
    run = plan(MANY)
    shutil.copy(work / "scan.h5", tmp_path / "bad.h5")
    with h5py.File(tmp_path / "bad.h5", "r+") as bad:
        bad["patterns"][30, 5, 5] = np.nan  # of rank 1, and not looked at by `load`
    first, second = two_pods(run, "--scan", tmp_path / "bad.h5")
    lines = [(time.monotonic(), line) for line in second.stderr]
    answers = [ended(pod) for pod in (first, second)]
    failed = next(when for when, line in lines if "Traceback" in line)
    assert time.monotonic() - failed < 25  # the group's timeout alone is 30 s; the start takes as long as it takes
    assert [status for status, _, _ in answers] == [65, 65]
    told = answers[0][2] + "".join(line for _, line in lines)
    assert told.count("Traceback (most recent call last)") == 1
    assert re.search(r"ptynb: rank 1 on \S+: ScanError: Pattern 30 has the count nan at pixel \(5, 5\)", told)
    assert not (tmp_path / "out.h5").exists()


def test_what_every_rank_finds_wrong_is_told_once(plan, tmp_path):
    answers = [ended(pod) for pod in two_pods(plan(MANY), "--scan", tmp_path / "none.h5")]
    assert [status for status, _, _ in answers] == [66, 66]
    told = "".join(errors for _, _, errors in answers)
    assert re.fullmatch(rf"ptynb: rank [01] on \S+: There is no file {tmp_path / 'none.h5'}\. .*\n", told)


@pytest.mark.parametrize("which", [0, 1])
def test_a_signal_to_one_pod_ends_all_after_a_checkpoint(plan, tmp_path, which):
    pods = two_pods(plan(MANY))
    first_epoch(pods[0])
    pods[which].terminate()
    answers = [ended(pod) for pod in pods]
    assert [status for status, _, _ in answers] == [75, 75], answers
    [kept] = states(tmp_path / "out.states")
    assert re.search(rf"The checkpoint of epoch \d+ is in {re.escape(str(kept))}\. Continue with: ", answers[0][1])


def test_a_pod_that_is_killed_ends_the_others(plan):
    pods = two_pods(plan(MANY))
    first_epoch(pods[0])
    pods[1].kill()
    status, out, errors = ended(pods[0])
    assert status == 70
    assert "Start again with: " in out
    assert errors.count("ptynb: rank 0 on ") == 1
    ended(pods[1])


def test_checkpoints_that_exist_end_all_ranks(plan, alone):
    run = plan(2)
    assert alone(run) == 0
    answers = [ended(pod) for pod in two_pods(run)]
    assert [status for status, _, _ in answers] == [73, 73]
    assert "continue from it with --resume" in " ".join(answers[0][2].split())


@pytest.fixture
def alone():
    """A run in this process, as `ptynb run --cluster none` does it: (status, output, errors)."""

    def alone(path, resume=False, **options):
        seat = Seat("cpu", "CPU", "CPU", "none", 1)
        with signals_raise(), RunJob("run", again="AGAIN") as job:
            ranks.run(read_run(path, options), Place(), seat, resume, job)
        return job.exit_status

    return alone


def test_settings_alone_are_a_run_with_options(work, alone, tmp_path, capsys):
    options = {"scan": work / "scan.h5", "epochs": 3, "result": tmp_path / "alone.h5"}
    assert alone(work / "settings.yaml", **options) == 0
    result = pt.load_result(tmp_path / "alone.h5")
    recon = pt.Reconstruction(
        pt.load(work / "scan.h5"), pt.Settings(batch=12, schedule={"kind": "constant"}), device="cpu"
    )
    for _ in recon.run(3):
        pass
    np.testing.assert_array_equal(result.object, recon.result.object)
    recon.close()
    assert f"R-factor {result.r_factor:.4f}. Result: {tmp_path / 'alone.h5'}\n" in capsys.readouterr().out


def test_a_run_without_progress_ends_earlier_and_says_so(work, plan, alone, tmp_path, capsys):
    run = plan(1000, cluster="{engines: 1, device: cpu, threads: 1}")
    run.write_text(
        run.read_text().replace(
            "{batch: 12, schedule: {kind: constant}}", "{stop: {patience: 1, tolerance: 0.99, min_epochs: 3}}"
        )
    )
    assert alone(run) == 0
    first = capsys.readouterr().out
    assert main(["run", str(run), "--result", str(tmp_path / "cluster.h5")]) == 0
    for told in (first, capsys.readouterr().out):
        (line,) = [line for line in told.splitlines() if "topped" in line]
        assert "Stopped after epoch 3 of 1000: the loss " in line
    assert len(pt.load_result(tmp_path / "out.h5").epochs) == len(pt.load_result(tmp_path / "cluster.h5").epochs) == 3


def test_a_folder_with_states_is_gone_on_from_only_where_that_was_asked_for(plan, alone, tmp_path, capsys):
    run = plan(2)
    assert alone(run, resume=True) == 0  # where none is, it begins
    assert alone(run) == 73
    assert (
        "contains checkpoints of an earlier run, the newest state-00002.h5; continue from it with --resume"
        in " ".join(capsys.readouterr().err.split())
    )
    assert alone(run, resume=True, epochs=5) == 0
    assert [epoch.number for epoch in pt.load_result(tmp_path / "out.h5").epochs] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_keeps_the_state_and_says_how_to_go_on(plan, alone, tmp_path, capsys, number):
    before = signal.getsignal(number)

    def later():
        while "epoch" not in said[0]:
            time.sleep(0.02)
            said[0] += capsys.readouterr().out
        os.kill(os.getpid(), number)

    said = [""]
    thread = threading.Thread(target=later)
    thread.start()
    assert alone(plan(MANY)) == status_of(number) == (130 if number == signal.SIGINT else 75)
    thread.join()
    said[0] += capsys.readouterr().out
    [kept] = states(tmp_path / "out.states")
    assert re.search(rf"The checkpoint of epoch \d+ is in {re.escape(str(kept))}\. Continue with: AGAIN\n", said[0])
    assert signal.getsignal(number) == before


def test_a_result_that_could_not_be_written_is_told_before_anything_is_computed(plan, alone, tmp_path, capsys):
    assert alone(plan(MANY), result=tmp_path / "none" / "out.h5") == 73
    assert f"There is no folder {tmp_path / 'none'} to write out.h5 in; make it first" in " ".join(
        capsys.readouterr().err.split()
    )


def test_neither_torchrun_nor_a_pod_loads_a_cluster_or_widgets():
    program = "import ptynb.run, ptynb.batch.torchrun, sys; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not set(answer.stdout.split()) & {"ipyparallel", "zmq", "IPython", "ipywidgets", "matplotlib"}
    program = "import ptynb.run, ptynb.batch.rank_env, sys; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert "torch" not in answer.stdout.split()


def test_ranks_prepare_the_scan_begin_stages_together_and_go_on_in_the_middle_of_one(work, tmp_path):
    np.save(tmp_path / "bad.npy", np.arange(28) != np.arange(28)[:, None])
    text = (
        f"scan: {work / 'scan.h5'}\nresult: {{}}.h5\nprepare: [flip: x, crop: 28, mask_pixels: bad.npy]\n"
        "settings: {batch: 12, batch_sampling: compact, precision: double}\nstages:\n- {epochs: 2, pattern_size: 16}\n"
        "- {epochs: 3, settings: {probe: {modes: 2}, batch: 9}}\n"
    )
    for name in ("two", "one"):
        (tmp_path / f"{name}.yaml").write_text(text.replace("{}", name, 1))
    alone = start("ptynb.run", tmp_path / "one.yaml", "--device", "cpu")
    for more in (("--epochs", 4), ("--resume",)):
        status, _, errors = ended(torchrun(tmp_path / "two.yaml", "--device", "cpu", "--threads", 1, *more))
        assert status == 0, errors
    status, _, errors = ended(alone)
    assert status == 0, errors
    two, one = (pt.load_result(tmp_path / f"{name}.h5") for name in ("two", "one"))
    assert (len(two.epochs), two.stage, two.machines.engines) == (5, 1, 2)
    assert [next(iter(step)) for step in two.scan.preparation] == ["flip", "crop", "mask_pixels"]
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-9)
    np.testing.assert_allclose(two.object, one.object, atol=1e-8)
    assert [change.name for change in two.changes] == ["stage", "pattern_size", "probe.modes", "batch"]
