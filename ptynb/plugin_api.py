"""What plug-ins of other packages are made of: all names that they need, in one place that stays.

Each name is imported when it is used, so that a file format loads no torch, and a loss no cluster. The chapter "Write a
plug-in" of the documentation has a package with one plug-in of each kind.
"""

from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub("ptynb", __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"ptynb.plugin_api has no {name!r}; it has {', '.join(__all__)}.")
    return _load(name)
