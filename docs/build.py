"""Build the site: `python -m docs.build FOLDER [--quick] [--links]`.

It is opened at FOLDER/html/index.html, without a network.

The pages of this folder are copied to FOLDER/source, and beside them the notebooks, the documents of the package, and
the pages that are generated from docstrings, settings, formats, errors and the command (`references.py`). Notebooks are
executed, and pictures of the effects of settings are computed (`effects.py`), unless the site is built quickly; what a
notebook has shown is kept in a cache. Warnings are errors, and a link within the site that leads nowhere is a warning;
with `--links` one to another host is an error, too, if nothing answers there (needs a network).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from docs import effects, references

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPOSITORY = "https://github.com/ptynb/ptynb/blob/main"
INCLUDED = {
    "ptynb/conventions.md": "reference/conventions.md",
    "ptynb/result_file.md": "reference/result_file.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "tests/benchmarks/RESULTS.md": "results.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "deploy/README.md": "deploy.md",
    "docs/plugin_template/README.md": "plugin_template.md",
}
"""Documents of the checkout, and their place in the site; those that there are not are left out."""
LISTINGS = ("docs/plugin_template/src/ptynb_plugin_template/huber.py",)
"""Source that a how-to shows whole."""
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
WORKBENCH = ROOT / "notebooks" / "workbench.png"
PICTURES = {"pt.live(": "live", "pt.workbench(": "workbench"}
"""Calls that show a view, and its picture, for pages without a kernel."""
VIEWS = (*PICTURES, "pt.inspect(", "pt.compare(", "pt.settings_form(", "pt.tuner(")
LIVE = (98, 270, 2460, 1357)
"""The live view in the picture of the workbench: left, upper, right, lower [pixels]."""


def prepare(source: Path, quick: bool) -> None:
    """Write the pages of the site into an empty folder."""
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns("*.py", "__pycache__", "plugin_template"))
    shutil.copy(DOCS / "conf.py", source)
    (source / "pictures").mkdir(exist_ok=True)
    for original, place in INCLUDED.items():
        if (ROOT / original).exists():
            (source / place).write_text(_relinked((ROOT / original).read_text(), original, place))
    _list_others(source)
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        (source / "gallery" / notebook.name).write_text(_illustrated(notebook))
    for original in LISTINGS:
        shutil.copy(ROOT / original, source / "howto")
    shutil.copy(WORKBENCH, source / "pictures")
    with Image.open(WORKBENCH) as picture:
        picture.crop(LIVE).save(source / "pictures" / "live.png")
    pictures = {} if quick else effects.draw(source / "pictures")
    references.write(source, pictures)


def _list_others(source: Path) -> None:
    """List pages of this folder that no list names at the end of the background."""
    background = source / "background.md"
    lists = (source / "index.md", source / "howto" / "index.md", background)
    listed = {line.removeprefix("../") for file in lists for line in file.read_text().splitlines()}
    for page in (source / original.name for original in DOCS.glob("*.md")):
        page.write_text(_relinked(page.read_text(), f"docs/{page.name}", page.name))
    others = [page for page in sorted(source.glob("*.md")) if page.stem not in {*listed, "index"}]
    text, toctree = background.read_text().split("```{toctree}")
    lines, names = (f"- []({page.name})" for page in others), (page.stem for page in others)
    entries = "\n".join([toctree.rstrip().removesuffix("```").rstrip(), *names])
    background.write_text("\n".join([text.rstrip(), *lines, "", f"```{{toctree}}{entries}", "```", ""]))


def _relinked(text: str, original: str, place: str) -> str:
    """Return a document whose relative links lead to pages of the site, where it has them, else to the repository."""

    def target(match: re.Match[str]) -> str:
        file = os.path.normpath(Path(original).parent / match[1])
        if file.startswith("docs/") and file not in INCLUDED and file.endswith((".md", ".ipynb")):
            return match[0]
        if file in INCLUDED:
            return f"]({os.path.relpath(INCLUDED[file], Path(place).parent)}{match[2] or ''})"
        if file.startswith("notebooks/") and file.endswith(".ipynb"):
            return f"]({os.path.relpath(file.replace('notebooks', 'gallery', 1), Path(place).parent)})"
        if not (ROOT / file).exists():  # Sphinx warns of it
            return match[0]
        return f"]({REPOSITORY}/{file}{match[2] or ''})"

    return LINK.sub(target, text)


def _illustrated(notebook: Path) -> str:
    """Return a notebook with pictures after the cells that show widgets."""
    content = json.loads(notebook.read_text())
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            original = f"notebooks/{notebook.name}"
            cell["source"] = _relinked("".join(cell["source"]), original, f"gallery/{notebook.name}")
    content["cells"] = [shown for cell in content["cells"] for shown in _with_picture(cell)]
    return json.dumps(content)


def _with_picture(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a cell, without its output if that is a view, which only a kernel can show, and its picture."""
    code = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
    if any(call in code for call in VIEWS):
        cell["metadata"] = {**cell["metadata"], "tags": ["remove-output"]}
    yield cell
    for call, name in PICTURES.items():
        if call in code:
            text = f"![What {call}...) shows during a run](../pictures/{name}.png)\n\n*{call}...) during a run*"
            yield {"cell_type": "markdown", "id": f"{cell['id']}-shown", "metadata": {}, "source": text}


def build(folder: Path, quick: bool = False, cache: Path | None = None, links: bool = False) -> int:
    """Build the site and return the exit status of Sphinx."""
    source = folder / "source"
    for old in (source, folder / "html", folder / "doctrees"):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    prepare(source, quick)
    environment = os.environ | {
        "PTYNB_DOCS_EXECUTION": "off" if quick else "cache",
        "PTYNB_DOCS_CACHE": str((cache or folder / "notebooks").resolve()),
    }
    options = ("-W", "--keep-going", "-n", "-q", "-d", str(folder / "doctrees"))
    status = 0
    for builder in ("html", "linkcheck") if links else ("html",):
        command = (sys.executable, "-m", "sphinx", *options, "-b", builder, str(source), str(folder / builder))
        status |= subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode
    return status


def main() -> int:
    """Build the site as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder for the site")
    parser.add_argument("--quick", action="store_true", help="execute no notebook and draw no picture")
    parser.add_argument("--links", action="store_true", help="also try the links to other hosts")
    parser.add_argument("--cache", type=Path, help="folder for what notebooks have shown (FOLDER/notebooks)")
    chosen = parser.parse_args()
    return build(chosen.folder, chosen.quick, chosen.cache, chosen.links)


if __name__ == "__main__":
    sys.exit(main())
