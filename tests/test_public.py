import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ptynb
from tests.parametrization import each


def names_for_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(ptynb.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    found = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
        for alias in statement.names:
            assert alias.asname == alias.name, f"{alias.name} is not re-exported as itself"
            found[alias.name] = statement.module
    return found


def modules_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after this statement."""
    program = f"{statement}\nimport sys\nprint('LOADED', *sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(answer.stdout.split("LOADED", 1)[1].split())


def test_type_checkers_see_the_same_names_and_homes_as_the_interpreter():
    modules = {name: home.rpartition(".")[0] for name, home in ptynb._MODULES.items()}
    assert names_for_type_checkers() == ptynb._HOMES | modules
    assert sorted(ptynb.__all__) == sorted(ptynb._HOMES | modules)
    assert set(dir(ptynb)) == {*ptynb.__all__, "__version__"}


@each("name", ptynb._MODULES)
def test_every_public_module_is_the_one_of_its_home(name):
    assert getattr(ptynb, name) is import_module(ptynb._MODULES[name])
    assert getattr(ptynb, name).__doc__


@each("name", ptynb._HOMES)
def test_every_public_name_is_the_one_its_home_defines(name):
    value = getattr(ptynb, name)
    assert value is getattr(import_module(ptynb._HOMES[name]), name)
    assert value.__module__ == ptynb._HOMES[name]
    assert value.__doc__


def test_an_unknown_name_is_an_attribute_error_that_lists_the_known():
    with pytest.raises(AttributeError, match=r"no 'reconstrcut'; it has .*Cluster.*simulate"):
        ptynb.reconstrcut  # noqa: B018 - looking it up is the test


def test_an_engine_loads_no_widgets_no_figures_and_no_cluster():
    loaded = modules_after("import ptynb.engine.worker")
    assert "torch" in loaded
    assert not loaded & {"ipywidgets", "anywidget", "matplotlib", "ipyparallel", "IPython"}


def test_importing_ptynb_alone_loads_nothing_heavy():
    loaded = modules_after("import ptynb")
    assert not loaded & {"torch", "numpy", "scipy", "h5py", "ipywidgets", "matplotlib", "ipyparallel", "IPython"}


def test_widgets_and_report_load_no_torch():
    loaded = modules_after("import ptynb; ptynb.live, ptynb.inspect, ptynb.figure, ptynb.load_result")
    assert "ipywidgets" in loaded
    assert not loaded & {"torch", "ipyparallel"}
