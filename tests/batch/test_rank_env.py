import subprocess
import sys

import pytest
import torch

from ptynb.batch import rank_env
from ptynb.batch.rank_env import Place, Seat, take_seat
from ptynb.cluster.gpus import GPU
from tests.raising import raises

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}
GPUS = tuple(GPU(index, f"GPU-{index}", "H", 80_000) for index in range(4))


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores, and the GPUs that a test puts here."""
    gpus = []
    monkeypatch.setattr(rank_env, "find_gpus", lambda: tuple(gpus))
    monkeypatch.setattr(rank_env, "usable_cores", lambda: 8)
    return gpus


def test_a_place_is_what_the_environment_says():
    assert Place.of({}) == Place(0, 1, 0, 1)
    assert Place.of(TORCHRUN) == Place(5, 8, 1, 4)
    pod = {name: TORCHRUN[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    assert Place.of(pod) == Place(5, 8, 0, 1)
    assert not Place.of(pod).one_host
    assert Place.of({"RANK": "0", "WORLD_SIZE": "1"}) == Place()
    indexed = {**pod, "JOB_COMPLETION_INDEX": "5"}
    del indexed["RANK"]
    assert Place.of(indexed) == Place.of(pod), "of a Job whose pods are ranks of one run"
    assert Place.of({"JOB_COMPLETION_INDEX": "5"}) == Place(), "of one whose pods have runs of their own"


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"RANK": "8"}, "RANK=8 of WORLD_SIZE=8, LOCAL_RANK=1 of LOCAL_WORLD_SIZE=4"),
        ({"LOCAL_RANK": "4"}, "LOCAL_RANK=4"),
        ({"LOCAL_WORLD_SIZE": "9"}, "LOCAL_WORLD_SIZE=9"),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE is 'many'"),
        ({"WORLD_SIZE": None}, "WORLD_SIZE is None"),
        ({"MASTER_ADDR": "", "MASTER_PORT": None}, "MASTER_ADDR and MASTER_PORT is not set"),
    ],
)
def test_a_place_that_can_not_be_is_told(changes, fact):
    environment = {name: value for name, value in {**TORCHRUN, **changes}.items() if value is not None}
    with raises("environment.invalid", fact):
        Place.of(environment)


def test_what_torchrun_sets_is_a_place():
    with raises("environment.invalid", "WORLD_SIZE is None", "torchrun"):
        Place.of({"RANK": "0"})
    program = "import os, ptynb.batch.rank_env as places; print(places.Place.of(os.environ))"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "--no-python"]
    done = subprocess.run([*torchrun, sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == str(Place(0, 1, 0, 1)), done.stderr


def test_cores_are_shared_by_the_ranks_of_a_host_unless_a_user_says_otherwise():
    four = Place(1, 4, 1, 4)
    for environment, given, threads in (
        ({}, None, 2),
        ({"OMP_NUM_THREADS": "3"}, None, 3),
        ({"OMP_NUM_THREADS": "1"}, None, 1),
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "x"}, None, 2),  # torchrun's own, nobody's wish
        ({"OMP_NUM_THREADS": "3", "TORCHELASTIC_RUN_ID": "x"}, None, 3),
        ({"OMP_NUM_THREADS": "3"}, 1, 1),
    ):
        assert take_seat(four, "cpu", given, environment).threads == threads
        assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == str(threads)
    assert take_seat(Place(), "cpu", None, {}).threads == 8


def test_without_a_gpu_ranks_compute_on_the_cpu_and_see_none():
    environment = {"CUDA_VISIBLE_DEVICES": "0"}
    assert take_seat(Place(1, 2, 1, 2), "auto", None, environment) == Seat("cpu", "CPU", "CPU 1", "gloo", 4)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert take_seat(Place(), "cpu", None, {}).backend == "none"
    with raises("gpu.not-found", "Rank 1"):
        take_seat(Place(1, 2, 1, 2), "cuda", None, {})


def test_each_rank_of_a_host_sees_its_own_gpu(machine):
    machine += GPUS
    seats = []
    for rank in range(4):
        environment = {}
        seats.append(take_seat(Place(4 + rank, 8, rank, 4), "auto", None, environment))
        assert environment["CUDA_VISIBLE_DEVICES"] == f"GPU-{rank}"
    assert {seat.device for seat in seats} == {"cuda:0"}
    assert [seat.identity for seat in seats] == [f"H GPU-{rank}" for rank in range(4)]
    assert {seat.backend for seat in seats} == {"nccl" if torch.distributed.is_nccl_available() else "gloo"}
    with raises("gpu.too-few", "5 ranks", "4 GPUs"):
        take_seat(Place(4, 5, 4, 5), "auto", None, {})
    machine[:] = GPUS[2:3]  # a launcher that has shown this rank one GPU
    assert take_seat(Place(1, 2, 1, 2), "auto", None, {}).identity == "H GPU-2"


@pytest.mark.parametrize(("available", "backend"), [(True, "nccl"), (False, "gloo")])
def test_gpus_exchange_gradients_by_nccl_if_this_torch_has_it(machine, monkeypatch, available, backend):
    """Builds of torch for CUDA on Linux may lack it, too."""
    machine[:] = GPUS
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: available)
    assert take_seat(Place(4, 8, 0, 4), "auto", None, {}).backend == backend
    assert take_seat(Place(0, 1, 0, 1), "auto", None, {}).backend == "none"


def test_gradients_stay_on_the_machine_where_all_ranks_are_on_it():
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    one, several = {}, {}
    take_seat(Place(1, 2, 1, 2), "cpu", None, one)
    take_seat(Place(1, 4, 1, 2), "cpu", None, several)
    assert one["GLOO_SOCKET_IFNAME"] == one["NCCL_SOCKET_IFNAME"] == loopback
    assert "GLOO_SOCKET_IFNAME" not in several
    chosen = {"GLOO_SOCKET_IFNAME": "eth7"}
    take_seat(Place(1, 2, 1, 2), "cpu", None, chosen)
    assert chosen["GLOO_SOCKET_IFNAME"] == "eth7"
