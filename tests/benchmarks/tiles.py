"""Object in tiles: bytes, time and memory of real engines, and a model of more engines than there are here.

usage: python -m tests.benchmarks.tiles [--parts pace streamed memory model scale] [--rounds 30] [--side 8192]
    [--most-memory 14]

pace: an object of 4096 x 4096, 1024 patterns of 256 x 256, batches of 16, on two engines. Runs with the whole object,
whose touched blocks are all-reduced, and with tiles take turns, one update each, in the same processes.

streamed: one engine, an object of 4096 x 4096, 256 patterns of 256 x 256, batches of 16 from 4 bands. Epochs with the
whole object and with the streamed one take turns in the same process. The rows that come to the device are counted.

memory: engines with an object of `--side`, in an epoch with its thumbnail, and with the image of a checkpoint: the peak
of resident memory beyond that after a small run, against the estimate (`planning.memory`).

model: the time of an update of an engine is

    t = p n + a A + (l_1 m + s_1 B_1) + (l_2 + s_2 B_2)

n: its patterns of the batch, the largest number of any engine. A: numbers of its tile, all slices (gradient set to 0,
optimiser). m, B_1: messages and bytes that it sends to other tiles, and receives. B_2: bytes of the all-reduce of the
probe. Of real engines p and a are measured by updates of an engine alone that has no object beyond its patterns, or
few patterns and a large object; l and s by messages alone. All engines measure at the same time, in turn with the
updates that are compared. So P engines on C cores need no term of their own: each cost is measured while P processes
share the cores, and is P / C times that of a core of its own, if P > C.

scale: many engines with an object of 16384 x 16384 in 20 slices, Adam, windows of 256 x 256. Tiles, batches and what is
sent are those of a real scan grid, by the code of a run. Costs are those of an H100 as measured (`PATTERN`, `LAUNCHES`,
`OF_A_NUMBER`, `COPY`), of links as stated (`LINKS`).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import ptynb as pt
from ptynb.data.patterns import AbsentFrames, ArrayFrames
from ptynb.data.scan import Scan
from ptynb.distributed.group import Group, Membership, SingleGroup, join
from ptynb.engine.loop import Loop
from ptynb.io.checkpoint_file import image
from ptynb.io.scan_file import write_scan
from ptynb.optimize.gradient_descent import Gradient
from ptynb.optimize.object_tiles import TileLayout
from ptynb.optimize.sampler import layout_of, planned_order
from ptynb.planning.memory import Workload, memory_of, totals
from ptynb.settings import STREAMABLE, Settings
from tests.benchmarks.memory import _status
from tests.engine import ranks
from tests.engine.ranks import Ranks

WINDOW = 256
TILES: dict[str, Any] = {"batch_sampling": "cells", "object": {"layout": "tiles"}}
WARM_UPS = 4


@dataclass(frozen=True)
class Costs:
    """Costs of an engine [s]: of an update, a pattern, a number of the tile, a message and a byte between tiles (within
    a host, between hosts), of an all-reduce and a byte of it. least: of all patterns together.
    """

    update: float
    pattern: float
    number: float
    message: tuple[float, float]
    byte: tuple[float, float]
    reduction: float
    reduced_byte: float
    least: float = 0.0


@dataclass(frozen=True)
class Load:
    """What an engine does in a mean update, of each the most that one does. messages, sent: within a host, between."""

    patterns: float
    numbers: float
    messages: tuple[float, float]
    sent: tuple[float, float]
    reduced: float

    def seconds(self, costs: Costs) -> dict[str, float]:
        """The terms of the model."""
        halo = zip(costs.message, self.messages, costs.byte, self.sent, strict=True)
        return {
            "patterns": costs.update + max(costs.least, costs.pattern * self.patterns),
            "tile": costs.number * self.numbers,
            "halo": sum(each * number + byte * sent for each, number, byte, sent in halo),
            "probe": costs.reduction + costs.reduced_byte * self.reduced,
        }


OF_A_HOST = 8
"""GPUs that NVLink connects."""
COPY = 2.97e12
"""Bandwidth of an H100, as measured (RESULTS.md) [bytes/s]."""
OF_A_NUMBER = 8 * 4
"""Bytes that Adam moves for a number of a tile: its gradient is set to 0 and read; it and both moments are read and
written."""
PATTERN = 2.81e-3 / 32
"""Of 256 x 256 in 20 slices on an H100, as measured in batches of 32 (RESULTS.md) [s]."""
LAUNCHES = 272 * 7.19e-5 / 25
"""The launches of such an update, by an update that launches limit (RESULTS.md: 25 in 0.0719 ms) [s]."""
LINKS = ((1e-5, 4.5e11), (2e-5, 5e10))
"""Stated, not measured: time of a message [s], and bandwidth of an engine in each direction [bytes/s], of NVLink 4 with
18 links, and of a port of InfiniBand NDR (400 Gbit/s) for each GPU."""


def grid_scan(folder: Path, side: int, patterns: int, name: str = "") -> Scan:
    """A square grid of equal patterns over an object of this side, as a file, made once; without frames if no name."""
    along = math.isqrt(patterns)
    step = (side - WINDOW - 8) / (along - 1)
    places = np.stack(np.meshgrid(*[np.arange(along)] * 2, indexing="ij"), -1).reshape(-1, 2) * step + 0.25
    ramp = np.arange(WINDOW) - WINDOW // 2
    probe = 30 * np.exp(-(ramp[:, None] ** 2 + ramp**2) / (2 * (WINDOW / 6) ** 2)).astype(np.complex64)
    scan = Scan(
        frames=AbsentFrames((along**2, WINDOW, WINDOW), "<u2"),
        positions=places,
        name=name,
        probe=probe[None],
        geometry=pt.Geometry(wavelength=1e-10, distance=1.0, detector_pixel=(5e-5, 5e-5)),
    )
    path = folder / f"{name}.h5"
    if not name or path.exists():
        return pt.load(path) if name else scan
    counts = np.abs(np.fft.fftshift(np.fft.fft2(probe, norm="ortho"))) ** 2
    return write_scan(path, scan, (np.rint(counts).astype(np.uint16)[None] for _ in range(along**2)))


def wire_bytes(loop: Loop) -> float:
    """Bytes that this engine has sent: an all-reduce over P engines moves 2 (P - 1) / P times the message."""
    assert isinstance(loop.algorithm, Gradient)
    world, exchange = loop.group.world, loop.algorithm.exchange
    between_tiles = exchange.sent_bytes - exchange.reduced_bytes
    return between_tiles + 2 * (world - 1) / world * exchange.reduced_bytes


def timed(group: Group, action: Callable[[], object], times: int = 1) -> float:
    """Seconds of an action of all engines, from a common start to the end of the slowest."""
    group.sum(torch.zeros(2))
    started = time.perf_counter()
    for _ in range(times):
        action()
    group.sum(torch.zeros(2))
    return (time.perf_counter() - started) / times


def pace(membership: Membership, scan: Scan, choices: dict[str, Settings], rounds: int) -> dict[str, list[float]]:
    """Seconds of an update of each choice, in turn, and its bytes first."""
    group = join(membership)
    loops = {name: Loop(scan, settings, group) for name, settings in choices.items()}
    try:
        for loop in loops.values():
            for _ in range(WARM_UPS):
                loop.step()
        before = {name: wire_bytes(loop) for name, loop in loops.items()}
        seconds = {name: list[float]() for name in loops}
        for _ in range(rounds):
            for name, loop in loops.items():
                seconds[name].append(timed(group, loop.step))
        sent = {name: (wire_bytes(loop) - before[name]) / rounds for name, loop in loops.items()}
        return {name: [sent[name], *seconds[name]] for name in loops}
    finally:
        for loop in loops.values():
            loop.disconnect()
        group.close()


def show_pace(folder: Path, engines: Ranks, rounds: int) -> None:
    """Bytes and time of an update, and their ratios to the all-reduce of a spread batch."""
    scan, settings = grid_scan(folder, 4096, 1024, "wide"), Settings(batch=16)
    choices = {
        "all-reduce, spread batches": settings,
        "all-reduce, a pattern of each cell": settings.replace(batch_sampling="cells"),
        "tiles": settings.replace(**TILES),
    }
    found = engines.run(2, pace, scan, choices, rounds, timeout=600.0)[0]
    reference = found["all-reduce, spread batches"]
    print("wide, 2 engines, an update\n" + " " * 36 + "sent MB  of it    seconds  of it (each half of the rounds)")
    for name, (sent, *seconds) in found.items():
        ratios = [one / other for one, other in zip(seconds, reference[1:], strict=True)]
        halves = [statistics.median(ratios[number::2]) for number in (0, 1)]
        print(
            f"{name:36}{sent / 1e6:7.3f}{sent / reference[0]:7.3f}{statistics.median(seconds):11.4f}"
            f"{statistics.median(ratios):7.3f} ({min(halves):.3f} to {max(halves):.3f})",
            flush=True,
        )


def show_streamed(folder: Path, epochs: int) -> None:
    """Time of an epoch with a streamed object, relative to the whole one, and how much of it comes to the device."""
    scan = grid_scan(folder, 4096, 256, "few")
    print("streamed, 1 engine, an epoch\n          whole s  streamed s  of it (least to most)  rows, of all")
    for optimiser in STREAMABLE:
        settings = Settings(batch=16, batch_sampling="bands", batch_bands=4).replace(optimiser=optimiser)
        loops = [
            Loop(scan, settings.replace(object={"layout": layout}), SingleGroup(torch.device("cpu")))
            for layout in ("whole", "streamed")
        ]
        streamed, seconds = loops[1].model.streamed, list[list[float]]()
        assert streamed is not None
        requests = mock.Mock(side_effect=streamed._request)
        with mock.patch.object(streamed, "_request", requests):
            for _ in range(1 + epochs):
                requests.reset_mock()
                seconds.append([timed(loop.group, loop.step, loop.updates) * loop.updates for loop in loops])
        for loop in loops:
            loop.disconnect()
        whole, other = (statistics.median(column) for column in zip(*seconds[1:], strict=True))
        ratios = sorted(two / one for one, two in seconds[1:])
        copied = requests.call_count * streamed.bands.height / loops[1].frame.shape[0]
        print(
            f"{optimiser:10}{whole:7.2f}{other:12.2f}{statistics.median(ratios):7.3f} ({ratios[0]:.3f} to "
            f"{ratios[-1]:.3f}){copied:12.2f}",
            flush=True,
        )


def peak(membership: Membership, scan: Scan, settings: Settings, keep: bool) -> float:
    """The peak of resident memory of an epoch beyond that after a small run [bytes]. keep: with a checkpoint."""
    group = join(membership)
    small = dataclasses.replace(scan, frames=ArrayFrames.of(scan.frames.read(0, 64)), positions=_square(scan.positions))
    loop = Loop(small, settings, group)
    for _ in range(loop.updates):
        loop.step()
    loop.disconnect()
    del loop
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now: proc(5)
    before = _status("VmRSS")
    loop = Loop(scan, settings, group)
    try:
        for _ in range(WARM_UPS):
            loop.step()
        loop.update = loop.updates - 1  # the end of the epoch, with its thumbnail
        loop.step()
        if keep:
            image(loop.state(loop.loss_sums()), group.rank)
        return _status("VmHWM") - before
    finally:
        loop.disconnect()
        group.close()


def _square(positions: Any) -> Any:
    """The first 64 of these positions, on a square of its own."""
    return np.stack(np.divmod(np.arange(64), 8), 1) * 64.0 + positions[0]


def show_memory(folder: Path, side: int, most: float) -> None:
    """Peaks against estimates; what would take more than `most` bytes on all engines is left out."""
    scan = grid_scan(folder, side, (side // 226) ** 2, f"wide{side}")
    print(f"memory of an engine, {side} x {side}, Adam: the peak of an epoch")
    whole = 0.0
    for name, changes, world, keep in [
        ("whole, 2 engines", {}, 2, False),
        ("tiles, 4 engines", TILES, 4, False),
        ("tiles, 4 engines, and a checkpoint", TILES, 4, True),
        ("tiles, 4 engines, 4 slices", TILES | {"slices": {"count": 4, "thickness": 1e-6}}, 4, False),
    ]:
        settings = Settings(batch=16, batch_sampling="cells").replace(**changes)
        estimate = totals(memory_of(scan, Workload(settings, world, False, keep), "host", False))["host"]
        if world * estimate > most:
            print(f"{name:36} not measured: {world} engines need about {world * estimate / 1e9:.1f} GB")
            continue
        engines = Ranks(world)
        try:
            found = max(engines.run(world, peak, scan, settings, keep, timeout=600.0))
        finally:
            engines.close()
        whole = whole or found
        print(
            f"{name:36} {found / 1e6:6.0f} MB, estimate {estimate / 1e6:6.0f} MB: {found / estimate:.3f}; "
            f"of the first {found / whole:.3f}",
            flush=True,
        )


MODELLED = (("wide", 4096, 1024), ("small", 1100, 256))
"""Name, side of the object and patterns. Of the small one, patterns and messages take most of an update."""


def load_of(scan: Scan, settings: Settings, world: int, of_a_host: int) -> tuple[Load, dict[str, float]]:
    """What the engines do in an update, by the code of a run; and facts about the tiles."""
    layout = layout_of(scan, settings, world)
    assert layout is not None
    table = planned_order(scan, settings, world).epoch(1)[:, : max(4, 256 // world)]
    overlaps = [layout.overlaps(rank) for rank in range(world)]
    patterns, halo = list[int](), list[Any]()
    for members in (column[column >= 0] for column in table.T):
        owner = layout.owner[members]
        patterns.append(np.bincount(owner, minlength=world).max())
        of_engines = np.zeros((world, 2, 2))  # engine; within a host, between; messages, pixels
        for rank in np.unique(owner).tolist():
            for other, area in overlaps[rank].items():
                pixels = sum(math.prod(one.shape) for one in layout.covered(area, members[owner == rank], 1))
                between = int(rank // of_a_host != other // of_a_host)
                of_engines[[rank, other], between] += (pixels > 0, pixels)
        halo.append(of_engines.max(0))
    (within, pixels), (between, others) = np.mean(halo, 0).tolist()
    counts, owned = np.bincount(layout.owner, minlength=world), object_pixels(layout)
    facts = {
        "patterns, max / mean": counts.max() / counts.mean(),
        "held / owned": sum(math.prod(one.shape) for one in layout.held) / owned,
        "neighbours": max(len(areas) for areas in overlaps),
    }
    number = 8.0 * settings.slices.count
    numbers = 2.0 * math.prod(layout.largest) * settings.slices.count
    reduced = 8.0 * WINDOW**2 * settings.probe.modes
    return Load(
        float(np.mean(patterns)), numbers, (within, between), (number * pixels, number * others), reduced
    ), facts


def object_pixels(layout: TileLayout) -> int:
    """Number of pixels of the whole object."""
    return sum(math.prod(one.shape) for one in layout.owned)


FEW, MANY = 2, 12
SIZES = (2**14, 2**21)
"""Of measured messages [bytes]."""


def model_rounds(membership: Membership, scan: Scan, settings: Settings, rounds: int) -> dict[str, list[float]]:
    """Seconds of real updates in tiles, and of all that the costs follow from, in turn."""
    group = join(membership)
    loop = Loop(scan, settings, group)
    side = math.isqrt(math.prod(loop.model.object.values.shape[-2:]))
    alone = {
        "few": one_engine(scan, FEW, 2 * WINDOW),
        "many": one_engine(scan, MANY, 2 * WINDOW),
        "large": one_engine(scan, FEW, side),
    }
    following, before = (membership.rank + 1) % membership.world, (membership.rank - 1) % membership.world

    def message(size: int) -> None:
        sent, received = torch.zeros(size // 4), torch.empty(size // 4)
        group.exchange({following: sent}, {before: received})
        sent += received

    actions: dict[str, Callable[[], object]] = {"nothing": lambda: None, "real": loop.step}
    # Not `step`, by which every epoch of one update would end.
    for name, one in alone.items():
        table = np.arange(one.order.count)[:, None]
        actions[name] = lambda one=one, table=table: one.algorithm.update(table, 0)
    for name, size in zip(("small", "long"), SIZES, strict=True):
        actions[f"{name} message"] = lambda size=size: message(size)
        actions[f"{name} sum"] = lambda size=size: group.sum(torch.zeros(size // 4))
    try:
        for action in actions.values():
            for _ in range(WARM_UPS):
                action()
        found = {name: list[float]() for name in actions}
        for _ in range(rounds):
            for name, action in actions.items():
                found[name].append(timed(group, action))
        return {**found, "side": [float(side)]}
    finally:
        for one in (loop, *alone.values()):
            one.disconnect()
        group.close()


def one_engine(scan: Scan, patterns: int, side: int) -> Loop:
    """A loop of this engine alone, whose updates have so many patterns at the centre of an object of this side."""
    frames = ArrayFrames.of(scan.frames.read(0, patterns))
    places = np.stack(np.divmod(np.arange(patterns), 4), 1) * 16.25 + (side - WINDOW) // 2 - 32
    part = dataclasses.replace(scan, frames=frames, positions=places, object=np.ones((side, side), np.complex64))
    return Loop(part, Settings(batch=patterns), SingleGroup(torch.device("cpu")))


def costs_of(found: dict[str, list[float]]) -> Costs:
    """Costs by the medians over the rounds."""
    middle = {name: statistics.median(seconds) for name, seconds in found.items()}
    own = {name: max(seconds - middle["nothing"], 1e-9) for name, seconds in middle.items()}
    pattern = (own["many"] - own["few"]) / (MANY - FEW)
    side, small = middle["side"], 2 * WINDOW
    number = (own["large"] - own["few"]) / (2 * (side**2 - small**2))
    update = own["few"] - FEW * pattern - 2 * small**2 * number
    byte = (own["long message"] - own["small message"]) / (2 * (SIZES[1] - SIZES[0]))  # sent and received
    reduced = (own["long sum"] - own["small sum"]) / (SIZES[1] - SIZES[0])
    each = own["small message"] - 2 * SIZES[0] * byte
    return Costs(update, pattern, number, (each / 2, 0.0), (byte, 0.0), own["small sum"] - SIZES[0] * reduced, reduced)


def show_model(scan: Scan, engines: Ranks, world: int, rounds: int) -> None:
    """Real updates against those of the model."""
    settings = Settings(batch=16, **TILES)
    found = engines.run(world, model_rounds, scan, settings, rounds, timeout=600.0)[0]
    load, _ = load_of(scan, settings, world, world)

    def predicted(part: slice) -> tuple[float, float, dict[str, float]]:
        chosen = {name: values if name == "side" else values[part] for name, values in found.items()}
        terms = load.seconds(costs_of(chosen))
        real = statistics.median(chosen["real"]) - statistics.median(chosen["nothing"])
        return real, sum(terms.values()), terms

    real, model, terms = predicted(slice(None))
    halves = [other / one for one, other, _ in (predicted(slice(first, None, 2)) for first in (0, 1))]
    words = ", ".join(f"{name} {1e3 * seconds:.1f}" for name, seconds in terms.items())
    print(
        f"{scan.name}, {world} engines on {os.cpu_count()} cores: an update {1e3 * real:.1f} ms, "
        f"model {1e3 * model:.1f} ms ({words}): "
        f"{model / real:.3f} ({min(halves):.3f} to {max(halves):.3f} by each half of {rounds} rounds)",
        flush=True,
    )


def show_scale(batch: int, along: int, worlds: list[int]) -> None:
    """The model with the costs of GPUs."""
    scan = grid_scan(Path(), 16384, along**2)
    settings = Settings(batch=batch, slices={"count": 20, "thickness": 1e-6}, **TILES)
    print(
        f"16384 x 16384 x 20 slices, Adam, {along**2} patterns of 256 x 256, batches of {batch}, "
        f"{planned_order(scan, settings, 1).updates} updates an epoch; ms of an update"
    )
    columns = ("engines", "update", "patterns", "tile", "halo", "probe", "epoch, s", "of ideal", "MB sent", "messages")
    columns += ("GB", "of whole", "held/owned", "max/mean")
    print("".join(f"{one:>10}" for one in columns))
    whole = totals(memory_of(scan, Workload(settings.replace(object={"layout": "whole"}), 8), "host", True))["device"]
    first = 0.0
    for world in worlds:
        load, facts = load_of(scan, settings, world, OF_A_HOST)
        (_, bandwidth), (_, between) = LINKS
        hosts = world > OF_A_HOST
        costs = Costs(
            update=0.0,
            pattern=PATTERN,
            number=OF_A_NUMBER / COPY,
            message=(LINKS[0][0], LINKS[1][0]),
            # Sent and received at the same time; packed and added.
            byte=(0.5 / bandwidth + 3 / COPY, 0.5 / between + 3 / COPY),
            reduction=2 * math.log2(world) * LINKS[hosts][0],
            reduced_byte=2 * (world - 1) / world / LINKS[hosts][1],
            least=LAUNCHES,
        )
        terms = load.seconds(costs)
        update = sum(terms.values())
        first = first or update * world
        memory = totals(memory_of(scan, Workload(settings, world), "host", True))["device"]
        sent = sum(load.sent) / 2 + 2 * (world - 1) / world * load.reduced
        of_update = (update, *terms.values())
        row = [f"{1e3 * seconds:.2f}" for seconds in of_update]
        row += [f"{update * along**2 / batch:.2f}", f"{first / update / world:.2f}", f"{sent / 1e6:.1f}"]
        row += [f"{sum(load.messages) / 2:.1f}", f"{memory / 1e9:.2f}", f"{memory / whole:.3f}"]
        row += [f"{facts['held / owned']:.2f}", f"{facts['patterns, max / mean']:.3f}"]
        print("".join(f"{one:>10}" for one in (world, *row)), flush=True)


def main() -> None:
    """Prints the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--side", type=int, default=8192, help="of the object whose memory is measured")
    parser.add_argument("--most-memory", type=float, default=14.0, help="of all engines together [GB]")
    parser.add_argument("--batch", type=int, nargs="+", default=[512, 4096], help="of the simulation")
    parser.add_argument("--grid", type=int, default=256, help="positions of the simulation along each side")
    parser.add_argument("--engines", type=int, nargs="+", default=[8, 64, 512], help="of the simulation")
    parser.add_argument("--folder", type=Path, help="where scans are kept for another run; else they are removed")
    chosen = parser.parse_args()
    ranks.ANSWER_SECONDS = 900
    print(f"{os.cpu_count()} cores, one thread an engine, gloo, load {os.getloadavg()[1]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        if {"pace", "model"} & {*chosen.parts}:
            engines = Ranks(4)
            try:
                if "pace" in chosen.parts:
                    show_pace(folder, engines, chosen.rounds)
                for name, side, patterns in MODELLED if "model" in chosen.parts else ():
                    for world in (2, 4):
                        show_model(grid_scan(folder, side, patterns, name), engines, world, chosen.rounds)
            finally:
                engines.close()
        if "streamed" in chosen.parts:
            show_streamed(folder, 3)
        if "memory" in chosen.parts:
            show_memory(folder, chosen.side, 1e9 * chosen.most_memory)
    for batch in chosen.batch if "scale" in chosen.parts else ():
        show_scale(batch, chosen.grid, chosen.engines)


PARTS = ("pace", "streamed", "memory", "model", "scale")

if __name__ == "__main__":
    main()
