"""Options of clusters, defined once for `ptynb.Cluster`, run files and the command line.

Each entry of a `TypedDict` below defines type, range, default and description of an option. The options are keyword
arguments of `Cluster(...)`, `Cluster.slurm(...)` and `Cluster.ssh(...)` (`field_docs.documented_by` adds them to
signature and docstring), fields of the section `cluster` of a run file, and options of the command line
(`ptynb.cli.arguments`).
"""

from __future__ import annotations

import re
from abc import abstractmethod
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypedDict,
    Union,
    get_args,
    get_type_hints,
)

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator
from pydantic.config import JsonDict

from ptynb.exceptions import ClusterError, InvalidValueError, SettingsError
from ptynb.settings.base_models import MOST_SECONDS, TRUST, SettingsModel
from ptynb.settings.plugin_entries import PluginEntries

Device = Literal["auto", "cpu", "cuda", "xpu", "mps"]
"""Devices to compute on: "cuda" are GPUs of NVIDIA, "xpu" is one of Intel, "mps" one of Apple.

"mps" is always refused, with the reason (`ptynb.cluster.accelerators`).
"""
LOCAL_DEVICES = ("xpu", "mps")
"""Devices of this machine only, and of one engine."""
OFFERED_DEVICES = tuple(name for name in get_args(Device) if name != "mps")
"""Devices that may be there, for a list to choose from."""


def _matching(pattern: str, expected: str) -> AfterValidator:
    """Return a validator of text that matches a pattern; empty text, like None, means that the option is not set."""

    def check(text: str) -> str:
        if text and not re.fullmatch(pattern, text):
            raise InvalidValueError(f"expected {expected}", code="argument.invalid-value")
        return text

    return AfterValidator(check)


Count = Annotated[int, Field(ge=1, le=4096)]
"""Number of engines, GPUs or cores of one machine."""
CountOrNone = Annotated[int, Field(ge=0, le=4096)]
"""The same; 0, like None, means that the option is not set."""
Time = Annotated[
    str,
    _matching(
        r"\d+-\d{1,2}(:\d{1,2}){0,2}|\d+(:\d{1,2}){0,2}|UNLIMITED",
        "hours:minutes:seconds, days-hours, minutes or UNLIMITED, such as '01:00:00'",
    ),
]
Memory = Annotated[str, _matching(r"\d+[KMGT]?", "a number and K, M, G or T, such as '64G'")]
SlurmName = Annotated[
    str, _matching(r"[\w.+@][\w.,+@-]*", "a name without spaces or quotes that does not begin with '-'")
]
SbatchOption = Annotated[
    str, _matching(r"-[^\x00-\x1f\x7f]+", "options of sbatch, each a text that begins with '-', such as '--qos=high'")
]
HeaderOption = Annotated[str, _matching(r"[^\x00-\x1f\x7f]+", "options, each a text in one line")]

NONE = "none"
"""Key in the schema of an option: what None means, which a form shows in an empty field."""


def _none(text: str, meaning: str, more: JsonDict | None = None) -> dict[str, Any]:
    """Return description and schema of an option that may be None. more: of the schema."""
    return {"description": f"{text}; none: {meaning}", "json_schema_extra": {NONE: meaning, **(more or {})}}


DeviceOption = Annotated[
    Device,
    Field(default="auto", description="Device of the engines; auto: GPUs if present (NVIDIA's, then one of Intel)"),
]
DetachedTimeout = Annotated[
    Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)] | None,
    Field(
        default=None,
        title="Detached timeout [s]",
        **_none(
            "Time that a run continues after the process that holds its cluster has ended [s]",
            "3600 in a notebook, 0 elsewhere",
        ),
    ),
]
Timeout = Annotated[float, Field(gt=0, le=MOST_SECONDS, allow_inf_nan=False)]
LISTENS: JsonDict = {TRUST: "is the address on which this machine listens for engines"}
Address = Annotated[
    str | None,
    Field(
        default=None,
        **_none("Address of this machine to which engines connect", "the one on the route to them", LISTENS),
    ),
]
TimeLimit = Annotated[
    Time | None,
    Field(
        default=None,
        title="Time limit",
        description="Time limit of a job as hours:minutes:seconds or days-hours",
    ),
]
Template = Annotated[
    str | None,
    Field(
        default=None,
        title="Template of scripts",
        **_none(
            "Path of the template of a job's script with {header}, the scheduler's options, and {command}, the start",
            "only these two",
            {TRUST: "is the script that the jobs run"},
        ),
    ),
]
START_TITLE = "Longest start [s]"
START_TIMEOUT = "Longest time that engines may take to start [s]"
QueuedTimeout = Annotated[
    Timeout, Field(default=300.0, title=START_TITLE, description=f"{START_TIMEOUT[:-4]}, after the queue [s]")
]
THREADS = _none("Threads of each engine on the CPU", "an equal share of the cores")


