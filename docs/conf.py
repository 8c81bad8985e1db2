"""How Sphinx builds the site; `python -m docs.build FOLDER` runs it on a copy of the pages and the generated ones."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any

from sphinx.application import Sphinx

import ptynb

project = "ptynb"
author = "the ptynb developers"
project_copyright = author
release = version = ptynb.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["**/.ipynb_checkpoints"]
nitpicky = True
suppress_warnings = [
    # what a notebook shows by widgets is shown by a picture, see `docs/build.py`
    "mystnb.unknown_mime_type",
]

myst_enable_extensions = ["deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 3

nb_execution_mode = os.environ.get("PTYNB_DOCS_EXECUTION", "off")
nb_execution_cache_path = os.environ.get("PTYNB_DOCS_CACHE", "")
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True
# no page loads anything from elsewhere, such as the managers of widgets
nb_ipywidgets_js: dict[str, Any] = {}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autosummary_generate = False
autodoc_typehints = "none"  # docstrings have the types, in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = f"ptynb {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
html_theme_options = {
    "logo": {"text": "ptynb"},
    "github_url": "https://github.com/ptynb/ptynb",
    "header_links_before_dropdown": 6,
    "navbar_persistent": ["search-button"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}
html_sidebars = {"index": [], "start": []}
linkcheck_timeout = 10
linkcheck_ignore = [
    r"^start\.html$",  # of a picture: a page that Sphinx makes
    r"https?://(localhost|127\.0\.0\.1|[A-Z]+)\b",
    r"https://(github\.com/ptynb|ptynb\.readthedocs\.io)\b",  # tests/test_docs.py looks for these in the checkout
]

NAME = re.compile(r"(?<![`:\w\\])`([^`\n]+)`(?![`_])")
"""A name or an expression in one pair of backticks."""
LITERAL = re.compile(r"(``[^`]+``)")


def in_backticks(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Turn names in single backticks into code, and public ones into links to their pages.

    Docstrings are read in notebooks and editors, where a backtick is that of Markdown.
    """
    for number, line in enumerate(lines):
        parts = LITERAL.split(NAME.sub(lambda match: _linked(match[1], name), line))
        # what stands between two bars is a magnitude, no substitution
        lines[number] = "".join(part if part.startswith("``") else part.replace("|", r"\|") for part in parts)


def _linked(text: str, page: str) -> str:
    public = text.removeprefix("ptynb.").removeprefix("pt.").removesuffix("()")
    first, _, member = public.partition(".")
    owner = getattr(ptynb, first, None) if first in ptynb.__all__ else None
    if owner is None or inspect.ismodule(owner) or f"ptynb.{public}" == page:
        return f"``{text}``"
    if member and not (inspect.isclass(owner) and _documented(owner, member)):
        return f"``{text}``"
    return f":py:obj:`{text} <ptynb.{public}>`"


def _documented(owner: type, member: str) -> bool:
    found = inspect.getattr_static(owner, member, None)
    return isinstance(found, property) or (callable(getattr(owner, member, None)) and member in vars(owner))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what the docstrings pass through."""
    app.connect("autodoc-process-docstring", in_backticks, priority=400)  # before numpydoc
    return {"parallel_read_safe": True}
