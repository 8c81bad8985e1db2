"""The form: every field of the settings is in it, each edit arrives, wrong ones are told where they are."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings
from ptynb.settings.base_models import flat
from ptynb.settings.presets import preset
from ptynb.settings.schema import nested, structure
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.form.field_words import fitting_unit, range_of, text_of, units_of, value_of
from ptynb.widgets.form.form_contents import SWITCHES
from ptynb.widgets.form.settings_sources import Source
from tests.raising import raises
from tests.waiting import until
from tests.widgets.browser_model import BrowserModel, violations

ALL = [setting.name for setting in structure().settings]
# What a value needs beside it to be valid.
SLICES: dict[str, Any] = {"slices.count": 2, "slices.thickness": 1e-9}
TOGETHER: dict[str, dict[str, Any]] = {
    "slices.count": {"slices.thickness": 1e-9}, "slices.learning_rate": SLICES, "tilt.learning_rate": SLICES,
    "descan.learning_rate": {"descan.start": "zero"}, "momentum": {"optimiser": "sgd"},
    "gradient_accumulation": {"batch": 4096}, "aberrations.order": {"probe.learning_rate": 0.0},
    "object.layout": {"batch_sampling": "cells"},
}  # fmt: skip


class Steered:
    """A reconstruction's settings, as a form knows them; refuses what it is told to, and another precision."""

    closed, refuse, silent = False, "", ""

    def __init__(self) -> None:
        self._settings, self.assigned, self.restructured = Settings(), 0, 0

    @property
    def settings(self) -> Settings:
        if self.silent:
            raise OSError(self.silent)
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        if self.refuse:
            raise SettingsError(self.refuse, code="settings.not-live" if "reconfigure" in self.refuse else "")
        self._settings = settings
        self.assigned += 1

    def reconfigure_error(self, settings: Settings) -> str | None:
        return "precision can't change; make another." if settings.precision == "double" else None

    def reconfigure(self, settings: Settings) -> None:
        assert not self.reconfigure_error(settings)
        self.restructured += 1
        self._settings = settings


@pytest.fixture
def form():
    """Makes forms, and closes them afterwards."""
    made: list[SettingsForm] = []

    def make(*arguments: Any, **choices: Any) -> SettingsForm:
        made.append(SettingsForm(*arguments, **choices))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def live(form):
    """A form of a run, the run, and the lines that are told."""
    recon, lines = Steered(), []
    return form(live=True, recon=recon, tell=lines.append), recon, lines


@pytest.fixture(scope="module")
def shared():
    """One form for all that does not depend on what it was used for before."""
    one = SettingsForm()
    yield one
    one.close()


def another(setting):
    """A valid value that is not the default."""
    if setting.kind == "choice":
        return next(choice for choice in setting.choices if choice != setting.default)
    if not setting.numeric:
        return not setting.default
    if setting.kind == "integer":
        return (setting.default or 1) + 1
    low, high = (0 if setting.low is None else setting.low), (1 if setting.high is None else setting.high)
    return next(value for part in (0.75, 0.5) if (value := (1 - part) * low + part * high) != setting.default)


def enter(form: SettingsForm, setting, value: Any, name: str = "") -> None:
    """As a user does: text in a unit, a choice, a tick."""
    form.enter(name or setting.name, text_of(value, setting, setting.unit) if setting.numeric else value, setting.unit)


def edit(form: SettingsForm, texts: dict[str, str]) -> None:
    """Enter these texts, and wait until they have arrived."""
    for name, text in texts.items():
        form.enter(name, text)
    form.settle()


def do(command: Any, *given: Any) -> None:
    """Call a command of a form, and wait until it is carried out."""
    command(*given)
    command.__self__.settle()


def done_by(lines: list[str], **names: Any) -> dict[str, Any]:
    """What these lines of Python make of names."""
    exec("\n".join(lines), names)
    return names


def entries_of(form: SettingsForm, name: str) -> list[str]:
    return [entry["name"] for entry in form.entries[name]]


def value_in(settings: Settings, name: str) -> Any:
    return dict(flat(settings.model_dump()))[name]


