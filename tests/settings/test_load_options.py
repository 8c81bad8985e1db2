"""One list of the options of `load`: signature, documentation, run files and the command line follow from it."""

import argparse
import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import ptynb
from ptynb.cli import main
from ptynb.cli.arguments import add_load_options, load_options_as_text, load_options_of
from ptynb.io.file_info import info
from ptynb.io.load import load
from ptynb.settings.load_options import LoadOptions
from ptynb.settings.run_files.run_file import RunFile
from ptynb.settings.run_files.run_file_example import example
from tests.parametrization import each
from tests.raising import raises

FIELDS = LoadOptions.model_fields
VALUES = {
    "patterns": ("entry/data", ["entry/data"]),
    "positions": ("places.npy", ["places.npy"]),
    "motion": ("entry/motion", ["entry/motion"]),
    "mask": ("entry/mask", ["entry/mask"]),
    "probe": ("probe.npy", ["probe.npy"]),
    "convergence_angle": (0.02, ["0.02"]),
    "defocus": (-1.5e-8, ["-1.5e-08"]),
    "aberrations": ({"C12": (2e-9, 0.5), "C30": 1e-3}, ["C12=2e-09@0.5,C30=0.001"]),
    "units": ("pixels", ["pixels"]),
    "raster": ((3, 4), ["3", "4"]),
    "step": ((1e-7, 2e-7), ["1e-07", "2e-07"]),
    "rotation": (0.1, ["0.1"]),
    "wavelength": (1e-10, ["1e-10"]),
    "energy": (8000.0, ["8000.0"]),
    "voltage": (3e5, ["300000.0"]),
    "distance": (2.0, ["2.0"]),
    "detector_pixel": ((5e-5, 5e-5), ["5e-05", "5e-05"]),
    "angular_pixel": ((1e-3, 2e-3), ["0.001", "0.002"]),
    "geometry": ("near field", ["near field"]),
    "focus_to_sample": (0.01, ["0.01"]),
    "clip_negative": (True, []),
    "links": ("anywhere", ["anywhere"]),
}
"""A value of each option, and how it is written on a command line."""
WITH = {
    "focus_to_sample": {"geometry": "near field"},
    "defocus": {"convergence_angle": 0.02},
    "aberrations": {"convergence_angle": 0.02},
}
"""Options that another one requires."""


def parser():
    made = argparse.ArgumentParser()
    add_load_options(made)
    return made


@each("function", [load, info])
def test_signature_and_documentation_have_every_option(function):
    parameters = dict(inspect.signature(function).parameters)
    del parameters["path"]
    assert {name: one.default for name, one in parameters.items()} == {
        name: one.default for name, one in FIELDS.items()
    }
    assert list(parameters) == list(FIELDS)
    text = function.__doc__.partition("Returns\n")[0]
    documented = re.findall(r"^    (\w+) : .*\n((?:        .*\n)+)", text, re.MULTILINE)[1:]
    assert [name for name, _ in documented] == list(FIELDS)
    for name, description in documented:
        assert " ".join(description.split()).startswith(f"{FIELDS[name].description}."), name


def test_run_files_have_every_option():
    unmarked = yaml.safe_load(example().replace("#: ", ""))
    assert list(unmarked["load"]) == list(FIELDS)
    base = {"scan": "a.h5", "epochs": 1, "result": "b.h5"}
    for name, (value, _) in VALUES.items():
        given = WITH.get(name, {}) | {name: value}
        assert RunFile(**base, load=given).load.arguments == given
    assert RunFile(**base, load=dict.fromkeys(FIELDS)).load == LoadOptions(), "null is the default"
    with pytest.raises(ValueError, match=r"positions"):
        RunFile(**base, load={"positions": [[0, 1]]})


def test_the_command_line_has_every_option(capsys):
    assert list(VALUES) == list(FIELDS)
    for name, (value, text) in VALUES.items():
        written = [f"--{name.replace('_', '-')}", *text]
        beside = [
            word for other, one in WITH.get(name, {}).items() for word in (f"--{other.replace('_', '-')}", str(one))
        ]
        chosen = parser().parse_args([*beside, *written])
        assert load_options_of(chosen) == WITH.get(name, {}) | {name: value}
        assert load_options_as_text(chosen) == [*beside, *written]
    assert load_options_of(parser().parse_args(["--step", "1e-7"])) == {"step": (1e-7, 1e-7)}
    assert load_options_of(parser().parse_args([])) == {}
    with pytest.raises(SystemExit):
        main.main(["info", "--help"])
    described = capsys.readouterr().out.partition("lacks or has wrong:")[2]
    names = [f"--{name.replace('_', '-')}" for name in FIELDS]
    assert re.findall(r"^  (--[\w-]+)", described, re.MULTILINE) == names


