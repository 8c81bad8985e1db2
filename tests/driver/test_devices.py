import os
import stat
import subprocess

import pytest

from ptynb.driver import devices
from ptynb.driver.devices import GPU, ClusterError, find_gpus, parse_gpus, plan_cluster, usable_cores, visible

LISTING = """0, GPU-aaaa1111-22, NVIDIA H200, 143771
1, GPU-aabb3333-44, NVIDIA H200, 143771

2, GPU-cccc5555-66, NVIDIA RTX A2000 12GB, [N/A]
"""
GPUS = (
    GPU(0, "GPU-aaaa1111-22", "NVIDIA H200", 143771),
    GPU(1, "GPU-aabb3333-44", "NVIDIA H200", 143771),
    GPU(2, "GPU-cccc5555-66", "NVIDIA RTX A2000 12GB", 0),
)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi alone on the PATH that prints this and exits with this code."""

    def install(text, code=0):
        script = tmp_path / "nvidia-smi"
        lines = "".join(f"echo '{line}'\n" for line in text.splitlines())
        script.write_text(f"#!/bin/sh\n{lines}exit {code}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


@pytest.mark.parametrize(("listing", "expected"), [(LISTING, GPUS), ("", ()), ("\n", ())])
def test_gpus_are_read_from_a_listing(listing, expected):
    assert parse_gpus(listing) == expected


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("0", [0]),
        ("1,0", [1, 0]),
        (" 2 , 1 ", [2, 1]),
        ("GPU-aabb", [1]),
        ("GPU-cccc5555-66,0", [2, 0]),
        ("-1", []),
        ("1,7,0", [1]),
        ("1,-1,0", [1]),
        ("aabb,0", []),
    ],
)
def test_cuda_visible_devices_chooses_and_orders(chosen, expected):
    assert [gpu.index for gpu in visible(GPUS, chosen)] == expected


@pytest.mark.parametrize("chosen", ["1,1", "1,GPU-aabb3333-44"])
def test_a_gpu_named_twice_is_never_two_engines(chosen):
    """CUDA hides them all then (torch/cuda/__init__.py says so too)."""
    assert len(visible(GPUS, chosen)) <= 1


def test_no_driver_means_no_gpu(smi):
    assert find_gpus() == ()


def test_gpus_are_found_by_nvidia_smi_as_far_as_they_are_visible(smi, monkeypatch):
    smi(LISTING)
    assert find_gpus() == GPUS
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert find_gpus() == (GPUS[2], GPUS[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_gpus() == ()


def test_a_broken_driver_is_an_error_that_says_what_to_do(smi):
    smi("Failed to initialize NVML: Driver/library version mismatch", code=18)
    with pytest.raises(ClusterError, match=r"version mismatch.*device='cpu'"):
        find_gpus()


def test_a_driver_that_hangs_is_an_error_that_says_what_to_do(smi, monkeypatch):
    smi(LISTING)

    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(devices.subprocess, "run", hang)
    with pytest.raises(ClusterError, match=r"nvidia-smi.*device='cpu'"):
        find_gpus()


@pytest.mark.parametrize(
    ("n", "device", "gpus", "cores", "expected", "threads", "backend"),
    [
        (None, "auto", 0, 8, ["cpu"] * 2, 4, "gloo"),
        (None, "auto", 0, 1, ["cpu"], 1, "none"),
        (1, "auto", 0, 8, ["cpu"], 8, "none"),
        (3, "auto", 0, 8, ["cpu"] * 3, 2, "gloo"),
        (4, "cpu", 2, 2, ["cpu"] * 4, 1, "gloo"),
        (8, "cpu", 0, 2, ["cpu"] * 8, 1, "gloo"),
        (None, "cpu", 3, 8, ["cpu"] * 2, 4, "gloo"),
        (None, "auto", 3, 8, ["cuda:0"] * 3, 2, "nccl"),
        (None, "cuda", 1, 8, ["cuda:0"], 8, "none"),
        (2, "cuda", 3, 8, ["cuda:0"] * 2, 4, "nccl"),
        (1, "auto", 3, 8, ["cuda:0"], 8, "none"),
    ],
)
def test_what_is_asked_for_is_planned(monkeypatch, n, device, gpus, cores, expected, threads, backend):
    monkeypatch.setattr(devices.sys, "platform", "linux")
    plan = plan_cluster(n, device, GPUS[:gpus], cores)
    assert [engine.device for engine in plan.engines] == expected
    assert plan.backend == backend
    for rank, engine in enumerate(plan.engines):
        gpu = GPUS[rank] if engine.device == "cuda:0" else None
        assert (engine.rank, engine.threads) == (rank, threads)
        assert engine.identity == (
            f"{gpu.name} {gpu.uuid}" if gpu else f"CPU {rank} ({threads} thread{'s' * (threads > 1)})"
        )
        assert engine.environment == {
            "PTYNB_RANK": str(rank),
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": gpu.uuid if gpu else "",
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
        }


@pytest.mark.parametrize(
    ("n", "device", "gpus", "sentence"),
    [
        (4, "auto", 3, r"4 engines were asked for and 3 GPUs found\. Ask for 3, or .*device='cpu'"),
        (4, "cuda", 3, r"4 engines were asked for and 3 GPUs found\. Ask for 3, or .*device='cpu'"),
        (None, "cuda", 0, r"no GPU was found\. Use device='cpu', or run 'ptynb doctor'"),
        (1, "cuda", 0, r"no GPU was found\. Use device='cpu', or run 'ptynb doctor'"),
        (9, "cpu", 0, r"9 CPU engines were asked for on 2 cores; at most 8 make sense\. Ask for fewer"),
        (9, "auto", 0, r"9 CPU engines were asked for on 2 cores"),
        (0, "auto", 0, r"0 engines were asked for; expected at least 1"),
        (-1, "cpu", 3, r"-1 engines were asked for"),
        (None, "gpu", 3, r"device is 'gpu'; expected 'auto', 'cpu' or 'cuda'"),
    ],
)
def test_what_cannot_be_had_is_an_error_that_says_what_to_do(n, device, gpus, sentence):
    with pytest.raises(ClusterError, match=sentence):
        plan_cluster(n, device, GPUS[:gpus], 2)


def test_threads_of_each_engine_can_be_asked_for():
    for n, device, threads in ((2, "cpu", 3), (2, "cuda", 1)):
        plan = plan_cluster(n, device, GPUS[:2], 4, threads)
        assert [engine.threads for engine in plan.engines] == [threads] * n
        assert plan.engines[0].environment["OMP_NUM_THREADS"] == str(threads)
        assert plan.on_gpu is (device == "cuda")
    with pytest.raises(ClusterError, match=r"5 threads were asked for on 4 cores; expected 1 to 4 for each engine\."):
        plan_cluster(2, "cpu", (), 4, 5)


def test_usable_cores_are_those_of_this_process():
    assert 1 <= usable_cores() <= os.cpu_count()
