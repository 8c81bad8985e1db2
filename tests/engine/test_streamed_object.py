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
from ptynb.engine.reconfigure import restructured
from ptynb.exceptions import ReconstructionError, SettingsError
from ptynb.optimize.batching import check_shares
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.physics.streamed_object import StreamedObject
from ptynb.settings import STREAMABLE, Settings
from ptynb.settings.constraints import AmplitudeLimits, OrthogonalModes, PositivePhase
from ptynb.settings.regularizers import PACBED, DataTerm
from tests.cases import ALGORITHMS, CASES, MODES, a_scan
from tests.engine.reference_model import difference

OTHERS = pytest.mark.system("worlds")
UPDATES = 20
MOST = 1e-11
"""Largest relative difference in double precision; 3e-12 was measured for "aberrations", 2e-13 for all others."""
DEFAULT = ("plain", "polar", "slices, states", "positions", "lsqml, everything", "rpie, shared object")
STREAMED_CASES = [
    *(
        name
        for name, (_, settings, _) in CASES.items()
        if settings.positions.search_trials == 0
        and all(isinstance(one, DataTerm | PACBED) for one in settings.regularizers)
    ),
    *(
        name
        for name, (_, settings, _) in ALGORITHMS.items()
        if settings.optimiser in STREAMABLE and not settings.regularizers
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
    measured = loop.pattern_r_factors.since("", 0, 0.0)
    found["R-factors"] = measured.values[np.argsort(measured.patterns)]
    return found


def worst(expected: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]]) -> tuple[float, str]:
    assert expected.keys() == found.keys()
    return max((difference(expected[name], found[name]), name) for name in expected if expected[name].size)


@pytest.mark.parametrize("case", [pytest.param(one, marks=() if one in DEFAULT else OTHERS) for one in STREAMED_CASES])
def test_a_streamed_object_is_the_whole_one(case: str) -> None:
    kind, settings, _ = CASES[case] if case in CASES else ALGORITHMS[case]
    scan = a_scan(kind=kind)
    streamed = a_loop(settings, scan, layout="streamed")
    bands = streamed.model.streamed.bands
    assert len(bands.tops) == 4
    assert bands.height < streamed.frame.shape[0]
    assert worst(trained(a_loop(settings, scan)), trained(streamed)) < (MOST, "")


@pytest.mark.parametrize("optimiser", STREAMABLE)
def test_constraints_and_changes_of_settings_act_as_on_the_whole_object(optimiser: Any) -> None:
    constraints = [AmplitudeLimits(high=1.02, every=2), PositivePhase(start_epoch=2), OrthogonalModes(after="update")]
    settings = Settings(optimiser=optimiser, probe=MODES, constraints=constraints)
    found = []
    for layout in ("whole", "streamed"):
        loop = a_loop(settings, layout=layout)
        trained(loop, 10)
        loop.change(loop.settings.replace(object={"learning_rate": 0.3 * loop.settings.object.learning_rate}))
        trained(loop, 5)
        loop.change(loop.settings.replace(object={"start_epoch": 5}))
        trained(loop, 10)
        loop.change(loop.settings.replace(object={"start_epoch": 1}))
        found.append(trained(loop, 10))
    assert worst(*found) < (MOST, "")


@pytest.mark.parametrize("optimiser", STREAMABLE)
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


def test_a_loop_that_has_begun_is_restored() -> None:
    loop = a_loop(Settings(), layout="streamed")
    trained(loop, 5)
    state = loop.state(loop.loss_sums())
    expected = trained(loop, 6)
    loop.restore(state)
    assert worst(expected, trained(loop, 6))[0] == 0


def test_a_run_ends_where_rows_in_host_memory_are_not_finite() -> None:
    loop = a_loop(Settings(optimiser="sgd"), layout="streamed")
    trained(loop, loop.updates - 1)
    streamed = loop.model.streamed
    streamed.write_back()
    rows = streamed.bands.rows(streamed.bands.of_pattern[loop._table[:, -1].max()])
    streamed.whole.parts.data[:, :, 0 if rows.start > 0 else -1] = torch.nan
    with pytest.raises(FloatingPointError):
        loop.step()


@pytest.mark.parametrize("optimiser", STREAMABLE)
def test_another_layout_and_other_bands_within_an_epoch(optimiser: Any) -> None:
    results = []
    for layout in ("whole", "streamed"):
        loop = a_loop(Settings(optimiser=optimiser), layout=layout)
        trained(loop, 9)
        requested = loop.settings.replace(object={"layout": "streamed"})
        again = a_loop(requested, layout="streamed")
        state = restructured(loop.state(loop.loss_sums()), requested, a_scan())
        assert state.update == 9 - loop.updates
        again.restore(state)
        results.append(trained(again, 8))
    assert worst(*results) < (MOST, "")
    other = restructured(loop.state(loop.loss_sums()), loop.settings.replace(batch_bands=2), a_scan())
    assert other.update == 0, "the epoch begins again"


def test_movements_beyond_the_margin_of_the_bands_are_not_live() -> None:
    scan = dataclasses.replace(a_scan(), object=np.ones((90, 90), np.complex64), positions=a_scan().positions + 12)
    settings = Settings(object={"padding": 0}, positions={"max_shift": 6})
    moving = {"positions": {"learning_rate": 0.1}}
    whole, streamed = (a_loop(settings, scan, layout=layout) for layout in ("whole", "streamed"))
    assert whole.why_not_live(whole.settings.replace(**moving)) == ""
    assert "a margin of 0" in streamed.why_not_live(streamed.settings.replace(**moving))


def test_what_is_shown_within_an_epoch_is_the_present_state() -> None:
    """Pictures, patterns and thumbnails."""
    scan, found = a_scan(), list[list[NDArray[Any]]]()
    for layout in ("whole", "streamed"):
        loop = a_loop(Settings(), scan, layout=layout)
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


@pytest.mark.parametrize("optimiser", STREAMABLE)
def test_each_band_comes_to_the_device_once_an_epoch(monkeypatch: pytest.MonkeyPatch, optimiser: Any) -> None:
    loop = a_loop(Settings(optimiser=optimiser), layout="streamed")
    for _ in range(loop.updates):
        loop.step()
    brought = list[int]()
    request: Callable[[StreamedObject, int], None] = StreamedObject._request

    def noted(self: StreamedObject, band: int) -> None:
        brought.append(band)
        request(self, band)

    monkeypatch.setattr(StreamedObject, "_request", noted)
    for _ in range(loop.updates):
        loop.step()
    # LSQML has another illumination in each epoch, also of the rows that are there, and those that come.
    assert len(brought) <= 4 + 2 * (optimiser == "lsqml")
    assert {*brought} >= {0, 1, 2, 3} - {loop._bands[0]}


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