def problem(form: SettingsForm, name: str) -> str:
    return form.marks.get(name, {}).get("problem", "")


def fields_of(form: SettingsForm) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for group in form.schema["groups"] for field in group.get("fields", ())}


# Every field


def test_every_field_is_in_the_form_once_with_label_help_and_range(shared):
    fields, groups = fields_of(shared), {group["name"]: group for group in shared.schema["groups"]}
    assert sorted(fields) == sorted(ALL) == sorted(shared.values)
    assert len({field["label"] for field in fields.values()}) == len(ALL), "labels tell them apart"
    assert all(fields[setting.name]["about"] == setting.description for setting in structure().settings)
    assert {name for name, group in groups.items() if "kinds" in group} == {"constraints", "regularizers"}
    assert {name for name, group in groups.items() if "switch" in group} == SWITCHES.keys()
    assert fields["probe.modes"]["limits"] == ["1 to 64"]
    assert fields["slices.thickness"]["limits"][0] == "above 0"
    assert fields["slices.thickness"]["units"] == ["nm", "µm", "mm", "m"]
    assert fields["positions.max_shift"]["unit"] == "object pixels"
    first = {name: [field["name"] for field in group["fields"][: group["first"]]]
             for name, group in groups.items() if "fields" in group}  # fmt: skip
    assert first["slices"][:2] == ["slices.count", "slices.thickness"]
    assert (first["Algorithm"], first["detector"]) == (["loss", "optimiser"], [])


def test_an_edit_of_each_field_arrives_and_can_be_taken_back(shared):
    for name in ALL:
        beside, setting = TOGETHER.get(name, {}), structure().setting(name)
        start, value = Settings(**nested(beside)), another(setting)
        shared.settings = start
        assert ("was" in shared.marks.get(name, {})) == (name in beside)
        enter(shared, setting, value)
        assert (shared.problems, shared.settings) == ({}, Settings(**nested({**beside, name: value})))
        assert value_in(shared.settings, name) == value
        assert "was" in shared.marks[name]
        if setting.numeric:
            shown = shared.values[name]
            texts = [shown] if isinstance(shown, str) else shown["texts"]
            for unit, text in zip(units_of(setting) or ("",), texts, strict=True):
                assert value_of(text, setting, unit) == pytest.approx(value, rel=1e-11)
        shared.reset(name)
        assert value_in(shared.settings, name) == value_in(start, name)
        assert "was" not in shared.marks.get(name, {})


@pytest.mark.parametrize("entries", structure().lists, ids=lambda entries: entries.name)
def test_entries_of_every_kind_are_added_filled_switched_and_removed(shared, entries):
    deep = {"slices": {"count": 2, "thickness": 1e-9}, "object": {"modes": 2}}
    for kind in entries.kinds:
        shared.settings = Settings(**deep)
        shared.add(entries.name, kind.kind)
        (entry,) = entries_of(shared, entries.name)
        for setting in kind.settings:
            if setting.required:
                assert problem(shared, f"{entry}.{setting.name}") == "a value is needed"
        filled = [one for one in kind.settings if one.required or one.name not in ("end_epoch", "low", "high")]
        for setting in filled:
            enter(shared, setting, another(setting), f"{entry}.{setting.name}")
        assert shared.problems == {}
        (made,) = getattr(shared.settings, entries.name)
        assert made.kind == kind.kind
        assert [getattr(made, setting.name) for setting in filled] == [another(setting) for setting in filled]
        shared.switch_entry(entry, False)
        assert getattr(shared.settings, entries.name) == ()
        shared.switch_entry(entry, True)
        assert getattr(shared.settings, entries.name) == (made,)
        for _ in range(2):  # clicks in quick turns
            shared.receive_command("remove", {"entry": entry})
        assert (getattr(shared.settings, entries.name), shared.entries[entries.name]) == ((), [])


