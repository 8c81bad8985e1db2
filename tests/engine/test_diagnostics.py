"""What an engine tells while it trains: pictures, patterns, positions, values, and how it is."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ptynb as pt
from ptynb.data.engine_records import Contrast
from ptynb.data.images import flat_phase, levels, ramp
from ptynb.distributed.group import SingleGroup
from ptynb.engine import diagnostics
from ptynb.engine.loop import Loop
from ptynb.engine.rendering import (
    Taken,
    allocate_area,
    levels_of,
    make_pictures,
    phase_of,
    take,
)
from ptynb.physics.components.component import Batch, ModelComponent
from ptynb.settings import Object, Probe, Settings, Slices
from tests.cases import CASES, a_scan
from tests.engine import diagnostics_work
from tests.engine.loop_reader import LoopReader
from tests.engine.ranks import Ranks
from tests.raising import raises

WITH_ALL_OF_THE_DETECTOR = Settings(
    precision="double",
    probe=Probe(modes=2),
    positions=pt.Positions(learning_rate=0.1),
    pattern_intensities=pt.PatternIntensities(learning_rate=0.003),
    background=pt.Background(learning_rate=0.003),
)


@pytest.fixture(scope="module")
def seen(ranks: Ranks) -> list[dict[str, Any]]:
    """What each of two ranks tells after three epochs."""
    answers: list[dict[str, Any]] = ranks.run(2, diagnostics_work.look, a_scan(), WITH_ALL_OF_THE_DETECTOR, 3)
    return answers


def a_loop(name: str = "plain") -> Loop:
    kind, settings, _ = CASES[name]
    loop = Loop(a_scan(kind=kind), settings, SingleGroup(torch.device("cpu")))
    loop.step()
    return loop


def the_whole(loop: Loop) -> tuple[slice, slice]:
    return slice(0, loop.frame.shape[0]), slice(0, loop.frame.shape[1])


def looked_at_once(
    loop: Loop, request: pt.RenderRequest, area: tuple[slice, slice], epoch: int = 0, update: int = 0
) -> Taken:
    return take(loop.model, request, area, allocate_area(loop.model, area), epoch, update)


def decoded(image: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(image)) as opened:
        return np.asarray(opened).astype(float)


# Patterns


@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.system("worlds")), 2])
def test_a_modelled_pattern_is_what_the_detector_would_see_of_the_present_state(
    ranks: Ranks, seen: list[dict[str, Any]], world: int
) -> None:
    scan = a_scan()
    answers = seen if world == 2 else ranks.run(world, diagnostics_work.look, scan, WITH_ALL_OF_THE_DETECTOR, 3)
    kept = answers[0]["kept"]
    exposed = pt.simulate_diffraction(
        kept.object,
        kept.probe,
        kept.positions,
        weights=kept.parameters["weights/weights"],
        background=kept.parameters["background/background"],
        noise=False,
    )
    expected = exposed.frames.read(0, len(scan))
    measured = scan.frames.read(0, len(scan))
    assert np.ptp(kept.parameters["weights/weights"]) > 0
    assert np.abs(kept.positions + kept.origin - scan.positions).max() > 1e-3
    for index in range(len(scan)):
        found = [answer["patterns"][index] for answer in answers if answer["patterns"][index] is not None]
        [pair] = found  # one rank holds it, and no other
        np.testing.assert_array_equal(pair.measured, measured[index])
        np.testing.assert_allclose(pair.modelled, expected[index], rtol=1e-5, atol=1e-6 * expected[index].max())
        np.testing.assert_allclose(pair.position, kept.positions[index])
        assert (pair.index, pair.epoch, pair.update) == (index, 3, 0)
        assert pair.mask.all()
    assert all(any(pair is not None for pair in answer["patterns"]) for answer in answers)


def test_the_r_factor_is_that_of_all_patterns_together_and_its_curve_has_the_epochs_asked_for(ranks: Ranks) -> None:
    scan = a_scan()
    answers = ranks.run(2, diagnostics_work.look, scan, WITH_ALL_OF_THE_DETECTOR, 5)
    pairs = [pair for answer in answers for pair in answer["patterns"] if pair is not None]
    total = [np.sqrt(pair.measured).sum() for pair in pairs]
    together = np.average([pair.r_factor for pair in pairs], weights=total)
    assert answers[0]["kept"].r_factor == pytest.approx(together, rel=1e-9)
    for answer in answers:
        every, measured = answer["measured"]
        assert every == 2
        assert [epoch for epoch, _ in measured] == [2, 4, 5]
        assert measured[-1][1] == answers[0]["kept"].r_factor
        assert tuple(measured) == answer["status"].r_factors == answers[0]["status"].r_factors
        assert measured[0][1] > measured[1][1]


def test_each_rank_measures_the_r_factors_of_its_patterns_in_portions(seen: list[dict[str, Any]]) -> None:
    scan = a_scan()
    expected = [
        next(pair for answer in seen if (pair := answer["patterns"][index]) is not None) for index in range(len(scan))
    ]
    told = []
    for answer in seen:
        parts = answer["r_factors"]
        own = [index for index, pair in enumerate(answer["patterns"]) if pair is not None]
        # The R-factor of all patterns was measured after epoch 2, so the first answer has them all.
        assert sorted(parts[0].patterns) == own
        assert {*parts[0].epochs} == {2, 3}
        # Later ones have what is new, each pattern once in the present state.
        assert len(parts) > 1
        assert all(len(part.patterns) < len(own) for part in parts[1:])
        renewed = np.concatenate([parts[0].patterns[parts[0].epochs == 3], *(part.patterns for part in parts[1:])])
        assert sorted(renewed) == own
        values = {}
        for part in parts:
            values |= dict(zip(part.patterns, part.values, strict=True))
            assert (part.own, part.source) == (len(own), parts[0].source)
        told += own
        for index in own:
            assert values[index] == pytest.approx(expected[index].r_factor, rel=1e-9)
        # Another measurement of this state, for a result, is told to who asks for all.
        after = answer["evaluated"]
        assert after.current
        assert after.cost < parts[0].cost
        assert after.total == parts[-1].total + len(own)
        np.testing.assert_allclose(after.values, [expected[index].r_factor for index in after.patterns], rtol=1e-9)
    assert sorted(told) == [*range(len(scan))]


def test_r_factors_are_measured_until_the_time_is_over() -> None:
    loop = a_loop()
    first = diagnostics.pattern_r_factors(loop, 0.0, "", 0)
    assert 0 < len(first.patterns) == loop.evaluation_batch() < len(loop.shard)
    assert not first.current
    rest = diagnostics.pattern_r_factors(loop, 60.0, first.source, first.total)
    assert sorted([*first.patterns, *rest.patterns]) == [*range(len(loop.shard))]
    assert rest.current
    assert diagnostics.pattern_r_factors(loop, 60.0, rest.source, rest.total).total == rest.total  # nothing is due
    loop.step()
    again = diagnostics.pattern_r_factors(loop, 0.0, rest.source, rest.total)
    np.testing.assert_array_equal(np.sort(again.patterns), np.sort(first.patterns))  # in the same order
    assert not again.current
    assert not np.array_equal(np.sort(again.values), np.sort(first.values))


def test_dead_pixels_are_told_and_left_out() -> None:
    scan = a_scan(kind="masked")
    loop = a_loop("bad pixels")
    pair = diagnostics.pattern(loop, 5)
    assert pair is not None
    np.testing.assert_array_equal(pair.mask, scan.mask)
    assert not pair.measured[~pair.mask].any()
    assert diagnostics.pattern(loop, len(scan)) is None


class Summing(ModelComponent):
    """A user's piece that asks for a sum over all engines."""

    name = "summing"

    def detect(self, intensity: Tensor, batch: Batch) -> Tensor:
        return intensity + 0 * batch.total(intensity.detach().sum())


