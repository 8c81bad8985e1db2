"""The form: every field of the settings is in it, each edit arrives, wrong ones are told where they are."""

from __future__ import annotations

import re
import threading
import time
from decimal import Decimal
from typing import Any

import pytest

from ptynb.exceptions import SettingsError
from ptynb.settings import Settings
from ptynb.settings.base_models import flat
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.presets import preset
from ptynb.settings.schema import nested, structure
from ptynb.widgets import elements
from ptynb.widgets.elements import below
from ptynb.widgets.form import SettingsForm
from ptynb.widgets.form.field_row import Row, fitting_unit, range_of, text_of, value_of
from ptynb.widgets.form.field_search import choice_label
from ptynb.widgets.form.part_switches import SWITCHES
from ptynb.widgets.form.settings_sources import Source
from tests.raising import raises

ALL = [setting.name for setting in structure().settings]
# What a value needs beside it to be valid.
TOGETHER: dict[str, dict[str, Any]] = {
    "slices.count": {"slices.thickness": 1e-9},
    "slices.learning_rate": {"slices.count": 2, "slices.thickness": 1e-9},
    "tilt.learning_rate": {"slices.count": 2, "slices.thickness": 1e-9},
    "descan.learning_rate": {"descan.start": "zero"},
    "momentum": {"optimiser": "sgd"},
    "gradient_accumulation": {"batch": 4096},
    "aberrations.order": {"probe.learning_rate": 0.0},
}


class Steered:
    """A reconstruction's settings, as a form knows them; refuses what it is told to."""

    def __init__(self) -> None:
        self._settings, self.closed = Settings(), False
        self.assigned: list[Settings] = []
        self.refuse = ""

    @property
    def settings(self) -> Settings:
        return self._settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        if self.refuse:
            raise SettingsError(self.refuse, code="settings.not-live" if "reconfigure" in self.refuse else "")
        self.assigned.append(settings)
        self._settings = settings


class Restructured(Steered):
    """One that can begin anew with other settings, but for the precision."""

    restructured = 0

    def reconfigure_error(self, settings: Settings) -> str | None:
        return "precision can't change; make another." if settings.precision == "double" else None

    def reconfigure(self, settings: Settings) -> None:
        if sentence := self.reconfigure_error(settings):
            raise RuntimeError(sentence)
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
    if setting.kind == "switch":
        return not setting.default
    if setting.kind == "integer":
        return (setting.default or 1) + 1
    low, high = (0 if setting.low is None else setting.low), (1 if setting.high is None else setting.high)
    return 0.25 * low + 0.75 * high if setting.default != 0.25 * low + 0.75 * high else 0.5 * (low + high)


def write(row: Row, value: Any) -> None:
    """As a user does: text in the unit shown, a choice, a tick."""
    row.input.value = text_of(value, row.setting, row.shown_unit) if row.setting.numeric else value


def value_in(settings: Settings, name: str) -> Any:
    return dict(flat(settings.model_dump()))[name]


def shown(form: SettingsForm) -> set[elements.Element]:
    """All widgets in the form, pages of the accordion included."""
    return set(below(form))


# Every field


def test_every_field_is_in_the_form_once_with_label_help_and_range(form):
    one = form()
    one.groups.make_all()
    rows = [widget for widget in shown(one) if isinstance(widget, Row)]
    assert sorted(row.setting.name for row in rows) == sorted(ALL)
    for name in ALL:
        row = one.rows[name]
        assert row.input.description
        assert row.input.tooltip == row.setting.description
    assert len({row.input.description for row in rows}) == len(ALL), "labels tell them apart"
    assert set(one.editors) == {"constraints", "regularizers"}
    assert "1 to 64" in one.row("probe.modes").about.value
    assert "Number of incoherent probe modes" in one.row("probe.modes").about.value
    assert "above 0" in one.row("slices.thickness").about.value
    assert "object pixels" in one.row("positions.max_shift").about.value


def test_no_label_is_the_name_of_a_field(form):
    one = form()
    one.groups.make_all()
    names = {name.rpartition(".")[2] for name in ALL}
    labels = [row.input.description for row in one.rows.values()]
    labels += [label for row in one.rows.values() if row.setting.kind == "choice" for label, _ in row.input.options]
    labels += [group.part.title for group in one.groups.groups.values()]
    for entries in structure().lists:
        for kind in entries.kinds:
            labels += [kind.title, *(setting.title for setting in kind.settings)]
            labels += [choice_label(choice) for setting in kind.settings for choice in setting.choices]
    labels += [field.title for field in LoadOptions.model_fields.values()]
    assert [label for label in labels if re.search("[_`]", label) or not label] == []
    assert [label for label in labels if label in names and "_" in label] == []
    for label in ("Number of slices", "Slice distance", "Detector point spread", "Position learning rate"):
        assert label in labels
    texts = [row.about.value for row in one.rows.values()]
    assert [text for text in texts if re.search(r"`|1000000|\de[+-]?\d", text)] == []


