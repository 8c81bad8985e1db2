"""Every piece of the physics on N engines gives one engine's answer; what is frozen stands still on all of them.

In double precision, where only a fault of logic can make a difference: test_distributed holds single precision, and
some pieces (a blurred, nearly dark detector) blow its rounding up within 20 updates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ptynb.driver.session import Reconstruction, ReconstructionError
from ptynb.engine.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.piece import Piece
from ptynb.physics.simulate import simulate
from ptynb.settings import PARTS, Positions, Settings
from tests.cases import CASES, a_scan
from tests.engine import work
from tests.engine.ranks import Ranks

# Plain gradient steps that change every part by some per cent in 20 updates, and do not diverge.
PART_RATES = {
    "object": 0.3,
    "probe": 0.3,
    "slices": 1e-2,
    "tilt": 1e-4,
    "positions": 1e-2,
    "affine": 1e-2,
    "offset": 1e-2,
    "variations": 0.3,
    "weights": 1e-2,
    "background": 1e-3,
}
LOSS_FACTORS = {"amplitude": 1.0, "poisson": 0.03, "intensity": 0.07}


def as_sgd(settings: Settings) -> Settings:
    factor = LOSS_FACTORS[settings.loss]
    if settings.slices.count > 1 or settings.variations.rank or settings.terms or settings.detector.blur:
        factor *= 0.1
    moving = [name for name in PARTS if settings.part(name).rate > 0]
    rates: dict[str, Any] = {name: {"rate": PART_RATES[name] * factor} for name in moving}
    return settings.replace(optimiser="sgd", batch=8, precision="double", **rates)


def difference(one: Any, other: Any) -> float:
    return float(np.linalg.norm(one - other) / (np.linalg.norm(one) + 1e-12))


@pytest.mark.parametrize("case", CASES)
def test_20_updates_of_sgd_are_those_of_one_engine(ranks: Ranks, case: str) -> None:
    kind, settings, moved = CASES[case]
    scan, settings = a_scan(kind=kind), as_sgd(settings)
    start = ranks.run(1, work.initial, scan, settings)[0]
    alone = ranks.run(1, work.train, scan, settings, 20)[0]
    names = {name for name in alone if isinstance(alone[name], np.ndarray)}
    assert moved - {"object", "probe", "positions"} <= {name.split("/")[0] for name in names}
    for part in moved:
        changed = {name: difference(start[name], alone[name]) for name in names if name.split("/")[0] == part}
        assert max(changed.values()) > 1e-7, f"{part} has to move: {changed}"
    for world in (2, 3):
        for answer in ranks.run(world, work.train, scan, settings, 20):
            for name in names:
                assert difference(alone[name], answer[name]) < 1e-9, (world, name)
            assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-9)
            assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_50_updates_of_adam_have_the_loss_curve_of_one_engine(ranks: Ranks, case: str) -> None:
    kind, settings, _ = CASES[case]
    scan, settings = a_scan(kind=kind), settings.replace(batch=8, precision="double")
    alone = ranks.run(1, work.train, scan, settings, 50)[0]["losses"]
    assert len(alone) == 10
    assert alone[-1] < 0.95 * alone[0]
    for world in (2, 3):
        for answer in ranks.run(world, work.train, scan, settings, 50):
            assert answer["losses"] == pytest.approx(alone, rel=1e-8)


@pytest.mark.parametrize("world", [1, 3])
def test_a_part_that_is_freed_late_moves_from_then_on_and_alike_on_all_engines(ranks: Ranks, world: int) -> None:
    """A parameter frozen when the model is wrapped, and freed later, would never be reduced again."""
    settings = Settings(batch=8, positions=Positions(rate=0.1, first=3, last=4))
    places = []
    for epochs in (2, 3, 4, 6):
        answers = ranks.run(world, work.train, a_scan(), settings, 5 * epochs)
        for answer in answers:
            np.testing.assert_array_equal(answer["positions"], answers[0]["positions"])
        places.append(answers[0]["positions"])
    alone = ranks.run(1, work.train, a_scan(), settings, 30)[0]["positions"]
    np.testing.assert_allclose(places[3], alone, atol=1e-4)
    assert difference(places[0], places[1]) > 1e-4, "freed at epoch 3"
    assert difference(places[1], places[2]) > 1e-4
    np.testing.assert_array_equal(places[2], places[3], err_msg="frozen again after epoch 4")


KIN = ["adamw", "nadam", "radam", "rmsprop", "rpie", "lbfgs"]


@pytest.mark.parametrize("optimiser", KIN)
def test_every_optimiser_moves_all_parts_at_once_alike_on_all_engines(ranks: Ranks, optimiser: str) -> None:
    kind, settings, _ = CASES["everything"]
    values = settings.model_dump()
    values |= {"optimiser": optimiser, "batch": 8, "precision": "double", "loss": "amplitude"}
    values["terms"] = [term for term in values["terms"] if term["kind"] != "mean_pattern" or optimiser != "lbfgs"]
    chosen = Settings(**values)
    updates = 2 if optimiser == "lbfgs" else 10
    alone = ranks.run(1, work.train, a_scan(kind=kind), chosen, updates)[0]
    names = {name for name in alone if isinstance(alone[name], np.ndarray)}
    for answer in ranks.run(3, work.train, a_scan(kind=kind), chosen, updates):
        assert answer["losses"] == pytest.approx(alone["losses"], rel=1e-7)
        for name in names:
            assert difference(alone[name], answer[name]) < 1e-6, name


class OfThreePatterns(Piece):
    """A row for each of three patterns only."""

    name = "three"
    rate = 0.1
    rows = frozenset({"values"})

    def __init__(self, values):
        super().__init__()
        self.values = torch.nn.Parameter(values)


class Brightness(Piece):
    """Of all patterns together."""

    name = "brightness"
    rate = 0.1

    def __init__(self, values):
        super().__init__()
        self.values = torch.nn.Parameter(values)

    def detect(self, intensity, batch):
        return intensity * (1 + self.values.sum())


VIEWS = {
    "complex": (torch.zeros(5, dtype=torch.complex64), torch.view_as_real),
    "not contiguous": (torch.zeros(2, 5).T, torch.Tensor.contiguous),
}


@pytest.mark.parametrize("case", VIEWS)
def test_a_contiguous_real_view_is_moved_as_the_message_says(case):
    values, view = VIEWS[case]
    given = {"scan": simulate(5, window=17), "device": "cpu", "keep": None}
    with pytest.raises(ReconstructionError, match="is complex or not contiguous: make it a contiguous real view"):
        Reconstruction(**given, extensions=[Brightness(values)]).step()
    with Reconstruction(**given, extensions=[Brightness(view(values))]) as recon:
        recon.step()
        assert np.abs(recon.result.optimised["brightness/values"]).max() > 0


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (torch.zeros(3), "has 3 of them; there are 5 patterns"),
        (torch.zeros(5, dtype=torch.complex64), "complex or not contiguous"),
        (torch.zeros(2, 5).T, "complex or not contiguous"),
    ],
)
def test_parameters_that_no_loop_can_move_are_refused(values, sentence):
    group = SingleGroup(torch.device("cpu"))
    with pytest.raises(ValueError, match=sentence):
        Loop(simulate(5, window=16), Settings(batch=2), group, [OfThreePatterns(values)])
