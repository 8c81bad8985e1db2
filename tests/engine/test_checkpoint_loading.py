"""A run resumed from a checkpoint is bit-identical to one without interruption; writing checkpoints changes nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ptynb.data.commands import CheckpointRequest, StartRun
from ptynb.distributed.group import Membership, SingleGroup
from ptynb.engine.loop import Loop
from ptynb.io.checkpoint_file import load_state
from ptynb.io.scan_file import save_scan
from ptynb.preparation import flip
from ptynb.settings import (
    OPR,
    Background,
    Checkpointing,
    Descan,
    FlyScan,
    Object,
    PatternIntensities,
    Positions,
    Probe,
    Schedule,
    Settings,
)
from ptynb.settings.constraints import GaussianBlur
from tests.cases import CASES, MODES, a_scan
from tests.engine import checkpoint_work as work
from tests.engine.ranks import Ranks
from tests.raising import raises

worlds = pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.system("worlds")), 2])
ROWS: dict[str, Any] = {
    "probe": MODES,
    "positions": Positions(learning_rate=0.1, start_epoch=2),
    "pattern_intensities": PatternIntensities(learning_rate=0.01),
    "background": Background(learning_rate=0.01),
    "descan": Descan(start="plane", learning_rate=0.05),
    "fly_scan": FlyScan(steps=2),
}
FAST = {"probe": Probe(modes=2, learning_rate=0.3), "object": Object(learning_rate=0.5)}
# name -> (settings, updates before the state, in all, settings that change before an update)
RUNS: dict[str, tuple[dict[str, Any], int, int, tuple[work.Change, ...]]] = {
    "adam with rows": (ROWS, 7, 14, ()),
    "adam on the edge of an epoch": (ROWS, 10, 17, ()),
    "rpie": ({"optimiser": "rpie", "momentum": 0.3, **FAST}, 7, 14, ()),
    "lbfgs": ({"optimiser": "lbfgs", "probe": MODES}, 3, 7, ()),
    "lsqml": (
        {
            "optimiser": "lsqml",
            "momentum": 0.5,
            "probe": MODES,
            "positions": Positions(learning_rate=0.5, momentum=0.5, start_epoch=2),
            "opr": OPR(modes=1),
            "pattern_intensities": PatternIntensities(learning_rate=0.5),
            "background": Background(learning_rate=0.5),
        },
        12,
        21,
        (),
    ),
    "raar": ({"optimiser": "raar", "probe": MODES}, 3, 6, ()),
    "changes before and after": (
        # Positions that begin to move later must have room in the object as it is.
        {"schedule": Schedule(kind="cosine", epochs=4), "positions": Positions(max_shift=3)},
        8,
        17,
        (
            (2, {"background": {"learning_rate": 0.01}}),
            (5, {"background": {"learning_rate": 0.0}}),
            (6, {"positions": {"learning_rate": 0.1}, "probe": {"learning_rate": 0.0}}),
            (12, {"probe": {"learning_rate": 0.02}}),
        ),
    ),
}


def settings_of(values: dict[str, Any]) -> Settings:
    return Settings(**{"batch": 8, **values})


@pytest.mark.parametrize(
    ("name", "world"),
    [
        *((name, 2) for name in RUNS),
        ("adam with rows", 3),
        *(pytest.param(name, 1, marks=pytest.mark.system("worlds")) for name in RUNS),
    ],
)
def test_going_on_is_never_having_stopped_to_the_bit(ranks: Ranks, tmp_path: Path, name: str, world: int) -> None:
    values, before, updates, changes = RUNS[name]
    settings, path = settings_of(values), tmp_path / "state-00001.h5"
    unbroken = ranks.run(world, work.straight, a_scan(), settings, updates, {before: path}, changes)
    gone_on = ranks.run(world, work.going_on, a_scan(), settings, updates, path, changes)
    kept = load_state(path).model["object.parts"]
    for one, other in zip(unbroken, gone_on, strict=True):
        assert work.equal(one, other) == []
        assert not np.array_equal(kept, other["mine/object.parts"]), "the updates after it have to move it"


ALONE: dict[str, tuple[str, Settings]] = {
    **{name: ("far", settings_of({"optimiser": name})) for name in ("adamw", "nadam", "radam", "rmsprop", "dm")},
    "sgd": ("far", settings_of({"optimiser": "sgd", "momentum": 0.5, **FAST})),
    "smoothing": ("far", settings_of({"constraints": (GaussianBlur(sigma=0.3, after="update"),), "probe": MODES})),
    "lbfgs, smoothed": ("far", settings_of({"optimiser": "lbfgs", "constraints": (GaussianBlur(sigma=0.3),)})),
    **{
        name: (CASES[name][0], CASES[name][1].replace(batch=8))
        for name in (
            "polar",
            "thickness",
            "aberrations",
            "variations",
            "descan",
            "mean pattern",
            "accumulated",
            "compact batches",
            "everything",
        )
    },
}


@pytest.mark.parametrize("name", ALONE)
def test_whatever_is_optimised_goes_on_to_the_bit(tmp_path: Path, name: str) -> None:
    kind, settings = ALONE[name]
    before = 2 if settings.optimiser in ("lbfgs", "dm") else 7
    membership = Membership(rank=0, world=1, store=Path(), backend="none", device="cpu", identity="CPU")
    path = tmp_path / "state-00001.h5"
    unbroken = work.straight(membership, a_scan(kind=kind), settings, before + 6, {before: path})
    gone_on = work.going_on(membership, a_scan(kind=kind), settings, before + 6, path)
    assert work.equal(unbroken, gone_on) == []
    assert len(load_state(path).algorithm) > (0 if settings.optimiser != "dm" else -1)


@pytest.mark.parametrize("choices", [{}, {"gradient_accumulation": 2}, {"optimiser": "lbfgs"}], ids=str)
def test_reading_ahead_begins_at_the_right_update(ranks: Ranks, tmp_path: Path, choices: dict[str, Any]) -> None:
    scan, path = save_scan(a_scan(), tmp_path / "scan.h5"), tmp_path / "state-00001.h5"
    settings = settings_of({"pattern_storage": "disk", **choices})
    unbroken = ranks.run(2, work.straight, scan, settings, 11, {7: path})
    gone_on = ranks.run(2, work.going_on, scan, settings, 11, path)  # asserts that nothing else was read
    assert work.equal(unbroken[1], gone_on[1]) == []
    assert load_state(path).scan["file"] == str(tmp_path / "scan.h5")


@worlds
def test_a_piece_of_the_users_goes_on_with_its_buffers(ranks: Ranks, tmp_path: Path, world: int) -> None:
    path = tmp_path / "state-00001.h5"
    unbroken = ranks.run(world, work.straight, a_scan(), settings_of({}), 12, {7: path}, (), work.fading)
    gone_on = ranks.run(world, work.going_on, a_scan(), settings_of({}), 12, path, (), work.fading)
    steps = [values for name, values in gone_on[0].items() if name.endswith(".steps")]
    assert steps
    assert all(values == 12 for values in steps)
    for one, other in zip(unbroken, gone_on, strict=True):
        assert work.equal(one, other) == []


@pytest.mark.parametrize(
    ("name", "kept_by", "gone_on_by"), [("adam with rows", 2, 1), ("lsqml", 2, 3), ("lbfgs", 1, 3), ("raar", 3, 2)]
)
def test_other_numbers_of_engines_go_on_within_rounding(
    ranks: Ranks, tmp_path: Path, name: str, kept_by: int, gone_on_by: int
) -> None:
    values, before, updates, _ = RUNS[name]
    # Double precision: in single, L-BFGS's line searches make something of each rounding.
    settings, path = settings_of({**values, "precision": "double"}), tmp_path / "state-00001.h5"
    unbroken = ranks.run(kept_by, work.straight, a_scan(), settings, updates, {before: path})[0]
    for gone_on in ranks.run(gone_on_by, work.going_on, a_scan(), settings, updates, path):
        assert gone_on["losses"] == pytest.approx(unbroken["losses"], rel=1e-9)
        for part in ("mine/object.parts", "mine/probe.parts"):
            np.testing.assert_allclose(gone_on[part], unbroken[part], atol=1e-8 * np.abs(unbroken[part]).max())


def test_where_other_engines_make_other_batches_the_epoch_begins_anew(ranks: Ranks, tmp_path: Path) -> None:
    settings, path = settings_of({"batch_per": "engine"}), tmp_path / "state-00001.h5"
    ranks.run(2, work.straight, a_scan(), settings, 5, {5: path})
    assert (load_state(path).epoch, load_state(path).update) == (1, 2)
    loop = Loop(a_scan(), settings, SingleGroup(torch.device("cpu")))
    loop.restore(load_state(path))
    assert (loop.epoch, loop.update) == (1, 0)
    for _ in range(loop.updates):
        loop.step()
    assert len(loop.epochs) == 2
    assert 0 < loop.epochs[1].loss < loop.epochs[0].loss
    loop.disconnect()


OTHER_SCAN, OTHER_MODEL = "checkpoint.other-scan", "checkpoint.other-model"


def test_a_state_of_another_model_is_refused() -> None:
    group = SingleGroup(torch.device("cpu"))
    loop = Loop(a_scan(), Settings(), group)
    state = loop.state(loop.loss_sums())
    for scan, settings, extensions, code, facts in (
        (a_scan(window=16), Settings(), [], OTHER_SCAN, ["'simulated' (37 patterns of 32 x 32"]),
        (a_scan(kind="masked"), Settings(), [], OTHER_SCAN, ["sum of all counts"]),
        (flip(a_scan(), "x"), Settings(), [], OTHER_SCAN, ["differ in patterns"]),
        (dataclasses.replace(a_scan(), motion=np.ones((37, 2))), Settings(), [], OTHER_SCAN, ["differ in positions"]),
        (a_scan(), Settings(probe=MODES), [], OTHER_MODEL, ["probe.parts"]),
        (
            a_scan(),
            Settings(),
            work.fading(),
            OTHER_MODEL,
            ["steps", "the same settings"],
        ),
    ):
        other = Loop(scan, settings, group, extensions)
        with raises(code, *facts):
            other.restore(state)
        other.disconnect()
    loop.disconnect()


@worlds
@pytest.mark.parametrize("choices", [{}, {"optimiser": "raar"}], ids=str)
def test_workers_that_keep_now_and_then_end_where_others_do(
    ranks: Ranks, tmp_path: Path, world: int, choices: dict[str, Any]
) -> None:
    settings, script = settings_of(choices), [(0.0, StartRun(25)), (0.0, None)]
    without = ranks.run(world, work.work, a_scan(), settings, None, script)
    keep = Checkpointing(folder=tmp_path / "kept", seconds=0.005, epochs=7, max_to_keep=5)
    script.insert(1, (0.005, CheckpointRequest()))
    kept = ranks.run(world, work.work, a_scan(), settings, keep, script)
    for one, other in zip(without, kept, strict=True):
        assert one["losses"] == other["losses"]
        assert work.equal(one["model"], other["model"]) == []
    status = kept[0]["status"]
    assert status.checkpoint is not None
    assert status.notices == ()
    assert (load_state(status.checkpoint).epoch, load_state(status.checkpoint).scan["patterns"]) == (
        status.checkpoint_epoch,
        37,
    )
