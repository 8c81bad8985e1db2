import inspect

import ptynb as pt
from ptynb import preparation
from ptynb.settings.recipe import PREPARATIONS
from tests.parametrization import each
from tests.raising import raises

RECIPE = pt.Recipe(
    prepare=[{"flip": "y"}, "transpose", {"crop": {"window": 64, "centre": [30, 31]}}],
    settings=pt.Settings(batch=8, positions={"learning_rate": 0.0}),
    stages=[
        pt.Stage(epochs=5, pattern_size=32, reason="the object alone"),
        pt.Stage(epochs=10, settings={"positions": {"learning_rate": 0.02}}, pattern_size=(48, 64)),
        pt.Stage(epochs=3, settings={"optimiser": "rpie", "positions": pt.Positions(learning_rate=0)}),
    ],
)


def test_the_steps_are_the_functions_of_preparation_that_return_a_scan_and_their_arguments():
    functions = {name: getattr(preparation, name) for name in dir(preparation) if not name.startswith("_")}
    signatures = {name: inspect.signature(one) for name, one in functions.items() if inspect.isfunction(one)}
    expected = {
        name: tuple(signature.parameters)[1:]
        for name, signature in signatures.items()
        if signature.return_annotation == "Scan" and next(iter(signature.parameters)) == "scan"
    }
    assert expected == PREPARATIONS


def test_a_recipe_is_yaml_and_back():
    again = pt.Recipe.from_yaml(RECIPE.to_yaml())
    assert again == RECIPE
    assert "- flip:\n    axes: y\n- transpose\n" in RECIPE.to_yaml()
    assert again.prepare[0].arguments == {"axes": "y"}
    assert again.epochs == 18
    assert again.stages[0].pattern_size == (32, 32)
    assert pt.Recipe.from_yaml("") == pt.Recipe.from_yaml("stages:\nprepare:") == pt.Recipe()


def test_settings_of_a_stage_are_changes_or_all_of_them():
    before = pt.Settings(batch=8, probe={"modes": 2})
    assert pt.Stage(epochs=1, settings={"probe": {"learning_rate": 0.5}}).applied_to(before) == before.replace(
        probe={"learning_rate": 0.5}
    )
    everything = pt.Settings(batch=3, constraints=[pt.constraints.FixedProbePower()])
    assert pt.Stage(epochs=1, settings=everything).applied_to(before) == everything


def test_a_part_of_a_stage_that_is_given_as_a_model_follows_the_optimiser():
    lsqml = pt.Settings(optimiser="lsqml")
    stage = pt.Stage(epochs=1, settings={"object": pt.Object(padding=8)})
    assert (stage.applied_to(lsqml).object.learning_rate, stage.applied_to(lsqml).object.padding) == (1.0, 8)
    assert stage.applied_to(pt.Settings()).object.learning_rate == 0.1


@each(
    ("text", "code", "facts"),
    [
        ("prepare: [{flop: y}]", "settings.unknown-name", ["flop", "did you mean 'flip'"]),
        ("prepare: [{crop: {windw: 3}}]", "settings.unknown-name", ["windw", "did you mean 'window'"]),
        ("prepare: [{transpose_positions: 3}]", "settings.unknown-name", ["transpose_positions", "expected none"]),
        ("prepare: [{flip: y, crop: 8}]", "settings.invalid-value", ["2 names"]),
        ("stages: [{epochs: 1, pattern_size: 2}]", "settings.invalid-value", ["pattern_size"]),
        ("stages: [{epochs: 1}, {epochs: 1, settings: {batsh: 2}}]", "settings.unknown-name", ["stage 2", "'batch'"]),
        (
            "stages: [{epochs: 1, settings: {optimiser: dm, slices: {count: 2, thickness: 1e-6}}}]",
            "settings.unsupported-combination",
            ["stage 1", "slices.count"],
        ),
        ("stages: [{epochs: 999999999}, {epochs: 2}]", "settings.invalid-value", ["1000000000"]),
    ],
)
def test_errors_say_what_is_wrong_and_what_was_meant(text, code, facts):
    with raises(code, *facts):
        pt.Recipe.from_yaml(text)
