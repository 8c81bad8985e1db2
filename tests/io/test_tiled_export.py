"""Results on a Tiled server: a real one, in an environment of its own, as it excludes versions that the tests have."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from urllib.request import urlopen

import pytest

import ptynb as pt
from ptynb.io.export.tiled_export import _parsed
from tests.io.cases import of_case
from tests.io.results import FULL
from tests.raising import raises
from tests.slurm.daemons import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[2]
KEY = "akeyofthetests"
VALUE = "argument.invalid-value"
INVALID = {
    "no encryption": ("http://tiled.example.org/a", "https"),
    "no encryption, a name like a loopback address": ("http://127.0.0.1.example.org/a", "https"),
    "a key": ("https://tiled.example.org/a?api_key=secret", "TILED_API_KEY"),
    "a user": ("https://me:secret@tiled.example.org/a", "TILED_API_KEY"),
    "a port that there is not": ("https://tiled.example.org:99999/a", "65535"),
    "half an address": ("https://[::1/a", "https://SERVER"),
    "no name": ("https://tiled.example.org/api/v1/metadata/", "NAME"),
}
READ_AGAIN = """
import sys
import numpy as np
import ptynb as pt
from tiled.client import from_uri
from tests.io.results import FULL, complex_array
from tests.raising import raises
import dataclasses, os

server = sys.argv[1]
root = from_uri(server)
root.create_container("beamtime")
written = pt.export(FULL, server + "/beamtime/scan 1")
found = root["beamtime"]["scan 1"]
assert found.uri == written, (found.uri, written)
for name in ("object", "probe", "positions"):
    np.testing.assert_array_equal(found[name].read(), getattr(FULL, name))
assert found["probe"].dims == ("mode", "y", "x"), found["probe"].dims
np.testing.assert_array_equal(found["epochs"].read()["loss"], FULL.losses)
np.testing.assert_array_equal(found["parameters"]["weights.weights"].read(), FULL.parameters["weights/weights"])
assert found.metadata["settings"] == FULL.settings
assert found.metadata["pixel_size"] == [1.25e-8, 2.5e-8]
assert os.environ["TILED_API_KEY"] not in repr(found.metadata)

large = dataclasses.replace(FULL, object=complex_array(3000, 3000))  # more than one upload
pt.export(large, f"{root.uri}/large".replace("//large", "/large"))
np.testing.assert_array_equal(root["large"]["object"].read(), large.object)

with raises("export.exists", "scan 1", "another name"):
    pt.export(FULL, server + "/beamtime/scan 1")
with raises("file.not-found", "no container nowhere", "make it first"):
    pt.export(FULL, server + "/nowhere/at/all")
broken = dataclasses.replace(FULL, parameters={"weights/weights": np.array([object()])})
try:
    pt.export(broken, server + "/broken")
except Exception as error:
    print("as it should:", error)
else:
    raise AssertionError("it was written")
assert "broken" not in from_uri(server)
os.environ["TILED_API_KEY"] = "wrong"
with raises("export.server-failed", "401", "TILED_API_KEY"):
    pt.export(FULL, server + "/b")
print("all is well")
"""


def test_an_address_without_encryption_or_with_a_key_is_refused():
    for name, (address, fact) in INVALID.items():
        with of_case(name), raises(VALUE, fact) as caught:
            pt.export(FULL, address)
        assert "secret" not in str(caught.value)


def test_a_server_keeps_its_brackets_and_its_port():
    assert _parsed("http://[::1]:8000/a/b%20c") == ("http://[::1]:8000", ["a", "b c"])
    assert _parsed("https://tiled.example.org/api/v1/metadata/a") == ("https://tiled.example.org/api/v1", ["a"])


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiled.client", None)
    with raises("package.not-installed", "ptynb[tiled]"):
        pt.export(FULL, "https://tiled.example.org/a")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The tests' packages behind Tiled and what it needs."""
    home = tmp_path_factory.mktemp("tiled") / "environment"
    venv.create(home, with_pip=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    (site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    packages = ["tiled[client,server]>=0.2", "sqlalchemy<2.1", "pydantic-settings<2.12"]
    subprocess.run([home / "bin/pip", "install", "--quiet", *packages], check=True)
    return home


@pytest.mark.system("tiled")
@pytest.mark.timeout(900)
def test_a_server_has_what_was_exported(tmp_path, environment):
    (port,) = free_ports(1)
    known = {**os.environ, "PYTHONPATH": str(ROOT), "TILED_API_KEY": KEY}
    command = [environment / "bin/tiled", "serve", "catalog", "--temp", "--api-key", KEY, "--port", str(port)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/healthz", server), 120, "the server answers")
            reader = [environment / "bin/python", "-c", READ_AGAIN, f"http://127.0.0.1:{port}"]
            told = subprocess.run(reader, env=known, capture_output=True, text=True, timeout=300)
            assert told.returncode == 0, told.stdout + told.stderr + (tmp_path / "log").read_text()
            assert "all is well" in told.stdout
        finally:
            server.terminate()
    # nothing listens there any more
    path, address = pt.save_result(FULL, tmp_path / "a.h5"), f"http://127.0.0.1:{port}/a"
    export = [environment / "bin/python", "-m", "ptynb.cli.main", "export", path, address]
    told = subprocess.run(export, env=known, capture_output=True, text=True)
    assert told.returncode != 0, told.stderr
    assert "cannot be reached" in told.stderr
    assert KEY not in told.stderr


def answers(address, process):
    assert process.poll() is None, "the server has ended"
    try:
        with urlopen(address):
            return True
    except OSError:
        return False
