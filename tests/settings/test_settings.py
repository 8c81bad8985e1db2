import json
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pydantic
import pytest

from ptynb.exceptions import SettingsError
from ptynb.settings import PARTS, Object, Probe, Schedule, Settings
from ptynb.settings.run_file import RunFile
from ptynb.settings.validation import kinds_in

UNUSUAL = Settings(
    object=Object(learning_rate=1e-5, padding=0),
    probe=Probe(modes=7, learning_rate=0),
    loss="poisson",
    optimiser="sgd",
    batch=1_000_000,
    seed=2**63 - 1,
    precision="double",
)


@pytest.mark.parametrize("settings", [Settings(), UNUSUAL], ids=["default", "unusual"])
class TestRoundTrip:
    def test_through_yaml_text(self, settings):
        assert Settings.from_yaml(settings.to_yaml()) == settings

    def test_through_a_yaml_file(self, settings, tmp_path):
        path = tmp_path / "settings.yaml"
        path.write_text(settings.to_yaml())
        assert Settings.from_yaml(path) == settings

    def test_through_json(self, settings):
        assert Settings.from_yaml(json.dumps(settings.model_dump())) == settings
        assert Settings.from_yaml(settings.model_dump_json()) == settings
        assert Settings(**json.loads(settings.model_dump_json())) == settings


def test_the_unusual_settings_differ_from_the_default_in_every_field():
    assert set(Settings().differences(UNUSUAL)) == {
        "object.learning_rate",
        "object.padding",
        "probe.modes",
        "probe.learning_rate",
        "loss",
        "optimiser",
        "batch",
        "seed",
        "precision",
    }


def test_no_text_is_the_default():
    assert Settings.from_yaml("") == Settings()


REFUSED = [
    (
        {"bach": 3},
        "There is no setting 'bach'; known here are object, probe, slices, tilt, positions, affine, "
        "probe_offset, opr, pattern_intensities, background, detector, loss, regularizers, constraints, optimiser, "
        "momentum, rpie_alpha, beta, schedule, batch, batch_per, gradient_accumulation, batch_sampling, "
        "pattern_storage, gradient_sync, sync_every, seed, precision.",
    ),
    (
        {"object": {"rat": 1}},
        "There is no setting 'object.rat'; known here are learning_rate, start_epoch, end_epoch, "
        "padding, modes, parametrization, amplitude_learning_rate.",
    ),
    (
        {"probe": {"mode": 2}},
        "There is no setting 'probe.mode'; known here are learning_rate, start_epoch, end_epoch, modes.",
    ),
    (
        {"constraints": [{"kind": "gaussian_blur", "sigm": 2}]},
        "constraints.0.gaussian_blur.sigma is {'kind': 'gaussian_blur', 'sigm': 2}: Field required. "
        "There is no setting 'constraints.0.gaussian_blur.sigm'; "
        "known here are start_epoch, every, end_epoch, after, sigma.",
    ),
    (
        {"regularizers": [{"kind": "sparsity", "weight": 0}]},
        "regularizers.0.sparsity.weight is 0: Input should be greater than 0.",
    ),
    (
        {"positions": {"start_epoch": 5, "end_epoch": 4}},
        "positions is {'start_epoch': 5, 'end_epoch': 4}: its end_epoch is 4 and its start_epoch 5; "
        "give an end_epoch that is not earlier.",
    ),
    ({"batch": 0}, "batch is 0: Input should be greater than or equal to 1."),
    ({"batch": 2.5}, "batch is 2.5: Input should be a valid integer, got a number with a fractional part."),
    ({"seed": -1}, "seed is -1: Input should be greater than or equal to 0."),
    ({"seed": 2**63}, f"seed is {2**63}: Input should be less than {2**63}."),
    ({"loss": "poissn"}, "loss is 'poissn': Input should be 'amplitude', 'poisson' or 'intensity'."),
    (
        {"optimiser": "ladam"},
        "optimiser is 'ladam': Input should be 'adam', 'adamw', 'nadam', 'radam', 'rmsprop', 'sgd', 'lbfgs', 'rpie', "
        "'lsqml', 'dm' or 'raar'.",
    ),
    ({"precision": "half"}, "precision is 'half': Input should be 'single' or 'double'."),
    ({"object": {"learning_rate": -1}}, "object.learning_rate is -1: Input should be greater than or equal to 0."),
    ({"object": {"learning_rate": 11}}, "object.learning_rate is 11: Input should be less than or equal to 10."),
    ({"object": {"padding": -1}}, "object.padding is -1: Input should be greater than or equal to 0."),
    ({"probe": {"learning_rate": float("nan")}}, "probe.learning_rate is nan: Input should be a finite number."),
    ({"probe": {"modes": 0}}, "probe.modes is 0: Input should be greater than or equal to 1."),
    ({"probe": {"modes": 65}}, "probe.modes is 65: Input should be less than or equal to 64."),
    ({"object": 3}, "object is 3: Input should be a valid dictionary or instance of Object."),
    (
        {"object": {"learning_rate": 0}, "probe": {"learning_rate": 0}},
        "object.learning_rate and probe.learning_rate are both 0, so nothing would change; "
        "give at least one a positive rate.",
    ),
    (
        {"batch": 0, "seed": -1},
        "batch is 0: Input should be greater than or equal to 1. "
        "seed is -1: Input should be greater than or equal to 0.",
    ),
]


