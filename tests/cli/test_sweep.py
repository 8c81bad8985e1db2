"""`ptynb sweep`, with notebooks that take a moment: the results in them are made up."""

from __future__ import annotations

import csv
import json
import re

import nbformat
import pytest

import ptynb as pt
from ptynb.cli import main
from ptynb.cli.sweep_combinations import Combination, check, combinations, identity, parameters_of, parse
from ptynb.exceptions import SettingsError

PARAMETERS = 'rate = 1.0\nsweep = {}\nfolder = "."'
WORK = """
from pathlib import Path
import numpy as np
import ptynb as pt
settings = pt.Settings(probe=pt.Probe(modes=1)).with_values(sweep)
assert rate < 3, "too fast\\nby far"
assert Path("beside.txt").read_text() == "data"  # as Jupyter would have it
ones = np.ones((40, 40), complex)
result = pt.Result(
    object=ones, probe=np.ones((settings.probe.modes, 8, 8), complex), positions=np.arange(8.0).reshape(4, 2) * 4,
    origin=(0, 0), epochs=(pt.Epoch(1, rate / settings.probe.modes, 0.1, 10.0),), r_factor=0.1,
    settings=settings.model_dump(mode="json"),
)
pt.save_result(result, Path(folder) / "mine.h5")
"""


def write_notebook(folder, parameters=PARAMETERS, work=WORK, tag="parameters"):
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "", "language": ""}}
    )
    tagged = nbformat.v4.new_code_cell(parameters, metadata={"tags": [tag]})
    notebook.cells = [tagged, nbformat.v4.new_code_cell(work)]
    path = folder / "trial.ipynb"
    nbformat.write(notebook, path)
    (folder / "beside.txt").write_text("data")
    return path


def sweep(path, *options):
    return main.main(["sweep", str(path), "--folder", str(path.parent / "out"), *options])


@pytest.mark.timeout(200)
def test_each_combination_has_its_notebook_its_result_and_a_row(tmp_path, capsys):
    path = write_notebook(tmp_path)
    options = ("-p", "probe.modes=1,2")
    assert sweep(path, *options, "-p", "rate=1e-1,3") == 1  # two of the four fail, and the others run
    told = capsys.readouterr().out
    folders = sorted(one.name for one in (tmp_path / "out").iterdir() if one.is_dir())
    assert folders == [
        "001-probe.modes=1,rate=0.1",
        "002-probe.modes=1,rate=3",
        "003-probe.modes=2,rate=0.1",
        "004-probe.modes=2,rate=3",
    ]
    assert told.count("FAILED: AssertionError: too fast by far") == 2
    assert "4 combinations, 2 failed" in told
    result = pt.load_result(tmp_path / "out" / folders[2] / "mine.h5")
    assert len(result.probe) == 2
    assert result.losses[-1] == pytest.approx(0.05)
    with (tmp_path / "out" / "table.csv").open(newline="") as file:
        heads, *rows = csv.reader(file)
    assert heads == ["", "probe.modes", "rate", "loss", "R-factor", "seconds", "result"]
    assert [row[:5] for row in rows][2] == ["003", "2", "0.1", "0.05", "0.1000"]
    assert rows[1][6] == "failed: AssertionError: too fast by far"
    assert rows[2][6] == "003-probe.modes=2,rate=0.1/mine.h5"
    executed = nbformat.read(tmp_path / "out" / folders[0] / "notebook.ipynb", as_version=4)
    assert executed.cells[1].metadata.tags == ["injected-parameters"]
    reports = [tmp_path / "out" / name / "report.html" for name in folders]
    assert [path.exists() for path in reports] == [True, False, True, False]
    together = (tmp_path / "out" / "report.html").read_text()
    assert folders[0] in together
    assert folders[2] in together

    # A second call runs what has failed, and what is new; numbers stay.
    assert sweep(path, "--no-report", *options, "-p", "rate=0.1,2") == 0
    told = capsys.readouterr().out
    assert told.count("done before") == 2
    assert [one.name for one in sorted((tmp_path / "out").iterdir()) if one.is_dir()][4:] == [
        "005-probe.modes=1,rate=2",
        "006-probe.modes=2,rate=2",
    ]
    assert re.search(r"^003 +2 +0.1 +0.05 ", told, re.MULTILINE)

    changed = write_notebook(tmp_path, work=WORK + "\n1 + 1")
    assert sweep(changed, *options, "-p", "rate=0.1") == 1
    assert "another notebook, or of this one before it was changed; name another folder" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["a.b=1,2"], {"a.b": (1, 2)}),
        (["x=1e-3,2.5,adam,null,true"], {"x": (1e-3, 2.5, "adam", None, True)}),
        (["x='a,b',c"], {"x": ("a,b", "c")}),
        (["x=3", "y.z=4"], {"x": (3,), "y.z": (4,)}),
        (["scan=/data/one.h5,/data/two.h5"], {"scan": ("/data/one.h5", "/data/two.h5")}),
    ],
    ids=["numbers", "kinds", "commas", "two names", "paths"],
)
def test_values_are_yaml_with_commas_between(options, expected):
    assert parse(options) == expected


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["probe.modes"], "is no name with values; expected such as -p probe.modes=1,2,4"),
        (["a b=1"], "is no name with values"),
        (["x="], "x has no values"),
        (
            ["x=[1"],
            "-p x is not valid YAML: line 1, column 5: expected ',' or ']', but got '<stream end>'; expected values",
        ),
        (["x=1,1"], "expected each of them once"),
        (["x=1", "x=2"], "x is given twice; give all its values at once"),
    ],
)
def test_what_are_no_values_is_refused(options, told):
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        parse(options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["sweep", "folder"])
def test_a_name_that_a_sweep_gives_itself_is_free_under_another_one(tmp_path, capsys, name):
    path = write_notebook(tmp_path, parameters=f"{PARAMETERS}\nmy_{name} = 0", work="")
    assert sweep(path, "-p", f"{name}=1") == 1
    told = " ".join(capsys.readouterr().err.split())
    assert f"The name '{name}' is what a sweep itself gives the notebook; use another one." in told
    values = parse([f"my_{name}=1"])
    check(values, parameters_of(path), path)
    assert values == {f"my_{name}": (1,)}


