"""What is counted of memory, by hand and against the peak of a real run."""

import dataclasses
import itertools
import pickle
import subprocess
import sys
from typing import Any, get_args

import h5py
import numpy as np
import pytest
import torch

import ptynb as pt
from ptynb.data.patterns import HDF5Frames
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.loading import engine_patterns
from ptynb.loading.engine_patterns import EnginePatterns
from ptynb.loading.pattern_reader import PIECE_BYTES
from ptynb.optimize.sampler import bands_of, layout_of, planned_order
from ptynb.planning.memory import (
    HEAP,
    MESSAGES,
    PROCESS,
    TILTED,
    Copies,
    Workload,
    arrays_of_an_update,
    copies_of_parameters,
    memory_of,
    portion,
    totals,
)
from ptynb.preparation.combination import combine
from ptynb.session.run_spec import RunSpec
from ptynb.settings import Settings
from tests.loading.test_transfer import LateStream
from tests.planning.live_storages import LiveStorages
from tests.planning.peak import scan_of
from tests.preparation.test_tilted import GEOMETRY

THICK = {"count": 4, "thickness": 1e-5}


def amounts(scan, settings, engines=1, *, cluster=False, keep=False, place="host", on_gpu=False):
    asked = Workload(settings, engines, cluster, keep)
    return {item.name: item.bytes for item in memory_of(scan, asked, place, on_gpu)}


@pytest.mark.parametrize("keep", [False, True])
def test_the_peak_of_a_real_run_is_what_was_counted(tmp_path, keep):
    """Between the sum of all and of what an update has at once; waves and an object of 42 MB each."""
    problem, settings = (81, 256, 250), Settings(batch=80)
    command = [sys.executable, "-m", "tests.planning.peak", *map(str, problem), "3", settings.model_dump_json()]
    command += [str(tmp_path)] if keep else []
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    measured, found = float(answer.stdout), amounts(scan_of(*problem), settings, keep=keep)
    copies = copies_of_parameters(settings, 1, on_gpu=False)
    lasting = (
        sum(found[f"{name}, gradient and optimiser"] for name in ("object", "probe")) * copies.lasting / copies.most
    )
    at_once = lasting + found["patterns"] + found["waves of a batch"]
    print(f"at once {at_once / 1e6:.0f} MB, measured {measured / 1e6:.0f} MB, sum {sum(found.values()) / 1e6:.0f} MB")
    assert at_once < measured < sum(found.values())


def test_items_by_hand():
    scan = scan_of(100, 64, 8)  # a grid of 10 x 10
    side = 9 * 8 + 64 + 2 * 4  # ten places, a window, and padding on both sides
    settings = Settings(batch=8, probe={"modes": 3}, slices=THICK)
    found = amounts(scan, settings)
    pixels = 8 * 64**2
    # Itself, its gradient, two moments, and the copies for a result and a picture.
    assert found["object, gradient and optimiser"] == HEAP * 6 * 8 * 4 * side**2
    assert found["probe, gradient and optimiser"] == HEAP * 6 * 8 * 3 * 64**2
    waves = (1 + 4) * 8 * 3 * pixels + 2 * 4 * pixels
    assert found["waves of a batch"] == HEAP * waves
    assert found["patterns"] == 100 * 64 * 64 * 2
    pictures = 8 * 8 * (side**2 + 64**2)  # eight, of object and probe, no side of which needs to be reduced
    assert found["pictures of epochs on the way"] == pictures
    compared = HEAP * 3 * 8 * (4 * side**2 + 3 * 64**2)  # before, after, and their difference, of object and probe
    assert found["object and probe of the epoch before"] == compared
    rest = sum(found[name] for name in list(found)[-3:])
    assert sum(found.values()) == rest + compared + pictures + 100 * 64 * 64 * 2 + 2 * PIECE_BYTES
    large = amounts(scan_of(100, 256, 100), settings.replace(slices={"count": 1}))["pictures of epochs on the way"]
    assert large < 8 * 8 * 2 * 256**2
    ways = amounts(scan, settings.replace(opr={"modes": 3}))["probe, gradient and optimiser"]
    assert ways == 2 * found["probe, gradient and optimiser"], "what the probe varies by is kept as its modes are"
    twice = amounts(scan, settings.replace(precision="double"))
    for name in ("object, gradient and optimiser", "waves of a batch"):
        assert twice[name] == 2 * found[name]
    assert twice["patterns"] == found["patterns"], "counts of 16 bits stay what they are"
    states = amounts(scan, settings.replace(object={"modes": 2}))
    assert states["object, gradient and optimiser"] == 2 * found["object, gradient and optimiser"]