class LocalOptions(TypedDict, total=False):
    """Options of engines on this machine."""

    device: DeviceOption
    threads: Annotated[Count | None, Field(default=None, **THREADS)]
    detached_timeout: DetachedTimeout
    timeout: Annotated[Timeout, Field(default=120.0, title=START_TITLE, description=START_TIMEOUT)]


class AloneOptions(TypedDict, total=False):
    """Options of a run without engines."""

    device: DeviceOption
    threads: Annotated[Count | None, Field(default=None, **_none("Threads on the CPU", "all cores"))]


class SlurmOptions(TypedDict, total=False):
    """Options of engines on nodes of a Slurm cluster."""

    gpus_per_node: Annotated[
        CountOrNone | None,
        Field(default=None, title="GPUs per node", description="GPUs of each node, with one engine on each GPU"),
    ]
    engines_per_node: Annotated[CountOrNone | None, Field(default=None, **_none("CPU engines of each node", "1"))]
    device: DeviceOption
    cpus_per_engine: Annotated[
        CountOrNone | None,
        Field(
            default=None,
            title="Cores per engine",
            **_none("Cores and threads of each engine", "its share of the present job, or 4"),
        ),
    ]
    time: TimeLimit
    partition: Annotated[SlurmName | None, Field(default=None, description="Partition of the job")]
    account: Annotated[SlurmName | None, Field(default=None, description="Account of the job")]
    memory: Annotated[
        Memory | None,
        Field(
            default=None,
            title="Memory per node",
            description="Memory of each node, a number and K, M, G or T, such as 64G",
            examples=["64G"],
        ),
    ]
    extra: Annotated[
        tuple[SbatchOption, ...] | None,
        Field(
            default=None,
            max_length=64,
            title="Options of sbatch",
            description="Further options of sbatch, such as --qos=high; they override the others",
            examples=["--qos=high"],
            json_schema_extra={TRUST: "goes to sbatch"},
        ),
    ]
    template: Template
    address: Address
    detached_timeout: DetachedTimeout
    timeout: QueuedTimeout


class JobOptions(TypedDict, total=False):
    """Options of engines as jobs of a scheduler."""

    cpus_per_engine: Annotated[
        CountOrNone | None,
        Field(default=None, title="Cores per engine", **_none("Cores and threads of each engine", "4")),
    ]
    time: TimeLimit
    queue: Annotated[SlurmName | None, Field(default=None, description="Queue of the jobs")]
    account: Annotated[SlurmName | None, Field(default=None, description="Account or project of the jobs")]
    memory: Annotated[
        Memory | None,
        Field(
            default=None,
            title="Memory per engine",
            description="Memory of each job, a number and K, M, G or T, such as 64G",
            examples=["64G"],
        ),
    ]
    extra: Annotated[
        tuple[HeaderOption, ...] | None,
        Field(
            default=None,
            max_length=64,
            title="Further options",
            description="Further options in the header of a job's script (of HTCondor: lines of its description)",
            json_schema_extra={TRUST: "goes to the scheduler"},
        ),
    ]
    template: Template
    address: Address


class EngineOptions(LocalOptions, JobOptions, total=False):
    """Options of engines on this machine, or as jobs of a scheduler."""