def test_the_order_of_entries_is_that_of_the_settings(form):
    one = form(Settings(constraints=[{"kind": "gaussian_blur", "sigma": 1.0}, {"kind": "fixed_probe_power"}]))
    first, second = entries_of(one, "constraints")
    one.enter(f"{first}.every", "3")
    assert one.settings.constraints[0].every == 3
    assert one.marks == {f"{first}.every": {"was": "1"}}
    one.reset(f"{first}.every")
    assert one.settings.constraints[0].every == 1
    one.move_up(second)
    one.move_up(second)  # it is the first one
    assert [constraint.kind for constraint in one.settings.constraints] == ["fixed_probe_power", "gaussian_blur"]
    assert one.groups["constraints"] == {"on": None, "summary": "Fixed probe power, Gaussian blur", "changed": 2}
    assert one.groups["regularizers"]["summary"] == "none"


# What is wrong


def test_a_wrong_value_is_told_at_its_field_and_the_settings_stay(form):
    one = form()
    wrong = {"0": "than or equal to 1", "2.5": "valid integer", "many": "valid integer", "65": "than or equal to 64"}
    for text, words in wrong.items():
        one.enter("probe.modes", text)
        assert words in problem(one, "probe.modes")
        assert words in one.problems["probe.modes"]
        assert (one.values["probe.modes"], one.settings) == (text, Settings()), "what was typed stays to be mended"
    one.enter("batch", "8")
    assert one.settings == Settings(), "one wrong value holds the rest back"
    assert one.invalid == "Edits are applied after this is corrected: Probe modes."
    one.enter("probe.modes", "3")
    assert (one.invalid, problem(one, "probe.modes")) == ("", "")
    assert one.settings == Settings(batch=8, probe={"modes": 3})
    one.enter("tilt.y", "90 °", "mrad")
    assert "expected less than 1.5 [rad]" in problem(one, "tilt.y"), "in the unit of the settings"


def test_what_can_not_go_together_is_told_at_the_top(form):
    one = form()
    one.enter("slices.count", "4")
    assert "slices.thickness is missing; give the distance of two slices [m]" in one.invalid
    assert "Slice distance. slices.count is 4" in one.invalid
    assert problem(one, "slices.thickness") == "a value is needed"
    assert problem(one, "slices.count") == "see the message above"
    assert one.settings == Settings()
    one.enter("slices.thickness", "2", "nm")
    assert (one.invalid, one.settings.slices.thickness) == ("", 2e-9)
    edit(one, {"positions.start_epoch": "5", "positions.end_epoch": "4"})
    assert "positions: its end_epoch is 4 and its start_epoch 5" in one.invalid


def test_all_that_holds_edits_back_is_named_at_the_top_also_while_it_runs(live):
    one, recon, _ = live
    one.enter("probe.learning_rate", "fast")
    one.add("constraints", "gaussian_blur")
    (entry,) = entries_of(one, "constraints")
    one.enter(f"{entry}.sigma", "-1")
    edit(one, {"object.learning_rate": "0.5"})
    assert recon.assigned == 0
    assert one.invalid.endswith("corrected: Probe learning rate, Gaussian blur: Standard deviation.")
    one.enter("probe.learning_rate", "0.2")
    do(one.remove, entry)
    assert one.invalid == ""
    assert recon.settings == Settings(object={"learning_rate": 0.5}, probe={"learning_rate": 0.2})


def test_an_emptied_field_is_none_or_its_default_and_is_shown_again(form):
    one = form(Settings(detector={"saturation": 100.0}))
    one.enter("batch", "")
    assert (one.settings.batch, one.values["batch"], one.revisions["batch"]) == (16, "16", 1)
    one.enter("detector.saturation", "none")
    assert one.settings.detector.saturation is None
    one.enter("batch", "no number")
    one.settings = Settings(batch=5, loss="poisson")
    assert (one.values["batch"], one.values["loss"], one.problems) == ("5", "poisson", {})


def test_a_default_that_follows_from_another_choice_is_followed(form):
    one = form()
    one.enter("optimiser", "rpie")
    assert (one.settings, one.values["object.learning_rate"]) == (Settings(optimiser="rpie"), "1")
    one.enter("object.learning_rate", "0.3")
    assert one.marks["object.learning_rate"] == {"was": "1"}
    edit(one, {"probe.learning_rate": "0", "optimiser": "adam"})
    assert (one.settings.object.learning_rate, one.settings.probe.learning_rate) == (0.1, 0.0), "as Settings.replace"


