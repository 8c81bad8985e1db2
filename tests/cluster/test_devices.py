import dataclasses
import os
import stat
import subprocess
import sys

import pytest

from ptynb.cluster import cpu_cores, devices, gpus
from ptynb.cluster.cpu_cores import numa_nodes
from ptynb.cluster.devices import (
    GPU,
    ClusterPlan,
    choose_backend,
    find_gpus,
    plan_cluster,
    plan_for,
    plan_of,
    usable_cores,
)
from ptynb.cluster.gpus import FIELDS, memory_by_process, parse_gpus, visible, with_slices
from tests.raising import raises

# index, uuid, name, memory.total, memory.used, memory.free, utilization.gpu, compute_mode, mig.mode.current
LISTING = """0, GPU-aaaa1111-22, NVIDIA H200, 143771, 4, 143154, 0, Default, Disabled
1, GPU-aabb3333-44, NVIDIA H200, 143771, 4, 143154, 0, Default, Disabled

2, GPU-cccc5555-66, NVIDIA RTX A2000 12GB, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]
"""
H200 = GPU(0, "GPU-aaaa1111-22", "NVIDIA H200", 143771, 4, 143154, 0)
GPUS = (
    H200,
    dataclasses.replace(H200, index=1, uuid="GPU-aabb3333-44"),
    GPU(2, "GPU-cccc5555-66", "NVIDIA RTX A2000 12GB", 0),
)
A100 = """0, GPU-51353600-aa, NVIDIA A100-SXM4-80GB, 81920, 87, 81160, [N/A], Default, Enabled
1, GPU-d8594bd4-bb, NVIDIA A100-SXM4-80GB, 81920, 3, 81226, 0, Default, Disabled
"""
A100_NAMES = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-51353600-aa)
  MIG 1g.20gb     Device  0: (UUID: MIG-ce861fb0-a248)
  MIG 3g.40gb     Device  1: (UUID: MIG-a45882f0-9215)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-d8594bd4-bb)
"""
A100S = with_slices(parse_gpus(A100), A100_NAMES)
SLICES = A100S[:2]
LOST = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot the system to recover this GPU"
LOST_NEWER = "Unable to determine the device handle for GPU1: 0000:0B:00.0: Unknown Error"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Puts an nvidia-smi alone on the PATH that prints this, for -L the other, and exits with this code."""

    def install(text, code=0, names="", errors=""):
        for name, content in (("facts", text), ("names", names), ("errors", errors)):
            (tmp_path / name).write_text(content)
        asked = f'[ "$1" = -L ] && exec /bin/cat {tmp_path}/names\n'
        asked += f'[ "$1" = --query-gpu={",".join(FIELDS)} ] || exit 2\n'
        script = tmp_path / "nvidia-smi"
        script.write_text(f"#!/bin/sh\n{asked}/bin/cat {tmp_path}/facts\n/bin/cat {tmp_path}/errors >&2\nexit {code}\n")
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
        ("1,1", []),  # CUDA hides them all then (torch/cuda/__init__.py says so too)
        ("1,GPU-aabb3333-44", []),
    ],
)
def test_cuda_visible_devices_chooses_and_orders(chosen, expected):
    assert [gpu.index for gpu in visible(GPUS, chosen)] == expected