def test_looking_waits_for_no_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    group = SingleGroup(torch.device("cpu"))
    loop = Loop(a_scan(), Settings(), group, [Summing()])
    monkeypatch.setattr(group, "sum", lambda _: pytest.fail("the others do not take part"))
    assert diagnostics.pattern(loop, 3) is not None
    assert diagnostics.pattern_r_factors(loop, 60.0, "", 0).current


def test_every_model_shows_its_patterns_and_looking_changes_nothing() -> None:
    for name in [name for name in CASES if name != "two losses"]:
        looked_at, alone = a_loop(name), a_loop(name)
        pair = diagnostics.pattern(looked_at, 7)
        assert pair is not None, name
        assert np.isfinite(pair.modelled).all(), name
        assert 0.2 < pair.modelled.sum() / pair.measured.sum() < 5, name
        looked_at_once(looked_at, pt.RenderRequest(cut=(20, 20)), the_whole(looked_at))
        measured = diagnostics.pattern_r_factors(looked_at, 60.0, "", 0)
        [value] = measured.values[measured.patterns == 7]
        assert value == pytest.approx(pair.r_factor, rel=1e-5), name
        for loop in (looked_at, alone):
            loop.step()
        for ours, theirs in zip(looked_at.model.parameters(), alone.model.parameters(), strict=True):
            assert torch.equal(ours, theirs), name


