"""The site (`docs/`): it builds without a warning, loads nothing from elsewhere, and has all that is public."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import ptynb
from docs import references
from docs.build import REPOSITORY
from docs.remedies import REMEDIES
from ptynb.cli.main import _parser
from ptynb.exceptions import CODES
from ptynb.io.load import FORMATS
from ptynb.settings.schema import structure
from tests.architecture import CHAPTER, named
from tests.import_graph import ROOT

pytestmark = pytest.mark.timeout(900)  # half a minute on an idle core, many on a busy one
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class Loaded(HTMLParser):
    """What a page loads, the addresses that it links to, and the ids in it."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: set[str] = set()
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        if tag == "a":
            self.links.add(found.get("href") or "")
        if tag in LOADING and found.get("rel") not in ("canonical", "next", "prev", "search", "index"):
            self.loaded.append(found.get(LOADING[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "docs.build", str(folder), "--quick"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=850, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    assert not answer.stderr
    return folder / "html"


def read(page: Path) -> Loaded:
    found = Loaded()
    found.feed(page.read_text())
    return found


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "_static" not in page.parts]
    assert len(pages) > 100
    for page in pages:
        for address in filter(None, read(page).loaded):
            assert not re.match(r"(https?:)?//", address), (page, address)
            assert address.startswith("data:") or (page.parent / address.partition("?")[0]).exists(), (page, address)
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import\s+)['\"]?(?:https?:)?//", sheet.read_text()), sheet


def test_addresses_of_the_project_lead_to_files_and_pages(site: Path) -> None:
    """Sphinx checks links between pages, not absolute ones, nor those into folders that it copies."""
    files, site_address, checked = f"{REPOSITORY}/", "https://ptynb.readthedocs.io/", 0
    for page in (page for page in site.rglob("*.html") if "_static" not in page.parts):
        for link in read(page).links:
            address = unquote(link.partition("#")[0]).replace(REPOSITORY.replace("/blob/", "/tree/"), REPOSITORY)
            if address.startswith(files):
                assert (ROOT / address.removeprefix(files)).exists(), (page, link)
            elif address.startswith(site_address):
                assert (site / (address.removeprefix(site_address) or "index.html")).exists(), (page, link)
            elif address and not re.match(r"[a-z]+:", address):
                assert (page.parent / address).exists(), (page, link)
            else:
                continue
            checked += 1
    assert checked > 1000


def test_all_public_names_have_their_page(site: Path) -> None:
    for name in ptynb.__all__:
        value, page = getattr(ptynb, name), site / "api" / f"{name}.html"
        found = read(page).ids
        if isinstance(value, ModuleType):
            assert any(one.startswith(f"{value.__name__}.") for one in found), page
        else:
            assert f"ptynb.{name}" in found, page
    assert "ptynb.Reconstruction.start" in read(site / "api" / "Reconstruction.html").ids
    assert "ptynb.Reconstruction.snapshot" in read(site / "api" / "Reconstruction.html").ids  # of a base class
    settings = (site / "api" / "Positions.html").read_text()
    assert "Largest distance of a position from its initial value" in settings
    assert "FieldInfo" not in settings


def test_groups_have_public_names_only() -> None:
    assert {name for names in references.GROUPS.values() for name in names} <= {*ptynb.__all__}


def test_every_code_has_a_remedy() -> None:
    assert {*CODES} <= {*REMEDIES}
    text = references.errors_page()
    assert all(f"`{code}`" in text for code in CODES)
    assert all(remedy.endswith((".", ")")) for remedy in REMEDIES.values())


def test_all_settings_formats_and_commands_are_there() -> None:
    settings, formats, commands = references.settings_page({}), references.formats_page(), references.command_page()
    whole = structure()
    assert all(f"`{setting.name}`" in settings for setting in whole.settings)
    assert all(f"### {kind.kind}" in settings for entries in whole.lists for kind in entries.kinds)
    assert "`positions.max_shift`\n: *number, in object pixels* · [0, 1024] · default `8.0`" in settings
    assert all(f"| {one.name} |" in formats for one in FORMATS)
    assert {*references.NEEDS} <= {one.name for one in FORMATS}
    assert all(f"## ptynb {name}" in commands for name, _, _ in references.subcommands(_parser()))
    assert "`--share {probe,object}`" in commands


def test_files_of_the_architecture_chapter_exist() -> None:
    for name in named():
        assert (ROOT / name).exists() or (ROOT / "ptynb" / name).exists(), name
    assert {"physics/hotpath.py", "frontend/src/views/live/controls.jsx"} <= named()
    assert CHAPTER.startswith("# Architecture")