def test_a_part_that_is_off_takes_one_line_and_the_rest_is_made_on_demand(form):
    one = form()
    assert set(one.rows) == {
        "loss", "optimiser", "batch", "object.learning_rate", "probe.modes", "probe.learning_rate",
        "schedule.kind", "schedule.epochs", "schedule.end_factor",
    }  # fmt: skip
    group = one.groups.groups["positions"]
    _, first, more = group.children
    assert (group.switch.value, first.layout.display, more.layout.display) == (False, "none", "none")
    assert "off · Refinement of the scan positions" in group.summary.value
    group.switch.value = True
    assert one.settings == Settings(positions={"learning_rate": 0.1})
    assert (first.layout.display, more.layout.display) == (None, "none")
    assert one.rows["positions.learning_rate"] in first.children
    assert "learning rate 0.1 object pixels" in group.summary.value
    group.unfold()
    assert more.layout.display is None
    assert "positions.search_trials" in one.rows
    one.row("positions.learning_rate").input.value = "0.3"
    group.switch.value = False
    assert one.settings == Settings()
    group.switch.value = True
    assert one.settings.positions.learning_rate == 0.3, "as it was"
    one.groups.groups["detector"].fold.value = True
    assert {"detector.psf_sigma", "detector.oversampling", "detector.saturation"} <= one.rows.keys()
    assert "object.parametrization" not in one.rows


@pytest.mark.parametrize("name", ALL)
def test_an_edit_of_each_field_arrives_and_can_be_taken_back(shared, name):
    beside = TOGETHER.get(name, {})
    one, start, value = shared, Settings(**nested(beside)), another(structure().setting(name))
    one.settings = start
    before, row = value_in(start, name), one.row(name)
    assert row.reset.layout.visibility == ("visible" if name in beside else "hidden")
    write(row, value)
    expected = Settings(**nested({**beside, name: value}))
    assert one.problems == {}
    assert one.settings == expected
    assert value_in(one.settings, name) == value
    assert "● changed" in row.about.value
    assert row.reset.layout.visibility == "visible"
    row.reset.click()
    assert value_in(one.settings, name) == before
    assert "● changed" not in row.about.value


@pytest.mark.parametrize("name", ALL)
def test_each_value_survives_being_shown(shared, name):
    setting = structure().setting(name)
    settings = Settings(**nested({**TOGETHER.get(name, {}), name: another(setting)}))
    shared.settings = settings
    row = shared.row(name)
    if setting.numeric:
        for unit in [row.shown_unit] if row.unit is None else row.unit.options:
            if row.unit is not None:
                row.unit.value = unit
            found = value_of(row.input.value, setting, unit)
            assert found == pytest.approx(value_in(settings, name), rel=1e-11)
    assert shared.settings is settings, "looking changes nothing"


@pytest.mark.parametrize("entries", structure().lists, ids=lambda entries: entries.name)
def test_entries_of_every_kind_are_added_filled_switched_moved_and_removed(shared, entries):
    one, deep = shared, {"slices": {"count": 2, "thickness": 1e-9}, "object": {"modes": 2}}
    for kind in entries.kinds:
        one.settings = Settings(**deep)
        editor = one.editor(entries.name)
        editor.kind.value = kind.kind
        editor.add.click()
        (panel,) = editor.panels.values()
        assert panel.on.description == kind.title
        missing = [setting for setting in kind.settings if setting.required]
        for setting in missing:
            assert "a value is needed" in panel.rows[setting.name].about.value
        for setting in kind.settings:
            if setting.required or setting.name not in ("end_epoch", "low", "high"):
                write(panel.rows[setting.name], another(setting))
        assert one.problems == {}
        (made,) = getattr(one.settings, entries.name)
        assert made.kind == kind.kind
        for setting in kind.settings:
            if setting.required or setting.name not in ("end_epoch", "low", "high"):
                assert getattr(made, setting.name) == another(setting)
        panel.on.value = False
        assert getattr(one.settings, entries.name) == ()
        panel.on.value = True
        assert getattr(one.settings, entries.name) == (made,)
        panel.remove.click()
        assert getattr(one.settings, entries.name) == ()
        assert not editor.panels