def test_patterns_out_of_a_file_are_looked_at_without_disturbing_those_read_ahead(tmp_path: Path) -> None:
    stored = pt.save_scan(a_scan(), tmp_path / "scan.h5")
    loop = Loop(stored, Settings(pattern_storage="disk", batch=8), SingleGroup(torch.device("cpu")))
    before = loop.shard._ahead.unexpected  # type: ignore[union-attr]
    for _ in range(3):
        loop.step()
        pair = diagnostics.pattern(loop, 20)
        assert pair is not None
        np.testing.assert_array_equal(pair.measured, a_scan().frames.read(20, 21)[0])
    assert loop.shard._ahead.unexpected == before + 3  # type: ignore[union-attr]
    loop.disconnect()


# Pictures


def test_pictures_stand_for_the_values_behind_them() -> None:
    loop = a_loop()
    area = (slice(4, 40), slice(6, 50))
    request = pt.RenderRequest(panes=("amplitude", "phase", "complex"), quality=95)
    taken = looked_at_once(loop, request, area, 3, 1)
    made = make_pictures(taken, request, (1e-9, 2e-9))
    assert [picture.name for picture in made.pictures] == ["amplitude", "phase", "complex", "probe 1", "probe 2"]
    assert (made.epoch, made.update, made.corner, made.slices, made.states) == (3, 1, (4, 6), 1, 1)
    assert sum(made.powers) == pytest.approx(1)
    object = loop.model.object.values[0, 0][area].detach().numpy()
    for name, values in (("amplitude", np.abs(object)), ("phase", flat_phase(object))):
        picture = next(one for one in made.pictures if one.name == name)
        assert picture.limits is not None
        low, high = picture.limits
        assert np.mean((values >= low) & (values <= high)) > 0.99
        shown = low + decoded(picture.image) / 255 * (high - low)
        assert np.abs(shown - values.clip(low, high)).max() < 0.15 * (high - low)
        assert picture.shape == values.shape
        assert picture.pixel_size == (1e-9, 2e-9)
    reader = LoopReader(loop, area)
    for name, values in (("amplitude", np.abs(object)), ("phase", flat_phase(object))):
        assert reader.value_at(name, 10, 20, request) == pytest.approx(values[10, 20], abs=1e-5)
    assert reader.value_at("complex", 3, 2, request) == object[3, 2]
    assert reader.value_at("probe 2", 3, 2, request) == loop.model.probe.values[1, 3, 2].item()
    with pytest.raises(ValueError, match="no picture 'probe 3'; there are amplitude, phase, complex, probe 1, probe 2"):
        reader.value_at("probe 3", 0, 0, request)
    with pytest.raises(ValueError, match=r"36 x 44 pixels, and none at \(36, 0\)"):
        reader.value_at("amplitude", 36, 0, request)


@pytest.mark.parametrize("form", ["complex", "amplitude_phase"])
def test_a_slice_is_shown_alone_or_all_as_one(form: str) -> None:
    settings = Settings(slices=Slices(count=3, thickness=2e-4), object=Object(parametrization=form, modes=2))
    loop = Loop(a_scan(), settings, SingleGroup(torch.device("cpu")))
    for _ in range(3):
        loop.step()
    area = the_whole(loop)
    values = loop.model.object.values.detach().numpy()
    for request, expected in (
        (pt.RenderRequest(), values[0].prod(0)),
        (pt.RenderRequest(slice=2), values[0, 2]),
        (pt.RenderRequest(slice=0, state=1), values[1, 0]),
        (pt.RenderRequest(state=1), values[1].prod(0)),
    ):
        taken = looked_at_once(loop, request, area)
        np.testing.assert_allclose(taken.object.numpy(), expected, rtol=1e-5, atol=1e-6)
        assert (taken.slices, taken.states) == (3, 2)
    with raises("argument.invalid-value", "slice 3", "3 slices", "2 modes"):
        LoopReader(loop, area).pictures(pt.RenderRequest(slice=3))