THICK = {"count": 2, "thickness": 1e-9}
DEEP = {"kind": "depth_blur", "sigma": 1.0}
# What is right by itself, and wrong together.
CONTRADICTIONS = [
    ({"slices": {"count": 3}}, "slices.count is 3, and slices.thickness is missing"),
    ({"slices": {"learning_rate": 0.1}}, "slices.learning_rate is above 0, and slices.count is 1"),
    ({"tilt": {"learning_rate": 0.1}}, "tilt.learning_rate is above 0, and slices.count is 1"),
    ({"constraints": [DEEP]}, "'depth_blur' works in depth, and slices.count is 1"),
    ({"constraints": [{"kind": "missing_wedge"}]}, "'missing_wedge' works in depth"),
    ({"constraints": [{"kind": "recenter_depth"}]}, "'recenter_depth' works in depth"),
    ({"gradient_accumulation": 17}, "gradient_accumulation is 17, and a batch has 16 patterns"),
    (
        {"regularizers": [{"kind": "similarity", "weight": 1}]},
        "'similarity' compares modes of the object, and object.modes is 1",
    ),
    (
        {"regularizers": [{"kind": "pacbed", "weight": 1}], "gradient_accumulation": 2},
        "'pacbed' needs a whole batch",
    ),
    ({"regularizers": [{"kind": "pacbed", "weight": 1}], "optimiser": "lbfgs"}, "'pacbed' needs batches"),
    ({"momentum": 0.9}, "momentum is 0.9, and the optimiser 'adam' has its own"),
    ({"optimiser": "rpie", "loss": "poisson"}, "loss is 'poisson', and the optimiser 'rpie' fits amplitudes"),
    (
        {"optimiser": "rpie", "object": {"parametrization": "amplitude_phase"}},
        "object.parametrization is 'amplitude_phase', and 'rpie' divides complex steps",
    ),
    (
        {"optimiser": "lbfgs", "gradient_accumulation": 2},
        "gradient_accumulation is 2, and 'lbfgs' takes all patterns at once",
    ),
    ({"regularizers": [{"kind": "pacbed", "weight": 1}], "sync_every": 4}, "needs a batch's patterns of"),
    *[
        ({"optimiser": optimiser, "sync_every": 4}, f"sync_every is 4, and the steps of '{optimiser}' follow")
        for optimiser in ("lbfgs", "lsqml", "dm", "raar")
    ],
    *[
        ({"optimiser": optimiser, **values}, f"the optimiser '{optimiser}' can't go with {what}")
        for optimiser in ("lsqml", "dm", "raar")
        for values, what in [
            ({"slices": THICK}, "slices.count above 1"),
            ({"object": {"modes": 2}}, "object.modes above 1"),
            ({"object": {"parametrization": "amplitude_phase"}}, "object.parametrization 'amplitude_phase'"),
            ({"opr": {"modes": 1}}, "opr.modes above 0"),
            ({"detector": {"psf_sigma": 1}}, "detector choices"),
            ({"regularizers": [{"kind": "sparsity", "weight": 1}]}, "regularizers"),
            ({"loss": "poisson"}, "the loss 'poisson'"),
            ({"positions": {"learning_rate": 0.1}}, "positions.learning_rate above 0"),
            ({"pattern_intensities": {"learning_rate": 0.1}}, "pattern_intensities.learning_rate above 0"),
            ({"background": {"learning_rate": 0.1}}, "background.learning_rate above 0"),
        ]
    ],
]


