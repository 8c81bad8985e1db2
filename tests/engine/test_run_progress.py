"""The rule by which a run ends before its last epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ptynb.data.record import Change, Epoch, Thumbnail
from ptynb.engine.run_progress import FEWEST_EPOCHS, reason_to_stop, still_progressing
from ptynb.settings import Positions, Settings, Stop
from ptynb.settings.constraints import GaussianBlur


def epochs_of(losses: Sequence[float], changes: Sequence[tuple[float | None, ...]] = ()) -> list[Epoch]:
    found = [*changes] or [(None, None, None)] * len(losses)
    return [
        Epoch(number, loss, 1.0, 1.0, None, *moved)
        for number, (loss, moved) in enumerate(zip(losses, found, strict=True), start=1)
    ]


def first_stop(settings: Settings, epochs: Sequence[Epoch], changes: Sequence[Change] = ()) -> int | None:
    """The epoch after which a run of these epochs ends."""
    return next((n for n in range(1, len(epochs) + 1) if reason_to_stop(settings, epochs[:n], changes)), None)


def test_a_further_run_is_judged_by_its_own_epochs() -> None:
    """It begins with the full learning rates, and a loss above that at the end of the run before."""
    settings = Settings(stop={"patience": 2})
    losses = epochs_of([1.0, 0.5, 0.4, 0.8, 0.6, 0.3])
    assert reason_to_stop(settings, losses[:5], []) != ""
    assert reason_to_stop(settings, losses[:5], [], 3) == ""
    assert reason_to_stop(settings, losses, [], 3) == ""


PLATEAU = [2.0**-n for n in range(10)] + [2.0**-9] * 30
"""A loss that halves until epoch 10 and then stays."""


def test_by_default_a_run_makes_all_of_its_epochs() -> None:
    assert first_stop(Settings(), epochs_of(PLATEAU)) is None


@pytest.mark.parametrize("patience", [1, 3, 7])
def test_it_ends_after_so_many_epochs_without_progress(patience: int) -> None:
    assert first_stop(Settings(stop=Stop(patience=patience)), epochs_of(PLATEAU)) == 10 + patience


def test_progress_is_that_of_the_lowest_loss_over_the_patience() -> None:
    """1% an epoch is 4.9% in five: more than 4.5%, less than 5.5%. Single worse epochs do not count."""
    losses = [0.99**n * (1.5 if n % 3 == 2 else 1.0) for n in range(60)]
    assert first_stop(Settings(stop=Stop(patience=6, tolerance=0.03)), epochs_of(losses)) is None
    steady = epochs_of([0.99**n for n in range(60)])
    assert first_stop(Settings(stop=Stop(patience=5, tolerance=0.045)), steady) is None
    assert first_stop(Settings(stop=Stop(patience=5, tolerance=0.055)), steady) == 6


def test_a_loss_that_grows_ends_it_and_the_reason_says_so() -> None:
    settings = Settings(stop=Stop(patience=3))
    assert "did not decrease over 3 epochs" in reason_to_stop(settings, epochs_of([1.0, 2.0, 3.0, 4.0]), [])


def test_no_run_ends_before_its_least_epochs() -> None:
    assert first_stop(Settings(stop=Stop(patience=3, min_epochs=25)), epochs_of(PLATEAU)) == 25


def test_only_epochs_after_the_last_change_count() -> None:
    settings = Settings(stop=Stop(patience=3))
    for name in ("probe.learning_rate", "stopped", "went back"):
        assert first_stop(settings, epochs_of(PLATEAU), [Change(12, 2, name, 1, 2)]) == 16
    assert first_stop(settings, epochs_of(PLATEAU), [Change(12, 2, "target", 1, 2)]) == 13


def test_parts_and_constraints_that_begin_later_are_waited_for() -> None:
    stop = Stop(patience=3)
    later = Settings(stop=stop, positions=Positions(learning_rate=0.1, start_epoch=20))
    assert first_stop(later, epochs_of(PLATEAU)) == 23
    fixed = Settings(stop=stop, positions=Positions(start_epoch=20))
    assert first_stop(fixed, epochs_of(PLATEAU)) == 13
    constrained = Settings(stop=stop, constraints=(GaussianBlur(sigma=1.0, start_epoch=18),))
    assert first_stop(constrained, epochs_of(PLATEAU)) == 21


def test_by_changes_each_of_the_last_epochs_has_to_be_below_the_tolerance() -> None:
    settings = Settings(stop=Stop(patience=2, tolerance=1e-3, criterion="changes"))
    falling = [1.0] * 8

    def ended(changes: Sequence[tuple[float | None, ...]]) -> int | None:
        return first_stop(settings, epochs_of(falling[: len(changes)], changes))

    quiet = (9e-4, 8e-4, None)
    assert ended([(0.1, 0.1, None), quiet, quiet, quiet]) == 3
    assert ended([quiet, (2e-3, 1e-4, None), quiet, (1e-4, 2e-3, None), quiet]) is None
    assert ended([(*quiet[:2], 2e-3)] * 5) is None
    assert ended([(*quiet[:2], 5e-4)] * 5) == 2
    assert ended([(None, 1e-4, None)] * 5) is None


SHAPE = np.random.default_rng(0).normal(size=(24, 24))
"""Of a phase."""
NOISE = [0.03 + 1e-5 * (-1) ** n for n in range(60)]
"""The loss of a weak object, whose growth does not show in it."""


def thumbnail(epoch: int, scale: float, corner: tuple[int, int] = (0, 0)) -> Thumbnail:
    return Thumbnail(epoch, np.exp(1j * scale * SHAPE), np.ones((2, 2)), corner=corner)


def verdict(
    losses: Sequence[float],
    moves: Sequence[float] = (),
    begun: int = 0,
    changes: Sequence[Change] = (),
    settings: Settings | None = None,
    late: Thumbnail | None = None,
) -> str:
    """What still changes at the end of a run, whose phase grows by a quarter after epoch 20."""
    epochs = epochs_of(losses, [(move, None, None) for move in moves or [0.01] * len(losses)])
    now = late or thumbnail(len(losses), 0.2)
    return still_progressing(settings or Settings(), epochs, changes, begun, (thumbnail(20, 0.15),), lambda: now)


def test_a_loss_that_falls_at_the_end_is_progress_once_there_are_enough_epochs() -> None:
    steep = [0.9**n for n in range(60)]
    assert "the loss fell by 47% in the last 6 epochs" in verdict(steep, late=thumbnail(60, 0.15))
    assert verdict([*PLATEAU, *[2.0**-9] * 20], late=thumbnail(60, 0.15)) == ""
    assert verdict(steep[: FEWEST_EPOCHS - 1]) == ""
    assert verdict(steep[:FEWEST_EPOCHS])
    assert verdict(steep, begun=61 - FEWEST_EPOCHS) == ""
    assert verdict(steep, changes=[Change(55, 0, "probe.learning_rate", 1, 2)]) == ""
    assert verdict(steep, settings=Settings(optimiser="dm")) == ""


def test_a_phase_that_grows_at_the_end_is_progress_though_the_loss_shows_none() -> None:
    """A quarter of the phase came in the last 40 epochs, and 15 of these are the last quarter of the run."""
    assert verdict(NOISE) == "the phase grew by 9% in the last 15 epochs"
    assert verdict(NOISE, late=thumbnail(60, 0.151)) == ""
    falling = [*np.linspace(0.02, 0.001, 60) ** 2]
    assert verdict(NOISE, falling) == "", "it grew while rates were large"
    assert verdict(NOISE, late=thumbnail(60, 0.2, corner=(1, 0))) == "", "another area"
    assert verdict(NOISE, begun=21) == "", "it grew in an earlier run"
    assert verdict([0.03 * 1.02**n for n in range(60)]) == "", "the loss rises"
