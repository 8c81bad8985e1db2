import json

import pydantic
import pytest

from ptynb.settings import Object, Probe, Settings, SettingsError

UNUSUAL = Settings(
    object=Object(rate=1e-5, padding=0),
    probe=Probe(modes=7, rate=0),
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
        "object.rate",
        "object.padding",
        "probe.modes",
        "probe.rate",
        "loss",
        "optimiser",
        "batch",
        "seed",
        "precision",
    }


def test_no_text_is_the_default():
    assert Settings.from_yaml("") == Settings()


REFUSED = [
    ({"bach": 3}, "There is no setting 'bach'; known here are object, probe, loss, optimiser, batch, seed, precision."),
    ({"object": {"rat": 1}}, "There is no setting 'object.rat'; known here are rate, padding."),
    ({"probe": {"mode": 2}}, "There is no setting 'probe.mode'; known here are modes, rate."),
    ({"batch": 0}, "batch is 0: Input should be greater than or equal to 1."),
    ({"batch": 2.5}, "batch is 2.5: Input should be a valid integer, got a number with a fractional part."),
    ({"seed": -1}, "seed is -1: Input should be greater than or equal to 0."),
    ({"seed": 2**63}, f"seed is {2**63}: Input should be less than {2**63}."),
    ({"loss": "poissn"}, "loss is 'poissn': Input should be 'amplitude', 'poisson' or 'intensity'."),
    ({"optimiser": "lbfgs"}, "optimiser is 'lbfgs': Input should be 'adam' or 'sgd'."),
    ({"precision": "half"}, "precision is 'half': Input should be 'single' or 'double'."),
    ({"object": {"rate": -1}}, "object.rate is -1: Input should be greater than or equal to 0."),
    ({"object": {"rate": 11}}, "object.rate is 11: Input should be less than or equal to 10."),
    ({"object": {"padding": -1}}, "object.padding is -1: Input should be greater than or equal to 0."),
    ({"probe": {"rate": float("nan")}}, "probe.rate is nan: Input should be a finite number."),
    ({"probe": {"modes": 0}}, "probe.modes is 0: Input should be greater than or equal to 1."),
    ({"probe": {"modes": 65}}, "probe.modes is 65: Input should be less than or equal to 64."),
    ({"object": 3}, "object is 3: Input should be a valid dictionary or instance of Object."),
    (
        {"object": {"rate": 0}, "probe": {"rate": 0}},
        "object.rate and probe.rate are both 0, so nothing would change; give at least one a positive rate.",
    ),
    (
        {"batch": 0, "seed": -1},
        "batch is 0: Input should be greater than or equal to 1. "
        "seed is -1: Input should be greater than or equal to 0.",
    ),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSED, ids=[str(values)[:40] for values, _ in REFUSED])
def test_what_cannot_be_chosen_is_refused_with_a_sentence(values, sentence):
    with pytest.raises(SettingsError) as caught:
        Settings(**values)
    assert str(caught.value) == sentence


def test_a_part_refuses_by_itself():
    with pytest.raises(SettingsError, match=r"^There is no setting 'mods'; known here are modes, rate\.$"):
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
        Settings().probe.rate = 3


def test_replace_merges_parts_and_keeps_the_rest():
    changed = UNUSUAL.replace(batch=32, probe={"rate": 0.5})
    assert changed.differences(UNUSUAL) == {"batch": (32, 1_000_000), "probe.rate": (0.5, 0.0)}
    assert changed.probe == Probe(modes=7, rate=0.5)


def test_replace_takes_a_whole_part():
    assert UNUSUAL.replace(probe=Probe(modes=2)).probe == Probe(modes=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": -3}, "batch is -3"),
        ({"nothing": 1}, "There is no setting 'nothing'"),
        ({"probe": {"nothing": 1}}, "There is no setting 'probe.nothing'"),
        ({"object": {"rate": 0}, "probe": {"rate": 0}}, "are both 0"),
    ],
)
def test_replace_validates_again(changes, words):
    with pytest.raises(SettingsError, match=words):
        Settings().replace(**changes)


def test_replace_refuses_a_contradiction_with_what_was_chosen_before():
    with pytest.raises(SettingsError, match="are both 0"):
        Settings(probe=Probe(rate=0)).replace(object={"rate": 0})


def test_differences_name_fields_with_both_values():
    assert Settings(batch=8).differences(Settings(object=Object(padding=9))) == {
        "batch": (8, 16),
        "object.padding": (4, 9),
    }
    assert Settings().differences(Settings()) == {}


@pytest.mark.parametrize(
    ("name", "live"),
    [
        ("object.rate", True),
        ("probe.rate", True),
        ("object.padding", False),
        ("probe.modes", False),
        ("batch", False),
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