def test_of_an_object_in_tiles_the_largest_tile_and_its_messages_are_counted():
    scan, settings = scan_of(400, 64, 16), Settings(batch=8, batch_sampling="cells", slices=THICK)
    tiles = settings.replace(object={"layout": "tiles"})
    layout = layout_of(scan, tiles, 4)
    (rows, columns), whole = layout.largest, np.prod(scan.object_frame(settings.margin).shape)
    assert rows * columns < 0.4 * whole
    found = amounts(scan, tiles, 4)
    name = "object, gradient and optimiser"
    assert found[name] == amounts(scan, settings)[name] * rows * columns / whole
    # Two patterns of each engine, with blocks of 32 pixels around their windows; sent and received.
    assert found["messages between tiles"] == HEAP * 2 * 8 * 4 * 2 * (64 + 2 * 4 + 32) ** 2
    smooth = tiles.replace(regularizers=[{"kind": "total_variation", "weight": 0.1}])
    assert amounts(scan, smooth, 4)["messages between tiles"] == HEAP * 2 * 8 * 4 * layout.most_shared
    assert layout.most_shared < rows * columns


@pytest.mark.parametrize(("optimiser", "moments", "coming"), [("adam", 2, 3), ("rpie", 0, 1), ("lsqml", 2, 1.5)])
def test_of_a_streamed_object_the_gpu_has_the_rows_of_two_bands(optimiser: Any, moments: float, coming: float):
    scan, settings = scan_of(400, 64, 16), Settings(optimiser=optimiser, batch=8, batch_sampling="bands")
    streamed = settings.replace(object={"layout": "streamed"})
    rows, whole = (
        bands_of(scan, streamed, planned_order(scan, streamed, 1)).height,
        scan.object_frame(settings.margin).shape,
    )
    assert rows < 0.4 * whole[0]
    found, others = (amounts(scan, one, keep=True, on_gpu=True) for one in (streamed, settings))
    plane = 8 * rows * whole[1]
    name = "object, gradient and optimiser"
    assert found[name] == others[name] * rows / whole[0]
    assert found["object and moments of the next band"] == coming * plane
    assert found["object and moments in host memory"] == (1 + moments) * 8 * whole[0] * whole[1]
    compared = 3 * 8 * (whole[0] * whole[1] + 64**2)
    assert found["object of the epoch before"] + 3 * found["object and probe of the epoch before"] == compared
    assert found["a state on its way to the disk"] == others["a state on its way to the disk"]


@pytest.mark.parametrize(
    ("changes", "engines", "copies"),
    [
        ({"optimiser": "sgd"}, 1, 4),
        ({"optimiser": "sgd", "momentum": 0.5}, 1, 5),
        ({"optimiser": "rpie"}, 1, 4),
        ({"optimiser": "rpie", "gradient_accumulation": 2}, 1, 4),
        ({"optimiser": "rmsprop"}, 1, 5),
        ({"optimiser": "adamw"}, 2, 7),
        ({"optimiser": "radam"}, 1, 9),
        ({"optimiser": "lbfgs"}, 1, 28),
        ({"optimiser": "lsqml"}, 2, 6.5),
        ({"optimiser": "lsqml", "momentum": 0.5}, 2, 8.5),
        ({"object": {"parametrization": "amplitude_phase"}}, 1, 9),
    ],
)
def test_copies_of_the_parameters(changes, engines, copies):
    assert copies_of_parameters(Settings(**changes), engines, False).most == copies


def test_on_a_gpu_a_step_takes_the_memory_of_waves_that_are_gone():
    assert copies_of_parameters(Settings(), 1, True) == Copies(4, 0, 2)
    assert copies_of_parameters(Settings(optimiser="lsqml"), 1, True) == Copies(2, 2, 2)
    assert copies_of_parameters(Settings(optimiser="lsqml"), 2, True) == Copies(2, 4, 4), "and the message"
    assert copies_of_parameters(Settings(gradient_accumulation=2), 1, True) == Copies(4, 1, 2), "two gradients"
    assert copies_of_parameters(Settings(optimiser="rpie", gradient_accumulation=2), 1, True) == Copies(2, 2, 2)
    name, waves = "copies of object and probe in a step", "waves of a batch"
    small, large = (amounts(scan_of(100, 64, 60), Settings(batch=batch), on_gpu=True) for batch in (64, 2))
    assert name not in small, "waves of 64 patterns take more than two copies of the object"
    rows = large["object, gradient and optimiser"] + large["probe, gradient and optimiser"]
    assert large[name] + large[waves] == 2 * rows / 4


