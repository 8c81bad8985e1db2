"""Model components on engines: frozen ones stay constant on all ranks; parameters no loop can update are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.exceptions import ReconstructionError
from ptynb.physics.components.builtin import Variations
from ptynb.physics.components.component import ModelComponent
from ptynb.session.reconstruction import Reconstruction
from ptynb.settings import Positions, Settings
from ptynb.simulation.simulated_scan import simulate
from tests.cases import a_scan
from tests.engine import work
from tests.engine.ranks import Ranks
from tests.engine.reference_model import difference


@pytest.mark.parametrize("world", [1, 3])
def test_a_part_that_is_freed_late_moves_from_then_on_and_alike_on_all_engines(ranks: Ranks, world: int) -> None:
    """A parameter frozen when the model is wrapped, and freed later, would never be reduced again."""
    settings = Settings(batch=8, positions=Positions(learning_rate=0.1, start_epoch=3, end_epoch=4))
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


class OfThreePatterns(ModelComponent):
    """A row for each of three patterns only."""

    name = "three"
    rate = 0.1
    rows = frozenset({"values"})

    def __init__(self):
        super().__init__()
        self.values = torch.nn.Parameter(torch.zeros(3))


class Brightness(ModelComponent):
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
    given = {"scan": simulate(5, window=17), "device": "cpu", "checkpointing": None}
    with pytest.raises(ReconstructionError, match="is complex or not contiguous: make it a contiguous real view"):
        Reconstruction(**given, extensions=[Brightness(values)]).step()
    with Reconstruction(**given, extensions=[Brightness(view(values))]) as recon:
        recon.step()
        assert np.abs(recon.result.parameters["brightness/values"]).max() > 0


def test_rows_for_other_patterns_are_refused():
    with pytest.raises(ValueError, match="has length 3; expected 5"):
        Loop(simulate(5, window=16), Settings(batch=2), SingleGroup(torch.device("cpu")), [OfThreePatterns()])


def test_singular_vectors_of_probe_variations_have_the_phases_of_the_parameter() -> None:
    """A decomposition leaves their phases open: on a CPU and a GPU they were of other signs."""
    generator = torch.Generator().manual_seed(1)
    part = Variations(9, torch.randn(2, 4, 4, dtype=torch.complex64, generator=generator), torch.tensor(3.0))
    with torch.no_grad():
        part.coefficients.copy_(torch.randn(9, 2, 2, generator=generator))
    found, ways = part.arrays(), torch.view_as_complex(part.ways.detach()).flatten(1) * 3
    own = found["ways"].flatten(1)
    varied = torch.view_as_complex(part.coefficients.detach()) @ ways
    torch.testing.assert_close(found["coefficients"] @ own, varied, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(own @ own.conj().T, torch.eye(2, dtype=own.dtype), rtol=1e-5, atol=1e-5)
    overlaps = own @ ways.conj().T
    largest = overlaps.gather(1, overlaps.abs().argmax(1, keepdim=True))
    torch.testing.assert_close(largest, largest.abs().to(own.dtype), rtol=1e-5, atol=1e-5)