@pytest.mark.parametrize("form", ["complex", "amplitude_phase"])
def test_cuts_are_lines_of_all_slices_in_the_contrast_of_the_one_that_is_shown(form: str) -> None:
    settings = Settings(slices=Slices(count=3, thickness=2e-4), object=Object(parametrization=form))
    loop = Loop(a_scan(), settings, SingleGroup(torch.device("cpu")))
    for _ in range(3):
        loop.step()
    area, pixel = (slice(8, 44), slice(6, 50)), (1e-7, 2e-7)
    request = pt.RenderRequest(panes=("amplitude", "phase", "complex"), slice=1, cut=(20, 30), modes=0)
    loop.pixel_size = pixel
    reader = LoopReader(loop, area)
    before = reader.pictures(request)
    assert before is not None
    names = [picture.name for picture in before.pictures]
    assert names == [*request.panes, *(f"{pane} {cut}" for pane in request.panes for cut in ("xz", "yz"))]
    pictures = {picture.name: picture for picture in before.pictures}
    for pane in ("amplitude", "phase"):
        assert pictures[f"{pane} xz"].limits == pictures[f"{pane} yz"].limits == pictures[pane].limits
        assert pictures[f"{pane} xz"].colours == pictures[pane].colours
    assert (pictures["phase xz"].title, pictures["phase yz"].title) == ("phase, xz at y 20", "phase, yz at x 30")
    # The slice that is shown, along the lines of its own picture.
    for pane in request.panes:
        seen = [reader.value_at(pane, 12, x, request) for x in range(44)]
        cut = [reader.value_at(f"{pane} xz", 1, x, request) for x in range(44)]
        np.testing.assert_allclose(
            np.abs(seen) if pane == "complex" else seen, np.abs(cut) if pane == "complex" else cut, atol=2e-5
        )
        seen = [reader.value_at(pane, y, 24, request) for y in range(36)]
        cut = [reader.value_at(f"{pane} yz", y, 1, request) for y in range(36)]
        np.testing.assert_allclose(
            np.abs(seen) if pane == "complex" else seen, np.abs(cut) if pane == "complex" else cut, atol=2e-5
        )
    with raises("argument.invalid-value", "36 x 3 pixels", "(36, 0)"):
        reader.value_at("phase yz", 36, 0, request)


def test_cuts_of_the_product_have_a_contrast_of_their_own_and_thin_objects_have_none() -> None:
    settings = Settings(slices=Slices(count=2, thickness=2e-4))
    loop = Loop(a_scan(), settings, SingleGroup(torch.device("cpu")))
    loop.step()
    request = pt.RenderRequest(cut=(10**6, 0), flat=False)
    taken = looked_at_once(loop, request, (slice(8, 44), slice(6, 50)))
    assert taken.lines is not None
    assert taken.lines.at == (43, 6)  # the nearest pixel
    pictures = {picture.name: picture for picture in make_pictures(taken, request, (1e-7, 1e-7)).pictures}
    assert pictures["phase xz"].limits == pictures["phase yz"].limits != pictures["phase"].limits
    thin = a_loop()
    assert looked_at_once(thin, request, the_whole(thin)).lines is None


def test_what_was_taken_does_not_change_while_training_goes_on() -> None:
    loop = a_loop()
    taken = looked_at_once(loop, pt.RenderRequest(), the_whole(loop))
    before = taken.object.clone(), taken.probe.clone()
    loop.step()
    assert torch.equal(taken.object, before[0])
    assert torch.equal(taken.probe, before[1])
    assert not torch.equal(loop.model.object.values[0, 0], before[0])