@pytest.mark.parametrize(
    ("changes", "on_gpu", "more"),
    [
        ({"probe": {"modes": 3}}, False, (0, 0, 0, 0)),
        ({"slices": THICK}, False, (3, 0, 0, 0)),
        ({"slices": THICK}, True, (-2.25, 0, 8, -0.25)),  # of the R-factor, which is more
        ({"optimiser": "lsqml"}, False, (0, 0, 0, 0)),
        ({"optimiser": "lsqml", "slices": THICK}, False, (6, 0, 0, 0)),
        ({"optimiser": "lsqml"}, True, (-0.25, 0, 0, 0)),
        ({"positions": {"learning_rate": 0.1}, "probe_offset": {"learning_rate": 0.1}}, False, (0, 0, 0, 0)),
        ({"positions": {"learning_rate": 0.1}, "probe_offset": {"learning_rate": 0.1}}, True, (0, 0, 0, 0)),
        ({"opr": {"modes": 2}}, False, (2, 0, 0, 0)),
        ({"opr": {"modes": 2}}, True, (4.5, 0, 0, 0)),
        ({"descan": {"start": "plane"}}, False, (2, 0, 0, 0)),
        ({"fly_scan": {"steps": 3}}, False, (3 * (2 + 2) - 2, 0, 0, 0)),
        ({"pattern_intensities": {"learning_rate": 0.1}, "background": {"learning_rate": 0.1}}, False, (0, 0, 0, 4)),
    ],
)
def test_what_is_kept_of_each_pattern(changes, on_gpu, more):
    scan = scan_of(100, 64, 8)
    plain = arrays_of_an_update(scan, Settings(), on_gpu)
    found = arrays_of_an_update(scan, Settings(**changes), on_gpu)
    assert tuple(np.subtract(dataclasses.astuple(found), dataclasses.astuple(plain))) == more


def test_a_cpu_keeps_what_a_gpu_does_where_torch_has_to_do_the_steps():
    scan, moving = scan_of(100, 64, 8), Settings(slices={**THICK, "learning_rate": 0.1})
    assert arrays_of_an_update(scan, moving, False) == arrays_of_an_update(scan, moving, True)


def test_tilted_planes_are_recorded():
    scan = scan_of(100, 64, 8)
    assert arrays_of_an_update(scan, Settings(), False).waves == 2
    tilted = Scan.from_arrays(scan.frames.read(0, 100), scan.positions, geometry=GEOMETRY)
    assert arrays_of_an_update(tilted, Settings(), False).waves == 2 + TILTED
    planes = (amounts(one, Settings(), on_gpu=True)["work space of Fourier transforms"] for one in (tilted, scan))
    assert next(planes) == 4 * next(planes)


def test_projections_keep_the_waves_of_all_patterns():
    scan = scan_of(100, 64, 8)
    wave = 8 * 64**2 * 2
    for optimiser, kept in (("dm", 100), ("raar", 200)):
        found = amounts(scan, Settings(optimiser=optimiser, probe={"modes": 2}))
        assert found["exit waves of all patterns"] == kept * wave
    assert "exit waves of all patterns" not in amounts(scan, Settings())


def test_the_sums_of_lsqml_are_made_for_each_probe():
    scans = [scan_of(100, 64, 8)] * 3
    both = combine(scans, share="object")
    for optimiser, copies, further in (("lsqml", 6.5, 2 * 2), ("dm", 8, 0)):
        alone, found = (amounts(scan, Settings(optimiser=optimiser)) for scan in (scans[0], both))
        object = alone["object, gradient and optimiser"] / copies
        assert found["object, gradient and optimiser"] == (copies + further) * object
        assert found["probe, gradient and optimiser"] == 3 * alone["probe, gradient and optimiser"]


