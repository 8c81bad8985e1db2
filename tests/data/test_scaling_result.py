"""What follows from the trials of a scaling test, by hand; and tables."""

import json
import statistics

import pytest

from ptynb.data.engine_records import Epoch
from ptynb.data.scaling_result import ScalingTest, ScalingTrial
from ptynb.table import Table, duration, gigabytes
from tests.parametrization import each


def trial(engines, threads, number, *seconds):
    """Epochs of these seconds, whose loss halves each time."""
    epochs = tuple(Epoch(index + 1, 0.5**index, time, 100 / time) for index, time in enumerate(seconds))
    return ScalingTrial(engines, threads, number, 16, epochs)


TEST = ScalingTest(
    scan="<made up>",
    patterns=100,
    device="CPU",
    cores=4,
    settings={"batch": 16},
    trials=(
        trial(1, 2, 1, 9.0, 2.0, 2.0, 5.0),
        trial(2, 2, 1, 9.0, 1.0, 1.5),
        trial(4, 2, 1, 9.0, 1.0),
        trial(1, 2, 2, 9.0, 4.0, 4.0, 1.0),
        trial(2, 2, 2, 9.0, 1.75, 1.75),
        trial(4, 2, 2, 9.0, 1.0),
    ),
)


def test_the_first_epoch_warms_up_and_one_slow_epoch_counts_little():
    assert TEST.trials[0].seconds == 2.0
    assert TEST.trials[1].seconds == 1.25


def test_rows_have_mean_spread_speed_up_and_efficiency():
    one, two, four = TEST.rows
    assert [(row.engines, row.threads, row.batch) for row in TEST.rows] == [(1, 2, 16), (2, 2, 16), (4, 2, 16)]
    assert (one.seconds, one.spread) == (3.0, pytest.approx(statistics.stdev([2.0, 4.0])))
    assert (one.speed_up, one.efficiency, one.loss) == (1.0, 1.0, 0.125)
    assert (two.seconds, two.speed_up, two.efficiency) == (1.5, 2.0, 1.0)
    # Four engines of two threads have no more than the four cores that are there.
    assert (four.seconds, four.speed_up, four.efficiency) == (1.0, 3.0, 1.5)


def test_each_gpu_is_one_processor_and_one_trial_has_no_spread():
    rows = ScalingTest("x", 10, "some GPU", 4, {}, (trial(1, 4, 1, 9, 4), trial(2, 2, 1, 9, 3))).rows
    assert [row.efficiency for row in rows] == [1, pytest.approx(4 / 3 / 2)]
    assert [row.spread for row in rows] == [0, 0]


def test_it_is_shown_as_a_table_whatever_its_name():
    page = TEST._repr_html_()
    assert "&lt;made up&gt;: 100 patterns on CPU, 2 trials of 4 epochs" in page
    assert "<made" not in page
    assert page.count("<tr>") == 4
    assert str(TEST).splitlines()[3].split() == ["2", "2", "16", "1.5", "s", "±", "354", "ms", "2.00", "100%", "0.25"]
    assert str(TEST).splitlines()[1].split() == (
        ["engines", "threads", "each", "batch", "epoch", "spread", "speed-up", "efficiency", "last", "loss"]
    )


def test_json_has_rows_and_raw_trials():
    plain = json.loads(json.dumps(TEST.to_plain()))
    assert [row["speed_up"] for row in plain["rows"]] == [1.0, 2.0, 3.0]
    assert plain["trials"][0]["epochs"][3]["seconds"] == 5.0


def test_cells_cannot_break_a_table():
    table = Table(("a", "b"), (("x|y", "<b>"),), "c")
    assert "&lt;b&gt;" in table.html()
    assert table.text() == "c\na      b\nx|y  <b>"


@each(
    ("seconds", "text"),
    [(2.0, "2 s"), (0.0354, "35.4 ms"), (1.2e-4, "120 µs"), (200, "3 min 20 s"), (0.9999, "1 s"), (99.4, "99.4 s")],
)
def test_durations_are_readable(seconds, text):
    assert duration(seconds) == text


@each(("count", "text"), [(3.2e9, "3.2 GB"), (999.9e6, "1 GB"), (45e6, "45 MB"), (120e3, "120 kB")])
def test_bytes_are_readable(count, text):
    assert gigabytes(count) == text