def test_the_order_of_entries_is_that_of_the_settings(form):
    one = form(Settings(constraints=[{"kind": "gaussian_blur", "sigma": 1.0}, {"kind": "fixed_probe_power"}]))
    panels = [*one.editor("constraints").panels.values()]
    panels[1].up.click()
    assert [constraint.kind for constraint in one.settings.constraints] == ["fixed_probe_power", "gaussian_blur"]
    assert "<b>● 2 changed</b> Fixed probe power, Gaussian blur" in one.groups.groups["constraints"].summary.value
    assert one.groups.groups["regularizers"].summary.value.endswith(">none</div>")


# What is wrong


def test_a_wrong_value_is_told_at_its_field_and_the_settings_stay(form):
    one = form()
    for text, words in [
        ("0", "greater than or equal to 1"),
        ("2.5", "valid integer"),
        ("many", "valid integer"),
        ("65", "less than or equal to 64"),
    ]:
        row = one.row("probe.modes")
        row.input.value = text
        assert words in row.about.value
        assert 'role="alert"' in row.about.value
        assert row.input.value == text, "what was typed stays to be mended"
        assert one.settings == Settings()
        assert words in one.problems["probe.modes"]
    one.row("batch").input.value = "8"
    assert one.settings == Settings(), "one wrong value holds the rest back"
    assert "Edits are applied after this is corrected: Probe modes.<" in one._message.value
    one.row("probe.modes").input.value = "3"
    assert one._message.value == ""
    assert one.settings == Settings(batch=8, probe={"modes": 3})
    assert "alert" not in one.row("probe.modes").about.value


def test_an_error_in_another_unit_names_the_settings_own(form):
    one = form()
    one.row("tilt.y").input.value = "90 °"
    assert "expected less than 1.5 [rad]" in one.row("tilt.y").about.value


def test_what_can_not_go_together_is_told_at_the_top(form):
    one = form()
    one.row("slices.count").input.value = "4"
    assert "slices.thickness is missing; give the distance of two slices [m]" in one._message.value
    assert "Slice distance. slices.count is 4" in one._message.value
    assert "a value is needed" in one.row("slices.thickness").about.value
    assert "see the message above" in one.row("slices.count").about.value
    assert 'role="alert"' in one._message.value
    assert one.settings == Settings()
    one.row("slices.thickness").input.value = "2"
    assert one._message.value == ""
    assert one.settings.slices.thickness == 2e-9
    one.row("positions.start_epoch").input.value = "5"
    one.row("positions.end_epoch").input.value = "4"
    assert "positions: its end_epoch is 4 and its start_epoch 5" in one._message.value


def test_all_that_holds_edits_back_is_named_at_the_top_also_while_it_runs(form):
    recon = Steered()
    one = form(live=True, recon=recon)
    one.row("probe.learning_rate").input.value = "fast"
    editor = one.editor("constraints")
    editor.kind.value = "gaussian_blur"
    editor.add.click()
    (panel,) = editor.panels.values()
    panel.rows["sigma"].input.value = "-1"
    one.row("object.learning_rate").input.value = "0.5"
    one.settle()
    assert recon.assigned == []
    assert "after this is corrected: Probe learning rate, Gaussian blur: Standard deviation.<" in one._message.value
    one.row("probe.learning_rate").input.value = "0.2"
    editor.panels[panel.entry].remove.click()
    one.settle()
    assert one._message.value == ""
    assert recon.settings == Settings(object={"learning_rate": 0.5}, probe={"learning_rate": 0.2})


def test_an_emptied_field_is_none_or_its_default(form):
    one = form(Settings(batch=8, detector={"saturation": 100.0}))
    one.row("batch").input.value = ""
    assert one.settings.batch == 16
    assert one.row("batch").input.value == "16"
    one.row("detector.saturation").input.value = "none"
    assert one.settings.detector.saturation is None


def test_a_default_that_follows_from_another_choice_is_followed(form):
    one = form()
    one.row("optimiser").input.value = "rpie"
    assert one.settings == Settings(optimiser="rpie")
    assert one.row("object.learning_rate").input.value == "1"
    one.row("object.learning_rate").input.value = "0.3"
    assert "(default: 1)" in one.row("object.learning_rate").about.value
    one.row("probe.learning_rate").input.value = "0"
    one.row("optimiser").input.value = "adam"
    assert (one.settings.object.learning_rate, one.settings.probe.learning_rate) == (0.1, 0.0), "as Settings.replace"


# Units


