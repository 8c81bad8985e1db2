"""The examples of deploy/: what can be run of them here is run, with the commands that the files have."""

import ast
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import ptynb as pt
from ptynb.cli.jupyter_proxy import server_process
from tests.slurm.daemons import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
SECONDS = 400


@pytest.fixture(scope="module")
def run_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deploy")
    pt.save_scan(pt.simulate(patterns=36, window=32, seed=3), folder / "scan.h5")
    path = folder / "run.yaml"
    text = "epochs: 3\nsettings: {batch: 12}\ncluster: {engines: 1, device: cpu, threads: 1}\n"
    path.write_text(f"scan: {folder / 'scan.h5'}\n{text}")
    return path


def containers():
    """Each container of the two files, and the settings of its pod."""
    service, job = yaml.safe_load_all((DEPLOY / "job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    assert service["metadata"]["name"] == pod["subdomain"], "names of pods are those of the service"
    assert job["spec"]["completions"] == job["spec"]["parallelism"], "all nodes at once"
    workflow = yaml.safe_load((DEPLOY / "workflow.yaml").read_text())["spec"]
    named = {one["name"]: one["container"] for one in workflow["templates"] if "container" in one}
    return {"job": (pod["containers"][0], pod), **{name: (one, workflow) for name, one in named.items()}}


def test_containers_run_without_rights_and_write_to_mounted_folders_only():
    for name, (container, pod) in containers().items():
        security = container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"], name
        assert security["readOnlyRootFilesystem"], name
        assert not security["allowPrivilegeEscalation"], name
        assert security["capabilities"]["drop"] == ["ALL"], name
        mounted = {one["mountPath"] for one in container["volumeMounts"]}
        assert {"/cache", "/tmp", "/results"} <= mounted, name
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}, name
        (cache,) = (one["value"] for one in container["env"] if one["name"] == "PTYNB_CACHE")
        assert cache == "/cache", name


def test_no_module_of_the_working_folder_is_imported_in_place_of_a_package():
    commands = [server_process()["command"][1:]]
    for path in DEPLOY.glob("*.py"):
        commands += [
            ast.literal_eval(f"[{found}]") for found in re.findall(r'sys\.executable, ("-.*?main")', path.read_text())
        ]
    assert len(commands) == 3
    assert all(command[:3] == ["-P", "-m", "ptynb.cli.main"] for command in commands), commands


class State:
    """What a task of Prefect ended in."""

    def __init__(self, run):
        try:
            self.value, self.error = run(), None
        except subprocess.CalledProcessError as error:
            self.error = error

    def is_completed(self):
        return self.error is None

    def result(self):
        return self.value


def task(function=None, **options):
    """Prefect's decorator: a call raises, or returns a state where that is asked for."""
    if function is None:
        return task

    def call(*values, return_state=False):
        return State(lambda: function(*values)) if return_state else function(*values)

    return call


def test_a_scan_or_an_export_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prefect", SimpleNamespace(flow=lambda **_: lambda run: run, task=task))
    night = runpy.run_path(str(DEPLOY / "prefect_flow.py"))["night"]
    done = []

    def run(command, check):
        done.append("run" if "run" in command else "export")
        fails = {"run": "a.h5", "export": "b.result.h5"}[done[-1]]
        if tmp_path / fails in command:
            raise subprocess.CalledProcessError(70, command)

    monkeypatch.setattr(subprocess, "run", run)
    for name in "abc":
        (tmp_path / f"{name}.h5").touch()
    with pytest.raises(RuntimeError, match=r"^1 scans have results; a\.h5, b\.h5 have failed"):
        night(tmp_path, tmp_path / "run.yaml", tmp_path)
    assert done == ["run", "run", "export", "run", "export"]


def started(command, values, environment=None):
    """Start a container's command here, with its variables and folders replaced."""
    filled = [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], one) for one in command]
    filled = [one.replace("/results", values["RESULTS"]).replace("29500", values["PORT"]) for one in filled]
    program = {"torchrun": ["torch.distributed.run"], "ptynb": ["ptynb.cli.main"]}[filled[0]]
    return subprocess.Popen(
        [sys.executable, "-m", *program, *filled[1:]],
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.system("deploy")
@pytest.mark.timeout(900)
def test_the_pods_of_the_job_give_the_result_of_one_rank(tmp_path, run_file):
    container, _ = containers()["job"]
    (port,) = free_ports(1)
    values = {one["name"]: one["value"] for one in container["env"]}
    values |= {
        "GPUS": "1",
        "MASTER": "127.0.0.1",
        "RUN_FILE": str(run_file),
        "RESULTS": str(tmp_path),
        "PORT": str(port),
    }
    pods = [
        started(container["command"], {**values, "JOB_COMPLETION_INDEX": str(index)})
        for index in range(int(values["NODES"]))
    ]
    try:
        told = [pod.communicate(timeout=SECONDS)[0] for pod in pods]
    finally:
        for pod in pods:
            pod.kill()
    assert [pod.returncode for pod in pods] == [0, 0], "\n".join(told)
    alone = tmp_path / "alone.result.h5"
    command = [sys.executable, "-m", "ptynb.run", run_file, "--result", alone]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    one, two = pt.load_result(alone), pt.load_result(tmp_path / "scan.result.h5")
    assert (one.machines.engines, two.machines.engines) == (1, 2)
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-4)
    np.testing.assert_allclose(two.object, one.object, atol=1e-3)


def test_the_function_of_globus_compute_needs_nothing_of_its_file(tmp_path, run_file):
    """As the endpoint gets it: its text alone."""
    spec = importlib.util.spec_from_file_location("globus_compute", DEPLOY / "globus_compute.py")
    text = spec.loader.get_source("globus_compute")
    function = text[text.index("def reconstruct") : text.index("def main")]
    names = {}
    exec(function, names)
    found = names["reconstruct"](str(run_file), str(tmp_path / "a.h5"))
    assert found["epochs"] == 3
    assert found["r_factor"] == pt.load_result(tmp_path / "a.h5").r_factor
    with pytest.raises(RuntimeError, match="status 66: ") as caught:
        names["reconstruct"](str(tmp_path / "nothing.yaml"), str(tmp_path / "b.h5"))
    assert "nothing.yaml" in "".join(str(caught.value).split())  # rich breaks lines, also within a long path
