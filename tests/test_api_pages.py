"""The pages of the public names, built by `python -m tests.api_pages` as CONTRIBUTING says, without a warning."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import ptynb


def test_all_public_names_have_their_place_on_the_pages(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "tests.api_pages", str(tmp_path)]
    root = Path(__file__).parent.parent
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, cwd=root)
    assert answer.returncode == 0, answer.stderr
    pages = {str(Path(line).relative_to(tmp_path)): Path(line).read_text() for line in answer.stdout.splitlines()}
    main = pages["ptynb.html"]
    shown = set(re.findall(r'id="([\w.]+)"', main))
    modules = {name for name in ptynb.__all__ if isinstance(getattr(ptynb, name), ModuleType)}
    assert not {*ptynb.__all__} - modules - shown
    for name in modules:
        home = getattr(ptynb, name).__name__
        own = pages[f"{home.replace('.', '/')}.html"]
        assert re.search(r'<section id="\w+">', own), f"the page of {home} is empty"
    assert 'id="Reconstruction.start"' in main
    assert 'id="Reconstruction.snapshot"' in main  # of a base class
    assert 'id="report"' in pages["ptynb/report.html"]
    assert "Largest distance of a position from its initial value" in main  # descriptions of settings
    assert re.search(r"<h6[^>]*>Parameters</h6>", main)
    assert "FieldInfo" not in main