# Units


TYPED = [
    ("slices.thickness", "3", "nm", 3e-9), ("slices.thickness", "1.5 µm", "nm", 1.5e-6),
    ("slices.thickness", "1.5um", "nm", 1.5e-6), ("slices.thickness", "2e-9 m", "µm", 2e-9),
    ("slices.thickness", "3 pounds", "nm", "3 pounds"), ("slices.thickness", " none ", "nm", None),
    ("slices.thickness", "1e9999999", "nm", "1e9999999"), ("tilt.x", "2", "mrad", 2e-3),
    ("tilt.x", "1 deg", "mrad", 0.017453292519943295), ("batch", "7", "", 7), ("batch", "7.5", "", 7.5),
    ("batch", "9" * 5000, "", "9" * 5000), ("probe.learning_rate", "1e-3", "", 1e-3),
    ("probe.learning_rate", "fast", "", "fast"), ("probe.learning_rate", "9" * 5000, "", "9" * 5000),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "unit", "expected"), TYPED, ids=lambda value: f"{value!s:.20}")
def test_what_is_typed_is_read_in_its_unit(name, text, unit, expected):
    found = value_of(text, structure().setting(name), unit)
    assert found == expected
    assert type(found) is type(expected)


def test_units_are_chosen_to_read_easily_and_ranges_follow(form):
    thickness, tilt = structure().setting("slices.thickness"), structure().setting("tilt.y")
    assert fitting_unit(thickness, None) == "nm"
    assert fitting_unit(thickness, 3e-6) == "µm"
    assert form(Settings(slices={"thickness": 3e-6})).values["slices.thickness"] == {
        "texts": ["3000", "3", "0.003", "3e-06"], "fit": 1
    }  # fmt: skip
    assert range_of(tilt, "mrad") == "above -1500, below 1500"
    assert range_of(structure().setting("seed"), "") == "at least 0", "other limits are technical"
    for value in (1e-9, 2.5e-9, 1.23456789012e-7):
        assert Decimal(value_of(text_of(value, thickness, "nm"), thickness, "nm")) == Decimal(value)


# Others are told


def test_valid_changes_are_told_with_the_line_that_does_the_same(form):
    heard, lines = [], []
    one = form(tell=lines.append)
    one.on_change(heard.append)
    rates = {"learning_rate": 0.01}
    edits = "probe.modes 3, probe.modes 300, probe.modes 4, optimiser rpie, object.learning_rate 0.01, optimiser adam"
    for edit in edits.split(", "):
        do(one.enter, *edit.split())
    four = Settings(probe={"modes": 4})
    expected = [Settings(probe={"modes": 3}), four, four.replace(optimiser="rpie")]
    assert heard == [*expected, four.replace(optimiser="rpie", object=rates), four]
    assert done_by(lines, settings=Settings())["settings"] == one.settings


def test_an_error_of_a_listener_is_shown(form):
    one = form()
    one.on_change(lambda settings: settings.nothing)
    edit(one, {"batch": "8"})
    assert "'Settings' object has no attribute 'nothing'" in one.message


# Files and presets


def test_settings_go_through_a_file_and_entries_switched_off_stay_in_the_form(form, tmp_path):
    lines: list[str] = []
    given = Settings(constraints=[{"kind": "gaussian_blur", "sigma": 2.0}, {"kind": "fixed_probe_power"}])
    one = form(given, tell=lines.append)
    one.switch_entry(entries_of(one, "constraints")[0], False)
    one.enter("slices.thickness", "3 nm")
    one.file = str(tmp_path / "mine.yaml")
    do(one.save)
    saved = Settings.from_yaml(tmp_path / "mine.yaml")
    assert saved == one.settings
    assert [constraint.kind for constraint in saved.constraints] == ["fixed_probe_power"]
    one.settings = Settings()
    do(one.load)
    assert one.settings == saved
    shown = [(entry["kind"], entry["on"]) for entry in one.entries["constraints"]]
    assert shown == [("fixed_probe_power", True), ("gaussian_blur", False)]
    assert f"Path({str(tmp_path / 'mine.yaml')!r}).write_text(settings.to_yaml())" in lines
    assert lines[-1] == f"settings = pt.Settings.from_yaml(Path({str(tmp_path / 'mine.yaml')!r}))"


