"""The tree of settings is the models' own: nothing is missing, and nothing is written twice."""

import inspect
import itertools
import re

from pydantic import BaseModel

import ptynb as pt
from ptynb.settings import Settings, constraints, regularizers
from ptynb.settings.base_models import flat
from ptynb.settings.schema import as_python, given, nested, python_of, structure
from tests.parametrization import each

LISTS = {"constraints", "regularizers"}
ENTRIES = {
    model.model_fields["kind"].default: model
    for module in (constraints, regularizers)
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and "kind" in model.model_fields
    if not inspect.isabstract(model)
}


def test_it_has_every_field_of_the_settings_and_no_other():
    names = {setting.name for setting in structure().settings}
    # components are those of plug-ins only, of which none is installed here
    assert names | LISTS | {"components"} == dict(flat(Settings().model_dump())).keys()
    assert {entries.name for entries in structure().lists} == LISTS


def test_it_has_every_kind_of_entry_with_all_its_fields():
    found = {kind.kind: kind for entries in structure().lists for kind in entries.kinds}
    assert found.keys() == ENTRIES.keys()
    for kind, model in ENTRIES.items():
        assert {setting.name for setting in found[kind].settings} == model.model_fields.keys() - {"kind"}
        for setting in found[kind].settings:
            assert setting.required == model.model_fields[setting.name].is_required()


@each("setting", structure().settings)
def test_default_range_and_marks_are_those_that_the_settings_check(setting):
    assert setting.default == dict(flat(Settings().model_dump()))[setting.name]
    assert setting.live == Settings.is_live(setting.name)
    if setting.optional:
        Settings(**nested({setting.name: None}))
    for choice in setting.choices:
        assert choice in str(problem(setting.name, "no such choice"))
    for end, included, beyond in ((setting.low, setting.low_included, -1), (setting.high, setting.high_included, 1)):
        if end is not None:
            assert (problem(setting.name, end) is None) == included
            assert problem(setting.name, end + beyond * max(1, abs(end))) is not None


def problem(name, value):
    """What the settings say of this field with this value, whatever they say of others."""
    try:
        Settings(**nested({name: value}))
    except ValueError as error:
        return next((found["msg"] for found in error.problems if ".".join(map(str, found["loc"])) == name), None)
    return None


def test_units_are_those_in_the_descriptions_and_a_description_has_one_at_most():
    models = [Settings, *(type(value) for _, value in Settings() if isinstance(value, BaseModel)), *ENTRIES.values()]
    for model, (name, field) in itertools.chain.from_iterable(
        zip(itertools.repeat(model), model.model_fields.items(), strict=False) for model in models
    ):
        if name == "kind" and model in ENTRIES.values():
            continue
        assert field.description, f"{model.__name__}.{name}"
        assert len(re.findall(r"\[", field.description)) <= 1, field.description
    units = {setting.name: setting.unit for setting in structure().settings}
    assert units["slices.thickness"] == "m"
    assert units["tilt.y"] == "rad"
    assert units["positions.learning_rate"] == "object pixels"
    assert units["batch"] == "patterns"
    assert units["stop.tolerance"] == ""
    assert structure().setting("slices.thickness").description == "Distance between two slices"


def test_titles_are_words_and_differ_within_their_section():
    assert structure().setting("batch").title == "Batch"
    assert structure().setting("object.amplitude_learning_rate").title == "Amplitude learning rate"
    assert structure().setting("tilt.y").title == "Towards y"
    for section in structure().sections:
        titles = [setting.title for setting in section.settings]
        assert len(set(titles)) == len(titles)
        assert not any("_" in title for title in titles)


@each(
    ("values", "expected"),
    [
        ({}, {}),
        ({"optimiser": "rpie"}, {"optimiser": "rpie"}),
        ({"optimiser": "rpie", "probe": {"learning_rate": 0.5}}, {"optimiser": "rpie", "probe.learning_rate": 0.5}),
        ({"optimiser": "rpie", "probe": {"learning_rate": 0.01}}, {"optimiser": "rpie", "probe.learning_rate": 0.01}),
        ({"slices": {"count": 2, "thickness": 1e-9}, "seed": 0}, {"slices.count": 2, "slices.thickness": 1e-9}),
    ],
)
def test_given_are_the_fewest_values_that_make_the_settings(values, expected):
    settings = Settings(**values)
    assert given(settings) == expected
    assert Settings(**nested(given(settings))) == settings
    assert eval(as_python(settings), {"pt": pt}) == settings


def test_values_as_python():
    text = python_of({"batch": 8, "probe.learning_rate": 0.0, "probe.modes": 2, "loss": "poisson"})
    assert text == "batch=8, probe={'learning_rate': 0.0, 'modes': 2}, loss='poisson'"
    assert Settings(**eval(f"dict({text})")).probe.modes == 2
