"""ptynb: an interactive workbench for ptychographic reconstruction.

Public names are listed in `__init__.pyi` and imported when they are first used. An engine then loads no widgets and no
figures (1.3 s and 60 MB less each), and `ptynb --help` no torch.
"""

import os
import sys
from importlib.metadata import version
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = version("ptynb")
# OpenMP reads this once, when torch is loaded; then it is removed, as other programs that the user starts inherit it.
# By default its threads spin while they wait for one another: on two cores with another busy process, an epoch of torch
# operations took 1.7 s instead of 0.2; with this it takes 0.3 s.
_set_policy = "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ
if _set_policy:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"ptynb has no {name!r}; it has {', '.join(__all__)}.")
    found = _load(name)
    if _set_policy and "torch._C" in sys.modules:
        os.environ.pop("OMP_WAIT_POLICY", None)
    return found
