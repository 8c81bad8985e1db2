"""Whether a reconstruction fits, and the sentences where it does not."""

import dataclasses

import ptynb as pt
from ptynb.cluster.accelerators import Accelerator
from ptynb.planning import memory as rooms
from ptynb.planning.memory import (
    IN_TILES,
    STREAMED,
    Room,
    Workload,
    lacks,
    memory_of,
    place_of_patterns,
    refusal,
    room_for,
    totals,
)
from ptynb.settings import Settings
from tests.cluster.test_devices import GPUS
from tests.planning.peak import scan_of
from tests.raising import raises


def test_patterns_go_where_there_is_room(tmp_path):
    scan = pt.simulate(patterns=64, window=32, path=tmp_path / "scan.h5")
    size = 64 * 32 * 32 * scan.frames.dtype.itemsize
    asked = Workload(Settings(), 1)
    assert place_of_patterns(scan, asked, Room(2.1 * size)) == "host"
    assert place_of_patterns(scan, asked, Room(1.9 * size)) == "disk"
    assert place_of_patterns(scan, asked, Room(1e9, 2.1 * size)) == "device"
    assert place_of_patterns(scan, asked, Room(1e9, 1.9 * size)) == "host"
    assert place_of_patterns(scan, Workload(Settings(batch=2), 2), Room(1e9, 1.1 * size)) == "device"
    assert place_of_patterns(scan, Workload(Settings(pattern_storage="device"), 1), Room(1e9)) == "host"
    in_memory = dataclasses.replace(scan, frames=pt.simulate(patterns=64, window=32).frames)
    assert place_of_patterns(in_memory, asked, Room(1.9 * size)) == "host"


def test_room_is_what_is_free_and_what_engines_hold_and_the_smallest_gpu(monkeypatch):
    monkeypatch.setattr(rooms, "free_on_host", lambda: 1000)
    assert room_for(False, 200) == Room(1200)
    monkeypatch.setattr(rooms, "find_gpus", lambda: GPUS)
    assert room_for(True) == Room(1000, 0.95 * 2**20 * min(gpu.memory for gpu in GPUS if gpu.memory))
    assert room_for(True, 0, 2) == Room(1000, room_for(True).device / 2, 2), "two engines on each GPU"
    monkeypatch.setattr(rooms, "find_gpus", lambda: (dataclasses.replace(GPUS[0], memory=0),))
    assert room_for(True).device == float("inf"), "a driver that does not tell refuses nothing"


def test_room_on_a_gpu_of_intel_is_its_memory(monkeypatch):
    monkeypatch.setattr(rooms, "find_gpus", lambda: ())
    gpus = (
        Accelerator("xpu:0", "Arc", "no 64-bit numbers", 10**9),
        Accelerator("xpu:1", "Max 1100", memory=48 * 10**9),
    )
    monkeypatch.setattr(rooms, "find_accelerators", lambda: gpus)
    assert room_for(True).device == 0.95 * 48e9
    monkeypatch.setattr(rooms, "find_accelerators", lambda: (dataclasses.replace(gpus[1], memory=0),))
    assert room_for(True).device == float("inf")


def just_enough(scan, asked, *, gpu=False):
    """Room for this and no more, on a GPU or on the host."""
    found = totals(memory_of(scan, asked, "device" if gpu else "host", gpu))
    return Room(1e12, found["device"] * 1.001) if gpu else Room(asked.engines * found["host"] * 1.001)


def test_what_fits_is_not_refused():
    scan, asked = scan_of(100, 64, 8), Workload(Settings(), 2)
    assert refusal(scan, asked, just_enough(scan, asked)) is None
    assert refusal(scan, asked, Room(just_enough(scan, asked).host * 0.99)) is not None


def sentence(scan, asked, room):
    found = refusal(scan, asked, room)
    assert found.startswith("The memory does not suffice: ")
    assert found.endswith(".")
    assert ". " not in found, "one sentence"
    return found


def test_large_batches_are_computed_in_portions():
    scan, settings = scan_of(128, 128, 4), Settings(batch=64)
    room = just_enough(scan, Workload(settings.replace(gradient_accumulation=8), 1, cluster=False))
    found = sentence(scan, Workload(settings, 1, cluster=False), room)
    assert "most of it for 'waves of a batch'" in found
    assert found.endswith("compute each batch in parts: gradient_accumulation=8.")
    assert lacks(scan, Workload(settings.replace(gradient_accumulation=4), 1, cluster=False), room) == "host"


