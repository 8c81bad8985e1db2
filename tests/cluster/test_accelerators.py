"""GPUs of Intel and Apple as devices, by what torch tells of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import ptynb as pt
from ptynb.batch.rank_env import Place, Seat, take_seat
from ptynb.cli import main
from ptynb.cluster import devices
from ptynb.cluster.accelerators import find_accelerators, local_device
from ptynb.cluster.devices import plan_for
from ptynb.cluster.doctor import examine
from ptynb.engine.diagnostics import Vitals
from ptynb.engine.update_timing import synchronize
from ptynb.loading.engine_patterns import free_on_device
from ptynb.settings.cluster_options import SlurmCluster, SshCluster, checked
from ptynb.settings.run_files.run_file import RunFile
from tests.cases import a_scan
from tests.raising import raises

MAX, ARC = "Intel(R) Data Center GPU Max 1100", "Intel(R) Arc(TM) A770 Graphics"


@dataclass(frozen=True)
class Properties:
    """What torch.xpu.get_device_properties gives, as far as it is asked for."""

    name: str
    has_fp64: bool
    total_memory: int = 4 * 2**30


@dataclass
class Machine:
    """GPUs of Intel and Apple in the functions of torch that tell of them."""

    intel: list[Properties] = field(default_factory=list)
    synchronised: list[object] = field(default_factory=list)

    def properties(self, device: Any = 0) -> Properties:
        return self.intel[device if isinstance(device, int) else torch.device(device).index or 0]

    def name(self, device: Any = 0) -> str:
        return self.properties(device).name

    def memory(self, device: Any = 0) -> tuple[int, int]:
        self.properties(device)
        return 3 * 2**30, 4 * 2**30


@pytest.fixture
def having(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def install(*intel: Properties, apple: bool = False) -> Machine:
        machine = Machine([*intel])
        for name, function in {
            "is_available": lambda: bool(machine.intel),
            "device_count": lambda: len(machine.intel),
            "get_device_properties": machine.properties,
            "get_device_name": machine.name,
            "mem_get_info": machine.memory,
            "synchronize": machine.synchronised.append,
        }.items():
            monkeypatch.setattr(torch.xpu, name, function)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
        return machine

    return install


Having = Callable[..., Machine]
CAPABLE, INCAPABLE = Properties(MAX, True), Properties(ARC, False)


def test_here_are_none() -> None:
    assert find_accelerators() == ()


@pytest.mark.parametrize(
    ("device", "expected"), [("auto", "xpu:1"), ("xpu", "xpu:1"), ("cpu", "cpu")], ids=["auto", "xpu", "cpu"]
)
def test_the_first_gpu_of_intel_that_can_is_taken(having: Having, device: Any, expected: str) -> None:
    having(INCAPABLE, CAPABLE)
    assert local_device(device) == expected
    plan = plan_for(None, device)
    assert [engine.device for engine in plan.engines] == [expected]
    assert plan.engines[0].environment.get("PTYNB_DEVICE") == (None if expected == "cpu" else expected)
    assert plan.on_gpu is (expected != "cpu")
    assert take_seat(Place(), device, 1, {}).device == expected


def test_a_gpu_of_nvidia_goes_first(having: Having, monkeypatch: pytest.MonkeyPatch) -> None:
    having(CAPABLE)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert local_device("auto") == "cuda:0"
    assert local_device("xpu") == "xpu:0"
    monkeypatch.setattr(devices, "find_gpus", lambda: (devices.GPU(0, "GPU-1", "NVIDIA H200", 143771),))
    assert [engine.device for engine in plan_for(None, "auto").engines] == ["cuda:0"]
    assert [engine.device for engine in plan_for(None, "xpu").engines] == ["xpu:0"]


def test_auto_takes_neither_a_gpu_without_64_bits_nor_one_for_several_engines(having: Having) -> None:
    having(INCAPABLE, apple=True)
    assert local_device("auto") == "cpu"
    assert not plan_for(None, "auto").on_gpu
    assert take_seat(Place(), "auto", 1, {}).device == "cpu"
    having(CAPABLE)
    assert [engine.device for engine in plan_for(2, "auto").engines] == ["cpu", "cpu"]
    assert take_seat(Place(1, 2, 1, 2), "auto", 1, {}).device == "cpu"


def seat(device: Any) -> Seat:
    return take_seat(Place(), device, 1, {})


WAYS: dict[str, Callable[[Any], object]] = {
    "Reconstruction": lambda device: pt.Reconstruction(a_scan(), device=device),
    "Cluster": lambda device: pt.Cluster(1, device=device),
    "plan": lambda device: plan_for(None, device),
    "torchrun": seat,
    "advise": lambda device: pt.advise(a_scan(), engines=1, device=device),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("device", "intel", "apple", "code", "facts"),
    [
        ("mps", [], True, "gpu.no-float64", ["device is 'mps', and an Apple GPU has no 64-bit", "Use device='cpu'"]),
        (
            "mps",
            [],
            False,
            "gpu.no-float64",
            ["an Apple GPU has no 64-bit floating-point numbers", "precision='single'"],
        ),
        ("xpu", [INCAPABLE], False, "gpu.no-float64", [f"{ARC} has no 64-bit", "Use device='cpu'"]),
        ("xpu", [], True, "gpu.not-found", ["torch finds no GPU of Intel", "Use device='cpu', or run 'ptynb doctor'"]),
    ],
)
def test_what_cannot_compute_is_refused_with_the_reason_before_anything_starts(
    having: Having, way: str, device: str, intel: list[Properties], apple: bool, code: str, facts: list[str]
) -> None:
    having(*intel, apple=apple)
    with raises(code, *facts):
        WAYS[way](device)


def test_several_engines_on_a_gpu_of_intel_are_refused(having: Having) -> None:
    having(CAPABLE)
    with raises("gpu.too-few", "2 engines were requested", MAX, "Use n=1, or device='cpu'"):
        plan_for(2, "xpu")
    with raises("gpu.too-few", "2 ranks were started", "Start one rank, or use device: cpu"):
        take_seat(Place(0, 2, 0, 2), "xpu", 1, {})


@pytest.mark.parametrize(("section", "values"), [(SlurmCluster, {"nodes": 1}), (SshCluster, {"hosts": ["a"]})])
@pytest.mark.parametrize("device", ["xpu", "mps"])
def test_engines_of_other_hosts_have_no_such_gpu(section: Any, values: dict[str, Any], device: str) -> None:
    with raises("argument.invalid-value", f"device is '{device}'", "expected 'auto', 'cpu' or 'cuda'"):
        checked(section, device=device, **values)
    assert checked(section, device="cuda", **values).device == "cuda"


def test_run_files_and_the_command_line_take_the_names(having: Having, capsys: pytest.CaptureFixture[str]) -> None:
    lines = {"scan": "scan.h5", "epochs": 2, "result": "result.h5", "cluster": {"kind": "none", "device": "xpu"}}
    assert RunFile.model_validate(lines).cluster.device == "xpu"
    having(CAPABLE)
    main.main(["doctor", "--device", "xpu"])
    assert f"rank 0: {MAX}" in capsys.readouterr().out


def test_memory_and_synchronisation_are_those_of_the_device(having: Having) -> None:
    machine, gpu = having(CAPABLE), torch.device("xpu:0")
    assert Vitals("xpu:0", 1).memory() == (2**30, 4 * 2**30)
    assert Vitals("xpu:0", 1).load_and_temperature() == (None, None)
    assert free_on_device(gpu) == 3 * 2**30
    synchronize(gpu)
    assert machine.synchronised == [gpu]


def test_the_doctor_says_what_torch_can_compute_on(having: Having) -> None:
    having(INCAPABLE, CAPABLE, apple=True)
    report = examine(None, "auto")
    assert report.problems == ()
    text = dict(report.facts)["Accelerators of torch"]
    assert f"{ARC} (xpu) cannot be used: {ARC} has no 64-bit floating-point numbers" in text
    assert f"{MAX} (xpu), 3072 of 4096 MiB free: for one engine; its load and temperature are not shown" in text
    assert "Apple GPU (mps) cannot be used: an Apple GPU has no 64-bit" in text
    having(apple=True)
    (problem,) = examine(None, "mps").problems
    assert "an Apple GPU has no 64-bit" in problem