def test_gpus_are_found_by_nvidia_smi_as_far_as_they_are_visible(smi, monkeypatch):
    assert find_gpus() == (), "without a driver there are none"
    smi(LISTING, errors="WARNING: infoROM is corrupted at gpu 0000:65:00.0")
    assert find_gpus() == GPUS
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert find_gpus() == (GPUS[2], GPUS[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_gpus() == ()


LIBCUDA = """
import ctypes

UUIDS = [bytes.fromhex(first + 24 * last) for first, last in (("cccc5555", "6"), ("aaaa1111", "2"), ("aabb3333", "4"))]


class Driver:
    def __init__(self, name):
        self.ready = False

    def cuInit(self, flags):
        self.ready = {started}
        return 0 if self.ready else 100  # CUDA_ERROR_NO_DEVICE

    def cuDeviceGetCount(self, count):
        count._obj.value = len(UUIDS)
        return 0 if self.ready else 3  # CUDA_ERROR_NOT_INITIALIZED

    def cuDeviceGet(self, device, number):
        device._obj.value = number
        return 0

    def cuDeviceGetUuid(self, uuid, device):
        uuid._obj[:] = UUIDS[device.value]
        return 0


ctypes.CDLL = Driver
"""
"""In the place of libcuda, for a process that Python starts: the RTX A2000 is the first GPU for CUDA."""
MIXED = "\n".join(
    f"{index}, GPU-{first}-{4 * digit}-{4 * digit}-{4 * digit}-{12 * digit}, {name}, 143771, 4, 143154, 0, Default, "
    "Disabled"
    for index, (first, digit, name) in enumerate(
        [("aaaa1111", "2", "NVIDIA H200"), ("aabb3333", "4", "NVIDIA H200"), ("cccc5555", "6", "NVIDIA RTX A2000")]
    )
)


@pytest.fixture
def libcuda(tmp_path, monkeypatch):
    """Puts a CUDA driver in the place of libcuda in processes that are started, which starts or does not."""

    def install(started):
        (tmp_path / "sitecustomize.py").write_text(LIBCUDA.replace("{started}", str(started)))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install


@pytest.mark.parametrize(
    ("chosen", "order", "started", "expected"),
    [
        ("0", None, True, [2]),
        ("1,0", None, True, [0, 2]),
        ("2,GPU-aaaa", "FASTEST_FIRST", True, [1, 0]),
        ("0", "PCI_BUS_ID", True, [0]),
        ("GPU-cccc5555,GPU-aaaa1111", None, True, [2, 0]),
        ("0", None, False, [0]),
    ],
)
def test_numbers_in_cuda_visible_devices_are_cudas(smi, libcuda, monkeypatch, chosen, order, started, expected):
    """On a machine with different GPUs they are not those of nvidia-smi, which lists them as they are on the bus."""
    smi(MIXED)
    libcuda(started)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    if order is not None:
        monkeypatch.setenv("CUDA_DEVICE_ORDER", order)
    assert [gpu.index for gpu in find_gpus()] == expected
    plan = plan_for(None, "auto")
    given = [engine.environment["CUDA_VISIBLE_DEVICES"] for engine in plan.engines]
    assert given == [gpu.uuid for gpu in find_gpus()], "engines get UUIDs, which mean one GPU in any order"


def test_equal_gpus_have_one_order_and_no_process_is_started_to_know_it(smi, monkeypatch):
    smi(LISTING.replace("RTX A2000 12GB", "H200"))
    monkeypatch.setattr(gpus, "cuda_numbers", lambda: pytest.fail("CUDA was asked"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [gpu.index for gpu in find_gpus()] == [2, 0]


def test_without_a_driver_cuda_knows_no_gpu():
    assert gpus.cuda_numbers() == {}


def test_a_driver_that_does_not_work_is_an_error_that_says_what_to_do(smi, monkeypatch):
    smi("Failed to initialize NVML: Driver/library version mismatch", code=18)
    with raises("gpu.driver-failed", "version mismatch", "device='cpu'"):
        find_gpus()
    smi("0, GPU-aaaa1111-22, NVIDIA H200\n")
    with raises("gpu.driver-failed", "'0, GPU-aaaa1111-22, NVIDIA H200'", "device='cpu'"):
        find_gpus()

    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(gpus.subprocess, "run", hang)
    with raises("gpu.driver-failed", "nvidia-smi", "device='cpu'"):
        find_gpus()


@pytest.mark.parametrize(
    ("n", "device", "gpus", "cores", "expected", "threads", "backend"),
    [
        (None, "auto", 0, 8, ["cpu"], 8, "none"),
        (2, "auto", 0, 8, ["cpu"] * 2, 4, "gloo"),
        (None, "auto", 0, 1, ["cpu"], 1, "none"),
        (1, "auto", 0, 8, ["cpu"], 8, "none"),
        (3, "auto", 0, 8, ["cpu"] * 3, 2, "gloo"),
        (4, "cpu", 2, 2, ["cpu"] * 4, 1, "gloo"),
        (8, "cpu", 0, 2, ["cpu"] * 8, 1, "gloo"),
        (None, "cpu", 3, 8, ["cpu"], 8, "none"),
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
    ("n", "device", "gpus", "code", "facts"),
    [
        (4, "auto", 3, "gpu.too-few", ["4 engines", "3 GPUs", "n=3", "device='cpu'"]),
        (2, "cuda", 1, "gpu.too-few", ["2 engines", "1 GPU", "n=1", "engines_per_gpu=2"]),
        (4, "cuda", 3, "gpu.too-few", ["4 engines", "3 GPUs", "n=3", "device='cpu'"]),
        (None, "cuda", 0, "gpu.not-found", ["device='cpu'", "ptynb doctor"]),
        (1, "cuda", 0, "gpu.not-found", ["device='cpu'", "ptynb doctor"]),
        (9, "cpu", 0, "argument.invalid-value", ["9 CPU engines", "2 cores", "at most 8"]),
        (9, "auto", 0, "argument.invalid-value", ["9 CPU engines", "2 cores"]),
        (0, "auto", 0, "argument.invalid-value", ["n is 0", "at least 1"]),
        (-1, "cpu", 3, "argument.invalid-value", ["n is -1"]),
        (None, "gpu", 3, "argument.invalid-value", ["device is 'gpu'", "'auto', 'cpu', 'cuda' or 'xpu'"]),
    ],
)
def test_what_cannot_be_had_is_an_error_that_says_what_to_do(n, device, gpus, code, facts):
    with raises(code, *facts):
        plan_cluster(n, device, GPUS[:gpus], 2)


def test_threads_of_each_engine_can_be_asked_for():
    for n, device, threads in ((2, "cpu", 3), (2, "cuda", 1)):
        plan = plan_cluster(n, device, GPUS[:2], 4, threads)
        assert [engine.threads for engine in plan.engines] == [threads] * n
        assert plan.engines[0].environment["OMP_NUM_THREADS"] == str(threads)
        assert plan.on_gpu is (device == "cuda")
    with raises("argument.invalid-value", "5 threads", "4 cores"):
        plan_cluster(2, "cpu", (), 4, 5)


NODES = (0, 1, 2, 6), (3, 4, 5)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(None, [("0,1,2,6", 4), ("3,4,5", 3)]), (2, [("0,1,2,6", 4), ("3,4,5", 3)]), (1, [("", 7)]), (3, [("", 2)] * 3)],
)
def test_each_numa_node_gets_an_engine_that_stays_on_its_cores(n, expected):
    plan = plan_cluster(n, "cpu", (), 7, nodes=NODES)
    assert [(engine.environment.get("PTYNB_CORES", ""), engine.threads) for engine in plan.engines] == expected


def test_numa_nodes_have_the_cores_that_this_process_may_use(tmp_path, monkeypatch):
    assert numa_nodes(tmp_path) == ()
    for node, cores in {"node2": "0-2,6\n", "node10": "3-5\n", "node11": "7\n", "node12": "\n"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cores)
    monkeypatch.setattr(cpu_cores.os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 4, 5, 6}, raising=False)
    assert numa_nodes(tmp_path) == (*NODES,)


def test_an_engine_stays_on_the_cores_of_its_numa_node():
    program = (
        "import os; from ptynb.cluster.engine_main import complete\n"
        "core = min(os.sched_getaffinity(0)); complete(dict(PTYNB_RANK='0', PTYNB_CORES=str(core)))\n"
        "print(os.sched_getaffinity(0) == {core})"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "True"


def test_slices_take_the_place_of_their_gpu():
    assert [(gpu.index, gpu.uuid, gpu.name, gpu.memory) for gpu in A100S] == [
        (0, "MIG-ce861fb0-a248", "NVIDIA A100-SXM4-80GB MIG 1g.20gb", 19456),
        (0, "MIG-a45882f0-9215", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 38912),
        (1, "GPU-d8594bd4-bb", "NVIDIA A100-SXM4-80GB", 81920),
    ]
    assert [gpu.part_of for gpu in A100S] == ["GPU-51353600-aa"] * 2 + [""]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("MIG-a45882f0-9215", [1]),
        ("MIG-a458", [1]),
        ("MIG-a458,1", [1, 2]),
        ("0", [0, 1]),
        ("GPU-5135", [0, 1]),
        ("1", [2]),
        ("MIG-ce86,0", []),
        ("MIG-0000", []),
    ],
)
def test_cuda_visible_devices_chooses_slices(chosen, expected):
    assert visible(A100S, chosen) == tuple(A100S[index] for index in expected)


def test_slices_are_found_by_the_drivers_tool(smi, monkeypatch):
    smi(A100, names=A100_NAMES)
    assert find_gpus() == A100S
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a45882f0-9215")
    (engine,) = plan_for(None, "auto").engines
    assert engine.environment["CUDA_VISIBLE_DEVICES"] == "MIG-a45882f0-9215"
    assert engine.identity == "NVIDIA A100-SXM4-80GB MIG 3g.40gb MIG-a45882f0-9215"
    assert engine.device == "cuda:0"


@pytest.mark.parametrize(("n", "gpus"), [(None, SLICES), (2, SLICES), (2, SLICES[:1]), (2, A100S), (3, A100S)])
def test_slices_are_refused_for_a_group_and_offered_as_runs_of_their_own(n, gpus):
    with raises("gpu.unusable", "MIG slices", "Cluster(1)", "CUDA_VISIBLE_DEVICES", "MIG-ce86"):
        plan_cluster(n, "auto", gpus, 8, engines_per_gpu=2 if len(gpus) == 1 else 1)


def test_one_engine_takes_a_slice_and_whole_gpus_go_first():
    one = plan_cluster(1, "auto", SLICES, 8)
    assert one.engines[0].environment["CUDA_VISIBLE_DEVICES"] == SLICES[0].uuid
    for n in (None, 1):
        mixed = plan_cluster(n, "auto", A100S, 8)
        assert [engine.environment["CUDA_VISIBLE_DEVICES"] for engine in mixed.engines] == [A100S[2].uuid]
        (remark,) = mixed.notes
        assert SLICES[0].uuid in remark, "what is left aside is named"
        assert SLICES[1].uuid in remark


def test_a_gpu_in_mig_mode_without_slices_is_named(smi):
    smi(A100, names=A100_NAMES.splitlines()[0] + "\n" + A100_NAMES.splitlines()[3])
    with raises("gpu.unusable", "GPU 0", "MIG mode", "no slice", "CUDA_VISIBLE_DEVICES=GPU-d8594bd4."):
        plan_for(None, "auto")


@pytest.mark.parametrize("line", [LOST, LOST_NEWER, "1, [GPU is lost]" + ", [GPU is lost]" * 7])
def test_a_lost_gpu_is_named_and_the_others_can_be_used(smi, monkeypatch, line):
    smi(f"{LISTING.splitlines()[0]}\n{line}\n", code=15)
    with raises("gpu.driver-failed", line[:20], "CUDA_VISIBLE_DEVICES=GPU-aaaa1111-22"):
        find_gpus()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aaaa1111-22")
    assert find_gpus() == GPUS[:1]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    smi("", code=255, errors=line)
    with raises("gpu.driver-failed", "Restart the machine", "device='cpu'"):
        find_gpus()


def changed(**facts):
    """Two H200, the first of them like this."""
    return (dataclasses.replace(H200, **facts), GPUS[1])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"mode": "Prohibited"}, "its compute mode is Prohibited"),
        ({"free": 300, "used": 143000}, "300 of its 143771 MiB"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_an_error_that_names_it_and_how_to_leave_it_out(facts, words):
    with raises("gpu.unusable", "GPU 0 (NVIDIA H200)", words, "CUDA_VISIBLE_DEVICES=GPU-aabb3333."):
        plan_cluster(None, "auto", changed(**facts), 8)
    with raises("gpu.unusable", "device='cpu'"):
        plan_cluster(1, "auto", changed(**facts)[:1], 8)
    assert plan_cluster(None, "auto", changed(**facts)[1:], 8).notes == ()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"used": 20000}, "is busy: processes use 20000 MiB of its 143771 MiB of memory"),
        ({"load": 98}, "load of 98 %"),
        ({"free": 1500}, "has only 1500 MiB of memory free"),
        ({"mode": "Exclusive_Process"}, "allows one process (compute mode Exclusive_Process)"),
        ({"memory": 12282}, "has 12282 MiB of memory while another has 143771 MiB"),
    ],
)
def test_a_busy_or_small_gpu_is_taken_and_named(facts, words):
    plan = plan_cluster(None, "auto", changed(**facts), 8)
    assert len(plan.engines) == 2
    (remark,) = plan.notes
    assert remark.startswith("GPU 0 (NVIDIA H200) ")
    assert words in remark
    assert remark.endswith("To exclude it, start with CUDA_VISIBLE_DEVICES=GPU-aabb3333.")
    assert plan_cluster(1, "auto", changed(**facts)[::-1], 8).notes == (), "it is not among those that are used"


