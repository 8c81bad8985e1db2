"""The UUID of a GPU has one form, whether torch or nvidia-smi reports it."""

import stat

import torch

from ptynb.cluster.devices import GPU, plan_cluster, plan_of
from ptynb.distributed.group import Membership, SingleGroup
from ptynb.engine import diagnostics, run_registry
from ptynb.engine.gpu import gpu_uuid
from ptynb.engine.group_selftest import _check_members
from tests.engine import printed_gpu
from tests.engine.printed_gpu import BY_NVIDIA_SMI, NAME
from tests.raising import raises
from tests.waiting import until

DEVICE = torch.device("cuda:0")


def membership(identity):
    return Membership(rank=0, world=1, store="", backend="none", device="cuda:0", identity=identity)


def test_torch_prints_a_uuid_without_the_prefix_of_nvidia_smi(monkeypatch):
    printed_gpu.pretend(monkeypatch)
    assert str(torch.cuda.get_device_properties(DEVICE).uuid) == printed_gpu.UUID_DIGITS
    assert gpu_uuid(DEVICE) == BY_NVIDIA_SMI
    assert gpu_uuid(torch.device("cpu")) == ""


def test_engines_that_describe_their_gpu_pass_the_self_test(monkeypatch):
    """As on Slurm, where the plan is made of what the engines report."""
    printed_gpu.pretend(monkeypatch)
    described = run_registry.describe()
    assert described["identity"] == f"{NAME} {BY_NVIDIA_SMI}"
    (engine,) = plan_of([described]).engines
    identity = f"{described['host']}: {NAME} {BY_NVIDIA_SMI}"
    assert _check_members(SingleGroup(DEVICE), membership(engine.identity)) == (identity,)


def test_engines_on_the_gpus_that_nvidia_smi_lists_pass_the_self_test(monkeypatch):
    printed_gpu.pretend(monkeypatch)
    (engine,) = plan_cluster(1, "cuda", (GPU(0, BY_NVIDIA_SMI, NAME, 143771),), 8).engines
    assert _check_members(SingleGroup(DEVICE), membership(engine.identity)) == (f"{NAME} {BY_NVIDIA_SMI}",)
    other = engine.identity.replace("8f6c5d20", "aaaaaaaa")
    with raises("cluster.selftest-failed", BY_NVIDIA_SMI, other):
        _check_members(SingleGroup(DEVICE), membership(other))


def test_load_and_temperature_are_asked_of_the_engines_gpu(monkeypatch, tmp_path):
    printed_gpu.pretend(monkeypatch)
    script = tmp_path / "nvidia-smi"
    # nvidia-smi finds no GPU by a UUID without its prefix.
    script.write_text(f'#!/bin/sh\n[ "$1" = --id={BY_NVIDIA_SMI} ] && echo "61, 55" || echo "No devices were found"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    vitals = diagnostics.Vitals("cuda:0", 1)
    until(lambda: vitals.load_and_temperature() != (None, None))
    assert vitals.load_and_temperature() == (0.61, 55.0)