@pytest.mark.parametrize(
    ("name", "text", "unit", "expected"),
    [
        ("slices.thickness", "3", "nm", 3e-9),
        ("slices.thickness", "1.5 µm", "nm", 1.5e-6),
        ("slices.thickness", "1.5um", "nm", 1.5e-6),
        ("slices.thickness", "2e-9 m", "µm", 2e-9),
        ("slices.thickness", "3 pounds", "nm", "3 pounds"),
        ("tilt.x", "2", "mrad", 2e-3),
        ("tilt.x", "1 deg", "mrad", 0.017453292519943295),
        ("batch", "7", "", 7),
        ("batch", "7.5", "", 7.5),
        ("probe.learning_rate", "1e-3", "", 1e-3),
        ("probe.learning_rate", "fast", "", "fast"),
        ("slices.thickness", " none ", "nm", None),
        ("slices.thickness", "1e9999999", "nm", "1e9999999"),
        ("batch", "9" * 5000, "", "9" * 5000),
        ("probe.learning_rate", "9" * 5000, "", "9" * 5000),
    ],
    ids=lambda value: f"{value!s:.20}",
)
def test_what_is_typed_is_read_in_its_unit(name, text, unit, expected):
    found = value_of(text, structure().setting(name), unit)
    assert found == expected
    assert type(found) is type(expected)


def test_units_are_chosen_to_read_easily_and_ranges_follow():
    thickness, tilt = structure().setting("slices.thickness"), structure().setting("tilt.y")
    assert fitting_unit(thickness, None) == "nm"
    assert fitting_unit(thickness, 3e-6) == "µm"
    assert text_of(3e-6, thickness, "µm") == "3"
    assert range_of(tilt, "mrad") == "above -1500, below 1500"
    assert range_of(structure().setting("seed"), "") == "at least 0", "other limits are technical"
    for value in (1e-9, 2.5e-9, 1.23456789012e-7):
        assert Decimal(value_of(text_of(value, thickness, "nm"), thickness, "nm")) == Decimal(value)


# Others are told


def test_valid_changes_are_told_with_the_line_that_does_the_same(form):
    heard, lines = [], []
    one = form(tell=lines.append)
    one.on_change(heard.append)
    one.row("probe.modes").input.value = "3"
    one.row("probe.modes").input.value = "300"
    one.row("probe.modes").input.value = "4"
    one.row("optimiser").input.value = "rpie"
    one.row("object.learning_rate").input.value = "0.01"
    one.row("optimiser").input.value = "adam"
    one.settle()
    assert heard == [
        Settings(probe={"modes": 3}),
        Settings(probe={"modes": 4}),
        Settings(probe={"modes": 4}, optimiser="rpie"),
        Settings(probe={"modes": 4}, optimiser="rpie", object={"learning_rate": 0.01}),
        Settings(probe={"modes": 4}),
    ]
    settings = Settings()
    for line in lines:
        names: dict[str, Any] = {"settings": settings}
        exec(line, names)
        settings = names["settings"]
    assert settings == one.settings


def test_an_error_of_a_listener_is_shown(form):
    one = form()

    def fail(settings: Settings) -> None:
        raise RuntimeError("nobody is there; look again")

    one.on_change(fail)
    one.row("batch").input.value = "8"
    one.settle()
    assert "nobody is there; look again" in one._failure.value


def test_settings_given_to_the_form_are_shown(form):
    one = form()
    one.row("batch").input.value = "no number"
    one.settings = Settings(batch=5, loss="poisson")
    assert one.row("batch").input.value == "5"
    assert one.row("loss").input.value == "poisson"
    assert one.problems == {}


# Files, presets, finding


def test_settings_go_through_a_file_and_entries_switched_off_stay_in_the_form(form, tmp_path):
    lines: list[str] = []
    one = form(
        Settings(constraints=[{"kind": "gaussian_blur", "sigma": 2.0}, {"kind": "fixed_probe_power"}]),
        tell=lines.append,
    )
    next(iter(one.editor("constraints").panels.values())).on.value = False
    one.row("slices.thickness").input.value = "3 nm"
    one.files.name.value = str(tmp_path / "mine.yaml")
    one.files.save.click()
    one.settle()
    saved = Settings.from_yaml(tmp_path / "mine.yaml")
    assert saved == one.settings
    assert [constraint.kind for constraint in saved.constraints] == ["fixed_probe_power"]
    one.settings = Settings()
    one.files.load.click()
    one.settle()
    assert one.settings == saved
    panels = one.editor("constraints").children[1].children
    assert [(panel.entry.kind, panel.on.value) for panel in panels] == [
        ("fixed_probe_power", True),
        ("gaussian_blur", False),
    ]
    assert f"Path({str(tmp_path / 'mine.yaml')!r}).write_text(settings.to_yaml())" in lines
    assert lines[-1] == f"settings = pt.Settings.from_yaml(Path({str(tmp_path / 'mine.yaml')!r}))"


@pytest.mark.parametrize(
    ("text", "words"), [(None, "is not a file"), ("batch: 0", "batch is 0"), ("bach: 3", "no setting 'bach'")]
)
def test_a_file_that_can_not_be_used_is_told_and_changes_nothing(form, tmp_path, text, words):
    path = tmp_path / "settings.yaml"
    if text is not None:
        path.write_text(text)
    one = form(Settings(batch=8))
    one.files.name.value = str(path)
    one.files.load.click()
    one.settle()
    assert words in one._failure.value.replace("&#x27;", "'")
    assert one.settings == Settings(batch=8)


