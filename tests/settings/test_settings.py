import inspect
import json
import pickle
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pydantic
import pytest

from ptynb.exceptions import SettingsError
from ptynb.settings import OPR, PARTS, Object, Probe, Schedule, Settings
from ptynb.settings.base_models import flat
from ptynb.settings.field_docs import kinds_in
from ptynb.settings.recipe import Stage
from ptynb.settings.run_files.run_file import RunFile
from ptynb.settings.schema import structure
from tests.parametrization import each
from tests.raising import raises

UNUSUAL = Settings(
    object=Object(learning_rate=1e-5, padding=0),
    probe=Probe(modes=7, learning_rate=0, start="mean pattern"),
    loss="poisson",
    optimiser="sgd",
    batch=1_000_000,
    seed=2**63 - 1,
    precision="double",
)


@each("settings", [Settings(), UNUSUAL])
def test_settings_are_the_same_after_yaml_a_file_and_json(settings, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(settings.to_yaml())
    for text in (settings.to_yaml(), path, json.dumps(settings.model_dump()), settings.model_dump_json()):
        assert Settings.from_yaml(text) == settings
    assert Settings(**json.loads(settings.model_dump_json())) == settings
    assert Settings.from_yaml("") == Settings()


UNKNOWN = "settings.unknown-name"
INVALID = "settings.invalid-value"
REFUSED = [
    ({"bach": 3}, UNKNOWN, "'bach'", ", ".join(Settings.model_fields)),
    ({"object": {"rat": 1}}, UNKNOWN, "'object.rat'", ", ".join(Object.model_fields)),
    (
        {"constraints": [{"kind": "gaussian_blur", "sigma": 1, "sigm": 2}]},
        UNKNOWN,
        "'constraints.0.gaussian_blur.sigm'",
        "start_epoch, every, end_epoch, after, sigma.",
    ),
    ({"constraints": [{"kind": "gaussian_blur"}]}, INVALID, "constraints.0.gaussian_blur.sigma", "required"),
    ({"regularizers": [{"kind": "sparsity", "weight": 0}]}, INVALID, "regularizers.0.sparsity.weight", "than 0"),
    ({"positions": {"start_epoch": 5, "end_epoch": 4}}, "settings.wrong-order", "end_epoch is 4", "5"),
    ({"batch": 2.5}, INVALID, "batch is 2.5", "integer"),
    ({"seed": 2**63}, INVALID, f"seed is {2**63}", f"less than {2**63}"),
    ({"loss": "poissn"}, INVALID, "loss is 'poissn'", "'amplitude', 'poisson' or 'intensity'"),
    ({"optimiser": "ladam"}, INVALID, "optimiser is 'ladam'", "'adam', 'adamw'", "'dm' or 'raar'"),
    ({"object": {"learning_rate": 11}}, INVALID, "object.learning_rate is 11", "equal to 10"),
    ({"probe": {"learning_rate": float("nan")}}, INVALID, "probe.learning_rate is nan", "finite"),
    ({"object": 3}, INVALID, "object is 3", "Object"),
    ({"batch": 0, "seed": -1}, INVALID, "batch is 0", "seed is -1"),
]


THICK = {"count": 2, "thickness": 1e-9}
DEEP = {"kind": "depth_blur", "sigma": 1.0}
LENS = {"aberrations": {"order": 1}, "probe": {"learning_rate": 0}}
PACBED = [{"kind": "pacbed", "weight": 1}]
# Valid values that are not supported together, and facts that the message states.
CONTRADICTIONS = [
    ({"object": {"learning_rate": 0}, "probe": {"learning_rate": 0}}, "object.learning_rate", "probe.learning_rate"),
    ({"slices": {"count": 3}}, "slices.count is 3", "slices.thickness"),
    ({"slices": {"learning_rate": 0.1}}, "slices.learning_rate", "slices.count is 1"),
    ({"tilt": {"learning_rate": 0.1}}, "tilt.learning_rate", "slices.count is 1"),
    ({"descan": {"learning_rate": 0.1}}, "descan.learning_rate is 0.1", "descan.start is 'none'"),
    ({"constraints": [DEEP]}, "'depth_blur'", "slices.count is 1"),
    ({"constraints": [{"kind": "missing_wedge"}]}, "'missing_wedge'", "slices.count"),
    ({"constraints": [{"kind": "recenter_depth"}]}, "'recenter_depth'", "slices.count"),
    ({"gradient_accumulation": 17}, "gradient_accumulation is 17", "batch is 16"),
    ({"regularizers": [{"kind": "similarity", "weight": 1}]}, "'similarity'", "object.modes is 1"),
    ({"regularizers": PACBED, "gradient_accumulation": 2}, "'pacbed'", "gradient_accumulation is 2"),
    ({"regularizers": PACBED, "optimiser": "lbfgs"}, "'pacbed'", "'lbfgs'"),
    ({"momentum": 0.9}, "momentum is 0.9", "'adam'"),
    ({"optimiser": "rpie", "loss": "poisson"}, "loss is 'poisson'", "'rpie'"),
    ({"optimiser": "rpie", "object": {"parametrization": "amplitude_phase"}}, "object.parametrization", "'rpie'"),
    ({"optimiser": "lbfgs", "gradient_accumulation": 2}, "gradient_accumulation is 2", "'lbfgs'"),
    ({**LENS, "optimiser": "lbfgs"}, "aberrations.order is 1", "optimiser is 'lbfgs'"),
    ({"aberrations": {"order": 1, "end_epoch": 4}, "probe": {"start_epoch": 4}}, "same epochs", "probe.start_epoch"),
    *[
        ({"optimiser": optimiser, **values}, f"'{optimiser}'", *facts)
        for optimiser in ("lsqml", "dm", "raar")
        for values, *facts in [
            ({"object": {"modes": 2}}, "object.modes above 1"),
            ({"object": {"parametrization": "amplitude_phase"}}, "object.parametrization 'amplitude_phase'"),
            ({"detector": {"psf_sigma": 1}}, "detector"),
            ({"regularizers": [{"kind": "sparsity", "weight": 1}]}, "regularizers"),
            ({"loss": "poisson"}, "'poisson'"),
            ({"affine": {"learning_rate": 0.1}}, "affine.learning_rate above 0"),
            ({"descan": {"start": "plane"}}, "descan.start 'plane'"),
            ({"fly_scan": {"steps": 2}}, "fly_scan.steps above 1"),
        ]
    ],
    ({"object": {"layout": "tiles"}}, "batch_sampling is 'spread'", "'cells'"),
    *[
        ({"object": {"layout": "tiles"}, "batch_sampling": "cells", **values}, "object.layout is 'tiles'", fact)
        for values, fact in [
            ({"optimiser": "lbfgs"}, "'lbfgs'"),
            ({"optimiser": "raar"}, "'raar'"),
            ({"constraints": [{"kind": "low_pass", "cutoff": 0.5}]}, "'low_pass'"),
            ({"constraints": [{"kind": "dct_threshold", "keep_fraction": 0.5}]}, "'dct_threshold'"),
        ]
    ],
    ({"optimiser": "lsqml", "slices": THICK, "tilt": {"learning_rate": 0.1}}, "'lsqml'", "tilt.learning_rate above 0"),
    *[
        ({"optimiser": optimiser, **values}, f"'{optimiser}'", *facts)
        for optimiser in ("dm", "raar")
        for values, *facts in [
            ({"slices": THICK}, "slices.count above 1"),
            ({"opr": {"modes": 1}}, "opr.modes above 0"),
            ({"positions": {"learning_rate": 0.1}}, "positions.learning_rate above 0"),
            ({"pattern_intensities": {"learning_rate": 0.1}}, "pattern_intensities.learning_rate above 0"),
            ({"background": {"learning_rate": 0.1}}, "background.learning_rate above 0"),
            ({"momentum": 0.5}, "momentum is 0.5"),
        ]
    ],
]


@each("case", CONTRADICTIONS)
def test_unsupported_combinations_name_the_settings_and_a_remedy(case):
    values, *facts = case
    with raises("settings.unsupported-combination", ";", *facts) as caught:
        Settings(**values)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert caught.value.fields
    for name in caught.value.fields:
        assert structure().has(name) or name in Settings.model_fields
        assert name.removesuffix("s") in str(caught.value)


def test_errors_name_their_fields_whole_and_once():
    with raises("settings.wrong-order") as caught:
        Settings(positions={"start_epoch": 5, "end_epoch": 4}, constraints=[{"kind": "gaussian_blur", "sigma": -1}])
    found = caught.value.fields
    assert found == ("positions.start_epoch", "positions.end_epoch", "constraints.0.gaussian_blur.sigma")
    with raises("settings.unknown-name") as caught:
        Settings(probe={"model": 2, "modes": 0})
    assert caught.value.fields == ("probe.model", "probe.modes")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.fields, again.code) == (caught.value.fields, caught.value.code)


