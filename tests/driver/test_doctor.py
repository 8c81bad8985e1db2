import os
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace

import pytest

from ptynb.driver import doctor
from ptynb.driver.devices import GPU, ClusterError
from ptynb.driver.doctor import PACKAGES, examine

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
    assert list(facts) == ["Machine", "Cores", "Memory", "GPUs", "Torch", "Engines", "Backend", "Packages"]
    assert "rank 0: CPU 0" in facts["Engines"]
    assert "rank 1: CPU 1" in facts["Engines"]
    assert facts["Backend"] == "gloo"
    assert facts["GPUs"] == "none found"
    assert facts["Memory"] == "32.0 GiB free of 64.0 GiB"
    assert facts["Packages"].split(", ") == [f"{name} {version(name)}" for name in PACKAGES]


def test_one_engine_needs_no_backend():
    assert dict(examine(1, "cpu").facts)["Backend"] == "none (one engine)"


def test_too_many_engines_are_a_problem_and_the_facts_are_told_all_the_same():
    report = examine(1000, "cpu")
    (problem,) = report.problems
    assert "1000 CPU engines" in problem
    assert problem.endswith("Ask for fewer.")
    assert {"Machine", "Cores", "Memory", "GPUs", "Torch", "Packages"} == {name for name, _ in report.facts}


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
    assert problem.startswith("2 engines need about 2 GiB before any pattern, and 1.5 GiB are free.")
    assert "Ask for fewer engines, or end other programs." in problem


def test_gpus_with_a_cpu_build_of_torch_are_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: GPUS[:1])
    monkeypatch.setattr(doctor.torch.version, "cuda", None)
    report = examine(None, "auto")
    (problem,) = report.problems
    assert "install a CUDA build of torch" in problem
    assert dict(report.facts)["GPUs"] == "NVIDIA H200, 143771 MiB (GPU-1111)"
    assert "CPU build" in dict(report.facts)["Torch"]
    monkeypatch.setattr(doctor.torch.version, "cuda", "12.8")
    assert examine(None, "auto").problems == ()


def test_a_missing_backend_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: GPUS)
    monkeypatch.setattr(doctor.torch.version, "cuda", "12.8")
    monkeypatch.setattr(doctor.dist, "is_nccl_available", lambda: False)
    assert examine(None, "auto").problems == ("This torch has no nccl backend for 2 engines; install another build.",)
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
    assert problem == f"{tmp_path} can't be written to; set JUPYTER_RUNTIME_DIR to a folder that can."


def test_a_machine_without_a_loopback_address_is_a_problem(monkeypatch):
    class NoPort(doctor.socket.socket):
        def bind(self, address):
            raise OSError("Cannot assign requested address")

    monkeypatch.setattr(doctor.socket, "socket", NoPort)
    (problem,) = examine(1, "cpu").problems
    assert "127.0.0.1 (Cannot assign requested address)" in problem
