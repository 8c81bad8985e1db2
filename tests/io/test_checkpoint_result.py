"""Object and probe of a checkpoint file, without engines and without the scan."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import ptynb as pt
from ptynb.io.checkpoint_file import load_state, save_state
from ptynb.io.checkpoint_result import checkpoint_result
from ptynb.io.named_results import named
from tests.raising import raises

SETTINGS = {
    "plain": {},
    "thick, polar": {
        "slices": {"count": 2, "thickness": 1e-6},
        "object": {"modes": 2},
        "positions": {"learning_rate": 0.05},
    },
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_it_is_the_result_of_the_engines(tmp_path: Path, kind: str) -> None:
    scan = pt.simulate(patterns=16, window=16, step=3, seed=4)
    settings = pt.Settings(**SETTINGS[kind])
    checkpointing = pt.Checkpointing(folder=tmp_path, epochs=None)
    with pt.Reconstruction(scan, settings, device="cpu", checkpointing=checkpointing) as recon:
        for _ in recon.run(2):
            pass
        path = recon.save_checkpoint()
        result = recon.result
        first, second = named((recon.checkpoints[0], {"now": result})), named((path, result))
    found = checkpoint_result(path)
    assert [*first] == ["epoch 2 (main)", "now"]
    assert [*second] == ["epoch 2 (main)", "A"]
    for name in ("object", "probe", "positions"):
        one, other = getattr(found, name), getattr(result, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(getattr(first["epoch 2 (main)"], name), other)
    for name in ("origin", "pixel_size", "epochs", "settings", "initial_settings", "changes", "started", "stages"):
        assert getattr(found, name) == getattr(result, name), name
    assert found.metadata["scan"] == result.metadata["scan"] == found.scan.name
    assert [one.epoch for one in found.history] == [1, 2]
    assert np.isnan(found.r_factor)
    again = pt.load_result(pt.save_result(found, tmp_path / "as.result.h5"))
    np.testing.assert_array_equal(again.object, found.object)


def test_an_r_factor_of_its_epoch_is_taken_and_a_missing_part_is_named(tmp_path: Path) -> None:
    scan = pt.simulate(patterns=16, window=16, step=3, seed=4)
    checkpointing = pt.Checkpointing(folder=tmp_path, epochs=None)
    with pt.Reconstruction(scan, device="cpu", checkpointing=checkpointing) as recon:
        [*recon.run(2)]
        path = recon.save_checkpoint()
    state = load_state(path)
    for measured, expected in ((((1, 0.4), (2, 0.3)), 0.3), (((1, 0.4),), float("nan"))):
        save_state(dataclasses.replace(state, r_factors=measured), path)
        np.testing.assert_equal(checkpoint_result(path).r_factor, expected)
    for place, gone in (("model", "probe.parts"), ("placement", "origin"), ("placement", "positions")):
        left = {name: values for name, values in getattr(state, place).items() if name != gone}
        save_state(dataclasses.replace(state, **{place: left}), path)
        with raises("file.incomplete", str(path)):
            pt.load_result(path)
