"""Recipe, environment and citation say what pyproject.toml says."""

from __future__ import annotations

import json

import yaml

from tools.distributions import ROOT, project
from tools.metadata_files import CONDA_NAMES, ENVIRONMENT, RECIPE, conda_specs, contents


def test_they_are_those_of_pyproject():
    stale = [path.name for path, text in contents().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: python -m tools.metadata_files"


def test_recipe_and_environment_have_all_dependencies_and_bounds():
    # read as conda reads them, and not as they are written
    needed = {line.partition(" ")[0]: line for line in conda_specs(project()["dependencies"])}
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    environment = yaml.safe_load(ENVIRONMENT.read_text(encoding="utf-8"))
    run = {line.partition(" ")[0]: line for line in recipe["requirements"]["run"]}
    installed = {line.partition(" ")[0]: line for line in environment["dependencies"]}
    assert run == {"python": "python >=${{ python_min }}", **needed}
    assert needed.items() <= installed.items()
    assert installed["python"] == f"python >={recipe['context']['python_min']}"
    assert run[CONDA_NAMES["torch"]].startswith("pytorch >=2.")
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {at}" for name, at in project()["scripts"].items()]


def test_bounds_are_written_as_conda_reads_them():
    assert conda_specs(["torch<3,>=2.6", "rich"]) == ["pytorch >=2.6,<3", "rich"]


def test_citation_and_codemeta_name_no_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    described = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    assert cited["license"] == "BSD-3-Clause"
    assert not {"version", "date-released"} & cited.keys() | {"version"} & described.keys()