@pytest.mark.parametrize(
    ("text", "words"), [(None, "Save one first or enter"), ("batch: 0", "batch is 0"), ("bach: 3", "no setting 'bach'")]
)
def test_a_file_that_can_not_be_used_is_told_and_changes_nothing(form, tmp_path, text, words):
    one = form(Settings(batch=8))
    one.file = str(tmp_path / "settings.yaml")
    if text is not None:
        (tmp_path / "settings.yaml").write_text(text)
    do(one.load)
    assert words in one.message
    assert one.settings == Settings(batch=8)
    one.save()
    do(one.load)
    assert one.message == ""
    assert one.source["name"] == "file settings.yaml"


def test_a_preset_replaces_what_is_there_and_fields_say_why(form):
    lines: list[str] = []
    one = form(Settings(batch=3), tell=lines.append)
    assert (one.source["name"], one.source["changed"]) == ("defaults", True)
    do(one.choose, "thin X-ray")
    assert one.settings == preset("thin X-ray")
    assert lines == ["settings = pt.preset('thin X-ray')"]
    assert "fast convergence" in one.source["about"]
    assert one.source["title"] == "preset thin X-ray"
    assert "three contain nearly all power" in one.source["reasons"]["probe.modes"]
    assert "probe.modes" not in one.marks
    one.enter("probe.modes", "4")
    assert (one.source["changed"], one.marks["probe.modes"]) == (True, {"was": "3"})
    assert one.groups["probe"] == {"on": None, "summary": "modes 4", "changed": 1}
    one.reset("probe.modes")
    assert (one.source["changed"], one.values["probe.modes"]) == (False, "3")
    one.enter("probe.modes", "none at all")
    assert one.source["changed"]
    do(one.choose, "thin X-ray")
    assert (one.source["changed"], one.problems, one.settings) == (False, {}, preset("thin X-ray"))
    do(one.choose, "defaults")
    assert (one.settings, lines[-1]) == (Settings(), "settings = pt.Settings()")
    one.settings = preset("low dose")
    assert one.source["name"] == "low dose", "whoever has set them"
    assert form(preset("near field")).source["name"] == "near field"


def test_a_preset_is_that_of_the_present_scan(form):
    one = form(scan=range(400))
    do(one.choose, "near field")
    assert one.settings == preset("near field", range(400))
    one.scan = range(8)
    assert (one.source["name"], one.source["changed"]) == ("near field", True)
    assert one.marks["batch"] == {"was": "2"}
    do(one.choose, "defaults")
    one.scan = range(9)
    one.enter("optimiser", "rpie")
    assert "object.learning_rate" not in one.marks, "it follows from the optimiser"


def test_what_was_taken_from_elsewhere_is_offered_with_its_reasons(form):
    lines: list[str] = []
    one = form(tell=lines.append)
    found, reasons = Settings(positions={"learning_rate": 0.1}), {"positions.learning_rate": "not those of the file"}
    do(one.take, Source("recommended", "recommended", found, "recommended.settings", "for scan", reasons))
    assert (one.settings, one.source["name"], one.source["reasons"]) == (found, "recommended", reasons)
    for name in ("defaults", "recommended"):
        assert name in one.sources
        do(one.choose, name)
    assert one.settings == found
    assert lines == ["settings = recommended.settings", "settings = pt.Settings()", "settings = recommended.settings"]


@pytest.mark.parametrize("part", SWITCHES)
def test_a_part_is_switched_on_and_off(form, part):
    off = {"aberrations": {"probe.learning_rate": 0.0}, "schedule": {"schedule.kind": "constant"}}
    start = Settings(**nested((off | {"tilt": SLICES}).get(part, {})))
    one = form(start)
    assert one.groups[part]["on"] is False
    assert one.groups[part]["summary"].startswith("off · ")
    one.switch(part, True)
    if part == "slices":
        assert "slices.thickness" in one.problems, "no value is a good guess"
        one.enter("slices.thickness", "2", "nm")
    elif part == "positions":
        assert one.groups["positions"]["summary"] == "learning rate 0.1 object pixels"
        one.enter("positions.learning_rate", "0.3")
    assert (one.problems, one.groups[part]["on"]) == ({}, True)
    assert one.settings.differences(start)
    as_it_was = one.settings
    one.switch(part, False)
    assert one.settings == start
    one.switch(part, True)
    assert one.settings == as_it_was


