"""Engines as jobs of PBS, LSF, SGE and HTCondor, whose commands are a stub that runs the jobs on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

import ptynb as pt
from ptynb.cluster import runtime_dir
from ptynb.cluster.cluster import launcher_class
from ptynb.cluster.cluster_start import check, python_of
from ptynb.cluster.devices import plan_cluster
from ptynb.cluster.launchers import job_launcher, scheduler_commands, slurm_commands
from ptynb.cluster.launchers.job_launcher import JobLauncher
from ptynb.cluster.launchers.scheduler_commands import ENDED, FAILED, HELD, SCHEDULERS, WAITS
from ptynb.settings.cluster_options import QUEUED, SECTIONS, ClusterSection
from tests import waiting
from tests.raising import raises

NAME = "ptynb-1"
until = partial(waiting.until, seconds=20)
STAND_IN = """
import json, os, signal, sys, time
from pathlib import Path
def leave(*_): (Path(sys.argv[1]) / f"rank{os.environ['PTYNB_RANK']}.kept").touch(); sys.exit(7)
signal.signal(signal.SIGTERM, leave)
part = Path(sys.argv[1]) / f"{os.getpid()}.part"
part.write_text(json.dumps({**os.environ, "pid": os.getpid(), "cwd": os.getcwd()}))
part.rename(part.with_suffix(".json"))
time.sleep(60)
"""


@pytest.fixture(params=[name for name in SCHEDULERS if name != "slurm"])
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A scheduler whose commands are the stub."""
    name: str = request.param
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).touch()
    for command in (SCHEDULERS[name].submit, SCHEDULERS[name].status, SCHEDULERS[name].cancel):
        shutil.copy(Path(__file__).with_name("queue_stub.py"), tmp_path / "bin" / command[0])
        (tmp_path / "bin" / command[0]).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(job_launcher, "NEW_SECONDS", 0.0)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a folder's"
    made.mkdir(mode=0o700)
    return made


def launcher_of(kind: str, folder: Path, command: tuple[str, ...] | None = None) -> JobLauncher:
    options = SECTIONS[kind](engines=2, device="cpu", cpus_per_engine=3)
    return JobLauncher(options, NAME, folder, command=command or (sys.executable, "-S", "-c", STAND_IN, str(folder)))