@each(
    "values",
    [
        {"slices": THICK, "tilt": {"learning_rate": 0.1}, "constraints": [DEEP]},
        {"object": {"modes": 2}, "regularizers": [{"kind": "similarity", "weight": 1}]},
        {"optimiser": "sgd", "momentum": 0.9},
        {"optimiser": "rpie", "momentum": 0.9},
        {"optimiser": "lbfgs", "positions": {"learning_rate": 1}},
        {"optimiser": "rpie", "gradient_sync": "dense"},
    ],
)
def test_what_can_go_together_is_taken(values):
    assert Settings.from_yaml(Settings(**values).to_yaml()) == Settings(**values)


@each("optimiser", ["rpie", "lsqml", "lbfgs"])
def test_rates_are_whole_steps_where_the_optimiser_knows_their_length(optimiser):
    settings = Settings(optimiser=optimiser, probe=Probe(modes=2))
    assert (settings.object.learning_rate, settings.probe.learning_rate) == (1.0, 1.0)
    assert settings.probe.modes == 2
    own = Settings(optimiser=optimiser, object={"learning_rate": 0.3}, probe=Probe(learning_rate=0.01))
    assert (own.object.learning_rate, own.probe.learning_rate) == (0.3, 0.01)


def test_lsqml_has_whole_steps_of_opr_and_no_momentum_of_positions_unless_they_are_given():
    settings = Settings(optimiser="lsqml", positions={"learning_rate": 0.5}, opr=OPR(modes=2))
    assert (settings.opr.learning_rate, settings.opr.modes) == (1.0, 2)
    assert (settings.positions.learning_rate, settings.positions.momentum) == (0.5, 0.0)
    own = Settings(optimiser="lsqml", positions={"momentum": 0.3}, opr=OPR(modes=2, learning_rate=0.1))
    assert (own.opr.learning_rate, own.positions.momentum) == (0.1, 0.3)
    assert (Settings(optimiser="rpie").opr.learning_rate, Settings().positions.momentum) == (0.03, 0.9)


