import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import ptynb
from tests.parametrization import each


def homes() -> dict[str, str]:
    """Module that each name of the stub is imported from."""
    found = {}
    for statement in ast.parse(Path(ptynb.__file__).with_suffix(".pyi").read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                assert alias.asname == alias.name, f"{alias.name} is not re-exported as itself"
                found[alias.name] = f"ptynb.{statement.module}" if statement.module else "ptynb"
    return found


HOMES = homes()


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after this statement."""
    program = f"{statement}\nimport sys\nprint('LOADED', *sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(answer.stdout.split("LOADED", 1)[1].split())


def test_type_checkers_see_the_same_names_as_the_interpreter():
    assert ptynb.__all__ == sorted(HOMES)
    assert dir(ptynb) == sorted(HOMES)


@each("name", HOMES)
def test_every_public_name_is_the_one_its_home_defines(name):
    value, home = getattr(ptynb, name), HOMES[name]
    if isinstance(value, ModuleType):
        assert value is import_module(f"{home}.{name}")
    else:
        assert value is getattr(import_module(home), name)
        assert value.__module__ == home
    assert value.__doc__


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(AttributeError, match=r"no 'reconstrcut'; it has .*Cluster.*simulate"):
        ptynb.reconstrcut  # noqa: B018 - looking it up is the test


def test_an_engine_loads_no_widgets_no_figures_and_no_cluster():
    loaded = modules_after("import ptynb.engine.worker")
    assert "torch" in loaded
    assert not loaded & {"ipywidgets", "anywidget", "matplotlib", "ipyparallel", "IPython"}
    # These take 0.3 s: `import scipy`, which loads them when they are used, not names out of its modules.
    assert not loaded & {f"scipy.{name}" for name in ("fft", "ndimage", "sparse", "spatial", "special")}


def test_importing_ptynb_alone_loads_nothing_heavy():
    loaded = modules_after("import ptynb")
    assert not loaded & {"torch", "numpy", "scipy", "h5py", "ipywidgets", "matplotlib", "ipyparallel", "IPython"}


def test_widgets_and_report_load_no_torch():
    loaded = modules_after("import ptynb; ptynb.live, ptynb.inspect, ptynb.figure, ptynb.load_result")
    assert "ptynb.widgets.element_tree" in loaded
    assert not loaded & {"torch", "ipywidgets", "ipyparallel"}