@pytest.mark.parametrize(("values", "words"), CONTRADICTIONS, ids=[str(values)[:60] for values, _ in CONTRADICTIONS])
def test_what_cannot_go_together_is_refused_with_a_sentence(values, words):
    with pytest.raises(SettingsError) as caught:
        Settings(**values)
    sentence = str(caught.value)
    assert words in sentence
    assert ";" in sentence, "it says what to do"
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "values",
    [
        {"slices": THICK, "tilt": {"learning_rate": 0.1}, "constraints": [DEEP]},
        {"object": {"modes": 2}, "regularizers": [{"kind": "similarity", "weight": 1}]},
        {"optimiser": "sgd", "momentum": 0.9},
        {"optimiser": "rpie", "momentum": 0.9},
        {"optimiser": "lbfgs", "positions": {"learning_rate": 1}},
        {"optimiser": "rpie", "sync_every": 4, "gradient_sync": "dense"},
    ],
)
def test_what_can_go_together_is_taken(values):
    assert Settings.from_yaml(Settings(**values).to_yaml()) == Settings(**values)


@pytest.mark.parametrize("optimiser", ["rpie", "lsqml", "lbfgs"])
def test_rates_are_whole_steps_where_the_optimiser_knows_their_length(optimiser):
    settings = Settings(optimiser=optimiser, probe=Probe(modes=2))
    assert (settings.object.learning_rate, settings.probe.learning_rate) == (1.0, 1.0)
    assert settings.probe.modes == 2
    own = Settings(optimiser=optimiser, object={"learning_rate": 0.3}, probe=Probe(learning_rate=0.01))
    assert (own.object.learning_rate, own.probe.learning_rate) == (0.3, 0.01)


def test_a_part_moves_in_its_epochs_only():
    part = Object(learning_rate=0.1, start_epoch=3, end_epoch=5)
    assert [epoch for epoch in range(1, 9) if part.moves(epoch)] == [3, 4, 5]
    assert not Object(learning_rate=0).moves(1)


@pytest.mark.parametrize(
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


def test_positions_that_move_get_room():
    assert Settings().margin == 4
    assert Settings(positions={"learning_rate": 0.1, "max_shift": 7.5}).margin == 9
    assert Settings(positions={"learning_rate": 0.1, "max_shift": 2}, object={"padding": 20}).margin == 20


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=[str(values)[:40] for values, _ in REFUSED])
def test_what_cannot_be_chosen_is_refused_with_a_sentence(values, sentence):
    with pytest.raises(SettingsError) as caught:
        Settings(**values)
    assert str(caught.value) == sentence