def test_where_portions_are_not_known_batches_become_smaller():
    scan, settings = scan_of(128, 128, 4), Settings(batch=64, optimiser="lsqml")
    room = just_enough(scan, Workload(settings.replace(batch=16), 1))
    assert sentence(scan, Workload(settings, 1), room).endswith("use smaller batches: batch=16.")


def test_gpus_without_room_for_the_patterns_leave_them_on_the_host():
    scan, settings = scan_of(400, 128, 4), Settings(pattern_storage="device", batch=4)
    room = Room(1e12, just_enough(scan, Workload(settings, 4), gpu=True).device)
    assert "store the patterns elsewhere: pattern_storage='host'" in sentence(scan, Workload(settings, 2), room)


def test_more_gpus_share_what_one_cannot_hold():
    scan, settings = scan_of(256, 256, 2), Settings(batch=256, optimiser="lsqml")
    room = Room(1e12, just_enough(scan, Workload(settings, 3), gpu=True).device)
    assert sentence(scan, Workload(settings, 1), room).endswith("use 3 engines, each on its own GPU.")


def test_an_object_that_no_gpu_can_hold_is_divided_over_several():
    scan, settings = scan_of(64, 64, 60), Settings(batch=4)
    in_tiles = settings.replace(**IN_TILES)
    room = Room(1e12, just_enough(scan, Workload(in_tiles, 4), gpu=True).device)
    remedy = "divide the object over them: object.layout='tiles', batch_sampling='cells'."
    assert sentence(scan, Workload(settings, 4), room).endswith(f"; {remedy}")
    assert sentence(scan, Workload(settings, 2), room).endswith(f"; use 4 engines, each on its own GPU, and {remedy}")


def test_one_gpu_without_room_for_the_object_has_a_part_of_it():
    scan, settings = scan_of(256, 64, 30), Settings(batch=4)
    for bands, more in ((8, ""), (16, ", batch_bands=16")):
        streamed = settings.replace(**STREAMED, batch_bands=bands)
        room = Room(1e12, just_enough(scan, Workload(streamed, 1), gpu=True).device)
        remedy = f"object.layout='streamed', batch_sampling='bands'{more} (Adam then needs more epochs"
        assert f"; store the object in host memory: {remedy}" in sentence(scan, Workload(settings, 1), room)
        assert "streamed" not in sentence(scan, Workload(settings, 2), room)


def test_engines_that_share_a_gpu_have_a_part_of_it_each():
    scan, settings = scan_of(128, 128, 4), Settings(batch=64, optimiser="lsqml")
    each = just_enough(scan, Workload(settings, 2), gpu=True).device
    gpu = Room(1e12, 2 * each)
    assert refusal(scan, Workload(settings, 2), gpu.shared_by(2)) is None
    found = sentence(scan, Workload(settings, 3), gpu.shared_by(3))
    assert "on a GPU that 3 engines share" in found
    assert found.endswith("let fewer engines share a GPU: Cluster(2, engines_per_gpu=2).")
    found = sentence(scan, Workload(settings, 2), Room(1e12, 1.5 * each).shared_by(2))
    assert found.endswith("let fewer engines share a GPU: Cluster(1, engines_per_gpu=1).")


def test_on_a_cpu_fewer_engines_hold_fewer_objects():
    scan, settings = scan_of(64, 64, 60), Settings(batch=4)
    room = just_enough(scan, Workload(settings, 2))
    found = sentence(scan, Workload(settings, 4), room)
    assert found.startswith("The memory does not suffice: 4 engines need about")
    assert found.endswith("use fewer engines, each of which stores the object: 2.")


def test_projections_that_keep_all_waves_give_way_to_adam():
    scan, settings = scan_of(400, 64, 4), Settings(batch=1, optimiser="raar", probe={"modes": 4})
    room = just_enough(scan, Workload(settings.replace(optimiser="adam"), 1, cluster=False))
    assert sentence(scan, Workload(settings, 1, cluster=False), room).endswith("use the optimiser 'adam'.")


def test_what_nothing_helps_is_to_be_cropped():
    assert sentence(scan_of(64, 64, 60), Workload(Settings(), 1), Room(1e6)).endswith(
        "crop or bin the patterns first (ptynb.preparation)."
    )


def test_a_reconstruction_that_cannot_fit_is_refused_before_anything_starts(monkeypatch):
    scan = scan_of(128, 128, 4)
    monkeypatch.setattr(rooms, "free_on_host", lambda: 60_000_000)
    with raises("memory.insufficient", "the engine needs about", "gradient_accumulation="):
        pt.Reconstruction(scan, Settings(batch=64), device="cpu")
    with pt.Reconstruction(scan, Settings(batch=2), device="cpu") as recon:
        assert recon.wait() is None
