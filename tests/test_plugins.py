"""Plug-ins of other packages: found by entry points only, used where they are named, and isolated where they fail."""

import importlib
import json
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import psutil
import pytest

import ptynb as pt
from ptynb import plugins
from ptynb.batch import torchrun
from ptynb.batch.exit_statuses import UNAVAILABLE
from ptynb.cli.main import main
from ptynb.exceptions import PluginError
from ptynb.io.export import exporters
from ptynb.io.load import find, suffixes
from ptynb.physics.components.builtin import Object, Probe, Slices, Tilt
from ptynb.physics.losses import make_loss
from ptynb.physics.model_builder import BUILT_IN
from ptynb.plugin_api import ProcessLauncher
from ptynb.session.engines import ClusterEngines, LocalEngine
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.plugin_entries import OWN_COMPONENTS
from ptynb.settings.schema import structure
from ptynb.widgets.form import SettingsForm, form_contents, unsaved_settings
from tests.parametrization import each

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "docs" / "plugin_template"
LOSS = """
from ptynb.plugin_api import Loss

class Mean(Loss):
    def normaliser(self, sums):
        return sums.counts

    def value_and_slope(self, model, counts, mask):
        return model.sum(dtype=torch.float64), model * 0 + {slope}
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution of one module, with entry points "group.name" -> object of the module."""
    made = []

    def add(code, entries, name="some-plugins", version="2.1"):
        home, module = tmp_path / name, name.replace("-", "_")
        info = home / f"{module}-{version}.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (home / f"{module}.py").write_text(code)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = {}
        for place, found in entries.items():
            kind, _, one = place.partition(".")
            groups.setdefault(kind, []).append(f"{one} = {module}:{found}")
        text = "".join(f"[ptynb.{kind}]\n" + "\n".join(lines) + "\n" for kind, lines in groups.items())
        (info / "entry_points.txt").write_text(text)
        monkeypatch.syspath_prepend(str(home))
        made.append(module)
        sys.modules.pop(module, None)
        plugins.clear_found()
        return home

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a module that is written again may have the same time
    plugins.clear_found()
    yield add
    monkeypatch.undo()
    for module in made:
        sys.modules.pop(module, None)
    importlib.invalidate_caches()
    plugins.clear_found()