WAYS = {
    "replace": lambda settings, changes: settings.replace(**changes),
    "with_values": lambda settings, changes: settings.with_values(dict(flat(changes))),
    "a stage": lambda settings, changes: Stage(epochs=1, settings=changes).applied_to(settings),
}
"""How settings are changed: by hand and from forms, in studies, in recipes."""


@each("way", WAYS.values())
def test_rates_of_another_optimiser_are_its_defaults_unless_they_are_given_or_a_part_is_frozen(way):
    adam = Settings(object={"learning_rate": 0.03}, opr={"modes": 2}, positions={"learning_rate": 0.1})
    assert way(adam, {"optimiser": "lsqml"}) == Settings(
        optimiser="lsqml", opr={"modes": 2}, positions={"learning_rate": 0.1}
    )
    assert way(Settings(optimiser="lsqml"), {"optimiser": "nadam"}) == Settings(optimiser="nadam")
    frozen = Settings(probe={"learning_rate": 0})
    assert way(frozen, {"optimiser": "rpie"}) == Settings(optimiser="rpie", probe={"learning_rate": 0})
    given = way(adam, {"optimiser": "rpie", "object": {"learning_rate": 0.03}})
    assert (given.object.learning_rate, given.probe.learning_rate) == (0.03, 1.0)
    assert way(adam, {"optimiser": "sgd"}).object.learning_rate == 0.03, "in the same units"
    polar = Settings(object={"parametrization": "amplitude_phase", "amplitude_learning_rate": 0.01})
    assert way(polar, {"optimiser": "lbfgs"}).object.amplitude_learning_rate == pytest.approx(0.1), "the same ratio"