def test_what_a_notebook_uses_or_the_driver_does_not_tell_is_no_remark_and_the_only_gpu_is_not_to_be_excluded():
    for gpus_here in (GPUS, changed(used=1103)):
        assert plan_cluster(None, "auto", gpus_here, 8).notes == ()
    (remark,) = plan_cluster(1, "auto", changed(used=20000)[:1], 8).notes
    assert remark.endswith("of its 143771 MiB of memory.")


def test_two_gpus_with_one_uuid_or_one_without_are_errors():
    with raises("gpu.unusable", "2 GPUs", "GPU-aaaa1111-22"):
        plan_cluster(None, "auto", (H200, dataclasses.replace(H200, index=1)), 8)
    with raises("gpu.unusable", "[Unknown Error]", "GPU 0", "CUDA_VISIBLE_DEVICES=GPU-aabb3333."):
        plan_cluster(None, "auto", changed(uuid="[Unknown Error]"), 8)


@pytest.mark.parametrize(
    ("n", "gpus", "places"),
    [(2, 1, [0, 0]), (None, 2, [0, 1, 0, 1]), (3, 2, [0, 1, 0])],
)
def test_engines_that_share_a_gpu_exchange_by_gloo_and_it_is_shown(monkeypatch, n, gpus, places):
    monkeypatch.setattr(devices.sys, "platform", "linux")
    plan = plan_cluster(n, "auto", GPUS[:gpus], 8, engines_per_gpu=2)
    assert [engine.environment["CUDA_VISIBLE_DEVICES"] for engine in plan.engines] == [GPUS[at].uuid for at in places]
    assert (plan.backend, plan.reason) == ("gloo", "gloo: several engines on one GPU, slower")
    assert f"{len(places)} engines share" in plan.notes[0]
    identities = [engine.identity for engine in plan.engines]
    assert len({*identities}) == len(places)
    assert identities[0].endswith("GPU-aaaa1111-22 (1 of 2)")
    assert [engine.engines_per_gpu for engine in plan.engines] == [places.count(at) for at in places]
    assert plan.engines_per_gpu == 2
    assert ClusterPlan.from_plain(plan.to_plain()) == plan
    exclusive = tuple(dataclasses.replace(gpu, mode="Exclusive_Process") for gpu in GPUS[:gpus])
    with raises("gpu.unusable", "Exclusive_Process"):
        plan_cluster(n, "auto", exclusive, 8, engines_per_gpu=2)
    alone = plan_cluster(gpus, "auto", GPUS[:gpus], 8, engines_per_gpu=2)
    assert alone.backend == ("nccl" if gpus > 1 else "none"), "as many as GPUs share none"
    assert alone.engines_per_gpu == 1