@pytest.mark.timeout(600)
def test_the_template_package_installs_without_network_and_passes_its_tests(tmp_path):
    """It has one plug-in of each kind, in forms, run files, the command line, records, and on engines."""
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(TEMPLATE)], check=True, timeout=120)
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ran = subprocess.run(
        [*pytest_command, "-c", str(ROOT / "pyproject.toml"), str(TEMPLATE / "tests")],
        env=_with_path(target),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout


def _with_path(*folders):
    paths = [*map(str, folders), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_no_plugin_is_imported_before_it_is_used(install):
    home = install("raise SystemExit('imported')", {"losses.early": "X", "formats.early": "X"})
    code = (
        "import sys, ptynb as pt; from ptynb.cli.main import main\n"
        "pt.Settings(loss='poisson', constraints=[{'kind': 'smooth'}]); pt.plugins.installed()\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'some_plugins' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=_with_path(home), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


BROKEN = {
    "the import fails": ("import no_such_module", "Mean", "plugin.failed", "ModuleNotFoundError: No module named"),
    "it ends Python": ("raise SystemExit(3)", "Mean", "plugin.failed", "SystemExit: 3"),
    "there is no such object": ("", "Mean", "plugin.failed", "AttributeError"),
    "it is of another type": ("Mean = 3", "Mean", "plugin.invalid", "is 3; expected a class derived from Loss"),
    "a method is missing": (
        "from ptynb.plugin_api import Loss\nclass Mean(Loss):\n    pass",
        "Mean",
        "plugin.invalid",
        "with all of its methods",
    ),
}


@each("case", BROKEN)
def test_one_that_cannot_be_used_is_an_error_only_where_it_is_named(install, case, capsys):
    code, name, expected, told = BROKEN[case]
    install(code, {"losses.mean": name})
    assert make_loss("poisson", 1.0).name == "poisson"
    settings = pt.Settings(loss="mean")
    with pytest.raises(PluginError) as caught:
        make_loss(settings.loss, 1.0)
    assert caught.value.code == expected
    assert "the loss 'mean' of some-plugins 2.1".lower() in str(caught.value).lower()
    assert told in str(caught.value)
    assert main(["info", "--plugins", "--json"]) == UNAVAILABLE
    [listed] = [one for one in json.loads(capsys.readouterr().out) if one["distribution"] == "some-plugins"]
    assert told in listed["problem"]
    assert main(["info", "--plugins"]) == UNAVAILABLE
    assert "some-plugins" in capsys.readouterr().out


MANY = """
import numpy as np
{}

class Shy:
    def __repr__(self):
        raise TypeError("no repr")

COLOURS, SHY = np.eye(3), Shy()
""".format(LOSS.format(slope="1").replace("from", "import torch\nfrom", 1))


def test_the_doctor_lists_plugins_and_warns_of_those_that_cannot_be_used(install, capsys):
    assert main(["doctor", "--device", "cpu"]) == 0
    assert "\nNo plug-in is installed.\n" in capsys.readouterr().out
    install(MANY, {"losses.mean": "Mean", "colour_maps.odd": "COLOURS"}, name="works")
    assert main(["doctor", "--device", "cpu"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^loss +mean +works +2\.1 +works$", told, re.M)
    assert re.search(r"^colour map +odd +works +2\.1 +works$", told, re.M)
    assert "plug-ins cannot be used" not in told
    install("import no_such_module", {"losses.other": "X"}, name="broken", version="0.3")
    install(MANY, {"losses.shy": "SHY"}, name="shy")
    assert main(["doctor", "--device", "cpu"]) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"^loss +other +broken +0\.3 +The loss 'other' of broken 0\.3 cannot be imported \(ModuleNotFoundError: .*\); "
        r"update or remove that package\.$",
        told,
        re.M,
    )
    assert re.search(r"^loss +shy +shy +2\.1 +The loss 'shy' of shy 2\.1 failed \(TypeError: no repr\);", told, re.M)
    assert "\nNOTE: 2 of 4 plug-ins cannot be used; the table says why.\n" in told
    assert "No problem found." in told


def test_a_broken_format_is_one_notice_and_other_files_are_read(install, tmp_path):
    install("raise OSError('no licence')", {"formats.odd": "FORMAT"})
    (tmp_path / "a.odd").write_bytes(b"odd")
    told = r"format 'odd' of some-plugins 2\.1 cannot be imported \(OSError: no licence\)"
    with pytest.warns(pt.PtynbWarning, match=told), pytest.raises(pt.FileError, match="expected a scan"):
        pt.load(tmp_path / "a.odd")
    with pytest.raises(pt.FileError, match="expected a scan"):  # without a second notice, which would be an error
        pt.load(tmp_path / "a.odd")
    assert ".cxi" in suffixes()


READER = """
from ptynb.plugin_api import Format

def read(path, options):
    return 1 / 0

FORMAT = Format("odd", lambda head: {recognises}, read, (".odd",))
"""


def test_an_error_while_reading_names_the_plugin(install, tmp_path):
    install(READER.format(recognises="head.start == b'odd'"), {"formats.odd": "FORMAT"})
    (tmp_path / "a.odd").write_bytes(b"odd")
    assert ".odd" in suffixes()
    with pytest.raises(
        PluginError, match=r"'odd' of some-plugins 2\.1 cannot read a\.odd \(ZeroDivisionError"
    ) as caught:
        pt.load(tmp_path / "a.odd")
    assert caught.value.code == "plugin.failed"


def test_a_format_that_fails_to_recognise_a_file_is_a_notice(install, tmp_path):
    install(READER.format(recognises="head.nothing"), {"formats.odd": "FORMAT"})
    (tmp_path / "a.odd").write_bytes(b"odd")
    with pytest.warns(pt.PtynbWarning, match="some-plugins"), pytest.raises(pt.FileError, match="expected a scan"):
        find(tmp_path / "a.odd", LoadOptions())


def test_an_error_in_a_run_names_the_plugin(install):
    install("import torch\n" + LOSS.format(slope="1 / 0"), {"losses.mean": "Mean"})
    with pt.Reconstruction(pt.simulate(patterns=4, window=16), pt.Settings(loss="mean")) as recon:
        recon.start(epochs=1)
        with pytest.raises(pt.ReconstructionError, match=r"'mean' of some-plugins 2\.1 failed \(ZeroDivisionError"):
            recon.wait()


LAUNCHER = """
from typing import ClassVar, Literal
from ptynb.plugin_api import Launcher, LauncherPlugin

class Odd(LauncherPlugin):
    kind: Literal["odd"] = "odd"
    {field}

    def launcher(self, name, folder):
        {made}
"""


@each(
    ("field", "made", "told"),
    [
        ("", "return 3", r"has launcher_class=None; expected a class from Launcher"),
        ("launcher_class: ClassVar = Launcher", "return 3", r"made a int; expected its launcher_class"),
        ("launcher_class: ClassVar = Launcher", "return 1 / 0", r"failed \(ZeroDivisionError: division by zero\)"),
    ],
)
def test_a_launcher_that_is_none_is_an_error_that_names_it(install, field, made, told, monkeypatch):
    monkeypatch.setattr("ptynb.plugin_api.Launcher.here", True, raising=False)
    install(LAUNCHER.format(field=field, made=made), {"launchers.odd": "Odd"})
    with pytest.raises(PluginError, match=r"The launcher 'odd' of some-plugins 2\.1 " + told):
        pt.Cluster(1, launcher="odd", device="cpu")
    with pytest.raises(pt.ClusterError, match="There is no setting 'cores'"):
        pt.Cluster(1, launcher="odd", cores=3)


def test_of_two_with_one_name_the_first_is_used_and_the_other_a_notice(install):
    install("", {"losses.mean": "X"}, name="b-plugins")
    install("", {"losses.mean": "X"}, name="a-plugins")
    with pytest.warns(pt.PtynbWarning, match=r"'mean' of b-plugins 2\.1 is not used, since .* of a-plugins 2\.1"):
        assert plugins.named("losses", "mean").distribution == "a-plugins"


def test_a_name_that_no_installed_plugin_has_is_named():
    for wrong, code, told in [
        ({"loss": "huber"}, "settings.invalid-value", "'intensity' (no plug-in with a loss is installed)"),
        ({"components": [{"kind": "os"}]}, "plugin.not-installed", "no plug-in with a model component is installed"),
        ({"components": [{"kind": 3}]}, "settings.invalid-value", "there is no model component 3"),
        ({"components": [{"kind": "os:system"}]}, "plugin.not-installed", "'os:system'"),
        (
            {"constraints": [{"kind": "phase_limits"}]},
            "settings.invalid-value",
            "expected an entry whose 'kind' is one of",
        ),
    ]:
        with pytest.raises(pt.SettingsError) as caught:
            pt.Settings(**wrong)
        assert (caught.value.code, told in str(caught.value)) == (code, True), caught.value
    with pytest.raises(pt.ClusterError, match="no plug-in with a launcher is installed"):
        pt.Cluster(1, launcher="wrapped")


def test_a_result_is_repeated_with_its_plugins_only(install, tmp_path):
    code, entries = "import torch\n" + LOSS.format(slope="0.001"), {"losses.mean": "Mean"}
    home = install(code, entries)
    scan = pt.simulate(patterns=4, window=16)
    folder = pt.Checkpointing(folder=tmp_path / "states", epochs=1)
    with pt.Reconstruction(scan, pt.Settings(loss="mean"), checkpointing=folder) as recon:
        recon.start(epochs=2)
        recon.wait()
        recon.save(tmp_path / "a.h5")
    [plugin] = pt.load_result(tmp_path / "a.h5").plugins
    assert plugin == plugins.Plugin("losses", "mean", "some-plugins", "2.1")
    assert pt.reproduce(tmp_path / "a.h5", scan).equal
    [info] = home.glob("*.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugins\nVersion: 2.2\n")
    plugins.clear_found()
    with pytest.warns(pt.PtynbWarning, match=r"of some-plugins 2\.1 was used .*; now it is .* of some-plugins 2\.2"):
        again = pt.reproduce(tmp_path / "a.h5", scan)
    assert again.equal
    assert any("2.2" in note for note in again.notes)
    (info / "entry_points.txt").write_text("")
    plugins.clear_found()
    for repeat in (lambda: pt.reproduce(tmp_path / "a.h5", scan), lambda: pt.resume(tmp_path / "states", scan)):
        with pytest.raises(PluginError, match=r"'mean' of some-plugins 2\.1 is not installed; .*some-plugins==2\.1"):
            repeat()
    assert pt.load_result(tmp_path / "a.h5").plugins == (plugin,)  # which can be opened all the same


class _Engines:
    """In the place of a cluster: calls functions here."""

    def call_all(self, ranks, function, arguments):
        return [function(*one) for one in arguments]


@each(
    ("name", "version", "told", "code"),
    [
        ("mean", "2.1", "", ""),
        ("mean", "3.0", r"some-plugins 2\.1 is installed; expected some-plugins 3\.0", "plugin.other-version"),
        ("other", "2.1", r"'other' of some-plugins 2\.1 is not installed", "plugin.not-installed"),
    ],
)
def test_an_engine_without_a_plugin_or_with_another_version_says_so(install, monkeypatch, name, version, told, code):
    install("X = 1", {"losses.mean": "X"})
    engines, used = ClusterEngines.__new__(ClusterEngines), (plugins.Plugin("losses", name, "some-plugins", version),)
    engines._cluster, engines._ranks = _Engines(), [0, 1]
    values = pt.Settings().model_dump(mode="json")
    published = json.dumps([None, values, [], 1, [vars(one) for one in used]])
    board = SimpleNamespace(own=SimpleNamespace(rank=1, world=2), published=lambda: published, failed=False)
    monkeypatch.setattr(torchrun, "scan_of", lambda plan: SimpleNamespace(part=lambda patterns: 1 / 0))
    monkeypatch.setattr(torchrun, "patterns_of", lambda *arguments: [])
    if not told:
        engines.check_plugins(used)
        with pytest.raises(ZeroDivisionError):  # it goes on
            torchrun._serve(None, board, [])
        return
    with pytest.raises(PluginError, match="On the engine of rank 0: The loss .*" + told) as caught:
        engines.check_plugins(used)
    assert caught.value.code == code
    with pytest.raises(PluginError, match="On rank 1: The loss .*" + told):
        torchrun._serve(None, board, [])


ENTRY = """
from pathlib import Path
from typing import Literal
from pydantic import BaseModel, Field, SecretStr
from ptynb.plugin_api import ConstraintPlugin

class Inner(BaseModel):
    low: float = 0

class Mine(ConstraintPlugin):
    {docstring}

    kind: {kind} = "mine"
    {field}

    def impose(self, model):
        pass
"""
MINE = {
    "docstring": '"""Mine."""',
    "kind": 'Literal["mine"]',
    "field": 'low: float = Field(default=1, description="Low")',
}


@each(
    ("wrong", "told"),
    [
        ({}, ""),
        ({"field": 'low: Literal["a", "b"] | None = Field(default=None, description="Low")'}, ""),
        ({"field": 'low: str = Field(default="", description="Low")'}, ""),
        ({"field": 'low: Path = Field(default=Path(), description="Low")'}, "has the field low"),
        ({"field": 'low: SecretStr = Field(default="", description="Low")'}, "has the field low"),
        ({"kind": "str"}, r'expected the name of its entry point: kind: Literal\["mine"\]'),
        ({"kind": 'Literal["mine", "yours"]'}, "has the field kind"),
        ({"field": "low: float = 1"}, "has the field low, which no form can show"),
        ({"field": 'low: list[float] = Field(default=[], description="Low")'}, "has the field low"),
        ({"field": 'low: tuple[float, ...] = Field(default=(), description="Low")'}, "has the field low"),
        ({"field": 'low: Inner = Field(default=Inner(), description="Low")'}, "has the field low"),
        ({"field": 'low: Literal[1, 2] = Field(default=1, description="Low")'}, "has the field low"),
        ({"field": 'low: float | str = Field(default=1, description="Low")'}, "has the field low"),
        ({"docstring": ""}, ""),
    ],
)
def test_an_entry_that_no_form_can_show_is_a_notice_and_forms_have_the_others(install, wrong, told, capsys):
    install(ENTRY.format(**{**MINE, **wrong}), {"constraints.mine": "Mine"})
    structure.cache_clear()
    try:
        if not told:
            assert "mine" in _kinds()
            assert main(["info", "--plugins"]) == 0
            return
        with pytest.warns(pt.PtynbWarning, match=r"'mine' of some-plugins 2\.1 .*" + told):
            assert "smooth" in (found := _kinds())
        assert "mine" not in found
        with pytest.raises(pt.SettingsError, match=told):
            pt.Settings(constraints=[{"kind": "mine"}])
        capsys.readouterr()  # of cases before
        assert main(["info", "--plugins"]) == UNAVAILABLE
        assert "works" not in capsys.readouterr().out
    finally:
        structure.cache_clear()


def _kinds():
    [entries] = [one for one in structure().lists if one.name == "constraints"]
    return [one.kind for one in entries.kinds]


def test_a_form_has_fields_of_text(install, monkeypatch):
    fields = (
        'words: str = Field(default="a", description="Words")\n    note: str | None = Field(None, description="Note")'
    )
    install(ENTRY.format(**{**MINE, "field": fields}), {"constraints.mine": "Mine"})
    structure.cache_clear()
    monkeypatch.setattr(unsaved_settings, "LISTS", {one.name: one for one in structure().lists})
    form = SettingsForm()
    try:
        kinds = {one["name"]: one["kind"] for one in form_contents.schema()["entryFields"]}
        assert (kinds["words"], kinds["note"]) == ("text", "text")
        form.add("constraints", "mine")
        [entry] = form.entries["constraints"]
        words, note = f"{entry['name']}.words", f"{entry['name']}.note"
        assert (form.values[words], form.values[note]) == ("a", "")
        for text, expected in [("run_1 a", "run_1 a"), ("", None)]:
            form.enter(words, text)
            form.enter(note, text)
            form.settle()
            [made] = form.settings.constraints
            assert (made.words, made.note) == (text, expected)
            assert (form.values[words], form.values[note]) == (text, text)
            assert pt.Settings.from_yaml(form.settings.to_yaml()) == form.settings
    finally:
        form.close()
        structure.cache_clear()


def test_a_component_is_in_the_settings_once(install):
    code = ENTRY.format(**MINE).replace("ConstraintPlugin", "ComponentPlugin").replace("impose", "component")
    install(code, {"components.mine": "Mine"})
    pt.Settings(components=[{"kind": "mine"}])
    with pytest.raises(pt.SettingsError, match="2 components of the kind 'mine'") as caught:
        pt.Settings(components=[{"kind": "mine"}, {"kind": "mine", "low": 2}])
    assert caught.value.fields == ("components",)


@each("name", ["probe", "fly_scan"])  # which a model has always, and sometimes
def test_a_component_has_no_name_of_an_own_one(install, name):
    code = ENTRY.format(**MINE).replace("ConstraintPlugin", "ComponentPlugin").replace("impose", "component")
    install(code.replace('"mine"', f'"{name}"'), {f"components.{name}": "Mine"})
    told = f"component '{name}' of some-plugins 2.1 has the name of one of ptynb's own components; expected another one"
    with pytest.raises(pt.SettingsError, match=told) as caught:
        pt.Settings(components=[{"kind": name}])
    assert caught.value.fields == ("components.0",)


def test_names_of_own_components_are_reserved():
    assert set(OWN_COMPONENTS) == {Object.name, Probe.name, Slices.name, Tilt.name, *BUILT_IN}


def test_engines_are_asked_for_a_plugin_that_settings_get_later(install, monkeypatch):
    install(ENTRY.format(**MINE), {"constraints.mine": "Mine", "losses.mean": "X"})
    asked = []

    def check(engines, used):
        asked.append([one.name for one in used])
        if used:
            raise PluginError("It is not there.", code="plugin.not-installed")

    monkeypatch.setattr(LocalEngine, "check_plugins", check)
    with pt.Reconstruction(pt.simulate(patterns=4, window=16), checkpointing=None) as recon:
        before = recon.settings
        recon.settings = before.replace(constraints=[{"kind": "smooth"}])
        with pytest.raises(PluginError, match="not there"):
            recon.settings = before.replace(constraints=[{"kind": "mine"}])
        with pytest.raises(PluginError, match="not there"):
            recon.reconfigure(before.replace(loss="mean"))
        assert recon.settings.constraints[0].kind == "smooth"
        assert recon.settings.loss == before.loss
    assert asked == [[], ["mine"], ["mean"]]


OWN_NAMES = {
    "components.positions": "model component",
    "losses.amplitude": "loss",
    "losses.auto": "loss",
    "constraints.smooth": "constraint",
    "launchers.local": "launcher",
    "live_sources.pva": "live source",
    "colour_maps.gray": "colour map",
}


def test_one_with_a_name_of_ptynb_is_listed_as_not_used(install, capsys):
    code = "import numpy as np\nX = np.eye(3)"
    install(code, {**dict.fromkeys(OWN_NAMES, "X"), "colour_maps.odd": "X"})
    for _ in range(2):  # matplotlib has it then
        assert main(["info", "--plugins", "--json"]) == UNAVAILABLE
        found = {f"{one['kind']}.{one['name']}": one["problem"] for one in json.loads(capsys.readouterr().out)}
        assert found.pop("colour_maps.odd") == ""
        assert {name: told.partition(":")[0] for name, told in found.items()} == dict.fromkeys(OWN_NAMES, "Not used")


@each("endings", [[".odd"], "odd", ("odd",), (3,), ()])
def test_an_exporter_has_a_tuple_of_endings(install, endings, tmp_path):
    install(
        f"from ptynb.plugin_api import Exporter\nX = Exporter('odd', {endings!r}, lambda result, path: None)",
        {"exporters.odd": "X"},
    )
    with pytest.warns(pt.PtynbWarning, match="some-plugins.*cannot be imported.*expected a tuple of texts"):
        assert exporters() == {}


def test_a_plugin_does_not_end_the_process(install, tmp_path):
    install(READER.format(recognises="sys.exit(3)").replace("from", "import sys\nfrom", 1), {"formats.odd": "FORMAT"})
    (tmp_path / "a.odd").write_bytes(b"odd")
    with pytest.warns(pt.PtynbWarning, match="some-plugins.*SystemExit"), pytest.raises(pt.FileError):
        find(tmp_path / "a.odd", LoadOptions())


def test_an_error_of_ptynb_while_a_format_recognises_a_file_is_a_notice(install, tmp_path):
    code = "from ptynb.plugin_api import FileError\n" + READER.format(recognises="_fail()")
    install(code + "def _fail():\n    raise FileError('odd')\n", {"formats.odd": "FORMAT"})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = np.ones((3, 4, 4))
    with pytest.warns(pt.PtynbWarning, match="some-plugins.*FileError: odd"):
        assert find(tmp_path / "a.h5", LoadOptions()).format


def test_distributions_are_read_once(install, monkeypatch):
    install("", {"losses.mean": "X", "constraints.mine": "X"})
    calls = []
    monkeypatch.setattr(plugins, "entry_points", lambda **given: calls.append(given) or entry_points(**given))
    plugins.clear_found()
    assert {one.name for one in plugins.installed()} >= {"mean", "mine"}
    assert calls == [{}]


def test_a_launcher_of_a_plugin_listens_at_the_interface_of_the_site(install, monkeypatch):
    install(LAUNCHER.format(field="launcher_class: ClassVar = Launcher", made="pass"), {"launchers.odd": "Odd"})
    monkeypatch.setattr("ptynb.plugin_api.Launcher.here", False, raising=False)
    monkeypatch.setattr("ptynb.cluster.cluster.site_address", lambda: "10.1.2.3")
    monkeypatch.setattr(pt.Cluster, "start", lambda cluster: None)
    assert pt.Cluster(1, launcher="odd", device="cpu")._address == "10.1.2.3"
    assert pt.Cluster(1, launcher="odd", device="cpu", address="10.1.2.4")._address == "10.1.2.4"


def test_a_process_launcher_ends_an_engine_that_has_ended_already(tmp_path):
    class Own(ProcessLauncher):
        kind, here = "own", True

        @classmethod
        def again(cls, plan, described, name, folder):
            return cls(plan, name, folder)

        def start(self, ranks):
            pass

    launcher, child = Own(None, "a", tmp_path), subprocess.Popen([sys.executable, "-c", ""])
    launcher._processes[0] = psutil.Process(child.pid)
    child.wait()
    launcher.kill(0)
    assert launcher.dead() == [0]
