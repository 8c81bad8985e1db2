import dataclasses
import os
import re
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

import pytest

from ptynb.cli import main
from ptynb.cluster import doctor
from ptynb.cluster.devices import GPU, ClusterPlan
from ptynb.cluster.doctor import PACKAGES, examine, examine_cluster
from ptynb.cluster.error_explanations import PEER_TO_PEER
from ptynb.cluster.selftest import SelfTest
from ptynb.exceptions import ClusterError
from tests.engine.printed_gpu import BY_NVIDIA_SMI

GPUS = (GPU(0, "GPU-1111", "NVIDIA H200", 143771), GPU(1, "GPU-2222", "NVIDIA H200", 143771))


def free_memory(monkeypatch, gib):
    memory = SimpleNamespace(available=int(gib * 2**30), total=64 * 2**30)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: memory)


@pytest.fixture(autouse=True)
def _plenty(monkeypatch):
    free_memory(monkeypatch, 32)


def test_here_facts_are_told_and_nothing_is_wrong():
    report = examine(2, "cpu")
    facts = dict(report.facts)
    assert report.problems == ()
    assert list(facts) == [
        *("Machine", "Cores", "Memory", "GPUs", "Accelerators of torch", "Torch"),
        *("Engines", "Exchange by", "Site file", "Compiled code in", "Packages"),
    ]
    assert facts["Site file"] == "none"
    assert "rank 0: CPU 0" in facts["Engines"]
    assert "rank 1: CPU 1" in facts["Engines"]
    assert facts["Exchange by"] == "gloo: engines on the CPU"
    assert (facts["GPUs"], facts["Accelerators of torch"]) == ("none found", "none")
    assert facts["Memory"] == "32.0 GiB free of 64.0 GiB"
    assert facts["Packages"].split(", ") == [f"{name} {version(name)}" for name in PACKAGES]
    assert dict(examine(1, "cpu").facts)["Exchange by"] == "one engine, no group"


def test_too_many_engines_are_a_problem_and_the_facts_are_told_all_the_same():
    report = examine(1000, "cpu")
    for (problem,) in (report.problems, examine_cluster(1000, "cpu").problems):
        assert "1000 CPU engines were requested" in problem
        assert "expected at most" in problem
    without_engines = ("Machine", "Cores", "Memory", "GPUs", "Accelerators of torch", "Torch")
    assert [name for name, _ in report.facts] == [*without_engines, "Site file", "Compiled code in", "Packages"]


def test_a_broken_driver_is_a_problem(monkeypatch):
    def broken():
        raise ClusterError("nvidia-smi failed; mend it.")

    monkeypatch.setattr(doctor, "find_gpus", broken)
    assert examine(None, "auto").problems == ("nvidia-smi failed; mend it.",)
    assert examine(1, "cpu").problems == ()


def test_too_little_memory_is_a_problem(monkeypatch):
    free_memory(monkeypatch, 1.5)
    assert examine(1, "cpu").problems == ()
    (problem,) = examine(2, "cpu").problems
    assert problem.startswith("2 engines need about 2 GiB without patterns, and 1.5 GiB are free;")
    assert "use fewer engines, or end other programs." in problem


def test_gpus_with_a_cpu_build_of_torch_are_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: GPUS[:1])
    monkeypatch.setattr(doctor.torch.version, "cuda", None)
    report = examine(None, "auto")
    (problem,) = report.problems
    assert "install a CUDA build" in problem
    assert dict(report.facts)["GPUs"] == "NVIDIA H200, 143771 MiB (GPU-1111)"
    assert "CPU build" in dict(report.facts)["Torch"]
    monkeypatch.setattr(doctor.torch.version, "cuda", "12.8")
    assert examine(None, "auto").problems == ()


def test_a_missing_backend_is_a_problem_and_a_slower_one_a_remark(monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: GPUS)
    monkeypatch.setattr(doctor.torch.version, "cuda", "12.8")
    monkeypatch.setattr(doctor.dist, "is_nccl_available", lambda: False)
    report = examine(None, "auto")
    assert report.problems == ()
    assert dict(report.facts)["Exchange by"] == "gloo: this torch has no NCCL, slower"
    (remark,) = report.notes
    assert "install a CUDA build" in remark
    assert examine(1, "auto").notes == ()
    monkeypatch.setattr(doctor.dist, "is_gloo_available", lambda: False)
    assert examine(None, "auto").problems == ("This torch has no gloo backend for 2 engines; install another build.",)
    assert examine(1, "auto").problems == ()