def came(folder: Path) -> list[dict[str, str]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json")) if file.stem.isdecimal()]


def test_each_engine_is_a_job_that_is_replaced_taken_over_and_ended(kind: str, folder: Path) -> None:
    launcher = launcher_of(kind, folder)
    launcher.start([0, 1])
    until(lambda: len(came(folder)) == 2)
    engines = {int(one["PTYNB_RANK"]): one for one in came(folder)}
    for rank in (0, 1):
        found = [engines[rank][name] for name in ("PTYNB_CLUSTER", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "cwd")]
        assert found == [NAME, "", "3", str(Path.cwd())]
    assert launcher.news() == f"jobs of {SCHEDULERS[kind].title}: 2 running (10, 11)"
    assert (launcher.waiting(), launcher.failed(), launcher.dead()) == (False, "", [])

    os.kill(int(engines[1]["pid"]), signal.SIGKILL)
    began = time.monotonic()
    until(lambda: launcher.dead() == [1])
    assert time.monotonic() - began < 5, "its log tells it, and the scheduler is not asked"
    launcher.start([1])
    until(lambda: len(came(folder)) == 3)
    assert launcher.dead() == []

    record = json.loads(json.dumps(launcher.record()))
    runtime_dir.write(folder, "processes.json", {"engines": record["processes"], "end": record["end"]})
    described = json.loads(json.dumps({"kind": launcher.kind, **launcher.describe()}))
    other = launcher_class(kind).again(plan_cluster(1, "cpu", (), 1), described, NAME, folder)
    other.join({}, described)
    assert other.record() == record
    assert other.dead() == []
    other.kill(0)
    assert other.dead() == [0]
    until(lambda: (folder / "rank0.kept").exists())  # the signal reaches the engine, which writes a checkpoint
    [cancel] = record["end"]  # job 10 has ended already
    subprocess.run(cancel, check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    until(lambda: not any(psutil.pid_exists(int(one["pid"])) for one in came(folder)))
    launcher.stop()
    assert launcher.record() == {"processes": [], "end": []}


def test_a_job_without_an_engine_and_one_in_error_are_failures(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launcher_of(kind, folder, ("false",))
    launcher.start([0])
    until(lambda: launcher.dead() == [0])
    assert not launcher.failed()  # the engine has started and ended, which its log explains
    template = folder / "job.sh"
    template.write_text("#!/bin/sh\n{header}\nexit 3\n{command}\n")
    monkeypatch.setattr(scheduler_commands, "TEMPLATE", template.read_text())
    launcher.start([1])
    until(launcher.failed)
    assert "Job 11 has ended, and has not started the engine of rank 1; it wrote to" in launcher.failed()
    monkeypatch.setattr(scheduler_commands, "states", lambda _, jobs: dict.fromkeys(jobs, FAILED))
    launcher._asked = 0.0
    assert "Job 10 of the engine of rank 0 is in an error state" in launcher.failed()


GPU_JOB = {"engines": 2, "time": "1-2:30", "memory": "64G", "account": "beam", "cpus_per_engine": 8}


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("pbs", {"queue": "gpu", "extra": ("-l place=excl",)},
         ["#PBS -l select=1:ncpus=8:ngpus=1:mem=64gb", "#PBS -l walltime=26:30:00", "#PBS -q gpu", "#PBS -A beam",
          "#PBS -l place=excl"]),
        ("lsf", {"queue": "gpu", "extra": ("-x",)},
         ["#BSUB -n 8", '#BSUB -gpu "num=1"', "#BSUB -M 64G", "#BSUB -W 1590", "#BSUB -q gpu", "#BSUB -P beam",
          "#BSUB -x"]),
        ("sge", {"queue": "gpu", "extra": ("-l exclusive",)},
         ["#$ -pe smp 8", "#$ -l gpu=1", "#$ -l mem_free=64G", "#$ -l h_rt=26:30:00", "#$ -q gpu", "#$ -P beam",
          "#$ -l exclusive"]),
        ("htcondor", {"extra": ("+WantGPULab = true",)},
         ["request_cpus = 8", "request_gpus = 1", "request_memory = 64G", "allowed_job_duration = 95400",
          "accounting_group = beam", "+WantGPULab = true"]),
    ],
)  # fmt: skip
def test_a_script_has_what_was_asked_for(
    kind: str, values: dict[str, object], expected: list[str], tmp_path: Path
) -> None:
    options = SECTIONS[kind](**GPU_JOB, **values)
    lines = scheduler_commands.engine_script(options, NAME, tmp_path, 3, ["true"]).splitlines()
    assert {*expected} <= {*lines}
    without = scheduler_commands.engine_script(SECTIONS[kind](device="cpu"), NAME, tmp_path, 3, ["true"])
    assert not [word for word in ("gpu", "walltime", "-W", "-q ", "mem", "account") if word in without]
    if kind == "htcondor":
        with raises("argument.conflict", "no queues"):
            scheduler_commands.engine_script(SECTIONS[kind](queue="gpu"), NAME, tmp_path, 0, ["true"])


def script_of(kind: str, folder: Path, **options: str) -> str:
    chosen = SECTIONS[kind](**options, **({"nodes": 1} if kind == "slurm" else {}))
    if kind == "slurm":
        return slurm_commands.script(chosen, NAME, folder / "log" / "job.log", ["srun", "true"])
    return scheduler_commands.engine_script(chosen, NAME, folder, 0, ["true"])


@pytest.mark.parametrize(
    ("kind", "first", "begins"),
    [
        ("slurm", f"#SBATCH --job-name={NAME}", "srun true"),
        ("pbs", f"#PBS -N {NAME}", "true &"),
        ("lsf", f"#BSUB -J {NAME}", "true &"),
        ("sge", f"#$ -N {NAME}", "true &"),
        ("htcondor", "", "true &"),
    ],
)
def test_a_site_has_a_template_of_its_own(kind: str, first: str, begins: str, tmp_path: Path) -> None:
    template = tmp_path / "job.sh"
    template.write_text("#!/bin/bash\n{header}\n#SITE -l place=excl\nmodule load cuda/${VERSION}\n{command}\n")
    text = script_of(kind, tmp_path, template=str(template))
    if kind == "htcondor":
        assert f"\nexecutable = {tmp_path / 'job-rank0.sh'}\n" in text
        text = (tmp_path / "job-rank0.sh").read_text()
    lines = text.splitlines()
    assert lines[:2] == ["#!/bin/bash", first or "#SITE -l place=excl"]
    assert lines.index("module load cuda/${VERSION}") < lines.index(begins)
    assert not [word for word in ("{header}", "{command}") if word in text]
    assert "module" not in script_of(kind, tmp_path)
    template.write_text("#!/bin/sh\n{header}\n")
    for path, told in ((str(template), "has no {command}"), ("/no/such/file", "cannot be read")):
        with raises("argument.invalid-value", told):
            script_of(kind, tmp_path, template=path)


@pytest.mark.parametrize(
    ("kind", "listing", "expected"),
    [
        ("pbs", "Job id   Name  User  Time Use S Queue\n-----  ----- ---- ---- - -----\n"
         "12.pbs a me 00:00:00 R gpu\n13.pbs a me 0 Q gpu\n14.pbs a me 0 H gpu\n15.pbs a me 0 C gpu\n",
         ["running", WAITS, HELD, ENDED, ENDED]),
        ("lsf", "12  RUN\n13  PEND\n14  PSUSP\n15  EXIT\n", ["running", WAITS, HELD, ENDED, ENDED]),
        ("sge", "job-ID prior name user state submit\n-----\n     12 0.5 a me r 01/31\n     13 0.5 a me qw 01/31\n"
         "     14 0.0 a me hqw 01/31\n     15 0.5 a me Eqw 01/31\n", ["running", WAITS, HELD, FAILED, ENDED]),
        ("htcondor", "12 2\n13 1\n14 5\n15 4\n", ["running", WAITS, HELD, ENDED, ENDED]),
    ],
)  # fmt: skip
def test_states_are_read(kind: str, listing: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_commands, "ask", lambda *command, **_: listing)
    jobs = ["12", "13", "14", "15", "16"]
    assert scheduler_commands.states(kind, jobs) == dict(zip(jobs, expected, strict=True))


@pytest.mark.parametrize(
    ("time", "expected"), [("90", 5400), ("90:30", 5430), ("1:5:0", 3900), ("2-12", 216000), ("2-12:30", 217800)]
)
def test_a_time_limit_in_seconds(time: str, expected: int) -> None:
    assert scheduler_commands.seconds(time) == expected


def test_commands_that_fail_are_told(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (SCHEDULERS[kind].submit, SCHEDULERS[kind].status, SCHEDULERS[kind].cancel):
        path = tmp_path / "bin" / command[0]
        path.write_text(f"#!/bin/sh\necho '{path.name}: error: not authorized' >&2\nexit 1\n")
    for call in (
        lambda: scheduler_commands.submit(kind, ""),
        lambda: scheduler_commands.states(kind, ["1"]),
        lambda: scheduler_commands.cancel(kind, ["1"]),
    ):
        with raises("scheduler.command-failed", "failed: not authorized"):
            call()
    (tmp_path / "bin" / SCHEDULERS[kind].submit[0]).write_text("#!/bin/sh\necho thanks\n")
    with raises("scheduler.command-failed", "returned 'thanks'; expected the number of a job"):
        scheduler_commands.submit(kind, "")
    monkeypatch.setenv("PATH", "/nowhere")
    with raises("scheduler.not-installed", f"login node of the {SCHEDULERS[kind].title} cluster"):
        check(SECTIONS[kind]())


@pytest.mark.parametrize("kind", ["pbs"], indirect=True)
def test_a_cluster_of_jobs_runs_and_refuses_what_it_cannot_be(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    options: ClusterSection = SECTIONS[kind](engines=1, device="cpu", cpus_per_engine=1, queue="gpu")
    assert python_of(options) == "pt.Cluster(1, launcher='pbs', device='cpu', cpus_per_engine=1, queue='gpu')"
    with pt.Cluster(1, launcher="pbs", device="cpu", cpus_per_engine=1, address="127.0.0.2", report=told.append) as one:
        assert [engine["rank"] for engine in one.status()] == [0]
        assert one.folder is not None
        keys = [json.loads(file.read_text()).get("key") for file in one.folder.glob("security/*.json")]
        scripts = "".join(file.read_text() for file in Path(shutil.which("qsub") or "").parent.glob("*.script"))
        assert str(one.folder) in scripts
        assert all(key not in scripts for key in keys if key)
    assert "jobs of PBS: 1 running (10)" in told
    assert scheduler_commands.states("pbs", ["10"]) == {"10": ENDED}
    monkeypatch.setattr(pt.Cluster, "start", lambda self: setattr(self, "_plan", plan_cluster(1, "cpu", (), 1)))
    with raises("gpu.not-found", "Each job of pbs requested a GPU"):
        pt.Cluster(1, launcher="pbs", cpus_per_engine=1, address="127.0.0.2", report=None)
    assert {*QUEUED} == {*SCHEDULERS}
    for wrong, told_of in (({"launcher": "slurm"}, "Cluster.slurm"), ({"launcher": "pbs", "threads": 2}, "threads")):
        with raises("argument.invalid-value", told_of):
            pt.Cluster(**wrong)  # type: ignore[arg-type]
