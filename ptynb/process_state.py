"""What this package changes of the process that uses it, which in a notebook is the user's, and until when.

| state | changed by | until |
| --- | --- | --- |
| interval at which threads are switched | `engine/worker.py` | the end of a turn of a running reconstruction |
| torch's number of threads | `runtime/thread_count.py`, `engine/update_timing.py` | the end of an update, an estimate |
| garbage collection, off | `runtime/compiler.py` | a loop is compiled |
| handler of SIGINT | `serial_executor.py`, `io/hdf5_file.py` | the end of a step that no interrupt may cut |
| handlers of SIGTERM and others | `batch/signals.py` | the end of a run without a notebook |
| `rcParams` of matplotlib, its own names | `figures/figure_page.py` | a figure is drawn |
| loggers of tifffile, RosettaSciIO and Optuna | `io/formats/`, `tuning/trial_storage.py` | a file is read; is opened |
| filters of warnings | `io/formats/rosettasciio.py` | a file is opened |
| `OMP_WAIT_POLICY` | `__init__.py` | torch is loaded, which reads it |
| `XDG_CACHE_HOME`, with a folder of all caches | `figures/font_cache.py` | matplotlib has found its own |
| `NCCL_DEBUG` | `cluster/doctor.py` | its cluster has started |
| slack of timers, of the calling thread | `distributed/group.py` | the group is formed |
| cores, of a helper of the hot path | `runtime/thread_pool.py` | it has moved to another core |

Of a user's process these stay: the helpers of the hot path, which sleep (`runtime/thread_pool.py`, with callbacks at
exit and after a fork); the operations, compiler passes and HDF5 filters that torch, numba and hdf5plugin are given; the
thread of a notebook's kernel that handles the messages of its pages (`widgets/kernel_messages.py`). In processes of its
own the package also sets handlers of signals, `PYTHONSAFEPATH`, variables of NCCL, the working folder, standard output
and cores, and leaves them so: engines, the receiver, the watchdog and commands.

`tests/test_process_state.py` compares all this before and after a reconstruction.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


class ProcessState:
    """Context in which a state of the process is changed, by any number of threads at the same time.

    The first one that enters it changes the state, and the last one that leaves it restores the state. If each
    restored what it found, one that entered second and left last would restore what the first one had set.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        """change: changes the state, and returns the function that restores it."""
        self._change, self._lock = change, threading.Lock()
        self._inside = 0
        self._restore: Callable[[], object] = lambda: None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._restore = self._change()
            self._inside += 1

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore()


def switch_interval(seconds: float) -> Callable[[], object]:
    """Set the interval at which Python switches threads; return the function that restores it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    # It is stored in whole microseconds, rounded down: 0.0003 would come back as 0.000299.
    return lambda: sys.setswitchinterval(before + 5e-7)
