"""Where matplotlib keeps its list of fonts: it is made when figures are first drawn, which takes some seconds."""

from __future__ import annotations

import os

import matplotlib

from ptynb.private_folder import make_folder
from ptynb.site_values import caches


def keep_fonts_in_caches() -> None:
    """Let matplotlib keep it in the folder of all caches if there is one, and the user has named none for matplotlib.

    matplotlib finds its folder once. A variable of its own would move its settings, too, so XDG_CACHE_HOME is changed
    while it does: where it does not follow that (Windows, macOS), its list stays in the home folder.
    """
    place = caches()
    if place is None or "MPLCONFIGDIR" in os.environ:
        return
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(make_folder(place.absolute()))
    try:
        matplotlib.get_cachedir()
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before