def test_a_part_refuses_by_itself():
    with pytest.raises(
        SettingsError,
        match=r"^There is no setting 'mods'; known here are learning_rate, start_epoch, end_epoch, modes\.$",
    ):
        Probe(mods=3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 1\n- 2", "are a list; expected names with values"),
        ("1: 2", "are a dict; expected names with values"),
        ("batch", "are a str; expected names with values"),
        ("batch: [", "not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "not valid YAML"),
        ("batch: 0", "batch is 0"),
    ],
)
def test_text_that_is_no_settings_is_refused(text, words):
    with pytest.raises(SettingsError, match=words) as caught:
        Settings.from_yaml(text)
    assert "\n" not in str(caught.value)


def test_a_settings_error_is_a_value_error():
    assert issubclass(SettingsError, ValueError)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Settings().batch = 3
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        Settings().probe.learning_rate = 3


def test_replace_merges_parts_and_keeps_the_rest():
    changed = UNUSUAL.replace(batch=32, probe={"learning_rate": 0.5})
    assert changed.differences(UNUSUAL) == {"batch": (32, 1_000_000), "probe.learning_rate": (0.5, 0.0)}
    assert changed.probe == Probe(modes=7, learning_rate=0.5)


def test_replace_takes_a_whole_part():
    assert UNUSUAL.replace(probe=Probe(modes=2)).probe == Probe(modes=2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"probe.modes": True}, "probe.modes is True: Input should be a number"),
        ({"probe.modes": 10**30}, "less than or equal to 64"),
        ({"object.end_epoch": 10**30}, "less than or equal to 1000000000"),
        ({"probe.a.b": 1}, "There is no setting 'probe.a'"),
        ({"probe": 3, "probe.learning_rate": 1}, "probe is 3, and probe.learning_rate is given too; give one of them"),
        ({"self": 1}, "There is no setting 'self'"),
    ],
)
def test_dotted_values_have_the_same_bounds(values, words):
    with pytest.raises(SettingsError, match=words):
        Settings().with_values(values)
    assert Settings().with_values({"probe.learning_rate": 1}).probe.learning_rate == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": -3}, "batch is -3"),
        ({"nothing": 1}, "There is no setting 'nothing'"),
        ({"probe": {"nothing": 1}}, "There is no setting 'probe.nothing'"),
        ({"object": {"learning_rate": 0}, "probe": {"learning_rate": 0}}, "are both 0"),
    ],
)
def test_replace_validates_again(changes, words):
    with pytest.raises(SettingsError, match=words):
        Settings().replace(**changes)


def test_replace_refuses_a_contradiction_with_what_was_chosen_before():
    with pytest.raises(SettingsError, match="are both 0"):
        Settings(probe=Probe(learning_rate=0)).replace(object={"learning_rate": 0})


def test_differences_name_fields_with_both_values():
    assert Settings(batch=8).differences(Settings(object=Object(padding=9))) == {
        "batch": (8, 16),
        "object.padding": (4, 9),
    }
    assert Settings().differences(Settings()) == {}


@pytest.mark.parametrize(
    ("name", "live"),
    [
        ("object.learning_rate", True),
        ("probe.learning_rate", True),
        ("object.padding", False),
        ("probe.modes", False),
        ("gradient_sync", True),
        ("sync_every", True),
        ("batch", False),
        ("batch_per", False),
        ("loss", False),
    ],
)
def test_only_the_step_sizes_are_live(name, live):
    assert Settings.is_live(name) is live


def test_every_field_says_what_it_is():
    def undescribed(model, prefix=""):
        for name, field in model.model_fields.items():
            if not field.description:
                yield prefix + name
            if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
                yield from undescribed(field.annotation, f"{prefix}{name}.")

    assert list(undescribed(Settings)) == []


def rates(settings):
    return {name: settings.part(name).learning_rate for name in PARTS if settings.part(name).learning_rate}


MOVING = {
    "object": {"learning_rate": 0.01, "parametrization": "amplitude_phase", "amplitude_learning_rate": 0.02},
    "positions": {"learning_rate": 0.1},
    "pattern_intensities": {"learning_rate": 0.03},
    "background": {"learning_rate": 0.04},
    "affine": {"learning_rate": 0.05},
    "opr": {"modes": 1},
}


