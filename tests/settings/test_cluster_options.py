"""One list of a cluster's options: signatures, docstrings, run files and the command line follow it."""

from __future__ import annotations

import inspect
from typing import Any, get_args

from ptynb.cli import main
from ptynb.cluster.cluster import Cluster
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import (
    CLUSTERS,
    ClusterSection,
    Device,
    LocalCluster,
    SlurmCluster,
    SshCluster,
    checked,
)
from ptynb.settings.run_files.run_file import RunFile
from tests.parametrization import each
from tests.raising import raises

PYTHON_ONLY = {"launcher", "engines_per_gpu", "within", "report", "cancel", "environment"}
RUN = {"scan": "a.h5", "epochs": 1, "result": "b.h5"}


@each(
    ("function", "documented", "section"),
    [
        (Cluster.__init__, Cluster, LocalCluster),
        (Cluster.slurm, Cluster.slurm, SlurmCluster),
        (Cluster.ssh, Cluster.ssh, SshCluster),
    ],
)
def test_a_signature_and_its_docstring_have_the_fields_of_a_section(
    function: Any, documented: Any, section: type[ClusterSection]
) -> None:
    parameters = dict(inspect.signature(function).parameters)
    parameters["engines"] = parameters.pop("n", None)  # type: ignore[assignment]
    fields = {name: field for name, field in section.model_fields.items() if name != "kind"}
    assert {name for name, one in parameters.items() if one and name != "self"} == {*fields} | (
        PYTHON_ONLY & {*parameters}
    )
    for name, field in fields.items():
        default = inspect.Parameter.empty if field.is_required() else field.default
        assert parameters[name].default == default, name
        assert (field.description or "?").partition(";")[0] in documented.__doc__


def test_a_run_file_takes_each_section() -> None:
    for section in CLUSTERS:
        values = {"hosts": {"a": 1}} if section is SshCluster else {}
        chosen = RunFile(**RUN, cluster={"kind": section.model_fields["kind"].default, **values}).cluster
        assert chosen == section(**values)


@each("command", ["run", "demo", "doctor", "advise", "estimate", "scaling"])
def test_the_command_line_has_choices_and_texts_of_the_list(command: str) -> None:
    commands = main._parser()._subparsers
    assert commands is not None
    choices: Any = commands._group_actions[0].choices
    choices[command].parse_known_args(["x"])  # which adds them
    options = {action.dest: action for action in choices[command]._actions}
    assert tuple(options["device"].choices or ()) == get_args(Device)
    for name in {"device", "threads", "engines"} & {*options} if command in ("run", "demo", "doctor") else {"device"}:
        about = (LocalCluster.model_fields[name].description or "?").partition(";")[0]
        assert about[1:] in (options[name].help or ""), name


@each("time", ["90", "90:30", "01:00:00", "1:5:0", "2-12", "2-12:30", "2-12:30:00", "UNLIMITED"])
def test_a_time_of_slurm_has_one_rule(time: str) -> None:
    assert checked(SlurmCluster, time=time) == RunFile(**RUN, cluster={"kind": "slurm", "time": time}).cluster


@each(
    ("wrong", "facts"),
    [
        ({"nodes": 0}, ["nodes is 0", "1"]),
        ({"gpus_per_node": 4, "engines_per_node": 2}, ["engines_per_node is 2", "gpus_per_node is 4"]),
        ({"time": "an hour"}, ["time is 'an hour'", "hours:minutes:seconds"]),
        ({"time": "1:00:00\n#SBATCH --exclusive"}, ["time is "]),
        ({"memory": "64 GB"}, ["memory is '64 GB'"]),
        ({"partition": "gpu --exclusive"}, ["partition is 'gpu --exclusive'"]),
        ({"extra": ("qos",)}, ["extra", "'qos'", "--qos=high"]),
        ({"extra": ("--comment=a\nrm",)}, ["extra is "]),
        ({"partition": "-gpu"}, ["partition is '-gpu'", "'-'"]),
        ({"account": "--uid=0"}, ["account is '--uid=0'"]),
        ({"node": 1}, ["'node'", "nodes"]),
    ],
)
def test_an_option_of_slurm_that_is_not_valid_is_an_error(wrong: dict[str, Any], facts: list[str]) -> None:
    with raises("argument.invalid-value", *facts) as caught:
        Cluster.slurm(**wrong)
    assert isinstance(caught.value, ClusterError)


@each("wrong", [{"n": 0}, {"n": True}, {"threads": 0}, {"device": "gpu"}, {"timeout": 0}, {"detached_timeout": -1}])
def test_an_option_of_this_machine_that_is_not_valid_is_an_error(wrong: dict[str, Any]) -> None:
    with raises("argument.invalid-value", *wrong.values()):
        Cluster(**wrong)