def test_a_file_that_is_not_there_is_saved_first_or_another_is_named_as_the_message_says(form, tmp_path):
    (tmp_path / "other.yaml").write_text(Settings(batch=9).to_yaml())
    one = form(Settings(batch=8))
    for save, name, batch in ((True, "mine.yaml", 8), (False, "other.yaml", 9)):
        one.files.name.value = str(tmp_path / "mine.yaml")
        (tmp_path / "mine.yaml").unlink(missing_ok=True)
        one.files.load.click()
        one.settle()
        assert "Save one first or enter another name." in one._failure.value
        one.files.name.value = str(tmp_path / name)
        if save:
            one.files.save.click()
        one.files.load.click()
        one.settle()
        assert "Save one first" not in one._failure.value
        assert one.settings.batch == batch


CHOICES = {"live alone": {"live": True}, "recon alone": {"recon": Steered()}}


@pytest.mark.parametrize("case", CHOICES)
def test_a_live_form_has_both_or_neither_as_the_message_says(form, case):
    with raises("argument.conflict", "live", "recon"):
        SettingsForm(**CHOICES[case])
    assert form(live=True, recon=Steered()).settings == form().settings == Settings()


def test_the_form_of_a_run_is_folded_and_what_was_changed_is_first(form):
    recon = Steered()
    recon.settings = Settings(positions={"learning_rate": 0.05})
    one = form(live=True, recon=recon)
    groups = one.groups.groups
    shown = {name: [row.setting.name for row in group._fields.children] for name, group in groups.items()}
    assert {name: rows for name, rows in shown.items() if rows} == {"positions": ["positions.learning_rate"]}
    assert [name for name, group in groups.items() if group.layout.order == "-1"] == ["positions"]
    groups["probe"].unfold()
    assert one.row("probe.learning_rate") in groups["probe"]._fields.children
    one.row("probe.learning_rate").input.value = "0.2"
    one.settle()
    groups["probe"].fold.value = False
    assert groups["probe"]._fields.children == (one.row("probe.learning_rate"),)
    assert groups["probe"].layout.order == "-1"


def test_a_preset_replaces_what_is_there(form):
    lines: list[str] = []
    one = form(Settings(batch=3), tell=lines.append)
    one.presets.choice.value = "low dose"
    one.settle()
    assert one.settings == Settings(loss="poisson", optimiser="lbfgs")
    assert one.row("loss").input.value == "poisson"
    assert "likelihood of counts" in one.presets.about.value
    assert lines == ["settings = pt.preset('low dose')"]


def test_the_box_says_which_preset_holds_and_fields_say_why(form):
    lines: list[str] = []
    one = form(tell=lines.append)
    box = one.presets.choice
    assert (box.value, box.label) == ("defaults", "defaults")
    box.value = "thin X-ray"
    one.settle()
    modes = one.row("probe.modes")
    assert box.value == "thin X-ray"
    assert "◆ preset thin X-ray</b>: three contain nearly all power" in modes.about.value
    assert "● changed" not in modes.about.value
    modes.input.value = "4"
    assert (box.label, box.value) == ("thin X-ray, changed", "changed")
    assert "● changed</b> (preset thin X-ray: 3)" in modes.about.value
    assert "<b>● 1 changed</b> modes 4" in one.groups.groups["probe"].summary.value
    modes.reset.click()
    assert (box.value, modes.input.value) == ("thin X-ray", "3")
    modes.input.value = "none at all"
    assert box.value == "changed"
    box.value = "thin X-ray"
    one.settle()
    assert (box.value, one.problems, one.settings) == ("thin X-ray", {}, preset("thin X-ray"))
    box.value = "defaults"
    one.settle()
    assert (one.settings, lines[-1]) == (Settings(), "settings = pt.Settings()")
    one.settings = preset("low dose")
    assert box.value == "low dose", "whoever has set them"
    assert form(preset("near field")).presets.choice.value == "near field"


def test_a_preset_is_that_of_the_present_scan(form):
    one = form(scan=range(400))
    box = one.presets.choice
    box.value = "near field"
    one.settle()
    assert one.settings == preset("near field", range(400))
    one.scan = range(8)
    assert box.label == "near field, changed"
    assert "● changed</b> (preset near field: 2 patterns)" in one.row("batch").about.value
    box.value = "defaults"
    one.settle()
    one.scan = range(9)
    one.row("optimiser").input.value = "rpie"
    assert "● changed" not in one.row("object.learning_rate").about.value, "it follows from the optimiser"