def test_a_missing_package_is_a_problem(monkeypatch):
    def without_anywidget(name):
        if name == "anywidget":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", without_anywidget)
    report = examine(1, "cpu")
    assert report.problems == ("The package anywidget is not installed; install ptynb again with pip.",)
    assert "anywidget missing" in dict(report.facts)["Packages"]


def test_a_runtime_folder_that_is_not_writable_is_a_problem(monkeypatch, tmp_path):
    access = os.access
    monkeypatch.setattr(doctor, "jupyter_runtime_dir", lambda: str(tmp_path / "not" / "yet"))
    assert examine(1, "cpu").problems == ()
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: str(path) != str(tmp_path) and access(path, mode))
    (problem,) = examine(1, "cpu").problems
    assert problem == f"{tmp_path} is not writable; set JUPYTER_RUNTIME_DIR to a writable folder."


def test_a_machine_without_a_loopback_address_is_a_problem(monkeypatch):
    class NoPort(doctor.socket.socket):
        def bind(self, address):
            raise OSError("Cannot assign requested address")

    monkeypatch.setattr(doctor.socket, "socket", NoPort)
    (problem,) = examine(1, "cpu").problems
    assert "127.0.0.1 (Cannot assign requested address)" in problem


def test_a_cluster_is_started_and_its_self_test_told(capsys, monkeypatch):
    """The real command on two real engines."""
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    assert main.main(["doctor", "--cluster", "--engines", "2", "--device", "cpu"]) == 0
    told = re.sub(r" +$", "", capsys.readouterr().out, flags=re.M)
    assert re.search(r"^World +2 engines$", told, re.M)
    assert re.search(r"^Devices +rank 0: CPU 0 \(.*rank 1: CPU 1 \(", told, re.M | re.S)
    assert re.search(r"^Exchange by +gloo: engines on the CPU$", told, re.M)
    assert re.search(r"^Bandwidth +[\d.e+]+ [kMG]B/s$", told, re.M)
    assert re.search(r"^Latency +[\d.]+ (µs|ms|s)$", told, re.M)
    assert "No problem found." in told
    assert "NCCL_DEBUG" not in os.environ


class Failing:
    """A cluster that can't be."""

    def __init__(self, n, device):
        self.asked = os.environ["NCCL_DEBUG"]
        raise ClusterError(
            "On the engine of rank 1: DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, unhandled cuda error\n"
            "Last error:\nCuda failure 217 'peer access is not supported between these two devices'"
        )


def test_what_a_cluster_fails_of_is_explained_with_status_1(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "Cluster", Failing)
    (problem,) = examine_cluster(2, "auto").problems
    assert problem.startswith("On the engine of rank 1")
    assert problem.endswith(PEER_TO_PEER)
    assert main.main(["doctor", "--cluster"]) == 69
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("PROBLEM: On the engine of rank 1")
    assert "NCCL_P2P_DISABLE=1" in told
    assert "No problem found" not in told


class Ready:
    """A cluster whose engines pass the self-test."""

    def __init__(self, n, device):
        self.plan = ClusterPlan((), "none", notes=("The load of GPU 0 is 98 %.",))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def test_engines_on_which_triton_does_not_work_are_told_as_a_note(monkeypatch):
    found = SelfTest(1, "none", "one engine, no group", (BY_NVIDIA_SMI,), None, None, 1.0, ("Triton does not work",))
    monkeypatch.setattr(doctor, "Cluster", Ready)
    monkeypatch.setattr(doctor, "run_selftest", lambda cluster: found)
    report = examine_cluster(1, "cuda")
    assert report.problems == ()
    assert report.notes == ("The load of GPU 0 is 98 %.", "Triton does not work")


def test_a_build_for_cuda_without_triton_is_told_as_a_note(monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: GPUS[:1])
    monkeypatch.setattr(doctor.torch.version, "cuda", "12.8")
    monkeypatch.setattr(doctor, "find_spec", lambda name: object())
    assert examine(None, "auto").notes == ()
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    report = examine(None, "auto")
    assert report.problems == ()
    (note,) = report.notes
    assert note.startswith("Triton is not installed")
    assert examine(1, "cpu").notes == ()


def test_a_remark_is_printed_and_no_problem(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: (dataclasses.replace(GPUS[0], load=98), GPUS[1]))
    monkeypatch.setattr(doctor.torch.version, "cuda", "12.8")
    assert main.main(["doctor"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "NOTE: GPU 0 (NVIDIA H200) has a load of 98 %." in told
    assert "No problem found." in told