@pytest.mark.parametrize(
    ("values", "parameters", "told"),
    [
        ({"probe.mode": (1,)}, "sweep folder", "There is no setting 'probe.mode'; did you mean probe.modes"),
        ({"epoch": (1,)}, "epochs sweep folder", "no parameter 'epoch'; did you mean epochs"),
        ({"probe.modes": (0,)}, "sweep folder", "probe.modes is 0"),
        ({"probe.modes": (2,)}, "folder", "does not take 'sweep' as a parameter; in the cell of parameters set sweep"),
        ({"epochs": (2,)}, "epochs", "does not take 'folder' as a parameter"),
        ({"epochs": (2,)}, "", "has no cell of parameters; tag the cell"),
    ],
    ids=["setting", "parameter", "value", "no sweep", "no folder", "no cell"],
)
def test_names_and_values_are_checked_before_anything_runs(tmp_path, values, parameters, told):
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        check(values, parameters.split(), tmp_path / "x.ipynb")
    assert "\n" not in str(caught.value)


def test_values_that_need_others_are_left_to_the_notebook(tmp_path):
    """Two slices want a thickness, which the notebook may set."""
    check({"slices.count": (1, 2)}, ["sweep", "folder"], tmp_path / "x.ipynb")


def test_a_notebook_that_is_none_is_refused(tmp_path, capsys):
    (tmp_path / "x.ipynb").write_text("no notebook")
    assert sweep(tmp_path / "x.ipynb", "-p", "a=1") == 1
    assert "is no notebook; expected an .ipynb file" in " ".join(capsys.readouterr().err.split())
    assert sweep(tmp_path / "y.ipynb", "-p", "a=1") == 1
    assert "There is no notebook" in capsys.readouterr().err
    assert sweep(write_notebook(tmp_path, tag="other"), "-p", "rate=1") == 1
    assert "has no cell of parameters" in " ".join(capsys.readouterr().err.split())
    assert sweep(write_notebook(tmp_path)) == 1
    assert "No values were given" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_dotted_names_come_together_and_folders_have_names_that_files_can_have(tmp_path):
    values = {"probe.modes": (2,), "scan": ("/data/one two.h5",)}
    (one,) = combinations(values, tmp_path, "id")
    assert one.parameters() == {"sweep": {"probe.modes": 2}, "scan": "/data/one two.h5", "folder": str(one.folder)}
    assert one.folder.name == "001-probe.modes=2,scan=_data_one_two.h5"