def test_a_file_is_a_source_too(form, tmp_path):
    (tmp_path / "defaults").write_text(Settings(batch=9).to_yaml())
    one = form()
    one.files.name.value = str(tmp_path / "defaults")
    one.files.load.click()
    one.settle()
    assert one.presets.choice.label == "file defaults"
    one.row("batch").input.value = "10"
    assert one.presets.choice.label == "file defaults, changed"
    assert "● changed</b> (file defaults: 9 patterns)" in one.row("batch").about.value


def test_what_was_taken_from_elsewhere_is_offered_with_its_reasons(form):
    lines: list[str] = []
    one = form(tell=lines.append)
    found = Settings(positions={"learning_rate": 0.1})
    reasons = {"positions.learning_rate": "the positions are not those of the file"}
    one.take(Source("recommended", "recommended", found, "recommended.settings", "for scan", reasons))
    one.settle()
    assert (one.settings, one.presets.choice.value) == (found, "recommended")
    assert "◆ recommended</b>: the positions are not those" in one.row("positions.learning_rate").about.value
    one.presets.choice.value = "defaults"
    one.settle()
    one.presets.choice.value = "recommended"
    one.settle()
    assert one.settings == found
    assert lines == ["settings = recommended.settings", "settings = pt.Settings()", "settings = recommended.settings"]


@pytest.mark.parametrize("part", SWITCHES)
def test_a_part_is_switched_on_and_off(form, part):
    needed = {
        "tilt": {"slices.count": 2, "slices.thickness": 1e-9},
        "aberrations": {"probe.learning_rate": 0.0},
        "schedule": {"schedule.kind": "constant"},
    }
    start = Settings(**nested(needed.get(part, {})))
    one = form(start)
    group = one.groups.groups[part]
    assert group.switch.value is False
    group.switch.value = True
    if part == "slices":
        assert "slices.thickness" in one.problems, "no value is a good guess"
        one.row("slices.thickness").input.value = "2"
    assert one.problems == {}
    assert one.settings.differences(start)
    group.switch.value = False
    assert one.settings == start
    assert {*SWITCHES[part].on} <= {setting.name for setting in group.part.settings}


def test_fields_are_found_by_their_words(form):
    one = form()
    one.find.value = "thickness"
    names = [row.setting.name for row in one._found.children if isinstance(row, Row)]
    assert "slices.thickness" in names
    assert "probe.modes" not in names
    assert one.groups.layout.display == "none"
    one.find.value = "denoise"
    assert one._found.children == (one.editor("constraints"),)
    one.find.value = "no such thing"
    (nothing,) = one._found.children
    assert "No setting" in nothing.value
    one.find.value = "no such thing either"
    assert one._found.children == (nothing,), "no widget is made at each key"
    one.find.value = ""
    assert one._found.layout.display == "none"


# Ranges


def test_ticked_fields_have_ranges(form):
    one = form(ticks=True)
    assert one.ranges() == {}
    rate, modes, loss, thick = (
        one.tick(name) for name in ("object.learning_rate", "probe.modes", "loss", "slices.thickness")
    )
    rate.tick.value = True
    assert one.ranges() == {"object.learning_rate": (0.01, 1.0, True)}
    modes.tick.value = True
    modes.low.value, modes.high.value = "1", "4"
    loss.tick.value = True
    loss.choices.value = ("amplitude", "poisson")
    thick.tick.value = True
    thick.low.value, thick.high.value = "1 nm", "4"
    ranges = one.ranges()
    assert ranges["probe.modes"] == (1, 4, False)
    assert ranges["loss"] == ("amplitude", "poisson")
    assert ranges["slices.thickness"] == (1e-9, 4e-9, False)
    rate.tick.value = False
    assert "object.learning_rate" not in one.ranges()


def test_a_range_stays_what_it_is_in_another_unit(form):
    one = form(ticks=True)
    tick = one.tick("slices.thickness")
    tick.row.unit.value = "nm"
    tick.tick.value = True
    tick.low.value, tick.high.value = "100", "2 µm"
    one.settle()
    tick.row.unit.value = "µm"
    assert (tick.low.value, tick.high.value) == ("0.1", "2")
    assert one.ranges() == {"slices.thickness": (1e-7, 2e-6, False)}
    tick.high.value = "some"
    tick.row.unit.value = "nm"
    assert (tick.low.value, tick.high.value) == ("100", "some")
    tick.high.value = "300"
    assert one.ranges() == {"slices.thickness": (1e-7, 3e-7, False)}


