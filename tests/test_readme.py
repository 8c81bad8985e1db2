"""What the README shows is there: links, public names, commands; its picture is no burden."""

import re
from pathlib import Path

import pytest

import ptynb
from docs.build import INCLUDED, REPOSITORY
from ptynb.cli.main import _parser

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SITE = "https://ptynb.readthedocs.io/"
FILES = f"{REPOSITORY}/", "https://raw.githubusercontent.com/ptynb/ptynb/main/"
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)|<(https?://[^>]+)>", README)))
GENERATED = "api/index", "reference/settings", "reference/formats", "reference/errors", "reference/command_line"


@pytest.mark.parametrize("link", sorted({first or second for first, second in LINKS}))
def test_links_lead_to_files_and_pages(link):
    file = next((link.removeprefix(start) for start in FILES if link.startswith(start)), None)
    if file is not None:
        assert (ROOT / file).exists()
        return
    assert link.startswith(SITE), "an index shows absolute links only"
    page = (link.removeprefix(SITE) or "index.html").removesuffix(".html")
    assert (ROOT / "docs" / f"{page}.md").exists() or f"{page}.md" in INCLUDED.values() or page in GENERATED


def test_it_is_short():
    assert len(README.splitlines()) <= 95


def test_the_picture_of_the_workbench_is_small():
    assert 50_000 < (ROOT / "notebooks" / "workbench.png").stat().st_size < 600_000


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bpt\.(\w+)", README))))
def test_names_are_public(name):
    assert name in ptynb.__all__


def test_code_is_python():
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        compile(block, "README.md", "exec")


def test_commands_are_there():
    commands = next(action for action in _parser()._actions if action.choices).choices
    named = set(re.findall(r"(?:^|`|bin/)ptynb ([a-z]+)", README, re.MULTILINE))
    assert {"info", "report", "run"} <= named
    assert named <= {*commands}