@pytest.mark.parametrize(
    ("engines", "gpus", "platform", "nccl", "expected"),
    [
        (1, 1, "linux", True, ("none", "one engine, no group")),
        (1, 0, "win32", False, ("none", "one engine, no group")),
        (2, 0, "linux", True, ("gloo", "gloo: engines on the CPU")),
        (2, 0, "darwin", False, ("gloo", "gloo: engines on the CPU")),
        (4, 4, "linux", True, ("nccl", "NCCL: distinct GPUs")),
        (4, 4, "linux", False, ("gloo", "gloo: this torch has no NCCL, slower")),
        (2, 2, "win32", False, ("gloo", "gloo: no NCCL on Windows, slower")),
        (2, 2, "win32", True, ("gloo", "gloo: no NCCL on Windows, slower")),
        (2, 2, "darwin", False, ("gloo", "gloo: no NCCL on darwin, slower")),
        (2, 1, "linux", True, ("gloo", "gloo: several engines on one GPU, slower")),
        (2, 1, "win32", False, ("gloo", "gloo: several engines on one GPU, slower")),
    ],
)
def test_the_backend_follows_platform_and_devices_and_a_slower_one_is_told(engines, gpus, platform, nccl, expected):
    backend, reason, remarks = choose_backend(engines, gpus, platform, nccl)
    assert (backend, reason) == expected
    assert bool(remarks) is reason.endswith("slower")
    assert all("slower than NCCL" in remark for remark in remarks)