@pytest.mark.parametrize(
    ("name", "low", "high", "words"),
    [
        ("probe.modes", "0", "4", "greater than or equal to 1"),
        ("probe.modes", "4", "2", "lowest value is 4 and the highest 2"),
        ("probe.modes", "few", "2", "not a number"),
        ("slices.count", "1", "4", "slices.thickness is missing"),
    ],
)
def test_a_range_that_can_not_be_used_is_told_at_its_field(form, name, low, high, words):
    one = form(ticks=True)
    tick = one.tick(name)
    tick.tick.value = True
    tick.low.value, tick.high.value = low, high
    assert words in tick.message.value
    with raises("tuning.invalid-range", tick.row.label, words):
        one.ranges()


# While it runs


def test_the_rest_is_shown_only_where_it_can_not_be_restructured(form):
    one = form(live=True, recon=Steered())
    one.groups.make_all()
    assert {name for name, group in one.groups.groups.items() if group.switch and group.switch.disabled} == {
        "slices", "aberrations", "opr", "descan", "fly_scan"
    }  # fmt: skip
    for name, row in one.rows.items():
        assert row.input.disabled != Settings.is_live(name)
        assert ("fixed during a run" in row.about.value) != Settings.is_live(name)


def test_a_change_is_applied_to_what_runs_and_told(form):
    recon, lines = Steered(), []
    one = form(live=True, recon=recon, tell=lines.append)
    one.row("probe.learning_rate").input.value = "0.002"
    one.settle()
    one.editor("constraints").kind.value = "gaussian_blur"
    one.editor("constraints").add.click()
    (panel,) = one.editor("constraints").panels.values()
    panel.rows["sigma"].input.value = "0.5"
    one.settle()
    assert recon.settings == Settings(
        probe={"learning_rate": 0.002}, constraints=[{"kind": "gaussian_blur", "sigma": 0.5}]
    )
    names = {"recon": Steered()}
    for line in lines:
        exec(line, names)
    assert names["recon"].settings == recon.settings


def test_what_engines_have_to_be_held_for_waits_for_apply(form):
    recon, lines = Restructured(), []
    one = form(live=True, recon=recon, tell=lines.append)
    assert "with Apply" in one.row("probe.modes").about.value
    assert one.waiting.layout.display == "none"
    one.row("probe.modes").input.value = "3"
    one.row("probe.learning_rate").input.value = "0.002"
    one.settle()
    assert recon.settings == Settings(probe={"learning_rate": 0.002}), "only what may change while it runs"
    assert one.waiting.layout.display is None
    assert "<b>Probe modes</b> 1 → 3" in one.waiting._about.value
    recon.settings = recon.settings.replace(object={"learning_rate": 0.5})
    one.refresh()
    one.settle()
    assert one.row("probe.modes").input.value == "3", "what waits is not lost to a change from elsewhere"
    one.waiting.apply.click()
    one.settle()
    assert recon.settings == Settings(probe={"learning_rate": 0.002, "modes": 3}, object={"learning_rate": 0.5})
    assert recon.restructured == 1
    assert one.waiting.layout.display == "none"
    assert lines[-1] == "recon.reconfigure(recon.settings.replace(probe={'modes': 3}))"
    one.row("batch").input.value = "8"
    one.waiting.discard.click()
    one.settle()
    assert one.row("batch").input.value == "16"
    assert recon.settings.batch == 16
    assert one.waiting.layout.display == "none"


def test_a_live_change_for_which_the_object_has_to_be_enlarged_waits_for_apply(form):
    recon = Restructured()
    recon.refuse = "the object has a margin of 4 pixels; reconfigure(settings) enlarges it."
    one = form(live=True, recon=recon)
    one.row("positions.learning_rate").input.value = "0.1"
    one.settle()
    assert recon.settings == Settings()
    assert one.row("positions.learning_rate").input.value == "0.1"
    assert one.waiting.layout.display is None
    assert not one.waiting.apply.disabled
    one.waiting.apply.click()
    one.settle()
    assert recon.settings == Settings(positions={"learning_rate": 0.1})
    assert one.waiting.layout.display == "none"


def test_an_answer_that_comes_after_discard_shows_nothing(form):
    asked, answer = threading.Event(), threading.Event()

    class Slow(Restructured):
        def reconfigure_error(self, settings: Settings) -> str | None:
            asked.set()
            answer.wait(30)
            return super().reconfigure_error(settings)

    one = form(live=True, recon=Slow())
    one.row("batch").input.value = "8"
    assert asked.wait(30)
    one.waiting.discard.click()
    answer.set()
    one.settle()
    assert one.waiting.layout.display == "none"


def test_what_can_not_be_applied_says_why(form):
    recon = Restructured()
    one = form(live=True, recon=recon)
    one.row("precision").input.value = "double"
    one.settle()
    assert "precision can&#x27;t change; make another." in one.waiting._about.value
    assert one.waiting.apply.disabled
    one.row("precision").input.value = "single"
    one.settle()
    assert one.waiting.layout.display == "none"