class SshOptions(TypedDict, total=False):
    """Options of engines on hosts that ssh reaches."""

    device: DeviceOption
    threads: Annotated[Count | None, Field(default=None, **THREADS)]
    python: Annotated[
        str | None,
        Field(
            default=None,
            **_none(
                "Path of Python on the hosts",
                "the path of this one",
                {TRUST: "is the program that is run on the hosts"},
            ),
        ),
    ]
    ssh: Annotated[
        tuple[str, ...] | None,
        Field(
            default=None,
            max_length=64,
            title="ssh command",
            **_none(
                "Command that connects to a host, with its options",
                "ssh",
                {TRUST: "is the command that is run here for each host"},
            ),
        ),
    ]
    address: Address
    detached_timeout: DetachedTimeout
    timeout: Annotated[Timeout, Field(default=120.0, title=START_TITLE, description=START_TIMEOUT)]


class ClusterSection(SettingsModel):
    """Base class of the sections `cluster` of a run file; `kind` selects one."""

    if TYPE_CHECKING:
        kind: str = ""

        def __getattr__(self, name: str) -> Any: ...


class _RemoteRules(ClusterSection):
    @model_validator(mode="after")
    def _device_of_a_host(self) -> Self:
        if self.device in LOCAL_DEVICES:
            raise InvalidValueError(
                f"device is {self.device!r}, which only an engine of this machine can have; expected 'auto', 'cpu' or "
                "'cuda' for engines on other hosts",
                code="argument.invalid-value",
                fields=("device",),
            )
        return self


class _JobRules(_RemoteRules):
    @property
    def threads(self) -> int | None:
        """Threads of an engine on the CPU."""
        return self.cpus_per_engine or None


class _SlurmRules(_JobRules):
    @property
    def per_node(self) -> int:
        """Number of engines of each node; ranks fill the nodes in order."""
        return self.engines_per_node or self.gpus_per_node or 1

    @property
    def engines(self) -> int:
        """Number of engines; on one node unless `nodes` is set."""
        return (self.nodes or 1) * self.per_node

    @model_validator(mode="after")
    def _one_engine_per_gpu(self) -> Self:
        if self.gpus_per_node and self.engines_per_node not in (None, 0, self.gpus_per_node):
            raise InvalidValueError(
                f"engines_per_node is {self.engines_per_node} and gpus_per_node is {self.gpus_per_node}; expected one "
                "engine on each GPU: omit engines_per_node, or omit gpus_per_node for CPU engines",
                code="argument.conflict",
                fields=("engines_per_node", "gpus_per_node"),
            )
        return self


class _SshRules(_RemoteRules):
    @field_validator("hosts", mode="before", check_fields=False)
    @classmethod
    def _named(cls, hosts: Any) -> Any:
        if not isinstance(hosts, list | tuple):
            return hosts
        if not all(isinstance(host, str) for host in hosts):
            raise InvalidValueError(
                "expected names, or names with numbers of engines as {name: 2}", code="argument.invalid-type"
            )
        if len(set(hosts)) < len(hosts):
            raise InvalidValueError("expected each name once", code="argument.invalid-value")
        return dict.fromkeys(hosts)


def _section(name: str, base: type[ClusterSection], options: type, **first: Any) -> type[ClusterSection]:
    """Create the model of a section `cluster` of a run file, with the fields `first` and the options."""
    fields: dict[str, Any] = {**first, **get_type_hints(options, include_extras=True)}
    about = (options.__doc__ or "").replace("Options of e", "E").replace("Options of a", "A")
    about = about.replace("a scheduler", name.removesuffix("Cluster"))
    return create_model(name, __base__=base, __doc__=about, __module__=__name__, **fields)