# Ranges


def test_ticked_fields_have_ranges(form):
    one, heard = form(ticks=True), []
    one.on_ranges(lambda: heard.append(len(one.tuned)))
    assert one.ranges() == {}
    one.tune("object.learning_rate")
    assert one.ranges() == {"object.learning_rate": (0.01, 1.0, True)}
    one.tune("probe.modes")
    one.set_range("probe.modes", low="1", high="4")
    one.tune("loss")
    assert one.tuned["loss"]["chosen"] == [one.settings.loss]
    one.set_range("loss", chosen=["amplitude", "poisson"])
    one.tune("slices.thickness")
    one.set_range("slices.thickness", low="1 nm", unit="µm")
    one.set_range("slices.thickness", high="4", unit="nm")
    ranges = one.ranges()
    assert ranges["probe.modes"] == (1, 4, False)
    assert ranges["loss"] == ("amplitude", "poisson")
    assert ranges["slices.thickness"] == (1e-9, 4e-9, False)
    assert one.groups["Algorithm"]["summary"] == "1 tuned"
    one.tune("object.learning_rate", False)
    assert "object.learning_rate" not in one.ranges()
    one.set_range("object.learning_rate", logarithmic=False)
    one.tune("object.learning_rate")
    assert one.ranges()["object.learning_rate"] == (0.01, 1.0, False), "what was entered stays"
    one.settle()
    assert heard[-1] == 4


def test_a_range_stays_what_it_is_in_another_unit(form):
    one = form(ticks=True)
    one.tune("slices.thickness")
    one.set_range("slices.thickness", low="100", high="2 µm", unit="nm")
    assert one.tuned["slices.thickness"]["low"][:2] == ["100", "0.1"]
    assert one.tuned["slices.thickness"]["high"][:2] == ["2 µm", "2"]
    assert one.ranges() == {"slices.thickness": (1e-7, 2e-6, False)}
    one.set_range("slices.thickness", high="some", unit="µm")
    assert one.tuned["slices.thickness"]["high"] == ["some"] * 4
    one.set_range("slices.thickness", high="300", unit="nm")
    assert one.ranges() == {"slices.thickness": (1e-7, 3e-7, False)}


BAD_RANGES = [
    ("probe.modes", {"low": "0", "high": "4"}, "greater than or equal to 1"),
    ("probe.modes", {"low": "4", "high": "2"}, "lowest value is 4 and the highest 2"),
    ("probe.modes", {"low": "few", "high": "2"}, "not a number"),
    ("slices.count", {"low": "1", "high": "4"}, "slices.thickness is missing"),
    ("tilt.x", {"low": "-1", "high": "4", "logarithmic": True}, "above 0 for a logarithmic range"),
    ("loss", {"chosen": []}, "no value is selected"),
]


@pytest.mark.parametrize(("name", "entered", "words"), BAD_RANGES)
def test_a_range_that_can_not_be_used_is_told_at_its_field(form, name, entered, words):
    one = form(ticks=True)
    one.tune(name)
    one.set_range(name, **entered)
    assert words in one.tuned[name]["problem"]
    with raises("tuning.invalid-range", words):
        one.ranges()


# While it runs


@pytest.mark.parametrize("given", [{"live": True}, {"recon": Steered()}], ids=["live alone", "recon alone"])
def test_a_live_form_has_both_or_neither_as_the_message_says(form, given):
    with raises("argument.conflict", "live", "recon"):
        SettingsForm(**given)
    assert form(live=True, recon=Steered()).settings == form().settings == Settings()


def test_the_form_says_what_can_be_changed_while_it_runs(live):
    assert live[0].mode == "live"
    fields = {name for name, field in fields_of(live[0]).items() if field.get("live")}
    assert fields == {name for name in ALL if Settings.is_live(name)}


