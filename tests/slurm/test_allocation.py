"""What is asked of Slurm, and which GPU an engine gets: no Slurm is needed for these."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ptynb as pt
from ptynb.cluster.engine_main import complete
from ptynb.cluster.launchers import slurm_commands
from ptynb.cluster.launchers.launcher import begin
from ptynb.cluster.launchers.scheduler_commands import SCHEDULERS, clean
from ptynb.cluster.launchers.slurm_commands import JobState, own_gpu
from ptynb.cluster.launchers.slurm_launcher import SlurmLauncher
from ptynb.cluster.lifetime.watchdog import marked, marked_engines
from ptynb.settings.cluster_options import ClusterSection, SlurmCluster
from tests.raising import raises
from tests.slurm.runs import until


@pytest.mark.parametrize("time", ["", "90", "2-12:30:00"])
def test_options_of_sbatch_follow_from_those_of_a_cluster(time: str, tmp_path: Path) -> None:
    chosen = SlurmCluster(nodes=3, time=time, gpus_per_node=0, partition="")
    options = SCHEDULERS["slurm"].header(chosen, "ptynb-1", tmp_path)
    assert (f"--time={time}" in options) == bool(time)
    assert not [option for option in options if option.startswith(("--gres", "--partition"))]


def test_engines_are_counted_by_node() -> None:
    allocation = SlurmCluster(nodes=2, gpus_per_node=3)
    assert allocation.engines == 6
    assert (SlurmCluster(nodes=2).per_node, SlurmCluster(nodes=1, engines_per_node=5).per_node) == (1, 5)


@pytest.mark.parametrize(
    ("environment", "own"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_LOCALID": "2", "SLURM_GPUS_ON_NODE": "4"}, "2"),
        ({"CUDA_VISIBLE_DEVICES": "4,6", "SLURM_LOCALID": "1", "SLURM_GPUS_ON_NODE": "2"}, "6"),
        ({"CUDA_VISIBLE_DEVICES": " 4 , 6 ", "SLURM_LOCALID": "0"}, "4"),
        # --gpus-per-task: this task's own; numbered from 0 where others are hidden by the kernel
        ({"CUDA_VISIBLE_DEVICES": "3", "SLURM_LOCALID": "3", "SLURM_GPUS_ON_NODE": "4"}, "3"),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_LOCALID": "3", "SLURM_GPUS_ON_NODE": "4"}, "0"),
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_LOCALID": "0", "SLURM_GPUS_ON_NODE": "1"}, "0"),
        # started again, alone in a step that sees all
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_LOCALID": "0", "PTYNB_LOCALID": "1", "SLURM_GPUS_ON_NODE": "2"}, "1"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb", "SLURM_LOCALID": "1"}, "GPU-bb"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-aa,MIG-bb", "SLURM_LOCALID": "0"}, "MIG-aa"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-aa/1/0,MIG-GPU-aa/2/0", "SLURM_LOCALID": "1"}, "MIG-GPU-aa/2/0"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_LOCALID": "0"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "", "SLURM_LOCALID": "0"}, ""),
        ({"SLURM_LOCALID": "0"}, ""),
    ],
)
def test_every_task_has_a_gpu_of_its_own(environment: dict[str, str], own: str) -> None:
    assert own_gpu(environment) == own


@pytest.mark.parametrize(
    "environment",
    [
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_LOCALID": "1", "SLURM_GPUS_ON_NODE": "1"},
        {"CUDA_VISIBLE_DEVICES": "0", "SLURM_LOCALID": "1"},
        {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_LOCALID": "2", "SLURM_GPUS_ON_NODE": "2"},
    ],
)
def test_tasks_do_not_share_a_gpu_silently(environment: dict[str, str]) -> None:
    with raises("gpu.too-few"):
        own_gpu(environment)


def test_an_engine_of_slurm_knows_rank_gpu_and_threads() -> None:
    given = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "4,6", "SLURM_CPUS_PER_TASK": "5"}
    complete(given)
    assert (given["PTYNB_RANK"], given["CUDA_VISIBLE_DEVICES"], given["OMP_NUM_THREADS"]) == ("3", "6", "5")
    assert given["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "a number is that of the file /dev/nvidia6"
    without = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "CUDA_VISIBLE_DEVICES": "", "PTYNB_GPU": "chosen"}
    complete(without)
    assert without["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("wrote", "dead"),
    [
        ("", []),
        ("srun: error: n2: task 3: Killed\n", [3]),
        ("srun: error: n2: task 3: Killed", []),  # half a line: the rest is to come
        ("srun: error: n[1-2]: tasks 0,2-3: Exited with exit code 1\n", [0, 2, 3]),
        ("srun: launch/slurm: step_signal\nsrun: error: Node failure on n2\nsrun: error: n2: task 1: Killed\n", [1]),
        (
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME LIMIT ***\n",
            [0, 1, 2, 3],
        ),
        ("slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-31T12:00:00 ***\n", [0, 1, 2, 3]),
    ],
)
def test_engines_that_srun_has_seen_end(wrote: str, dead: list[int], tmp_path: Path) -> None:
    launcher = SlurmLauncher(SlurmCluster(nodes=2, engines_per_node=2), "ptynb-1", tmp_path)
    launcher.log.parent.mkdir()
    launcher.log.write_text(wrote)
    assert launcher.dead() == dead


def test_an_engines_environment_is_complete_before_torch_loads() -> None:
    script = "import sys, ptynb.cluster.engine_main; print('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "False\n"
    )


NOON = time.mktime((2026, 1, 31, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (JobState("7", "PENDING", "None"), "job 7 waits in the queue"),
        (
            JobState("7", "PENDING", "Priority", start="2026-01-31T14:05:00"),
            "job 7 waits in the queue (other jobs have priority; may start at 14:05)",
        ),
        (
            JobState("7", "PENDING", "QOSMaxCpuPerUserLimit", start="2026-02-01T14:05:00"),
            "job 7 waits in the queue (QOSMaxCpuPerUserLimit; may start at 2026-02-01 14:05)",
        ),
        (
            JobState("7", "PENDING", "ReqNodeNotAvail, UnavailableNodes:n2"),
            "job 7 waits in the queue (a node it needs is not available)",
        ),
        (JobState("7", "CONFIGURING", nodes=("n1",)), "job 7 is configuring n1"),
        (JobState("7", "RUNNING", nodes=("n1", "n2")), "job 7 runs on n1, n2"),
        (JobState("7", "COMPLETING", nodes=("n1",)), "job 7 is ending on n1"),
        (JobState("7", "SUSPENDED"), "job 7 is suspended"),
        (JobState("7", "SOME_NEW_STATE"), "job 7 is some new state"),
        (JobState("7", "FAILED", exit="3:0"), "job 7 failed (exit code 3)"),
        (JobState("7", "OUT_OF_MEMORY"), "job 7 exceeded its memory; restart with more memory="),
        (JobState("7", "NODE_FAIL"), "job 7 ended because a node failed"),
    ],
)
def test_a_state_in_words(state: JobState, told: str) -> None:
    assert state.words(NOON) == told


def offered(*lines: str, **environment: str) -> ClusterSection:
    head = "JobId=7 JobState=RUNNING Partition=gpu Account=(null) NumNodes=2 TRES=cpu=8,gres/gpu=4"
    return slurm_commands.offered(" ".join([head, *lines]), environment)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Nodes=n[1-2] CPU_IDs=0-3,8 Mem=0 GRES="], SlurmCluster(nodes=2, engines_per_node=1, cpus_per_engine=5)),
        (
            ["Nodes=n1 CPU_IDs=0-7 Mem=9 GRES=gpu:a100:2(IDX:0-1)", "Nodes=n2 CPU_IDs=0-3 Mem=9 GRES=gpu:2(IDX:1,3)"],
            SlurmCluster(nodes=2, gpus_per_node=2, cpus_per_engine=2),
        ),
        (
            ["Nodes=n[1-2] CPU_IDs=5 Mem=0 GRES=gpu:a100:1(IDX:0),gpu:v100:2(IDX:1-2),nic:1"],
            SlurmCluster(nodes=2, gpus_per_node=3, cpus_per_engine=1),
        ),
    ],
)
def test_what_a_job_offers(lines: list[str], expected: ClusterSection) -> None:
    found = offered(*lines)
    assert found.partition == "gpu"
    assert found.model_copy(update={"partition": None}) == expected


def test_unequal_gpus_are_not_halved_silently_and_equal_ones_are_taken() -> None:
    first = "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)"
    with raises("slurm.unequal-nodes", "2 on n1, 1 on n2"):
        offered(first, "Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0)")
    assert offered(first, "Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)").gpus_per_node == 2


@pytest.mark.parametrize(
    ("wrong", "told", "right"),
    [
        ({}, "nodes=1, gpus_per_node=1", {"nodes": 1, "gpus_per_node": 1}),
        (
            {"nodes": 1, "device": "cpu", "within": True},
            "within=True",
            {"nodes": 1, "device": "cpu"},
        ),
        ({"device": "cpu"}, "add nodes=", {"device": "cpu", "nodes": 1}),
    ],
    ids=["nothing", "within", "no nodes"],
)
def test_without_a_job_around_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any], told: str, right: dict[str, Any]
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(pt.Cluster, "start", lambda self: setattr(self, "_plan", SimpleNamespace(on_gpu=True)))
    with raises("slurm.no-job", told):
        pt.Cluster.slurm(**wrong, address="127.0.0.1")
    assert len(pt.Cluster.slurm(**right, address="127.0.0.1")) == 1


def test_a_script_says_what_was_asked_for_and_no_secret(tmp_path: Path) -> None:
    wanted = SlurmCluster(nodes=2, gpus_per_node=4, cpus_per_engine=8, time="01:00:00", partition="gpu", account="beam",
                        memory="64G", extra=("--qos=high", '--comment=a "b" c'))  # fmt: skip
    lines = slurm_commands.script(wanted, "ptynb-1", tmp_path / "log/job.log", ["srun", "true"]).splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    for expected in ("--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=8", "--gres=gpu:4", "--time=01:00:00",
                     "--partition=gpu", "--account=beam", "--mem=64G", "--qos=high", "--no-kill"):  # fmt: skip
        assert expected in options
    assert options[-1] == r'"--comment=a \"b\" c"'


def test_a_folder_of_any_name_is_one_word_of_a_script(tmp_path: Path) -> None:
    there = tmp_path / "a b; touch 'c' $(touch d) `touch e` \"f\""
    there.mkdir()
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "squeue").write_text("#!/bin/sh\n")
    (stubs / "squeue").chmod(0o700)
    environment = {"PATH": f"{stubs}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    text = slurm_commands.script(SlurmCluster(nodes=1), "ptynb-1", there / "log/job.log", ["test", "-d", str(there)])
    for expected in (0, 3):
        done = subprocess.run(
            ["sh"], input=text, env=environment, cwd=tmp_path, text=True, capture_output=True, check=False
        )
        assert done.returncode == expected, done.stderr
        assert {path.name for path in tmp_path.iterdir()} <= {there.name, "stubs"}
        if there.exists():
            there.rmdir()
    with raises("argument.invalid-value", "SBATCH --uid=0"):
        slurm_commands.script(SlurmCluster(nodes=1), "ptynb-1", tmp_path / "a\n#SBATCH --uid=0/log/job.log", ["true"])


def test_a_surrounding_step_leaves_no_trace_in_what_is_asked() -> None:
    environment = {"SLURM_NTASKS": "7", "SLURM_CONF": "/etc/x", "SQUEUE_FORMAT": "%i", "PMIX_RANK": "1",
                   "SBATCH_ACCOUNT": "beam", "PATH": "/bin"}  # fmt: skip
    assert clean(environment) == {"SLURM_CONF": "/etc/x", "SBATCH_ACCOUNT": "beam", "PATH": "/bin"}


def test_a_controller_inside_a_step_is_not_taken_for_its_first_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")  # of the notebook
    name = f"ptynb-{tmp_path.name}"
    controller = begin(["sleep", "60"], name, tmp_path / "log/controller.log")
    engine = begin(["env", "SLURM_PROCID=0", "sleep", "60"], name, tmp_path / "log/a.log")
    again = begin(["env", "SLURM_PROCID=0", "PTYNB_RANK=1", "sleep", "60"], name, tmp_path / "log/b.log")
    until(lambda: len(marked_engines(name)) == 2)
    found = [[pid for pid, _ in marked_engines(name, rank)] for rank in ("0", "1", "2")]
    assert (found, len(marked(name))) == ([[engine.pid], [again.pid], []], 3)
    for process in (controller, engine, again):
        process.kill()
        process.wait()
