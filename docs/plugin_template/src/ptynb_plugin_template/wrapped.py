"""A launcher: engines on this machine, each started by a command in front of it, such as `nice -n 10` or `numactl`."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from ptynb.plugin_api import TRUST, ClusterPlan, LauncherPlugin, ProcessLauncher, plan_for


class WrappedLauncher(ProcessLauncher):
    """One process on this machine for each engine of the plan."""

    kind, here = "wrapped", True

    def __init__(self, plan: ClusterPlan, name: str, folder: Path, command: Sequence[str]) -> None:
        super().__init__(plan, name, folder)
        self._command = [*command]

    @classmethod
    def again(cls, plan: ClusterPlan, described: Mapping[str, Any], name: str, folder: Path) -> Self:
        """Return the launcher of a running cluster."""
        return cls(plan, name, folder, described["command"])

    def describe(self) -> dict[str, Any]:
        """Return what `again` needs."""
        return {"command": self._command}

    def start(self, ranks: Sequence[int]) -> None:
        """Start all at the same time."""
        for rank in ranks:
            engine = [sys.executable, "-m", "ptynb.cluster.engine_main", str(self._folder)]
            environment = {**self._plan.engines[rank].environment, "PTYNB_RANK": str(rank), "PTYNB_GPU": "chosen"}
            self._begin(rank, [*self._command, *engine], environment)


class WrappedCluster(LauncherPlugin):
    """Engines on this machine, each behind a command."""

    launcher_class: ClassVar[type[WrappedLauncher]] = WrappedLauncher
    kind: Literal["wrapped"] = "wrapped"
    command: str = Field(
        default="nice -n 10",
        description="Command in front of that of each engine, which it replaces itself by",
        json_schema_extra={TRUST: "is the command that starts the engines"},
    )

    def launcher(self, name: str, folder: Path) -> WrappedLauncher:
        """Return the launcher of a new cluster."""
        plan = plan_for(self.engines, self.device, self.threads)
        return WrappedLauncher(plan, name, folder, shlex.split(self.command))