@pytest.mark.parametrize(("optimiser", "shared", "single"), [("adam", 2, 1), ("rmsprop", 2, 1), ("sgd", 4, 4)])
def test_rates_for_several_engines_grow_with_what_their_batches_do_to_the_noise(optimiser, shared, single):
    scaled = Settings(optimiser=optimiser, batch=8, **MOVING).scale_for_engines(4)
    assert (scaled.batch, scaled.batch_per, scaled.effective_batch(4)) == (8, "engine", 32)
    assert scaled.object.amplitude_learning_rate == pytest.approx(0.02 * shared)
    assert rates(scaled) == pytest.approx(
        dict.fromkeys(("object", "probe"), 0.01 * shared)
        | {"background": 0.04 * shared, "affine": 0.05 * shared}
        | {"positions": 0.1 * single, "pattern_intensities": 0.03 * single, "opr": 0.03 * single}
    )


@pytest.mark.parametrize("optimiser", ["rpie", "lsqml", "lbfgs", "dm", "raar"])
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
    for each, rate in ((True, 0.01), (False, 0.02)):
        assert Settings(tilt={"learning_rate": 0.01, "per_position": each}, **thick).scale_for_engines(
            4
        ).tilt.learning_rate == pytest.approx(rate)


def test_rates_for_several_engines_have_limits():
    with pytest.raises(SettingsError, match=r"object.learning_rate is 12"):
        Settings(optimiser="sgd", object={"learning_rate": 3}).scale_for_engines(4)
    with pytest.raises(SettingsError, match=r"scale_for_engines got 0 engines; expected at least 1"):
        Settings().scale_for_engines(0)


def test_a_batch_of_the_group_is_the_same_for_any_number_of_engines():
    assert [Settings(batch=8).effective_batch(engines) for engines in (1, 3)] == [8, 8]
    assert [Settings(batch=8, batch_per="engine").effective_batch(engines) for engines in (1, 3)] == [8, 24]


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
    for name, field in model.model_fields.items()
    if get_origin(field.annotation) is not Literal and not [*models_below(field.annotation)]
]
NUMBERS = [(model, name) for model, name, kinds in FIELDS if kinds & {int, float}]
TEXTS = [(model, name) for model, name, kinds in FIELDS if kinds & {str, Path}]


def within(model, name, value):
    """The value as the field takes it: alone, in a list or in a mapping."""
    annotation = str(model.model_fields[name].annotation)
    if "dict" in annotation:
        return {"host": value}
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


@pytest.mark.parametrize("value", ["a\0b", "a\nb", "a\x1b[31m", "x" * 5000], ids=["NUL", "line", "escape", "long"])
def test_no_text_has_control_characters_or_no_end(value):
    for model, name in TEXTS:
        inside = {value: 1} if name == "hosts" else within(model, name, value)
        assert complaint(model, name, inside), (model, name)


def test_fields_of_all_kinds_were_looked_at():
    assert {("RunFile", "epochs"), ("SshCluster", "hosts"), ("LoadOptions", "raster"), ("Schedule", "epochs")} <= {
        (model.__name__, name) for model, name in NUMBERS
    }
    assert {("RunFile", "scan"), ("SshCluster", "hosts"), ("SlurmCluster", "extra"), ("Checkpointing", "folder")} <= {
        (model.__name__, name) for model, name in TEXTS
    }


@pytest.mark.parametrize(
    "values",
    [
        {f"unknown{number}": 1 for number in range(5000)},
        {"probe": {f"unknown{number}": 1 for number in range(5000)}},
        {"constraints": [{"kind": f"unknown{number}"} for number in range(5000)]},
        {"constraints": [{"kind": "x" * 100_000}]},
        {"x" * 100_000: 1},
        {"probe": {"x" * 100_000: 1}},
        {"batch": "x" * 100_000},
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