def test_a_part_given_as_a_model_follows_the_optimiser():
    lsqml = Settings(optimiser="lsqml")
    assert lsqml.replace(object=Object(modes=1, padding=8)).object == Object(learning_rate=1.0, padding=8)
    assert Settings(optimiser="adam", object=lsqml.object) == Settings()


@each(
    "before",
    [{"probe": {"end_epoch": 3}}, {"optimiser": "lsqml"}, {"optimiser": "lsqml", "object": {"learning_rate": 0}}],
)
@each("after", [{}, {"optimiser": "lsqml", "object": {"learning_rate": 0.01}}, {"optimiser": "rpie", "batch": 4}])
def test_changes_between_settings_lead_from_one_to_the_other(before, after):
    first, second = Settings(**before), Settings(**after)
    assert first.with_values(first.changes_to(second)) == second


def test_a_part_moves_in_its_epochs_only():
    part = Object(learning_rate=0.1, start_epoch=3, end_epoch=5)
    assert [epoch for epoch in range(1, 9) if part.moves(epoch)] == [3, 4, 5]
    assert Object(learning_rate=0.1, start_epoch=3, end_epoch=3).moves(3)
    assert not Object(learning_rate=0).moves(1)


@each(
    ("kind", "expected"),
    [
        ("constant", [1, 1, 1]),
        ("linear", [1, 0.55, 0.1]),
        ("cosine", [1, 0.55, 0.1]),
        ("exponential", [1, 0.1**0.5, 0.1]),
    ],
)
def test_a_schedule_goes_from_one_to_its_final_factor_and_stays(kind, expected):
    schedule = Schedule(kind=kind, epochs=11, end_factor=0.1)
    assert [schedule.factor(epoch) for epoch in (1, 6, 11)] == pytest.approx(expected)
    assert schedule.factor(1000) == schedule.factor(11)
    of_runs = Schedule(kind=kind, end_factor=0.1)
    assert [of_runs.factor(epoch, (20, 31)) for epoch in (21, 26, 31)] == pytest.approx(expected)


def test_positions_that_move_get_room():
    assert Settings().margin == 4
    assert Settings(positions={"learning_rate": 0.1, "max_shift": 7.5}).margin == 9
    assert Settings(positions={"learning_rate": 0.1, "max_shift": 2}, object={"padding": 20}).margin == 20


@each("case", REFUSED)
def test_invalid_settings_are_named_with_their_values(case):
    values, code, *facts = case
    with raises(code, *facts):
        Settings(**values)


@each(
    ("text", "code", "fact"),
    [
        ("- 1\n- 2", "settings.not-a-mapping", "list"),
        ("1: 2", "settings.not-a-mapping", "dict"),
        ("batch: [", "settings.invalid-yaml", "line 1"),
    ],
)
def test_text_that_is_no_settings_is_refused(text, code, fact):
    with raises(code, fact) as caught:
        Settings.from_yaml(text)
    assert "\n" not in str(caught.value)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Settings().batch = 3
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Settings().probe.learning_rate = 3


def test_replace_merges_parts_and_keeps_the_rest():
    changed = UNUSUAL.replace(batch=32, probe={"learning_rate": 0.5})
    assert changed.differences(UNUSUAL) == {"batch": (32, 1_000_000), "probe.learning_rate": (0.5, 0.0)}
    assert changed.probe == Probe(modes=7, learning_rate=0.5, start="mean pattern")
    assert UNUSUAL.replace(probe=Probe(modes=2)).probe == Probe(modes=2)


