"""An object in tiles gives the result of the whole one: the table of cases on engines that each hold a part of it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ptynb.settings import WHOLE_PASSES
from tests.cases import ALGORITHMS, CASES, a_scan, as_sgd
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import difference

OTHER_WORLDS = pytest.mark.system("worlds")
DEFAULT = ("plain", "everything", "lsqml, everything")
IN_TILES = [
    *CASES,
    *(name for name, (_, settings, _) in ALGORITHMS.items() if settings.optimiser not in WHOLE_PASSES),
]


@pytest.mark.parametrize(
    ("case", "world"),
    [
        pytest.param(case, world, marks=() if world == 3 and case in DEFAULT else OTHER_WORLDS)
        for case, world in product(IN_TILES, (3, 2))
    ],
)
def test_an_object_in_tiles_is_the_whole_one(ranks: Ranks, case: str, world: int) -> None:
    if case in CASES:
        kind, settings, _ = CASES[case]
        settings, updates, most = as_sgd(settings), 10, 1e-9
    else:
        kind, settings, updates = ALGORITHMS[case]
        settings, most = settings.replace(precision="double"), 1e-6 if "everything" in case else 1e-9
    scan, settings = a_scan(kind=kind), settings.replace(batch_sampling="cells")
    alone = ranks.run(1, work.train, scan, settings, updates)[0]
    answers = ranks.run(world, work.train, scan, settings.replace(object={"layout": "tiles"}), updates)
    names = {name for name in alone if isinstance(alone[name], np.ndarray)}
    for rank, answer in enumerate(answers):
        for name in names - ({"object"} if rank else set()):
            assert difference(alone[name], answer[name]) < most, name
        assert answer["losses"] == pytest.approx(alone["losses"], rel=min(most, 1e-7))
        for own, others in zip(alone["changes"], answer["changes"], strict=True):
            assert others == pytest.approx(own, rel=max(1e3 * most, 1e-6))
        assert answer["r_factor"] == pytest.approx(alone["r_factor"], rel=most)
