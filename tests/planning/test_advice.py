"""The advisor: what it makes of figures by hand."""

import dataclasses
import json

import pytest

from ptynb.planning.advice import Advice, counts_to, options_of
from ptynb.planning.performance import Compute, Interconnect, Measured
from tests.planning.test_performance import object_of


def advice(link, **changes):
    scan, settings = object_of(2048)
    own = settings.replace(**changes)
    measured = {count: Measured(Compute(1e-4, 1e-5), link if count > 1 else None) for count in (1, 2, 4)}
    return Advice("a scan", "GPU", own.model_dump(mode="json"), options_of(scan, own, measured), measured)


def test_on_a_fast_link_all_engines_are_advised_and_on_a_slow_one_none_but_the_first():
    fast = advice(Interconnect(1e-6, 1e15))
    assert fast.best.engines == 4
    assert fast.sentence.startswith("Fastest for a scan on GPU: 4 engines that exchange ")
    assert "2.8 times as fast as 1 engine" in fast.sentence
    slow = advice(Interconnect(1e-2, 1e9))
    assert slow.best.engines == 1
    assert slow.sentence.startswith("Fastest for a scan on GPU: 1 engine, 4.7 ms an epoch; 2 engines would take")


@pytest.mark.parametrize(("optimiser", "ways"), [("adam", 3), ("rpie", 3), ("lsqml", 2), ("dm", 1), ("lbfgs", 1)])
def test_exchanges_are_those_that_the_optimiser_can_make(optimiser, ways):
    options = advice(Interconnect(1e-3, 1e15), optimiser=optimiser).options
    assert len([option for option in options if option.engines == 4]) == ways


def test_compact_batches_over_a_slow_link_exchange_what_they_touch():
    found = advice(Interconnect(1e-5, 10e9), batch_sampling="compact", batch=25)
    best = {option.exchange: option for option in found.options if option.engines == 4}
    assert best["sparse"].cost.wire < 0.2 * best["dense"].cost.wire
    assert best["sparse"].cost.epoch < best["dense"].cost.epoch


def test_tiles_send_less_than_a_sum_of_the_whole_object():
    found = advice(Interconnect(1e-5, 10e9))
    best = {option.exchange: option for option in found.options if option.engines == 4}
    assert best["tiles"].cost.wire < 0.5 * best["sparse"].cost.wire
    assert found.best.words == "4 engines with the object in tiles, from cells"
    of_tiles = advice(Interconnect(1e-5, 10e9), object={"layout": "tiles"}, batch_sampling="cells").options
    assert [(option.engines, option.exchange) for option in of_tiles] == [(1, "tiles"), (2, "tiles"), (4, "tiles")]
    assert of_tiles[-1].cost == best["tiles"].cost


def test_engines_of_unequal_speed_are_told():
    found = advice(Interconnect(1e-6, 1e15))
    measured = {count: dataclasses.replace(one, unequal=2.04) for count, one in found.measured.items()}
    text = dataclasses.replace(found, measured=measured).sentence
    assert text.endswith(". The slowest engine, for which each update waits, takes 2 times as long as the fastest.")
    assert "slowest" not in found.sentence


def test_it_is_shown_and_written():
    found = advice(Interconnect(1e-6, 1e15))
    assert found._repr_html_().count("<tr>") == 1 + len(found.options) == 8
    assert str(found).startswith(found.sentence)
    plain = json.loads(json.dumps(found.to_plain()))
    assert plain["best"]["engines"] == 4
    assert plain["measured"]["2"]["link"]["latency"] == 1e-6


def test_which_numbers_of_engines_are_tried():
    assert [counts_to(most) for most in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]
