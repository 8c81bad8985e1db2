"""Engines as tasks of a real Slurm of two nodes. What stands for an engine writes its environment and stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ptynb.cluster import runtime_dir
from ptynb.cluster.devices import plan_cluster
from ptynb.cluster.launchers import scheduler_commands, slurm_commands
from ptynb.cluster.launchers.slurm_commands import own_gpu
from ptynb.cluster.launchers.slurm_launcher import SlurmLauncher
from ptynb.settings.cluster_options import ClusterSection, SlurmCluster
from tests.raising import raises
from tests.slurm.daemons import Slurm
from tests.slurm.runs import NAME, Run, until


@pytest.fixture
def runs(nodes: Slurm, folder: Path) -> Iterator[Callable[..., Run]]:
    """Makes runs that are stopped at the end."""
    made: list[Run] = []

    def make(allocation: ClusterSection, job: str = "") -> Run:
        made.append(Run(folder, allocation, job))
        return made[-1]

    yield make
    for run in made:
        run.launcher.stop()


@pytest.fixture
def job(nodes: Slurm) -> Iterator[str]:
    """The number of a job of two nodes, as salloc gives one."""
    made = scheduler_commands.submit(
        "slurm", "#!/bin/sh\n#SBATCH --nodes=2 --cpus-per-task=4 --gres=gpu:2 --output=/dev/null\nsleep 600\n"
    )
    until(lambda: slurm_commands.state(made).name == "RUNNING")
    yield made
    scheduler_commands.cancel("slurm", [made])
    until(lambda: slurm_commands.state(made).over)


def alive(engine: dict[str, str]) -> bool:
    return psutil.pid_exists(int(engine["pid"])) and psutil.Process(int(engine["pid"])).status() != "zombie"


def test_a_job_on_two_nodes_has_every_rank_once_and_is_gone_after_stop(runs: Callable[..., Run]) -> None:
    run = runs(SlurmCluster(nodes=2, engines_per_node=2, cpus_per_engine=2, time="00:10:00"))
    engines = run.start()
    assert sorted(engines) == [0, 1, 2, 3]
    assert [engines[rank]["SLURMD_NODENAME"] for rank in range(4)] == ["n1", "n1", "n2", "n2"]
    assert [engines[rank]["SLURM_LOCALID"] for rank in range(4)] == ["0", "1", "0", "1"]
    assert {one["SLURM_CPUS_PER_TASK"] for one in engines.values()} == {"2"}
    assert {one["CUDA_VISIBLE_DEVICES"] for one in engines.values()} == {""}
    assert {one["PTYNB_CLUSTER"] for one in engines.values()} == {NAME}
    job = run.launcher.job
    until(lambda: "runs" in run.launcher.news())
    assert run.launcher.news() == f"job {job} runs on n1, n2"
    for rank in range(4):
        log = run.folder / "log" / f"engine-rank{rank}.log"
        until(lambda log=log: log.read_text() == f"engine {log.stem[-1]} came\n")
    assert run.launcher.dead() == []
    assert run.launcher.record() == {"processes": [], "end": [["scancel", "--quiet", job]]}
    run.launcher.stop()
    assert slurm_commands.state(job).name == "CANCELLED"
    until(lambda: not any(map(alive, engines.values())))
    run.launcher.stop()


def test_each_engine_of_a_node_has_a_gpu_of_its_own(runs: Callable[..., Run]) -> None:
    engines = runs(SlurmCluster(nodes=2, gpus_per_node=2)).start()
    assert [own_gpu(engines[rank]) for rank in range(4)] == ["0", "1", "0", "1"]


def test_gpus_that_slurm_binds_to_tasks_are_theirs(runs: Callable[..., Run]) -> None:
    engines = runs(SlurmCluster(nodes=2, gpus_per_node=2, extra=("--gpus-per-task=1",))).start()
    assert [own_gpu(engines[rank]) for rank in range(4)] == ["0", "1", "0", "1"]


def test_a_job_that_waits_says_why_and_until_when(runs: Callable[..., Run], nodes: Slurm) -> None:
    full = scheduler_commands.submit(
        "slurm", "#!/bin/sh\n#SBATCH --nodes=2 --exclusive --time=30 --output=/dev/null\nsleep 600\n"
    )
    run = runs(SlurmCluster(nodes=1, engines_per_node=2, time="5"))
    run.launcher.start(range(2))
    expected = f"job {run.launcher.job} waits in the queue (waiting for resources; may start at "
    until(lambda: run.launcher.news().startswith(expected), 30)
    hours, minutes = run.launcher.news().removeprefix(expected).removesuffix(")").split()[-1].split(":")
    in_minutes = (int(hours) * 60 + int(minutes) - time.localtime().tm_hour * 60 - time.localtime().tm_min) % 1440
    assert 28 <= in_minutes <= 31  # when the other's time is over
    assert not run.launcher.failed()
    assert run.launcher.dead() == []
    scheduler_commands.cancel("slurm", [full])
    until(lambda: len(run.came()) == 2)
    until(lambda: run.launcher.news() == f"job {run.launcher.job} runs on n1", 20)


def test_a_waiting_job_is_cancelled_at_once(runs: Callable[..., Run], nodes: Slurm) -> None:
    run = runs(SlurmCluster(nodes=1, extra=("--begin=now+1hour",)))
    run.launcher.start([0])
    job = run.launcher.job
    until(lambda: "its begin time is in the future" in run.launcher.news())
    began = time.monotonic()
    run.launcher.stop()
    assert time.monotonic() - began < 5
    assert slurm_commands.state(job).name == "CANCELLED"


@pytest.mark.parametrize(
    ("allocation", "told"),
    [
        (SlurmCluster(nodes=1, time="01:00:00", partition="short"), "its time limit exceeds that of the partition"),
        (SlurmCluster(nodes=3), "its number of nodes exceeds the limit of the partition"),
    ],
)
def test_a_job_that_can_never_start_is_an_error(
    runs: Callable[..., Run], allocation: ClusterSection, told: str
) -> None:
    run = runs(allocation)
    run.launcher.start(range(allocation.engines))
    until(run.launcher.failed)
    assert f"Job {run.launcher.job} will never start: {told} (" in run.launcher.failed()


@pytest.mark.parametrize(
    ("allocation", "told"),
    [
        (SlurmCluster(nodes=1, partition="nowhere"), "invalid partition"),
        (
            SlurmCluster(nodes=1, gpus_per_node=9, cpus_per_engine=1),
            "Requested node configuration is not available",
        ),
        (SlurmCluster(nodes=1, memory="100G"), "Memory specification can not be satisfied"),
        (SlurmCluster(nodes=1, extra=("--no-such-option",)), "unrecognized option"),
    ],
)
def test_what_slurm_refuses_is_said_in_its_words(
    runs: Callable[..., Run], allocation: ClusterSection, told: str
) -> None:
    with raises("scheduler.command-failed", "sbatch", told):
        runs(allocation).launcher.start(range(allocation.engines))


def test_a_killed_engine_takes_no_other_with_it_and_starts_again_where_it_was(runs: Callable[..., Run]) -> None:
    run = runs(SlurmCluster(nodes=2, gpus_per_node=2))
    engines = run.start()
    for rank in (1, 3):
        os.kill(int(engines[rank]["pid"]), signal.SIGKILL)
    until(lambda: run.launcher.dead() == [1, 3], 5)
    assert alive(engines[0])
    assert alive(engines[2])
    run.launcher.start([3])
    until(lambda: len(run.came()) == 5)
    assert run.launcher.dead() == [1]
    [fresh] = [one for one in run.came() if "PTYNB_RANK" in one]
    assert (fresh["PTYNB_RANK"], fresh["SLURMD_NODENAME"], fresh["SLURM_JOB_ID"]) == ("3", "n2", run.launcher.job)
    assert (fresh["SLURM_LOCALID"], own_gpu(fresh)) == ("0", "1")
    assert fresh["SLURM_STEP_ID"] != engines[3]["SLURM_STEP_ID"]
    # The job lasts as long as any engine does, also when all that came first have ended.
    for rank in (0, 2):
        os.kill(int(engines[rank]["pid"]), signal.SIGKILL)
    until(lambda: run.launcher.dead() == [0, 1, 2], 5)
    until(lambda: len(slurm_commands.ask("squeue", "-h", "-s", "-j", run.launcher.job, "-o", "%i").split()) == 2)
    time.sleep(1)
    assert alive(fresh)
    assert not run.launcher.failed()
    os.kill(int(fresh["pid"]), signal.SIGKILL)
    until(lambda: run.launcher.dead() == [0, 1, 2, 3], 5)


def test_engines_begin_in_the_script_of_a_site_also_when_started_again_or_in_the_present_job(
    runs: Callable[..., Run], job: str, tmp_path: Path
) -> None:
    template = tmp_path / "site.sh"
    template.write_text(
        "#!/bin/bash\n{header}\n#SBATCH --comment=site\nbeams=(6 7)\nexport BEAM=${beams[1]}\n{command}\n"
    )
    for present in ("", job):
        run = runs(SlurmCluster(nodes=1, cpus_per_engine=1, engines_per_node=2, template=str(template)), present)
        engines = run.start()
        assert [engines[rank]["BEAM"] for rank in (0, 1)] == ["7", "7"]
        os.kill(int(engines[1]["pid"]), signal.SIGKILL)
        until(lambda run=run: run.launcher.dead() == [1], 5)
        run.launcher.start([1])
        until(lambda run=run: len(run.came()) == 3)
        [fresh] = [one for one in run.came() if "PTYNB_RANK" in one]
        assert (fresh["BEAM"], fresh["PTYNB_LOCALID"]) == ("7", "1")
        assert run.launcher.dead() == []
        if not present:
            assert "Comment=site" in slurm_commands.ask("scontrol", "show", "job", "--oneliner", run.launcher.job)
        run.launcher.stop()
        until(lambda run=run: not any(map(alive, run.came())))
        shutil.rmtree(run.folder / "came")


def test_a_lost_node_leaves_the_engines_of_the_others(runs: Callable[..., Run]) -> None:
    run = runs(SlurmCluster(nodes=2, engines_per_node=2, cpus_per_engine=1))
    engines = run.start()
    until(lambda: run.launcher.news().endswith("runs on n1, n2"))
    slurm_commands.ask("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    until(lambda: run.launcher.dead() == [2, 3], 10)
    with raises("cluster.engine-not-replaced", "rank 3", "node n2"):
        run.launcher.start([3])
    until(lambda: not alive(engines[2]))
    assert alive(engines[0])
    assert alive(engines[1])
    assert not run.launcher.failed()


def test_with_its_first_node_the_whole_job_is_lost(runs: Callable[..., Run]) -> None:
    run = runs(SlurmCluster(nodes=2))
    engines = run.start()
    os.kill(int(engines[1]["pid"]), signal.SIGKILL)
    until(lambda: run.launcher.dead() == [1], 5)
    slurm_commands.ask("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    until(run.launcher.failed)
    assert "failed (its first node, where its script runs, was lost" in run.launcher.failed()
    assert run.launcher.dead() == [0, 1]
    with raises("cluster.engine-not-replaced", "rank 1", "failed"):
        run.launcher.start([1])
    until(lambda: not any(map(alive, engines.values())))
    run.launcher.start([0, 1])  # all of them: a new job, once its nodes are back
    until(lambda: len(run.came()) == 4, 20)
    other = taken_over(run)
    assert other.dead() == run.launcher.dead() == []
    assert not other.failed()


def test_the_time_limit_is_named(nodes: Slurm, limited: Run) -> None:
    until(lambda: limited.launcher.dead() == [0], 40)  # from what Slurm wrote, nobody was asked
    until(limited.launcher.failed)
    assert "reached its time limit" in limited.launcher.failed()


def test_a_program_that_is_missing_is_told_with_what_slurm_wrote(nodes: Slurm, folder: Path) -> None:
    launcher = SlurmLauncher(SlurmCluster(nodes=1), NAME, folder, command=("/no/such/python",))
    launcher.start([0])
    until(launcher.failed)
    assert "failed (exit code 127)" in launcher.failed()
    assert "No such file or directory" in (folder / "log" / "engine-rank0.log").read_text()
    launcher.stop()


def test_a_folder_that_the_nodes_can_not_write_is_named(runs: Callable[..., Run]) -> None:
    run = runs(SlurmCluster(nodes=1, extra=("--hold",)))
    run.launcher.start([0])
    until(lambda: "(held; 'scontrol release' releases it)" in run.launcher.news())
    run.launcher.log.parent.rename(run.folder / "elsewhere")
    slurm_commands.ask("scontrol", "release", run.launcher.job)
    until(run.launcher.failed)
    assert "its first node cannot write" in run.launcher.failed()


def test_inside_a_job_a_step_of_it_is_used(runs: Callable[..., Run], job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_NTASKS", "7")  # a step around the notebook: no option of ours
    monkeypatch.setenv("SLURM_CPU_BIND", "nonsense")
    allocation, present = slurm_commands.choose(SlurmCluster())
    assert present == job
    assert allocation == SlurmCluster(nodes=2, gpus_per_node=2, cpus_per_engine=2, partition="long")
    run = runs(allocation, present)
    engines = run.start()
    assert [engines[rank]["SLURMD_NODENAME"] for rank in range(4)] == ["n1", "n1", "n2", "n2"]
    assert {one["SLURM_JOB_ID"] for one in engines.values()} == {job}
    [[pid, _]] = run.launcher.record()["processes"]
    assert os.getsid(int(pid)) == pid  # Ctrl-C in the notebook's terminal does not reach it
    os.kill(int(engines[2]["pid"]), signal.SIGKILL)
    until(lambda: run.launcher.dead() == [2], 5)
    run.launcher.start([2])
    until(lambda: len(run.came()) == 5)
    assert run.launcher.dead() == []
    run.launcher.stop()
    until(lambda: not any(map(alive, run.came())))
    assert slurm_commands.state(job).name == "RUNNING"


def test_an_engine_that_does_not_listen_is_ended(runs: Callable[..., Run]) -> None:
    run = runs(SlurmCluster(nodes=2, engines_per_node=2, cpus_per_engine=1))
    engines = run.start()
    for rank in (0, 3):
        os.kill(int(engines[rank]["pid"]), signal.SIGSTOP)
        run.launcher.kill(rank)
    until(lambda: run.launcher.dead() == [0, 3], 5)
    assert alive(engines[1])
    assert alive(engines[2])
    run.launcher.start([0])
    until(lambda: len(run.came()) == 5)
    [fresh] = [one for one in run.came() if "PTYNB_RANK" in one]
    run.launcher.kill(0)
    until(lambda: not alive(fresh), 5)
    assert alive(engines[1])


def taken_over(run: Run) -> SlurmLauncher:
    """The launcher of another process."""
    described = json.loads(json.dumps(run.launcher.describe()))
    other = SlurmLauncher.again(plan_cluster(4, "cpu", (), 4), described, NAME, run.folder)
    other.join({}, {})
    return other


@pytest.mark.parametrize("within", [False, True])
def test_another_process_takes_over(runs: Callable[..., Run], job: str, within: bool) -> None:
    run = runs(SlurmCluster(nodes=2, engines_per_node=2, cpus_per_engine=1), job if within else "")
    engines = run.start()
    for rank in (1, 2):
        os.kill(int(engines[rank]["pid"]), signal.SIGKILL)
    until(lambda: run.launcher.dead() == [1, 2], 5)
    run.launcher.start([2])
    until(lambda: len(run.came()) == 5)
    record = run.launcher.record()
    runtime_dir.write(run.folder, "processes.json", {"engines": record["processes"], "end": record["end"]})
    other = taken_over(run)
    assert other.record() == record
    assert other.dead() == [1]
    [fresh] = [one for one in run.came() if "PTYNB_RANK" in one]
    other.kill(2)
    until(lambda: other.dead() == [1, 2], 5)
    assert not alive(fresh)
    other.stop()
    until(lambda: not any(map(alive, engines.values())))
    assert slurm_commands.state(run.launcher.job).name == ("RUNNING" if within else "CANCELLED")
    assert run.launcher.dead() == [0, 1, 2, 3]


def test_a_job_of_its_own_from_inside_another(runs: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CPU_BIND", "nonsense")  # of the step in which the notebook runs
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "1")
    assert sorted(runs(SlurmCluster(nodes=2, memory="100M")).start()) == [0, 1]


def test_what_salloc_gives_is_what_is_found(nodes: Slurm) -> None:
    script = "from ptynb.cluster.launchers import slurm_commands; print(repr(slurm_commands.inside()))"
    told = subprocess.run(
        ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=3", sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    assert told.strip() == repr(SlurmCluster(nodes=2, engines_per_node=2, cpus_per_engine=3, partition="long"))


def test_a_present_job_is_neither_left_nor_overfilled_silently(job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = SlurmCluster(nodes=3, device="cpu")
    assert slurm_commands.choose(wanted) == (wanted, "")
    with raises("slurm.no-job"):
        slurm_commands.choose(SlurmCluster())
    with raises("slurm.no-job"):
        slurm_commands.choose(wanted, within=True)
    monkeypatch.setenv("SLURM_JOB_ID", job)
    assert slurm_commands.choose(wanted, within=False) == (wanted, "")
    two = SlurmCluster(nodes=2, device="cpu")
    assert slurm_commands.choose(two) == (two.model_copy(update={"cpus_per_engine": 4}), job)
    with raises("slurm.job-too-small", f"job {job}", "2 nodes of 3"):
        slurm_commands.choose(wanted)
    with raises("slurm.job-too-small", "2 GPUs on each node of 4"):
        slurm_commands.choose(SlurmCluster(nodes=1, gpus_per_node=4))
    with raises("slurm.job-too-small", "4 cores on each node of 5"):
        slurm_commands.choose(SlurmCluster(nodes=1, device="cpu", cpus_per_engine=5))
    monkeypatch.setenv("SLURM_JOB_ID", "999999")
    with raises("scheduler.command-failed", "Invalid job id"):
        slurm_commands.choose(SlurmCluster())


def test_a_forgotten_job_and_a_silent_controller(nodes: Slurm, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert slurm_commands.state("999999").name == "GONE"
    scheduler_commands.cancel("slurm", ["999999"])
    launcher = SlurmLauncher(SlurmCluster(nodes=1), NAME, folder, job="999999")
    monkeypatch.setenv("SLURM_CONF", "/no/such/file")
    monkeypatch.setattr(scheduler_commands, "COMMAND_SECONDS", 0.5)
    assert launcher.news().startswith("squeue did not answer within")
    assert not launcher.failed()  # silence is no end


def test_slurms_commands_may_be_missing_or_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def command(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)

    command("login/sbatch", "exec /bin/sleep 60")
    command("module/squeue", "echo 'RUNNING||N/A|'")
    monkeypatch.setenv("PATH", str(tmp_path / "login"))
    with monkeypatch.context() as patch:
        patch.setattr(scheduler_commands, "COMMAND_SECONDS", 0.2)
        with raises("scheduler.no-answer", "sbatch"):
            scheduler_commands.submit("slurm", "#!/bin/sh\n")
    command("login/sbatch", "echo 12")
    assert scheduler_commands.submit("slurm", "#!/bin/sh\n") == "12"
    with raises("scheduler.not-installed", "squeue", "login node", "module"):
        slurm_commands.state("1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'module'}:{tmp_path / 'login'}")
    assert slurm_commands.state("1").name == "RUNNING"
