"""What the release script decides by itself; its long steps are run by whoever releases."""

from __future__ import annotations

import hashlib

import pytest
import yaml

from tools import release
from tools.distributions import ROOT
from tools.metadata_files import RECIPE
from tools.portable import PORTABLE

CHANGES = "# Changelog\n\n## [Unreleased]\n{waiting}\n## [1.2.3] - {day}\n\n### Added\n\n- A thing.\n"


@pytest.mark.parametrize(
    ("waiting", "day", "found"),
    [
        ("", "2030-01-31", ""),
        ("", "not yet released", "YYYY-MM-DD"),
        ("\n### Fixed\n\n- Another.\n", "2030-01-31", "Unreleased"),
    ],
)
def test_the_changelog_has_to_have_the_version(waiting, day, found):
    problem = release.changelog_problem(CHANGES.format(waiting=waiting, day=day), "1.2.3")
    assert bool(problem) == bool(found)
    assert found in problem


def test_the_changelog_of_this_checkout_has_sections_that_a_release_moves():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.index("## [Unreleased]\n") < text.index("## [0.1.0]")
    assert release.changelog_problem(text, "99.0.0")


def test_the_recipe_of_a_release_is_of_its_sdist(tmp_path):
    sdist = tmp_path / "ptynb-1.2.3.tar.gz"
    sdist.write_bytes(b"archive")
    made = yaml.safe_load(release.recipe(RECIPE.read_text(encoding="utf-8"), "1.2.3", sdist))
    assert made["context"]["version"] == "1.2.3"
    assert made["source"]["sha256"] == hashlib.sha256(b"archive").hexdigest()
    assert made["source"]["url"].endswith("ptynb-${{ version }}.tar.gz")
    assert made["requirements"] == yaml.safe_load(RECIPE.read_text(encoding="utf-8"))["requirements"]


def test_a_tree_with_changes_is_not_released(monkeypatch):
    monkeypatch.setattr(release, "git", lambda *_: "?? new.py")
    with pytest.raises(SystemExit, match="not committed"):
        release.main(["1.2.3", "--step", "check"])


def test_portable_tests_are_there():
    assert [name for name in PORTABLE if not (ROOT / name).is_file()] == []