@each(
    ("values", "code", "fact"),
    [
        ({"probe.modes": True}, INVALID, "probe.modes is True"),
        ({"batch": -3}, INVALID, "batch is -3"),
        ({"probe.a.b": 1}, UNKNOWN, "'probe.a'"),
        ({"probe": 3, "probe.learning_rate": 1}, "settings.given-twice", "probe.learning_rate"),
        ({"self": 1}, UNKNOWN, "'self'"),
        ({"object": {"learning_rate": 0}}, "settings.unsupported-combination", "object.learning_rate"),
    ],
)
def test_changes_have_the_same_bounds_and_are_validated_with_the_other_settings(values, code, fact):
    settings = Settings(probe=Probe(learning_rate=0))
    with raises(code, fact):
        settings.with_values(values)
    if not any("." in name for name in values):
        with raises(code, fact):
            settings.replace(**values)
    assert settings.with_values({"probe.learning_rate": 1}).probe.learning_rate == 1


@each(
    ("name", "live"),
    [
        ("object.learning_rate", True),
        ("probe.learning_rate", True),
        ("probe.modes", False),
        ("gradient_sync", True),
        ("batch", False),
    ],
)
def test_only_the_step_sizes_are_live(name, live):
    assert Settings.is_live(name) is live


def rates(settings):
    moving = [name for name in PARTS if name != "aberrations" or settings.aberrations.order]
    return {name: settings.part(name).learning_rate for name in moving if settings.part(name).learning_rate}


MOVING = {
    "object": {"learning_rate": 0.01, "parametrization": "amplitude_phase", "amplitude_learning_rate": 0.02},
    "positions": {"learning_rate": 0.1},
    "pattern_intensities": {"learning_rate": 0.03},
    "background": {"learning_rate": 0.04},
    "affine": {"learning_rate": 0.05},
    "opr": {"modes": 1},
    "aberrations": {"order": 1, "learning_rate": 0.07, "end_epoch": 4},
    "probe": {"start_epoch": 5},
    "descan": {"start": "plane", "learning_rate": 0.06},
}


@each(("optimiser", "shared", "single"), [("adam", 2, 1), ("rmsprop", 2, 1), ("sgd", 4, 4)])
def test_rates_for_several_engines_grow_with_what_their_batches_do_to_the_noise(optimiser, shared, single):
    scaled = Settings(optimiser=optimiser, batch=8, **MOVING).scale_for_engines(4)
    assert (scaled.batch, scaled.batch_per, scaled.effective_batch(4)) == (8, "engine", 32)
    assert scaled.object.amplitude_learning_rate == pytest.approx(0.02 * shared)
    assert rates(scaled) == pytest.approx(
        {"object": 0.01 * shared, "probe": 0.1 * shared}
        | {"background": 0.04 * shared, "affine": 0.05 * shared, "aberrations": 0.07 * shared}
        | {"positions": 0.1 * single, "pattern_intensities": 0.03 * single, "opr": 0.03 * single}
        | {"descan": 0.06 * single}
    )


@each("optimiser", ["rpie", "lsqml", "lbfgs", "dm", "raar"])
def test_steps_that_find_their_length_keep_their_rates(optimiser):
    settings = Settings(optimiser=optimiser)
    assert settings.scale_for_engines(9) == settings.replace(batch_per="engine")


def test_beside_the_steps_of_rpie_the_other_parts_move_by_adam():
    scaled = Settings(
        optimiser="rpie", background={"learning_rate": 0.01}, positions={"learning_rate": 0.1}
    ).scale_for_engines(9)
    assert rates(scaled) == pytest.approx({"object": 1, "probe": 1, "background": 0.03, "positions": 0.1, "opr": 0.03})


def test_a_tilt_of_each_pattern_keeps_its_rate_and_one_of_all_does_not():
    thick = {"slices": {"count": 2, "thickness": 1e-6}}
    for own, rate in ((True, 0.01), (False, 0.02)):
        assert Settings(tilt={"learning_rate": 0.01, "per_position": own}, **thick).scale_for_engines(
            4
        ).tilt.learning_rate == pytest.approx(rate)


def test_rates_for_several_engines_have_limits():
    with raises(INVALID, "object.learning_rate is 12"):
        Settings(optimiser="sgd", object={"learning_rate": 3}).scale_for_engines(4)
    with raises("argument.invalid-value", "engines=0"):
        Settings().scale_for_engines(0)


# Bounds, of every field of every model


