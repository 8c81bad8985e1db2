"""What is asked of Slurm, or offered by it: nodes, engines, GPUs; and which GPU is an engine's own. Only plain data:
an engine reads it before torch loads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ptynb.exceptions import InvalidValueError
from ptynb.text import quoted

TIME = re.compile(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED")
"""Slurm's spellings: minutes, minutes:seconds, hours:minutes:seconds, days-hours and so on."""
MEMORY = re.compile(r"\d+[KMGT]?")
NAME = re.compile(r"([\w.+@][\w.,+@-]*)?")
OPTION = re.compile(r"-[^\x00-\x1f\x7f]+")
MOST = 100_000
"""Nodes, or anything of one node."""
USUAL_CORES = 4
"""Of an engine, unless told otherwise: it computes, reads frames, answers and keeps at the same time."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Nodes of a Slurm cluster, and how engines are spread over them. Raises ValueError where that can't be.

    engines_per_node: 0: one per GPU, or one where there are none.
    cpus_per_engine: processor cores of each engine, on which it reads frames and, without a GPU, computes; 0: its share
        of the present job, or 4.
    time: of the whole job, for example "01:00:00" or "2-12" (days-hours); empty: the partition's own limit.
    memory: of each node, for example "64G"; empty: the partition's own.
    extra: further options of sbatch, for example "--qos=high"; the last word where they repeat one of the others.
    """

    nodes: int = 1
    engines_per_node: int = 0
    gpus_per_node: int = 0
    cpus_per_engine: int = 0
    time: str = ""
    partition: str = ""
    account: str = ""
    memory: str = ""
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("engines_per_node", 0), ("gpus_per_node", 0), ("cpus_per_engine", 0)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= MOST:
                raise InvalidValueError(
                    f"{name} is {quoted(number)}; expected a whole number, at least {least} and at most {MOST}."
                )
        if self.gpus_per_node and self.engines_per_node not in (0, self.gpus_per_node):
            raise InvalidValueError(
                f"{self.engines_per_node} engines on {self.gpus_per_node} GPUs of a node were asked for; each engine "
                "has a GPU of its own: leave out engines_per_node, or gpus_per_node for CPU engines."
            )
        if self.time and not TIME.fullmatch(self.time):
            raise InvalidValueError(
                f"time is {quoted(self.time)}; expected hours:minutes:seconds or days-hours, as '01:00:00'."
            )
        if self.memory and not MEMORY.fullmatch(self.memory):
            raise InvalidValueError(f"memory is {quoted(self.memory)}; expected a number and K, M, G or T, as '64G'.")
        for name in ("partition", "account"):
            if not NAME.fullmatch(getattr(self, name)):
                raise InvalidValueError(
                    f"{name} is {quoted(getattr(self, name))}; expected a name without spaces or quotes, and no '-' at "
                    "its beginning."
                )
        extra: object = self.extra
        if not isinstance(extra, tuple) or not all(map(OPTION.fullmatch, self.extra)):
            raise InvalidValueError(
                f"extra is {quoted(self.extra)}; expected options of sbatch, each a string, as ('--qos=high',)."
            )

    @property
    def per_node(self) -> int:
        """How many engines each node has."""
        return self.engines_per_node or self.gpus_per_node or 1

    @property
    def cores(self) -> int:
        """How many processor cores each engine has."""
        return self.cpus_per_engine or USUAL_CORES

    @property
    def engines(self) -> int:
        """How many engines there are."""
        return self.nodes * self.per_node

    def place(self, rank: int) -> tuple[int, int]:
        """Number of the node, and number on it, of this rank: ranks fill one node after the other."""
        return divmod(rank, self.per_node)

    def options(self) -> tuple[str, ...]:
        """The options of sbatch that ask for it."""
        return (
            f"--nodes={self.nodes}",
            f"--ntasks-per-node={self.per_node}",
            f"--cpus-per-task={self.cores}",
            *([f"--gres=gpu:{self.gpus_per_node}"] if self.gpus_per_node else []),
            *([f"--time={self.time}"] if self.time else []),
            *([f"--partition={self.partition}"] if self.partition else []),
            *([f"--account={self.account}"] if self.account else []),
            *([f"--mem={self.memory}"] if self.memory else []),
            *self.extra,
        )

    def lacks(self, wanted: Allocation) -> str:
        """What of `wanted` is not here, in words; empty where all is."""
        for what, has, needs in (
            ("nodes", self.nodes, wanted.nodes),
            ("GPUs on each node", self.gpus_per_node, wanted.gpus_per_node),
            ("cores on each node", self.per_node * self.cores, wanted.per_node * wanted.cpus_per_engine),
        ):
            if has < needs:
                return f"{has} {what} where {needs} are wanted"
        return ""


def own_gpu(environment: Mapping[str, str]) -> str:
    """What CUDA_VISIBLE_DEVICES is to be for a task of Slurm, so that it sees its own GPU only; "" without one.

    Slurm shows a task either all GPUs of its node's share (numbers or UUIDs, of slices too), of which it takes the one
    of its number on the node, or, with --gpus-per-task, its own alone. That number is PTYNB_LOCALID (an engine that was
    started again is alone in its step) or SLURM_LOCALID. Raises ValueError where tasks would have to share.
    """
    listed = [entry.strip() for entry in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if not listed or listed[0].lower() in ("nodevfiles", "-1", "none", "void"):
        return ""
    local = int(environment.get("PTYNB_LOCALID") or environment.get("SLURM_LOCALID", "0"))
    shared = environment.get("SLURM_GPUS_ON_NODE", "")
    alone = len(listed) == 1 and shared.isdigit() and int(shared) > 1
    if alone:
        return listed[0]
    if local >= len(listed):
        raise InvalidValueError(
            f"Task {local} of this node has no GPU of its own: Slurm shows it {len(listed)} "
            f"({','.join(listed)}); ask for as many GPUs as engines on each node."
        )
    return listed[local]
