"""A streamed object gives the result of the whole one with the same batches, while the device has some of its rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptynb.data.engine_records import RenderRequest
from ptynb.data.scan import Scan
from ptynb.distributed.group import SingleGroup
from ptynb.engine import diagnostics, rendering, run_progress
from ptynb.engine.loop import Loop
from ptynb.exceptions import ReconstructionError, SettingsError
from ptynb.optimize.batching import check_shares
from ptynb.optimize.optimizers import Adam, LateAdam
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.streamed_object import StreamedObject
from ptynb.settings import STREAMED, Settings
from ptynb.settings.constraints import AmplitudeLimits, OrthogonalModes, PositivePhase
from ptynb.settings.regularizers import PACBED, DataTerm
from tests.cases import ALGORITHMS, CASES, MODES, a_scan
from tests.engine.reference_model import difference

OTHERS = pytest.mark.system("worlds")
UPDATES = 20
MOST = 1e-12
"""Largest relative difference in double precision; 2e-13 was measured."""
DEFAULT = ("plain", "polar", "slices, states", "positions", "lsqml, everything", "rpie, shared object")
STREAMABLE = [
    *(
        name
        for name, (_, settings, _) in CASES.items()
        if settings.positions.search_trials == 0
        and all(isinstance(one, DataTerm | PACBED) for one in settings.regularizers)
    ),
    *(
        name
        for name, (_, settings, _) in ALGORITHMS.items()
        if settings.optimiser in STREAMED and not settings.regularizers
    ),
]


def a_loop(settings: Settings, scan: Scan | None = None, **layout: Any) -> Loop:
    """A loop whose batches are from bands."""
    settings = settings.replace(batch_sampling="bands", batch_bands=4, precision="double", batch=6)
    return Loop(scan or a_scan(), settings.replace(object=layout), SingleGroup(torch.device("cpu")))


def trained(loop: Loop, updates: int = UPDATES) -> dict[str, NDArray[Any]]:
    """All arrays of a loop, its record, and those of a checkpoint, after some updates."""
    for _ in range(updates):
        loop.step()
    state = loop.state(loop.loss_sums())
    found = {name: values.numpy().copy() for name, values in (loop.arrays() | loop.parameters()).items()}
    found |= {f"model/{name}": values for name, values in state.model.items()}
    found |= {name: np.asarray(values) for name, values in state.algorithm.items()}
    found["losses"] = np.array([epoch.loss for epoch in loop.epochs])
    found["changes"] = np.array(
        [[one.object_change, one.probe_change, one.position_change or 0] for one in loop.epochs]
    )
    found["R-factor"] = np.array(loop.r_factor()[0])
    found["R-factors"] = loop.pattern_r_factors.since("", 0, 0.0).values
    return found


def worst(expected: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]]) -> tuple[float, str]:
    assert expected.keys() == found.keys()
    return max((difference(expected[name], found[name]), name) for name in expected if expected[name].size)


@pytest.mark.parametrize("case", [pytest.param(one, marks=() if one in DEFAULT else OTHERS) for one in STREAMABLE])
def test_a_streamed_object_is_the_whole_one(case: str) -> None:
    kind, settings, _ = CASES[case] if case in CASES else ALGORITHMS[case]
    scan = a_scan(kind=kind)
    streamed = a_loop(settings, scan, layout="streamed")
    bands = streamed.model.streamed.bands
    assert len(bands.tops) == 4
    assert bands.height < streamed.frame.shape[0]
    assert worst(trained(a_loop(settings, scan)), trained(streamed)) < (MOST, "")


@pytest.mark.parametrize("optimiser", STREAMED)
def test_constraints_and_changes_of_settings_act_as_on_the_whole_object(optimiser: Any) -> None:
    constraints = [AmplitudeLimits(high=1.02, every=2), PositivePhase(start_epoch=2), OrthogonalModes(after="update")]
    settings = Settings(optimiser=optimiser, probe=MODES, constraints=constraints)
    found = []
    for layout in ("whole", "streamed"):
        loop = a_loop(settings, layout=layout)
        trained(loop, 10)
        loop.change(loop.settings.replace(object={"learning_rate": 0.3 * loop.settings.object.learning_rate}))
        trained(loop, 5)
        # A frozen object makes no step, not even a late one.
        loop.change(loop.settings.replace(object={"start_epoch": 5}))
        trained(loop, 10)
        loop.change(loop.settings.replace(object={"start_epoch": 1}))
        found.append(trained(loop, 10))
    assert worst(*found) < (MOST, "")


@pytest.mark.parametrize("optimiser", STREAMED)
def test_a_checkpoint_within_an_epoch_resumes_streamed_and_whole(optimiser: Any) -> None:
    settings = Settings(optimiser=optimiser, probe=MODES, momentum=0.5 if optimiser == "lsqml" else 0.0)
    unbroken = trained(a_loop(settings), 17)
    for written, resumed in (("streamed", "streamed"), ("streamed", "whole"), ("whole", "streamed")):
        first, again = a_loop(settings, layout=written), a_loop(settings, layout=resumed)
        trained(first, 9)
        assert first.update > 0
        state = first.state(first.loss_sums())
        again.restore(dataclasses.replace(state, begun=again.begun.model_dump(), settings=again.settings.model_dump()))
        assert worst(unbroken, trained(again, 8)) < (MOST, ""), (written, resumed)


def test_what_is_shown_within_an_epoch_is_the_present_state() -> None:
    """Pictures, patterns and thumbnails; without moments, pixels outside the present rows have no late steps."""
    scan, found = a_scan(), list[list[NDArray[Any]]]()
    for layout in ("whole", "streamed"):
        loop = a_loop(Settings(optimiser="sgd"), scan, layout=layout)
        trained(loop, 9)
        room = rendering.allocate_area(loop.model, loop.area)
        taken = rendering.take(loop.model, RenderRequest(), loop.area, room, 1, 1)
        pair = diagnostics.pattern(loop, 30)
        assert pair is not None
        thumbnail = run_progress.take_thumbnail(loop.model, loop.area, 1)
        loop.step()
        found.append([taken.object.numpy(), pair.modelled, thumbnail.object, loop.projection().numpy()])
    for one, other in zip(*found, strict=True):
        assert difference(one, other) < MOST


def counted(monkeypatch: pytest.MonkeyPatch, optimiser: Any) -> tuple[int, int]:
    """How often bands were brought to the device in three epochs, and the number of bands."""
    brought = list[int]()
    request: Callable[[StreamedObject, int], None] = StreamedObject._request

    def noted(self: StreamedObject, band: int) -> None:
        brought.append(band)
        request(self, band)

    monkeypatch.setattr(StreamedObject, "_request", noted)
    loop = a_loop(Settings(optimiser=optimiser), layout="streamed")
    for _ in range(3 * loop.updates):
        loop.step()
    return len(brought), 4


def test_each_band_comes_to_the_device_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    brought, bands = counted(monkeypatch, "rpie")
    assert brought <= 3 * bands


def test_with_adam_each_band_comes_once_more_for_late_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    brought, bands = counted(monkeypatch, "adam")
    assert 3 * bands < brought <= 3 * 2 * bands


def test_late_steps_are_those_of_adam_without_gradient() -> None:
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(500, dtype=torch.float64))
    group = {"params": [parameter], "lr": 0.1}
    adam = Adam([group])
    for _ in range(3):
        parameter.grad = torch.randn_like(parameter)
        adam.move()
    state = adam.start(parameter)
    arrays = [one.detach().clone() for one in (parameter, state["exp_avg"], state["exp_avg_sq"])]
    late = LateAdam(adam.param_groups[0], 3)
    parameter.grad = torch.zeros_like(parameter)
    for number in range(600):
        adam.param_groups[0]["lr"] = 0.1 / (1 + number)
        late.note()
        adam.move()
        if number == 100:
            late.make(arrays, 0)
            late.forget()
    late.make(arrays, 0)
    expected: list[Tensor] = [parameter.detach(), state["exp_avg"], state["exp_avg_sq"]]
    for one, other in zip(expected, arrays, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-100)


def test_a_window_that_leaves_the_rows_of_its_band_ends_the_run() -> None:
    class Shift(ModelComponent):
        name = "shift"
        rate = 0.1

        def __init__(self) -> None:
            super().__init__()
            self.distance = torch.nn.Parameter(torch.full((2,), 9.0, dtype=torch.float64))

        def shift_positions(self, positions: Tensor, batch: Batch) -> Tensor:
            return positions + self.distance

    settings = Settings(batch=6, batch_sampling="bands", batch_bands=4, object={"layout": "streamed"})
    loop = Loop(a_scan(), settings, SingleGroup(torch.device("cpu")), (Shift(),))
    for _ in range(loop.updates - 1):
        loop.step()
    with pytest.raises(ReconstructionError, match="have moved beyond the rows of the object"):
        loop.step()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"optimiser": "nadam"}, "optimiser is 'nadam'"),
        ({"optimiser": "sgd", "momentum": 0.5}, "momentum is 0.5"),
        ({"batch_sampling": "spread"}, "set batch_sampling to 'bands'"),
        ({"regularizers": [{"kind": "total_variation", "weight": 0.1}]}, "'total_variation'"),
        ({"constraints": [{"kind": "low_pass", "cutoff": 0.5}]}, "'low_pass', imposed after each epoch"),
        (
            {"constraints": [{"kind": "positive_phase", "after": "update"}]},
            "'positive_phase', imposed after each update",
        ),
        ({"positions": {"search_trials": 2}}, "positions.search_trials is 2"),
    ],
)
def test_what_needs_all_rows_in_each_update_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError, match=r"object\.layout is 'streamed'") as raised:
        Settings(**{"object": {"layout": "streamed"}, "batch_sampling": "bands", **changes})
    assert text in str(raised.value)


def test_several_engines_are_refused() -> None:
    settings = Settings(object={"layout": "streamed"}, batch_sampling="bands")
    with pytest.raises(SettingsError, match="there are 2 engines; use one engine, or divide the object over them"):
        check_shares(a_scan(), settings, 2)