def test_a_file_for_another_reconstruction_is_not_applied_in_parts_that_can_not_be(form, tmp_path):
    recon, lines = Steered(), []
    one = form(live=True, recon=recon, tell=lines.append)
    (tmp_path / "other.yaml").write_text("batch: 8\nprobe: {learning_rate: 0.002}")
    one.files.name.value = str(tmp_path / "other.yaml")
    one.files.load.click()
    one.settle()
    assert recon.settings == Settings(probe={"learning_rate": 0.002})
    assert lines == ["recon.settings = recon.settings.replace(probe={'learning_rate': 0.002})"]
    assert "create a new Reconstruction" in one.waiting._about.value
    assert one.waiting.apply.disabled
    one.waiting.discard.click()
    assert one.row("batch").input.value == "16"


def test_what_needs_something_that_waits_waits_with_it(form):
    recon = Restructured()
    one = form(live=True, recon=recon)
    one.row("slices.count").input.value = "2"
    one.row("slices.thickness").input.value = "2 nm"
    one.row("slices.learning_rate").input.value = "0.1"
    one.settle()
    assert recon.settings == Settings()
    one.waiting.apply.click()
    one.settle()
    assert recon.settings == Settings(slices={"count": 2, "thickness": 2e-9, "learning_rate": 0.1})


def test_a_part_is_frozen_and_freed_at_the_rate_it_had(form):
    recon = Steered()
    one = form(live=True, recon=recon)
    one.row("probe.learning_rate").input.value = "0.004"
    freeze = one.freezes["probe.learning_rate"]
    assert freeze.description == "Freeze"
    freeze.click()
    one.settle()
    assert recon.settings.probe.learning_rate == 0
    assert freeze.description == "Unfreeze"
    freeze.click()
    one.settle()
    assert recon.settings.probe.learning_rate == 0.004
    one.row("positions.learning_rate")
    assert one.freezes["positions.learning_rate"].disabled, "it never had a rate"


def test_the_form_follows_what_python_changes_and_keeps_what_is_being_typed(form):
    recon = Steered()
    one = form(live=True, recon=recon)
    heard: list[Settings] = []
    one.on_change(heard.append)
    one.row("object.learning_rate").input.value = "-1"
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.5})
    until = time.monotonic() + 10
    while one.row("probe.learning_rate").input.value != "0.5" and time.monotonic() < until:
        time.sleep(0.02)
    assert one.row("probe.learning_rate").input.value == "0.5"
    assert one.row("object.learning_rate").input.value == "-1"
    one.row("object.learning_rate").input.value = "0.1"
    one.settle()
    assert recon.settings == Settings(object={"learning_rate": 0.1}, probe={"learning_rate": 0.5})
    assert heard[-1] == recon.settings


def test_what_can_not_be_followed_is_told_and_the_form_goes_on(form):
    recon = Steered()
    one = form(live=True, recon=recon)
    failed = threading.Event()

    class Broken(Steered):
        @property
        def settings(self):
            failed.set()
            raise OSError("The engines do not answer.")

    one._recon = Broken()
    assert failed.wait(10)
    until = time.monotonic() + 10
    while not one._failure.value and time.monotonic() < until:
        time.sleep(0.02)
    assert "The engines do not answer." in one._failure.value
    one._recon = recon
    recon.settings = recon.settings.replace(probe={"learning_rate": 0.5})
    until = time.monotonic() + 10
    while one.settings != recon.settings and time.monotonic() < until:
        time.sleep(0.02)
    assert one.settings == recon.settings
    while one._failure.value and time.monotonic() < until:
        time.sleep(0.02)
    assert one._failure.value == ""


def test_a_refused_change_is_told_and_the_form_shows_what_holds(form):
    recon = Steered()
    one = form(live=True, recon=recon)
    recon.refuse = "An engine is gone; recover() first."
    one.row("probe.learning_rate").input.value = "0.002"
    one.settle()
    assert "An engine is gone; recover() first." in one._failure.value
    assert one.row("probe.learning_rate").input.value == "0.1"
    assert one.settings == Settings()


def test_a_closed_form_leaves_no_thread_and_no_widget():
    before = set(threading.enumerate())
    one = SettingsForm(live=True, recon=Steered())
    one.groups.make_all()
    rows = [*one.rows.values()]
    one.close()
    assert all(row.closed and row.input.closed for row in rows)
    until = time.monotonic() + 5
    while time.monotonic() < until and set(threading.enumerate()) - before:
        time.sleep(0.02)
    assert not set(threading.enumerate()) - before
