import ptynb as pt
from ptynb.settings.ranges import Between, checked_ranges, usual_ranges, value_of
from tests.parametrization import each
from tests.raising import raises

SETTINGS = pt.Settings()
INVALID = "tuning.invalid-range"


def test_ranges_are_taken_in_every_form():
    given = {
        "probe.learning_rate": pt.between(1e-4, 1e-1, log=True),
        "object.learning_rate": (0.001, 0.1, True),
        "batch": [8, 16, 32],
        "probe.modes": pt.between(1.0, 3.0),
        "schedule.kind": ("constant", "cosine"),
        "object.amplitude_learning_rate": pt.between(0.001, 1),
    }
    assert checked_ranges(SETTINGS, given) == {
        "probe.learning_rate": Between(1e-4, 1e-1, True),
        "object.learning_rate": Between(0.001, 0.1, True),
        "batch": (8, 16, 32),
        "probe.modes": Between(1, 3),
        "schedule.kind": ("constant", "cosine"),
        "object.amplitude_learning_rate": Between(0.001, 1),
    }


@each(
    ("ranges", "code", "fact"),
    [
        ({}, INVALID, "ranges"),
        ({"probe.rte": (0.1, 0.2)}, "settings.unknown-name", "'probe.rte'"),
        ({"probe.learning_rate.x": (0.1, 0.2)}, "settings.unknown-name", "'probe.learning_rate'"),
        ({"probe": ({"learning_rate": 1}, {"learning_rate": 2})}, INVALID, "probe"),
        ({"batch": pt.between(1.5, 5)}, "settings.invalid-value", "batch is 1.5"),
        ({"loss": ("amplitude", "lsq")}, "settings.invalid-value", "loss is 'lsq'"),
        ({"batch": ()}, INVALID, "batch are ()"),
        ({"batch": (8, 8)}, INVALID, "batch are (8, 8)"),
        ({"batch": "8"}, INVALID, "batch is '8'"),
    ],
)
def test_an_invalid_range_names_the_setting_and_the_value(ranges, code, fact):
    with raises(code, fact):
        checked_ranges(SETTINGS, ranges)


def test_choices_of_what_is_no_number_are_given_as_the_message_says():
    with raises(INVALID, "tilt.per_position", "give its choices as a tuple"):
        checked_ranges(SETTINGS, {"tilt.per_position": pt.between(0, 1)})
    assert checked_ranges(SETTINGS, {"tilt.per_position": (False, True)}) == {"tilt.per_position": (False, True)}


PARTS = [name for name, field in pt.Settings.model_fields.items() if hasattr(field.annotation, "model_fields")]


@each("part", PARTS)
def test_a_setting_of_a_part_is_named_as_the_message_says(part):
    with raises(INVALID, part, "name one of") as caught:
        checked_ranges(SETTINGS, {part: pt.between(1, 2)})
    name = str(caught.value).split("'")[1]
    assert checked_ranges(SETTINGS, {name: (value_of(SETTINGS, name),)}) == {name: (value_of(SETTINGS, name),)}


@each(("ends", "log"), [((1, 1), False), ((float("nan"), 1), False), ((0, float("inf")), False), ((0, 1), True)])
def test_a_range_has_two_finite_ends_in_order_positive_for_a_logarithm(ends, log):
    with raises(INVALID):
        pt.between(*ends, log=log)


def test_values_that_only_together_make_sense_may_be_in_ranges():
    ranges = {"slices.count": (1, 2), "slices.thickness": pt.between(1e-9, 1e-8)}
    assert [*checked_ranges(SETTINGS, ranges)] == [*ranges]
    thick = SETTINGS.with_values({"slices.count": 2, "slices.thickness": 5e-9})
    assert (thick.slices.count, thick.slices.thickness) == (2, 5e-9)
    with raises("settings.unsupported-combination", "slices.thickness"):
        SETTINGS.with_values({"slices.count": 2})


def test_usual_ranges_are_those_of_what_is_optimised():
    settings = SETTINGS.replace(
        object={"learning_rate": 5.0}, probe={"learning_rate": 0.0}, positions={"learning_rate": 0.01}
    )
    usual = {"object.learning_rate": Between(0.5, 10.0, True), "positions.learning_rate": Between(0.001, 0.1, True)}
    assert usual_ranges(settings) == usual
    assert checked_ranges(settings, usual) == usual
