"""Changes of object, probe and positions in an epoch, held against least squares of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ptynb.distributed.group import SingleGroup
from ptynb.engine import run_progress
from ptynb.engine.loop import Loop
from ptynb.engine.run_progress import relative_change
from tests.cases import CASES, a_scan


def change_by_least_squares(before: Any, now: Any) -> float:
    before, now = before.ravel(), now.ravel()
    factor = np.linalg.lstsq(before[:, None], now, rcond=None)[0][0]
    return float(np.linalg.norm(now - factor * before) / np.linalg.norm(now))


def test_a_common_factor_is_no_change() -> None:
    values = torch.randn(2, 30, 40, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    assert float(relative_change(values, values * (0.8 - 0.9j))) < 1e-12
    assert float(relative_change(values, values)) == 0


@pytest.mark.parametrize("size", [1e-7, 1e-2, 3.0])
def test_small_and_large_changes_keep_their_digits(size: float) -> None:
    generator = torch.Generator().manual_seed(1)
    values, noise = (torch.randn(30, 40, dtype=torch.complex128, generator=generator) for _ in range(2))
    now = (1 + 0.1j) * values + size * noise
    assert float(relative_change(values, now)) == pytest.approx(
        change_by_least_squares(values.numpy(), now.numpy()), rel=1e-6
    )


def test_without_anything_to_compare_with_it_is_not_known() -> None:
    values = torch.ones(3, 4, dtype=torch.complex64)
    assert torch.isnan(relative_change(None, values))
    assert torch.isnan(relative_change(torch.zeros_like(values), values))


@pytest.mark.parametrize("case", ["positions", "polar", "slices, states"])
@pytest.mark.parametrize("most", [2**20, 700], ids=["every row", "some rows"])
def test_epochs_record_the_changes_of_the_state(case: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_progress, "MOST_PIXELS", most)
    loop = Loop(a_scan(), CASES[case][1].replace(precision="double"), SingleGroup(torch.device("cpu")))

    def state() -> dict[str, Any]:
        rows, columns = loop.area
        object = loop.model.object.values.detach()[..., rows, columns].numpy()
        probe = loop.model.probe.values.detach().numpy()
        return {
            "object": object[..., :: -(-object.size // most), :].copy(),
            "probe": probe[..., :: -(-probe.size // most), :].copy(),
            "positions": loop.model.all_positions().numpy().copy(),
        }

    before = state()
    while loop.epoch < 3:
        loop.step()
        if loop.update > 0:
            continue
        now, epoch = state(), loop.epochs[-1]
        for name in ("object", "probe"):
            expected = change_by_least_squares(before[name], now[name])
            assert getattr(epoch, f"{name}_change") == pytest.approx(expected, rel=1e-6)
            assert expected > 1e-3
        moved = np.sqrt(((now["positions"] - before["positions"]) ** 2).sum(1).mean())
        assert epoch.position_change == (pytest.approx(moved, rel=1e-9) if case == "positions" else None)
        before = now