def test_usable_cores_are_those_of_this_process():
    assert 1 <= usable_cores() <= os.cpu_count()


def test_gpu_memory_of_processes_is_added_up_over_gpus_and_unknown_without_a_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert memory_by_process() is None
    script = tmp_path / "nvidia-smi"
    listing = "1201, 512\n1201, 256\n1300, [N/A]\n1400, 0\n"
    asked = '[ "$1 $2" = "--query-compute-apps=pid,used_memory --format=csv,noheader,nounits" ] || exit 2'
    script.write_text(f"#!/bin/sh\n{asked}\nprintf '{listing}'\n")
    script.chmod(0o700)
    assert memory_by_process() == {1201: 768, 1400: 0}
    script.write_text("#!/bin/sh\nexit 9\n")
    assert memory_by_process() is None


def said(rank, device, nccl=True):
    identity = device if device == "CPU" else f"{device} GPU-{rank}"  # tests/engine/test_gpu_identity.py
    return {"rank": rank, "host": f"n{rank}", "device": device, "identity": identity, "threads": 2, "nccl": nccl}


def test_nodes_with_and_without_gpus_make_no_cluster_and_gpus_on_all_do():
    with raises("cluster.mixed-devices", "rank 0 on n0: H; rank 1 on n1: CPU"):
        plan_of([said(0, "H"), said(1, "CPU")])
    plan = plan_of([said(0, "H"), said(1, "H")])
    assert (plan.backend, plan.on_gpu, [engine.device for engine in plan.engines]) == ("nccl", True, ["cuda:0"] * 2)
    assert [engine.identity for engine in plan.engines] == ["n0: H GPU-0", "n1: H GPU-1"]
    assert plan.engines_per_gpu == 1
    shared = plan_of([said(0, "H"), said(0, "H"), said(1, "H")])
    assert (shared.engines_per_gpu, shared.backend) == (2, "gloo"), "NCCL does not support two engines on one GPU"
    without = plan_of([said(0, "H"), said(1, "H", nccl=False)])
    assert (without.backend, without.reason) == ("gloo", "gloo: this torch has no NCCL, slower")
    assert plan_of([said(0, "CPU"), said(1, "CPU")]).engines_per_gpu == 1
