"""Commands and scripts of schedulers: Slurm, and PBS, LSF, SGE and HTCondor, with one job for each engine.

A scheduler is one entry of `SCHEDULERS`: the commands that submit, list and cancel jobs, how their output is read, and
the header of a job's script. As a program this cancels jobs, for `ptynb stop` and the watchdog, which need not know
whether they have ended already:

    python -m ptynb.cluster.launchers.scheduler_commands KIND RANK=JOB ...

Imports neither torch nor ipyparallel.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ptynb.cluster.runtime_dir import engine_log
from ptynb.exceptions import ClusterError
from ptynb.settings.cluster_options import ClusterSection
from ptynb.text import has_control_characters

COMMAND_SECONDS = 30.0
"""Time limit of a command [s]: a controller is slow with thousands of jobs."""
USUAL_CORES = 4
"""Default number of cores of an engine: it computes, reads frames, answers and writes checkpoints at the same time."""
TEMPLATE = "#!/bin/sh\n{header}\n{command}\n"
"""Default template of a job's script."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
"""Variables SLURM_... that are kept: all others describe the present job or step, and would be options of a new one."""
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSAFEPATH", "PTYNB_SITE", "PTYNB_CACHE")
"""Variables of this process that engines get. No others: schedulers show the environment of a job to all users."""
WAITS, HELD, FAILED, ENDED = "in the queue", "held", "in an error state", "ended"


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """One kind of scheduler.

    submit: reads a script from standard input, and prints what `submitted` finds the job's number in. status: lists
    jobs, whose numbers follow if `by_number`; `listed` finds number and state in a line, and jobs without a line have
    ended (a job of Slurm says more: `slurm_commands.state`). states: patterns of states, and each in words. header:
    options in a script, for the options of a cluster, its name and a log; prefix, option: how each is written.
    """

    title: str
    submit: tuple[str, ...]
    submitted: str
    status: tuple[str, ...] = ()
    by_number: bool = True
    listed: str = ""
    states: Mapping[str, str] = field(default_factory=dict)
    cancel: tuple[str, ...]
    prefix: str = ""
    option: Callable[[str], str] = str
    header: Callable[[ClusterSection, str, Path], list[str]]


GONE = re.compile(
    r"unknown job|job has (already )?finished|state COMPLETE|is not found|no matching job|does not exist|couldn't find"
    "|invalid job id|already completing or completed",
    re.IGNORECASE,
)
"""Messages about jobs that have ended."""