def models_below(annotation):
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_below(field.annotation)
    for inner in get_args(annotation):
        yield from models_below(inner)


FIELDS = [
    (model, name, {*kinds_in(field.annotation)} if name != "kind" else set())
    for model in dict.fromkeys(models_below(RunFile))
    if not inspect.isabstract(model)
    for name, field in model.model_fields.items()
    if get_origin(field.annotation) is not Literal and not [*models_below(field.annotation)]
]
NAMED = [("LoadOptions", "aberrations")]
"""Fields with numbers by name, whose ranges depend on the name: see `tests/data/optics`."""
NUMBERS = [
    (model, name) for model, name, kinds in FIELDS if kinds & {int, float} and (model.__name__, name) not in NAMED
]
TEXTS = [(model, name) for model, name, kinds in FIELDS if kinds & {str, Path}]


def within(model, name, value):
    """The value as the field takes it: alone, in a list or in a mapping."""
    annotation = str(model.model_fields[name].annotation)
    if "dict" in annotation:
        return {"host": value}
    if "tuple[tuple" in annotation:
        return [[0, value], [0, value]]
    return [value, value] if "tuple" in annotation else value


def complaint(model, name, value):
    """What is said of this field alone; nothing where its value is taken."""
    try:
        model(**{name: value})
    except SettingsError as error:
        sentence = str(error)
        assert "\n" not in sentence
        assert len(sentence) < 1500
        return [problem for problem in error.problems if problem["loc"][:1] == (name,)]
    return []


@pytest.mark.parametrize(
    "value",
    [True, False, np.True_, float("nan"), float("inf"), "-inf", 10**30, "1e300", -(10**30), 10**5000],
    ids=["True", "False", "numpy", "nan", "inf", "-inf", "large", "larger", "low", "endless"],
)
def test_no_number_is_a_switch_or_without_bounds(value):
    taken = [
        (model.__name__, name) for model, name in NUMBERS if not complaint(model, name, within(model, name, value))
    ]
    assert taken == []


def test_the_ends_of_every_range_are_known_and_in_it():
    for model, name in NUMBERS:
        low, high = bounds(model, name)
        assert low < high
        assert not complaint(model, name, within(model, name, high)), (model, name)


def bounds(model, name):
    """The ends of its range, as its schema has them."""
    found = {}

    def look(schema):
        if isinstance(schema, list):
            for one in schema:
                look(one)
        elif isinstance(schema, dict):
            for end in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
                if end in schema:
                    found[end] = schema[end]
            for one in schema.values():
                look(one)

    look(model.model_json_schema()["properties"][name])
    high = found.get("maximum")
    if high is None:
        beyond = found["exclusiveMaximum"]
        high = beyond - 1 if beyond > 2 else beyond * 0.999
    return found.get("minimum", found.get("exclusiveMinimum")), high


@each("value", ["a\0b", "a\nb", "a\x1b[31m", "x" * 5000])
def test_no_text_has_control_characters_or_no_end(value):
    for model, name in TEXTS:
        inside = {value: 1} if name == "hosts" else within(model, name, value)
        assert complaint(model, name, inside), (model, name)


@pytest.mark.parametrize(
    "values",
    [
        {f"unknown{number}": 1 for number in range(5000)},
        {"probe": {f"unknown{number}": 1 for number in range(5000)}},
        {"constraints": [{"kind": f"unknown{number}"} for number in range(5000)]},
        {"constraints": [{"kind": "x" * 100_000}]},
        {"probe": {"x" * 100_000: 1}},
        {"batch": [*range(100_000)]},
        {"loss": "x" * 3000},
        {"object": "x\x1b[31m\u202e"},
    ],
    ids=lambda values: f"{values!r:.40}",
)
def test_an_error_is_one_line_however_much_is_wrong(values):
    with pytest.raises(SettingsError) as caught:
        Settings(**values)
    sentence = str(caught.value)
    assert len(sentence) < 2000
    assert sentence.isprintable()
    assert len(caught.value.problems) == max(
        len(values), len(values.get("probe", "")), len(values.get("constraints", ""))
    )
    if len(caught.value.problems) > 3:
        assert "4997 more" in sentence
