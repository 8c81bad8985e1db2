"""Files that repeat what pyproject.toml says: `python -m tools.metadata_files` writes them, a test compares them.

The dependencies in conda/recipe.yaml and environment.yml; CITATION.cff and codemeta.json, which name no version: that
is a tag's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from tools.distributions import ROOT, build_requirements, project

CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
"""Packages that conda-forge has by another name. matplotlib-base is matplotlib without Qt."""
RECIPE, ENVIRONMENT = ROOT / "conda" / "recipe.yaml", ROOT / "environment.yml"


def contents() -> dict[Path, str]:
    """Return the text of each file as pyproject.toml and the text around the lists have it."""
    metadata = project()
    needed, building = conda_specs(metadata["dependencies"]), conda_specs(build_requirements())
    recipe = RECIPE.read_text(encoding="utf-8")
    recipe = _with_list(recipe, "    - python ${{ python_min }}.*\n", ["pip", *building], indent=4)
    recipe = _with_list(recipe, "    - python >=${{ python_min }}\n", needed, indent=4)
    environment = ENVIRONMENT.read_text(encoding="utf-8")
    python = f"python {metadata['requires-python']}"
    environment = _with_list(environment, "dependencies:\n", [python, "pip", *building, *needed], indent=2)
    return {
        RECIPE: recipe,
        ENVIRONMENT: environment,
        ROOT / "CITATION.cff": yaml.safe_dump(citation(metadata), sort_keys=False, width=120, allow_unicode=True),
        ROOT / "codemeta.json": json.dumps(codemeta(metadata), indent=2, ensure_ascii=False) + "\n",
    }


def conda_specs(requirements: Iterable[str]) -> list[str]:
    """Return requirements as conda has them, in the order of pyproject.toml."""
    specs = []
    for requirement in map(Requirement, requirements):
        bounds = ",".join(sorted(map(str, requirement.specifier), reverse=True))  # the lower one first
        specs.append(f"{CONDA_NAMES.get(requirement.name, requirement.name)} {bounds}".rstrip())
    return specs


def citation(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of CITATION.cff, which GitHub and Zenodo read."""
    return {
        "cff-version": "1.2.0",
        "message": "If you use ptynb, please cite it with the version that a result file records.",
        "type": "software",
        "title": _title(metadata),
        "authors": metadata["authors"],
        "keywords": metadata["keywords"],
        "license": metadata["license"],
        "repository-code": metadata["urls"]["Source"],
        "url": metadata["urls"]["Documentation"],
    }


def codemeta(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of codemeta.json, which catalogues of research software read."""
    return {
        "@context": "https://w3id.org/codemeta/3.0",
        "@type": "SoftwareSourceCode",
        "name": metadata["name"],
        "description": metadata["description"],
        "license": f"https://spdx.org/licenses/{metadata['license']}",
        "author": [{"@type": "Organization", **author} for author in metadata["authors"]],
        "keywords": metadata["keywords"],
        "codeRepository": metadata["urls"]["Source"],
        "issueTracker": metadata["urls"]["Issues"],
        "softwareHelp": metadata["urls"]["Documentation"],
        "releaseNotes": metadata["urls"]["Changelog"],
        "programmingLanguage": f"Python {metadata['requires-python']}",
        "operatingSystem": [
            name.rpartition(" :: ")[2] for name in metadata["classifiers"] if name.startswith("Operating System")
        ],
        "softwareRequirements": metadata["dependencies"],
    }


def _title(metadata: Mapping[str, Any]) -> str:
    description = str(metadata["description"])
    return f"{metadata['name']}: {description[0].lower()}{description[1:]}"


def _with_list(text: str, before: str, items: Iterable[str], indent: int) -> str:
    """Return a text in which the list that follows the line `before` has these items."""
    marks = "".join(f"{' ' * indent}- {item}\n" for item in items)
    return re.sub(re.escape(before) + rf"(?: {{{indent}}}- .*\n)*", lambda _: before + marks, text, count=1)


def main() -> None:
    """Write the files."""
    for path, text in contents().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