def test_a_change_is_applied_to_what_runs_and_told(live):
    one, recon, lines = live
    edit(one, {"probe.learning_rate": "0.002"})
    one.add("constraints", "gaussian_blur")
    do(one.enter, f"{entries_of(one, 'constraints')[0]}.sigma", "0.5")
    blur = {"kind": "gaussian_blur", "sigma": 0.5}
    assert recon.settings == Settings(probe={"learning_rate": 0.002}, constraints=[blur])
    assert done_by(lines, recon=Steered())["recon"].settings == recon.settings


NOTHING: dict[str, Any] = {"changes": [], "problem": ""}


def test_what_engines_have_to_be_held_for_waits_for_apply(live):
    one, recon, lines = live
    assert one.waiting == NOTHING
    edit(one, {"probe.modes": "3", "probe.learning_rate": "0.002"})
    assert recon.settings == Settings(probe={"learning_rate": 0.002}), "only what may change while it runs"
    assert one.waiting == {"changes": [["Probe modes", "1 → 3"]], "problem": ""}
    recon.settings = recon.settings.replace(object={"learning_rate": 0.5})
    do(one.refresh)
    assert one.values["probe.modes"] == "3", "what waits is not lost to a change from elsewhere"
    do(one.apply)
    assert recon.settings == Settings(probe={"learning_rate": 0.002, "modes": 3}, object={"learning_rate": 0.5})
    assert (recon.restructured, one.waiting) == (1, NOTHING)
    assert lines[-1] == "recon.reconfigure(recon.settings.replace(probe={'modes': 3}))"
    one.enter("batch", "8")
    do(one.discard)
    assert (one.values["batch"], recon.settings.batch, one.waiting) == ("16", 16, NOTHING)
    edit(one, {"precision": "double"})
    assert one.waiting["problem"] == "precision can't change; make another."
    edit(one, {"precision": "single"})
    assert one.waiting == NOTHING


def test_a_live_change_for_which_the_object_has_to_be_enlarged_waits_for_apply(live):
    one, recon, _ = live
    recon.refuse = "the object has a margin of 4 pixels; reconfigure(settings) enlarges it."
    edit(one, {"positions.learning_rate": "0.1"})
    assert recon.settings == Settings()
    assert one.values["positions.learning_rate"] == "0.1"
    assert one.waiting["changes"] == [["Position learning rate", "0 object pixels → 0.1 object pixels"]]
    do(one.apply)
    assert recon.settings == Settings(positions={"learning_rate": 0.1})
    assert one.waiting["changes"] == []


def test_an_answer_that_comes_after_discard_shows_nothing(live):
    one, recon, _ = live
    asked, answer = threading.Event(), threading.Event()
    recon.reconfigure_error = lambda settings: asked.set() or (answer.wait(30) and "too late")
    one.enter("batch", "8")
    assert asked.wait(30)
    one.discard()
    answer.set()
    one.settle()
    assert one.waiting == NOTHING


def test_a_file_for_another_reconstruction_is_not_applied_in_parts_that_can_not_be(live, tmp_path):
    one, recon, lines = live
    (tmp_path / "other.yaml").write_text("precision: double\nprobe: {learning_rate: 0.002}")
    one.file = str(tmp_path / "other.yaml")
    do(one.load)
    assert recon.settings == Settings(probe={"learning_rate": 0.002})
    assert lines == ["recon.settings = recon.settings.replace(probe={'learning_rate': 0.002})"]
    assert "make another" in one.waiting["problem"]
    one.discard()
    assert one.values["precision"] == "single"


def test_what_needs_something_that_waits_waits_with_it(live):
    one, recon, _ = live
    edit(one, {"slices.count": "2", "slices.thickness": "2 nm", "slices.learning_rate": "0.1"})
    assert recon.settings == Settings()
    do(one.apply)
    assert recon.settings == Settings(slices={"count": 2, "thickness": 2e-9, "learning_rate": 0.1})