LocalCluster = _section(
    "LocalCluster",
    ClusterSection,
    LocalOptions,
    kind=(Literal["local"], "local"),
    engines=Annotated[
        Count | None,
        Field(default=None, **_none("Number of engines", "one per GPU, or on the CPU one per NUMA node")),
    ],
)
NoCluster = _section("NoCluster", ClusterSection, AloneOptions, kind=(Literal["none"], "none"))
SlurmCluster = _section(
    "SlurmCluster",
    _SlurmRules,
    SlurmOptions,
    kind=(Literal["slurm"], "slurm"),
    nodes=Annotated[
        Annotated[int, Field(ge=1, le=100_000)] | None,
        Field(default=None, **_none("Number of nodes", "those of the present job")),
    ],
)
JOB_FIELDS: dict[str, Any] = {
    "engines": Annotated[Count | None, Field(default=None, **_none("Number of engines, each a job of its own", "1"))],
    "device": Annotated[
        Device, Field(default="auto", description="Device of the engines; auto: as cuda, each job requests one GPU")
    ],
    **get_type_hints(JobOptions, include_extras=True),
    "detached_timeout": DetachedTimeout,
    "timeout": QueuedTimeout,
}
PbsCluster, LsfCluster, SgeCluster, HTCondorCluster = (
    _section(f"{name}Cluster", _JobRules, JobOptions, kind=(Literal[name.lower()], name.lower()), **JOB_FIELDS)
    for name in ("Pbs", "Lsf", "Sge", "HTCondor")
)
SshCluster = _section(
    "SshCluster",
    _SshRules,
    SshOptions,
    kind=(Literal["ssh"], "ssh"),
    hosts=Annotated[
        dict[str, Count | None],
        Field(
            min_length=1,
            max_length=4096,
            description="Names of the hosts for ssh, as a list, or with the number of engines of each",
            json_schema_extra={TRUST: "are the hosts that ssh connects to, and that run engines as you"},
        ),
    ],
)
JOB_CLUSTERS = (PbsCluster, LsfCluster, SgeCluster, HTCondorCluster)
CLUSTERS = (LocalCluster, NoCluster, SlurmCluster, SshCluster, *JOB_CLUSTERS)
SECTIONS: dict[str, type[ClusterSection]] = {section.model_fields["kind"].default: section for section in CLUSTERS}
"""The sections by their kind."""
QUEUED = tuple(kind for kind, section in SECTIONS.items() if issubclass(section, _JobRules))
"""Kinds of clusters whose start may wait in a queue."""


class LauncherPlugin(_RemoteRules):
    """Base class of launchers of plug-ins: the options of a cluster, and what starts its engines.

    A subclass has its name as `kind: Literal["name"] = "name"`, further fields with descriptions, from which forms are
    made, `launcher_class` and `launcher`. What runs a program, or connects to other machines, is marked: a run file
    with it has to be confirmed (`json_schema_extra={TRUST: "is the command that ..."}`). Engines are started by
    `python -m ptynb.cluster.engine_main FOLDER`, with their rank in the variable PTYNB_RANK.

    Attributes
    ----------
    launcher_class : type
        Class of the launcher, derived from `ptynb.plugin_api.Launcher`.
    """

    launcher_class: ClassVar[type[Any]]
    kind: str
    engines: Annotated[Count, Field(default=1, description="Number of engines")]
    device: DeviceOption
    threads: Annotated[Count | None, Field(default=None, **THREADS)]
    address: Address
    detached_timeout: DetachedTimeout
    timeout: Annotated[Timeout, Field(default=120.0, title=START_TITLE, description=START_TIMEOUT)]

    @abstractmethod
    def launcher(self, name: str, folder: Path) -> Any:
        """Return the launcher of a new cluster.

        Parameters
        ----------
        name : str
            Name of the cluster, with which its processes are marked.
        folder : Path
            Folder of the cluster.

        Returns
        -------
        Launcher
            The launcher, which has started nothing.
        """


LAUNCHERS = PluginEntries("launchers", LauncherPlugin, tuple(SECTIONS))  # type: ignore[type-abstract]
if TYPE_CHECKING:
    AnyCluster = ClusterSection
else:
    AnyCluster = Annotated[Annotated[Union[CLUSTERS], Field(discriminator="kind")], LAUNCHERS]  # noqa: UP007 - of a tuple


def all_sections() -> dict[str, type[ClusterSection]]:
    """Return the sections by their kind, those of plug-ins, too; what cannot be used of them is a notice."""
    return {**SECTIONS, **LAUNCHERS.models()}


def section_of_kind(kind: str) -> type[ClusterSection] | None:
    """Return the section of a kind, one of ptynb's or of a plug-in; None if there is none. Raises PluginError."""
    return SECTIONS.get(kind) or LAUNCHERS.model(kind)


def checked(section: type[ClusterSection], **values: Any) -> ClusterSection:
    """Return validated options of a cluster. Raises ClusterError."""
    try:
        return section(**values)
    except SettingsError as error:
        error.code = "argument.invalid-value"
        raise error.retold(ClusterError, str(error)) from None
