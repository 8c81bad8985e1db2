"""What is in the folder of a run without a notebook, DIR/ID of `--output DIR --id ID`; a job's of the service is one.

| in the folder | what it is |
| --- | --- |
| run.yaml | the run, with all changes of the command line, and paths that are absolute |
| result.h5 | the result |
| checkpoints/ | checkpoints, from which --resume continues |
| progress.jsonl | the lines of `--progress json`, of all processes that have worked on this run |
| scan/ | what was received of a scan while it was measured |
| outcome.json | how it ended; written last, and missing while it runs or if the process was killed |
| lock | held by the process that works in the folder |

Nothing is imported here: a worker of the service takes 0.4 s to start, and 0.8 s with the module that writes them.
"""

from __future__ import annotations

RUN, RESULT, CHECKPOINTS, PROGRESS = "run.yaml", "result.h5", "checkpoints", "progress.jsonl"
SCAN, OUTCOME, LOCK = "scan", "outcome.json", "lock"
WRITTEN = (RUN, RESULT, CHECKPOINTS, PROGRESS, SCAN, OUTCOME)
"""All but the lock, which a run that writes nothing leaves, too."""