def test_engines_share_patterns_and_waves_but_not_the_object():
    scan, settings = scan_of(100, 64, 8), Settings(batch=16)
    alone, four = (amounts(scan, settings, engines, cluster=True) for engines in (1, 4))
    assert four["patterns"] == alone["patterns"] / 4
    assert four["patterns as they were sent"] == alone["patterns"] / 4
    assert four["waves of a batch"] == alone["waves of a batch"] / 4
    assert four["object, gradient and optimiser"] == alone["object, gradient and optimiser"] * 7 / 6
    each = amounts(scan, settings.replace(batch_per="engine"), 4, cluster=True)
    assert each["waves of a batch"] == alone["waves of a batch"]
    assert alone["process"] == PROCESS
    assert not {"process", "patterns as they were sent"} & set(amounts(scan, settings))


def test_on_a_gpu_arrays_take_what_they_are_and_patterns_may_come_from_the_host():
    scan, settings = scan_of(100, 64, 8), Settings(batch=16)
    asked = Workload(settings, 1)
    here, there = (memory_of(scan, asked, place, on_gpu=True) for place in ("device", "host"))
    wheres = {item.name: item.where for item in here}
    assert {name for name, where in wheres.items() if where == "host"} == {
        "patterns as they were sent",
        "pieces in which patterns are read",
        "pictures of epochs on the way",
        "a state on its way to the disk",
        "process",
    }
    patterns = 100 * 64 * 64 * 2
    buffers = 3 * 16 * 64 * 64 * 2
    assert totals(here)["host"] == totals(there)["host"] - patterns - buffers
    on_their_way = 4 * 16 * 64 * 64 * 2
    found = {item.name: item.bytes for item in here}
    recorded = found["recorded updates"]  # as a CUDA graph, of patterns that are on the GPU
    assert recorded == found["waves of a batch"]
    assert totals(here)["device"] == totals(there)["device"] + patterns - on_their_way + recorded
    name = "object, gradient and optimiser"
    assert amounts(scan, settings, on_gpu=True)[name] == amounts(scan, settings)[name] / HEAP * 4 / 6
    assert "messages of NCCL" not in wheres
    assert amounts(scan, settings, 2, on_gpu=True)["messages of NCCL"] == MESSAGES


def test_updates_that_a_gpu_does_not_record_take_no_memory_twice():
    scan = scan_of(2048, 128, 1)
    for settings, recorded in (
        (Settings(batch=2048), True),
        (Settings(batch=2048, probe={"modes": 2}), False),
        (Settings(batch=16, optimiser="dm"), False),
    ):
        assert ("recorded updates" in amounts(scan, settings, place="device", on_gpu=True)) is recorded


def sources(folder):
    """Scans of 101 patterns whose patterns are in memory, in a file, and in both."""
    scan = scan_of(101, 32, 4)
    stored = pt.save_scan(scan, folder / "scan.h5")
    with h5py.File(folder / "packed.h5", "w") as file:
        counts = scan.frames.read(0, len(scan))
        packed = HDF5Frames.of(file.create_dataset("patterns", data=counts, chunks=(1, 32, 32), compression="gzip"))
    return {
        "array": scan,
        "cropped array": pt.preparation.crop(scan, 16),
        "selected array": pt.preparation.select(scan, np.arange(101)[::-2]),
        "two arrays": combine([scan, scan], share="probe"),
        "file": stored,
        "packed file": dataclasses.replace(scan, frames=packed),
        "array and file": combine([scan, stored], share="object"),
    }


@pytest.fixture
def unlimited(monkeypatch):
    """A GPU with memory for everything: torch's device "meta"."""
    monkeypatch.setattr(engine_patterns, "StreamTransfer", LateStream)
    monkeypatch.setattr(engine_patterns, "free_on_device", lambda device, engines: 10**12)