def test_files_are_found_from_a_folder_and_other_names_are_datasets(tmp_path):
    (tmp_path / "places.npy").write_bytes(b"")
    options = LoadOptions(positions="places.npy", mask="entry/" + "x" * 300).resolved(tmp_path)
    assert options.positions == str(tmp_path / "places.npy")
    assert options.mask == "entry/" + "x" * 300


def test_numbers_of_numpy_and_arrays_are_accepted():
    options = LoadOptions.from_arguments(
        {
            "raster": (np.int64(3), np.int32(4)),
            "step": np.array([1e-7, 2e-7]),
            "energy": np.float32(8000),
            "mask": np.ones((4, 4), bool),
            "positions": [[0.0, 1.0]],
        }
    )
    assert (options.raster, options.step, options.energy) == ((3, 4), (1e-7, 2e-7), 8000.0)
    assert set(options.names) == {"raster", "step", "energy", "mask", "positions"}


def test_invalid_options_are_errors():
    for code, arguments, *facts in [
        ("argument.unknown", {"enrgy": 8e3}, "enrgy", "energy"),
        ("argument.invalid-value", {"energy": "8 keV"}, "energy", "8 keV"),
        ("argument.invalid-value", {"energy": -1.0}, "energy", -1.0),
        ("argument.invalid-value", {"detector_pixel": True}, "detector_pixel", True),
        ("argument.invalid-value", {"units": "mm"}, "units", "mm", "metres", "pixels"),
        ("argument.conflict", {"energy": 8e3, "wavelength": 1e-10}, "energy=8000.0", "wavelength=1e-10"),
        ("argument.conflict", {"angular_pixel": 1e-3, "distance": 1.0}, "angular_pixel", "distance"),
        (
            "argument.conflict",
            {"angular_pixel": 1e-3, "geometry": "near field"},
            "angular_pixel=(0.001, 0.001)",
            "'near field'",
            "give detector_pixel=",
        ),
        ("argument.conflict", {"defocus": 1e-8}, "defocus", "give convergence_angle="),
        ("argument.conflict", {"convergence_angle": 0.02, "probe": "p.npy"}, "convergence_angle=0.02", "a probe"),
        ("argument.conflict", {"convergence_angle": 0.02, "geometry": "near field"}, "0.02", "'near field'"),
        (
            "argument.conflict",
            {"convergence_angle": 0.02, "defocus": 1e-8, "aberrations": {"C10": 2e-8}},
            "defocus is 1e-08",
            "C10 = 2e-08",
        ),
        ("argument.invalid-value", {"convergence_angle": 0.02, "aberrations": {"C13": 1e-9}}, "'C13'", "C12 (A1)"),
        ("argument.invalid-value", {"convergence_angle": 0.02, "aberrations": "C12"}, "'C12'", "C12=2e-9@0.5"),
        ("argument.conflict", {"focus_to_sample": 0.01}, "focus_to_sample=0.01", "give geometry='near field' too"),
    ]:
        with raises(code, *facts) as caught:
            LoadOptions.from_arguments(arguments)
        assert code == "argument.unknown" or caught.value.fields[0] in arguments


def test_errors_that_name_an_option_have_it_in_their_fields():
    """All errors of files whose text has an option as in Python, such as "give energy=8e3"."""
    named = re.compile(rf"\b({'|'.join(FIELDS)})=")
    root, found = Path(ptynb.__file__).parent, 0
    for path in [*(root / "io").rglob("*.py"), *(root / "data").rglob("*.py")]:
        text = path.read_text()
        for call in ast.walk(ast.parse(text)):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "").endswith("Error") and call.args):
                continue
            names = {match[1] for match in named.finditer(ast.get_source_segment(text, call.args[0]) or "")}
            fields = [word.value for word in call.keywords if word.arg == "fields"]
            if names:
                found += 1
                given = {one.value for one in ast.walk(ast.Module(fields, [])) if isinstance(one, ast.Constant)}
                assert fields, f"{path}:{call.lineno} names {names}"
                assert names & given or not given, f"{path}:{call.lineno} names {names} and has {given}"
    assert found > 20