def seconds(time: str) -> int:
    """Return the seconds of a time limit: minutes, minutes:seconds, hours:minutes:seconds, or days-hours and so on."""
    days, _, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    hours, minutes, ones = (*parts, 0, 0)[:3] if days or len(parts) == 3 else (0, *parts, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + ones


def _clock(time: str) -> str:
    """Return a time limit as hours:minutes:seconds."""
    minutes, ones = divmod(seconds(time), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{ones:02}"


def _limit(options: ClusterSection, text: Callable[[str], str]) -> list[str]:
    return [text(options.time)] if options.time and options.time != "UNLIMITED" else []


def _chosen(value: str | None, text: str) -> list[str]:
    return [text.format(value)] if value else []


def _memory(options: ClusterSection) -> str:
    return f"{options.memory}M" if (options.memory or "").isdecimal() else options.memory or ""


def _pbs(options: ClusterSection, name: str, log: Path) -> list[str]:
    memory = _memory(options).lower()
    select = [f"1:ncpus={cores(options)}", *["ngpus=1"] * wants_gpu(options), *_chosen(memory, "mem={}b")]
    return [
        *(f"-N {name}", "-j oe", f"-o {quoted(str(log))}", "-r n", f"-l select={':'.join(select)}"),
        *_limit(options, lambda time: f"-l walltime={_clock(time)}"),
        *_chosen(options.queue, "-q {}"),
        *_chosen(options.account, "-A {}"),
    ]


def _lsf(options: ClusterSection, name: str, log: Path) -> list[str]:
    return [
        *(f"-J {name}", f"-o {quoted(str(log))}", "-rn", f"-n {cores(options)}", '-R "span[hosts=1]"'),
        *['-gpu "num=1"'] * wants_gpu(options),
        *_chosen(_memory(options), "-M {}"),
        *_limit(options, lambda time: f"-W {-(-seconds(time) // 60)}"),
        *_chosen(options.queue, "-q {}"),
        *_chosen(options.account, "-P {}"),
    ]


def _sge(options: ClusterSection, name: str, log: Path) -> list[str]:
    return [
        *(f"-N {name}", "-S /bin/sh", "-j y", f"-o {quoted(str(log))}", "-r n"),
        *[f"-pe smp {cores(options)}"] * (cores(options) > 1),
        *["-l gpu=1"] * wants_gpu(options),
        *_chosen(_memory(options), "-l mem_free={}"),
        *_limit(options, lambda time: f"-l h_rt={_clock(time)}"),
        *_chosen(options.queue, "-q {}"),
        *_chosen(options.account, "-P {}"),
    ]


def _htcondor(options: ClusterSection, name: str, log: Path) -> list[str]:
    if options.queue:
        raise ClusterError(
            f"queue is {options.queue!r}, and HTCondor has no queues; omit it, or choose machines by extra.",
            code="argument.conflict",
            fields=("queue",),
        )
    return [
        *("universe = vanilla", "should_transfer_files = NO", "transfer_executable = False", f"batch_name = {name}"),
        *(f"output = {log}", f"error = {log}", f"request_cpus = {cores(options)}"),
        *["request_gpus = 1"] * wants_gpu(options),
        *_chosen(_memory(options), "request_memory = {}"),
        *_limit(options, lambda time: f"allowed_job_duration = {seconds(time)}"),
        *_chosen(options.account, "accounting_group = {}"),
    ]


def _slurm(options: ClusterSection, name: str, log: Path) -> list[str]:
    return [
        *(f"--job-name={name}", f"--output={literal_path(log)}", "--open-mode=append", "--export=ALL"),
        "--no-requeue",  # engines that Slurm restarts would find no controller
        "--no-kill",  # engines on other nodes continue when a node fails
        *(f"--nodes={options.nodes}", f"--ntasks-per-node={options.per_node}", f"--cpus-per-task={cores(options)}"),
        *([f"--gres=gpu:{options.gpus_per_node}"] if options.gpus_per_node else []),
        *_chosen(options.time, "--time={}"),
        *_chosen(options.partition, "--partition={}"),
        *_chosen(options.account, "--account={}"),
        *_chosen(options.memory, "--mem={}"),
    ]


def literal_path(path: Path) -> Path:
    """Return a path that --output of Slurm, where % begins a pattern, reads as this one."""
    return Path(str(path).replace("%", "%%"))


def quoted(option: str) -> str:
    """Return an option for the header of a script, in double quotes if it has special characters."""
    if re.fullmatch(r"[\w./:=,+@%-]+", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'


SCHEDULERS = {
    "slurm": Scheduler(
        title="Slurm",
        submit=("sbatch", "--parsable"),
        submitted=r"^(\d+)(?:;|$)",
        cancel=("scancel", "--quiet"),
        prefix="#SBATCH ",
        option=quoted,
        header=_slurm,
    ),
    "pbs": Scheduler(
        title="PBS",
        submit=("qsub",),
        submitted=r"^(\d+)",
        status=("qstat",),
        listed=r"^(\d+)\S*\s+\S+\s+\S+\s+\S+\s+([A-Z])\s",
        states={"[QWT]": WAITS, "H": HELD, "[RBE]": "running", "[SU]": "suspended", "[FCXM]": ENDED},
        cancel=("qdel",),
        prefix="#PBS ",
        header=_pbs,
    ),
    "lsf": Scheduler(
        title="LSF",
        submit=("bsub",),
        submitted=r"Job <(\d+)>",
        status=("bjobs", "-noheader", "-o", "jobid stat"),
        listed=r"^(\d+)\s+([A-Z]+)",
        states={"PEND|WAIT|PROV": WAITS, "PSUSP": HELD, "RUN|UNKWN": "running", "[US]SUSP": "suspended",
                "DONE|EXIT|ZOMBI": ENDED},
        cancel=("bkill",),
        prefix="#BSUB ",
        header=_lsf,
    ),
    "sge": Scheduler(
        title="SGE",
        submit=("qsub", "-terse"),
        submitted=r"^(\d+)",
        status=("qstat", "-u", "*"),
        by_number=False,
        listed=r"^\s*(\d+)\s+\S+\s+\S+\s+\S+\s+(\w+)\s",
        states={".*E.*": FAILED, "h.*": HELD, ".*q.*|.*w.*": WAITS, ".*[sST].*": "suspended", "d.*|[rRt]+": "running"},
        cancel=("qdel",),
        prefix="#$ ",
        header=_sge,
    ),
    "htcondor": Scheduler(
        title="HTCondor",
        submit=("condor_submit", "-"),
        submitted=r"submitted to cluster (\d+)",
        status=("condor_q", "-autoformat", "ClusterId", "JobStatus"),
        listed=r"^(\d+)\s+(\d)",
        states={"1": WAITS, "5": HELD, "[26]": "running", "7": "suspended", "[34]": ENDED},
        cancel=("condor_rm",),
        header=_htcondor,
    ),
}  # fmt: skip


def wants_gpu(options: ClusterSection) -> bool:
    """Whether each engine is to have a GPU."""
    return bool(options.device != "cpu")


def cores(options: ClusterSection) -> int:
    """Return the number of cores of each engine."""
    return options.cpus_per_engine or USUAL_CORES


def script(options: ClusterSection, name: str, log: Path, lines: Sequence[str]) -> str:
    """Return the script of a job that runs lines of a shell, from the template if there is one. It has no secrets.

    log: of the script, in the folder of logs. Raises ClusterError for a template that cannot be read, or lacks
    {command}.
    """
    scheduler = SCHEDULERS[options.kind]
    given = (*scheduler.header(options, name, log), *(options.extra or ()))
    header = "\n".join(scheduler.prefix + scheduler.option(one) for one in given)
    command = "\n".join(lines)
    if options.kind != "htcondor":
        return template(options.template).replace("{header}", header).replace("{command}", command)
    file = executable(options, log, command)  # its header is a description beside the script
    return f"{header}\nexecutable = {file}\nqueue\n"


def executable(options: ClusterSection, log: Path, command: str) -> Path:
    """Write the template as a program without the scheduler's options. log: as for `script`. Raises ClusterError."""
    file = log.parent.with_name(f"{log.stem}.sh")
    file.write_text(template(options.template).replace("{header}\n", "").replace("{command}", command))
    file.chmod(0o700)
    return file


def engine_script(options: ClusterSection, name: str, folder: Path, rank: int, engine: Sequence[str]) -> str:
    """Return the script of the job of one engine.

    The engine writes to its log in the folder, and the script adds a line when it has ended: schedulers are asked
    seldom. Raises ClusterError, as `script`.
    """
    variables = {variable: os.environ[variable] for variable in PASSED_ON if variable in os.environ}
    variables |= {"PTYNB_CLUSTER": name, "PTYNB_RANK": str(rank), "OMP_NUM_THREADS": str(cores(options))}
    if not wants_gpu(options):
        variables |= {"CUDA_VISIBLE_DEVICES": "", "PTYNB_GPU": "chosen"}
    lines = [
        test_of(folder),
        f"exec >>{shlex.quote(str(engine_log(folder, rank)))} 2>&1",
        *(f"export {variable}={shlex.quote(value)}" for variable, value in variables.items()),
        f"cd {shlex.quote(os.getcwd())} || exit 3",
        f"{shlex.join(engine)} &",
        "engine=$!",
        "trap 'kill -TERM $engine' TERM  # the engine writes a checkpoint",
        "wait $engine; status=$?",
        "while kill -0 $engine 2>/dev/null; do wait $engine; status=$?; done",
        f'echo "{end_mark(rank)} with status $status"',
        "exit $status",
    ]
    return script(options, name, folder / "log" / f"job-rank{rank}.log", lines)


def test_of(folder: Path) -> str:
    """Return the line of a script that tests whether the machine has the folder. Raises ClusterError for its name."""
    if has_control_characters(str(folder)):
        raise ClusterError(
            f"The folder of the cluster is {str(folder)!r}; expected a path without control characters.",
            code="argument.invalid-value",
        )
    there = shlex.quote(str(folder))
    return f'test -d {there} || {{ echo "$(hostname) does not have the folder "{there}; exit 3; }}'


def template(path: str | None) -> str:
    """Return the template of a job's script. Raises ClusterError if it cannot be read, or lacks {command}."""
    if path is None:
        return TEMPLATE
    try:
        text = Path(path).expanduser().read_text()
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"The template {path!r} cannot be read: {error}.", code="argument.invalid-value", fields=("template",)
        ) from None
    if "{command}" not in text:
        raise ClusterError(
            f"The template {path!r} has no {{command}}; expected the script of a job with {{header}}, which stands for "
            "the scheduler's options, and {command}, which starts an engine.",
            code="argument.invalid-value",
            fields=("template",),
        )
    return text


def end_mark(rank: int) -> str:
    """Return the beginning of the last line in the log of an engine that has ended."""
    return f"ptynb: the engine of rank {rank} has ended"


def submit(kind: str, text: str) -> str:
    """Submit a job and return its number. Raises ClusterError."""
    scheduler = SCHEDULERS[kind]
    answer = ask(scheduler.title, *scheduler.submit, text=text)
    found = re.search(scheduler.submitted, answer, re.MULTILINE)
    if found is None:
        raise ClusterError(
            f"{scheduler.submit[0]} returned {answer.strip()!r}; expected the number of a job.",
            code="scheduler.command-failed",
        )
    return found[1]


def states(kind: str, jobs: Sequence[str]) -> dict[str, str]:
    """Return the states of jobs, in words. Raises ClusterError."""
    scheduler = SCHEDULERS[kind]
    listing = ask(scheduler.title, *scheduler.status, *(jobs if scheduler.by_number else ()), allowed=GONE)
    listed = {
        job: next((words for pattern, words in scheduler.states.items() if re.fullmatch(pattern, state)), state)
        for job, state in re.findall(scheduler.listed, listing, re.MULTILINE)
    }
    return {job: listed.get(job, ENDED) for job in jobs}


def cancel(kind: str, jobs: Sequence[str]) -> None:
    """Cancel jobs, unless they have ended. Raises ClusterError."""
    for job in jobs:
        ask(SCHEDULERS[kind].title, *SCHEDULERS[kind].cancel, job, allowed=GONE)


def require(title: str, name: str) -> str:
    """Return the path of a scheduler's command. Raises ClusterError if it is missing."""
    found = shutil.which(name)
    if found is None:
        raise ClusterError(
            f"{name} was not found on this machine; run the notebook on a login node of the {title} cluster, "
            f"or load the module with the {title} commands.",
            code="scheduler.not-installed",
        )
    return found


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without variables of the present job or step of Slurm, and of the format of squeue."""
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT or not name.startswith(("SLURM_", "SQUEUE_", "PMI_", "PMIX_"))
    }


def ask(title: str, *command: str, text: str = "", allowed: re.Pattern[str] | None = None) -> str:
    """Return the output of a scheduler's command. Raises ClusterError.

    text: its standard input. allowed: messages of failures that are none.
    """
    program = require(title, command[0])
    try:
        done = subprocess.run(
            [program, *command[1:]],
            input=text,
            capture_output=True,
            text=True,
            env=clean(os.environ),
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{command[0]} did not answer within {COMMAND_SECONDS:.0f} s; "
            f"the controller of {title} is down or busy: try again later.",
            code="scheduler.no-answer",
        ) from None
    said = done.stderr.strip() or done.stdout
    if done.returncode != 0 and not (allowed and allowed.search(said)):
        details = "; ".join(re.sub(rf"^{command[0]}: (error: )?", "", line) for line in said.splitlines() if line)
        raise ClusterError(
            f"{command[0]} failed: {details or f'exit code {done.returncode}'}",
            code="scheduler.command-failed",
        )
    return done.stdout


def interval(waited: float) -> float:
    """Return the time between two questions about jobs [s]: longer and longer, to limit the scheduler's load."""
    return min(15.0, max(1.0, waited / 20))


if __name__ == "__main__":
    cancel(sys.argv[1], [word.partition("=")[2] for word in sys.argv[2:]])
