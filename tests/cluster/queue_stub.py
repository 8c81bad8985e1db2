#!/usr/bin/env -S python3 -S
"""Stands for the commands of a scheduler: by its own name it submits, lists or cancels jobs, which it runs at once."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SUBMITTED = {
    "qsub": "{job}.server" if (FOLDER / "pbs").exists() else "{job}",
    "bsub": "Job <{job}> is submitted to queue <gpu>.",
    "condor_submit": "Submitting job(s).\n1 job(s) submitted to cluster {job}.",
}
LISTED = {
    "bjobs": ("{job} RUN", "Job <{job}> is not found"),
    "condor_q": ("{job} 2", ""),
    "qstat": ("{job}.server ptynb-1 me 00:00:01 R gpu", "Unknown Job Id {job}.server")
    if (FOLDER / "pbs").exists()
    else ("  {job} 0.55 ptynb-1 me r 01/31/2026 12:00:00 all.q@n1 1", ""),
}
GONE = {
    "bkill": "Job <{job}>: Job has already finished",
    "condor_rm": "Couldn't find/remove all jobs in cluster {job}",
    "qdel": "qdel: Unknown Job Id {job}.server" if (FOLDER / "pbs").exists() else 'denied: job "{job}" does not exist',
}


def pid_of(job):  # type: ignore[no-untyped-def]
    pid = int((FOLDER / f"{job}.job").read_text())
    try:
        running = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        running = False
    return pid if running else None


name = Path(sys.argv[0]).name
jobs = sorted(path.stem for path in FOLDER.glob("*.job"))
asked = [word for word in sys.argv[1:] if word.isdecimal()] or jobs
if name in SUBMITTED:
    text, job = sys.stdin.read(), str(10 + len(jobs))
    executable = re.search("^executable = (.*)$", text, re.MULTILINE)
    (FOLDER / f"{job}.script").write_text(text)
    script = executable[1] if executable else FOLDER / f"{job}.script"
    with open(os.devnull, "r+b") as nowhere:
        run = subprocess.Popen(["sh", script], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    (FOLDER / f"{job}.job").write_text(str(run.pid))
    print(SUBMITTED[name].format(job=job))
elif name in LISTED:
    failed = False
    for job in asked:
        pid = pid_of(job)
        line = LISTED[name][0 if pid else 1].format(job=job)
        if line:
            print(line, file=sys.stdout if pid else sys.stderr)
            failed = failed or not pid
    sys.exit(failed)
else:
    [job] = asked
    if (pid := pid_of(job)) is None:
        sys.exit(GONE[name].format(job=job))
    os.kill(pid, signal.SIGTERM)