def test_pictures_are_as_large_as_asked_for_and_modes_as_many() -> None:
    loop = a_loop()
    request = pt.RenderRequest(panes=("phase",), size=16, modes=1, modes_as="amplitude", flat=False)
    made = make_pictures(looked_at_once(loop, request, the_whole(loop)), request)
    phase, mode = made.pictures
    assert max(decoded(phase.image).shape) <= 16 < max(phase.shape)
    assert phase.reduction == -(-max(phase.shape) // 16)
    assert mode.limits is not None
    assert mode.limits[1] == pytest.approx(float(loop.model.probe.values[0].detach().abs().max()), rel=0.3)
    assert len(made.powers) == 2


def test_phases_are_those_of_numpy() -> None:
    field = np.random.default_rng(0).normal(size=(20, 30, 2)).astype(np.float32).view(np.complex64)[..., 0]
    np.testing.assert_allclose(phase_of(field), np.angle(field), atol=1e-6)
    flat = phase_of(field, ramp(field))
    assert np.abs(np.exp(1j * flat) - np.exp(1j * flat_phase(field))).max() < 1e-5
    assert np.abs(flat).max() <= np.float32(np.pi)


def test_phases_of_axes_nothing_and_no_number() -> None:
    values = [1, 1j, -1, -1j, 0, 1 + 1j, -1 - 1j, complex(np.nan, 0), complex(0, np.nan), complex(np.inf, 1)]
    field = np.array([values], np.complex64)
    with np.errstate(invalid="ignore"):
        expected = np.angle(field)
    np.testing.assert_allclose(phase_of(field), expected, atol=1e-6)


def test_grey_levels_are_those_of_numpy() -> None:
    values = np.random.default_rng(1).normal(size=(40, 50)).astype(np.float32)
    values[0, :5] = np.nan, np.inf, -np.inf, -1.5, 2.5
    np.testing.assert_array_equal(levels_of(values, (-1.5, 2.5)), levels(values, (-1.5, 2.5)))
    flat = np.full((4, 5), 7e8, np.float32)
    assert {*levels_of(flat, (7e8, 7e8 + 1)).flat} == {0}  # limits that are one number in single precision


def test_a_request_for_what_there_is_not_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"panes": ("amplitude", "probe")}, "expected some of amplitude, phase, complex"),
        ({"panes": ("phase", "phase")}, "each once"),
        ({"modes_as": "phase"}, "'complex' or 'amplitude'"),
        ({"size": 0}, "size is 0; expected at least 1"),
        ({"slice": -1}, "slice is -1"),
        ({"quality": 96}, "expected 1 to 95"),
        ({"cut": (3, -1)}, r"cut is \(3, -1\)"),
        ({"region": (4, 4, 0, 8)}, r"region is \(4, 4, 0, 8\); expected \(top, bottom, left, right\)"),
        ({"region": (0, 4, -1, 8)}, r"region is \(0, 4, -1, 8\)"),
        ({"region": (0, 4, 8)}, r"region is \(0, 4, 8\)"),
        ({"contrast": Contrast(amplitude=(0.0, 1.0))}, "other pictures than amplitude, phase with flat=True"),
        ({"contrast": Contrast(phase=(0.0, 1.0)), "panes": ("phase",)}, "other pictures than phase with flat=True"),
    ]
    for wrong, words in cases:
        with pytest.raises(ValueError, match=words):
            pt.RenderRequest(**wrong)


# Positions and health


def test_positions_are_those_at_the_start_and_now(seen: list[dict[str, Any]]) -> None:
    start, now = seen[0]["positions"]
    np.testing.assert_allclose(start + seen[0]["kept"].origin, a_scan().positions)
    np.testing.assert_array_equal(now, seen[0]["kept"].positions)
    np.testing.assert_array_equal(now, seen[1]["positions"][1])


def test_each_engine_tells_how_it_is_and_that_all_agree(seen: list[dict[str, Any]]) -> None:
    told = [answer["health"] for answer in seen]
    assert [one.rank for one in told] == [0, 1]
    assert sum(one.patterns for one in told) == len(a_scan())
    epoch = seen[0]["status"].epochs[-1]
    assert sum(one.patterns_per_second for one in told) == pytest.approx(epoch.patterns_per_second, rel=0.2)
    for one in told:
        assert one.agreed == 3
        assert one.state == "ready"
        assert one.memory_total > one.memory > 2**20
        assert one.temperature is None
        assert one.answered


def test_the_load_of_a_cpu_comes_with_the_second_question() -> None:
    vitals = diagnostics.Vitals("cpu", 1)
    assert vitals.load_and_temperature() == (None, None)
    sum(range(3_000_000))
    load, _ = vitals.load_and_temperature()
    assert load is not None
    assert 0 < load <= 1
    assert diagnostics.Vitals("cpu", 10 * (os.cpu_count() or 1)).load_and_temperature() == (None, None)


def test_load_and_temperature_of_a_gpu_as_its_driver_tells_them() -> None:
    for line, known in (
        ("37, 54\n", (0.37, 54.0)),
        ("[N/A], 61\n", (None, 61.0)),
        ("No devices were found\n", (None, None)),
        ("", (None, None)),
    ):
        assert diagnostics.read_vitals(line) == known, line