@pytest.mark.parametrize("kind", get_args(Settings.model_fields["batch_sampling"].annotation))
def test_engines_get_and_hold_what_was_counted(unlimited, tmp_path, kind):
    """About N-th of the patterns each, wherever they come from and are stored; compared with real bytes."""
    world, places = 3, [("cpu", "host"), ("cpu", "disk"), ("meta", "device"), ("meta", "host"), ("meta", "disk")]
    for (name, scan), (device, place) in itertools.product(sources(tmp_path).items(), places):
        if place == "disk" and not scan.frames.in_file:
            continue
        settings, case = Settings(batch=16, batch_sampling=kind, pattern_storage=place), f"{name}, {place} of {device}"
        order = planned_order(scan, settings, world)
        found = [engine_bytes(scan, order, rank, world, device, place) for rank in range(world)]
        sent, held, coming, buffers = (max(of_rank) for of_rank in zip(*found, strict=True))
        foreseen = amounts(scan, settings, world, cluster=True, place=place, on_gpu=device == "meta")
        index = 16 * len(scan) + 2000  # of patterns, twice, and other small things
        remembered = RunSpec(scan, settings, b"", None, 60, "pause", 0).without_patterns()
        assert len(pickle.dumps(remembered.scan.frames)) < index, "what engines keep for attach"
        assert sent - index <= foreseen.get("patterns as they were sent", 0) <= sent, case
        assert foreseen.get("patterns", 0) == held, case
        whole = scan.frames.nbytes / scan.frames.shape[0] * len(scan)
        assert held <= 1.2 * whole / world, case
        assert coming <= foreseen.get("patterns on their way", 0), case
        assert buffers <= foreseen.get("buffers of patterns on their way", 0), case
    share = order.share(world)
    largest = max(len(part) for number in range(20) for part in parts(order, number, world))
    assert largest <= share <= (2 if kind == "random" else 1.2) * largest


def parts(order, number, world):
    """Yield the patterns of each update of an epoch on each engine."""
    table = order.epoch(number)
    for update, rank in itertools.product(range(order.updates), range(world)):
        yield order.part(table, update, rank, world)


def engine_bytes(scan, order, rank, world, device, place):
    """Return real sizes: of the message, of the stored patterns, of batches on their way, and of the ring's buffers."""
    own = order.owned(rank, world)
    message = pickle.dumps(scan.part(own).frames, protocol=5)
    received = dataclasses.replace(scan, frames=pickle.loads(message))
    with LiveStorages() as memory:
        shard = EnginePatterns(received, own, SingleGroup(torch.device(device)), torch.float32, place)
        before = memory.peak = memory.live
        batches = [part for part in parts(order, 1, world) if np.isin(part, own).all()]
        shard.follow(iter(batches))
        for patterns in batches:
            shard._frames(patterns)
        coming = memory.peak - before if place == "disk" else 0
    buffers = [] if shard._ring is None else [len(one) for one in shard._ring._buffers]
    shard.close()
    return len(message), shard._held.nbytes, coming, sum(buffers)


def test_later_stages_may_need_other_patterns_of_an_array():
    scan, stages = scan_of(100, 32, 4), (Settings(batch=16), Settings(batch=16, batch_sampling="compact"))
    sent = len(np.unique(np.concatenate([planned_order(scan, one, 4).owned(0, 4) for one in stages])))
    asked = Workload(stages[0], 4, stages=stages)
    found = {item.name: item.bytes for item in memory_of(scan, asked, "host", on_gpu=False)}
    assert found["patterns"] == 25 * 32 * 32 * 2
    assert found["patterns as they were sent"] >= sent * 32 * 32 * 2 > found["patterns"]


@pytest.mark.parametrize(("dtype", "kept"), [("uint8", 1), ("uint16", 2), ("int64", 2), ("float32", 4), ("float64", 4)])
def test_patterns_take_what_engines_keep_them_as(dtype, kept):
    scan = Scan.from_arrays(np.ones((4, 16, 16), dtype), np.arange(8).reshape(4, 2))
    assert amounts(scan, Settings())["patterns"] == 4 * 16 * 16 * kept


def test_portions_are_those_of_an_engine():
    scan = scan_of(100, 32, 4)
    for settings, engines, expected in (
        (Settings(batch=16), 1, 16),
        (Settings(batch=16), 3, 6),
        (Settings(batch=16, gradient_accumulation=4), 3, 2),
        (Settings(batch=16, batch_per="engine"), 3, 16),
        (Settings(batch=400), 1, 100),
    ):
        assert portion(scan, Workload(settings, engines)) == expected


def test_a_state_is_copied_and_turned_into_the_bytes_of_a_file():
    scan, pixels = scan_of(100, 64, 8), (9 * 8 + 64 + 2 * 4) ** 2 + 64**2
    name = "a state on its way to the disk"
    assert amounts(scan, Settings(optimiser="adam"), keep=True)[name] == pytest.approx(2.2 * 3 * 8 * pixels)
    assert amounts(scan, Settings(optimiser="sgd"), keep=True)[name] == pytest.approx(2.2 * 8 * pixels)
    waves = 8 * 100 * 64**2
    assert amounts(scan, Settings(optimiser="dm"), keep=True)[name] == pytest.approx(2.2 * (8 * pixels + waves))
    assert name not in amounts(scan, Settings())