def test_too_many_combinations_are_fewer_with_some_values_left_out(tmp_path, capsys):
    path = write_notebook(tmp_path, parameters=f"{PARAMETERS}\na = b = c = 0")
    many = ",".join(str(value) for value in range(12))
    assert sweep(path, *(word for name in "abc" for word in ("-p", f"{name}={many}"))) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "These are 1728 combinations; expected at most 1000. Leave some values out." in told
    values = parse([f"a={many}", f"b={many}", "c=0,1,2,3"])
    check(values, parameters_of(path), path)
    assert len(combinations(values, tmp_path / "out", identity(path))) == 576


def test_a_broken_record_is_as_good_as_none(tmp_path):
    one = Combination(1, {"a": 1}, tmp_path / "001-a=1")
    one.folder.mkdir()
    assert one.done() is None
    for text in ("{", "[]", json.dumps({"values": {}})):
        (one.folder / "combination.json").write_text(text)
        assert one.done() is None
        assert combinations({"a": (1,)}, tmp_path, "id")[0].number == 1


def test_outputs_do_not_make_another_notebook(tmp_path):
    path = write_notebook(tmp_path)
    before = identity(path)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="run")]
    nbformat.write(notebook, path)
    assert identity(path) == before


def test_settings_take_values_by_dotted_name():
    settings = pt.Settings(probe=pt.Probe(modes=2, learning_rate=0.5)).with_values({"probe.modes": 3, "batch": 8})
    assert (settings.probe.modes, settings.probe.learning_rate, settings.batch) == (3, 0.5, 8)
    assert pt.Settings().with_values({}) == pt.Settings()
    with pytest.raises(SettingsError, match=r"There is no setting 'probe\.mode'"):
        pt.Settings().with_values({"probe.mode": 3})


@pytest.mark.parametrize("values", ["true", "2,true", "2.5", "65", "1" + "0" * 30], ids=str)
def test_a_setting_is_swept_within_its_bounds(tmp_path, values):
    path = write_notebook(tmp_path)
    with pytest.raises(SettingsError, match=r"range of probe\.modes can't be used: probe\.modes is "):
        check(parse([f"probe.modes={values}"]), parameters_of(path), path)


DONE = {"values": {"x": 1}, "notebook": "here", "error": "", "seconds": 1.0, "result": "mine.h5"}


@pytest.mark.parametrize(
    "record",
    [
        "[" * 100_000,
        json.dumps([DONE]),
        json.dumps({**DONE, "values": 3}),
        json.dumps({**DONE, "seconds": "long"}),
        json.dumps({**DONE, "result": ["mine.h5"]}),
        json.dumps({**DONE, "result": "../../others/result.h5"}),
        json.dumps({**DONE, "result": "/others/result.h5"}),
        json.dumps({**DONE, "error": "x" * 2**21}),
    ],
    ids=["deep", "list", "values", "seconds", "result", "above", "elsewhere", "large"],
)
def test_a_record_that_no_sweep_wrote_counts_for_nothing(tmp_path, record):
    folder = tmp_path / "001-x=1"
    folder.mkdir()
    written = Combination(1, {"x": 1}, folder)
    (folder / "combination.json").write_text(json.dumps(DONE))
    assert written.done().result == "mine.h5"
    (folder / "combination.json").write_text(record)
    assert written.done() is None
    assert combinations({"x": (1,)}, tmp_path, "there")[0].folder == folder


def test_a_notebook_nested_without_end_is_none(tmp_path):
    path = tmp_path / "deep.ipynb"
    path.write_text('{"cells": ' + "[" * 100_000)
    with pytest.raises(ValueError, match="is no notebook; expected an"):
        identity(path)