def test_a_part_is_frozen_and_freed_at_the_rate_it_had(live):
    one, recon, _ = live
    one.enter("probe.learning_rate", "0.004")
    assert one.frozen["probe.learning_rate"] == {"on": False, "rate": 0.0}
    for expected in (0.0, 0.004):
        do(one.freeze, "probe.learning_rate")
        assert recon.settings.probe.learning_rate == expected
    assert one.frozen["positions.learning_rate"] == {"on": True, "rate": 0.0}, "it never had a rate"


def test_the_form_follows_what_python_changes_and_keeps_what_is_being_typed(form):
    recon, heard = Steered(), []
    one = form(live=True, recon=recon)
    one.on_change(heard.append)
    one.enter("object.learning_rate", "-1")
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.5})
    until(lambda: one.values["probe.learning_rate"] == "0.5")
    assert one.values["object.learning_rate"] == "-1"
    edit(one, {"object.learning_rate": "0.1"})
    assert recon.settings == Settings(object={"learning_rate": 0.1}, probe={"learning_rate": 0.5})
    assert heard[-1] == recon.settings


def test_what_can_not_be_followed_is_told_and_the_form_goes_on(live):
    one, recon, _ = live
    recon.silent = "The engines do not answer."
    until(lambda: one.message == "The engines do not answer.")
    recon.silent = ""
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.5})
    until(lambda: one.settings == recon.settings and one.message == "")


def test_a_refused_change_is_told_and_the_form_shows_what_holds(live):
    one, recon, _ = live
    recon.refuse = "An engine is gone; recover() first."
    edit(one, {"probe.learning_rate": "0.002"})
    assert one.message == "An engine is gone; recover() first."
    assert (one.values["probe.learning_rate"], one.settings) == ("0.1", Settings())


# In a browser


def test_the_form_is_accessible_and_driven_by_keys(form, page: Page) -> None:
    one = form(preset("thin X-ray").replace(constraints=[{"kind": "gaussian_blur", "sigma": 2.0}]), ticks=True)
    one.tune("batch")
    one.tune("loss")
    model = BrowserModel(page, one)
    modes = page.get_by_label("Probe modes", exact=True)
    modes.fill("many")
    modes.press("Enter")
    model.collect()
    expect(page.locator(".ptynb-row-problem")).to_contain_text("valid integer")
    expect(modes).to_be_focused()
    page.get_by_title("Slices: all settings").press("Enter")
    page.get_by_label("Unit of Slice distance").select_option("µm")
    page.get_by_label("Slice distance", exact=True).fill("2")
    page.get_by_label("Slice distance", exact=True).press("Enter")
    page.get_by_label("Poisson").press("Space")
    model.collect()
    assert one.values["slices.thickness"]["texts"][0] == "2000"
    assert one.tuned["loss"]["chosen"] == ["auto", "poisson"]
    assert violations(page, ".ptynb-settings-form", "form") == []
    model.close()


def test_what_is_said_of_a_field_moves_nothing_under_the_mouse(form, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})  # in which descriptions take several lines
    one = form()
    model = BrowserModel(page, one)
    rate, below = page.get_by_label("Object learning rate", exact=True), page.get_by_label("Slices", exact=True)
    about = page.locator(".ptynb-row", has=rate).locator(".ptynb-clip")
    height, place = about.bounding_box()["height"], below.bounding_box()["y"]
    rate.fill("0.2")
    assert about.bounding_box()["height"] > 1.5 * height
    assert below.bounding_box()["y"] == place
    below.click()
    model.collect()
    assert (one.values["slices.count"], one.values["object.learning_rate"]) == ("2", "0.2")
    model.close()


def test_the_form_of_a_run_is_accessible_and_what_was_changed_is_first(form, page: Page) -> None:
    one = form(live=True, recon=Steered())
    model = BrowserModel(page, one)
    one.enter("precision", "double")
    do(one.add, "constraints", "gaussian_blur")
    page.get_by_title("Constraints: all settings").click()
    model.collect()
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    computing, detector = (page.locator(".ptynb-group", has_text=text).first for text in ("Computing", "Detector"))
    assert computing.bounding_box()["y"] < detector.bounding_box()["y"]
    assert violations(page, ".ptynb-settings-form", "form-live") == []
    model.close()
